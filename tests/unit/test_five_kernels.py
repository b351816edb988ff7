"""The five kernels of docs/architecture.md as records: they fit, and their numbers agree.

``python tests/unit/test_five_kernels.py`` prints the listings that the page holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction, RegisterFile, shared_fragment
from tilegen.layout import FragmentLayout, Layout, bank_conflicts
from tilegen.lower import lower
from tilegen.plan import (
    Access,
    Argument,
    Barrier,
    Budget,
    Copy,
    Entry,
    Formula,
    Fragment,
    Fragments,
    KernelPlan,
    MatrixDescriptor,
    Ownership,
    Pipeline,
    RegisterUse,
    Role,
    SharedTile,
    TensorMap,
)
from tilegen.spec import TileSpec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
ORACLE = json.loads((ROOT / "tests" / "data" / "layouts.json").read_text(encoding="utf-8"))

CUDA_GUIDE = "CUDA C++ Programming Guide, Technical Specifications per Compute Capability"
PTX = "PTX ISA 8.5, Warp Level Matrix Multiply-Accumulate Instructions"
CDNA3 = "AMD Instinct MI300 (CDNA3) ISA guide"
APPLE = "Metal Feature Set Tables, Apple GPU families"


# ---- builders ------------------------------------------------------------------------------


def parse(text: str) -> Layout:
    """A layout from the way it is written: ``(4,8):(32,1)``."""
    shape, stride = (tuple(map(int, part.strip("()").split(","))) for part in text.split(":"))
    return Layout(shape, stride)


def fragment(rows: int, cols: int, lane: str, value: str) -> FragmentLayout:
    return FragmentLayout(rows, cols, parse(lane), parse(value))


def owned(
    part: FragmentLayout, block: tuple[int, int], counts: tuple[int, int], warps: Layout, lanes: int
) -> Ownership:
    """Fragments side by side in each warp's tile, low registers within one fragment.

    Lanes beyond a warp's (wgmma) are the fastest digits of the warp.
    """
    rows, cols = block
    place = Layout((part.rows, part.cols), (1, rows))
    lane, value = place.compose(part.lane), place.compose(part.value)
    split = next(i for i in range(len(lane.shape) + 1) if prod(lane.shape[:i]) == lanes)
    grid = Layout(counts, (part.rows, rows * part.cols))
    warp = Layout.concat(Layout(lane.shape[split:], lane.stride[split:]), warps)
    register = Layout.concat(value, grid)
    lane = Layout(lane.shape[:split], lane.stride[:split])
    copies = warp.size * lane.size * register.size // (rows * cols)
    return Ownership(rows, cols, warp.simplified(), lane, register, copies)


def sizes(*names: str, **values: str) -> list[Argument]:
    plain = [Argument(name, "i64", "size") for name in names]
    return plain + [Argument(n, "i64", "size", value=Formula(v)) for n, v in values.items()]


def scalars(*names: str) -> list[Argument]:
    return [Argument(name, "f32", "scalar") for name in names]


def array(operand: str, element: str, *, step: bool = False, batch: bool = False) -> list[Argument]:
    """A pointer with its strides; ``step`` where it may be broadcast along its unit axis."""
    kind = "output" if operand == "d" else "input"
    strides = [f"ld{operand}"]
    strides += [f"{operand}_step"] if step else []
    strides += [f"{operand}_batch_stride"] if batch else []
    rest = [Argument(name, "i64", "stride", operand) for name in strides]
    return [Argument(operand, element, kind, operand), *rest]


def access(operand: str, element: str, elements: int = 1, **more: Any) -> Access:
    """What vectors of this many elements ask: alignment and strides of whole vectors."""
    whole_vectors = {
        "alignment": elements * DTYPES[element].bytes,
        "stride_multiple": elements,
        "unit_step": elements > 1,
    }
    return Access(operand, elements, **(whole_vectors | more))


def intensity(m: int, n: int) -> float:
    """Multiplies and adds per element of an m x n outer product's operands."""
    return 2 * m * n / (m + n)


# ---- 1: OpenCL, vector fragment, f32, a CPU ------------------------------------------------


