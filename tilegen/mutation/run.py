"""From specs to a kill rate: mutants, verdicts, and what is known of the survivors."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tilegen import registry
from tilegen.backend import Device
from tilegen.errors import BackendError, CompileError, LaunchError, VerifyError
from tilegen.lower import lower
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec

from .explained import EQUIVALENT, Explanation, read
from .journal import NATIVE, RACES, Journal
from .language import RaceChecker, Support
from .operators import Mutant, mutants
from .pool import Pool, Verdict
from .problems import race_problems
from .worker import COMPILES_NOT, SURVIVED, UNFIT, Task

PASSED_BY = Verdict(SURVIVED, "", 0.0)
# What the unchanged text may take, with the start of the runtime; then what a mutant may.
FIRST_SECONDS = 120.0
SPARE_SECONDS = 1.0


@dataclass
class Judged:
    """A mutant and what became of it.

    Attributes
    ----------
    mutant : Mutant
    source : KernelSource
        The first one that holds it; of a killed mutant, the one in which it fell: what survives
        in one source is tried in the next that holds it.
    verdict : Verdict
    explanation : Explanation or None
        Of a survivor.
    tried : int
        In how many sources.
    """

    mutant: Mutant
    source: KernelSource
    verdict: Verdict
    explanation: Explanation | None = None
    tried: int = 1

    @property
    def survived(self) -> bool:
        return self.verdict.kind == SURVIVED

    def to_dict(self) -> dict[str, Any]:
        m, e = self.mutant, self.explanation
        return {
            "kernel": self.source.name,
            "template": self.source.plan.template,
            "operator": m.operator,
            "function": m.function,
            "line": m.line,
            "before": m.before,
            "after": m.after,
            "verdict": self.verdict.kind,
            "detail": self.verdict.detail,
            "seconds": round(self.verdict.seconds, 3),
            "explained": None if e is None else {"kind": e.kind, "reason": e.reason},
        }


@dataclass
class Result:
    """What a run found.

    Attributes
    ----------
    sources : list of KernelSource
    judged : list of Judged
    device : str
    seconds : float
    jobs : int
    race_checked : bool
    """

    sources: list[KernelSource]
    device: str
    jobs: int
    race_checked: bool
    judged: list[Judged] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def compiled(self) -> list[Judged]:
        """Those that count: a mutant that no compiler takes has tested nothing."""
        return [j for j in self.judged if j.verdict.kind != COMPILES_NOT]

    @property
    def survivors(self) -> list[Judged]:
        return [j for j in self.judged if j.survived]

    @property
    def unexplained(self) -> list[Judged]:
        return [j for j in self.survivors if _is_open(j)]

    def rate(self, *, without_equivalent: bool = False) -> float:
        """Killed of those that compile; or of those that also mean something else."""
        counted = [
            j
            for j in self.compiled
            if not (without_equivalent and j.explanation and j.explanation.kind == EQUIVALENT)
        ]
        return sum(not j.survived for j in counted) / len(counted) if counted else 1.0

    def kinds(self) -> Counter[str]:
        """How many fell to what, survivors included."""
        return Counter(j.verdict.kind for j in self.judged)


def support_of(backend: str) -> Support:
    """What the backend brings; raises ``BackendError`` where it brings nothing."""
    plugin = registry.get(backend)
    mutation = getattr(plugin, "mutation", None)
    if mutation is None:
        raise BackendError(f"backend {backend} describes no language to the mutation operators")
    support: Support = mutation()
    return support


def mutate(
    specs: Sequence[TileSpec],
    backend: str,
    device: Device,
    *,
    sample: int | None = None,
    seed: int = 0,
    jobs: int = 2,
    kept: Path | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Result:
    """Mutate the texts of specs and run every mutant until something shows.

    Parameters
    ----------
    specs : sequence of TileSpec
        A mutant that several of their texts hold is killed once.
    backend : str
    device : Device
    sample : int, optional
        So many mutants, drawn with ``seed``; left out, all. A larger sample holds the smaller.
    jobs : int
        Processes.
    kept : Path, optional
        A file of verdicts: what it holds is not run again, and what is run is added.
    told : callable
        Is called with how many are judged, of how many.

    Raises
    ------
    PlanError
        For a spec that cannot be lowered.
    VerifyError
        If an unchanged text fails: then nothing could be said of its mutants.
    """
    start = time.perf_counter()
    support = support_of(backend)
    explanations = read(support.explained)
    sources = [emit(lower(spec, backend, device.arch)) for spec in specs]
    result = Result(sources, device.name, jobs, support.races is not None)
    places = gathered(sources, support)
    keys = list(places)
    random.Random(seed).shuffle(keys)
    keys = keys[:sample]
    journal = Journal(kept)
    with Pool(jobs) as pool:
        known = _sane(pool, sources, device)

        def races_checked(judged: dict[Any, Judged], most: int | None) -> None:
            if support.races is not None:
                some = [(one, places[key][:most]) for key, one in judged.items() if _is_open(one)]
                _race_checked(support.races, some, device, journal, jobs)

        judged = _native(
            pool, keys, places, known, device, journal, explanations, told, races_checked
        )
    races_checked(judged, None)
    result.judged = [judged[key] for key in places if key in judged]
    result.seconds = time.perf_counter() - start
    return result


Places = dict[Any, list[tuple[KernelSource, Mutant]]]


def gathered(sources: Sequence[KernelSource], support: Support) -> Places:
    """Every mutant by its key, with the sources that hold it.

    Places of one text that differ in numbers alone (copies of 4 and of 8 bytes, say) are as many.
    """
    places: Places = {}
    for source in sources:
        met: Counter[tuple[str, ...]] = Counter()
        for mutant in mutants(source.text, support.language):
            places.setdefault((mutant.key, met[mutant.key]), []).append((source, mutant))
            met[mutant.key] += 1
    return places


@dataclass(frozen=True)
class _Known:
    """Of an unchanged text that passed: its trials, and the processor time that a mutant may take."""

    taken: tuple[int, ...]
    seconds: float


def _sane(pool: Pool, sources: Sequence[KernelSource], device: Device) -> dict[str, _Known]:
    """Run the unchanged texts, which must pass."""
    out: dict[str, _Known] = {}
    tasks = [(s, Task(s, None, device.selector, FIRST_SECONDS)) for s in sources]
    for source, verdict in pool.run(tasks):
        if verdict.kind != SURVIVED:
            raise VerifyError(
                f"nothing was mutated, since the unchanged text of {source.name} fails: "
                f"{verdict.kind} {verdict.detail}"
            )
        # The trials ran twice, and the runtime may have been started.
        out[source.digest] = _Known(verdict.taken, SPARE_SECONDS + verdict.seconds)
    return out


def _native(
    pool: Pool,
    keys: Sequence[Any],
    places: Places,
    known: dict[str, _Known],
    device: Device,
    journal: Journal,
    explanations: Sequence[Explanation],
    told: Callable[[int, int], None],
    races_checked: Callable[[dict[Any, Judged], int | None], None],
) -> dict[Any, Judged]:
    """Verdicts of the device: each mutant in one source after another, until it is killed.

    After the first source the race checker has a look at what is open, since a private array that
    is overrun, say, passes in all of them.
    """
    judged: dict[Any, Judged] = {}

    def settle(key: Any, i: int, verdict: Verdict) -> None:
        source, mutant = places[key][i]
        if i == 0:
            judged[key] = Judged(mutant, source, verdict)
        else:
            judged[key].tried += 1
            if verdict.kind not in (COMPILES_NOT, SURVIVED):
                judged[key] = replace(judged[key], mutant=mutant, source=source, verdict=verdict)
        judged[key].explanation = _explained(explanations, judged[key])
        told(len(judged), len(keys))

    def tasks(i: int) -> Iterator[tuple[Any, Task]]:
        for key in keys:
            if len(places[key]) <= i or (i and not _is_open(judged[key])):
                continue
            source, mutant = places[key][i]
            k, text = known[source.digest], mutant.apply(source.text)
            if verdict := journal.find(text, source, device, NATIVE):
                settle(key, i, verdict)
            else:
                yield key, Task(source, text, device.selector, k.seconds, k.taken)

    # Survivors that nothing explains go from the first source that holds them to the second.
    for i in range(max(map(len, places.values()), default=0)):
        for key, verdict in pool.run(tasks(i)):
            if verdict.kind == UNFIT:
                raise VerifyError(verdict.detail)
            source, mutant = places[key][i]
            journal.keep(mutant.apply(source.text), source, device, NATIVE, verdict)
            settle(key, i, verdict)
        if i == 0:
            races_checked(judged, 1)
    return judged


def _is_open(one: Judged) -> bool:
    return one.survived and one.explanation is None


def _explained(explanations: Sequence[Explanation], one: Judged) -> Explanation | None:
    template = one.source.plan.template
    fitting = (e for e in explanations if e.fits(template, one.mutant))
    return next(fitting, None) if one.survived else None


def _race_checked(
    races: RaceChecker,
    survivors: Sequence[tuple[Judged, list[tuple[KernelSource, Mutant]]]],
    device: Device,
    journal: Journal,
    jobs: int,
) -> None:
    """Survivors that nothing explains go through the checker that sees every access."""

    def found(source: KernelSource, text: str) -> Verdict:
        verdict = journal.find(text, source, device, RACES)
        if verdict is None:
            try:
                faults = races(replace(source, text=text), race_problems(source.plan))
            except (CompileError, LaunchError) as error:
                faults = [str(error)]
            verdict = Verdict(RACES if faults else SURVIVED, "".join(faults[:1])[:400], 0.0)
            journal.keep(text, source, device, RACES, verdict)
        return verdict

    @cache
    def able(source: KernelSource) -> bool:
        # A checker that faults the unchanged text (it may lack what the text uses) says nothing.
        return found(source, source.text).kind == SURVIVED

    def check(one: Judged, places: list[tuple[KernelSource, Mutant]]) -> None:
        for source, mutant in places:
            verdict = found(source, mutant.apply(source.text)) if able(source) else PASSED_BY
            if verdict.kind != SURVIVED:
                one.mutant, one.source, one.verdict = mutant, source, verdict
                return

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(lambda pair: check(*pair), survivors))
