"""A sweep as text: what all points share, one line a point, what was refused."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from .points import shown
from .rows import LOWERED, Row, Sweep

WIDTH = 150
STACK, PRIVATE, SECONDS = "stack\nbytes", "private\nbytes", "compiled\nin s"
LOAD, BYTE, SHARED, LIMIT = "FLOP a\nload", "FLOP a\nbyte", "shared\nbytes", "\nlimit"
BLOCKS, OCCUPANCY, BOUND = "blocks\n(planned)", "occupancy", "bound by"
LEAST_FIRST = (SECONDS, STACK, BYTE, LOAD, "threads", BOUND, PRIVATE, SHARED, LIMIT, BLOCKS)
Cell = Callable[[Row], str]


def text(found: Sweep, width: int = WIDTH, refused: bool = False) -> str:
    """The whole result, plain, as ``tilegen sweep`` prints it.

    Parameters
    ----------
    width : int
        Of the terminal.
    refused : bool
        Whether each refused point is listed, and not only counted.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    out = StringIO()
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    columns = _columns(found)
    cells = {name: [cell(row) for row in found.rows] for name, cell in columns}
    left_out = _left_out(cells, width)
    for name in left_out:
        del cells[name]
    for name in cells:
        table.add_column(name, justify="right", no_wrap=True)
    for line in zip(*cells.values(), strict=True):
        table.add_row(*line)
    console = Console(file=out, width=max(width, WIDTH), highlight=False, color_system=None)
    console.print("\n".join(_head(found)), markup=False, soft_wrap=True)
    console.print(table)
    if left_out:
        names = ", ".join(" ".join(name.split()) for name in left_out)
        console.print(f"columns left out in {width} characters: {names}", soft_wrap=True)
    console.print("\n".join(_tail(found, refused)), markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _left_out(cells: dict[str, list[str]], width: int) -> list[str]:
    """The columns that have no room, those that are missed the least first."""

    def room(name: str) -> int:
        # Box and padding take two characters a column.
        return 2 + max(len(line) for line in (*name.split("\n"), *cells[name]))

    total = sum(map(room, cells))
    out = []
    for name in LEAST_FIRST:
        if total <= width:
            break
        if name in cells:
            out.append(name)
            total -= room(name)
    return out


def _axes(found: Sweep) -> dict[str, Cell]:
    plan: dict[str, Cell] = {
        "block": lambda r: shown(r.plan.block),
        "warp": lambda r: shown(r.plan.warp),
        "thread": lambda r: shown(r.plan.thread),
        "stages": lambda r: str(r.plan.pipeline.stages),
        "split_k": lambda r: str(r.plan.split_k),
        "form": lambda r: r.plan.form,
    }
    for axis in found.axes:
        if axis not in LOWERED:
            plan[axis] = lambda r, axis=axis: shown(r.point.values[axis])  # type: ignore[misc]
    return plan


def _varies(found: Sweep, cell: Cell) -> bool:
    return len({cell(row) for row in found.rows}) > 1


def _columns(found: Sweep) -> list[tuple[str, Cell]]:
    axes = _axes(found)
    out = [(n.rpartition(".")[2], c) for n, c in axes.items() if _varies(found, c)]
    said = [row.compiled for row in found.rows if row.compiled]
    # What no compiler of this backend tells, and what is nought for all, has no column.
    told = {
        name
        for name in ("registers", "spill_bytes", "stack_bytes", "private_bytes", "seconds")
        if any(getattr(c, name) not in (None, 0) for c in said)
    }
    if any(c.registers is not None for c in said):
        told.add("spill_bytes")
    out += [
        ("threads", lambda r: str(r.plan.threads)),
        ("sums", lambda r: str(r.use.accumulators)),
        ("registers\npredicted", _predicted),
    ]
    if "registers" in told:
        out.append(("\ncompiled", lambda r: _said(r, "registers")))
    out.append((LIMIT, lambda r: str(r.use.limit)))
    for name, title in (
        ("spill_bytes", "spilled\nbytes"),
        ("stack_bytes", STACK),
        ("private_bytes", PRIVATE),
    ):
        if name in told:
            out.append((title, lambda r, name=name: _said(r, name)))  # type: ignore[misc]
    out.append((SHARED, lambda r: _both(r.plan.budget.shared_bytes, r, "shared_bytes")))
    if any(row.plan.budget.occupancy is not None for row in found.rows):
        out += [(BLOCKS, _blocks), (OCCUPANCY, _occupancy), (BOUND, _bound)]
    if any(row.plan.budget.flop_per_shared_load for row in found.rows):
        out.append((LOAD, lambda r: f"{r.plan.budget.flop_per_shared_load:.3g}"))
    out.append((BYTE, lambda r: f"{r.plan.budget.flop_per_global_byte:.3g}"))
    if "seconds" in told:
        out.append((SECONDS, _seconds))
    return out


def _predicted(row: Row) -> str:
    use = row.use
    return f"{use.predicted}{'!' if use.spills else ' at the limit' if use.at_limit else ''}"


def _said(row: Row, name: str) -> str:
    value = getattr(row.compiled, name) if row.compiled else None
    return "-" if value is None else str(value)


def _both(predicted: int | None, row: Row, name: str) -> str:
    """The compiler's number, with the prediction behind it where that is another."""
    value = getattr(row.compiled, name) if row.compiled else None
    if value is None or value == predicted:
        return "-" if predicted is None else str(predicted)
    return f"{value} ({predicted})"


def _blocks(row: Row) -> str:
    return _both(row.plan.budget.blocks_per_multiprocessor, row, "blocks_per_multiprocessor")


def _occupancy(row: Row) -> str:
    share = row.compiled.occupancy if row.compiled else None
    share = row.plan.budget.occupancy if share is None else share
    return "-" if share is None else f"{share:.0%}"


def _bound(row: Row) -> str:
    return (row.compiled.bound_by if row.compiled else "") or row.plan.budget.bound_by


def _seconds(row: Row) -> str:
    if row.compiled is None:
        return "-"
    return "cache" if row.compiled.seconds is None else f"{row.compiled.seconds:.1f}"


def _head(found: Sweep) -> list[str]:
    by = f"compiled by {found.compiler}" if found.compiler else "predicted"
    lines = [f"{found.backend} {found.arch}, {by}"]
    if found.missing:
        lines.append(f"nothing was compiled: {found.missing}")
    if found.rows:
        same = [
            f"{name.rpartition('.')[2]} {cell(found.rows[0])}"
            for name, cell in _axes(found).items()
            if not _varies(found, cell)
        ]
        lines.append(f"all points: {', '.join(same)}" if same else "")
    return [line for line in lines if line]


def _tail(found: Sweep, refused: bool) -> list[str]:
    count = len(found.rows) + len(found.refused)
    legal = sum(not row.spilling for row in found.rows)
    lines = [f"{legal} of {count} points are legal"]
    if others := len(found.rows) - legal:
        lines[0] += f", {others} more are refused only since they are predicted to spill"
    if found.refused:
        by_rule = ", ".join(f"{rule} {number}" for rule, number in found.refusals().items())
        lines[0] += f"; refused: {by_rule}"
    said = [row.compiled for row in found.rows if row.compiled]
    cached = sum(c.seconds is None for c in said)
    spilled = sum(bool(c.spill_bytes) for c in said)
    if said:
        verb = "spills" if spilled == 1 else "spill"
        spills = f", {spilled} {verb}" if any(c.spill_bytes is not None for c in said) else ""
        lines.append(
            f"{len(said)} compiled{spills}; {cached} from the disk cache; {found.seconds:.1f} s "
            f"with {found.processes} processes"
        )
    lines += [f"failed   {row.point}: {row.error}" for row in found.failed]
    if refused:
        lines += [f"refused  {refusal.rule}: {refusal}" for refusal in found.refused]
    return lines
