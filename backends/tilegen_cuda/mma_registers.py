"""What the registers of the mma_sync form's entries are for, term by term.

What one of each term takes is fitted: register_model.py, docs/registers.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.plan import RegisterUse, SharedTile
from tilegen.spec import TileSpec

from .mma_entries import widths
from .mma_instructions import FP8, fp8_is_made_of_f16
from .mma_tiles import CHUNK_BYTES, OperandTile
from .register_model import AHEAD, Terms, fitted, register_use

# Registers of a chunk.
WORDS = CHUNK_BYTES // 4
# Fragments of this step in k and of the next one.
BUFFERS = 2
# The first steps take more than those beyond.
FEW_STEPS, BEYOND = 4, "steps beyond"
# Of the narrow entry, where a thread has one chunk of each operand.
GATHERED = f"{AHEAD}elements gathered at once"
# Chunks of a thread: the first two lie in registers anyway; of more than the most nothing is kept.
FIRST_CHUNKS, MORE_CHUNKS, MANY_CHUNKS, MOST_CHUNKS = 2, 10, 26, 56
FEW_HELD, MOST_HELD, MOST_ROWS = 4, 12, 12


def registers(
    spec: TileSpec,
    arch: Arch,
    instruction: Instruction,
    tiles: Mapping[str, OperandTile],
    shared: tuple[SharedTile, ...],
    threads: int,
    shared_bytes: int,
    blocks: int | None,
    stages: int,
    asynchronous: bool,
) -> tuple[RegisterUse, int, Mapping[str, Terms], Terms]:
    """Registers of one thread, and what they were counted from.

    Parameters
    ----------
    shared : tuple of SharedTile
        The tiles of A and B in shared memory.
    threads, shared_bytes : int
        Of a block.
    blocks : int or None
        Blocks of a multiprocessor that the spec asks for.
    stages : int
        Tiles of K in flight, after lowering.
    asynchronous : bool
        Whether cp.async brings the tiles, which takes no registers.

    Returns
    -------
    use : RegisterUse
    blocks : int
        Those that the launch bounds name.
    entries : mapping
        The terms of each main entry, by its variant.
    risks : mapping
        Terms that lead to spills.
    """
    swizzled = {t.operand: t.swizzle == "xor" for t in shared}
    common = _common(spec, arch, instruction, tiles, swizzled, threads, stages, asynchronous)
    entries: dict[str, Terms] = {}
    for variant, _ in widths(spec):
        if variant == "wide":
            more = _wide(tiles, threads, stages, instruction, asynchronous)
        else:
            more = _narrower(variant, spec, tiles, threads, stages, asynchronous)
        entries[variant] = {**common, **more}
    risks = _risks(spec, arch, instruction, tiles, threads, asynchronous)
    # A compiler that cannot keep the loads of a gather apart spills what they brought.
    risks["elements gathered at once"] = entries["narrow"].get(GATHERED, 0)
    chunks = _chunks(tiles, threads)
    use, asked = register_use(
        "mma_sync",
        entries,
        risks,
        arch=arch,
        threads=threads,
        shared_bytes=shared_bytes,
        blocks=blocks,
        accumulators=tiles["a"].mmas * tiles["b"].mmas * instruction.registers("c"),
        operands=BUFFERS * _fragments(instruction, tiles),
        staging=0 if asynchronous else chunks * WORDS,
    )
    return use, asked, entries, risks


def steps_spill(entries: Mapping[str, Terms], risks: Terms, arch: Arch, limit: int) -> bool:
    """Whether it would not spill if the unrolled loop over BLOCK_K had no more than a few steps."""
    few = {v: {n: c for n, c in t.items() if BEYOND not in n} for v, t in entries.items()}
    model = fitted("mma_sync")
    beside = {n: c for n, c in risks.items() if BEYOND not in n}
    return model.beyond(few, beside, arch, limit) <= model.refused


def _common(
    spec: TileSpec,
    arch: Arch,
    instruction: Instruction,
    tiles: Mapping[str, OperandTile],
    swizzled: Mapping[str, bool],
    threads: int,
    stages: int,
    asynchronous: bool,
) -> dict[str, float]:
    """The terms of every entry: sums, fragments, and the addresses from which those are loaded."""
    pipelined = stages > 1
    way = "pipelined" if pipelined else "single"
    steps = max(1, spec.block[2] // instruction.k)
    sums = tiles["a"].mmas * tiles["b"].mmas * instruction.registers("c")
    held = {o: t.mmas * instruction.registers(o) for o, t in tiles.items()}
    fragments = sum(held.values())
    words = [o for o, t in tiles.items() if t.way == "words"]
    deep = max(0, steps - FEW_STEPS)
    fp8 = instruction.type_a in FP8 and fp8_is_made_of_f16(arch)
    return {
        # One stage: nothing travels beside the products, so phases share registers.
        f"{way}": 1,
        f"{way}: sums": sums,
        f"{way}: fragments of a step": fragments,
        f"{way}: fragments of the next step": fragments * (steps > 1),
        # Steps are unrolled: each has addresses of its own.
        f"{way}: steps up to 4": min(steps, FEW_STEPS) - 1,
        f"{way}: {BEYOND}": deep,
        "odd steps, whose fragments move": pipelined and steps % 2 == 1,
        "fragments loaded word by word": sum(held[o] for o in words),
        f"{BEYOND}, word by word": len(words) * deep,
        # Without a swizzle one address serves all rows.
        "tiles without a swizzle": sum(not s for s in swizzled.values()),
        "operands turned in pairs of bytes": sum(t.interleaved for t in tiles.values()),
        "accesses that turn": sum(
            max(0, t.accesses() - 1)
            for o, t in tiles.items()
            if t.way in ("ldmatrix_trans", "ldmatrix_pairs") and swizzled[o]
        ),
        # sm_90 has no mma.sync of fp8: ptxas multiplies f16, with sums of its own.
        "sums of fp8 made of f16": fp8 * sums,
        "sums of fp8 made of f16, more steps": fp8
        * sums
        * max(0, min(steps, FEW_STEPS) - (2 if pipelined else 1)),
        # Each element is rounded, and a NaN kept one.
        "fragments of tf32": (instruction.type_a == "tf32") * fragments,
        "f64": instruction.type_a == "f64",
        "s32": spec.types.acc == "s32",
        # Pointers that move to their batch stay in registers.
        "batch": spec.batch == "strided",
        "rows of several accesses": any(fast > 1 for _, fast in _fetches(tiles, threads)),
        "through registers": not asynchronous,
    }


def _wide(
    tiles: Mapping[str, OperandTile],
    threads: int,
    stages: int,
    instruction: Instruction,
    asynchronous: bool,
) -> dict[str, float]:
    """Chunks of 16 bytes are unrolled: an address each ahead, or the data on its way."""
    way = "pipelined" if stages > 1 else "single"
    fetches = _fetches(tiles, threads)
    chunks = sum(slow * fast for slow, fast in fetches)
    steps = max(1, next(iter(tiles.values())).depth // instruction.k)
    across = sum(min(t.fetches(threads)[0], MOST_ROWS) for t in tiles.values() if not t.along_k)
    return {
        "wide": 1,
        f"{AHEAD}{way}, steps up to 4": min(steps, FEW_STEPS) - 1,
        f"{AHEAD}{way}, chunks 3 to 10": asynchronous * _between(chunks, FIRST_CHUNKS, MORE_CHUNKS),
        f"{AHEAD}{way}, chunks 11 to 26": asynchronous * _between(chunks, MORE_CHUNKS, MANY_CHUNKS),
        f"{AHEAD}chunks 27 to 56": asynchronous * _between(chunks, MANY_CHUNKS, MOST_CHUNKS),
        f"{AHEAD}rows along K": asynchronous * across,
        f"{way}: chunks held, up to 4": (not asynchronous) * min(chunks, FEW_HELD),
        f"{way}: chunks held, up to 12": (not asynchronous) * _between(chunks, FEW_HELD, MOST_HELD),
    }


def _narrower(
    variant: str,
    spec: TileSpec,
    tiles: Mapping[str, OperandTile],
    threads: int,
    stages: int,
    asynchronous: bool,
) -> dict[str, float]:
    """Narrower copies loop over chunks; where there is one of them, the loop is none, and loads meet."""
    single = [slow * fast == 1 for slow, fast in _fetches(tiles, threads)]
    out: dict[str, float] = {
        "narrower: operands of one chunk": sum(single),
        "narrower, through registers": not asynchronous,
    }
    if variant == "narrow":
        bytes_ = DTYPES[spec.types.a].bytes
        elements = all(single) * CHUNK_BYTES // bytes_
        out |= {
            "narrow": 1,
            "narrow: single bytes": bytes_ == 1,
            "narrow: s32": spec.types.acc == "s32",
            # The gathers of both operands are under way at once, in the prologue of all stages.
            GATHERED: elements,
            f"{GATHERED}, of more stages": elements * max(0, stages - 1),
        }
    return out


def _risks(
    spec: TileSpec,
    arch: Arch,
    instruction: Instruction,
    tiles: Mapping[str, OperandTile],
    threads: int,
    asynchronous: bool,
) -> dict[str, float]:
    """Terms that decide whether it spills, beside what is taken and what is kept."""
    chunks = _chunks(tiles, threads)
    steps = max(1, spec.block[2] // instruction.k)
    words = sum(t.way == "words" for t in tiles.values())
    deep = max(0, steps - FEW_STEPS)
    return {
        f"{BEYOND}": deep,
        f"{BEYOND}, word by word": words * deep,
        "chunks through registers": (not asynchronous) * min(chunks, MOST_HELD),
        "chunks behind the threads": asynchronous * min(chunks, MANY_CHUNKS),
        "fp8 made of f16": instruction.type_a in FP8 and fp8_is_made_of_f16(arch),
        "f64": instruction.type_a == "f64",
        "batch": spec.batch == "strided",
        "sm_120": arch.name == "sm_120",
    }


def _fetches(tiles: Mapping[str, OperandTile], threads: int) -> list[tuple[int, int]]:
    return [t.fetches(threads) for t in tiles.values()]


def _chunks(tiles: Mapping[str, OperandTile], threads: int) -> int:
    """Chunks that a thread moves."""
    return sum(slow * fast for slow, fast in _fetches(tiles, threads))


def _fragments(instruction: Instruction, tiles: Mapping[str, OperandTile]) -> int:
    return sum(t.mmas * instruction.registers(o) for o, t in tiles.items())


def _between(count: int, low: int, high: int) -> int:
    """How many of a count lie above ``low``, up to ``high``."""
    return min(max(0, count - low), high - low)
