"""Float instructions and conversions against exact fractions rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated.exact_floats import STORAGE, decode, encode, exactly, integral, round_to
from emulated.ptx_cases import Array, Case, check

LETTER = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h"}
add = exactly(lambda a, b: a + b)
sub = exactly(lambda a, b: a - b)
mul = exactly(lambda a, b: a * b)
div = exactly(lambda a, b: a / b)
fma = exactly(lambda a, b, c: a * b + c)


# Rounding down is rounding up of the negated operation: these operands change sign with the result.
NEGATED = {add: (-1, -1), sub: (-1, -1), mul: (-1, 1), fma: (-1, 1, -1)}


def downwards(operation: Callable[..., Any], row: list[float], name: str) -> float:
    signs = NEGATED[operation]
    return -round_to(operation(*(s * x for s, x in zip(signs, row, strict=True))), name, "rp")


def flushed(x: float, on: bool) -> float:
    return math.copysign(0.0, x) if on and abs(x) < 2.0**-126 else x


def values(x: Array, name: str) -> list[float]:
    return [float(v) for v in x] if x.dtype.kind == "f" else decode(x, name)


def result(out: list[float], name: str) -> Array:
    bits = encode(out, name)
    return bits.view(STORAGE[name]) if name in ("f32", "f64") else bits


def floats(
    operation: Callable[..., Any], name: str, mode: str = "rn", *, ftz: bool = False,
    after: Callable[[float], float] = lambda x: x,
) -> Callable[..., Array]:  # fmt: skip
    """A model on arrays: decode, compute exactly, round once."""

    def model(*inputs: Array) -> Array:
        rows = [
            [flushed(x, ftz) for x in row]
            for row in zip(*(values(x, name) for x in inputs), strict=True)
        ]
        if mode == "rm":
            return result([downwards(operation, row, name) for row in rows], name)
        return result(
            [after(flushed(round_to(operation(*row), name, mode), ftz)) for row in rows], name
        )

    return model


def saturated(x: float) -> float:
    return 0.0 if x != x else min(max(x, 0.0), 1.0) + 0.0


def relu(x: float) -> float:
    return 0.0 if x <= 0 else x


def smaller(a: float, b: float) -> float:
    if a != a or b != b:
        return b if a != a else a
    return a if (a, math.copysign(1, a)) <= (b, math.copysign(1, b)) else b


def larger(a: float, b: float) -> float:
    return -smaller(-a, -b)


def with_nan(f: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda a, b: math.nan if a != a or b != b else f(a, b)


def halves(model: Callable[..., Array]) -> Callable[..., Array]:
    """The same model on both halves of 32-bit registers."""

    def packed(*inputs: Array) -> Array:
        low = model(*((x & 0xFFFF).astype(np.uint16) for x in inputs)).astype(np.uint32)
        high = model(*((x >> 16).astype(np.uint16) for x in inputs)).astype(np.uint32)
        return low | high << 16

    return packed


def to_int(name: str, bits: int, sign: bool, mode: str) -> Callable[[Array], Array]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)

    def one(x: float) -> int:
        if x != x:
            return 1 << (bits - 1) if bits == 64 or name == "f64" else 0
        if math.isinf(x):
            return high if x > 0 else low
        from fractions import Fraction

        return max(low, min(high, integral(Fraction(x), mode)))

    mask = (1 << bits) - 1
    return lambda x: np.array([one(v) & mask for v in values(x, name)], np.uint64)


def from_int(name: str, bits: int, sign: bool, mode: str) -> Callable[[Array], Array]:
    from fractions import Fraction

    def one(x: int) -> float:
        if sign and x >> (bits - 1):
            x -= 1 << bits
        return round_to(Fraction(x), name, mode) if x else 0.0

    return lambda x: result([one(v & ((1 << bits) - 1)) for v in x.tolist()], name)


def convert(
    to: str, source: str, mode: str = "rn", *, finite: bool = False,
    after: Callable[[float], float] = lambda x: x,
) -> Callable[[Array], Array]:  # fmt: skip
    number = exactly(lambda a: a)
    return lambda x: result(
        [after(round_to(number(v), to, mode, finite=finite)) for v in values(x, source)], to
    )


def pair(
    to: str, mode: str = "rn", *, finite: bool = False, relu_: bool = False
) -> Callable[..., Array]:
    """``cvt d, a, b``: a in the upper half."""
    one = convert(to, "f32", mode, finite=finite, after=relu if relu_ else lambda x: x)
    bits = 8 * STORAGE[to].itemsize
    return lambda a, b: one(a).astype(np.uint32) << bits | one(b).astype(np.uint32)


def whole(mode: str) -> Callable[[Array], Array]:
    from fractions import Fraction

    def one(x: float) -> float:
        if not math.isfinite(x):
            return x
        return math.copysign(float(integral(Fraction(x), mode)), x)

    return lambda x: result([one(v) for v in values(x, "f32")], "f32")


def compared(f: Callable[[float, float], bool]) -> Callable[..., Array]:
    return lambda a, b: np.array(
        [f(x, y) for x, y in zip(values(a, "f32"), values(b, "f32"), strict=True)], np.uint32
    )


def nan(a: float, b: float) -> bool:
    return a != a or b != b


def setp(name: str) -> str:
    return f"{{.reg .pred p; setp.{name}.f32 p, %1, %2; selp.u32 %0, 1, 0, p;}}"


HALF = [f"{op}.{name}" for op in ("add", "sub", "mul") for name in ("f16", "bf16")]
BINARY = {"add": add, "sub": sub, "mul": mul}
CASES = [
    *(
        Case(f"{op}{mode}.{name} %0, %1, %2;", LETTER[name] * 3, floats(f, name, mode[1:] or "rn"))
        for op, f in BINARY.items()
        for name in ("f32", "f64")
        for mode in ("", ".rn", ".rz", ".rm", ".rp")
    ),
    *(Case(f"div.{m}.f32 %0, %1, %2;", "fff", floats(div, "f32", m)) for m in ("rn", "rz", "rp")),
    *(Case(f"fma.{m}.f32 %0, %1, %2, %3;", "ffff", floats(fma, "f32", m)) for m in ("rn", "rz", "rm")),
    Case("fma.rn.f64 %0, %1, %2, %3;", "dddd", floats(fma, "f64")),
    Case("mad.rn.f32 %0, %1, %2, %3;", "ffff", floats(fma, "f32")),
    Case("add.ftz.f32 %0, %1, %2;", "fff", floats(add, "f32", ftz=True)),
    Case("mul.rn.ftz.f32 %0, %1, %2;", "fff", floats(mul, "f32", ftz=True)),
    Case("add.sat.f32 %0, %1, %2;", "fff", floats(add, "f32", after=saturated)),
    Case("{.reg .f32 t; mul.rn.f32 t, %1, %2; add.rn.f32 %0, t, %3;}", "ffff",
         floats(lambda a, b, c: add(round_to(mul(a, b), "f32"), c), "f32")),
    *(Case(f"{op}.{n} %0, %1, %2;", "hhh", floats(BINARY[op], n)) for op, n in (x.split(".") for x in HALF)),
    *(Case(f"{op}.{n}x2 %0, %1, %2;", "rrr", halves(floats(BINARY[op], n))) for op, n in (x.split(".") for x in HALF)),
    Case("fma.rn.f16 %0, %1, %2, %3;", "hhhh", floats(fma, "f16")),
    Case("fma.rn.bf16 %0, %1, %2, %3;", "hhhh", floats(fma, "bf16")),
    Case("fma.rn.f16x2 %0, %1, %2, %3;", "rrrr", halves(floats(fma, "f16"))),
    Case("fma.rn.bf16x2 %0, %1, %2, %3;", "rrrr", halves(floats(fma, "bf16"))),
    Case("fma.rn.relu.f16x2 %0, %1, %2, %3;", "rrrr", halves(floats(fma, "f16", after=relu))),
    Case("abs.f32 %0, %1;", "ff", np.abs),
    Case("neg.f32 %0, %1;", "ff", np.negative),
    Case("neg.f16x2 %0, %1;", "rr", halves(floats(lambda x: -x, "f16"))),
    Case("abs.bf16 %0, %1;", "hh", floats(abs, "bf16")),
    Case("copysign.f32 %0, %1, %2;", "fff", lambda a, b: np.copysign(b, a)),
    Case("min.f32 %0, %1, %2;", "fff", floats(smaller, "f32")),
    Case("max.f32 %0, %1, %2;", "fff", floats(larger, "f32")),
    Case("min.NaN.f32 %0, %1, %2;", "fff", floats(with_nan(smaller), "f32")),
    Case("max.NaN.f16x2 %0, %1, %2;", "rrr", halves(floats(with_nan(larger), "f16"))),
    Case("max.bf16 %0, %1, %2;", "hhh", floats(larger, "bf16")),
    Case("sqrt.rn.f32 %0, %1;", "ff", np.sqrt),
    Case("rcp.rn.f64 %0, %1;", "dd", lambda x: 1.0 / x),
    *(Case(setp(n), "rff", compared(f)) for n, f in [
        ("lt", lambda a, b: a < b), ("le", lambda a, b: a <= b), ("eq", lambda a, b: a == b),
        ("ne", lambda a, b: a != b and not nan(a, b)), ("neu", lambda a, b: a != b),
        ("geu", lambda a, b: a >= b or nan(a, b)), ("nan", nan), ("num", lambda a, b: not nan(a, b)),
    ]),
    Case("set.gt.f32.f32 %0, %1, %2;", "fff", lambda a, b: (a > b).astype(np.float32)),
    # conversions
    *(Case(f"cvt.{m}i.s32.f32 %0, %1;", "rf", to_int("f32", 32, True, m)) for m in ("rn", "rz", "rm", "rp")),
    Case("cvt.rzi.u32.f32 %0, %1;", "rf", to_int("f32", 32, False, "rz")),
    Case("cvt.rni.s64.f64 %0, %1;", "ld", to_int("f64", 64, True, "rn")),
    Case("cvt.rzi.s32.f64 %0, %1;", "rd", to_int("f64", 32, True, "rz")),
    Case("cvt.rni.s8.f32 %0, %1;", "rf", lambda x: to_int("f32", 8, True, "rn")(x).astype(np.int8).astype(np.int32).view(np.uint32)),
    *(Case(f"cvt.{m}.f32.s32 %0, %1;", "fr", from_int("f32", 32, True, m)) for m in ("rn", "rz", "rm", "rp")),
    Case("cvt.rn.f32.u64 %0, %1;", "fl", from_int("f32", 64, False, "rn")),
    Case("cvt.rn.f64.u64 %0, %1;", "dl", from_int("f64", 64, False, "rn")),
    Case("cvt.rn.f16.s32 %0, %1;", "hr", from_int("f16", 32, True, "rn")),
    Case("cvt.f32.f16 %0, %1;", "fh", convert("f32", "f16")),
    Case("cvt.f32.bf16 %0, %1;", "fh", convert("f32", "bf16")),
    Case("cvt.f64.f32 %0, %1;", "df", convert("f64", "f32")),
    *(Case(f"cvt.{m}.f32.f64 %0, %1;", "fd", convert("f32", "f64", m)) for m in ("rn", "rz", "rm", "rp")),
    *(Case(f"cvt.{m}.f16.f32 %0, %1;", "hf", convert("f16", "f32", m)) for m in ("rn", "rz", "rm", "rp")),
    *(Case(f"cvt.{m}.bf16.f32 %0, %1;", "hf", convert("bf16", "f32", m)) for m in ("rn", "rz")),
    Case("cvt.rn.f16.f64 %0, %1;", "hd", convert("f16", "f64")),
    Case("cvt.rn.relu.f16.f32 %0, %1;", "hf", convert("f16", "f32", after=relu)),
    Case("cvt.rna.tf32.f32 %0, %1;", "rf", convert("tf32", "f32", "rna")),
    *(Case(f"cvt.{m}i.f32.f32 %0, %1;", "ff", whole(m)) for m in ("rn", "rz", "rm", "rp")),
    Case("cvt.sat.f32.f32 %0, %1;", "ff", convert("f32", "f32", after=saturated)),
    Case("cvt.rn.f16x2.f32 %0, %1, %2;", "rff", pair("f16")),
    Case("cvt.rz.bf16x2.f32 %0, %1, %2;", "rff", pair("bf16", "rz")),
    Case("cvt.rn.bf16x2.f32 %0, %1, %2;", "rff", pair("bf16")),
    Case("cvt.rn.relu.bf16x2.f32 %0, %1, %2;", "rff", pair("bf16", relu_=True)),
    Case("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;", "hff", pair("e4m3", finite=True)),
    Case("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;", "hff", pair("e5m2", finite=True)),
    Case("cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %2;", "hff", pair("e4m3", finite=True, relu_=True)),
    Case("{.reg .b16 t; mov.b16 t, %1; cvt.rn.f16x2.e4m3x2 %0, t;}", "rh", lambda x: convert("f16", "e4m3")((x & 255).astype(np.uint16)).astype(np.uint32) | convert("f16", "e4m3")((x >> 8).astype(np.uint16)).astype(np.uint32) << 16),
    Case("cvt.rn.f16x2.e5m2x2 %0, %1;", "rh", lambda x: convert("f16", "e5m2")((x & 255).astype(np.uint16)).astype(np.uint32) | convert("f16", "e5m2")((x >> 8).astype(np.uint16)).astype(np.uint32) << 16),
    Case("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;", "hr", lambda x: convert("e4m3", "f16", finite=True)((x & 0xFFFF).astype(np.uint16)).astype(np.uint32) | convert("e4m3", "f16", finite=True)((x >> 16).astype(np.uint16)).astype(np.uint32) << 8),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_floats(case: Case) -> None:
    check(CASES, case)


APPROXIMATE = [
    Case("ex2.approx.f32 %0, %1;", "ff", np.exp2),
    Case("ex2.approx.ftz.f32 %0, %1;", "ff", np.exp2),
    Case("lg2.approx.f32 %0, %1;", "ff", np.log2),
    Case("rsqrt.approx.f32 %0, %1;", "ff", lambda x: 1 / np.sqrt(x)),
    Case("rcp.approx.ftz.f32 %0, %1;", "ff", lambda x: 1 / x),
    Case("sin.approx.f32 %0, %1;", "ff", np.sin),
    Case("cos.approx.f32 %0, %1;", "ff", np.cos),
    Case("tanh.approx.f32 %0, %1;", "ff", np.tanh),
    Case("div.approx.f32 %0, %1, 3.0;", "ff", lambda x: x / 3),
    Case("div.full.f32 %0, %1, 0f40400000;", "ff", lambda x: x / 3),
]


@pytest.mark.parametrize("case", APPROXIMATE, ids=lambda c: c.name)
def test_approximations(case: Case) -> None:
    from emulated.ptx_cases import outcome

    x = np.linspace(0.01, 8, 256, dtype=np.float32)
    want = np.asarray(case.model(x.astype(np.float64)))
    np.testing.assert_allclose(outcome(APPROXIMATE, case, [x]), want, rtol=2e-7)
