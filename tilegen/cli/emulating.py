"""``tilegen emulate``: run a kernel file on the processor and print what is wrong with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.files import source_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tilegen.emulator.job import Argument

LANGUAGES = {".cu": "cuda", ".cuh": "cuda"}
_ARRAY = re.compile(r"(?P<out>out:)?(?P<type>\w+)\[(?P<shape>[\d,\s]+)\](?:=(?P<fill>\S+))?")
# Of counters, indices and tickets, beside the types that a spec may have.
INTEGERS = {"s16": "int16", "u16": "uint16", "u32": "uint32", "s64": "int64", "u64": "uint64"}
ARGUMENTS = (
    "One for each parameter, in order: a number; TYPE[SIZES], an array of random small integers "
    "(f32[128,64]); TYPE[SIZES]=VALUE, one filled; out:TYPE[SIZES], an output whose elements must all "
    "be written, once each; or a .npy file."
)


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Kernel source (.cu).")],
    entry: Annotated[
        str, typer.Option("--entry", "-e", help="The kernel; 'name<8>' of a template.")
    ],
    grid: Annotated[str, typer.Option("--grid", "-g", help="Blocks: X, X,Y or X,Y,Z.")] = "1",
    block: Annotated[
        str, typer.Option("--block", help="Threads of a block: X, X,Y or X,Y,Z.")
    ] = "32",
    arg: Annotated[list[str] | None, typer.Option("--arg", help=ARGUMENTS)] = None,
    shared: Annotated[
        int, typer.Option("--shared", min=0, max=2**31 - 1, help="Bytes of dynamic shared memory.")
    ] = 0,
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="NAME=VALUE.")] = None,
    orders: Annotated[
        str, typer.Option("--orders", help="0 forward, 1 reverse, others are seeds.")
    ] = "0,1,2",
    races: Annotated[bool, typer.Option(help="Run once under the race detector.")] = True,
    banks: Annotated[bool, typer.Option("--banks", help="Count bank conflicts by line.")] = False,
    arithmetic: Annotated[
        str,
        typer.Option(
            "--arithmetic",
            metavar="f32|hopper",
            help="Of matrix instructions: f32 in the order of k, or the bits of an H200.",
        ),
    ] = "f32",
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.1,
            help="Seconds of processor time for each run; 60, the race run's 240, if not given.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the random arrays.")] = 0,
    save: Annotated[
        Path | None, typer.Option("--save", help="Folder for the arrays, as .npy.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run a kernel on the processor, in several orders and under a race detector."""
    import numpy as np

    from tilegen import emulator
    from tilegen.emulator.program import dynamic_memory_line

    if file.suffix not in LANGUAGES:
        raise LaunchError(f"{file}: its suffix is none of {', '.join(LANGUAGES)}")
    text = source_text(file)
    random = np.random.default_rng(seed)
    read = [argument_of(word, random) for word in arg or []]
    run = emulator.run(
        text,
        LANGUAGES[file.suffix],
        entry=entry,
        grid=sizes_of(grid, "--grid"),
        block=sizes_of(block, "--block"),
        args=[value for value, _ in read],
        outputs=[i for i, (_, output) in enumerate(read) if output],
        shared_bytes=shared,
        orders=sizes_of(orders, "--orders"),
        races=races,
        timeout=timeout,
        defines=define or (),
        banks=banks,
        arithmetic=arithmetic,
    )
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for i, array in enumerate(run.arrays):
            np.save(save / f"array{i}.npy", array)
    if as_json:
        print(json.dumps(_as_dict(run), indent=2))
    else:
        line = 0 if shared or run.clean else dynamic_memory_line(text)
        if line:
            print(
                f"{file}:{line}: dynamic shared memory is declared here and the launch gives none, which "
                "may be the cause of what follows: --shared BYTES gives it"
            )
        print(_as_text(file, run))
    return 0 if run.clean else 1


def sizes_of(text: str, option: str) -> list[int]:
    """``"8,4"`` as two sizes; raises ``LaunchError`` for what is none."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise LaunchError(f"{option} {text!r}: integers with commas between them") from None


def argument_of(word: str, random: np.random.Generator) -> tuple[Argument, bool]:
    """The value of one ``--arg``, and whether it is an output."""
    import numpy as np

    if word.endswith(".npy"):
        return np.load(word.removeprefix("out:")), word.startswith("out:")
    array = _ARRAY.fullmatch(word)
    if array is None:
        try:
            return int(word, 0), False
        except ValueError:
            pass
        try:
            return float(word), False
        except ValueError:
            raise LaunchError(
                f"--arg {word!r} is no number, no TYPE[SIZES] and no .npy file"
            ) from None
    name, fill = array["type"], array["fill"]
    if name not in DTYPES and name not in INTEGERS:
        known = ", ".join((*DTYPES, *INTEGERS))
        raise LaunchError(f"--arg {word!r}: {name!r} is none of {known}")
    output = array["out"] is not None
    kind = np.dtype(INTEGERS[name]) if name in INTEGERS else DTYPES[name].numpy
    try:
        shape = tuple(int(n) for n in array["shape"].split(","))
        return _filled(kind, shape, fill, output, random), output
    except ValueError as error:
        raise LaunchError(f"--arg {word!r}: {error}") from None
    except OverflowError:
        raise LaunchError(f"--arg {word!r}: {fill} is not a value of {name}") from None


def _filled(
    kind: np.dtype[Any],
    shape: tuple[int, ...],
    fill: str | None,
    output: bool,
    random: np.random.Generator,
) -> npt.NDArray[Any]:
    import numpy as np

    integral = kind.kind in "iu"
    if fill is not None:
        return np.full(shape, int(fill, 0) if integral else float(fill), kind)
    if output:
        unset = np.full(shape, -1, np.int64) if integral else np.full(shape, np.nan, np.float32)
        return unset.astype(kind)
    return random.integers(0 if kind.kind == "u" else -3, 4, shape).astype(kind)


def _as_dict(run: Any) -> dict[str, Any]:
    return {
        "clean": run.clean,
        "findings": [finding.to_dict() for finding in run.findings],
        "counts": run.counts,
        "banks": {line: [use.phases, use.conflicts] for line, use in run.banks.items()},
        "seconds": run.seconds,
        "compile_seconds": run.compile_seconds,
        "output": run.output,
    }


def _as_text(file: Path, run: Any) -> str:
    lines = [
        f"{file}:{f}" if f.line is None else f"{file}:{f.line}: {_unlined(f)}" for f in run.findings
    ]
    times = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in run.seconds.items())
    # Races are counted in a run of their own, and stand among the findings.
    counts = ", ".join(
        f"{value} {name.replace('_', ' ')}" for name, value in run.counts.items() if name != "races"
    )
    banks = [
        f"line {line}: {use.phases} phases of shared memory, {use.conflicts} of them extra"
        for line, use in run.banks.items()
    ]
    said = run.output.rstrip()
    return "\n".join(
        [*([said] if said else []), *(lines or ["no findings"]), *banks, times, counts]
    ).rstrip()


def _unlined(finding: Any) -> str:
    return str(finding).split(": ", 1)[1]
