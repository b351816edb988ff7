"""One call of a kernel, how its operands lie in memory, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values = Literal["integers", "normal", "position"]
Broadcast = Literal["none", "rows", "cols", "batch", "all"]


@dataclass(frozen=True)
class View:
    """How an operand lies in its memory.

    Attributes
    ----------
    pad : int
        Elements between the rows (columns, if column-major) beyond the operand's own.
    multiple : int
        What the leading dimension is then rounded up to a multiple of.
    offset : int
        Elements before the first one, so that its address may be unaligned.
    broadcast : str
        The axis of stride 0, if any.
    """

    pad: int = 0
    multiple: int = 1
    offset: int = 0
    broadcast: Broadcast = "none"


@dataclass(frozen=True)
class Problem:
    """One call of a kernel: sizes, scalars, values and how the operands lie in memory.

    Attributes
    ----------
    m, n, k : int
    batch : int or None
        ``None``: two-dimensional operands.
    alpha, beta : float
    values : str
        ``"integers"`` (small, so that every sum is exact), ``"normal"``, or ``"position"``: A
        holds the identity and B codes of place, so that a permutation shows.
    views : mapping
        For ``a``, ``b``, ``c``, ``d``.
    in_place : bool
        Whether D is written over C.
    poison_c : bool
        Whether C is NaN (or the largest integer) where beta is 0.
    poison_ab : bool
        Whether A and B are NaN where alpha is 0.
    specials : bool
        Whether A, B and C hold a NaN and infinities here and there.
    seed : int
    """

    m: int
    n: int
    k: int
    batch: int | None = None
    alpha: float = 1.0
    beta: float = 0.0
    values: Values = "integers"
    views: dict[str, View] = field(default_factory=dict)
    in_place: bool = False
    poison_c: bool = False
    poison_ab: bool = False
    specials: bool = False
    seed: int = 0

    def view(self, operand: str) -> View:
        return self.views.get(operand, View())


@dataclass(frozen=True)
class Outcome:
    """What one check found.

    Attributes
    ----------
    worst : float
        The largest error as a share of its bound; 0 where results must be exact.
    signed_mean : float
        The mean of error / bound, signed; 0 for exact runs.
    elements : int
    entry : str
        Which entry ran; empty where nothing was launched.
    exact : bool
        Whether every element had to be exact.
    rounding : float
        Of the bound of the element with the largest error, the share that is D's own rounding to its
        type: a right result comes as near to that as chance has it.
    """

    worst: float
    signed_mean: float
    elements: int
    entry: str
    exact: bool
    rounding: float = 0.0


@dataclass(frozen=True)
class Arrays:
    """A problem's arrays; ``guard`` is the memory that D is a view of."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any] | None
    out: NDArray[Any]
    guard: NDArray[Any]
    extras: dict[str, NDArray[Any]]


class Memory(Protocol):
    """Where the arrays of a problem are put; left out, into memory filled around with NaN."""

    def room(self, lead: int, size: int) -> tuple[NDArray[Any], int]:
        """Bytes to put an array of ``size`` bytes in, and where it starts among them.

        Its address lies ``lead`` bytes behind a multiple of 64, as far as the place allows it.
        """

    def filled(self, room: NDArray[Any], *, writes: bool) -> None:
        """The array is in the room now; only D will be written."""
