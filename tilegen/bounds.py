"""The one documented place for how far a result may lie from the exact one.

With ``u`` the unit round-off of a type and products of the *rounded* operands taken exactly::

    |D - ref| <= c(K) * u_acc * (|alpha| |A|·|B| + |beta| |C|) + u_out * |ref| + tiny

before the epilogue; each epilogue step scales or adds to the bound as its own derivative does.

``fma``: every product is rounded at most once and every partial sum once, so c(K) = K + 4: K
additions (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1, to first order),
one rounding each for alpha, beta, their sum and a multiply-add that is not fused.
"""

from __future__ import annotations

from collections.abc import Callable

GROWTH: dict[str, Callable[[int], float]] = {
    "fma": lambda k: k + 4.0,
}
# Rounding is called biased where the mean over the problems of their mean signed errors lies this
# many of its standard errors from zero, and further than the floor (both as shares of the bound).
BIAS_SIGMAS = 6.0
BIAS_FLOOR = 0.002


def growth(family: str, k: int) -> float:
    """c(K) of an instruction family."""
    return GROWTH[family](k)
