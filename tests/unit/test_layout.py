"""Layouts: their algebra, the vendors' maps written in them, and the bank arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegen.layout import FragmentLayout, Layout, bank_conflicts

DATA = Path(__file__).parents[1] / "data" / "layouts.json"
ORACLE: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))["insts"]

extents = st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4).filter(lambda e: prod(e) <= 64)
# A loaded machine is no fault of the code.
unhurried = settings(deadline=None)


@st.composite
def bijections(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> Layout:
    """Compact layouts with their digits in any order of significance."""
    shape = tuple(draw(extents)) if shape is None else shape
    stride = [0] * len(shape)
    place = 1
    for position in draw(st.permutations(range(len(shape)))):
        stride[position] = place
        place *= shape[position]
    return Layout(shape, tuple(stride))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts of any strides, gaps and repeats included."""
    shape = draw(extents)
    return Layout(tuple(shape), tuple(draw(st.integers(0, 12)) for _ in shape))


@unhurried
@given(layouts())
def test_a_number_is_the_sum_of_its_digits(layout: Layout) -> None:
    for number in range(layout.size):
        digits = layout.digits(number)
        place, total = 1, 0
        for extent, digit in zip(layout.shape, digits, strict=True):
            assert 0 <= digit < extent
            total += digit * place
            place *= extent
        assert total == number
        assert layout(number) == sum(d * s for d, s in zip(digits, layout.stride, strict=True))
    assert layout.indices() == list(layout)
    assert layout.cosize == 1 + max(layout)


@unhurried
@given(bijections())
def test_the_inverse_leads_back_from_both_sides(layout: Layout) -> None:
    inverse = layout.inverse()
    assert layout.is_bijection()
    assert [inverse(layout(n)) for n in range(layout.size)] == list(range(layout.size))
    assert [layout(inverse(n)) for n in range(layout.size)] == list(range(layout.size))


@unhurried
@given(layouts(), layouts())
def test_composition_is_pointwise_or_refused(outer: Layout, inner: Layout) -> None:
    try:
        composed = outer.compose(inner)
    except ValueError:
        return
    assert composed.size == inner.size
    assert list(composed) == [outer(index) for index in inner]


@unhurried
@given(st.data())
def test_composition_with_a_permutation_of_the_same_digits_succeeds(data: st.DataObject) -> None:
    # The digits of `inner` land on whole digits of `outer`, so refusing would be a fault.
    inner = data.draw(bijections())
    order = sorted(range(len(inner.shape)), key=lambda i: (inner.stride[i], i))
    outer = data.draw(bijections(tuple(inner.shape[i] for i in order if inner.shape[i] > 1)))
    composed = outer.compose(inner)
    assert list(composed) == [outer(index) for index in inner]
    assert composed.is_bijection()


@unhurried
@given(layouts())
def test_the_simplified_layout_is_the_same_map_with_no_digit_to_spare(layout: Layout) -> None:
    simple = layout.simplified()
    assert list(simple) == list(layout)
    assert 1 not in simple.shape
    runs = zip(simple.shape, simple.stride, simple.stride[1:], strict=False)
    assert all(extent * step != following for extent, step, following in runs)


@unhurried
@given(layouts(), layouts())
def test_concat_counts_the_first_layout_fastest(first: Layout, second: Layout) -> None:
    joined = Layout.concat(first, second)
    assert list(joined) == [a + b for b in second for a in first]


@unhurried
@given(layouts())
def test_injective_and_bijective_are_what_counting_says(layout: Layout) -> None:
    taken = list(layout)
    assert layout.is_injective() == (len(set(taken)) == len(taken))
    assert layout.is_bijection() == (sorted(taken) == list(range(len(taken))))
    assert not layout.is_bijection(layout.size + 1)


def test_scaling_multiplies_every_index() -> None:
    layout = Layout((4, 8), (32, 1))
    assert list(layout.scaled(3)) == [3 * index for index in layout]


def test_the_empty_layout_maps_zero_to_zero() -> None:
    assert Layout().size == 1
    assert list(Layout()) == [0]
    assert str(Layout((4, 8), (32, 1))) == "(4,8):(32,1)"


