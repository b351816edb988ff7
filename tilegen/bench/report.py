"""What a bench found, as records: ceilings, every case with every sample, classes, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilegen.bench.cases import Case
from tilegen.bench.floor import Floor
from tilegen.bench.statistics import Summary, geometric_mean, summary

SCHEMA = 1
# A product whose floor is under this many seconds is decided by the launch, not by the kernel.
LAUNCH_BOUND = 10e-6


@dataclass(frozen=True)
class Measurement:
    """One variant or peer on one case.

    Attributes
    ----------
    name : str
        The variant's label, or the peer's name.
    seconds : tuple of float
        Per call, one for each round, raw.
    event_seconds : tuple of float
        The kernels alone, by the driver's events; empty where it has none.
    queue_seconds : tuple of float
        What the host spent to queue a prepared call, in the same rounds.
    call_seconds : float or None
        Host time of a whole Python call before the device works: arguments resolved, launch queued.
    kernel : mapping
        Of a variant: spec, digest, kernel name, entry, registers and memory, predicted and measured.
    starved : int
        Rounds in which the device may have waited for the host: their times are too long.
    """

    name: str
    seconds: tuple[float, ...]
    event_seconds: tuple[float, ...] = ()
    queue_seconds: tuple[float, ...] = ()
    call_seconds: float | None = None
    kernel: Mapping[str, Any] = field(default_factory=dict)
    starved: int = 0

    @property
    def time(self) -> Summary:
        return summary(self.seconds)


@dataclass(frozen=True)
class CaseResult:
    """One case: who ran it, how fast, and how fast it could be at most.

    Attributes
    ----------
    case : Case
    kind : str
        The class that it is reported under.
    floor : Floor or None
    sets, rounds : int
    cold : bool
        Whether the operands had left the last-level cache before each call.
    variants, peers : tuple of Measurement
    refused : mapping
        Name to the sentence that says why it did not run.
    """

    case: Case
    kind: str
    floor: Floor | None
    sets: int
    cold: bool
    rounds: int
    variants: tuple[Measurement, ...]
    peers: tuple[Measurement, ...]
    refused: Mapping[str, str]

    @property
    def best(self) -> Measurement | None:
        """The variant with the smallest median."""
        return min(self.variants, key=lambda v: v.time.median, default=None)

    def rate(self, who: Measurement) -> float:
        """Operations a second at the median."""
        return self.case.flop / who.time.median

    def floor_share(self, who: Measurement) -> float | None:
        """Floor over median: 1 is as fast as the ceilings allow."""
        return self.floor.seconds / who.time.median if self.floor else None

    def peer_ratio(self, who: Measurement) -> float | None:
        """The fastest peer's median over this one's: over 1 is faster than every peer."""
        others = [p.time.median for p in self.peers]
        return min(others) / who.time.median if others else None

    def paired(self, who: Measurement, peer: Measurement) -> Summary:
        """The ratio round by round, where both ran within the same moment."""
        pairs = zip(peer.seconds, who.seconds, strict=True)
        return summary([theirs / ours for theirs, ours in pairs])


@dataclass(frozen=True)
class ClassSummary:
    """One class of cases and one variant (``"best"``: the fastest of each case).

    Attributes
    ----------
    kind, variant, against : str
        ``against`` is ``"peer"`` or ``"floor"``.
    count : int
    mean : float
        Geometric mean of the ratios.
    worst : float
    worst_case : str
    """

    kind: str
    variant: str
    against: str
    count: int
    mean: float
    worst: float
    worst_case: str


@dataclass(frozen=True)
class BenchReport:
    """A run: where, against what, and every number in it.

    Attributes
    ----------
    backend, arch, device, clock : str
    ceilings : mapping
        Types (``"f32"``) and ``"bytes"`` to rate and kernel.
    peers : mapping
        Name to what describes it, or to the sentence of its absence.
    results : tuple of CaseResult
    seed : int
    buffers : str
        ``"cold"`` or ``"warm"``.
    versions : mapping
    notes : tuple of str
    seconds : float
        The whole run.
    """

    backend: str
    arch: str
    device: str
    clock: str
    ceilings: Mapping[str, Mapping[str, Any]]
    peers: Mapping[str, Mapping[str, str] | str]
    results: tuple[CaseResult, ...]
    seed: int
    buffers: str
    versions: Mapping[str, str]
    notes: tuple[str, ...]
    seconds: float

    def classes(self) -> list[ClassSummary]:
        """Geometric mean and worst per class and variant, then over all classes."""
        out: list[ClassSummary] = []
        kinds = list(dict.fromkeys(r.kind for r in self.results if r.variants))
        names = list(dict.fromkeys(v.name for r in self.results for v in r.variants))
        for kind in [*kinds, *(["all"] if len(kinds) > 1 else [])]:
            rows = [r for r in self.results if kind in (r.kind, "all")]
            for name in [*names, *(["best"] if len(names) > 1 else [])]:
                out += _summaries(kind, name, rows)
        return out

    def worst(self) -> CaseResult | None:
        """The case with the lowest ratio to its fastest peer; without peers, to the floor."""
        key = _ratio_to_peer if any(r.peers for r in self.results) else _ratio_to_floor
        rated = [(value, r) for r in self.results if (value := _best_ratio(r, key)) is not None]
        return min(rated, key=lambda x: x[0], default=(0.0, None))[1]

    def __str__(self) -> str:
        """One line for each variant and peer of each case; ``tilegen.bench.table`` has the table."""
        lines = [f"{self.device}, {self.backend} {self.arch}, {self.buffers}, seed {self.seed}"]
        lines += [
            f"ceiling {name}: {c['rate']:.4g}/s, {c['how']}" for name, c in self.ceilings.items()
        ]
        for result in self.results:
            for who in (*result.variants, *result.peers):
                ratio, share = result.peer_ratio(who), result.floor_share(who)
                ours = ratio is not None and who in result.variants
                against = f", {ratio:.2f} of the fastest peer" if ours else ""
                lines.append(
                    f"{result.case.name} {who.name}: {result.rate(who) / 1e9:.1f} GFLOP/s, "
                    f"{who.time.median * 1e6:.1f} us ({who.time.p10 * 1e6:.1f} to "
                    f"{who.time.p90 * 1e6:.1f}){against}"
                    + (f", {share:.2f} of the floor's speed" if share is not None else "")
                )
            lines += [f"{result.case.name} {name}: {why}" for name, why in result.refused.items()]
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ``"schema": 1``."""
        return {
            "schema": SCHEMA,
            "backend": self.backend,
            "arch": self.arch,
            "device": self.device,
            "clock": self.clock,
            "buffers": self.buffers,
            "seed": self.seed,
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "seconds": self.seconds,
            "ceilings": {name: dict(c) for name, c in self.ceilings.items()},
            "peers": dict(self.peers),
            "cases": [_case_dict(result) for result in self.results],
            "classes": [asdict(c) for c in self.classes()],
            "worst": worst.case.name if (worst := self.worst()) else None,
        }


