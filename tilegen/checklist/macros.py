"""The nearest numbers of a foreign kernel that pass: its macros, and the arguments of its template."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from tilegen.checklist.lines import Suggestion

# Compiled at most; a kernel takes a fraction of a second, but a minute where it spills without end.
MOST_COMPILED, MOST_SECONDS = 24, 60.0
FACTORS = (0.5, 2.0, 0.25, 4.0)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")

# Each number is a macro's name, or the place of a template's argument.
Numbers = dict[str | int, int]
Passes = Callable[[str, Sequence[str]], bool]


def nearest_macros(entry: str, defines: Sequence[str], passes: Passes) -> Suggestion | None:
    """Halve and double the numbers that a kernel is made with, the smallest change first.

    Returns
    -------
    Suggestion or None
        ``None`` where there is no number to change.
    """
    now = numbers_of(entry, defines)
    if not now:
        return None
    tried, end = 0, time.monotonic() + MOST_SECONDS
    for change in changes(now):
        if tried == MOST_COMPILED or time.monotonic() > end:
            break
        tried += 1
        other, macros = changed(entry, defines, change)
        if passes(other, macros):
            told: dict[str, object] = {k: v for k, v in change.items() if isinstance(k, str)}
            return Suggestion({**told, **({"entry": other} if other != entry else {})}, tried)
    return Suggestion({}, tried)


def numbers_of(entry: str, defines: Sequence[str]) -> Numbers:
    """The whole numbers among macros and template arguments."""
    out: Numbers = {}
    _, opened, arguments = entry.partition("<")
    if opened:
        out |= {i: int(m[0]) for i, m in enumerate(_NUMBER.finditer(arguments))}
    for define in defines:
        name, _, value = define.partition("=")
        if value.isdigit():
            out[name] = int(value)
    return out


def changes(now: Numbers) -> Iterator[Numbers]:
    """One number halved or doubled, then two, then by more."""
    singles = [
        (abs(f - 1.0) if f > 1 else 1 / f - 1, {key: int(value * f)})
        for f in FACTORS
        for key, value in now.items()
        if value * f >= 1 and (value * f).is_integer()
    ]
    doubles = [
        (d1 + d2, {**one, **two})
        for (i, (d1, one)), (j, (d2, two)) in product(enumerate(singles), repeat=2)
        if i < j and not set(one) & set(two)
    ]
    for _, change in sorted((*singles, *doubles), key=lambda c: (c[0], len(c[1]))):
        yield change


def changed(entry: str, defines: Sequence[str], change: Numbers) -> tuple[str, list[str]]:
    """Instance and macros with the numbers of a change."""
    name, opened, arguments = entry.partition("<")
    places = iter(range(arguments.count("") if opened else 0))
    told = _NUMBER.sub(lambda m: str(change.get(next(places), m[0])), arguments) if opened else ""
    macros = []
    for define in defines:
        macro, _, _ = define.partition("=")
        macros.append(f"{macro}={change[macro]}" if macro in change else define)
    return f"{name}{opened}{told}", macros
