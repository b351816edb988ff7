"""Interleaved rounds: everyone who multiplies a case runs in every round, in an order drawn anew."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tilegen.backend import Timing, Workbench
from tilegen.bench.buffers import BufferSets, OperandSet

# One sample: at least so long, so that neither the clock's grain nor one interrupt decides it.
SAMPLE_SECONDS = 2e-3
MOST_CALLS = 200
LEAST_ROUNDS, MOST_ROUNDS = 5, 30
# Calls that wake a thread pool, or fill a queue, before the clock starts; long calls need none.
LEAD_SECONDS = 20e-3
# OpenBLAS's threads go on spinning after a call (THREAD_TIMEOUT in its Makefile.rule) and share the cores
# with whoever comes next. On two cores, f32 1024 cubed beside it: 0.6 of its rate alone after a pause of
# 40 ms, all of it after 200 ms.
SETTLE_SECONDS = 0.2


@dataclass
class Runner:
    """A variant or a peer on one case: how a set's product is prepared, and its samples.

    Attributes
    ----------
    name : str
    prepare : callable
        From a set to a call that queues its product.
    seconds, host_seconds, event_seconds : list of float
        Per call, one for each round; events only where the driver has them.
    starved : int
        Rounds in which the device may have waited for the host.
    """

    name: str
    prepare: Callable[[OperandSet], Callable[[], object]]
    seconds: list[float] = field(default_factory=list)
    host_seconds: list[float] = field(default_factory=list)
    event_seconds: list[float] = field(default_factory=list)
    starved: int = 0
    _prepared: dict[int, Callable[[], object]] = field(default_factory=dict, repr=False)

    def calls(self, sets: BufferSets, turns: Sequence[int]) -> list[Callable[[], object]]:
        """The calls for these turns, each on its set; prepared once."""
        out = []
        for turn in turns:
            at = turn % len(sets.sets)
            if at not in self._prepared:
                self._prepared[at] = self.prepare(sets.sets[at])
            out.append(self._prepared[at])
        return out


@dataclass(frozen=True)
class Rounds:
    """How a case was sampled: rounds kept (one more was discarded), calls of a sample per runner."""

    count: int
    calls: dict[str, int]


def measure(
    runners: Sequence[Runner], sets: BufferSets, bench: Workbench, *, budget: float,
    rng: random.Random,
) -> Rounds:  # fmt: skip
    """Fill the runners' samples.

    Parameters
    ----------
    budget : float
        Seconds that the timed calls of the case may take, unless the fewest rounds take longer.
    rng : random.Random
        Draws the order within each round.
    """
    turns = itertools.count()

    def sample(runner: Runner, count: int, lead: int) -> Timing:
        calls = runner.calls(sets, list(itertools.islice(turns, count + lead)))
        if bench.clock == "wall" and len(runners) > 1:
            time.sleep(SETTLE_SECONDS)
        return bench.time(calls, lead)

    first = {r.name: sample(r, 1, 1).seconds for r in runners}
    counts = {
        name: max(1, min(MOST_CALLS, round(SAMPLE_SECONDS / max(taken, 1e-9))))
        for name, taken in first.items()
    }
    leads = {name: int(taken < LEAD_SECONDS) for name, taken in first.items()}
    each = sum(first[n] * (counts[n] + leads[n]) for n in first)
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(budget / each)))
    for round_number in range(rounds + 1):
        order = list(runners)
        rng.shuffle(order)
        for runner in order:
            count = counts[runner.name]
            taken = sample(runner, count, leads[runner.name])
            if round_number == 0:
                continue  # warm-up
            runner.seconds.append(taken.seconds / count)
            runner.host_seconds.append(taken.host_seconds / count)
            runner.starved += taken.starved
            if taken.event_seconds is not None:
                runner.event_seconds.append(taken.event_seconds / count)
    return Rounds(rounds, counts)


def call_seconds(call: Callable[[], object], wait: Callable[[], object], count: int = 9) -> float:
    """The host's share of one Python call on an idle device, median: until it returns."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
        wait()
    return median(taken)
