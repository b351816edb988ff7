"""``tilegen check`` with real compilers: spills that fail, suggestions that really pass, foreign kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from unit.test_check import SCHEMA

import tilegen as tg
from tilegen import registry, rules
from tilegen.backend import Toolchain
from tilegen.checklist import Launch
from tilegen.checklist.nearest import changed, nearest_passing, passes
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.foreign import compile_text, include_folders
from tilegen_cuda.toolchain import nvrtc

ROOT = Path(__file__).parents[2]
SPEC = str(ROOT / "examples" / "gemm_f32.toml")
LADDER = ROOT / "examples" / "05_emulator"
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install 'tilegen[cuda]'")
needs_headers = pytest.mark.skipif(
    not list(include_folders()), reason="no CUDA headers: pip install nvidia-cuda-runtime"
)
# Specs for which NVRTC 13.0 spills; the rule for registers, which refuses some of them, is left out.
SPILLING: dict[str, dict[str, Any]] = {
    "a pin": {"block": (128, 64, 16), "warp": (64, 32), "pins": {"cuda": {"min_blocks": 3}}},
    "a tile": {
        "block": (64, 128, 8),
        "warp": (32, 64),
        "types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64"),
        "pins": {"cuda": {"form": "fma"}},
    },
    "an epilogue": {
        "block": (256, 128, 16),
        "warp": (64, 64),
        "batch": "strided",
        "epilogue": [{"op": "bias"}, {"op": "gelu"}, {"op": "residual"}],
    },
}
# TM x TN sums a thread: far more than registers where both are large.
OUTER = """
template <int UNUSED>
__global__ void other(float* x) { x[threadIdx.x] = UNUSED; }

extern "C" __global__ void __launch_bounds__(256)
outer(const float* a, const float* b, float* d, int n, int k)
{
    float sums[TM][TN] = {};
    for (int i = 0; i < k; ++i)
        #pragma unroll
        for (int r = 0; r < TM; ++r)
            #pragma unroll
            for (int c = 0; c < TN; ++c)
                sums[r][c] += a[i * n + threadIdx.x * TM + r] * b[i * n + c];
    #pragma unroll
    for (int r = 0; r < TM; ++r)
        #pragma unroll
        for (int c = 0; c < TN; ++c)
            d[(threadIdx.x * TM + r) * n + c] = sums[r][c];
}
"""


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    path = tmp_path / "outer.cu"
    path.write_text(OUTER)
    return path


@pytest.fixture
def unruled(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Plans whatever the rule for registers would refuse."""
    kept = tuple(rule for rule in rules.RULES if rule is not rules.registers_fit)
    monkeypatch.setattr(rules, "RULES", kept)
    return monkeypatch


# ---- specs ---------------------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100"])
def test_a_spec_that_fits(arch: str) -> None:
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), stages=2)
    report = tg.check(spec, "cuda", arch, count=False, profile=False)
    assert report.passed, report
    assert report.suggestion is None
    assert report.compiler.startswith("NVRTC")
    for item in ("registers", "spills", "stack frame", "shared memory", "occupancy"):
        assert len(report.find(item)) == 2
        assert all(line.measured is not None for line in report.find(item))


@needs_nvrtc
@pytest.mark.parametrize("name", SPILLING)
@pytest.mark.usefixtures("unruled")
def test_a_spill_fails_and_the_suggestion_really_passes(name: str) -> None:
    spec = tg.TileSpec(**SPILLING[name])
    report = tg.check(spec, "cuda", "sm_90", count=False, profile=False)
    if report.passed:
        pytest.skip(f"{report.compiler} does not spill here, as NVRTC 13.0 does")
    assert {line.item for line in report.failures} == {"spills", "stack frame"}
    assert report.suggestion is not None
    assert report.suggestion.changes, report
    mended = changed(spec, report.suggestion.changes)
    again = tg.check(mended, "cuda", "sm_90", count=False, profile=False)
    assert again.passed, again
    assert "nearest that passes" in str(report)


