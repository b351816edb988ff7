"""nvcc, where NVRTC is not there or the user chose it: the same text, flags and log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tilegen.backend import Toolchain
from tilegen.errors import CompileError
from tilegen.hardware import Arch
from tilegen.render import KernelSource

# A path, or a name on PATH; set, it is taken though NVRTC is there.
VARIABLE = "TILEGEN_NVCC"
NAME = "nvcc"
_RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")
_CODE = re.compile(r"^sm_(\d+)", re.MULTILINE)
# Of the questions that nvcc answers at once; a compilation may take its time.
SECONDS = 60


class Nvcc(NamedTuple):
    """An nvcc that answers: its path, version and the numbers of the archs that it knows."""

    path: str
    version: str
    archs: frozenset[int]


def chosen() -> str:
    """What the user asks for in ``TILEGEN_NVCC``, empty without."""
    return os.environ.get(VARIABLE, "")


def found() -> Nvcc | None:
    """The nvcc that is chosen, else one on ``PATH``; ``None`` where there is none that answers."""
    path = shutil.which(chosen() or NAME)
    return None if path is None else _asked(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=8)
def _asked(path: str, _changed: int) -> Nvcc | None:
    said = []
    for question in ("--version", "--list-gpu-code"):
        try:
            done = subprocess.run(
                [path, question], capture_output=True, text=True, timeout=SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        said.append(done.stdout)
    release = _RELEASE.search(said[0])
    archs = frozenset(int(number) for number in _CODE.findall(said[1]))
    return Nvcc(path, release[1], archs) if release and archs else None


def nvcc_toolchain(arch: Arch, flags: tuple[str, ...], lineinfo: str) -> Toolchain | None:
    """nvcc for this arch, the sentence that says why not, or ``None`` where there is none at all."""
    nvcc = found()
    if nvcc is None:
        if not chosen():
            return None
        return Toolchain(
            NAME,
            missing=f"{VARIABLE} is {chosen()!r}, and no nvcc answers there; correct or unset it",
        )
    number = int(re.sub(r"\D", "", arch.name))
    if number not in nvcc.archs:
        known = ", ".join(f"sm_{n}" for n in sorted(nvcc.archs))
        return Toolchain(
            NAME, missing=f"nvcc {nvcc.version} compiles for {known}, not for {arch.name}"
        )
    line = " ".join(("-cubin", f"--gpu-architecture={arch.name}", *flags))
    return Toolchain(NAME, nvcc.version, line, lineinfo=lineinfo)


def cubin(source: KernelSource, toolchain: Toolchain) -> tuple[bytes, str]:
    """The cubin of a text, and what nvcc said.

    Raises
    ------
    CompileError
        With nvcc's log.
    """
    nvcc = found()
    if nvcc is None:
        raise CompileError("nvcc, which was there a moment ago, answers no more")
    with tempfile.TemporaryDirectory(prefix="tilegen-nvcc-") as folder:
        text, out = f"{source.name}{source.suffix}", f"{source.name}.cubin"
        Path(folder, text).write_text(source.text, encoding="utf-8")
        command = [nvcc.path, *toolchain.flags.split(), "-o", out, text]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        # What nvcc itself would print goes to either.
        log = (done.stdout + done.stderr).strip()
        if done.returncode or not Path(folder, out).exists():
            raise CompileError(
                f"nvcc refuses the text of {source.name}",
                compiler=str(toolchain),
                flags=toolchain.flags,
                log=log or f"exit status {done.returncode}",
            )
        return Path(folder, out).read_bytes(), log
