"""What ``tilegen check`` needs of CUDA C++ beside NVRTC's resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilegen.checklist.support import Count, ForeignBinary, Profile, Support

if TYPE_CHECKING:
    from tilegen.hardware import Arch
    from tilegen.render import KernelSource

# What the compiler says where it gives up the asynchrony of wgmma (ptxas C7510 and its relatives).
SERIALIZED = "wgmma.mma_async instructions are serialized"


def count(source: KernelSource, entry: str) -> Count:
    """One block tile on the emulator."""
    from .counting import count

    return count(source, entry)


def profile(source: KernelSource, entry: str) -> Profile:
    """One launch under Nsight Compute."""
    from .profile import profile

    return profile(source, entry)


def compile_text(
    text: str, name: str, arch: Arch, kernels: Sequence[str], defines: Sequence[str]
) -> ForeignBinary:
    """A foreign text through NVRTC."""
    from .foreign import compile_text

    return compile_text(text, name, arch, kernels, defines)


def faults_of_log(log: str) -> Sequence[str]:
    """Lines of ptxas that mean a broken pipeline."""
    return [line.strip() for line in log.splitlines() if SERIALIZED in line]


def support() -> Support:
    """Counts by the emulator, profiles by Nsight Compute, foreign texts by NVRTC."""
    return Support(
        count=count,
        profile=profile,
        faults_of_log=faults_of_log,
        compile_text=compile_text,
        language="cuda",
        sector_bytes=32,
        sector_source="CUDA C++ Best Practices Guide, Coalesced Access to Global Memory: 32-byte "
        "transactions from compute capability 6.0 on",
    )
