"""Launches of several entries on OpenCL: a workspace as a buffer, and regions of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import registry
from tilegen.plan import Access, Argument, Entry, Formula
from tilegen.render import KernelSource

CPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "cpu"]
pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(not CPUS, reason="no OpenCL CPU device: pip install 'tilegen[cpu]'"),
]
SPLITS = 4
# The second half of the workspace holds the planes again, as a check of where a region starts.
TEXT = """
kernel void gemm_slices(long M, long N, long K, long split_k, global const float *a, long a_offset, long lda,
                        global const float *b, long b_offset, long ldb, global float *partial,
                        global float *again)
{
    const long i = get_global_id(0), split = i / (M * N), row = i % (M * N) / N, col = i % N;
    const long slice = (K + split_k - 1) / split_k, end = min(K, (split + 1) * slice);
    float sum = 0.0f;
    for (long k = split * slice; k < end; ++k)
        sum += a[a_offset + row * lda + k] * b[b_offset + k * ldb + col];
    partial[i] = sum;
    again[i] = 2.0f * sum;
}

kernel void gemm_sum(long M, long N, long planes, float alpha, global const float *partial,
                     global const float *again, global float *d, long d_offset, long ldd)
{
    const long i = get_global_id(0);
    float sum = 0.0f;
    for (long p = 0; p < planes; ++p)
        sum += partial[p * M * N + i] + again[p * M * N + i];
    d[d_offset + i / N * ldd + i % N] = alpha * sum;
}
"""


def size(name: str, value: str | None = None) -> Argument:
    return Argument(name, "i64", "size", value=None if value is None else Formula(value))


def array(name: str) -> tuple[Argument, ...]:
    return (
        Argument(name, "f32", "output" if name == "d" else "input", name),
        Argument(f"{name}_offset", "i64", "offset", name),
        Argument(f"ld{name}", "i64", "stride", name),
    )


def source(second: str) -> KernelSource:
    room = Formula(f"{second} + split_k * M * N * 4")
    planes = (
        Argument("partial", "f32", "workspace", value=Formula("0")),
        Argument("again", "f32", "workspace", value=Formula(second)),
    )
    entries = (
        Entry(
            "gemm_main", "main", "",
            (size("M"), size("N"), size("K"), size("split_k"), *array("a"), *array("b"), *planes),
            (Access("a", 1, 4), Access("b", 1, 4)), Formula("M * N * split_k"), 1,
            workspace=room, after=("gemm_reduce",), symbol_name="gemm_slices",
        ),
        Entry(
            "gemm_reduce", "reduce", "",
            (size("M"), size("N"), size("planes", "split_k"), Argument("alpha", "f32", "scalar"),
             *planes, *array("d")),
            (Access("d", 1, 4),), Formula("M * N"), 1, workspace=room, symbol_name="gemm_sum",
        ),
    )  # fmt: skip
    plan = tg.lower(tg.TileSpec(block=(32, 32, 8), warp=(32, 32)), "opencl", "cpu")
    return KernelSource(replace(plan, split_k=SPLITS, entries=entries), TEXT, ".cl", "0" * 64)


def ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


# Rounded up to 4 KiB, of which every device's sub-buffer alignment is a divisor.
ALIGNED = "(split_k * M * N * 4 + 4095) / 4096 * 4096"


@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_slices_are_summed(copying: bool, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl.array as cla

    kernel = tg.load(source(ALIGNED), CPUS[0])
    monkeypatch.setitem(kernel.device.__dict__, "shares_host_memory", not copying)

    def put(array: Any) -> Any:
        return cla.to_device(kernel.device.queue, array) if on_device else array

    for m, n, k in ((7, 5, 9), (3, 4, 0), (33, 20, 2)):
        a, b = ints(m, k), ints(k, n, seed=1)
        if on_device and not k:
            continue  # pyopencl has no buffer without bytes
        want = 2 * 3 * (a @ b)
        got = kernel(put(a), put(b), alpha=2)
        assert np.array_equal(got.get() if on_device else got, want)
        prepared = kernel.prepare(put(a), put(b), alpha=2)
        for _ in range(2):
            got = prepared()
            assert np.array_equal(got.get() if on_device else got, want)


def test_a_queue_that_keeps_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    kernel = tg.load(source(ALIGNED), CPUS[0])
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    context, handle = kernel.device.context, kernel.device.handle
    barriers: list[Any] = []
    plain = cl.enqueue_barrier
    monkeypatch.setattr(
        cl, "enqueue_barrier", lambda queue, **k: barriers.append(queue) or plain(queue, **k)
    )
    a, b = ints(300, 200), ints(200, 100, seed=1)
    for properties, expected in ((0, 0), (mode, 2)):
        queue = cl.CommandQueue(context, handle, properties)
        assert np.array_equal(kernel(a, b, stream=queue), 3 * (a @ b))
        assert len(barriers) == expected


def test_a_region_where_the_device_starts_no_buffer_is_refused() -> None:
    kernel = tg.load(source("split_k * M * N * 4"), CPUS[0])
    with pytest.raises(
        tg.LaunchError, match="workspace: the device gives no buffer from byte 16 on"
    ):
        kernel(ints(1, 3), ints(3, 1))
