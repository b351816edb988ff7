"""The C++ host program of examples/07_cuda_host: built by nvcc, and run here on stand-ins for its kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.dtypes import DTYPES
from tilegen.entries import Entry
from tilegen_cuda.archs import dynamic_bytes
from tilegen_cuda.emit import parameters
from tilegen_cuda.nvcc import found

EXAMPLE = Path(__file__).parents[2] / "examples" / "07_cuda_host"
HOST = (EXAMPLE / "host.cu").read_text()
CXX = shutil.which("g++") or shutil.which("clang++")
NVCC = found()
LAUNCH = re.compile(r"(\w+)<<<(\w+), (\w+), (\w+), stream>>>\(")

# What of CUDA's runtime the program calls, on the host; a launch is checked against the plan.
RUNTIME = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
using cudaError_t = int;
using cudaStream_t = int;
enum { cudaSuccess = 0, cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
struct Planned { long long (*grid)(long long, long long, long long); unsigned block; int dynamic; };
extern std::map<void *, Planned> planned;
static std::map<void *, int> allowed;
inline const char *cudaGetErrorString(cudaError_t) { return "refused"; }
inline cudaError_t cudaGetLastError() { return 0; }
inline cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return 0; }
inline cudaError_t cudaStreamCreate(cudaStream_t *) { return 0; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return 0; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return 0; }
inline cudaError_t cudaDeviceSynchronize() { return 0; }
inline cudaError_t cudaFree(void *memory) { free(memory); return 0; }
template <class T> cudaError_t cudaMalloc(T **out, size_t bytes)
{
    *out = static_cast<T *>(aligned_alloc(256, (bytes + 255) / 256 * 256));
    return 0;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int)
{
    if (bytes)
        memcpy(to, from, bytes);
    return 0;
}
template <class F> cudaError_t cudaFuncSetAttribute(F *entry, int, int bytes)
{
    allowed[reinterpret_cast<void *>(entry)] = bytes;
    return 0;
}
inline void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not as planned: %s\\n", what);
        exit(3);
    }
}
template <class... P, class... A>
void launch(void (*entry)(P...), unsigned grid, unsigned block, int dynamic, long long M, long long N,
    long long K, A... rest)
{
    const Planned &plan = planned.at(reinterpret_cast<void *>(entry));
    require(grid == plan.grid(M, N, K), "grid");
    require(block == plan.block, "block");
    require(dynamic == plan.dynamic, "dynamic shared memory");
    require(dynamic <= 49152 || allowed[reinterpret_cast<void *>(entry)] >= dynamic, "allowed shared memory");
    entry(M, N, K, rest...);
}
inline float value(float x) { return x; }
inline float value(unsigned short x)
{
    const unsigned bits = static_cast<unsigned>(x) << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}
"""


def stand_in(source: tg.KernelSource) -> str:
    """The entries of a text with its parameters and conditions, their products made the plain way."""
    name = source.plan.spec.name
    lines = [f"namespace {name}_kernel {{", "using i64 = long long;"]
    for entry in source.entries:
        lines += [f'extern "C" void {entry.name}({parameters(entry.arguments)})', "{"]
        lines += [*body(source.plan, entry), "}"]
    return "\n".join([*lines, "}", ""])


def body(plan: tg.KernelPlan, entry: Entry) -> Iterator[str]:
    names = {a.name for a in entry.arguments}
    types = plan.spec.types
    for access in entry.accesses:
        o, kind = access.operand, getattr(types, access.operand)
        if o not in names:
            continue  # the reduction's
        aligned = f"reinterpret_cast<size_t>({o}) % {access.alignment} == 0"
        multiple = f"ld{o} % {access.stride_multiple} == 0"
        yield f'require(!{o} || ({aligned} && {multiple}), "{entry.name}: {o}");'
        assert access.alignment >= DTYPES[kind].bytes
    yield from (f'require({n} == 1, "{n}");' for n in sorted(names) if n.endswith("_step"))
    yield "for (i64 i = 0; i < M; ++i) for (i64 j = 0; j < N; ++j) {"
    if entry.role == "reduce":
        yield "float sum = partial[i * N + j];"
    else:
        yield "float sum = 0;"
        yield "for (i64 k = 0; k < K; ++k) sum += value(a[i * lda + k]) * value(b[k * ldb + j]);"
    if entry.after:
        yield "partial[i * N + j] = sum; (void)alpha;"
    else:
        yield "d[i * ldd + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);"
    yield "}"
    yield "(void)K;" if entry.role == "reduce" else ""


