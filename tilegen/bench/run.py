"""One run: ceilings first, then case by case: build, check, and time everyone in interleaved rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tilegen import registry
from tilegen.backend import Backend, Ceiling, Device, Peer, Workbench
from tilegen.bench.buffers import BufferSets, OperandSet, empty_output, make_sets
from tilegen.bench.cases import Case
from tilegen.bench.check import check_against, check_sample
from tilegen.bench.context import kernel_facts, load, notes, versions
from tilegen.bench.floor import Floor, floor, traffic
from tilegen.bench.host import workbench
from tilegen.bench.measure import LEAST_ROUNDS, Runner, call_seconds, measure
from tilegen.bench.numpy_peer import NumpyPeer
from tilegen.bench.report import LAUNCH_BOUND, BenchReport, CaseResult, Measurement
from tilegen.bench.start import starting_spec
from tilegen.build import build, find_device
from tilegen.errors import (
    BackendError,
    CompileError,
    LaunchError,
    PlanError,
    SpecError,
    VerifyError,
)
from tilegen.hardware import Arch
from tilegen.kernel import Kernel
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A variant: one spec for every case, or a function that has one for each.
Variant = TileSpec | Callable[[Case], TileSpec]
CHOSEN = "chosen"
# What stops a variant on one case, and not the run.
REFUSALS = (PlanError, SpecError, LaunchError, CompileError)


def find_timed(backend: Backend, arch: Arch | None, device: str | Device | None) -> Device:
    """The device to time: what only checks kernels has no speed of its own.

    Raises
    ------
    BackendError
        If there is no device, or the one that was named is a checker.
    """
    found = find_device(backend, arch, device)
    if found.rung not in ("emulator", "oclgrind"):
        return found
    wants = "; ".join(f"{m.what}: {m.command}" for m in backend.missing())
    raise BackendError(
        f"{found.name} checks kernels and says nothing of their speed; no {backend.name} device is "
        "timed here" + (f" ({wants})" if wants else "")
    )


def run(
    cases: Sequence[Case],
    specs: Mapping[str, Variant] | Sequence[TileSpec] | TileSpec | None = None,
    *,
    backend: str,
    arch: str | Arch | None = None,
    device: str | Device | None = None,
    peers: Sequence[str] | None = None,
    seed: int = 0,
    budget: float = 10.0,
    warm: bool = False,
    progress: Callable[[str], None] | None = None,
) -> BenchReport:
    """Measure variants and peers on the cases.

    Parameters
    ----------
    cases : sequence of Case
    specs : optional
        Label to spec, or to a function of the case; specs alone are labelled by their tiles. A
        spec is run with the case's layout and types. Left out: the backend's choice for each case.
    backend : str
    arch, device : optional
        As for :func:`tilegen.build`.
    peers : sequence of str, optional
        Names of the peers to run; left out, all that are here.
    seed : int
        Of the data and of the order within the rounds.
    budget : float
        Seconds that the timed calls of one case may take; a case that needs more for the fewest
        rounds is left out, and the report says so.
    warm : bool
        Whether one set of operands serves every call, so that the cache may hold them.
    progress : callable, optional
        Told the name of each step.

    Returns
    -------
    BenchReport

    Raises
    ------
    BackendError
        If there is no device, or no peer of a name.
    VerifyError
        If a product is wrong; nothing wrong is timed.
    """
    begun, busy, say = time.perf_counter(), load(), progress or (lambda _: None)
    plugin = registry.get(backend)
    target = plugin.archs.get(arch) if isinstance(arch, str) else arch
    if isinstance(arch, str) and target is None:
        raise BackendError(f"{backend} has no arch {arch!r}; known: {', '.join(plugin.archs)}")
    found = find_timed(plugin, target, device)
    bench = workbench(found)
    everyone = _peers(bench, found, peers)
    say("measuring the ceilings")
    ceilings = _Ceilings.of(cases, bench)
    variants = _variants(specs, backend, found)
    runs = _Run(found, backend, bench, variants, everyone, ceilings, seed, budget, warm)
    results = []
    for number, case in enumerate(cases, 1):
        say(f"{case.name} ({number} of {len(cases)})")
        results.append(runs.case(case))
    return BenchReport(
        backend=backend,
        arch=found.arch.name,
        device=found.name,
        clock=bench.clock,
        ceilings=ceilings.to_dict(),
        peers={p.name: p.missing or p.description for p in everyone},
        results=tuple(results),
        seed=seed,
        buffers="warm" if warm else "cold",
        versions=versions(bench),
        notes=tuple(notes(everyone, busy)),
        seconds=time.perf_counter() - begun,
    )


def refuse_spec(spec: TileSpec) -> None:
    """Raise ``SpecError`` for a spec that does more than the peers do."""
    extra = [f"batch = {spec.batch!r}"] if spec.batch != "none" else []
    extra += ["an epilogue"] if spec.epilogue else []
    if extra:
        raise SpecError(
            f"the spec has {' and '.join(extra)}, and the bench times D = A·B alone, as the peers do"
        )


@dataclass(frozen=True)
class _Ceilings:
    peaks: dict[str, Ceiling | None]
    bandwidth: Ceiling | None

    @classmethod
    def of(cls, cases: Sequence[Case], bench: Workbench) -> _Ceilings:
        kinds = {_type_key(case): case.types for case in cases}
        peaks = {key: bench.peak(types) for key, types in kinds.items()}
        return cls(peaks, bench.bandwidth())

    def floor(self, case: Case) -> Floor | None:
        return floor(case, self.peaks.get(_type_key(case)), self.bandwidth)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        known = {**self.peaks, "bytes": self.bandwidth}
        return {name: asdict(ceiling) for name, ceiling in known.items() if ceiling is not None}


def _type_key(case: Case) -> str:
    t = case.types
    return t.a if t.a == t.b == t.acc else f"{t.a}*{t.b}+{t.acc}"


@dataclass(frozen=True)
class _Run:
    """What all cases of a run share."""

    device: Device
    backend: str
    bench: Workbench
    variants: Mapping[str, Variant]
    peers: Sequence[Peer]
    ceilings: _Ceilings
    seed: int
    budget: float
    warm: bool

    def case(self, case: Case) -> CaseResult:
        """Everything of one case, or why it is left out."""
        least = self.ceilings.floor(case)
        kind = "launch-bound" if case.kind == "big" and _short(least) else case.kind
        refused: dict[str, str] = {}
        nothing = CaseResult(case, kind, least, 0, False, 0, (), (), refused)
        kernels = self._kernels(case, refused)
        if not kernels:
            return nothing
        if too_large := self._too_large(case, least):
            refused["case"] = too_large
            return nothing
        try:
            sets = make_sets(case, self.bench, self.seed, self.warm)
        except MemoryError:
            refused["case"] = f"its operands take {traffic(case) >> 20} MiB; {self._room()}"
            return nothing
        runners = {name: _variant(name, k, self.bench) for name, k in kernels.items()}
        ours = self._check_variants(case, sets, runners, kernels, refused)
        if ours is None:
            return nothing
        family = kernels[next(iter(runners))].plan.instruction.family
        peers = self._checked_peers(case, sets, ours, family, refused)
        rng = random.Random(f"{self.seed} {case.name}")
        everyone = [*runners.values(), *peers]
        rounds = measure(everyone, sets, self.bench, budget=self.budget, rng=rng)
        return CaseResult(
            case, kind, least, len(sets.sets), sets.cold, rounds.count,
            tuple(self._measured(r, kernels[name], sets) for name, r in runners.items()),
            tuple(_measurement(r) for r in peers), refused,
        )  # fmt: skip

    def _too_large(self, case: Case, least: Floor | None) -> str:
        if traffic(case) > self.bench.memory_bytes:
            return f"its operands take {traffic(case) >> 20} MiB; {self._room()}"
        runners = len(self.variants) + sum(not peer.missing for peer in self.peers)
        shortest = (least.seconds if least else 0.0) * (LEAST_ROUNDS + 1) * runners
        if shortest > self.budget:
            return (
                f"{LEAST_ROUNDS} rounds take at least {shortest:.1f} s and a case may take "
                f"{self.budget:g} s; raise the budget"
            )
        return ""

    def _room(self) -> str:
        return f"{self.bench.memory_bytes >> 20} MiB of {self.device.name} are for the bench"

    def _kernels(self, case: Case, refused: dict[str, str]) -> dict[str, Kernel]:
        out = {}
        for name, variant in self.variants.items():
            try:
                spec = variant if isinstance(variant, TileSpec) else variant(case)
                spec = spec.replace(types=case.types, layout=case.layout)
                refuse_spec(spec)
                out[name] = build(spec, self.backend, self.device.arch, self.device)
            except REFUSALS as error:
                refused[name] = " ".join(str(error).split())
        return out

    def _check_variants(
        self, case: Case, sets: BufferSets, runners: dict[str, Runner],
        kernels: Mapping[str, Kernel], refused: dict[str, str],
    ) -> NDArray[Any] | None:  # fmt: skip
        """One product of each, against the reference; the last one's D. Raises ``VerifyError``."""
        one, get, ours = sets.sets[0], self.bench.get, None
        a, b = get(one.a), get(one.b)
        for name in list(runners):
            kernel, out = kernels[name], empty_output(case, self.bench)
            try:
                kernel(one.a, one.b, out=out, stream=self.bench.stream)
            except LaunchError as error:
                refused[name] = str(error)
                del runners[name]
                continue
            ours = get(out)
            family = kernel.plan.instruction.family
            check_sample(case, a, b, ours, family, kernel.plan.name, self.seed)
        return ours

    def _checked_peers(
        self, case: Case, sets: BufferSets, ours: NDArray[Any], family: str, refused: dict[str, str]
    ) -> list[Runner]:
        """Runners of the peers that multiply this case, each compared once with our result."""
        one, get, runners = sets.sets[0], self.bench.get, []
        for peer in self.peers:
            if peer.missing:
                continue
            if why := peer.refusal(case.types):
                refused[peer.name] = why
                continue
            out = empty_output(case, self.bench)
            try:
                peer.prepare(one.a, one.b, out, case.types, case.layout)()
                check_against(
                    case, get(one.a), get(one.b), ours, get(out), family, peer.name,
                    peer.accumulator(case.types),
                )  # fmt: skip
            except (LaunchError, VerifyError) as error:
                refused[peer.name] = str(error)
                continue
            runners.append(_peer(peer, case))
        return runners

    def _measured(self, runner: Runner, kernel: Kernel, sets: BufferSets) -> Measurement:
        one, stream = sets.sets[0], self.bench.stream

        prepared = kernel.prepare(one.a, one.b, out=one.d, stream=stream)

        def call() -> object:
            # What a call does before the device works; a call itself may wait for the device.
            kernel.explain(one.a, one.b, out=one.d, stream=stream)
            return prepared.queue()

        host = call_seconds(call, self.bench.wait)
        return _measurement(runner, host, kernel_facts(kernel, prepared.entry))


