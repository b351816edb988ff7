"""Calls that a kernel has made before on arrays of the same kind: what is left to do is to launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegen.backend import Loaded, Session, reach
from tilegen.launch import Call, Choice, Step
from tilegen.plan import Argument, Entry

# The order of a glance; scalars follow.
ARRAYS = ("a", "b", "c", "bias", "scale", "residual", "d")
C, D = ARRAYS.index("c"), ARRAYS.index("d")
SOURCES = {name: place for place, name in enumerate((*ARRAYS, "alpha", "beta"))}
# Places of one call's arrays within an alignment that are remembered; then it starts again.
REMEMBERED = 256


class _Launch(NamedTuple):
    """One step: its values, and which of them come from the call's arrays, scalars and workspace."""

    entry: Entry
    grid: int
    values: list[Any]
    sources: list[tuple[int, int]]
    regions: list[tuple[int, int, int, str]]


class _Input(NamedTuple):
    """An input that D may share memory with: the bytes it reaches from its first element on."""

    place: int
    low: int
    high: int
    may_be_d: bool


class Recalled:
    """One kind of call: the same types, shapes, strides and operands, at whatever addresses.

    Parameters
    ----------
    call : Call
        One that passed every check.
    given : sequence
        Its arrays in the order of :data:`ARRAYS`, ``None`` where one was not given.
    boundary : int
        The least common multiple of the alignments that entries ask for.
    """

    def __init__(self, call: Call, given: Sequence[Any], boundary: int) -> None:
        self._boundary, self._makes_d = boundary, given[D] is None
        self.shape = call.fit.shape
        self._choices: dict[tuple[int, ...], tuple[int, list[_Launch]]] = {}
        spans = {}
        for name, operand in call.operands.items():
            spans[name] = reach(0, operand.shape, operand.strides, operand.dtype.itemsize)
        out = call.operands["d"]
        self._out = spans["d"]
        self._inputs = [
            _Input(
                SOURCES[name],
                *spans[name],
                name in ("c", "residual")
                and call.fit.strides[name] == call.fit.strides["d"]
                and (operand.shape, operand.dtype.itemsize) == (out.shape, out.dtype.itemsize),
            )
            for name, operand in call.operands.items()
            if name != "d" and given[SOURCES[name]] is not None
        ]

    def known(self, addresses: list[int]) -> tuple[int, list[_Launch]] | None:
        """What is launched on arrays at these addresses; ``None`` where that is still to be found.

        A call whose D may share elements with an input is not known either: its elements are looked at.
        """
        if not self._makes_d:
            at = addresses[D]
            low, high = at + self._out[0], at + self._out[1]
            for place, start, end, may_be_d in self._inputs:
                address = addresses[place]
                overlaps = address + start < high and low < address + end
                if overlaps and not (may_be_d and address == at):
                    return None
        boundary = self._boundary
        return self._choices.get(tuple([address % boundary for address in addresses]))

    def add(self, addresses: list[int], choice: Choice) -> None:
        """Remember what a call on arrays at these addresses launched."""
        if len(self._choices) >= REMEMBERED:
            self._choices.clear()
        key = tuple([address % self._boundary for address in addresses])
        self._choices[key] = choice.workspace, [_launch(step) for step in choice.steps]


def can_recall(choice: Choice) -> bool:
    """Whether all arguments of a choice are addresses, scalars, regions, and what shapes decide."""
    kinds = {argument.kind for step in choice.steps for _, argument in step.late}
    return kinds <= {"scalar", "input", "output", "workspace"}


def run(
    loaded: Loaded,
    known: tuple[int, list[_Launch]],
    sources: list[Any],
    session: Session,
) -> None:
    """Launch what is known.

    Parameters
    ----------
    sources : list
        Addresses in the order of :data:`ARRAYS`, then alpha and beta as the kernel takes them.
    """
    size, launches = known
    space = session.workspace(size) if size else None
    stream = session.stream
    for entry, grid, template, late, regions in launches:
        values = template.copy()
        for place, source in late:
            values[place] = sources[source]
        if space is not None:
            for place, offset, length, element in regions:
                values[place] = space.region(offset, length, element)
        loaded.launch(entry, grid, list(zip(entry.arguments, values, strict=True)), stream)


def _launch(step: Step) -> _Launch:
    sources, regions = [], []
    for place, argument in step.late:
        if argument.kind == "workspace":
            offset, size = step.values[place]
            regions.append((place, offset, size, argument.type))
        else:
            sources.append((place, SOURCES[_source(argument)]))
    return _Launch(step.entry, step.grid, step.values, sources, regions)


def _source(argument: Argument) -> str:
    return argument.name if argument.kind == "scalar" else argument.operand
