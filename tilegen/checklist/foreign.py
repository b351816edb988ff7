"""A kernel file that tilegen did not write: compiler numbers, what the emulator finds, the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegen import registry
from tilegen.backend import Backend
from tilegen.checklist.compiled import Compiled, foreign_lines, log_lines
from tilegen.checklist.lines import FAIL, INFO, PASS, UNMEASURED, CheckReport, Line, Suggestion
from tilegen.checklist.macros import nearest_macros
from tilegen.checklist.meaning import Meaning, blocks
from tilegen.checklist.support import Support, support_of
from tilegen.entries import Formula
from tilegen.errors import BackendError, CompileError, SpecError
from tilegen.files import source_text
from tilegen.hardware import Arch
from tilegen.lower import find_arch

if TYPE_CHECKING:
    from tilegen.checklist.contract import ForeignKernel
    from tilegen.emulator import AccessUse, EmulatorRun, Finding

ORDERS = (0, 1, 2)


@dataclass(frozen=True)
class Launch:
    """How a foreign kernel is started; what is left out leaves out the checks that need it.

    Attributes
    ----------
    entry : str
        The kernel; for a template, the instance: ``"gemm<float, 8>"``.
    grid : tuple of Formula
        Blocks, one to three; formulas in M, N and K where ``meaning`` is given.
    block : tuple of int
        Threads of a block; empty: not given.
    arguments : tuple
        Arrays and numbers, one for each parameter.
    outputs : tuple of int
        Positions of those of which every element must be written exactly once.
    shared_bytes : int
        Dynamic shared memory.
    defines : tuple of str
        Macros as ``NAME=VALUE``.
    orders : tuple of int
        Of threads: 0 forward, 1 reverse, others are seeds. The race detector runs besides.
    meaning : Meaning or None
        What the parameters mean, so that the contract can be tried.
    """

    entry: str = ""
    grid: tuple[Formula, ...] = ()
    block: tuple[int, ...] = ()
    arguments: tuple[Any, ...] = ()
    outputs: tuple[int, ...] = ()
    shared_bytes: int = 0
    defines: tuple[str, ...] = ()
    orders: tuple[int, ...] = ORDERS
    meaning: Meaning | None = None

    @property
    def threads(self) -> int | None:
        return prod(self.block) if self.block else None


def find_backend(path: Path, name: str | None = None) -> Backend:
    """The backend that compiles a file of this suffix.

    Raises
    ------
    SpecError
        If none does.
    """
    known = {one: registry.get(one) for one in ([name] if name else registry.names())}
    for backend in known.values():
        if backend.suffix == path.suffix and support_of(backend).compile_text is not None:
            return backend
    takes = [b.suffix for b in known.values() if support_of(b).compile_text is not None]
    raise SpecError(
        f"{path}: a spec is .toml or .json, and foreign kernels are taken from "
        f"{', '.join(takes) or 'no backend that is installed'} files"
    )


def check_file(
    path: Path,
    backend: str | None = None,
    arch: str | Arch | None = None,
    *,
    launch: Launch | None = None,
    examples: int = 20,
    seed: int = 0,
    suggest: bool = True,
    told: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """The list for one file; see :func:`tilegen.check`."""
    start = launch or Launch()
    plugin = find_backend(path, backend)
    support, (target, _) = support_of(plugin), find_arch(plugin, arch)
    text = source_text(path)
    told("compiling")
    compiled, of_compiler = _compiled(support, target, text, path, start)
    told("running on the emulator")
    emulated = _emulated(support, target, text, start)
    lines = [*_dynamic_memory(text, start, emulated), *of_compiler, *emulated.lines]
    if emulated.ends_here:
        lines.append(Line("contract", verdict=UNMEASURED, note=emulated.ends_here))
    else:
        lines += _contract(support, target, text, start, examples, seed, told)
    nearest: Suggestion | None = None
    if suggest and any(line.verdict == FAIL for line in of_compiler):
        told("looking for the nearest numbers that pass")
        nearest = nearest_macros(
            start.entry, start.defines, _passes(support, target, text, path, start)
        )
    return CheckReport(
        path.name, plugin.name, target.name, compiled.compiler, tuple(lines), nearest
    )


def _compiled(
    support: Support, arch: Arch, text: str, path: Path, launch: Launch
) -> tuple[Compiled, list[Line]]:
    assert support.compile_text is not None
    names = [launch.entry] if launch.entry else []
    try:
        binary = support.compile_text(text, str(path), arch, names, launch.defines)
    except CompileError as error:
        if error.log and "not here" not in str(error):
            raise
        # No compiler, or not its headers: the emulator may run the text all the same.
        line = Line("compiler", verdict=UNMEASURED, note=str(error))
        return Compiled({}, missing=str(error)), [line]
    faults = tuple(support.faults_of_log(binary.log)) if support.faults_of_log else ()
    compiled = Compiled(_chosen(binary.resources, launch.entry), binary.compiler)
    if not binary.resources:
        note = "the text has no kernel that is no template: --entry names an instance of one"
        return compiled, [Line("compiler", verdict=UNMEASURED, note=note)]
    found = foreign_lines(arch, compiled, launch.threads, launch.shared_bytes)
    return compiled, [*found, *log_lines(faults)]


def _chosen(resources: Mapping[str, Any], entry: str) -> Mapping[str, Any]:
    """Of the entry alone where one is named: block and shared memory are those of its launch."""
    return {entry: resources[entry]} if entry in resources else resources


def _passes(
    support: Support, arch: Arch, text: str, path: Path, launch: Launch
) -> Callable[[str, Sequence[str]], bool]:
    """Whether an instance with such macros compiles and no line of the compiler fails."""

    def passes(entry: str, defines: Sequence[str]) -> bool:
        changed = replace(launch, entry=entry, defines=tuple(defines))
        try:
            compiled, lines = _compiled(support, arch, text, path, changed)
        except CompileError:
            return False
        return bool(compiled.resources) and not any(line.verdict == FAIL for line in lines)

    return passes


# ---- the emulator --------------------------------------------------------------------------------


def _foreign_kernel(support: Support, arch: Arch, text: str, launch: Launch) -> ForeignKernel:
    from tilegen import emulator
    from tilegen.checklist.contract import ForeignKernel, ForeignPlan

    assert launch.meaning is not None
    if not (launch.entry and launch.grid and launch.block):
        raise SpecError("--gemm needs --entry, --grid (formulas in M, N and K) and --block")
    return ForeignKernel(
        emulator.compile(text, support.language, launch.entry, launch.defines),
        launch.entry,
        launch.grid,
        launch.block,
        launch.shared_bytes,
        arch.shared_bytes,
        launch.meaning,
        ForeignPlan(launch.meaning.spec(launch.grid), launch.entry),
    )


@dataclass(frozen=True)
class _Emulated:
    """What the emulator finds, and why nothing further needs to be run; empty: it does.

    ``starved`` is the first finding that comes of dynamic shared memory which is not there.
    """

    lines: tuple[Line, ...]
    ends_here: str = ""
    starved: str = ""


def _emulated(support: Support, arch: Arch, text: str, launch: Launch) -> _Emulated:
    """What the emulator finds with the arguments that are given or meant, and what it counts."""
    from tilegen.checklist.contract import NOT_TRIED, does_not_end

    needed = {"--entry": launch.entry, "--grid": launch.grid, "--block": launch.block}
    if launch.meaning is None:
        needed["--arg"] = launch.arguments
        if lacks := [name for name, given in needed.items() if not given]:
            note = f"nothing says how to start it: {', '.join(lacks)} would"
            return _Emulated((Line("emulator", verdict=UNMEASURED, note=note),))
    try:
        # A kernel that does not end would take as long in every order, and under the race detector.
        run = _run(support, arch, text, launch, orders=launch.orders[:1], races=False)
        if does_not_end(run):
            return _Emulated(tuple(finding_lines(run, launch.orders[:1])), NOT_TRIED)
        run = _run(support, arch, text, launch, orders=launch.orders, banks=True)
    except (BackendError, CompileError) as error:
        return _Emulated((Line("emulator", verdict=UNMEASURED, note=str(error)),))
    if _declared(text, launch) and (starved := [f for f in run.findings if _is_starved(f)]):
        note = "not tried without the dynamic shared memory that it uses"
        return _Emulated((Line("emulator", verdict=UNMEASURED, note=note),), note, str(starved[0]))
    return _Emulated((*finding_lines(run, launch.orders), *access_lines(run.accesses)))


def _declared(text: str, launch: Launch) -> int:
    """The line that declares dynamic shared memory of which the launch gives none; 0: there is none."""
    from tilegen.emulator.program import dynamic_memory_line

    return 0 if launch.shared_bytes else dynamic_memory_line(text)


def _is_starved(finding: Finding) -> bool:
    """Whether it may come of dynamic shared memory that is not there."""
    return finding.kind == "crash" or (
        finding.kind == "out-of-bounds" and " at shared byte " in finding.message
    )


def _dynamic_memory(text: str, launch: Launch, emulated: _Emulated) -> Iterator[Line]:
    """That the launch gives none where the text declares some: the cause of what is found then."""
    if not (number := _declared(text, launch)):
        return
    note = "the text declares dynamic shared memory and the launch gives none: --shared BYTES does"
    line = Line("dynamic shared memory", f"line {number}", None, 0, None, "bytes", INFO, note)
    if emulated.starved:
        line = replace(line, verdict=FAIL, note=f"{note}; the emulator found {emulated.starved}")
    yield line


def _run(support: Support, arch: Arch, text: str, launch: Launch, **options: Any) -> EmulatorRun:
    """One launch with the arguments that are given, else with those that are meant."""
    from tilegen import emulator

    if launch.meaning is not None and not launch.arguments:
        return _foreign_kernel(support, arch, text, launch).counted(**options)
    return emulator.run(
        text,
        support.language,
        entry=launch.entry,
        grid=blocks(launch.grid, 1, 1, 1),
        block=launch.block,
        args=launch.arguments,
        outputs=launch.outputs,
        shared_bytes=launch.shared_bytes,
        shared_limit=arch.shared_bytes,
        defines=launch.defines,
        **options,
    )


def finding_lines(run: EmulatorRun, orders: Sequence[int]) -> Iterator[Line]:
    """A line for each finding, or one that says there is none."""
    ran = f"{len(orders)} orders of threads and the race detector"
    if run.clean:
        parted, stretches = run.counts.get("parted", 0), run.counts.get("stretches", 0)
        note = f"lanes of a warp part in {parted} of {stretches} stretches between barriers"
        yield Line("emulator", "", None, f"no finding in {ran}", verdict=PASS, note=note)
    for finding in run.findings:
        where = f"line {finding.line}" if finding.line is not None else ""
        yield Line("emulator", where, None, finding.kind, verdict=FAIL, note=str(finding))


def access_lines(uses: Sequence[AccessUse]) -> Iterator[Line]:
    """What each line asks of banks and sectors."""
    for use in uses:
        where = f"line {use.line}, {'stores' if use.writes else 'loads'}"
        if use.space == "shared":
            extra = round(use.extra / max(1, use.accesses), 4)
            unit, verdict = "extra cycles an access", INFO if use.extra else PASS
            note = "a pad or a swizzle takes them away" if use.extra else ""
            yield Line("bank conflicts", where, None, extra, None, unit, verdict, note)
        else:
            touched = round(use.served / use.accesses, 4)
            fewest = round((use.served - use.extra) / use.accesses, 4)
            verdict = INFO if use.extra else PASS
            note = "" if use.argument is None else f"argument {use.argument}"
            if use.extra:
                note += f": {touched / fewest:.3g} times the fewest sectors"
            unit = "sectors a warp"
            yield Line("global access", where, None, touched, fewest, unit, verdict, note)


# ---- the contract --------------------------------------------------------------------------------


def _contract(
    support: Support,
    arch: Arch,
    text: str,
    launch: Launch,
    examples: int,
    seed: int,
    told: Callable[[str], None],
) -> Iterator[Line]:
    if launch.meaning is None:
        note = "what the arguments mean is not said: --gemm would"
        yield Line("contract", verdict=UNMEASURED, note=note)
        return
    from tilegen.checklist.contract import contract_lines

    try:
        kernel = _foreign_kernel(support, arch, text, launch)
        yield from contract_lines(kernel, examples, seed, told)
    except (BackendError, CompileError) as error:
        yield Line("contract", verdict=UNMEASURED, note=str(error))
