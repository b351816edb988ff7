"""The arrays of a call on OpenCL: what is refused and in which words; calls that are prepared."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import registry

CPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "cpu"]
pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(not CPUS, reason="no OpenCL CPU device: pip install 'tilegen[cpu]'"),
]
SPEC = tg.TileSpec(block=(32, 32, 16), warp=(32, 32))
N = 8


@pytest.fixture(scope="module")
def kernel() -> tg.Kernel:
    return tg.build(SPEC, "opencl", "cpu")


@pytest.fixture(scope="module")
def batched() -> tg.Kernel:
    return tg.build(SPEC.replace(batch="strided"), "opencl", "cpu")


@pytest.fixture
def copying(kernel: tg.Kernel, monkeypatch: pytest.MonkeyPatch) -> tg.Kernel:
    """The kernel on a device that cannot read host memory."""
    monkeypatch.setitem(kernel.device.__dict__, "shares_host_memory", False)
    return kernel


def ints(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def buffer(kernel: tg.Kernel, data: np.ndarray, flags: int | None = None) -> Any:
    import pyopencl as cl

    access = cl.mem_flags.READ_WRITE if flags is None else flags
    copied = access | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(kernel.device.context, copied, hostbuf=data)


def view(kernel: tg.Kernel, data: Any, start: int = 0, **how: Any) -> Any:
    """N x N floats of a buffer, from element ``start`` on."""
    import pyopencl.array as cla

    queue = kernel.device.queue
    return cla.Array(queue, (N, N), np.float32, data=data, offset=4 * start, **how)


# Memory that D shares with an input


def test_another_view_of_the_same_buffer_is_an_overlap(kernel: tg.Kernel) -> None:
    whole = buffer(kernel, ints(3 * N * N))
    b = view(kernel, buffer(kernel, ints(N, N)))
    for start in (0, 1, N * N - 1):
        with pytest.raises(tg.LaunchError, match="out: it overlaps a in memory"):
            kernel(view(kernel, whole), b, out=view(kernel, whole, start))
    with pytest.raises(tg.LaunchError, match="out: it overlaps b in memory"):
        kernel(b, view(kernel, whole), out=view(kernel, whole))
    with pytest.raises(tg.LaunchError, match="out: it overlaps c in memory"):
        kernel(b, b, view(kernel, whole), beta=1, out=view(kernel, whole, 1))


def test_views_that_share_no_element_are_taken(kernel: tg.Kernel) -> None:
    values = np.arange(2 * N * N, dtype=np.float32) % 5
    whole, b = buffer(kernel, values), view(kernel, buffer(kernel, ints(N, N)))
    pitch = {"strides": (8 * N, 4)}
    kernel(view(kernel, whole, **pitch), b, out=view(kernel, whole, N, **pitch))
    halves = np.vstack([view(kernel, whole, s).get() for s in (0, N * N)]).reshape(N, 2 * N)
    left = values.reshape(N, 2 * N)[:, :N]
    assert np.array_equal(halves, np.hstack([left, left @ b.get()]))
    want = view(kernel, whole).get() @ b.get()
    got = kernel(view(kernel, whole), b, out=view(kernel, whole, N * N))
    assert np.array_equal(got.get(), want)


def test_another_view_that_is_c_as_a_whole_is_taken(kernel: tg.Kernel) -> None:
    a, c = ints(N, N, seed=1), ints(N, N, seed=2)
    whole, device_a = buffer(kernel, c), view(kernel, buffer(kernel, a))
    got = kernel(device_a, device_a, view(kernel, whole), beta=1, out=view(kernel, whole))
    assert np.array_equal(got.get(), a @ a + c)


def test_sub_buffers_are_parts_of_one_memory(kernel: tg.Kernel) -> None:
    step = max(64, kernel.device.handle.mem_base_addr_align // 32)
    whole = buffer(kernel, ints(4 * step))
    b = view(kernel, buffer(kernel, ints(N, N)))
    low, high = (whole.get_sub_region(4 * s, 4 * 2 * step) for s in (0, step))
    assert low.int_ptr != high.int_ptr
    with pytest.raises(tg.LaunchError, match="overlaps a"):
        kernel(view(kernel, low, step), b, out=view(kernel, high))
    with pytest.raises(tg.LaunchError, match="overlaps a"):
        kernel(view(kernel, whole, step), b, out=view(kernel, high))
    want = view(kernel, low).get() @ b.get()
    assert np.array_equal(kernel(view(kernel, low), b, out=view(kernel, high)).get(), want)


def test_shared_virtual_memory_overlaps_by_address(kernel: tg.Kernel) -> None:
    import pyopencl as cl
    import pyopencl.array as cla
    from pyopencl.tools import SVMAllocator

    if not kernel.device.shares_host_memory:
        pytest.skip("this device has no shared virtual memory")
    queue = kernel.device.queue
    allocate = SVMAllocator(kernel.device.context, flags=cl.svm_mem_flags.READ_WRITE, queue=queue)
    a = cla.to_device(queue, ints(N, N, seed=3), allocator=allocate)
    b = cla.to_device(queue, ints(N, N, seed=4), allocator=allocate)
    with pytest.raises(tg.LaunchError, match="overlaps a"):
        kernel(a, b, out=view(kernel, a.base_data))
    out = cla.zeros(queue, (N, N), np.float32, allocator=allocate)
    assert np.array_equal(kernel(a, b, out=out).get(), ints(N, N, seed=3) @ ints(N, N, seed=4))


def test_pooled_buffers_are_buffers(kernel: tg.Kernel) -> None:
    import pyopencl.array as cla
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    queue = kernel.device.queue
    pool = MemoryPool(ImmediateAllocator(queue))
    a, b = (cla.to_device(queue, ints(N, N, seed=s), allocator=pool) for s in (5, 6))
    assert np.array_equal(kernel(a, b).get(), ints(N, N, seed=5) @ ints(N, N, seed=6))
    with pytest.raises(tg.LaunchError, match="overlaps b"):
        kernel(a, b, out=view(kernel, b.base_data))


def test_vectors_of_the_epilogue_overlap_too() -> None:
    spec = SPEC.replace(epilogue=({"op": "bias", "along": "n"}, {"op": "residual"}))
    kernel = tg.build(spec, "opencl", "cpu")
    out, a = np.zeros((N, N), np.float32), ints(N, N)
    with pytest.raises(tg.LaunchError, match="overlaps bias"):
        kernel(a, a, bias=out[0], residual=a, out=out)
    residual = out[:]
    got = kernel(a, a, bias=ints(N), residual=residual, out=out)
    assert np.array_equal(got, a @ a + ints(N))
    big = np.zeros(N * N + 1, np.float32)
    shifted = [big[s : s + N * N].reshape(N, N) for s in (0, 1)]
    with pytest.raises(tg.LaunchError, match="overlaps residual"):
        kernel(a, a, bias=ints(N), residual=shifted[0], out=shifted[1])


# Buffers that do not fit


@pytest.mark.parametrize("operand", ["a", "b", "out"])
def test_an_array_that_reaches_past_its_buffer_is_refused(kernel: tg.Kernel, operand: str) -> None:
    arrays = {n: view(kernel, buffer(kernel, ints(N, N))) for n in ("a", "b", "out")}
    arrays[operand] = view(kernel, buffer(kernel, ints(N * N)), 1)
    with pytest.raises(tg.LaunchError, match=f"{operand}: it reaches bytes 4 to 259 of .* 256"):
        kernel(**arrays)


def test_buffers_that_kernels_may_not_touch(kernel: tg.Kernel) -> None:
    import pyopencl as cl

    only, good = cl.mem_flags, view(kernel, buffer(kernel, ints(N, N)))
    read = view(kernel, buffer(kernel, ints(N, N), only.READ_ONLY))
    write = view(kernel, buffer(kernel, ints(N, N), only.WRITE_ONLY))
    with pytest.raises(tg.LaunchError, match="out: its buffer is READ_ONLY"):
        kernel(good, good, out=read)
    with pytest.raises(tg.LaunchError, match="b: its buffer is WRITE_ONLY"):
        kernel(good, write)
    want = ints(N, N) @ ints(N, N)
    assert np.array_equal(kernel(read, good, out=write).get(), want)


def test_arrays_of_several_contexts_are_refused(kernel: tg.Kernel) -> None:
    import pyopencl as cl
    import pyopencl.array as cla

    context = cl.Context([kernel.device.handle])
    foreign = cl.CommandQueue(context)
    strange, good = cla.to_device(foreign, ints(N, N)), view(kernel, buffer(kernel, ints(N, N)))
    for words in ({"a": strange, "b": good}, {"a": good, "b": strange}):
        with pytest.raises(tg.LaunchError, match="another OpenCL context"):
            kernel(**words)
    for name, words in {
        "b": {"a": good, "b": strange},
        "out": {"a": good, "b": good, "out": strange},
    }.items():
        with pytest.raises(tg.LaunchError, match=f"{name}: it lives in another OpenCL context"):
            kernel(**words, stream=kernel.device.queue)
    with pytest.raises(tg.LaunchError, match="stream: it belongs to another"):
        kernel(good, good, stream=foreign)


def test_memory_that_the_device_does_not_have_is_said(copying: tg.Kernel) -> None:
    from numpy.lib.stride_tricks import as_strided

    # Nothing of it is ever read: the driver is asked for the room first.
    a = as_strided(np.zeros(1, np.float32), (2, 2**58), (2**60, 4))
    with pytest.raises(tg.LaunchError, match=r"a: it spans .* allocates"):
        copying(a, np.broadcast_to(np.float32(0), (2**58, 1)))


# Types, sizes and strides


def test_a_type_without_bytes_is_refused(kernel: tg.Kernel) -> None:
    import pyopencl.array as cla

    none = np.zeros((N, N), "V0")
    for words in ({"a": none, "b": ints(N, N)}, {"a": ints(N, N), "b": ints(N, N), "out": none}):
        with pytest.raises(tg.LaunchError, match=r"its type is \|V0, whose elements have no bytes"):
            kernel(**words)
    good = view(kernel, buffer(kernel, ints(N, N)))
    empty = cla.Array(kernel.device.queue, (N, N), "V0", data=good.base_data)
    with pytest.raises(tg.LaunchError, match="b: its type is"):
        kernel(good, empty)


@pytest.mark.parametrize("edge", [2**31, 2**40, 2**60])
def test_an_output_that_no_address_reaches_is_refused(kernel: tg.Kernel, edge: int) -> None:
    a = np.broadcast_to(np.float32(1), (edge, 1))
    b = np.broadcast_to(np.float32(1), (1, edge))
    for ask in (kernel, kernel.explain, kernel.prepare):
        with pytest.raises(tg.LaunchError, match=f"out: {edge} x {edge} elements of 4 bytes"):
            ask(a, b)


def test_explain_makes_no_output(kernel: tg.Kernel) -> None:
    # D would have 2**50 bytes.
    a = np.broadcast_to(np.float32(1), (2**24, 1))
    b = np.broadcast_to(np.float32(1), (1, 2**24))
    assert "gemm_narrow: taken" in kernel.explain(a, b)
    a, b = ints(1024, 8), ints(8, 1024)
    kernel.explain(a, b)
    tracemalloc.start()
    kernel.explain(a, b)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("form", ["vector_fragment", "work_group"])
def test_explain_names_the_entry_that_runs(form: str) -> None:
    kernel = tg.build(SPEC.replace(pins={"opencl": {"form": form}}), "opencl", "cpu")
    kept = []
    for _ in range(20):  # NumPy's own arrays lie at 16 bytes or at 64, as it comes
        a, b = (kept.append(np.empty(1030, np.uint8)), ints(64, 64), ints(64, 64))[1:]
        prepared = kernel.prepare(a, b)
        assert kernel.explain(a, b).splitlines()[-1].startswith(f"{prepared.entry}: taken")
        kept.append(prepared())


def test_messages_say_out_where_the_caller_does(kernel: tg.Kernel, batched: tg.Kernel) -> None:
    a, wide = ints(N, N), np.zeros((N, 2 * N), np.float32)
    frozen = np.zeros((N, N), np.float32)
    frozen.flags.writeable = False
    wrong: list[tuple[tg.Kernel, Any]] = [
        (kernel, np.zeros((N, N))),
        (kernel, wide),
        (kernel, wide[:, ::2]),
        (kernel, np.zeros((N, N), np.float32, order="F")),
        (kernel, np.zeros((2, N, N), np.float32)),
        (kernel, np.broadcast_to(np.float32(0), (N, N))),
        (kernel, np.zeros((N, N), np.float32)[::-1]),
        (kernel, frozen),
        (kernel, [[1.0]]),
        (batched, np.zeros((2, N, N), np.float32)),
        (batched, np.zeros(N, np.float32)),
    ]
    for k, out in wrong:
        with pytest.raises(tg.LaunchError, match=r"^out: "):
            k(a, a, out=out)


def test_a_negative_stride_is_named_with_its_axis(batched: tg.Kernel) -> None:
    a = ints(2, N, N)
    for flipped, axis, stride in (
        (a[::-1], "batch", -64),
        (a[:, ::-1], "m", -8),
        (a[:, :, ::-1], "k", -1),
    ):
        with pytest.raises(
            tg.LaunchError, match=f"a: its stride along {axis} is {stride} elements"
        ):
            batched(flipped, ints(N, N))


# Prepared calls


def same(
    kernel: tg.Kernel, make: Callable[[np.ndarray], Any], read: Callable[[Any], np.ndarray]
) -> None:
    a, b, c = make(ints(40, 50)), make(ints(50, 33, seed=1)), make(ints(40, 33, seed=2))
    out = make(np.full((40, 33), np.nan, np.float32))
    prepared = kernel.prepare(a, b, c, alpha=2, beta=-1, out=out)
    assert np.isnan(read(out)).all()
    assert prepared() is out
    assert np.array_equal(read(out), read(kernel(a, b, c, alpha=2, beta=-1)))
    b[:] = make(ints(50, 33, seed=9)) if isinstance(b, np.ndarray) else ints(50, 33, seed=9)
    prepared()
    assert np.array_equal(read(out), 2 * ints(40, 50) @ ints(50, 33, seed=9) - ints(40, 33, seed=2))


def test_a_prepared_call_is_the_call(kernel: tg.Kernel) -> None:
    same(kernel, np.array, np.array)


def test_a_prepared_call_copies_what_changed(copying: tg.Kernel) -> None:
    same(copying, np.array, np.array)


def test_a_prepared_call_on_device_arrays(kernel: tg.Kernel) -> None:
    import pyopencl.array as cla

    same(kernel, lambda x: cla.to_device(kernel.device.queue, x), lambda x: x.get())


def test_a_prepared_call_makes_its_output_once(kernel: tg.Kernel) -> None:
    a, b = ints(9, 7), ints(7, 5)
    prepared = kernel.prepare(a, b)
    first = prepared()
    assert first is prepared.out
    assert np.array_equal(first, a @ b)
    a += 1
    assert prepared() is first
    assert np.array_equal(first, a @ b)
    assert prepared.entry in repr(prepared)


def test_a_prepared_call_accumulates_into_c(kernel: tg.Kernel) -> None:
    a, c = ints(N, N), np.zeros((N, N), np.float32)
    prepared = kernel.prepare(a, a, c, beta=1, out=c)
    for turn in range(1, 4):
        prepared()
        assert np.array_equal(c, turn * (a @ a))


def test_an_empty_prepared_call_does_nothing(kernel: tg.Kernel) -> None:
    prepared = kernel.prepare(np.zeros((0, 3), np.float32), np.zeros((3, 4), np.float32))
    assert prepared().shape == (0, 4)
    assert prepared.entry == ""
    deep = kernel.prepare(np.zeros((2, 0), np.float32), np.zeros((0, 4), np.float32))
    assert (deep() == 0).all()


def test_a_prepared_call_keeps_its_arrays(kernel: tg.Kernel) -> None:
    a, b = ints(300, 200), ints(200, 100)
    want, watch = a @ b, weakref.ref(a)
    prepared = kernel.prepare(a, b)
    del a, b
    gc.collect()
    assert watch() is not None
    room = [np.full((300, 200), np.nan, np.float32) for _ in range(8)]
    assert np.array_equal(prepared(), want)
    del prepared, room
    gc.collect()
    assert watch() is None


def test_preparing_refuses_what_a_call_refuses(kernel: tg.Kernel) -> None:
    a = ints(N, N)
    wrong: list[dict[str, Any]] = [
        {"a": a, "b": ints(N + 1, N)},
        {"a": a, "b": a, "out": a},
        {"a": a, "b": a, "beta": 1},
        {"a": a, "b": a, "alpha": "2"},
        {"a": a, "b": a.astype(np.float64)},
        {"a": a, "b": a[:, ::-1]},
        {"a": a, "b": a, "bias": a[0]},
        {"a": a, "b": None},
        {"a": a, "b": a, "stream": 3},
    ]
    for words in wrong:
        with pytest.raises(tg.LaunchError) as called:
            kernel(**words)
        with pytest.raises(tg.LaunchError) as prepared:
            kernel.prepare(**words)
        assert str(called.value) == str(prepared.value)


def test_prepared_calls_keep_apart(kernel: tg.Kernel) -> None:
    problems = [(ints(m, 29, seed=m), ints(29, 33, seed=m)) for m in range(1, 33)]
    prepared = [kernel.prepare(a, b) for a, b in problems]

    def work(which: int) -> bool:
        a, b = problems[which]
        plain = np.array_equal(kernel(a, b), a @ b)
        return plain and np.array_equal(prepared[which](), a @ b)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [*range(32)] * 5))


def test_calls_of_one_kernel_do_not_remember_each_other(kernel: tg.Kernel) -> None:
    # Same shapes and strides, at other addresses, with other scalars.
    room = np.zeros(4096, np.float32)
    for start in range(20):
        a = room[start : start + N * N].reshape(N, N)
        a[:] = ints(N, N, seed=start)
        b, c = ints(N, N, seed=50 + start), ints(N, N, seed=90 + start)
        assert np.array_equal(kernel(a, b, c, alpha=start, beta=2), start * (a @ b) + 2 * c)
        assert np.array_equal(kernel(a, b, np.full_like(c, np.nan)), a @ b)


def test_more_shapes_than_a_kernel_remembers(kernel: tg.Kernel) -> None:
    for m in [*range(1, 300), 1, 2]:
        a, b = ints(m, 3), ints(3, 2)
        assert np.array_equal(kernel(a, b), a @ b)


def test_the_entry_follows_each_calls_addresses_and_beta() -> None:
    kernel = tg.build(SPEC.replace(pins={"opencl": {"form": "work_group"}}), "opencl", "cpu")
    boundary = kernel._boundary
    assert boundary > 4
    # One shape and one set of strides, on a boundary and one element past it.
    room = np.zeros(32 * 32 + 128, np.float32)
    first = -room.ctypes.data % boundary // 4
    on, off = (room[s : s + 32 * 32].reshape(32, 32) for s in (first, first + 1))
    b, d = kernel(on, on), kernel(on, on)
    entries = [
        kernel.prepare(a, b, c, beta=beta, out=d).entry
        for a, c, beta in [(on, on, 1), (off, on, 1), (on, off, 1), (on, off, 0), (on, on, 1)]
    ]
    assert entries == ["gemm_wide", "gemm_narrow", "gemm_narrow", "gemm_wide", "gemm_wide"]


@pytest.mark.parametrize("major", ["row", "col"])
def test_a_new_output_lies_where_every_entry_may_write(major: str) -> None:
    made = tg.build(SPEC.replace(layout={"a": "row", "b": "row", "c": major}), "opencl", "cpu")
    kept = [made(ints(m, 3), ints(3, 5)) for m in range(1, 30)]
    assert all(d.ctypes.data % 64 == 0 for d in kept)
