"""mma.sync plans: records against an oracle, the emitted statement, ownership, entries, refusals."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
from tilegen.errors import PlanError
from tilegen.hardware import Instruction
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.mma import of_arch
from tilegen_cuda.mma_instructions import MMA_89, turned

ORACLE = json.loads((Path(__file__).parents[1] / "data" / "ptx_layouts.json").read_text())["insts"]
# Of each record (name, a, b, acc): the oracle's fragments, and the statement as the text has it: the
# mnemonic, then the registers of D, A, B and C by number and constraint. f: a 32-bit float, r: 32 bits,
# d: a 64-bit float. PTX ISA, mma.
TABLE = """
m16n8k16 f16 f16 f32   | sm_80:m16n8k16_f32_f16     | m16n8k16.row.col.f32.f16.f16.f32 4f 4r 2r 4f
m16n8k16 bf16 bf16 f32 | sm_80:m16n8k16_f32_bf16    | m16n8k16.row.col.f32.bf16.bf16.f32 4f 4r 2r 4f
m16n8k16 f16 f16 f16   | sm_80:m16n8k16_f16_f16     | m16n8k16.row.col.f16.f16.f16.f16 2r 4r 2r 2r
m16n8k8 tf32 tf32 f32  | sm_80:m16n8k8_f32_tf32     | m16n8k8.row.col.f32.tf32.tf32.f32 4f 4r 2r 4f
m16n8k32 s8 s8 s32     | sm_80:m16n8k32_s32_s8      | m16n8k32.row.col.s32.s8.s8.s32 4r 4r 2r 4r
m16n8k32 s8 u8 s32     | sm_80:m16n8k32_s32_s8      | m16n8k32.row.col.s32.s8.u8.s32 4r 4r 2r 4r
m16n8k32 u8 s8 s32     | sm_80:m16n8k32_s32_s8      | m16n8k32.row.col.s32.u8.s8.s32 4r 4r 2r 4r
m16n8k32 u8 u8 s32     | sm_80:m16n8k32_s32_s8      | m16n8k32.row.col.s32.u8.u8.s32 4r 4r 2r 4r
m16n8k32 e4m3 e4m3 f32 | sm_89:m16n8k32_f32_e4m3    | m16n8k32.row.col.f32.e4m3.e4m3.f32 4f 4r 2r 4f
m16n8k32 e4m3 e5m2 f32 | sm_89:m16n8k32_f32_e4m3    | m16n8k32.row.col.f32.e4m3.e5m2.f32 4f 4r 2r 4f
m16n8k32 e5m2 e4m3 f32 | sm_89:m16n8k32_f32_e5m2    | m16n8k32.row.col.f32.e5m2.e4m3.f32 4f 4r 2r 4f
m16n8k32 e5m2 e5m2 f32 | sm_89:m16n8k32_f32_e5m2    | m16n8k32.row.col.f32.e5m2.e5m2.f32 4f 4r 2r 4f
m8n8k4 f64 f64 f64     | sm_80:m8n8k4_f64           | m8n8k4.row.col.f64.f64.f64.f64 2d 1d 1d 2d
m16n8k8 f16 f16 f32    | sm_75:sm75_m16n8k8_f32_f16 | m16n8k8.row.col.f32.f16.f16.f32 4f 2r 1r 4f
m16n8k8 f16 f16 f16    | sm_80:m16n8k8_f32_f16      | m16n8k8.row.col.f16.f16.f16.f16 2r 2r 1r 2r
"""
Key = tuple[str, ...]
RECORDS = {
    tuple(key.split()): (oracle.strip(), said.strip())
    for key, oracle, said in (line.split("|") for line in TABLE.strip().splitlines())
}
BY_KEY = {(i.name, i.type_a, i.type_b, i.type_acc): i for i in MMA_89}
FROM_89 = [key for key in RECORDS if key[1] in ("e4m3", "e5m2")]
FROM_75 = [key for key in RECORDS if key[0] == "m16n8k8" and key[1] == "f16"]
MAJOR = ("row", "col")
# Types that stand for their width, the others of which lie the same way.
KINDS = [
    ("m16n8k16", "f16", "f16", "f32"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "tf32", "tf32", "f32"),
    ("m16n8k32", "s8", "u8", "s32"),
    ("m8n8k4", "f64", "f64", "f64"),
    ("m16n8k8", "f16", "f16", "f32"),
]
NAMES = "-".join


@cache
def _lowered(data: str, arch: str) -> tg.KernelPlan:
    return tg.lower(tg.TileSpec(**json.loads(data)), "cuda", arch)


def plan(key: Key, arch: str = "sm_90", **changes: Any) -> tg.KernelPlan:
    """The plan of a spec that writes its sums as they are, in the instruction of the key."""
    name, a, b, acc = key
    pins = {"form": "mma_sync", "instruction": name, **changes.pop("pins", {})}
    data = {
        "block": (64, 64, 32),
        "warp": (32, 32),
        "types": {"a": a, "b": b, "acc": acc, "c": acc, "d": acc},
        "pins": {"cuda": pins},
    }
    return _lowered(json.dumps({**data, **changes}, sort_keys=True), arch)


def test_every_record_is_in_the_table() -> None:
    assert set(BY_KEY) == set(RECORDS)


@pytest.mark.parametrize("key", RECORDS, ids=NAMES)
@pytest.mark.parametrize("part", "abc")
def test_fragments_are_the_oracle_s(key: Key, part: str) -> None:
    fragment = getattr(BY_KEY[key], part)
    operand = ORACLE[RECORDS[key][0]]["operands"][part.upper()]
    # The oracle's B is (k, n), the record's (n, k).
    turn = -1 if part == "b" else 1
    assert (fragment.rows, fragment.cols) == (operand["rows"], operand["cols"])[::turn]
    held = [[fragment(lane, v) for v in range(fragment.values)] for lane in range(32)]
    assert held == [[tuple(place[::turn]) for place in lane] for lane in operand["map"]]


@pytest.mark.parametrize("key", RECORDS, ids=NAMES)
def test_turned_is_the_instruction_of_the_transposed_product(key: Key) -> None:
    before, after = BY_KEY[key], turned(BY_KEY[key])
    assert (after.m, after.n, after.k) == (before.n, before.m, before.k)
    assert (after.type_a, after.type_b) == (before.type_b, before.type_a)
    assert (after.a, after.b) == (before.b, before.a)
    for lane, v in product(range(32), range(before.c.values)):
        assert after.c(lane, v) == before.c(lane, v)[::-1]
    assert turned(after) == before


@pytest.mark.parametrize("arch", ARCHS)
def test_which_arch_offers_which_instruction(arch: str) -> None:
    compute = int(arch.removeprefix("sm_").rstrip("a"))
    offered = [(i.name, i.type_a, i.type_b, i.type_acc) for i in of_arch(ARCHS[arch])]
    assert len(set(offered)) == len(offered)
    later = set() if compute >= 89 else set(FROM_89)
    wanted = set(FROM_75) if compute < 80 else set(RECORDS) - later
    assert set(offered) == wanted


def statement(text: str) -> str:
    """The mma statement of a text as the table writes it, its operands checked to be in order."""
    found = re.findall(
        r'asm volatile\("mma\.sync\.aligned\.(\S+) ([^"]*);"\n +: (.*)\n +: (.*)\);', text
    )
    assert len(found) == 1
    mnemonic, groups, outputs, inputs = found[0]
    operands = re.findall(r'"(\+?)([frd])"\((sums|rows|cols)\[(\d+)\]\)', f"{outputs}, {inputs}")
    assert all((array == "sums") == (plus == "+") for plus, _, array, _ in operands)
    numbers = [[int(r) for r in re.findall(r"%(\d+)", g)] for g in re.findall(r"\{(.*?)\}", groups)]
    d, a, b, c = numbers
    assert d == c
    assert [*d, *a, *b] == list(range(len(operands)))
    said = []
    for group, array in ((d, "sums"), (a, "rows"), (b, "cols"), (c, "sums")):
        held = [operands[r] for r in group]
        assert [(x[2], int(x[3])) for x in held] == [(array, i) for i in range(len(group))]
        letters = {x[1] for x in held}
        assert len(letters) == 1
        said.append(f"{len(group)}{letters.pop()}")
    return " ".join([mnemonic, *said])


@pytest.mark.parametrize("key", RECORDS, ids=NAMES)
@pytest.mark.parametrize("d", MAJOR)
def test_the_statement_is_the_table_s(key: Key, d: str) -> None:
    text = tg.emit(plan(key, layout={"d": d})).text
    name, a, b, acc = key
    # Rows of a column-major D are those of B, which is then the instruction's first operand.
    first = (name, a, b, acc) if d == "row" else (name, b, a, acc)
    assert statement(text) == RECORDS[first][1]
    rows, cols = "ab" if d == "row" else "ba"
    assert f"load_{rows}(rows[0]," in text
    assert f"load_{cols}(cols[0]," in text
    assert f"load_{rows}(cols" not in text


def place(instruction: Instruction, operand: str, interleaved: bool, at: int, fragment: int) -> int:
    """The row (or column) of a warp tile that row ``at`` of a fragment is."""
    extent = instruction.m if operand == "a" else instruction.n
    if not interleaved:
        return fragment * extent + at
    # Bytes that were turned in pairs: neighbours lie in the halves of 16 rows, or in two fragments of 8.
    if extent == 16:
        return fragment * 16 + at % 8 * 2 + at // 8
    return fragment // 2 * 16 + at * 2 + fragment % 2


@pytest.mark.parametrize("key", KINDS, ids=NAMES)
@pytest.mark.parametrize("major", list(product("rc", repeat=3)), ids="".join)
def test_ownership(key: Key, major: tuple[str, ...]) -> None:
    """Complete, and by a second computation from the oracle's maps."""
    layout = {o: MAJOR[m == "c"] for o, m in zip("abd", major, strict=True)}
    made = plan(key, layout=layout)
    mma, (wm, wn) = made.instruction, made.warp
    swapped = layout["d"] == "col"
    byte = key[1] in ("s8", "u8")
    turned_bytes = {"a": byte and layout["a"] == "col", "b": byte and layout["b"] == "row"}
    maps = {o: ORACLE[RECORDS[key][0]]["operands"][o]["map"] for o in "ABC"}
    mmas = {"a": wm // mma.m, "b": wn // mma.n}
    for owner in made.ownership.values():
        assert owner.is_complete()
    assert [made.ownership[o].copies for o in "abc"] == [made.warps[1], made.warps[0], 1]
    assert made.fragments.a.rows == mmas["a"]
    assert (made.fragments.c.rows, made.fragments.c.cols) == (mmas["a"], mmas["b"])
    warp, lanes = 3, (0, 1, 6, 13, 31)
    origin = {"a": warp % made.warps[0] * wm, "b": warp // made.warps[0] * wn}
    for o, rows_first in (("a", not swapped), ("b", swapped)):
        held = maps["A" if rows_first else "B"]
        for lane in lanes:
            register = 0
            for step, f in product(range(32 // mma.k), range(mmas[o])):
                for spot in held[lane]:
                    at, k = spot if rows_first else spot[::-1]
                    want = (origin[o] + place(mma, o, turned_bytes[o], at, f), step * mma.k + k)
                    assert made.ownership[o].element(warp, lane, register) == want
                    register += 1
    rows, cols = "ba" if swapped else "ab"
    for lane in lanes:
        register = 0
        for i, j in product(range(mmas[rows]), range(mmas[cols])):
            for at_row, at_col in maps["C"][lane]:
                row = origin[rows] + place(mma, rows, turned_bytes[rows], at_row, i)
                col = origin[cols] + place(mma, cols, turned_bytes[cols], at_col, j)
                got = made.ownership["c"].element(warp, lane, register)
                assert got == ((col, row) if swapped else (row, col))
                register += 1


TILES = [((64, 64, 32), (32, 32)), ((128, 128, 32), (32, 64)), ((128, 128, 64), (32, 64))]


@pytest.mark.parametrize("key", KINDS, ids=NAMES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_bank_conflicts_are_none_or_noted(key: Key, tile: Any) -> None:
    block, warp = tile
    if key[1] == "f64":
        # Sums of 64 bits take twice the registers.
        block, warp = (block[0], 64, block[2]), (32, 32)
    for a, b, d in product(MAJOR, repeat=3):
        made = plan(key, block=block, warp=warp, layout={"a": a, "b": b, "d": d})
        # Rows of 64 bytes in pairs of bytes: 4 chunks of a row hold no 8 different banks of 16 bytes.
        turned_bytes = {"a": key[1] == "s8" and a == "col", "b": key[1] == "s8" and b == "row"}
        for tile_ in made.shared:
            wanted = 4 if turned_bytes[tile_.operand] and block[0] == 64 else 0
            assert (tile_.load_conflicts, tile_.store_conflicts) == (wanted, 0)
            note = (
                f"{tile_.operand}'s shared tile: 0 extra cycles a warp store, 4 a warp load (xor)"
            )
            assert (note in made.notes) == bool(wanted)


def test_a_swizzle_that_is_pinned_has_the_conflicts_that_it_has() -> None:
    key = KINDS[0]
    found = {s: plan(key, pins={"swizzle": s}).shared[0] for s in ("none", "pad", "xor")}
    assert {s: t.swizzle for s, t in found.items()} == {"none": "none", "pad": "pad", "xor": "xor"}
    assert found["none"].load_conflicts > 0
    assert found["xor"].load_conflicts == found["pad"].load_conflicts == 0
    assert found["xor"].bytes == found["none"].bytes < found["pad"].bytes
    made = plan(key, pins={"swizzle": "none"})
    assert any("a's shared tile" in n and "(none)" in n for n in made.notes)


WIDTHS = {
    ("m16n8k16", "bf16", "bf16", "f32"): {"wide": 8, "by8": 4, "by4": 2, "narrow": 1},
    ("m16n8k32", "s8", "u8", "s32"): {"wide": 16, "by8": 8, "by4": 4, "narrow": 1},
    ("m16n8k8", "tf32", "tf32", "f32"): {"wide": 4, "by8": 2, "narrow": 1},
    ("m8n8k4", "f64", "f64", "f64"): {"wide": 2, "narrow": 1},
}


@pytest.mark.parametrize("key", WIDTHS, ids=NAMES)
def test_entries_and_what_they_ask_for(key: Key) -> None:
    made = plan(key)
    assert {e.variant: e.accesses[0].elements for e in made.entries} == WIDTHS[key]
    size = 16 // WIDTHS[key]["wide"]
    for entry in made.entries:
        narrow = entry.variant == "narrow"
        for access in entry.accesses[:2]:
            elements = WIDTHS[key][entry.variant]
            assert (access.elements, access.stride_multiple) == (elements, elements)
            assert access.alignment == elements * size
            assert access.unit_step != narrow
        steps = {a.name for a in entry.arguments if a.name.endswith("_step")}
        assert steps == (set() if entry.variant == "wide" else {"a_step", "b_step", "c_step"})
        d = entry.accesses[3]
        assert d.elements == (made.numbers["OUT_VECTOR"] if entry.variant == "wide" else 1)
        assert (entry.block, entry.shared_bytes) == (128, made.budget.shared_bytes)


def test_c_moves_in_vectors_only_where_it_lies_as_d_does() -> None:
    key = ("m16n8k16", "bf16", "bf16", "f32")
    types = {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16", "d": "bf16"}
    for c, d in product(MAJOR, repeat=2):
        wide = plan(key, types=types, layout={"c": c, "d": d}).entries[0]
        assert [a.elements for a in wide.accesses] == [8, 8, 8 if c == d else 1, 8]


@pytest.mark.parametrize(
    ("d", "split", "pinned", "epilogue", "out"),
    [
        ("bf16", 1, None, "shared", 8),
        ("f32", 1, None, "direct", 2),
        ("f32", 1, "shared", "shared", 4),
        ("bf16", 1, "direct", "direct", 2),
        ("bf16", 2, "shared", "direct", 2),
    ],
)
def test_the_epilogue(d: str, split: int, pinned: str | None, epilogue: str, out: int) -> None:
    types = {"a": "bf16", "b": "bf16", "acc": "f32", "c": d, "d": d}
    pins = {"epilogue": pinned} if pinned else {}
    key = ("m16n8k16", "bf16", "bf16", "f32")
    made = plan(key, types=types, split_k=split, pins=pins)
    assert (made.numbers["EPILOGUE"], made.numbers["OUT_VECTOR"]) == (epilogue, out)
    text = tg.emit(made).text
    assert ("warp_rows" in text) == (epilogue == "shared")
    assert ("plane" in text) == (split > 1)


def test_what_the_epilogue_needs_is_counted_where_it_is_more_than_the_tiles() -> None:
    key, tile = FROM_75[0], {"block": (64, 128, 8), "warp": (16, 64), "stages": 1}
    types = dict.fromkeys(("a", "b", "c", "d"), "f16") | {"acc": "f32"}
    made = plan(key, "sm_75", types=types, **tile)
    # 8 warps, 16 rows each, 64 sums and a pad of 8, 4 bytes.
    assert made.budget.shared_bytes == 8 * 16 * (64 + 8) * 4
    direct = plan(key, "sm_75", types=types, pins={"epilogue": "direct"}, **tile)
    assert direct.budget.shared_bytes == (64 + 128) * 8 * 2


@pytest.mark.parametrize(
    ("key", "kind", "vector", "size"),
    [
        (("m16n8k16", "f16", "f16", "f16"), "f32", 4, 4),
        (("m16n8k16", "bf16", "bf16", "f32"), "f32", 4, 4),
        (("m16n8k32", "s8", "s8", "s32"), "s32", 4, 4),
        (("m8n8k4", "f64", "f64", "f64"), "f64", 2, 8),
    ],
    ids=lambda x: NAMES(x) if isinstance(x, tuple) else str(x),
)
@pytest.mark.parametrize("d", MAJOR)
def test_split_k(key: Key, kind: str, vector: int, size: int, d: str) -> None:
    made = plan(key, split_k=3, batch="strided", layout={"d": d})
    sizes = {"M": 131, "N": 77, "K": 500, "batch": 2}
    rows, cols = (77, 131) if d == "col" else (131, 77)
    plane = rows * -(-cols // vector) * vector * 2
    mains, reductions = made.main_entries, [e for e in made.entries if e.role == "reduce"]
    assert [e.variant for e in reductions] == ["reduce_wide", "reduce_narrow"]
    for entry in mains:
        assert entry.workspace is not None
        assert entry.workspace(**sizes) == 3 * plane * size
        assert entry.grid(**sizes) == 3 * 3 * 2 * 2
        which = "wide" if entry.variant == "wide" else "narrow"
        assert entry.after == (f"gemm_reduce_{which}",)
        partial = entry.arguments[-1]
        assert (partial.name, partial.type, partial.kind) == ("partial", kind, "workspace")
        assert not {a.operand for a in entry.arguments} & {"c", "d"}
        assert [a.name for a in entry.arguments if a.kind == "scalar"] == ["alpha"]
    for entry in reductions:
        assert entry.grid(**sizes) == -(-plane // (256 * vector))
        assert (entry.block, entry.after) == (256, ())
        assert not {a.operand for a in entry.arguments} & {"a", "b"}
        assert [a.name for a in entry.arguments if a.kind == "scalar"] == ["alpha", "beta"]
        wide = entry.variant == "reduce_wide"
        assert entry.accesses[-1].elements == (vector if wide else 1)


def test_sums_in_f16_have_alpha_and_beta_in_f32() -> None:
    key = ("m16n8k16", "f16", "f16", "f16")
    for entry in plan(key).entries:
        kinds = {a.name: a.type for a in entry.arguments if a.kind == "scalar"}
        assert kinds == {"alpha": "f32", "beta": "f32"}


def test_stages_fall_to_what_fits() -> None:
    key, tile = ("m16n8k16", "bf16", "bf16", "f32"), {"block": (128, 256, 32), "warp": (64, 64)}
    made = plan(key, "sm_80", stages=8, **tile)
    each = (128 + 256) * 32 * 2
    assert made.pipeline.stages == 163 * 1024 // each == 6
    assert "stages 8 -> 6: more tiles of A and B do not fit in 166912 bytes" in made.notes
    assert [t.stages for t in made.shared] == [6, 6]
    assert made.shared[1].start == 6 * 128 * 32 * 2
    assert made.budget.shared_bytes == made.numbers["DYNAMIC_BYTES"] == 6 * each
    assert plan(key, "sm_90", stages=8, **tile).pipeline.stages == 8


def test_how_tiles_come_to_shared_memory() -> None:
    key = FROM_75[0]
    turing, ampere = plan(key, "sm_75"), plan(key, "sm_80")
    assert turing.pipeline.waits == "barrier"
    assert {c.mechanism for c in turing.copies[:2]} == {"vector_load"}
    assert turing.budget.registers[0].staging == 2 * 64 * 32 // 128 // 2
    assert ampere.pipeline.waits == "cp_async_group"
    assert {c.mechanism for c in ampere.copies[:2]} == {"cp_async"}
    assert ampere.budget.registers[0].staging == 0
    pinned = plan(key, "sm_80", pins={"copy": "registers"})
    assert pinned.pipeline.waits == "barrier"


@pytest.mark.parametrize(
    ("key", "layout", "ways"),
    [
        (KINDS[0], {}, ("ldmatrix_x4", "ldmatrix_x4 turned")),
        (KINDS[0], {"a": "col", "b": "col"}, ("ldmatrix_x4 turned", "ldmatrix_x4")),
        (KINDS[5], {}, ("ldmatrix_x2", "ldmatrix_x4 turned")),
        (KINDS[2], {}, ("ldmatrix_x4", "vector_load")),
        (KINDS[2], {"a": "col", "b": "col"}, ("vector_load", "ldmatrix_x4")),
        (KINDS[3], {"b": "col"}, ("ldmatrix_x4", "ldmatrix_x4")),
        (KINDS[3], {"a": "col"}, ("ldmatrix_x4 turned", "ldmatrix_x4 turned")),
        (KINDS[4], {}, ("vector_load", "vector_load")),
    ],
    ids=str,
)
def test_how_fragments_come_from_shared_memory(
    key: Key, layout: dict[str, str], ways: tuple[str, str]
) -> None:
    copies = plan(key, layout=layout).copies[2:]
    assert tuple(c.mechanism + " turned" * c.transposes for c in copies) == ways


BF16 = {"types": {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16", "d": "bf16"}}
F16 = {"types": {"a": "f16", "b": "f16", "acc": "f32", "c": "f16", "d": "f16"}}
S8 = {"types": {"a": "s8", "b": "s8", "acc": "s32", "c": "s8", "d": "s8"}}
FP8 = {"types": {"a": "e4m3", "b": "e4m3", "acc": "f32", "c": "f32", "d": "f32"}}
F64 = {"types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64")}


def refusal(arch: str, **data: Any) -> PlanError:
    pins = {"form": "mma_sync", **data.pop("pins", {})}
    spec = tg.TileSpec(**{"block": (64, 64, 32), "warp": (32, 32), "pins": {"cuda": pins}, **data})
    with pytest.raises(PlanError) as raised:
        tg.lower(spec, "cuda", arch)
    return raised.value


@pytest.mark.parametrize(
    ("arch", "changes", "words"),
    [
        ("sm_80", {**BF16, "block": (48, 64, 32), "warp": (24, 32)},
         "warp[0] = 24: WARP_M must be a multiple of MMA_M = 16 of m16n8k16; nearest legal value: 16"),
        ("sm_80", {**BF16, "block": (64, 72, 32), "warp": (32, 36)},
         "warp[1] = 36: WARP_N must be a multiple of MMA_N = 8 of m16n8k16; nearest legal value: 24"),
        # B's columns are the instruction's 16 rows where D is column-major.
        ("sm_80", {**BF16, "block": (64, 48, 32), "warp": (32, 24), "layout": {"d": "col"}},
         "warp[1] = 24: WARP_N must be a multiple of MMA_N = 16 of m16n8k16; nearest legal value: 16"),
        ("sm_80", {**BF16, "block": (64, 64, 24)},
         "block[2] = 24: BLOCK_K must be a multiple of MMA_K = 16 of m16n8k16; nearest legal value: 16"),
        ("sm_80", {**S8, "block": (64, 64, 48)},
         "block[2] = 48: BLOCK_K must be a multiple of MMA_K = 32 of m16n8k32; nearest legal value: 32"),
        ("sm_80", {**S8, "block": (64, 48, 32), "warp": (32, 24)},
         "warp[1] = 24: WARP_N must be a multiple of 16: ldmatrix turns bytes of B 16 at a time; "
         "nearest legal value: 16"),
        ("sm_80", {**S8, "block": (48, 64, 32), "warp": (24, 32), "layout": {"a": "col", "d": "col"}},
         "warp[0] = 24: WARP_M must be a multiple of 16: ldmatrix turns bytes of A 16 at a time; "
         "nearest legal value: 16"),
        ("sm_80", {**S8, "block": (64, 24, 32), "warp": (32, 24)},
         "block[1] = 24: BLOCK_N must be a multiple of 16: "
         "the tile of B is moved 16 bytes at a time along it"),
        ("sm_80", {**BF16, "pins": {"instruction": "m16n8k32"}},
         "pins.cuda.instruction = m16n8k32: must multiply bf16 x bf16 -> f32, as m16n8k16 does; "
         "nearest legal value: m16n8k16"),
        ("sm_75", {**F16, "pins": {"instruction": "m16n8k16"}},
         "pins.cuda.instruction = m16n8k16: must be one of m16n8k8; "
         "legal from sm_80 on; nearest legal value: m16n8k8"),
        ("sm_75", BF16, "types.a = bf16: cuda sm_75, form mma_sync offers f16; "
         "legal from sm_80 on; nearest legal value: f16 with types.b = f16, types.c = f16, types.d = f16"),
        ("sm_75", S8, "types.a = s8: cuda sm_75, form mma_sync offers f16"),
        ("sm_75", F64, "types.a = f64: cuda sm_75, form mma_sync offers f16"),
        ("sm_86", FP8, "types.a = e4m3: cuda sm_86, form mma_sync offers f16, bf16, tf32, s8, u8, f64"),
        ("sm_75", {**F16, "block": (128, 256, 8), "warp": (32, 64), "stages": 1},
         "block[1] = 256: the epilogue's rows take 73728 bytes of shared memory and sm_75 allows 65536; "
         "pins.cuda.epilogue = direct takes none"),
        ("sm_80", {**BF16, "block": (128, 128, 32), "warp": (128, 64)},
         "(256 of them accumulators) and sm_80 has 255: the kernel would spill; "
         "nearest legal value: [64, 64]"),
        ("sm_80", {**BF16, "block": (256, 256, 32), "warp": (64, 32)},
         "1024 threads a block leave each 64 on sm_80: the kernel would spill"),
        ("sm_75", {**F16, "block": (256, 256, 128), "warp": (128, 64), "stages": 1},
         "1 stage(s) of A and B take 131072 bytes of shared memory and sm_75 allows 65536"),
    ],
    ids=lambda x: x if isinstance(x, str) and x.startswith("sm_") else "",
)  # fmt: skip
def test_refusals_name_the_limit(arch: str, changes: dict[str, Any], words: str) -> None:
    assert words in str(refusal(arch, **changes))


def test_a_legal_neighbour_that_is_named_is_legal() -> None:
    for changes in (
        {**BF16, "block": (48, 64, 32), "warp": (24, 32)},
        {**S8, "block": (64, 48, 32), "warp": (32, 24)},
        {**BF16, "block": (64, 64, 24)},
    ):
        (violation,) = refusal("sm_80", **changes).violations
        field, axis = violation.field.removesuffix("]").split("[")
        value = list(changes[field])  # type: ignore[call-overload]
        value[int(axis)] = int(violation.nearest)
        tg.lower(tg.TileSpec(**{"warp": (32, 32), **changes, field: value}), "cuda", "sm_80")


def test_other_types_fall_to_the_form_that_has_them() -> None:
    f32 = tg.TileSpec(block=(64, 64, 16), warp=(32, 32))
    assert tg.lower(f32, "cuda", "sm_90").form == "fma"
    f64 = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), **F64)
    assert tg.lower(f64, "cuda", "sm_80").form == "mma_sync"
    assert tg.lower(f64, "cuda", "sm_75").form == "fma"


def test_the_registers_are_those_of_the_launch_bounds() -> None:
    made = plan(("m16n8k16", "bf16", "bf16", "f32"), pins={"min_blocks": 4})
    assert made.budget.registers[0].limit == 65536 // (128 * 4)
    text = tg.emit(made).text
    assert text.count("__launch_bounds__(THREADS, 4)") == len(made.entries)
    use = made.budget.registers[0]
    # Two fragments of 16 rows by four of 8 columns: 4 sums, 4 and 2 registers each, the latter twice.
    assert (use.accumulators, use.operands) == (2 * 4 * 4, 2 * (2 * 4 + 4 * 2))
