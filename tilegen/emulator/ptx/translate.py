"""Kernel text with inline PTX to plain C++ that does what the PTX says."""

from __future__ import annotations

import json
import re

from tilegen.emulator.ptx import (
    arithmetic,
    async_instructions,
    control,
    matrix_instructions,
    memory_access,
    movement,
    warp_instructions,
    wgmma_instructions,
)
from tilegen.emulator.ptx.context import Context
from tilegen.emulator.ptx.findings import (
    CLOBBER,
    CONSTRAINT,
    SCOPE,
    UNKNOWN,
    VOLATILE,
    Finding,
    Refused,
    Translation,
)
from tilegen.emulator.ptx.lexer import tokens
from tilegen.emulator.ptx.operation import Handler, Operation
from tilegen.emulator.ptx.parser import (
    Close,
    Declaration,
    Instruction,
    Label,
    Name,
    Node,
    Open,
    parse,
)
from tilegen.emulator.ptx.ptxtypes import TYPES
from tilegen.emulator.ptx.registers import Registers
from tilegen.emulator.ptx.statements import Statement, statements

HANDLERS: dict[str, Handler] = {
    **arithmetic.HANDLERS, **movement.HANDLERS, **control.HANDLERS, **memory_access.HANDLERS,
    **matrix_instructions.HANDLERS, **warp_instructions.HANDLERS, **async_instructions.HANDLERS,
    **wgmma_instructions.HANDLERS,
}  # fmt: skip
_PRED = TYPES["pred"]
_BREAK = re.compile(r"\\?\r?\n")


def translate(text: str) -> Translation:
    """Replace every `asm` statement of CUDA C++ by C++ that does what its PTX says.

    The result needs ``tg_ptx.hpp``. Line numbers are kept. What is not known is a finding of severity
    ``refusal``, and a call that fails by name stands in its place.

    Parameters
    ----------
    text : str
        Of a kernel, before the preprocessor. Statements inside macro definitions are translated
        too; a macro in an asm string must be one of this text that stands for a string.

    Returns
    -------
    Translation
    """
    out: list[str] = []
    findings: list[Finding] = []
    at = 0
    for statement in statements(text):
        body, found = _statement(statement, fixed_lines=not _in_directive(text, statement.start))
        breaks = _BREAK.findall(text[statement.start : statement.end])
        out += [text[at : statement.start], body, *breaks]
        findings += found
        at = statement.end
    out.append(text[at:])
    return Translation("".join(out), tuple(findings))


def _in_directive(text: str, at: int) -> bool:
    """Whether the place lies in a preprocessor directive, over continued lines."""
    start = text.rfind("\n", 0, at) + 1
    while start and text[: start - 1].rstrip("\r").endswith("\\"):
        start = text.rfind("\n", 0, start - 1) + 1
    return text[start:at].lstrip().startswith("#")


def _statement(statement: Statement, *, fixed_lines: bool) -> tuple[str, list[Finding]]:
    try:
        if statement.error is not None:
            raise statement.error
        read = tokens(statement.template, statement.lines, extended=statement.extended)
        return _Writer(statement, parse(read), fixed_lines).run()
    except Refused as error:
        return f"tg_ptx::refuse({json.dumps(str(error))}, __LINE__)", [_finding(error)]


def _finding(error: Refused) -> Finding:
    return Finding(error.line, error.kind, str(error))


