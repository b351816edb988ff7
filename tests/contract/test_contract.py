"""The contract of every generated kernel: nine points and the cases from public bug reports.

Registering a backend enrols it. Numbers in brackets are rows of the table of cases; the checks of
:func:`tilegen.testing.check_problem` (every element, the guard band round D, NaN round the operands)
run in each of them.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np
import pytest
from contract.enrolled import Target, cases, float_cases, kernel

import tilegen as tg
from tilegen.bounds import BIAS_SIGMAS
from tilegen.dtypes import DTYPES
from tilegen.mutation.checks import Apart, check_far
from tilegen.testing import (
    Problem,
    View,
    apply_epilogue,
    check_problem,
    make_arrays,
    operand_values,
    rounded,
    strided,
)
from tilegen.tiling import compute_type, operand_type

WIDE = View(multiple=16)
UNALIGNED = View(offset=1, pad=1)
Array = np.ndarray[Any, Any]


def views(view: View) -> dict[str, View]:
    return dict.fromkeys((*"abcd", "bias", "scale", "residual"), view)


def dtype(target: Target, operand: str) -> np.dtype[Any]:
    return DTYPES[getattr(target.types, operand)].numpy


def matrix(shape: tuple[int, ...], kind: np.dtype[Any], majorness: str, seed: int = 0) -> Array:
    """Small whole numbers in the majorness asked for."""
    low = 0 if kind.kind == "u" else -3
    values = np.random.default_rng(seed).integers(low, 4, shape).astype(kind)
    if majorness == "row":
        return values
    return np.swapaxes(np.ascontiguousarray(np.swapaxes(values, -1, -2)), -1, -2)


def operands(k: tg.Kernel, m: int, n: int, depth: int) -> tuple[Array, Array, Array]:
    """A, B and C of a kernel without an epilogue."""
    t, layout = k.plan.spec.types, k.plan.spec.layout
    return (
        matrix((m, depth), DTYPES[t.a].numpy, layout.a, 1),
        matrix((depth, n), DTYPES[t.b].numpy, layout.b, 2),
        matrix((m, n), DTYPES[t.c].numpy, layout.c, 3),
    )


def product(k: tg.Kernel, a: Array, b: Array, c: Array | float = 0.0) -> Array:
    """A·B + C as the kernel's D must be, bit for bit."""
    exact = a.astype(np.float64) @ b.astype(np.float64) + np.asarray(c, np.float64)
    return rounded(exact, DTYPES[k.plan.spec.types.d])


def fraction(k: tg.Kernel, value: float) -> float:
    """The value as alpha or beta: whole where they are."""
    return value if DTYPES[compute_type(k.plan.spec)].is_float else float(np.ceil(value))


def unit(k: tg.Kernel, want: Array, slack: Array) -> Array:
    """How far rounding to D's type may carry two values that are not the same before it."""
    out = DTYPES[k.plan.spec.types.d]
    step = 2 * out.roundoff * np.abs(want) + out.subnormal if out.is_float else 1.0
    return np.where(slack > 0, step, 0.0)


def result(k: tg.Kernel, c: Array) -> Array:
    """C's values as an array for D."""
    order: Any = "C" if k.plan.spec.layout.d == "row" else "F"
    return np.array(c, DTYPES[k.plan.spec.types.d].numpy, order=order)


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# Sizes, tails and depths


