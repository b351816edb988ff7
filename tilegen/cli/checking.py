"""``tilegen check``: the self-check list of a spec, or of a kernel file that tilegen did not write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilegen.cli.emulating import ARGUMENTS, argument_of, sizes_of
from tilegen.cli.failures import FAILED, FINE, say
from tilegen.cli.shared import ArchNames, AsJson, Seed, archs_of, path_of, progress, read_spec
from tilegen.errors import SpecError

if TYPE_CHECKING:
    from tilegen.checklist import CheckReport, Launch

SPECS = (".toml", ".json")
GEMM = (
    "What each parameter means, in order: 'A:f16 B:f16:col D:f32 M N K lda ldb ldd alpha'. A, B, C, D or "
    "CD (C that becomes D), with type and row or col; numbers; scratch arrays as TYPE[FORMULA]=VALUE."
)


def check(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC|FILE",
            parser=path_of,
            help="A spec (.toml, .json) or a kernel file (.cu).",
        ),
    ],
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", help="Of a spec; a file's suffix tells."),
    ] = None,
    arch: ArchNames = None,
    entry: Annotated[
        str, typer.Option("--entry", "-e", help="FILE: the kernel; 'name<8>' of a template.")
    ] = "",
    grid: Annotated[
        str,
        typer.Option(
            "--grid",
            "-g",
            help="FILE: blocks, X, X,Y or X,Y,Z; with --gemm in M, N and K: (M+31)/32.",
        ),
    ] = "",
    block: Annotated[
        str, typer.Option("--block", help="FILE: threads of a block: X, X,Y or X,Y,Z.")
    ] = "",
    arg: Annotated[list[str] | None, typer.Option("--arg", help=f"FILE: {ARGUMENTS}")] = None,
    shared: Annotated[
        int,
        typer.Option(
            "--shared", min=0, max=2**31 - 1, help="FILE: bytes of dynamic shared memory."
        ),
    ] = 0,
    define: Annotated[
        list[str] | None, typer.Option("--define", "-D", help="FILE: NAME=VALUE.")
    ] = None,
    orders: Annotated[
        str, typer.Option("--orders", help="FILE: 0 forward, 1 reverse, others are seeds.")
    ] = "0,1,2",
    gemm: Annotated[str, typer.Option("--gemm", metavar="WORDS", help=f"FILE: {GEMM}")] = "",
    multiple: Annotated[
        str,
        typer.Option("--multiple", help="FILE: M,N,K: with --gemm, draw only multiples of these."),
    ] = "1,1,1",
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="FILE: with --gemm, problems drawn at random.")
    ] = 20,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Predicted, measured, limit and verdict for every item of the self-check list."""
    from tilegen.checklist import check as run

    given = {
        "--entry": entry, "--grid": grid, "--block": block, "--arg": arg, "--shared": shared,
        "--define": define, "--gemm": gemm,
    }  # fmt: skip
    reports: list[CheckReport] = []
    if what.suffix.lower() in SPECS:
        if backend is None:
            raise typer.BadParameter("--backend is missing: a spec names none")
        if wrong := [name for name, value in given.items() if value]:
            raise typer.BadParameter(f"{wrong[0]} is for kernel files; {what.name} is a spec")
        with progress("reading the spec", as_json) as told:
            tile = read_spec(what)
            for name in archs_of(arch):
                reports.append(run(tile, backend, name, told=told))
    else:
        launch = _launch(
            entry, grid, block, arg or [], shared, define or [], orders, gemm, multiple, seed
        )
        with progress(f"reading {what.name}", as_json) as told:
            for name in archs_of(arch):
                reports.append(
                    run(what, backend, name, launch=launch, examples=examples, seed=seed, told=told)
                )
    if as_json:
        found = [report.to_dict() for report in reports]
        say(found[0] if len(found) == 1 else {"reports": found})
    else:
        say("\n\n".join(map(str, reports)))
    return FINE if all(report.passed for report in reports) else FAILED


def _launch(
    entry: str, grid: str, block: str, arg: list[str], shared: int, define: list[str], orders: str,
    gemm: str, multiple: str, seed: int,
) -> Launch:  # fmt: skip
    """The options of a file as the record that the check takes."""
    import numpy as np

    from tilegen.checklist import Launch, Meaning, grid_of

    random = np.random.default_rng(seed)
    read = [argument_of(word, random) for word in arg]
    meaning = Meaning.parse(gemm, sizes_of(multiple, "--multiple")) if gemm else None
    sizes = tuple(sizes_of(block, "--block")) if block else ()
    if any(size < 1 for size in sizes) or len(sizes) > 3:
        raise SpecError(f"--block {block!r}: one to three sizes of at least 1")
    formulas = grid_of(grid) if grid else ()
    if meaning is None:
        # Without a meaning there is no M: plain numbers, as `tilegen emulate` takes them.
        sizes_of(grid or "1", "--grid")
    return Launch(
        entry=entry,
        grid=formulas,
        block=sizes,
        arguments=tuple(value for value, _ in read),
        outputs=tuple(i for i, (_, output) in enumerate(read) if output),
        shared_bytes=shared,
        defines=tuple(define),
        orders=tuple(sizes_of(orders, "--orders")),
        meaning=meaning,
    )
