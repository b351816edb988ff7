"""From spec to plan: pick the arch and the form, ask the rules, let the form fill in the numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from tilegen import registry
from tilegen.backend import Backend, Form
from tilegen.errors import BackendError, PlanError, require
from tilegen.hardware import Arch
from tilegen.plan import KernelPlan
from tilegen.proposals import on_archs, worded
from tilegen.rules import Candidate, Violation, violations
from tilegen.spec import TileSpec


def find_arch(backend: Backend, arch: str | Arch | None) -> tuple[Arch, str]:
    """The arch asked for, and a note on where it came from when none was named.

    A name gives the static arch; an ``Arch`` (of a device, say) stands for itself; ``None`` takes
    the first device found here, else the backend's default.
    """
    if isinstance(arch, Arch):
        return arch, ""
    if arch is None:
        devices = backend.devices()
        if devices:
            return devices[0].arch, f"arch {devices[0].arch.name}: that of {devices[0].name}"
        default = next(iter(backend.archs.values()))
        return (
            default,
            f"arch {default.name}: the default, since no {backend.name} device was found",
        )
    if not isinstance(arch, str):
        raise BackendError(f"arch: a name or an Arch is needed, not {type(arch).__name__}")
    if arch not in backend.archs:
        near = get_close_matches(arch, backend.archs, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = ", ".join(backend.archs)
        raise BackendError(f"{backend.name} has no arch {arch!r}; {hint}known: {known}")
    return backend.archs[arch], ""


def find_forms(backend: Backend, spec: TileSpec, arch: Arch) -> list[Form]:
    """The forms to try, in order: all that multiply something here, or the pinned one alone.

    A form without types on this arch is tried where it is pinned, to say what the arch lacks.
    """
    forms = list(backend.forms(arch))
    pinned = spec.pins.get(backend.name, {}).get("form")
    if pinned is None:
        return [form for form in forms if form.types(arch)]
    chosen = [form for form in forms if form.name == pinned]
    if not chosen:
        known = [form.name for form in forms if form.types(arch)]
        told = f"{backend.name} {arch.name} has the forms {', '.join(known)}"
        there = [
            name
            for name, other in backend.archs.items()
            if any(form.name == pinned and form.types(other) for form in backend.forms(other))
        ]
        near = get_close_matches(str(pinned), known, n=1)
        if there:
            told += f"; legal {on_archs(there, backend)}"
        elif near:
            told += f"; nearest legal value: {near[0]}"
        raise PlanError(f"pins.{backend.name}.form = {pinned}: {told}")
    return chosen


def unknown_pins(spec: TileSpec) -> list[str]:
    """A note on each pin table of a backend that is not registered here: a typo, or not installed."""
    known = registry.names()
    out = []
    for name in sorted(set(spec.pins) - set(known)):
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        out.append(f"pins.{name}: no backend of that name is registered{hint}")
    return out


def lower(spec: TileSpec, backend: str, arch: str | Arch | None = None) -> KernelPlan:
    """Lower a spec for one backend and arch.

    Parameters
    ----------
    spec : TileSpec
    backend : str
    arch : str or Arch, optional
        Left out: that of the first device found, else the backend's default.

    Returns
    -------
    KernelPlan
        Of the first form that breaks no rule.

    Raises
    ------
    BackendError
        For an unknown backend or arch.
    PlanError
        If every form breaks a rule; it states those of the form that breaks the fewest among the
        forms for these types.
    """
    require("lower", spec, TileSpec)
    plugin = registry.get(backend)
    target, note = find_arch(plugin, arch)
    plan, refused = attempt(spec, plugin, target)
    if plan is None:
        candidate, broken = closest(refused)
        told_of = worded(candidate, broken, plugin)
        told = "; ".join(map(str, told_of))
        if _for_others(broken):
            # No form multiplies these types, so each says what it does.
            told = "; or ".join([told, *(str(v) for _, b in refused for v in b if b is not broken)])
        raise PlanError(told, told_of)
    passed = [
        f"form {c.form.name} was passed over: {worded(c, b[:1], plugin)[0]}"
        for c, b in refused
        if not _for_others(b)
    ]
    notes = [*([note] if note else []), *unknown_pins(spec), *passed, *plan.notes]
    return replace(plan, notes=tuple(notes))


# A candidate, and the rules that it breaks.
Refused = list[tuple[Candidate, list[Violation]]]


def attempt(
    spec: TileSpec, backend: Backend, arch: Arch, forgiven: Collection[str] = ()
) -> tuple[KernelPlan | None, Refused]:
    """The plan of the first form that breaks no rule, and the forms tried before it.

    Parameters
    ----------
    forgiven : collection of str
        Names of rules that may be broken. A form can plan what breaks ``registers`` alone: the
        kernel is only slow.

    Raises
    ------
    PlanError
        If a form is pinned that the backend does not have.
    """
    refused: Refused = []
    for form in find_forms(backend, spec, arch):
        candidate = form.derive(spec, arch)
        broken = [v for v in violations(candidate) if v.rule not in forgiven]
        if not broken:
            return form.plan(candidate), refused
        refused.append((candidate, broken))
    return None, refused


def closest(refused: Refused) -> tuple[Candidate, list[Violation]]:
    """The one to speak of: of those that multiply the types, the one that breaks the fewest rules."""

    def distance(pair: tuple[Candidate, list[Violation]]) -> tuple[bool, int]:
        return _for_others(pair[1]), len(pair[1])

    return min(refused, key=distance)


def _for_others(broken: Sequence[Violation]) -> bool:
    """Whether the form multiplies other types, so that it has nothing to say of the tiles."""
    return any(v.rule in ("types", "features") for v in broken)
