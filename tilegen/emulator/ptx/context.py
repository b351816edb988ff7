"""What an instruction's translation asks of its statement: values, destinations, addresses."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilegen.emulator.ptx.findings import CONSTRAINT, Finding, Refused
from tilegen.emulator.ptx.parser import (
    Address,
    AsmOperand,
    Immediate,
    Instruction,
    Name,
    Not,
    Operand,
    Vector,
)
from tilegen.emulator.ptx.ptxtypes import TYPES, Type, letter
from tilegen.emulator.ptx.registers import Register, Registers
from tilegen.emulator.ptx.special import SPECIAL

SINK = Name("_")


class Context:
    """One asm statement while it is translated.

    Attributes
    ----------
    registers : Registers
    findings : list of Finding
    touches_memory : bool
        Whether any instruction reads, writes or orders memory.
    acts : bool
        Whether any instruction does more than compute its outputs from its inputs.
    """

    def __init__(self, registers: Registers, line: int, *, loops: bool, fixed_lines: bool) -> None:
        self.registers = registers
        self.findings: list[Finding] = []
        self.touches_memory = False
        self.acts = False
        self._line = line
        # In a loop the order of the text is not the order of execution.
        self._loops = loops
        # In a macro, __LINE__ is the line of its use, and offsets inside it mean nothing.
        self._fixed_lines = fixed_lines

    def line(self, line: int) -> str:
        """C++ expression of a line of the kernel text, for the runtime's messages."""
        away = line - self._line if self._fixed_lines else 0
        return f"__LINE__ + {away}" if away else "__LINE__"

    def note(self, line: int, kind: str, message: str) -> None:
        self.findings.append(Finding(line, kind, message))

    def register(self, operand: Operand, line: int) -> Register | None:
        """The register of an operand; None of a constant or a special register."""
        if isinstance(operand, AsmOperand):
            return self.registers.operand(operand.index, line)
        if isinstance(operand, Name) and operand.text not in SPECIAL and operand.text != "WARP_SZ":
            return self.registers.named(operand.text, line)
        return None

    def _check(self, register: Register, type_: Type, name: str, line: int, wider: bool) -> None:
        if register.mode == "n" or type_.accepts(register.type, wider=wider):
            return
        if register.mode:
            what = f"its constraint makes it .{register.type.name}; {letter(type_)} would suit"
        else:
            what = f"it is declared .{register.type.name}"
        self.note(
            line, CONSTRAINT, f"{name} takes .{type_.name} where {register.shown} stands: {what}"
        )

    def _read(self, register: Register, name: str, line: int) -> None:
        register.read = True
        unset = not register.written and register.mode in ("=", "")
        if not unset or self._loops or "read" in register.noted:
            return
        register.noted.add("read")
        if register.mode:
            text = f'{register.shown} is read by {name} but is marked "=": write "+"'
        else:
            text = f"{register.shown} is read by {name} before anything wrote it"
        self.note(line, CONSTRAINT, text)

    def _write(self, register: Register, name: str, line: int) -> None:
        register.written = True
        if register.mode == "n":
            raise Refused(line, f"{name} writes {register.shown}, a constant", CONSTRAINT)
        if register.mode == "in" and "write" not in register.noted:
            register.noted.add("write")
            text = f'{register.shown} is an input but {name} writes it: make it an output, "+"'
            self.note(line, CONSTRAINT, text)

    def width(self, operand: Operand, line: int) -> int | None:
        """Bits of the register, None of a constant."""
        if isinstance(operand, Name) and operand.text in SPECIAL:
            return SPECIAL[operand.text][0].bits
        register = self.register(operand, line)
        return None if register is None or register.mode == "n" else register.type.bits

    def value(self, operand: Operand, type_: Type, ins: Instruction, *, wider: bool = False) -> str:
        """C++ expression of an operand's bits, as wide as the type."""
        line, name = ins.line, ins.name
        if isinstance(operand, Immediate):
            return immediate(operand, type_)
        if isinstance(operand, Name) and operand.text == "WARP_SZ":
            return f"{type_.raw}(tg_ptx::launch().warp_size)"
        if isinstance(operand, Name) and operand.text in SPECIAL:
            if ins.opcode != "mov":
                raise Refused(
                    line,
                    f"{name} reads {operand.text}; only mov reads special registers",
                    CONSTRAINT,
                )
            special, text = SPECIAL[operand.text]
            if not type_.accepts(special, wider=wider):
                raise Refused(
                    line, f"{operand.text} is .{special.name}, not .{type_.name}", CONSTRAINT
                )
            return f"{type_.raw}({text})"
        if isinstance(operand, Not):
            if type_.kind != "p":
                raise Refused(line, f"'!' before an operand of {name} that is no predicate")
            return f"!{self.value(operand.operand, type_, ins)}"
        register = self.register(operand, line)
        if register is None:
            raise Refused(line, f"{name} does not take this kind of operand")
        self._check(register, type_, name, line, wider)
        self._read(register, name, line)
        exact = register.mode != "n" and register.type.bits == type_.bits
        return register.variable if exact else f"{type_.raw}({register.variable})"

    def store(
        self, operand: Operand, type_: Type, text: str, ins: Instruction, *, wider: bool = False
    ) -> str:
        """C++ statement that writes the bits `text` to a destination, extended by the type's sign."""
        if operand == SINK:
            return f"(void)({text});"
        if not isinstance(operand, (AsmOperand, Name)):
            raise Refused(ins.line, f"{ins.name} cannot write to this kind of operand")
        register = self.register(operand, ins.line)
        if register is None:
            raise Refused(ins.line, f"{ins.name} writes a special register")
        self._check(register, type_, ins.name, ins.line, wider)
        self._write(register, ins.name, ins.line)
        if wider and type_.kind == "s" and register.type.bits > type_.bits:
            text = f"{register.type.raw}(int{register.type.bits}_t(int{type_.bits}_t({text})))"
        return f"{register.variable} = {text};"

    def read_again(self, operand: Operand, ins: Instruction) -> None:
        """Note that a destination is also a source, as an accumulator is."""
        register = self.register(operand, ins.line)
        if register is not None:
            self._read(register, ins.name, ins.line)

    def address(self, operand: Operand, ins: Instruction, *, generic: bool) -> str:
        """C++ expression of ``[base + offset]``: 64 bits, of a pointer or a shared address.

        Parameters
        ----------
        operand : Operand
        ins : Instruction
        generic : bool
            The space has 64-bit addresses; a shared one has 32, in a register of either width.
        """
        if not isinstance(operand, Address):
            raise Refused(ins.line, f"{ins.name} needs an address in [brackets]")
        width = self.width(operand.base, ins.line) or 64
        if generic and width != 64:
            text = f'{ins.name} takes a 64-bit address: give a pointer, with the constraint "l"'
            self.note(ins.line, CONSTRAINT, text)
        type_ = TYPES["u64"] if width == 64 else TYPES["u32"]
        text = f"uint64_t({self.value(operand.base, type_, ins)})"
        if operand.offset is not None:
            sign = "-" if operand.negative else "+"
            offset = self.value(operand.offset, TYPES["s64"], ins, wider=True)
            # A 32-bit address wraps at 32 bits.
            text = (
                f"({text} {sign} {offset})" if width == 64 else f"uint32_t({text} {sign} {offset})"
            )
        return text


def immediate(operand: Immediate, type_: Type) -> str:
    """A constant's bits as wide as the type."""
    bits = operand.value
    if operand.float_bits and type_.name == "f32" and operand.float_bits == 64:
        bits = _float_bits(struct.unpack("<d", struct.pack("<Q", bits))[0])
    elif operand.float_bits == 32 and type_.name == "f64":
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    elif not operand.float_bits and type_.kind == "f" and type_.bits >= 32:
        # An integer constant where a float stands is its value.
        if type_.bits == 32:
            bits = _float_bits(float(bits))
        else:
            (bits,) = struct.unpack("<Q", struct.pack("<d", float(bits)))
    if type_.kind == "p":
        return "true" if bits else "false"
    suffix = "ull" if type_.bits == 64 else "u"
    return f"{type_.raw}({bits & ((1 << type_.bits) - 1):#x}{suffix})"


def _float_bits(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


def parts(operand: Operand) -> Sequence[Operand]:
    """Elements of ``{a, b}``; anything else is one element."""
    return operand.parts if isinstance(operand, Vector) else (operand,)
