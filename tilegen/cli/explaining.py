"""``tilegen plan``, ``diff``, ``targets`` and ``schema``: what there is to know without a device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tilegen import registry, report
from tilegen.backend import Backend
from tilegen.cli.failures import say
from tilegen.cli.shared import (
    ArchName,
    ArchNames,
    AsJson,
    BackendName,
    Spec,
    archs_of,
    path_of,
    progress,
    read_spec,
)
from tilegen.errors import BackendError, PlanError
from tilegen.lower import lower
from tilegen.plan import KernelPlan
from tilegen.spec import json_schema


def plan(spec: Spec, backend: BackendName, arch: ArchNames = None, as_json: AsJson = False) -> None:
    """Explain every number of the plan."""
    tile, names = read_spec(spec), archs_of(arch)
    plans: list[KernelPlan] = []
    for name in names:
        try:
            plans.append(lower(tile, backend, name))
        except PlanError as error:
            if len(names) == 1:
                raise
            raise PlanError(f"{name}: {error}", error.violations) from None
    if as_json:
        found = [one.to_dict() for one in plans]
        say(found[0] if len(found) == 1 else {"plans": found})
    else:
        say("\n\n".join(map(report.plan_text, plans)))


def diff(
    spec1: Annotated[Path, typer.Argument(metavar="SPEC1", parser=path_of)],
    spec2: Annotated[Path, typer.Argument(metavar="SPEC2", parser=path_of)],
    backend: BackendName,
    arch: ArchName = None,
    as_json: AsJson = False,
) -> None:
    """Show in what the plans of two specs differ."""
    a, b = (lower(read_spec(path), backend, arch) for path in (spec1, spec2))
    if as_json:
        found = [asdict(difference) for difference in report.plan_differences(a, b)]
        say({"a": a.name, "b": b.name, "differences": found})
    else:
        say(report.plan_diff(a, b))


def targets(as_json: AsJson = False) -> None:
    """List backends, archs, compilers and devices; for what is missing, the command that adds it."""
    plugins: list[Backend] = []
    broken: dict[str, str] = {}
    with progress("looking for devices", as_json):
        for name in registry.names():
            try:
                plugins.append(registry.get(name))
            except BackendError as error:
                broken[name] = str(error)
        listed = [target(plugin) for plugin in plugins] if as_json else []
        text = "" if as_json else report.targets_text(plugins)
    if as_json:
        say({"backends": listed, "broken": broken})
        return
    say("\n".join([text, *broken.values()]).strip() or "no backend is installed")


def target(backend: Backend) -> dict[str, Any]:
    """What ``tilegen targets --json`` says of one backend."""
    archs = {}
    for name, arch in backend.archs.items():
        chain = backend.toolchain(arch)
        archs[name] = {
            "kind": arch.kind,
            "lanes": arch.lanes,
            "max_threads": arch.max_threads,
            "shared_bytes": arch.shared_bytes,
            "registers": {f.name: f.per_lane for f in arch.register_files},
            "forms": [form.name for form in backend.forms(arch) if form.types(arch)],
            "compiler": None if chain.missing else str(chain),
            "missing": chain.missing or None,
        }
    return {
        "name": backend.name,
        "title": backend.title,
        "archs": archs,
        "devices": [
            {"selector": d.selector, "name": d.name, "rung": d.rung, "arch": d.arch.name}
            for d in backend.devices()
        ],
        "missing": [asdict(m) for m in backend.missing()],
    }


def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of a spec file."""
    say(json_schema())
