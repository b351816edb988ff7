"""oclgrind as a device of this process, for who asks for ``--device oclgrind``: findings are errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegen.backend import Toolchain
from tilegen.errors import BackendError, VerifyError
from tilegen.hardware import Arch
from tilegen.plan import Argument, Entry

from .archs import CPU, GPU
from .device import CHECKER, OpenCLDevice
from .oclgrind import Finding, gathered, missing, switches
from .runtime import opencl

if TYPE_CHECKING:
    from tilegen.build import KernelBinary
    from tilegen.render import KernelSource

    from .device import LoadedProgram

SELECTOR = "oclgrind"
# Per context; shrinking a failing problem reports the same fault again and again.
MAX_ERRORS = 100_000


@dataclass(frozen=True)
class OclgrindDevice(OpenCLDevice):
    """oclgrind's simulator as a device of one class; a call on it raises what it finds."""

    @property
    def rung(self) -> str:
        return "oclgrind"

    @cached_property
    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """Where the log is written; it goes with the device."""
        return tempfile.TemporaryDirectory(prefix="tilegen-oclgrind-")

    @property
    def log(self) -> Path:
        return Path(self.folder.name) / "log"

    @cached_property
    def context(self) -> Any:
        cl: Any = opencl()
        # oclgrind reads its switches when a context is made.
        with _environment(switches(self.log, errors=MAX_ERRORS)):
            return cl.Context([self.handle])

    def toolchain(self) -> Toolchain:
        if self.handle is None:
            return Toolchain("OpenCL", missing=missing() or "oclgrind is not among the platforms")
        return super().toolchain()

    def compile(self, source: KernelSource, flags: str = "") -> KernelBinary:
        with _quiet():
            return super().compile(source, flags)

    def load(self, binary: KernelBinary) -> WatchedProgram:  # type: ignore[override]
        if self.handle is None:
            raise BackendError(self.toolchain().missing)
        return WatchedProgram(super().load(binary), binary.source, self.log)


class WatchedProgram:
    """The kernels of one program; a launch waits for its end and raises what was found meanwhile."""

    def __init__(self, program: LoadedProgram, source: KernelSource, log: Path) -> None:
        self._program, self._source, self._log = program, source, log

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        self._watched(lambda: self._program.launch(entry, grid, arguments, stream), stream)

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        launch = self._program.bind(entry, grid, arguments, stream)
        return lambda: self._watched(launch, stream)

    def _watched(self, launch: Callable[[], None], stream: Any) -> None:
        seen = self._log.stat().st_size if self._log.exists() else 0
        launch()
        stream.finish()
        if not self._log.exists():
            return
        with self._log.open(encoding="utf-8", errors="replace") as file:
            file.seek(seen)
            written = file.read()
        if findings := gathered(written):
            raise VerifyError(self._told(findings))

    def _told(self, findings: Sequence[Finding]) -> str:
        """The first finding with its place in the text, and where the others are."""
        first, *others = findings
        name = f"{self._source.name}{self._source.suffix}"
        told = f"oclgrind found {first.kind}"
        if first.line is not None:
            told += f" at line {first.line} of {name}"
            told += f" (`{self._source.text.splitlines()[first.line - 1].strip()}`)"
        more = ", ".join(f"{f.kind} at line {f.line}" for f in others)
        return f"{told}: {first.text}" + (f"; also {more}" if more else "")


def checkers() -> list[OclgrindDevice]:
    """oclgrind as a CPU and as a GPU; without a handle where it is not installed."""
    return list(_checkers())


@cache
def _checkers() -> tuple[OclgrindDevice, ...]:
    handle = _handle()
    if handle is None:
        return tuple(OclgrindDevice(None, CHECKER, SELECTOR, arch, CHECKER) for arch in (CPU, GPU))
    name = str(handle.driver_version).strip()
    return tuple(
        OclgrindDevice(handle, name, SELECTOR, _limited(arch, handle), name) for arch in (CPU, GPU)
    )


def _handle() -> Any:
    cl: Any = opencl()
    if cl is None:
        return None
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return None
    found = (p for p in platforms if p.name.strip() == CHECKER)
    return next((d for p in found for d in p.get_devices()), None)


def _limited(arch: Arch, handle: Any) -> Arch:
    """The device class with the limits of the simulator, which has no vector width of its own."""
    return replace(
        arch,
        max_threads=int(handle.max_work_group_size),
        shared_bytes=int(handle.local_mem_size),
        features=arch.features | ({"fp64"} if "cl_khr_fp64" in handle.extensions else set()),
    )


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what oclgrind's compiler prints beside its log ("4 warnings generated.") off stderr."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
