"""OpenCL device classes as archs, and how a queried device refines them."""

from __future__ import annotations

from dataclasses import replace

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction, RegisterFile
from tilegen.layout import FragmentLayout, Layout

from .types import REGISTER_TYPES, dot_product, vector_type

SPECIFICATION = "OpenCL C 3.0 Specification, 6.15.2 (fma) and 6.3 (vector types)"
DOT_SPECIFICATION = "OpenCL C 3.0 Specification, 6.15.20 (cl_khr_integer_dot_product)"
BYTES = ("s8", "u8")


def vector_fma(width: int, acc: str = "f32") -> Instruction:
    """One work-item's multiply-add of a scalar with a vector: a tile of 1 x width x 1.

    Narrower operands are widened to the accumulation type before they reach it.
    """
    one = Layout((1,), (0,))
    row = Layout((width,), (1,))
    name = {"f32": "fma", "f64": "fma_f64_", "s32": "mad_s32_"}[acc]
    kind = vector_type(REGISTER_TYPES[acc], width)
    return Instruction(
        name=f"{name}{width}" if width > 1 else name.rstrip("_"),
        m=1,
        n=width,
        k=1,
        type_a=acc,
        type_b=acc,
        type_acc=acc,
        lanes=1,
        a=FragmentLayout(1, 1, one, one),
        b=FragmentLayout(width, 1, one, row),
        c=FragmentLayout(1, width, one, row),
        mnemonic=f"x * y + sum ({kind})" if acc == "s32" else f"fma({kind})",
        doc=SPECIFICATION,
    )


def integer_dot(a: str, b: str) -> Instruction:
    """One work-item's dot product of four bytes with four bytes, each four in a word, and a sum."""
    lane, four, one = Layout((1,), (0,)), Layout((4,), (1,)), Layout((1,), (0,))
    return Instruction(
        name="dot4_s32",
        m=1,
        n=1,
        k=4,
        type_a=a,
        type_b=b,
        type_acc="s32",
        lanes=1,
        a=FragmentLayout(1, 4, lane, four),
        b=FragmentLayout(1, 4, lane, four),
        c=FragmentLayout(1, 1, lane, one),
        mnemonic=f"{dot_product(a, b)} + sum",
        doc=DOT_SPECIFICATION,
    )


# In order of preference: the widest vector that a register holds comes first.
VECTORS = tuple(
    vector_fma(width, acc)
    for acc, widths in (("f32", (16, 8, 4, 2)), ("f64", (8, 4, 2)), ("s32", (16, 8, 4, 2)))
    for width in widths
)
SCALARS = tuple(vector_fma(1, acc) for acc in ("f32", "f64", "s32"))
# Of devices with the feature ``integer_dot``.
DOTS = tuple(integer_dot(a, b) for a in BYTES for b in BYTES)


CPU = Arch(
    name="cpu",
    kind="cpu",
    lanes=1,
    max_threads=4096,
    shared_bytes=32768,
    register_files=(RegisterFile("vector", 512, 32),),
    instructions=VECTORS,
    features=frozenset({"fast_fma", "fast_fma64", "fp64"}),
    max_access_bytes=64,
    sources={
        "register_files": "Intel 64 and IA-32 Architectures SDM vol. 1, 15.2: 32 ZMM registers",
        "max_threads": "a floor met by the CPU runtimes of Intel (8192) and PoCL (4096)",
        "shared_bytes": "OpenCL 3.0 API, table 5: CL_DEVICE_LOCAL_MEM_SIZE is at least 32 KiB",
    },
)

GPU = Arch(
    name="gpu",
    kind="gpu",
    lanes=32,
    max_threads=256,
    shared_bytes=32768,
    register_files=(RegisterFile("32-bit", 32, 255),),
    instructions=SCALARS,
    features=frozenset({"fast_fma", "fast_fma64", "fp64"}),
    max_access_bytes=16,
    sources={
        "lanes": "logical: 32 work-items that are neighbours; no sub-group is assumed",
        "max_threads": "AMD's and Intel's drivers allow 256 without a hint; others more",
        "register_files": "CUDA C++ Programming Guide, compute capabilities: 255 a thread; "
        "AMD RDNA and CDNA ISA guides: 256 VGPRs",
        "shared_bytes": "OpenCL 3.0 API, table 5: CL_DEVICE_LOCAL_MEM_SIZE is at least 32 KiB",
    },
)


def preferred(sizes: tuple[int, ...], best: int) -> tuple[int, ...]:
    """Sub-group sizes in order of preference: the best, then the smaller ones, then the larger.

    16 lanes are the size that every Intel GPU has (cl_intel_required_subgroup_size: 8, 16 and 32
    up to Xe-HPG, 16 and 32 from Xe-HPC on); on a CPU a sub-group fills one native vector.
    """
    smaller = sorted((s for s in sizes if s <= best), reverse=True)
    return (*smaller, *sorted(s for s in sizes if s > best))


def refined(
    arch: Arch,
    *,
    max_threads: int,
    shared_bytes: int,
    vector_width: int,
    features: frozenset[str],
    sub_groups: tuple[int, ...] = (),
    units: int | None = None,
) -> Arch:
    """The arch with what one device says of itself.

    Parameters
    ----------
    vector_width : int
        ``CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT``; 16 means 32 vector registers of 512 bits, less
        means 16 of ``32 * vector_width`` bits (Intel SDM vol. 1, 14.1: 16 YMM registers).
    sub_groups : tuple of int
        Sub-group sizes that a kernel can have.
    units : int
        ``CL_DEVICE_MAX_COMPUTE_UNITS``: cores or multiprocessors.
    """
    arch = replace(
        arch,
        max_threads=max_threads,
        shared_bytes=shared_bytes,
        features=features,
        multiprocessors=units,
        instructions=(*(DOTS if "integer_dot" in features else ()), *arch.instructions),
        warp_sizes=preferred(sub_groups, vector_width if arch.kind == "cpu" else 16),
    )
    if arch.kind != "cpu":
        return arch
    width = max(4, min(16, vector_width))
    file = RegisterFile("vector", 32 * width, 32 if width == 16 else 16)
    usable = tuple(i for i in arch.instructions if i.n * DTYPES[i.type_acc].bits <= 32 * width)
    return replace(arch, register_files=(file,), instructions=usable)
