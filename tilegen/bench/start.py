"""The spec of a case where the caller names none: the backend's choice, else a fixed tile."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilegen.bench.cases import Case
from tilegen.hardware import Arch
from tilegen.spec import TileSpec

# Until a chooser is there: the tiles that were best of those in examples/benchmarks.
FIXED = {
    "cpu": {"block": (128, 96, 256), "warp": (128, 96)},
    "gpu": {"block": (128, 128, 16), "warp": (64, 32)},
}


def starting_spec(case: Case, backend: str, arch: Arch) -> TileSpec:
    """A spec for the case's shape, types and layout."""
    if find_spec("tilegen.choose") is not None:
        chooser: Any = import_module("tilegen.choose")
        chosen: TileSpec = chooser.choose(
            (case.m, case.n, case.k),
            types=case.types,
            layout=case.layout,
            backend=backend,
            arch=arch,
        )
        return chosen
    return TileSpec(**FIXED[arch.kind], types=case.types, layout=case.layout)
