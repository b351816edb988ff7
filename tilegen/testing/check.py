"""One problem solved by a kernel, and every element of its result compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilegen.bounds import growth
from tilegen.dtypes import DTYPES, DType
from tilegen.errors import VerifyError
from tilegen.plan import KernelPlan
from tilegen.spec import TileSpec
from tilegen.testing.arrays import make_arrays, strided
from tilegen.testing.expected import apply_epilogue, reference, rounded
from tilegen.testing.problem import Arrays, Memory, Outcome, Problem
from tilegen.tiling import compute_type, epilogue_operands, operand_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilegen.kernel import Kernel


# Multiply-adds of a problem whose answer takes longer than it takes to start a thread for it.
WORTH_A_THREAD = 2**20


def check_problem(kernel: Kernel, problem: Problem, memory: Memory | None = None) -> Outcome:
    """Run the kernel on the problem and compare every element.

    Integer values must be exact (unless the epilogue or a fractional scalar rounds); random ones
    must lie within the bound of :mod:`tilegen.bounds`; the guard band round D must be untouched.

    Raises
    ------
    VerifyError
        Names the first wrong element and its owner.
    """
    plan, spec = kernel.plan, kernel.plan.spec
    arrays = make_arrays(problem, spec, memory)
    c_before = None if arrays.c is None else arrays.c.astype(np.float64)
    before = arrays.guard.copy()
    call: dict[str, Any] = {
        "alpha": _scalar(problem.alpha, spec),
        "beta": _scalar(problem.beta, spec),
        "out": arrays.out,
        **arrays.extras,
    }
    entry = _entry_of(kernel.explain(arrays.a, arrays.b, arrays.c, **call))
    if _multiply_adds(problem) < WORTH_A_THREAD:
        wanted = _wanted(plan, problem, arrays, c_before)
        got_array = kernel(arrays.a, arrays.b, arrays.c, **call)
    else:
        # The right answer is made while the kernel runs: an emulated one leaves a processor free.
        with ThreadPoolExecutor(1) as pool:
            making = pool.submit(_wanted, plan, problem, arrays, c_before)
            got_array = kernel(arrays.a, arrays.b, arrays.c, **call)
            wanted = making.result()
    _check_guard(arrays, before, spec)
    want, bound, out = wanted.values, wanted.bound, DTYPES[spec.types.d]
    got = got_array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, got - want)
    # A result that may round beyond the largest value of its type may be infinite.
    over = (
        np.isinf(got) & (got * want > 0) & np.isfinite(want) & (np.abs(want) + bound >= out.largest)
    )
    error = np.where(over, 0.0, error)
    wrong = ~(np.abs(error) <= bound) & ~(np.isnan(got) & np.isnan(want))
    if wrong.any():
        raise _first_wrong(plan, problem, got, want, bound, wrong)
    finite = np.isfinite(want)
    if wanted.exact or not finite.any():
        return Outcome(0.0, 0.0, got.size, entry, exact=True)
    share = error[finite] / bound[finite]
    worst = int(np.argmax(np.abs(share)))
    return Outcome(
        float(abs(share[worst])),
        float(np.mean(share)),
        got.size,
        entry,
        exact=False,
        rounding=float(wanted.own[finite][worst] / bound[finite][worst]),
    )


def _multiply_adds(problem: Problem) -> int:
    return (
        problem.m * problem.n * max(1, problem.k) * (1 if problem.batch is None else problem.batch)
    )


class _Wanted(NamedTuple):
    """What D must lie near, how near, how much of that its own rounding takes, and if it must be met."""

    values: NDArray[Any]
    bound: NDArray[Any]
    own: NDArray[Any]
    exact: bool


def _wanted(
    plan: KernelPlan, problem: Problem, arrays: Arrays, c_before: NDArray[Any] | None
) -> _Wanted:
    spec = plan.spec
    value, magnitude = reference(problem, spec, arrays, c=c_before)
    acc, compute, out = (DTYPES[t] for t in (spec.types.acc, compute_type(spec), spec.types.d))
    soft = {"gelu", "gelu_tanh", "silu"} & {s.op for s in spec.epilogue}
    # A sum that is infinite or missing must be met as it is, and has no bound.
    magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
    largest_sum = float(np.max(magnitude)) if magnitude.size else 0.0
    exact = (
        (problem.values != "normal" or not _reads_fractions(problem, spec))
        and not soft
        and largest_sum * 2 < min(_exact_below(acc), _exact_below(compute))
    )
    rounds = growth(plan.instruction.family, problem.k if acc.is_float else 0)
    slack = rounds * max(acc.roundoff, compute.roundoff) * magnitude
    with np.errstate(invalid="ignore", over="ignore"):
        want, slack = apply_epilogue(
            spec, value, np.zeros_like(value) if exact else slack, arrays.extras
        )
        if exact:
            want, own = rounded(want, out), np.zeros(want.shape)
            bound = own
        else:
            want, own = _rounding(want, out)
            bound = (slack + own).astype(np.float64)
    # An infinite or missing result must be met as it is.
    return _Wanted(want, np.where(np.isfinite(want), bound, 0.0), own, exact)


def _reads_fractions(problem: Problem, spec: TileSpec) -> bool:
    """Whether any operand that is read has fractions where values are drawn at random."""
    read = ["a", "b", *(["c"] if problem.beta else []), *epilogue_operands(spec)]
    return any(DTYPES[operand_type(spec, operand)].is_float for operand in read)


def _exact_below(kind: DType) -> float:
    """Whole numbers under this are exact in the type."""
    return 0.5 / kind.roundoff if kind.is_float else kind.largest + 1.0


def _rounding(want: NDArray[Any], out: DType) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a result must lie near, and how far its rounding to its type may take it from there."""
    if not out.is_float:
        return np.clip(want, out.smallest, out.largest), np.full(want.shape, 0.5)
    own = out.roundoff * np.abs(want) + out.subnormal
    return want.astype(np.float64), own.astype(np.float64)


