"""The types of PTX registers and instructions, and which register an instruction accepts.

PTX ISA: "Types", "Operand Type Checking" and, for ld, st and cvt, "Operand Size Exceeding
Instruction-Type Size".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """One type.

    Attributes
    ----------
    name : str
        As in PTX; the tag in the C++ semantics has the same name.
    kind : str
        ``b`` untyped bits, ``u`` or ``s`` integer, ``f`` float, ``p`` predicate, ``x`` what only
        untyped registers hold.
    bits : int
    """

    name: str
    kind: str
    bits: int

    @property
    def raw(self) -> str:
        """C++ type of a register's bits."""
        return "bool" if self.kind == "p" else f"uint{self.bits}_t"

    def accepts(self, register: Type, *, wider: bool = False) -> bool:
        """Whether an instruction of this type takes that register.

        Parameters
        ----------
        register : Type
        wider : bool
            Whether a larger register is fine, as in ld, st and cvt.
        """
        if (self.kind == "p") != (register.kind == "p"):
            return False
        same = self.bits == register.bits
        if not same and not (wider and register.bits > self.bits):
            return False
        if self.kind == "x":
            return same and (register.kind == "b" or register.name == self.name)
        if "b" in (self.kind, register.kind):
            # A wider float register holds no part of it that means anything.
            return same or register.kind != "f"
        if self.kind == "f" or register.kind == "f":
            return self.kind == register.kind and same
        return True


def _integers(kind: str, *widths: int) -> dict[str, Type]:
    return {f"{kind}{w}": Type(f"{kind}{w}", kind, w) for w in widths}


TYPES: dict[str, Type] = {
    **_integers("b", 8, 16, 32, 64),
    **_integers("u", 8, 16, 32, 64),
    **_integers("s", 8, 16, 32, 64),
    "f16": Type("f16", "f", 16),
    "f32": Type("f32", "f", 32),
    "f64": Type("f64", "f", 64),
    # These live in untyped registers.
    "bf16": Type("bf16", "x", 16),
    "tf32": Type("tf32", "x", 32),
    "f16x2": Type("f16x2", "x", 32),
    "bf16x2": Type("bf16x2", "x", 32),
    "e4m3": Type("e4m3", "x", 8),
    "e5m2": Type("e5m2", "x", 8),
    "e4m3x2": Type("e4m3x2", "x", 16),
    "e5m2x2": Type("e5m2x2", "x", 16),
    "pred": Type("pred", "p", 1),
}
REGISTERS = {"b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"} | {
    "f16", "f16x2", "f32", "f64", "pred",
}  # fmt: skip

# What nvcc makes of a constraint letter: integers become untyped registers, floats keep their kind.
CONSTRAINTS = {
    "h": TYPES["b16"],
    "r": TYPES["b32"],
    "l": TYPES["b64"],
    "f": TYPES["f32"],
    "d": TYPES["f64"],
}
LETTERS = {("b", 16): "h", ("b", 32): "r", ("b", 64): "l", ("f", 32): "f", ("f", 64): "d"}


def letter(type_: Type) -> str:
    """The constraint that suits a type, quoted, for messages."""
    kind = "f" if type_.kind == "f" and type_.bits >= 32 else "b"
    return f'"{LETTERS.get((kind, max(type_.bits, 16)), "?")}"'


WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
