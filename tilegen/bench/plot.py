"""A report as a picture: the rate of everyone on every case, and what the ceilings allow."""

from __future__ import annotations

from pathlib import Path

from tilegen.bench.report import BenchReport
from tilegen.errors import BackendError

INSTALL = "the plot needs matplotlib: python -m pip install 'tilegen[plot]'"


def save_plot(report: BenchReport, path: str | Path) -> None:
    """Write a PNG, SVG or PDF, by the suffix of the path.

    Raises
    ------
    BackendError
        If matplotlib is not installed, or does not know the suffix.
    """
    refuse(path)
    from matplotlib.figure import Figure

    rows = [r for r in report.results if r.variants]
    names = list(dict.fromkeys(w.name for r in rows for w in (*r.variants, *r.peers)))
    figure = Figure(figsize=(max(6.0, 1.5 + 0.45 * len(rows)), 6.0), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(names):
        found = [
            (x + 0.6 * ((index + 0.5) / len(names) - 0.5), r.case.flop, w.time)
            for x, r in enumerate(rows)
            for w in (*r.variants, *r.peers)
            if w.name == name
        ]
        rates = [flop / t.median / 1e9 for _, flop, t in found]
        low = [rate - flop / t.p90 / 1e9 for rate, (_, flop, t) in zip(rates, found, strict=True)]
        high = [flop / t.p10 / 1e9 - rate for rate, (_, flop, t) in zip(rates, found, strict=True)]
        axes.errorbar(
            [x for x, _, _ in found], rates, yerr=(low, high), fmt="o", markersize=4, label=name
        )
    for x, row in enumerate(rows):
        if row.floor:
            most = row.case.flop / row.floor.seconds / 1e9
            axes.hlines(most, x - 0.4, x + 0.4, colors="0.5")
    axes.hlines([], 0, 0, colors="0.5", label="the floor's rate")
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), [r.case.name for r in rows], rotation=90, fontsize=7)
    axes.set_ylabel("GFLOP/s, median with p10 to p90")
    axes.set_title(f"{report.device}, {report.backend} {report.arch}, {report.buffers} buffers")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def refuse(path: str | Path) -> None:
    """Raise what :func:`save_plot` would, before a long run has been paid for."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BackendError(INSTALL) from None
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BackendError(f"{path}: a plot is .png, .svg or .pdf")
