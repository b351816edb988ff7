"""torch's tensors and DLPack: on the host in place, on a GPU by their addresses and torch's stream."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_stub import Array, Stub, array, loaded, stubbed

import tilegen as tg
from tilegen import registry, tensors
from tilegen.dtypes import DTYPES

CPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "cpu"]
DEVICES = [
    pytest.param(
        "opencl", marks=pytest.mark.skipif(not CPUS, reason="no OpenCL: pip install 'tilegen[cpu]'")
    ),
    "cuda",
]


def kernel(backend: str, **data: Any) -> tg.Kernel:
    spec = tg.TileSpec(**({"block": (32, 32, 8), "warp": (32, 32)} | data))
    if backend == "opencl":
        return tg.build(spec, "opencl", "cpu")
    spec = spec.replace(warp=(16, 16))
    return tg.load(tg.emit(tg.lower(spec, "cuda", "sm_80")), "emulator:quick")


def ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


class Foreign:
    """Another library's array on the host."""

    def __init__(self, held: np.ndarray[Any, Any]) -> None:
        self.held = held

    def __dlpack__(self, **how: Any) -> Any:
        return self.held.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


@pytest.mark.parametrize("backend", DEVICES)
def test_what_speaks_dlpack_on_the_host_is_used_in_place(backend: str) -> None:
    made = kernel(backend)
    a, b, out = ints(7, 9), ints(9, 5, seed=1), np.zeros((7, 5), np.float32)
    got = made(Foreign(a), Foreign(b))
    assert type(got) is np.ndarray
    assert np.array_equal(got, a @ b)
    given = Foreign(out)
    assert made(a, Foreign(b), out=given) is given
    assert np.array_equal(out, a @ b)
    with pytest.raises(tg.LaunchError, match="out: it overlaps a"):
        made(Foreign(a), Foreign(ints(9, 9)), out=Foreign(a))


@pytest.mark.parametrize("backend", DEVICES)
def test_an_array_that_lives_elsewhere_is_refused(backend: str) -> None:
    class Elsewhere(Foreign):
        def __dlpack_device__(self) -> Any:
            return (2, 0)

    with pytest.raises(tg.LaunchError, match=r"a: a numpy\.ndarray.* is needed, not Elsewhere"):
        kernel(backend)(Elsewhere(ints(2, 2)), ints(2, 2))


def test_every_type_that_torch_shares_has_a_name() -> None:
    assert set(tensors.TORCH_TYPES.values()) | {"tf32"} == set(DTYPES)
    assert set(tensors.TORCH_NAMES) == set(DTYPES)


# torch itself, where it is installed


@pytest.mark.parametrize("backend", DEVICES)
def test_tensors_give_tensors(backend: str) -> None:
    torch = pytest.importorskip("torch")
    made = kernel(backend, batch="strided")
    a, b = torch.from_numpy(ints(3, 7, 9)), torch.from_numpy(ints(9, 5, seed=1))
    got = made(a, b)
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, a @ b)
    out = torch.zeros(3, 7, 5)
    assert made(a, b, out=out) is out
    assert torch.equal(out, a @ b)
    view = torch.zeros(3, 7, 9)[:, 1:, 2:8]
    view += 1
    assert torch.equal(made(view, b[:6]), view @ b[:6])
    # NumPy's arrays and torch's in one call: the result is torch's.
    assert isinstance(made(a.numpy(), b), torch.Tensor)
    prepared = made.prepare(a, b)
    a += 1
    assert torch.equal(prepared(), a @ b)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("major", ["row", "col"])
def test_types_of_tensors(kind: str, major: str) -> None:
    torch = pytest.importorskip("torch")
    if not CPUS:
        pytest.skip("no OpenCL device: pip install 'tilegen[cpu]'")
    ours = tensors.TORCH_TYPES[kind]
    acc = {"f64": "f64", "s8": "s32"}.get(ours, "f32")
    d = "s32" if ours == "s8" else ours
    types = {"a": ours, "b": ours, "acc": acc, "c": d, "d": d}
    made = kernel("opencl", types=types, layout={"c": major})
    a, b = (torch.from_numpy(ints(*s)).to(getattr(torch, kind)) for s in ((7, 9), (9, 5)))
    got = made(a, b)
    assert got.dtype == getattr(torch, tensors.TORCH_NAMES[d])
    assert got.stride() == ((5, 1) if major == "row" else (1, 7))
    assert torch.equal(got.to(torch.float64), a.to(torch.float64) @ b.to(torch.float64))


def test_bytes_of_small_floats_are_seen_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[1.0, -2.0, 0.5], [448.0, 0.0, -0.25]])
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        held = tensors.host_view("a", values.to(getattr(torch, name)))
        kind = DTYPES[tensors.TORCH_TYPES[name]].numpy
        assert held.dtype == kind
        want = values.to(getattr(torch, name)).float().numpy()
        assert np.array_equal(held.astype(np.float32), want)
        back = tensors.as_tensor(held, tensors.TORCH_TYPES[name])
        assert back.dtype == getattr(torch, name)
        assert np.array_equal(back.float().numpy(), want)


