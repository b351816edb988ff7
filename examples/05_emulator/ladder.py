"""Ten matrix products, from naive to split-K, run without a GPU: python ladder.py [KERNEL.cu ...]

Each text is CUDA as one would give it to nvcc. The emulator runs it in three orders of threads and once
under its race detector, and compares nothing with nothing: the product is checked here, exactly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilegen import emulator

HERE = Path(__file__).parent
SIZES = (128, 128, 64)  # M, N, K: multiples of every tile here

# Entry, grid and block for M, N; what the launch asks for in dynamic shared memory.
LAUNCHES: dict[str, dict[str, Any]] = {
    "01_naive": {"entry": "gemm", "block": (32, 8), "tile": (32, 8), "swapped": True},
    "02_coalesced": {"entry": "gemm<16>", "block": 256, "tile": (16, 16), "swapped": True},
    "03_shared": {"entry": "gemm", "block": (32, 32), "tile": (32, 32)},
    "04_thread_tile_1d": {"entry": "gemm", "block": 512, "tile": (64, 64), "shared": 4096},
    "05_thread_tile_2d": {"entry": "gemm<64, 64, 8, 4, 4>", "block": 256, "tile": (64, 64)},
    "06_vectorised": {"entry": "gemm", "block": 256, "tile": (128, 128)},
    "07_warp_tile": {"entry": "gemm", "block": 128, "tile": (128, 128)},
    "08_double_buffered": {"entry": "gemm", "block": 256, "tile": (64, 64), "shared": 18432},
    "09_wmma": {"entry": "gemm", "block": 128, "tile": (64, 64), "types": "f2"},
    "10_split_k": {"entry": "gemm", "block": (32, 8), "tile": (32, 32), "splits": 2},
}


def launch(name: str, text: str | None = None, sizes: tuple[int, int, int] = SIZES, **options: Any):
    """Run one kernel of the ladder, or a changed text in its place; the run and the true product."""
    about = LAUNCHES[name]
    m, n, k = sizes
    random = np.random.default_rng(7)
    a, b = (
        random.integers(-3, 4, shape).astype(about.get("types", "f4")) for shape in ((m, k), (k, n))
    )
    c = np.full((m, n), np.nan, np.float32)
    tiles_m, tiles_n = -(-m // about["tile"][0]), -(-n // about["tile"][1])
    grid: tuple[int, ...] = (tiles_m, tiles_n) if about.get("swapped") else (tiles_n, tiles_m)
    args: list[Any] = [a, b, c, m, n, k]
    outputs = [2]
    if splits := about.get("splits"):
        grid = (*grid, splits)
        args[3:3] = [
            np.full((splits, m, n), np.nan, np.float32),
            np.zeros(tiles_m * tiles_n, np.uint32),
        ]
        outputs.append(3)
    run = emulator.run(
        text if text is not None else (HERE / f"{name}.cu").read_text(),
        entry=about["entry"], grid=grid, block=about["block"], args=args, outputs=outputs,
        shared_bytes=about.get("shared", 0), **options,
    )  # fmt: skip
    return run, a.astype(np.float32) @ b.astype(np.float32)


def main(names: list[str]) -> int:
    """Print one line a kernel; 1 if anything is wrong with one of them."""
    status = 0
    for name in names or sorted(LAUNCHES):
        run, want = launch(Path(name).stem)
        right = bool(run.arrays) and np.array_equal(run.arrays[2], want)
        times = ", ".join(f"{what} {1e3 * s:.0f} ms" for what, s in run.seconds.items())
        print(f"{name:<20} {'right' if right else 'WRONG'}, {run}; {times}")
        status |= not right or not run.clean
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
