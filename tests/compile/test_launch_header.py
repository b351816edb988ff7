"""The launch header compiles as C99, agrees with the plan, and a C program launches by it."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from emulated.split_k import source as split_k_source

import tilegen as tg
from tilegen import registry
from tilegen.errors import EmitError
from tilegen.plan import Access, Entry, Formula
from tilegen.render import KernelSource
from tilegen_opencl.runtime import wheel_libraries

EXAMPLES = Path(__file__).parents[2] / "examples"
CC = shutil.which("cc")
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler (cc) is here")


class Operand(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("ld", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
        ("step", ctypes.c_int64),
    )


def launch_header_of(source: KernelSource) -> str:
    return registry.get(source.plan.backend).launch_header(source)


def emitted(name: str, arch: str) -> KernelSource:
    return tg.emit(tg.lower(tg.TileSpec.from_file(EXAMPLES / f"{name}.toml"), "opencl", arch))


def compiled(tmp_path: Path, source: KernelSource) -> ctypes.CDLL:
    """The header's functions and enums as a library."""
    assert CC is not None
    (tmp_path / "header.h").write_text(launch_header_of(source))
    lines = ['#include "header.h"', '#include "header.h"']
    for e in source.entries:
        four = "int64_t M, int64_t N, int64_t K, int64_t batch"
        lines += [
            f"int64_t grid_{e.name}({four});",
            f"int64_t grid_{e.name}({four}) {{ return {e.name}_grid(M, N, K, batch); }}",
            f"int64_t workspace_{e.name}({four});",
            f"int64_t workspace_{e.name}({four}) {{ return {e.name}_workspace(M, N, K, batch); }}",
            f"const char *symbol_{e.name} = {e.name.upper()}_SYMBOL;",
            f"const int block_{e.name} = {e.name.upper()}_BLOCK;",
            f"const int args_{e.name} = {e.name.upper()}_ARGS;",
            *(
                f"const int arg_{e.name}_{a.name} = {e.name.upper()}_ARG_{a.name.upper()};"
                for a in e.arguments
            ),
        ]
        for a in e.arguments:
            if a.value is not None and a.kind != "stride":
                name = f"{e.name}_{a.name}" + ("_offset" if a.kind == "workspace" else "")
                lines += [
                    f"int64_t value_{name}({four});",
                    f"int64_t value_{name}({four}) {{ return {name}(M, N, K, batch); }}",
                ]
        if e.role == "main":
            p = ", ".join(f"const tilegen_operand *{o}" for o in "abcd")
            lines += [
                f"int accepts_{e.name}({p});",
                f"int accepts_{e.name}({p}) {{ return {e.name}_accepts(a, b, c, d); }}",
            ]
    (tmp_path / "all.c").write_text("\n".join(lines) + "\n")
    library = tmp_path / "all.so"
    subprocess.run(
        [CC, *STRICT, "-shared", "-fPIC", "all.c", "-o", library], cwd=tmp_path, check=True
    )
    return ctypes.CDLL(str(library))


KERNELS = [("gemm_f32", "cpu"), ("gemm_f32", "gpu"), ("gemm_f32_batched_bias_gelu", "gpu"),
           ("gemm_f32_batched_bias_gelu", "cpu")]  # fmt: skip


@needs_cc
@pytest.mark.parametrize(("name", "arch"), KERNELS)
def test_header_agrees_with_the_plan(tmp_path, name, arch):
    source = emitted(name, arch)
    library = compiled(tmp_path, source)
    for entry in source.entries:
        assert (
            ctypes.c_char_p.in_dll(library, f"symbol_{entry.name}").value == entry.symbol.encode()
        )
        assert ctypes.c_int.in_dll(library, f"block_{entry.name}").value == entry.block
        assert ctypes.c_int.in_dll(library, f"args_{entry.name}").value == len(entry.arguments)
        for index, argument in enumerate(entry.arguments):
            where = f"arg_{entry.name}_{argument.name}"
            assert ctypes.c_int.in_dll(library, where).value == index
        check_formulas(library, entry, source.plan.split_k)


