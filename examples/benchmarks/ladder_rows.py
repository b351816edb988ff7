"""The ladder over rows per work-item on an OpenCL CPU device, and the cliff where registers spill.

Run on a quiet machine: python examples/benchmarks/ladder_rows.py [SIZE ...]
"""

from __future__ import annotations

import sys

import tilegen as tg
from tilegen import bench

ROWS = (1, 2, 4, 8, 16, 32, 64)


def main(sizes: list[int]) -> None:
    tile = tg.TileSpec(block=(64, 64, 256), warp=(64, 64))
    rungs = {
        f"{rows} rows": tile.replace(pins={"opencl": {"fragment": (rows, 1)}}) for rows in ROWS
    }
    cases = bench.parse_shapes(",".join(map(str, sizes)))
    report = bench.run(cases, rungs, backend="opencl", arch="cpu")
    print(report.device, *report.notes, sep="\n")
    for result in report.results:
        print(result.case.name)
        best = max(result.rate(rung) for rung in result.variants)
        for rung in result.variants:
            registers = rung.kernel["registers"]["vector"]
            predicted, limit = registers["predicted"], registers["limit"]
            said, rate = rung.kernel["measured"], result.rate(rung)
            print(
                f"  {rung.name:8} {predicted:3} of {limit} registers predicted"
                f"{', spills' if predicted > limit else '':8}; compiler: "
                f"{said.get('spill_bytes', 'unknown')} bytes spilled, "
                f"{said.get('private_bytes', 'unknown')} private; "
                f"{rate * 1e-9:6.1f} GFLOP/s, {rate / best:.2f} of the best rung"
            )
        for peer in result.peers:
            print(f"  {peer.name:8} {result.rate(peer) * 1e-9:6.1f} GFLOP/s")
        for name, why in result.refused.items():
            print(f"  {name}: {why}")


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]] or [512])