class _Writer:
    """Writes one statement."""

    def __init__(self, statement: Statement, nodes: list[Node], fixed_lines: bool) -> None:
        self._statement = statement
        self._nodes = nodes
        self._registers = Registers(statement.operands)
        self._labels = _labels(nodes)
        self._context = Context(
            self._registers, statement.line, loops=bool(self._labels), fixed_lines=fixed_lines
        )
        self._scopes: list[int] = [0]
        self._opened = 0

    def run(self) -> tuple[str, list[Finding]]:
        body = [self._written(node) for node in self._nodes]
        self._judge()
        pieces = ["do {"]
        if self._labels:
            # Labels of the host are function-wide unless declared so; an asm may come twice.
            names = sorted(set(self._labels.values()))
            pieces.append(f"__label__ {', '.join(names)};")
        pieces += self._before()
        pieces += [piece for piece in body if piece]
        pieces += self._after()
        pieces.append("} while (0)")
        return " ".join(pieces), self._context.findings

    def _before(self) -> list[str]:
        """Registers, all before the first label: a jump may not pass an initialisation."""
        out = []
        for n, operand in enumerate(self._statement.operands):
            register = self._registers.operands[n]
            expression, name = operand.expression, register.variable
            if register.mode == "n":
                out.append(f"constexpr auto {name} = ({expression});")
            elif register.mode == "in":
                out.append(f"auto {name} = tg_ptx::take<'{operand.constraint}'>({expression});")
            else:
                out.append(f"auto& {name}_to = ({expression});")
                if register.in_place:
                    out.append(f"tg_ptx::stays<'{operand.constraint}'>({name}_to);")
                    continue
                start = f"tg_ptx::take<'{operand.constraint}'>({name}_to)"
                # What an output holds before it is written is nobody's business: poison.
                out.append(f"auto {name} = {start};" if register.mode == "+"
                           else f"{register.type.raw} {name} = {register.type.raw}(-1);")  # fmt: skip
        for register in self._registers.declared:
            out.append(f"{register.type.raw} {register.variable} = {register.type.raw}(-1);")
        return out

    def _after(self) -> list[str]:
        return [
            f"tg_ptx::give<'{operand.constraint}'>(tg_o{n}_to, tg_o{n});"
            for n, operand in enumerate(self._statement.operands)
            if operand.mode and not self._registers.operands[n].in_place
        ]

    def _written(self, node: Node) -> str:
        """A node's C++, or, of what is refused, a call that fails by name."""
        try:
            return self._node(node)
        except Refused as error:
            self._context.findings.append(_finding(error))
            line = self._context.line(error.line)
            return f"tg_ptx::refuse({json.dumps(str(error))}, {line});"

    def _node(self, node: Node) -> str:
        context = self._context
        if isinstance(node, Open):
            self._registers.open()
            self._opened += 1
            self._scopes.append(self._opened)
            return ""
        if isinstance(node, Close):
            self._registers.close()
            self._scopes.pop()
            return ""
        if isinstance(node, Declaration):
            for name in node.names:
                self._registers.declare(name, node.type, node.line)
            self._warn_open(node.line, f"the register {node.names[0]}")
            return ""
        if isinstance(node, Label):
            self._warn_open(node.line, f"the label {node.name}")
            return f"{self._labels[self._scopes[-1], node.name]}:;"
        text = self._branch(node) if node.opcode == "bra" else self._instruction(node)
        if node.guard is None:
            return f"{{ {text} }}" if text else ""
        guard = context.value(node.guard, _PRED, node)
        return f"if ({'!' if node.negated else ''}{guard}) {{ {text} }}"

    def _warn_open(self, line: int, what: str) -> None:
        if not self._registers.depth:
            text = f"{what} is declared outside of {{ }}: the asm cannot stand twice in a function"
            self._context.note(line, SCOPE, text)

    def _branch(self, ins: Instruction) -> str:
        op = Operation(ins, self._context)
        op.take("uni")
        (target,) = op.operands(1)
        if not isinstance(target, Name):
            raise op.refused("bra needs a label")
        for scope in reversed(self._scopes):
            if (scope, target.text) in self._labels:
                return f"goto {self._labels[scope, target.text]};"
        raise op.refused(f"the label {target.text} is not in this asm statement", CONSTRAINT)

    def _instruction(self, ins: Instruction) -> str:
        handler = HANDLERS.get(ins.opcode)
        if handler is None:
            raise Refused(ins.line, f"the PTX instruction {ins.name} is not known to the emulator")
        return handler(Operation(ins, self._context))

    def _judge(self) -> None:
        """What only the whole statement shows."""
        statement, context = self._statement, self._context
        refused = any(f.kind == UNKNOWN for f in context.findings)
        for register in self._registers.operands:
            if register.mode == "=" and not register.written and not refused:
                text = f'{register.shown} is an output, "=", that nothing writes'
                context.note(register.line, CONSTRAINT, text)
        if context.touches_memory and "memory" not in statement.clobbers:
            text = (
                'the asm touches memory without a "memory" clobber: accesses may be moved over it'
            )
            context.note(statement.line, CLOBBER, text)
        # Without outputs an asm is volatile anyway.
        has_outputs = any(operand.mode for operand in statement.operands)
        if context.acts and has_outputs and not statement.volatile:
            text = "the asm does more than compute outputs, and is not volatile: it may be dropped"
            context.note(statement.line, VOLATILE, text)


def _labels(nodes: list[Node]) -> dict[tuple[int, str], str]:
    """C++ name of each label, by the number of its scope and its own name."""
    out: dict[tuple[int, str], str] = {}
    scopes, opened = [0], 0
    for node in nodes:
        if isinstance(node, Open):
            opened += 1
            scopes.append(opened)
        elif isinstance(node, Close):
            scopes.pop()
        elif isinstance(node, Label):
            key = (scopes[-1], node.name)
            if key in out:
                raise Refused(node.line, f"the label {node.name} stands twice", CONSTRAINT)
            out[key] = f"tg_l{len(out)}"
    return out
