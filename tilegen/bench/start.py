"""Specs to start from, where the caller gives none."""

from __future__ import annotations

from tilegen.bench.cases import Case
from tilegen.choose import choose
from tilegen.hardware import Arch
from tilegen.spec import TileSpec


def starting_spec(case: Case, backend: str, arch: Arch) -> TileSpec:
    """The one that the backend's model expects to be the fastest; see :func:`tilegen.choose`."""
    return choose(
        (case.m, case.n, case.k), types=case.types, layout=case.layout, backend=backend, arch=arch
    )
