"""How an operand gets to shared memory: its loads, its tile there as [k][extent], its conflicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.layout import bank_conflicts
from tilegen.plan import Access, SharedTile, shared_end
from tilegen.spec import TileSpec
from tilegen.tiling import CONTIGUOUS, ceil_div, power_of_two_divisor


@dataclass(frozen=True)
class Staging:
    """One operand's share of the copies.

    A place of the tile holds one element in the accumulation type, or, for an instruction of
    k > 1, a word of that many k's.

    Attributes
    ----------
    vector : int
        Elements of one load, along the contiguous axis.
    loads : int
        Loads that are kept together: the k's of a word, where each lies in a row of its own.
    turned : bool
        Whether the operand is contiguous along K, and its tile along M or N.
    places : int
        Neighbours along the contiguous axis of the tile, or one below the other where it is turned,
        that one fetch fills.
    depth : int
        Rows of the tile: BLOCK_K, or words of it.
    extent : int
        BLOCK_M or BLOCK_N.
    element_bytes : int
        Of an element in global memory.
    place_bytes : int
        Of a place of the tile.
    """

    vector: int
    loads: int
    turned: bool
    places: int
    depth: int
    extent: int
    element_bytes: int
    place_bytes: int

    @classmethod
    def of(cls, operand: str, spec: TileSpec, arch: Arch, instruction: Instruction) -> Staging:
        """Whole vectors along the contiguous axis, as wide as the arch's accesses allow."""
        axis = CONTIGUOUS[operand][getattr(spec.layout, operand)]
        turned, packed = axis == "k", instruction.k
        size = DTYPES[getattr(spec.types, operand)].bytes
        access = min(16, arch.max_access_bytes) if arch.kind == "gpu" else 16
        # Words of several k's from several rows: squares, so that as many threads take part.
        widest = packed if packed > 1 and not turned else max(1, access // size)
        vector = power_of_two_divisor(spec.block["mnk".index(axis)], widest)
        return cls(
            vector=vector,
            loads=1 if turned else packed,
            turned=turned,
            places=ceil_div(vector, packed) if turned else vector,
            depth=ceil_div(spec.block[2], packed),
            extent=spec.block[0 if operand == "a" else 1],
            element_bytes=size,
            place_bytes=DTYPES[spec.types.acc].bytes,
        )

    def fetches(self, threads: int) -> int:
        """Fetches of each thread for one tile, of :attr:`loads` loads each."""
        return ceil_div(self.depth * self.extent // self.places, threads)

    def registers(self, threads: int) -> int:
        """Registers of 4 bytes that hold a thread's fetches, elements as they are stored."""
        return ceil_div(self.fetches(threads) * self.loads * self.vector * self.element_bytes, 4)


def aligned_accesses(spec: TileSpec, staging: Mapping[str, Staging], d_vector: int) -> list[Access]:
    """What whole vectors ask of A, B, C and D: addresses and strides that they divide.

    Parameters
    ----------
    d_vector : int
        Elements of D that a thread writes at once; of C as well, where it has D's majorness.
    """
    widths = {
        **{operand: s.vector for operand, s in staging.items()},
        "c": d_vector if spec.layout.c == spec.layout.d else 1,
        "d": d_vector,
    }
    sizes = {o: DTYPES[getattr(spec.types, o)].bytes for o in widths}
    return [Access(o, width, width * sizes[o], width) for o, width in widths.items()]


def staged_tiles(
    staging: Mapping[str, Staging],
    fragments: Sequence[int],
    arch: Arch,
    lanes: tuple[int, int],
    stages: int,
    pinned: object,
    *,
    boundary: int = 0,
) -> tuple[SharedTile, ...]:
    """The tiles of A and B, padded where that fits: it costs fewer instructions than a swizzle.

    Parameters
    ----------
    fragments : sequence of int
        Neighbours that a lane reads at once, of A and of B.
    pinned : object
        The swizzle that the spec asks for, if any.
    boundary : int
        Bytes of which each tile's start is a multiple, where they lie in one array; 0: each has an
        array of its own.
    """

    def tiles(compact: bool) -> tuple[SharedTile, ...]:
        out: list[SharedTile] = []
        for operand, fragment in zip(staging, fragments, strict=True):
            tile = shared_tile(
                operand, staging[operand], arch, lanes, fragment, stages, pinned, compact
            )
            start = ceil_div(shared_end(out), boundary) * boundary if boundary else 0
            out.append(replace(tile, start=start))
        return tuple(out)

    padded = tiles(False)
    return padded if shared_end(padded) <= arch.shared_bytes else tiles(True)


def stages_that_fit(
    spec: TileSpec, arch: Arch, tiles: Callable[[int], tuple[SharedTile, ...]]
) -> tuple[int, tuple[SharedTile, ...], list[str]]:
    """As many stages as the spec asks for and shared memory holds, their tiles, and a note if fewer."""
    stages = spec.stages
    shared = tiles(stages)
    while stages > 1 and shared_end(shared) > arch.shared_bytes:
        stages -= 1
        shared = tiles(stages)
    if stages == spec.stages:
        return stages, shared, []
    told = f"more tiles of A and B do not fit in {arch.shared_bytes} bytes"
    return stages, shared, [f"stages {spec.stages} -> {stages}: {told}"]


def conflict_notes(tiles: Sequence[SharedTile], memory: str) -> list[str]:
    """A note on each tile whose accesses meet banks twice; ``memory`` as the language calls it."""
    return [
        f"{t.operand}'s {memory} tile: {t.store_conflicts} extra cycles a warp store, "
        f"{t.load_conflicts} a warp load ({t.swizzle})"
        for t in tiles
        if t.store_conflicts or t.load_conflicts
    ]


def shared_tile(
    operand: str,
    staging: Staging,
    arch: Arch,
    lanes: tuple[int, int],
    fragment: int,
    stages: int,
    pinned: object,
    compact: bool,
) -> SharedTile:
    """The operand's tile as [k][extent], with the fewest conflicts of what is allowed.

    Among equals the one of the fewest bytes, if ``compact``, else the one named first.
    """
    axis, depth, extent = 0 if operand == "a" else 1, staging.depth, staging.extent
    plain = SharedTile(
        operand,
        depth,
        extent,
        extent,
        stages,
        staging.place_bytes,
        vector=fragment,
        contiguous="mn"[axis],
    )
    vectors = power_of_two_divisor(extent // fragment, 8)
    mask = min(8, vectors, max(1, depth // staging.places)) - 1
    mask = (1 << (mask + 1).bit_length() - 1) - 1
    options = [plain]
    if staging.turned:
        options.append(replace(plain, swizzle="pad", row_stride=extent + fragment))
        if mask:
            rows = staging.places
            xor = replace(plain, swizzle="xor", swizzle_rows=rows, swizzle_mask=mask)
            # A shift moves the rows of few steps further apart than neighbouring vectors.
            room = power_of_two_divisor(extent // fragment, extent) // (mask + 1)
            options += [replace(xor, swizzle_shift=s) for s in range(max(1, room.bit_length()))]
    allowed = [o for o in options if o.swizzle == pinned] or options
    judged = [_judge(o, staging, axis, lanes, arch) for o in allowed]
    return min(
        judged, key=lambda t: (t.store_conflicts + t.load_conflicts * t.rows, compact * t.bytes)
    )


def _judge(
    tile: SharedTile, staging: Staging, axis: int, lanes: tuple[int, int], arch: Arch
) -> SharedTile:
    """The tile with the conflicts of its first warp's store and load."""
    size, turned, places = tile.element_bytes, staging.turned, staging.places
    per_row = max(1, (tile.rows if turned else tile.cols) // places)
    stores, warp = [], lanes[0] * lanes[1]
    for lane in range(warp):
        slow, fast = lane // per_row, lane % per_row * places
        row, col = (fast, slow % tile.cols) if turned else (slow % tile.rows, fast)
        stores.append(tile.offset(row, col) * size)
    loads = []
    for lane in range(warp):
        place = lane % lanes[0] if axis == 0 else lane // lanes[0]
        loads.append(tile.offset(0, place * tile.vector) * size)
    # A wider store is issued in parts of 16 bytes.
    store_bytes = size if turned else min(16, size * places)
    banks = {"banks": arch.banks, "bank_bytes": arch.bank_bytes}
    return replace(
        tile,
        store_conflicts=bank_conflicts(stores, store_bytes, **banks) * (places if turned else 1),
        load_conflicts=bank_conflicts(loads, size * tile.vector, **banks),
    )
