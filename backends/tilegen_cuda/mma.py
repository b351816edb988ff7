"""The mma_sync form: block tiles staged in shared memory, fragments by ldmatrix, tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.plan import Budget, Copy, KernelPlan, Pipeline, Role, SharedTile, shared_end
from tilegen.roles import Roles
from tilegen.rules import Candidate, Rule, Violation
from tilegen.spec import PinValue, TileSpec
from tilegen.staging import conflict_notes, stages_that_fit
from tilegen.tiling import (
    CONTIGUOUS,
    kernel_name,
    occupancy,
    planned_steps,
    power_of_two_divisor,
)

from .archs import dynamic_bytes
from .choices import common_pins, copies_behind, pinned_blocks
from .mma_entries import entries, sum_bytes
from .mma_fragments import fragments, ownership
from .mma_instructions import FP8, combinations, fp8_is_made_of_f16, turned
from .mma_registers import BUFFERS, registers, steps_spill
from .mma_tiles import CHUNK_BYTES, OperandTile, shared_tiles
from .register_model import MAY_SPILL

EPILOGUES = ("direct", "shared")


def of_arch(arch: Arch) -> tuple[Instruction, ...]:
    """The arch's instructions that take a warp."""
    return tuple(i for i in arch.instructions if i.lanes > 1)


@dataclass(frozen=True)
class MmaSync:
    """Tiles in shared memory as they lie in global memory, fragments in registers, twice.

    cp.async brings the tiles where the arch has it, registers where not; sums stay in registers for
    the whole of K.
    """

    name: str = "mma_sync"

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (
            instruction_serves,
            rows_are_whole_chunks,
            pairs_are_whole,
            epilogue_fits,
            steps_fit_in_registers,
        )

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return combinations(of_arch(arch))

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {
            "form": (self.name,),
            "instruction": tuple(dict.fromkeys(i.name for i in of_arch(arch))),
            "epilogue": EPILOGUES,
            **common_pins(arch),
        }

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        pins = spec.pins.get("cuda", {})
        instruction = _instruction(spec, arch)
        threads = max(1, spec.warps[0]) * max(1, spec.warps[1]) * arch.lanes
        base = Candidate(spec, "cuda", arch, self, instruction, threads, arch.lanes, lanes=(8, 4))
        if instruction is None or any(b % w for b, w in zip(spec.block, spec.warp, strict=False)):
            return base
        notes = []
        if spec.thread is not None:
            notes.append(
                f"thread {list(spec.thread)}: fragments have no micro-tiles, so it is unused"
            )
        tiles = {o: OperandTile.of(o, spec, instruction) for o in ("a", "b")}
        epilogue = _epilogue(spec)
        staged = _epilogue_bytes(spec) if epilogue == "shared" else 0

        def staged_in(stages: int) -> tuple[SharedTile, ...]:
            return shared_tiles(tuple(tiles.values()), threads, arch, stages, pins.get("swizzle"))

        stages, shared, fewer = stages_that_fit(spec, arch, staged_in)
        notes += [*fewer, *conflict_notes(shared, "shared")]
        if spec.types.a in FP8 and not fp8_is_made_of_f16(arch):
            notes.append(
                "what an fp8 instruction keeps of its sums was measured on sm_90 alone "
                f"(docs/matrix-arithmetic.md): on {arch.name} results may leave the error bound"
            )
        asynchronous = copies_behind(spec, arch)
        shared_bytes = max(shared_end(shared), staged)
        use, blocks, terms, risks = registers(
            spec,
            arch,
            instruction,
            tiles,
            shared,
            threads,
            shared_bytes,
            pinned_blocks(spec),
            stages,
            asynchronous,
        )
        if use.doubtful:
            notes.append(MAY_SPILL)
        return replace(
            base,
            stages=stages,
            split_k=spec.split_k,
            shared=shared,
            registers=(use,),
            numbers={
                "register_terms": terms,
                "register_risks": risks,
                "tiles": tiles,
                "asynchronous": asynchronous,
                "min_blocks": blocks,
                "epilogue": epilogue,
                "epilogue_bytes": staged,
                "shared_bytes": shared_bytes,
            },
            notes=tuple(notes),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch, instruction = candidate.spec, candidate.arch, candidate.instruction
        assert instruction is not None
        tiles: dict[str, OperandTile] = candidate.numbers["tiles"]
        asynchronous: bool = candidate.numbers["asynchronous"]
        shared_bytes: int = candidate.numbers["shared_bytes"]
        (bm, bn, _), (wm, wn), use = spec.block, spec.warp, candidate.registers[0]
        blocks, share, bound = occupancy(arch, candidate.threads, shared_bytes, use)
        stages, epilogue = candidate.stages, candidate.numbers["epilogue"]
        # A lane holds two neighbours of D's columns.
        out = out_vector(spec) if epilogue == "shared" else 2
        size = {o: DTYPES[getattr(spec.types, o)].bytes for o in "ab"}
        tail = f"{instruction.name}_s{stages}"
        return KernelPlan(
            spec=spec,
            backend="cuda",
            arch=arch,
            form=self.name,
            template="mma_sync.cu.j2",
            name=kernel_name(spec, arch, f"{tail}_k{spec.split_k}" if spec.split_k > 1 else tail),
            instruction=instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=(1, 1),
            passes=(1, 1),
            threads=candidate.threads,
            split_k=spec.split_k,
            fragments=fragments(spec, instruction, tiles, BUFFERS),
            ownership=ownership(spec, instruction, tiles),
            shared=candidate.shared,
            copies=_copies(spec, instruction, tiles, candidate.threads, asynchronous),
            pipeline=Pipeline(
                stages,
                "cp_async_group" if asynchronous else "barrier",
                (Role("all", spec.warps[0] * spec.warps[1]),),
            ),
            epilogue=planned_steps(spec),
            entries=entries(spec, tiles, candidate.threads, shared_bytes, out),
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=shared_bytes,
                shared_limit=arch.shared_bytes,
                blocks_per_multiprocessor=blocks,
                occupancy=share,
                bound_by=bound,
                flop_per_shared_load=2 * wm * wn / (wm + wn),
                flop_per_global_byte=2 * bm * bn / (bm * size["a"] + bn * size["b"]),
            ),
            numbers={
                "EPILOGUE": epilogue,
                "OUT_VECTOR": out,
                "MIN_BLOCKS": candidate.numbers["min_blocks"],
                # Static shared memory has a limit of its own; beyond it the launch asks for it.
                "DYNAMIC_BYTES": dynamic_bytes(shared_bytes),
            },
            notes=candidate.notes,
        )