@pytest.mark.parametrize(
    ("shape", "stride", "says"),
    [
        ((2, 2), (1,), "differ in length"),
        ((0,), (1,), "extent under 1"),
        ((2, -1), (1, 2), "extent under 1"),
        ((2,), (-1,), "negative"),
    ],
)
def test_what_is_no_layout_is_refused(
    shape: tuple[int, ...], stride: tuple[int, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Layout(shape, stride)


@pytest.mark.parametrize("number", [-1, 32])
def test_a_number_outside_the_layout_is_an_index_error(number: int) -> None:
    with pytest.raises(IndexError, match=r"0\.\.31"):
        Layout((4, 8), (32, 1))(number)


@pytest.mark.parametrize("layout", [Layout((2,), (2,)), Layout((2, 2), (1, 1)), Layout((4,), (0,))])
def test_only_a_bijection_has_an_inverse(layout: Layout) -> None:
    with pytest.raises(ValueError, match="not a bijection"):
        layout.inverse()


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (Layout((4,), (1,)), Layout((8,), (1,))),  # beyond the end
        (Layout((4, 4), (1, 8)), Layout((2,), (3,))),  # a step of 3 in digits of 4
        (Layout((4, 4), (1, 8)), Layout((6,), (1,))),  # 6 steps in digits of 4
        (Layout((4, 4), (1, 8)), Layout((2, 2), (2, 2))),  # 2 + 2 carries into the next digit
    ],
)
def test_a_composition_that_falls_between_digits_is_refused(outer: Layout, inner: Layout) -> None:
    with pytest.raises(ValueError, match=r"does not fall on whole digits|reaches beyond"):
        outer.compose(inner)


