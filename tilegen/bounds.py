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
# A mean signed error over n elements, in units of the largest bound, above which the rounding is
# biased: the elements' errors are independent and each is under its bound, so 6 standard
# deviations of a mean are 6 / sqrt(n) of it.
BIAS_SIGMAS = 6.0


def growth(family: str, k: int) -> float:
    """c(K) of an instruction family."""
    return GROWTH[family](k)
