"""What the commands share: their options, the spec file, the device, the progress line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tilegen.backend import Backend, Device, runs
from tilegen.build import find_device
from tilegen.cli.failures import sentence
from tilegen.errors import BackendError, SpecError
from tilegen.hardware import Arch
from tilegen.spec import TileSpec


def path_of(text: str) -> Path:
    """A path that was named; an empty one would be the folder where the user stands."""
    if not text:
        raise typer.BadParameter("the path is empty")
    return Path(text)


Spec = Annotated[
    Path, typer.Argument(metavar="SPEC", parser=path_of, help="A .toml or .json spec.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="PATH", parser=path_of, help="Write here.")
]
BackendName = Annotated[str, typer.Option("--backend", "-b", help="See 'tilegen targets'.")]


def _one_arch(context: typer.Context, value: str | None) -> str | None:
    if value is not None and "," in value:
        raise typer.BadParameter(
            f"{value!r}: {context.info_name} takes one; {SEVERAL_ARCHS} take several"
        )
    return value


# The commands whose output makes sense for several archs.
SEVERAL_ARCHS = "plan, build, verify and check"
ArchName = Annotated[
    str | None,
    typer.Option(
        "--arch", "-a", help="Left out: that of the device found here.", callback=_one_arch
    ),
]
ArchNames = Annotated[
    str | None,
    typer.Option("--arch", "-a", help="One, or several: A,A2. Left out: that of the device here."),
]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", "-d", help="cpu, gpu:1, part of a device's name, or emulator."),
]
Examples = Annotated[int, typer.Option("--examples", min=1, help="How many problems to solve.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed and version draw the same.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def progress(doing: str, as_json: bool = False) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what takes long; elsewhere stay silent. What it gives takes a new text."""
    if as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(doing) as status:
        yield lambda text: status.update(text)


def read_spec(path: Path) -> TileSpec:
    """The spec in a file; whatever is wrong with the file is a ``SpecError`` that names it."""
    try:
        return TileSpec.from_file(path)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise SpecError(f"{path}: {sentence(error)}") from None


def split_names(text: str, option: str) -> list[str]:
    """``A,B`` as a list; empty and repeated names are refused."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{option} {text!r} holds an empty name")
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"{option} {text!r} names one twice")
    return names


def archs_of(text: str | None) -> Sequence[str | None]:
    """The archs that ``--arch`` names; ``None`` alone where it is left out."""
    return [None] if text is None else split_names(text, "--arch")


def resolve(
    backend: Backend, arch: str | None, device: str | None
) -> tuple[str | Arch | None, Device | None]:
    """The arch to lower for and the device to compile for, as far as the caller named them."""
    if device is None:
        return arch, None
    found = find_device(backend, backend.archs.get(arch) if arch else None, device)
    if arch is not None and arch in backend.archs and not runs(found, backend.archs[arch]):
        raise BackendError(
            f"--device {device} is {found.name}, which runs {found.arch.name} and not {arch}"
        )
    return (found.arch if arch is None else arch), found


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an error on a temporary file name the file or folder that the user knows."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
