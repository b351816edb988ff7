"""The kernel's name: everything that tells it from its sisters."""

from __future__ import annotations

from dataclasses import replace

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.spec import TileSpec

from .types import fused


def kernel_name(spec: TileSpec, arch: Arch, fragment: str) -> str:
    """Name, types, majorness, tiles, stages and arch; then the digest's head for all the rest."""
    t, layout = spec.types, spec.layout
    types = t.a if len({t.a, t.b, t.acc, t.c, t.d}) == 1 else f"{t.a}_{t.b}_{t.acc}_{t.d}"
    major = "".join("n" if getattr(layout, x) == "row" else "t" for x in "abcd")
    block = "x".join(map(str, spec.block))
    warp = "x".join(map(str, spec.warp))
    # The device decides between fma and mad, so two texts of one spec and arch must not share a name.
    split = DTYPES[t.acc].is_float and not fused(t.acc, arch)
    tail = f"{fragment}{'_mad' if split else ''}_{arch.name}_{spec.digest[:8]}"
    return f"{spec.name}_{types}_{major}_b{block}_w{warp}_{tail}"


def as_spelled(instruction: Instruction, arch: Arch) -> Instruction:
    """The instruction under the name that the text calls it by: ``mad`` where fma is no instruction."""
    if fused(instruction.type_acc, arch):
        return instruction
    return replace(instruction, mnemonic=instruction.mnemonic.replace("fma", "mad", 1))
