"""NVRTC, else nvcc: CUDA C++ to a cubin without a driver, and what ptxas says of each kernel."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from tilegen.backend import DYNAMIC_SHARED, Missing, Resources, Toolchain
from tilegen.build import KernelBinary
from tilegen.errors import CompileError
from tilegen.hardware import Arch
from tilegen.plan import Entry
from tilegen.render import KernelSource

from . import nvcc
from .archs import dynamic_bytes

INSTALL = "python -m pip install 'tilegen[cuda]'"
# ptxas tells registers, spills and shared memory of each kernel.
FLAGS = ("-std=c++17", "--ptxas-options=-v")
# Both compilers spell it alike; code and registers stay as they are.
LINEINFO = "-lineinfo"
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@cache
def nvrtc() -> Any:
    """The NVRTC binding with its library loaded, or ``None``."""
    if find_spec("cuda") is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from cuda.bindings import nvrtc as found

            found.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    return found


def version() -> str:
    """Of NVRTC, empty where there is none."""
    found = nvrtc()
    if found is None:
        return ""
    _, major, minor = found.nvrtcVersion()
    return f"{major}.{minor}"


@cache
def _archs() -> frozenset[int]:
    _, numbers = nvrtc().nvrtcGetSupportedArchs()
    return frozenset(int(n) for n in numbers)


def toolchain(arch: Arch) -> Toolchain:
    """The nvcc that the user chose, else NVRTC, else an nvcc on ``PATH``, else what is missing."""
    if nvcc.chosen() or nvrtc() is None:
        instead = nvcc.nvcc_toolchain(arch, FLAGS, LINEINFO)
        if instead is not None:
            return instead
    return nvrtc_toolchain(arch)


def nvrtc_toolchain(arch: Arch) -> Toolchain:
    """NVRTC for this arch, or the sentence that says what is missing."""
    flags = " ".join((f"--gpu-architecture={arch.name}", *FLAGS))
    if nvrtc() is None:
        missing = f"neither NVRTC nor nvcc is installed: {INSTALL}"
        return Toolchain("NVRTC", missing=missing, flags=flags)
    number = int(re.sub(r"\D", "", arch.name))
    if number not in _archs():
        known = ", ".join(f"sm_{n}" for n in sorted(_archs()))
        return Toolchain(
            "NVRTC", missing=f"NVRTC {version()} compiles for {known}, not for {arch.name}"
        )
    return Toolchain("NVRTC", version(), flags, lineinfo=LINEINFO)


def compile_cubin(source: KernelSource, toolchain: Toolchain) -> KernelBinary:
    """The text as a cubin for its arch.

    Raises
    ------
    CompileError
        With the compiler's log.
    """
    data, log = (nvcc.cubin if toolchain.name == nvcc.NAME else _by_nvrtc)(source, toolchain)
    said = resources(log)
    told = {e.name: _with_dynamic(said.get(e.symbol, Resources()), e) for e in source.entries}
    return KernelBinary(source, data, log, told, toolchain, toolchain.flags)


def _by_nvrtc(source: KernelSource, toolchain: Toolchain) -> tuple[bytes, str]:
    api = nvrtc()
    options = toolchain.flags.split()
    _, program = api.nvrtcCreateProgram(
        source.text.encode(), f"{source.name}{source.suffix}".encode(), 0, [], []
    )
    try:
        (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = program_log(program)
        if status != api.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(
                f"NVRTC refuses the text of {source.name}",
                compiler=str(toolchain),
                flags=toolchain.flags,
                log=log,
            )
        _, size = api.nvrtcGetCUBINSize(program)
        data = b" " * size
        api.nvrtcGetCUBIN(program, data)
    finally:
        api.nvrtcDestroyProgram(program)
    return data, log


def program_log(program: Any) -> str:
    """What NVRTC and ptxas have said of a program."""
    return _text(nvrtc().nvrtcGetProgramLogSize, nvrtc().nvrtcGetProgramLog, program)


def _text(size_of: Any, text_of: Any, program: Any) -> str:
    _, size = size_of(program)
    data = b" " * size
    text_of(program, data)
    return str(data.decode("utf-8", "replace")).strip("\0\n ")


def resources(log: str) -> dict[str, Resources]:
    """What ptxas says of each kernel in its verbose log."""
    out = {}
    for part in log.split("ptxas info")[1:]:
        if found := _ENTRY.search(part):
            name = found[1]
            out[name] = Resources()
        elif not out:
            continue
        known = out[name]
        stack, used, shared = _STACK.search(part), _USED.search(part), _SHARED.search(part)
        out[name] = Resources(
            registers=int(used[1]) if used else known.registers,
            stack_bytes=int(stack[1]) if stack else known.stack_bytes,
            spill_bytes=int(stack[2]) if stack else known.spill_bytes,
            spill_load_bytes=int(stack[3]) if stack else known.spill_load_bytes,
            # ptxas names what a kernel takes, and leaves out what it does not.
            shared_bytes=int(shared[1]) if shared else (0 if used else known.shared_bytes),
        )
    return out


def _with_dynamic(said: Resources, entry: Entry) -> Resources:
    """Dynamic shared memory is the launch's affair, of which ptxas knows nothing."""
    dynamic = dynamic_bytes(entry.shared_bytes)
    if not dynamic or said.shared_bytes is None:
        return said
    return replace(said, extra={**said.extra, DYNAMIC_SHARED: dynamic})


def missing() -> list[Missing]:
    """What would compile or run CUDA here and is not there."""
    out = []
    if nvrtc() is None and nvcc.found() is None:
        out.append(Missing("NVRTC, which compiles CUDA C++ without a GPU", INSTALL))
    return out
