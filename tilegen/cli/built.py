"""One kernel of a command: compiled, described, and written with others, all or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegen import registry
from tilegen.backend import Backend, Device, Toolchain
from tilegen.build import KernelBinary, cache_path, emulator, find_device, load, manifest, save
from tilegen.build import compile as compile_source
from tilegen.cli.shared import named
from tilegen.errors import BackendError, CompileError
from tilegen.files import write_atomically
from tilegen.hardware import Arch
from tilegen.lower import lower
from tilegen.plan import KernelPlan
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from tilegen.verify import Report


class Built:
    """One kernel of a command: its source, its binary or why there is none."""

    def __init__(
        self, source: KernelSource, binary: KernelBinary | None, device: Device | None, missing: str
    ) -> None:
        self.source, self.binary, self.device, self.missing = source, binary, device, missing

    @classmethod
    def of(
        cls,
        spec: TileSpec,
        backend: Backend,
        arch: str | Arch | None,
        device: Device | None,
        lineinfo: bool = False,
    ) -> Built:
        """Lower, emit, and compile where a compiler is found.

        The emulator runs the text; what is written is still what the device's compiler makes of it.
        """
        source = emit(lower(spec, backend.name, arch))
        compiler = None if device is not None and device.rung == "emulator" else device
        toolchain: Toolchain = backend.toolchain(source.plan.arch, compiler)
        if toolchain.missing:
            return cls(source, None, device, toolchain.missing)
        try:
            binary = compile_source(source, device=compiler, lineinfo=lineinfo)
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
        """Load the binary, or the source where a device compiles it itself, and check it.

        Raises
        ------
        VerifyError
            If a result is wrong.
        """
        from tilegen.verify import verify as check

        kernel = load(self.binary or self.source, self.device or device)
        return check(kernel, examples=examples, seed=seed)

    def cannot_run(self, device: str | None) -> str:
        """What the device lacks to run the kernel, and what would bring it; empty if nothing."""
        backend, arch = registry.get(self.plan.backend), self.plan.arch
        where = self.device or find_device(backend, arch, device)
        return backend.toolchain(arch, where).missing

    def check_runs(self) -> None:
        """Raise ``BackendError`` where nothing here can run the kernel, with what would."""
        if self.binary is None and not emulator(registry.get(self.plan.backend), self.plan.arch):
            raise BackendError(self.missing)

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
            f"{use.predicted} of {use.limit} {use.file} registers{use.at_limit * ', at the limit'}"
            for use in plan.budget.registers
        )
        private = plan.budget.private_bytes
        lines.append(
            f"  planned    {planned}, {plan.budget.shared_bytes} bytes of shared memory"
            + (f", {private} bytes of private memory" if private else "")
        )
        for entry in plan.entries:
            lines.append(
                f"  {entry.role:<9}  {entry.name}: {entry.grid} blocks, {entry.block} threads"
            )
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
        with named(output):
            staging = Path(tempfile.mkdtemp(prefix=".tilegen-", dir=output))
        try:
            out = []
            for one in built:
                part = Path(one.arch) if len(built) > 1 else Path()
                with named(output):
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
