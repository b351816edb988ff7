"""What goes into a run and what comes back: arrays, numbers, errors, limits, the command line."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen.cli as cli
from tilegen import emulator
from tilegen.emulator import job, runs, toolchain
from tilegen.errors import BackendError, CompileError, LaunchError

SCALE = """
template <class T>
__global__ void scale(const T* in, T* out, int rows, int columns, long in_row, long in_column,
                      long out_row, long out_column, T factor) {
  int row = blockIdx.x, column = threadIdx.x;
  if (row < rows && column < columns)
    out[row * out_row + column * out_column] = T(in[row * in_row + column * in_column] * factor);
}
"""
CALLS = iter(range(1000))
# MAP_NORESERVE of Linux, which Python names from 3.13 on.
NORESERVE = 0x4000


def scale(
    array: np.ndarray, out: np.ndarray, factor: Any = 2, type_: str = "float", **options: Any
):
    strides = [s // a.itemsize for a in (array, out) for s in a.strides]
    return emulator.run(
        SCALE, entry=f"scale<{type_}>", grid=array.shape[0], block=32,
        args=[array, out, *array.shape, *strides, factor], outputs=[1], **options,
    )  # fmt: skip


def base() -> np.ndarray:
    return np.arange(12 * 20, dtype=np.float32).reshape(12, 20)


def far(rows: int, apart: int) -> np.ndarray:
    """Rows of 20 elements, many gigabytes apart in memory that is not there until it is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    memory = mmap.mmap(-1, ((rows - 1) * apart + 20) * 4, flags=flags)
    return np.ndarray((rows, 20), np.float32, memory, 0, (apart * 4, 4))


def test_rows_gigabytes_apart_take_no_memory() -> None:
    array, out = far(3, 2**31 + 7), far(3, 2**32)
    array[...] = base()[:3]
    run = scale(array, out)
    assert run.clean, str(run)
    assert np.array_equal(run.arrays[1], 2 * base()[:3])
    assert run.arrays[1].strides == out.strides


def test_an_offset_that_wraps_is_found() -> None:
    array, out = far(3, 2**31 + 7), np.zeros((3, 20), np.float32)
    narrow = SCALE.replace("in[row * in_row", "in[int(row * in_row)")
    strides = [s // 4 for a in (array, out) for s in a.strides]
    run = emulator.run(narrow, entry="scale<float>", grid=3, block=32,
                       args=[array, out, 3, 20, *strides, 2], outputs=[1])  # fmt: skip
    assert {f.kind for f in run.findings} == {"out-of-bounds"}


def test_an_index_beyond_a_thread_s_own_array_is_found() -> None:
    """On the device it would be another register, or a word of the stack."""
    text = """
    __global__ void sums(float* y, int n) {
      float own[4];
      for (int i = 0; i <= n; ++i) own[i] = i + threadIdx.x;
      y[threadIdx.x] = own[0] + own[1] + own[2] + own[3];
    }
    """
    for last, kinds in ((3, []), (4, ["out-of-bounds"])):
        args = [np.zeros(32, np.float32), last]
        run = emulator.run(text, entry="sums", grid=1, block=32, args=args, outputs=[0])
        assert [f.kind for f in run.findings] == kinds
    assert run.findings[0].line == 4
    assert "index 4 of an array of type 'float [4]'" in run.findings[0].message


def test_which_nan_an_operation_keeps_is_no_fault() -> None:
    """The run under the race detector is compiled in another way, which may choose another one."""
    text = """
    __global__ void sums(const float* x, float* y) {
      int i = threadIdx.x;
      float a = x[i], b = x[i + 32], c = a * b;
      y[i] = c + a / b + (b - a) * c + fmaf(a, b, -c) * b;
    }
    """
    draw = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    x = np.random.default_rng(0).choice(draw, 64)
    run = emulator.run(text, entry="sums", grid=1, block=32, args=[x, np.zeros(32, np.float32)])
    assert run.clean, str(run)


@pytest.mark.parametrize(
    "view",
    [
        base(),
        base().T[:, :9],
        base()[2:9, 3:17],
        base()[::2, ::3],
        base()[::-1, ::-1][:8, :8],
        base()[:0],
        np.broadcast_to(np.float32(3), (4, 5)),
    ],
    ids=["whole", "transposed", "sub-view", "steps", "backwards", "empty", "broadcast"],
)
def test_arrays_of_any_strides(view: np.ndarray) -> None:
    before = view.copy()
    if view.shape[0] == 0:
        run = emulator.run(SCALE, entry="scale<float>", grid=1, block=32,
                           args=[view, view.copy(), 0, 20, 20, 1, 20, 1, 2.0])  # fmt: skip
    else:
        run = scale(view, np.zeros(view.shape, np.float32))
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[1], 2 * before)
    np.testing.assert_array_equal(view, before)


