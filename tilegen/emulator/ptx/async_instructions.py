"""cp.async and mbarrier."""

from __future__ import annotations

from tilegen.emulator.ptx.bulk_instructions import bulk
from tilegen.emulator.ptx.findings import CONSTRAINT
from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import Address, Immediate, Name, Operand

_SHARED = ("shared", "shared::cta", "shared::cluster")


def cp(op: Operation) -> str:
    """cp.async."""
    op.need("async")
    op.touches_memory()
    if op.peek() == "bulk":
        return bulk(op)
    if op.take("commit_group"):
        op.operands(0)
        return "tg::async_commit_group();"
    if op.take("wait_all"):
        op.operands(0)
        return "tg::async_wait_all();"
    if op.take("wait_group"):
        (n,) = op.operands(1)
        return f"tg::async_wait_group({_constant(op, n)});"
    if op.take("mbarrier"):
        op.need("arrive")
        alone = op.flag("noinc")
        named = bool(op.take(*_SHARED[:2]))
        op.need("b64")
        (place,) = op.operands(1)
        where = op.shared(place, named=named)
        return f"tg_ptx::cp_async_mbarrier_arrive({where}, {alone}, {op.line});"
    return _copy(op)


def _copy(op: Operation) -> str:
    op.arrange(("ca", "cg"), _SHARED, ("global",), ("L2::",))
    cache = op.need("ca", "cg")
    op.need(*_SHARED[:2])
    op.need("global")
    policy = 0
    while word := op.take_starting("L2::"):
        policy += word == "L2::cache_hint"
    to, source, size, *rest = op.operands(3, 4, 5)
    bytes_ = _constant(op, size)
    if isinstance(size, Immediate) and size.value not in ((16,) if cache == "cg" else (4, 8, 16)):
        raise op.refused(f"{op.ins.name} copies {'16' if cache == 'cg' else '4, 8 or 16'} bytes")
    if policy:
        op.value(rest.pop(), "b64")
    given = bytes_
    if rest:
        given = _source_size(op, rest[0], bytes_)
    check = "16" if cache == "cg" else "4, 8, 16"
    pointer = op.pointer(source)
    return (
        f"tg_ptx::check_copy_size<{check}>({bytes_}, {op.line}); "
        f"tg_ptx::cp_async({op.shared(to)}, {pointer}, {bytes_}, {given}, {op.line});"
    )


def _source_size(op: Operation, operand: Operand, bytes_: str) -> str:
    """Bytes to read: a number, or none if the predicate ``ignore-src`` holds."""
    if isinstance(operand, Name) and operand.text in _predicates(op):
        return f"({op.value(operand, 'pred')} ? 0u : {bytes_})"
    return op.value(operand, "u32")


def _predicates(op: Operation) -> set[str]:
    return {r.shown for r in op.context.registers if r.type.kind == "p"}


def _constant(op: Operation, operand: Operand) -> str:
    """An operand that PTX wants as a constant: written out, or with the constraint "n"."""
    register = None
    if not isinstance(operand, Immediate):
        register = op.context.register(operand, op.ins.line)
    if register is not None and register.mode != "n":
        raise op.refused(
            f'{op.ins.name} takes a constant where {register.shown} stands: use "n"', CONSTRAINT
        )
    return op.value(operand, "u32")


def mbarrier(op: Operation) -> str:
    """All mbarrier operations."""
    op.touches_memory()
    kind = op.need("init", "inval", "expect_tx", "complete_tx", "arrive", "arrive_drop", "test_wait",
                   "try_wait", "pending_count")  # fmt: skip
    if kind in ("test_wait", "try_wait"):
        return _wait(op, kind)
    if kind == "pending_count":
        op.need("b64")
        d, state = op.operands(2)
        return op.store(d, "u32", f"tg_ptx::mbarrier_pending_count({op.value(state, 'b64')})")
    if kind in ("arrive", "arrive_drop"):
        return _arrive(op, kind == "arrive_drop")
    if kind in ("expect_tx", "complete_tx"):
        op.take("relaxed")
        op.take("cta", "cluster")
    named = bool(op.take(*_SHARED))
    op.need("b64")
    place, *value = op.operands(1 if kind == "inval" else 2)
    args = [op.shared(place, named=named), *(op.value(x, "u32") for x in value), op.line]
    return f"tg_ptx::mbarrier_{kind}({', '.join(args)});"


def _arrive(op: Operation, drop: bool) -> str:
    expects = op.take("expect_tx")
    if op.take("noComplete"):
        raise op.refused(f"{op.ins.name}: .noComplete is not known to the emulator")
    if op.take("release", "relaxed"):
        op.need("cta", "cluster")
    named = bool(op.take(*_SHARED))
    op.need("b64")
    operands = list(op.operands(1, 2, 3))
    # The state may be left out for a barrier in shared::cluster.
    state = operands.pop(0) if not isinstance(operands[0], Address) else Name("_")
    place, *value = operands
    count = op.value(value[0], "u32") if value and not expects else "1u"
    bytes_ = op.value(value[0], "u32") if value and expects else "0u"
    if expects and not value:
        raise op.refused(f"{op.ins.name} needs the number of bytes")
    args = f"{op.shared(place, named=named)}, {count}, {bytes_}, {str(drop).lower()}, {op.line}"
    return op.store(state, "b64", f"tg_ptx::mbarrier_arrive({args})")


def _wait(op: Operation, kind: str) -> str:
    parity = op.flag("parity")
    if op.take("acquire", "relaxed"):
        op.need("cta", "cluster")
    named = bool(op.take(*_SHARED[:2]))
    op.need("b64")
    p, place, state, *hint = op.operands(3, 4)
    for operand in hint:
        op.value(operand, "u32")
    phase = f"uint64_t({op.value(state, 'u32' if parity == 'true' else 'b64')})"
    blocks = str(kind == "try_wait").lower()
    args = f"{op.shared(place, named=named)}, {phase}, {parity}, {blocks}, {op.line}"
    return op.store(p, "pred", f"tg_ptx::mbarrier_wait({args})")


def _mapa(op: Operation) -> str:
    if not op.take("shared::cluster"):
        op.unknown(".shared::cluster is expected")
    op.need("u32")
    d, a, rank = op.operands(3)
    call = f"tg_ptx::mapa({op.value(a, 'u32')}, {op.value(rank, 'u32')}, {op.line})"
    return op.store(d, "u32", call)


HANDLERS: dict[str, Handler] = {"cp": cp, "mbarrier": mbarrier, "mapa": _mapa}
