"""Who takes the contract tests: every backend, on every arch with a device here, in every form.

``TILEGEN_TEST_DEVICE`` (a selector, or part of a device's or platform's name, as ``--device`` takes)
runs them on that device alone: ``TILEGEN_TEST_DEVICE=Portable pytest tests/contract``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.backend import Backend, Device, Form, TypeCombination
from tilegen.build import find_device
from tilegen.dtypes import DTYPES
from tilegen.errors import BackendError
from tilegen.lower import attempt

NAMED = os.environ.get("TILEGEN_TEST_DEVICE", "")
# Types beside a form's first pass through the same code but for their loads and stores, so that two
# specs or one show those; with this set, every target takes every spec.
DEEP = bool(os.environ.get("TILEGEN_TEST_DEEP"))
# The eight layouts of A, B, C and D in which every choice of any three of them stands: d = a ^ b ^ c.
EIGHT = [f"{i:03b}" + str(f"{i:03b}".count("1") % 2) for i in range(8)]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"block": (32, 32, 16), "warp": (16, 32)},
    "odd_tiles": {"block": (24, 40, 7), "warp": (24, 20), "stages": 3},
    "one_stage": {"block": (32, 16, 8), "warp": (16, 16), "stages": 1},
    "tiny_warp": {"block": (16, 16, 4), "warp": (8, 4)},
    "deep": {"block": (16, 32, 8), "warp": (16, 16), "stages": 4},
    "batched_bias": {
        "block": (32, 32, 16),
        "warp": (32, 16),
        "batch": "strided",
        "epilogue": [{"op": "bias"}, {"op": "relu"}, {"op": "residual"}],
    },
    "batched_scale": {
        "block": (16, 48, 8),
        "warp": (16, 16),
        "batch": "strided",
        "epilogue": [
            {"op": "scale", "along": "m"},
            {"op": "bias", "along": "m"},
            {"op": "clamp", "low": -40, "high": 50},
        ],
    },
    "activations": {
        "block": (32, 32, 16),
        "warp": (32, 32),
        "epilogue": [{"op": "gelu"}, {"op": "silu"}, {"op": "gelu_tanh"}],
    },
}
SPECS = {
    name: {
        **data,
        "layout": {x: ("row", "col")[int(bit)] for x, bit in zip("abcd", bits, strict=True)},
    }
    for (name, data), bits in zip(SPECS.items(), EIGHT, strict=True)
}
# Which of them a test takes that names none.
EVERY = tuple(SPECS)
# Taken by name alone; a target that splits no K takes it whole.
SPECS["parts_of_k"] = {
    "block": (32, 48, 16),
    "warp": (32, 24),
    "stages": 2,
    "split_k": 3,
    "batch": "strided",
    "epilogue": [{"op": "bias"}, {"op": "residual"}],
    "layout": {"a": "row", "b": "col", "c": "col", "d": "row"},
}


@dataclass(frozen=True)
class Target:
    """One form of one backend on one device, with the types it multiplies.

    Attributes
    ----------
    instruction : str
        The pinned one, where the form has more than one for these types.
    chosen : bool
        Whether it is the one that the form chooses by itself.
    leads : bool
        Whether no device before this one runs the form: the others take fewer specs.
    """

    backend: str
    device: Device
    form: Form
    types: TypeCombination
    output: tuple[str, str]
    instruction: str = ""
    chosen: bool = True
    leads: bool = True

    def __str__(self) -> str:
        t, (c, d) = self.types, self.output
        types = t.a if {t.a, t.b, t.acc, c, d} == {t.a} else f"{t.a}-{t.b}-{t.acc}-{c}-{d}"
        how = f"-{self.instruction}" if self.instruction else ""
        return f"{self.backend}-{self.device.arch.name}-{self.form.name}-{types}{how}"

    @property
    def pins(self) -> dict[str, dict[str, Any]]:
        """The form, and the instruction where the form has more than one for these types."""
        chosen = {"instruction": self.instruction} if self.instruction else {}
        return {self.backend: {"form": self.form.name, **chosen}}

    @property
    def type_names(self) -> dict[str, str]:
        c, d = self.output
        return {"a": self.types.a, "b": self.types.b, "acc": self.types.acc, "c": c, "d": d}

    @property
    def in_full(self) -> bool:
        """Whether every spec is run: for the first types of a form, into the first output, once."""
        first = self.form.types(self.device.arch)[0]
        return (
            self.leads and self.chosen and self.types == first and self.output == first.outputs[0]
        )

    @property
    def quick(self) -> Device:
        """Where specs beside the fixed ones run: in one order, where others stand for these types.

        The race detector's program takes most of the time, and the fixed specs go through it.
        """
        if self.in_full or DEEP or self.device.selector != "emulator":
            return self.device
        return find_device(registry.get(self.backend), self.device.arch, "emulator:quick")

    @property
    def usual(self) -> bool:
        """Whether its types are ones that stand for their kin: equal, into their own or their sum's."""
        t, d = self.types, self.output[1]
        return t.a == t.b != "u8" and d in (t.a, "s32") and self.instruction != "mad_s32"

    def some(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Which of these specs are run: all of them, two or one."""
        if self.in_full or DEEP:
            return names
        wanted = ("odd_tiles", "batched_scale") if self.usual else ("plain",)
        return tuple(n for n in names if n in wanted) or names[:1]

    def has(self, op: str) -> bool:
        """Whether its epilogue offers the step: one of whole numbers has only steps that stay whole."""
        return self.output[1] != "s32" or op in ("bias", "residual", "relu", "clamp")

    def spec(self, name: str) -> tg.TileSpec:
        """The spec of this name in the target's form and types.

        Where its tiles are refused, the next larger ones that are not.
        """
        data = {
            **SPECS[name],
            "epilogue": [s for s in SPECS[name].get("epilogue", []) if self.has(s["op"])],
            "types": self.type_names,
            "pins": self.pins,
        }
        backend = registry.get(self.backend)
        (bm, bn, bk), (wm, wn) = SPECS[name]["block"], SPECS[name]["warp"]
        # An odd number of instructions of 8 and of 32 where doubling leads nowhere.
        depths = (*(bk * z for z in (1, 2, 4, 8, 16)), 24, 96)
        for m, n, depth in (
            (x, y, z) for z in depths for x in (1, 2, 4, 8) for y in (x, 2 * x, 4 * x)
        ):
            spec = tg.TileSpec(
                **{**data, "block": (bm * m, bn * n, depth), "warp": (wm * m, wn * n)}
            )
            # What the refusals would propose is not asked for: that takes most of the time.
            plan = attempt(spec, backend, self.device.arch)[0]
            if plan is None:
                continue
            if plan.split_k < spec.split_k:
                # Nothing of the split is left, and OpenCL compiles half the tile in half the time.
                less = spec.replace(warp=(wm * m // 2, wn * n))
                return less if attempt(less, backend, self.device.arch)[0] else spec
            return spec
        raise AssertionError(f"no tiles like those of {name!r} are legal on {self}")


def _devices(backend: Backend) -> list[Device]:
    """The device that was named; else the first of each arch."""
    if NAMED:
        try:
            return [find_device(backend, None, NAMED)]
        except BackendError:
            return []
    by_arch: dict[str, Device] = {}
    for device in (*backend.devices(), *_emulated(backend)):
        by_arch.setdefault(device.arch.name, device)
    return list(by_arch.values())


def _emulated(backend: Backend) -> list[Device]:
    """The emulator for archs that stand for their kin: one of each set of features."""
    kinds: dict[frozenset[str], Device] = {}
    for device in backend.checkers():
        if device.rung == "emulator" and not device.toolchain().missing:
            kinds.setdefault(device.arch.features, device)
    return list(kinds.values())


def _types(backend: Backend, form: Form, device: Device) -> list[TypeCombination]:
    """What the form multiplies; on an emulated arch, what none with less and enrolled before it does."""
    offered = list(form.types(device.arch))
    if device.rung != "emulator" or NAMED:
        return offered
    archs = [d.arch for d in _emulated(backend)]
    before = archs[: archs.index(device.arch)]
    smaller = [arch for arch in before if arch.features < device.arch.features]
    known = [t for arch in smaller for f in backend.forms(arch) if f == form for t in f.types(arch)]
    return [t for t in offered if t not in known]


def _found() -> Iterator[Any]:
    """A parameter for each target; for a backend without any, one that is skipped and says why."""
    # A device asked for by name must be there: nothing would be tested, and nobody would see it.
    if NAMED and not any(_devices(registry.get(name)) for name in registry.names()):
        raise BackendError(f"TILEGEN_TEST_DEVICE={NAMED}: no backend has such a device here")
    for name in registry.names():
        try:
            backend = registry.get(name)
        except BackendError as error:
            yield pytest.param(None, id=name, marks=pytest.mark.skip(reason=str(error)))
            continue
        found = _devices(backend)
        if not found and not NAMED:
            ways = "; ".join(f"{m.what}: {m.command}" for m in backend.missing())
            reason = f"no {name} device is here: {ways or 'nothing can be installed for one'}"
            yield pytest.param(None, id=name, marks=pytest.mark.skip(reason=reason))
        seen: set[str] = set()
        for device in found:
            for form in backend.forms(device.arch):
                for types in _types(backend, form, device):
                    first = Target(name, device, form, types, types.outputs[0])
                    for target in _targets(replace(first, leads=form.name not in seen)):
                        yield pytest.param(target, id=str(target))
            seen |= {form.name for form in backend.forms(device.arch)}


def _targets(first: Target) -> Iterator[Target]:
    """One for each kind of D, in the instruction that is chosen; then each other one once."""
    others = instructions(first)
    for output in representative(first.types):
        yield replace(first, output=output, instruction=others[0] if others else "")
    for instruction in others[1:]:
        yield replace(first, instruction=instruction, chosen=False)


def instructions(target: Target) -> list[str]:
    """The instructions that a target can be pinned to, the chosen one first; none if there is one."""
    names = target.form.pins(target.device.arch).get("instruction", ())
    if not names:
        return []
    spec, legal = target.spec("plain"), []
    for name in map(str, names):
        pinned = spec.replace(pins=replace(target, instruction=name).pins)
        if attempt(pinned, registry.get(target.backend), target.device.arch)[0] is not None:
            legal.append(name)
    chosen = tg.lower(spec, target.backend, target.device.arch).instruction.name
    return sorted(legal, key=lambda name: name != chosen) if len(legal) > 1 else []


def representative(types: TypeCombination) -> list[tuple[str, str]]:
    """Of each kind of D, whole or not and of each width, the first."""
    if types.a != types.b:
        return list(types.outputs[:1])
    first = {(DTYPES[d].bits, DTYPES[d].is_float): (c, d) for c, d in reversed(types.outputs)}
    return list(first.values())


TARGETS = list(_found())
targets = pytest.mark.parametrize("target", TARGETS)


def is_float(target: Target | None) -> bool:
    """Whether NaN, Inf and halves exist in its operands."""
    return target is None or DTYPES[target.types.a].is_float


def _cases(names: tuple[str, ...], wanted: Callable[[Target | None], bool]) -> pytest.MarkDecorator:
    out = []
    for parameter in TARGETS:
        target = parameter.values[0]
        if not wanted(target):  # type: ignore[arg-type]
            continue
        for name in names if target is None else target.some(names):  # type: ignore[union-attr]
            out.append(
                pytest.param(target, name, id=f"{parameter.id}-{name}", marks=parameter.marks)
            )
    return pytest.mark.parametrize(("target", "name"), out)


def cases(*names: str) -> pytest.MarkDecorator:
    """Run the test for every target with these specs; with all of them, if none is named."""
    return _cases(names or EVERY, lambda target: True)


def float_cases(*names: str) -> pytest.MarkDecorator:
    """As :func:`cases`, for targets whose operands are floating-point."""
    return _cases(names or EVERY, is_float)


def named(*names: str) -> pytest.MarkDecorator:
    """A parameter for each of these specs."""
    return pytest.mark.parametrize("name", names)


@cache
def kernel(target: Target, name: str) -> tg.Kernel:
    """The target's kernel for a spec, built once in this process."""
    return build(target, target.spec(name), target.device)


def build(target: Target, spec: tg.TileSpec, device: Device | None = None) -> tg.Kernel:
    plan = tg.lower(spec, target.backend, target.device.arch)
    assert plan.form == target.form.name
    return tg.load(tg.emit(plan), device or target.quick)


def present() -> list[Target]:
    """The targets that run here."""
    return [parameter.values[0] for parameter in TARGETS if parameter.values[0] is not None]


__all__ = [
    "SPECS",
    "TARGETS",
    "Target",
    "build",
    "cases",
    "float_cases",
    "kernel",
    "named",
    "present",
    "targets",
]
