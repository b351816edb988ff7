"""Calls that a kernel has made before on arrays of the same kind: what is left to do is to launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tilegen.backend import Glancing, Repeating, Session, reach
from tilegen.launch import Call, Choice, Step

# The order of a glance; scalars follow, then a launch's regions of the workspace.
ARRAYS = ("a", "b", "c", "bias", "scale", "residual", "d")
C, D = ARRAYS.index("c"), ARRAYS.index("d")
SOURCES = {name: place for place, name in enumerate((*ARRAYS, "alpha", "beta"))}
# Places of one call's arrays within an alignment that are remembered; then it starts again.
REMEMBERED = 256


class Known(NamedTuple):
    """What is launched: bytes of workspace, and each launch with what picks its values."""

    workspace: int
    launches: list[_Launch]


class _Launch(NamedTuple):
    launch: Callable[[Sequence[Any], Any], Any]
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    regions: list[tuple[int, int, str]]


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
    make : callable
        Of the stream: a new D and its address.
    """

    __slots__ = (
        "_aligned", "_boundary", "_choices", "_high", "_inputs", "_latest", "_low", "_makes_d", "_mask",
        "make", "session",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        given: Sequence[Any],
        boundary: int,
        make: Callable[[Any], tuple[Any, int]],
    ) -> None:
        self.session, self.make = call.session, make
        self._boundary, self._makes_d = boundary, given[D] is None
        # All aligned shows in one test, where the boundary is a power of two.
        self._mask = boundary - 1 if boundary & (boundary - 1) == 0 else -1
        self._aligned: Known | None = None
        self._choices: dict[tuple[int, ...], Known] = {}
        self._latest: tuple[list[int], Known | None] = ([], None)
        spans = {
            name: reach(0, o.shape, o.strides, o.dtype.itemsize)
            for name, o in call.operands.items()
        }
        out, strides = call.operands["d"], call.fit.strides
        self._low, self._high = spans["d"]
        # The bytes that each input reaches from its first element on; some may be D as a whole.
        self._inputs = [
            (
                SOURCES[name],
                *spans[name],
                name in ("c", "residual")
                and strides[name] == strides["d"]
                and (operand.shape, operand.dtype.itemsize) == (out.shape, out.dtype.itemsize),
            )
            for name, operand in call.operands.items()
            if name != "d" and given[SOURCES[name]] is not None
        ]

    def known(self, addresses: list[int]) -> Known | None:
        """What is launched on arrays at these addresses; ``None`` where that is still to be found.

        A call whose D may share elements with an input is not known either: its elements are looked at.
        """
        # Loops come back with the same arrays.
        before, found = self._latest
        if addresses == before:
            return found
        found = self._looked_up(addresses)
        if found is not None:
            self._latest = addresses.copy(), found
        return found

    def _looked_up(self, addresses: list[int]) -> Known | None:
        if not self._makes_d:
            at = addresses[D]
            low, high = at + self._low, at + self._high
            for place, start, end, may_be_d in self._inputs:
                address = addresses[place]
                overlaps = address + start < high and low < address + end
                if overlaps and not (may_be_d and address == at):
                    return None
        a, b, c, bias, scale, residual, d = addresses
        if not (a | b | c | bias | scale | residual | d) & self._mask:
            return self._aligned
        return self._choices.get(self._place(addresses))

    def add(self, addresses: list[int], choice: Choice, loaded: Repeating) -> None:
        """Remember what a call on arrays at these addresses launched."""
        known = Known(choice.workspace, [_launch(step, loaded) for step in choice.steps])
        place = self._place(addresses)
        if not any(place):
            self._aligned = known
        if len(self._choices) >= REMEMBERED:
            self._choices.clear()
        self._choices[place] = known

    def _place(self, addresses: list[int]) -> tuple[int, ...]:
        boundary = self._boundary
        return tuple([address % boundary for address in addresses])


def can_recall(choice: Choice) -> bool:
    """Whether all arguments of a choice are addresses, scalars, regions, and what shapes decide."""
    kinds = {argument.kind for step in choice.steps for _, argument in step.late}
    return kinds <= {"scalar", "input", "output", "workspace"}


def in_workspace(
    known: Known, sources: list[Any], glancing: Glancing, earlier: Session, stream: Any
) -> None:
    """Launch what needs a workspace.

    Parameters
    ----------
    sources : list
        Addresses in the order of :data:`ARRAYS`, then alpha and beta as the kernel takes them.
    """
    space = glancing.session_like(earlier, stream).workspace(known.workspace, kept=False)
    for launch, pick, regions in known.launches:
        launch(pick([*sources, *[space.region(*region) for region in regions]]), stream)


def _launch(step: Step, loaded: Repeating) -> _Launch:
    places: list[int] = []
    sources: list[int] = []
    regions: list[tuple[int, int, str]] = []
    for place, argument in step.late:
        places.append(place)
        if argument.kind == "workspace":
            sources.append(len(SOURCES) + len(regions))
            regions.append((*step.values[place], argument.type))
        else:
            name = argument.name if argument.kind == "scalar" else argument.operand
            sources.append(SOURCES[name])
    values = [0 if place in places else value for place, value in enumerate(step.values)]
    arguments = list(zip(step.entry.arguments, values, strict=True))
    return _Launch(
        loaded.repeat(step.entry, step.grid, arguments, places), _picking(sources), regions
    )


def _picking(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda sources: [sources[place] for place in places]
