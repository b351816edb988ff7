"""Branches, traps and hints."""

from __future__ import annotations

from tilegen.emulator.ptx.operation import Handler, Operation


def _trap(op: Operation) -> str:
    op.operands(0)
    op.acts()
    return f'tg::fail("trap", {op.line}, "trap");'


def _nanosleep(op: Operation) -> str:
    op.type("u32")
    (time,) = op.operands(1)
    op.acts()
    return f'(void)({op.value(time, "u32")}); tg::polled("nanosleep", {op.line});'


def _setmaxnreg(op: Operation) -> str:
    # PTX ISA, "setmaxnreg": an immediate from 24 to 256, a multiple of 8.
    op.need("inc", "dec")
    op.need("sync")
    op.need("aligned")
    op.need("u32")
    (count,) = op.operands(1)
    op.acts()
    return f"tg_ptx::check_register_count({op.value(count, 'u32')}, {op.line});"


def _nothing(*modifiers: tuple[str, ...], operands: int = 0) -> Handler:
    """An instruction whose effect is time alone; its modifiers are checked all the same."""

    def handler(op: Operation) -> str:
        for options in modifiers:
            op.need(*options)
        for operand in op.operands(operands):
            op.value(operand, "u32")
        op.acts()
        return ""

    return handler


# Registers are not a shared resource here, and grids run one after another.
HANDLERS: dict[str, Handler] = {
    "trap": _trap,
    "nanosleep": _nanosleep,
    "setmaxnreg": _setmaxnreg,
    "griddepcontrol": _nothing(("launch_dependents", "wait")),
}
