"""Kernels that tilegen did not write through NVRTC: their headers, their names, what ptxas says of them."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilegen.backend import Resources
from tilegen.checklist.support import ForeignBinary
from tilegen.emulator.scopes import qualified
from tilegen.errors import CompileError
from tilegen.hardware import Arch

from .toolchain import nvrtc, nvrtc_toolchain, program_log, resources

HEADERS = "python -m pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
_ABSENT = re.compile(r'cannot open source file "([^"]+)"')
_LENGTH = re.compile(r"\d+")
_OF_CUDA = re.compile(r"(cuda|cooperative_groups|mma\.h|crt/|nv/|cub/|device_|vector_|sm_\d)")
# Names that nvcc's host headers bring into every text, and NVRTC does not know.
HOST_TYPES = (
    "typedef unsigned char uchar; typedef unsigned short ushort; "
    "typedef unsigned int uint; typedef unsigned long ulong;\n"
)
HOST_TYPES_NAME = "host_types.h"


def compile_text(
    text: str, name: str, arch: Arch, kernels: Sequence[str], defines: Sequence[str]
) -> ForeignBinary:
    """The text's kernels, and what ptxas says of each.

    Parameters
    ----------
    name : str
        Of the file, as the log names it; what it includes is looked for beside it.
    kernels : sequence of str
        Those that must be there; an instance of a template is made by being named.
    defines : sequence of str
        Macros as ``NAME=VALUE``.

    Raises
    ------
    CompileError
        With NVRTC's log, or with what brings NVRTC or the headers that the text includes.
    """
    toolchain = nvrtc_toolchain(arch)
    if toolchain.missing:
        raise CompileError(toolchain.missing)
    api, options = nvrtc(), toolchain.flags.split()
    called = {kernel: qualified(text, kernel) for kernel in kernels}
    options += [f"-D{define}" for define in defines]
    folders = (Path(name).parent, *include_folders())
    options += [f"--include-path={folder}" for folder in folders]
    options.append(f"--pre-include={HOST_TYPES_NAME}")
    _, program = api.nvrtcCreateProgram(
        text.encode(), name.encode(), 1, [HOST_TYPES.encode()], [HOST_TYPES_NAME.encode()]
    )
    try:
        for name_expression in called.values():
            api.nvrtcAddNameExpression(program, name_expression.encode())
        (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = program_log(program)
        if status != api.nvrtcResult.NVRTC_SUCCESS:
            raise _refused(name, log, str(toolchain), " ".join(options), kernels)
        named = {_lowered(api, program, called[kernel]): kernel for kernel in kernels}
    finally:
        api.nvrtcDestroyProgram(program)
    said = {named.get(symbol) or plain_name(symbol): r for symbol, r in resources(log).items()}
    return ForeignBinary(_ordered(said, kernels), log, str(toolchain))


def _lowered(api: Any, program: Any, kernel: str) -> str:
    _, symbol = api.nvrtcGetLoweredName(program, kernel.encode())
    return str(symbol.decode())


def _ordered(said: Mapping[str, Resources], first: Sequence[str]) -> dict[str, Resources]:
    return dict(sorted(said.items(), key=lambda item: (item[0] not in first, item[0])))


def _refused(
    name: str, log: str, compiler: str, flags: str, kernels: Sequence[str]
) -> CompileError:
    absent = _ABSENT.search(log)
    if absent:
        told = f"{name} includes {absent[1]}, which is not here"
        if _OF_CUDA.match(absent[1]):
            told += f": {HEADERS} brings CUDA's headers"
    else:
        first = next((line for line in log.splitlines() if "error" in line), "")
        told = f"NVRTC refuses {name}" + (f": {first.strip()}" if first else "")
        if "name expression" in log or "__nv_" in first:
            told = f"{' or '.join(map(repr, kernels))} is no kernel of {name}"
    return CompileError(told, compiler=compiler, flags=flags, log=log)


def include_folders() -> Iterator[Path]:
    """Where CUDA's headers lie: the toolkit that the environment names, wheels, the usual place."""
    named = [os.environ[n] for n in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(n)]
    wheels = Path(sysconfig.get_path("purelib")) / "nvidia"
    folders = [*(Path(n) / "include" for n in named), *sorted(wheels.glob("*/include"))]
    for folder in (*folders, Path("/usr/local/cuda/include")):
        if (folder / "cuda_runtime.h").is_file():
            yield folder
            # libcu++, which the toolkit keeps in a folder of its own from CUDA 13 on.
            if (folder / "cccl").is_dir():
                yield folder / "cccl"
            return


def plain_name(symbol: str) -> str:
    """A function's name without its types, from the way that C++ mangles it (Itanium C++ ABI, 5.1)."""
    if not symbol.startswith("_Z"):
        return symbol
    rest, parts = symbol[2:].removeprefix("N"), list[str]()
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts) if parts else symbol
