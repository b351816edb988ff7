"""The work-group form: the block tile staged in local memory, micro-tiles by outer product; for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.layout import Layout, bank_conflicts
from tilegen.plan import (
    Access,
    Budget,
    Copy,
    Entry,
    Fragment,
    Fragments,
    KernelPlan,
    Ownership,
    Pipeline,
    RegisterUse,
    Role,
    SharedTile,
)
from tilegen.rules import Candidate, Rule, Violation
from tilegen.spec import PinValue, TileSpec
from tilegen.tiling import (
    CONTIGUOUS,
    ceil_div,
    interleaved,
    lane_grid,
    largest_divisor,
    main_arguments,
    occupancy,
    planned_steps,
    power_of_two_divisor,
    tile_grid,
)

from .archs import SCALARS
from .naming import as_spelled, kernel_name
from .roles import Roles
from .types import COMBINATIONS, needs

# Neighbouring work-items that share a warp tile; no sub-group is assumed, on CPUs either.
LOGICAL_LANES = 32
SWIZZLES = ("none", "pad", "xor")
DEFAULT_THREAD = (8, 8)
# Pointers, sizes, strides, the loop and the tile's place, as 64-bit values count twice.
ADDRESS_REGISTERS = 36


def lanes_spread_on_cpus(c: Candidate) -> Iterator[Violation]:
    """On a CPU the lanes of a warp lie along both axes.

    Intel's runtime (2026.2) leaves most of D unwritten where they lie along one; it is right with
    its optimiser off, and PoCL is right either way.
    """
    if c.arch.kind == "cpu" and c.lanes is not None and 1 in c.lanes:
        yield Violation(
            "lanes_on_cpu",
            "warp",
            c.spec.warp,
            "on a CPU the 32 lanes must lie along both M and N, and this tile lines them up on one",
        )


@dataclass(frozen=True)
class WorkGroup:
    """Local-memory tiles, 32 logical lanes a warp, TM x TN micro-tiles, up to two stages."""

    name: str = "work_group"
    rules: tuple[Rule, ...] = (lanes_spread_on_cpus,)

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return COMBINATIONS

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,), "swizzle": SWIZZLES}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        roles = Roles.of(spec)
        # Types without an instruction are refused; the numbers still want one.
        offered = [i for i in SCALARS if i.type_acc == spec.types.acc] or list(SCALARS)
        instruction = as_spelled(offered[0], arch)
        threads = max(1, spec.warps[0]) * max(1, spec.warps[1]) * LOGICAL_LANES
        access = arch.max_access_bytes if arch.kind == "gpu" else 16
        # Of the tiles in local memory, whose elements have the accumulation type.
        widest = max(1, min(16, access) // DTYPES[spec.types.acc].bytes)
        lanes = lane_grid(LOGICAL_LANES, spec.warp, widest)
        base = Candidate(spec, "opencl", arch, self, instruction, threads, LOGICAL_LANES, lanes)
        if lanes is None or any(b % w for b, w in zip(spec.block, spec.warp, strict=False)):
            return base
        tile = spec.warp[0] // lanes[0], spec.warp[1] // lanes[1]
        bound = spec.thread or DEFAULT_THREAD
        thread = largest_divisor(tile[0], bound[0]), largest_divisor(tile[1], bound[1])
        vectors = tuple(power_of_two_divisor(extent, widest) for extent in thread)
        passes = tile[0] // thread[0], tile[1] // thread[1]
        notes = []
        if spec.thread is not None and spec.thread != thread:
            notes.append(
                f"thread {list(spec.thread)} -> {list(thread)}: a lane's share of the warp tile is "
                f"{tile[0]} x {tile[1]}"
            )
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: this form sums all of K in one work-group")
        stages = min(spec.stages, 2)
        if spec.stages > 2:
            notes.append(
                f"stages {spec.stages} -> 2: tiles pass through registers, so one can be in flight"
            )

        def tiles(count: int) -> tuple[SharedTile, ...]:
            return tuple(self._shared(o, spec, arch, lanes, vectors, count) for o in ("a", "b"))

        shared = tiles(stages)
        if stages == 2 and sum(t.bytes for t in shared) > arch.shared_bytes:
            shared, stages = tiles(1), 1
            notes.append(
                f"stages 2 -> 1: two stages of A and B do not fit in {arch.shared_bytes} bytes"
            )
        # Registers hold 4 bytes; elements on their way to local memory are kept as they are stored.
        words = DTYPES[spec.types.acc].bytes // 4
        fetches = [
            ceil_div(
                ceil_div(t.rows * t.cols // self._stage_vector(t.operand, spec, arch), threads)
                * self._stage_vector(t.operand, spec, arch)
                * DTYPES[getattr(spec.types, t.operand)].bytes,
                4,
            )
            for t in shared
        ]
        use = RegisterUse(
            arch.registers.name,
            accumulators=tile[0] * tile[1] * words,
            operands=(tile[0] + tile[1]) * words,
            staging=sum(fetches),
            addressing=ADDRESS_REGISTERS,
            limit=arch.registers.per_lane,
        )
        for operand, step in zip(("a", "b"), shared, strict=True):
            if step.store_conflicts or step.load_conflicts:
                notes.append(
                    f"{operand}'s local tile: {step.store_conflicts} extra cycles a warp store, "
                    f"{step.load_conflicts} a warp load ({step.swizzle})"
                )
        rows, cols = roles.order((0, 1))
        return replace(
            base,
            thread=thread,
            passes=passes,
            stages=stages,
            shared=shared,
            registers=(use,),
            needs=needs(spec),
            numbers={
                "ROW_VECTOR": vectors[rows],
                "COL_VECTOR": vectors[cols],
                "vectors": vectors,
            },
            notes=tuple(notes),
        )

    def _stage_vector(self, operand: str, spec: TileSpec, arch: Arch) -> int:
        """Elements of one staging access: whole vectors along the contiguous axis."""
        access = arch.max_access_bytes if arch.kind == "gpu" else 16
        widest = max(1, min(16, access) // DTYPES[getattr(spec.types, operand)].bytes)
        axis = CONTIGUOUS[operand][getattr(spec.layout, operand)]
        return power_of_two_divisor(spec.block["mnk".index(axis)], widest)

    def _shared(
        self,
        operand: str,
        spec: TileSpec,
        arch: Arch,
        lanes: tuple[int, int],
        vectors: tuple[int, ...],
        stages: int,
    ) -> SharedTile:
        """The operand's tile as [k][extent], with the fewest conflicts of what is allowed."""
        axis = 0 if operand == "a" else 1
        extent, depth = spec.block[axis], spec.block[2]
        fragment, stage = vectors[axis], self._stage_vector(operand, spec, arch)
        turned = CONTIGUOUS[operand][getattr(spec.layout, operand)] == "k"
        size = DTYPES[spec.types.acc].bytes
        plain = SharedTile(
            operand, depth, extent, extent, stages, size, vector=fragment, contiguous="mn"[axis]
        )
        mask = min(8, power_of_two_divisor(extent // fragment, 8), max(1, depth // stage)) - 1
        mask = (1 << (mask + 1).bit_length() - 1) - 1
        options = [plain]
        if turned:
            options.append(replace(plain, swizzle="pad", row_stride=extent + fragment))
            if mask:
                options.append(replace(plain, swizzle="xor", swizzle_rows=stage, swizzle_mask=mask))
        pinned = spec.pins.get("opencl", {}).get("swizzle")
        allowed = [o for o in options if o.swizzle == pinned] or options
        judged = [self._judge(o, turned, stage, axis, lanes, arch) for o in allowed]
        return min(judged, key=lambda t: (t.store_conflicts + t.load_conflicts * t.rows, t.bytes))

    def _judge(
        self,
        tile: SharedTile,
        turned: bool,
        stage: int,
        axis: int,
        lanes: tuple[int, int],
        arch: Arch,
    ) -> SharedTile:
        """The tile with the conflicts of its first warp's store and load."""
        size, per_row = tile.element_bytes, max(1, (tile.rows if turned else tile.cols) // stage)
        stores = []
        for lane in range(LOGICAL_LANES):
            slow, fast = lane // per_row, lane % per_row * stage
            row, col = (fast, slow % tile.cols) if turned else (slow % tile.rows, fast)
            stores.append(tile.offset(row, col) * size)
        loads = []
        for lane in range(LOGICAL_LANES):
            place = lane % lanes[0] if axis == 0 else lane // lanes[0]
            loads.append(tile.offset(0, place * tile.vector) * size)
        # A wider store is issued in parts of 16 bytes.
        store_bytes = size if turned else min(16, size * stage)
        banks = {"banks": arch.banks, "bank_bytes": arch.bank_bytes}
        return replace(
            tile,
            store_conflicts=bank_conflicts(stores, store_bytes, **banks) * (stage if turned else 1),
            load_conflicts=bank_conflicts(loads, size * tile.vector, **banks),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch = candidate.spec, candidate.arch
        assert candidate.instruction is not None
        assert candidate.lanes is not None
        (bm, bn, bk), (wm, wn), (lm, ln) = spec.block, spec.warp, candidate.lanes
        warps_m, warps_n = spec.warps
        (tm, tn), use = candidate.thread, candidate.registers[0]
        rows, cols = tm * candidate.passes[0], tn * candidate.passes[1]
        vm, vn = candidate.numbers["vectors"]
        roles = Roles.of(spec)
        lane_m, value_m = interleaved(wm, lm, vm)
        lane_n, value_n = interleaved(wn, ln, vn)
        sizes = {o: DTYPES[getattr(spec.types, o)].bytes for o in ("a", "b", "c", "d")}
        shared_bytes = candidate.shared_bytes
        stage = {o: self._stage_vector(o, spec, arch) for o in ("a", "b")}
        d_vector = vn if not roles.swapped else vm
        c_vector = d_vector if spec.layout.c == spec.layout.d else 1
        wide = (
            *(Access(o, stage[o], stage[o] * sizes[o], stage[o]) for o in ("a", "b")),
            Access("c", c_vector, c_vector * sizes["c"], c_vector),
            Access("d", d_vector, d_vector * sizes["d"], d_vector),
        )
        narrow = tuple(Access(o, 1, sizes[o], unit_step=False) for o in ("a", "b", "c", "d"))
        entries = tuple(
            Entry(
                name=f"{spec.name}_{variant}",
                role="main",
                variant=variant,
                arguments=main_arguments(spec, offsets=True, steps=variant == "narrow"),
                accesses=accesses,
                grid=tile_grid(spec.block),
                block=candidate.threads,
                shared_bytes=shared_bytes,
            )
            for variant, accesses in (("wide", wide), ("narrow", narrow))
        )
        blocks, share, bound = occupancy(arch, candidate.threads, shared_bytes, use)
        per_thread = {
            t.operand: ceil_div(t.rows * t.cols // stage[t.operand], candidate.threads)
            for t in candidate.shared
        }
        # The text keeps sums[row][col], the column fastest.
        places = (value_n.scaled(bm), value_m)
        register = Layout.concat(*(reversed(places) if roles.swapped else places))
        both = Layout((warps_m, warps_n), (wm, bm * wn))
        return KernelPlan(
            spec=spec,
            backend="opencl",
            arch=arch,
            form=self.name,
            template="work_group.cl.j2",
            name=kernel_name(spec, arch, f"t{tm}x{tn}_s{candidate.stages}"),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=candidate.thread,
            passes=candidate.passes,
            threads=candidate.threads,
            split_k=1,
            fragments=Fragments(
                a=Fragment(wm, bk, 1, rows, (1, 1)),
                b=Fragment(wn, bk, 1, cols, (1, 1)),
                c=Fragment(wm, wn, 1, use.accumulators, (1, 1)),
            ),
            ownership={
                "a": Ownership(
                    bm,
                    bk,
                    Layout((warps_m, warps_n), (wm, 0)),
                    Layout((lm, ln), (vm, 0)),
                    Layout.concat(value_m, Layout((bk,), (bm,))),
                    copies=warps_n * ln,
                ),
                "b": Ownership(
                    bn,
                    bk,
                    Layout((warps_m, warps_n), (0, wn)),
                    Layout((lm, ln), (0, vn)),
                    Layout.concat(value_n, Layout((bk,), (bn,))),
                    copies=warps_m * lm,
                ),
                "c": Ownership(bm, bn, both, Layout.concat(lane_m, lane_n.scaled(bm)), register),
            },
            shared=candidate.shared,
            copies=tuple(
                Copy(
                    t.operand,
                    "global",
                    "shared",
                    "vector_load",
                    stage[t.operand],
                    per_thread[t.operand],
                    CONTIGUOUS[t.operand][getattr(spec.layout, t.operand)],
                    transposes=CONTIGUOUS[t.operand][getattr(spec.layout, t.operand)] == "k",
                )
                for t in candidate.shared
            ),
            pipeline=Pipeline(candidate.stages, "barrier", (Role("all", warps_m * warps_n),)),
            epilogue=planned_steps(spec),
            entries=entries,
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=shared_bytes,
                shared_limit=arch.shared_bytes,
                blocks_per_multiprocessor=blocks,
                occupancy=share,
                bound_by=bound,
                # The text reads all of a lane's rows and columns of one k together, passes included.
                flop_per_shared_load=2 * rows * cols / (rows + cols),
                flop_per_global_byte=2 * bm * bn / (bm * sizes["a"] + bn * sizes["b"]),
            ),
            numbers={
                "ROW_VECTOR": candidate.numbers["ROW_VECTOR"],
                "COL_VECTOR": candidate.numbers["COL_VECTOR"],
                "LANES_M": lm,
                "LANES_N": ln,
                "LANES": LOGICAL_LANES,
            },
            notes=candidate.notes,
        )
