"""mma.sync, ldmatrix, stmatrix and movmatrix: which forms there are, and how many registers each has.

PTX ISA, "Warp Level Matrix Instructions".
"""

from __future__ import annotations

from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.ptxtypes import TYPES

# The register that carries a fragment's elements, and how many it packs.
_CARRIERS = {
    "f16": ("b32", 2), "bf16": ("b32", 2), "tf32": ("b32", 1), "e4m3": ("b32", 4), "e5m2": ("b32", 4),
    "s8": ("b32", 4), "u8": ("b32", 4), "f64": ("f64", 1),
}  # fmt: skip
_SUMS = {"f32": ("f32", 1), "f16": ("b32", 2), "s32": ("s32", 1), "f64": ("f64", 1)}
# By shape: the types of D and C with those of A and B.
_EIGHT_BIT_FLOATS = {(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")}
_EIGHT_BIT_INTEGERS = {(a, b) for a in ("s8", "u8") for b in ("s8", "u8")}
_INTEGERS = {("s32", *pair) for pair in _EIGHT_BIT_INTEGERS}
_HALVES = {("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16")}
_FORMS: dict[str, set[tuple[str, str, str]]] = {
    "m16n8k4": {("f32", "tf32", "tf32"), ("f64", "f64", "f64")},
    "m16n8k8": _HALVES | {("f32", "tf32", "tf32"), ("f64", "f64", "f64")},
    "m16n8k16": _HALVES | _INTEGERS | {("f64", "f64", "f64")}
    | {("f32", *pair) for pair in _EIGHT_BIT_FLOATS},
    "m16n8k32": _INTEGERS | {(d, *pair) for d in ("f32", "f16") for pair in _EIGHT_BIT_FLOATS},
    "m8n8k4": {("f64", "f64", "f64")},
    "m8n8k16": _INTEGERS,
}  # fmt: skip


def _mma(op: Operation) -> str:
    op.arrange(("sync",), ("aligned",), tuple(_FORMS), ("row", "col"), ("satfinite",), tuple(TYPES))
    op.need("sync")
    op.need("aligned")
    shape = op.need(*_FORMS)
    op.need("row")
    op.need("col")
    finite = op.flag("satfinite")
    d, a, b, c = (op.need(*TYPES) for _ in range(4))
    if (d, a, b) not in _FORMS[shape] or c != d:
        raise op.refused(
            f"{op.ins.name}: these types with the shape {shape} are not known to the emulator"
        )
    if finite == "true" and d != "s32":
        raise op.refused(f"{op.ins.name}: .satfinite goes with integers")
    m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    sums, per_sum = _SUMS[d]
    narrow, packed = _CARRIERS[a]
    sum_count = m * n // 32 // per_sum
    to, va, vb, vc = op.operands(4)
    raw, sum_raw = TYPES[narrow].raw, TYPES[sums].raw
    values = (
        f"const {raw} tg_a[] = {op.values(va, narrow, m * k // 32 // packed)}; "
        f"const {raw} tg_b[] = {op.values(vb, narrow, k * n // 32 // packed)}; "
        f"const {sum_raw} tg_c[] = {op.values(vc, sums, sum_count)}; {sum_raw} tg_d[{sum_count}];"
    )
    types = ", ".join(f"tg_ptx::{x}" for x in (d, a, b))
    op.acts()
    return (
        f"{values} tg_ptx::mma<tg_ptx::Shape{m}, {k}, {types}>(tg_d, tg_a, tg_b, tg_c, {finite}, "
        f"{op.line}); {op.stores(to, sums, sum_count, 'tg_d')}"
    )


def _count(op: Operation) -> tuple[int, str, bool]:
    """Number of matrices, .trans and .shared, of ldmatrix and stmatrix."""
    op.need("sync")
    op.need("aligned")
    # ptxas takes these three in any order, and kernels make use of it.
    words: list[str] = []
    while word := op.take("m8n8", "x1", "x2", "x4", "trans"):
        words.append(word)
    counts = [w for w in words if w in ("x1", "x2", "x4")]
    if "m8n8" not in words or len(counts) != 1 or len(set(words)) != len(words):
        op.unknown("one .m8n8 and one of .x1 .x2 .x4 are expected")
    count, transposed = int(counts[0][1:]), str("trans" in words).lower()
    shared = bool(op.take("shared", "shared::cta"))
    op.need("b16")
    return count, transposed, shared


def _ldmatrix(op: Operation) -> str:
    count, transposed, shared = _count(op)
    d, place = op.operands(2)
    op.touches_memory()
    where = op.shared(place, named=shared)
    return (
        f"uint32_t tg_d[{count}]; tg_ptx::ldmatrix(tg_d, {count}, {transposed}, {where}, {op.line}); "
        f"{op.stores(d, 'b32', count, 'tg_d')}"
    )


def _stmatrix(op: Operation) -> str:
    count, transposed, shared = _count(op)
    place, a = op.operands(2)
    op.touches_memory()
    where = op.shared(place, named=shared)
    return (
        f"const uint32_t tg_a[] = {op.values(a, 'b32', count)}; "
        f"tg_ptx::stmatrix(tg_a, {count}, {transposed}, {where}, {op.line});"
    )


def _movmatrix(op: Operation) -> str:
    for word in ("sync", "aligned", "m8n8", "trans", "b16"):
        op.need(word)
    d, a = op.operands(2)
    op.acts()
    return op.store(d, "b32", f"tg_ptx::movmatrix({op.value(a, 'b32')}, {op.line})")


HANDLERS: dict[str, Handler] = {
    "mma": _mma, "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix,
}  # fmt: skip