@cases()
@pytest.mark.parametrize("view", [WIDE, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("size", [(3, 7, 64), (1, 1, 1), (1, 105, 107), (65, 33, 17)], ids=str)
def test_small_and_odd_sizes(
    target: Target, name: str, size: tuple[int, int, int], view: View
) -> None:
    """[4]"""
    check_problem(kernel(target, name), Problem(*size, beta=2.0, views=views(view)))
    half = fraction(kernel(target, name), 0.5)
    check_problem(kernel(target, name), Problem(*size, alpha=half, values="normal"))


@cases()
def test_every_entry_runs(target: Target, name: str) -> None:
    k = kernel(target, name)
    bm, bn, bk = k.plan.block
    tries = [
        views(WIDE),
        views(UNALIGNED),
        views(View(broadcast="none", pad=3)),
        # Leading dimensions that accesses of 8 and of 4 bytes allow, and no wider ones.
        *(views(View(multiple=m)) for m in (8, 4, 2)),
        {**views(WIDE), "a": View(broadcast="cols"), "b": View(broadcast="rows")},
        {**views(WIDE), "a": View(broadcast="rows"), "b": View(broadcast="cols")},
    ]
    ran = {
        check_problem(k, Problem(m, n, 2 * bk + 1, beta=-1.0, values=v, views=view)).entry
        for view in tries
        for m, n in ((2 * bm, 2 * bn), (bm + 1, bn + 1))
        for v in ("integers", "normal")
    }
    # Aligned to some elements and no more: entries of the widths between.
    for x in (2, 4, 8):
        problem = Problem(bm + 1, bn + 1, 2 * bk + 1, views=views(View(offset=x, multiple=x)))
        ran.add(check_problem(k, problem).entry)
    assert ran == {entry.name for entry in k.plan.main_entries}


@cases()
def test_every_depth(target: Target, name: str) -> None:
    """[6] Tiles of K fewer than the stages, a multiple of them and not, and every tail."""
    k = kernel(target, name)
    bm, bn, bk = k.plan.block
    stages = k.plan.spec.stages
    for depth in {1, bk - 1, bk, bk + 1, 2 * bk, stages * bk - 1, stages * bk + bk, 3 * bk + 2}:
        for view in (WIDE, UNALIGNED):
            check_problem(k, Problem(bm, bn, depth, views=views(view)))
            check_problem(k, Problem(bm + 1, bn - 1, depth, views=views(view)))


@cases("parts_of_k")
def test_parts_of_k(target: Target, name: str) -> None:
    """Parts of K without a tile, with fewer than the stages, as many and more; also without K."""
    k = kernel(target, name)
    bm, bn, bk = k.plan.block
    parts = k.plan.split_k * bk
    for depth in (0, 1, parts - bk + 1, parts, 2 * parts + 3, 5 * parts):
        check_problem(k, Problem(bm, bn, depth, batch=3, beta=2.0, views=views(WIDE)))
        check_problem(k, Problem(bm + 1, 2 * bn - 3, depth, views=views(UNALIGNED)))


@cases()
def test_more_tiles_than_one_group_of_them(target: Target, name: str) -> None:
    """Tiles are walked in groups of rows; whole tiles and tails on either axis, beyond one group."""
    k = kernel(target, name)
    bm, bn, bk = k.plan.block
    for m, n in ((11 * bm, 2 * bn), (11 * bm, bn), (9 * bm + 1, 3 * bn + 1), (2 * bm, 11 * bn)):
        check_problem(k, Problem(m, n, bk + 1, beta=1.0))


@cases()
def test_every_element_at_its_own_place(target: Target, name: str) -> None:
    """[8]"""
    k = kernel(target, name)
    bm, bn, _ = k.plan.block
    for m in (bm - 1, bm, bm + 1, 2 * bm + 1):
        for n in (bn - 1, bn, bn + 1, 2 * bn + 1):
            check_problem(k, Problem(m, n, m, values="position"))


@cases()
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_empty_sizes(target: Target, name: str, beta: float) -> None:
    """[12] Nothing is launched without an output; K = 0 leaves epilogue(beta * C)."""
    k = kernel(target, name)
    for size in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (0, 5, 0)):
        assert check_problem(k, Problem(*size, beta=beta)).entry == ""
    for size in ((5, 7, 0), (65, 33, 0)):
        check_problem(k, Problem(*size, beta=beta))
        check_problem(k, Problem(*size, beta=beta, in_place=True))


@cases("plain")
def test_no_depth_is_beta_c_whatever_alpha_is(target: Target, name: str) -> None:
    k = kernel(target, name)
    whole = not DTYPES[compute_type(k.plan.spec)].is_float
    for m, n in ((5, 7), (64, 96)):
        a, b, c = operands(k, m, n, 0)
        for alpha in (-1.0, 7.0) if whole else (float("nan"), float("inf"), -1.0):
            assert np.array_equal(k(a, b, c, alpha=alpha, beta=2), product(k, a, b, 2.0 * c))
            assert np.array_equal(k(a, b, alpha=alpha), product(k, a, b))


# What is read and what is written


@cases()
def test_poisoned_c_does_not_leak(target: Target, name: str) -> None:
    """[13]"""
    for in_place in (False, True):
        for size in ((65, 33, 17), (64, 96, 32)):
            problem = Problem(*size, poison_c=True, in_place=in_place)
            check_problem(kernel(target, name), problem)


@cases("plain", "odd_tiles", "batched_bias", "activations")
def test_alpha_zero_reads_neither_a_nor_b(target: Target, name: str) -> None:
    k = kernel(target, name)
    for beta in (0.0, 2.0):
        problem = Problem(35, 41, 19, alpha=0.0, beta=beta)
        arrays = make_arrays(problem, k.plan.spec)
        c = None if arrays.c is None else arrays.c.astype(np.float64)
        arrays.a[...] = np.nan if DTYPES[k.plan.spec.types.a].is_float else 7
        arrays.b[...] = np.inf if DTYPES[k.plan.spec.types.b].is_float else 7
        got = k(arrays.a, arrays.b, arrays.c, alpha=0.0, beta=beta, **arrays.extras)
        value = np.zeros(got.shape) if c is None else beta * c
        want, slack = apply_epilogue(k.plan.spec, value, 0 * value, arrays.extras)
        want = rounded(want, DTYPES[k.plan.spec.types.d])
        assert np.all(np.abs(got.astype(np.float64) - want) <= slack + unit(k, want, slack))


@cases()
def test_c_and_d_may_be_one_array(target: Target, name: str) -> None:
    k = kernel(target, name)
    for view in (WIDE, UNALIGNED):
        for size in ((32, 48, 16), (37, 29, 21)):
            check_problem(k, Problem(*size, beta=-1.0, in_place=True, views=views(view)))


@cases()
def test_broadcasts(target: Target, name: str) -> None:
    k = kernel(target, name)
    batched = k.plan.spec.batch == "strided"
    for operand in "abc":
        for axis in ("rows", "cols", "all", *(("batch",) if batched else ())):
            view = {operand: View(broadcast=axis)}
            count = 3 if batched else None
            check_problem(k, Problem(35, 41, 19, batch=count, beta=2.0, views=view))
    # A and B aligned, and of C one row or column.
    for axis in ("rows", "cols"):
        view = {**views(WIDE), "c": View(broadcast=axis)}
        check_problem(k, Problem(35, 41, 19, beta=2.0, views=view))


@cases("batched_bias", "batched_scale")
def test_batches(target: Target, name: str) -> None:
    k = kernel(target, name)
    for count in (None, 0, 1, 3):
        for view in (WIDE, UNALIGNED):
            problem = Problem(35, 41, 19, batch=count, beta=2.0, views=views(view))
            outcome = check_problem(k, problem)
            assert bool(outcome.entry) == (count != 0)
            check_problem(k, Problem(35, 41, 0, batch=count, beta=2.0, in_place=True))


@cases("batched_scale")
def test_one_matrix_serves_every_batch(target: Target, name: str) -> None:
    k = kernel(target, name)
    arrays = make_arrays(Problem(19, 23, 11, batch=3), k.plan.spec)
    more: dict[str, Any] = arrays.extras
    whole = k(arrays.a, arrays.b, **more)
    for i in range(3):
        alone = k(arrays.a[i], arrays.b[i], **more)
        assert bits(alone) == bits(whole[i])
    shared = k(arrays.a, arrays.b[1], **more)
    assert bits(shared[2]) == bits(k(arrays.a[2], arrays.b[1], **more))


@cases("plain", "tiny_warp")
@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_offsets_and_odd_leading_dimensions(target: Target, name: str, offset: int) -> None:
    """[3, 22]"""
    for pad in (0, 1, 3):
        problem = Problem(67, 45, 33, beta=1.0, views=views(View(pad=pad, offset=offset)))
        check_problem(kernel(target, name), problem)


# Values


@float_cases("plain", "odd_tiles", "deep")
def test_nan_rows_stay_in_their_rows(target: Target, name: str) -> None:
    """[15]"""
    k = kernel(target, name)
    a, b, _ = operands(k, 16, 33, 32 + 5)
    a[0], a[1:] = 1, np.nan
    got = k(a, b)
    assert np.array_equal(got[0].astype(np.float64), b.astype(np.float64).sum(axis=0))
    assert np.isnan(got[1:]).all()


@float_cases("plain")
def test_a_nan_of_any_bits_stays_one(target: Target, name: str) -> None:
    """All of them set, as some GPUs answer, too: rounded up like a number it would be zero."""
    k = kernel(target, name)
    a, b, _ = operands(k, 9, 33, 7)
    (alpha,) = struct.unpack("<d", struct.pack("<Q", 2**63 - 1))
    assert np.isnan(k(a, b, alpha=alpha)).all()
    assert np.isnan(k(a, b, alpha=-alpha)).all()
    # One that has only its lowest bit must not become infinity, in A or in B.
    size = a.dtype.itemsize
    for operand in (a, b) if a.dtype.kind == "f" and size > 1 else ():
        kept = operand[0, 0].copy()
        infinite = np.array(np.inf, operand.dtype).view(f"u{size}")
        operand[0, 0] = (infinite + 1).astype(f"u{size}").view(operand.dtype)
        got = k(a, b).astype(np.float64)
        assert np.isnan(got[0] if operand is a else got[:, 0]).all()
        operand[0, 0] = kept


@float_cases()
def test_nan_and_inf_follow_ieee(target: Target, name: str) -> None:
    k = kernel(target, name)
    spec = k.plan.spec
    arrays = make_arrays(Problem(37, 41, 19, beta=2.0), spec)
    a, b, c = arrays.a, arrays.b, arrays.c
    assert c is not None
    a[3, 4], a[5, 0], a[7, 18] = np.nan, np.inf, -np.inf
    b[2, 6], b[1, 9], c[11, 12], c[13, 14], c[15, 1] = np.nan, np.inf, np.nan, np.inf, -np.inf
    more: dict[str, Any] = arrays.extras
    got = k(a, b, c, beta=2.0, **more).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.einsum("mk,kn->mn", a.astype(np.float64), b.astype(np.float64))
        value = product + 2.0 * c.astype(np.float64)
        want, slack = apply_epilogue(spec, value, np.zeros_like(value), arrays.extras)
        want = rounded(want, DTYPES[spec.types.d])
    assert np.array_equal(np.isnan(got), np.isnan(want))
    there = ~np.isnan(want)
    finite = np.isfinite(want)
    assert np.array_equal(got[there & ~finite], want[there & ~finite])
    bound = slack + unit(k, want, slack)
    assert np.all(np.abs(got[finite] - want[finite]) <= bound[finite])


@float_cases("plain")
def test_ties_round_to_even(target: Target, name: str) -> None:
    """[18] Products half-way between two values, of either sign; NumPy rounds them to even."""
    k = kernel(target, name)
    d, a_type, b_type = DTYPES[k.plan.spec.types.d], dtype(target, "a"), dtype(target, "b")
    # A square of the step is half a unit of D's last place, or all of it an octave higher.
    step = {"f64": 2.0**-27, "f32": 2.0**-12, "f16": 2.0**-5, "bf16": 2.0**-4}[d.name]
    if target.types.a == "tf32":
        # Its numbers end at 2**-10, and their products are exact in f32.
        step = 2.0**-10
    odd = 1 + step * np.arange(1, min(512, 1 / step), 2)
    a = (odd * np.where(np.arange(odd.size) % 3, 1, -1)).astype(a_type)[:, None]
    b = odd.astype(b_type)[None, :]
    a_placed = a if k.plan.spec.layout.a == "row" else np.asfortranarray(a)
    left, right = operand_values(a, target.types.a), operand_values(b, target.types.b)
    exact = left.astype(np.longdouble) * right.astype(np.longdouble)
    # A sum in f16 has been rounded before D is.
    want = rounded(rounded(exact, DTYPES["f16"]) if target.types.acc == "f16" else exact, d)
    assert np.array_equal(k(a_placed, b).astype(np.float64), want)
    if d.name == target.types.a:
        assert np.any(exact != want.astype(np.longdouble))


@cases("plain")
def test_integer_outputs_round_and_saturate(target: Target, name: str) -> None:
    """Halves go to even and what does not fit to the nearest end, where D is narrower than the sums."""
    k = kernel(target, name)
    d = DTYPES[k.plan.spec.types.d]
    if d.is_float:
        return
    a = matrix((40, 9), dtype(target, "a"), k.plan.spec.layout.a, 1)
    b = matrix((9, 41), dtype(target, "b"), k.plan.spec.layout.b, 2)
    sums = a.astype(np.float64) @ b.astype(np.float64)
    scales = (1.0, 2.0**30, -(2.0**30)) if d.name == "s32" else (0.5, -1.5, 1000.0, -1000.0)
    seen: set[float] = set()
    for alpha in scales:
        got = k(a, b, alpha=alpha)
        assert np.array_equal(got, rounded(alpha * sums, d)), alpha
        seen |= set(got.astype(np.float64).ravel())
    assert {d.smallest, d.largest} <= seen


@float_cases("plain", "odd_tiles")
def test_rounding_is_unbiased(target: Target, name: str) -> None:
    """[18] The mean signed error of 1e5 sums, in units of the bound."""
    outcome = check_problem(kernel(target, name), Problem(320, 320, 33, values="normal"))
    assert abs(outcome.signed_mean) <= BIAS_SIGMAS / np.sqrt(outcome.elements)


@cases()
def test_the_same_bits_every_time(target: Target, name: str) -> None:
    k = kernel(target, name)
    alpha, beta = fraction(k, 1.5), fraction(k, 0.5)
    arrays = make_arrays(Problem(69, 77, 131, beta=beta, values="normal"), k.plan.spec)
    runs = {
        bits(k(arrays.a, arrays.b, arrays.c, beta=beta, alpha=alpha, **arrays.extras))
        for _ in range(3)
    }
    assert len(runs) == 1


# Offsets of more than 31 and 32 bits


def sparse(elements: int, kind: np.dtype[Any]) -> Array:
    """Zeros of which only the pages that are touched take memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        memory = mmap.mmap(-1, elements * kind.itemsize, flags=flags)
    except (OSError, ValueError, OverflowError) as error:
        pytest.skip(f"{elements * kind.itemsize} bytes of address space cannot be mapped: {error}")
    return np.frombuffer(memory, kind)


def far_apart(shape: tuple[int, int], kind: np.dtype[Any], majorness: str, ld: int) -> Array:
    slow, fast = shape if majorness == "row" else shape[::-1]
    room = sparse((slow - 1) * ld + fast, kind)
    view = strided(room, (slow, fast), (ld * kind.itemsize, kind.itemsize))
    return view if majorness == "row" else view.T


@cases("plain", "odd_tiles", "one_stage", "tiny_warp", "deep")
@pytest.mark.parametrize("operand", ["a", "b", "c", "d"])
@pytest.mark.parametrize("ld", [2**30 + 8, 2**31 + 7], ids=["2**30+8", "2**31+7"])
def test_huge_strides(target: Target, name: str, operand: str, ld: int) -> None:
    """[10] The last row lies beyond 2**31 elements, and beyond 2**32 bytes."""
    if not getattr(target.device, "shares_host_memory", True):
        pytest.skip(f"{target.device.name} copies host arrays, and {8 * ld >> 30} GiB are too many")
    k = kernel(target, name)
    layout = k.plan.spec.layout
    a, b, c = operands(k, 3, 3, 3)
    arrays = {"a": a, "b": b, "c": c, "d": np.zeros((3, 3), DTYPES[k.plan.spec.types.d].numpy)}
    arrays["d"] = np.asarray(arrays["d"], order="C" if layout.d == "row" else "F")
    want = product(k, a, b, 2.0 * c)
    far = far_apart((3, 3), arrays[operand].dtype, getattr(layout, operand), ld)
    far[...] = arrays[operand]
    arrays[operand] = far
    got = k(arrays["a"], arrays["b"], arrays["c"], beta=2, out=arrays["d"])
    assert got is arrays["d"]
    assert np.array_equal(got, want)


@cases("plain", "batched_bias", "batched_scale")
@pytest.mark.parametrize("apart", ["rows", "batches", "start"])
def test_everything_far_apart(target: Target, name: str, apart: Apart) -> None:
    """Rows, batches and the first element beyond 2**31 elements, vectors and the residual too."""
    if not getattr(target.device, "shares_host_memory", True):
        pytest.skip(f"{target.device.name} copies host arrays, and 8 GiB each are too many")
    check_far(kernel(target, name), apart)


# Refusals


def refused(k: tg.Kernel, *arrays: Any, **options: Any) -> str:
    with pytest.raises(tg.LaunchError) as caught:
        k(*arrays, **options)
    return str(caught.value)


@cases("plain", "odd_tiles", "one_stage", "tiny_warp", "deep")
def test_the_wrong_majorness_names_the_layout(target: Target, name: str) -> None:
    k = kernel(target, name)
    layout = k.plan.spec.layout
    right = dict(zip("abc", operands(k, 9, 11, 13), strict=True))
    right["d"] = result(k, right["c"])
    for operand in "abcd":
        other: Any = "C" if getattr(layout, operand) == "col" else "F"
        arrays = {**right, operand: np.array(right[operand], order=other)}
        message = refused(k, arrays["a"], arrays["b"], arrays["c"], beta=1, out=arrays["d"])
        assert f"{'out' if operand == 'd' else operand}:" in message
        assert f"layout.{operand}" in message


@cases("plain")
def test_strides_that_are_not_taken(target: Target, name: str) -> None:
    """[22]"""
    k = kernel(target, name)
    a, b, c = operands(k, 9, 11, 13)
    assert "negative" in refused(k, a[::-1], b)
    assert "negative" in refused(k, a, b[:, ::-1])
    assert "negative" in refused(k, a, b, c[::-1], beta=1)
    assert "negative" in refused(k, a, b, out=result(k, c)[::-1])
    wide = operands(k, 9, 11, 26)[0]
    assert "layout.a" in refused(k, wide[:, ::2], b)
    room = np.zeros((2, 11), DTYPES[k.plan.spec.types.d].numpy)
    same = strided(room[0], (9, 11), (0, room.itemsize))
    assert "stride of 0" in refused(k, a, b, out=same)


@cases("plain")
def test_strides_of_axes_with_one_element_never_count(target: Target, name: str) -> None:
    """[22] A view of one row whose strides are (1, 1), and slices with an offset."""
    k = kernel(target, name)
    a, b, _ = operands(k, 1, 11, 13)
    odd = strided(a.ravel(order="K"), (1, 13), (a.itemsize, a.itemsize))
    assert np.array_equal(k(odd, b), product(k, a, b))
    x, y, z = operands(k, 12, 17, 15)
    got = k(x[1:9, 2:14], y[3:, 1:], z[1:9, 1:], beta=1)
    assert np.array_equal(got, product(k, x[1:9, 2:14], y[3:, 1:], z[1:9, 1:]))


@cases("plain", "batched_bias")
def test_arrays_that_do_not_fit(target: Target, name: str) -> None:
    k = kernel(target, name)
    arrays = make_arrays(Problem(9, 11, 13, beta=1.0), k.plan.spec)
    a, b, c, out, more = arrays.a, arrays.b, arrays.c, arrays.out, arrays.extras
    assert c is not None
    wrong = np.dtype(np.float32 if a.dtype == np.float64 else np.float64)
    assert "type" in refused(k, a.astype(wrong), b, **more)
    assert "type" in refused(k, a, b, out=out.astype(wrong), **more)
    assert "agree" in refused(k, a[:, 1:], b, **more)
    assert refused(k, a, b, c[1:], beta=1, **more).startswith("c:")
    assert refused(k, a, b, out=out[1:], **more).startswith(("d:", "out:"))
    assert "dimensions" in refused(k, a[0], b, **more)
    assert "ndarray" in refused(k, a.tolist(), b, **more)
    assert "needs c" in refused(k, a, b, beta=1, **more)
    assert "number" in refused(k, a, b, alpha="2", **more)
    locked = out.copy(order="K")
    locked.flags.writeable = False
    assert "read-only" in refused(k, a, b, out=locked, **more)
    assert "bias" in refused(k, a, b, **({} if more else {"bias": np.zeros(11, a.dtype)}))


@cases("plain", "odd_tiles")
def test_an_output_over_an_input_is_refused(target: Target, name: str) -> None:
    k = kernel(target, name)
    layout = k.plan.spec.layout
    a, b, c = operands(k, 8, 8, 8)
    d = result(k, c)
    room = np.zeros(800, np.uint8)
    order: Any = "C" if layout.d == "row" else "F"
    moved = np.ndarray((8, 8), d.dtype, room, offset=8 * d.itemsize, order=order)
    for operand, array in (("a", a), ("b", b)):
        majorness: Any = "C" if getattr(layout, operand) == "row" else "F"
        over = np.ndarray((8, 8), array.dtype, room, offset=8 * d.itemsize, order=majorness)
        pair = (over, b) if operand == "a" else (a, over)
        assert f"overlaps {operand}" in refused(k, *pair, out=moved)
    other = np.ndarray((8, 8), c.dtype, room, order="C" if layout.c == "row" else "F")
    assert "overlaps c" in refused(k, a, b, other, beta=1, out=moved)


@cases("plain", "odd_tiles")
def test_a_prepared_call_sees_what_the_arrays_hold_by_then(target: Target, name: str) -> None:
    k = kernel(target, name)
    a, b, c = operands(k, 37, 19, 23)
    prepared = k.prepare(a, b, c, alpha=2, beta=1)
    for turn in range(3):
        b += 1
        c -= 1
        assert bits(prepared()) == bits(k(a, b, c, alpha=2, beta=1)), turn
    assert prepared() is prepared.out


@cases("batched_bias", "batched_scale")
def test_a_batch_of_vectors_makes_a_batch_of_results(target: Target, name: str) -> None:
    """Found by use: D of two dimensions was written as if it had three."""
    k = kernel(target, name)
    spec, n = k.plan.spec, 5
    a, b, c = operands(k, n, n, 4)
    extras = {}
    for step in spec.epilogue:
        if step.op in ("bias", "scale"):
            kind = DTYPES[operand_type(spec, step.op)].numpy
            extras[step.op] = np.arange(3 * n).reshape(3, n).astype(kind) % 3
        elif step.op == "residual":
            extras[step.op] = matrix(
                (n, n), DTYPES[operand_type(spec, "residual")].numpy, spec.layout.d, 4
            )
    together = k(a, b, c, beta=1, **extras)
    assert together.shape == (3, n, n)
    for i in range(3):
        each = {op: x[i] if op != "residual" else x for op, x in extras.items()}
        assert bits(k(a, b, c, beta=1, **each)) == bits(together[i])
    none = {op: x[:0] if op != "residual" else x for op, x in extras.items()}
    assert k(a, b, c, beta=1, **none).shape == (0, n, n)


@cases("batched_bias")
def test_batches_of_d_may_lie_between_each_other_s_rows(target: Target, name: str) -> None:
    k = kernel(target, name)
    spec = k.plan.spec
    a, b, _ = operands(k, 6, 7, 4)
    bias = np.zeros(7, DTYPES[operand_type(spec, "bias")].numpy)
    residual = result(k, np.zeros((6, 7))).astype(DTYPES[operand_type(spec, "residual")].numpy)
    slow, fast = (6, 7) if spec.layout.d == "row" else (7, 6)
    room = np.zeros((slow, 3, fast), DTYPES[spec.types.d].numpy)
    out = room.transpose(1, 0, 2) if spec.layout.d == "row" else room.transpose(1, 2, 0)
    want = k(a, b, bias=bias, residual=residual)
    stacked = np.stack([a] * 3) if spec.layout.a == "row" else np.stack([a.T] * 3).swapaxes(1, 2)
    k(stacked, b, bias=bias, residual=residual, out=out)
    assert all(np.array_equal(out[i], want) for i in range(3))