def _variant(name: str, kernel: Kernel, bench: Workbench) -> Runner:
    def prepare(one: OperandSet) -> Callable[[], object]:
        prepared = kernel.prepare(one.a, one.b, out=one.d, stream=bench.stream)
        prepared.stage()
        return prepared.queue

    return Runner(name, prepare)


def _peer(peer: Peer, case: Case) -> Runner:
    return Runner(peer.name, lambda s: peer.prepare(s.a, s.b, s.d, case.types, case.layout))


def _measurement(
    runner: Runner, host: float | None = None, kernel: Mapping[str, Any] | None = None
) -> Measurement:
    return Measurement(
        runner.name,
        tuple(runner.seconds),
        tuple(runner.event_seconds),
        tuple(runner.host_seconds),
        host,
        kernel or {},
        runner.starved,
    )


def _short(least: Floor | None) -> bool:
    return least is not None and least.seconds < LAUNCH_BOUND


def _peers(bench: Workbench, device: Device, wanted: Sequence[str] | None) -> list[Peer]:
    here: list[Peer] = [*bench.peers()]
    if device.arch.kind == "cpu":
        here.insert(0, NumpyPeer())
    if wanted is None:
        return here
    known = {peer.name.lower(): peer for peer in here}
    for name in wanted:
        if name.lower() not in known:
            names = ", ".join(peer.name for peer in here) or "none"
            raise BackendError(f"there is no peer {name!r} for {device.name}; known: {names}")
        if missing := known[name.lower()].missing:
            raise BackendError(missing)
    return [known[name.lower()] for name in dict.fromkeys(wanted)]


def _variants(specs: Any, backend: str, device: Device) -> Mapping[str, Variant]:
    if specs is None:
        return {CHOSEN: lambda case: starting_spec(case, backend, device.arch)}
    if isinstance(specs, TileSpec):
        specs = [specs]
    if isinstance(specs, Mapping):
        return specs
    labels = [_label(spec) for spec in specs]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {spec.digest[:6]}" for label, spec in zip(labels, specs, strict=True)]
    return dict(zip(labels, specs, strict=True))


def _label(spec: TileSpec) -> str:
    pins = [f"{k} {v}" for table in spec.pins.values() for k, v in table.items()]
    block, warp = ("x".join(map(str, tile)) for tile in (spec.block, spec.warp))
    return " ".join([f"{block} w{warp} s{spec.stages}", *pins])
