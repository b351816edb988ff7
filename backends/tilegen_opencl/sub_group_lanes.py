"""Who holds what in the sub-group form: shares of the lanes, owners of the elements, copies."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.layout import FragmentLayout, Layout
from tilegen.plan import Copy, Ownership
from tilegen.roles import Roles
from tilegen.spec import TileSpec
from tilegen.tiling import CONTIGUOUS, ceil_div, interleaved, power_of_two_divisor


@dataclass(frozen=True)
class Share:
    """How the lanes divide one K step of the operand that is broadcast.

    Attributes
    ----------
    unroll : int
        K of the step.
    fast, slow : int
        Extents of the step's tile along the operand's contiguous axis and the other one.
    fast_lanes, slow_lanes : int
        Lanes side by side along the one and along the other.
    """

    unroll: int
    fast: int
    slow: int
    fast_lanes: int
    slow_lanes: int

    @classmethod
    def of(cls, spec: TileSpec, lanes: int, unroll: int) -> Share:
        roles = Roles.of(spec)
        extents = (roles.order(spec.warp)[0], unroll)
        fast, slow = reversed(extents) if along_k(spec, roles.rows) else extents
        fast_lanes = power_of_two_divisor(fast, lanes)
        return cls(unroll, fast, slow, fast_lanes, lanes // fast_lanes)

    @property
    def fast_share(self) -> int:
        """Elements of one lane along the contiguous axis."""
        return self.fast // self.fast_lanes

    @property
    def slow_share(self) -> int:
        """Elements of one lane along the other; the last ones of some lanes are empty."""
        return ceil_div(self.slow, self.slow_lanes)

    @property
    def registers(self) -> int:
        """Elements of one lane."""
        return self.fast_share * self.slow_share


def along_k(spec: TileSpec, operand: str) -> bool:
    return CONTIGUOUS[operand][getattr(spec.layout, operand)] == "k"


def col_vector(spec: TileSpec, arch: Arch, cols: int) -> int:
    """Neighbouring columns of one lane: a wide access on a GPU; on a CPU the lanes are the vector."""
    if arch.kind == "cpu":
        return 1
    return power_of_two_divisor(cols, max(1, arch.max_access_bytes // DTYPES[spec.types.acc].bytes))


def source_vector(spec: TileSpec, unroll: int, vector: int) -> int:
    """Elements of one load of the operand along the columns."""
    roles = Roles.of(spec)
    if not along_k(spec, roles.cols):
        return vector
    return power_of_two_divisor(unroll, 16 // DTYPES[getattr(spec.types, roles.cols)].bytes)


def ownership(spec: TileSpec, roles: Roles, lanes: int, vector: int) -> dict[str, Ownership]:
    """Every lane multiplies all rows of its sub-group with its own columns."""
    (bm, bn, bk), (wm, wn), warps = spec.block, spec.warp, spec.warps
    warp_rows, warp_cols = roles.order(spec.warp)
    lane, places = interleaved(warp_cols, lanes, vector)
    row_step, col_step = (bm, 1) if roles.swapped else (1, bm)
    warp_places = {"a": (wm, 0), "b": (0, wn)}
    extents = {"a": bm, "b": bn}

    def operand(name: str, lane: Layout, own: Layout, copies: int) -> Ownership:
        rows = extents[name]
        register = Layout.concat(own, Layout((bk,), (rows,)))
        return Ownership(rows, bk, Layout(warps, warp_places[name]), lane, register, copies)

    warps_rows, warps_cols = roles.order(warps)
    return {
        roles.rows: operand(
            roles.rows, Layout((lanes,), (0,)), Layout((warp_rows,), (1,)), warps_cols * lanes
        ),
        roles.cols: operand(roles.cols, lane, places, warps_rows),
        "c": Ownership(
            bm,
            bn,
            Layout(warps, (wm, bm * wn)),
            lane.scaled(col_step),
            # The text keeps sums[row][col], the column fastest.
            Layout.concat(places.scaled(col_step), Layout((warp_rows,), (row_step,))),
        ),
    }


def copies(spec: TileSpec, roles: Roles, lanes: int, vector: int, share: Share) -> tuple[Copy, ...]:
    """Loads of one K step, unrolled part by part, and the broadcasts that the other lanes wait for."""
    warp_rows, warp_cols = roles.order(spec.warp)
    cols, parts = warp_cols // lanes, spec.block[2] // share.unroll
    width = source_vector(spec, share.unroll, vector)
    lane, places = interleaved(warp_cols, lanes, vector)
    rows_map = None
    if share.slow % share.slow_lanes == 0:
        fast, slow = (warp_rows, 1) if along_k(spec, roles.rows) else (1, warp_rows)
        rows_map = FragmentLayout(
            warp_rows,
            share.unroll,
            Layout((share.fast_lanes, share.slow_lanes), (fast, slow)),
            Layout(
                (share.fast_share, share.slow_share),
                (fast * share.fast_lanes, slow * share.slow_lanes),
            ),
        )
    contiguous = {o: CONTIGUOUS[o][getattr(spec.layout, o)] for o in ("a", "b")}
    step = Layout((share.unroll,), (warp_cols,))
    return (
        Copy(
            roles.cols,
            "global",
            "register",
            "vector_load",
            width,
            cols * spec.block[2] // width,
            contiguous[roles.cols],
            map=FragmentLayout(warp_cols, share.unroll, lane, Layout.concat(places, step)),
        ),
        Copy(
            roles.rows,
            "global",
            "register",
            "element_load",
            1,
            share.registers * parts,
            contiguous[roles.rows],
            map=rows_map,
        ),
        Copy(
            roles.rows,
            "register",
            "register",
            "sub_group_broadcast",
            1,
            warp_rows * spec.block[2],
            contiguous[roles.rows],
        ),
    )
