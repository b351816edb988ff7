"""The emitted text of a handful of specs, word for word, and what every text must hold to."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import tilegen as tg
from tilegen.render import KernelSource
from tilegen_opencl.archs import CPU, GPU

# Devices whose sub-groups have a size that is asked for, and one that is as it is.
CPU_16 = replace(
    CPU,
    features=CPU.features | {"sub_groups", "required_sub_group_size"},
    warp_sizes=(16, 8, 4, 32, 64),
)
GPU_64 = replace(GPU, features=GPU.features | {"sub_groups"}, warp_sizes=(64,))

STEPS = [
    {"op": "bias"},
    {"op": "gelu"},
    {"op": "residual"},
    {"op": "clamp", "low": -1, "high": 1},
]
CASES = {
    "vector_fragment_nnnn.cl": ("cpu", {"block": (64, 64, 64), "warp": (64, 64)}),
    "vector_fragment_ttcc_batched.cl": (
        "cpu",
        {
            "block": (32, 48, 16),
            "warp": (16, 24),
            "batch": "strided",
            "layout": {"a": "col", "b": "col", "c": "row", "d": "col"},
            "epilogue": STEPS,
        },
    ),
    "work_group_nnnn.cl": ("gpu", {"block": (128, 128, 16), "warp": (64, 32), "stages": 2}),
    "work_group_tncc_one_stage.cl": (
        "gpu",
        {
            "block": (32, 32, 8),
            "warp": (16, 16),
            "stages": 1,
            "layout": {"a": "col", "b": "row", "c": "col", "d": "col"},
            "epilogue": [*STEPS[:1], {"op": "silu"}],
        },
    ),
    # A device that has the built-ins; A comes in words along K, B in squares of K and N.
    "work_group_nnnc_dot4.cl": (
        replace(GPU, features=GPU.features | {"integer_dot"}),
        {
            "block": (64, 64, 32),
            "warp": (32, 32),
            "types": {"a": "s8", "b": "u8", "acc": "s32", "c": "s8", "d": "s8"},
            "layout": {"d": "col"},
            "epilogue": [{"op": "bias"}, {"op": "relu"}],
        },
    ),
    "sub_group_nnnn.cl": (
        GPU_64,
        {
            "block": (32, 256, 16),
            "warp": (16, 256),
            "types": {"a": "f16", "b": "f16", "acc": "f32", "c": "f16"},
            "pins": {"opencl": {"form": "sub_group"}},
        },
    ),
    "sub_group_tncc_batched.cl": (
        CPU_16,
        {
            "block": (64, 24, 8),
            "warp": (32, 12),
            "batch": "strided",
            "layout": {"a": "col", "b": "row", "c": "col", "d": "col"},
            "epilogue": STEPS,
            "pins": {"opencl": {"form": "sub_group"}},
        },
    ),
}

BF16 = {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16", "d": "bf16"}
TF32 = {"a": "tf32", "b": "tf32", "acc": "f32", "c": "f32", "d": "f32"}
CUDA_CASES = {
    "fma_nnnn.cu": ("sm_80", {"block": (128, 128, 16), "warp": (64, 32), "stages": 3}),
    # Both operands pass through registers, and one tile is there at a time.
    "fma_ntcc_batched_one_stage.cu": (
        "sm_75",
        {
            "block": (32, 48, 8),
            "warp": (16, 24),
            "stages": 1,
            "batch": "strided",
            "types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64"),
            "layout": {"a": "row", "b": "col", "c": "col", "d": "col"},
            "epilogue": STEPS,
        },
    ),
    # Neither does, and the tiles are more than static shared memory holds.
    "fma_tnnc_dynamic.cu": (
        "sm_90",
        {
            "block": (128, 128, 16),
            "warp": (64, 32),
            "stages": 4,
            "layout": {"a": "col", "d": "col"},
        },
    ),
    "mma_sync_nnnn_bf16.cu": (
        "sm_90a",
        {"block": (128, 128, 32), "warp": (64, 32), "stages": 3, "types": BF16},
    ),
    # D's rows are B's columns, and the bytes of both operands are turned in pairs.
    "mma_sync_tncc_s8_batched.cu": (
        "sm_80",
        {
            "block": (64, 64, 64),
            "warp": (32, 32),
            "batch": "strided",
            "types": {"a": "s8", "b": "s8", "acc": "s32", "c": "s8", "d": "s8"},
            "layout": {"a": "col", "b": "row", "c": "col", "d": "col"},
            "epilogue": [{"op": "bias"}, {"op": "relu"}],
        },
    ),
    # Without cp.async; two sums lie in one register.
    "mma_sync_nnnn_f16_sums.cu": (
        "sm_75",
        {
            "block": (64, 64, 32),
            "warp": (32, 32),
            "types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f16"),
        },
    ),
    # A part of K for each block; lanes read their own elements of B.
    "mma_sync_nnnn_tf32_split_k.cu": (
        "sm_80",
        {"block": (64, 64, 32), "warp": (32, 32), "split_k": 2, "types": TF32},
    ),
}


def emitted(name: str) -> KernelSource:
    backend, (arch, data) = (
        ("cuda", CUDA_CASES[name]) if name in CUDA_CASES else ("opencl", CASES[name])
    )
    return tg.emit(tg.lower(tg.TileSpec(**data), backend, arch))


@pytest.mark.parametrize("name", [*CASES, *CUDA_CASES])
def test_text(name: str, golden) -> None:
    golden(name, emitted(name).text)


@pytest.mark.parametrize("name", [*CASES, *CUDA_CASES])
def test_text_is_standalone_and_stable(name: str) -> None:
    source = emitted(name)
    assert source.text == emitted(name).text
    assert "#if" not in source.text
    assert "#include" not in source.text
    assert not re.search(r"\d{4}-\d\d-\d\d|/home/|/tmp/", source.text)
    assert tg.__name__ in source.text.splitlines()[0]
    assert source.plan.spec.digest in source.text
    keyword = "__global__ void" if name in CUDA_CASES else "__kernel"
    assert source.text.count(keyword) == len(source.entries)
    for entry in source.entries:
        assert re.search(rf"\bvoid\b.* {entry.name}\(", source.text) or (
            f"void {entry.name}(" in source.text
        )
