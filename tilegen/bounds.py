"""The one documented place for how far a result may lie from the exact one.

With ``u`` the unit round-off of a type and products of the *rounded* operands taken exactly::

    |D - ref| <= c(K) * u_acc * (|alpha| |A|·|B| + |beta| |C|) + u_out * |ref| + tiny

before the epilogue; each epilogue step scales or adds to the bound as its own derivative does.

``fma``: every product is rounded at most once and every partial sum once, so c(K) = K + 4: K
additions (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1, to first order),
one rounding each for alpha, beta, their sum and a multiply-add that is not fused.

``mma``: a matrix instruction cuts products and sum off toward zero, a bit or more below the largest
of them, and cuts the result off to f32 (docs/matrix-arithmetic.md): each of the K products and each
of the K / 4 sums at most (no instruction is less deep) loses 2 u of the largest, so
c(K) = 2 (K + K / 4) + 4. ``mma_f16``: as it sums in f16, rounded once an instruction; each sum has an
error of u, and what is cut off below 25 bits vanishes beside it: c(K) = K + 4 with u of f16.
"""

from __future__ import annotations

from collections.abc import Callable

GROWTH: dict[str, Callable[[int], float]] = {
    "fma": lambda k: k + 4.0,
    "mma": lambda k: 2.5 * k + 4.0,
    "mma_f16": lambda k: k + 4.0,
}
# Rounding is called biased where the mean over the problems of their mean signed errors lies this
# many of its standard errors from zero, and further than the floor (both as shares of the bound).
BIAS_SIGMAS = 6.0
BIAS_FLOOR = 0.002


def growth(family: str, k: int) -> float:
    """c(K) of an instruction family."""
    return GROWTH[family](k)
