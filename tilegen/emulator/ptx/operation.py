"""One instruction while it is translated: its modifiers are consumed in order, none may be left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegen.emulator.ptx.context import Context, parts
from tilegen.emulator.ptx.findings import CONSTRAINT, UNKNOWN, Refused
from tilegen.emulator.ptx.parser import Instruction, Operand
from tilegen.emulator.ptx.ptxtypes import TYPES, Type


class Operation:
    """An instruction, its context, and how far its modifiers have been read."""

    def __init__(self, instruction: Instruction, context: Context) -> None:
        self.ins = instruction
        self.context = context
        self._left = list(instruction.modifiers)

    # ---- modifiers

    def arrange(self, *groups: Sequence[str]) -> None:
        """Bring the modifiers into the document's order: ptxas takes many in any, and kernels use that.

        A word that ends in ``::`` stands for all that start with it. What is in no group comes first,
        to be refused by name.
        """

        def rank(word: str) -> int:
            for place, group in enumerate(groups):
                if any(word == x or (x.endswith("::") and word.startswith(x)) for x in group):
                    return place
            return -1

        self._left.sort(key=rank)

    def take(self, *options: str) -> str:
        """The next modifier if it is one of these, else an empty string."""
        if self._left and self._left[0] in options:
            return self._left.pop(0)
        return ""

    def need(self, *options: str) -> str:
        """The next modifier, which must be one of these."""
        found = self.take(*options)
        if not found:
            self.unknown(f"one of .{' .'.join(options)} is expected")
        return found

    def flag(self, option: str) -> str:
        """C++ ``true`` if the next modifier is this one."""
        return "true" if self.take(option) else "false"

    def take_starting(self, *prefixes: str) -> str:
        """The next modifier if it starts in one of these ways."""
        if self._left and self._left[0].startswith(prefixes):
            return self._left.pop(0)
        return ""

    def type(self, options: str) -> Type:
        """The next modifier as a type; `options` are names with spaces between."""
        return TYPES[self.need(*options.split())]

    def peek(self) -> str:
        return self._left[0] if self._left else ""

    def end(self) -> None:
        """No modifier may be left."""
        if self._left:
            self.unknown("")

    def unknown(self, why: str) -> None:
        """Refuse the instruction because of its next modifier, or because one is missing."""
        place = f"the modifier .{self._left[0]}" if self._left else "the end of its modifiers"
        reason = f"; {why}" if why else ""
        raise self.refused(f"{place} of {self.ins.name} is not known to the emulator{reason}")

    def refused(self, message: str, kind: str = UNKNOWN) -> Refused:
        return Refused(self.ins.line, message, kind)

    # ---- operands

    @property
    def line(self) -> str:
        """C++ expression of the line."""
        return self.context.line(self.ins.line)

    def operands(self, *counts: int) -> Sequence[Operand]:
        """The operands, of which there must be one of these numbers; no modifier may be left."""
        self.end()
        found = len(self.ins.operands)
        if found not in counts:
            wanted = " or ".join(map(str, counts))
            raise self.refused(f"{self.ins.name} has {found} operands; it takes {wanted}")
        return self.ins.operands

    def value(self, operand: Operand, type_: Type | str, *, wider: bool = False) -> str:
        return self.context.value(operand, _type(type_), self.ins, wider=wider)

    def store(self, operand: Operand, type_: Type | str, text: str, *, wider: bool = False) -> str:
        return self.context.store(operand, _type(type_), text, self.ins, wider=wider)

    def pointer(self, operand: Operand) -> str:
        """A 64-bit address: generic, global, local or constant."""
        return self.context.address(operand, self.ins, generic=True)

    def shared(self, operand: Operand, *, named: bool = True) -> str:
        """A shared address; a generic one unless the instruction has `named` the space."""
        text = self.context.address(operand, self.ins, generic=not named)
        if named:
            return text
        return f"tg::shared_address((const void*)({text}), {self.line})"

    def values(self, operand: Operand, type_: Type | str, count: int) -> str:
        """C++ braces round the bits of a vector with so many elements."""
        found = parts(operand)
        if len(found) != count:
            raise self.refused(
                f"{self.ins.name} takes {count} registers of .{_type(type_).name} here, not {len(found)}",
                CONSTRAINT,
            )
        return "{" + ", ".join(self.value(x, type_) for x in found) + "}"

    def stores(self, operand: Operand, type_: Type | str, count: int, array: str) -> str:
        """C++ statements that write the elements of an array to a vector."""
        found = parts(operand)
        if len(found) != count:
            raise self.refused(
                f"{self.ins.name} gives {count} registers of .{_type(type_).name}, not {len(found)}",
                CONSTRAINT,
            )
        return " ".join(self.store(x, type_, f"{array}[{i}]") for i, x in enumerate(found))

    def touches_memory(self) -> None:
        """The asm needs a "memory" clobber, and `volatile`."""
        self.context.touches_memory = True
        self.context.acts = True

    def acts(self) -> None:
        """The asm needs `volatile`: its effect is more than its outputs."""
        self.context.acts = True


def _type(type_: Type | str) -> Type:
    return TYPES[type_] if isinstance(type_, str) else type_


Handler = Callable[[Operation], str]
