"""A cubin on a GPU: its functions, and launches that cost the host as little as they can."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilegen.errors import LaunchError
from tilegen.plan import Argument, Entry
from tilegen.render import KernelSource

from .archs import dynamic_bytes
from .failures import explained
from .runtime import cupy

# CUDA C++ Programming Guide, Technical Specifications per Compute Capability: blocks of a grid in x.
MOST_BLOCKS = 2**31 - 1
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES (CUDA Driver API, CUfunction_attribute).
MAX_DYNAMIC_SHARED = 8
# Each argument in a slot of its own, which is as aligned as any of these asks.
SLOT = 8
FORMATS = {"i64": "q", "f64": "d", "f32": "f4x", "s32": "i4x"}


class Frame:
    """Memory for the arguments of one launch, and the pointers to each that the driver reads."""

    __slots__ = ("_pointers", "address", "memory")

    def __init__(self, slots: Sequence[int]) -> None:
        """``slots`` tells of each argument in which slot its value is."""
        count = max(1, len(slots))
        self.memory = ctypes.create_string_buffer(count * SLOT)
        start = ctypes.addressof(self.memory)
        self._pointers = (ctypes.c_void_p * count)(*(start + slot * SLOT for slot in slots))
        self.address = ctypes.addressof(self._pointers)


class Launcher:
    """One entry: its function, and frames that wait for a launch.

    The driver copies the arguments before a launch returns (CUDA Driver API, cuLaunchKernel), so that
    the next one may have the frame.
    """

    def __init__(self, entry: Entry, function: int) -> None:
        self.function, self.block = function, entry.block
        self.dynamic = dynamic_bytes(entry.shared_bytes)
        self.formats = ["Q" if a.is_pointer else FORMATS[a.type] for a in entry.arguments]
        self.pack = struct.Struct("=" + "".join(self.formats)).pack_into
        # Taking from a list and giving back are atomic: no two launches ever hold one frame.
        self.frames: list[Frame] = []

    def frame(self) -> Frame:
        return Frame(range(len(self.formats)))


class LoadedModule:
    """The kernels of one cubin, loaded on one GPU."""

    def __init__(self, number: int, module: Any, source: KernelSource) -> None:
        """Find the functions of a module in the GPU's context, which is the current one."""
        cp = cupy()
        self._number, self._module = number, module  # a module unloads when CuPy's object goes
        driver = cp.cuda.driver
        self._launch, self._current = driver.launchKernel, driver.ctxGetCurrent
        self._error = driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError
        self._context = driver.ctxGetCurrent()
        functions = {e.symbol: module.get_function(e.symbol) for e in source.entries}
        self._functions = functions
        self._launchers = {e.name: Launcher(e, functions[e.symbol].ptr) for e in source.entries}
        dynamic: dict[str, int] = {}
        for entry in source.entries:
            need = dynamic_bytes(entry.shared_bytes)
            dynamic[entry.symbol] = max(need, dynamic.get(entry.symbol, 0))
        for symbol, size in dynamic.items():
            if size:
                driver.funcSetAttribute(functions[symbol].ptr, MAX_DYNAMIC_SHARED, size)

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        launcher = self._launchers[entry.name]
        try:
            frame = launcher.frames.pop()
        except IndexError:
            frame = launcher.frame()
        launcher.pack(frame.memory, 0, *[value for _, value in arguments])
        if grid > MOST_BLOCKS:
            raise _too_large(entry, grid)
        launch = partial(
            self._launch, launcher.function, grid, 1, 1, launcher.block, 1, 1, launcher.dynamic,
            stream.ptr, frame.address, 0,
        )  # fmt: skip
        try:
            if self._current() == self._context:
                launch()
            else:
                self._elsewhere(launch)
        except self._error as error:
            raise _refused(entry, error) from None
        launcher.frames.append(frame)

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        launcher = self._launchers[entry.name]
        if grid > MOST_BLOCKS:
            raise _too_large(entry, grid)
        frame = launcher.frame()
        launcher.pack(frame.memory, 0, *[value for _, value in arguments])
        launch = partial(
            self._launch, launcher.function, grid, 1, 1, launcher.block, 1, 1, launcher.dynamic,
            stream.ptr, frame.address, 0,
        )  # fmt: skip
        current, context, failed = self._current, self._context, self._error
        elsewhere, kept = self._elsewhere, (frame, stream)

        def launched(_: Any = kept) -> None:
            try:
                if current() == context:
                    launch()
                else:
                    elsewhere(launch)
            except failed as error:
                raise _refused(entry, error) from None

        return launched

    def repeat(
        self,
        entry: Entry,
        grid: int,
        arguments: Sequence[tuple[Argument, Any]],
        late: Sequence[int],
    ) -> Callable[[Sequence[Any], Any], None]:
        launcher = self._launchers[entry.name]
        if grid > MOST_BLOCKS:
            raise _too_large(entry, grid)
        # What varies lies in front, where one call packs it, and the rest is there from the start.
        order = [*late, *(place for place in range(len(arguments)) if place not in late)]
        slots = [order.index(place) for place in range(len(arguments))]
        pack_all = struct.Struct("=" + "".join(launcher.formats[place] for place in order)).pack
        pack = struct.Struct("=" + "".join(launcher.formats[place] for place in late)).pack_into
        first = pack_all(*(arguments[place][1] for place in order))
        frames: list[Frame] = []
        launch, current, context, failed = self._launch, self._current, self._context, self._error
        function, block, dynamic = launcher.function, launcher.block, launcher.dynamic

        def launched(values: Sequence[Any], stream: Any) -> None:
            try:
                frame = frames.pop()
            except IndexError:
                frame = Frame(slots)
                ctypes.memmove(frame.memory, first, len(first))
            pack(frame.memory, 0, *values)
            words = function, grid, 1, 1, block, 1, 1, dynamic, stream.ptr, frame.address, 0
            try:
                if current() == context:
                    launch(*words)
                else:
                    self._elsewhere(partial(launch, *words))
            except failed as error:
                raise _refused(entry, error) from None
            frames.append(frame)

        return launched

    def _elsewhere(self, launch: Callable[[], Any]) -> None:
        """From a thread in which another GPU, or none, is current."""
        runtime = cupy().cuda.runtime
        before = runtime.getDevice()
        # It makes the GPU's primary context current, also in a thread that never used CUDA.
        runtime.setDevice(self._number)
        try:
            launch()
        finally:
            if before != self._number:
                runtime.setDevice(before)


def _too_large(entry: Entry, grid: int) -> LaunchError:
    return LaunchError(f"{entry.name}: {grid} blocks, and a grid has {MOST_BLOCKS} at most")


def _refused(entry: Entry, error: Exception) -> LaunchError:
    return explained(f"{entry.name}: the driver refuses the launch", error)
