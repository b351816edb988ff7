"""CUDA texts through NVRTC, which needs no device: every arch, spills as predicted, the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
import tilegen.cli as cli
from tilegen import registry
from tilegen.errors import CompileError, SpecError
from tilegen.lower import attempt
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.toolchain import nvrtc

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install 'tilegen[cuda]'")
F64 = {"types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64")}


def compiled(arch: str, **data: Any) -> tg.KernelBinary:
    return tg.compile(tg.emit(tg.lower(tg.TileSpec(**data), "cuda", arch)), cache=False)


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_every_arch(arch: str) -> None:
    binary = compiled(
        arch,
        block=(64, 64, 16),
        warp=(32, 32),
        batch="strided",
        epilogue=[{"op": "bias"}, {"op": "gelu"}, {"op": "residual"}],
    )
    assert binary.data[:4] == b"\x7fELF"
    for said in binary.resources.values():
        assert said.spill_bytes == 0
        assert said.registers is not None
        assert 16 < said.registers <= 255
        assert said.shared_bytes == binary.source.plan.budget.shared_bytes


@needs_nvrtc
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("step", ["gelu", "gelu_tanh", "silu", "relu"])
def test_every_epilogue_step(step: str, kind: str) -> None:
    types = dict.fromkeys(("a", "b", "acc", "c", "d"), kind)
    compiled("sm_75", block=(32, 32, 8), warp=(16, 16), types=types, epilogue=[{"op": step}])


@needs_nvrtc
def test_dynamic_shared_memory_is_told_beside_what_ptxas_says() -> None:
    binary = compiled("sm_80", block=(128, 128, 16), warp=(64, 32), stages=4)
    for said in binary.resources.values():
        assert said.shared_bytes == 0
        planned = binary.source.plan.budget.shared_bytes
        assert said.extra == {"bytes of dynamic shared memory": planned}


@needs_nvrtc
@pytest.mark.parametrize(
    "tile",
    [
        {"block": (128, 128, 16), "warp": (64, 32)},
        {"block": (256, 128, 16), "warp": (64, 64)},
        {"block": (64, 64, 8), "warp": (32, 16)},
        {"block": (64, 64, 16), "warp": (32, 32), **F64},
    ],
    ids=str,
)
def test_what_is_predicted_not_to_spill_does_not(tile: dict[str, Any]) -> None:
    binary = compiled("sm_80", **tile)
    use = binary.source.plan.budget.registers[0]
    for said in binary.resources.values():
        assert said.spill_bytes == 0
        assert said.registers is not None
        assert abs(said.registers - use.predicted) <= 48


BF16 = {"types": {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16"}}
# NVRTC 13.0: 128, 106, 106 and 126 registers.
PREDICTED = [{"block": (64, 64, 64), "warp": (32, 32), **BF16}]


@needs_nvrtc
@pytest.mark.parametrize("tile", PREDICTED, ids=str)
def test_each_entry_takes_about_what_is_predicted_of_it(tile: dict[str, Any]) -> None:
    binary = compiled("sm_80", stages=3, **tile)
    (use,) = binary.source.plan.budget.registers
    assert not use.doubtful
    for entry in binary.source.plan.main_entries:
        said = binary.resources[entry.name]
        assert said.spill_bytes == 0
        assert said.registers is not None
        assert abs(said.registers - use.of(entry.variant)) <= 16, (entry.variant, use)
    assert use.predicted == max(use.entries.values())


@needs_nvrtc
def test_more_steps_of_k_than_registers_for_their_addresses_spill() -> None:
    # NVRTC 13.0: 32 bytes with 64 steps, which take it long; none with 16, of which the plan is sure.
    backend, arch = registry.get("cuda"), registry.get("cuda").archs["sm_90"]
    told = {}
    for depth in (256, 1024):
        spec = tg.TileSpec(block=(16, 16, depth), warp=(16, 16), stages=1, **BF16)
        plan, _ = attempt(spec, backend, arch, ("registers",))
        assert plan is not None
        (use,) = plan.budget.registers
        told[depth] = use.spills, use.doubtful
        if depth == 256:
            said = tg.compile(tg.emit(plan)).resources[plan.main_entries[0].name]
            assert said.spill_bytes == 0
    assert told == {256: (False, False), 1024: (True, False)}


@needs_nvrtc
def test_a_refused_text_keeps_the_log() -> None:
    from dataclasses import replace

    source = tg.emit(tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", "sm_80"))
    broken = replace(source, text=source.text.replace("using element = float;", ""))
    with pytest.raises(CompileError, match="NVRTC refuses the text") as raised:
        tg.compile(broken, cache=False)
    assert 'identifier "element" is undefined' in raised.value.log
    assert "--gpu-architecture=sm_80" in raised.value.flags


def test_without_nvrtc_the_sentence_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import tilegen_cuda.toolchain as toolchain

    monkeypatch.setattr(toolchain, "nvrtc", lambda: None)
    monkeypatch.setattr(toolchain.nvcc, "found", lambda: None)
    source = tg.emit(tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", "sm_80"))
    with pytest.raises(CompileError, match=r"pip install 'tilegen\[cuda\]'"):
        tg.compile(source)
    assert [m.what for m in registry.get("cuda").missing()] == [
        "NVRTC, which compiles CUDA C++ without a GPU"
    ]
    # The emulator compiles the text itself.
    kernel = tg.load(source, "emulator")
    a, b = np.ones((20, 30), np.float32), np.ones((30, 10), np.float32)
    assert (kernel(a, b) == 30).all()


@pytest.mark.parametrize("there", [pytest.param(True, marks=needs_nvrtc), False])
def test_build_and_verify_without_a_gpu(
    there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tilegen_cuda.toolchain as toolchain

    if not there:
        monkeypatch.setattr(toolchain, "nvrtc", lambda: None)
        monkeypatch.setattr(toolchain.nvcc, "found", lambda: None)
    words = ["build", str(EXAMPLES / "gemm_f32.toml"), "--backend", "cuda", "--arch", "sm_80",
             "--verify", "--examples", "6", "-d", "emulator", "-o", str(tmp_path)]  # fmt: skip
    assert cli.run(words) == 0
    said = capsys.readouterr().out
    assert "checked on the emulator (emulator), cuda sm_80: gemm_f32" in said
    cubins = list(tmp_path.glob("*.cubin"))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["arch"] == "sm_80"
    assert [path.read_bytes()[:4] for path in cubins] == [b"\x7fELF"] * there
    assert (manifest["binary"] is not None) == there
    again = tg.load(tmp_path, "emulator")
    a, b = np.ones((20, 30), np.float32), np.ones((30, 10), np.float32)
    assert (again(a, b) == 30).all()
    assert (tg.load(tmp_path / "manifest.json", "emulator")(a, b) == 30).all()
    with pytest.raises(SpecError, match=r"it is a file; name the folder.*manifest\.json"):
        tg.load(next(tmp_path.glob("*.cu")), "emulator")


def test_what_was_built_is_written_where_nothing_can_run_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEGEN_CXX", "/bin/false")
    words = ["build", str(EXAMPLES / "gemm_f32.toml"), "--backend", "cuda", "--arch", "sm_80",
             "--verify", "-d", "emulator", "-o", str(tmp_path)]  # fmt: skip
    assert cli.run(words) == 2
    why = "TILEGEN_CXX='/bin/false' does not run as a C++ compiler"
    assert capsys.readouterr().err == f"tilegen: the verification could not run: {why}\n"
    assert list(tmp_path.glob("*.cu"))
    assert json.loads((tmp_path / "manifest.json").read_text())["arch"] == "sm_80"
    assert cli.run([*words, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["unverified"], told["reports"]) == (why, [])


def test_a_fault_in_the_text_is_named_by_line() -> None:
    from dataclasses import replace

    source = tg.emit(tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", "sm_80"))
    barrier = "        __syncthreads();\n"
    assert source.text.count(barrier) == 1
    kernel = tg.load(replace(source, text=source.text.replace(barrier, "")), "emulator")
    a, b = np.ones((32, 32), np.float32), np.ones((32, 32), np.float32)
    with pytest.raises(tg.VerifyError, match=r"the emulator found line \d+: data-race"):
        kernel(a, b)


def test_shared_memory_of_one_entry_is_not_counted_for_the_other() -> None:
    """48 KiB of the 64 that a block of sm_75 can have: both entries in one text use the same."""
    spec = tg.TileSpec(block=(128, 128, 16), warp=(64, 32), stages=3)
    plan = tg.lower(spec, "cuda", "sm_75")
    assert (plan.budget.shared_bytes, plan.arch.shared_bytes) == (48 * 1024, 64 * 1024)
    a, b = np.ones((32, 32), np.float32), np.ones((32, 32), np.float32)
    assert (tg.load(tg.emit(plan), "emulator")(a, b) == 32).all()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_launch_header_says_the_same_in_c(tmp_path: Path) -> None:
    source = tg.emit(
        tg.lower(tg.TileSpec(block=(128, 128, 16), warp=(64, 32), stages=4), "cuda", "sm_80")
    )
    header = registry.get("cuda").launch_header(source)
    assert '#define GEMM_ARCH "sm_80"' in header
    (tmp_path / "kernel.h").write_text(header)
    (tmp_path / "main.c").write_text(
        """#include <stdio.h>
