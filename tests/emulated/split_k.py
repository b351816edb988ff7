"""A kernel of several entries: packs of operands, slices of K into planes, and a sum over the planes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tilegen as tg
from tilegen.plan import Access, Argument, Entry, Formula
from tilegen.render import KernelSource

TEXT = (Path(__file__).parent / "texts" / "split_k.cu").read_text(encoding="utf-8")
SPLITS = 3
PARTIAL = "split_k * M * N * 4"
PACKED = "(M + N) * K * 4"


def size(name: str, value: str | None = None) -> Argument:
    return Argument(name, "i64", "size", value=None if value is None else Formula(value))


def scalar(name: str) -> Argument:
    return Argument(name, "f32", "scalar")


def region(name: str, offset: str) -> Argument:
    return Argument(name, "f32", "workspace", value=Formula(offset))


def array(name: str) -> tuple[Argument, ...]:
    kind = "output" if name == "d" else "input"
    return Argument(name, "f32", kind, name), Argument(f"ld{name}", "i64", "stride", name)


def one(operand: str, elements: int = 1) -> Access:
    return Access(operand, elements, 4 * elements, elements)


def pack(operand: str, rows: str, cols: str, offset: str) -> Entry:
    source = Argument("source", "f32", "input", operand)
    ld = Argument("ld", "i64", "stride", operand, Formula(f"ld{operand}"))
    return Entry(
        f"gemm_pack_{operand}", "pack", "",
        (size("rows", rows), size("cols", cols), source, ld, region("packed", offset)),
        (one(operand),), Formula(f"({rows} * {cols} + 63) / 64"), 64,
        workspace=Formula(f"{PARTIAL} + {PACKED}"), symbol_name="gemm_pack",
    )  # fmt: skip


def source(arch: str = "sm_80") -> KernelSource:
    sizes = (size("M"), size("N"), size("K"), size("split_k"))
    grid = Formula("(M * N + 63) / 64 * split_k")
    both = Formula(f"{PARTIAL} + {PACKED}")
    entries = (
        Entry(
            "gemm_main", "main", "wide",
            (*sizes, scalar("alpha"), *array("a"), *array("b"), region("partial", "0")),
            (one("a", 4), one("b", 4)), grid, 64, workspace=Formula(PARTIAL),
            after=("gemm_reduce",),
        ),
        Entry(
            "gemm_any", "main", "any",
            (*sizes, scalar("alpha"), region("packed_a", PARTIAL),
             region("packed_b", f"{PARTIAL} + M * K * 4"), region("partial", "0")),
            (one("a"), one("b")), grid, 64, workspace=both, symbol_name="gemm_packed",
            before=("gemm_pack_a", "gemm_pack_b"), after=("gemm_reduce",),
        ),
        pack("a", "M", "K", PARTIAL),
        pack("b", "K", "N", f"{PARTIAL} + M * K * 4"),
        Entry(
            "gemm_reduce", "reduce", "",
            (size("M"), size("N"), size("planes", "split_k"), scalar("alpha"), scalar("beta"),
             region("partial", "0"), *array("c"), *array("d")),
            (one("c"), one("d")), Formula("(M * N + 63) / 64"), 64, workspace=Formula(PARTIAL),
        ),
    )  # fmt: skip
    plan = tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", arch)
    return KernelSource(replace(plan, split_k=SPLITS, entries=entries), TEXT, ".cu", "0" * 64)
