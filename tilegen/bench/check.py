"""No wrong product is timed: the kernel against a reference on a sample, each peer against the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.bench.cases import Case
from tilegen.bounds import growth
from tilegen.dtypes import DTYPES
from tilegen.errors import VerifyError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = 24


def check_sample(
    case: Case, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], family: str, who: str, seed: int
) -> None:
    """Compare D with a float64 product on the crossing of a few rows and columns.

    Raises
    ------
    VerifyError
        For the first element outside ``tilegen.bounds``; integers must be exact.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(case.m, min(case.m, SAMPLE), replace=False))
    cols = np.sort(rng.choice(case.n, min(case.n, SAMPLE), replace=False))
    left, right = a[rows].astype(np.float64), b[:, cols].astype(np.float64)
    want, got = left @ right, d[np.ix_(rows, cols)].astype(np.float64)
    bound = _bound(case, np.abs(left) @ np.abs(right), want, family, case.types.acc)
    _refuse_first(~(np.abs(got - _saturated(case, want)) <= bound), got, want, rows, cols, who)


def check_against(
    case: Case, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], peer: NDArray[Any],
    family: str, who: str, acc: str,
) -> None:  # fmt: skip
    """Compare every element of a peer's D with the kernel's: both may lie the bound away.

    ``acc`` is what the peer sums in, where that is narrower than the kernel's accumulator.

    The sum of |a||b| is bounded by the norms of row and column (Cauchy-Schwarz), so that the
    check costs no second product.
    """
    rows = np.sqrt(np.einsum("ik,ik->i", *_twice(a)))
    cols = np.sqrt(np.einsum("kj,kj->j", *_twice(b)))
    got, want = peer.astype(np.float64), d.astype(np.float64)
    bound = 2 * _bound(case, np.outer(rows, cols), want, family, acc)
    everywhere = (np.arange(case.m), np.arange(case.n))
    _refuse_first(~(np.abs(got - want) <= bound), got, want, *everywhere, who)


def _twice(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    wide = x.astype(np.float64)
    return wide, wide


def _saturated(case: Case, want: NDArray[Any]) -> NDArray[Any]:
    kind = DTYPES[case.types.d]
    return want if kind.is_float else np.clip(want, -kind.largest - 1, kind.largest)


def _bound(
    case: Case, absolute: NDArray[Any], want: NDArray[Any], family: str, acc: str
) -> NDArray[Any]:
    out = DTYPES[case.types.d]
    bound: NDArray[Any] = growth(family, case.k) * DTYPES[acc].roundoff * absolute
    bound += out.roundoff * np.abs(want)
    return bound


def _refuse_first(
    wrong: NDArray[Any], got: NDArray[Any], want: NDArray[Any],
    rows: NDArray[Any], cols: NDArray[Any], who: str,
) -> None:  # fmt: skip
    if not wrong.any():
        return
    i, j = (int(x) for x in np.argwhere(wrong)[0])
    row, col = int(rows[i]), int(cols[j])
    raise VerifyError(
        f"{who}: D[{row}, {col}] is {got[i, j]:.9g} and {want[i, j]:.9g} is right; it is not timed",
        row=row, col=col, got=float(got[i, j]), want=float(want[i, j]),
    )  # fmt: skip