def opencl_vector_fragment() -> KernelPlan:
    row = fragment(1, 16, "(1):(0)", "(16):(1)")
    fma = Instruction(
        name="fma16", m=1, n=16, k=1, type_a="f32", type_b="f32", type_acc="f32", lanes=1,
        a=fragment(1, 1, "(1):(0)", "(1):(0)"), b=FragmentLayout(16, 1, row.lane, row.value), c=row,
        mnemonic="fma(float16)", doc="OpenCL C 3.0 Specification, 6.15.2",
    )  # fmt: skip
    arch = Arch(
        name="cpu", kind="cpu", lanes=1, max_threads=4096, shared_bytes=32768,
        register_files=(RegisterFile("vector", 512, 32),), instructions=(fma,),
        features=frozenset({"fast_fma"}), max_access_bytes=64,
        sources={
            "register_files": "Intel SDM vol. 1, 15.2: 32 ZMM registers",
            "max_threads": "the least of the CPU runtimes (PoCL)",
            "shared_bytes": "OpenCL 3.0 API, table 5: at least 32 KiB",
        },
    )  # fmt: skip
    spec = TileSpec(
        block=(96, 128, 128), warp=(48, 64), stages=1, pins={"opencl": {"fragment": (6, 4)}}
    )
    one = Layout((1,), (0,))
    arguments = sizes("M", "N", "K")
    variants = {}
    for variant, step in (("wide", False), ("narrow", True)):
        variants[variant] = [
            *arguments, *scalars("alpha"), *array("a", "f32", step=step),
            *array("b", "f32", step=step), *scalars("beta"), *array("c", "f32", step=step),
            *array("d", "f32"),
        ]  # fmt: skip
    return KernelPlan(
        spec=spec, backend="opencl", arch=arch, form="vector_fragment",
        template="vector_fragment.cl.j2", name="gemm_f32_nn_b96x128x128_w48x64_fma16_cpu",
        instruction=fma, block=spec.block, warp=spec.warp, warps=(2, 2),
        thread=(6, 64), passes=(8, 1), threads=4, split_k=1,
        fragments=Fragments(
            a=Fragment(48, 128, 1, 1, (1, 1)),
            b=Fragment(4, 128, 16, 4, (16, 1)),
            c=Fragment(48, 4, 16, 24, (1, 16)),
        ),
        ownership={
            "a": Ownership(96, 128, Layout((2, 2), (48, 0)), one, Layout((48, 128), (1, 96)), 2),
            "b": Ownership(128, 128, Layout((2, 2), (0, 64)), one, Layout((64, 128), (1, 128)), 2),
            # 64 columns of a row, 6 rows of a fragment, 8 fragments one below the other
            "c": Ownership(96, 128, Layout((2, 2), (48, 96 * 64)), one,
                           Layout((64, 6, 8), (96, 1, 6))),
        },
        shared=(),
        copies=(
            Copy("b", "global", "private", "vector_load", 16, 128 * 64 // 16, "n"),
            Copy("a", "global", "private", "vector_load", 16, 128 * 48 // 16, "k"),
        ),
        pipeline=Pipeline(1, "none", (Role("all", 4),)),
        epilogue=(),
        entries=tuple(
            Entry(
                f"gemm_{variant}", "main", variant, tuple(variants[variant]),
                tuple(
                    Access(o, 16 if variant == "wide" else 1, 4, unit_step=variant == "wide")
                    for o in "abc"
                ),
                Formula("((M + 95) / 96) * ((N + 127) / 128)"), 4,
            )
            for variant in ("wide", "narrow")
        ),
        budget=Budget(
            registers=(RegisterUse("vector", 24, 5, 0, 0, 32),),
            shared_bytes=0, shared_limit=32768, private_bytes=(128 * (48 + 64) + 48 * 64) * 4,
            flop_per_global_byte=intensity(48, 64) / 4,
        ),
        numbers={"VECTOR": 16, "ROWS": 6, "VECTORS": 4, "ROW_FRAGMENTS": 8, "COL_FRAGMENTS": 1},
    )  # fmt: skip


# ---- 2: CUDA, mma.sync, bf16, split-K, sm_80 -----------------------------------------------


def sm80() -> Arch:
    mma = Instruction(
        name="m16n8k16", m=16, n=8, k=16, type_a="bf16", type_b="bf16", type_acc="f32", lanes=32,
        a=fragment(16, 16, "(4,8):(32,1)", "(2,2,2):(16,8,128)"),
        b=fragment(8, 16, "(4,8):(16,1)", "(2,2):(8,64)"),
        c=fragment(16, 8, "(4,8):(32,1)", "(2,2):(16,8)"),
        mnemonic="mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", doc=PTX, family="mma_sync",
    )  # fmt: skip
    return Arch(
        name="sm_80", kind="gpu", lanes=32, max_threads=1024, shared_bytes=163 * 1024,
        register_files=(RegisterFile("register", 32, 255, 65536, 8),), instructions=(mma,),
        features=frozenset({"cp_async", "ldmatrix"}),
        shared_per_multiprocessor=164 * 1024, max_threads_per_multiprocessor=2048,
        max_blocks_per_multiprocessor=32, shared_reserved_bytes=1024,
        sources={
            "shared_bytes": CUDA_GUIDE,
            "register_files": f"{CUDA_GUIDE}; granularity: cuda_occupancy.h, 256 a warp",
            "shared_reserved_bytes": "CUDA Ampere Tuning Guide, 1.4.1: 1 KiB a block",
        },
    )  # fmt: skip


def cuda_mma_sync() -> KernelPlan:
    arch = sm80()
    mma = arch.instructions[0]
    spec = TileSpec(
        name="gemm", block=(128, 128, 32), warp=(64, 32), stages=3, split_k=4,
        types={"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16"}, layout={"b": "col"},
    )  # fmt: skip
    tile = {
        "rows": 128, "cols": 32, "row_stride": 32, "stages": 3, "element_bytes": 2,
        "swizzle": "xor", "swizzle_rows": 2, "swizzle_mask": 3, "vector": 8,
    }  # fmt: skip
    # 256 threads: 4 vectors of 8 cover a row of K, then 64 rows; 2 such accesses each.
    wide = fragment(128, 32, "(4,64):(1024,1)", "(8,2):(128,64)")
    single = fragment(128, 32, "(32,8):(128,1)", "(16):(8)")
    # ldmatrix.x4: the address of row l % 8 of 8x8 matrix l / 8 comes from lane l.
    rows_a = fragment(16, 16, "(16,2):(1,128)", "(8):(16)")
    rows_b = fragment(16, 16, "(8,2,2):(1,128,8)", "(8):(16)")
    partial = Argument("partial", "f32", "workspace", "d", Formula("0"))
    space = Formula("split_k * M * N * 4")

    def main(elements: int) -> Entry:
        narrow = elements == 1
        return Entry(
            f"gemm_main{2 * elements}", "main", f"main{2 * elements}",
            (
                *sizes("M", "N", "K"), *scalars("alpha"), *array("a", "bf16", step=narrow),
                *array("b", "bf16", step=narrow), partial,
            ),
            tuple(access(o, "bf16", elements) for o in "ab"),
            Formula("((M + 127) / 128) * ((N + 127) / 128) * split_k"), 256, 49152, space,
            after=("gemm_reduce",),
        )  # fmt: skip

    return KernelPlan(
        spec=spec, backend="cuda", arch=arch, form="mma_sync", template="mma_sync.cu.j2",
        name="gemm_bf16_bf16_f32_nt_b128x128x32_w64x32_m16n8k16_s3_k4_sm80", instruction=mma,
        block=spec.block, warp=spec.warp, warps=(2, 4), thread=(1, 1), passes=(1, 1),
        threads=256, split_k=4,
        fragments=Fragments(
            a=Fragment(4, 2, 8, 16, (16, 16)),
            b=Fragment(4, 2, 4, 8, (8, 16)),
            c=Fragment(4, 4, 4, 64, (16, 8)),
        ),
        ownership={
            "a": owned(mma.a, (128, 32), (4, 2), Layout((2, 4), (64, 0)), 32),
            "b": owned(mma.b, (128, 32), (4, 2), Layout((2, 4), (0, 32)), 32),
            "c": owned(mma.c, (128, 128), (4, 4), Layout((2, 4), (64, 128 * 32)), 32),
        },
        shared=(SharedTile("a", **tile), SharedTile("b", **tile, start=24576)),
        copies=(
            *(Copy(o, "global", "shared", "cp_async", 8, 2, "k", map=wide, entries=("main16",))
              for o in "ab"),
            *(Copy(o, "global", "shared", "element_load", 1, 16, "k", map=single,
                   entries=("main2",)) for o in "ab"),
            Copy("a", "shared", "register", "ldmatrix_x4", 8, 8, "k", map=rows_a),
            Copy("b", "shared", "register", "ldmatrix_x4", 8, 4, "k", map=rows_b),
            Copy("d", "register", "workspace", "vector_store", 2, 32, "n"),
        ),
        pipeline=Pipeline(3, "cp_async_group", (Role("all", 8),)),
        epilogue=(),
        entries=(
            main(8),
            main(1),
            Entry(
                "gemm_reduce", "reduce", "",
                (
                    *sizes("M", "N"), *scalars("alpha", "beta"), partial,
                    *array("c", "bf16", step=True), *array("d", "bf16"),
                ),
                (access("c", "bf16"), access("d", "bf16")),
                Formula("(M * N + 1023) / 1024"), 256, workspace=space,
            ),
        ),
        budget=Budget(
            registers=(
                RegisterUse("register", 64, 24, 0, 38, 255),
                RegisterUse("register", 4, 8, 0, 28, 255, entry="gemm_reduce"),
            ),
            shared_bytes=49152, shared_limit=163 * 1024, blocks_per_multiprocessor=2,
            occupancy=0.25, bound_by="registers", flop_per_shared_load=intensity(64, 32),
            flop_per_global_byte=intensity(128, 128) / 2,
        ),
        numbers={"SPLIT_K": 4, "REDUCE_ELEMENTS": 4},
    )  # fmt: skip


# ---- 3: HIP, MFMA, bf16, gfx942 ------------------------------------------------------------


def hip_mfma() -> KernelPlan:
    operand = fragment(32, 8, "(32,2):(1,128)", "(4):(32)")
    mfma = Instruction(
        name="mfma32x32x8", m=32, n=32, k=8, type_a="bf16", type_b="bf16", type_acc="f32", lanes=64,
        a=operand, b=operand, c=fragment(32, 32, "(32,2):(32,4)", "(4,4):(1,8)"),
        mnemonic="v_mfma_f32_32x32x8_bf16",
        doc=f"{CDNA3}, 7.1; AMD matrix instruction calculator 1.3.2", family="mfma",
    )  # fmt: skip
    arch = Arch(
        name="gfx942", kind="gpu", lanes=64, max_threads=1024, shared_bytes=65536,
        register_files=(
            RegisterFile("vgpr", 32, 512, 4 * 512 * 64, 8),
            RegisterFile("agpr", 32, 256, part_of="vgpr"),
            RegisterFile("sgpr", 32, 102, granularity=16, uniform=True),
        ),
        instructions=(mfma,), features=frozenset({"mfma"}), shared_per_multiprocessor=65536,
        max_threads_per_multiprocessor=2048,
        sources={
            "shared_bytes": f"{CDNA3}, LDS: 64 KiB, 32 banks of 4 bytes",
            "register_files": "LLVM AMDGPU Usage: 512 unified VGPRs a lane, granule 8; 102 SGPRs",
            "max_threads_per_multiprocessor": "LLVM AMDGPU: 8 waves a SIMD, 4 SIMDs a unit",
        },
    )  # fmt: skip
    spec = TileSpec(
        block=(128, 128, 32), warp=(64, 64), stages=2,
        types={"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16"}, layout={"b": "col"},
    )  # fmt: skip
    wide = fragment(128, 32, "(4,64):(1024,1)", "(8,2):(128,64)")
    single = fragment(128, 32, "(32,8):(128,1)", "(16):(8)")
    tile = {
        "rows": 128, "cols": 32, "row_stride": 36, "stages": 1, "element_bytes": 2,
        "swizzle": "pad", "alignment": 8, "store_conflicts": 4,
    }  # fmt: skip

    def main(elements: int) -> Entry:
        narrow = elements == 1
        return Entry(
            f"gemm_main{2 * elements}", "main", f"main{2 * elements}",
            (
                *sizes("M", "N", "K"), *scalars("alpha"), *array("a", "bf16", step=narrow),
                *array("b", "bf16", step=narrow), *scalars("beta"),
                *array("c", "bf16", step=True), *array("d", "bf16"),
            ),
            (*(access(o, "bf16", elements) for o in "ab"), *(access(o, "bf16") for o in "cd")),
            Formula("((M + 127) / 128) * ((N + 127) / 128)"), 256, 18432,
        )  # fmt: skip

    return KernelPlan(
        spec=spec, backend="hip", arch=arch, form="mfma", template="mfma.hip.j2",
        name="gemm_bf16_bf16_f32_nt_b128x128x32_w64x64_mfma32x32x8_s2_gfx942", instruction=mfma,
        block=spec.block, warp=spec.warp, warps=(2, 2), thread=(1, 1), passes=(1, 1),
        threads=256, split_k=1,
        fragments=Fragments(
            a=Fragment(2, 4, 4, 8, (32, 8)),
            b=Fragment(2, 4, 4, 8, (32, 8)),
            c=Fragment(2, 2, 16, 64, (32, 32)),
        ),
        ownership={
            "a": owned(mfma.a, (128, 32), (2, 4), Layout((2, 2), (64, 0)), 64),
            "b": owned(mfma.b, (128, 32), (2, 4), Layout((2, 2), (0, 64)), 64),
            "c": owned(mfma.c, (128, 128), (2, 2), Layout((2, 2), (64, 128 * 64)), 64),
        },
        shared=(SharedTile("a", **tile), SharedTile("b", **tile, start=9216)),
        copies=(
            *(Copy(o, "global", "register", "vector_load", 8, 2, "k", map=wide,
                   entries=("main16",)) for o in "ab"),
            *(Copy(o, "register", "shared", "ds_write_b64", 4, 4, "k", map=wide,
                   entries=("main16",)) for o in "ab"),
            *(Copy(o, "global", "register", "element_load", 1, 16, "k", map=single,
                   entries=("main2",)) for o in "ab"),
            *(Copy(o, "register", "shared", "ds_write_b16", 1, 16, "k", map=single,
                   entries=("main2",)) for o in "ab"),
            *(Copy(o, "shared", "register", "ds_read_b64", 4, 8, "k", map=operand) for o in "ab"),
        ),
        pipeline=Pipeline(2, "barrier", (Role("all", 4),)),
        epilogue=(),
        entries=(main(8), main(1)),
        budget=Budget(
            registers=(
                RegisterUse("vgpr", 0, 16, 16, 24, 256),
                RegisterUse("agpr", 64, 0, 0, 0, 256),
                RegisterUse("sgpr", 0, 0, 0, 48, 102),
            ),
            shared_bytes=18432, shared_limit=65536, blocks_per_multiprocessor=3,
            occupancy=0.375, bound_by="shared memory", flop_per_shared_load=intensity(64, 64),
            flop_per_global_byte=intensity(128, 128) / 2,
        ),
        numbers={"WAVES_PER_EU": 3},
        notes=("stages 2: one tile in shared memory, the next one in registers",),
    )  # fmt: skip


# ---- 4: Metal, direct, f16, apple8 ---------------------------------------------------------


def metal_direct() -> KernelPlan:
    tile = fragment(8, 8, "(2,2,2,2,2):(16,1,2,32,4)", "(2):(8)")
    simd = Instruction(
        name="simd8x8x8", m=8, n=8, k=8, type_a="f16", type_b="f16", type_acc="f32", lanes=32,
        a=tile, b=tile, c=tile, mnemonic="simdgroup_multiply_accumulate",
        doc="Metal Shading Language Specification, 6.7; lane map: MLX BaseMMAFrag::get_coord",
        family="simdgroup", opaque=True,
    )  # fmt: skip
    arch = Arch(
        name="apple8", kind="gpu", lanes=32, max_threads=1024, shared_bytes=32768,
        register_files=(RegisterFile("register", 32, 128, 208 * 1024 // 4),), instructions=(simd,),
        features=frozenset({"simdgroup_matrix"}),
        sources={
            "shared_bytes": f"{APPLE}: 32 KiB threadgroup memory",
            "max_threads": f"{APPLE}: 1024",
            "register_files": "metal-benchmarks (Turner): 208 KiB a core; applegpu (Johnson): "
            "128 of 32 bits a thread",
        },
    )  # fmt: skip
    spec = TileSpec(
        block=(64, 64, 16), warp=(32, 32), stages=1,
        types={"a": "f16", "b": "f16", "acc": "f32", "c": "f16"},
    )  # fmt: skip

    def main(variant: str) -> Entry:
        direct = variant == "direct"
        return Entry(
            f"gemm_{variant}", "main", variant,
            (
                *sizes("M", "N", "K"), *scalars("alpha"), *array("a", "f16", step=not direct),
                *array("b", "f16", step=not direct), *scalars("beta"),
                *array("c", "f16", step=True), *array("d", "f16"),
            ),
            (
                *(Access(o, 8 if direct else 1, 2, unit_step=direct) for o in "ab"),
                *(access(o, "f16") for o in "cd"),
            ),
            Formula("((M + 63) / 64) * ((N + 63) / 64)"), 128, 1024,
        )  # fmt: skip

    return KernelPlan(
        spec=spec, backend="metal", arch=arch, form="direct", template="direct.metal.j2",
        name="gemm_f16_f16_f32_nn_b64x64x16_w32x32_simd8x8x8_apple8", instruction=simd,
        block=spec.block, warp=spec.warp, warps=(2, 2), thread=(1, 1), passes=(1, 1),
        threads=128, split_k=1,
        fragments=Fragments(
            a=Fragment(4, 2, 2, 4, (8, 8)),
            b=Fragment(4, 2, 2, 4, (8, 8)),
            c=Fragment(4, 4, 2, 32, (8, 8)),
        ),
        ownership={
            "a": owned(simd.a, (64, 16), (4, 2), Layout((2, 2), (32, 0)), 32),
            "b": owned(simd.b, (64, 16), (4, 2), Layout((2, 2), (0, 32)), 32),
            "c": owned(simd.c, (64, 64), (4, 4), Layout((2, 2), (32, 64 * 32)), 32),
        },
        # 8x8 sums for each of 4 simdgroups: the epilogue's, and an edge tile's operands
        shared=(SharedTile("d", 32, 8, 8, 1, 4, contiguous="n"),),
        copies=(
            Copy("a", "global", "register", "simdgroup_load", 2, 8, "k", entries=("direct",)),
            Copy("b", "global", "register", "simdgroup_load", 2, 8, "n", entries=("direct",)),
            *(Copy(o, "global", "shared", "element_load", 1, 16, axis, entries=("guarded",))
              for o, axis in (("a", "k"), ("b", "n"))),
            Copy("d", "register", "shared", "simdgroup_store", 2, 16, "n"),
        ),
        pipeline=Pipeline(1, "none", (Role("all", 4),)),
        epilogue=(),
        entries=(main("direct"), main("guarded")),
        budget=Budget(
            registers=(RegisterUse("register", 32, 8, 0, 24, 128),),
            shared_bytes=1024, shared_limit=32768,
            flop_per_global_byte=intensity(32, 32) / 2,
        ),
        numbers={"SCRATCH": 64},
        notes=("an edge tile of the direct entry goes through the scratch, as the guarded one's do",),
    )  # fmt: skip


# ---- 5: CUDA, wgmma, bf16, TMA, sm_90a -----------------------------------------------------

PITCH = "((K + 7) / 8 * 8)"
PACKED = Formula(f"batch * (M + N) * {PITCH} * 2")
LIMIT = 2**31 - 1  # TMA's coordinates are 32-bit


def sm90a() -> Arch:
    wgmma = Instruction(
        name="m64n256k16", m=64, n=256, k=16, type_a="bf16", type_b="bf16", type_acc="f32",
        lanes=128, a=shared_fragment(64, 16, 128), b=shared_fragment(256, 16, 128),
        c=fragment(64, 256, "(4,8,4):(128,1,16)", "(2,2,32):(64,8,512)"),
        mnemonic="wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
        doc="PTX ISA 8.5, Asynchronous Warpgroup Level Matrix Instructions", family="wgmma",
        source_a="shared", source_b="shared",
    )  # fmt: skip
    return Arch(
        name="sm_90a", kind="gpu", lanes=32, max_threads=1024, shared_bytes=227 * 1024,
        register_files=(RegisterFile("register", 32, 255, 65536, 8),), instructions=(wgmma,),
        features=frozenset({"cp_async", "ldmatrix", "tma", "mbarrier", "wgmma", "setmaxnreg"}),
        shared_per_multiprocessor=228 * 1024, max_threads_per_multiprocessor=2048,
        max_blocks_per_multiprocessor=32, shared_reserved_bytes=1024, max_cluster=8,
        sources={
            "shared_bytes": CUDA_GUIDE,
            "register_files": f"{CUDA_GUIDE}; granularity: cuda_occupancy.h, 256 a warp",
            "max_cluster": "CUDA C++ Programming Guide, Thread Block Clusters: 8 is portable",
            "shared_reserved_bytes": "CUDA Hopper Tuning Guide, 1.4.2: 1 KiB a block",
        },
    )  # fmt: skip


def tensor_map(
    operand: str, rows: str, cols: str, box: tuple[int, int], packed_at: str = ""
) -> Argument:
    """A descriptor of (batch, rows, cols); onto the workspace where the operand is packed."""
    strides = (f"ld{operand}", f"{operand}_batch_stride")
    if packed_at:
        strides = (PITCH, f"{PITCH} * {rows}")
    dims = tuple(map(Formula, (cols, rows, "batch")))
    described = TensorMap(dims, tuple(map(Formula, strides)), (*box, 1), 128)
    value = Formula(packed_at) if packed_at else None
    return Argument(f"map_{operand}", "bf16", "descriptor", operand, value, described)


def cuda_wgmma() -> KernelPlan:
    arch = sm90a()
    wgmma = arch.instructions[0]
    spec = TileSpec(
        block=(128, 256, 64), warp=(16, 256), stages=4, batch="strided",
        types={"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16"}, layout={"b": "col"},
    )  # fmt: skip
    swizzled = {
        "element_bytes": 2, "swizzle": "xor", "swizzle_mask": 7, "vector": 8, "alignment": 1024,
    }  # fmt: skip
    k_major = MatrixDescriptor("k", mode=1, leading_bytes=0, stride_bytes=1024, step_bytes=32)
    rows_d = fragment(16, 16, "(16,2):(1,128)", "(8):(16)")
    second = f"batch * M * {PITCH} * 2"
    c = array("c", "bf16", step=True, batch=True)
    plain_d = array("d", "bf16", batch=True)
    free = access("c", "bf16")

    def main(variant: str, symbol: str, packed: bool, d: list[Argument], *asks: Access) -> Entry:
        return Entry(
            f"gemm_{variant}", "main", variant,
            (
                *sizes("M", "N", "K", "batch"), *scalars("alpha", "beta"),
                tensor_map("a", "M", "K", (64, 128), "0" if packed else ""),
                tensor_map("b", "N", "K", (64, 128), second if packed else ""), *c, *d,
            ),
            (*asks, free), Formula("multiprocessors / 2 * 2"), 384, 230464,
            PACKED if packed else Formula("0"),
            before=("gemm_pack_a", "gemm_pack_b") if packed else (),
            symbol_name=symbol, cluster=2,
        )  # fmt: skip

    def pack(operand: str, rows: str, at: str) -> Entry:
        packed = Argument("packed", "bf16", "workspace", operand, Formula(at))
        source = [
            Argument("source", "bf16", "input", operand),
            Argument("ld", "i64", "stride", operand, Formula(f"ld{operand}")),
            Argument("step", "i64", "stride", operand, Formula(f"{operand}_step")),
            Argument("batch_stride", "i64", "stride", operand, Formula(f"{operand}_batch_stride")),
        ]
        return Entry(
            f"gemm_pack_{operand}", "pack", operand,
            (*sizes(rows=rows, cols="K", pitch=PITCH, batch="batch"), *source, packed),
            (access(operand, "bf16"),),
            Formula(f"(({rows} + 63) / 64) * ((K + 63) / 64) * batch"), 256, workspace=PACKED,
            symbol_name="gemm_pack",
        )  # fmt: skip

    by_tma = [access(o, "bf16", 8, extent_limit=LIMIT) for o in "ab"]
    any_ab = [access(o, "bf16", extent_limit=LIMIT) for o in "ab"]
    return KernelPlan(
        spec=spec, backend="cuda", arch=arch, form="wgmma", template="wgmma.cu.j2",
        name="gemm_bf16_bf16_f32_nt_b128x256x64_w16x256_m64n256k16_s4_sm90a", instruction=wgmma,
        block=spec.block, warp=spec.warp, warps=(8, 1), thread=(1, 1), passes=(1, 1),
        threads=384, split_k=1, group=(64, 256),
        fragments=Fragments(
            a=Fragment(1, 4, 0, 0, (64, 16)),
            b=Fragment(1, 4, 0, 0, (256, 16)),
            c=Fragment(1, 1, 128, 128, (64, 256)),
        ),
        ownership={"c": owned(wgmma.c, (128, 256), (1, 1), Layout((2,), (64,)), 32)},
        shared=(
            SharedTile("a", 128, 64, 64, 4, **swizzled, descriptor=k_major),
            SharedTile("b", 256, 64, 64, 4, **swizzled, start=65536, descriptor=k_major),
            SharedTile("d", 128, 64, 64, 2, **swizzled, start=196608, contiguous="n"),
        ),
        copies=(
            *(
                Copy("a", source, "shared", "tma", 8192, 1, "k", (64, 128, 1), role="producer",
                     entries=entries)
                for source, entries in (("global", ("tma", "tma_plain_d")), ("workspace", ("packed",)))
            ),
            *(
                Copy("b", source, "shared", "tma", 8192, 1, "k", (64, 128, 1), multicast=2,
                     role="producer", entries=entries)
                for source, entries in (("global", ("tma", "tma_plain_d")), ("workspace", ("packed",)))
            ),
            Copy("d", "register", "shared", "stmatrix_x4", 8, 16, "n", map=rows_d, role="consumer",
                 entries=("tma",)),
            Copy("d", "shared", "global", "tma_store", 4096, 4, "n", (64, 64, 1), role="consumer",
                 entries=("tma",)),
            Copy("d", "register", "global", "element_store", 1, 128, "n", role="consumer",
                 entries=("tma_plain_d", "packed")),
            *(Copy(o, "global", "workspace", "element_load", 1, 16, "k", entries=(o,))
              for o in "ab"),
        ),
        pipeline=Pipeline(
            4, "mbarrier",
            (Role("producer", 4, 40, computes=False), Role("consumer", 8, 232)),
            cluster=(2, 1), persistent=True,
            barriers=(
                Barrier("full", 4, 1, 49152, start=229376),
                Barrier("empty", 4, 4, start=229408),
            ),
        ),
        epilogue=(),
        entries=(
            main("tma", "gemm_tma", False, [tensor_map("d", "M", "N", (64, 64))],
                 *by_tma, access("d", "bf16", 8, extent_limit=LIMIT)),
            main("tma_plain_d", "gemm_plain_d", False, plain_d, *by_tma, access("d", "bf16")),
            main("packed", "gemm_plain_d", True, plain_d, *any_ab, access("d", "bf16")),
            pack("a", "M", "0"),
            pack("b", "N", second),
        ),
        budget=Budget(
            registers=(
                RegisterUse("register", 128, 8, 32, 40, 232, role="consumer"),
                RegisterUse("register", 0, 0, 0, 32, 40, role="producer"),
                RegisterUse("register", 0, 0, 16, 24, 255, entry="gemm_pack"),
            ),
            shared_bytes=230464, shared_limit=227 * 1024, blocks_per_multiprocessor=1,
            occupancy=0.1875, bound_by="shared memory", flop_per_shared_load=intensity(64, 256),
            # Half of B's tile comes from the other block of the cluster.
            flop_per_global_byte=2 * 128 * 256 / ((128 + 128) * 2),
        ),
        numbers={"SLACK": 1024, "PACK_TILE": 64},
    )  # fmt: skip


BUILDERS = (opencl_vector_fragment, cuda_mma_sync, hip_mfma, metal_direct, cuda_wgmma)
SAMPLES = [
    {"M": m, "N": n, "K": k, "batch": batch, "split_k": 4, "multiprocessors": 132}
    for m, n, k, batch in ((1, 1, 1, 1), (128, 256, 64, 1), (4095, 4097, 4091, 3), (64, 64, 0, 1))
]


@pytest.fixture(params=BUILDERS, ids=lambda build: build.__name__)
def plan(request: pytest.FixtureRequest) -> KernelPlan:
    built: KernelPlan = request.param()
    return built


# ---- what must hold for every plan ---------------------------------------------------------


def test_each_element_of_the_output_has_one_owner(plan: KernelPlan) -> None:
    c = plan.ownership["c"]
    assert (c.rows, c.cols, c.copies) == (plan.block[0], plan.block[1], 1)
    assert c.is_complete()
    assert c.warp.size == prod(plan.warps)
    assert c.lane.size == plan.arch.lanes
    for warp in range(c.warp.size):
        for row, col in ((0, 0), (c.rows - 1, c.cols - 1), (37, 90 % c.cols)):
            for owner in c.owners(row, col):
                assert c.element(*owner) == (row, col)
        assert c.element(warp, 0, 0) == (
            warp % plan.warps[0] * plan.warp[0], warp // plan.warps[0] * plan.warp[1]
        )  # fmt: skip


def test_operands_in_registers_are_covered_once_per_warp_that_needs_them(plan: KernelPlan) -> None:
    for operand, sharers in (("a", plan.warps[1]), ("b", plan.warps[0])):
        in_shared = getattr(plan.instruction, f"source_{operand}") == "shared"
        assert (operand not in plan.ownership) == in_shared
        if not in_shared:
            held = plan.ownership[operand]
            assert held.copies == sharers * getattr(plan.instruction, operand).copies
            assert held.is_complete()


def test_fragments_fill_the_tile_and_their_elements_are_the_instructions(plan: KernelPlan) -> None:
    i, f = plan.instruction, plan.fragments
    m, n = plan.group or plan.warp
    assert (f.a.rows * f.a.tile[0], f.a.cols * f.a.tile[1]) == (m, plan.block[2])
    assert (f.b.rows * f.b.tile[0], f.b.cols * f.b.tile[1]) == (n, plan.block[2])
    assert (f.c.rows * f.c.tile[0], f.c.cols * f.c.tile[1]) == (m, n)
    assert (f.a.tile, f.b.tile, f.c.tile) == ((i.m, i.k), (i.n, i.k), (i.m, i.n))
    for operand in plan.ownership:
        part = getattr(f, operand)
        assert part.elements == getattr(i, operand).values
        assert plan.ownership[operand].register.size == part.rows * part.cols * part.elements
    for operand in "abc":
        assert getattr(i, operand).is_complete()


def test_registers_are_the_fragments(plan: KernelPlan) -> None:
    i, f = plan.instruction, plan.fragments
    bits = plan.arch.registers.bits
    main = [use for use in plan.budget.registers if not use.entry]
    accumulators = sum(use.accumulators for use in main)
    assert f.c.registers == accumulators
    assert accumulators * prod(plan.passes) == f.c.rows * f.c.cols * i.registers("c", bits)
    for operand in "ab":
        reads_shared = getattr(i, f"source_{operand}") == "shared"
        assert (getattr(f, operand).registers == 0) == reads_shared
    assert not any(use.spills for use in plan.budget.registers)
    files = {file.name: file for file in plan.arch.register_files}
    roles = {role.name: role for role in plan.pipeline.roles}
    for use in plan.budget.registers:
        assert use.limit <= files[use.file].per_lane
        if not use.entry:
            assert roles[use.role].registers in (None, use.limit)


def registers_of_a_block(plan: KernelPlan) -> int:
    """Registers of the first file that one block takes, roles and parts of the file counted."""
    file = plan.arch.registers
    names = {f.name for f in plan.arch.register_files if file.name in (f.name, f.part_of)}
    total = 0
    for role in plan.pipeline.roles:
        uses = [u for u in plan.budget.registers if not u.entry and u.role == role.name]
        lane = role.registers or sum(u.predicted for u in uses if u.file in names)
        total += role.warps * plan.arch.lanes * -(-lane // file.granularity) * file.granularity
    return total


def test_occupancy_follows_from_the_limits(plan: KernelPlan) -> None:
    arch, budget = plan.arch, plan.budget
    if arch.max_threads_per_multiprocessor is None:
        assert budget.occupancy is None
        return
    assert arch.registers.per_multiprocessor is not None
    assert arch.shared_per_multiprocessor is not None
    limits = {
        "threads": arch.max_threads_per_multiprocessor // plan.threads,
        "registers": arch.registers.per_multiprocessor // registers_of_a_block(plan),
        "shared memory": arch.shared_per_multiprocessor
        // (budget.shared_bytes + arch.shared_reserved_bytes),
    }
    blocks = min(limits.values())
    assert budget.blocks_per_multiprocessor == blocks
    assert limits[budget.bound_by] == blocks
    assert budget.occupancy == blocks * plan.threads / arch.max_threads_per_multiprocessor


def test_threads_are_the_warps_of_all_roles(plan: KernelPlan) -> None:
    assert plan.threads == plan.pipeline.warps * plan.arch.lanes <= plan.arch.max_threads
    computing = sum(role.warps for role in plan.pipeline.roles if role.computes)
    assert computing == prod(plan.warps)
    assert plan.warps == plan.spec.warps
    assert all(entry.block == plan.threads for entry in plan.main_entries)


def test_shared_memory_adds_up_and_nothing_overlaps(plan: KernelPlan) -> None:
    parts = [(tile.start, tile.bytes, tile.alignment) for tile in plan.shared]
    parts += [(barrier.start, barrier.bytes, 8) for barrier in plan.pipeline.barriers]
    end = 0
    for start, size, alignment in sorted(parts):
        assert start == end
        assert start % alignment == 0
        end = start + size
    slack = int(plan.numbers.get("SLACK", 0))
    assert slack >= max([alignment for *_, alignment in parts if alignment > 16], default=0)
    assert end + slack == plan.budget.shared_bytes <= plan.budget.shared_limit
    assert plan.budget.shared_limit == plan.arch.shared_bytes
    assert all(entry.shared_bytes == plan.budget.shared_bytes for entry in plan.main_entries)


def test_a_shared_tile_gives_each_element_a_place_of_its_own(plan: KernelPlan) -> None:
    for tile in plan.shared:
        places = {tile.offset(r, c) for r in range(tile.rows) for c in range(tile.cols)}
        assert len(places) == tile.rows * tile.cols
        assert max(places) < tile.stage_bytes // tile.element_bytes


def conflicts(tile: SharedTile, copy: Copy, lanes: int) -> Iterator[int]:
    """Extra cycles of every access of every warp, over all places where the map is laid down."""
    assert copy.map is not None
    width = copy.elements * tile.element_bytes
    for top in range(0, tile.rows, copy.map.rows):
        for left in range(0, tile.cols, copy.map.cols):
            for first in range(0, copy.map.lanes, lanes):
                for value in range(0, copy.map.values, copy.elements):
                    held = (copy.map(first + lane, value) for lane in range(lanes))
                    places = [tile.offset(top + row, left + col) for row, col in held]
                    yield bank_conflicts([p * tile.element_bytes for p in places], width)


def test_bank_conflicts_are_those_of_the_layout(plan: KernelPlan) -> None:
    for tile in plan.shared:
        for copy in plan.copies:
            if copy.map is None or copy.operand != tile.operand:
                continue
            stated = tile.store_conflicts if copy.target == "shared" else tile.load_conflicts
            if "shared" in (copy.source, copy.target):
                found = max(conflicts(tile, copy, plan.arch.lanes))
                assert found == (stated if copy.elements > 1 else 0), copy


def test_copies_move_whole_tiles(plan: KernelPlan) -> None:
    roles = {role.name for role in plan.pipeline.roles}
    variants = {entry.variant for entry in plan.entries}
    for copy in plan.copies:
        assert copy.role in roles | {"all"}
        assert set(copy.entries) <= variants
        if copy.map is not None:
            assert copy.map.is_complete()
            assert copy.map.lanes in (plan.threads, plan.arch.lanes)
        if copy.map is not None and copy.map.lanes == plan.threads:
            assert copy.map.values == copy.elements * copy.accesses
        if copy.box:
            assert prod(copy.box) == copy.elements


def test_formulas_evaluate_and_entries_refer_to_what_there_is(plan: KernelPlan) -> None:
    names = {entry.name for entry in plan.entries}
    assert len(names) == len(plan.entries)
    for entry in plan.entries:
        assert set(entry.before) | set(entry.after) <= names
        assert entry.cluster == (prod(plan.pipeline.cluster) if entry.role == "main" else 1)
        assert len({a.name for a in entry.arguments}) == len(entry.arguments)
        for sample in SAMPLES:
            blocks = entry.grid(**sample)
            assert blocks >= (0 if sample["K"] == 0 else 1)
            assert blocks % entry.cluster == 0
            assert entry.workspace(**sample) >= 0
        needs_space = any(a.kind == "workspace" or a.value for a in entry.arguments)
        if entry.workspace.text != "0":
            assert needs_space
    for main in plan.main_entries:
        for name in (*main.before, *main.after):
            assert plan.entry(name).workspace == main.workspace


def test_the_plan_is_json_and_prints(plan: KernelPlan) -> None:
    data = json.loads(plan.to_json())
    assert data["spec"] == json.loads(plan.spec.canonical)
    assert data["ownership"]["c"]["lane"]["shape"] == list(plan.ownership["c"].lane.shape)
    assert [entry["symbol"] for entry in data["entries"]] == [e.symbol for e in plan.entries]
    assert [entry["grid"] for entry in data["entries"]] == [e.grid.text for e in plan.entries]
    assert data["budget"]["registers"][0]["predicted"] == plan.budget.registers[0].predicted
    assert plan.instruction.name in str(plan)


def test_every_limit_of_the_arch_names_its_document(plan: KernelPlan) -> None:
    assert {"shared_bytes", "register_files"} <= plan.arch.sources.keys()
    assert plan.arch.sources.keys() <= set(Arch.__dataclass_fields__)


def test_the_first_fragment_of_the_tile_is_the_instructions(plan: KernelPlan) -> None:
    for operand, held in plan.ownership.items():
        part = getattr(plan.instruction, operand)
        for lane in range(held.lane.size):
            for value in range(part.values):
                assert held.element(0, lane, value) == part(lane, value)


# ---- what is one kernel's own --------------------------------------------------------------


def test_the_first_kernel_is_the_one_that_is_built() -> None:
    written = opencl_vector_fragment()
    built = lower(written.spec, "opencl", "cpu")
    for name in ("form", "template", "block", "warp", "warps", "thread", "passes", "threads",
                 "fragments", "shared", "numbers"):  # fmt: skip
        assert getattr(built, name) == getattr(written, name), name
    assert built.arch.register_files == written.arch.register_files
    assert built.instruction.mnemonic == written.instruction.mnemonic
    assert built.budget.registers == written.budget.registers
    assert built.budget.private_bytes == written.budget.private_bytes
    # The order of a lane's registers is the form's own; which warp holds an element is not.
    for operand, held in written.ownership.items():
        for place in ((0, 0), (50, 70), (held.rows - 1, held.cols - 1)):
            warps = {warp for warp, *_ in held.owners(*place)}
            assert warps == {warp for warp, *_ in built.ownership[operand].owners(*place)}
    assert [(e.variant, e.block) for e in built.entries] == [
        (e.variant, e.block) for e in written.entries
    ]


def test_ldmatrix_addresses_deliver_the_fragments_of_the_mma() -> None:
    plan = cuda_mma_sync()
    received = ORACLE["insts"]["sm_75:ldmatrix_x1_b16"]["operands"]["M"]["map"]
    a, b = (c.map for c in plan.copies if c.mechanism == "ldmatrix_x4")
    assert a is not None
    assert b is not None
    for lane in range(32):
        for matrix in range(4):
            for element, (row, col) in enumerate(received[lane]):
                # Lane 8j + r gives the address of row r of matrix j.
                fetched = a(8 * matrix + row, col)
                assert fetched == plan.instruction.a(lane, 2 * matrix + element)
                n, k = b(8 * matrix + row, col)
                want_n, want_k = plan.instruction.b(lane, 2 * (matrix % 2) + element)
                assert (n, k) == (want_n + 8 * (matrix // 2), want_k)


def test_split_k_partials_fill_the_workspace() -> None:
    plan = cuda_mma_sync()
    wide, narrow = plan.main_entries
    assert wide.workspace(M=100, N=50, K=9, split_k=4) == 4 * 100 * 50 * 4
    assert wide.after == narrow.after == ("gemm_reduce",)
    assert wide.grid(M=129, N=128, K=9, split_k=4) == 2 * 4
    assert [a.elements for a in narrow.accesses] == [1, 1]
    per_thread = plan.block[0] * plan.block[1] // plan.threads
    store = next(c for c in plan.copies if c.target == "workspace")
    assert store.elements * store.accesses == per_thread


def test_mfma_registers_fit_their_halves_of_the_unified_file() -> None:
    plan = hip_mfma()
    files = {use.file: use.predicted for use in plan.budget.registers}
    assert files["vgpr"] + files["agpr"] == 120 <= plan.arch.registers.per_lane
    assert plan.arch.register_files[1].part_of == plan.arch.registers.name
    # One step of k: both operands' fragments of 4 elements of 2 bytes.
    f = plan.fragments
    assert f.a.registers + f.b.registers == 2 * (f.a.rows + f.b.rows) * 2


def test_metal_keeps_its_sums_within_the_sweet_spot() -> None:
    plan = metal_direct()
    assert plan.instruction.opaque
    assert (plan.fragments.c.rows, plan.fragments.c.cols) == (4, 4)
    # An 8x8 grid of 8x8 tiles would take all 128 registers for sums alone, and spill.
    assert 8 * 8 * plan.instruction.registers("c") == plan.arch.registers.per_lane


def test_wgmma_descriptors_find_each_element_where_tma_put_it() -> None:
    plan = cuda_wgmma()
    masks = {0: 0x00, 1: 0x70, 2: 0x30, 3: 0x10}
    for tile in plan.shared[:2]:
        d = tile.descriptor
        assert d is not None
        width = {1: 8, 2: 4, 3: 2}[d.mode]
        for row in range(tile.rows):
            for col in range(tile.cols):
                step, k = divmod(col, plan.instruction.k)
                start = tile.start + step * d.step_bytes
                # PTX ISA, K-major swizzled: the XOR is of absolute address bits 7 to 9.
                at = start + row % 8 * 16 * width + row // 8 * d.stride_bytes + k * 2
                at ^= (at >> 3) & masks[d.mode]
                assert at == tile.start + 2 * tile.offset(row, col)


def test_wgmma_roles_share_the_register_file_and_barriers_count_the_cluster() -> None:
    plan = cuda_wgmma()
    full, empty = plan.pipeline.barriers
    a, b = plan.shared[:2]
    assert full.transaction_bytes == a.stage_bytes + b.stage_bytes
    consumers = plan.pipeline.roles[1].warps * plan.arch.lanes // plan.instruction.lanes
    assert empty.arrivals == consumers * prod(plan.pipeline.cluster)
    assert full.count == empty.count == plan.pipeline.stages
    assert plan.pipeline.first_compute_warp == 4
    assert registers_of_a_block(plan) == 64512 == 168 * plan.threads
    for copy in plan.copies:
        if copy.mechanism == "tma":
            tile = a if copy.operand == "a" else b
            assert prod(copy.box) * 2 * copy.multicast * copy.accesses == tile.stage_bytes


def test_tensor_maps_meet_tmas_rules() -> None:
    plan = cuda_wgmma()
    found = [(a, a.tensor_map) for e in plan.entries for a in e.arguments if a.tensor_map]
    assert len(found) == 7
    launch = SAMPLES[2] | {f"ld{o}": 8 * 520 for o in "abd"}
    launch |= {f"{o}_batch_stride": 8 * 520 * 4097 for o in "abd"}
    for argument, described in found:
        assert len(described.dims) == len(described.strides) + 1 == len(described.box)
        assert all(1 <= extent <= 256 for extent in described.box)
        assert described.box[0] * 2 == described.swizzle_bytes
        assert all(stride(**launch) * 2 % 16 == 0 for stride in described.strides)
        assert all(dim(**launch) >= 1 for dim in described.dims)
        if argument.value is not None:
            assert argument.value(**launch) % 16 == 0


def test_packed_operands_lie_side_by_side_in_the_workspace() -> None:
    plan = cuda_wgmma()
    packed = plan.entry("gemm_packed")
    sample = {"M": 5, "N": 7, "K": 9, "batch": 2, "multiprocessors": 132}
    first, second = (
        next(a for a in plan.entry(name).arguments if a.kind == "workspace")
        for name in packed.before
    )
    assert first.value is not None
    assert second.value is not None
    assert (first.value(**sample), second.value(**sample)) == (0, 2 * 5 * 16 * 2)
    assert packed.workspace(**sample) == 2 * (5 + 7) * 16 * 2
    assert {plan.entry(name).symbol for name in packed.before} == {"gemm_pack"}
    assert packed.symbol == plan.entry("gemm_tma_plain_d").symbol
    maps = {a.operand: a.value for a in packed.arguments if a.kind == "descriptor"}
    assert maps == {"a": first.value, "b": second.value}


# ---- the page ------------------------------------------------------------------------------


def by(*numbers: int) -> str:
    return "x".join(map(str, numbers))


def listing(plan: KernelPlan) -> str:
    """The plan as the page shows it."""
    i, arch, f = plan.instruction, plan.arch, plan.fragments
    group = f", group {by(*plan.group)}" if plan.group else ""
    out = [
        f"arch         {arch.name}: {arch.lanes} lane(s), {arch.max_threads} threads and "
        f"{arch.shared_bytes} shared bytes a block",
        *(
            f"             {r.name}: {r.per_lane} of {r.bits} bits a "
            f"{'warp' if r.uniform else 'lane'}"
            + (f", {r.per_multiprocessor} a multiprocessor" if r.per_multiprocessor else "")
            + (f", granule {r.granularity}" if r.granularity > 1 else "")
            + (f", part of {r.part_of}" if r.part_of else "")
            for r in arch.register_files
        ),
        *(f"             {name}: {text}" for name, text in arch.sources.items()),
        f"instruction  {i.name}: {i.mnemonic}, {i.lanes} lane(s)",
        f"             {i.doc}",
    ]
    for operand, source in (("a", i.source_a), ("b", i.source_b), ("c", "register")):
        part = getattr(i, operand)
        text = f"  {operand} {by(part.rows, part.cols)}".ljust(13)
        held = f"lane {part.lane}  value {part.value}" + ("  opaque" if i.opaque else "")
        out.append(text + ("read from shared memory" if source == "shared" else held))
    out.append(
        f"plan         form {plan.form}; block {by(*plan.block)}, warp {by(*plan.warp)}{group}, "
        f"warps {by(*plan.warps)}, {plan.threads} threads, split_k {plan.split_k}"
    )
    out.append("fragments    per warp; elements and registers per lane")
    for operand in "abc":
        p = getattr(f, operand)
        out.append(
            f"  {operand}          {by(p.rows, p.cols)} of {by(*p.tile)}, {p.elements} elements, "
            f"{p.registers} registers live"
        )
    out.append("ownership    (warp, lane, register) -> row + rows * col")
    for operand, o in plan.ownership.items():
        copies = f"  x{o.copies}" if o.copies > 1 else ""
        out.append(f"  {operand} {by(o.rows, o.cols)}".ljust(13) + f"warp {o.warp}  lane {o.lane}")
        out.append(f"             register {o.register}{copies}")
    out.append(f"shared       {plan.budget.shared_bytes} of {plan.budget.shared_limit} bytes")
    for t in plan.shared:
        swizzle = {
            "xor": f"vector of {t.vector} ^= row / {t.swizzle_rows} & {t.swizzle_mask}",
            "pad": f"padded, {t.store_conflicts} extra cycles a store",
        }.get(t.swizzle, "plain")
        out.append(
            f"  {t.operand} at {t.start}".ljust(14) + f" {t.stages} x {t.rows} rows of {t.cols} "
            f"({t.contiguous}) at {t.row_stride} x {t.element_bytes} bytes, {swizzle}, "
            f"aligned {t.alignment}"
        )
        if d := t.descriptor:
            out.append(
                f"             descriptor: {d.major}-major, mode {d.mode}, SBO {d.stride_bytes}, "
                f"k step {d.step_bytes} bytes"
            )
    p = plan.pipeline
    for b in p.barriers:
        tx = f" and {b.transaction_bytes} bytes" if b.transaction_bytes else ""
        out.append(f"  {b.name} at {b.start}: {b.count} mbarriers, {b.arrivals} arrival(s){tx}")
    out.append("copies       per thread and K step (d: per tile)")
    for c in plan.copies:
        where = f"  [{', '.join(c.entries)}]" if c.entries else ""
        box = f", box {by(*c.box)}" if c.box else ""
        box += f", to {c.multicast} blocks" if c.multicast > 1 else ""
        role = f", {c.role}" if c.role != "all" else ""
        out.append(
            f"  {c.operand}          {c.source} -> {c.target}: {c.accesses} x {c.mechanism} of "
            f"{c.elements} along {c.contiguous}{box}{role}{where}"
        )
        if c.map:
            m = c.map
            out.append(f"             {by(m.rows, m.cols)}: thread {m.lane}  element {m.value}")
    roles = ", ".join(
        f"{r.name} {r.warps} warp(s)" + (f" at {r.registers} registers" if r.registers else "")
        for r in p.roles
    )
    out.append(
        f"pipeline     {p.stages} stage(s), full by {p.waits}; {roles}; cluster {by(*p.cluster)}"
        + ("; persistent" if p.persistent else "")
    )
    out.append("entries")
    for e in plan.entries:
        symbol = f" = {e.symbol}" if e.symbol != e.name else ""
        out.append(f"  {e.name}{symbol} ({e.role}): {e.grid} blocks of {e.block}")
        if e.workspace.text != "0":
            out.append(f"    workspace {e.workspace} bytes")
        for title, names in (("before it", e.before), ("after it", e.after)):
            if names:
                out.append(f"    {title} {', '.join(names)}")
        for a in e.accesses:
            unit = ", unit step" if a.unit_step else ""
            limit = f", extents to {a.extent_limit}" if a.extent_limit else ""
            out.append(
                f"    needs {a.operand}: {a.elements} element(s), address % {a.alignment}, "
                f"strides % {a.stride_multiple}{unit}{limit}"
            )
        row = "    "
        for a in e.arguments:
            word = f"{a.name}:{a.type}" + (f"={a.value}" if a.value else "")
            if len(row) + len(word) > 96:
                out.append(row.rstrip())
                row = "    "
            row += word + " "
        out.append(row.rstrip())
        for a in e.arguments:
            if t := a.tensor_map:
                dims, strides = (", ".join(map(str, part)) for part in (t.dims, t.strides))
                out.append(
                    f"    {a.name}: ({dims}), strides ({strides}), box {by(*t.box)}, "
                    f"swizzle {t.swizzle_bytes}"
                )
    out.append("registers    sums + operands + staging + rest = predicted of limit")
    for u in plan.budget.registers:
        whose = u.entry or ("" if u.role == "all" else u.role)
        out.append(
            f"  {u.file}".ljust(13)
            + f"{u.accumulators} + {u.operands} + {u.staging} + "
            f"{u.addressing} = {u.predicted} of {u.limit} {whose}".rstrip()
        )
    b = plan.budget
    if b.private_bytes:
        out.append(f"private      {b.private_bytes} bytes")
    if b.occupancy is not None:
        out.append(
            f"occupancy    {b.blocks_per_multiprocessor} block(s), {100 * b.occupancy:g} %, "
            f"bound by {b.bound_by}"
        )
    load = f"{b.flop_per_shared_load:.1f} FLOP per shared load, " if b.flop_per_shared_load else ""
    out.append(f"intensity    {load}{b.flop_per_global_byte:.1f} per global byte")
    return "\n".join(line.rstrip() for line in out)


def test_the_page_shows_these_records(plan: KernelPlan) -> None:
    assert f"```text\n{listing(plan)}\n```" in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    print("\n\n".join(listing(build()) for build in BUILDERS))