def check_formulas(library: ctypes.CDLL, entry: Entry, split_k: int) -> None:
    extents = (0, 1, 2, 63, 64, 65, 127, 128, 129, 1000, 65537, 2**31 - 1, 2**31, 2**33 + 7)
    for kind, formula in (("grid", entry.grid), ("workspace", entry.workspace)):
        function = getattr(library, f"{kind}_{entry.name}")
        function.argtypes, function.restype = [ctypes.c_int64] * 4, ctypes.c_int64
        for m, n, k, batch in itertools.product(extents, extents, (0, 77, 2**32), (0, 1, 3)):
            want = formula(M=m, N=n, K=k, batch=batch, split_k=split_k)
            if want < 2**63:
                assert function(m, n, k, batch) == want, (kind, m, n, k, batch)


@needs_cc
@pytest.mark.parametrize(("name", "arch"), KERNELS)
def test_header_accepts_what_the_entry_does(tmp_path, name, arch):
    source = emitted(name, arch)
    library = compiled(tmp_path, source)
    for entry in source.plan.main_entries:
        accepts = getattr(library, f"accepts_{entry.name}")
        by_operand = {access.operand: access for access in entry.accesses}
        steps = {a.name for a in entry.arguments if a.name.endswith("_step")}
        cases = itertools.product((0, 2, 4, 8, 16, 64), (8, 9, 16, 18), (0, 5, 16), (0, 1, 2))
        for address, ld, stride, step in cases:
            for position, o in enumerate("abcd"):
                good = [ctypes.byref(Operand(0, 64, 0, 1)) for _ in "abcd"]
                assert accepts(*good) == 1
                assert accepts(None, None, None, None) == 1
                good[position] = ctypes.byref(Operand(address, ld, stride, step))
                want = o not in by_operand or allows(
                    by_operand[o], address, ld, stride, step, steps
                )
                assert accepts(*good) == want, (entry.name, o, address, ld, stride, step)


def allows(access: Access, address: int, ld: int, stride: int, step: int, steps: set[str]) -> bool:
    legal = (0, 1) if not access.unit_step and f"{access.operand}_step" in steps else (1,)
    return (
        address % access.alignment == 0
        and ld % access.stride_multiple == 0
        and stride % access.stride_multiple == 0
        and step in legal
    )


@needs_cc
def test_header_of_a_plan_with_split_k_workspace_and_reduction(tmp_path):
    source = emitted("gemm_f32", "gpu")
    plan = source.plan
    wide, narrow = (
        replace(
            e, after=("gemm_reduce",), workspace=Formula("M * N * 4 * split_k * batch"),
            grid=Formula("((M + 127) / 128) * ((N + 127) / 128) * batch * split_k"),
        )
        for e in plan.main_entries
    )  # fmt: skip
    # 65536 * 65536 in int would overflow before a size widens it.
    reduce = Entry(
        "gemm_reduce", "reduce", "", (wide.arguments[0], wide.arguments[1]), (),
        Formula("65536 * 65536 * ((M * N + 255) / 256) / 65536 / 65536"), 256,
    )  # fmt: skip
    plan = replace(plan, split_k=4, entries=(reduce, wide, narrow))
    source = replace(source, plan=plan)
    text = launch_header_of(source)
    order = [text.index(f"// ---- {e}") for e in ("gemm_wide", "gemm_narrow", "gemm_reduce")]
    assert order == sorted(order)
    assert "Launched after it, on the same stream and with the same workspace: gemm_reduce" in text
    library = compiled(tmp_path, source)
    check_formulas(library, wide, 4)
    grid = library.grid_gemm_reduce
    grid.argtypes, grid.restype = [ctypes.c_int64] * 4, ctypes.c_int64
    assert grid(1000, 1000, 1, 1) == reduce.grid(M=1000, N=1000, K=1, batch=1)


