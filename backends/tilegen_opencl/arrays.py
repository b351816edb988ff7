"""The arrays of a launch on OpenCL: NumPy's, in place or copied there and back, or pyopencl's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Operand, reach
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.host_arrays import ALIGNMENT, host_operand, host_result, three_axes
from tilegen.tensors import host_view

from .runtime import binding

if TYPE_CHECKING:
    from .device import OpenCLDevice

# The widest access of any form is 64 bytes; buffers start at such a boundary or a wider one.
BOUNDARY = 128


class HostSession:
    """Host arrays: used in place where the device may read host memory, copied where it may not."""

    alignment = ALIGNMENT

    def __init__(self, device: OpenCLDevice, queue: Any, tensors: bool) -> None:
        self._device, self.stream, self._tensors = device, queue, tensors
        self._in_place = device.shares_host_memory
        self._there: list[tuple[Any, np.ndarray, int]] = []
        self._back: list[tuple[np.ndarray, Any, int, int, int]] = []
        self._buffers: dict[tuple[int, int], Any] = {}

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        array = host_view(name, array)
        operand = host_operand(
            name, array, writes=writes, takes="numpy.ndarray or pyopencl.array.Array"
        )
        if self._in_place and _is_plain(array):
            return Operand(binding().SVM(array), *operand[1:])  # quicker than _replace
        low, high = operand.span
        if high == low:
            return operand._replace(handle=None)
        if self._in_place:
            # A view is given as its owner's memory and an offset, as on a device that copies nothing.
            first, last = _memory(array)
            if (operand.address - first) % array.itemsize == 0:
                low, high = min(first, low), max(last, high)
        start = operand.address - low
        if self._in_place:
            handle = binding().SVM(_bytes_at(low, high - low))
            return operand._replace(handle=handle, offset=start // array.itemsize)
        handle, lead = self._copied(name, low, high, writes)
        if writes:
            self._back.append((array, handle, start, lead, high - low))
        return operand._replace(handle=handle, offset=(start + lead) // array.itemsize)

    def _copied(self, name: str, low: int, high: int, writes: bool) -> tuple[Any, int]:
        """A buffer for the bytes, which start as far past a boundary as they do on the host."""
        lead, size = low % BOUNDARY, high - low
        largest = self._device.largest_buffer
        if size + lead > largest:
            raise LaunchError(
                f"{name}: it spans {size} bytes, and {self._device.name}, which works on a copy, "
                f"allocates {largest} at most"
            )
        if (low, high) not in self._buffers:
            self._buffers[low, high] = _buffer(self._device.context, size + lead, name)
            if not writes:  # D is written as a whole, unless it is an input too
                self._there.append((self._buffers[low, high], _bytes_at(low, size), lead))
        return self._buffers[low, high], lead

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        return host_result(shape, dtype, majorness, tensor=self._tensors)

    def workspace(self, size: int) -> BufferWorkspace:
        return BufferWorkspace(_buffer(self._device.context, size, "workspace"), size)

    def begin(self) -> None:
        for buffer, data, lead in self._there:
            binding().enqueue_copy(self.stream, buffer, data, dst_offset=lead)

    def finish(self) -> None:
        """A NumPy result must be there when the call returns."""
        for array, buffer, start, lead, size in self._back:
            copy = np.empty(size, np.uint8)
            binding().enqueue_copy(self.stream, copy, buffer, src_offset=lead)
            # Only the elements of the view: what lies between its rows is not this call's.
            array[...] = np.ndarray(
                array.shape, array.dtype, buffer=copy, offset=start, strides=array.strides
            )
        self.stream.finish()


class DeviceSession:
    """pyopencl arrays: everything stays on the device, and nothing waits."""

    alignment = BOUNDARY

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._context, self.stream = device.context, queue
        self._arrays: list[Any] = []

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        if not isinstance(array, binding().array.Array):
            raise LaunchError(
                f"{name}: the other arrays are pyopencl's, and this one is {type(array).__name__}"
            )
        size = array.dtype.itemsize
        if not size:
            raise LaunchError(f"{name}: its type is {array.dtype}, whose elements have no bytes")
        if array.offset % size or any(stride % size for stride in array.strides):
            raise LaunchError(f"{name}: its strides or offset are no multiple of {size} bytes")
        shape, strides = three_axes(array.shape, [s // size for s in array.strides])
        memory, position = self._place(name, array, writes, shape, strides)
        self._arrays.append(array)
        return Operand(
            handle=array.base_data,
            offset=array.offset // size,
            address=array.offset,
            dtype=array.dtype,
            shape=shape,
            strides=strides,
            rank=array.ndim,
            keep=array,
            memory=memory,
            position=position,
        )

    def _place(
        self, name: str, array: Any, writes: bool, shape: Sequence[int], strides: Sequence[int]
    ) -> tuple[Any, int]:
        """The memory that the array lies in and the byte at which it starts; checks both."""
        cl, data, start = binding(), array.base_data, array.offset
        if data is None:
            if array.size:
                raise LaunchError(f"{name}: the array has no memory")
            return None, 0
        low, high = reach(start, shape, strides, array.dtype.itemsize)
        if isinstance(data, cl.SVMPointer):
            held, memory, position = data.size, "host", data.svm_ptr + start
        elif isinstance(data, cl.MemoryObjectHolder):
            if data.context != self._context:
                raise LaunchError(
                    f"{name}: it lives in another OpenCL context than the kernel; make it in "
                    "kernel.device.context, or load the kernel with a device of its context"
                )
            flags, kind = data.flags, cl.mem_flags
            if writes and flags & kind.READ_ONLY:
                raise LaunchError(f"{name}: its buffer is READ_ONLY to kernels")
            if not writes and flags & kind.WRITE_ONLY:
                raise LaunchError(f"{name}: its buffer is WRITE_ONLY to kernels")
            held, memory, position = data.size, data.int_ptr, start
            parent = data.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
            if parent is not None:
                memory, position = parent.int_ptr, start + data.offset
        else:
            raise LaunchError(f"{name}: its memory is {type(data).__name__}, no buffer or SVM")
        if held is not None and high > low and (high > held or low < 0):
            raise LaunchError(
                f"{name}: it reaches bytes {low} to {high - 1} of a buffer that has {held}"
            )
        return memory, position

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        cl, kind = binding(), DTYPES[dtype].numpy
        size = kind.itemsize
        strides = None
        if len(shape) == 3 and majorness == "col":
            _, rows, cols = shape
            strides = (rows * cols * size, size, rows * size)
        order = "C" if majorness == "row" else "F"
        try:
            return cl.array.Array(self.stream, shape, kind, order=order, strides=strides)
        except (cl.Error, OverflowError) as error:
            raise LaunchError(f"out: the device has no memory for it: {error}") from None

    def workspace(self, size: int) -> BufferWorkspace:
        return BufferWorkspace(_buffer(self.stream.context, size, "workspace"), size)

    def begin(self) -> None:
        """What other queues still do to the arrays comes first, as in pyopencl's own operations."""
        events = [event for array in self._arrays for event in array.events]
        if events:
            binding().enqueue_barrier(self.stream, wait_for=events)

    def finish(self) -> None:
        """Nothing waits; later operations on the arrays, on any queue, are ordered after this."""
        done = binding().enqueue_marker(self.stream)
        for array in self._arrays:
            array.add_event(done)


