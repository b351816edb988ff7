"""From lists to a result: points lowered here, compiled from the cache or by processes, put in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from tilegen import registry
from tilegen.backend import Backend
from tilegen.build import find_compiled
from tilegen.errors import PlanError, require
from tilegen.hardware import Arch
from tilegen.lower import attempt, closest, find_arch, lower
from tilegen.plan import KernelPlan
from tilegen.processors import cores
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec

from .points import Point, points
from .rows import Compiled, Refusal, Row, Sweep
from .worker import Answer, answer
from .workers import compile_all

# Refused where a spill is predicted: the kernel would only be slow.
REGISTERS = "registers"


def sweep(
    spec: TileSpec,
    *,
    backend: str,
    arch: str | Arch | None = None,
    block: Sequence[tuple[int, int, int]] | None = None,
    warp: Sequence[tuple[int, int]] | None = None,
    thread: Sequence[tuple[int, int]] | None = None,
    stages: Sequence[int] | None = None,
    set: Mapping[str, Sequence[Any]] | None = None,
    spilling: bool = False,
    compile: bool = True,
    jobs: int = 0,
    sort: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Every legal combination of the lists, with predicted and compiled numbers.

    Parameters
    ----------
    spec : TileSpec
        Everything that no list names.
    backend : str
    arch : str or Arch, optional
        Left out: as for :func:`tilegen.lower`.
    block, warp, thread, stages : sequence, optional
        Values of these keys.
    set : mapping, optional
        Values of any other key, dots for tables: ``{"pins.cuda.swizzle": ["pad", "xor"]}``.
    spilling : bool
        Also take the points that only the prediction of their registers refuses.
    compile : bool
        Whether to ask the compiler, where there is one.
    jobs : int
        Processes that compile; 0: one a core.
    sort : str
        As for :meth:`Sweep.sorted`.
    progress : callable, optional
        Called with the kernels compiled so far and those to compile.

    Returns
    -------
    Sweep

    Raises
    ------
    SpecError
        For lists that hold what no spec can have.
    BackendError
        For an unknown backend or arch.
    PlanError
        If every point is refused; it states the rules of the first one.

    Examples
    --------
    >>> spec = TileSpec(block=(64, 64, 16), warp=(32, 32))
    >>> found = sweep(spec, backend="cuda", arch="sm_90", stages=[2, 3], compile=False)
    >>> [row.plan.budget.shared_bytes for row in found]
    [16896, 25344]
    """
    require("sweep", spec, TileSpec)
    begin = time.perf_counter()
    plugin = registry.get(backend)
    target, _ = find_arch(plugin, arch)
    lists = {"block": block, "warp": warp, "thread": thread, "stages": stages, **(set or {})}
    axes = {key: values for key, values in lists.items() if values is not None}
    rows, refused = _judged(points(spec, axes), plugin, target, spilling)
    if not rows:
        _refuse(refused, backend, target)
    chain = plugin.toolchain(target)
    asked = compile and not chain.missing
    found = Sweep(
        spec=spec,
        backend=backend,
        arch=target.name,
        compiler=str(chain) if asked else "",
        axes=tuple(axes),
        rows=tuple(rows),
        refused=tuple(refused),
        missing=chain.missing if compile else "",
    ).sorted(sort)  # a column that is none is refused before the compiler runs
    if asked:
        rows, processes = _compiled(found.rows, jobs or cores(), progress)
        found = replace(found, rows=tuple(rows), processes=processes).sorted(sort)
    return replace(found, seconds=time.perf_counter() - begin)


def _judged(
    wanted: Sequence[Point], backend: Backend, arch: Arch, spilling: bool
) -> tuple[list[Row], list[Refusal]]:
    rows: list[Row] = []
    refused: list[Refusal] = []
    for point in wanted:
        plan, broken = attempt(point.spec, backend, arch)
        forgiven: KernelPlan | None = None
        if plan is None and spilling:
            forgiven, _ = attempt(point.spec, backend, arch, (REGISTERS,))
        if made := plan or forgiven:
            rows.append(Row(point, made, spilling=plan is None))
            continue
        refused.append(Refusal(point, tuple(closest(broken)[1])))
    return rows, refused


def _refuse(refused: Sequence[Refusal], backend: str, arch: Arch) -> None:
    """Raise what the first point's refusal says, with the nearest legal value."""
    point = refused[0].point
    try:
        lower(point.spec, backend, arch)
    except PlanError as error:
        which = f"all {len(refused)} points are refused; the first one" if point.values else ""
        where = f"{which}, {point}: " if which else ""
        raise PlanError(f"{where}{error}", error.violations) from None


def _compiled(
    rows: Sequence[Row], jobs: int, progress: Callable[[int, int], None] | None
) -> tuple[list[Row], int]:
    """The rows with the compiler's numbers, and how many processes it took."""
    out = list(rows)
    sources: list[KernelSource] = []
    places: list[int] = []
    # What takes the longest comes first, so that no process waits for another's at the end.
    for place, row in sorted(enumerate(rows), key=lambda pair: -pair[1].use.accumulators):
        source = emit(row.plan)
        if found := find_compiled(source):
            out[place] = replace(row, compiled=Compiled.of(row.plan, found.resources, None))
        else:
            sources.append(source)
            places.append(place)
    told = progress or (lambda *_: None)
    told(0, len(sources))
    # A backend that was registered for this process only is not known in another.
    here = sources and sources[0].plan.backend not in registry.installed()
    answers = (
        ((i, answer(source)) for i, source in enumerate(sources))
        if here
        else compile_all(sources, jobs)
    )
    with closing(answers):  # Ctrl-C ends the processes at once
        for done, (index, said) in enumerate(answers, 1):
            place = places[index]
            out[place] = _told(rows[place], said)
            told(done, len(sources))
    return out, 0 if here else min(jobs, len(sources))


def _told(row: Row, said: Answer) -> Row:
    resources, seconds, why = said
    if why:
        return replace(row, error=why)
    return replace(row, compiled=Compiled.of(row.plan, resources, seconds))
