"""mov, cvt, cvta, and the comparisons and selections."""

from __future__ import annotations

from tilegen.emulator.ptx.arithmetic import INTEGERS, mode
from tilegen.emulator.ptx.context import parts
from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import Operand, Pair, Vector
from tilegen.emulator.ptx.ptxtypes import TYPES, Type

_ROUNDS = {"rn": "nearest_even", "rna": "nearest_away", "rz": "zero", "rm": "down", "rp": "up"}
_FLOATS = ("f16", "bf16", "tf32", "f32", "f64")
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}


def _mov(op: Operation) -> str:
    type_ = op.type(f"pred b16 b32 b64 {INTEGERS} f32 f64")
    d, a = op.operands(2)
    if isinstance(d, Vector):
        part = _part(op, type_, d)
        source = op.value(a, type_)
        moves = (
            op.store(x, part, f"{part.raw}(tg_v >> {i * part.bits})") for i, x in enumerate(d.parts)
        )
        return f"const {type_.raw} tg_v = {source}; {' '.join(moves)}"
    if isinstance(a, Vector):
        part = _part(op, type_, a)
        bits = " | ".join(
            f"{type_.raw}({op.value(x, part)}) << {i * part.bits}" for i, x in enumerate(a.parts)
        )
        return op.store(d, type_, f"{type_.raw}({bits})")
    return op.store(d, type_, op.value(a, type_))


def _part(op: Operation, type_: Type, vector: Vector) -> Type:
    """The type of one element of a pack or unpack."""
    count = len(vector.parts)
    name = f"b{type_.bits // count}"
    if type_.kind != "b" or count not in (2, 4) or name not in TYPES:
        raise op.refused(f"{op.ins.name} does not pack {count} registers")
    return TYPES[name]


def _cvt(op: Operation) -> str:
    words: list[str] = []
    while word := op.take(*_ROUNDS, "rni", "rzi", "rmi", "rpi", "ftz", "sat", "satfinite", "relu"):
        words.append(word)
    rounds = [w for w in words if w in _ROUNDS or (w[:2] in _ROUNDS and w.endswith("i"))]
    round_ = rounds[0] if rounds else ""
    names = [op.need(*TYPES), op.need(*TYPES)]
    if names[0] in _PAIRS:
        return _cvt_pair(op, words, round_, names[0], names[1])
    to, source = TYPES[names[0]], TYPES[names[1]]
    d, a = op.operands(2)
    value = op.value(a, source, wider=True)
    call = _cvt_call(op, words, round_, to, source)
    return op.store(d, to, f"{call}({value})", wider=True)


def _mode(words: list[str], round_: str) -> str:
    name = _ROUNDS[round_.removesuffix("i") or "rn"]
    flags = ", ".join(str(w in words).lower() for w in ("ftz", "sat", "relu"))
    return f"tg_ptx::Mode<tg_ptx::Round::{name}, {flags}>"


def _cvt_call(op: Operation, words: list[str], round_: str, to: Type, source: Type) -> str:
    types = f"tg_ptx::{to.name}, tg_ptx::{source.name}"
    from_float, to_float = source.name in _FLOATS, to.name in _FLOATS
    finite = str("satfinite" in words).lower()
    if not from_float and not to_float:
        if round_ or {"ftz", "satfinite", "relu"} & set(words):
            raise op.refused(f"{op.ins.name}: conversions between integers take only .sat")
        return f"tg_ptx::int_to_int<{types}, {str('sat' in words).lower()}>"
    if from_float and not to_float:
        if not round_.endswith("i"):
            raise op.refused(f"{op.ins.name} needs .rni .rzi .rmi or .rpi: it gives an integer")
        return f"tg_ptx::float_to_int<{types}, {_mode(words, round_)}>"
    if not from_float:
        if round_ not in ("rn", "rz", "rm", "rp"):
            raise op.refused(f"{op.ins.name} needs .rn .rz .rm or .rp: it may round")
        return f"tg_ptx::int_to_float<{types}, {_mode(words, round_)}>"
    integral = round_.endswith("i")
    narrows = to.bits < source.bits or to.name == "tf32" or (to.bits == 16 and to != source)
    if narrows and not integral and not round_:
        raise op.refused(f"{op.ins.name} needs a rounding, as .rn: it loses bits")
    if round_ == "rna" and to.name != "tf32":
        raise op.refused(f"{op.ins.name}: .rna goes with .tf32")
    return f"tg_ptx::float_to_float<{types}, {_mode(words, round_)}, {finite}, {str(integral).lower()}>"


def _cvt_pair(op: Operation, words: list[str], round_: str, to: str, source: str) -> str:
    """``cvt.rn.f16x2.f32 d, a, b``: a goes to the upper half; or one pair to another."""
    narrow, pair = _PAIRS[to], TYPES[to]
    finite = str("satfinite" in words).lower()
    if not round_:
        raise op.refused(f"{op.ins.name} needs a rounding, as .rn")
    if pair.bits == 16 and finite == "false":
        raise op.refused(f"{op.ins.name} needs .satfinite")
    if source == "f32":
        d, a, b = op.operands(3)
        types = f"tg_ptx::{narrow}, tg_ptx::f32, {_mode(words, round_)}, {finite}"
        call = f"tg_ptx::pack2<{types}>({op.value(a, 'f32')}, {op.value(b, 'f32')})"
        return op.store(d, pair, f"{pair.raw}({call})")
    if {to, source} not in ({"e4m3x2", "f16x2"}, {"e5m2x2", "f16x2"}):
        raise op.refused(f"{op.ins.name}: this pair of types is not known to the emulator")
    d, a = op.operands(2)
    types = f"tg_ptx::{narrow}, tg_ptx::{_PAIRS[source]}, {_mode(words, round_)}, {finite}"
    call = f"tg_ptx::repack2<{types}>({op.value(a, TYPES[source])})"
    return op.store(d, pair, f"{pair.raw}({call})")


