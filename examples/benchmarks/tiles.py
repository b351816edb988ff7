"""Several tiles in one interleaved run: which of them is best on this device, shape by shape.

Run: python examples/benchmarks/tiles.py cpu|gpu [SIZE ...]
"""

from __future__ import annotations

import sys

import tilegen as tg
from tilegen import bench
from tilegen.bench.table import text

CPU = [
    tg.TileSpec(block=(64, 64, 256), warp=(64, 64)),
    tg.TileSpec(block=(128, 128, 256), warp=(64, 64)),
    tg.TileSpec(block=(64, 128, 256), warp=(64, 128)),
    tg.TileSpec(block=(128, 64, 256), warp=(128, 64)),
    tg.TileSpec(block=(128, 128, 256), warp=(128, 128)),
    tg.TileSpec(block=(96, 96, 256), warp=(96, 96)),
    tg.TileSpec(block=(128, 96, 256), warp=(128, 96)),
]
GPU = [
    tg.TileSpec(block=(128, 128, 8), warp=(64, 32)),
    tg.TileSpec(block=(128, 128, 16), warp=(64, 32)),
    tg.TileSpec(block=(128, 128, 16), warp=(32, 64)),
    tg.TileSpec(block=(128, 64, 16), warp=(64, 32)),
    tg.TileSpec(block=(128, 128, 16), warp=(64, 64)),
    tg.TileSpec(block=(256, 128, 8), warp=(64, 64)),
    tg.TileSpec(block=(128, 128, 16), warp=(64, 32), stages=1),
    tg.TileSpec(block=(128, 128, 32), warp=(64, 32), stages=1),
]


def main(kind: str, sizes: list[int]) -> None:
    cases = bench.parse_shapes(",".join(map(str, sizes)))
    report = bench.run(cases, {"cpu": CPU, "gpu": GPU}[kind], backend="opencl", arch=kind)
    print(text(report))


if __name__ == "__main__":
    kind, *sizes = sys.argv[1:] or ["cpu"]
    main(kind, [int(x) for x in sizes] or [512, 1024])
