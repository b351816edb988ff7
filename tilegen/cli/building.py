"""``tilegen build`` and ``tilegen verify``: a spec compiled, checked and written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilegen import registry
from tilegen.cli.built import Built, write_all
from tilegen.cli.failures import FAILED, FINE, WRONG, explained, say
from tilegen.cli.shared import (
    ArchNames,
    AsJson,
    BackendName,
    DeviceName,
    Examples,
    Output,
    Seed,
    Spec,
    archs_of,
    progress,
    read_spec,
    resolve,
    split_names,
)
from tilegen.errors import SpecError

if TYPE_CHECKING:
    from tilegen.verify import Report


def build(
    spec: Spec,
    backend: BackendName,
    arch: ArchNames = None,
    output: Output = None,
    verify: Annotated[bool, typer.Option("--verify", help="Run it and check the results.")] = False,
    examples: Examples = 50,
    seed: Seed = 0,
    device: DeviceName = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What its entries start with, in place of the spec's name."),
    ] = None,
    lineinfo: Annotated[
        bool, typer.Option("--lineinfo", help="Keep the lines of the text in the binary.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Emit the source, compile it where a compiler is found, and write both with a manifest."""
    tile, plugin = read_spec(spec), registry.get(backend)
    if name is not None:
        tile = tile.replace(name=name)
    if output is not None and output.exists() and not output.is_dir():
        raise SpecError(f"{output}: it is a file; -o names a folder")
    built: list[Built] = []
    for asked in archs_of(arch):
        target, found = resolve(plugin, asked, device)
        with progress(f"building for {target or 'the device found'}", as_json):
            built.append(Built.of(tile, plugin, target, found, lineinfo))
        if verify:
            built[-1].check_runs()
    reports = []
    # What was built is written all the same, if only the emulator's compiler is not there.
    unverified = next(filter(None, (one.cannot_run(device) for one in built if verify)), "")
    if verify and not unverified:
        for one in built:
            with progress(f"verifying {one.source.name}", as_json):
                reports.append(one.verify(examples, seed, device))
    files: list[dict[str, Path]] = [{} for _ in built]
    if output is not None:
        files = write_all(built, output)
    if as_json:
        say({
            "kernels": [
                {**one.to_dict(), "files": {kind: str(path) for kind, path in written.items()}}
                for one, written in zip(built, files, strict=True)
            ],
            "reports": [r.to_dict() for r in reports],
            **({"unverified": unverified} if unverified else {}),
        })  # fmt: skip
        return WRONG if unverified else FINE
    for one, written in zip(built, files, strict=True):
        say(one.text())
        if written:
            say(f"  wrote      {', '.join(str(path) for path in written.values())}")
    for r in reports:
        say(str(r))
    if unverified:
        print(f"tilegen: the verification could not run: {unverified}", file=sys.stderr)
        return WRONG
    return FINE


def verify(
    spec: Spec,
    backend: Annotated[str, typer.Option("--backend", "-b", help="One, several (B1,B2), or all.")],
    arch: ArchNames = None,
    device: DeviceName = None,
    examples: Examples = 50,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Build the kernel, solve drawn problems with it and check the results."""
    tile = read_spec(spec)
    everything = backend == "all"
    names = registry.names() if everything else split_names(backend, "--backend")
    if "all" in names and "all" not in registry.names():
        raise typer.BadParameter(
            f"--backend {backend!r}: 'all' names every backend and stands alone"
        )
    plugins = [registry.get(name) for name in names]
    reports: list[Report] = []
    errors: list[dict[str, Any]] = []
    targets = [(plugin, name) for plugin in plugins for name in archs_of(arch)]
    for plugin, name in targets:
        try:
            with progress(f"verifying on {plugin.name} {name or ''}", as_json):
                target, found = resolve(plugin, name, device)
                built = Built.of(tile, plugin, target, found)
                built.check_runs()
                reports.append(built.verify(examples, seed, device))
        except Exception as error:
            told = explained(error)
            if told is None or len(targets) == 1:
                raise
            errors.append({"backend": plugin.name, **({"arch": name} if name else {}), **told})
            continue
        if not as_json:
            say(str(reports[-1]))
    if as_json:
        say({"reports": [r.to_dict() for r in reports], "errors": errors})
    for told in errors:
        if not as_json:
            where = " ".join(filter(None, (told["backend"], told.get("arch"))))
            print(f"tilegen: {where}: {told['error']}", file=sys.stderr)
    if any(told["kind"] == "VerifyError" for told in errors):
        return FAILED
    # With "all", a backend that has no device here, or not these types, was not asked for by name.
    excused = everything and bool(reports)
    hard = [t for t in errors if not excused or t["kind"] not in ("BackendError", "PlanError")]
    return WRONG if hard else FINE
