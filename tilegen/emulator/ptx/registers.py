"""The registers of one asm statement: its operands and what it declares, with how each is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilegen.emulator.ptx.findings import CONSTRAINT, Refused
from tilegen.emulator.ptx.ptxtypes import CONSTRAINTS, REGISTERS, TYPES, Type
from tilegen.emulator.ptx.statements import Operand


@dataclass
class Register:
    """One register.

    Attributes
    ----------
    type : Type
    variable : str
        Of the C++ that stands for it.
    shown : str
        As the PTX writes it.
    mode : str
        ``=`` or ``+`` of an output, ``in`` of an input, ``n`` of a constant, empty if declared here.
    line : int
    read, written : bool
        Whether any instruction does.
    in_place : bool
        An output that is changed where it lies, later, by what an instruction has started.
    """

    type: Type
    variable: str
    shown: str
    mode: str
    line: int
    read: bool = False
    written: bool = False
    in_place: bool = False
    noted: set[str] = field(default_factory=set)


class Registers:
    """Names in scope; scopes nest as braces do."""

    def __init__(self, operands: tuple[Operand, ...]) -> None:
        self.operands = [_operand(n, operand) for n, operand in enumerate(operands)]
        self._scopes: list[dict[str, Register]] = [{}]
        self.declared: list[Register] = []

    def open(self) -> None:
        self._scopes.append({})

    def close(self) -> None:
        self._scopes.pop()

    @property
    def depth(self) -> int:
        return len(self._scopes) - 1

    def declare(self, name: str, type_name: str, line: int) -> Register:
        if type_name not in REGISTERS:
            raise Refused(line, f"registers of type .{type_name} are not known to the emulator")
        if name in self._scopes[-1]:
            raise Refused(line, f"the register {name} is declared twice", CONSTRAINT)
        variable = f"tg_r{len(self.declared)}"
        register = Register(TYPES[type_name], variable, name, "", line)
        self.declared.append(register)
        self._scopes[-1][name] = register
        return register

    def named(self, name: str, line: int) -> Register:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise Refused(
            line, f"the register {name} is not declared in this asm statement", CONSTRAINT
        )

    def operand(self, index: int, line: int) -> Register:
        if index >= len(self.operands):
            last = f"the last is %{len(self.operands) - 1}" if self.operands else "there are none"
            raise Refused(line, f"%{index} is no operand of this asm statement; {last}", CONSTRAINT)
        return self.operands[index]

    def __iter__(self) -> Iterator[Register]:
        yield from self.operands
        yield from self.declared


def _operand(n: int, operand: Operand) -> Register:
    constant = operand.constraint == "n"
    type_ = TYPES["b64"] if constant else CONSTRAINTS[operand.constraint]
    mode = "n" if constant else operand.mode or "in"
    return Register(type_, f"tg_o{n}", f"%{n}", mode, operand.line)
