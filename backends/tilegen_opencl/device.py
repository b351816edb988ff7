"""OpenCL devices: what runs here, and how the arrays of a call get to a kernel and back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from tilegen.backend import Operand, Resources, Toolchain
from tilegen.build import KernelBinary
from tilegen.dtypes import DTYPES
from tilegen.errors import CompileError, LaunchError
from tilegen.hardware import Arch
from tilegen.host_arrays import host_empty, host_operand, three_axes
from tilegen.plan import Argument, Entry
from tilegen.render import KernelSource

from .archs import CPU, GPU, refined
from .runtime import opencl

FLAGS = ""
# The widest access of any form is 64 bytes; buffers start at such a boundary or a wider one.
BOUNDARY = 128
SLOWER = ("Portable Computing Language", "Oclgrind")


@dataclass(frozen=True)
class OpenCLDevice:
    """One OpenCL device, ready to load and run kernels."""

    handle: Any = field(repr=False)
    name: str
    selector: str
    arch: Arch
    driver: str

    @property
    def rung(self) -> str:
        return "CPU runtime" if self.arch.kind == "cpu" else "device"

    @cached_property
    def context(self) -> Any:
        return _cl().Context([self.handle])

    @cached_property
    def queue(self) -> Any:
        return _cl().CommandQueue(self.context, self.handle)

    @cached_property
    def shares_host_memory(self) -> bool:
        """Whether a kernel may be given any host pointer (fine-grained system SVM)."""
        cl = _cl()
        try:
            flags = self.handle.svm_capabilities
        except cl.Error:
            return False
        return bool(flags & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)

    def toolchain(self) -> Toolchain:
        return Toolchain("OpenCL", f"{self.driver} for {self.name}", FLAGS, device=self)

    def compile(self, source: KernelSource, flags: str = FLAGS) -> KernelBinary:
        """Build the text for this device."""
        cl = _cl()
        # The plain binding: tilegen's own cache knows the text, and pyopencl's would hide the log.
        program = cl._cl._Program(self.context, source.text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the log says the same
                program.build(flags.encode(), [self.handle])
        except cl.Error as error:
            log = program.get_build_info(self.handle, cl.program_build_info.LOG)
            raise CompileError(
                f"{self.name} refuses the text of {source.name}",
                compiler=str(self.toolchain()),
                flags=flags,
                log=str(log or error).strip("\0\n "),
            ) from None
        log = str(program.get_build_info(self.handle, cl.program_build_info.LOG) or "").strip(
            "\0\n "
        )
        binary = program.get_info(cl.program_info.BINARIES)[0]
        resources = {
            entry.name: self._resources(cl.Kernel(program, entry.name)) for entry in source.entries
        }
        return KernelBinary(source, binary, log, resources, self.toolchain(), flags)

    def _resources(self, kernel: Any) -> Resources:
        info = _cl().kernel_work_group_info

        def ask(what: int) -> int:
            return int(kernel.get_work_group_info(what, self.handle))

        return Resources(
            shared_bytes=ask(info.LOCAL_MEM_SIZE),
            private_bytes=ask(info.PRIVATE_MEM_SIZE),
            max_threads=ask(info.WORK_GROUP_SIZE),
        )

    def load(self, binary: KernelBinary) -> LoadedProgram:
        cl = _cl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = cl.Program(self.context, [self.handle], [binary.data]).build()
            kernels = {e.name: cl.Kernel(program, e.name) for e in binary.source.entries}
        except cl.Error as error:
            raise LaunchError(f"{self.name} cannot load {binary.source.name}: {error}") from None
        for entry in binary.source.entries:
            kernel = kernels[entry.name]
            limit = kernel.get_work_group_info(
                _cl().kernel_work_group_info.WORK_GROUP_SIZE, self.handle
            )
            if entry.block > limit:
                raise LaunchError(
                    f"{entry.name} needs {entry.block} work-items a group and {self.name} runs it "
                    f"with {limit} at most"
                )
            # With its types known pyopencl packs a scalar in well under a microsecond, not in 16.
            kernel.set_scalar_arg_dtypes(
                [None if a.is_pointer else _scalar_type(a) for a in entry.arguments]
            )
        return LoadedProgram(kernels)

    def session(self, arrays: Sequence[Any], stream: Any) -> HostSession | DeviceSession:
        cl = _cl()
        if stream is not None and not isinstance(stream, cl.CommandQueue):
            raise LaunchError(
                f"stream: a pyopencl.CommandQueue is needed, not {type(stream).__name__}"
            )
        if any(isinstance(array, cl.array.Array) for array in arrays):
            queue = stream or next(
                (a.queue for a in arrays if isinstance(a, cl.array.Array) and a.queue), None
            )
            if queue is None:
                raise LaunchError("no array has a queue: pass stream= or use array.with_queue()")
            if queue.context != self.context:
                raise LaunchError(
                    "the arrays live in another OpenCL context; make them in "
                    "kernel.device.context, or load the kernel with a device of theirs"
                )
            return DeviceSession(queue)
        if stream is not None and not isinstance(stream, cl.CommandQueue):
            raise LaunchError(
                f"stream: a pyopencl.CommandQueue is needed, not {type(stream).__name__}"
            )
        if stream is not None and stream.context != self.context:
            raise LaunchError("stream: it belongs to another OpenCL context than the kernel")
        return HostSession(self, stream or self.queue)


def devices() -> list[OpenCLDevice]:
    """Every OpenCL device here, GPUs and CPUs numbered apart."""
    return list(_devices())


@cache
def _devices() -> tuple[OpenCLDevice, ...]:
    cl = opencl()
    if cl is None:
        return ()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    # The runtimes that are easy to have by accident, and slow, come after the others.
    platforms = sorted(platforms, key=lambda p: p.name.strip() in SLOWER)
    out: list[OpenCLDevice] = []
    counts = {"cpu": 0, "gpu": 0}
    for platform in platforms:
        try:
            handles = platform.get_devices()
        except cl.Error:
            continue
        for handle in handles:
            kind = "cpu" if handle.type & cl.device_type.CPU else "gpu"
            out.append(
                OpenCLDevice(
                    handle,
                    name=handle.name.strip(),
                    selector=f"{kind}:{counts[kind]}",
                    arch=_arch(cl, handle, kind),
                    driver=f"{platform.name.strip()} {handle.driver_version.strip()}",
                )
            )
            counts[kind] += 1
    # CPU runtimes first: they are what the [cpu] extra brings, and what needs no copies.
    return tuple(sorted(out, key=lambda d: d.selector.partition(":")[0]))


def _arch(cl: Any, handle: Any, kind: str) -> Arch:
    extensions = handle.extensions.split()
    features = {
        "fp64": "cl_khr_fp64" in extensions,
        "fp16": "cl_khr_fp16" in extensions,
        "sub_groups": any(e in extensions for e in ("cl_khr_subgroups", "cl_intel_subgroups")),
        # fma() is a library call, hundreds of times slower, where the hardware has none.
        "fast_fma": bool(handle.single_fp_config & cl.device_fp_config.FMA),
    }
    return refined(
        CPU if kind == "cpu" else GPU,
        max_threads=int(handle.max_work_group_size),
        shared_bytes=int(handle.local_mem_size),
        vector_width=int(handle.native_vector_width_float),
        features=frozenset(name for name, has in features.items() if has),
    )


@cache
def _cl() -> Any:
    cl = opencl()
    if cl is None:
        raise CompileError("pyopencl is not installed: python -m pip install 'tilegen[cpu]'")
    import pyopencl.array  # noqa: F401

    return cl


class LoadedProgram:
    """The kernels of one program."""

    def __init__(self, kernels: dict[str, Any]) -> None:
        self._kernels = kernels
        # A cl_kernel keeps its arguments between calls, so setting and queueing belong together.
        self._lock = threading.Lock()

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        cl = _cl()
        kernel = self._kernels[entry.name]
        values = [value for _, value in arguments]
        try:
            with self._lock:
                kernel.set_args(*values)
                cl.enqueue_nd_range_kernel(stream, kernel, (grid * entry.block,), (entry.block,))
        except cl.Error as error:
            raise LaunchError(f"{entry.name}: the driver refused the launch: {error}") from None


def _scalar_type(argument: Argument) -> Any:
    return np.int64 if argument.type == "i64" else DTYPES[argument.type].numpy


class HostSession:
    """NumPy arrays: used in place where the device may read host memory, copied where it may not."""

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._device, self.stream = device, queue
        self._back: list[tuple[np.ndarray, Any, int, int, int]] = []
        self._buffers: dict[tuple[int, int], Any] = {}

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        operand = host_operand(
            name, array, writes=writes, takes="numpy.ndarray or pyopencl.array.Array"
        )
        low, high = _span(array)
        if high == low:
            return replace(operand, handle=None)
        start = operand.address - low
        if self._device.shares_host_memory:
            # A view is given as its owner's memory and an offset, as on a device that copies nothing.
            first, last = _span(_owner(array))
            if (operand.address - first) % array.dtype.itemsize == 0:
                low, high = min(first, low), max(last, high)
            handle, start = _cl().SVM(_bytes_at(low, high - low)), operand.address - low
            return replace(operand, handle=handle, offset=start // array.dtype.itemsize)
        handle, lead = self._copied(low, high)
        if writes:
            self._back.append((array, handle, start, lead, high - low))
        return replace(operand, handle=handle, offset=(start + lead) // array.dtype.itemsize)

    def _copied(self, low: int, high: int) -> tuple[Any, int]:
        """A buffer with the bytes, which start as far past a boundary as they do on the host."""
        cl, lead = _cl(), low % BOUNDARY
        if (low, high) not in self._buffers:
            buffer = cl.Buffer(self._device.context, cl.mem_flags.READ_WRITE, high - low + lead)
            cl.enqueue_copy(self.stream, buffer, _bytes_at(low, high - low), dst_offset=lead)
            self._buffers[low, high] = buffer
        return self._buffers[low, high], lead

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> np.ndarray:
        return host_empty(shape, dtype, majorness)

    def workspace(self, size: int) -> Any:
        return _cl().Buffer(self._device.context, _cl().mem_flags.READ_WRITE, size)

    def finish(self) -> None:
        """A NumPy result must be there when the call returns."""
        cl = _cl()
        for array, buffer, start, lead, size in self._back:
            copy = np.empty(size, np.uint8)
            cl.enqueue_copy(self.stream, copy, buffer, src_offset=lead)
            # Only the elements of the view: what lies between its rows is not this call's.
            array[...] = np.ndarray(
                array.shape, array.dtype, buffer=copy, offset=start, strides=array.strides
            )
        self.stream.finish()


class DeviceSession:
    """pyopencl arrays: everything stays on the device, and nothing waits."""

    def __init__(self, queue: Any) -> None:
        self.stream = queue
        self._arrays: list[Any] = []

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        if not isinstance(array, _cl().array.Array):
            raise LaunchError(
                f"{name}: the other arrays are pyopencl's, and this one is {type(array).__name__}"
            )
        size = array.dtype.itemsize
        if any(stride % size for stride in array.strides) or array.offset % size:
            raise LaunchError(f"{name}: its strides or offset are no multiple of {size} bytes")
        if array.events:
            # What other queues still do to the array comes first, as in pyopencl's own operations.
            _cl().enqueue_barrier(self.stream, wait_for=array.events)
        self._arrays.append(array)
        shape, strides = three_axes(array.shape, tuple(s // size for s in array.strides))
        return Operand(
            handle=array.base_data,
            offset=array.offset // size,
            address=array.offset,
            dtype=array.dtype,
            shape=shape,
            strides=strides,
            rank=array.ndim,
            keep=array,
        )

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        order = "C" if majorness == "row" else "F"
        kind = DTYPES[dtype].numpy
        if len(shape) == 3 and majorness == "col":
            _, rows, cols = shape
            size = kind.itemsize
            strides = (rows * cols * size, size, rows * size)
            return _cl().array.Array(self.stream, shape, kind, strides=strides)
        return _cl().array.empty(self.stream, shape, kind, order=order)

    def workspace(self, size: int) -> Any:
        return _cl().Buffer(self.stream.context, _cl().mem_flags.READ_WRITE, size)

    def finish(self) -> None:
        """Nothing waits; later operations on the arrays, on any queue, are ordered after this."""
        done = _cl().enqueue_marker(self.stream)
        for array in self._arrays:
            array.add_event(done)


def _span(array: np.ndarray) -> tuple[int, int]:
    """Addresses of the first byte of the array's memory and the one after the last."""
    low: int
    low, high = np.lib.array_utils.byte_bounds(array)
    return (low, high) if array.size else (low, low)


def _owner(array: np.ndarray) -> np.ndarray:
    """The outermost array whose memory this one is a view of."""
    owner, base = array, array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


def _bytes_at(address: int, count: int) -> np.ndarray:
    import ctypes

    memory = memoryview((ctypes.c_ubyte * count).from_address(address)).cast("B")
    return np.frombuffer(memory, np.uint8)