def test_output_with_gaps_keeps_what_lies_between() -> None:
    out = np.full((6, 16), 7, np.float32)[:, :10]
    run = scale(base()[:6, :10], out)
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[1], 2 * base()[:6, :10])
    assert run.arrays[1].strides == out.strides


def test_access_between_the_elements_of_a_view_is_found() -> None:
    wide = base()[:6]
    args = [wide[:, :10], np.zeros((6, 11), np.float32), 6, 11, 20, 1, 11, 1, 2.0]
    run = emulator.run(SCALE, entry="scale<float>", grid=6, block=32, args=args, outputs=[1])
    assert [f.kind for f in run.findings] == ["out-of-bounds"]
    assert "between its elements" in str(run)


@pytest.mark.parametrize(
    ("type_", "dtype", "factor"),
    [
        ("double", "f8", 1.5),
        ("int", "i4", -3),
        ("unsigned char", "u1", 2),
        ("long long", "i8", 1 << 40),
    ],
)
def test_types_and_numbers(type_: str, dtype: str, factor: Any) -> None:
    array = np.arange(15).reshape(3, 5).astype(dtype)
    run = scale(array, np.zeros_like(array), factor, type_)
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[1], (array * factor).astype(dtype))


def test_the_same_array_twice_is_one_buffer() -> None:
    array = base()
    run = emulator.run(SCALE, entry="scale<float>", grid=12, block=32,
                       args=[array, array, 12, 20, 20, 1, 20, 1, 2.0])  # fmt: skip
    assert run.clean, run
    assert len(run.arrays) == 1
    np.testing.assert_array_equal(run.arrays[0], 2 * base())


@pytest.mark.parametrize("align", [4, 16, 256])
@pytest.mark.parametrize("order", [0, 1])
def test_pointers_are_as_aligned_as_asked(align: int, order: int) -> None:
    text = "__global__ void k(const char* p, unsigned long long* out) { out[0] = (size_t)p; }"
    array = emulator.Buffer(np.zeros(36, np.uint8), align)
    run = emulator.run(text, entry="k", grid=1, block=1, args=[array, np.zeros(1, np.uint64)],
                       orders=[order], races=False)  # fmt: skip
    assert int(run.arrays[1][0]) % align == 0


def test_structures_are_bytes() -> None:
    text = """
    struct Pair { int a; float b; };
    __global__ void k(const Pair pair, float* out) { out[0] = pair.a * pair.b; }"""
    pair = np.array([(3, 2.5)], dtype=[("a", "i4"), ("b", "f4")]).tobytes()
    run = emulator.run(text, entry="k", grid=1, block=1, args=[pair, np.zeros(1, np.float32)])
    assert run.arrays[0][0] == 7.5


def test_several_entries_and_one_compilation() -> None:
    text = """
    __global__ void one(int* out) { out[0] = 1; }
    __global__ void two(int* out) { out[0] = 2; }"""
    program = emulator.compile(text, entries=["one", "two"])
    for entry, value in (("one", 1), ("two", 2)):
        run = emulator.run(program, entry=entry, grid=1, block=1, args=[np.zeros(1, np.int32)])
        assert run.arrays[0][0] == value
    with pytest.raises(LaunchError, match="'three' is not among the entries: one, two"):
        emulator.run(program, entry="three", grid=1, block=1)


