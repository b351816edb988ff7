"""Arrays of a launch on a GPU: those of the device in place, those of the host through copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Operand, reach
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.host_arrays import host_operand, host_result, three_axes
from tilegen.tensors import any_tensor, empty_tensor, host_view, is_tensor, tensor_type

from .failures import explained
from .runtime import cupy

if TYPE_CHECKING:
    from .device import CudaDevice

# What CUDA's allocators give (CUDA C++ Programming Guide, Device Memory Accesses).
ALIGNMENT = 256
NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass
class _Copy:
    """A host array's bytes on the device, at an address of the same alignment."""

    array: Any
    memory: Any
    start: int
    low: int
    size: int
    writes: bool


class CudaSession:
    """One launch's arrays: all on the device, or all on the host."""

    __slots__ = ("_copies", "device", "on_host", "stream", "tensors")

    def __init__(self, device: CudaDevice, stream: Any, on_host: bool, tensors: bool) -> None:
        """``stream`` is CuPy's; with ``tensors`` a new D is torch's."""
        self.device, self.stream, self.on_host, self.tensors = device, stream, on_host, tensors
        self._copies: dict[Any, _Copy] = {}

    @classmethod
    def of(cls, device: CudaDevice, arrays: Sequence[Any], stream: Any) -> CudaSession:
        tensors = any_tensor(arrays)
        host = [_is_on_host(array) for array in arrays]
        if any(host) and not all(host):
            raise LaunchError("the arrays of a call live all on the host or all on the device")
        on_host = bool(host) and all(host)
        if tensors and stream is None and not on_host:
            stream = torch_stream(device.number)
        return cls(device, stream_of(device.number, stream), on_host, tensors)

    @property
    def alignment(self) -> int:
        return ALIGNMENT

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        return self._from_host(name, array, writes) if self.on_host else self._there(name, array)

    def _there(self, name: str, array: Any) -> Operand:
        cp = cupy()
        if is_tensor(array):
            return self._tensor(name, array)
        if not isinstance(array, cp.ndarray):
            if not (hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack__")):
                raise LaunchError(
                    f"{name}: an array on the GPU is needed (CuPy's, or one with DLPack or the CUDA "
                    f"array interface), not {type(array).__name__}"
                )
            try:
                # Its library is told of the stream, which waits for what made the array.
                with cp.cuda.Device(self.device.number), self.stream:
                    dlpack = hasattr(array, "__dlpack__")
                    array = cp.from_dlpack(array) if dlpack else cp.asarray(array)
            except Exception as error:  # each library has its own
                raise LaunchError(f"{name}: CuPy cannot see this array: {error}") from None
        self._lives_here(name, array.device.id)
        size = array.dtype.itemsize
        if any(stride % size for stride in array.strides):
            raise LaunchError(
                f"{name}: its strides {array.strides} are no multiple of {size} bytes"
            )
        strides = [stride // size for stride in array.strides]
        return _operand(name, int(array.data.ptr), array.dtype, array.shape, strides, array)

    def _tensor(self, name: str, tensor: Any) -> Operand:
        if not tensor.is_cuda:
            raise LaunchError(f"{name}: the tensor lives on {tensor.device}, and no GPU's kernel")
        self._lives_here(name, tensor.device.index)
        kind = tensor_type(name, tensor)
        shape, strides = tuple(tensor.shape), tensor.stride()
        return _operand(name, tensor.data_ptr(), kind, shape, strides, tensor)

    def _lives_here(self, name: str, number: int) -> None:
        if number != self.device.number:
            raise LaunchError(
                f"{name}: it lives on GPU {number} and the kernel on {self.device.number}"
            )

    def _from_host(self, name: str, array: Any, writes: bool) -> Operand:
        cp = cupy()
        array = host_view(name, array)
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
            return host_result(shape, dtype, majorness, tensor=self.tensors)
        if self.tensors:
            return self._empty_tensor(shape, dtype, majorness)
        cp, kind = cupy(), DTYPES[dtype].numpy
        with self._in_order():
            if majorness == "row":
                return cp.empty(shape, kind)
            turned = cp.empty((*shape[:-2], shape[-1], shape[-2]), kind)
            return cp.swapaxes(turned, -1, -2)

    def _empty_tensor(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        import torch

        made = empty_tensor(shape, dtype, majorness, f"cuda:{self.device.number}")
        if torch.cuda.current_stream(self.device.number).cuda_stream != self.stream.ptr:
            # torch gives memory back to the stream it was made for, which is not this one.
            made.record_stream(torch.cuda.ExternalStream(self.stream.ptr))
        return made

    def _in_order(self) -> AbstractContextManager[Any]:
        """CuPy's pool gives and takes back what is allocated within in the order of the stream."""
        cp, number = cupy(), self.device.number
        if (
            cp.cuda.runtime.getDevice() == number
            and cp.cuda.get_current_stream(number).ptr == self.stream.ptr
        ):
            return NOTHING
        entered = ExitStack()
        entered.enter_context(cp.cuda.Device(number))
        entered.enter_context(self.stream)
        return entered

    def workspace(self, size: int) -> PooledWorkspace:
        """From CuPy's pool, whose memory goes back to the stream that it was taken for.

        While a graph is captured the graph itself allocates and frees it at every launch.
        """
        cp, stream = cupy(), self.stream
        # What CuPy calls legacy, 0 or 1, cannot be captured, and asking may be an error.
        captured = stream.ptr > 1 and stream.is_capturing()
        with self._in_order():
            try:
                return PooledWorkspace((cp.cuda.malloc_async if captured else cp.cuda.alloc)(size))
            except cp.cuda.memory.OutOfMemoryError as error:
                raise LaunchError(
                    f"workspace: {self.device.name} has no memory for its {size} bytes: {error}"
                ) from None
            except cp.cuda.runtime.CUDARuntimeError as error:
                raise explained(f"workspace: its {size} bytes cannot be allocated", error) from None

    def begin(self) -> None:
        for copy in self._copies.values():
            # What lies between the elements of D comes along and is never taken back.
            try:
                self._copy(copy.start, copy.low, copy.size, to_device=True)
            except cupy().cuda.runtime.CUDARuntimeError as error:
                raise explained("the arrays cannot be copied to the GPU", error) from None

    def finish(self) -> None:
        if self.on_host:
            try:
                self._bring_back()
            except cupy().cuda.runtime.CUDARuntimeError as error:
                raise explained("the results cannot be copied back", error) from None

    def _bring_back(self) -> None:
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


def glance(
    device: CudaDevice, arrays: Sequence[Any], stream: Any
) -> tuple[Any, list[int], CudaSession] | None:
    """See :class:`tilegen.backend.Glancing`: CuPy's own arrays and torch's tensors are told so fast."""
    number, own = device.number, cupy().ndarray
    kind: list[Any] = []
    addresses: list[int] = []
    tensors = False
    for array in arrays:
        if array is None:
            kind.append(None)
            addresses.append(0)
        elif type(array) is own:
            data = array.data
            if data.device_id != number:
                return None
            kind += (array.shape, array.strides, array.dtype)
            addresses.append(data.ptr)
        elif is_tensor(array):
            # What is on the host, or not to be read as it lies, is told in words elsewhere.
            if array.get_device() != number or array.requires_grad or array.is_neg():
                return None
            tensors = True
            kind += (array.shape, array.stride(), array.dtype)
            addresses.append(array.data_ptr())
        else:
            return None
    if tensors and stream is None:
        stream = torch_stream(number)
    return tuple(kind), addresses, CudaSession(device, stream_of(number, stream), False, tensors)


def address(array: Any) -> int:
    """Of the first element of an array that a session made."""
    return int(array.data_ptr() if is_tensor(array) else array.data.ptr)


class PooledWorkspace:
    """Memory of CuPy's, which frees it in the order of its stream."""

    __slots__ = ("_address", "_memory")

    def __init__(self, memory: Any) -> None:
        self._memory, self._address = memory, int(memory.ptr)

    def region(self, offset: int, size: int, element: str) -> int:
        return self._address + offset


def _is_on_host(array: Any) -> bool:
    # CuPy's answer to __dlpack_device__ asks the driver.
    if isinstance(array, cupy().ndarray):
        return False
    return isinstance(host_view("", array), np.ndarray)


def _operand(
    name: str, address: int, kind: Any, shape: tuple[int, ...], strides: Sequence[int], keep: Any
) -> Operand:
    if address % kind.itemsize and math.prod(shape):
        raise LaunchError(
            f"{name}: it starts at an address that is no multiple of {kind.itemsize} bytes"
        )
    three, apart = three_axes(shape, strides)
    return Operand(address, 0, address, kind, three, apart, len(shape), keep, "gpu", address)


def torch_stream(number: int) -> int:
    """The address of torch's current stream on a GPU."""
    import torch

    return int(torch.cuda.current_stream(number).cuda_stream)


def stream_of(number: int, given: Any) -> Any:
    """A CuPy stream of what the caller gave: CuPy's, another library's, or its current one."""
    cp = cupy()
    if given is None:
        return cp.cuda.get_current_stream(number)
    if isinstance(given, (cp.cuda.Stream, cp.cuda.ExternalStream)):
        return given
    if hasattr(given, "__cuda_stream__"):
        given = given.__cuda_stream__()[1]
    pointer = getattr(given, "ptr", getattr(given, "cuda_stream", given))
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        return _foreign(pointer)
    raise LaunchError(
        f"stream: a CuPy stream is needed, or the address of a CUDA stream, not {type(given).__name__}"
    )


class _Address:
    """A stream's address in the words of CUDA's stream protocol."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


@lru_cache(maxsize=64)
def _foreign(pointer: int) -> Any:
    cp = cupy()
    if pointer == 0:
        return cp.cuda.Stream.null
    # CuPy 14 has the protocol and warns of what it had before.
    if hasattr(cp.cuda.Stream, "from_external"):
        return cp.cuda.Stream.from_external(_Address(pointer))
    return cp.cuda.ExternalStream(pointer)
