"""Drawing problems that differ, each of them used as it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis.strategies import SearchStrategy

# After so many examples of one run Hypothesis goes on with near copies of those that it drew: five of
# six would be (ConjectureRunner.generate_mutations_from, 6.1).
AT_ONCE = 10

Example = TypeVar("Example")


def use_drawn(
    strategy: SearchStrategy[Example],
    examples: int,
    seed: int,
    use: Callable[[Example], Any],
    *,
    shrink: bool = True,
) -> None:
    """Draw the simplest example and then others, in several runs of Hypothesis, and use each of them.

    Parameters
    ----------
    use : callable
        What it raises fails the example; it then comes of the smallest one that fails, if ``shrink``.
    """
    simplest: list[Example] = []
    used = turn = 0
    # A strategy of few examples may have no more of them.
    while used < examples and turn < examples:

        @with_seed(f"{seed} {turn}")
        @settings(
            # Each run begins with the simplest one.
            max_examples=min(AT_ONCE, examples - used + bool(simplest)),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            report_multiple_bugs=False,
        )
        @given(strategy)
        def run(example: Example) -> None:
            nonlocal used
            if simplest and example == simplest[0]:
                return
            use(example)
            simplest[:] = simplest or [example]
            used += 1

        run()
        turn += 1