@needs_cc
def test_header_of_packs_before_and_a_sum_after(tmp_path):
    source = split_k_source()
    library = compiled(tmp_path, source)
    plan = source.plan
    text = launch_header_of(source)
    assert (
        "// Launched before it, on the same stream and with the same workspace: gemm_pack_a,"
        in text
    )
    assert "in the workspace, from byte gemm_any_packed_b_offset() on" in text
    assert f"// int64_t: {plan.split_k}\n" in text
    assert "// int64_t: gemm_reduce_planes()" in text
    assert library.symbol_gemm_pack_a
    assert ctypes.c_char_p.in_dll(library, "symbol_gemm_pack_b").value == b"gemm_pack"
    sizes = {"M": 7, "N": 5, "K": 6, "batch": 1}
    for entry in source.entries:
        for argument in entry.arguments:
            if argument.value is None or argument.kind == "stride":
                continue
            suffix = "_offset" if argument.kind == "workspace" else ""
            function = library[f"value_{entry.name}_{argument.name}{suffix}"]
            function.argtypes, function.restype = [ctypes.c_int64] * 4, ctypes.c_int64
            want = argument.value(**sizes, split_k=plan.split_k)
            assert function(*sizes.values()) == want, (entry.name, argument.name)
    for name in ("gemm_main", "gemm_any"):
        function = library[f"workspace_{name}"]
        function.argtypes, function.restype = [ctypes.c_int64] * 4, ctypes.c_int64
        want = plan.entry(name).workspace(**sizes, split_k=plan.split_k)
        assert function(*sizes.values()) == want
    # What the sum asks of C and D is asked before the product is launched.
    good, odd = ctypes.byref(Operand(0, 64, 0, 1)), ctypes.byref(Operand(2, 64, 0, 1))
    assert library.accepts_gemm_any(good, good, good, good) == 1
    assert library.accepts_gemm_any(good, good, None, odd) == 0
    assert library.accepts_gemm_any(good, good, odd, good) == 0


def test_a_condition_without_words_is_refused():
    source = emitted("gemm_f32", "gpu")
    wide = source.plan.main_entries[0]
    limited = replace(wide, accesses=(replace(wide.accesses[0], extent_limit=2**31),))
    with pytest.raises(EmitError, match="extents"):
        launch_header_of(replace(source, plan=replace(source.plan, entries=(limited,))))


def test_the_header_says_what_the_compiler_must_be_told():
    gpu = registry.get("opencl").archs["gpu"]
    dot = replace(gpu, features=gpu.features | {"integer_dot"})
    types = {"a": "s8", "b": "s8", "acc": "s32", "c": "s32", "d": "s32"}
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), types=types)
    for arch, options in ((gpu, ""), (dot, "-cl-std=CL3.0")):
        source = tg.emit(tg.lower(spec, "opencl", arch))
        assert f'#define GEMM_BUILD_OPTIONS "{options}"\n' in launch_header_of(source)
        assert ("// build     -cl-std=CL3.0" in source.text) == bool(options)


def test_header_includes_two_standard_headers_and_no_more():
    text = launch_header_of(emitted("gemm_f32", "cpu"))
    includes = [line for line in text.splitlines() if line.startswith("#include")]
    assert includes == ["#include <stddef.h>", "#include <stdint.h>"]


@needs_cc
@pytest.mark.parametrize("arch", ["cpu", "gpu"])
def test_a_c_host_program_runs_the_kernel(tmp_path, arch):
    assert CC is not None
    runtimes = wheel_libraries()
    if not runtimes or not registry.get("opencl").devices():
        pytest.skip("no OpenCL runtime from pip is here: pip install 'tilegen[cpu]'")
    source = emitted("gemm_f32", arch)
    folder = tmp_path / "out"
    files = tg.save(source, None, folder)
    host = tmp_path / "host"
    define = f'-DHEADER="{files["header"]}"'
    text = EXAMPLES / "02_c_host" / "host.c"
    subprocess.run([CC, *STRICT, "-O2", define, text, "-o", host, "-ldl"], check=True)
    environment = {k: v for k, v in os.environ.items() if k != "OPENCL_LIBRARY"}
    for words, extra in (
        ((str(runtimes[0]),), {}),
        ((), {"OPENCL_LIBRARY": str(runtimes[0])}),
    ):
        done = subprocess.run(
            [host, folder, *words], capture_output=True, text=True, env={**environment, **extra}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "ok"
        assert "gemm_wide" in done.stdout
    done = subprocess.run([host, tmp_path / "none", runtimes[0]], capture_output=True, text=True)
    assert done.returncode == 1
    assert "none" in done.stderr
