"""Calls on CUDA without a GPU: what reaches the driver, and what its errors become."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cuda_stub import Array, RuntimeError_, Stub, array, loaded, stubbed
from emulated.split_k import SPLITS
from emulated.split_k import source as split_k_source

import tilegen as tg
from tilegen_cuda.failures import FAILURES


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    return stubbed(monkeypatch)


def source(**data: Any) -> Any:
    tile = {"block": (128, 128, 16), "warp": (64, 32), "stages": 4}
    return tg.emit(tg.lower(tg.TileSpec(**(tile | data)), "cuda", "sm_80"))


@pytest.fixture
def kernel(stub: Stub) -> tg.Kernel:
    return loaded(stub, source())


def ptr(one: Array) -> int:
    return int(one.data.ptr)


def test_what_the_driver_gets(stub: Stub, kernel: tg.Kernel) -> None:
    a, b, c, d = array((70, 40)), array((40, 36)), array((70, 36)), array((70, 36))
    for _ in range(3):
        assert kernel(a, b, c, alpha=2, beta=-0.5, out=d, stream=stub.stream(5)) is d
    entry = kernel.plan.main_entries[0]
    want = {
        "M": 70, "N": 36, "K": 40, "batch": 1, "alpha": 2.0, "beta": -0.5, "a": ptr(a), "b": ptr(b),
        "c": ptr(c), "d": ptr(d), "lda": 40, "ldb": 36, "ldc": 36, "ldd": 36, "a_step": 1,
        "b_step": 1, "c_step": 1,
    }  # fmt: skip
    (first, *others) = stub.launches
    assert others == [first, first]
    assert first == {
        "symbol": "gemm_wide", "grid": 1, "block": entry.block, "dynamic": entry.shared_bytes,
        "stream": 5, "values": {x.name: want[x.name] for x in entry.arguments},
    }  # fmt: skip
    assert stub.attributes == {"gemm_wide": entry.shared_bytes, "gemm_narrow": entry.shared_bytes}


# What a later call must not have from an earlier one: another address, alignment, scalar, operand.
CALLS: list[dict[str, Any]] = [
    {},
    {"alpha": 3},
    {"alpha": 3.5, "beta": 0},
    {"a_offset": 4},
    {"b_offset": 8},
    {"c": True},
    {"c": True, "beta": 2.0},
    {"c": True, "c_offset": 4, "beta": 2.0},
    {"c": True, "c_offset": 4, "beta": 0.0},
    {"out": True},
    {"out": True, "d_offset": 4},
    {"c": True, "beta": 1, "in_place": True},
    {"stream": 9},
    {"m": 71},
    {"n": 37},
    {"k": 0},
    {"m": 0},
    {"alpha": np.float32(2)},
]


def do(kernel: tg.Kernel, stub: Stub, how: dict[str, Any]) -> list[dict[str, Any]]:
    """One call; what it launched, with operands in the place of addresses."""
    m, n, k = how.get("m", 70), how.get("n", 36), how.get("k", 40)
    a = array((m, k), offset=how.get("a_offset", 0))
    b = array((k, n), offset=how.get("b_offset", 0))
    c = array((m, n), offset=how.get("c_offset", 0)) if how.get("c") else None
    out = array((m, n), offset=how.get("d_offset", 0)) if how.get("out") else None
    if how.get("in_place"):
        out = c
    stream = stub.stream(how["stream"]) if "stream" in how else None
    alpha, beta = how.get("alpha", 1), how.get("beta", 0)
    stub.launches.clear()
    got = kernel(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream)
    assert out is None or got is out
    assert got.shape == (m, n)
    names = {ptr(x): name for name, x in (("a", a), ("b", b), ("d", got)) if x.size}
    if c is not None and c is not out:
        names[ptr(c)] = "c"
    launched = []
    for one in stub.launches:
        values = {n: names.get(v, v) if n in "abcd" else v for n, v in one["values"].items()}
        if not k:
            values |= {"a": None, "b": None}
        launched.append({**one, "values": values})
    return launched


def test_a_recalled_call_is_the_call(stub: Stub, kernel: tg.Kernel) -> None:
    for how in [*CALLS, *CALLS, *reversed(CALLS)]:
        assert do(kernel, stub, how) == do(loaded(stub, source()), stub, how), how
    assert kernel._recalled
    assert {one["symbol"] for one in do(kernel, stub, {"a_offset": 4})} == {"gemm_narrow"}


def test_batches_vectors_and_residuals_are_recalled_too(stub: Stub) -> None:
    steps = [{"op": "bias"}, {"op": "scale", "along": "m"}, {"op": "residual"}]
    kernel = loaded(stub, source(batch="strided", epilogue=steps))
    a, b, r = array((3, 70, 40)), array((40, 36)), array((3, 70, 36))
    bias, scale = array((36,)), array((3, 70))
    for _ in range(3):
        d = kernel(a, b, bias=bias, scale=scale, residual=r)
        values = stub.launches[-1]["values"]
        assert (values["batch"], values["b_batch_stride"], values["scale_batch_stride"]) == (
            3,
            0,
            70,
        )
        assert (values["bias"], values["scale"]) == (ptr(bias), ptr(scale))
        assert (values["residual"], values["d"]) == (ptr(r), ptr(d))
        assert kernel(a, b, bias=bias, scale=scale, residual=r, out=r) is r
        assert stub.launches[-1]["values"]["d"] == ptr(r)


def test_what_is_recalled_is_still_refused(stub: Stub, kernel: tg.Kernel) -> None:
    a, b, c = array((64, 64)), array((64, 64)), array((64, 64))
    for _ in range(2):
        kernel(a, b, c, beta=1, out=c)
        kernel(a, b, out=array((64, 64)))
        with pytest.raises(tg.LaunchError, match="out: it overlaps a"):
            kernel(a, b, out=a)
        with pytest.raises(tg.LaunchError, match="beta = 1 needs c"):
            kernel(a, b, beta=1)
        with pytest.raises(tg.LaunchError, match="not a real number"):
            kernel(a, b, alpha=True)
        with pytest.raises(tg.LaunchError, match="starts at an address"):
            kernel(array((64, 64), offset=2), b)
        with pytest.raises(tg.LaunchError, match="lives on GPU 1"):
            kernel(a, array((64, 64), number=1))
        with pytest.raises(tg.LaunchError, match="float64"):
            kernel(a, array((64, 64), np.float64))
        with pytest.raises(tg.LaunchError, match="all on the host or all on the device"):
            kernel(a, b.held)
    room = array((64, 128))
    left, right = Array(room.held[:, :64]), Array(room.held[:, 64:])
    for _ in range(2):
        # Their bytes interleave and they share none: looked at element by element.
        assert kernel(left, b, out=right) is right
    shifted = Array(room.held[:, 32:96])
    with pytest.raises(tg.LaunchError, match="out: it overlaps a"):
        kernel(left, b, out=shifted)


def test_more_kinds_of_calls_than_are_remembered(stub: Stub, kernel: tg.Kernel) -> None:
    for m in [*range(1, 300), 1]:
        kernel(array((m, 8)), array((8, 4)))
        assert stub.launches[-1]["values"]["M"] == m
    assert len(kernel._recalled) <= 256


def test_prepared_calls_keep_their_own_arguments(stub: Stub, kernel: tg.Kernel) -> None:
    pairs = [(array((m, 40)), array((40, 36))) for m in (10, 20, 30)]
    prepared = [kernel.prepare(a, b, alpha=i) for i, (a, b) in enumerate(pairs)]
    assert stub.launches == []
    for _ in range(2):
        for i, ((a, _b), one) in enumerate(zip(pairs, prepared, strict=True)):
            assert one() is one.out
            values = stub.launches[-1]["values"]
            assert (values["M"], values["alpha"]) == ((i + 1) * 10, i)
            assert (values["a"], values["d"]) == (ptr(a), ptr(one.out))


def test_threads_at_once(stub: Stub, kernel: tg.Kernel) -> None:
    arrays = {m: array((m, 40)) for m in range(1, 9)}
    b = array((40, 36))

    def work(m: int) -> None:
        for turn in range(50):
            kernel(arrays[m], b, alpha=turn, stream=stub.stream(m + 100))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, arrays))
    assert len(stub.launches) == 8 * 50
    for one in stub.launches:
        m = one["values"]["M"]
        assert (one["stream"], one["values"]["a"]) == (m + 100, ptr(arrays[m]))


def test_from_a_thread_without_a_context(stub: Stub, kernel: tg.Kernel) -> None:
    a, b = array((8, 8)), array((8, 8))
    prepared = kernel.prepare(a, b)
    for context, device in ((0, 0), (78, 1)):
        for launch in (prepared, lambda: kernel(a, b)):
            stub.context, stub.device = context, device
            launch()
            assert stub.device == device
    assert len(stub.launches) == 4


# Workspaces


def test_a_workspace_comes_from_the_pool_of_the_calls_stream(stub: Stub) -> None:
    kernel = loaded(stub, split_k_source())
    a, b = array((8, 4)), array((4, 12))
    size = SPLITS * 8 * 12 * 4
    for _ in range(2):
        kernel(a, b, stream=stub.stream(5))
        main, reduce = stub.launches[-2:]
        assert (main["symbol"], reduce["symbol"]) == ("gemm_main", "gemm_reduce")
        assert main["values"]["partial"] == reduce["values"]["partial"]
        assert {main["stream"], reduce["stream"]} == {5}
        assert stub.allocated[-1] == ("pool", size, 5)
        assert stub.freed[-1] == main["values"]["partial"]
    assert kernel(a, b) is not None
    assert stub.allocated[-1] == ("pool", size, 0)


def test_a_graph_allocates_its_own_workspace(stub: Stub) -> None:
    kernel = loaded(stub, split_k_source())
    a, b, stream = array((8, 4)), array((4, 12)), stub.stream(5)
    stream.capturing = True
    for _ in range(2):
        kernel(a, b, stream=stream)
        assert stub.allocated[-1][::2] == ("async", 5)


def test_a_prepared_call_keeps_its_workspace(stub: Stub) -> None:
    kernel = loaded(stub, split_k_source())
    prepared = kernel.prepare(array((7, 6)), array((6, 5)), stream=stub.stream(5))
    (how, size, stream) = stub.allocated[-1]
    assert (how, size, stream) == ("pool", SPLITS * 7 * 5 * 4 + (7 + 5) * 6 * 4, 5)
    for _ in range(3):
        prepared()
    assert len(stub.allocated) == 1
    assert stub.freed == []
    space = stub.launches[-1]["values"]["partial"]
    (pack,) = {one["values"]["packed"] for one in stub.launches if "rows" in one["values"]
               and one["values"]["rows"] == 7}  # fmt: skip
    assert pack == space + SPLITS * 7 * 5 * 4
    del prepared
    gc.collect()
    assert stub.freed == [space]


def test_a_workspace_without_room_is_said(stub: Stub) -> None:
    kernel = loaded(stub, split_k_source())
    stub.room = 100
    for _ in range(2):
        with pytest.raises(
            tg.LaunchError, match=r"workspace: a stub has no memory for its 1152 bytes"
        ):
            kernel(array((8, 4)), array((4, 12)))


# Host arrays


def test_host_arrays_travel(stub: Stub, kernel: tg.Kernel) -> None:
    a, b = np.ones((5, 4), np.float32), np.ones((4, 3), np.float32)
    d = kernel(a, b)
    assert isinstance(d, np.ndarray)
    assert stub.launches[-1]["values"]["lda"] == 4

    def broken(*_: object) -> None:
        raise RuntimeError_(700)

    stub.cp.cuda.runtime.memcpyAsync = broken
    with pytest.raises(
        tg.LaunchError, match="the arrays cannot be copied to the GPU: a kernel acc"
    ):
        kernel(a, b)


# Errors


@pytest.mark.parametrize("status", sorted(FAILURES))
@pytest.mark.parametrize("prepared", [False, True])
def test_every_failure_is_explained(
    stub: Stub, kernel: tg.Kernel, status: int, prepared: bool
) -> None:
    a, b = array((8, 8)), array((8, 8))
    kernel(a, b)
    launch = kernel.prepare(a, b) if prepared else lambda: kernel(a, b)
    stub.status = status
    with pytest.raises(
        tg.LaunchError, match="gemm_wide: the driver refuses the launch: "
    ) as raised:
        launch()
    failure, said = FAILURES[status], str(raised.value)
    assert f"({failure.name}, {status})" in said
    assert failure.means in said
    assert failure.help in said
    assert ("nothing on this GPU works in this process any more" in said) == (
        failure.kind == "sticky"
    )
    stub.status = 0
    launch()


@pytest.mark.parametrize(("status", "tells"), [
    (700, ["compute-sanitizer python", "--device emulator"]),
    (716, ["compute-sanitizer python", "address that its width does not divide"]),
    (701, ["registers, threads or shared memory", "tilegen plan"]),
    (709, ["was destroyed", "cudaDeviceReset"]),
    (209, ["no code for this GPU"]),
    (222, ["update the driver"]),
])  # fmt: skip
def test_what_the_common_ones_say(stub: Stub, status: int, tells: list[str]) -> None:
    stub.load_status = status
    with pytest.raises(tg.LaunchError, match="a stub cannot load gemm_f32") as raised:
        loaded(stub, source())
    assert all(words in str(raised.value) for words in tells)


def test_an_error_that_no_table_has_keeps_its_words(stub: Stub, kernel: tg.Kernel) -> None:
    stub.status = 12345
    with pytest.raises(tg.LaunchError, match="refuses the launch: status 12345"):
        kernel(array((8, 8)), array((8, 8)))


def test_the_table_has_the_drivers_own_names() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    known = {int(one): one.name for one in driver.CUresult}
    for status, failure in FAILURES.items():
        if status != 35:  # cudaErrorInsufficientDriver, of the runtime alone
            assert known[status] == failure.name
    assert {failure.kind for failure in FAILURES.values()} == {
        "load",
        "launch",
        "capture",
        "sticky",
    }


def test_a_grid_beyond_the_hardware_is_refused(stub: Stub) -> None:
    kernel = loaded(stub, source(block=(16, 16, 4), warp=(8, 8)))
    rows, room = 16 * 2**31, np.zeros(3, np.float32)
    a = Array(np.lib.stride_tricks.as_strided(room, (rows, 1), (0, 4)))
    b = Array(room[1:2].reshape(1, 1))
    out = Array(np.lib.stride_tricks.as_strided(room[2:], (rows, 1), (4, 4)))
    for _ in range(2):
        with pytest.raises(tg.LaunchError, match="a grid has 2147483647 at most"):
            kernel(a, b, out=out)
    with pytest.raises(tg.LaunchError, match="a grid has 2147483647 at most"):
        kernel.prepare(a, b, out=out)
