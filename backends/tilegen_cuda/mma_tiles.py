"""How mma.sync's operands lie in shared memory, and how a warp reads its fragments from there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import gcd

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.layout import bank_conflicts
from tilegen.plan import SharedTile, shared_end
from tilegen.roles import Roles
from tilegen.spec import TileSpec
from tilegen.tiling import CONTIGUOUS, ceil_div, power_of_two_divisor

# What one access moves from global to shared memory, and one row of an 8x8 matrix of ldmatrix.
CHUNK_BYTES = 16
# The element types' width at which ldmatrix can turn a matrix.
TURNED_BYTES = 2


@dataclass(frozen=True)
class OperandTile:
    """One operand of the block's product: its tile in shared memory and its fragments.

    Attributes
    ----------
    operand : str
        ``"a"`` or ``"b"``.
    is_row : bool
        Whether it is the instruction's first operand, whose rows are D's rows.
    along_k : bool
        Whether it is contiguous along K, in both memories.
    element_bytes : int
    extent, depth : int
        BLOCK_M or BLOCK_N, and BLOCK_K.
    mma_extent, mma_depth : int
        Of one fragment.
    mmas : int
        Fragments of a warp along the extent.
    way : str
        ``"ldmatrix"``; ``"ldmatrix_trans"``, which turns elements of 16 bits; ``"ldmatrix_pairs"``,
        which turns pairs of bytes, put in order by byte permutations; or ``"words"``: each lane
        loads its own elements.
    group : int
        Fragments that one access brings.
    matrices : int
        8x8 matrices of one ldmatrix; 0 for ``"words"``.
    """

    operand: str
    is_row: bool
    along_k: bool
    element_bytes: int
    extent: int
    depth: int
    mma_extent: int
    mma_depth: int
    mmas: int
    way: str
    group: int
    matrices: int

    @classmethod
    def of(cls, operand: str, spec: TileSpec, instruction: Instruction) -> OperandTile:
        """The operand as the spec lays it out, with the way that its type and majorness allow."""
        axis = 0 if operand == "a" else 1
        is_row = Roles.of(spec).rows == operand
        along_k = CONTIGUOUS[operand][getattr(spec.layout, operand)] == "k"
        size = DTYPES[getattr(spec.types, operand)].bytes
        extent = instruction.m if operand == "a" else instruction.n
        mmas = max(1, spec.warp[axis] // extent)
        # Each of them is one 8x8 matrix of 4 bytes a lane.
        registers = instruction.registers(operand)
        if size > 4 or (size == 4 and not along_k):
            way, group, matrices = "words", 1, 0
        elif not along_k and size < TURNED_BYTES:
            way, group, matrices = "ldmatrix_pairs", 16 // extent, 4
        else:
            way = "ldmatrix" if along_k else "ldmatrix_trans"
            group = 1 if is_row else power_of_two_divisor(mmas, 4 // registers)
            matrices = group * registers
        return cls(
            operand,
            is_row,
            along_k,
            size,
            spec.block[axis],
            spec.block[2],
            extent,
            instruction.k,
            mmas,
            way,
            group,
            matrices,
        )

    @property
    def interleaved(self) -> bool:
        """Whether neighbours lie in two fragments, or in the two halves of one."""
        return self.way == "ldmatrix_pairs"

    @property
    def chunk(self) -> int:
        """Elements of one access of 16 bytes."""
        return CHUNK_BYTES // self.element_bytes

    @property
    def slow(self) -> int:
        """Rows of the tile in shared memory."""
        return self.extent if self.along_k else self.depth

    @property
    def fast(self) -> int:
        """Elements of a row."""
        return self.depth if self.along_k else self.extent

    @property
    def chunks(self) -> int:
        """Whole chunks of a row."""
        return max(1, self.fast // self.chunk)

    def threads(self, count: int) -> tuple[int, int]:
        """How a block's threads lie on the chunks of a tile: along its rows' direction, and across."""
        fast = gcd(self.chunks, count)
        return count // fast, fast

    def fetches(self, count: int) -> tuple[int, int]:
        """Chunks of each thread across the rows and along them."""
        slow, fast = self.threads(count)
        return ceil_div(self.slow, slow), self.chunks // fast

    def accesses(self) -> int:
        """Accesses to shared memory of a warp for the fragments of one step in k."""
        if self.way == "words":
            return self.mmas * max(1, self.mma_extent * self.mma_depth // 32)
        return self.mmas // self.group

    def read(self, lane: int) -> tuple[int, int]:
        """(slow, fast) of the element whose address the lane gives in the first access of a warp."""
        match self.way:
            case "words":
                at, k = lane // 4, lane % 4
                return (at, k) if self.along_k else (k, at)
            case "ldmatrix_pairs":
                return pair_row(lane // 8, lane % 8), 0
            case _:
                return self._matrix(lane)

    def _matrix(self, lane: int) -> tuple[int, int]:
        """The row that a lane addresses of matrices in the order of the registers that they fill."""
        matrix, row = lane // 8 % max(1, self.matrices), lane % 8
        halves = self.mma_extent // 8
        deep = max(1, self.mma_depth * self.element_bytes // CHUNK_BYTES)
        # Registers run along the halves of the extent first, then along K, then from one fragment on.
        half, rest = matrix % halves, matrix // halves
        step, fragment = rest % deep, rest // deep
        x, k = fragment * self.mma_extent + half * 8, step * self.chunk
        if self.along_k:
            return x + row, k
        return step * 8 + row, x


def pair_row(matrix: int, row: int) -> int:
    """The k of a row of bytes: a lane gets two k's of each matrix, and four neighbours of two."""
    return matrix // 2 * 16 + row // 2 * 4 + row % 2 * 2 + matrix % 2


