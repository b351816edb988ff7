"""Integer, logic and floating-point instructions."""

from __future__ import annotations

from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.ptxtypes import TYPES, WIDE, Type

INTEGERS = "u16 s16 u32 s32 u64 s64"
_ROUNDS = {"rn": "nearest_even", "rz": "zero", "rm": "down", "rp": "up"}
_HALVES = {"f16x2": "f16", "bf16x2": "bf16"}
_FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_MODE_WORDS = (*_ROUNDS, "approx", "full", "ftz", "sat", "relu", "noftz")


def mode(*, round_: str = "rn", ftz: bool = False, sat: bool = False, relu: bool = False) -> str:
    """C++ type that holds an instruction's rounding and flags."""
    flags = ", ".join(str(f).lower() for f in (ftz, sat, relu))
    return f"tg_ptx::Mode<tg_ptx::Round::{_ROUNDS[round_]}, {flags}>"


def _is_float(op: Operation) -> bool:
    return op.ins.modifiers[-1:] != () and op.ins.modifiers[-1] in _FLOATS


def _call(op: Operation, type_: Type, name: str, more: str = "", *, count: int) -> str:
    """``d = name<type, more>(a, b, ...)`` with all operands of one type."""
    d, *sources = op.operands(count + 1)
    args = ", ".join(op.value(x, type_) for x in sources)
    return op.store(d, type_, f"tg_ptx::{name}<tg_ptx::{type_.name}{more}>({args})")


def _float_call(
    op: Operation, name: str, count: int, words: tuple[str, ...], more: str = ""
) -> str:
    """A float instruction: its rounding and flags, then its type; packed types by halves."""
    given: set[str] = set()
    while word := op.take(*words):
        given.add(word)
    return _float_typed(op, name, count, given, more)


def _float_typed(op: Operation, name: str, count: int, given: set[str], more: str = "") -> str:
    rounds = [w for w in given if w in _ROUNDS] or ["rn"]
    type_ = op.type(" ".join(_FLOATS))
    narrow = _HALVES.get(type_.name, type_.name)
    if narrow in ("f16", "bf16") and rounds != ["rn"]:
        raise op.refused(f"{op.ins.name}: only .rn rounds 16-bit floats")
    flags = mode(round_=rounds[0], ftz="ftz" in given and narrow != "f64", sat="sat" in given,
                 relu="relu" in given)  # fmt: skip
    call = f"tg_ptx::{name}<tg_ptx::{narrow}, {flags}{more}>"
    d, *sources = op.operands(count + 1)
    args = ", ".join(op.value(x, type_) for x in sources)
    if narrow != type_.name:
        names = ", ".join(f"auto {x}" for x in "abc"[:count])
        inner = f"[]({names}) {{ return {call}({', '.join('abc'[:count])}); }}"
        return op.store(d, type_, f"tg_ptx::pairwise<tg_ptx::{narrow}>({inner}, {args})")
    return op.store(d, type_, f"{call}({args})")


def _add_sub(op: Operation) -> str:
    if _is_float(op):
        return _float_call(op, f"f{op.ins.opcode}", 2, _MODE_WORDS)
    saturate = op.flag("sat")
    type_ = op.type("s32" if saturate == "true" else INTEGERS)
    return _call(op, type_, op.ins.opcode, f", {saturate}", count=2)


def _mul_mad(op: Operation) -> str:
    count = 2 if op.ins.opcode == "mul" else 3
    if _is_float(op):
        if count == 3:
            return _rounded(op, "ffma", 3)
        return _float_call(op, "fmul", 2, _MODE_WORDS)
    part = op.need("lo", "hi", "wide")
    if part != "wide":
        return _call(op, op.type(INTEGERS), f"{op.ins.opcode}_{part}", count=count)
    type_ = op.type(" ".join(WIDE))
    wide = TYPES[WIDE[type_.name]]
    d, *sources = op.operands(count + 1)
    args = [op.value(x, type_) for x in sources[:2]] + [op.value(x, wide) for x in sources[2:]]
    text = f"tg_ptx::{op.ins.opcode}_wide<tg_ptx::{type_.name}>({', '.join(args)})"
    return op.store(d, wide, text)


