"""What a check says: lines of predicted, measured, limit and verdict, and the report that holds them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "FAIL", "info", "not measured"]
Value = int | float | str | None
PASS: Verdict = "pass"
FAIL: Verdict = "FAIL"
INFO: Verdict = "info"
UNMEASURED: Verdict = "not measured"


@dataclass(frozen=True)
class Line:
    """One item of the list.

    Attributes
    ----------
    item : str
        What is looked at (``"registers"``, ``"bank conflicts"``).
    where : str
        The entry, operand or role that it holds for; empty: the kernel.
    predicted, measured, limit : int, float, str or None
        From the plan; from compiler, emulator or device; what must not be exceeded. ``None``: there
        is no such number.
    unit : str
        Of all three.
    verdict : str
        ``"pass"``, ``"FAIL"``, ``"info"`` (nothing is wrong with it) or ``"not measured"``.
    note : str
        How far the prediction missed; why it was not measured and what would bring it; what to change.
    """

    item: str
    where: str = ""
    predicted: Value = None
    measured: Value = None
    limit: Value = None
    unit: str = ""
    verdict: Verdict = INFO
    note: str = ""


@dataclass(frozen=True)
class Suggestion:
    """The nearest change with which every check of the compiler's numbers passes.

    Attributes
    ----------
    changes : mapping
        Field of the spec (``"warp"``, ``"pins.cuda.min_blocks"``) or macro to its new value; ``None``
        takes a pin away. Empty: none of those tried passes.
    tried : int
        How many were compiled until this one passed.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    tried: int = 0

    def __str__(self) -> str:
        if not self.changes:
            return f"none of the {self.tried} nearest changes that were compiled passes"
        parts = [_change(name, value) for name, value in self.changes.items()]
        count = f"compiled, the {_ordinal(self.tried)} nearest tried"
        return f"nearest that passes: {' with '.join(parts)} ({count})"


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Attributes
    ----------
    name : str
        Of the kernel, or the file.
    backend, arch : str
    compiler : str
        Whose numbers these are; empty where there is none.
    lines : tuple of Line
    suggestion : Suggestion or None
        Where a check of the compiler's numbers failed.
    """

    name: str
    backend: str
    arch: str
    compiler: str
    lines: tuple[Line, ...]
    suggestion: Suggestion | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing failed; what was not measured did not."""
        return not self.failures

    @property
    def failures(self) -> tuple[Line, ...]:
        """The lines that failed."""
        return tuple(line for line in self.lines if line.verdict == FAIL)

    def find(self, item: str, where: str | None = None) -> tuple[Line, ...]:
        """The lines of one item, of one place if it is named."""
        return tuple(x for x in self.lines if x.item == item and where in (None, x.where))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        suggested = self.suggestion
        return {
            "schema": 1,
            "name": self.name,
            "backend": self.backend,
            "arch": self.arch,
            "compiler": self.compiler or None,
            "passed": self.passed,
            "lines": [asdict(line) for line in self.lines],
            "suggestion": None
            if suggested is None
            else {"changes": dict(suggested.changes), "tried": suggested.tried},
        }

    def __str__(self) -> str:
        compiler = self.compiler or "no compiler"
        head = f"{self.name}, {self.backend} {self.arch}, {compiler}"
        return "\n".join([head, *_table(self.lines), *self._tail()])

    def _tail(self) -> list[str]:
        counts = {
            v: sum(x.verdict == v for x in self.lines) for v in (PASS, FAIL, INFO, UNMEASURED)
        }
        told = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
        end = [f"{'passed' if self.passed else 'FAILED'}: {told}"]
        return [str(self.suggestion), *end] if self.suggestion else end


# Of the notes below the lines.
WIDTH = 110
HEADINGS = ("", "predicted", "measured", "limit", "verdict")


def _table(lines: Sequence[Line]) -> list[str]:
    """The lines in columns, the note of each below it."""
    rows = [HEADINGS] + [
        (
            f"{x.item}, {x.where}" if x.where else x.item,
            *(_shown(value, x.unit) for value in (x.predicted, x.measured, x.limit)),
            x.verdict,
        )
        for x in lines
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    out, before = [], ""
    for row, note in zip(rows, ["", *(line.note for line in lines)], strict=True):
        cells = zip(row, widths, strict=True)
        out.append("  " + "  ".join(f"{cell:<{width}}" for cell, width in cells).rstrip())
        # What holds for several lines in a row is said once.
        if note and note != before:
            out += textwrap.wrap(note, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
        before = note
    return out


def _shown(value: Value, unit: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    number = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{number} {unit}" if unit and unit != "%" else number + unit


def _change(name: str, value: Any) -> str:
    if value is None:
        return f"without {name}"
    return f"{name} = {list(value) if isinstance(value, tuple) else value}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(
        number % 10 if number % 100 not in (11, 12, 13) else 0, "th"
    )
    return f"{number}{ending}"
