"""The spill cliff: registers against accumulators, predicted and compiled, and what was spilled."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from tilegen.errors import BackendError

if TYPE_CHECKING:
    from .rows import Row, Sweep

INSTALL = "the plot needs matplotlib: python -m pip install 'tilegen[plot]'"
SUFFIXES = (".svg", ".png", ".pdf")
# Okabe and Ito's colours, which the colour-blind can tell apart; the markers differ as well.
PREDICTED, COMPILED, SPILLED = "#E69F00", "#0072B2", "#D55E00"
# Points of one number of accumulators lie beside each other: predicted to the left, compiled right.
SHIFT = 1.035


def refuse() -> None:
    """Raise what :func:`picture` would, before a long sweep has been paid for.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BackendError(INSTALL) from None


def picture(found: Sweep, kind: str) -> bytes:
    """The plot as a file's bytes.

    Parameters
    ----------
    found : Sweep
    kind : str
        ``"svg"``, ``"png"`` or ``"pdf"``.
    """
    refuse()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    told = [row for row in found.rows if row.compiled and row.compiled.registers is not None]
    spilled = [row for row in told if row.compiled and row.compiled.spill_bytes]
    figure = Figure(figsize=(8.0, 6.4 if spilled else 4.8), layout="constrained")
    if spilled:
        top, bottom = figure.subplots(2, sharex=True, height_ratios=(3, 1.2))
        _spills(bottom, told)
        last = bottom
    else:
        top = last = figure.subplots()
    _registers(top, found.rows, told, spilled)
    _limits(top, found.rows)
    ticks = sorted({row.use.accumulators for row in found.rows})
    last.set_xscale("log", base=2)
    last.set_xticks(ticks, [str(tick) for tick in ticks], rotation=90 if len(ticks) > 12 else 0)
    last.set_xticks([], minor=True)
    last.set_xlabel("accumulators a thread (registers)")
    top.set_ylabel("registers a thread")
    most = [row.use.predicted for row in found.rows] + [row.use.limit for row in found.rows]
    top.set_ylim(0, 1.08 * max(most))
    by = f", {found.compiler}" if found.compiler else ""
    top.set_title(f"{found.backend} {found.arch}{by}: {len(found.rows)} points", fontsize=11)
    top.legend(fontsize=8, loc="upper left", framealpha=0.9)
    out = BytesIO()
    # Without the date and with names that do not change, one result is one file.
    with rc_context({"svg.hashsalt": "tilegen"}):
        figure.savefig(
            out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )
    return out.getvalue()


def _registers(axes: Any, rows: tuple[Row, ...], told: list[Row], spilled: list[Row]) -> None:
    axes.scatter(
        [row.use.accumulators / SHIFT for row in rows],
        [row.use.predicted for row in rows],
        s=26, marker="^", facecolors="none", edgecolors=PREDICTED, linewidths=1.1,
        label="predicted",
    )  # fmt: skip
    fine = [row for row in told if row not in spilled]
    for some, colour, marker, name in (
        (fine, COMPILED, "o", "compiled"),
        (spilled, SPILLED, "X", "compiled, spills"),
    ):
        if some:
            axes.scatter(
                [row.use.accumulators * SHIFT for row in some],
                [row.compiled.registers for row in some if row.compiled],
                s=28 if marker == "X" else 16, marker=marker, color=colour, alpha=0.75,
                linewidths=0, label=name,
            )  # fmt: skip
    axes.grid(alpha=0.25)


def _limits(axes: Any, rows: tuple[Row, ...]) -> None:
    """The most that a thread can have: of the arch, and less where a block has many threads."""
    limits: dict[int, set[int]] = {}
    for row in rows:
        limits.setdefault(row.use.limit, set()).add(row.plan.threads)
    for limit, threads in sorted(limits.items()):
        highest = limit == max(limits)
        axes.axhline(limit, color="0.35", linewidth=1.0, linestyle="-" if highest else ":")
        says = f"limit {limit}" if highest else f"limit {limit} in blocks of {min(threads)}"
        axes.annotate(
            says, (1.0, limit), xycoords=("axes fraction", "data"), xytext=(-3, 2),
            textcoords="offset points", ha="right", va="bottom", fontsize=7, color="0.25",
        )  # fmt: skip


def _spills(axes: Any, told: list[Row]) -> None:
    known = [row for row in told if row.compiled and row.compiled.spill_bytes is not None]
    for spills, colour, marker in ((False, COMPILED, "o"), (True, SPILLED, "X")):
        some = [r for r in known if r.compiled and bool(r.compiled.spill_bytes) == spills]
        axes.scatter(
            [row.use.accumulators * SHIFT for row in some],
            [row.compiled.spill_bytes for row in some if row.compiled],
            s=28 if spills else 16, marker=marker, color=colour, alpha=0.75, linewidths=0,
        )  # fmt: skip
    axes.set_ylabel("bytes spilled")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
