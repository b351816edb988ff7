"""The floor: no kernel is done before its operations and its bytes can be, at the rates measured."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.backend import Ceiling
from tilegen.bench.cases import Case
from tilegen.dtypes import DTYPES


@dataclass(frozen=True)
class Floor:
    """Seconds that a product takes at least, and which ceiling says so.

    Attributes
    ----------
    seconds : float
    bound : str
        ``"FLOP"`` or ``"bytes"``.
    """

    seconds: float
    bound: str


def traffic(case: Case) -> int:
    """Bytes: A and B read once, D written once (beta is 0, so C is not read)."""
    t = case.types
    a, b, d = (DTYPES[name].bytes for name in (t.a, t.b, t.d))
    return case.m * case.k * a + case.k * case.n * b + case.m * case.n * d


def floor(case: Case, peak: Ceiling | None, bandwidth: Ceiling | None) -> Floor | None:
    """max(FLOP / peak, bytes / bandwidth); ``None`` unless both ceilings are known."""
    if peak is None or bandwidth is None:
        return None
    compute, memory = case.flop / peak.rate, traffic(case) / bandwidth.rate
    return Floor(compute, "FLOP") if compute >= memory else Floor(memory, "bytes")
