"""Element types in CUDA C++: how a value is spelled, and which products a form offers."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.backend import TypeCombination


@dataclass(frozen=True)
class Spelling:
    """One type of values in registers.

    Attributes
    ----------
    type, suffix : str
        ``"float"`` and the suffix of its literals.
    fma, exp2, fabs : str
        The functions that the language has built in.
    """

    type: str
    suffix: str
    fma: str
    exp2: str
    fabs: str


SPELLINGS = {
    "f32": Spelling("float", "f", "fmaf", "exp2f", "fabsf"),
    "f64": Spelling("double", "", "fma", "exp2", "fabs"),
}
FMA_COMBINATIONS = tuple(TypeCombination(t, t, t, ((t, t),)) for t in SPELLINGS)
# How an element lies in memory; of 16-bit floats the text has no type of its own.
STORED = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "s32": "int",
    "f16": "unsigned short",
    "bf16": "unsigned short",
    "e4m3": "unsigned char",
    "e5m2": "unsigned char",
    "s8": "signed char",
    "u8": "unsigned char",
}
# Arguments of a launch; the text says what i64 is.
ARGUMENT_TYPES = {"i64": "i64", **STORED}