def shared_tiles(
    operands: tuple[OperandTile, ...], threads: int, arch: Arch, stages: int, pinned: object
) -> tuple[SharedTile, ...]:
    """The tiles of A and B one behind the other, each with the fewest bank conflicts, then bytes."""
    out: list[SharedTile] = []
    for operand in operands:
        tile = _best(operand, threads, arch.banks, arch.bank_bytes, str(pinned))
        start = ceil_div(shared_end(out), tile.alignment) * tile.alignment if out else 0
        out.append(replace(tile, start=start, stages=stages))
    return tuple(out)


@cache
def _best(
    operand: OperandTile, threads: int, banks: int, bank_bytes: int, pinned: str
) -> SharedTile:
    options = list(_options(operand))
    allowed = [o for o in options if o.swizzle == pinned] or options
    steps = max(1, operand.depth // operand.mma_depth)
    loads, stores = operand.accesses() * steps, sum(operand.fetches(threads))
    judged = []
    for option in allowed:
        tile = _judged(option, operand, threads, banks, bank_bytes)
        # Padded ones, which take more bytes, come last.
        if not tile.load_conflicts and not tile.store_conflicts:
            return tile
        judged.append(tile)
    return min(
        judged, key=lambda t: (t.load_conflicts * loads + t.store_conflicts * stores, t.bytes)
    )


def _options(operand: OperandTile) -> Iterator[SharedTile]:
    """Places of one stage: as it is, swizzled, and padded."""
    fast = operand.chunks * operand.chunk
    plain = SharedTile(
        operand.operand,
        operand.slow,
        fast,
        fast,
        1,
        operand.element_bytes,
        vector=operand.chunk,
        contiguous="k" if operand.along_k else "mn"[operand.operand == "b"],
        alignment=CHUNK_BYTES,
    )
    yield plain
    whole = power_of_two_divisor(operand.chunks, 8)
    for mask in (7, 3, 1):
        for shift in (0, 1):
            if (mask + 1) << shift <= whole:
                for rows in (1, 2, 4):
                    yield replace(
                        plain,
                        swizzle="xor",
                        swizzle_rows=rows,
                        swizzle_mask=mask,
                        swizzle_shift=shift,
                    )
    for extra in (1, 2):
        yield replace(plain, swizzle="pad", row_stride=fast + extra * operand.chunk)


def _judged(
    tile: SharedTile, operand: OperandTile, threads: int, banks: int, bank_bytes: int
) -> SharedTile:
    """The tile with the conflicts of its first warp's store and load."""
    size = operand.element_bytes
    _, fast = operand.threads(threads)
    stores = [
        tile.offset(lane // fast % operand.slow, lane % fast * operand.chunk) * size
        for lane in range(32)
    ]
    count = 8 * operand.matrices if operand.matrices else 32
    loads = [tile.offset(*_inside(operand, operand.read(lane))) * size for lane in range(count)]
    width = CHUNK_BYTES if operand.matrices else max(4, size)
    return replace(
        tile,
        store_conflicts=bank_conflicts(stores, CHUNK_BYTES, banks=banks, bank_bytes=bank_bytes),
        load_conflicts=bank_conflicts(loads, width, banks=banks, bank_bytes=bank_bytes),
    )


def _inside(operand: OperandTile, place: tuple[int, int]) -> tuple[int, int]:
    """A place of a tile that may be too small for the instruction, which a rule will refuse."""
    return place[0] % operand.slow, place[1] % (operand.chunks * operand.chunk)
