"""The bench: variants and peer libraries on the same data in one interleaved run, against the floor."""

from __future__ import annotations

from tilegen.bench.cases import SUITES, Case, drawn, element_types, parse_shapes, suite
from tilegen.bench.report import BenchReport, CaseResult, ClassSummary, Measurement
from tilegen.bench.run import run

__all__ = [
    "SUITES",
    "BenchReport",
    "Case",
    "CaseResult",
    "ClassSummary",
    "Measurement",
    "drawn",
    "element_types",
    "parse_shapes",
    "run",
    "suite",
]
