"""The command line: every command is one arrow of the flow; what goes wrong is one sentence.

Exit status: 0 fine, 1 a check or verification failed, 2 the request was wrong, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilegen import registry, report
from tilegen.backend import Backend, Device, Toolchain
from tilegen.build import (
    KernelBinary,
    cache_path,
    find_device,
    load,
    manifest,
    save,
    write_atomically,
)
from tilegen.build import compile as compile_source
from tilegen.emulate import emulate
from tilegen.errors import (
    BackendError,
    CompileError,
    PlanError,
    SpecError,
    TilegenError,
    VerifyError,
)
from tilegen.hardware import Arch
from tilegen.lower import lower
from tilegen.plan import KernelPlan
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec, json_schema

if TYPE_CHECKING:
    from tilegen.verify import Report

FINE, FAILED, WRONG, PIPE_CLOSED, INTERRUPTED = 0, 1, 2, 141, 130
LOG_LINES = 8

app = typer.Typer(
    name="tilegen",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="One neutral tile description, lowered to readable, checked matrix-product kernels.",
)
cache_app = typer.Typer(rich_markup_mode=None, help="The disk cache of compiled kernels.")
app.add_typer(cache_app, name="cache")
app.command()(emulate)

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A .toml or .json spec.")]
BackendName = Annotated[str, typer.Option("--backend", "-b", help="See 'tilegen targets'.")]
ArchName = Annotated[
    str | None, typer.Option("--arch", "-a", help="Left out: that of the device found here.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device", "-d", help="cpu, gpu:1, or part of a device's name.")
]
Examples = Annotated[int, typer.Option("--examples", min=1, help="How many problems to solve.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed draws the same problems.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """The console command ``tilegen``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; errors are printed, never raised."""
    as_json = "--json" in arguments
    try:
        if list(arguments) in (["--version"], ["--version", "--json"], ["--json", "--version"]):
            say({"version": version("tilegen")} if as_json else f"tilegen {version('tilegen')}")
            status = FINE
        else:
            status = _invoke(list(arguments))
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, typer.Abort):
        print("tilegen: interrupted", file=sys.stderr)
        return INTERRUPTED
    except typer.Exit as stop:
        return int(stop.exit_code)
    except BrokenPipeError:
        # The reader has gone (`tilegen plan ... | head`): nobody is left to tell.
        _drop_output()
        return PIPE_CLOSED
    except Exception as error:
        told = explained(error)
        if told is None:
            raise
        return _tell(told, as_json)


def _invoke(arguments: list[str]) -> int:
    # Not app(...): it answers Ctrl-C by itself, in other words from version to version.
    command = typer.main.get_command(app)
    with command.make_context("tilegen", arguments) as context:
        status = command.invoke(context)
    return status if isinstance(status, int) else FINE


def explained(error: Exception) -> dict[str, Any] | None:
    """What to say of an error: its sentence, its kind and what belongs to it; ``None`` for a bug."""
    kind = type(error).__name__
    if isinstance(error, CompileError):
        more = {
            "compiler": error.compiler,
            "flags": error.flags,
            "source": error.source_path,
            "log": error.log,
        }
        return {"error": _sentence(error), "kind": kind, **{k: v for k, v in more.items() if v}}
    if isinstance(error, TilegenError):
        return {"error": str(error) if isinstance(error, VerifyError) else _sentence(error),
                "kind": kind}  # fmt: skip
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        reason = error.strerror or str(error) or kind
        return {"error": f"{where}{reason[0].lower()}{reason[1:]}", "kind": "OSError"}
    if isinstance(error, MemoryError):
        return {"error": "there is not enough memory", "kind": kind}
    if type(error).__module__.startswith("hypothesis"):
        return {"error": f"the verification gave no steady answer: {_sentence(error)}",
                "kind": "VerifyError"}  # fmt: skip
    # Typer carries its own copy of click in some versions, so its errors are known by their method.
    if callable(message := getattr(error, "format_message", None)):
        return {"error": _sentence(message()), "kind": "UsageError"}
    return None


def _sentence(what: object) -> str:
    return " ".join(str(what).split())


def _tell(told: dict[str, Any], as_json: bool) -> int:
    """Print an error and return the exit status that goes with it."""
    with suppress(OSError):
        if as_json:
            say(told)
            sys.stdout.flush()
        else:
            print("\n".join([f"tilegen: {told['error']}", *_details(told)]), file=sys.stderr)
    if told["kind"] == "OSError":
        _drop_output()  # what is left in the buffer may be what could not be written
    return FAILED if told["kind"] == "VerifyError" else WRONG


def _details(told: dict[str, Any]) -> Iterator[str]:
    for key in ("compiler", "flags", "source"):
        if told.get(key):
            yield f"  {key}: {told[key]}"
    lines = str(told.get("log", "")).splitlines()
    for line in lines[:LOG_LINES]:
        yield f"  | {line}"
    if len(lines) > LOG_LINES:
        yield f"  | ... {len(lines) - LOG_LINES} more lines"


def _drop_output() -> None:
    # Python flushes stdout once more at exit, and would complain a second time.
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def say(what: Any) -> None:
    """Print text as it is, anything else as JSON."""
    print(what if isinstance(what, str) else json.dumps(what, indent=2, allow_nan=False))


@contextmanager
def progress(doing: str, as_json: bool = False) -> Iterator[None]:
    """Show on a terminal what takes long; elsewhere stay silent."""
    if as_json or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield


# ---- commands ----------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        say(f"tilegen {version('tilegen')}")
        raise typer.Exit
    _help_if_bare(context)


@cache_app.callback(invoke_without_command=True)
def _cache_top(context: typer.Context) -> None:
    _help_if_bare(context)


def _help_if_bare(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command()
def init(
    types: Annotated[str, typer.Option("--types", "-t", help="Element type of A and B.")] = "f32",
    backend: Annotated[str | None, typer.Option("--backend", "-b")] = None,
    arch: ArchName = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print or write a starting spec, commented."""
    if arch is not None and backend is None:
        raise typer.BadParameter("--arch needs --backend")
    spec = starting_spec(types, backend, arch)
    text = commented(spec, as_json_file=output is not None and output.suffix == ".json")
    if output is None:
        say({"path": None, "text": text} if as_json else text.rstrip("\n"))
        return
    if output.is_dir():
        raise SpecError(f"{output}: it is a folder; name a file")
    if output.exists() and not force:
        raise SpecError(f"{output}: the file exists; --force overwrites it")
    with _named(output):
        write_atomically(output, text.encode())
    say({"path": str(output), "text": text} if as_json else f"wrote {output}")


