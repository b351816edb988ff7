"""Times OpenCL f32 kernels on the first GPU: tiles and majornesses, kernel time by profiling events.

Run: python examples/benchmarks/opencl_gpu.py [SIZE ...]
"""

from __future__ import annotations

import statistics
import sys
from itertools import product

import numpy as np

import tilegen as tg
from tilegen import registry

TILES = [
    {"block": (128, 128, 8), "warp": (64, 32)},
    {"block": (128, 128, 16), "warp": (64, 32)},
    {"block": (128, 128, 16), "warp": (32, 64)},
    {"block": (128, 64, 16), "warp": (64, 32)},
    {"block": (128, 128, 16), "warp": (64, 64)},
    {"block": (256, 128, 8), "warp": (64, 64)},
    {"block": (128, 128, 16), "warp": (64, 32), "stages": 1},
    {"block": (128, 128, 32), "warp": (64, 32), "stages": 1},
]


def main(sizes: list[int]) -> None:
    import pyopencl as cl
    import pyopencl.array as cla

    device = next(d for d in registry.get("opencl").devices() if d.arch.name == "gpu")
    queue = cl.CommandQueue(device.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    rng = np.random.default_rng(0)
    for size in sizes:
        host = [rng.standard_normal((size, size), dtype=np.float32) for _ in range(2)]
        rows = [cla.to_device(queue, x) for x in host]
        cols = [cla.to_device(queue, np.asfortranarray(x)) for x in host]
        for tile in TILES:
            for major in (
                product(("row", "col"), repeat=2) if tile is TILES[1] else [("row", "row")]
            ):
                spec = tg.TileSpec(**tile, layout={"a": major[0], "b": major[1]})
                kernel = tg.build(spec, "opencl", device=device)
                a, b = ((rows if m == "row" else cols)[i] for i, m in enumerate(major))
                d = cla.empty(queue, (size, size), np.float32)
                times = []
                for _ in range(12):
                    start, stop = cl.enqueue_marker(queue), None
                    kernel(a, b, out=d, stream=queue)
                    stop = cl.enqueue_marker(queue)
                    queue.finish()
                    times.append((stop.profile.start - start.profile.end) * 1e-9)
                rate = [2e-12 * size**3 / t for t in times[2:]]
                print(
                    f"{size} {major[0]:3} {major[1]:3} {kernel.plan.name}: "
                    f"{statistics.median(rate):6.2f} TFLOP/s ({min(rate):.2f} to {max(rate):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]] or [1024, 2048, 4096])