def instruction_serves(c: Candidate) -> Iterator[Violation]:
    """The pinned instruction multiplies the spec's types."""
    pinned = c.spec.pins.get(c.backend, {}).get("instruction")
    names = {i.name for i in of_arch(c.arch)}
    if c.instruction is not None or pinned not in names:
        return
    t = c.spec.types
    serving = [i for i in of_arch(c.arch) if (i.type_a, i.type_b, i.type_acc) == (t.a, t.b, t.acc)]
    if serving:
        yield Violation(
            "pins",
            "pins.cuda.instruction",
            pinned,
            f"must multiply {t.a} x {t.b} -> {t.acc}, as {', '.join(i.name for i in serving)} does",
            serving[0].name,
        )


def rows_are_whole_chunks(c: Candidate) -> Iterator[Violation]:
    """Rows of a tile in shared memory are whole accesses of 16 bytes."""
    for tile in c.numbers.get("tiles", {}).values():
        if tile.fast % tile.chunk:
            index = 2 if tile.along_k else "ab".index(tile.operand)
            yield Violation(
                "chunks",
                f"block[{index}]",
                c.spec.block[index],
                f"BLOCK_{'MNK'[index]} must be a multiple of {tile.chunk}: the tile of "
                f"{tile.operand.upper()} is moved {CHUNK_BYTES} bytes at a time along it",
            )


def pairs_are_whole(c: Candidate) -> Iterator[Violation]:
    """Bytes that are turned in pairs fill two fragments of 8 at a time."""
    for tile in c.numbers.get("tiles", {}).values():
        if tile.interleaved and tile.mmas % tile.group:
            index = "ab".index(tile.operand)
            yield Violation(
                "pairs",
                f"warp[{index}]",
                c.spec.warp[index],
                f"WARP_{'MN'[index]} must be a multiple of 16: ldmatrix turns bytes of "
                f"{tile.operand.upper()} 16 at a time",
            )