def _rounded(op: Operation, name: str, count: int, others: tuple[str, ...] = ()) -> str:
    """A float instruction that must say how it rounds, or that it does not do so exactly."""
    if not {*_ROUNDS, *others} & set(op.ins.modifiers):
        options = " .".join((*_ROUNDS, *others))
        raise op.refused(f"{op.ins.name}: one of .{options} is expected")
    return _float_call(op, name, count, _MODE_WORDS)


def _fma(op: Operation) -> str:
    return _rounded(op, "ffma", 3)


def _div(op: Operation) -> str:
    if _is_float(op):
        return _rounded(op, "fdiv", 2, ("approx", "full"))
    return _call(op, op.type(INTEGERS), "div", count=2)


def _rem(op: Operation) -> str:
    return _call(op, op.type(INTEGERS), "rem", count=2)


def _abs_neg(op: Operation) -> str:
    if _is_float(op):
        return _float_call(op, "fabs_" if op.ins.opcode == "abs" else "fneg", 1, ("ftz",))
    return _call(op, op.type("s16 s32 s64"), op.ins.opcode, count=1)


def _min_max(op: Operation) -> str:
    if not _is_float(op):
        return _call(op, op.type(INTEGERS), op.ins.opcode, count=2)
    given: set[str] = set()
    while word := op.take("ftz", "NaN", "xorsign"):
        given.add(word)
        if word == "xorsign":
            op.need("abs")
    flags = ", ".join(str(w in given).lower() for w in ("NaN", "xorsign"))
    return _float_typed(op, f"f{op.ins.opcode}_", 2, given, f", {flags}")


def _one_float(name: str, types: str, needs: tuple[str, ...]) -> Handler:
    def handler(op: Operation) -> str:
        if op.ins.modifiers[-1:] and op.ins.modifiers[-1] not in types.split():
            raise op.refused(
                f"{op.ins.name}: the type .{op.ins.modifiers[-1]} is not known to the emulator"
            )
        if not set(needs) & set(op.ins.modifiers):
            raise op.refused(f"{op.ins.name}: one of .{' .'.join(needs)} is expected")
        return _float_call(op, name, 1, (*needs, "ftz"))

    return handler


def _copysign(op: Operation) -> str:
    return _call(op, op.type("f32 f64"), "copysign_", count=2)


def _logic(op: Operation) -> str:
    return _call(op, op.type("pred b16 b32 b64"), f"bit_{op.ins.opcode}", count=2)


def _not(op: Operation) -> str:
    return _call(op, op.type("pred b16 b32 b64"), "bit_not", count=1)


def _cnot(op: Operation) -> str:
    return _call(op, op.type("b16 b32 b64"), "cnot", count=1)


def _shift(op: Operation) -> str:
    types = "b16 b32 b64" if op.ins.opcode == "shl" else f"b16 b32 b64 {INTEGERS}"
    type_ = op.type(types)
    d, a, amount = op.operands(3)
    text = f"tg_ptx::{op.ins.opcode}<tg_ptx::{type_.name}>({op.value(a, type_)}, {op.value(amount, 'u32')})"
    return op.store(d, type_, text)


def _funnel(op: Operation) -> str:
    side = op.need("l", "r")
    wrap = "true" if op.need("wrap", "clamp") == "wrap" else "false"
    op.type("b32")
    d, *sources = op.operands(4)
    args = ", ".join(op.value(x, "b32") for x in sources)
    return op.store(d, "b32", f"tg_ptx::shf_{side}<{wrap}>({args})")


