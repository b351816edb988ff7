"""Instructions among lanes and threads: shfl, vote, match, redux, elect, bar, barrier."""

from __future__ import annotations

from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import Operand, Pair


def _with_flag(op: Operation, d: Operand, call: str, type_: str = "b32") -> str:
    """Store a call's result, and the flag that it sets to ``tg_p`` where ``d|p`` asks for it."""
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    text = f"bool tg_p = false; const auto tg_v = {call}; {op.store(first, type_, 'tg_v')}"
    return text if second is None else f"{text} {op.store(second, 'pred', 'tg_p')}"


def _shfl(op: Operation) -> str:
    op.arrange(("sync",), ("up", "down", "bfly", "idx"), ("b32",))
    op.need("sync")
    kind = op.need("up", "down", "bfly", "idx")
    op.need("b32")
    d, a, b, c, mask = op.operands(5)
    op.acts()
    args = ", ".join([op.value(a, "b32"), *(op.value(x, "u32") for x in (b, c, mask))])
    return _with_flag(op, d, f"tg_ptx::shfl(tg_ptx::Shuffle::{kind}, {args}, &tg_p, {op.line})")


def _vote(op: Operation) -> str:
    op.arrange(("sync",), ("all", "any", "uni", "ballot"), ("pred", "b32"))
    op.need("sync")
    kind = op.need("all", "any", "uni", "ballot")
    type_ = op.need("b32" if kind == "ballot" else "pred")
    d, a, mask = op.operands(3)
    op.acts()
    call = f"tg_ptx::vote(tg_ptx::Vote::{kind}, {op.value(a, 'pred')}, {op.value(mask, 'u32')}, {op.line})"
    return op.store(d, type_, call if kind == "ballot" else f"{call} != 0")


def _match(op: Operation) -> str:
    kind = op.need("any", "all")
    op.need("sync")
    type_ = op.type("b32 b64")
    d, a, mask = op.operands(3)
    op.acts()
    args = f"{op.value(a, type_)}, {op.value(mask, 'u32')}"
    if kind == "any":
        return op.store(d, "b32", f"tg_ptx::match_any({args}, {op.line})")
    return _with_flag(op, d, f"tg_ptx::match_all({args}, &tg_p, {op.line})")


def _redux(op: Operation) -> str:
    op.need("sync")
    kind = op.need("add", "min", "max", "and", "or", "xor")
    bitwise = kind in ("and", "or", "xor")
    type_ = op.type("b32" if bitwise else "u32 s32")
    d, a, mask = op.operands(3)
    op.acts()
    name = f"{kind}_" if bitwise else kind if kind == "add" else f"{kind}_{type_.kind}"
    args = f"{op.value(a, type_)}, {op.value(mask, 'u32')}, {op.line}"
    return op.store(d, type_, f"tg_ptx::redux(tg_ptx::Reduce::{name}, {args})")


def _elect(op: Operation) -> str:
    op.need("sync")
    d, mask = op.operands(2)
    if not isinstance(d, Pair):
        raise op.refused("elect.sync writes d|p")
    op.acts()
    return _with_flag(op, d, f"tg_ptx::elect({op.value(mask, 'u32')}, &tg_p, {op.line})")


def _activemask(op: Operation) -> str:
    raise op.refused("activemask: which lanes run together is not defined; name them in a mask")


def _bar(op: Operation) -> str:
    op.touches_memory()
    if op.take("warp"):
        op.need("sync")
        (mask,) = op.operands(1)
        return f"tg::sync_warp({op.value(mask, 'b32')}, {op.line});"
    old = op.ins.opcode == "bar"
    if op.take("cluster"):
        return _cluster(op)
    op.take("cta")
    kind = op.need("sync", "arrive", "red")
    reduction = op.need("popc", "and", "or") if kind == "red" else ""
    # bar is barrier with .aligned.
    aligned = "true" if old or op.take("aligned") else "false"
    if kind == "red":
        return _reduction(op, reduction, aligned)
    counts = (2,) if kind == "arrive" else (1, 2)
    name, *count = op.operands(*counts)
    bar, threads = op.value(name, "u32"), op.value(count[0], "u32") if count else "0u"
    if kind == "arrive":
        return f"tg_ptx::bar_arrive({bar}, {threads}, {aligned}, {op.line});"
    return (
        f"tg_ptx::bar_sync({bar}, {'false' if count else 'true'}, {threads}, {aligned}, {op.line});"
    )


def _reduction(op: Operation, kind: str, aligned: str) -> str:
    type_ = op.type("u32" if kind == "popc" else "pred")
    d, name, *rest = op.operands(3, 4)
    predicate = op.value(rest[-1], "pred")
    count = op.value(rest[0], "u32") if len(rest) == 2 else "0u"
    what = {"popc": "count", "and": "all", "or": "any"}[kind]
    call = (
        f"tg_ptx::bar_red(tg::Reduction::{what}, {op.value(name, 'u32')}, "
        f"{'false' if len(rest) == 2 else 'true'}, {count}, {predicate}, {aligned}, {op.line})"
    )
    return op.store(d, type_, call if kind == "popc" else f"{call} != 0")


def _cluster(op: Operation) -> str:
    kind = op.need("arrive", "wait")
    order = op.take("release", "relaxed") if kind == "arrive" else op.take("acquire")
    op.take("aligned")
    op.operands(0)
    relaxed = "true" if order == "relaxed" else "false"
    return f"tg_ptx::cluster_{kind}({relaxed + ', ' if kind == 'arrive' else ''}{op.line});"


HANDLERS: dict[str, Handler] = {
    "shfl": _shfl, "vote": _vote, "match": _match, "redux": _redux, "elect": _elect,
    "activemask": _activemask, "bar": _bar, "barrier": _bar,
}  # fmt: skip
