"""nvcc in NVRTC's place: which is taken, its command line and log; line numbers on request."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
import tilegen.cli as cli
from tilegen import registry
from tilegen.errors import CompileError
from tilegen_cuda import nvcc, toolchain

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_nvrtc = pytest.mark.skipif(
    toolchain.nvrtc() is None, reason="no NVRTC: pip install 'tilegen[cuda]'"
)
REAL = nvcc.found()
# Answers as nvcc 13.0 does, writes down how it was called, and says what ptxas says.
FAKE = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("nvcc: NVIDIA (R) Cuda compiler driver\\nCuda compilation tools, release 13.0, V13.0.88")
elif words == ["--list-gpu-code"]:
    print("sm_75\\nsm_80\\nsm_86\\nsm_90")
else:
    text = pathlib.Path(words[-1]).read_text()
    with open({log!r}, "a") as file:
        file.write(json.dumps([words, text]) + "\\n")
    if "forbidden" in text:
        print("kernel.cu(3): error: forbidden", file=sys.stderr)
        sys.exit(2)
    for name in ("gemm_wide", "gemm_narrow"):
        print(f"ptxas info    : Compiling entry function '{{name}}' for 'sm_80'", file=sys.stderr)
        print(f"ptxas info    : Function properties for {{name}}", file=sys.stderr)
        print("    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads", file=sys.stderr)
        print("ptxas info    : Used 77 registers, used 1 barriers, 4096 bytes smem", file=sys.stderr)
    pathlib.Path(words[words.index("-o") + 1]).write_bytes(b"\\x7fELF fake")
"""


class Fake:
    """A script in nvcc's place."""

    def __init__(self, folder: Path) -> None:
        self.path, self._log = folder / "nvcc", folder / "calls"
        self.path.write_text(FAKE.format(python=sys.executable, log=str(self._log)))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[Any]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "cache"))
    return Fake(tmp_path)


def source(arch: str = "sm_80") -> tg.KernelSource:
    return tg.emit(tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", arch))


def test_the_nvcc_that_is_chosen_compiles(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEGEN_NVCC", str(fake.path))
    text = source()
    binary = tg.compile(text)
    assert str(binary.toolchain) == "nvcc 13.0.88"
    assert binary.data == b"\x7fELF fake"
    ((words, compiled),) = fake.calls
    assert words == [
        "-cubin", "--gpu-architecture=sm_80", "-std=c++17", "--ptxas-options=-v",
        "-o", f"{text.name}.cubin", f"{text.name}.cu",
    ]  # fmt: skip
    assert compiled == text.text
    for said in binary.resources.values():
        assert (said.registers, said.spill_bytes, said.stack_bytes, said.shared_bytes) == (
            77,
            12,
            8,
            4096,
        )
    assert tg.compile(text).cached
    assert len(fake.calls) == 1
    # With line numbers it is another binary.
    lined = tg.compile(text, lineinfo=True)
    assert not lined.cached
    assert fake.calls[-1][0] == [*words[:4], "-lineinfo", *words[4:]]
    assert lined.flags.split()[-1] == "-lineinfo"
    assert (lined.toolchain, lined.lineinfo, binary.lineinfo) == (binary.toolchain, True, False)
    again = tg.compile(text, lineinfo=True)
    assert (again.cached, again.lineinfo, len(fake.calls)) == (True, True, 2)


def test_a_refused_text_keeps_nvccs_log(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setenv("TILEGEN_NVCC", str(fake.path))
    text = source()
    with pytest.raises(CompileError, match="nvcc refuses the text") as raised:
        tg.compile(replace(text, text=text.text + "// forbidden\n"))
    assert raised.value.log == "kernel.cu(3): error: forbidden"
    assert raised.value.compiler == "nvcc 13.0.88"
    assert "--gpu-architecture=sm_80" in raised.value.flags


def test_an_arch_that_nvcc_does_not_know(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEGEN_NVCC", str(fake.path))
    with pytest.raises(
        CompileError, match=r"nvcc 13\.0\.88 compiles for sm_75, sm_80, sm_86, sm_90, not"
    ):
        tg.compile(source("sm_120"))


def test_a_choice_that_is_no_nvcc_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dumb = tmp_path / "dumb"
    dumb.write_text("#!/bin/sh\nexit 0\n")
    dumb.chmod(0o755)
    for path in (tmp_path / "nothing", dumb):
        monkeypatch.setenv("TILEGEN_NVCC", str(path))
        with pytest.raises(CompileError, match=r"TILEGEN_NVCC is .* no nvcc answers there"):
            tg.compile(source())


def test_on_path_it_stands_in_for_nvrtc_only(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEGEN_NVCC", raising=False)
    monkeypatch.setenv("PATH", str(fake.path.parent) + os.pathsep + os.environ["PATH"])
    arch = registry.get("cuda").archs["sm_80"]
    if toolchain.nvrtc() is not None:
        assert toolchain.toolchain(arch).name == "NVRTC"
    monkeypatch.setattr(toolchain, "nvrtc", lambda: None)
    assert str(toolchain.toolchain(arch)) == "nvcc 13.0.88"
    assert toolchain.missing() == []
    monkeypatch.setenv("PATH", "")
    assert "neither NVRTC nor nvcc" in str(toolchain.toolchain(arch))


def test_a_replaced_nvcc_is_asked_again(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEGEN_NVCC", str(fake.path))
    assert nvcc.found() is not None
    fake.path.write_text(fake.path.read_text().replace("V13.0.88", "V13.1.2"))
    os.utime(fake.path, ns=(1, 1))
    found = nvcc.found()
    assert found is not None
    assert found.version == "13.1.2"


def test_the_command_line_asks_for_lines(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEGEN_NVCC", str(fake.path))
    words = ["build", str(EXAMPLES / "gemm_f32.toml"), "--backend", "cuda", "--arch", "sm_80"]
    assert cli.run([*words, "-o", str(tmp_path / "plain")]) == 0
    assert cli.run([*words, "--lineinfo", "-o", str(tmp_path / "lined")]) == 0
    flags = [
        json.loads((tmp_path / name / "manifest.json").read_text())["binary"]["flags"]
        for name in ("plain", "lined")
    ]
    assert flags[1] == f"{flags[0]} -lineinfo"


def test_a_compiler_without_lines_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    plan = tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(32, 32)), "opencl", "cpu")
    if not registry.get("opencl").devices():
        pytest.skip("no OpenCL device: pip install 'tilegen[cpu]'")
    with pytest.raises(CompileError, match="keeps no line numbers"):
        tg.compile(tg.emit(plan), lineinfo=True)


@needs_nvrtc
def test_nvrtc_keeps_lines_and_the_code_stays_the_same() -> None:
    text = source()
    plain, lined = tg.compile(text, cache=False), tg.compile(text, cache=False, lineinfo=True)
    assert plain.resources == lined.resources
    assert b".debug_line" in lined.data
    assert b".debug_line" not in plain.data
    # What runs without lines is loaded as it was asked for.
    assert tg.load(lined, "emulator").binary.lineinfo is False


@pytest.mark.skipif(REAL is None, reason="no nvcc: set TILEGEN_NVCC, or put one on PATH")
def test_a_real_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REAL is not None
    monkeypatch.setenv("TILEGEN_NVCC", REAL.path)
    binary = tg.compile(source(), cache=False, lineinfo=True)
    assert binary.data[:4] == b"\x7fELF"
    assert b".debug_line" in binary.data
    for said in binary.resources.values():
        assert said.registers is not None
        assert said.registers > 16
        assert said.spill_bytes == 0