@dataclass(frozen=True)
class BufferWorkspace:
    """A buffer, which OpenCL keeps until the kernels that are queued with it have run."""

    buffer: Any
    size: int
    _parts: dict[tuple[int, int], Any] = field(default_factory=dict)

    def region(self, offset: int, size: int, element: str) -> Any:
        if offset == 0:
            return self.buffer
        if offset == self.size:
            return None
        try:
            # A kernel's arguments do not keep a sub-buffer alive.
            if (offset, size) not in self._parts:
                self._parts[offset, size] = self.buffer.get_sub_region(offset, size)
            return self._parts[offset, size]
        except binding().Error as error:
            raise LaunchError(
                f"workspace: the device gives no buffer from byte {offset} on: {error}"
            ) from None


def _buffer(context: Any, size: int, name: str) -> Any:
    cl = binding()
    try:
        return cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
    except (cl.Error, OverflowError) as error:
        raise LaunchError(
            f"{name}: the device has no memory for its {size} bytes: {error}"
        ) from None


def _is_plain(array: np.ndarray) -> bool:
    """Whether the binding takes the array itself, several times faster than its bytes."""
    flags = array.flags
    return bool(flags.forc and flags.writeable and array.size and array.dtype.kind in "fiu")


def _memory(array: np.ndarray) -> tuple[int, int]:
    """Addresses of the first and behind the last byte of the memory that the array is a view of."""
    owner, base = array, array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    first, last = np.lib.array_utils.byte_bounds(owner)
    return int(first), int(last)


def _bytes_at(address: int, count: int) -> np.ndarray:
    import ctypes

    memory = memoryview((ctypes.c_ubyte * count).from_address(address)).cast("B")
    return np.frombuffer(memory, np.uint8)
