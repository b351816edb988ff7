"""Every rule refuses with the field, the need and a nearest legal value that is legal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.hardware import Arch
from tilegen.rules import Violation

PINNED = {"pins": {"opencl": {"form": "vector_fragment"}}}
BASE = {"block": (128, 128, 16), "warp": (64, 32)}
BYTES = {"types": {"a": "s8", "b": "u8", "acc": "s32", "c": "s32", "d": "s32"}}
GPU = registry.get("opencl").archs["gpu"]
DOT = replace(GPU, features=GPU.features | {"integer_dot"})
MAJOR = ("row", "col")
REFUSALS = [
    (
        "gpu",
        {"block": (100, 128, 16)},
        "warps",
        "block[0] = 100: BLOCK_M must be a multiple of warp[0] = 64",
        "128",
    ),
    (
        "gpu",
        {"block": (24, 2, 8), "warp": (24, 2)},
        "lanes",
        "the 32 lanes of a warp must divide",
        "[32, 2]",
    ),
    (
        "gpu",
        {"block": (128, 128, 16), "warp": (128, 128)},
        "registers",
        "the kernel would spill",
        "[32, 64]",
    ),
    (
        "gpu",
        {"block": (128, 128, 256), "warp": (32, 32)},
        "shared",
        "bytes of shared memory and gpu allows 32768",
        "block[2] = 64",
    ),
    (
        "gpu",
        {"block": (256, 128, 8), "warp": (32, 32)},
        "threads",
        "the block has 1024 threads and gpu allows 256",
        "[",
    ),
    (
        "gpu",
        {"types": {"a": "e4m3", "b": "e4m3", "c": "f32"}},
        "types",
        "offers f32, f64, f16, bf16, s8, u8",
        "f",
    ),
    (
        "cpu",
        {"types": {"a": "s8", "b": "s8", "acc": "s32", "c": "s32"}, "epilogue": [{"op": "gelu"}]},
        "epilogue",
        "the epilogue is computed in s32, which gelu would leave",
        "",
    ),
    (
        "cpu",
        {
            "types": {"a": "s8", "b": "u8", "acc": "s32", "c": "s32"},
            "epilogue": [{"op": "clamp", "low": -0.5, "high": 6}],
        },
        "epilogue",
        "epilogue[0].low = -0.5: the epilogue is computed in s32, so it must be a whole number",
        "",
    ),
    (
        "cpu",
        {**PINNED, "block": (64, 63, 8), "warp": (64, 63)},
        "instruction",
        "WARP_N must be a multiple of MMA_N = 2",
        "64",
    ),
    (
        "cpu",
        {**PINNED, "layout": {"d": "col"}, "block": (63, 64, 8), "warp": (63, 64)},
        "instruction",
        "WARP_M must be a multiple of MMA_M = 2",
        "64",
    ),
    (
        "cpu",
        {**PINNED, "block": (512, 512, 64), "warp": (512, 512)},
        "private",
        "bytes of private memory",
        "[",
    ),
    (
        "gpu",
        {"pins": {"opencl": {"swizle": "xor"}}},
        "pins",
        "form work_group knows the pins",
        "swizzle",
    ),
    (
        "gpu",
        {"pins": {"opencl": {"swizzle": "zigzag"}}},
        "pins",
        "must be one of none, pad, xor",
        "",
    ),
    (
        "cpu",
        {**PINNED, "block": (1024, 1024, 64), "warp": (128, 128)},
        "private",
        "the 64 work-items of a group take 131072 bytes of private memory each",
        "",
    ),
    (
        "cpu",
        {"pins": {"opencl": {"fragment": (5, 1)}}},
        "fragment",
        "rows must divide the 64 rows",
        "",
    ),
    (
        "gpu",
        {**BYTES, "pins": {"opencl": {"instruction": "dot4_s32"}}},
        "pinned_instruction",
        "pins.opencl.instruction = dot4_s32: needs integer_dot, which gpu lacks",
        "mad_s32",
    ),
    (
        "gpu",
        {"pins": {"opencl": {"instruction": "dot4_s32"}}},
        "pinned_instruction",
        "f32 x f32 -> f32 is multiplied by fma",
        "fma",
    ),
    (
        DOT,
        {**BYTES, "block": (128, 128, 18), "pins": {"opencl": {"instruction": "dot4_s32"}}},
        "instruction",
        "block[2] = 18: BLOCK_K must be a multiple of MMA_K = 4 of dot4_s32",
        "16",
    ),
    ("cpu", {"pins": {"opencl": {"fragment": "big"}}}, "fragment", "must be [rows, vectors]", ""),
]


@pytest.mark.parametrize(("arch", "change", "rule", "need", "nearest"), REFUSALS)
def test_refusal(
    arch: str | Arch, change: dict[str, object], rule: str, need: str, nearest: str
) -> None:
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**{**BASE, **change}), "opencl", arch)
    found = {v.rule: v for v in caught.value.violations}
    assert rule in found
    assert need in str(found[rule])
    assert nearest in " ".join(v.nearest for v in caught.value.violations)


def taken(data: dict[str, Any], violation: Violation) -> tg.TileSpec:
    """The spec after a reader has done what the refusal says."""
    lead, _, rest = violation.nearest.partition(" with ")
    if " = " in lead or lead.startswith("no "):
        lead, rest = "", violation.nearest
    parts = re.split(r", (?=[a-z])", rest) if rest else []
    parts[:0] = [f"{violation.field} = {lead}"] if lead else []
    data = json.loads(json.dumps(data))
    for part in parts:
        name, _, text = part.partition(" = ")
        owner, key = re.fullmatch(r"(?:no )?(.+?)(?:[.\[](\w+)\]?)?", name).groups()
        if owner.startswith("pins."):
            pins = data["pins"][owner.removeprefix("pins.")]
            now = pins.pop(key, None)
            if (
                "knows the pins" in violation.need
                and text != "left out"
                and name == violation.field
            ):
                pins[text] = now
            elif text and text != "left out":
                pins[key] = int(text) if text.isdigit() else text
        elif name == "types":
            data["types"] = dict(pair.split() for pair in text.split(", "))
        elif owner == "types":
            data["types"] = {**tg.TileSpec(**data).types.model_dump(), key: text}
        elif key is None:
            data[owner] = json.loads(text)
        else:
            data[owner] = [*data[owner]]
            data[owner][int(key)] = int(text)
    return tg.TileSpec(**data)


@pytest.mark.parametrize(("arch", "change"), [r[:2] for r in REFUSALS if r[4]])
def test_what_is_proposed_is_legal(arch: str | Arch, change: dict[str, object]) -> None:
    data = {**BASE, **change}
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**data), "opencl", arch)
    proposals = [v for v in caught.value.violations if v.proposed]
    assert proposals
    for violation in proposals:
        tg.lower(violation.proposed, "opencl", arch)
        assert taken(data, violation) == violation.proposed


WARPS, EXTENTS = (8, 16, 24, 32, 48, 64, 96, 128, 256), (8, 24, 64, 96, 100, 128, 256, 320, 1024)
SUMS = {"f32": "f32", "f64": "f64", "f16": "f32", "s8": "s32", "tf32": "f32", "e4m3": "f32"}
PINS = (("min_blocks", 4), ("copy", "cp_async"), ("swizle", "xor"), ("epilogue", "shared"))


def drawn(random: Random) -> tuple[str, str, dict[str, Any]]:
    """A spec with a large or odd tile for one of the archs."""
    backend = random.choice(("cuda", "cuda", "opencl"))
    warp = [random.choice(WARPS) for _ in "mn"]
    odd = random.random() < 0.4
    block = [random.choice(EXTENTS) if odd else w * random.choice((1, 4, 8, 16)) for w in warp]
    a = random.choice(list(SUMS))
    c = {"e4m3": "bf16", "tf32": "f32"}.get(a, a)
    data: dict[str, Any] = {
        "block": [*block, random.choice((8, 24, 32, 64, 128, 512))],
        "warp": warp,
        "types": {"a": a, "b": a, "acc": SUMS[a], "c": c},
        "layout": {o: random.choice(MAJOR) for o in "abc"},
    }
    if backend == "cuda" and random.random() < 0.3:
        data["pins"] = {"cuda": dict(random.sample(PINS, 2))}
    return backend, random.choice(list(registry.get(backend).archs)), data


def test_no_refusal_leads_to_another() -> None:
    """Each proposal of drawn refusals, done as it is written, gives a spec that is lowered."""
    random, refused, helped = Random(5), 0, 0
    while refused < 40:
        backend, arch, data = drawn(random)
        try:
            tg.lower(tg.TileSpec(**data), backend, arch)
        except tg.PlanError as error:
            proposals = [v for v in error.violations if v.nearest]
            refused, helped = refused + 1, helped + bool(proposals)
            for violation in proposals:
                tg.lower(taken(data, violation), backend, arch)
    assert helped >= 0.9 * refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"block": (128, 128, 16), "warp": (128, 128)}, "nearest legal value: [64, 64]"),
        ({"block": (100, 128, 24), "warp": (64, 32)}, "value: 128 with block[2] = 32; block[2] = 24"),
        ({"block": (256, 256, 64), "warp": (64, 64)}, "would spill; nearest legal value: block[0] = 128"),
    ],
)  # fmt: skip
def test_one_field_is_proposed_or_several_at_once(change: dict[str, Any], says: str) -> None:
    types = {"a": "f16", "b": "f16", "c": "f16"}
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**change, types=types), "cuda", "sm_80")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "arch", "change", "says"),
    [
        ("cuda", "sm_80", {"types": {"a": "e4m3", "b": "e4m3", "c": "f32"}}, "legal from sm_89 on"),
        ("cuda", "sm_75", {"types": {"a": "bf16", "b": "bf16", "c": "f32"}}, "legal from sm_80 on"),
        ("cuda", "sm_75", {"pins": {"cuda": {"copy": "cp_async"}}}, "legal from sm_80 on"),
        (
            "cuda",
            "sm_75",
            {"types": {"a": "f16", "b": "f16", "c": "f16"},
             "pins": {"cuda": {"instruction": "m16n8k16"}}},
            "must be one of m16n8k8; legal from sm_80 on; nearest legal value: m16n8k8",
        ),
        ("opencl", "gpu", {"pins": {"opencl": {"form": "vector_fragment"}}}, "legal on cpu"),
    ],
)  # fmt: skip
def test_what_an_arch_lacks_names_those_that_have_it(
    backend: str, arch: str, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**{**BASE, **change}), backend, arch)
    assert says in str(caught.value)


def test_what_no_arch_has_names_none() -> None:
    types = {"a": "e4m3fnuz", "b": "e4m3fnuz", "c": "f32"}
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**BASE, types=types), "cuda", "sm_80")
    assert "legal from" not in str(caught.value)


F32_MAX = 3.4028234663852886e38


@pytest.mark.parametrize(
    ("types", "bounds", "field", "nearest"),
    [
        ({}, (0.0, 1e39), "epilogue[0].high", repr(F32_MAX)),
        ({}, (-1e39, 0.0), "epilogue[0].low", repr(-F32_MAX)),
        ({"a": "f16", "b": "f16", "acc": "f32", "c": "f16"}, (0, 1e300), "epilogue[0].high", repr(F32_MAX)),
        ({"a": "f16", "b": "f16", "acc": "f16", "c": "f16"}, (0, 1e300), "epilogue[0].high", repr(F32_MAX)),
        ({"a": "s8", "b": "s8", "acc": "s32", "c": "s8"}, (0.0, 1e39), "epilogue[0].high", repr(F32_MAX)),
        ({"a": "s8", "b": "s8", "acc": "s32", "c": "s32"}, (0.0, 1e39), "epilogue[0].high", "2147483647.0"),
        ({"a": "s8", "b": "s8", "acc": "s32", "c": "s32"}, (-0.7, 6.0), "epilogue[0].low", "-1.0"),
    ],
)  # fmt: skip
def test_a_bound_beyond_the_type_of_the_epilogue(
    types: dict[str, str], bounds: tuple[float, float], field: str, nearest: str
) -> None:
    """In the text it would be an infinity, which is no bound that anybody wrote."""
    low, high = bounds
    data = {"block": (64, 64, 32), "warp": (32, 32), "types": types}
    spec = tg.TileSpec(**data, epilogue=[{"op": "clamp", "low": low, "high": high}])
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(spec, "cuda", "sm_90")
    (violation,) = caught.value.violations
    assert (violation.field, violation.nearest) == (field, nearest)
    assert "inf" not in tg.emit(tg.lower(violation.proposed, "cuda", "sm_90")).text


def test_a_bound_that_rounds_to_the_largest_value_is_one() -> None:
    f64 = dict.fromkeys(("a", "b", "acc", "c"), "f64")
    for types, high in (({}, 3.4028235e38), ({}, F32_MAX), (f64, 1e300)):
        step = {"op": "clamp", "low": 0, "high": high}
        spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), types=types, epilogue=[step])
        tg.lower(spec, "cuda", "sm_90")


def test_wishes_are_lowered_with_a_note() -> None:
    spec = tg.TileSpec(**BASE, stages=5, split_k=4, thread=(16, 16))
    plan = tg.lower(spec, "opencl", "gpu")
    assert (plan.pipeline.stages, plan.split_k, plan.thread) == (2, 1, (8, 8))
    assert [note.split(":")[0] for note in plan.notes[:3]] == [
        "thread [16, 16] -> [8, 8]",
        "split_k 4 -> 1",
        "stages 5 -> 2",
    ]


def test_a_form_that_is_passed_over_is_named() -> None:
    plan = tg.lower(tg.TileSpec(block=(512, 512, 4), warp=(512, 512)), "opencl", "cpu")
    assert plan.form == "work_group"
    assert "form vector_fragment was passed over: warp = [512, 512]" in plan.notes[0]


def test_a_smaller_local_memory_lowers_the_stages() -> None:
    arch = registry.get("opencl").archs["gpu"]
    spec = tg.TileSpec(**BASE, stages=2)
    assert tg.lower(spec, "opencl", arch).pipeline.stages == 2
    small = replace(arch, shared_bytes=16384)
    plan = tg.lower(spec, "opencl", small)
    assert plan.pipeline.stages == 1
    assert any("stages 2 -> 1" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: tg.lower(s, "opncl"), "there is no backend 'opncl'; did you mean 'opencl'?"),
        (lambda s: tg.lower(s, "opencl", "gpus"), "opencl has no arch 'gpus'; did you mean 'gpu'?"),
        (
            lambda s: tg.lower(s.replace(pins={"opencl": {"form": "magic"}}), "opencl", "gpu"),
            "pins.opencl.form = magic: opencl gpu has the forms work_group",
        ),
    ],
)
def test_unknown_names(call, sentence: str) -> None:
    with pytest.raises(tg.TilegenError, match=sentence.replace("?", r"\?")):
        call(tg.TileSpec(**BASE))


@pytest.mark.parametrize("arch", ["cpu", "gpu"])
@pytest.mark.parametrize("d", ["row", "col"])
@pytest.mark.parametrize("warp", [(64, 32), (16, 64), (32, 32)])
def test_every_element_has_its_owners(arch: str, d: str, warp: tuple[int, int]) -> None:
    spec = tg.TileSpec(block=(64, 64, 8), warp=warp, layout={"d": d})
    plan = tg.lower(spec, "opencl", arch)
    for ownership in plan.ownership.values():
        assert ownership.is_complete()
    for tile in plan.shared:
        places = {tile.offset(k, x) for k in range(tile.rows) for x in range(tile.cols)}
        assert len(places) == tile.rows * tile.cols
        assert max(places) < tile.rows * tile.row_stride


def test_the_swizzle_removes_conflicts() -> None:
    spec = tg.TileSpec(**BASE)

    def conflicts(swizzle: str) -> list[int]:
        plan = tg.lower(spec.replace(pins={"opencl": {"swizzle": swizzle}}), "opencl", "gpu")
        return [tile.store_conflicts + tile.load_conflicts for tile in plan.shared]

    assert conflicts("none")[0] > 0
    assert conflicts("xor")[0] < conflicts("none")[0]
    chosen = tg.lower(spec, "opencl", "gpu").shared[0]
    assert chosen.store_conflicts + chosen.load_conflicts <= min(
        conflicts("xor")[0], conflicts("pad")[0]
    )


def test_a_pin_table_of_an_unknown_backend_is_noted() -> None:
    spec = tg.TileSpec(**BASE, pins={"opnecl": {"form": "work_group"}})
    notes = tg.lower(spec, "opencl", "gpu").notes
    assert "pins.opnecl: no backend of that name is registered; did you mean 'opencl'?" in notes


def test_fma_and_mad_texts_have_names_of_their_own() -> None:
    arch = registry.get("opencl").archs["cpu"]
    plain = replace(arch, features=frozenset())
    plans = [tg.lower(tg.TileSpec(**BASE), "opencl", a) for a in (arch, plain)]
    assert [plan.instruction.mnemonic for plan in plans] == ["fma(float16)", "mad(float16)"]
    assert plans[0].name != plans[1].name
    for plan, call in zip(plans, ("fma(x, y", "mad(x, y"), strict=True):
        assert call in tg.emit(plan).text


def test_passes_count_in_what_is_live_and_loaded() -> None:
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), thread=(4, 4))
    plan = tg.lower(spec, "opencl", "gpu")
    assert plan.passes == (2, 1)
    assert plan.budget.registers[0].operands == 8 + 4
    assert plan.budget.flop_per_shared_load == 2 * 8 * 4 / (8 + 4)


@pytest.mark.parametrize(
    ("arch", "change", "instruction"),
    [
        (DOT, {}, "dot4_s32"),
        (DOT, {"pins": {"opencl": {"instruction": "mad_s32"}}}, "mad_s32"),
        (DOT, {"pins": {"opencl": {"instruction": "dot4_s32"}}}, "dot4_s32"),
        (GPU, {}, "mad_s32"),
        (DOT, {"block": (128, 128, 18)}, "mad_s32"),
    ],
)
def test_the_dot_product_is_chosen_where_it_can_be(
    arch: Arch, change: dict[str, object], instruction: str
) -> None:
    plan = tg.lower(tg.TileSpec(**{**BASE, **BYTES, **change}), "opencl", arch)
    assert plan.instruction.name == instruction
    assert ("dot_4x8packed_su_int(x, y) + sum" in tg.emit(plan).text) == (instruction != "mad_s32")
    passed_over = any("instruction dot4_s32 -> mad_s32: BLOCK_K = 18" in n for n in plan.notes)
    assert passed_over == ("block" in change)


def test_the_dot_product_is_a_name_of_its_own() -> None:
    spec = tg.TileSpec(**BASE, **BYTES)
    assert len({tg.lower(spec, "opencl", arch).name for arch in (GPU, DOT)}) == 2


@pytest.mark.parametrize("a", ["s8", "u8"])
@pytest.mark.parametrize("b", ["s8", "u8"])
@pytest.mark.parametrize("d", ["row", "col"])
def test_the_operand_along_the_rows_gives_the_first_sign(a: str, b: str, d: str) -> None:
    types = {"a": a, "b": b, "acc": "s32", "c": "s32", "d": "s32"}
    plan = tg.lower(tg.TileSpec(**BASE, types=types, layout={"d": d}), "opencl", DOT)
    assert (plan.instruction.type_a, plan.instruction.type_b) == (a, b)
    x, y = (a, b) if d == "row" else (b, a)
    assert f"dot_4x8packed_{x[0]}{y[0]}_" in plan.instruction.mnemonic
    assert plan.instruction.mnemonic in tg.emit(plan).text


@pytest.mark.parametrize("layout", [(a, b, d) for a in MAJOR for b in MAJOR for d in MAJOR])
@pytest.mark.parametrize("block", [(64, 96, 16), (48, 80, 12)])
def test_words_hold_every_element_once(
    layout: tuple[str, str, str], block: tuple[int, int, int]
) -> None:
    """A quarter of the places of four-byte elements, all four k's of a word in one lane."""
    data = {**BYTES, "layout": dict(zip("abd", layout, strict=True)), "block": block}
    data["warp"] = (block[0] // 2, block[1] // 2)
    swizzle = {"pins": {"opencl": {"swizzle": "none"}}}
    words, plain = (tg.lower(tg.TileSpec(**data, **swizzle), "opencl", a) for a in (DOT, GPU))
    assert words.budget.shared_bytes * 4 == plain.budget.shared_bytes
    assert (words.fragments.a.tile, words.fragments.a.cols) == ((1, 4), block[2] // 4)
    assert words.fragments.b.registers == plain.fragments.b.registers
    assert words.budget.flop_per_shared_load == 4 * (plain.budget.flop_per_shared_load or 0)
    chosen = tg.lower(tg.TileSpec(**data), "opencl", DOT)
    for plan in (words, chosen):
        for tile in plan.shared:
            places = {tile.offset(k, x) for k in range(tile.rows) for x in range(tile.cols)}
            assert len(places) == tile.rows * tile.cols == tile.cols * block[2] // 4
            assert max(places) < tile.rows * tile.row_stride
        for operand in "ab":
            owned = plan.ownership[operand]
            assert owned.is_complete()
            for register in range(0, owned.register.size, 4):
                held = [owned.element(1, 5, register + i) for i in range(4)]
                row, k = held[0]
                assert k % 4 == 0
                assert held == [(row, k + i) for i in range(4)]
        for copy, tile in zip(plan.copies, plan.shared, strict=True):
            bytes_moved = copy.elements * copy.accesses * plan.threads
            assert bytes_moved >= tile.cols * block[2]
