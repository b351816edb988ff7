"""CUDA kernels on a GPU: every majorness, odd sizes, CuPy's arrays, streams and graphs, and the
emulator's results bit for bit."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from emulated.split_k import source as split_k_source

import tilegen as tg
from tilegen import registry
from tilegen.backend import TypeCombination
from tilegen.testing import Problem, View, check_problem, make_arrays

GPUS = list(registry.get("cuda").devices())
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not GPUS, reason="no CUDA GPU was found (tilegen targets)"),
]
TILES = [
    {"block": (128, 128, 16), "warp": (64, 32), "stages": 3},
    {"block": (64, 64, 8), "warp": (32, 32), "stages": 1, "thread": (4, 4)},
    {"block": (32, 96, 20), "warp": (16, 48), "stages": 2},
]
FMA = {"cuda": {"form": "fma"}}
BITS = {4: np.uint32, 8: np.uint64}


def build(**data: Any) -> tg.Kernel:
    return tg.build(tg.TileSpec(**data), "cuda", device=GPUS[0])


def cupy() -> Any:
    from tilegen_cuda.runtime import cupy

    return cupy()


@pytest.mark.parametrize("tile", TILES, ids=lambda t: "x".join(map(str, t["block"])))
@pytest.mark.parametrize("major", list(product("rc", repeat=4)), ids="".join)
def test_every_majorness(tile: dict[str, Any], major: tuple[str, ...]) -> None:
    names = {"r": "row", "c": "col"}
    layout = {x: names[m] for x, m in zip("abcd", major, strict=True)}
    report = tg.verify(build(**tile, layout=layout), examples=25, seed=7)
    assert set(report.entries) == {"gemm_wide", "gemm_narrow"}
    assert all(report.entries.values())


@pytest.mark.parametrize(
    "pins",
    [{"copy": "registers"}, {"swizzle": "none"}, {"swizzle": "pad"}],
    ids=str,
)
def test_every_pin(pins: dict[str, Any]) -> None:
    tg.verify(build(**TILES[0], pins={"cuda": pins}), examples=25, seed=4)


def test_two_blocks_on_a_multiprocessor() -> None:
    tg.verify(
        build(block=(64, 64, 16), warp=(32, 32), pins={"cuda": {"min_blocks": 4}}), examples=25
    )


COMBINATIONS = [
    (t, output)
    for form in (registry.get("cuda").forms(GPUS[0].arch) if GPUS else ())
    if form.name == "fma"
    for t in form.types(GPUS[0].arch)
    for output in t.outputs
]


@pytest.mark.parametrize(
    ("types", "output"), COMBINATIONS, ids=lambda x: x.a + x.b if hasattr(x, "a") else "".join(x)
)
def test_every_type(types: TypeCombination, output: tuple[str, str]) -> None:
    c, d = output
    kinds = {"a": types.a, "b": types.b, "acc": types.acc, "c": c, "d": d}
    for tile, major in (
        (TILES[1], ("row", "col", "row", "row")),
        (TILES[2], ("col", "row", "row", "col")),
    ):
        layout = dict(zip("abcd", major, strict=True))
        assert (
            tg.verify(
                build(**tile, types=kinds, layout=layout, pins=FMA), examples=20, seed=5
            ).examples
            == 20
        )


def test_batch_and_every_epilogue_step() -> None:
    steps = ["scale", "bias", "residual", "gelu", "gelu_tanh", "silu", "relu"]
    epilogue = [{"op": op} for op in steps] + [{"op": "clamp", "low": -4, "high": 4}]
    tg.verify(build(**TILES[1], batch="strided", epilogue=epilogue), examples=50, seed=3)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("tile", TILES, ids=lambda t: "x".join(map(str, t["block"])))
def test_the_emulator_has_the_same_bits(tile: dict[str, Any], kind: str) -> None:
    """Random values, so that another order of the sums, or another rounding, would show."""
    types = dict.fromkeys(("a", "b", "acc", "c", "d"), kind)
    if kind == "f64" and tile["block"] == (128, 128, 16):
        tile = {**tile, "block": (64, 64, 16), "warp": (32, 32)}
    spec = tg.TileSpec(**tile, types=types, pins=FMA)
    plan = tg.lower(spec, "cuda", GPUS[0].arch.name)
    source = tg.emit(plan)
    draw = np.random.default_rng(11)
    dtype = np.dtype("f4" if kind == "f32" else "f8")
    a, b = (draw.standard_normal(s).astype(dtype) for s in ((133, 77), (77, 101)))
    device, emulated = tg.load(source, GPUS[0])(a, b), tg.load(source, "emulator")(a, b)
    assert np.array_equal(device.view(BITS[dtype.itemsize]), emulated.view(BITS[dtype.itemsize]))


def test_arrays_on_the_device() -> None:
    cp, kernel = cupy(), build(**TILES[0])
    problem = Problem(257, 130, 77, alpha=2.0, beta=-1.0)
    host = make_arrays(problem, kernel.plan.spec)
    a, b, c = (cp.asarray(np.ascontiguousarray(x)) for x in (host.a, host.b, host.c))
    d = kernel(a, b, c, alpha=2.0, beta=-1.0)
    assert isinstance(d, cp.ndarray)
    assert np.array_equal(d.get(), 2 * (host.a @ host.b) - host.c)
    part = kernel(a[1:, 1:], b[1:, 3:])
    assert np.array_equal(part.get(), host.a[1:, 1:] @ host.b[1:, 3:])
    assert kernel(a, b, c, beta=1.0, out=c) is c
    assert np.array_equal(c.get(), host.a @ host.b + host.c)
    with pytest.raises(tg.LaunchError, match="out: it overlaps a"):
        kernel(a[:, :64], b[:64, :64], out=a[:, 3:67])
    with pytest.raises(tg.LaunchError, match="all on the host or all on the device"):
        kernel(host.a, b)


def test_a_stream_and_a_graph() -> None:
    cp, kernel = cupy(), build(**TILES[0])
    a = cp.asarray(np.ones((200, 64), np.float32))
    b = cp.asarray(np.ones((64, 96), np.float32))
    out, stream = cp.zeros((200, 96), np.float32), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    kernel(a, b, out=out, stream=stream)
    stream.synchronize()
    assert (out == 64).all()
    prepared = kernel.prepare(a, b, out=out, stream=stream)
    with stream:
        stream.begin_capture()
        prepared()
        graph = stream.end_capture()
    a *= 2
    cp.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert (out == 128).all()
    # What other libraries call a stream: its address.
    kernel(a, b, out=out, stream=stream.ptr)
    with pytest.raises(tg.LaunchError, match="stream: a CuPy stream is needed"):
        kernel(a, b, out=out, stream="stream")


def test_large_offsets_do_not_wrap() -> None:
    cp, kernel = cupy(), build(**TILES[0])
    rows, k, ld = 5, 64, 2**30 + 8
    store = cp.empty((rows - 1) * ld + k, np.float32)
    a = cp.ndarray((rows, k), np.float32, store.data, strides=(ld * 4, 4))
    a[...] = cp.arange(1, rows + 1, dtype=np.float32)[:, None]
    b = cp.ones((k, 3), np.float32)
    want = np.arange(1, rows + 1, dtype=np.float32)[:, None] * k * np.ones((1, 3), np.float32)
    assert np.array_equal(kernel(a, b).get(), want)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_unaligned_views(offset: int) -> None:
    views = {x: View(pad=offset, offset=offset) for x in "abcd"}
    check_problem(build(**TILES[0]), Problem(131, 133, 67, beta=1.0, views=views))


def test_host_arrays_keep_what_lies_between_the_elements() -> None:
    kernel = build(**TILES[0])
    draw = np.random.default_rng(0)
    a = draw.integers(-3, 4, (70, 90)).astype(np.float32)
    b = draw.integers(-3, 4, (90, 50)).astype(np.float32)
    room = np.full((70, 120), 7, np.float32)
    prepared = kernel.prepare(a, b, out=room[:, 3:53])
    for _ in range(3):
        b += 1
        assert np.array_equal(prepared(), a @ b)
        assert np.array_equal(kernel(a, b), a @ b)
    assert (room[:, :3] == 7).all()
    assert (room[:, 53:] == 7).all()
    c = draw.integers(-3, 4, (70, 50)).astype(np.float32)
    before = c.copy()
    twice = kernel.prepare(a, b, c, beta=1, out=c)
    twice()
    twice()
    assert np.array_equal(c, before + 2 * (a @ b))


def test_an_array_of_another_library() -> None:
    cp, kernel = cupy(), build(**TILES[0])

    class Foreign:
        def __init__(self, array: Any) -> None:
            self._array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    a, b = cp.ones((40, 16), np.float32), cp.ones((16, 24), np.float32)
    assert (kernel(Foreign(a), Foreign(b)) == 16).all()
    with pytest.raises(tg.LaunchError, match="b: an array on the GPU is needed"):
        kernel(a, [[1.0]])


def test_two_threads_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    cp, kernel = cupy(), build(**TILES[0])

    def work(value: int) -> bool:
        with cp.cuda.Stream(non_blocking=True) as stream:
            a = cp.full((300, 64), value, np.float32)
            b = cp.ones((64, 200), np.float32)
            ok = [(kernel(a, b, stream=stream) == 64 * value).all() for _ in range(20)]
            stream.synchronize()
            return all(bool(x) for x in ok)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))


def split_k() -> tg.Kernel:
    return tg.load(split_k_source(GPUS[0].arch.name), GPUS[0])


@pytest.mark.parametrize(("m", "n", "k"), [(64, 128, 256), (71, 53, 200), (3, 5, 0), (300, 200, 7)])
def test_packs_slices_and_their_sum(m: int, n: int, k: int) -> None:
    cp, kernel = cupy(), split_k()
    draw = np.random.default_rng(3)
    a, b, c = (draw.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    want = 2 * (a @ b) - c
    on_device = [cp.asarray(x) for x in (a, b, c)]
    for _ in range(3):
        assert np.array_equal(kernel(*on_device, alpha=2, beta=-1).get(), want)
        assert np.array_equal(kernel(a, b, c, alpha=2, beta=-1), want)
    prepared = kernel.prepare(*on_device, alpha=2, beta=-1)
    for _ in range(3):
        assert np.array_equal(prepared().get(), want)


@pytest.mark.parametrize("prepare", [False, True])
def test_a_workspace_in_a_graph(prepare: bool) -> None:
    cp, kernel = cupy(), split_k()
    a, b = cp.ones((200, 64), np.float32), cp.ones((64, 96), np.float32)
    out, stream = cp.zeros((200, 96), np.float32), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    call = kernel.prepare(a, b, out=out, stream=stream)
    if not prepare:
        call = lambda: kernel(a, b, out=out, stream=stream)  # noqa: E731
    with stream:
        stream.begin_capture()
        call()
        graph = stream.end_capture()
    for turn in range(1, 4):
        # What the pool gives away meanwhile is not the graph's.
        junk = [cp.full(10**6, np.nan, np.float32) for _ in range(4)]
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert (out == 64 * turn).all()
        a += 1
        del junk


def test_workspaces_of_streams_at_once() -> None:
    cp, kernel = cupy(), split_k()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    arrays = [
        (cp.full((500, 400), i, np.float32), cp.ones((400, 300), np.float32)) for i in range(1, 5)
    ]
    outs = [cp.zeros((500, 300), np.float32) for _ in streams]
    cp.cuda.Device().synchronize()
    for _ in range(50):
        for stream, (a, b), out in zip(streams, arrays, outs, strict=True):
            kernel(a, b, out=out, stream=stream)
    for i, (stream, out) in enumerate(zip(streams, outs, strict=True), 1):
        stream.synchronize()
        assert (out == 400 * i).all()


def test_recalled_calls_see_new_arrays() -> None:
    cp, kernel = cupy(), build(**TILES[0])
    for turn in range(1, 20):
        a = cp.full((130 + turn % 3, 72), turn, np.float32)
        b = cp.ones((72, 64 + 4 * (turn % 2)), np.float32)
        assert (kernel(a, b) == 72 * turn).all()
        assert (kernel(a[:, 1:], b[1:], alpha=turn) == 71 * turn * turn).all()


def test_from_a_thread_that_never_used_cuda() -> None:
    from threading import Thread

    cp, kernel = cupy(), build(**TILES[0])
    a, b, out = (
        cp.ones((40, 16), np.float32),
        cp.ones((16, 24), np.float32),
        cp.zeros((40, 24), np.float32),
    )
    prepared = kernel.prepare(a, b, out=out)
    cp.cuda.Device().synchronize()
    thread = Thread(target=prepared)
    thread.start()
    thread.join()
    cp.cuda.Device().synchronize()
    assert (out == 16).all()


@pytest.mark.parametrize("fault", ["illegal", "misaligned"])
def test_a_fault_of_another_kernel_is_explained(fault: str) -> None:
    """In a process of its own, which the fault leaves without a context."""
    import subprocess
    import sys

    place = {"illegal": "((float *)64)", "misaligned": "((float *)((char *)p + 2))"}[fault]
    program = f"""
