"""The nearest change of a spec with which the compiler's numbers pass: legal neighbours, compiled in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from math import log2
from typing import Any

from tilegen import registry
from tilegen.backend import Backend
from tilegen.build import compile as compile_source
from tilegen.checklist.compiled import Compiled, asked_blocks, compiled_lines, log_lines
from tilegen.checklist.lines import FAIL, Suggestion
from tilegen.checklist.support import support_of
from tilegen.errors import CompileError, PlanError, SpecError
from tilegen.lower import lower
from tilegen.plan import KernelPlan
from tilegen.render import emit
from tilegen.spec import TileSpec

# Compiled at most; a kernel takes a fraction of a second, but a minute where it spills without end.
MOST_COMPILED, MOST_SECONDS = 24, 60.0
EXTENTS = (8, 16, 32, 64, 128, 256)
# What giving up a pin counts, where halving an extent counts 1.
PIN_DISTANCE = 0.5

Change = dict[str, Any]


def nearest_passing(plan: KernelPlan, most: int = MOST_COMPILED) -> Suggestion:
    """Compile the legal neighbours of a plan's spec, the nearest first, until one passes.

    Only those that leave a thread more registers beyond the predicted ones than the plan does are
    compiled, where it is the registers that fail.

    Parameters
    ----------
    plan : KernelPlan
        Of the kernel that fails.
    most : int
        Kernels to compile.
    """
    backend = registry.get(plan.backend)
    tried, seen, room = 0, {plan.name}, headroom(plan)
    end = time.monotonic() + MOST_SECONDS
    for change, spec in (*_fewer_blocks(plan), *neighbours(plan.spec, plan.backend)):
        if tried == most or time.monotonic() > end:
            break
        try:
            other = lower(spec, plan.backend, plan.arch)
        except PlanError:
            continue
        if other.name in seen or other.form != plan.form or headroom(other) <= room:
            continue
        seen.add(other.name)
        tried += 1
        if passes(backend, other):
            return Suggestion(change, tried)
    return Suggestion({}, tried)


def passes(backend: Backend, plan: KernelPlan) -> bool:
    """Whether no check of the compiler's numbers fails; a text that is refused does not pass."""
    try:
        binary = compile_source(emit(plan))
    except CompileError:
        return False
    support = support_of(backend)
    faults = tuple(support.faults_of_log(binary.log)) if support.faults_of_log else ()
    lines = compiled_lines(plan, Compiled(binary.resources, str(binary.toolchain)))
    return not any(line.verdict == FAIL for line in (*lines, *log_lines(faults)))


def headroom(plan: KernelPlan) -> int:
    """Registers left beyond the predicted ones, where they are fewest."""
    return min((use.limit - use.predicted for use in plan.budget.registers), default=0)


def _fewer_blocks(plan: KernelPlan) -> Iterator[tuple[Change, TileSpec]]:
    """One block less than the plan's own launch bounds ask for, and any number of blocks."""
    asked = asked_blocks(plan)
    if "min_blocks" in plan.spec.pins.get(plan.backend, {}):
        return
    for fewer in sorted({asked - 1, 1} - {0, asked}, reverse=True):
        change = {f"pins.{plan.backend}.min_blocks": fewer}
        yield change, changed(plan.spec, change)


def neighbours(spec: TileSpec, backend: str) -> Iterator[tuple[Change, TileSpec]]:
    """Changes of one field or two, the smallest first; legal or not."""
    single = [*_pins(spec, backend), *_tiles(spec)]
    double = [
        (d1 + d2, {**one, **two})
        for (d1, one), (d2, two) in product(single, repeat=2)
        if min(one) < min(two) and not set(one) & set(two)
    ]
    # Among equals one change comes before two, and each in the order above.
    for _, change in sorted((*single, *double), key=lambda c: (round(c[0], 6), len(c[1]))):
        try:
            yield change, changed(spec, change)
        except (SpecError, ValueError):
            continue


def changed(spec: TileSpec, change: Change) -> TileSpec:
    """The spec with the fields of a change; ``pins.<backend>.<name>`` names a pin."""
    pins = {name: dict(table) for name, table in spec.pins.items()}
    fields: dict[str, Any] = {}
    for name, value in change.items():
        if not name.startswith("pins."):
            fields[name] = value
            continue
        _, backend, pin = name.split(".")
        table = pins.setdefault(backend, {})
        table.pop(pin, None)
        if value is not None:
            table[pin] = value
    return spec.replace(**fields, pins=pins)


def _pins(spec: TileSpec, backend: str) -> Iterator[tuple[float, Change]]:
    for name, value in spec.pins.get(backend, {}).items():
        if name in ("form", "instruction"):
            continue
        where = f"pins.{backend}.{name}"
        if isinstance(value, int) and not isinstance(value, bool):
            for smaller in range(value - 1, 0, -1):
                yield PIN_DISTANCE * log2(value / smaller), {where: smaller}
        yield (
            PIN_DISTANCE * (1 + log2(value) if type(value) is int and value > 0 else 2),
            {where: None},
        )


def _tiles(spec: TileSpec) -> Iterator[tuple[float, Change]]:
    (bm, bn, bk), warp = spec.block, spec.warp
    for m, n in product(EXTENTS, repeat=2):
        if (m, n) != warp and bm % m == 0 and bn % n == 0:
            yield _distance((m, n), warp), {"warp": (m, n)}
        if (m, n) != (bm, bn) and m % warp[0] == 0 and n % warp[1] == 0:
            yield _distance((m, n), (bm, bn)), {"block": (m, n, bk)}
    for k in (bk // 2, bk * 2):
        if k:
            yield 1.0, {"block": (bm, bn, k)}
    for stages in range(spec.stages - 1, 0, -1):
        yield log2(spec.stages / stages), {"stages": stages}


def _distance(a: tuple[int, int], b: tuple[int, int]) -> float:
    return sum(abs(log2(x / y)) for x, y in zip(a, b, strict=True))
