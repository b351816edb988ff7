"""OpenCL kernels on a GPU: every majorness, odd sizes, and arrays that stay on the device."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tilegen as tg
from tilegen import registry
from tilegen.backend import TypeCombination
from tilegen.testing import Problem, View, check_problem, make_arrays

GPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "gpu"]
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not GPUS, reason="no OpenCL GPU was found (tilegen targets)"),
]
TILES = [
    {"block": (128, 128, 16), "warp": (64, 32), "stages": 2},
    {"block": (64, 64, 8), "warp": (32, 32), "stages": 1, "thread": (4, 4)},
    {"block": (32, 96, 20), "warp": (16, 48), "stages": 2},
]


@pytest.mark.parametrize("tile", TILES, ids=lambda t: "x".join(map(str, t["block"])))
@pytest.mark.parametrize("major", list(product("rc", repeat=4)), ids="".join)
def test_every_majorness(tile: dict[str, object], major: tuple[str, ...]) -> None:
    names = {"r": "row", "c": "col"}
    layout = {x: names[m] for x, m in zip("abcd", major, strict=True)}
    kernel = tg.build(tg.TileSpec(**tile, layout=layout), "opencl", device=GPUS[0])
    report = tg.verify(kernel, examples=25, seed=7)
    assert set(report.entries) == {"gemm_wide", "gemm_narrow"}
    assert all(report.entries.values())


COMBINATIONS = [
    (t, output)
    for form in (registry.get("opencl").forms(GPUS[0].arch) if GPUS else ())
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
        spec = tg.TileSpec(**tile, types=kinds, layout=layout)
        kernel = tg.build(spec, "opencl", device=GPUS[0])
        assert tg.verify(kernel, examples=20, seed=5).examples >= 20


def test_batch_and_every_epilogue_step() -> None:
    steps = ["scale", "bias", "residual", "gelu", "gelu_tanh", "silu", "relu"]
    epilogue = [{"op": op} for op in steps] + [{"op": "clamp", "low": -4, "high": 4}]
    spec = tg.TileSpec(**TILES[1], batch="strided", epilogue=epilogue)
    tg.verify(tg.build(spec, "opencl", device=GPUS[0]), examples=50, seed=3)


def test_arrays_on_the_device() -> None:
    import pyopencl.array as cla

    kernel = tg.build(tg.TileSpec(**TILES[0]), "opencl", device=GPUS[0])
    queue = GPUS[0].queue
    problem = Problem(257, 130, 77, alpha=2.0, beta=-1.0)
    host = make_arrays(problem, kernel.plan.spec)
    a, b, c = (cla.to_device(queue, np.ascontiguousarray(x)) for x in (host.a, host.b, host.c))
    d = kernel(a, b, c, alpha=2.0, beta=-1.0)
    assert isinstance(d, cla.Array)
    assert np.array_equal(d.get(), 2 * (host.a @ host.b) - host.c)
    # A view keeps its buffer and its offset; the narrow entry runs on it.
    part = kernel(a[1:, 1:], b[1:, 3:])
    assert np.array_equal(part.get(), host.a[1:, 1:] @ host.b[1:, 3:])


def test_large_offsets_do_not_wrap() -> None:
    kernel = tg.build(tg.TileSpec(**TILES[0]), "opencl", device=GPUS[0])
    import pyopencl as cl
    import pyopencl.array as cla

    device = GPUS[0]
    rows, k, ld = 5, 64, 2**30 + 8
    size = ((rows - 1) * ld + k) * 4
    if size > device.handle.max_mem_alloc_size:
        pytest.skip(f"{size} bytes are over the device's largest allocation")
    store = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, size)
    a = cla.Array(device.queue, (rows, k), np.float32, data=store, strides=(ld * 4, 4))
    for row in range(rows):
        line = np.full(k, row + 1, np.float32)
        cl.enqueue_copy(device.queue, store, line, dst_offset=row * ld * 4)
    b = cla.to_device(device.queue, np.ones((k, 3), np.float32))
    want = np.arange(1, rows + 1, dtype=np.float32)[:, None] * k * np.ones((1, 3), np.float32)
    assert np.array_equal(kernel(a, b).get(), want)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_unaligned_views(offset: int) -> None:
    kernel = tg.build(tg.TileSpec(**TILES[0]), "opencl", device=GPUS[0])
    views = {x: View(pad=offset, offset=offset) for x in "abcd"}
    check_problem(kernel, Problem(131, 133, 67, beta=1.0, views=views))


def ints(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def test_a_prepared_call_copies_what_changed_and_only_its_elements() -> None:
    kernel = tg.build(tg.TileSpec(**TILES[0]), "opencl", device=GPUS[0])
    a, b, room = ints(0, 70, 90), ints(1, 90, 50), np.full((70, 120), 7, np.float32)
    prepared = kernel.prepare(a, b, out=room[:, 3:53])
    for _ in range(3):
        b += 1
        assert np.array_equal(prepared(), a @ b)
        assert np.array_equal(kernel(a, b), a @ b)
    assert (room[:, :3] == 7).all()
    assert (room[:, 53:] == 7).all()
    c = ints(2, 70, 50)
    twice = kernel.prepare(a, b, c, beta=1, out=c)
    twice()
    twice()
    assert np.array_equal(c, ints(2, 70, 50) + 2 * (a @ b))


def test_a_prepared_call_on_device_arrays() -> None:
    import pyopencl.array as cla

    kernel = tg.build(tg.TileSpec(**TILES[0]), "opencl", device=GPUS[0])
    queue = GPUS[0].queue
    a, b = ints(0, 70, 90), ints(1, 90, 50)
    device_a, device_b = cla.to_device(queue, a), cla.to_device(queue, b)
    prepared = kernel.prepare(device_a, device_b)
    for turn in range(3):
        device_b.set(b + turn)
        assert np.array_equal(prepared().get(), a @ (b + turn))
    shifted = cla.Array(queue, (70, 50), np.float32, data=device_a.base_data, offset=4)
    with pytest.raises(tg.LaunchError, match="out: it overlaps a"):
        kernel(device_a, device_b, out=shifted)