def epilogue_fits(c: Candidate) -> Iterator[Violation]:
    """What the warps put down of D at a time fits in the block's shared memory."""
    needed = c.numbers.get("epilogue_bytes", 0)
    if needed > c.arch.shared_bytes:
        yield Violation(
            "epilogue",
            "block[1]",
            c.spec.block[1],
            f"the epilogue's rows take {needed} bytes of shared memory and {c.arch.name} allows "
            f"{c.arch.shared_bytes}; pins.cuda.epilogue = direct takes none",
        )


def steps_fit_in_registers(c: Candidate) -> Iterator[Violation]:
    """The steps of the unrolled loop over BLOCK_K leave the sums their registers."""
    if not c.registers or not c.registers[0].spills or c.instruction is None:
        return
    entries, risks = c.numbers["register_terms"], c.numbers["register_risks"]
    if steps_spill(entries, risks, c.arch, c.registers[0].limit):
        yield Violation(
            "registers",
            "block[2]",
            c.spec.block[2],
            f"{c.spec.block[2] // c.instruction.k} steps of the unrolled loop over BLOCK_K have "
            "addresses of their own, and with them the kernel would spill",
        )


def _instruction(spec: TileSpec, arch: Arch) -> Instruction | None:
    """The pinned one or the first that multiplies these types; with B's rows where D is column-major."""
    t, pinned = spec.types, spec.pins.get("cuda", {}).get("instruction")
    swapped = Roles.of(spec).swapped
    a, b = (t.b, t.a) if swapped else (t.a, t.b)
    for i in of_arch(arch):
        if (i.type_a, i.type_b, i.type_acc) == (a, b, t.acc) and pinned in (None, i.name):
            return turned(i) if swapped else i
    return None


def out_vector(spec: TileSpec) -> int:
    """Elements in one access of at most 16 bytes to C and D, as far as a warp's columns are whole ones."""
    _, cols = Roles.of(spec).order(spec.warp)
    widest = max(DTYPES[t].bytes for t in (spec.types.c, spec.types.d))
    return power_of_two_divisor(cols, CHUNK_BYTES // widest)


# Elements of padding behind a row of sums in shared memory: rows of a quarter warp then lie apart.
OUT_PAD = 8


def _epilogue(spec: TileSpec) -> str:
    """Through shared memory where a lane's two neighbours are less than half of a 32-byte sector's share."""
    pinned = spec.pins.get("cuda", {}).get("epilogue")
    if spec.split_k > 1:
        # Sums of 4 and 8 bytes go to the workspace as they are.
        return "direct"
    if pinned in EPILOGUES:
        return str(pinned)
    return "shared" if DTYPES[spec.types.d].bytes < 4 else "direct"


def _epilogue_bytes(spec: TileSpec) -> int:
    """Shared memory for 16 rows of sums of each warp."""
    rows, cols = Roles.of(spec).order(spec.warp)
    count = spec.warps[0] * spec.warps[1]
    return count * min(16, rows) * (cols + OUT_PAD) * sum_bytes(spec)


def _copies(
    spec: TileSpec,
    instruction: Instruction,
    tiles: Mapping[str, OperandTile],
    threads: int,
    asynchronous: bool,
) -> tuple[Copy, ...]:
    """From global to shared memory, and from there to the fragments."""
    out = []
    for o, tile in tiles.items():
        slow, fast = tile.fetches(threads)
        axis = CONTIGUOUS[o][getattr(spec.layout, o)]
        mechanism = "cp_async" if asynchronous else "vector_load"
        out.append(Copy(o, "global", "shared", mechanism, tile.chunk, slow * fast, axis))
    steps = spec.block[2] // instruction.k
    for o, tile in tiles.items():
        axis = CONTIGUOUS[o][getattr(spec.layout, o)]
        name = "vector_load" if tile.way == "words" else f"ldmatrix_x{tile.matrices}"
        elements = 1 if tile.way == "words" else tile.chunk
        out.append(
            Copy(
                o,
                "shared",
                "register",
                name,
                elements,
                tile.accesses() * steps,
                axis,
                transposes=tile.way in ("ldmatrix_trans", "ldmatrix_pairs"),
            )
        )
    return tuple(out)
