"""Starting tiles for device classes, and a small model of their time that ranks them.

The model counts: whole tiles of work for the busiest unit, what a tile does besides multiplying, and
how much of a unit's rate its inner loop leaves. Its few constants were read off measurements named
beside them; only the order of candidates is meant, so no clock rate enters but as a scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, inf
from typing import Any

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.plan import KernelPlan
from tilegen.roles import Roles
from tilegen.spec import TileSpec

# Where a device is not asked: cores of a laptop, multiprocessors of a middling GPU.
UNITS = {"cpu": 8, "gpu": 64}
# Cycles, one core of a Xeon with AVX-512 (8 x 48 and 6 x 64 fragments, 256 to 1024 cubed): per vector
# packed, the same where it is turned in a square, and per vector of D for zeros and epilogue; what a
# launch takes. Two multiply-adds and two loads start in a cycle.
PACK, TURN, FINISH, CPU_LAUNCH = 3.0, 6.0, 8.0, 60_000
CPU_CLOCK = 2.6e9
# Cores do not end together: a part of a tile is waited for, so that a few more tiles are better.
STRAGGLER = 0.3
# H200, OpenCL f32, 25 tiles at 1024, 2048 and 4096 cubed: of a multiprocessor's rate a tile gets
# x / (x + 4.7) with x the FLOP of a local load (4 to 10.7: 0.46 to 0.70), less what the steps in K
# cost (0.89 at 8, 0.94 at 16, 0.97 at 32); a launch takes 8 us beside it.
LOAD_COST, STEP_COST, GPU_LAUNCH = 4.7, 1.0, 8e-6
GPU_RATE = 0.48e12
SUB_GROUP_FLOP_PER_LOAD = 6.0

GPU_TILES: tuple[tuple[tuple[int, int, int], tuple[int, int], int], ...] = (
    ((256, 128, 16), (64, 64), 1),
    ((128, 256, 16), (64, 64), 1),
    ((128, 128, 16), (64, 32), 2),
    ((128, 128, 32), (64, 32), 1),
    ((128, 64, 32), (64, 32), 1),
    ((64, 128, 32), (32, 64), 1),
    ((128, 64, 16), (64, 32), 2),
    ((64, 64, 32), (32, 32), 1),
    ((64, 64, 16), (32, 32), 2),
    ((64, 32, 32), (32, 16), 1),
    ((32, 64, 32), (16, 32), 1),
    ((32, 32, 32), (16, 16), 1),
    ((16, 64, 32), (8, 32), 1),
    ((64, 16, 32), (32, 8), 1),
)
CPU_ROWS = (6, 24, 48, 96, 132, 192, 264)
CPU_VECTORS = (1, 4, 8, 12, 16, 24)
CPU_DEPTHS = (128, 256)


def tiles(spec: TileSpec, arch: Arch) -> Iterator[Mapping[str, Any]]:
    """Candidates for the types and majornesses of a spec on a device class.

    On CPUs one work-item takes a whole tile: rows in sixes, since 6 rows x 4 vectors fill the
    registers, and columns in vectors of the accumulation type.
    """
    if arch.kind != "cpu":
        for block, warp, stages in GPU_TILES:
            yield {"block": block, "warp": warp, "stages": stages}
        return
    acc = spec.types.acc
    vector = max((i.n for i in arch.instructions if i.type_acc == acc and i.k == 1), default=1)
    order = Roles.of(spec).order
    for rows in CPU_ROWS:
        for vectors in CPU_VECTORS:
            tile = order((rows, vectors * vector))
            for depth in CPU_DEPTHS:
                yield {"block": (*tile, depth), "warp": tile, "stages": 1}


def estimate(plan: KernelPlan, shape: tuple[int, int, int], batch: int) -> float:
    """Seconds that the model expects of a shape, on a nominal device of the class."""
    if min(*shape, batch) == 0:
        return 0.0
    if plan.form == "vector_fragment":
        return _on_cores(plan, shape, batch)
    if plan.arch.kind == "cpu":
        return inf  # the other forms are there to be checked on CPUs, not to be fast on them
    return _on_multiprocessors(plan, shape, batch)


def _on_cores(plan: KernelPlan, shape: tuple[int, int, int], batch: int) -> float:
    """Each core takes whole tiles; packing and the epilogue are counted beside the fragments."""
    spec, roles, numbers = plan.spec, Roles.of(plan.spec), plan.numbers
    rows, vectors, vector = (int(numbers[name]) for name in ("ROWS", "VECTORS", "VECTOR"))
    depth, k = plan.block[2], shape[2]
    tile_rows, tile_cols = roles.order(plan.warp)
    m, n = roles.order((shape[0], shape[1]))
    # Fragments that are multiplied: those beyond the edge are left out.
    used_rows, used_cols = ceil(m / rows), ceil(n / (vectors * vector))
    # 8 sums in flight hide the latency of a multiply-add (4 cycles, two a cycle).
    per_k = max(rows * vectors, rows + vectors, 8) / 2
    if plan.budget.registers[0].spills:
        per_k *= 2
    multiply = used_rows * used_cols * per_k * k
    tiles_down, tiles_across = ceil(m / tile_rows), ceil(n / tile_cols)
    turned = next(c for c in plan.copies if c.operand == roles.cols).transposes
    packed = PACK * m * tiles_across + (TURN if turned else PACK) * n * tiles_down
    passes = ceil(k / depth)
    finish = m * n / vector * (FINISH + 2 * passes)
    # The part of the column panel that is in use should stay in the first cache, the rest in the second.
    bytes_each = DTYPES[spec.types.acc].bytes
    strain = 1 + 0.15 * (min(depth, k) * vectors * vector * bytes_each > 32 * 1024)
    strain += 0.1 * (plan.budget.private_bytes > 768 * 1024)
    work = batch * (multiply * strain + packed * k / vector + finish)
    count, units = batch * tiles_down * tiles_across, plan.arch.multiprocessors or UNITS["cpu"]
    return (work / count * (ceil(count / units) + STRAGGLER) + CPU_LAUNCH) / CPU_CLOCK


def _on_multiprocessors(plan: KernelPlan, shape: tuple[int, int, int], batch: int) -> float:
    """Blocks in rounds over the multiprocessors, each at the rate that its inner loop leaves."""
    (bm, bn, bk), (m, n, k) = plan.block, shape
    blocks = batch * ceil(m / bm) * ceil(n / bn)
    units = plan.arch.multiprocessors or UNITS["gpu"]
    intensity = plan.budget.flop_per_shared_load or SUB_GROUP_FLOP_PER_LOAD
    share = intensity / (intensity + LOAD_COST) * bk / (bk + STEP_COST)
    flop = 2 * bm * bn * ceil(k / bk) * bk
    return ceil(blocks / units) * flop / (share * GPU_RATE) + GPU_LAUNCH
