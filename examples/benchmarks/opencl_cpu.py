"""Times OpenCL f32 kernels on the CPU beside NumPy, interleaved in one run; the ladder over rows.

Run on a quiet machine, OpenBLAS free of its core-type pin:
env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python examples/benchmarks/opencl_cpu.py [SIZE ...]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import tilegen as tg

TILES = [
    {"block": (64, 64, 256), "warp": (64, 64)},
    {"block": (128, 128, 256), "warp": (64, 64)},
    {"block": (64, 128, 256), "warp": (64, 128)},
    {"block": (128, 64, 256), "warp": (128, 64)},
    {"block": (128, 128, 256), "warp": (128, 128)},
    {"block": (96, 96, 256), "warp": (96, 96)},
    {"block": (128, 96, 256), "warp": (128, 96)},
    *(
        {"block": (64, 64, 256), "warp": (64, 64), "pins": {"opencl": {"fragment": pin}}}
        for pin in [(4, 2), (8, 2), (16, 1), (16, 2), (32, 1), (64, 1)]
    ),
]


def main(sizes: list[int]) -> None:
    for size in sizes:
        measure(size)


def measure(size: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    d = np.empty_like(a)
    runs: list[tuple[str, Callable[[], object]]] = [("NumPy", lambda: np.matmul(a, b, out=d))]
    for tile in TILES:
        kernel = tg.build(tg.TileSpec(**tile), "opencl", "cpu")
        runs.append((kernel.plan.name, lambda kernel=kernel: kernel(a, b, out=d)))
    times: dict[str, list[float]] = {name: [] for name, _ in runs}
    for _ in range(12):
        for name, run in runs:
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    peer = statistics.median(times["NumPy"][2:])
    for name, taken in times.items():
        median = statistics.median(taken[2:])
        print(
            f"{size} {2e-9 * size**3 / median:7.1f} GFLOP/s {peer / median:5.2f} of NumPy  {name}"
        )


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]] or [512, 1024])
