"""Sweeping with compilers: cold and warm, one point that fails, a process that dies, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
import tilegen.cli as cli
from tilegen import registry
from tilegen.sweep.workers import compile_all
from tilegen_cuda.toolchain import nvrtc

RUN = import_module("tilegen.sweep.run")
F32 = str(Path(__file__).parents[2] / "examples" / "gemm_f32.toml")
SPEC = tg.TileSpec(block=(32, 32, 8), warp=(16, 16))
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install 'tilegen[cuda]'")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "cache"))


def swept(**more: Any) -> tg.Sweep:
    return tg.sweep(SPEC, backend="cuda", arch="sm_90", stages=[1, 2, 3], jobs=2, **more)


@needs_nvrtc
def test_cold_then_warm() -> None:
    seen: list[tuple[int, int]] = []
    cold = swept(progress=lambda done, of: seen.append((done, of)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert (len(cold), cold.processes, cold.failed) == (3, 2, ())
    assert cold.compiler == f"NVRTC {cold.compiler.split()[1]}"
    for row in cold:
        assert row.compiled is not None
        assert row.compiled.registers is not None
        assert row.compiled.registers > 16
        assert row.compiled.spill_bytes == 0
        assert row.compiled.shared_bytes == row.plan.budget.shared_bytes
        assert row.compiled.seconds is not None
        assert row.compiled.seconds > 0
        # What a build of the same spec would say.
        said = tg.compile(tg.emit(row.plan))
        assert said.cached
        assert said.resources == row.compiled.entries
    warm = swept()
    assert warm.processes == 0
    assert [row.compiled and row.compiled.seconds for row in warm] == [None] * 3
    assert [row.compiled and row.compiled.registers for row in warm] == [
        row.compiled and row.compiled.registers for row in cold
    ]


@needs_nvrtc
def test_dynamic_shared_memory_counts() -> None:
    spec = tg.TileSpec(block=(64, 64, 64), warp=(32, 32), stages=2)
    (row,) = tg.sweep(spec, backend="cuda", arch="sm_80")
    assert row.compiled is not None
    assert row.compiled.shared_bytes == row.plan.budget.shared_bytes > 48 * 1024


@needs_nvrtc
def test_one_point_that_does_not_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    emit = tg.emit

    def emitted(plan: tg.KernelPlan) -> tg.KernelSource:
        source = emit(plan)
        broken = source.text.replace("using element = float;", "")
        return source if plan.pipeline.stages != 2 else replace(source, text=broken)

    monkeypatch.setattr(RUN, "emit", emitted)
    found = swept()
    (failed,) = found.failed
    assert failed.plan.pipeline.stages == 2
    assert failed.error.startswith("NVRTC refuses the text of gemm_f32")
    assert 'identifier "element" is undefined' in failed.error
    assert found.rows[-1] is failed
    assert sum(row.compiled is not None for row in found) == 2
    words = ["sweep", F32, "-b", "cuda", "-a", "sm_90", "--block", "32x32x8", "--warp", "16x16"]
    assert cli.run([*words, "--stages", "1,2"]) == 1
    assert "failed   block 32x32x8, warp 16x16, stages 2: NVRTC" in capsys.readouterr().out


class Deadly:
    """Ends the process that unpickles it, as a compiler that crashes would."""

    def __reduce__(self) -> Any:
        return os._exit, (7,)


@needs_nvrtc
def test_a_process_that_dies_takes_one_point_with_it() -> None:
    sources: list[Any] = [tg.emit(tg.lower(SPEC, "cuda", "sm_90")), Deadly()]
    sources.append(tg.emit(tg.lower(SPEC.replace(stages=1), "cuda", "sm_90")))
    answers = dict(compile_all(sources, 1))
    assert answers[1][2] == "the process that compiled it ended with status 7"
    assert [answers[i][2] for i in (0, 2)] == ["", ""]
    assert all(answers[i][0]["gemm_wide"].registers for i in (0, 2))


@needs_nvrtc
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["sweep", F32, "-b", "cuda", "-a", "sm_90", "--block", "32x32x8,64x32x8",
             "--warp", "16x16,24x16", "--set", "pins.cuda.swizzle=pad,xor", "--refused",
             "-o", str(tmp_path / "a.svg"), "-o", str(tmp_path / "a.json"),
             "--csv", str(tmp_path / "a.table")]  # fmt: skip
    assert cli.run(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("cuda sm_90, compiled by NVRTC")
    assert "4 of 8 points are legal; refused: warps 4" in said
    assert said.count("refused  warps: ") == 4
    assert len((tmp_path / "a.table").read_text().splitlines()) == 5
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert {row["pins.cuda.swizzle"] for row in rows} == {"pad", "xor"}
    assert rows[0]["entries"]["gemm_wide"]["registers"] <= rows[0]["registers"]
    assert "compiled" in (tmp_path / "a.svg").read_text()
    assert cli.run([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["processes"] == 0
    assert [r["registers"] for r in again["rows"]] == [r["registers"] for r in rows]


@needs_nvrtc
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_ctrl_c_ends_it_with_its_processes() -> None:
    # The process says the number of the one that it starts.
    code = """
import sys
from importlib import import_module
import tilegen.cli as cli
workers = import_module("tilegen.sweep.workers")
popen = workers.subprocess.Popen
def told(*arguments, **more):
    process = popen(*arguments, **more)
    print(process.pid, flush=True)
    return process
workers.subprocess.Popen = told
sys.exit(cli.run(sys.argv[1:]))
"""
    words = ["sweep", F32, "-b", "cuda", "-a", "sm_90", "--block", "128x128x16,128x64x16",
             "--stages", "2,3,4", "-j", "1"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")
    assert err == b"tilegen: interrupted\n"
    until = time.monotonic() + 10
    while runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(child)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_opencl_says_what_its_compiler_says() -> None:
    plugin = registry.get("opencl")
    if plugin.toolchain(plugin.archs["cpu"]).missing:
        pytest.skip("no OpenCL runtime for the CPU: pip install 'tilegen[cpu]'")
    found = tg.sweep(
        SPEC, backend="opencl", arch="cpu", set={"pins.opencl.fragment": [(2, 1), (4, 1)]}
    )
    assert len(found) == 2
    for row in found:
        assert row.compiled is not None
        assert row.compiled.registers is None
        assert row.compiled.private_bytes
        assert row.compiled.occupancy is None
    assert "private" in str(found)
    assert "spilled" not in str(found)
