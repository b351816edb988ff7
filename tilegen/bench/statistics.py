"""Medians, spreads and means of ratios: what a report says of its samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Samples in short: the median, and between which values the middle four fifths lie."""

    median: float
    p10: float
    p90: float
    count: int

    @property
    def spread(self) -> float:
        """(p90 - p10) / median; 0 where the median is 0."""
        return (self.p90 - self.p10) / self.median if self.median else 0.0


def quantile(samples: Sequence[float], share: float) -> float:
    """Linear between order statistics, as NumPy's default."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(samples: Sequence[float]) -> Summary:
    """Raises ``ValueError`` where there are none."""
    if not samples:
        raise ValueError("no samples")
    median, p10, p90 = (quantile(samples, share) for share in (0.5, 0.1, 0.9))
    return Summary(median, p10, p90, len(samples))


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of positive numbers; raises ``ValueError`` where there are none, or one is not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs positive numbers")
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
