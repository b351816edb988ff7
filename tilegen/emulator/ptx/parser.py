"""PTX tokens to statements: labels, declarations, scopes and instructions with their operands."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilegen.emulator.ptx.findings import Refused
from tilegen.emulator.ptx.lexer import Token


@dataclass(frozen=True)
class Name:
    """A register, a label or a special register such as ``%tid.x``."""

    text: str


@dataclass(frozen=True)
class AsmOperand:
    """``%n`` of the asm statement."""

    index: int


@dataclass(frozen=True)
class Immediate:
    """A constant; a float holds its bits and their number."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Address:
    """``[base + offset]``, or ``[base, {coordinates}]`` of a tensor."""

    base: Operand
    offset: Operand | None = None
    negative: bool = False
    coordinates: tuple[Operand, ...] | None = None


@dataclass(frozen=True)
class Vector:
    """``{a, b}``."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """``d|p``: a value and a predicate, both written."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    """``!p``."""

    operand: Operand


Operand = Name | AsmOperand | Immediate | Address | Vector | Pair | Not


@dataclass(frozen=True)
class Label:
    name: str
    line: int


@dataclass(frozen=True)
class Declaration:
    """``.reg .type a, b<4>;``: `names` are written out."""

    type: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Open:
    line: int


@dataclass(frozen=True)
class Close:
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode : str
        Without modifiers.
    modifiers : tuple of str
        ``shared::cta`` is one.
    operands : tuple of Operand
    guard : Operand or None
        The predicate of ``@p``.
    negated : bool
        ``@!p``.
    line : int
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand | None
    negated: bool
    line: int

    @property
    def name(self) -> str:
        """The whole mnemonic."""
        return ".".join((self.opcode, *self.modifiers))


Node = Label | Declaration | Open | Close | Instruction


def parse(tokens: list[Token]) -> list[Node]:
    """The statements of one asm string.

    Raises
    ------
    Refused
        Where the text is not PTX, or uses a directive that an asm string has no use for here.
    """
    return _Parser(tokens).run()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._now
        self._at += 1
        return token

    def _is(self, text: str) -> bool:
        return self._now.kind == "sign" and self._now.text == text

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str, after: str) -> None:
        if not self._accept(text):
            found = self._now.text or "the end of the string"
            line = self._now.line if self._now.text else self._tokens[max(self._at - 1, 0)].line
            raise Refused(line, f"'{text}' is missing after {after}, before '{found}'")

    def run(self) -> list[Node]:
        out: list[Node] = []
        depth = 0
        while self._now.kind != "end":
            line = self._now.line
            if self._accept("{"):
                depth += 1
                out.append(Open(line))
            elif self._accept("}"):
                depth -= 1
                if depth < 0:
                    raise Refused(line, "'}' closes nothing")
                out.append(Close(line))
            elif self._accept(";"):
                continue
            elif self._is("."):
                out.append(self._directive())
            else:
                out.append(self._labelled_or_instruction())
        if depth:
            raise Refused(self._now.line, "'{' is not closed")
        return out

    def _directive(self) -> Declaration:
        line = self._now.line
        self._next()
        kind = self._next().text
        if kind != "reg":
            raise Refused(line, f"the directive .{kind} is not known to the emulator")
        self._expect(".", ".reg")
        type_name = self._next().text
        if self._is("."):
            raise Refused(line, "vector registers (.reg .v2) are not known to the emulator")
        names: list[str] = []
        while True:
            name = self._name(".reg")
            if self._accept("<"):
                count = self._next()
                if count.kind != "int":
                    raise Refused(line, f".reg {name}<n> needs a number")
                self._expect(">", f".reg {name}<{count.text}")
                names.extend(f"{name}{i}" for i in range(int(count.text)))
            else:
                names.append(name)
            if not self._accept(","):
                break
        self._expect(";", ".reg")
        return Declaration(type_name, tuple(names), line)

    def _name(self, after: str) -> str:
        token = self._next()
        if token.kind != "name":
            raise Refused(token.line, f"a name is missing after {after}, before '{token.text}'")
        return token.text

    def _labelled_or_instruction(self) -> Node:
        line = self._now.line
        guard: Operand | None = None
        negated = False
        if self._accept("@"):
            negated = self._accept("!")
            guard = self._register()
        opcode = self._name("the statement before it")
        if guard is None and self._accept(":"):
            return Label(opcode, line)
        modifiers: list[str] = []
        while self._is("."):
            if not self._now.glued:
                raise Refused(line, f"a space splits the mnemonic {opcode}")
            self._next()
            modifiers.append(self._modifier(opcode))
        name = ".".join((opcode, *modifiers))
        operands: list[Operand] = []
        if not self._is(";"):
            operands.append(self._operand(name))
            while self._accept(","):
                operands.append(self._operand(name))
        self._expect(";", name)
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, negated, line)

    def _modifier(self, opcode: str) -> str:
        """``shared::cta``, ``L2::128B``, ``2d``: the pieces that touch each other."""
        token = self._next()
        if token.kind not in ("name", "int", "float"):
            raise Refused(token.line, f"a modifier of {opcode} is missing before '{token.text}'")
        out = token.text
        while self._now.glued and (self._now.kind in ("name", "int") or self._is("::")):
            out += self._next().text
        return out

    def _register(self) -> Operand:
        token = self._next()
        if token.kind == "operand":
            return AsmOperand(int(token.text))
        if token.kind != "name":
            raise Refused(token.line, f"a register is missing before '{token.text}'")
        text = token.text
        while self._is(".") and self._now.glued:
            self._next()
            text += "." + self._name(text)
        return Name(text)

    def _operand(self, name: str) -> Operand:
        if self._accept("["):
            return self._address(name)
        if self._accept("{"):
            parts = [self._operand(name)]
            while self._accept(","):
                parts.append(self._operand(name))
            self._expect("}", f"a vector of {name}")
            return Vector(tuple(parts))
        if self._accept("!"):
            return Not(self._register())
        if self._now.kind in ("int", "float") or self._is("-") or self._is("+"):
            return self._immediate(name)
        first = self._register()
        if self._accept("|"):
            return Pair(first, self._register())
        return first

    def _address(self, name: str) -> Address:
        base: Operand = self._immediate(name) if self._now.kind == "int" else self._register()
        offset: Operand | None = None
        negative = False
        coordinates: tuple[Operand, ...] | None = None
        if self._is("+") or self._is("-"):
            negative = self._next().text == "-"
            if self._is("-"):
                self._next()
                negative = not negative
            offset = self._immediate(name) if self._now.kind == "int" else self._register()
        if self._accept(","):
            vector = self._operand(name)
            if not isinstance(vector, Vector):
                raise Refused(self._now.line, f"the coordinates of {name} need braces")
            coordinates = vector.parts
        self._expect("]", f"an address of {name}")
        return Address(base, offset, negative, coordinates)

    def _immediate(self, name: str) -> Immediate:
        negative = False
        while self._is("-") or self._is("+"):
            negative ^= self._next().text == "-"
        token = self._next()
        if token.kind == "int":
            value = _integer(token.text)
            return Immediate(-value if negative else value)
        if token.kind != "float":
            raise Refused(token.line, f"{name} has no operand '{token.text}'")
        text = token.text
        if text[:2] in ("0f", "0F"):
            bits = int(text[2:], 16)
            return Immediate(bits ^ (0x80000000 if negative else 0), 32)
        if text[:2] in ("0d", "0D"):
            bits = int(text[2:], 16)
        else:
            (bits,) = struct.unpack("<Q", struct.pack("<d", float(text)))
        return Immediate(bits ^ (1 << 63 if negative else 0), 64)


def _integer(text: str) -> int:
    body = text.rstrip("U")
    if body[:2] in ("0x", "0X", "0b", "0B"):
        return int(body, 0)
    # A leading zero is octal, as in C.
    return int(body, 8) if len(body) > 1 and body[0] == "0" else int(body)