# The maps of DESIGN section 3, as (lane, value) pairs, and those that the backends will need.
MFMA16 = Layout((16, 4), (1, 64)), Layout((4,), (16,))
MFMA32 = Layout((32, 2), (1, 128)), Layout((4,), (32,))
WMMA = Layout((16, 2), (1, 0)), Layout((16,), (16,))
METAL = Layout((2, 2, 2, 2, 2), (16, 1, 2, 32, 4)), Layout((2,), (8,))
MAPS: dict[tuple[str, str], tuple[Layout, Layout]] = {
    ("sm_80:m16n8k16_f32_bf16", "A"): (Layout((4, 8), (32, 1)), Layout((2, 2, 2), (16, 8, 128))),
    ("sm_80:m16n8k16_f32_bf16", "B"): (Layout((4, 8), (16, 1)), Layout((2, 2), (8, 64))),
    ("sm_80:m16n8k16_f32_bf16", "C"): (Layout((4, 8), (32, 1)), Layout((2, 2), (16, 8))),
    **{
        (f"sm_90a:wgmma_C_m64n{n}", "C"): (
            Layout((4, 8, 4), (128, 1, 16)),
            Layout((2, 2, n // 8), (64, 8, 512)),
        )
        for n in (8, 64)
    },
    ("sm_90a:wgmma_A_regs_64x16", "A"): (
        Layout((4, 8, 4), (128, 1, 16)),
        Layout((2, 2, 2), (64, 8, 512)),
    ),
    ("gfx942:v_mfma_f32_16x16x16_bf16", "A"): MFMA16,
    ("gfx942:v_mfma_f32_16x16x16_bf16", "B"): MFMA16,
    ("gfx942:v_mfma_f32_16x16x16_bf16", "C"): (Layout((16, 4), (16, 4)), Layout((4,), (1,))),
    ("gfx942:v_mfma_f32_32x32x8_bf16", "A"): MFMA32,
    ("gfx942:v_mfma_f32_32x32x8_bf16", "B"): MFMA32,
    ("gfx942:v_mfma_f32_32x32x8_bf16", "C"): (Layout((32, 2), (32, 4)), Layout((4, 4), (1, 8))),
    ("gfx1100:v_wmma_f32_16x16x16_bf16", "A"): WMMA,
    ("gfx1100:v_wmma_f32_16x16x16_bf16", "B"): WMMA,
    ("gfx1100:v_wmma_f32_16x16x16_bf16", "C"): (Layout((16, 2), (16, 1)), Layout((8,), (2,))),
    ("metal:simdgroup_matrix_8x8", "M"): METAL,
}


@pytest.mark.parametrize(("name", "operand"), MAPS, ids=lambda part: str(part))
def test_vendor_maps(name: str, operand: str) -> None:
    lane, value = MAPS[name, operand]
    entry = ORACLE[name]["operands"][operand]
    rows, cols = entry["rows"], entry["cols"]
    if operand == "B":  # (k, n) in the file, (n, k) here
        rows, cols = cols, rows
    fragment = FragmentLayout(rows, cols, lane, value, entry["replication"])
    assert (fragment.lanes, fragment.values) == (len(entry["map"]), len(entry["map"][0]))
    for who, held in enumerate(entry["map"]):
        for register, (row, col) in enumerate(held):
            want = (col, row) if operand == "B" else (row, col)
            assert fragment(who, register) == want, (who, register)
    assert fragment.is_complete()


def test_every_operand_of_the_excerpt_is_checked() -> None:
    named = {(name, operand) for name, entry in ORACLE.items() for operand in entry["operands"]}
    # ldmatrix is an address map, which test_five_kernels uses.
    assert {pair for pair in named if "ldmatrix" not in pair[0]} == set(MAPS)


def test_a_duplicated_operand_needs_its_copies_declared() -> None:
    assert FragmentLayout(16, 16, *WMMA, copies=2).is_complete()
    assert not FragmentLayout(16, 16, *WMMA).is_complete()
    assert FragmentLayout(16, 16, *WMMA, copies=2).owners[3, 5] == [(3, 5), (19, 5)]


@pytest.mark.parametrize(
    ("rows", "cols", "lane", "value"),
    [
        (16, 8, Layout((4, 8), (32, 1)), Layout((2,), (16,))),  # half of the rows missing
        (16, 8, Layout((4, 8), (32, 1)), Layout((2, 2), (16, 16))),  # some held twice
        (16, 4, Layout((4, 8), (32, 1)), Layout((2, 2), (16, 8))),  # beyond the last column
    ],
)
def test_an_incomplete_fragment_is_noticed(
    rows: int, cols: int, lane: Layout, value: Layout
) -> None:
    assert not FragmentLayout(rows, cols, lane, value).is_complete()


@unhurried
@given(bijections(), st.data())
def test_owners_and_call_agree(layout: Layout, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(layout.shape)))
    lane = Layout(layout.shape[:cut], layout.stride[:cut])
    value = Layout(layout.shape[cut:], layout.stride[cut:])
    rows = data.draw(
        st.sampled_from([d for d in range(1, layout.size + 1) if layout.size % d == 0])
    )
    fragment = FragmentLayout(rows, layout.size // rows, lane, value)
    assert fragment.is_complete()
    assert fragment.lanes * fragment.values == prod(layout.shape)
    for place, holders in fragment.owners.items():
        assert [fragment(*holder) for holder in holders] == [place]


def strided(bytes_apart: int, lanes: int = 32) -> Iterator[int]:
    return (lane * bytes_apart for lane in range(lanes))


@pytest.mark.parametrize(
    ("addresses", "access_bytes", "extra"),
    [
        pytest.param(strided(4), 4, 0, id="f32, neighbours"),
        pytest.param(strided(8), 4, 1, id="f32, every second word"),
        pytest.param(strided(12), 4, 0, id="f32, an odd stride"),
        pytest.param(strided(128), 4, 31, id="f32, one bank"),
        pytest.param(strided(132), 4, 0, id="f32, one bank, padded"),
        pytest.param(strided(0), 4, 0, id="f32, broadcast"),
        pytest.param(strided(2), 2, 0, id="f16, neighbours: two lanes a word"),
        pytest.param(strided(64), 2, 15, id="f16, two banks"),
        pytest.param(strided(8), 8, 0, id="8 bytes, neighbours"),
        pytest.param(strided(16), 8, 2, id="8 bytes, every second"),
        pytest.param(strided(16), 16, 0, id="16 bytes, neighbours"),
        # Each group of 8 lanes meets half of the banks twice: one extra cycle for each of 4 groups.
        pytest.param(strided(32), 16, 4, id="16 bytes, every second"),
        pytest.param(strided(128), 16, 28, id="16 bytes, one column of 128-byte rows"),
        pytest.param(
            (128 * lane + 16 * (lane % 8) for lane in range(32)), 16, 0, id="the same with the XOR"
        ),
        pytest.param(strided(4, 64), 4, 0, id="64 lanes, two halves"),
        pytest.param(strided(128, 64), 4, 62, id="64 lanes, one bank"),
        pytest.param(strided(256, 1), 256, 0, id="wider than all banks"),
        pytest.param(iter(()), 4, 0, id="nobody"),
    ],
)
def test_bank_conflicts(addresses: Iterator[int], access_bytes: int, extra: int) -> None:
    assert bank_conflicts(addresses, access_bytes) == extra


def test_more_banks_conflict_less() -> None:
    # gfx950 has 64 banks: a stride of 64 words is one bank there, 32 words are two.
    assert bank_conflicts(strided(128), 4, banks=64) == 15
    assert bank_conflicts(strided(256), 4, banks=64) == 31