def tables(sources: list[tg.KernelSource]) -> str:
    """What the plans say of each launch."""
    lines = ["std::map<void *, Planned> planned = {"]
    for source in sources:
        for e in source.entries:
            grid = re.sub(r"\bbatch\b", "1", e.grid.text)
            function = f"[](long long M, long long N, long long K) -> long long {{ (void)K; return {grid}; }}"
            entry = f"reinterpret_cast<void *>({source.plan.spec.name}_kernel::{e.name})"
            lines.append(
                f"{{{entry}, {{{function}, {e.block}, {dynamic_bytes(e.shared_bytes)}}}}},"
            )
    return "\n".join([*lines, "};", ""])


def emitted(arch: str = "sm_90a") -> list[tg.KernelSource]:
    specs = [tg.TileSpec.from_file(EXAMPLE / f"{name}.toml") for name in ("product", "deep")]
    return [tg.emit(tg.lower(spec, "cuda", arch)) for spec in specs]


def run_on_stand_ins(folder: Path, host: str) -> subprocess.CompletedProcess[str]:
    assert CXX is not None
    sources = emitted()
    for source in sources:
        name = source.plan.spec.name
        (folder / f"{name}.cu").write_text(stand_in(source))
        (folder / f"{name}.h").write_text(registry.get("cuda").launch_header(source))
    (folder / "runtime.h").write_text(RUNTIME)
    (folder / "host.cpp").write_text(LAUNCH.sub(r"launch(\1, \2, \3, \4, ", host) + tables(sources))
    command = [CXX, "-std=c++17", "-O1", "-w", "-include", "runtime.h", "host.cpp", "-o", "host"]
    subprocess.run(command, cwd=folder, check=True)
    return subprocess.run([folder / "host"], capture_output=True, text=True, timeout=60)


def test_the_kernels_are_what_the_example_is_about() -> None:
    product, deep = (source.plan for source in emitted())
    assert product.budget.shared_bytes > 48 * 1024
    assert product.split_k == 1
    assert deep.split_k == 4
    # One grid and one block, as the program takes them for granted.
    for plan in (product, deep):
        assert len({(e.grid, e.block, e.shared_bytes) for e in plan.main_entries}) == 1


@pytest.mark.skipif(CXX is None, reason="no C++ compiler (g++ or clang++) is here")
def test_the_host_program_launches_as_planned(tmp_path: Path) -> None:
    done = run_on_stand_ins(tmp_path, HOST)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == "ok"
    assert all(line.endswith("max error 0") for line in lines)
    took = {line.split(" by ")[1].split()[0] for line in lines}
    mains = {e.name for source in emitted() for e in source.plan.main_entries}
    assert took == {*mains, "nothing"}


FAULTS = {
    "strides swapped": ("p.lda, a_step, p.b, p.ldb, b_step, p.b", "p.ldb, a_step, p.b, p.lda, b_step, p.b"),
    "not allowed": ("    allow_product();\n", ""),
    "a condition left out": ("if (product_wide_accepts(&a, &b, read_c, &d))", "if (true)"),
    "another grid": ("reduce_grid, DEEP_REDUCE_WIDE_BLOCK", "grid, DEEP_REDUCE_WIDE_BLOCK"),
    "no dynamic bytes": ("PRODUCT_NARROW_DYNAMIC_BYTES, stream", "DEEP_NARROW_DYNAMIC_BYTES, stream"),
}  # fmt: skip


@pytest.mark.skipif(CXX is None, reason="no C++ compiler (g++ or clang++) is here")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_host_program_shows(tmp_path: Path, fault: str) -> None:
    before, after = FAULTS[fault]
    assert HOST.count(before) == 1
    done = run_on_stand_ins(tmp_path, HOST.replace(before, after))
    assert done.returncode in (1, 3), done.stdout


@pytest.mark.skipif(NVCC is None, reason="no nvcc is here")
def test_nvcc_builds_it_without_a_warning(tmp_path: Path) -> None:
    assert NVCC is not None
    for source in emitted():
        name = source.plan.spec.name
        (tmp_path / f"{name}.cu").write_text(source.text)
        (tmp_path / f"{name}.h").write_text(registry.get("cuda").launch_header(source))
    strict = ["-Xcompiler", "-Wall,-Wextra", "-Werror", "all-warnings"]
    command = [str(NVCC.path), "-std=c++17", "-arch=sm_90a", *strict, "-I", str(tmp_path)]
    subprocess.run([*command, str(EXAMPLE / "host.cu"), "-o", str(tmp_path / "host")], check=True)
    if not registry.get("cuda").devices():
        done = subprocess.run([tmp_path / "host"], capture_output=True, text=True)
        assert done.returncode == 2
        assert "cudaGetDeviceCount" in done.stderr
