"""mma_sync kernels on a GPU: every instruction and type, every majorness, split K, streams and graphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from emulated.mma_probes import PROBES, name, probe, spec

import tilegen as tg
from tilegen import registry
from tilegen.hardware import Instruction
from tilegen.testing import Problem, View, check_problem
from tilegen_cuda.mma import MmaSync, of_arch

GPUS = list(registry.get("cuda").devices())
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not GPUS, reason="no CUDA GPU was found (tilegen targets)"),
]
TILE: dict[str, Any] = {"block": (64, 64, 32), "warp": (32, 32)}
PINS = {"cuda": {"form": "mma_sync"}}
BF16 = {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16", "d": "bf16"}
F16 = {"a": "f16", "b": "f16", "acc": "f32", "c": "f16", "d": "f16"}
S8 = {"a": "s8", "b": "s8", "acc": "s32", "c": "s8", "d": "s8"}


def of_types() -> list[tg.TileSpec]:
    """Every product of types in each of its instructions, into its first and its last output."""
    out: list[tg.TileSpec] = []
    arch = GPUS[0].arch
    for i in of_arch(arch):
        outputs = next(
            t.outputs
            for t in MmaSync().types(arch)
            if (t.a, t.b, t.acc) == (i.type_a, i.type_b, i.type_acc)
        )
        majors = (("row", "row", "row", "row"), ("col", "row", "col", "col"))
        for (c, d), major in zip(dict.fromkeys((outputs[0], outputs[-1])), majors, strict=False):
            types = {"a": i.type_a, "b": i.type_b, "acc": i.type_acc, "c": c, "d": d}
            pins = {"cuda": {"form": "mma_sync", "instruction": i.name}}
            layout = dict(zip("abcd", major, strict=True))
            out.append(tg.TileSpec(**TILE, types=types, layout=layout, pins=pins))
    return out


def of_majors() -> list[tg.TileSpec]:
    return [
        tg.TileSpec(**TILE, types=types, layout=dict(zip("abcd", major, strict=True)))
        for types in (BF16, S8)
        for major in product(("row", "col"), repeat=4)
    ]


def said(x: tg.TileSpec) -> str:
    t, layout = x.types, x.layout
    major = "".join(getattr(layout, o)[0] for o in "abcd")
    chosen = x.pins.get("cuda", {}).get("instruction", "")
    return "-".join(map(str, filter(None, (t.a, t.b, t.acc, t.d, major, chosen))))


SPECS = [*of_types(), *of_majors()] if GPUS else []


@pytest.fixture(scope="module")
def _compiled_ahead() -> None:
    """All kernels of the long lists into the cache at once: compiling takes most of the time."""
    probed = [spec(i, d) for i, d in PROBES if i in of_arch(GPUS[0].arch)]

    def compile_(x: tg.TileSpec) -> None:
        tg.compile(tg.emit(tg.lower(x, "cuda", GPUS[0].arch)))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(compile_, [*SPECS, *probed]))


def build(**data: Any) -> tg.Kernel:
    kernel = tg.build(tg.TileSpec(**{**TILE, "pins": PINS, **data}), "cuda", device=GPUS[0])
    assert kernel.plan.form == "mma_sync"
    return kernel


def cupy() -> Any:
    from tilegen_cuda.runtime import cupy

    return cupy()


@pytest.mark.usefixtures("_compiled_ahead")
@pytest.mark.parametrize(("instruction", "d"), PROBES, ids=name)
def test_one_hot(instruction: Instruction, d: str) -> None:
    """As on the emulator, so that its fragments are the hardware's."""
    if instruction not in of_arch(GPUS[0].arch):
        pytest.skip(f"{GPUS[0].arch.name} has no {instruction.mnemonic}")
    kernel = tg.build(spec(instruction, d), "cuda", device=GPUS[0])
    assert kernel.plan.instruction.name == instruction.name
    assert probe(kernel) > 0


@pytest.mark.usefixtures("_compiled_ahead")
@pytest.mark.parametrize("chosen", SPECS, ids=said)
def test_every_type_and_every_majorness(chosen: tg.TileSpec) -> None:
    kernel = tg.build(chosen, "cuda", device=GPUS[0])
    assert kernel.plan.form == "mma_sync"
    report = tg.verify(kernel, examples=25, seed=5)
    assert report.examples >= 25
    assert report.entries[f"{chosen.name}_wide"]


@pytest.mark.parametrize("types", [BF16, S8], ids=lambda t: t["a"])
@pytest.mark.parametrize("d", ["row", "col"])
def test_split_k(types: dict[str, str], d: str) -> None:
    steps = [{"op": "bias"}, {"op": "relu"}]
    kernel = build(types=types, split_k=3, batch="strided", layout={"d": d}, epilogue=steps)
    tg.verify(kernel, examples=25, seed=6)
    # Parts of K that are empty, or of one tile.
    for k in (0, 1, 31, 64, 97, 500):
        check_problem(kernel, Problem(70, 90, k, batch=2, beta=2.0))


