"""Verification: Hypothesis draws problems, the kernel solves them, the worst error is reported."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from tilegen.bounds import BIAS_FLOOR, BIAS_SIGMAS
from tilegen.build import build
from tilegen.errors import SpecError, VerifyError, require
from tilegen.kernel import Kernel
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from tilegen.backend import Device
    from tilegen.hardware import Arch
    from tilegen.testing import Outcome


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

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        used = ", ".join(f"{name} {count}" for name, count in sorted(self.entries.items()))
        return (
            f"checked on {self.device} ({self.rung}), {self.backend} {self.arch}: {self.kernel}\n"
            f"{self.examples} problems, {self.exact} compared exactly, {self.random} within the "
            f"bound: worst error {self.worst:.1%} of it, mean signed error {self.signed_mean:+.2%}\n"
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
        The same seed draws the same problems.

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
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as with_seed

    from tilegen.testing import Problem, check_problem, problems

    kernel, outcomes = what, list["Outcome"]()

    @with_seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(problems(kernel.plan))
    def run(problem: Problem) -> None:
        outcomes.append(check_problem(kernel, problem))

    start = time.perf_counter()
    run()
    random = [outcome for outcome in outcomes if not outcome.exact]
    counted = sum(outcome.elements for outcome in random)
    mean = sum(o.signed_mean * o.elements for o in random) / counted if counted else 0.0
    # Elements of one problem share rows and broadcasts, so only the problems are independent.
    means = [outcome.signed_mean for outcome in random]
    middle = sum(means) / len(means) if means else 0.0
    spread = sqrt(sum((m - middle) ** 2 for m in means) / max(1, len(means) - 1))
    allowed = max(BIAS_FLOOR, BIAS_SIGMAS * spread / sqrt(max(1, len(means))))
    if len(means) >= 8 and abs(middle) > allowed:
        raise VerifyError(
            f"the rounding of {kernel.plan.name} is biased: the mean signed error over {counted} "
            f"elements is {middle:+.3%} of the bound, and chance allows {allowed:.3%}"
        )
    ran = Counter(outcome.entry for outcome in outcomes if outcome.entry)
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
        seconds=time.perf_counter() - start,
    )