def _ratio_to_peer(result: CaseResult, who: Measurement) -> float | None:
    return result.peer_ratio(who)


def _ratio_to_floor(result: CaseResult, who: Measurement) -> float | None:
    return result.floor_share(who)


def _best_ratio(result: CaseResult, ratio: Any) -> float | None:
    best = result.best
    value: float | None = ratio(result, best) if best else None
    return value


def _summaries(kind: str, name: str, rows: Iterable[CaseResult]) -> list[ClassSummary]:
    out = []
    rows = list(rows)
    for against, ratio in (("peer", _ratio_to_peer), ("floor", _ratio_to_floor)):
        found: list[tuple[float, str]] = []
        for row in rows:
            who = row.best if name == "best" else _named(row, name)
            value = ratio(row, who) if who else None
            if value is not None:
                found.append((value, row.case.name))
        if found:
            mean = geometric_mean([value for value, _ in found])
            out.append(ClassSummary(kind, name, against, len(found), mean, *min(found)))
    return out


def _named(row: CaseResult, name: str) -> Measurement | None:
    return next((v for v in row.variants if v.name == name), None)


def _case_dict(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "name": case.name,
        "m": case.m,
        "n": case.n,
        "k": case.k,
        "types": case.types.model_dump(),
        "layout": case.layout.model_dump(),
        "class": result.kind,
        "flop": case.flop,
        "floor": asdict(result.floor) if result.floor else None,
        "sets": result.sets,
        "cold": result.cold,
        "rounds": result.rounds,
        "variants": [_measured(result, v) for v in result.variants],
        "peers": [_measured(result, p) for p in result.peers],
        "refused": dict(result.refused),
    }


def _measured(result: CaseResult, who: Measurement) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": who.name,
        "seconds": list(who.seconds),
        "median": who.time.median,
        "p10": who.time.p10,
        "p90": who.time.p90,
        "flop_per_second": result.rate(who),
        "share_of_floor": result.floor_share(who),
        "event_seconds": list(who.event_seconds),
        "queue_seconds": list(who.queue_seconds),
        "call_seconds": who.call_seconds,
        "starved": who.starved,
    }
    if who in result.variants:
        out["ratios"] = {p.name: asdict(result.paired(who, p)) for p in result.peers}
        out["kernel"] = dict(who.kernel)
    return out
