"""cp.async.bulk and cp.async.bulk.tensor (TMA)."""

from __future__ import annotations

from tilegen.emulator.ptx.operation import Operation
from tilegen.emulator.ptx.parser import Address, Operand

_TO_SHARED = ("shared::cluster", "shared::cta")


def bulk(op: Operation) -> str:
    """What follows ``cp.async.bulk``."""
    op.need("bulk")
    if op.take("commit_group"):
        op.operands(0)
        return "tg_ptx::bulk_commit_group();"
    if op.take("wait_group"):
        read = op.flag("read")
        (n,) = op.operands(1)
        return f"tg_ptx::bulk_wait_group({op.value(n, 'u32')}, {read}, {op.line});"
    if op.take("prefetch"):
        return _prefetch(op)
    if op.take("tensor"):
        return _tensor(op)
    return _plain(op)


def _address(op: Operation, operand: Operand, *, generic: bool) -> str:
    return op.context.address(operand, op.ins, generic=generic)


def _load_words(op: Operation) -> tuple[bool, bool]:
    """Behind the spaces of a load: how it completes, a multicast mask, a cache policy."""
    op.need("mbarrier::complete_tx::bytes")
    multicast = bool(op.take("multicast::cluster"))
    op.take("cta_group::1")
    return multicast, bool(op.take("L2::cache_hint"))


def _mask(op: Operation, rest: list[Operand], multicast: bool, policy: bool) -> str:
    blocks = op.value(rest.pop(0), "b16") if multicast else "1u"
    if policy:
        op.value(rest.pop(0), "b64")
    return blocks


def _tensor(op: Operation) -> str:
    rank = int(op.need("1d", "2d", "3d", "4d", "5d")[0])
    if op.take("global"):
        return _tensor_store(op, rank)
    op.need(*_TO_SHARED)
    op.need("global")
    op.take("tile")
    multicast, policy = _load_words(op)
    to, tensor, barrier, *rest = op.operands(3 + multicast + policy)
    blocks = _mask(op, rest, multicast, policy)
    at, source = _coordinates(op, tensor, rank)
    return (
        f"const int32_t tg_at[] = {at}; tg_ptx::tensor_load({_address(op, to, generic=False)}, {source}, "
        f"{rank}, tg_at, {_address(op, barrier, generic=False)}, {blocks}, {op.line});"
    )


def _tensor_store(op: Operation, rank: int) -> str:
    op.need("shared::cta")
    op.take("tile")
    op.need("bulk_group")
    policy = bool(op.take("L2::cache_hint"))
    tensor, source, *rest = op.operands(2 + policy)
    _mask(op, rest, False, policy)
    at, to = _coordinates(op, tensor, rank)
    return (
        f"const int32_t tg_at[] = {at}; "
        f"tg_ptx::tensor_store({to}, {rank}, tg_at, {_address(op, source, generic=False)}, {op.line});"
    )


def _coordinates(op: Operation, tensor: Operand, rank: int) -> tuple[str, str]:
    """The coordinates as C++ braces, and the address of the tensor map."""
    if not isinstance(tensor, Address) or tensor.coordinates is None:
        raise op.refused(f"{op.ins.name} needs [tensor map, {{coordinates}}]")
    found = tensor.coordinates
    if len(found) != rank:
        raise op.refused(f"{op.ins.name} needs {rank} coordinates, not {len(found)}")
    at = "{" + ", ".join(f"int32_t({op.value(x, 's32')})" for x in found) + "}"
    return at, _address(op, tensor, generic=True)


def _plain(op: Operation) -> str:
    if op.take("global"):
        op.need("shared::cta")
        op.need("bulk_group")
        policy = bool(op.take("L2::cache_hint"))
        to, source, size, *rest = op.operands(3 + policy)
        _mask(op, rest, False, policy)
        ends = f"{_address(op, to, generic=True)}, {_address(op, source, generic=False)}"
        return f"tg_ptx::bulk_store({ends}, {op.value(size, 'u32')}, {op.line});"
    op.need(*_TO_SHARED)
    op.need("global")
    multicast, policy = _load_words(op)
    to, source, size, barrier, *rest = op.operands(4 + multicast + policy)
    blocks = _mask(op, rest, multicast, policy)
    ends = f"{_address(op, to, generic=False)}, {_address(op, source, generic=True)}"
    done = _address(op, barrier, generic=False)
    return f"tg_ptx::bulk_load({ends}, {op.value(size, 'u32')}, {done}, {blocks}, {op.line});"


def _prefetch(op: Operation) -> str:
    """Moves nothing that a kernel could see; its operands are read all the same."""
    if op.take("tensor"):
        rank = int(op.need("1d", "2d", "3d", "4d", "5d")[0])
        op.need("L2")
        op.need("global")
        op.take("tile")
        policy = bool(op.take("L2::cache_hint"))
        tensor, *rest = op.operands(1 + policy)
        _mask(op, rest, False, policy)
        return f"(void)({_coordinates(op, tensor, rank)[1]});"
    op.need("L2")
    op.need("global")
    source, size = op.operands(2)
    return f"(void)({_address(op, source, generic=True)}); (void)({op.value(size, 'u32')});"
