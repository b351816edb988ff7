"""Verification: Hypothesis draws problems, the kernel solves them, the worst error is reported."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from tilegen.bounds import BIAS_FLOOR, BIAS_SIGMAS
from tilegen.build import build, cache_path
from tilegen.errors import SpecError, VerifyError, require
from tilegen.kernel import Kernel
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from tilegen.backend import Device
    from tilegen.hardware import Arch
    from tilegen.testing import Outcome, Problem


# Of fewer problems the spread is not known well enough to call a mean biased.
FEWEST_FOR_BIAS = 8
# A right D comes close to a bound of which so much is its own rounding, which is then said.
TOLD_ROUNDING = 0.5
# So few problems are a glance, to which none is added.
FEWEST_FOR_ENTRIES = 10


@dataclass(frozen=True)
class Report:
    """What a verification did and found.

    Attributes
    ----------
    kernel, backend, arch, device, rung : str
    examples, exact, random : int
        Problems solved; of these compared exactly, and within the bound.
    elements : int
        Elements of D compared.
    entries : dict
        Entry name to how many problems it ran.
    worst : float
        The largest error as a share of the bound.
    signed_mean : float
        Mean signed error as a share of the bound, over all random problems.
    seed : int
    seconds : float
    output : str
        The type of D.
    rounding : float
        Of the bound that the worst error is a share of, what is the rounding of D to its type.
    """

    kernel: str
    backend: str
    arch: str
    device: str
    rung: str
    examples: int
    exact: int
    random: int
    elements: int
    entries: dict[str, int]
    worst: float
    signed_mean: float
    seed: int
    seconds: float
    output: str = ""
    rounding: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        used = ", ".join(f"{name} {count}" for name, count in sorted(self.entries.items()))
        own = f" ({self.rounding:.0%} of that bound is the rounding of D to {self.output})"
        own = own if self.rounding >= TOLD_ROUNDING else ""
        return (
            f"checked on {self.device} ({self.rung}), {self.backend} {self.arch}: {self.kernel}\n"
            f"{self.examples} problems, {self.exact} compared exactly, {self.random} within the "
            f"bound: worst error {self.worst:.1%} of it{own}, mean signed error "
            f"{self.signed_mean:+.2%}\n"
            f"{self.elements} elements; runs per entry: {used or 'none'}; seed {self.seed}; "
            f"{self.seconds:.1f} s"
        )


def verify(
    what: Kernel | TileSpec,
    *,
    backend: str | None = None,
    arch: str | Arch | None = None,
    device: str | Device | None = None,
    examples: int = 50,
    seed: int = 0,
) -> Report:
    """Check a kernel on problems that Hypothesis draws.

    Parameters
    ----------
    what : Kernel or TileSpec
        A spec is built first, for ``backend``, ``arch`` and ``device``.
    examples : int
        How many problems.
    seed : int
        The same seed draws the same problems from the same version of tilegen and Hypothesis, whose
        draws also follow the constants that it finds in the sources of the running program.

    Raises
    ------
    VerifyError
        For the smallest failing problem that Hypothesis finds, or a biased rounding.
    """
    require("verify", what, Kernel, TileSpec)
    if examples < 1:
        raise SpecError(f"verify: examples = {examples}; at least 1 is needed")
    if isinstance(what, TileSpec):
        if backend is None:
            raise TypeError("verify(spec) needs backend=")
        what = build(what, backend, arch, device)
    # Hypothesis keeps notes in a folder of its own, and would make it where the user stands; who
    # imported it before us has a place for them.
    if "hypothesis" not in sys.modules:
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_path() / "hypothesis"))
    from tilegen.testing import problems

    start = time.perf_counter()
    drawn = problems(what.plan)
    filled = drawn.filter(lambda p: p.m > 0 and p.n > 0 and p.batch != 0)
    # The simplest problem, which comes first, is empty and checks little.
    solved = _solve(what, drawn if examples > 1 else filled, examples, seed)
    if not any(outcome.elements for _, outcome in solved):
        solved += _solve(what, filled, 1, seed)
    if examples >= FEWEST_FOR_ENTRIES:
        solved += _for_entries_left_out(what, solved, seed)
    refuse_bias(what.plan.name, solved)
    return _report(what, [outcome for _, outcome in solved], seed, time.perf_counter() - start)


def _solve(
    kernel: Kernel, drawn: SearchStrategy[Problem], examples: int, seed: int
) -> list[tuple[Problem, Outcome]]:
    """Each problem that Hypothesis drew, with what came of it: the simplest one, then others."""
    from tilegen.testing import check_problem
    from tilegen.testing.drawing import use_drawn

    solved: list[tuple[Problem, Outcome]] = []
    use_drawn(drawn, examples, seed, lambda p: solved.append((p, check_problem(kernel, p))))
    return solved


def _for_entries_left_out(
    kernel: Kernel, solved: Sequence[tuple[Problem, Outcome]], seed: int
) -> list[tuple[Problem, Outcome]]:
    """Problems whose operands lie so that entries run which no problem drawn has run."""
    from tilegen.testing import Problem, View, check_problem

    left = {e.name for e in kernel.plan.main_entries} - {outcome.entry for _, outcome in solved}
    bm, bn, bk = kernel.plan.block
    batch = 2 if kernel.plan.spec.batch == "strided" else None
    out: list[tuple[Problem, Outcome]] = []
    # Leading dimensions of ever fewer common multiples, then addresses that nothing wide can take.
    for view in (*(View(multiple=n) for n in (16, 8, 4, 2)), View(offset=1, pad=1)):
        if not left:
            break
        views = dict.fromkeys((*"abcd", "bias", "scale", "residual"), view)
        problem = Problem(bm + 1, bn + 1, bk + 1, batch=batch, beta=1.0, views=views, seed=seed)
        outcome = check_problem(kernel, problem)
        if outcome.entry in left:
            out.append((problem, outcome))
            left.discard(outcome.entry)
    return out


def refuse_bias(name: str, solved: Sequence[tuple[Problem, Outcome]]) -> None:
    """Raise ``VerifyError`` where the errors of independent problems lean to one side."""
    # Elements of one problem share rows and broadcasts, and Hypothesis draws some problems again and
    # again, differing at most in how they lie in memory: each distinct outcome is one observation.
    distinct = {
        (p.m, p.n, p.k, p.batch, p.values, p.seed, outcome.signed_mean)
        for p, outcome in solved
        if not outcome.exact
    }
    means = [key[-1] for key in distinct]
    if len(means) < FEWEST_FOR_BIAS:
        return
    middle = sum(means) / len(means)
    spread = sqrt(sum((m - middle) ** 2 for m in means) / (len(means) - 1))
    allowed = max(BIAS_FLOOR, BIAS_SIGMAS * spread / sqrt(len(means)))
    if abs(middle) > allowed:
        raise VerifyError(
            f"the rounding of {name} is biased: the mean signed error over {len(means)} problems is "
            f"{middle:+.3%} of the bound, and chance allows {allowed:.3%}"
        )


def _report(kernel: Kernel, outcomes: Sequence[Outcome], seed: int, seconds: float) -> Report:
    random = [outcome for outcome in outcomes if not outcome.exact]
    counted = sum(outcome.elements for outcome in random)
    mean = sum(o.signed_mean * o.elements for o in random) / counted if counted else 0.0
    ran = Counter(outcome.entry for outcome in outcomes if outcome.entry)
    # An entry that no problem ran is told as such.
    ran.update({entry.name: 0 for entry in kernel.plan.main_entries})
    return Report(
        kernel=kernel.plan.name,
        backend=kernel.plan.backend,
        arch=kernel.plan.arch.name,
        device=kernel.device.name,
        rung=kernel.device.rung,
        examples=len(outcomes),
        exact=len(outcomes) - len(random),
        random=len(random),
        elements=sum(outcome.elements for outcome in outcomes),
        entries=dict(ran),
        worst=max((o.worst for o in random), default=0.0),
        signed_mean=mean,
        seed=seed,
        seconds=seconds,
        output=kernel.plan.spec.types.d,
        rounding=max(((o.worst, o.rounding) for o in random), default=(0.0, 0.0))[1],
    )