@needs_nvrtc
def test_what_the_rules_would_refuse_spills_with_any_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = tuple(rule for rule in rules.RULES if rule is not rules.registers_fit)
    monkeypatch.setattr(rules, "RULES", kept)
    pins = {"cuda": {"min_blocks": 4}}
    spec = tg.TileSpec(block=(128, 128, 8), warp=(64, 64), stages=1, pins=pins)
    report = tg.check(spec, "cuda", "sm_80", count=False, profile=False)
    assert not report.passed
    (line, *_) = report.find("spills")
    assert (line.predicted, line.verdict) == ("some", "FAIL")
    assert report.suggestion is not None
    mended = changed(spec, report.suggestion.changes)
    assert tg.check(mended, "cuda", "sm_80", count=False, profile=False).passed


@needs_nvrtc
@pytest.mark.usefixtures("unruled")
def test_what_was_tried_before_the_suggestion_does_not_pass() -> None:
    spec = tg.TileSpec(**SPILLING["a pin"])
    plan, backend = tg.lower(spec, "cuda", "sm_90"), registry.get("cuda")
    found = nearest_passing(plan)
    assert found.tried >= 1
    assert nearest_passing(plan, most=found.tried - 1).changes == {}
    mended = tg.lower(changed(spec, found.changes), "cuda", "sm_90")
    assert passes(backend, mended)


def test_without_a_compiler_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    there_is_none = Toolchain("none", missing="no compiler: pip install 'tilegen[cuda]'")
    backend = type(registry.get("cuda"))
    monkeypatch.setattr(backend, "toolchain", lambda *_, **__: there_is_none)
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32))
    report = tg.check(spec, "cuda", "sm_80", count=False, profile=False)
    assert report.passed
    (line, *_) = report.find("registers")
    assert (line.verdict, line.note) == ("not measured", there_is_none.missing)


@pytest.mark.skipif(not registry.get("opencl").devices(), reason="no OpenCL device")
def test_opencl_says_what_its_runtime_reports() -> None:
    report = tg.check(tg.TileSpec(block=(64, 64, 16), warp=(32, 32)), "opencl", "cpu")
    assert report.passed, report
    (line, *_) = report.find("registers")
    assert line.verdict == "not measured"
    assert "does not report registers" in line.note
    assert [x.verdict for x in report.find("launch bounds")] == ["pass", "pass"]
    assert all(x.measured is not None for x in report.find("private memory"))


# ---- the command line ----------------------------------------------------------------------------


@needs_nvrtc
def test_the_command_passes_fails_and_refuses(
    run, tmp_path: Path, unruled: pytest.MonkeyPatch
) -> None:
    status, out, _ = run("check", SPEC, "-b", "cuda", "-a", "sm_80")
    assert status == 0
    assert out.splitlines()[-1].startswith("passed: ")
    path = tmp_path / "s.toml"
    path.write_text(tg.TileSpec(**SPILLING["a pin"]).to_toml())
    status, out, err = run("check", path, "-b", "cuda", "-a", "sm_90", "--json")
    assert (status, err) == (1, "")
    told = json.loads(out)
    jsonschema.validate(told, SCHEMA)
    assert not told["passed"]
    assert told["suggestion"]["changes"] == {"pins.cuda.min_blocks": 2}
    unruled.undo()
    path.write_text("block = [128, 128, 16]\nwarp = [128, 128]\n")
    status, out, err = run("check", path, "-b", "cuda", "-a", "sm_80")
    assert (status, out) == (2, "")
    assert "the kernel would spill" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((SPEC,), "--backend"),
        ((SPEC, "-b", "cuda", "--entry", "gemm"), "--entry is for kernel files"),
        ((SPEC, "-b", "cudaa"), "did you mean 'cuda'"),
        (("nothing.cu",), "no such file"),
        (("kernel.f90",), "taken from .cu files"),
        ((str(LADDER / "01_naive.cu"), "--arch", "sm_81"), "sm_81"),
        ((str(LADDER / "01_naive.cu"), "--gemm", "A B"), "D and CD"),
        ((str(LADDER / "01_naive.cu"), "--gemm", "A B D"), "--gemm needs --entry"),
        ((str(LADDER / "01_naive.cu"), "--grid", "M/32"), "--grid"),
        ((str(LADDER / "01_naive.cu"), "--block", "0"), "--block"),
        ((str(LADDER / "01_naive.cu"), "--gemm", "A B D", "--multiple", "0,1,1"), "--multiple"),
        ((str(LADDER / "01_naive.cu"), "--entry", "gem"), "'gem' is no kernel"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else None,
)
@needs_nvrtc
def test_wrong_requests(run, words: tuple[str, ...], says: str) -> None:
    status, out, err = run("check", *words)
    assert (status, out) == (2, ""), out
    assert says in err


