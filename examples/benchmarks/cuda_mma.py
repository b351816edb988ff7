"""The mma_sync form on the first CUDA GPU: every type at one size, a few tiles each, beside cuBLAS.

Warm buffers, CUDA events round batches, interleaved rounds, medians with the least and the most. cuBLAS is
what torch (or CuPy, where torch is not installed) calls for the same arrays; 8-bit floats need torch.

    python examples/benchmarks/cuda_mma.py [N]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy as cp
import numpy as np

import tilegen as tg
from tilegen import registry

ROUNDS, BATCH = 9, 4
NAMES = {"r": "row", "c": "col"}
WIDE = [((128, 128), (64, 64)), ((128, 256), (64, 64)), ((128, 128), (64, 32))]
# Type, sums, D, majorness of A and B, K steps of the tiles.
CASES = [
    ("bf16", "f32", "bf16", ("rc", "rr", "cr", "cc"), (32, 64)),
    ("f16", "f32", "f16", ("rc",), (32, 64)),
    ("f16", "f16", "f16", ("rc",), (32, 64)),
    ("tf32", "f32", "f32", ("rc", "rr"), (16, 32)),
    ("s8", "s32", "s32", ("rc", "rr"), (64, 128)),
    ("e4m3", "f32", "bf16", ("rc",), (64, 128)),
    ("f64", "f64", "f64", ("rc",), (16,)),
]


def specs() -> list[tg.TileSpec]:
    """Every case with every tile; those that a rule refuses are left out later."""
    out = []
    for kind, acc, d, majors, depths in CASES:
        tiles = WIDE if kind != "f64" else [((64, 64), (32, 32)), ((128, 64), (32, 32))]
        for major in majors:
            for block, warp in tiles:
                for depth in depths:
                    layout = {"a": NAMES[major[0]], "b": NAMES[major[1]]}
                    types = {"a": kind, "b": kind, "acc": acc, "c": d, "d": d}
                    out.append(
                        tg.TileSpec(
                            block=(*block, depth),
                            warp=warp,
                            stages=4,
                            types=types,
                            layout=layout,
                            pins={"cuda": {"form": "mma_sync"}},
                        )
                    )
    return out


def operand(kind: str, n: int, majorness: str) -> Any:
    """An n x n array of random values: CuPy's, or a tensor for 8-bit floats."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    if kind == "s8":
        values = cp.asarray(rng.integers(-100, 100, (n, n)).astype(np.int8))
    else:
        values = cp.asarray(rng.standard_normal((n, n)).astype(np.float32))
    if kind == "e4m3":
        import torch

        made = torch.from_dlpack(values).to(torch.float8_e4m3fn)
        return made if majorness == "r" else made.t().contiguous().t()
    names = {"f16": np.float16, "tf32": np.float32, "f64": np.float64, "s8": np.int8}
    values = values.astype(names.get(kind, np.dtype(ml_dtypes.bfloat16)))
    return values if majorness == "r" else cp.asfortranarray(values)


def times(calls: list[Callable[[], Any]]) -> list[list[float]]:
    """Seconds of each call in each round."""
    out: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, kept in zip(calls, out, strict=True):
            start, end = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            for _ in range(BATCH):
                call()
            end.record()
            end.synchronize()
            kept.append(cp.cuda.get_elapsed_time(start, end) / BATCH * 1e-3)
    return out


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    device = registry.get("cuda").devices()[0]

    def build(spec: tg.TileSpec) -> tg.Kernel | None:
        try:
            return tg.build(spec, "cuda", device=device)
        except tg.PlanError:
            return None

    with ThreadPoolExecutor() as pool:
        kernels = [k for k in pool.map(build, specs()) if k is not None]
    print(f"{device.name}, {device.arch.name}, {n} x {n} x {n}, TFLOP/s: median (least, most)")
    for kind, acc, *_ in CASES:
        chosen = [k for k in kernels if (k.plan.spec.types.a, k.plan.spec.types.acc) == (kind, acc)]
        if kind in ("f16", "bf16", "f64") and acc != "f16":
            a, b = operand(kind, n, "r"), operand(kind, n, "r")
            out = cp.empty((n, n), a.dtype)
            names, calls = ["cuBLAS, NN"], [lambda a=a, b=b, out=out: cp.matmul(a, b, out=out)]
        else:
            names, calls = [], []
        for kernel in chosen:
            spec = kernel.plan.spec
            major = spec.layout.a[0] + spec.layout.b[0]
            arrays = [operand(kind, n, m) for m in major]
            calls.append(kernel.prepare(*arrays).queue)
            used = kernel.binary.resources[kernel.plan.main_entries[0].name]
            names.append(
                f"{'N' if major[0] == 'r' else 'T'}{'N' if major[1] == 'r' else 'T'} "
                f"{'x'.join(map(str, spec.block))} warp {'x'.join(map(str, spec.warp))}, "
                f"{kernel.plan.pipeline.stages} stages, {used.registers} registers, "
                f"{used.spill_bytes} bytes spilled"
            )
        for name, took in zip(names, times(calls), strict=True):
            speed = [2 * n**3 / t / 1e12 for t in (statistics.median(took), max(took), min(took))]
            print(f"{kind:5} {acc:4} {speed[0]:6.1f} ({speed[1]:.1f}, {speed[2]:.1f})  {name}")


if __name__ == "__main__":
    main()
