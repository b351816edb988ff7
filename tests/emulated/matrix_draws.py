"""Operands of matrix instructions, drawn from a seed alike on every machine and with every NumPy.

Only the raw words of PCG64 and operations without rounding of their own are used: no libm, no sampler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from emulated.matrix_forms import NUMPY, Array, Form

CHAIN = 8  # steps of K of a chain
MANY = 32  # times as many products, on record by their checksums
# Mantissa bits without the leading one, least exponent of a normal number, largest exponent.
FORMATS = {
    "f16": (10, -14, 15), "bf16": (7, -126, 127), "tf32": (10, -126, 127), "e4m3": (3, -6, 8),
    "e5m2": (2, -14, 15), "f32": (23, -126, 127), "f64": (52, -1022, 1023),
}  # fmt: skip


class Stream:
    """Random numbers from raw words."""

    def __init__(self, *key: object) -> None:
        seed = hashlib.sha256(repr(key).encode()).digest()
        self.words = np.random.PCG64(int.from_bytes(seed, "little"))

    def raw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.words.random_raw(int(np.prod(shape))), np.uint64).reshape(shape)

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """In [0, 1), with 53 bits."""
        return (self.raw(shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        """In [low, high), which span less than 2^32."""
        span = np.uint64(high - low)
        return (((self.raw(shape) >> np.uint64(32)) * span) >> np.uint64(32)).astype(np.int64) + low

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Variance 1: twelve uniform numbers, summed exactly."""
        total = (self.raw((12, *shape)) >> np.uint64(20)).astype(np.int64).sum(axis=0)
        return (total - 6 * 2**44).astype(np.float64) * 2.0**-44

    def signs(self, shape: tuple[int, ...]) -> Array:
        return 1.0 - 2.0 * (self.raw(shape) >> np.uint64(63)).astype(np.float64)

    def scaled(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        """+-(1 + u) * 2^e with e in [low, high]."""
        size = np.ldexp(1 + self.uniform(shape), self.integers(low, high + 1, shape))
        return self.signs(shape) * size


def rounded(x: Array, name: str) -> Array:
    """To the nearest of a type, in the array that stores it."""
    if name == "tf32":
        with np.errstate(over="ignore"):
            bits = x.astype(np.float32).view(np.uint32)
        finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
        odd = (bits >> np.uint32(13)) & np.uint32(1)
        near = (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
        return np.where(finite, near, bits).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        return x.astype(NUMPY[name])


@dataclass(frozen=True)
class Operands:
    """Of ``count`` products: A (steps, count, m, k), B (steps, count, k, n), C (count, m, n)."""

    a: Array
    b: Array
    c: Array

    @property
    def digest(self) -> str:
        parts = (np.ascontiguousarray(x).tobytes() for x in (self.a, self.b, self.c))
        return hashlib.sha256(b"".join(parts)).hexdigest()


Shape = tuple[int, ...]
Draw = Callable[[Stream, Form, Shape, Shape, Shape], tuple[Array, Array, Array]]


def _normal(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    return s.normal(a), s.normal(b), s.normal(c)


def _uniform(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    return s.uniform(a), s.uniform(b), s.uniform(c)


def _wide(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Exponents far apart, yet without overflow."""
    if form.d == "f16":
        return s.scaled(-7, 5, a), s.scaled(-7, 5, b), s.scaled(-12, 12, c)
    low, high = (-6, 7) if form.a == "e4m3" else (-12, 12)
    other = (-6, 7) if form.b == "e4m3" else (-12, 12)
    return s.scaled(low, high, a), s.scaled(*other, b), s.scaled(-20, 20, c)


def _cancel(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Half of the products are the others' negatives but for some last bits, in a drawn order of k."""
    x, y = s.scaled(-3, 3, a), s.scaled(-3, 3, b)
    half = form.k // 2
    order = np.argsort(s.raw((a[0], a[1], 1, form.k)), axis=-1, kind="stable")
    nudge = 1 + 2.0 ** -FORMATS[form.a][0] * (s.uniform((*a[:-1], half)) < 0.3)
    x[..., half:] = rounded(x[..., :half], form.a).astype(np.float64) * nudge
    y[..., half:, :] = -y[..., :half, :]
    x = np.take_along_axis(x, np.broadcast_to(order, a), -1)
    y = np.take_along_axis(y, np.broadcast_to(order.swapaxes(-1, -2), b), -2)
    return x, y, s.scaled(-12, 0, c)


def _accumulator(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """The accumulator outweighs the products, by up to more than the mantissa."""
    return (
        s.normal(a),
        s.normal(b),
        s.scaled(2, FORMATS[form.d][0] + 4 if form.d != "f16" else 14, c),
    )


def _subnormal(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Subnormal elements of A, accumulators from subnormal up to the products; some rows of A are 0."""
    bits, least, _ = FORMATS[form.a]
    x = s.signs(a) * s.integers(0, 2 << min(bits, 30), a).astype(np.float64)
    x = np.ldexp(x, least - min(bits, 30)) * (s.uniform((*a[:-1], 1)) < 0.75)
    y = s.scaled(-min(6, -FORMATS[form.b][1]), 1, b)
    sums, lowest, _ = FORMATS[form.d]
    z = np.ldexp(s.signs(c) * s.integers(0, 2 << min(sums, 30), c), lowest - min(sums, 30))
    near = s.scaled(least - 5, least + 2, c)
    return x, y, np.where(s.uniform(c) < 0.5, z, near)


def _overflow(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Products and accumulators at the upper end of D's range."""
    top = FORMATS[form.d][2]
    xs, ys = ((min(FORMATS[t][2] - 1, top // 2)) for t in (form.a, form.b))
    return s.scaled(xs - 4, xs, a), s.scaled(ys - 4, ys, b), s.scaled(top - 3, top - 1, c)


def _special(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Infinities and NaNs among normal numbers; odd rows and columns hold signed zeros and ones."""
    out = []
    for shape, share, axis in ((a, 0.4 / form.k, -2), (b, 0.4 / form.k, -1), (c, 0.1, -2)):
        x, pick = s.normal(shape), s.uniform(shape)
        for i, odd in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0)):
            x = np.where((pick >= i * share / 5) & (pick < (i + 1) * share / 5), odd, x)
        plain = s.signs(shape) * (s.uniform(shape) < 0.05)
        at = np.arange(shape[axis]) % 2 == 1
        out.append(np.where(at[:, None] if axis == -2 else at, plain, x))
    return out[0], out[1], out[2]


def _small(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Whole numbers up to 3: exact in every type and order."""
    return tuple(s.integers(0 if t == "u8" else -3, 4, shape).astype(np.float64)
                 for t, shape in ((form.a, a), (form.b, b), (form.d, c)))  # type: ignore[return-value]  # fmt: skip


def _unrounded(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    return s.normal(a), s.normal(b), s.normal(c)


def _bytes(s: Stream, form: Form, a: Shape, b: Shape, c: Shape) -> tuple[Array, Array, Array]:
    """Every value of an 8-bit integer; accumulators that make some sums pass 2^31."""
    low, high = (0 if form.a == "u8" else -128), (0 if form.b == "u8" else -128)
    near = s.signs(c) * (2.0**31 - 1 - s.integers(0, 1 << 18, c))
    z = np.where(s.uniform(c) < 0.5, near, s.integers(-(1 << 20), 1 << 20, c))
    return (s.integers(low, low + 256, a).astype(np.float64),
            s.integers(high, high + 256, b).astype(np.float64), z)  # fmt: skip


DRAWS: dict[str, Draw] = {
    "normal": _normal, "uniform": _uniform, "wide": _wide, "cancel": _cancel,
    "accumulator": _accumulator, "subnormal": _subnormal, "overflow": _overflow, "special": _special,
    "small": _small, "unrounded": _unrounded, "bytes": _bytes,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """So many products of a form in one draw: one instruction each, or a chain of them.

    Of a case with ``times`` above 1 a record holds one checksum for each product, not the bits.
    """

    form: Form
    draw: str
    steps: int
    times: int = 1

    @property
    def name(self) -> str:
        more = f"/x{self.times}" if self.times > 1 else ""
        return f"{self.form.name}/{self.draw}/{self.steps}{more}"

    @property
    def count(self) -> int:
        """Products; about 512 sums, 1024 of the two plain draws, 4096 of the widest form."""
        sums = 1024 if self.draw in ("normal", "uniform") else 512
        return max(1, sums // (self.form.m * self.form.n)) * self.times

    def operands(self, seed: int) -> Operands:
        f, n = self.form, self.count
        stream = Stream(seed, self.name)
        shapes = (self.steps, n, f.m, f.k), (self.steps, n, f.k, f.n), (n, f.m, f.n)
        a, b, c = DRAWS[self.draw](stream, f, *shapes)
        kinds = ("f32", "f32") if self.draw == "unrounded" else (f.a, f.b)
        return Operands(rounded(a, kinds[0]), rounded(b, kinds[1]), rounded(c, f.d))


def cases(form: Form) -> list[Case]:
    """What is recorded of a form."""
    if not form.is_float:
        return [Case(form, "small", 1), Case(form, "bytes", 1), Case(form, "bytes", CHAIN)]
    if form.n == 64:
        chosen = [("normal", 1), ("wide", 1), ("normal", CHAIN)]
    else:
        chosen = [(draw, 1) for draw in DRAWS if draw not in ("unrounded", "bytes")]
        chosen += [(draw, CHAIN) for draw in ("normal", "uniform", "wide", "accumulator")]
        if form.a == "tf32":
            chosen.append(("unrounded", 1))
    many = [("normal", 1), ("wide", 1), ("cancel", 1)] if form.n == 8 else []
    return [Case(form, draw, steps) for draw, steps in chosen] + [
        Case(form, draw, steps, MANY) for draw, steps in many
    ]