def test_a_program_is_compiled_once() -> None:
    text = f"__global__ void k(int* out) {{ out[0] = {os.getpid()}; }}"
    first = emulator.run(text, entry="k", grid=1, block=1, args=[np.zeros(1, np.int32)])
    again = emulator.compile(text, entries="k").executables(["plain", "races"])
    files = {mode: path.stat().st_mtime_ns for mode, path in again.items()}
    emulator.run(text, entry="k", grid=1, block=1, args=[np.zeros(1, np.int32)])
    assert first.clean
    assert files == {mode: path.stat().st_mtime_ns for mode, path in again.items()}


def test_grid_and_block_of_three_dimensions() -> None:
    text = """
    __global__ void k(int* out) {
      int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
    }"""
    out = np.zeros(2 * 3 * 2 * 24, np.int32)
    run = emulator.run(text, entry="k", grid=(2, 3, 2), block=(4, 3, 2), args=[out], outputs=[0])
    assert run.clean, run
    want = [1000 * b + t for b in range(12) for t in range(24)]
    assert run.arrays[0].tolist() == want


def test_what_the_kernel_prints() -> None:
    text = '__global__ void k() { printf("thread %d\\n", threadIdx.x); }'
    run = emulator.run(text, entry="k", grid=1, block=3, orders=[1], races=False)
    assert run.output == "thread 2\nthread 1\nthread 0\n"


def test_shared_memory_is_measured_and_limited() -> None:
    text = """
    __global__ void k(float* out) {
      __shared__ volatile float fixed[100];
      extern __shared__ volatile float moving[];
      fixed[0] = 1; moving[0] = 2;
      out[0] = fixed[0] + moving[0];
    }"""
    options: dict[str, Any] = {
        "entry": "k",
        "grid": 1,
        "block": 1,
        "args": [np.zeros(1, np.float32)],
    }
    run = emulator.run(text, shared_bytes=1024, shared_limit=1424, **options)
    assert run.clean, run
    assert run.counts["shared_bytes"] == 1424
    run = emulator.run(text, shared_bytes=1024, shared_limit=1423, **options)
    assert {f.kind for f in run.findings} == {"shared-limit"}
    run = emulator.run(text, shared_bytes=0, **options)
    assert any(f.kind == "out-of-bounds" and f.line == 5 for f in run.findings), run


def test_shared_memory_is_poisoned() -> None:
    text = """
    __global__ void k(float* out, int n) {
      __shared__ float s[4];
      if (n > 3) s[threadIdx.x] = 1;
      out[0] = s[n];
    }"""
    run = emulator.run(text, entry="k", grid=1, block=1, args=[np.zeros(1, np.float32), 3])
    assert np.isnan(run.arrays[0][0])


# ---- refusals ----------------------------------------------------------------------------------

SIMPLE = "__global__ void k(const float* a, int n) {}"
A = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": [A]}, "k takes 2 arguments and is given 1"),
        ({"args": [A, A]}, "argument 1 must be a number"),
        ({"args": [3, 4]}, "argument 0 must be an array"),
        ({"args": [A, "x"]}, "an argument of type str"),
        ({"args": [A, 1 << 70]}, "does not fit an argument of 64 bits"),
        ({"block": 1025}, "a block of 1025 threads"),
        ({"block": (1, 2, 3, 4)}, "block (1, 2, 3, 4): one to three sizes"),
        ({"grid": 0}, "grid 0: one to three sizes of at least 1"),
        ({"orders": ()}, "no order is given"),
        ({"outputs": [1]}, "outputs: argument 1 is not an array"),
        ({"entry": "nobody"}, "'nobody' is no kernel that can be called by name alone; "
                              "kernels of the text: k"),
        ({"shared_bytes": 1 << 20}, None),
    ],
)  # fmt: skip
def test_wrong_launches_are_refused(changes: dict[str, Any], words: str | None) -> None:
    call: dict[str, Any] = {"entry": "k", "grid": 1, "block": 1, "args": [A, 4], **changes}
    if words is None:
        assert {f.kind for f in emulator.run(SIMPLE, **call).findings} == {"shared-limit"}
        return
    with pytest.raises(LaunchError) as refused:
        emulator.run(SIMPLE, **call)
    assert words in str(refused.value)


