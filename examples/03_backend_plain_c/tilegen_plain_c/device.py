"""The compiler, the library it makes, and the arrays of a call."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from tilegen.backend import Operand, Resources, Toolchain
from tilegen.build import KernelBinary
from tilegen.errors import CompileError, LaunchError
from tilegen.hardware import Arch
from tilegen.host_arrays import ALIGNMENT, host_empty, host_operand
from tilegen.plan import Argument, Entry
from tilegen.render import KernelSource

from .loops import C99

FLAGS = "-O2 -std=c99 -ffp-contract=on -fPIC -shared"
INSTALL = "apt-get install gcc, or set CC to a C compiler"
NUMBERS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i64": ctypes.c_longlong}


def toolchain() -> Toolchain:
    """``$CC``, else ``cc``."""
    return _toolchain(os.environ.get("CC") or "cc")


@cache
def _toolchain(command: str) -> Toolchain:
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        return Toolchain(command, missing=f"no C compiler {command!r} is here: {INSTALL}")
    # The machine too: a cache may be shared between machines of two kinds.
    said = [
        subprocess.run([*words, flag], capture_output=True, text=True, check=False).stdout
        for flag in ("--version", "-dumpmachine")
    ]
    version = " ".join(text.partition("\n")[0] for text in said)
    return Toolchain(command, version, FLAGS)


def compile_source(source: KernelSource, toolchain: Toolchain) -> KernelBinary:
    """Compile the text into a shared object."""
    with tempfile.TemporaryDirectory(prefix="tilegen-c-") as folder:
        text, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        text.write_text(source.text, encoding="utf-8")
        command = [*shlex.split(toolchain.name), *FLAGS.split(), str(text), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            raise CompileError(
                f"{toolchain.name} refuses the text of {source.name}",
                compiler=str(toolchain),
                flags=FLAGS,
                log=done.stderr.strip(),
            )
        data = library.read_bytes()
    # A C compiler reports nothing of a function's registers.
    resources = {entry.name: Resources() for entry in source.entries}
    return KernelBinary(source, data, done.stderr.strip(), resources, toolchain, FLAGS)


@dataclass(frozen=True)
class HostDevice:
    """The CPU that Python runs on."""

    name: str = f"{platform.machine()} host"
    selector: str = "cpu:0"
    arch: Arch = C99
    rung: str = "CPU runtime"

    def load(self, binary: KernelBinary) -> LoadedLibrary:
        return LoadedLibrary(binary)

    def session(self, arrays: Sequence[Any], stream: Any) -> HostSession:
        if stream is not None:
            raise LaunchError("stream: plain C runs in the caller's thread and has no streams")
        return HostSession()


class LoadedLibrary:
    """The functions of one shared object."""

    def __init__(self, binary: KernelBinary) -> None:
        with tempfile.TemporaryDirectory(prefix="tilegen-c-") as folder:
            path = Path(folder, "kernel.so")
            path.write_bytes(binary.data)
            try:
                library = ctypes.CDLL(str(path))
                found = {e.name: getattr(library, e.symbol) for e in binary.source.entries}
            except (OSError, AttributeError) as error:
                raise LaunchError(f"{binary.source.name} cannot be loaded: {error}") from None
        self._functions: dict[str, Any] = {}
        for entry in binary.source.entries:
            function = found[entry.name]
            function.restype = None
            function.argtypes = [
                ctypes.c_longlong,
                ctypes.c_longlong,
                *(ctypes.c_void_p if a.is_pointer else NUMBERS[a.type] for a in entry.arguments),
            ]
            self._functions[entry.name] = function

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        # ctypes lets other threads run meanwhile; a caller may split the range among some.
        self._functions[entry.name](0, grid, *(value for _, value in arguments))

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        return partial(self.launch, entry, grid, arguments, stream)


@dataclass(frozen=True)
class HostWorkspace:
    """Memory that lives as long as the call, or the prepared one."""

    memory: Any

    def region(self, offset: int, size: int, element: str) -> int:
        return int(self.memory.ctypes.data) + offset


class HostSession:
    """NumPy arrays, used where they are."""

    stream = None
    alignment = ALIGNMENT

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        return host_operand(name, array, writes=writes)

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        return host_empty(shape, dtype, majorness)

    def workspace(self, size: int, *, kept: bool) -> HostWorkspace:
        return HostWorkspace(host_empty((1, size), "u8", "row"))

    def begin(self) -> None:
        """The arrays are where they are."""

    def finish(self) -> None:
        """A launch returns when it is done."""
