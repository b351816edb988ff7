"""What a record of matrix instructions says of a model of their arithmetic: figures, and Markdown tables.

Figures are those of the rows that a record keeps. Errors are given in units u * (|A| |B| + |C|),
element by element: u is half a last place of D's type (2^-24 f32, 2^-11 f16, 2^-53 f64), |A| |B| + |C|
the product of the absolute values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from emulated.matrix_draws import CHAIN, Case, Operands
from emulated.matrix_forms import FORMS, NUMPY, Array, Form

UNITS = {"f32": 2.0**-24, "f16": 2.0**-11, "f64": 2.0**-53}


@dataclass(frozen=True)
class Figures:
    """One case: a model against the device.

    Attributes
    ----------
    equal : float
        Share of elements with the same bits.
    ulps : int
        Most values of the type between the two, where both are finite.
    worst : float
        Largest difference where both are finite, in units.
    bias, device_bias : float
        Mean of (result - exact) * sign(exact) in units, of the model and of the device: below 0 for
        what truncates, near 0 for what rounds to nearest.
    device_error : float
        The device's largest error against the exact value, in units.
    """

    equal: float
    ulps: int
    worst: float
    bias: float
    device_bias: float
    device_error: float


def exact(case: Case, operands: Operands) -> tuple[Array, Array]:
    """C + sum of A B, and |C| + sum of |A| |B|; of f64 as fractions."""
    a, b, c = (np.asarray(x, np.float64) for x in (operands.a, operands.b, operands.c))
    if case.form.a == "tf32":
        a, b = (
            (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
            for x in (operands.a, operands.b)
        )
    if case.form.d != "f64":
        with np.errstate(all="ignore"):
            return c + (a @ b).sum(0), np.abs(c) + (np.abs(a) @ np.abs(b)).sum(0)
    total, size = np.zeros(c.shape, object), np.zeros(c.shape, object)
    for at in np.ndindex(c.shape):
        n, i, j = at
        x, y = a[:, n, i, :].ravel(), b[:, n, :, j].ravel()
        if not (np.isfinite(c[at]) and np.isfinite(x).all() and np.isfinite(y).all()):
            total[at], size[at] = Fraction(0), Fraction(0)
            continue
        products = [Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True)]
        total[at] = Fraction(c[at]) + sum(products)
        size[at] = abs(Fraction(c[at])) + sum(map(abs, products))
    return total, size


def ordinals(bits: Array) -> Array:
    """Numbers that count a type's values in order, -0 and 0 alike."""
    width = 8 * bits.dtype.itemsize
    sign = 1 << (width - 1)
    size = (bits & bits.dtype.type(sign - 1)).astype(object if width == 64 else np.int64)
    return np.where(bits >= sign, -size, size)


def figures(case: Case, operands: Operands, device: Array, model: Array) -> Figures:
    """Of bits, (count, m, n)."""
    form = case.form
    kind = NUMPY[form.d]
    d, e = (np.asarray(x.view(kind)) for x in (device, model))
    equal = float((device == model).mean())
    if form.d == "s32":
        return Figures(equal, int(np.abs(d.astype(np.int64) - e).max()), 0, 0, 0, 0)
    total, size = exact(case, operands)
    with np.errstate(all="ignore"):
        if form.d != "f64":
            good = np.isfinite(d.astype(np.float64)) & np.isfinite(e.astype(np.float64))
            good &= np.isfinite(total) & (size > 0)
            sign = np.sign(total[good])
        else:
            good = np.isfinite(d) & np.isfinite(e) & (size != 0)
            sign = np.array([(x > 0) - (x < 0) for x in total[good]])
    if not good.any():
        return Figures(equal, 0, 0, 0, 0, 0)
    number = Fraction if form.d == "f64" else float
    unit = size[good] * number(UNITS[form.d])
    x, y = (np.array([number(float(v)) for v in part[good]]) for part in (d, e))

    def in_units(part: Array) -> Array:
        return np.array([float(v) for v in part / unit])

    ulps = np.abs(ordinals(device)[good] - ordinals(model)[good])
    error = in_units(x - total[good])
    return Figures(
        equal=equal,
        ulps=int(ulps.max()),
        worst=float(np.abs(in_units(x - y)).max()),
        bias=float((in_units(y - total[good]) * sign).mean()),
        device_bias=float((error * sign).mean()),
        device_error=float(np.abs(error).max()),
    )


