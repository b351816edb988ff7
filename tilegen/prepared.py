"""A call with everything decided: the arrays, the entry and the arguments; what is left is to queue it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilegen.backend import Loaded, Session
from tilegen.errors import LaunchError
from tilegen.plan import Argument, Entry

# One entry's launch: the entry, its blocks, its arguments with their values.
Part = tuple[Entry, int, list[tuple[Argument, Any]]]


@dataclass(frozen=True)
class PreparedLaunch:
    """A resolved call: a call of it queues the same launches on the same memory.

    Attributes
    ----------
    entries : tuple of str
        Which entries it launches, in order; none where D has no elements.
    result : array
        D.
    """

    entries: tuple[str, ...]
    launches: tuple[Callable[[], Any], ...] = field(repr=False)
    session: Session = field(repr=False)
    result: Any = field(repr=False)
    keep: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, loaded: Loaded, parts: list[Part], session: Session, result: Any, keep: Any,
        once: bool = False,
    ) -> PreparedLaunch:  # fmt: skip
        """Prepared by the backend's own ``prepare``, if it has one and more than one call follows."""
        make: Callable[..., Callable[[], Any]] = partial(partial, loaded.launch)
        if not once:
            make = getattr(loaded, "prepare", make)
        launches = tuple(make(*part, session.stream) for part in parts)
        # Drivers do not keep what an argument points to alive.
        return cls(tuple(p[0].name for p in parts), launches, session, result, (parts, keep))

    def __call__(self) -> list[Any]:
        """Queue it; what the backend returns of each launch (an event, or ``None``)."""
        return [launch() for launch in self.launches]

    def finish(self) -> Any:
        """D, brought back to where the caller's array is; waits only if it must."""
        self.session.finish()
        return self.result


def call_options(given: dict[str, Any]) -> list[Any]:
    """The options of a call in the order in which the kernel resolves them, defaults filled in."""
    defaults = {"alpha": 1, "beta": 0}
    names = ("alpha", "beta", "bias", "scale", "residual", "out", "stream")
    if unknown := [name for name in given if name not in names]:
        raise LaunchError(f"unknown argument {unknown[0]!r}")
    return [given.get(name, defaults.get(name)) for name in names]
