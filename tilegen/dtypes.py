"""The element types: width in bits, the NumPy type that stores them, and the unit round-off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import frexp
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes
    ----------
    name : str
        The name in a spec.
    bits : int
        Width in memory.
    kind : str
        ``"float"``, ``"signed"`` or ``"unsigned"``.
    numpy_name : str
        The NumPy type, or the ``ml_dtypes`` type after ``ml_dtypes.``.
    roundoff : float
        Unit round-off u of round to nearest (2**-p for p bits of significand); 0 for integers.
    largest : float
        Largest finite value.
    """

    name: str
    bits: int
    kind: str
    numpy_name: str
    roundoff: float
    largest: float

    @property
    def bytes(self) -> int:
        """Width in memory in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def smallest(self) -> float:
        """The value farthest below zero."""
        return {"float": -self.largest, "signed": -self.largest - 1, "unsigned": 0.0}[self.kind]

    def holds(self, value: float) -> bool:
        """Whether a finite number stays finite in a float type, and whole in an integer one.

        What lies less than half a unit in the last place over the largest value rounds to that.
        """
        if not self.is_float:
            return value.is_integer() and abs(value) <= self.largest
        binade = 2.0 ** (frexp(self.largest)[1] - 1)
        return abs(value) - self.largest < binade * self.roundoff

    @cached_property
    def subnormal(self) -> float:
        """The smallest value above zero; 1 for integers."""
        if not self.is_float:
            return 1.0
        import ml_dtypes

        finfo: Any = ml_dtypes.finfo
        return float(finfo(self.numpy).smallest_subnormal)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that stores an element."""
        import numpy as np

        name: Any = self.numpy_name
        if self.numpy_name.startswith("ml_dtypes."):
            import ml_dtypes

            name = getattr(ml_dtypes, self.numpy_name.removeprefix("ml_dtypes."))
        kind: np.dtype[Any] = np.dtype(name)
        return kind


# IEEE 754-2019 table 3.5 for f64, f32 and f16; bf16 and tf32 by their significands (8 and 11 bits
# with the hidden one); OCP 8-bit Floating Point Specification 1.0, table 1, for e4m3 and e5m2;
# the FNUZ types have no infinities and a largest value of 240 and 57344 (ml_dtypes.finfo).
DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        DType("f64", 64, "float", "float64", 2.0**-53, 1.7976931348623157e308),
        DType("f32", 32, "float", "float32", 2.0**-24, 3.4028234663852886e38),
        DType("tf32", 32, "float", "float32", 2.0**-11, 3.4011621342146535e38),
        DType("f16", 16, "float", "float16", 2.0**-11, 65504.0),
        DType("bf16", 16, "float", "ml_dtypes.bfloat16", 2.0**-8, 3.3895313892515355e38),
        DType("e4m3", 8, "float", "ml_dtypes.float8_e4m3fn", 2.0**-4, 448.0),
        DType("e5m2", 8, "float", "ml_dtypes.float8_e5m2", 2.0**-3, 57344.0),
        DType("e4m3fnuz", 8, "float", "ml_dtypes.float8_e4m3fnuz", 2.0**-4, 240.0),
        DType("e5m2fnuz", 8, "float", "ml_dtypes.float8_e5m2fnuz", 2.0**-3, 57344.0),
        DType("s8", 8, "signed", "int8", 0.0, 127.0),
        DType("u8", 8, "unsigned", "uint8", 0.0, 255.0),
        DType("s32", 32, "signed", "int32", 0.0, 2147483647.0),
    )
}


def dtype(name: str) -> DType:
    """The type with this name; raises ``KeyError`` for an unknown one."""
    return DTYPES[name]
