"""NVIDIA's compute capabilities as archs: limits, register file and instructions, each with its source."""

from __future__ import annotations

from dataclasses import replace

from tilegen.hardware import Arch, Instruction, RegisterFile
from tilegen.layout import FragmentLayout, Layout

from .mma_instructions import MMA_75, MMA_80, MMA_89

GUIDE = "CUDA C++ Programming Guide, table 'Technical Specifications per Compute Capability'"
PTX = "PTX ISA, Floating Point Instructions: fma"
# Beyond it a block's shared memory must be dynamic and is asked for: CUDA C++ Programming Guide,
# Compute Capabilities, 'Shared Memory'.
STATIC_SHARED_BYTES = 48 * 1024


def dynamic_bytes(shared_bytes: int) -> int:
    """What a launch must ask for: nothing, or all of it where static shared memory is too small."""
    return shared_bytes if shared_bytes > STATIC_SHARED_BYTES else 0


def scalar_fma(acc: str) -> Instruction:
    """One thread's multiply-add of one rounding."""
    one = Layout((1,), (0,))
    tile = FragmentLayout(1, 1, one, one)
    suffix, call = {"f32": ("", "fmaf"), "f64": ("_f64", "fma")}[acc]
    return Instruction(
        name=f"fma{suffix}",
        m=1,
        n=1,
        k=1,
        type_a=acc,
        type_b=acc,
        type_acc=acc,
        lanes=1,
        a=tile,
        b=tile,
        c=tile,
        mnemonic=f"{call} (fma.rn.{acc})",
        doc=PTX,
    )


SCALARS = (scalar_fma("f32"), scalar_fma("f64"))

SM_75 = Arch(
    name="sm_75",
    kind="gpu",
    lanes=32,
    max_threads=1024,
    shared_bytes=64 * 1024,
    register_files=(RegisterFile("32-bit", 32, 255, 65536, 8, parts=4),),
    instructions=(*SCALARS, *MMA_75),
    shared_per_multiprocessor=64 * 1024,
    max_threads_per_multiprocessor=1024,
    max_blocks_per_multiprocessor=16,
    max_access_bytes=16,
    sources={
        "lanes": GUIDE,
        "max_threads": GUIDE,
        "shared_bytes": GUIDE + ": what one block can opt in to",
        "register_files": GUIDE + "; given to a warp in units of 256 (8 a lane): CUDA's occupancy "
        "calculator, cuda_occupancy.h, which also divides them among four parts; the registers that "
        "ptxas allows itself with 10, 14, 18 or 24 warps are those that are left then",
        "shared_per_multiprocessor": GUIDE,
        "max_threads_per_multiprocessor": GUIDE,
        "max_blocks_per_multiprocessor": GUIDE,
        "shared_reserved_bytes": "NVIDIA Ampere, Ada and Hopper Tuning Guides, 'Shared Memory': "
        "1 KiB a block from compute capability 8.0 on",
        "max_access_bytes": "PTX ISA, Data Movement Instructions: ld of vectors of up to 16 bytes",
    },
)
SM_80 = replace(
    SM_75,
    name="sm_80",
    shared_bytes=163 * 1024,
    shared_per_multiprocessor=164 * 1024,
    max_threads_per_multiprocessor=2048,
    max_blocks_per_multiprocessor=32,
    shared_reserved_bytes=1024,
    instructions=(*SCALARS, *MMA_80),
    features=frozenset({"cp_async"}),
)
SM_86 = replace(
    SM_80,
    name="sm_86",
    shared_bytes=99 * 1024,
    shared_per_multiprocessor=100 * 1024,
    max_threads_per_multiprocessor=1536,
    max_blocks_per_multiprocessor=16,
)
SM_89 = replace(
    SM_86,
    name="sm_89",
    max_blocks_per_multiprocessor=24,
    instructions=(*SCALARS, *MMA_89),
    features=SM_86.features | {"fp8"},
)
SM_90 = replace(
    SM_80,
    name="sm_90",
    shared_bytes=227 * 1024,
    shared_per_multiprocessor=228 * 1024,
    instructions=SM_89.instructions,
    features=SM_89.features,
)
SM_90A = replace(SM_90, name="sm_90a")
SM_100 = replace(SM_90, name="sm_100")
SM_120 = replace(SM_89, name="sm_120")

# The one that most machines can be asked to run comes first.
ARCHS = {a.name: a for a in (SM_80, SM_75, SM_86, SM_89, SM_90, SM_90A, SM_100, SM_120)}
