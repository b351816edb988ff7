"""Which names are easily taken for one another: those that differ in one part of a pair or series."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

# Parts of names that stand for operands, axes, and the two sides of a thing.
SERIES = (
    ("a", "b", "c", "d"),
    ("A", "B"),
    ("lda", "ldb", "ldc", "ldd", "ldresidual"),
    ("m", "n"),
    ("M", "N", "K"),
    ("i", "j", "k"),
    ("row", "col"),
    ("rows", "cols"),
    ("ROW", "COL"),
    ("ROWS", "COLS"),
    ("row0", "col0"),
    ("slow", "fast"),
    ("slow0", "fast0"),
    ("first", "last"),
    ("load", "store"),
    ("alpha", "beta"),
    ("BLOCK", "WARP", "TILE"),
    ("offset", "step"),
    ("bias", "scale"),
    ("0", "1"),
    ("x", "y", "z"),
)


def sisters(name: str, known: Collection[str]) -> Iterator[str]:
    """The known names that differ from this one in one part: the next of its series first."""
    parts = re.split(r"(_)", name)
    for place, part in enumerate(parts):
        for series in SERIES:
            if part in series:
                # The next one first, round the end.
                at = series.index(part)
                for other in (*series[at + 1 :], *series[:at]):
                    changed = "".join([*parts[:place], other, *parts[place + 1 :]])
                    if changed in known:
                        yield changed
