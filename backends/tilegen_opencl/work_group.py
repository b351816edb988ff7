"""The work-group form: the block tile staged in local memory, micro-tiles by outer product; for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.outer_product import LaneTile
from tilegen.plan import (
    Budget,
    Copy,
    KernelPlan,
    Pipeline,
    RegisterUse,
    Role,
    SharedTile,
    shared_end,
)
from tilegen.roles import Roles
from tilegen.rules import Candidate, Rule, Violation
from tilegen.spec import PinValue, TileSpec
from tilegen.staging import Staging, aligned_accesses, conflict_notes, staged_tiles
from tilegen.tiling import (
    CONTIGUOUS,
    lane_grid,
    main_entries,
    occupancy,
    planned_steps,
)

from .archs import DOTS, SCALARS
from .naming import as_spelled, kernel_name
from .types import COMBINATIONS, dot_product, needs

SWIZZLES = ("none", "pad", "xor")
# Neighbouring work-items that share a warp tile; no sub-group is assumed, on CPUs either.
LOGICAL_LANES = 32
INSTRUCTIONS = tuple(dict.fromkeys(i.name for i in (*DOTS, *SCALARS)))
# Pointers, sizes, strides, the loop and the tile's place, as 64-bit values count twice; for each
# load on its way its two addresses and bounds; for a second stage what its copies of the loop add.
# Fitted to the private memory that NVIDIA's OpenCL (580.159, H200) reports for 24 tiles: all 6 that
# spill are predicted to, and none of the others.
ADDRESS_REGISTERS, LOAD_REGISTERS, STAGE_REGISTERS = 36, 5, 20


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


def offered(spec: TileSpec) -> list[Instruction]:
    """The instructions that multiply the spec's types, those first that do the most at once."""
    t = spec.types
    dots = [i for i in DOTS if (i.type_a, i.type_b, i.type_acc) == (t.a, t.b, t.acc)]
    return [*dots, *(i for i in SCALARS if i.type_acc == t.acc)]


def choose(spec: TileSpec, arch: Arch) -> tuple[Instruction, list[str]]:
    """The pinned instruction, or the first offered that the arch has and that tiles BLOCK_K.

    Types without an instruction are refused; the numbers still want one.
    """
    there = offered(spec) or list(SCALARS)
    pin = spec.pins.get("opencl", {}).get("instruction")
    pinned = [i for i in there if i.name == pin]
    if pinned:
        return pinned[0], []
    notes: list[str] = []
    for instruction in there:
        if needs(spec, instruction) - needs(spec) <= arch.features:
            if spec.block[2] % instruction.k == 0:
                return instruction, notes
            notes.append(
                f"instruction {instruction.name} -> {there[-1].name}: BLOCK_K = {spec.block[2]} "
                f"is not a multiple of {instruction.k}"
            )
    return there[-1], notes


def pinned_instruction_is_there(c: Candidate) -> Iterator[Violation]:
    """The arch has a pinned instruction, and it multiplies the spec's types."""
    pin = c.spec.pins.get(c.backend, {}).get("instruction")
    there = {i.name: i for i in offered(c.spec)}
    if pin not in INSTRUCTIONS or not there:
        return
    field, t = f"pins.{c.backend}.instruction", c.spec.types
    if pin not in there:
        need = f"{t.a} x {t.b} -> {t.acc} is multiplied by {', '.join(there)}"
        yield Violation("pinned_instruction", field, pin, need, [*there][-1])
        return
    for feature in sorted(needs(c.spec, there[str(pin)]) - needs(c.spec) - c.arch.features):
        need = f"needs {feature}, which {c.arch.name} lacks"
        yield Violation("pinned_instruction", field, pin, need, [*there][-1])


