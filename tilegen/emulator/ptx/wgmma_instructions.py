"""wgmma: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"."""

from __future__ import annotations

from tilegen.emulator.ptx.context import parts
from tilegen.emulator.ptx.findings import CONSTRAINT
from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import AsmOperand, Operand, Vector

_HALVES, _BYTES = ("f16", "bf16"), ("e4m3", "e5m2")
_INTEGERS = ("s8", "u8")
_K = {2: 16, 4: 8, 1: 32}


def _size(name: str) -> int:
    return 2 if name in _HALVES else 4 if name == "tf32" else 1


def _fits(d: str, a: str, b: str) -> bool:
    """Whether the document lists these types together."""
    if a in _INTEGERS:
        return d == "s32" and b in _INTEGERS
    if a in _BYTES:
        return d in ("f32", "f16") and b in _BYTES
    return a == b and (d == "f32" or (d == "f16" and a == "f16"))


def _wgmma(op: Operation) -> str:
    op.touches_memory()
    kind = op.need("mma_async", "fence", "commit_group", "wait_group")
    if op.take("sp"):
        raise op.refused(f"{op.ins.name}: sparse forms are not known to the emulator")
    op.need("sync")
    op.need("aligned")
    if kind == "mma_async":
        return _mma(op)
    if kind == "wait_group":
        (n,) = op.operands(1)
        return f"tg_ptx::wgmma_wait_group({op.value(n, 'u32')}, {op.line});"
    op.operands(0)
    return f"tg_ptx::wgmma_{kind}({op.line});"


def _mma(op: Operation) -> str:
    shape = op.take_starting("m64n")
    size, _, depth = shape.removeprefix("m64n").partition("k")
    finite = op.flag("satfinite")
    d = op.need("f32", "f16", "s32")
    a = op.need(*_HALVES, "tf32", *_BYTES, *_INTEGERS)
    b = op.need(*_HALVES, "tf32", *_BYTES, *_INTEGERS)
    n = int(size) if size.isdigit() else 0
    step = 16 if a in _INTEGERS and n > 32 else 8
    if not (8 <= n <= 256 and n % step == 0 and depth == str(_K[_size(a)]) and _fits(d, a, b)):
        raise op.refused(f"{op.ins.name}: this shape with these types is not known to the emulator")
    integer = a in _INTEGERS
    if finite == "true" and not integer:
        raise op.refused(f"{op.ins.name}: .satfinite goes with integers")
    scales = 0 if integer else 2
    in_registers = isinstance(op.ins.operands[1:2] and op.ins.operands[1], Vector)
    transposes = 0 if _size(a) != 2 else 1 if in_registers else 2
    to, source_a, source_b, scale_d, *rest = op.operands(4 + scales + transposes)
    count = n // 4 if d == "f16" else n // 2
    places = _places(op, to, count, "s32" if d == "s32" else "b32" if d == "f16" else "f32")
    registers, descriptor = "nullptr", "0ull"
    setup = f"void* const tg_d[] = {places};"
    if in_registers:
        setup += f" const uint32_t tg_a[] = {op.values(source_a, 'b32', 4)};"
        registers = "tg_a"
    else:
        descriptor = op.value(source_a, "b64")
    signs = [f"int32_t({op.value(x, 's32')}) < 0" for x in rest[:scales]] or ["false", "false"]
    turns = [f"{op.value(x, 's32')} != 0" for x in rest[scales:]]
    # A in registers has no majorness, and neither have operands of other sizes.
    turns = ["false"] * (2 - len(turns)) + turns
    what = (
        f"tg_ptx::WgmmaOp{{{n}, tg_ptx::Sum::{d}, tg_ptx::Element::{a}, tg_ptx::Element::{b}, "
        f"{', '.join(signs + turns)}, {finite}}}"
    )
    return (
        f"{setup} tg_ptx::wgmma({what}, tg_d, {registers}, {descriptor}, {op.value(source_b, 'b64')}, "
        f"{op.value(scale_d, 'pred')}, {op.line});"
    )


def _places(op: Operation, to: Operand, count: int, type_: str) -> str:
    """Addresses of the variables behind D: they change when the group is waited for, after the asm."""
    found = parts(to)
    if len(found) != count:
        raise op.refused(
            f"{op.ins.name} takes {count} registers of D, not {len(found)}", CONSTRAINT
        )
    places = []
    for operand in found:
        if not isinstance(operand, AsmOperand):
            raise op.refused(f"{op.ins.name}: D must be operands of the asm statement")
        op.value(operand, type_)
        op.store(operand, type_, "")
        register = op.context.register(operand, op.ins.line)
        if register is None or register.mode not in ("+", "="):
            raise op.refused(f"{op.ins.name}: %{operand.index} of D is no output", CONSTRAINT)
        register.in_place = True
        places.append(f"&{register.variable}_to")
    return "{" + ", ".join(places) + "}"


HANDLERS: dict[str, Handler] = {"wgmma": _wgmma}
