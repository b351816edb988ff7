"""The FMA form on a GPU beside cuBLAS: f32, square, CUDA events round batches of launches, interleaved.

    python examples/benchmarks/cuda_fma.py [--sizes 1024,2048,4096] [--rounds 9]

Needs a GPU, CuPy and NVRTC. Buffers stay warm in the cache; the host's time of a call is told besides.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilegen as tg
from tilegen import registry

VARIANTS: dict[str, dict[str, Any]] = {
    "128x128x16, cp.async and registers": {"block": (128, 128, 16), "warp": (64, 32), "stages": 3},
    "128x128x16, registers": {
        "block": (128, 128, 16),
        "warp": (64, 32),
        "stages": 3,
        "pins": {"cuda": {"copy": "registers"}},
    },
    "128x256x16, cp.async and registers": {"block": (128, 256, 16), "warp": (64, 64), "stages": 3},
    "256x128x16, cp.async and registers": {"block": (256, 128, 16), "warp": (64, 64), "stages": 2},
}
# Of the largest size; smaller ones run more often, so that a batch takes milliseconds.
LAUNCHES = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    gpus = registry.get("cuda").devices()
    if not gpus:
        raise SystemExit("no CUDA GPU was found (tilegen targets)")
    import cupy as cp

    print(f"{gpus[0].name}, {gpus[0].arch.name}")
    kernels = {n: tg.build(tg.TileSpec(**v), "cuda", device=gpus[0]) for n, v in VARIANTS.items()}
    for n in sizes:
        rng = cp.random.default_rng(1)
        a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in "ab")
        out = cp.empty((n, n), np.float32)
        calls: dict[str, Callable[[], object]] = {
            "cuBLAS": lambda a=a, b=b, out=out: cp.matmul(a, b, out=out)
        }
        calls |= {name: kernel.prepare(a, b, out=out).queue for name, kernel in kernels.items()}
        launches = LAUNCHES * max(1, (max(sizes) // n) ** 2)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                times[name].append(seconds(cp, call, launches))
        peer = statistics.median(times["cuBLAS"])
        for name, taken in times.items():
            rate = [2 * n**3 / t / 1e12 for t in (statistics.median(taken), max(taken), min(taken))]
            print(
                f"{n}  {name:<36} {rate[0]:5.1f} TFLOP/s ({rate[1]:.1f} to {rate[2]:.1f}), "
                f"{peer / statistics.median(taken):.2f} of cuBLAS"
            )
    kernel, a = next(iter(kernels.values())), cp.ones((256, 256), np.float32)
    out = cp.empty_like(a)
    for name, call in (
        ("call", lambda: kernel(a, a, out=out)),
        ("prepared call", kernel.prepare(a, a, out=out)),
    ):
        call()
        start = time.perf_counter()
        for _ in range(300):
            call()
        taken = (time.perf_counter() - start) / 300
        cp.cuda.Device().synchronize()
        print(f"host time of a {name}: {1e6 * taken:.1f} us")


def seconds(cp: Any, call: Callable[[], object], launches: int) -> float:
    """One launch's share of a batch, by the device's events, after one that is not timed."""
    start, end = cp.cuda.Event(), cp.cuda.Event()
    call()
    start.record()
    for _ in range(launches):
        call()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(start, end)) / launches * 1e-3


if __name__ == "__main__":
    main()
