"""The host's C++ compiler, and the runtime built by it, once, into the cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tilegen.emulator import store
from tilegen.errors import CompileError
from tilegen.processors import cores

RUNTIME = Path(__file__).parent / "runtime"
PTX = Path(__file__).parent / "ptx"
COMPILER_VARIABLE = "TILEGEN_CXX"
MISSING = (
    "the emulator needs a C++ compiler: install g++ or clang++, or run "
    "'python -m pip install tilegen[emulator]', which brings one"
)
# How a kernel is compiled: as it is, with its accesses announced, and with vectors kept whole as well.
PLAIN, RACES, BANKS = "plain", "races", "banks"
# The window's two ends must be the first and the last thread-local data of the program.
FIRST, LAST = "tg_window", "tg_dynamic"


@dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler of this machine.

    Attributes
    ----------
    command : tuple of str
        How it is called.
    family : str
        ``"gcc"``, ``"clang"`` or ``"zig"``: they differ in a few flags.
    version : str
    """

    command: tuple[str, ...]
    family: str
    version: str

    @property
    def identity(self) -> str:
        """What a compiled object depends on."""
        return f"{' '.join(self.command)} {self.version}"

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """For runtime and kernels alike."""
        flags = [
            "-x", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
            "-fno-pie", "-fno-strict-aliasing", "-fno-stack-protector",
            "-fno-asynchronous-unwind-tables", "-fstack-clash-protection",
        ]  # fmt: skip
        if self.family == "gcc":
            # An `extern thread_local` has no initialiser that it would have to call first.
            flags.append("-fno-extern-tls-init")
            # Lines are all that is asked of the debugging information; where variables live costs time.
            flags.append("-fno-var-tracking")
        if self.family == "zig":
            flags.append("-fno-sanitize=undefined")
        if _is_v3():
            # With FMA and F16C kernels run several times faster. Zig has names of its own.
            flags.append("-march=x86_64_v3" if self.family == "zig" else "-march=x86-64-v3")
        return tuple(flags)

    def mode_flags(self, mode: str) -> tuple[str, ...]:
        """How far to optimise, and what to announce: every access, or stray indices and addresses.

        Used without ``-fsanitize`` at link time.
        """
        if mode == PLAIN:
            # Both checks cost less here than beside the hooks, and -Og half the time of -O1 to compile.
            if self.family == "gcc":
                return ("-Og", "-fsanitize=bounds", "-fsanitize=alignment")
            # Clang's other kind of bounds only ends the program.
            return ("-O1", "-fsanitize=array-bounds")
        # Less than -O1 keeps in memory, and so announces, what kernels hold in registers.
        flags = ["-O1", "-fsanitize=thread"]
        if self.family == "gcc":
            flags += ["--param", "tsan-instrument-func-entry-exit=0"]
            if mode == BANKS:
                # A vector stays one access, although the kernel is slower by it.
                flags.append("-fno-tree-sra")
        else:
            flags += ["-fsanitize=alignment", "-mllvm", "-tsan-instrument-func-entry-exit=0"]
        if self.family == "zig":
            # It wants it so, although the program is linked to a fixed place all the same.
            flags.append("-fPIE")
        return tuple(flags)

    @property
    def link_flags(self) -> tuple[str, ...]:
        """No C++ standard library: nothing needs it, and a zig wheel would first have to build it."""
        libraries = ("-lm",) if self.family == "zig" else ("-nodefaultlibs", "-lm", "-lc", "-lgcc")
        return ("-no-pie", *libraries)


@cache
def _is_v3() -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return False
    return {"avx2", "fma", "f16c", "bmi2", "movbe"} <= words


def _version(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None


def _candidates() -> list[tuple[str, ...]]:
    named = os.environ.get(COMPILER_VARIABLE)
    if named:
        return [tuple(named.split())]
    found: list[tuple[str, ...]] = [
        (path,) for name in ("g++", "clang++") if (path := shutil.which(name))
    ]
    spec = find_spec("ziglang")
    if spec is not None and spec.origin is not None:
        zig = Path(spec.origin).parent / ("zig.exe" if os.name == "nt" else "zig")
        found.append((str(zig), "cc"))
    return found


@cache
def _host_compiler(named: str | None) -> HostCompiler:
    for command in _candidates():
        version = _version(command)
        if version is None:
            continue
        zig = Path(command[0]).name.startswith("zig")
        family = "zig" if zig else "clang" if "clang" in version else "gcc"
        return HostCompiler(command, family, version)
    if named:
        raise CompileError(f"{COMPILER_VARIABLE}={named!r} does not run as a C++ compiler")
    raise CompileError(MISSING)


def host_compiler() -> HostCompiler:
    """The compiler that ``TILEGEN_CXX`` names, else g++, clang++ or that of the ziglang wheel.

    Raises
    ------
    CompileError
        If there is none; the message says what brings one.
    """
    if os.name != "posix" or platform.system() != "Linux":
        raise CompileError(
            f"the emulator runs on Linux; this is {platform.system()}: the shared window is a "
            "thread-local segment of an ELF program"
        )
    return _host_compiler(os.environ.get(COMPILER_VARIABLE))


def call(compiler: HostCompiler, arguments: Sequence[str], what: str) -> str:
    """Run the compiler; what it says.

    Raises
    ------
    CompileError
        If it refuses.
    """
    command = [*compiler.command, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(
            f"{what} does not compile for the emulator: {_first_error(done.stderr)}",
            compiler=compiler.version,
            flags=" ".join(arguments),
            log=done.stderr,
        )
    return done.stderr


def _first_error(log: str) -> str:
    lines = log.splitlines()
    told = [line for line in lines if "error" in line or "undefined" in line]
    return (told or lines or ["the compiler said nothing"])[0].strip()


@cache
def _digest() -> str:
    files = [f for folder in (RUNTIME, PTX) if folder.is_dir() for f in sorted(folder.iterdir())]
    digest = hashlib.sha256()
    for file in files:
        if file.suffix in (".hpp", ".cpp", ".inc"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def runtime_digest() -> str:
    """Changes whenever a source of the runtime does."""
    return _digest()


def runtime_objects(
    compiler: HostCompiler, dynamic_names: Sequence[str] = (), dynamic_align: int = 16
) -> list[Path]:
    """The runtime's object files in the order of linking, built if the cache does not hold them whole.

    The kernel's own object belongs behind the first. ``dynamic_names`` are what the kernel text calls
    its dynamic shared memory, which begins at a multiple of ``dynamic_align`` bytes.
    """
    sources = [f for folder in (RUNTIME, PTX) for f in sorted(folder.glob("*.cpp"))]
    sources.sort(key=lambda f: (f.stem != FIRST, f.stem == LAST))
    flags = [*compiler.compile_flags, "-O2", "-w", f"-I{RUNTIME}", f"-I{PTX}"]
    labels = "".join(f".globl {n}\\n.type {n}, @object\\n{n}:\\n" for n in dynamic_names)
    digest = _digest()

    def made(source: Path) -> Path:
        more = []
        if source.stem == LAST:
            more = [f'-DTG_DYNAMIC_NAMES="{labels}"', f'-DTG_DYNAMIC_ALIGN="{dynamic_align}"']
        parts = ("emulator", compiler.identity, digest, source.name, *flags, *more)
        arguments = [*flags, *more, "-c", str(source), "-o"]

        def build(path: Path) -> None:
            call(compiler, [*arguments, str(path)], source.name)

        return store.keep(parts, build)

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(made, sources))