@app.command()
def build(
    spec: Spec,
    backend: BackendName,
    arch: Annotated[str | None, typer.Option("--arch", "-a", help="One, or several: A,A2.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Run it and check the results.")] = False,
    examples: Examples = 50,
    seed: Seed = 0,
    device: DeviceName = None,
    as_json: AsJson = False,
) -> int:
    """Emit the source, compile it where a compiler is found, and write both with a manifest."""
    tile, plugin = read_spec(spec), registry.get(backend)
    if output is not None and output.exists() and not output.is_dir():
        raise SpecError(f"{output}: it is a file; -o names a folder")
    archs: Sequence[str | None] = split_names(arch, "--arch") if arch is not None else [None]
    built: list[Built] = []
    for name in archs:
        target, found = resolve(plugin, name, device)
        with progress(f"building for {target or 'the device found'}", as_json):
            built.append(Built.of(tile, plugin, target, found))
        if verify and built[-1].missing:
            raise BackendError(built[-1].missing)
    reports = []
    if verify:
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
        })  # fmt: skip
        return FINE
    for one, written in zip(built, files, strict=True):
        say(one.text())
        if written:
            say(f"  wrote      {', '.join(str(path) for path in written.values())}")
    for r in reports:
        say(str(r))
    return FINE


@app.command()
def plan(spec: Spec, backend: BackendName, arch: ArchName = None, as_json: AsJson = False) -> None:
    """Explain every number of the plan."""
    lowered = lower(read_spec(spec), backend, arch)
    say(lowered.to_dict() if as_json else report.plan_text(lowered))


