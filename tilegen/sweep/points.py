"""Lists of values to the points they span: one spec for every combination."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from tilegen.errors import SpecError
from tilegen.spec import TileSpec

# Each takes some milliseconds to lower and about a second to compile.
MOST_POINTS = 100_000
_TUPLE = re.compile(r"\d+(x\d+)+")


@dataclass(frozen=True)
class Point:
    """One combination.

    Attributes
    ----------
    values : mapping
        Key of the spec (``"block"``, ``"pins.cuda.swizzle"``) to its value here.
    spec : TileSpec
    """

    values: Mapping[str, Any]
    spec: TileSpec

    def __str__(self) -> str:
        return ", ".join(f"{key} {shown(value)}" for key, value in self.values.items())


def shown(value: Any) -> str:
    """A value as the command line takes it: ``128x64``, ``xor``, ``true``."""
    if isinstance(value, (tuple, list)):
        return "x".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_values(text: str, key: str) -> list[Any]:
    """``64x64x16,128x128x16`` as a list of values.

    ``x`` joins the numbers of a tuple; whole numbers, ``true`` and ``false`` are themselves, and
    everything else is text.

    Raises
    ------
    SpecError
        For an empty value.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise SpecError(f"{key} = {text!r} holds an empty value")
    return [_value(word) for word in words]


def _value(word: str) -> Any:
    if _TUPLE.fullmatch(word):
        return tuple(map(int, word.split("x")))
    if re.fullmatch(r"-?\d{1,18}", word):
        return int(word)
    return {"true": True, "false": False}.get(word, word)


def points(spec: TileSpec, axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination of the axes' values put into a spec, the last axis the fastest.

    Parameters
    ----------
    spec : TileSpec
        Everything that no axis names.
    axes : mapping
        Key of the spec, dots for tables, to the values it takes.

    Raises
    ------
    SpecError
        For an axis without values or with one twice, for a value that no spec can have, and for
        more points than anyone waits for.
    """
    for key, values in axes.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
            raise SpecError(f"{key}: a list of values is needed, not {type(values).__name__}")
        if not values:
            raise SpecError(f"{key}: the list is empty")
        texts = [shown(value) for value in values]
        if twice := [text for text, times in Counter(texts).items() if times > 1]:
            raise SpecError(f"{key} names {twice[0]} twice")
    count = prod(len(values) for values in axes.values())
    if count > MOST_POINTS:
        raise SpecError(f"the lists span {count} points, and {MOST_POINTS} is the most")
    return list(_points(spec, axes))


def _points(spec: TileSpec, axes: Mapping[str, Sequence[Any]]) -> Iterator[Point]:
    base = spec.model_dump(exclude_unset=True)
    for table in ("types", "layout"):
        # D follows C, unless it is another one's already or has an axis of its own.
        record = getattr(spec, table)
        if f"{table}.c" in axes and record.c == record.d and "d" in base.get(table, {}):
            base[table] = {k: v for k, v in base[table].items() if k != "d"}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        data = base
        for key, value in chosen.items():
            data = _with(data, key.split("."), value, key)
        yield Point(chosen, TileSpec(**data))


def _with(data: Mapping[str, Any], path: Sequence[str], value: Any, key: str) -> dict[str, Any]:
    """The table with one value put where the path leads; the given one stays as it is."""
    first, *rest = path
    if not rest:
        return {**data, first: value}
    inner = data.get(first, {})
    if not isinstance(inner, Mapping):
        raise SpecError(f"{key}: {first} is no table of the spec")
    return {**data, first: _with(inner, rest, value, key)}
