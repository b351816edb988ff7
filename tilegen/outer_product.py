"""A warp tile as lanes of outer products: each lane's micro-tile, and who owns which element."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.dtypes import DTYPES
from tilegen.layout import Layout
from tilegen.plan import Fragment, Fragments, Ownership
from tilegen.roles import Roles
from tilegen.spec import TileSpec
from tilegen.tiling import interleaved, lane_grid, largest_divisor, power_of_two_divisor

DEFAULT_THREAD = (8, 8)


@dataclass(frozen=True)
class LaneTile:
    """One lane's share of a warp tile, in M and N.

    Attributes
    ----------
    lanes : (int, int)
        How the warp's lanes lie on its tile.
    tile : (int, int)
        Rows and columns of one lane.
    thread, passes : (int, int)
        The micro-tile that the spec asks for, and how many of them there are.
    vectors : (int, int)
        Neighbours that a lane reads from shared memory at once.
    note : str
        Where the spec's micro-tile was lowered, to what and why.
    """

    lanes: tuple[int, int]
    tile: tuple[int, int]
    thread: tuple[int, int]
    passes: tuple[int, int]
    vectors: tuple[int, int]
    note: str = ""

    @classmethod
    def of(cls, spec: TileSpec, lane_count: int, widest: int) -> LaneTile | None:
        """Of a spec whose warps have so many lanes; ``None`` where they do not divide its tiles.

        Parameters
        ----------
        widest : int
            Elements of the widest access to shared memory.
        """
        lanes = lane_grid(lane_count, spec.warp, widest)
        if lanes is None or any(b % w for b, w in zip(spec.block, spec.warp, strict=False)):
            return None
        tile = spec.warp[0] // lanes[0], spec.warp[1] // lanes[1]
        bound = spec.thread or DEFAULT_THREAD
        thread = largest_divisor(tile[0], bound[0]), largest_divisor(tile[1], bound[1])
        note = ""
        if spec.thread is not None and spec.thread != thread:
            note = (
                f"thread {list(spec.thread)} -> {list(thread)}: a lane's share of the warp tile is "
                f"{tile[0]} x {tile[1]}"
            )
        return cls(
            lanes=lanes,
            tile=tile,
            thread=thread,
            passes=(tile[0] // thread[0], tile[1] // thread[1]),
            vectors=(
                power_of_two_divisor(thread[0], widest),
                power_of_two_divisor(thread[1], widest),
            ),
            note=note,
        )

    @property
    def flop_per_load(self) -> float:
        """Of one step in k: a lane's rows and columns are read once, passes included."""
        rows, cols = self.tile
        return 2 * rows * cols / (rows + cols)

    def fragments(self, spec: TileSpec, mma_k: int) -> Fragments:
        """Fragment counts of a warp; registers of 4 bytes."""
        words, depth = DTYPES[spec.types.acc].bytes // 4, spec.block[2] // mma_k
        (wm, wn), (rows, cols) = spec.warp, self.tile
        return Fragments(
            a=Fragment(wm, depth, mma_k, rows * words, (1, mma_k)),
            b=Fragment(wn, depth, mma_k, cols * words, (1, mma_k)),
            c=Fragment(wm, wn, 1, rows * cols * words, (1, 1)),
        )

    def ownership(self, spec: TileSpec, mma_k: int) -> dict[str, Ownership]:
        """Who owns which element of A, B and C, as ``KernelPlan.ownership`` holds it.

        Warps and lanes run along M first; a lane keeps its sums row after row of the text's tile.
        """
        (bm, bn, bk), (wm, wn), (lm, ln) = spec.block, spec.warp, self.lanes
        warps_m, warps_n = spec.warps
        vm, vn = self.vectors
        lane_m, value_m = interleaved(wm, lm, vm)
        lane_n, value_n = interleaved(wn, ln, vn)
        places = (value_n.scaled(bm), value_m)
        register = Layout.concat(*(reversed(places) if Roles.of(spec).swapped else places))
        return {
            "a": Ownership(
                bm,
                bk,
                Layout((warps_m, warps_n), (wm, 0)),
                Layout((lm, ln), (vm, 0)),
                _through_k(value_m, bm, bk, mma_k),
                copies=warps_n * ln,
            ),
            "b": Ownership(
                bn,
                bk,
                Layout((warps_m, warps_n), (0, wn)),
                Layout((lm, ln), (0, vn)),
                _through_k(value_n, bn, bk, mma_k),
                copies=warps_m * lm,
            ),
            "c": Ownership(
                bm,
                bn,
                Layout((warps_m, warps_n), (wm, bm * wn)),
                Layout.concat(lane_m, lane_n.scaled(bm)),
                register,
            ),
        }


def _through_k(places: Layout, extent: int, depth: int, packed: int) -> Layout:
    """A lane's rows or columns through BLOCK_K; the k's of a word come before its neighbours."""
    if packed == 1:
        return Layout.concat(places, Layout((depth,), (extent,)))
    word = Layout((packed,), (extent,))
    return Layout.concat(word, places, Layout((depth // packed,), (packed * extent,)))
