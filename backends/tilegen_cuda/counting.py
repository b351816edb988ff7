"""One block tile of an entry on the emulator, its accesses to memory counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

# Steps in K beyond the stages: enough for the loop to run as it does in the middle of a problem.
STEPS = 2


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

    Raises
    ------
    CompileError
        If there is no host compiler; the message says what brings one.
    """
    from tilegen.testing import Problem, make_arrays

    plan = source.plan
    device = EmulatedDevice(plan.arch)
    toolchain = device.toolchain()
    if toolchain.missing:
        raise CompileError(toolchain.missing)
    binary = device.compile(source)
    program = CountingProgram(device.load(binary))
    kernel = Kernel(only(binary, name), device, program)
    m, n, k = plan.block[0], plan.block[1], plan.block[2] * (plan.pipeline.stages + STEPS)
    batch = 1 if plan.spec.batch == "strided" else None
    problem = Problem(m, n, k * plan.split_k, batch, alpha=1.0, beta=1.0)
    arrays = make_arrays(problem, plan.spec)
    kernel(arrays.a, arrays.b, arrays.c, alpha=1, beta=1, out=arrays.out, **arrays.extras)
    main = next(x for x in program.launches if x.entry.name == name)
    findings = tuple(
        program.program.told([finding]) for x in program.launches for finding in x.run.findings
    )
    return Count(
        traffic=tuple(_traffic(plan, main, use) for use in main.run.accesses),
        multiply_adds=m * n * problem.k,
        findings=findings,
        diverged=main.run.counts.get("parted", 0),
        stretches=main.run.counts.get("stretches", 0),
    )


def only(binary: KernelBinary, name: str) -> KernelBinary:
    """The binary with one main entry, so that a call takes no other."""
    plan = binary.source.plan
    kept = tuple(e for e in plan.entries if e.role != "main" or e.name == name)
    return replace(binary, source=replace(binary.source, plan=replace(plan, entries=kept)))


def _traffic(plan: KernelPlan, launched: Launched, use: AccessUse) -> Traffic:
    operand = ""
    if use.argument is not None:
        operand = launched.arguments[use.argument][0].operand
    elif use.space == "shared":
        operand = tile_of(plan, use.span)
    return Traffic(
        use.line, use.space, use.writes, operand, use.accesses, use.bytes, use.served, use.extra
    )  # fmt: skip


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
