"""``tilegen mutate``: mutants of the texts of specs, or of a backend's whole corpus."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from tilegen import registry
from tilegen.backend import Device
from tilegen.build import find_device
from tilegen.cli.failures import FAILED, FINE
from tilegen.cli.shared import read_spec
from tilegen.errors import BackendError, SpecError
from tilegen.files import write_atomically
from tilegen.lower import lower
from tilegen.processors import cores
from tilegen.spec import TileSpec


def corpus(backend: str) -> list[TileSpec]:
    """The specs that a backend names, so that their texts hold every statement of its templates."""
    from tilegen.mutation.run import support_of

    file = support_of(backend).corpus
    try:
        return [TileSpec.from_dict(data) for data in tomllib.loads(file.read_text("utf-8"))["spec"]]
    except (tomllib.TOMLDecodeError, KeyError, SpecError) as error:
        raise SpecError(f"{file.name}: {error}") from None


def mutate(
    specs: Annotated[list[Path] | None, typer.Argument(metavar="[SPEC]...", help="Specs.")] = None,
    backend: Annotated[str, typer.Option("--backend", "-b", help="See 'tilegen targets'.")] = "",
    whole: Annotated[bool, typer.Option("--corpus", help="The backend's own specs.")] = False,
    form: Annotated[str, typer.Option("--form", help="Only specs that take this form.")] = "",
    arch: Annotated[
        str | None, typer.Option("--arch", "-a", help="Of the device to run on.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="cpu, gpu:1, or a name.")
    ] = None,
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="So many, drawn.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed draws the same ones.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one a core.")] = 0,
    kept: Annotated[
        Path | None, typer.Option("--resume", help="Verdicts: taken from here, added here.")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write everything as JSON.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option("--table", help="Write Markdown here.")] = None,
) -> int:
    """Put small faults into emitted kernels and count which the checks do not see."""
    from tilegen.mutation import report as reports
    from tilegen.mutation.run import mutate as run

    if not backend:
        raise typer.BadParameter("--backend is missing")
    if bool(specs) == whole:
        raise typer.BadParameter("name specs, or --corpus, and not both")
    plugin = registry.get(backend)
    if arch is not None and arch not in plugin.archs:
        raise BackendError(f"{backend} has no arch {arch!r}; known: {', '.join(plugin.archs)}")
    found = find_device(plugin, plugin.archs[arch] if arch else None, device)
    if arch is not None and found.arch.name != arch:
        raise BackendError(f"{found.selector} ({found.name}) runs {found.arch.name} and not {arch}")
    tiles = corpus(backend) if whole else [read_spec(path) for path in specs or ()]
    if form:
        tiles = _of_form(tiles, backend, found, form)
    result = run(
        tiles,
        backend,
        found,
        sample=sample,
        seed=seed,
        jobs=jobs or cores(),
        kept=kept,
        told=_progress,
    )
    document = json.dumps(reports.to_dict(result), indent=1)
    if report not in (None, "-"):
        write_atomically(Path(report), (document + "\n").encode())
    if markdown is not None:
        write_atomically(markdown, (reports.table(result) + "\n").encode())
    print(document if report == "-" else reports.text(result))
    return FAILED if result.unexplained else FINE


def _of_form(tiles: list[TileSpec], backend: str, device: Device, form: str) -> list[TileSpec]:
    """The specs that are lowered to one form."""
    forms = [lower(spec, backend, device.arch).form for spec in tiles]
    if form not in forms:
        raise SpecError(
            f"--form {form!r}: no spec takes it; they take {', '.join(dict.fromkeys(forms))}"
        )
    return [spec for spec, taken in zip(tiles, forms, strict=True) if taken == form]


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == of else ""
        print(f"\r{done} of {of} mutants", end=end, file=sys.stderr, flush=True)
