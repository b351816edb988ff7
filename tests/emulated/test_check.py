"""``tilegen check`` on the emulator: what is counted was planned, and each fault breaks its clause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import emulator, registry
from tilegen.backend import Resources
from tilegen.checklist import Launch, Meaning, grid_of
from tilegen.checklist.support import ForeignBinary
from tilegen.emulator import AccessUse
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.counting import count

LADDER = Path(__file__).parents[2] / "examples" / "05_emulator"


# ---- what the counting run tells -----------------------------------------------------------------


def accesses(line: str, block: int = 32, **more: Any) -> tuple[AccessUse, ...]:
    text = f"""__global__ void k(const float* a, float* out, int n) {{
  {line}
}}"""
    arrays = [np.zeros(4096, np.float32), np.zeros(4096, np.float32)]
    run = emulator.run(
        text, entry="k", grid=1, block=block, args=[*arrays, 1], orders=[0], banks=True, **more
    )
    assert run.clean, run
    return run.accesses


@pytest.mark.parametrize(
    ("index", "sectors", "extra"),
    [
        ("threadIdx.x", 4, 0),
        ("threadIdx.x + 1", 5, 1),
        ("threadIdx.x * 2", 8, 4),
        ("threadIdx.x * 8", 32, 28),
        ("threadIdx.x / 8", 1, 0),
        ("31 - threadIdx.x", 4, 0),
        ("0", 1, 0),
    ],
)
def test_sectors_of_a_global_load(index: str, sectors: int, extra: int) -> None:
    use = next(u for u in accesses(f"out[threadIdx.x] = a[{index}];") if not u.writes)
    assert (use.space, use.argument, use.accesses, use.bytes) == ("global", 0, 1, 128)
    assert (use.served, use.extra) == (sectors, extra)


def test_stores_are_told_from_loads_and_warps_add_up() -> None:
    uses = accesses("out[threadIdx.x * 2] = a[threadIdx.x];", block=96)
    load, store = sorted(uses, key=lambda use: use.writes)
    assert (load.argument, load.accesses, load.served) == (0, 3, 12)
    assert (store.argument, store.accesses, store.served, store.extra) == (1, 3, 24, 12)


def test_an_asynchronous_copy_is_a_load_and_a_store_to_shared_memory() -> None:
    line = """__shared__ __align__(16) float s[1024];
  unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(s + threadIdx.x * 4 * STEP));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(a + threadIdx.x * 4) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (n == 0) out[0] = s[n];"""
    for step, extra in ((1, 0), (8, 28)):
        uses = accesses(line, defines=[f"STEP={step}"])
        load = next(u for u in uses if u.space == "global")
        store = next(u for u in uses if u.space == "shared")
        assert (load.argument, load.bytes, load.served, load.extra) == (0, 512, 16, 0)
        assert (store.writes, store.argument, store.served, store.extra) == (True, 0, 4, extra)


def test_ways_that_part_are_counted() -> None:
    text = """__global__ void k(float* out) {
  if (threadIdx.x % 2 < SPLIT) out[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = 2;
}"""
    for split, parted in ((1, 2), (2, 0)):
        run = emulator.run(text, entry="k", grid=1, block=64, args=[np.zeros(64, np.float32)],
                           orders=[0], banks=True, defines=[f"SPLIT={split}"])  # fmt: skip
        assert (run.counts["stretches"], run.counts["parted"]) == (4, parted)
    plain = emulator.run(text, entry="k", grid=1, block=64, args=[np.zeros(64, np.float32)],
                         orders=[0], defines=["SPLIT=1"])  # fmt: skip
    assert "parted" not in plain.counts


# ---- specs: counted is planned -------------------------------------------------------------------

SPECS: dict[str, dict[str, Any]] = {
    "rows": {"block": (64, 64, 16), "warp": (32, 32), "stages": 3},
    "columns": {
        "block": (64, 128, 8),
        "warp": (32, 64),
        "layout": {"a": "col", "b": "col", "c": "row"},
    },
    "conflicts": {
        "block": (64, 64, 16),
        "warp": (32, 32),
        "layout": {"a": "row", "b": "col", "c": "row"},
        "pins": {"cuda": {"swizzle": "none"}},
    },
    "doubles": {
        "block": (32, 64, 16),
        "warp": (16, 32),
        "types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64"),
        "pins": {"cuda": {"form": "fma"}},
    },
    "an epilogue": {
        "block": (32, 32, 8),
        "warp": (16, 32),
        "batch": "strided",
        "epilogue": [{"op": "bias"}, {"op": "residual"}],
        "layout": {"c": "col"},
    },
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_what_is_counted_was_planned(name: str, arch: str) -> None:
    report = tg.check(tg.TileSpec(**SPECS[name]), "cuda", arch, profile=False)
    assert report.passed, report
    (flop,) = report.find("FLOP per shared load")
    assert flop.measured == flop.predicted
    conflicts = report.find("bank conflicts")
    assert len(conflicts) == 4
    for line in conflicts:
        assert line.measured == line.predicted, line
    assert any(line.measured for line in conflicts) == (name == "conflicts")
    planned = [x for x in report.find("global access") if x.predicted is not None]
    assert {x.where for x in planned} == {"a, loads", "b, loads"}
    for line in planned:
        assert line.measured == line.predicted, line
    others = {x.where for x in report.find("global access")} - {"a, loads", "b, loads"}
    assert {
        "d, stores of gemm_wide",
        "c, loads of gemm_narrow",
        "a, loads of gemm_narrow",
    } <= others
    assert ("residual, loads of gemm_wide" in others) == (name == "an epilogue")
    assert [x.verdict for x in report.find("divergence")] == ["pass", "pass"]


HAS_MMA = any(f.name == "mma_sync" for f in registry.get("cuda").forms(ARCHS["sm_80"]))


@pytest.mark.skipif(not HAS_MMA, reason="the cuda backend has no form mma_sync")
@pytest.mark.parametrize("layout", [{"a": "row", "b": "col"}, {"a": "col", "b": "row"}], ids=str)
@pytest.mark.parametrize("types", [("bf16", "f32", "bf16"), ("s8", "s32", "s32")], ids=str)
def test_fragment_loads_are_counted_as_planned(
    types: tuple[str, str, str], layout: dict[str, str]
) -> None:
    a, acc, c = types
    spec = tg.TileSpec(
        block=(64, 64, 32),
        warp=(32, 32),
        stages=3,
        types={"a": a, "b": a, "acc": acc, "c": c},
        layout=layout,
    )
    report = tg.check(spec, "cuda", "sm_80", profile=False)
    assert report.passed, report
    (loads,) = report.find("fragment loads per mma")
    assert loads.measured == loads.predicted
    for where in ("a's tile, loads", "a's tile, stores", "b's tile, loads", "b's tile, stores"):
        (line,) = report.find("bank conflicts", where)
        assert line.measured == line.predicted


def test_a_fault_in_the_text_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    import tilegen.checklist.spec as module

    emitted = module.emit

    def without_barrier(plan: Any) -> Any:
        source = emitted(plan)
        return replace(source, text=source.text.replace("        __syncthreads();\n", ""))

    monkeypatch.setattr(module, "emit", without_barrier)
    spec = tg.TileSpec(block=(32, 32, 8), warp=(16, 16))
    report = tg.check(spec, "cuda", "sm_80", profile=False, suggest=False)
    assert not report.passed
    assert {x.item for x in report.failures} == {"emulator"}
    assert "data-race" in report.failures[0].note


def test_a_spec_without_a_host_compiler_says_what_brings_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tilegen.backend import Toolchain
    from tilegen_cuda.emulated import EmulatedDevice

    there_is_none = Toolchain("emulator", missing="the emulator needs a C++ compiler: install g++")
    monkeypatch.setattr(EmulatedDevice, "toolchain", lambda _: there_is_none)
    report = tg.check(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", "sm_80", profile=False)
    (line,) = report.find("divergence")
    assert (line.verdict, line.note) == ("not measured", there_is_none.missing)


def test_both_entries_are_counted_on_their_own() -> None:
    plan = tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(16, 16)), "cuda", "sm_80")
    wide, narrow = (count(tg.emit(plan), entry.name) for entry in plan.main_entries)
    assert wide.multiply_adds == narrow.multiply_adds

    def loads(found: Any) -> int:
        return sum(t.accesses for t in found.traffic if (t.space, t.operand) == ("global", "a"))

    assert loads(narrow) == 4 * loads(wide)


# ---- foreign kernels -----------------------------------------------------------------------------

GOOD = """
template <typename T>
__global__ void gemm(const T* A, int lda, const T* B, int ldb, float* C, int ldc, int M, int N, int K,
                     float alpha, float beta)
{
    __shared__ T a[8][9], b[8][9];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
    float sum = 0;
    for (int k0 = 0; k0 < (alpha == 0 ? 0 : K); k0 += 8) {
        a[y][x] = row < M && k0 + x < K ? A[row * lda + k0 + x] : T(0);
        b[y][x] = col < N && k0 + y < K ? B[(k0 + y) * ldb + col] : T(0);
        __syncthreads();
        for (int k = 0; k < 8; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();
    }
    if (row < M && col < N) {
        float value = alpha == 0 ? 0.0f : alpha * sum;
        if (beta != 0) value += beta * C[row * ldc + col];
        C[row * ldc + col] = value;
    }
}
"""
WORDS = "A lda B ldb CD ldc M N K alpha beta"
FAULTS = {
    # What is changed, into what, and the clause that names it.
    "a tail of K": ("k0 + y < K ?", "true ?", "tails of K"),
    "a tail of M": ("row < M && col < N) {", "col < N) {", "tails of M and N"),
    "C read where beta is 0": ("if (beta != 0) value", "value", "C unread where beta is 0"),
    "A read where alpha is 0": ("(alpha == 0 ? 0 : K)", "K", "A and B unread where alpha is 0"),
    "alpha forgotten": ("alpha * sum", "sum", "alpha"),
    "beta forgotten": ("beta * C[", "C[", "beta"),
    "lda for K": ("A[row * lda", "A[row * K", "leading dimensions"),
    "a barrier": ("        __syncthreads();\n    }", "    }", "whole tiles"),
    "rounded": ("sum += a", "sum += 0.999f * a", "whole tiles"),
    "NaN swallowed": ("float value = ", "if (sum != sum) sum = 0; float value = ",
                      "NaN and infinities pass through"),
}  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The compiler is not asked here: its answers are the compile tests'.
    from tilegen_cuda import checks

    def compiled(text: str, name: str, arch: Any, kernels: Any, defines: Any) -> ForeignBinary:
        known = Resources(registers=40, spill_bytes=0, stack_bytes=0, shared_bytes=576)
        return ForeignBinary({kernels[0]: known}, "", "none")

    monkeypatch.setattr(checks, "compile_text", compiled)

    def check(text: str, **more: Any) -> tg.CheckReport:
        path = tmp_path / "k.cu"
        path.write_text(text)
        options = {
            "entry": "gemm<float>",
            "grid": grid_of("(N+7)/8,(M+7)/8"),
            "block": (8, 8),
            "meaning": Meaning.parse(WORDS),
            **more,
        }
        return tg.check(path, arch="sm_80", launch=Launch(**options), examples=8)

    return check


def test_a_kernel_that_keeps_the_whole_contract(kernel) -> None:
    report = kernel(GOOD)
    assert report.passed, report
    contract = report.find("contract")
    assert len(contract) == 12
    assert {x.verdict for x in contract} == {"pass"}, report
    (emulated,) = report.find("emulator")
    assert emulated.verdict == "pass"
    assert {x.where for x in report.find("global access")} >= {"line 10, loads", "line 19, stores"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_breaks_its_clause(kernel, name: str) -> None:
    good, bad, clause = FAULTS[name]
    assert GOOD.count(good) == 1
    report = kernel(GOOD.replace(good, bad))
    assert not report.passed
    (line,) = report.find("contract", clause)
    assert line.verdict == "FAIL", report
    assert "M = " in line.note
    assert "Problem(" not in line.note


DYNAMIC = """// extern __shared__ float not_here[];
extern __shared__ float tiles[];
""" + GOOD.replace(
    "__shared__ T a[8][9], b[8][9];", "T (*a)[9] = (T (*)[9])tiles, (*b)[9] = a + 8;"
)


def test_dynamic_shared_memory_that_is_not_given_is_the_cause_that_is_told(kernel) -> None:
    report = kernel(DYNAMIC)
    (line,) = report.failures
    assert line == report.lines[0]
    assert (line.item, line.where, line.measured) == ("dynamic shared memory", "line 2", 0)
    assert "the launch gives none: --shared BYTES does; the emulator found line 12" in line.note
    assert {x.verdict for x in (*report.find("emulator"), *report.find("contract"))} == {
        "not measured"
    }
    given = kernel(DYNAMIC, shared_bytes=576)
    assert given.passed, given
    assert not given.find("dynamic shared memory")
    # One that this kernel does not use is only told of.
    unused = kernel("extern __shared__ float tiles[];" + GOOD)
    assert unused.passed, unused
    assert unused.lines[0].verdict == "info"
    # How many blocks fit, and what is measured, is told of the file alone too.
    alone = tg.check(LADDER / "08_double_buffered.cu", arch="sm_80", launch=Launch(entry="gemm"))
    assert alone.lines[0].item == "dynamic shared memory"


def test_a_kernel_that_does_not_end_is_run_once(kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    started = emulator.runs._Started

    def counted(executable: Path, launch: Any) -> Any:
        runs.append(executable.name)
        return started(executable, launch)

    monkeypatch.setattr(emulator.runs, "_Started", counted)
    monkeypatch.setattr(emulator.runs, "LOOP_SECONDS", 0.3)
    report = kernel(GOOD.replace("float sum = 0;", "float sum = 0; while (K) if (M < 0) break;"))
    (line,) = report.failures
    assert (line.item, line.measured) == ("emulator", "endless-loop")
    assert [x.note for x in report.find("contract")] == ["not tried: the kernel does not end"]
    assert len(runs) == 1


def test_a_clause_that_does_not_end_is_the_last_that_is_tried(
    kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator.runs, "LOOP_SECONDS", 0.3)
    report = kernel(
        GOOD.replace("float sum = 0;", "float sum = 0; while (K % 2) if (M < 0) break;")
    )
    (line,) = report.failures
    assert line.where == "tails of K"
    assert "endless-loop" in line.note
    later = [x for x in report.find("contract") if x.verdict == "not measured"]
    assert {x.note for x in later} == {"not tried: the kernel does not end"}
    assert "leading dimensions" in {x.where for x in later}


@pytest.mark.parametrize("rows", ["(M+7)/8*2-1", "(M+7)/8*(M/M)", "M/8+1-(8-M%8)/8*1"])
def test_a_grid_without_blocks_launches_nothing(kernel, rows: str) -> None:
    report = kernel(GOOD, grid=grid_of(f"(N+7)/8,{rows}"))
    (line,) = report.find("contract", "sizes of 0")
    assert line.verdict == "pass", report


def test_multiples_reach_the_leading_dimensions(kernel) -> None:
    """Rows of A and B in vectors of four, and of D in pairs: a pad of three would be misaligned."""
    text = """
__global__ void gemm(const float4* A, int lda, const float* B, int ldb, float2* C, int ldc,
                     int M, int N, int K)
{
    const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
    if (row >= M || col * 2 >= N) return;
    float2 sum = {0, 0};
    for (int k = 0; k < K; k += 4) {
        const float4 a = A[(row * lda + k) / 4];
        const float* b = B + k * ldb + col * 2;
        sum.x += a.x * b[0] + a.y * b[ldb] + a.z * b[2 * ldb] + a.w * b[3 * ldb];
        sum.y += a.x * b[1] + a.y * b[ldb + 1] + a.z * b[2 * ldb + 1] + a.w * b[3 * ldb + 1];
    }
    C[(row * ldc) / 2 + col] = sum;
}
"""
    words, grid = "A lda B ldb D ldd M N K", grid_of("(N+15)/16,(M+7)/8")
    report = kernel(text, entry="gemm", grid=grid, meaning=Meaning.parse(words, (1, 2, 4)))
    assert report.passed, report
    assert report.find("contract", "leading dimensions")[0].measured == "4 of 4 problems"
    loose = kernel(text, entry="gemm", grid=grid, meaning=Meaning.parse(words))
    assert "leading dimensions" in {x.where for x in loose.failures}


def test_the_first_mismatch_is_in_words(kernel) -> None:
    report = kernel(GOOD.replace("alpha * sum", "sum"))
    (line,) = report.find("contract", "alpha")
    assert line.note.startswith("D[0, 0] is ")
    assert "and should be" in line.note
    assert line.note.endswith("M = 8, N = 8, K = 32, alpha = 2, beta = 0")
    # What does not touch alpha is not blamed on it.
    assert report.find("contract", "whole tiles")[0].verdict == "pass"


def test_what_the_mapping_leaves_out_is_not_tried() -> None:
    launch = Launch(
        entry="gemm",
        grid=grid_of("N/128,M/128"),
        block=(128,),
        meaning=Meaning.parse("A B D M N K", (128, 128, 16)),
    )
    report = tg.check(LADDER / "07_warp_tile.cu", arch="sm_80", launch=launch, examples=2)
    assert report.passed, report
    reasons = {x.where: x.note for x in report.find("contract") if x.verdict == "not measured"}
    assert reasons["alpha"] == "the mapping names no alpha"
    assert reasons["leading dimensions"] == "the mapping names no lda, ldb, ldc or ldd"
    assert "only multiples are asked for: 128 of M" in reasons["tails of M and N"]


LADDER_LAUNCHES = {
    "01_naive": ("gemm", "(M+31)/32,(N+7)/8", (32, 8), "A B D M N K", (1, 1, 1), 0),
    "02_coalesced": ("gemm<16>", "(M+15)/16,(N+15)/16", (256,), "A B D M N K", (1, 1, 1), 0),
    "03_shared": ("gemm", "(N+31)/32,(M+31)/32", (32, 32), "A B D M N K", (1, 1, 1), 0),
    "04_thread_tile_1d": ("gemm", "N/64,M/64", (512,), "A B D M N K", (64, 64, 8), 4096),
    "09_wmma": ("gemm", "N/64,M/64", (128,), "A:f16 B:f16 D M N K", (64, 64, 32), 0),
    "10_split_k": (
        "gemm", "N/32,M/32,2", (32, 8),
        "A B D f32[2*M*N] u32[M/32*(N/32)]=0 M N K", (32, 32, 64), 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LADDER_LAUNCHES)
def test_the_ladder_keeps_what_it_promises(name: str) -> None:
    entry, grid, block, words, multiples, shared = LADDER_LAUNCHES[name]
    launch = Launch(
        entry=entry,
        grid=grid_of(grid),
        block=block,
        shared_bytes=shared,
        meaning=Meaning.parse(words, multiples),
    )
    report = tg.check(LADDER / f"{name}.cu", arch="sm_80", launch=launch, examples=2)
    assert report.passed, report
    kept = [x for x in report.find("contract") if x.verdict == "pass"]
    assert len(kept) >= 6


def test_a_prefetch_that_does_not_look_at_k() -> None:
    # The eighth of the ladder starts its first copies before it knows that there is a K step.
    launch = Launch(
        entry="gemm",
        grid=grid_of("N/64,M/64"),
        block=(256,),
        shared_bytes=18432,
        meaning=Meaning.parse("A B D M N K", (64, 64, 16)),
    )
    report = tg.check(LADDER / "08_double_buffered.cu", arch="sm_80", launch=launch, examples=2)
    (line,) = report.failures
    assert line.where == "sizes of 0"
    assert "line 14: out-of-bounds: cp.async: read of 16 bytes" in line.note
    assert "M = 64, N = 64, K = 0" in line.note


def test_arguments_in_the_words_of_emulate(capsys: pytest.CaptureFixture[str]) -> None:
    import tilegen.cli as cli

    words = ["check", str(LADDER / "03_shared.cu"), "--arch", "sm_80", "-e", "gemm", "-g", "1,1",
             "--block", "32,32", "--arg", "f32[32,32]", "--arg", "f32[32,32]",
             "--arg", "out:f32[32,32]", *(x for n in (32, 32, 32) for x in ("--arg", str(n)))]  # fmt: skip
    assert cli.run(words) == 0
    said = capsys.readouterr().out
    assert "no finding in 3 orders of threads and the race detector" in said
    # One column too few for the columns that the kernel writes.
    words[words.index("out:f32[32,32]")] = "out:f32[32,31]"
    assert cli.run(words) == 1
    assert "out-of-bounds" in capsys.readouterr().out