#include "kernel.h"
int main(void)
{
    tilegen_operand wide = {4096, 128, 0, 1}, odd = {4100, 128, 0, 1};
    printf("%d %d %d %d %lld %d %d %d\\n", GEMM_WIDE_BLOCK, GEMM_WIDE_SHARED_BYTES, GEMM_WIDE_DYNAMIC_BYTES,
           GEMM_WIDE_ARGS, (long long)gemm_wide_grid(300, 200, 50, 1),
           gemm_wide_accepts(&wide, &wide, NULL, &wide), gemm_wide_accepts(&wide, &odd, NULL, &wide),
           gemm_narrow_accepts(&wide, &odd, NULL, &wide));
    return 0;
}
"""
    )
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True)
    entry = source.plan.entries[0]
    assert said.stdout.split() == [
        "256", str(entry.shared_bytes), str(entry.shared_bytes), str(len(entry.arguments)),
        str(entry.grid(M=300, N=200, K=50, batch=1)), "1", "0", "1",
    ]  # fmt: skip


def mma(a: str, acc: str = "f32", d: str = "", **data: Any) -> dict[str, Any]:
    """A small spec of the mma_sync form; D is of A's type unless it is named."""
    types = {"a": a, "b": a, "acc": acc, "c": d or a, "d": d or a}
    return {"block": (64, 64, 32), "warp": (32, 32), "types": types, **data}


