"""``tilegen check``: the self-check list of a spec, or of a kernel file that tilegen did not write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilegen.cli.failures import FAILED, FINE, say
from tilegen.cli.shared import ArchName, AsJson, path_of, progress, read_spec


def check(
    what: Annotated[
        Path,
        typer.Argument(metavar="SPEC|FILE", parser=path_of, help="A spec, or a kernel's source (.cu)."),
    ],
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="For a spec; see 'tilegen targets'.")
    ] = None,
    arch: ArchName = None,
    as_json: AsJson = False,
) -> int:
    """Predicted, measured, limit and verdict of every item of the self-check list."""
    from tilegen.check import check as run

    if backend is None:
        raise typer.BadParameter("--backend is missing: a spec names none")
    with progress("checking", as_json):
        report = run(read_spec(what), backend, arch)
    say(report.to_dict() if as_json else str(report))
    return FINE if report.passed else FAILED