def _scalar(value: float, spec: TileSpec) -> float:
    return int(value) if compute_type(spec) == "s32" else value


def _entry_of(explained: str) -> str:
    last = explained.splitlines()[-1]
    return last.partition(":")[0] if "taken" in last else ""


def _check_guard(arrays: Arrays, before: NDArray[Any], spec: TileSpec) -> None:
    """Nothing outside D was written."""
    after = arrays.guard.copy()
    inside = np.zeros(after.shape, bool)
    out = arrays.out
    start = (out.ctypes.data - arrays.guard.ctypes.data) // after.itemsize if out.size else 0
    mask = strided(inside[start:], out.shape, tuple(s // after.itemsize for s in out.strides))
    mask[...] = True
    changed = (after.view(np.uint8) != before.view(np.uint8)).reshape(len(after), -1).any(axis=1)
    stray = np.flatnonzero(changed & ~inside)
    if len(stray):
        raise VerifyError(
            f"a write outside D: element {stray[0] - start} from its first one was changed "
            f"to {after[stray[0]]}"
        )


def _first_wrong(
    plan: KernelPlan,
    problem: Problem,
    got: NDArray[Any],
    want: NDArray[Any],
    bound: NDArray[Any],
    wrong: NDArray[Any],
) -> VerifyError:
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    batch, row, col = (0, *where) if len(where) == 2 else where
    bm, bn, _ = plan.block
    tiles_n = -(-problem.n // bn)
    block = (row // bm) * tiles_n + col // bn
    owner, owned = (0, 0, 0), ""
    # Of a kernel that tilegen has not planned nobody knows who owns what.
    if "c" in plan.ownership:
        owner = plan.ownership["c"].owners(row % bm, col % bn)[0]
        owned = (
            f"it belongs to block tile ({row // bm}, {col // bn}), warp {owner[0]}, "
            f"lane {owner[1]}, register {owner[2]}; "
        )
    share = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
    return VerifyError(
        f"D[{row}, {col}]{f' of batch {batch}' if len(where) == 3 else ''} is {got[where]!r} and "
        f"should be {want[where]!r} (bound {bound[where]:.3g}); {owned}{share}; {problem}",
        batch=batch,
        row=row,
        col=col,
        block=block,
        warp=owner[0],
        lane=owner[1],
        register=owner[2],
        got=float(got[where]),
        want=float(want[where]),
    )
