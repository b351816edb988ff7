"""``tilegen bench``: a suite or a spec, measured against the peer libraries and the floor."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilegen.cli.shared import ArchName
from tilegen.errors import BackendError, SpecError

if TYPE_CHECKING:
    from tilegen.bench import BenchReport, Case
    from tilegen.spec import TileSpec

# Seconds of timed calls per case.
BUDGET, QUICK_BUDGET = 10.0, 1.0
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SUITE|SPEC",
            help="square, llm, odd, majornesses, types or all; or a .toml or .json spec.",
        ),
    ],
    backend: Annotated[str, typer.Option("--backend", "-b", help="See 'tilegen targets'.")],
    arch: ArchName = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="cpu, gpu:1, or part of a device's name.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="For a spec: the suite; left out, square.")
    ] = None,
    shapes: Annotated[
        str | None, typer.Option("--shapes", help="Instead of a suite: 512,4095x4097x4091.")
    ] = None,
    drawn: Annotated[
        int | None, typer.Option("--drawn", min=0, help="Shapes drawn at random; 20 with a suite.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Left out: drawn, and printed.")
    ] = None,
    peers: Annotated[
        str | None, typer.Option("--peers", help="numpy,clblast or none; left out, all here.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds; leaves out long cases.")
    ] = False,
    budget: Annotated[
        float | None, typer.Option("--budget", min=0.001, help="Seconds of timed calls per case.")
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm", help="Let the cache hold the operands between calls.")
    ] = False,
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write every sample as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Time kernels against peer libraries and the floor, interleaved, on cold buffers."""
    # Before anything imports NumPy: its BLAS picks the core type when it is loaded.
    unpinned = _unpin()
    from tilegen.bench import run
    from tilegen.bench.run import refuse_spec

    _refuse_outputs(as_json, plot)
    spec = _spec(what)
    if spec is not None:
        refuse_spec(spec)
    if seed is None:
        seed = secrets.randbelow(2**31)
    cases = _cases(what, spec, suite, shapes, drawn, seed, backend, arch, device)
    if budget is not None and not isfinite(budget):
        raise SpecError(f"--budget {budget}: a finite number of seconds is needed")
    seconds = budget if budget is not None else QUICK_BUDGET if quick else BUDGET
    wanted = None if peers is None else [] if peers == "none" else peers.split(",")
    with _progress(as_json == "-") as step:
        report = run(
            cases, spec, backend=backend, arch=arch, device=device, peers=wanted, seed=seed,
            budget=seconds, warm=warm, progress=step,
        )  # fmt: skip
    if not any(result.variants for result in report.results):
        reasons = [why for result in report.results for why in result.refused.values()]
        raise BackendError(f"nothing was measured: {reasons[0] if reasons else 'no case is named'}")
    _write(report, unpinned, as_json, plot)


def _unpin() -> list[str]:
    """Take the pins of OpenBLAS out of this process, where it is not too late; their names."""
    if "numpy" in sys.modules:
        return []  # the report's notes say that the peer is pinned
    return [name for name in PINS if os.environ.pop(name, None) is not None]


def _refuse_outputs(as_json: str | None, plot: Path | None) -> None:
    """What cannot be written is refused before the run, not after it."""
    if plot is not None:
        from tilegen.bench.plot import refuse

        refuse(plot)
    files = [plot] if plot is not None else []
    if as_json is not None and as_json != "-":
        files.append(Path(as_json))
    for path in files:
        if path.is_dir():
            raise SpecError(f"{path}: it is a folder; name a file")
        if not path.parent.is_dir():
            raise SpecError(f"{path.parent}: there is no such folder")


def _spec(what: str) -> TileSpec | None:
    """The spec that the first word names, or ``None`` for a suite."""
    from tilegen.bench import SUITES
    from tilegen.spec import TileSpec

    if what in SUITES:
        return None
    if Path(what).suffix.lower() in (".toml", ".json") or Path(what).exists():
        return TileSpec.from_file(what)
    names = ", ".join(SUITES)
    raise SpecError(f"{what!r} is neither a suite ({names}) nor a .toml or .json spec")


def _cases(
    what: str, spec: TileSpec | None, suite: str | None, shapes: str | None, drawn: int | None,
    seed: int, backend: str, arch: str | None, device: str | None,
) -> tuple[Case, ...]:  # fmt: skip
    from tilegen import bench as tb
    from tilegen import registry
    from tilegen.bench.cases import DRAWN, with_spec
    from tilegen.bench.run import find_timed

    if suite is not None and shapes is not None:
        raise SpecError("--suite and --shapes both name the cases; give one")
    if spec is None and suite is not None and suite != what:
        raise SpecError(f"the suite is named twice: {what} and --suite {suite}")
    if spec is not None and suite == "types":
        raise SpecError("the suite types sets the types, and so does the spec; give one")
    plugin = registry.get(backend)
    found = find_timed(plugin, plugin.archs.get(arch) if arch else None, device)
    name = suite or (what if spec is None else "square")
    cases = tb.parse_shapes(shapes) if shapes is not None else tb.suite(name)
    count = drawn if drawn is not None else 0 if shapes is not None else DRAWN
    cases += tb.drawn(count, seed, found.arch.kind)
    return cases if spec is None else with_spec(cases, spec.types, spec.layout)


@contextmanager
def _progress(silent: bool) -> Iterator[Callable[[str], None]]:
    """Show each step on a terminal; elsewhere stay silent."""
    if silent or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking for devices") as status:
        yield lambda step: status.update(step)


def _write(
    report: BenchReport, unpinned: list[str], as_json: str | None, plot: Path | None
) -> None:
    said = f"{' and '.join(unpinned)} taken out of the environment of this run" if unpinned else ""
    data = report.to_dict()
    if said:
        data["notes"].insert(0, said)
    if plot is not None:
        from tilegen.bench.plot import save_plot

        save_plot(report, plot)
    document = json.dumps(data, indent=2, allow_nan=False)
    if as_json == "-":
        print(document)
        return
    if as_json is not None:
        from tilegen.files import write_atomically

        write_atomically(Path(as_json), (document + "\n").encode())
    from tilegen.bench.table import WIDTH, text

    width = os.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    print("\n".join([said, text(report, width)] if said else [text(report, width)]))