# ---- foreign kernels -----------------------------------------------------------------------------


@needs_nvrtc
@needs_headers
@pytest.mark.parametrize("path", sorted(LADDER.glob("*.cu")), ids=lambda path: path.stem)
def test_the_ladder_compiles(path: Path) -> None:
    entry = {"02": "gemm<16>", "05": "gemm<64, 64, 8, 4, 4>"}.get(path.stem[:2], "gemm")
    report = tg.check(path, arch="sm_80", launch=Launch(entry=entry, block=(256,)))
    assert report.passed, report
    (line,) = report.find("registers")
    assert line.where == entry
    assert isinstance(line.measured, int)
    assert 16 <= line.measured <= 255
    assert report.find("occupancy")[0].verdict == "info"
    (emulator,) = report.find("emulator")
    assert "--grid, --arg would" in emulator.note


@needs_nvrtc
def test_a_foreign_spill_fails_and_the_nearest_macros_really_pass(outer: Path, run) -> None:
    words = ("check", outer, "--arch", "sm_80", "--entry", "outer", "--block", "256")
    status, out, _ = run(*words, "-D", "TM=32", "-D", "TN=16", "--json")
    assert status == 1
    told = json.loads(out)
    jsonschema.validate(told, SCHEMA)
    assert {x["item"] for x in told["lines"] if x["verdict"] == "FAIL"} == {"spills"}
    macros = {"TM": 32, "TN": 16, **told["suggestion"]["changes"]}
    assert macros != {"TM": 32, "TN": 16}
    assert run(*words, *(f"-D{name}={value}" for name, value in macros.items()))[0] == 0
    # One halving less does not pass.
    assert macros["TM"] * macros["TN"] == 32 * 16 // 4
    assert run(*words, "-D", "TM=16", "-D", "TN=16")[0] == 1


@needs_nvrtc
def test_a_template_that_nobody_names_has_no_kernel(tmp_path: Path) -> None:
    path = tmp_path / "t.cu"
    path.write_text("template <int N> __global__ void k(float* x) { x[N] = 1; }\n")
    (line,) = tg.check(path, arch="sm_80").find("compiler")
    assert "--entry names an instance" in line.note
    (line,) = tg.check(path, arch="sm_80", launch=Launch(entry="k<3>")).find("registers")
    assert line.where == "k<3>"


@needs_nvrtc
def test_what_nvrtc_refuses(run, tmp_path: Path) -> None:
    path = tmp_path / "t.cu"
    path.write_text("__global__ void k(float* x) { x[0] = nothing; }\n")
    status, _, err = run("check", path, "--arch", "sm_80")
    assert status == 2
    assert 'identifier "nothing" is undefined' in err


@needs_nvrtc
def test_headers_that_are_not_here_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.cu"
    path.write_text('#include "cuda_absent.h"\n__global__ void k(float* x) { x[0] = 1; }\n')
    (line,) = tg.check(path, arch="sm_80").find("compiler")
    assert line.verdict == "not measured"
    assert "includes cuda_absent.h, which is not here: python -m pip install nvidia" in line.note
    (tmp_path / "cuda_absent.h").write_text("#define SIZE 4\n")
    assert tg.check(path, arch="sm_80").find("registers")


@needs_nvrtc
def test_every_kernel_of_a_text_has_its_numbers(tmp_path: Path) -> None:
    text = """
namespace inner { __global__ void first(float* x) { x[threadIdx.x] = 1; } }
extern "C" __global__ void second(double* x) { extern __shared__ double s[]; s[0] = x[0]; x[1] = s[0]; }
"""
    found = compile_text(text, "t.cu", ARCHS["sm_80"], [], [])
    assert list(found.resources) == ["inner::first", "second"]
    named = compile_text(text, "t.cu", ARCHS["sm_80"], ["second"], [])
    assert list(named.resources) == ["second", "inner::first"]