def test_tensors_that_a_kernel_does_not_take() -> None:
    torch = pytest.importorskip("torch")
    made, b = kernel("cuda"), torch.ones(3, 2)
    with pytest.raises(tg.LaunchError, match=r"a: the tensor requires a gradient.*06_torch_op"):
        made(torch.ones(2, 3, requires_grad=True), b)
    with torch.no_grad():
        assert torch.equal(made(torch.ones(2, 3, requires_grad=True), b), torch.full((2, 2), 3.0))
    with pytest.raises(tg.LaunchError, match=r"a: its type is torch\.complex64, which no kernel"):
        made(torch.ones(2, 3, dtype=torch.complex64), b)
    with pytest.raises(
        tg.LaunchError, match="a: its type is float64, and the spec asks for float32"
    ):
        made(torch.ones(2, 3, dtype=torch.float64), b)
    with pytest.raises(tg.LaunchError, match=r"a: a numpy\.ndarray"):
        made(torch.ones(2, 3, device="meta"), b)


# torch on a GPU, as far as it shows without one


class FakeTensor:
    """A tensor on a GPU: torch's words over a stub's array."""

    requires_grad = False
    is_cuda = True

    def __init__(self, held: Array, kind: str = "torch.float32", number: int = 0) -> None:
        self.held, self.dtype = held, kind
        self.shape = held.shape
        self.device = SimpleNamespace(type="cuda", index=number)

    def get_device(self) -> int:
        return int(self.device.index)

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.held.dtype.itemsize for s in self.held.strides)

    def data_ptr(self) -> int:
        return int(self.held.data.ptr)

    def is_neg(self) -> bool:
        return False

    is_conj = is_neg

    def record_stream(self, stream: Any) -> None:
        self.recorded = stream

    def transpose(self, i: int, j: int) -> FakeTensor:
        return FakeTensor(Array(self.held.held.swapaxes(i, j)))


@pytest.fixture
def torch_on_gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Stub, Any]:
    stub, torch = stubbed(monkeypatch), ModuleType("torch")
    current = SimpleNamespace(cuda_stream=0)
    made: Any = torch
    made.Tensor, made.float32, made.is_grad_enabled = FakeTensor, "f4", lambda: True
    made.empty = lambda shape, dtype, device: FakeTensor(array(shape, np.dtype(dtype)))
    made.cuda = SimpleNamespace(
        current_stream=lambda number: current, ExternalStream=lambda p: ("s", p)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    stub.cp.cuda.Stream.from_external = staticmethod(
        lambda given: stub.stream(given.__cuda_stream__()[1])
    )
    stub.cp.cuda.Stream.null = stub.null
    from tilegen_cuda import arrays

    arrays._foreign.cache_clear()
    return stub, current


def source(**data: Any) -> tg.KernelSource:
    spec = tg.TileSpec(**({"block": (32, 32, 8), "warp": (16, 16)} | data))
    return tg.emit(tg.lower(spec, "cuda", "sm_80"))


def test_tensors_run_on_torchs_stream_and_give_tensors(torch_on_gpu: tuple[Stub, Any]) -> None:
    stub, current = torch_on_gpu
    made = loaded(stub, source())
    a, b = FakeTensor(array((6, 4))), FakeTensor(array((4, 8)))
    for pointer in (0, 91, 92):
        current.cuda_stream = pointer
        got = made(a, b)
        assert isinstance(got, FakeTensor)
        assert stub.launches[-1]["stream"] == pointer
        values = stub.launches[-1]["values"]
        assert (values["a"], values["b"], values["d"]) == tuple(x.data_ptr() for x in (a, b, got))
        assert (values["lda"], values["ldb"], values["M"]) == (4, 8, 6)
        assert not hasattr(got, "recorded")
    # Another stream by name: torch is told that its memory is used there.
    got = made(a, b, stream=stub.stream(33))
    assert stub.launches[-1]["stream"] == 33
    assert got.recorded == ("s", 33)
    # With an array of CuPy's, torch's stream is taken and the result is torch's.
    assert isinstance(made(a, array((4, 8))), FakeTensor)
    assert stub.launches[-1]["stream"] == 92
    assert made._recalled
    b.requires_grad = True
    with pytest.raises(tg.LaunchError, match="b: the tensor requires a gradient"):
        made(a, b)
    b.requires_grad = False
    prepared = made.prepare(a, b)
    current.cuda_stream = 0
    prepared()
    assert stub.launches[-1]["stream"] == 92


def test_tensors_of_another_place_are_refused(torch_on_gpu: tuple[Stub, Any]) -> None:
    stub, _ = torch_on_gpu
    made, b = loaded(stub, source()), FakeTensor(array((4, 8)))
    with pytest.raises(tg.LaunchError, match="a: it lives on GPU 1 and the kernel on 0"):
        made(FakeTensor(array((6, 4)), number=1), b)
    with pytest.raises(tg.LaunchError, match=r"a: its type is torch\.bool, which no kernel takes"):
        made(FakeTensor(array((6, 4)), "torch.bool"), b)
    with pytest.raises(
        tg.LaunchError, match="a: its type is bfloat16, and the spec asks for float32"
    ):
        made(FakeTensor(array((6, 4), ml_dtypes.bfloat16), "torch.bfloat16"), b)
    made_col = loaded(stub, source(layout={"c": "col"}))
    assert made_col(FakeTensor(array((6, 4))), b).stride() == (1, 6)


def test_raw_bits_are_no_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = stubbed(monkeypatch)
    made = loaded(stub, source())
    with pytest.raises(
        tg.LaunchError, match=r"a: its type is uint16, and the spec asks for float32"
    ):
        made(array((4, 4), np.uint16), array((4, 4)))