import cupy as cp, numpy as np, tilegen as tg
from tilegen import registry
kernel = tg.build(tg.TileSpec(block=(64, 64, 8), warp=(32, 32)), "cuda", device="gpu:0")
a = cp.ones((64, 64), np.float32)
kernel(a, a)
bad = cp.RawKernel('extern "C" __global__ void bad(float *p) {{ *{place} = 1.0f; }}', "bad")
bad((1,), (1,), (a,))
try:
    cp.cuda.Device().synchronize()
except Exception:
    pass
try:
    kernel(a, a)
except tg.LaunchError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    name = {"illegal": "CUDA_ERROR_ILLEGAL_ADDRESS", "misaligned": "CUDA_ERROR_MISALIGNED_ADDRESS"}
    assert name[fault] in done.stdout, done.stderr
    assert "start the process anew" in done.stdout
    assert "compute-sanitizer" in done.stdout


def test_bf16_arrays_of_cupy_are_told_apart_from_integers() -> None:
    import ml_dtypes

    cp = cupy()
    kernel = build(**TILES[0])
    bits = cp.zeros((8, 8), np.uint16)
    with pytest.raises(tg.LaunchError, match="its type is uint16"):
        kernel(bits, bits)
    with pytest.raises(tg.LaunchError, match="its type is bfloat16"):
        kernel(bits.view(ml_dtypes.bfloat16), bits)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    kernel = build(**TILES[0])
    a = torch.randint(-3, 4, (130, 72), device="cuda").float()
    b = torch.randint(-3, 4, (72, 64), device="cuda").float()
    want = a @ b
    for _ in range(3):
        got = kernel(a, b)
        assert isinstance(got, torch.Tensor)
        assert torch.equal(got, want)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        d = kernel(a, b)
        side.synchronize()
        assert torch.equal(d, want)