@dataclass(frozen=True)
class WorkGroup:
    """Local-memory tiles, 32 logical lanes a warp, TM x TN micro-tiles, up to two stages."""

    name: str = "work_group"
    rules: tuple[Rule, ...] = (lanes_spread_on_cpus, pinned_instruction_is_there)

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return COMBINATIONS

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,), "instruction": INSTRUCTIONS, "swizzle": SWIZZLES}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        roles = Roles.of(spec)
        chosen, notes = choose(spec, arch)
        instruction = as_spelled(_oriented(chosen, roles), arch)
        threads = max(1, spec.warps[0]) * max(1, spec.warps[1]) * LOGICAL_LANES
        access = arch.max_access_bytes if arch.kind == "gpu" else 16
        # Of the tiles in local memory, whose places are as wide as the accumulation type.
        widest = max(1, min(16, access) // DTYPES[spec.types.acc].bytes)
        way = LaneTile.of(spec, LOGICAL_LANES, widest)
        lanes = lane_grid(LOGICAL_LANES, spec.warp, widest)
        base = Candidate(spec, "opencl", arch, self, instruction, threads, LOGICAL_LANES, lanes)
        if way is None or lanes is None:
            return base
        tile, vectors = way.tile, way.vectors
        if way.note:
            notes.append(way.note)
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: this form sums all of K in one work-group")
        stages = min(spec.stages, 2)
        if spec.stages > 2:
            notes.append(
                f"stages {spec.stages} -> 2: tiles pass through registers, so one can be in flight"
            )

        staging = {o: Staging.of(o, spec, arch, instruction) for o in ("a", "b")}
        swizzle = spec.pins.get("opencl", {}).get("swizzle")

        def tiles(count: int) -> tuple[SharedTile, ...]:
            return staged_tiles(staging, vectors, arch, lanes, count, swizzle)

        shared = tiles(stages)
        if stages == 2 and shared_end(shared) > arch.shared_bytes:
            shared, stages = tiles(1), 1
            notes.append(
                f"stages 2 -> 1: two stages of A and B do not fit in {arch.shared_bytes} bytes"
            )
        # Registers hold 4 bytes: of one value, or of a word of k's.
        words = DTYPES[spec.types.acc].bytes // 4

        def registers(count: int) -> RegisterUse:
            return RegisterUse(
                arch.registers.name,
                accumulators=tile[0] * tile[1] * words,
                operands=(tile[0] + tile[1]) * words,
                staging=sum(way.registers(threads) for way in staging.values()),
                addressing=ADDRESS_REGISTERS
                + LOAD_REGISTERS * sum(w.fetches(threads) * w.loads for w in staging.values())
                + STAGE_REGISTERS * (count - 1),
                limit=arch.registers.per_lane,
            )

        if stages == 2 and registers(2).spills and not registers(1).spills:
            shared, stages = tiles(1), 1
            notes.append(
                f"stages 2 -> 1: {registers(2).predicted} registers a lane are predicted for two, "
                f"and there are {arch.registers.per_lane}"
            )
        use = registers(stages)
        notes += conflict_notes(shared, "local")
        rows, cols = roles.order((0, 1))
        return replace(
            base,
            thread=way.thread,
            passes=way.passes,
            stages=stages,
            shared=shared,
            registers=(use,),
            needs=needs(spec),
            numbers={
                "ROW_VECTOR": vectors[rows],
                "COL_VECTOR": vectors[cols],
                "way": way,
                "staging": staging,
            },
            notes=tuple(notes),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch = candidate.spec, candidate.arch
        assert candidate.instruction is not None
        assert candidate.lanes is not None
        (bm, bn, _), (lm, ln) = spec.block, candidate.lanes
        warps_m, warps_n = spec.warps
        use = candidate.registers[0]
        lane_tile: LaneTile = candidate.numbers["way"]
        roles = Roles.of(spec)
        sizes = {o: DTYPES[getattr(spec.types, o)].bytes for o in ("a", "b", "c", "d")}
        shared_bytes = candidate.shared_bytes
        staging: dict[str, Staging] = candidate.numbers["staging"]
        mma_k = candidate.instruction.k
        entries = main_entries(
            spec,
            aligned_accesses(spec, staging, lane_tile.vectors[roles.order((0, 1))[1]]),
            offsets=True,
            threads=candidate.threads,
            shared_bytes=shared_bytes,
        )
        blocks, share, bound = occupancy(arch, candidate.threads, shared_bytes, use)
        return KernelPlan(
            spec=spec,
            backend="opencl",
            arch=arch,
            form=self.name,
            template="work_group.cl.j2",
            name=kernel_name(spec, arch, _tail(candidate)),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=candidate.thread,
            passes=candidate.passes,
            threads=candidate.threads,
            split_k=1,
            fragments=lane_tile.fragments(spec, mma_k),
            ownership=lane_tile.ownership(spec, mma_k),
            shared=candidate.shared,
            copies=tuple(
                Copy(
                    o,
                    "global",
                    "shared",
                    "vector_load",
                    way.vector,
                    way.fetches(candidate.threads) * way.loads,
                    CONTIGUOUS[o][getattr(spec.layout, o)],
                    transposes=way.turned,
                )
                for o, way in staging.items()
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
                flop_per_shared_load=mma_k * lane_tile.flop_per_load,
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


def _oriented(instruction: Instruction, roles: Roles) -> Instruction:
    """The instruction as the text calls it: its first operand is the one along the rows."""
    if instruction.k == 1 or not roles.swapped:
        return instruction
    return replace(
        instruction, mnemonic=f"{dot_product(instruction.type_b, instruction.type_a)} + sum"
    )


def _tail(candidate: Candidate) -> str:
    """What the kernel's name says of the micro-tile; a device's features choose the instruction."""
    assert candidate.instruction is not None
    (tm, tn), packed = candidate.thread, candidate.instruction.k
    return f"t{tm}x{tn}_s{candidate.stages}" + (f"_dot{packed}" if packed > 1 else "")