@app.command()
def diff(
    spec1: Annotated[Path, typer.Argument(metavar="SPEC1")],
    spec2: Annotated[Path, typer.Argument(metavar="SPEC2")],
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


@app.command()
def verify(
    spec: Spec,
    backend: Annotated[str, typer.Option("--backend", "-b", help="One, several (B1,B2), or all.")],
    arch: ArchName = None,
    device: DeviceName = None,
    examples: Examples = 50,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Build the kernel, solve drawn problems with it and check the results."""
    tile = read_spec(spec)
    everything = backend == "all"
    names = registry.names() if everything else split_names(backend, "--backend")
    plugins = [registry.get(name) for name in names]
    reports: list[Report] = []
    errors: list[dict[str, Any]] = []
    for plugin in plugins:
        try:
            with progress(f"verifying on {plugin.name}", as_json):
                target, found = resolve(plugin, arch, device)
                built = Built.of(tile, plugin, target, found)
                if built.missing:
                    raise BackendError(built.missing)
                reports.append(built.verify(examples, seed, device))
        except Exception as error:
            told = explained(error)
            if told is None or len(plugins) == 1:
                raise
            errors.append({"backend": plugin.name, **told})
            continue
        if not as_json:
            say(str(reports[-1]))
    if as_json:
        say({"reports": [r.to_dict() for r in reports], "errors": errors})
    for told in errors:
        if not as_json:
            print(f"tilegen: {told['backend']}: {told['error']}", file=sys.stderr)
    if any(told["kind"] == "VerifyError" for told in errors):
        return FAILED
    # With "all", a backend that has no device here, or not these types, was not asked for by name.
    excused = everything and bool(reports)
    hard = [t for t in errors if not excused or t["kind"] not in ("BackendError", "PlanError")]
    return WRONG if hard else FINE


@app.command()
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


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of a spec file."""
    say(json_schema())


@cache_app.command("path")
def cache_where(as_json: AsJson = False) -> None:
    """Print where compiled kernels are kept."""
    path = str(cache_path())
    say({"path": path} if as_json else path)


@cache_app.command("size")
def cache_size(as_json: AsJson = False) -> None:
    """Print how many files there are and how large they are."""
    sizes = []
    for path in cached_files():
        with suppress(FileNotFoundError):  # another process may clear it meanwhile
            sizes.append(path.stat().st_size)
    where = str(cache_path())
    say(
        {"path": where, "files": len(sizes), "bytes": sum(sizes)}
        if as_json
        else f"{len(sizes)} files, {sum(sizes)} bytes in {where}"
    )


@cache_app.command("clear")
def cache_clear(as_json: AsJson = False) -> None:
    """Remove every compiled kernel; files that are not tilegen's stay."""
    removed = 0
    for path in cached_files():
        path.unlink(missing_ok=True)
        removed += 1
    where = str(cache_path())
    say({"path": where, "removed": removed} if as_json else f"removed {removed} files from {where}")


# ---- what the commands share -------------------------------------------------------------------


def read_spec(path: Path) -> TileSpec:
    """The spec in a file; whatever is wrong with the file is a ``SpecError`` that names it."""
    try:
        return TileSpec.from_file(path)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise SpecError(f"{path}: {_sentence(error)}") from None


def split_names(text: str, option: str) -> list[str]:
    """``A,B`` as a list; empty and repeated names are refused."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{option} {text!r} holds an empty name")
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"{option} {text!r} names one twice")
    return names


def resolve(
    backend: Backend, arch: str | None, device: str | None
) -> tuple[str | Arch | None, Device | None]:
    """The arch to lower for and the device to compile for, as far as the caller named them."""
    if device is None:
        return arch, None
    found = find_device(backend, None, device)
    if arch is not None and arch in backend.archs and found.arch.name != arch:
        raise BackendError(
            f"--device {device} is {found.name}, which runs {found.arch.name} and not {arch}"
        )
    return (found.arch if arch is None else arch), found


class Built:
    """One kernel of a command: its source, its binary or why there is none."""

    def __init__(
        self, source: KernelSource, binary: KernelBinary | None, device: Device | None, missing: str
    ) -> None:
        self.source, self.binary, self.device, self.missing = source, binary, device, missing

    @classmethod
    def of(
        cls, spec: TileSpec, backend: Backend, arch: str | Arch | None, device: Device | None
    ) -> Built:
        """Lower, emit, and compile where a compiler is found."""
        source = emit(lower(spec, backend.name, arch))
        toolchain: Toolchain = backend.toolchain(source.plan.arch, device)
        if toolchain.missing:
            return cls(source, None, device, toolchain.missing)
        try:
            binary = compile_source(source, device=device)
        except CompileError as error:
            if error.source_path is None:
                error.source_path = save_refused(source)
            raise
        return cls(source, binary, device, "")

    @property
    def plan(self) -> KernelPlan:
        return self.source.plan

    @property
    def arch(self) -> str:
        return self.plan.arch.name

    def verify(self, examples: int, seed: int, device: str | None) -> Report:
        """Load the binary and check it; raises ``VerifyError``."""
        # Hypothesis keeps notes in a folder of its own, and would make it where the user stands.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_path() / "hypothesis"))
        from tilegen.verify import verify as check

        assert self.binary is not None
        kernel = load(self.binary, self.device or device)
        return check(kernel, examples=examples, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """The manifest, and why there is no binary."""
        return {**manifest(self.source, self.binary), "missing": self.missing or None}

    def text(self) -> str:
        """Name, target, entries and resources: what the compiler said beside what was planned."""
        plan, binary = self.plan, self.binary
        lines = [plan.name, f"  target     {plan.backend} {self.arch}, {plan.form}"]
        if binary is None:
            lines.append(f"  binary     none: {self.missing}")
        else:
            cached = ", from the cache" if binary.cached else ""
            lines.append(f"  compiler   {binary.toolchain}{cached}")
        planned = ", ".join(
            f"{use.predicted} of {use.limit} {use.file} registers" for use in plan.budget.registers
        )
        private = plan.budget.private_bytes
        lines.append(
            f"  planned    {planned}, {plan.budget.shared_bytes} bytes of shared memory"
            + (f", {private} bytes of private memory" if private else "")
        )
        for entry in plan.entries:
            lines.append(f"  {entry.role:<9}  {entry.name}: {entry.grid} blocks, {entry.block} threads")
            if binary is not None:
                lines.append(f"  measured   {_measured(binary, entry.name)}")
        lines += [f"  note       {note}" for note in plan.notes]
        return "\n".join(lines)


def _measured(binary: KernelBinary, entry: str) -> str:
    found = binary.resources.get(entry)
    if found is None:
        return "the compiler says nothing"
    named = {
        "registers": found.registers,
        "bytes spilled": found.spill_bytes,
        "bytes of stack": found.stack_bytes,
        "bytes of shared memory": found.shared_bytes,
        "bytes of private memory": found.private_bytes,
        "threads at most": found.max_threads,
        **found.extra,
    }
    said = ", ".join(f"{value} {name}" for name, value in named.items() if value is not None)
    return said or "the compiler says nothing"


def save_refused(source: KernelSource) -> str | None:
    """Keep a text that a compiler refused, for its author to look at."""
    folder = cache_path() / "refused"
    path = folder / (source.name + source.suffix)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, source.text.encode())
    except OSError:
        return None
    return str(path)


def write_all(built: Sequence[Built], output: Path) -> list[dict[str, Path]]:
    """Write every kernel's files, one subfolder per arch where there are several; all or nothing."""
    made = _make_folder(output)
    placed: list[Path] = []
    try:
        # Everything is written beside its place first: a full disk or Ctrl-C changes nothing.
        with _named(output):
            staging = Path(tempfile.mkdtemp(prefix=".tilegen-", dir=output))
        try:
            out = []
            for one in built:
                part = Path(one.arch) if len(built) > 1 else Path()
                with _named(output):
                    files = save(one.source, one.binary, staging / part)
                out.append({kind: output / part / path.name for kind, path in files.items()})
            for one, files in zip(built, out, strict=True):
                part = Path(one.arch) if len(built) > 1 else Path()
                if len(built) > 1:
                    made += _make_folder(output / part)
                for path in files.values():
                    new = not path.exists()
                    os.replace(staging / part / path.name, path)
                    if new:
                        placed.append(path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except BaseException:
        for path in placed:
            with suppress(OSError):
                path.unlink()
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise
    return out


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder with its parents; the ones that were not there, the outermost first."""
    absent = [f for f in (*reversed(folder.parents), folder) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return absent


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an error on a temporary file name the file or folder that the user knows."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def cached_files() -> list[Path]:
    """The files that tilegen keeps in its cache folder, and no other."""
    folder = cache_path()
    found = [p for p in folder.glob("*.bin") if len(p.stem) == 64]
    found += [p for p in folder.glob(".*.bin.*") if len(p.name.split(".")[1]) == 64]
    found += [p for p in (folder / "refused").glob("*") if p.is_file()]
    return sorted(found)


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
            "forms": [form.name for form in backend.forms(arch)],
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


# ---- the starting spec -------------------------------------------------------------------------

# A and B, then what they are summed in and what C and D hold.
STARTING_TYPES = {
    "f64": ("f64", "f64"),
    "f32": ("f32", "f32"),
    "tf32": ("f32", "f32"),
    "f16": ("f32", "f16"),
    "bf16": ("f32", "bf16"),
    "e4m3": ("f32", "f16"),
    "e5m2": ("f32", "f16"),
    "e4m3fnuz": ("f32", "f16"),
    "e5m2fnuz": ("f32", "f16"),
    "s8": ("s32", "s32"),
    "u8": ("s32", "s32"),
}
STARTING_TILES = (
    ((128, 128, 32), (64, 32)),
    ((128, 128, 16), (64, 32)),
    ((64, 64, 32), (32, 32)),
    ((64, 64, 16), (32, 32)),
    ((32, 32, 16), (32, 32)),
)


def starting_spec(types: str, backend: str | None, arch: str | None) -> TileSpec:
    """A spec for these types; for a backend, the first of a few tiles that it can build."""
    if types not in STARTING_TYPES:
        from difflib import get_close_matches

        near = get_close_matches(types, STARTING_TYPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"--types {types!r} is not one of {', '.join(STARTING_TYPES)}{hint}")
    acc, out = STARTING_TYPES[types]
    refused: PlanError | None = None
    for block, warp in STARTING_TILES:
        spec = TileSpec(
            block=block, warp=warp, stages=2,
            types={"a": types, "b": types, "acc": acc, "c": out, "d": out},
        )  # fmt: skip
        if backend is None:
            return spec
        try:
            lower(spec, backend, arch)
        except PlanError as error:
            refused = refused or error
            continue
        return spec
    assert refused is not None
    raise refused


def commented(spec: TileSpec, *, as_json_file: bool = False) -> str:
    """The spec as TOML in which every key says what it is for; JSON has no comments."""
    if as_json_file:
        return json.dumps(spec.model_dump(mode="json", exclude_none=True), indent=2) + "\n"
    t = spec.types

    def line(key: str, value: str, says: str) -> str:
        return f"{f'{key} = {value}':<25} # {says}"

    numbers = [
        line("name", f'"{spec.name}"', "what the kernel's name starts with"),
        line("block", f"{list(spec.block)}", "M and N of D per thread block; its step in K"),
        line("warp", f"{list(spec.warp)}", "M and N of the tile of one warp (wavefront, simdgroup)"),
        line("stages", f"{spec.stages}", "at most so many tiles of K in flight"),
        line("# thread", "[8, 8]", "at most: M and N of one lane's micro-tile (scalar FMA only)"),
        line("# split_k", "4", "at most: blocks that share one output tile along K"),
        line("batch", '"none"', 'or "strided": count and strides are arguments of the launch'),
    ]
    types = [
        line("a", f'"{t.a}"', "f64 f32 tf32 f16 bf16 e4m3 e5m2 e4m3fnuz e5m2fnuz s8 u8 s32"),
        line("b", f'"{t.b}"', "as A's, on most targets"),
        line("acc", f'"{t.acc}"', "what products are summed in; alpha's and beta's type"),
        line("c", f'"{t.c}"', "read only where beta is not 0"),
        line("d", f'"{t.d}"', "the output; left out, the type of C"),
    ]
    layout = [line(o, f'"{getattr(spec.layout, o)}"', '"row" or "col"') for o in "abcd"]
    parts = [
        ["# A tile of D = epilogue(alpha * A·B + beta * C); 'tilegen plan' explains its numbers."],
        numbers,
        ["[types]", *types],
        ["[layout]", *layout],
        [
            "# Steps of the epilogue, in order:",
            "# bias, relu, gelu, gelu_tanh, silu, clamp, scale, residual.",
            "# [[epilogue]]",
            line('# op', '"bias"', "scale and bias are vectors"),
            line("# along", '"n"', "one element per column of D"),
        ],
        [
            "# Choices for one backend that are otherwise the plan's.",
            "# [pins.opencl]",
            '# form = "work_group"',
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
