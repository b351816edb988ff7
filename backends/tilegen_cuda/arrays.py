"""Arrays of a launch on a GPU: those of the device in place, those of the host through copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Operand, reach
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.host_arrays import host_empty, host_operand, three_axes

from .runtime import cupy

if TYPE_CHECKING:
    from .device import CudaDevice

# What CUDA's allocators give (CUDA C++ Programming Guide, Device Memory Accesses).
ALIGNMENT = 256


@dataclass
class _Copy:
    """A host array's bytes on the device, at an address of the same alignment."""

    array: Any
    memory: Any
    start: int
    low: int
    size: int
    writes: bool


@dataclass
class CudaSession:
    """One launch's arrays: all on the device, or all on the host."""

    device: CudaDevice
    stream: Any
    on_host: bool
    _copies: dict[Any, _Copy] = field(default_factory=dict)

    @classmethod
    def of(cls, device: CudaDevice, arrays: Sequence[Any], stream: Any) -> CudaSession:
        cp = cupy()
        host = [isinstance(array, np.ndarray) for array in arrays]
        if any(host) and not all(host):
            raise LaunchError("the arrays of a call live all on the host or all on the device")
        return cls(device, _stream(cp, stream), bool(host) and all(host))

    @property
    def alignment(self) -> int:
        return ALIGNMENT

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        return self._from_host(name, array, writes) if self.on_host else self._there(name, array)

    def _there(self, name: str, array: Any) -> Operand:
        cp = cupy()
        if not isinstance(array, cp.ndarray):
            if not (hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack__")):
                raise LaunchError(
                    f"{name}: an array on the GPU is needed (CuPy's, or one with DLPack or the CUDA "
                    f"array interface), not {type(array).__name__}"
                )
            try:
                array = cp.from_dlpack(array) if hasattr(array, "__dlpack__") else cp.asarray(array)
            except Exception as error:  # each library has its own
                raise LaunchError(f"{name}: CuPy cannot see this array: {error}") from None
        if array.device.id != self.device.number:
            raise LaunchError(
                f"{name}: it lives on GPU {array.device.id} and the kernel on {self.device.number}"
            )
        size, address = array.dtype.itemsize, int(array.data.ptr)
        if any(stride % size for stride in array.strides):
            raise LaunchError(
                f"{name}: its strides {array.strides} are no multiple of {size} bytes"
            )
        if address % size and array.size:
            raise LaunchError(
                f"{name}: it starts at an address that is no multiple of {size} bytes"
            )
        shape, strides = three_axes(array.shape, [stride // size for stride in array.strides])
        return Operand(
            address, 0, address, array.dtype, shape, strides, array.ndim, array, "gpu", address
        )

    def _from_host(self, name: str, array: Any, writes: bool) -> Operand:
        cp = cupy()
        operand = host_operand(name, array, writes=writes)
        shape, strides = operand.shape, operand.strides
        low, high = reach(operand.address, shape, strides, operand.dtype.itemsize)
        key = (operand.address, shape, strides, operand.dtype)
        if key not in self._copies:
            with cp.cuda.Device(self.device.number):
                memory = cp.cuda.alloc(max(1, high - low) + ALIGNMENT)
            start = memory.ptr + (low - memory.ptr) % ALIGNMENT
            self._copies[key] = _Copy(array, memory, start, low, high - low, writes)
        copy = self._copies[key]
        copy.writes |= writes
        address = copy.start + operand.address - copy.low
        return operand._replace(handle=address, address=address, keep=(array, copy.memory))

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        if self.on_host:
            return host_empty(shape, dtype, majorness)
        cp, kind = cupy(), DTYPES[dtype].numpy
        with cp.cuda.Device(self.device.number), self.stream:
            if majorness == "row":
                return cp.empty(shape, kind)
            turned = cp.empty((*shape[:-2], shape[-1], shape[-2]), kind)
            return cp.swapaxes(turned, -1, -2)

    def workspace(self, size: int) -> PooledWorkspace:
        """From CuPy's pool, whose memory goes back to the stream that it was taken for.

        While a graph is captured the graph itself allocates and frees it at every launch.
        """
        cp, stream = cupy(), self.stream
        with cp.cuda.Device(self.device.number), stream:
            try:
                take = cp.cuda.malloc_async if stream.is_capturing() else cp.cuda.alloc
                return PooledWorkspace(take(size))
            except cp.cuda.memory.OutOfMemoryError as error:
                raise LaunchError(
                    f"workspace: {self.device.name} has no memory for its {size} bytes: {error}"
                ) from None

    def begin(self) -> None:
        for copy in self._copies.values():
            # What lies between the elements of D comes along and is never taken back.
            self._copy(copy.start, copy.low, copy.size, to_device=True)

    def finish(self) -> None:
        if not self.on_host:
            return
        for copy in self._copies.values():
            if not copy.writes or not copy.size:
                continue
            held = np.empty(copy.size, np.uint8)
            self._copy(held.ctypes.data, copy.start, copy.size, to_device=False)
            self.stream.synchronize()
            array = copy.array
            first = array.__array_interface__["data"][0] - copy.low
            array[...] = np.ndarray(array.shape, array.dtype, held, first, array.strides)
        self.stream.synchronize()

    def _copy(self, to: int, source: int, size: int, *, to_device: bool) -> None:
        runtime = cupy().cuda.runtime
        kind = runtime.memcpyHostToDevice if to_device else runtime.memcpyDeviceToHost
        if size:
            runtime.memcpyAsync(to, source, size, kind, self.stream.ptr)


class PooledWorkspace:
    """Memory of CuPy's, which frees it in the order of its stream."""

    __slots__ = ("_address", "_memory")

    def __init__(self, memory: Any) -> None:
        self._memory, self._address = memory, int(memory.ptr)

    def region(self, offset: int, size: int, element: str) -> int:
        return self._address + offset


def _stream(cp: Any, given: Any) -> Any:
    """A CuPy stream of what the caller gave: CuPy's, another library's, or its current one."""
    if given is None:
        return cp.cuda.get_current_stream()
    if isinstance(given, (cp.cuda.Stream, cp.cuda.ExternalStream)):
        return given
    if hasattr(given, "__cuda_stream__"):
        given = given.__cuda_stream__()[1]
    pointer = getattr(given, "ptr", getattr(given, "cuda_stream", given))
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        return _foreign(cp, pointer)
    raise LaunchError(
        f"stream: a CuPy stream is needed, or the address of a CUDA stream, not {type(given).__name__}"
    )


class _Address:
    """A stream's address in the words of CUDA's stream protocol."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def _foreign(cp: Any, pointer: int) -> Any:
    # CuPy 14 has the protocol and warns of what it had before.
    if hasattr(cp.cuda.Stream, "from_external"):
        return cp.cuda.Stream.from_external(_Address(pointer))
    return cp.cuda.ExternalStream(pointer)
