"""The self-check list of a spec: planned, compiled, counted and profiled, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilegen import registry
from tilegen.backend import Backend
from tilegen.build import compile as compile_source
from tilegen.checklist.compiled import Compiled, compiled_lines, log_lines
from tilegen.checklist.lines import INFO, UNMEASURED, CheckReport, Line
from tilegen.checklist.nearest import nearest_passing
from tilegen.checklist.support import Support, support_of
from tilegen.checklist.traffic import Counted, diverged_lines, traffic_lines
from tilegen.errors import BackendError, CompileError, LaunchError
from tilegen.hardware import Arch
from tilegen.lower import lower
from tilegen.plan import KernelPlan
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec


def check_spec(
    spec: TileSpec,
    backend: str,
    arch: str | Arch | None = None,
    *,
    count: bool = True,
    profile: bool = True,
    suggest: bool = True,
    told: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """The list for one spec; see :func:`tilegen.check`."""
    plugin = registry.get(backend)
    plan = lower(spec, backend, arch)
    source = emit(plan)
    support = support_of(plugin)
    told("compiling")
    compiled, log = compiled_of(plugin, source)
    faults = tuple(support.faults_of_log(log)) if support.faults_of_log else ()
    of_compiler = (*compiled_lines(plan, compiled), *log_lines(faults))
    told("counting on the emulator")
    counted = counts_of(support, source) if count else Counted(missing="the count was left out")
    lines = (
        *of_compiler,
        *traffic_lines(plan, counted, support.sector_bytes),
        *diverged_lines(counted),
        *(utilisation_lines(support, source) if profile else ()),
        *note_lines(plan),
    )
    told("looking for the nearest change that passes")
    failed = any(line.verdict == "FAIL" for line in of_compiler)
    nearest = nearest_passing(plan) if failed and suggest else None
    return CheckReport(plan.name, backend, plan.arch.name, compiled.compiler, lines, nearest)


def compiled_of(backend: Backend, source: KernelSource) -> tuple[Compiled, str]:
    """What the backend's compiler says of the source, and its log."""
    toolchain = backend.toolchain(source.plan.arch)
    if toolchain.missing:
        return Compiled({}, missing=toolchain.missing), ""
    binary = compile_source(source)
    return Compiled(binary.resources, str(binary.toolchain)), binary.log


def counts_of(support: Support, source: KernelSource) -> Counted:
    """The counts of every main entry, or why there are none."""
    if support.count is None:
        return Counted(
            missing=f"the {source.plan.backend} backend has nothing that counts accesses"
        )
    counts = {}
    try:
        for entry in source.plan.main_entries:
            counts[entry.name] = support.count(source, entry.name)
    except (BackendError, CompileError, LaunchError) as error:
        return Counted(counts, str(error))
    return Counted(counts)


def utilisation_lines(support: Support, source: KernelSource) -> Iterator[Line]:
    """How busy the device was, of every main entry."""
    item = "issue utilisation"
    if support.profile is None:
        note = f"the {source.plan.backend} backend has no profiler"
        yield Line(item, "", None, None, None, "%", UNMEASURED, note)
        return
    for entry in source.plan.main_entries:
        said = support.profile(source, entry.name)
        if said.reason:
            yield Line(item, "", None, None, None, "%", UNMEASURED, said.reason)
            return
        for name, value in said.metrics.items():
            yield Line(
                name, entry.name, None, round(value, 2), None, "%", INFO, f"on {said.device}"
            )


def note_lines(plan: KernelPlan) -> Iterator[Line]:
    """Where the plan departs from the spec, and why; and what else there is to know of it."""
    for note in plan.departures:
        yield Line("planned otherwise", note=note)
    for note in plan.remarks:
        yield Line("note", note=note)
