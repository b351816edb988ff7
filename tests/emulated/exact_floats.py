"""Exact arithmetic on fractions, rounded once to a format: the model of float instructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Real = Fraction | float  # a float only where it is infinite, NaN or a signed zero

# Mantissa bits, least exponent, largest finite value.
FORMATS = {
    "f16": (10, -14, Fraction(65504)),
    "bf16": (7, -126, Fraction(2) ** 127 * (2 - Fraction(1, 2**7))),
    "tf32": (10, -126, Fraction(2) ** 127 * (2 - Fraction(1, 2**10))),
    "f32": (23, -126, Fraction(2) ** 127 * (2 - Fraction(1, 2**23))),
    "f64": (52, -1022, Fraction(2) ** 1023 * (2 - Fraction(1, 2**52))),
    "e4m3": (3, -6, Fraction(448)),
    "e5m2": (2, -14, Fraction(57344)),
}
STORAGE = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip


def integral(x: Fraction, mode: str) -> int:
    """Rounded to a whole number: rn, rna, rz, rm or rp."""
    low = math.floor(x)
    if x == low:
        return low
    if mode == "rm":
        return low
    if mode == "rp":
        return low + 1
    if mode == "rz":
        return low if x > 0 else low + 1
    rest = x - low
    if rest != Fraction(1, 2):
        return low + (rest > Fraction(1, 2))
    if mode == "rna":
        return low + 1 if x > 0 else low
    return low + (low & 1)


def round_to(x: Real, name: str, mode: str = "rn", *, finite: bool = False) -> float:
    """The nearest value of a format, as a float; `finite` saturates."""
    mantissa, least, largest = FORMATS[name]
    if isinstance(x, float):
        if math.isinf(x) and (finite or name == "e4m3"):
            return math.copysign(float(largest), x) if finite else math.nan
        return x
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - mantissa)
    out = integral(x / unit, mode) * unit
    if abs(out) > largest:
        inward = mode == "rz" or (mode == "rm" and x > 0) or (mode == "rp" and x < 0)
        if finite or inward:
            out = largest if x > 0 else -largest
        else:
            return math.nan if name == "e4m3" else math.copysign(math.inf, x)
    if out == 0:
        return math.copysign(0.0, x)
    return float(out)


def exactly(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Of numbers: exact where all are finite, by the host's rules where one is not, or is a zero."""

    def run(*xs: float) -> Real:
        if all(math.isfinite(x) for x in xs):
            try:
                out = operation(*(Fraction(x) for x in xs))
            except ZeroDivisionError:
                out = Fraction(0)
            if out != 0:
                return out  # type: ignore[no-any-return]
        with np.errstate(all="ignore"):
            return float(operation(*(np.float64(x) for x in xs)))

    return run


def decode(bits: npt.NDArray[Any], name: str) -> list[float]:
    """Values of raw bits."""
    if name == "tf32":
        bits = (bits.astype(np.uint32) & np.uint32(0xFFFFE000)).astype(np.uint32)
    dtype = STORAGE[name]
    raw = np.ascontiguousarray(bits.astype(f"u{dtype.itemsize}"))
    return [float(x) for x in raw.view(dtype)]


def encode(values: list[float], name: str) -> npt.NDArray[Any]:
    """Raw bits of values that the format has; NaN becomes PTX's canonical one."""
    dtype = STORAGE[name]
    with np.errstate(all="ignore"):
        out = np.array(values, np.float64).astype(dtype)
    raw = out.view(f"u{dtype.itemsize}").copy()
    nan = {"f64": 0x7FF8000000000000, "f32": 0x7FFFFFFF, "tf32": 0x7FC00000}.get(
        name, 0x7FFF if dtype.itemsize == 2 else 0x7F
    )
    raw[[v != v for v in values]] = nan
    return raw
