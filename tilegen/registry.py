"""Which backends there are: names without importing them, one backend by importing it alone."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from tilegen.backend import Backend
from tilegen.errors import BackendError

GROUP = "tilegen.backends"
_added: dict[str, Backend] = {}


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """The names of all registered backends; imports none."""
    return sorted({*_points(), *_added})


def installed() -> list[str]:
    """The names of the backends that any process of this installation finds; imports none."""
    return sorted({*_points()} - {*_added})


def register(backend: Backend) -> None:
    """Register a backend for this process only; an installed plug-in uses the entry point."""
    _added[backend.name] = backend


@cache
def _load(name: str) -> Backend:
    try:
        return cast(Backend, _points()[name].load())
    except ImportError as error:
        raise BackendError(f"backend {name!r} cannot be imported: {error}") from error


def get(name: str) -> Backend:
    """The backend with this name.

    Raises
    ------
    BackendError
        If there is none; the message names the nearest one, or all.
    """
    if not isinstance(name, str):
        raise BackendError(f"a backend's name is needed, not {type(name).__name__}")
    if name in _added:
        return _added[name]
    if name not in _points():
        near = get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"registered: {', '.join(names())}"
        raise BackendError(f"there is no backend {name!r}; {hint}")
    return _load(name)
