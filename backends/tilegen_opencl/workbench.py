"""OpenCL devices on the bench: a clock that fits the device, data in place, and ceilings."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Ceiling, Peer, Timing
from tilegen.bench.host import host_cache_bytes, host_memory_bytes
from tilegen.errors import LaunchError
from tilegen.spec import Types

from .ceilings import TRAFFIC, PeakKernel, peak_kernels, traffic_text

if TYPE_CHECKING:
    from .device import OpenCLDevice

# NVIDIA's driver names the first-level caches; the largest last-level cache of a GPU today is
# AMD's Infinity Cache (256 MiB, MI300X data sheet).
GPU_CACHE_BYTES = 256 << 20
CEILING_SECONDS = 0.03
CEILING_RUNS = 7
# How long the device may be kept busy ahead of a batch, so that the batch is queued meanwhile.
LONGEST_PLUG = 0.2
CEILING_BYTES = 128 << 20


class OpenCLWorkbench:
    """One in-order queue with profiling; see :class:`tilegen.backend.Workbench`."""

    def __init__(self, device: OpenCLDevice) -> None:
        from .runtime import binding

        cl = binding()
        self._cl, self._device = cl, device
        self._cpu = device.arch.kind == "cpu"
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.stream = cl.CommandQueue(device.context, device.handle, properties=profiling)
        self._plug: tuple[Any, float] | None = None

    @property
    def clock(self) -> str:
        return "wall" if self._cpu else "device"

    @property
    def cache_bytes(self) -> int:
        named = int(self._device.handle.global_mem_cache_size)
        return max(named, host_cache_bytes() if self._cpu else GPU_CACHE_BYTES)

    @property
    def memory_bytes(self) -> int:
        quarter = int(self._device.handle.global_mem_size) // 4
        return min(quarter, host_memory_bytes()) if self._cpu else quarter

    @property
    def versions(self) -> Mapping[str, str]:
        return {"driver": self._device.driver, "pyopencl": self._cl.VERSION_TEXT}

    # ---- data ----------------------------------------------------------------------------------

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        if self._cpu:
            return array
        held = self._cl.array.Array(self.stream, array.shape, array.dtype, strides=array.strides)
        # As bytes: types of ml_dtypes export no buffer of their own.
        flat = array.reshape(-1, order="A").view(np.uint8)
        self._cl.enqueue_copy(self.stream, held.base_data, flat)
        return held

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        self.stream.finish()
        if isinstance(array, np.ndarray):
            return array
        flat = np.empty(array.size * array.dtype.itemsize, np.uint8)
        self._cl.enqueue_copy(self.stream, flat, array.base_data)
        return np.ndarray(array.shape, array.dtype, buffer=flat, strides=array.strides)

    def wait(self) -> None:
        self.stream.finish()

    # ---- the clock -----------------------------------------------------------------------------

    def time(self, calls: Sequence[Callable[[], object]], lead: int = 0) -> Timing:
        return (self._wall if self._cpu else self._queued)(calls, lead)

    def _wall(self, calls: Sequence[Callable[[], object]], lead: int) -> Timing:
        """Each call until it is done, as a caller on a CPU meets it."""
        finish = self.stream.finish
        for call in calls[:lead]:
            call()
            finish()
        events: list[Any] = []
        queued = 0.0
        start = time.perf_counter()
        for call in calls[lead:]:
            before = time.perf_counter()
            made = call()
            queued += time.perf_counter() - before
            if made is not None:  # None: it was done when it returned
                finish()
                events.append(made)
        taken = time.perf_counter() - start
        return Timing(taken, queued, self._event_seconds(events))

    def _event_seconds(self, made: list[Any]) -> float | None:
        events = [e for group in made if isinstance(group, list) for e in group]
        if not events or not all(isinstance(e, self._cl.Event) for e in events):
            return None
        return float(sum(e.profile.end - e.profile.start for e in events)) * 1e-9

    def _queued(self, calls: Sequence[Callable[[], object]], lead: int) -> Timing:
        """The device's time between two markers; a long kernel ahead keeps the queue full.

        Where that kernel ends before the last call is queued, the device may have waited for the
        host, and the batch is run again behind a longer one.
        """
        cl, queue = self._cl, self.stream
        plug_seconds = 2e-3 + 4e-5 * len(calls)
        while True:
            queue.finish()
            self._queue_plug(plug_seconds)
            for call in calls[:lead]:
                call()
            start = cl.enqueue_marker(queue)
            queue.flush()
            begun = time.perf_counter()
            for call in calls[lead:]:
                call()
            host = time.perf_counter() - begun
            kept_full = start.command_execution_status != cl.command_execution_status.COMPLETE
            stop = cl.enqueue_marker(queue)
            queue.finish()
            if kept_full or plug_seconds >= LONGEST_PLUG:
                taken = (stop.profile.end - start.profile.end) * 1e-9
                return Timing(taken, host, starved=not kept_full)
            plug_seconds = min(LONGEST_PLUG, 4 * plug_seconds)

    def _queue_plug(self, seconds: float) -> None:
        if self._plug is None:
            kernel = self._peak_kernel(next(peak_kernels("f32", ("f32", "f32"), 1, False, False)))
            steps = 1000
            while (taken := self._event_time(kernel, 1, steps)) < 5e-3:
                steps *= 4
            self._plug = kernel, steps / taken
        kernel, rate = self._plug
        kernel(1, max(1, int(rate * seconds)))

    # ---- ceilings ------------------------------------------------------------------------------

    def peak(self, types: Types) -> Ceiling | None:
        handle = self._device.handle
        name = "double" if types.acc == "f64" else "float"
        width = min(16, int(getattr(handle, f"native_vector_width_{name}")))
        dot = "cl_khr_integer_dot_product" in handle.extensions.split()
        found = [
            rate
            for kernel in peak_kernels(types.acc, (types.a, types.b), width, self._cpu, dot)
            if (rate := self._peak_rate(kernel)) is not None
        ]
        return max(found, key=lambda c: c.rate, default=None)

    def _peak_rate(self, kernel: PeakKernel) -> Ceiling | None:
        try:
            run = self._peak_kernel(kernel)
        except self._cl.Error:
            return None  # a device without the type, or without the built-in
        groups = int(self._device.handle.max_compute_units) * (4 if self._cpu else 16)
        steps = 64
        while (taken := self._event_time(run, groups, steps)) < CEILING_SECONDS:
            steps *= 2 if taken > CEILING_SECONDS / 8 else 8
        best = min(self._event_time(run, groups, steps) for _ in range(CEILING_RUNS))
        flop = kernel.flop_per_step * steps * groups * kernel.group
        return Ceiling(flop / best, kernel.how)

    def _peak_kernel(self, kernel: PeakKernel) -> Callable[[int, int], Any]:
        cl = self._cl
        program = self._program(kernel.text, kernel.flags)
        entry = cl.Kernel(program, "peak")
        scalar = np.dtype(kernel.scalar)
        entry.set_scalar_arg_dtypes([None, np.int32, scalar])
        groups_most = int(self._device.handle.max_compute_units) * 16
        size = groups_most * kernel.group * scalar.itemsize * 16
        out = cl.Buffer(self._device.context, cl.mem_flags.READ_WRITE, size)
        factor = scalar.type(0.999 if scalar.kind == "f" else 3)

        def run(groups: int, steps: int) -> Any:
            entry.set_args(out, np.int32(steps), factor)
            return cl.enqueue_nd_range_kernel(
                self.stream, entry, (groups * kernel.group,), (kernel.group,)
            )

        return run

    def _program(self, text: str, flags: str = "") -> Any:
        program = self._cl._cl._Program(self._device.context, text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.build(flags.encode(), [self._device.handle])
        return program

    def _event_time(self, run: Callable[[int, int], Any], groups: int, steps: int) -> float:
        event = run(groups, steps)
        event.wait()
        return float(event.profile.end - event.profile.start) * 1e-9

    def bandwidth(self) -> Ceiling | None:
        cl, context = self._cl, self._device.context
        width = 16 if self._cpu else 4
        items = int(self._device.handle.max_compute_units) * (4 if self._cpu else 2048)
        wanted = min(max(self.cache_bytes, CEILING_BYTES), self.memory_bytes // 3)
        limit = int(self._device.handle.max_mem_alloc_size)
        vectors = min(wanted, limit) // (4 * width)
        count = max(2, vectors // items // 2 * 2)
        first, step = (count, 1) if self._cpu else (1, items)
        size = count * items * width * 4
        try:
            program = self._program(traffic_text(width))
            arrays = [cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for _ in range(3)]
            for array in arrays:
                cl.enqueue_fill_buffer(self.stream, array, np.float32(1), 0, size)
            self.stream.finish()
        except cl.Error as error:
            raise LaunchError(
                f"{self._device.name}: no room for {3 * size} bytes: {error}"
            ) from None
        best = Ceiling(0.0, "")
        for name, moved in TRAFFIC.items():
            entry = cl.Kernel(program, name)
            entry.set_scalar_arg_dtypes([None, None, None, np.int32, np.int64, np.int64])
            entry.set_args(*arrays, count, first, step)
            for _ in range(CEILING_RUNS):
                event = cl.enqueue_nd_range_kernel(self.stream, entry, (items,), None)
                event.wait()
                taken = (event.profile.end - event.profile.start) * 1e-9
                how = f"{name} of {moved} x {size >> 20} MiB"
                best = max(best, Ceiling(moved * size / taken, how), key=lambda c: c.rate)
        return best

    # ---- peers ---------------------------------------------------------------------------------

    def peers(self) -> Sequence[Peer]:
        from .clblast import CLBlast

        return (CLBlast(self._device, self.stream),)
