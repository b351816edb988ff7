"""The FMA form: the block tile staged in shared memory, micro-tiles by outer product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.outer_product import LaneTile
from tilegen.plan import (
    Budget,
    Copy,
    KernelPlan,
    Pipeline,
    Role,
    SharedTile,
    shared_end,
)
from tilegen.roles import Roles
from tilegen.rules import Candidate, Rule
from tilegen.spec import PinValue, TileSpec
from tilegen.staging import Staging, aligned_accesses, conflict_notes, staged_tiles, stages_that_fit
from tilegen.tiling import (
    CONTIGUOUS,
    kernel_name,
    lane_grid,
    main_entries,
    occupancy,
    planned_steps,
)

from .archs import SCALARS, dynamic_bytes
from .choices import common_pins, copies_behind, pinned_blocks
from .fma_registers import registers
from .register_model import MAY_SPILL
from .types import FMA_COMBINATIONS

# How deep the loop over BLOCK_K is unrolled.
UNROLL_K = 8
# What one access of the widest kind moves.
WIDEST_BYTES = 16


@dataclass(frozen=True)
class Fma:
    """Tiles in shared memory, TM x TN micro-tiles, as many stages as fit.

    An operand that is contiguous along M or N lies in shared memory as it does in global memory and
    is copied by cp.async where the arch has it; one that is contiguous along K is turned on its way
    through registers.
    """

    name: str = "fma"
    rules: tuple[Rule, ...] = ()

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return FMA_COMBINATIONS

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,), **common_pins(arch)}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        pins = spec.pins.get("cuda", {})
        instruction = next((i for i in SCALARS if i.type_acc == spec.types.acc), SCALARS[0])
        threads = max(1, spec.warps[0]) * max(1, spec.warps[1]) * arch.lanes
        size = DTYPES[spec.types.acc].bytes
        widest = max(1, WIDEST_BYTES // size)
        way, lanes = LaneTile.of(spec, arch.lanes, widest), lane_grid(arch.lanes, spec.warp, widest)
        base = Candidate(spec, "cuda", arch, self, instruction, threads, arch.lanes, lanes)
        if way is None:
            return base
        notes = [way.note] if way.note else []
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: this form sums all of K in one block")
        staging = {o: Staging.of(o, spec, arch, instruction) for o in ("a", "b")}
        behind = _asynchronous(staging, spec, arch)

        def tiles(stages: int) -> tuple[SharedTile, ...]:
            return staged_tiles(
                staging,
                way.vectors,
                arch,
                way.lanes,
                stages,
                pins.get("swizzle"),
                boundary=WIDEST_BYTES,
            )

        stages, shared, fewer = stages_that_fit(spec, arch, tiles)
        notes += [*fewer, *conflict_notes(shared, "shared")]
        use, blocks, entries, risks = registers(
            spec,
            arch,
            way,
            staging,
            shared,
            behind,
            threads,
            shared_end(shared),
            pinned_blocks(spec),
            stages,
        )
        if use.doubtful:
            notes.append(MAY_SPILL)
        return replace(
            base,
            thread=way.thread,
            passes=way.passes,
            stages=stages,
            shared=shared,
            registers=(use,),
            numbers={
                "register_terms": entries,
                "register_risks": risks,
                "way": way,
                "staging": staging,
                "behind": behind,
                "min_blocks": blocks,
            },
            notes=tuple(notes),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch = candidate.spec, candidate.arch
        assert candidate.instruction is not None
        way: LaneTile = candidate.numbers["way"]
        staging: dict[str, Staging] = candidate.numbers["staging"]
        behind: frozenset[str] = candidate.numbers["behind"]
        (bm, bn, _), roles, use = spec.block, Roles.of(spec), candidate.registers[0]
        size = DTYPES[spec.types.acc].bytes
        rows, cols = roles.order((0, 1))
        entries = main_entries(
            spec,
            aligned_accesses(spec, staging, way.vectors[cols]),
            offsets=False,
            threads=candidate.threads,
            shared_bytes=candidate.shared_bytes,
        )
        blocks, share, bound = occupancy(arch, candidate.threads, candidate.shared_bytes, use)
        (tm, tn), stages = candidate.thread, candidate.stages
        return KernelPlan(
            spec=spec,
            backend="cuda",
            arch=arch,
            form=self.name,
            template="fma.cu.j2",
            name=kernel_name(spec, arch, f"t{tm}x{tn}_s{stages}"),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=candidate.thread,
            passes=candidate.passes,
            threads=candidate.threads,
            split_k=1,
            fragments=way.fragments(spec, 1),
            ownership=way.ownership(spec, 1),
            shared=candidate.shared,
            copies=tuple(
                Copy(
                    o,
                    "global",
                    "shared",
                    "cp_async" if o in behind else "vector_load",
                    s.vector,
                    s.fetches(candidate.threads),
                    CONTIGUOUS[o][getattr(spec.layout, o)],
                    transposes=s.turned,
                )
                for o, s in staging.items()
            ),
            pipeline=Pipeline(
                stages,
                "cp_async_group" if behind else "barrier",
                (Role("all", spec.warps[0] * spec.warps[1]),),
            ),
            epilogue=planned_steps(spec),
            entries=entries,
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=candidate.shared_bytes,
                shared_limit=arch.shared_bytes,
                blocks_per_multiprocessor=blocks,
                occupancy=share,
                bound_by=bound,
                flop_per_shared_load=way.flop_per_load,
                flop_per_global_byte=2 * bm * bn / ((bm + bn) * size),
            ),
            numbers={
                "ROW_VECTOR": way.vectors[rows],
                "COL_VECTOR": way.vectors[cols],
                "LANES_M": way.lanes[0],
                "LANES_N": way.lanes[1],
                "UNROLL_K": UNROLL_K,
                "MIN_BLOCKS": candidate.numbers["min_blocks"],
                # Static shared memory has a limit of its own; beyond it the launch asks for it.
                "DYNAMIC_BYTES": dynamic_bytes(candidate.shared_bytes),
            },
            notes=candidate.notes,
        )


def _asynchronous(staging: Mapping[str, Staging], spec: TileSpec, arch: Arch) -> frozenset[str]:
    """The operands that cp.async brings: those that lie the same way in both memories."""
    if not copies_behind(spec, arch):
        return frozenset()
    return frozenset(o for o, s in staging.items() if not s.turned)
