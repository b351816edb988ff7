"""One block tile of an entry on the emulator, its accesses to memory counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilegen.build import KernelBinary
from tilegen.checklist.support import Count, Traffic
from tilegen.errors import CompileError
from tilegen.kernel import Kernel
from tilegen.plan import Argument, Entry, KernelPlan
from tilegen.render import KernelSource

from .emulated import EmulatedDevice, EmulatedProgram

if TYPE_CHECKING:
    from tilegen.emulator import AccessUse, EmulatorRun

# Steps in K by which the two runs differ; the shorter one has so many beyond the stages.
STEPS = 2
SUMMED = ("accesses", "bytes", "served", "extra")
# Line, memory, direction and argument.
Place = tuple[int, str, bool, int | None]


@dataclass(frozen=True)
class Launched:
    """One launch of a call: its entry, its arguments and what came of it."""

    entry: Entry
    arguments: Sequence[tuple[Argument, Any]]
    run: EmulatorRun


@dataclass
class CountingProgram:
    """The kernels of one text; launches are counted and kept."""

    program: EmulatedProgram
    launches: list[Launched] = field(default_factory=list)

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        run = self.program.run(entry, grid, arguments, orders=(0,), races=True, banks=True)
        self.launches.append(Launched(entry, list(arguments), run))

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        kept = list(arguments)
        return lambda: self.launch(entry, grid, kept, stream)


def count(source: KernelSource, name: str) -> Count:
    """Run the entry on one whole block tile, C read, and count what its warps ask of memory.

    It runs on two lengths of K: what they differ in is what the loop over K does, and the rest what
    is done once, by the epilogue for the most part.

    Raises
    ------
    CompileError
        If there is no host compiler; the message says what brings one.
    """
    plan = source.plan
    device = EmulatedDevice(plan.arch)
    toolchain = device.toolchain()
    if toolchain.missing:
        raise CompileError(toolchain.missing)
    binary = device.compile(source)
    program = CountingProgram(device.load(binary))
    kernel = Kernel(only(binary, name), device, program)
    stages = plan.pipeline.stages
    short, long = (_launched(kernel, program, name, stages + i * STEPS) for i in (1, 2))
    findings = tuple(
        program.program.told([finding]) for x in program.launches for finding in x.run.findings
    )
    bm, bn, bk = plan.block
    return Count(
        traffic=tuple(_traffic(plan, short, long)),
        multiply_adds=bm * bn * bk * STEPS * plan.split_k,
        findings=tuple(dict.fromkeys(findings)),
        diverged=long.run.counts.get("parted", 0),
        stretches=long.run.counts.get("stretches", 0),
    )


def _launched(kernel: Kernel, program: CountingProgram, name: str, steps: int) -> Launched:
    """The entry's launch in a call on one block tile of so many steps in K."""
    from tilegen.testing import Problem, make_arrays

    spec, before = kernel.plan.spec, len(program.launches)
    bm, bn, bk = spec.block
    batch = 1 if spec.batch == "strided" else None
    problem = Problem(bm, bn, bk * steps * kernel.plan.split_k, batch, alpha=1.0, beta=1.0)
    arrays = make_arrays(problem, spec)
    extras: dict[str, Any] = dict(arrays.extras)
    kernel(arrays.a, arrays.b, arrays.c, alpha=1, beta=1, out=arrays.out, **extras)
    return next(x for x in program.launches[before:] if x.entry.name == name)


def only(binary: KernelBinary, name: str) -> KernelBinary:
    """The binary with one main entry, so that a call takes no other."""
    plan = binary.source.plan
    kept = tuple(e for e in plan.entries if e.role != "main" or e.name == name)
    return replace(binary, source=replace(binary.source, plan=replace(plan, entries=kept)))


def _traffic(plan: KernelPlan, short: Launched, long: Launched) -> Iterator[Traffic]:
    before = _by_place(short.run)
    for place, use in _by_place(long.run).items():
        line, space, writes, argument = place
        known = before.get(place, replace(use, accesses=0, bytes=0, served=0, extra=0))
        loops = use.accesses > known.accesses
        counted = {n: getattr(use, n) - loops * getattr(known, n) for n in SUMMED}
        operand = ""
        if argument is not None:
            operand = long.arguments[argument][0].operand
        elif space == "shared":
            operand = tile_of(plan, use.span) if loops else "d"
        yield Traffic(line, space, writes, operand, **counted)


def _by_place(run: EmulatorRun) -> dict[Place, AccessUse]:
    """The accesses of each line to one array in one direction, added up."""
    out: dict[Place, AccessUse] = {}
    for use in run.accesses:
        place = use.line, use.space, use.writes, use.argument
        known = out.get(place)
        if known is not None:
            sums = {n: getattr(use, n) + getattr(known, n) for n in SUMMED}
            span = min(use.span[0], known.span[0]), max(use.span[1], known.span[1])
            use = replace(use, **sums, span=span)
        out[place] = use
    return out


def tile_of(plan: KernelPlan, span: tuple[int, int]) -> str:
    """Whose tile a line touches that touches these bytes of shared memory; ``"ab"``: both.

    A line goes through all of a tile sooner or later, and an epilogue's tile may lie where those of
    A and B have been: the one that the bytes fill best is taken.
    """
    places = {t.operand: (t.start, t.start + t.bytes) for t in plan.shared}
    if "a" in places and "b" in places:
        ends = (*places["a"], *places["b"])
        places["ab"] = (min(ends), max(ends))

    def common(place: tuple[int, int]) -> float:
        both = min(place[1], span[1]) - max(place[0], span[0])
        return both / (max(place[1], span[1]) - min(place[0], span[0]))

    best = max(places, key=lambda name: common(places[name]), default="")
    return best if best and common(places[best]) > 0 else ""