STEPS = [{"op": "bias"}, {"op": "gelu"}, {"op": "residual"}]
TURNED = {"a": "col", "b": "row", "d": "col"}
# Small tiles, since compiling takes its time, and a large one; each arch is there.
MMA_CASES = [
    ("sm_75", mma("f16", "f16", layout=TURNED, split_k=2)),
    ("sm_75", mma("f16", block=(32, 32, 16), warp=(16, 32), stages=1)),
    ("sm_80", mma("bf16", layout=TURNED, split_k=2, batch="strided", epilogue=STEPS[:1])),
    ("sm_86", mma("tf32", d="f32", layout=TURNED)),
    ("sm_89", mma("e4m3", d="f16", layout=TURNED)),
    ("sm_90", mma("e5m2", d="bf16", stages=1)),
    ("sm_90a", mma("s8", "s32", layout=TURNED)),
    ("sm_90a", mma("bf16", block=(128, 256, 32), warp=(64, 64), stages=3)),
    ("sm_100", mma("f64", "f64", block=(32, 64, 16), warp=(16, 32))),
    ("sm_120", mma("f16", batch="strided", epilogue=STEPS)),
    ("sm_120", mma("u8", "s32", "s32", pins={"cuda": {"epilogue": "shared"}})),
]
assert {arch for arch, _ in MMA_CASES} == set(ARCHS)


def what(x: Any) -> str:
    return x if isinstance(x, str) else "-".join([*x["types"].values(), *map(str, x["block"])])


@needs_nvrtc
@pytest.mark.parametrize(("arch", "data"), MMA_CASES, ids=what)
def test_mma_kernels_take_what_is_planned(arch: str, data: dict[str, Any]) -> None:
    binary = compiled(arch, **data)
    plan = binary.source.plan
    assert plan.form == "mma_sync"
    assert binary.data[:4] == b"\x7fELF"
    assert "warning" not in binary.log
    assert list(binary.resources) == [e.name for e in plan.entries]
    dynamic = plan.budget.shared_bytes > 48 * 1024
    for entry in plan.entries:
        said = binary.resources[entry.name]
        assert (said.spill_bytes, said.stack_bytes) == (0, 0)
        assert said.registers is not None
        assert said.registers <= plan.budget.registers[0].limit
        main = entry.role == "main"
        assert said.shared_bytes == (plan.budget.shared_bytes if main and not dynamic else 0)
        if main and dynamic:
            planned = {"bytes of dynamic shared memory": plan.budget.shared_bytes}
            assert said.extra == planned
