"""How many registers a thread of the mma_sync form takes: what it needs, and what ptxas takes besides.

The constants are fitted to what ptxas says of drawn specs: docs/register_model.py, docs/registers.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilegen.hardware import Arch, Instruction
from tilegen.plan import RegisterUse
from tilegen.tiling import registers_left

from .mma_instructions import FP8, fp8_is_made_of_f16
from .mma_tiles import CHUNK_BYTES, OperandTile

# Registers of a chunk.
WORDS = CHUNK_BYTES // 4
# Fragments of this step in k and of the next one.
BUFFERS = 2
# Registers beside sums and fragments, and for each row of chunks that a thread moves: its addresses.
# What must be there at least, and what ptxas takes where there is room, to have more loads under way.
# With one stage nothing travels beside the products.
NEEDED, NEEDED_OF_ONE_STAGE = (31, 2), (5, 4)
WANTED, WANTED_OF_ONE_STAGE = (40, 5), (15, 4)
# Of so many rows on ptxas computes addresses anew.
MOST_ROWS = 24
# sm_90 has no mma.sync of fp8: ptxas multiplies f16, two fragments for one.
FP8_FRAGMENTS = 2
# Elements of tf32 are rounded on their way to the instruction.
ROUNDING = 8


def register_use(
    stages: int,
    arch: Arch,
    instruction: Instruction,
    tiles: Mapping[str, OperandTile],
    threads: int,
    min_blocks: int,
    asynchronous: bool,
) -> RegisterUse:
    """Registers of one thread, and how many it can have in a block of so many.

    Parameters
    ----------
    stages : int
        Tiles of K in flight, after lowering.
    asynchronous : bool
        Whether cp.async brings the tiles, which takes no registers.
    """
    fetches = {t: t.fetches(threads) for t in tiles.values()}
    fragments = sum(t.mmas * instruction.registers(o) for o, t in tiles.items())
    made = FP8_FRAGMENTS if instruction.type_a in FP8 and fp8_is_made_of_f16(arch) else 0
    rows = min(MOST_ROWS, sum(slow for slow, _ in fetches.values()))
    needed, needed_of_row = NEEDED if stages > 1 else NEEDED_OF_ONE_STAGE
    rounding = ROUNDING if instruction.type_a == "tf32" else 0
    wanted, wanted_of_row = WANTED if stages > 1 else WANTED_OF_ONE_STAGE
    chunks = sum(slow * fast for slow, fast in fetches.values())
    return RegisterUse(
        arch.registers.name,
        accumulators=tiles["a"].mmas * tiles["b"].mmas * instruction.registers("c"),
        operands=(BUFFERS + made) * fragments,
        staging=0 if asynchronous else chunks * WORDS,
        addressing=needed + needed_of_row * rows + rounding,
        limit=registers_left(arch, threads, min_blocks),
    ).expected(wanted - needed + (wanted_of_row - needed_of_row) * rows)
