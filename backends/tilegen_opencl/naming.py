"""The kernel's name: everything that tells it from its sisters."""

from __future__ import annotations

from dataclasses import replace

from tilegen import tiling
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.spec import TileSpec

from .types import fused


def kernel_name(spec: TileSpec, arch: Arch, fragment: str) -> str:
    """What :func:`tilegen.tiling.kernel_name` says, and how a multiply-add is rounded."""
    # The device decides between fma and mad, so two texts of one spec and arch must not share a name.
    acc = spec.types.acc
    split = DTYPES[acc].is_float and not fused(acc, arch)
    return tiling.kernel_name(spec, arch, fragment + ("_mad" if split else ""))


def as_spelled(instruction: Instruction, arch: Arch) -> Instruction:
    """The instruction under the name that the text calls it by: ``mad`` where fma is no instruction."""
    if fused(instruction.type_acc, arch):
        return instruction
    return replace(instruction, mnemonic=instruction.mnemonic.replace("fma", "mad", 1))
