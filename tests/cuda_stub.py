"""What tilegen asks of CuPy, without a GPU: memory is the host's, and launches are noted, not run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen.backend import Toolchain
from tilegen.build import KernelBinary
from tilegen.entries import Entry
from tilegen.render import KernelSource
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.device import CudaDevice

C_TYPES = {
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "s32": ctypes.c_int32,
}
CONTEXT = 77


class DriverError(Exception):
    """A ``CUresult`` other than success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class RuntimeError_(DriverError):
    """A ``cudaError`` other than success."""


class OutOfMemory(Exception):
    """What the pool raises."""


class Array:
    """An array of the stub's: NumPy's memory and words."""

    def __init__(self, held: np.ndarray[Any, Any], number: int = 0) -> None:
        self.held, self.device = held, SimpleNamespace(id=number)
        self.shape, self.strides, self.dtype = held.shape, held.strides, held.dtype
        self.size, self.ndim = held.size, held.ndim
        self.data = SimpleNamespace(ptr=held.__array_interface__["data"][0], device_id=number)


class Stream:
    def __init__(self, stub: Stub, pointer: int) -> None:
        self.stub, self.ptr, self.capturing = stub, pointer, False

    def is_capturing(self) -> bool:
        assert self.ptr > 1
        return self.capturing

    def __enter__(self) -> Stream:
        self.stub.entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.stub.entered.pop()

    def synchronize(self) -> None: ...


class Memory:
    def __init__(self, stub: Stub, size: int, how: str) -> None:
        self.held = np.zeros(size + 512, np.uint8)
        self.ptr = -(-self.held.ctypes.data // 512) * 512
        self._stub, self.stream = stub, stub.current().ptr
        stub.allocated.append((how, size, self.stream))

    def __del__(self) -> None:
        self._stub.freed.append(self.ptr)


class Module:
    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    def load(self, data: bytes) -> None:
        if self._stub.load_status:
            raise DriverError(self._stub.load_status)

    def get_function(self, symbol: str) -> Any:
        self._stub.functions.append(symbol)
        return SimpleNamespace(ptr=1000 + len(self._stub.functions) - 1)


class Stub:
    """One GPU that notes what it is asked for.

    Attributes
    ----------
    launches : list of dict
        Symbol, grid, block, dynamic shared memory, stream and arguments of each.
    """

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self.functions: list[str] = []
        self.entries: dict[str, Entry] = {}
        self.entered: list[Stream] = []
        self.allocated: list[tuple[str, int, int]] = []
        self.freed: list[int] = []
        self.attributes: dict[str, int] = {}
        self.status = self.load_status = 0
        self.context, self.device, self.room = CONTEXT, 0, 2**40
        self.null = Stream(self, 0)
        self.cp = self._cupy()

    def current(self) -> Stream:
        return self.entered[-1] if self.entered else self.null

    def stream(self, pointer: int) -> Stream:
        return Stream(self, pointer)

    def _cupy(self) -> Any:
        class Device:
            def __init__(self, number: int) -> None:
                self.id = number

            def __enter__(self) -> Device:
                return self

            def __exit__(self, *_: object) -> None: ...

        driver = SimpleNamespace(
            launchKernel=self._launch,
            ctxGetCurrent=lambda: self.context,
            funcSetAttribute=self._set,
            CUDADriverError=DriverError,
        )
        runtime = SimpleNamespace(
            getDevice=lambda: self.device,
            setDevice=self._use,
            CUDARuntimeError=RuntimeError_,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=lambda to, source, size, kind, stream: ctypes.memmove(to, source, size),
        )
        null = self.null
        streams = SimpleNamespace(null=null, __instancecheck__=lambda s: True)
        cuda = SimpleNamespace(
            Device=Device, Stream=Stream, ExternalStream=Stream, driver=driver, runtime=runtime,
            function=SimpleNamespace(Module=lambda: Module(self)),
            get_current_stream=lambda number=-1: self.current(),
            alloc=lambda size: self._allocate(size, "pool"),
            malloc_async=lambda size: self._allocate(size, "async"),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemory), streams=streams,
        )  # fmt: skip
        return SimpleNamespace(
            cuda=cuda, ndarray=Array,
            empty=lambda shape, kind: Array(np.empty(shape, kind)),
            swapaxes=lambda array, i, j: Array(np.swapaxes(array.held, i, j)),
        )  # fmt: skip

    def _use(self, number: int) -> None:
        self.device = number
        self.context = CONTEXT if number == 0 else CONTEXT + number

    def _set(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8
        self.attributes[self.functions[function - 1000]] = value

    def _allocate(self, size: int, how: str) -> Memory:
        if size > self.room:
            raise OutOfMemory(f"{size} bytes")
        return Memory(self, size, how)

    def _launch(self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
                dynamic: int, stream: int, pointers: int, extra: int) -> None:  # fmt: skip
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        if self.context != CONTEXT:
            raise DriverError(201)
        if self.status:
            raise DriverError(self.status)
        symbol = self.functions[function - 1000]
        arguments = self.entries[symbol].arguments
        places = (ctypes.c_void_p * len(arguments)).from_address(pointers)
        values = {}
        for place, argument in zip(places, arguments, strict=True):
            kind = ctypes.c_uint64 if argument.is_pointer else C_TYPES[argument.type]
            assert place is not None
            values[argument.name] = kind.from_address(place).value
        self.launches.append({"symbol": symbol, "grid": gx, "block": bx, "dynamic": dynamic,
                              "stream": stream, "values": values})  # fmt: skip


def stubbed(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """The stub in CuPy's place."""
    from tilegen_cuda import arrays, device, launching

    stub = Stub()
    for module in (arrays, device, launching):
        monkeypatch.setattr(module, "cupy", lambda: stub.cp)
    return stub


def loaded(stub: Stub, source: KernelSource) -> tg.Kernel:
    """A kernel on the stub's GPU."""
    stub.entries |= {entry.symbol: entry for entry in source.entries}
    device = CudaDevice(0, "a stub", "gpu:0", ARCHS[source.plan.arch.name])
    binary = KernelBinary(source, b"cubin", "", {}, Toolchain("none"))
    return tg.Kernel(binary, device, device.load(binary))


def array(
    shape: Sequence[int], kind: Any = np.float32, *, offset: int = 0, number: int = 0
) -> Array:
    """An array at an address that is ``offset`` bytes past a multiple of 512."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    room = np.zeros(size + 1024, np.uint8)
    start = -room.ctypes.data % 512 + offset
    return Array(np.ndarray(tuple(shape), kind, room, start), number)
