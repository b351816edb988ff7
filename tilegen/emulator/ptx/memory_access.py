"""ld, st, atom, red, prefetch, fences and membar."""

from __future__ import annotations

from tilegen.emulator.ptx.context import parts
from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import Operand

_SCOPES = ("cta", "cluster", "gpu", "sys")
_SPACES = {
    "": "generic", "global": "global", "shared": "shared", "shared::cta": "shared",
    "shared::cluster": "shared", "local": "local", "const": "constant", "param": "param",
}  # fmt: skip
_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
_TYPES = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_ORDERS = {"": "weak", "weak": "weak", "volatile": "watched", "relaxed": "watched",
           "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}  # fmt: skip


def space(op: Operation) -> str:
    """The state space among the modifiers, as the C++ names it; none is generic."""
    name = _SPACES[op.take(*_SPACES)]
    if name == "param":
        raise op.refused(f"{op.ins.name}: kernel parameters are not addressable here")
    return name


def address(op: Operation, where: str, operand: Operand) -> str:
    """C++ of an address in a space: 64 bits, unchecked."""
    return op.context.address(operand, op.ins, generic=where != "shared")


def _hints(op: Operation) -> bool:
    """Skip what only steers caches; whether a cache policy operand follows."""
    policy = False
    while word := op.take_starting("L1::", "L2::") or op.take(*_CACHES):
        policy |= word == "L2::cache_hint"
    return policy


def _vector(op: Operation) -> int:
    word = op.take("v2", "v4", "v8")
    return int(word[1:]) if word else 1


def _policy(op: Operation, operands: list[Operand]) -> None:
    """The cache policy is read, and has no effect."""
    if operands:
        op.value(operands[0], "b64")


def _ordered(op: Operation, *words: str) -> str:
    op.arrange(
        ("weak", "volatile", *words), _SCOPES, [x for x in _SPACES if x], (*_CACHES, "L1::", "L2::"),
        ("nc",), ("v2", "v4", "v8"), _TYPES.split(),
    )  # fmt: skip
    order = op.take("weak", "volatile", *words)
    if order in words:
        op.need(*_SCOPES)
    return f"tg_ptx::Order::{_ORDERS[order]}"


def _access(op: Operation, order: str) -> tuple[str, str, int, str, int]:
    """What ld and st share: the space, order, count, type, and the number of operands."""
    where = space(op)
    policy = _hints(op)
    if op.take("nc"):
        policy |= _hints(op)
    count = _vector(op)
    type_ = op.type(_TYPES)
    if count * type_.bits > 128:
        raise op.refused(
            f"{op.ins.name}: accesses of more than 16 bytes are not known to the emulator"
        )
    return where, order, count, type_.name, 3 if policy else 2


def _call(op: Operation, where: str, count: int, type_: str, order: str, place: Operand) -> str:
    raw = f"tg_ptx::{type_}, {count}"
    return (
        f"<{raw}>(tg_v, tg_ptx::Space::{where}, {address(op, where, place)}, {order}, "
        f'"{op.ins.opcode}", {op.line});'
    )


def _ld(op: Operation) -> str:
    where, order, count, type_, operands = _access(op, _ordered(op, "relaxed", "acquire"))
    d, place, *policy = op.operands(operands)
    _policy(op, policy)
    op.touches_memory()
    call = _call(op, where, count, type_, order, place)
    found = parts(d)
    if len(found) != count:
        raise op.refused(f"{op.ins.name} gives {count} registers, not {len(found)}")
    gives = " ".join(op.store(x, type_, f"tg_v[{i}]", wider=True) for i, x in enumerate(found))
    return f"typename tg_ptx::{type_}::Raw tg_v[{count}]; tg_ptx::load{call} {gives}"


def _st(op: Operation) -> str:
    where, order, count, type_, operands = _access(op, _ordered(op, "relaxed", "release"))
    place, source, *policy = op.operands(operands)
    _policy(op, policy)
    op.touches_memory()
    found = parts(source)
    if len(found) != count:
        raise op.refused(f"{op.ins.name} takes {count} registers, not {len(found)}")
    values = ", ".join(op.value(x, type_, wider=True) for x in found)
    call = _call(op, where, count, type_, order, place)
    return f"const typename tg_ptx::{type_}::Raw tg_v[{count}] = {{{values}}}; tg_ptx::store{call}"


_ATOMICS = {
    "add": "u32 s32 u64 f32 f64 f16 bf16 f16x2 bf16x2", "inc": "u32", "dec": "u32",
    "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "and": "b32 b64", "or": "b32 b64",
    "xor": "b32 b64", "exch": "b32 b64", "cas": "b16 b32 b64",
}  # fmt: skip


def _atomic(op: Operation) -> str:
    returns = op.ins.opcode == "atom"
    names = [x for x in _ATOMICS if returns or x not in ("exch", "cas")]
    types = sorted({x for group in _ATOMICS.values() for x in group.split()})
    orders = ("relaxed", "acquire", "release", "acq_rel")
    op.arrange(
        orders, _SCOPES, [x for x in _SPACES if x], names, ("noftz",), ("L2::cache_hint",),
        ("v2", "v4", "v8"), types,
    )  # fmt: skip
    order = op.take(*orders)
    op.take(*_SCOPES)
    where = space(op)
    name = op.need(*names)
    op.take("noftz")
    policy = op.take("L2::cache_hint")
    count = _vector(op)
    vectors = count > 1 and where in ("global", "generic") and name == "add"
    type_ = op.type("f32 f16x2 bf16x2" if vectors else _ATOMICS[name])
    if count > 1 and (not vectors or count * type_.bits > 128):
        raise op.refused(f"{op.ins.name}: atomics on such a vector are not known to the emulator")
    operands = list(op.operands((3 if name == "cas" else 2) + returns + bool(policy)))
    if policy:
        _policy(op, [operands.pop()])
    results = parts(operands.pop(0)) if returns else ()
    place, sources = operands[0], parts(operands[1])
    if len(sources) != count or (returns and len(results) != count):
        raise op.refused(f"{op.ins.name} takes {count} registers")
    c = op.value(operands[2], type_) if name == "cas" else "0"
    op.touches_memory()
    word = f"{name}_" if name in ("and", "or", "xor") else name
    at = address(op, where, place)
    out = []
    for i, source in enumerate(sources):
        # Without a .sem an atomic is relaxed.
        call = (
            f"tg_ptx::atomic<tg_ptx::{type_.name}, tg_ptx::Atomic::{word}>(tg_ptx::Space::{where}, "
            f"{at} + {i * type_.bits // 8}, {op.value(source, type_)}, {c}, "
            f'tg_ptx::Order::{_ORDERS[order or "relaxed"]}, "{op.ins.opcode}", {op.line})'
        )
        out.append(op.store(results[i], type_, call) if returns else f"{call};")
    return " ".join(out)


def _prefetch(op: Operation) -> str:
    where = _SPACES[op.take("global", "local", "const", "param")]
    level = op.take("tensormap") or op.take_starting("L1", "L2")
    if not level:
        op.unknown("a cache level is expected")
    (place,) = op.operands(1)
    return f"(void)({address(op, where, place)});"


def _createpolicy(op: Operation) -> str:
    """Cache policies steer nothing here: any value will do."""
    op.need("fractional")
    op.take_starting("L2::")
    op.take_starting("L2::")
    op.type("b64")
    d, *fraction = op.operands(1, 2)
    for operand in fraction:
        op.value(operand, "f32")
    return op.store(d, "b64", "uint64_t(0)")


def _fence(op: Operation) -> str:
    op.touches_memory()
    if op.take("proxy"):
        kind = op.need("async", "alias", "async.global")
        op.take("global", "shared::cta", "shared::cluster")
        op.operands(0)
        return "tg::proxy_fence();" if kind == "async" else ""
    if op.take("mbarrier_init"):
        op.need("release")
        op.need("cluster")
        op.operands(0)
        return "tg_ptx::mbarrier_init_fence();"
    op.arrange(("sc", "acq_rel", "acquire", "release"), _SCOPES)
    op.take("sc", "acq_rel", "acquire", "release")
    op.need(*_SCOPES)
    op.operands(0)
    return ""


def _membar(op: Operation) -> str:
    op.touches_memory()
    op.need("cta", "gl", "sys")
    op.operands(0)
    return ""


HANDLERS: dict[str, Handler] = {
    "ld": _ld, "ldu": _ld, "st": _st, "atom": _atomic, "red": _atomic,
    "prefetch": _prefetch, "prefetchu": _prefetch,
    "createpolicy": _createpolicy, "fence": _fence, "membar": _membar,
}  # fmt: skip
