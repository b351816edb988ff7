"""What the warps of a launch ask of memory, line by line, as the counting run saw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# As in ``runtime/tg_job.hpp`` and ``tg_races.hpp``.
_SITE_IS_LINE = 1 << 31
_WRITES, _GLOBAL, _NO_ARGUMENT = 1, 2, (1 << 32) - 1


@dataclass(frozen=True)
class BankUse:
    """How one line of the text uses the banks of shared memory.

    Attributes
    ----------
    phases : int
        Groups of lanes that the hardware serves together: a warp's 4-byte accesses are one, its
        8-byte accesses two, its 16-byte accesses four.
    conflicts : int
        Cycles beyond one a phase.
    """

    phases: int
    conflicts: int


@dataclass(frozen=True)
class AccessUse:
    """The accesses of one line to one memory, in one direction.

    Attributes
    ----------
    line : int
        Of the text; 0 where it is not known.
    space : str
        ``"shared"`` or ``"global"``.
    writes : bool
    argument : int or None
        Position of the array; of shared memory that an asynchronous copy fills, of the copy's source.
    accesses : int
        Of warps.
    bytes : int
        That all lanes asked for together.
    served : int
        Shared: phases. Global: sectors of 32 bytes, each counted once for each access.
    extra : int
        Shared: cycles beyond one a phase. Global: sectors beyond the fewest that hold the bytes.
    span : (int, int)
        Shared: the first byte of the block's window that was touched, and the one behind the last.
    """

    line: int
    space: str
    writes: bool
    argument: int | None
    accesses: int
    bytes: int
    served: int
    extra: int
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RawAccess:
    """Accesses from one place of the text, by the fields of the child's ``AccessSite``."""

    line: int
    address: int
    space: str
    writes: bool
    argument: int | None
    accesses: int
    bytes: int
    served: int
    extra: int
    low: int
    high: int


def raw_access(site: int, kind: int, argument: int, _: int, *numbers: int) -> RawAccess:
    """One record of the child's."""
    by_line = bool(site & _SITE_IS_LINE)
    return RawAccess(
        site - _SITE_IS_LINE if by_line else 0,
        0 if by_line else site,
        "global" if kind & _GLOBAL else "shared",
        bool(kind & _WRITES),
        None if argument == _NO_ARGUMENT else argument,
        *numbers,
    )


def uses_of(raw: Iterable[RawAccess], lines: Mapping[int, int]) -> tuple[AccessUse, ...]:
    """The child's records, each with its line.

    Parameters
    ----------
    lines : mapping
        Address in the program to line of the text.
    """
    out = []
    for one in raw:
        line = one.line or lines.get(one.address - 1, 0)
        span = (one.low, one.high) if one.space == "shared" else (0, 0)
        out.append(
            AccessUse(
                line, one.space, one.writes, one.argument,
                one.accesses, one.bytes, one.served, one.extra, span,
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda use: (use.line, use.space, use.writes)))


def banks_of(uses: Iterable[AccessUse]) -> dict[int, BankUse]:
    """Line to how it uses the banks of shared memory."""
    out: dict[int, BankUse] = {}
    for use in uses:
        if use.space == "shared":
            known = out.get(use.line, BankUse(0, 0))
            out[use.line] = BankUse(known.phases + use.served, known.conflicts + use.extra)
    return out
