"""Every mma.sync instruction by one-hot probes, and that a plan's owners are those who hold and write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated.mma_probes import INSTRUCTIONS, PROBES, name, probe, spec

import tilegen as tg
from tilegen.dtypes import DTYPES
from tilegen.hardware import Instruction

QUICK = "emulator:quick"


@pytest.mark.parametrize(("instruction", "d"), PROBES, ids=name)
def test_one_hot(instruction: Instruction, d: str) -> None:
    plan = tg.lower(spec(instruction, d), "cuda", "sm_89")
    assert (plan.instruction.name, plan.warps) == (instruction.name, (2, 4))
    assert probe(tg.load(tg.emit(plan), QUICK)) == plan.block[2] * max(plan.block[:2])


def test_a_probe_sees_fragments_in_another_order() -> None:
    source = tg.emit(tg.lower(spec(INSTRUCTIONS[0], "row"), "cuda", "sm_89"))
    right, wrong = '"r"(rows[1]), "r"(rows[2])', '"r"(rows[2]), "r"(rows[1])'
    assert source.text.count(right) == 1
    with pytest.raises(AssertionError):
        probe(tg.load(replace(source, text=source.text.replace(right, wrong)), QUICK))


def typed(a: str, acc: str, b: str | None = None) -> dict[str, str]:
    return {"a": a, "b": b or a, "acc": acc, "c": acc, "d": acc}


OWNED: list[dict[str, Any]] = [
    {"types": typed("bf16", "f32")},
    {"types": typed("f16", "f32"), "layout": {"a": "col", "b": "col", "d": "col"},
     "pins": {"epilogue": "shared"}},
    {"types": typed("s8", "s32")},
    {"types": typed("e4m3", "f32"), "layout": {"a": "col", "d": "col"}, "pins": {"epilogue": "shared"}},
    {"types": typed("tf32", "f32"), "layout": {"a": "col", "d": "col"}},
    {"types": typed("f64", "f64")},
]  # fmt: skip
# By alpha: 2 gives the fragments of A in D's place, 3 those of B, once the first of them are loaded.
DUMP = """
    if (alpha > 1) {
        for (int i = thread; i < M * N; i += THREADS)
            d[i] = 0;
        __syncthreads();
        fragment *const held = reinterpret_cast<fragment *>(d);
        for (int i = 0; alpha == ALPHA_ROWS && i < MMAS_%(r)s; ++i)
            for (int r = 0; r < ROW_REGISTERS; ++r)
                held[(thread * MMAS_%(r)s + i) * ROW_REGISTERS + r] = rows[0][i][r];
        for (int i = 0; alpha == ALPHA_COLS && i < MMAS_%(c)s; ++i)
            for (int r = 0; r < COL_REGISTERS; ++r)
                held[(thread * MMAS_%(c)s + i) * COL_REGISTERS + r] = cols[0][i][r];
        return;
    }
"""
# Every register of sums holds its own number, so that D shows who wrote what.
NUMBERED = """
    for (int i = 0; i < static_cast<int>(sizeof(sums) / sizeof(sum)); ++i)
        (&sums[0][0][0])[i] = static_cast<sum>(threadIdx.x * (sizeof(sums) / sizeof(sum)) + i);
"""


def telling(data: dict[str, Any]) -> tg.Kernel:
    """The kernel of a spec, with statements in its text that give away who holds what."""
    pins = {"cuda": {"form": "mma_sync", **data.get("pins", {})}}
    tile = {"block": (64, 64, 32), "warp": (32, 32), "stages": 2}
    plan = tg.lower(tg.TileSpec(**{**tile, **data, "pins": pins}), "cuda", "sm_89")
    source, swapped = tg.emit(plan), plan.spec.layout.d == "col"
    dump = DUMP % {"r": "N" if swapped else "M", "c": "M" if swapped else "N"}
    dump = dump.replace("ALPHA_ROWS", "3" if swapped else "2")
    dump = dump.replace("ALPHA_COLS", "2" if swapped else "3")
    text = source.text
    for line, code in (("    // 3. Main loop", dump), ("    // 4. Epilogue.", NUMBERED)):
        assert text.count(line) == 1
        text = text.replace(line, code + line)
    return tg.load(replace(source, text=text), QUICK)


def operand(shape: tuple[int, int], kind: str, majorness: str, values: Any) -> np.ndarray[Any, Any]:
    """Whole numbers; bytes of floats by their bits, since few numbers are exact in them."""
    dtype, order = DTYPES[kind].numpy, "C" if majorness == "row" else "F"
    stored = np.uint8 if kind == "e4m3" else dtype
    return np.asarray(np.broadcast_to(values, shape), stored, order=order).view(dtype)  # type: ignore[call-overload]


@pytest.mark.parametrize("data", OWNED, ids=lambda x: x["types"]["a"])
def test_planned_owners_hold_and_write_the_elements(data: dict[str, Any]) -> None:
    kernel = telling(data)
    plan, types, layout = kernel.plan, kernel.plan.spec.types, kernel.plan.spec.layout
    a = operand((64, 32), types.a, layout.a, 0)
    b = operand((32, 64), types.b, layout.b, 0)
    d = np.asarray(kernel(a, b))
    each = 64 * 64 // plan.threads
    for row, col in np.ndindex(64, 64):
        ((warp, lane, register),) = plan.ownership["c"].owners(row, col)
        assert d[row, col] == (warp * 32 + lane) * each + register
    # Elements of A, then of B, hold their row, then their k: so do the first step's fragments.
    for which, alpha in (("a", 2), ("b", 3)):
        held, owner = getattr(plan.fragments, which), plan.ownership[which]
        each = held.rows * held.elements
        for digit in (0, 1):
            tile = np.indices((64, 32))[digit]
            a = operand((64, 32), types.a, layout.a, tile if which == "a" else 0)
            b = operand((32, 64), types.b, layout.b, tile.T if which == "b" else 0)
            words = np.asarray(kernel(a, b, alpha=alpha)).ravel(order="K")
            kind = np.uint8 if types.a == "e4m3" else DTYPES[types.a].numpy
            got = words.view(kind)[: plan.threads * each].reshape(plan.threads, each)
            want = [
                [owner.element(t // 32, t % 32, r)[digit] for r in range(each)]
                for t in range(plan.threads)
            ]
            assert np.array_equal(got.astype(int), want)


@pytest.mark.parametrize(("c", "d"), [("f32", "f16"), ("f16", "f32")])
def test_c_may_be_left_out_where_its_type_is_not_d_s(c: str, d: str) -> None:
    """D stands in for it, in a type that the text takes for something else."""
    types = {"a": "f16", "b": "f16", "acc": "f32", "c": c, "d": d}
    made = tg.lower(tg.TileSpec(block=(16, 16, 16), warp=(16, 16), types=types), "cuda", "sm_80")
    ones = np.ones((16, 16), np.float16)
    assert (tg.load(tg.emit(made), "emulator:quick")(ones, ones) == 16).all()