# ---- tables -------------------------------------------------------------------------------------

ONE = (
    "normal",
    "uniform",
    "wide",
    "cancel",
    "accumulator",
    "subnormal",
    "overflow",
    "special",
    "small",
    "unrounded",
)
CHAINS = ("normal", "uniform", "wide", "accumulator")
COLUMNS = [(draw, 1) for draw in ONE] + [(draw, CHAIN) for draw in CHAINS]
Found = dict[tuple[Form, str, int], Figures]


def _number(x: float) -> str:
    size = abs(x)
    if size >= 100:
        return f"{x:.0f}"
    return f"{x:.1f}" if size >= 10 else f"{x:.2f}".replace("-0.00", "0.00")


def percent(share: float) -> str:
    """Never "100" for what is not whole."""
    return "all" if share == 1 else f"{min(100 * share, 99.9):.{0 if share < 0.99 else 1}f} %"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table(
    found: Found, cell: Callable[[Figures], str], columns: Iterable[tuple[str, int]] = COLUMNS
) -> str:
    columns = list(columns)
    head = ["instruction"] + [draw if steps == 1 else f"{draw} x{steps}" for draw, steps in columns]
    rows = []
    for form in FORMS:
        if not form.is_float:
            continue
        cells = [found.get((form, draw, steps)) for draw, steps in columns]
        if any(cells):
            rows.append([form.name, *("" if x is None else cell(x) for x in cells)])
    return markdown(head, rows)


def equality(found: Found) -> str:
    return _table(found, lambda x: percent(x.equal))


def distance(found: Found) -> str:
    """Worst difference: in units, and in values of the type."""
    return _table(found, lambda x: f"{_number(x.worst)} ({x.ulps})" if x.worst or x.ulps else "0")


def bias(found: Found) -> str:
    """Signed mean error of device and model."""
    columns = [(draw, steps) for draw, steps in COLUMNS
               if draw in ("normal", "uniform", "wide", "accumulator")]  # fmt: skip
    return _table(found, lambda x: f"{_number(x.device_bias)} / {_number(x.bias)}", columns)


@dataclass
class Whole:
    """Of a form, what has the device's bits to the last.

    Attributes
    ----------
    good, cases : int
        Of the cases, by the digest of their results.
    results : int
        Of the cases whose bits are on record in part.
    products, summed : int
        Of the products on record by a checksum.
    """

    good: int = 0
    cases: int = 0
    results: int = 0
    products: int = 0
    summed: int = 0

    def add(self, case: Case, agrees: bool, products: int) -> None:
        self.good += agrees
        self.cases += 1
        if case.times == 1:
            self.results += case.count * case.form.m * case.form.n
        else:
            self.products += products
            self.summed += case.count


def whole(plain: dict[Form, Whole], model: dict[Form, Whole]) -> str:
    """Cases, and products on record by a checksum, that agree to the last bit, of both arithmetics."""
    head = ["instruction", "cases", "f32", "hopper", "products", "f32", "hopper"]
    rows = []
    for form, x in plain.items():
        y = model[form]
        products = [str(n) for n in (x.summed, x.products, y.products)] if x.summed else [""] * 3
        rows.append([form.name, str(x.cases), str(x.good), str(y.good), *products])
    total = [sum(n) for n in zip(*((x.cases, x.good, model[f].good, x.summed, x.products,
             model[f].products) for f, x in plain.items()), strict=True)]  # fmt: skip
    return markdown(head, [*rows, ["all", *map(str, total)]])