def _cvta(op: Operation) -> str:
    back = op.take("to")
    space = op.need("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param")
    type_ = op.type("u32 u64")
    d, a = op.operands(2)
    if type_.bits == 32:
        raise op.refused(f"{op.ins.name}: addresses are 64 bits wide here")
    value = op.value(a, type_)
    if space.startswith("shared"):
        if back:
            value = f"uint64_t(tg::shared_address((const void*)({value}), {op.line}))"
        else:
            value = f"uint64_t((uintptr_t)tg::shared_pointer(uint32_t({value})))"
    return op.store(d, type_, value)


def _isspacep(op: Operation) -> str:
    space = op.need("global", "shared", "shared::cta", "shared::cluster")
    p, a = op.operands(2)
    inside = f"tg::is_shared((const void*)({op.value(a, 'u64')}))"
    return op.store(p, "pred", inside if space != "global" else f"!{inside}")


_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu",
             "num", "nan", "lo", "ls", "hi", "hs")  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _comparison(op: Operation) -> tuple[str, str, str]:
    """What setp and set begin with: the comparison, how it is combined, .ftz."""
    op.arrange(_COMPARES, ("and", "or", "xor"), ("ftz",), tuple(TYPES))
    name = op.need(*_COMPARES)
    join = op.take("and", "or", "xor")
    return name, join, op.flag("ftz")


def _compare_call(op: Operation, name: str, ftz: str, type_: Type, a: Operand, b: Operand) -> str:
    floating = type_.name in ("f32", "f64", "f16", "bf16")
    if not floating and _COMPARES.index(name) in range(6, 14):
        raise op.refused(f"{op.ins.name}: .{name} compares floats only")
    if floating and name in _UNSIGNED:
        raise op.refused(f"{op.ins.name}: .{name} compares unsigned integers only")
    if type_.kind == "b" and name not in ("eq", "ne"):
        raise op.refused(f"{op.ins.name}: untyped bits are only equal or not (.eq .ne)")
    name = _UNSIGNED.get(name, name)
    values = f"{op.value(a, type_)}, {op.value(b, type_)}"
    return f"tg_ptx::compare<tg_ptx::{type_.name}, tg_ptx::Compare::{name}, {ftz}>({values})"


_COMPARED = f"b16 b32 b64 {INTEGERS} f16 bf16 f32 f64"


def _setp(op: Operation) -> str:
    name, join, ftz = _comparison(op)
    type_ = op.type(_COMPARED)
    d, a, b, *c = op.operands(4 if join else 3)
    call = f"const bool tg_v = {_compare_call(op, name, ftz, type_, a, b)};"
    first, second = "tg_v", "!tg_v"
    if c:
        call += f" const bool tg_c = {op.value(c[0], 'pred')};"
        combine = f"tg_ptx::combine<tg_ptx::Combine::{join}_>"
        first, second = f"{combine}(tg_v, tg_c)", f"{combine}(!tg_v, tg_c)"
    if isinstance(d, Pair):
        return f"{call} {op.store(d.first, 'pred', first)} {op.store(d.second, 'pred', second)}"
    return f"{call} {op.store(d, 'pred', first)}"


def _set(op: Operation) -> str:
    name, join, ftz = _comparison(op)
    to, type_ = op.type("u32 s32 f32"), op.type(_COMPARED)
    d, a, b, *c = op.operands(4 if join else 3)
    holds = _compare_call(op, name, ftz, type_, a, b)
    if c:
        holds = f"tg_ptx::combine<tg_ptx::Combine::{join}_>({holds}, {op.value(c[0], 'pred')})"
    return op.store(d, to, f"tg_ptx::set_result<tg_ptx::{to.name}>({holds})")


def _selp(op: Operation) -> str:
    type_ = op.type(f"b16 b32 b64 {INTEGERS} f32 f64")
    d, a, b, c = op.operands(4)
    return op.store(
        d, type_, f"{op.value(c, 'pred')} ? {op.value(a, type_)} : {op.value(b, type_)}"
    )


def _slct(op: Operation) -> str:
    op.take("ftz")
    type_, by = op.type(f"b16 b32 b64 {INTEGERS} f32 f64"), op.type("s32 f32")
    d, a, b, c = op.operands(4)
    picks = f"tg_ptx::not_negative<tg_ptx::{by.name}>({op.value(c, by)})"
    return op.store(d, type_, f"{picks} ? {op.value(a, type_)} : {op.value(b, type_)}")


HANDLERS: dict[str, Handler] = {
    "mov": _mov, "cvt": _cvt, "cvta": _cvta, "isspacep": _isspacep,
    "setp": _setp, "set": _set, "selp": _selp, "slct": _slct,
}  # fmt: skip

__all__ = ["HANDLERS", "mode", "parts"]
