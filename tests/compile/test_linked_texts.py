"""Texts of different names go into one file and into one program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import emulator
from tilegen_cuda import nvcc, toolchain
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.foreign import compile_text

ARCH = "sm_90a"
NVCC = nvcc.found()
needs_nvrtc = pytest.mark.skipif(
    toolchain.nvrtc() is None, reason="no NVRTC: pip install 'tilegen[cuda]'"
)
BIAS, GELU, CLAMP = {"op": "bias"}, {"op": "gelu"}, {"op": "clamp", "low": -1.0, "high": 6.0}


def types(a: str, acc: str, c: str) -> dict[str, str]:
    return {"a": a, "b": a, "acc": acc, "c": c}


SPECS: dict[str, dict[str, Any]] = {
    "fma_static": {
        "block": (32, 32, 8), "warp": (16, 16), "epilogue": [GELU, CLAMP], "pins": {"cuda": {"form": "fma"}},
    },
    "fma_dynamic": {
        "block": (32, 32, 32), "warp": (16, 16), "stages": 4, "types": types("f64", "f64", "f64"),
        "pins": {"cuda": {"form": "fma"}},
    },
    "mma_static": {
        "block": (32, 32, 32), "warp": (16, 32), "batch": "strided", "types": types("s8", "s32", "s8"),
        "epilogue": [BIAS, GELU],
    },
    "mma_dynamic": {
        "block": (32, 32, 128), "warp": (16, 32), "stages": 4, "types": types("bf16", "f32", "bf16"),
        "epilogue": [BIAS, CLAMP],
    },
    "mma_split_k": {
        "block": (32, 32, 32), "warp": (16, 32), "split_k": 2, "types": types("tf32", "f32", "f32"),
        "layout": {"a": "col", "d": "col"},
    },
}  # fmt: skip


def emitted(name: str, called: str = "") -> tg.KernelSource:
    return tg.emit(tg.lower(tg.TileSpec(name=called or name, **SPECS[name]), "cuda", ARCH))


def test_the_specs_are_what_their_names_say() -> None:
    for name in SPECS:
        plan = emitted(name).plan
        assert name.startswith("fma") == (plan.form == "fma")
        assert ("dynamic" in name) == (plan.numbers["DYNAMIC_BYTES"] > 0)
        assert ("split_k" in name) == (plan.split_k > 1)
        assert [e.name.startswith(f"{name}_") for e in plan.entries] == [True] * len(plan.entries)


@needs_nvrtc
def test_all_texts_in_one_file_compile_to_what_each_does_alone() -> None:
    """Registers, spills, shared memory: of each entry the same."""
    sources = [emitted(name) for name in SPECS]
    kernels = [e.symbol for source in sources for e in source.entries]
    text = "".join(s.text for s in sources)
    together = compile_text(text, "all.cu", ARCHS[ARCH], kernels, ()).resources
    alone = [compile_text(s.text, "one.cu", ARCHS[ARCH], (), ()).resources for s in sources]
    assert together == {name: r for one in alone for name, r in one.items()}
    assert sorted(together) == sorted(kernels)


@needs_nvrtc
def test_two_texts_of_one_name_are_refused() -> None:
    text = emitted("fma_static", "same").text + emitted("mma_static", "same").text
    with pytest.raises(tg.CompileError, match="already been"):
        compile_text(text, "both.cu", ARCHS[ARCH], (), ())


@pytest.mark.skipif(NVCC is None, reason="no nvcc is here")
@pytest.mark.parametrize("separate", [False, True], ids=["whole program", "rdc"])
def test_texts_link_into_one_program(tmp_path: Path, separate: bool) -> None:
    """Two in one unit and one in another; the program asks CUDA for nothing."""
    assert NVCC is not None
    first, second, third = (emitted(n) for n in ("fma_dynamic", "mma_split_k", "fma_static"))
    for name, source in (("first", first), ("second", second), ("third", third)):
        (tmp_path / f"{name}.cu").write_text(source.text)
    (tmp_path / "unit.cu").write_text('#include "third.cu"\nvoid *of_unit() { return ENTRY; }\n')
    entries = [
        f"(void *){s.plan.spec.name}_kernel::{e.name}" for s in (first, second) for e in s.entries
    ]
    (tmp_path / "main.cu").write_text(
        '#include "first.cu"\n#include "second.cu"\nvoid *of_unit();\n'
        f"int main() {{ void *all[] = {{{', '.join(entries)}, of_unit()}};\n"
        "for (void *one : all) if (!one) return 1;\nreturn 0; }\n"
    )
    entry = f"-DENTRY=(void *)fma_static_kernel::{third.entries[0].name}"
    command = [NVCC.path, f"-arch={ARCH}", "-std=c++17", entry, *(["-rdc=true"] * separate)]
    subprocess.run([*command, "main.cu", "unit.cu", "-o", "all"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "all"], check=True)


def test_the_emulator_runs_both_of_one_file() -> None:
    """Dynamic arrays of two types, one of them in each namespace."""
    sources = [emitted("fma_dynamic"), emitted("mma_dynamic")]
    text = "".join(s.text for s in sources)
    m, n, k = 40, 24, 72
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    sums = a.astype(np.float64) @ b
    double = run_narrow(text, sources[0], {"a": a.astype(np.float64), "b": b.astype(np.float64)})
    np.testing.assert_array_equal(double, sums)
    # bf16 is the upper half of a float.
    bits = run_narrow(text, sources[1], {"a": halves(a), "b": halves(b)})
    clamped = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(clamped, np.clip(sums, -1, 6))


def halves(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def run_narrow(text: str, source: tg.KernelSource, operands: dict[str, Any]) -> Any:
    """D of the narrow entry: alpha is 1, beta 0, and a bias of zeros is added."""
    plan = source.plan
    entry = plan.main_entries[-1]
    (m, k), n, kind = operands["a"].shape, operands["b"].shape[1], operands["a"].dtype
    given = {**operands, "M": m, "N": n, "K": k, "alpha": 1.0, "beta": 0.0,
             "lda": k, "ldb": n, "ldc": n, "ldd": n,
             "bias": np.zeros(n, kind), "c": np.zeros((m, n), kind), "d": np.zeros((m, n), kind)}  # fmt: skip
    names = [x.name for x in entry.arguments]
    args = [given.get(name, 1) for name in names]
    run = emulator.run(
        text, entry=entry.name, grid=entry.grid(M=m, N=n, K=k, batch=1), block=entry.block,
        args=args, outputs=[names.index("d")],
        shared_bytes=plan.budget.shared_bytes, shared_limit=plan.arch.shared_bytes,
    )  # fmt: skip
    assert run.clean, str(run)
    return run.arrays[sum(isinstance(x, np.ndarray) for x in args[: names.index("d")])]
