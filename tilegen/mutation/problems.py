"""The problems that every mutant is run on: the contract's cases in the sizes of one plan's tiles."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from tilegen.plan import KernelPlan
from tilegen.testing import Broadcast, Problem, View
from tilegen.tiling import compute_type

from .memory import Guarded

# Most faulty indices stay within this many bytes, and are seen without the cost of a new process.
MARGIN = 1 << 18
SMALL = 2500
# Tiles along K of a problem with edges: two whole ones and a part. So many stages leave the loop the part.
EDGE_STEPS = 3
NAN_OF_ONES = struct.unpack("<d", struct.pack("<Q", 2**63 - 1))[0]


@dataclass(frozen=True)
class Trial:
    """One problem and where its arrays lie.

    Attributes
    ----------
    problem : Problem
    exact, front : bool
    margin : int
        See :class:`tilegen.mutation.memory.Guarded`.
    """

    problem: Problem
    exact: bool = False
    front: bool = False
    margin: int = 0

    @property
    def memory(self) -> Guarded:
        return Guarded(exact=self.exact, front=self.front, margin=self.margin)


OPERANDS = ("a", "b", "c", "d", "residual", "bias", "scale")
# No two operands alike, so that a stride taken for another one shows.
WIDE = {o: View(pad=16 * i, multiple=16) for i, o in enumerate(OPERANDS, 1)}
ODD = {o: View(pad=i, offset=i) for i, o in enumerate(OPERANDS, 1)}
TIGHT = {o: View() for o in ODD}


def trials(plan: KernelPlan) -> list[Trial]:
    """The trials for one plan; the ones that find the most come first."""
    bm, bn, bk = plan.block
    stages = plan.spec.stages
    # So many tiles along K that each part of a K in parts has one more.
    parts = plan.split_k * bk
    batch = 3 if plan.spec.batch == "strided" else None
    # alpha and beta of a sum of whole numbers are whole.
    fractions = compute_type(plan.spec) != "s32"
    half, other, nan = (0.5, -1.5, float("nan")) if fractions else (3, -3, 5)

    def whole(extent: int) -> int:
        return -(-extent // 16) * 16

    edge = Problem(bm + 3, bn + 5, 2 * parts + 1, batch=batch, alpha=2, beta=-1, views=ODD, seed=1)
    wide = replace(edge, m=2 * bm, n=2 * bn, k=(stages + 1) * parts, beta=2, views=WIDE)
    groups = replace(edge, batch=batch and 1, k=max(2, bk // 2))
    out: list[Trial] = [
        Trial(edge, margin=MARGIN),
        Trial(wide, margin=MARGIN),
        Trial(edge, exact=True),
        Trial(wide),
        Trial(
            replace(
                edge, alpha=1, beta=0, values="position", m=2 * bm + 1, n=bn - 1 or 1, k=bk + bm
            )
        ),
        Trial(
            replace(wide, m=whole(bm + 1), n=whole(bn + 1), k=whole(bk + 1), views=TIGHT, seed=2)
        ),
        Trial(replace(edge, m=max(1, bm - 1), n=2 * bn + 1, k=3 * bk - 1, views=WIDE, beta=half)),
        # More than eight rows of tiles, and a rest of five: they run in groups.
        Trial(replace(groups, m=12 * bm + 1, n=2 * bn + 1)),
        Trial(replace(groups, m=2 * bm + 1, n=12 * bn + 1)),
        # One row less than a group has.
        Trial(replace(groups, m=6 * bm + 1, n=2 * bn + 1)),
        Trial(replace(groups, m=2 * bm + 1, n=6 * bn + 1)),
        Trial(replace(edge, k=0), front=True),
        Trial(replace(edge, k=0, alpha=nan, beta=0)),
        Trial(replace(wide, k=0, alpha=nan)),
        Trial(replace(wide, alpha=0, poison_ab=True)),
        Trial(replace(edge, alpha=0, beta=0, poison_ab=True, poison_c=True)),
        Trial(replace(edge, beta=0, poison_c=True), exact=True),
        Trial(replace(wide, beta=0, poison_c=True, in_place=True)),
        Trial(replace(edge, in_place=True, seed=2), front=True),
        Trial(replace(edge, alpha=1, specials=True)),
        Trial(replace(wide, alpha=1, specials=True)),
        Trial(replace(edge, m=1, n=1, k=1, alpha=1), exact=True),
        Trial(replace(edge, m=1, n=2 * bn + 3, k=bk - 1 or 1, views=TIGHT), exact=True),
        Trial(replace(edge, m=2 * bm + 3, n=1, k=bk + 1, views=TIGHT), exact=True),
        Trial(replace(edge, m=bm, n=bn, k=stages * parts, views=TIGHT, beta=1), exact=True),
        Trial(replace(wide, values="normal", alpha=half, beta=other, k=2 * parts + 3)),
        # Whole sums so large that narrow types hold half of them half-way between two values.
        Trial(replace(edge, alpha=41, beta=-7, views=WIDE)),
        Trial(replace(edge, values="normal", alpha=other, beta=0, seed=2)),
    ]
    if bm * bn <= SMALL:
        # More columns of tiles than a group has rows, where that is not too many elements.
        for m, n in ((12 * bm + 1, 9 * bn + 1), (9 * bm + 1, 12 * bn + 1)):
            out.append(Trial(replace(groups, m=m, n=n)))
    # One edge alone, and all else whole: a tile that is taken for a whole one reads beyond it.
    m, n, k = (e * -(-max(bm, bn) // e) for e in plan.block)
    inner = replace(groups, k=k, alpha=1, beta=1, views=TIGHT)
    out += [
        Trial(replace(inner, m=m - 1, n=n), exact=True),
        Trial(replace(inner, m=m, n=n - 1), exact=True),
    ]
    if plan.spec.types.d == "bf16":
        # Its narrowing is written out, and rounds a NaN of all ones up to zero if it takes it for a number.
        out.append(Trial(replace(edge, alpha=NAN_OF_ONES, beta=0)))
    if plan.spec.types.d == "s32":
        out.append(Trial(replace(edge, alpha=2**24)))
    if stages >= EDGE_STEPS:
        # The prologue takes in the whole tiles of the others, and the loop has edges of its own.
        out.append(Trial(replace(edge, k=stages * parts + 1), exact=True))
    axes: tuple[Broadcast, ...] = ("rows", "cols", "all", *(("batch",) if batch else ()))
    for axis in axes:
        for operand in "abc":
            views = {**TIGHT, operand: View(broadcast=axis)}
            out.append(Trial(replace(edge, views=views)))
            if stages >= EDGE_STEPS and operand != "c":
                out.append(Trial(replace(edge, k=stages * parts + 1, views=views)))
    # A and B aligned, and of C one row or column.
    for axis in axes[:2]:
        out.append(Trial(replace(edge, views={**WIDE, "c": View(broadcast=axis)})))
    if batch:
        out += [Trial(replace(wide, batch=2, seed=4)), Trial(replace(edge, batch=1))]
        # A row of tiles of each batch, so that the place in the batch and in the grid differ.
        out.append(Trial(replace(edge, batch=5, m=2 * bm + 1, k=2, seed=3), exact=True))
    return out


def race_problems(plan: KernelPlan) -> list[Problem]:
    """For a checker that is slow: one block at the edge, and as many steps of K as there are stages.

    The last step of the second is in the first stage again, which an epilogue through shared memory
    overwrites.
    """
    bm, bn, bk = plan.block
    stages, parts = plan.pipeline.stages, plan.split_k * bk
    m, n = max(1, bm - 1), max(1, bn - 1)
    return [
        Problem(m, n, (stages + 1) * parts + 1, beta=2, views=ODD),
        Problem(bm, n, stages * parts + 1, beta=2, views=WIDE),
    ]
