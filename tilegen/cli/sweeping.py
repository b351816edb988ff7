"""``tilegen sweep``: every legal point of given lists, predicted and compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tilegen.cli.failures import FAILED, FINE, say
from tilegen.cli.shared import ArchName, AsJson, BackendName, Spec, path_of, read_spec
from tilegen.errors import SpecError


def sweep(
    spec: Spec,
    backend: BackendName,
    arch: ArchName = None,
    block: Annotated[
        str | None, typer.Option("--block", help="64x64x16,128x128x32; left out, the spec's.")
    ] = None,
    warp: Annotated[str | None, typer.Option("--warp", help="32x32,64x32")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="8x8,4x8")] = None,
    stages: Annotated[str | None, typer.Option("--stages", help="2,3")] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=V1,V2", help="Any key: pins.cuda.swizzle=pad,xor."),
    ] = None,
    spilling: Annotated[
        bool, typer.Option("--spilling", help="Also take what is refused since it would spill.")
    ] = False,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help="As in the CSV; -COLUMN: most first.")
    ] = "",
    refused: Annotated[
        bool, typer.Option("--refused", help="List what was refused, and by which rule.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one a core.")] = 0,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=path_of,
            help="Write .csv, .json, or the plot as .svg, .png or .pdf; may be repeated.",
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", parser=path_of, help="Write CSV here.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Compile every legal point of lists: registers, spills, shared memory, occupancy."""
    from tilegen.files import write_atomically
    from tilegen.sweep import sweep as run
    from tilegen.sweep.rows import suffix

    tile = read_spec(spec)
    given = {"block": block, "warp": warp, "thread": thread, "stages": stages}
    lists = _lists([(k, v) for k, v in given.items() if v is not None], more or ())
    for path in (*(output or ()), *([csv] if csv else ())):
        _refuse_place(path)
    for path in output or ():
        suffix(path)
    with _progress(as_json) as told:
        found = run(
            tile, backend=backend, arch=arch, set=lists, spilling=spilling, sort=sort, jobs=jobs,
            progress=told,
        )  # fmt: skip
    for path in output or ():
        found.save(path)
    if csv is not None:
        write_atomically(csv, found.to_csv().encode())
    if as_json:
        say(found.to_dict())
    else:
        from tilegen.sweep.table import WIDTH, text

        width = os.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        say(text(found, width, refused))
    return FAILED if found.failed else FINE


def _lists(own: list[tuple[str, str]], more: Any) -> dict[str, list[Any]]:
    """Key to values, of the options of their own and of each ``--set``."""
    from tilegen.sweep.points import parse_values

    pairs = list(own)
    for text in more:
        key, equals, values = text.partition("=")
        if not equals or not all(key.split(".")):
            raise SpecError(f"--set {text!r}: KEY=V1,V2 is needed")
        pairs.append((key, values))
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise SpecError(f"{twice[0]} is given twice")
    return {key: parse_values(values, key) for key, values in pairs}


def _refuse_place(path: Path) -> None:
    """What cannot be written is refused before the sweep, not after it."""
    if path.is_dir():
        raise SpecError(f"{path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise SpecError(f"{path.parent}: there is no such folder")


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal; elsewhere nothing."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=max(of, 1))
