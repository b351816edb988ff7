"""The kernel's name: everything that tells it from its sisters."""

from __future__ import annotations

from tilegen.hardware import Arch
from tilegen.spec import TileSpec


def kernel_name(spec: TileSpec, arch: Arch, fragment: str) -> str:
    """Name, types, majorness, tiles, stages and arch; then the digest's head for all the rest."""
    t, layout = spec.types, spec.layout
    types = t.a if len({t.a, t.b, t.acc, t.c, t.d}) == 1 else f"{t.a}_{t.b}_{t.acc}_{t.d}"
    major = "".join("n" if getattr(layout, x) == "row" else "t" for x in "abcd")
    block = "x".join(map(str, spec.block))
    warp = "x".join(map(str, spec.warp))
    return f"{spec.name}_{types}_{major}_b{block}_w{warp}_{fragment}_{arch.name}_{spec.digest[:8]}"