TYPES = """
struct Pair { int a; float b; };
struct Later;
enum Colour { red };
"""
REFUSED = [
    ("const float*", np.zeros(4, "f8"), "argument 0 is an array of floats of 8 bytes each; the "
                                        "parameter points to float, of 4"),
    ("const float*", np.zeros(4, "f2"), "floats of 2 bytes each; the parameter points to float"),
    ("float*", np.zeros(4, "i4"), "integers of 4 bytes each; the parameter points to float, of 4"),
    ("volatile unsigned*", np.zeros(4, "f4"), "floats of 4 bytes each; the parameter points to "
                                              "unsigned, of 4"),
    ("short*", np.zeros(4, "u1"), "integers of 1 bytes each; the parameter points to short, of 2"),
    ("float4*", np.zeros(4, "V3"), "elements of 3 bytes each, which do not make up what the "
                                   "parameter points to, of 16"),
    ("half*", np.zeros(4, "f4"), "floats of 4 bytes each, which do not make up"),
    ("int", 16.9, "argument 0 is 16.899999999999999, which the parameter, int, does not hold"),
    ("int", 4294967328, "argument 0 is 4294967328, which the parameter, int, does not hold"),
    ("int", float("nan"), "argument 0 is nan, which the parameter, int, does not hold"),
    ("int", float("inf"), "argument 0 is inf, which"),
    ("int", 2.0**31, "argument 0 is 2147483648, which the parameter, int"),
    ("unsigned", -1, "argument 0 is -1, which the parameter, unsigned, does not hold"),
    ("unsigned", -1.0, "argument 0 is -1, which the parameter, unsigned, does not hold"),
    ("short", 1 << 15, "argument 0 is 32768, which the parameter, short, does not hold"),
    ("bool", 2, "argument 0 is 2, which the parameter, bool, does not hold"),
    ("long long", 1 << 63, "argument 0 is 9223372036854775808, which the parameter, long long"),
    ("unsigned long long", -1, "argument 0 is -1, which the parameter, unsigned long long"),
    ("float", 1e300, "which the parameter, float, does not hold"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[f"{t} {v}" for t, v, _ in REFUSED])
def test_an_argument_that_its_parameter_does_not_take_is_refused(number: int) -> None:
    kernels = [f"__global__ void k{i}({type_} p) {{}}" for i, (type_, *_) in enumerate(REFUSED)]
    text = "\n".join(["#include <cuda_fp16.h>", TYPES, *kernels])
    _, given, words = REFUSED[number]
    program = emulator.compile(text, entries=[f"k{i}" for i in range(len(REFUSED))])
    with pytest.raises(LaunchError) as refused:
        emulator.run(program, entry=f"k{number}", grid=1, block=1, args=[given], races=False)
    assert words in str(refused.value)


def test_arguments_that_their_parameters_take() -> None:
    """The values that arrive, at the ends of their ranges too, and pointers of other kinds."""
    numbers = [
        ("int", -(2**31)), ("int", 2.0**31 - 1), ("unsigned", 2**32 - 1), ("unsigned", 2.0**32 - 1),
        ("unsigned long long", 2**64 - 1), ("long long", -(2**63)), ("bool", True), ("bool", 1.0),
        ("float", 3), ("double", 2**64 - 2**11), ("float", np.float32(0.5)), ("short", np.int8(-3)),
        ("unsigned char", 255), ("signed char", -128.0),
    ]  # fmt: skip
    pointers = [
        ("const void*", np.zeros(3, "f8")), ("float4*", np.zeros(4, "f4")), ("half*", np.zeros(4, "f2")),
        ("half*", np.zeros(4, "u2")), ("const half2*", np.zeros(4, "f2")), ("Later*", np.zeros(4, "f8")),
        ("Pair*", np.zeros(2, [("a", "i4"), ("b", "f4")])), ("Colour*", np.zeros(2, "i4")),
        ("bool*", np.zeros(2, "?")), ("const int*", np.zeros(2, "u4")), ("float*", 0),
    ]  # fmt: skip
    names = [f"{type_} p{i}" for i, (type_, _) in enumerate([*numbers, *pointers])]
    same = " && ".join(
        f"p{i} == ({type_}){value!r}" if isinstance(value, float) or type_ in ("float", "double")
        else f"(unsigned long long)p{i} == {int(value) % 2**64}ull"
        for i, (type_, value) in enumerate((t, v.item() if hasattr(v, "item") else v) for t, v in numbers)
    )  # fmt: skip
    body = f"__global__ void k(int* out, {', '.join(names)}) {{ out[0] = {same}; }}"
    text = "\n".join(["#include <cuda_fp16.h>", TYPES, body])
    args = [np.zeros(1, np.int32), *(value for _, value in (*numbers, *pointers))]
    run = emulator.run(text, entry="k", grid=1, block=1, args=args, orders=[0], races=False)
    assert run.clean, run
    assert run.arrays[0][0] == 1


def test_a_syntax_error_is_told_without_what_follows_from_it() -> None:
    with pytest.raises(CompileError) as refused:
        emulator.run("__global__ void k(int n) {\n  if (n\n}\n", entry="k", grid=1, block=1)
    lines = refused.value.log.splitlines()
    assert 1 <= len(lines) <= 8
    assert all(line.startswith("kernel.cu:") for line in lines)
    assert "kernel.cu:" in str(refused.value)
    with pytest.raises(CompileError, match=r"kernel\.cu:1:\d+: error: what opens here"):
        emulator.run("__global__ void k(int n) {\n  if (n) {\n}\n", entry="k", grid=1, block=1)
    many = "".join(f"  a{i} = 1;\n" for i in range(12))
    with pytest.raises(CompileError) as refused:
        emulator.run(f"__global__ void k() {{\n{many}}}\n", entry="k", grid=1, block=1)
    lines = refused.value.log.splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("kernel.cu:2:")
    assert lines[-1] == "and 5 more errors"


def test_text_that_does_not_compile() -> None:
    with pytest.raises(CompileError) as refused:
        emulator.run("__global__ void k() {\n  undeclared = 1;\n}", entry="k", grid=1, block=1)
    assert "kernel.cu:2" in str(refused.value)
    assert "undeclared" in refused.value.log


def test_unknown_language() -> None:
    with pytest.raises(BackendError, match="'fortran' has no vocabulary"):
        emulator.run("", "fortran", entry="k", grid=1, block=1)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEGEN_CXX", raising=False)
    monkeypatch.setattr(toolchain, "_candidates", list)
    toolchain._host_compiler.cache_clear()
    with pytest.raises(CompileError, match="pip install tilegen\\[emulator\\]"):
        toolchain.host_compiler()
    toolchain._host_compiler.cache_clear()


# ---- the child ---------------------------------------------------------------------------------


def test_time_limit() -> None:
    text = """
    __global__ void k(int* out) {
      for (unsigned i = 0; i < 1u << 30; i++) { __syncthreads(); out[threadIdx.x] += i; }
    }"""
    run = emulator.run(text, entry="k", grid=1, block=64, args=[np.zeros(64, np.int32)],
                       timeout=0.2, orders=[0], races=False)  # fmt: skip
    assert [f.kind for f in run.findings] == ["time-limit"]


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, [(60, 2), (240, 16)]),
        ({"timeout": 5}, [(5, 2), (5, 16)]),
        ({"loop_seconds": 0.5}, [(60, 0.5), (240, 0.5)]),
    ],
)
def test_a_limit_that_is_given_holds_in_the_race_run_too(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, float], limits: list[tuple[float, float]]
) -> None:
    seen = []

    class Seen(runs.JobFile):
        def __init__(self, launch: job.Launch) -> None:
            seen.append((launch.timeout, launch.loop_seconds))
            super().__init__(launch)

    monkeypatch.setattr(runs, "JobFile", Seen)
    emulator.run("__global__ void k() {}", entry="k", grid=1, block=1, orders=[0], **given)
    assert seen == limits