def _count(op: Operation) -> str:
    type_ = op.type("b32 b64")
    d, a = op.operands(2)
    return op.store(
        d, "u32", f"tg_ptx::{op.ins.opcode}<tg_ptx::{type_.name}>({op.value(a, type_)})"
    )


def _brev(op: Operation) -> str:
    return _call(op, op.type("b32 b64"), "brev", count=1)


def _bfind(op: Operation) -> str:
    amount = op.flag("shiftamt")
    type_ = op.type("u32 s32 u64 s64")
    d, a = op.operands(2)
    text = f"tg_ptx::bfind<tg_ptx::{type_.name}, {amount}>({op.value(a, type_)})"
    return op.store(d, "u32", text)


def _bfe(op: Operation) -> str:
    type_ = op.type("u32 s32 u64 s64")
    d, a, place, length = op.operands(4)
    args = f"{op.value(a, type_)}, {op.value(place, 'u32')}, {op.value(length, 'u32')}"
    return op.store(d, type_, f"tg_ptx::bfe<tg_ptx::{type_.name}>({args})")


def _bfi(op: Operation) -> str:
    type_ = op.type("b32 b64")
    d, a, b, place, length = op.operands(5)
    args = ", ".join((op.value(a, type_), op.value(b, type_), op.value(place, "u32"),
                      op.value(length, "u32")))  # fmt: skip
    return op.store(d, type_, f"tg_ptx::bfi<tg_ptx::{type_.name}>({args})")


def _lop3(op: Operation) -> str:
    op.type("b32")
    d, *sources = op.operands(5)
    args = ", ".join(op.value(x, "b32") for x in sources)
    return op.store(d, "b32", f"tg_ptx::lop3({args})")


def _prmt(op: Operation) -> str:
    op.arrange(("b32",), ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))
    op.type("b32")
    kind = op.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") or "index"
    d, *sources = op.operands(4)
    args = ", ".join(op.value(x, "b32") for x in sources)
    return op.store(d, "b32", f"tg_ptx::prmt<tg_ptx::Permute::{kind}>({args})")


def _dp4a(op: Operation) -> str:
    a_type, b_type = op.need("u32", "s32"), op.need("u32", "s32")
    d, a, b, c = op.operands(4)
    types = f"tg_ptx::{a_type[0]}8, tg_ptx::{b_type[0]}8"
    args = f"{op.value(a, a_type)}, {op.value(b, b_type)}, {op.value(c, 'b32')}"
    return op.store(d, "b32", f"tg_ptx::dp4a<{types}>({args})")


_APPROX = ("approx",)
HANDLERS: dict[str, Handler] = {
    "add": _add_sub, "sub": _add_sub, "mul": _mul_mad, "mad": _mul_mad, "fma": _fma,
    "div": _div, "rem": _rem, "abs": _abs_neg, "neg": _abs_neg, "min": _min_max, "max": _min_max,
    "sqrt": _one_float("fsqrt", "f32 f64", ("rn", "rz", "rm", "rp", "approx")),
    "rcp": _one_float("frcp", "f32 f64", ("rn", "approx")),
    "rsqrt": _one_float("frsqrt", "f32 f64", _APPROX),
    "ex2": _one_float("fex2", "f32 f16 f16x2 bf16 bf16x2", _APPROX),
    "lg2": _one_float("flg2", "f32", _APPROX),
    "sin": _one_float("fsin", "f32", _APPROX),
    "cos": _one_float("fcos", "f32", _APPROX),
    "tanh": _one_float("ftanh", "f32 f16 f16x2 bf16 bf16x2", _APPROX),
    "copysign": _copysign, "and": _logic, "or": _logic, "xor": _logic, "not": _not, "cnot": _cnot,
    "shl": _shift, "shr": _shift, "shf": _funnel, "popc": _count, "clz": _count, "brev": _brev,
    "bfind": _bfind, "bfe": _bfe, "bfi": _bfi, "lop3": _lop3, "prmt": _prmt, "dp4a": _dp4a,
}  # fmt: skip
