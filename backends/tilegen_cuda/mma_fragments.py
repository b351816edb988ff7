"""Who owns which element of mma.sync's operands and sums, fragments in the order of the text."""

from __future__ import annotations

from tilegen.hardware import Instruction
from tilegen.layout import Layout
from tilegen.plan import Fragment, Fragments, Ownership
from tilegen.roles import Roles
from tilegen.spec import TileSpec

from .mma_tiles import OperandTile


def _axis(tile: OperandTile) -> tuple[Layout, Layout]:
    """Where a fragment's rows (or columns) lie in a warp tile, and where its next fragments do.

    Pairs of bytes put neighbours side by side: into the halves of a fragment of 16, or into two
    fragments of 8.
    """
    count, extent = tile.mmas, tile.mma_extent
    if not tile.interleaved:
        return Layout((extent,), (1,)), Layout((count,), (extent,))
    if extent == 16:
        return Layout((8, 2), (2, 1)), Layout((count,), (16,))
    return Layout((8,), (2,)), Layout((2, max(1, count // 2)), (1, 16))


def ownership(
    spec: TileSpec, instruction: Instruction, tiles: dict[str, OperandTile]
) -> dict[str, Ownership]:
    """As ``KernelPlan.ownership`` holds it: warps run along M first.

    A lane's registers: those of a fragment, then fragments; of operands one step in k after the
    other, of sums along D's columns first.
    """
    (bm, bn, bk), (wm, wn), (warps_m, warps_n) = spec.block, spec.warp, spec.warps
    (in_m, next_m), (in_n, next_n) = _axis(tiles["a"]), _axis(tiles["b"])
    steps = max(1, bk // instruction.k)

    def operand(
        part: str, rows: int, inside: Layout, following: Layout, warps: Layout, copies: int
    ) -> Ownership:
        fragment = getattr(instruction, part)
        place = Layout.concat(inside, Layout((instruction.k,), (rows,)))
        through_k = Layout((steps,), (instruction.k * rows,))
        register = Layout.concat(place.compose(fragment.value), following, through_k)
        return Ownership(rows, bk, warps, place.compose(fragment.lane), register, copies)

    place = Layout.concat(in_m, in_n.scaled(bm))
    fragments = [next_n.scaled(bm), next_m]
    if Roles.of(spec).swapped:
        fragments.reverse()
    return {
        "a": operand("a", bm, in_m, next_m, Layout((warps_m, warps_n), (wm, 0)), warps_n),
        "b": operand("b", bn, in_n, next_n, Layout((warps_m, warps_n), (0, wn)), warps_m),
        "c": Ownership(
            bm,
            bn,
            Layout((warps_m, warps_n), (wm, bm * wn)),
            place.compose(instruction.c.lane),
            Layout.concat(place.compose(instruction.c.value), *fragments),
        ),
    }


def fragments(
    spec: TileSpec, instruction: Instruction, tiles: dict[str, OperandTile], buffers: int
) -> Fragments:
    """Fragment counts of a warp; of the operands ``buffers`` steps in k are live at once."""
    steps, out = spec.block[2] // instruction.k, {}
    for operand, extent in (("a", instruction.m), ("b", instruction.n)):
        count, each = tiles[operand].mmas, instruction.registers(operand)
        out[operand] = Fragment(
            count,
            steps,
            getattr(instruction, operand).values,
            buffers * count * each,
            (extent, instruction.k),
        )
    rows, cols = tiles["a"].mmas, tiles["b"].mmas
    sums = rows * cols * instruction.registers("c")
    c = Fragment(rows, cols, instruction.c.values, sums, (instruction.m, instruction.n))
    return Fragments(out["a"], out["b"], c)