def test_a_time_limit_ends_the_race_run_when_it_says() -> None:
    text = "__global__ void k() { for (volatile int i = 0;; i = i) {} }"
    run = emulator.run(text, entry="k", grid=1, block=1, timeout=0.5, orders=[0])
    assert {name for f in run.findings for name in f.runs} == {"forward", "races"}
    assert 0.4 < run.seconds["races"] < 1.5


def no_handle(*_: Any) -> int:
    raise OSError(38, "Function not implemented")


def test_a_child_is_waited_for_where_the_system_gives_no_handle_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.pidfd_open", no_handle)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = scale(array, np.zeros_like(array))
    assert run.clean
    assert np.array_equal(run.arrays[1], 2 * array)


@pytest.mark.parametrize("handles", [True, False])
def test_a_child_that_cannot_speak_is_ended_by_the_parent(
    handles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilegen.emulator.runs.GRACE", 0.0)
    if not handles:
        monkeypatch.setattr("os.pidfd_open", no_handle)
    text = """
    extern "C" int sigprocmask(int, const void*, void*) noexcept;
    extern "C" unsigned sleep(unsigned);
    __global__ void k() { while (true) sleep(1000); }"""
    run = emulator.run(text, entry="k", grid=1, block=1, orders=[0], races=False, timeout=0.3)
    assert [f.kind for f in run.findings] == ["time-limit"]


@pytest.mark.parametrize("how", ["_exit(7)", "kill(getpid(), 9)", "abort()"])
def test_a_kernel_that_ends_the_child(how: str) -> None:
    text = f"""
    extern "C" {{ [[noreturn]] void _exit(int); int kill(int, int) noexcept; int getpid() noexcept;
                 [[noreturn]] void abort() noexcept; }}
    __global__ void k() {{ {how}; }}"""
    run = emulator.run(text, entry="k", grid=1, block=1, races=False)
    assert [f.kind for f in run.findings] == ["crash"]


def test_a_kernel_that_writes_everywhere_it_can() -> None:
    text = """
    __global__ void k(unsigned long long start) {
      for (unsigned long long p = start; p; p += 4096) *(volatile int*)p = -1;
    }"""
    run = emulator.run(text, entry="k", grid=1, block=1, args=[0x400000], races=False)
    assert run.findings


def test_inputs_of_the_parent_are_not_changed() -> None:
    array = np.ones(8, np.float32)
    emulator.run("__global__ void k(float* a) { a[threadIdx.x] = 5; }", entry="k", grid=1, block=8,
                 args=[array], races=False)  # fmt: skip
    assert array.tolist() == [1] * 8


# ---- the command line --------------------------------------------------------------------------


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    def run(*words: str) -> tuple[int, str, str]:
        status = cli.run(["emulate", *map(str, words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run


KERNEL = """__global__ void k(const float* a, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = 2 * a[threadIdx.x];
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)
    return path


def test_the_command_names_dynamic_shared_memory_that_is_not_given(call, tmp_path) -> None:
    file = tmp_path / "d.cu"
    file.write_text("""/* extern __shared__ float
in_a_comment[]; */
extern __shared__ __align__(16) float s[];
__global__ void k(float* out) { s[threadIdx.x] = 1; out[threadIdx.x] = s[threadIdx.x]; }
""")
    words = (file, "-e", "k", "--arg", "out:f32[32]")
    status, out, _ = call(*words)
    assert status == 1
    assert out.startswith(f"{file}:3: dynamic shared memory is declared here")
    assert "--shared BYTES" in out.splitlines()[0]
    assert "out-of-bounds" in out
    status, out, _ = call(*words, "--shared", "128")
    assert status == 0
    assert "declared" not in out


def test_command(call, file: Path, tmp_path: Path) -> None:
    words = (file, "--entry", "k", "--block", "32", "--arg", "f32[20]", "--arg", "out:f32[20]")
    status, out, _ = call(*words, "--arg", "20", "--save", tmp_path / "arrays")
    assert (status, out.splitlines()[0]) == (0, "no findings")
    a, d = (np.load(tmp_path / "arrays" / f"array{i}.npy") for i in range(2))
    np.testing.assert_array_equal(d, 2 * a)
    status, out, _ = call(*words, "--arg", "19")
    assert status == 1
    assert "never-written: 1 of 20 elements of argument 1, the first [19]" in out
    status, out, _ = call(*words, "--arg", "21", "--json")
    told = json.loads(out)
    assert status == 1
    assert told["clean"] is False
    assert {(f["kind"], f["line"]) for f in told["findings"]} >= {("out-of-bounds", 2)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--entry", "k", "--arg", "f99[3]"), "'f99' is none of f64, f32"),
        (("--entry", "k", "--arg", "u16[3]=65536"), "'u16[3]=65536'"),
        (("--entry", "k", "--arg", "u32[3]=1.5"), "'u32[3]=1.5'"),
        (
            ("--entry", "k", "--arg", "f32[20]", "--arg", "f64[20]", "--arg", "20"),
            "argument 1 is an array of floats of 8 bytes each; the parameter points to float, of 4",
        ),
        (("--entry", "k", "--arg", "x"), "'x' is no number, no TYPE[SIZES] and no .npy file"),
        (("--entry", "k", "--grid", "a,b"), "--grid 'a,b': integers with commas"),
        (("--entry", "none"), "'none' is no kernel"),
        (("--entry", "k"), "k takes 3 arguments and is given 0"),
    ],
)
def test_command_refuses_in_a_sentence(call, file: Path, words: tuple[str, ...], said: str) -> None:
    status, out, err = call(file, *words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_command_knows_integer_types(call, tmp_path: Path) -> None:
    types = {"s16": "int16", "u16": "uint16", "u32": "uint32", "s64": "int64", "u64": "uint64"}
    path = tmp_path / "k.cu"
    path.write_text(
        "__global__ void k(short* a, unsigned short* b, unsigned* c, long long* d,\n"
        "                  unsigned long long* e) { a[0] += b[0]; e[0] = e[1]; d[0] = c[0]; }\n"
    )
    values = [-3, 7, 2**32 - 1, -(2**63), 2**64 - 1]
    args = [word for t, v in zip(types, values, strict=True) for word in ("--arg", f"{t}[2]={v}")]
    status, out, err = call(path, "--entry", "k", "--block", "1", *args, "--save", tmp_path)
    assert status == 0, out + err
    made = [np.load(tmp_path / f"array{i}.npy") for i in range(5)]
    assert [str(a.dtype) for a in made] == list(types.values())
    assert [a.tolist() for a in made] == [
        [4, -3], [7, 7], [2**32 - 1] * 2, [2**32 - 1, -(2**63)], [2**64 - 1] * 2
    ]  # fmt: skip


def test_command_runs_split_k(call) -> None:
    path = Path(__file__).parents[2] / "examples/05_emulator/10_split_k.cu"
    sizes = ("--entry", "gemm", "--grid", "1,1,2", "--block", "32,8")
    arrays = ["f32[32,64]", "f32[64,32]", "out:f32[32,32]", "f32[2,32,32]", "u32[1]=0"]
    words = [word for a in (*arrays, "32", "32", "64") for word in ("--arg", a)]
    status, out, err = call(path, *sizes, *words)
    assert (status, out.splitlines()[:1]) == (0, ["no findings"]), out + err


def test_command_needs_a_known_suffix(call, tmp_path: Path) -> None:
    (tmp_path / "k.txt").write_text(KERNEL)
    status, _, err = call(tmp_path / "k.txt", "--entry", "k")
    assert status == 2
    assert "its suffix is none of" in err