def test_batch_and_every_epilogue_step() -> None:
    steps = ["scale", "bias", "residual", "gelu", "gelu_tanh", "silu", "relu"]
    epilogue = [{"op": op} for op in steps] + [{"op": "clamp", "low": -4, "high": 4}]
    tg.verify(build(types=F16, batch="strided", epilogue=epilogue), examples=40, seed=3)


@pytest.mark.parametrize(
    "pins",
    [{"copy": "registers"}, {"swizzle": "none"}, {"swizzle": "pad"}, {"epilogue": "direct"}],
    ids=str,
)
@pytest.mark.parametrize("stages", [1, 3])
def test_every_pin(pins: dict[str, Any], stages: int) -> None:
    kernel = build(types=BF16, stages=stages, pins={"cuda": {"form": "mma_sync", **pins}})
    tg.verify(kernel, examples=15, seed=4)


def test_the_least_number_of_blocks() -> None:
    pins = {"cuda": {"form": "mma_sync", "min_blocks": 4}}
    tg.verify(build(types=BF16, pins=pins), examples=15, seed=4)


ENTRIES = [(0, "wide"), (8, "wide"), (4, "by8"), (2, "by4"), (1, "narrow")]


@pytest.mark.parametrize(("offset", "entry"), ENTRIES)
def test_views_take_the_widest_entry_that_they_are_aligned_for(offset: int, entry: str) -> None:
    cp, kernel = cupy(), build(types=F16)
    draw = np.random.default_rng(1)

    def view(rows: int, cols: int) -> Any:
        ld = -(-cols // 8) * 8 + offset
        store = cp.asarray(draw.integers(-2, 3, rows * ld + offset).astype(np.float16))
        return cp.ndarray((rows, cols), np.float16, store.data + 2 * offset, strides=(2 * ld, 2))

    a, b, c, out = view(131, 67), view(67, 133), view(131, 133), view(131, 133)
    want = a.get().astype(np.float32) @ b.get().astype(np.float32) + c.get()
    prepared = kernel.prepare(a, b, c, beta=1.0, out=out)
    assert prepared.entry == f"gemm_{entry}"
    prepared()
    assert np.array_equal(out.get(), want.astype(np.float16))


def test_unaligned_views_of_the_host() -> None:
    kernel = build(types=BF16)
    for offset in (1, 2, 3, 4):
        views = {x: View(pad=offset, offset=offset) for x in "abcd"}
        check_problem(kernel, Problem(131, 133, 67, beta=1.0, views=views))


def test_dynamic_shared_memory() -> None:
    kernel = build(types=BF16, block=(128, 256, 32), warp=(64, 64), stages=4)
    assert kernel.plan.budget.shared_bytes > 48 * 1024
    tg.verify(kernel, examples=15, seed=8)


def test_a_stream_and_a_graph_with_a_workspace() -> None:
    cp, kernel = cupy(), build(types=F16, split_k=4)
    draw = np.random.default_rng(2)
    a, b = (cp.asarray(draw.integers(-2, 3, s).astype(np.float16)) for s in ((200, 512), (512, 96)))
    want = a.get().astype(np.float32) @ b.get().astype(np.float32)
    out, stream = cp.zeros((200, 96), np.float16), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    kernel(a, b, out=out, stream=stream)
    stream.synchronize()
    assert np.array_equal(out.get(), want.astype(np.float16))
    prepared = kernel.prepare(a, b, out=out, stream=stream)
    with stream:
        stream.begin_capture()
        prepared()
        graph = stream.end_capture()
    a *= 2
    out[...] = 0
    cp.cuda.Device().synchronize()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    assert np.array_equal(out.get(), (2 * want).astype(np.float16))


def test_large_offsets_do_not_wrap() -> None:
    cp, kernel = cupy(), build(types=F16)
    rows, k, ld = 5, 64, 2**30 + 8
    store = cp.empty((rows - 1) * ld + k, np.float16)
    a = cp.ndarray((rows, k), np.float16, store.data, strides=(ld * 2, 2))
    a[...] = cp.arange(1, rows + 1, dtype=np.float16)[:, None]
    b = cp.ones((k, 8), np.float16)
    want = np.arange(1, rows + 1, dtype=np.float32)[:, None] * k * np.ones((1, 8), np.float32)
    assert np.array_equal(kernel(a, b).get(), want.astype(np.float16))


def test_the_same_bits_every_time() -> None:
    """Split K adds its parts in their order, whichever block is done first."""
    cp, kernel = cupy(), build(types=F16, split_k=4)
    draw = np.random.default_rng(4)
    a, b = (
        cp.asarray(draw.standard_normal(s).astype(np.float16)) for s in ((300, 900), (900, 300))
    )
    first = kernel(a, b).get()
    for _ in range(10):
        assert np.array_equal(kernel(a, b).get().view(np.uint16), first.view(np.uint16))
