"""NVIDIA's GPUs through CuPy: what runs here, and how cubins are loaded and launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tilegen.backend import Toolchain
from tilegen.build import KernelBinary
from tilegen.errors import LaunchError
from tilegen.hardware import Arch
from tilegen.plan import Argument, Entry

from .archs import ARCHS, dynamic_bytes
from .runtime import cupy
from .toolchain import nvrtc_toolchain

if TYPE_CHECKING:
    from .arrays import CudaSession

# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES (CUDA Driver API, CUfunction_attribute).
MAX_DYNAMIC_SHARED = 8


@dataclass(frozen=True)
class CudaDevice:
    """One GPU, ready to load and run cubins."""

    number: int
    name: str
    selector: str
    arch: Arch
    also_runs: tuple[str, ...] = ()
    driver: str = field(default="", compare=False)

    @property
    def rung(self) -> str:
        return "device"

    def toolchain(self) -> Toolchain:
        return nvrtc_toolchain(self.arch)

    def load(self, binary: KernelBinary) -> LoadedModule:
        cp, source = cupy(), binary.source
        if not binary.data:
            raise LaunchError(f"{source.name} has no cubin: {self.toolchain().missing}")
        with cp.cuda.Device(self.number):
            module = cp.cuda.function.Module()
            try:
                module.load(binary.data)
                functions = {e.name: module.get_function(e.symbol) for e in source.entries}
            except (cp.cuda.driver.CUDADriverError, ValueError) as error:
                raise LaunchError(f"{self.name} cannot load {source.name}: {error}") from None
            for entry in source.entries:
                if dynamic := dynamic_bytes(entry.shared_bytes):
                    function = functions[entry.name]
                    cp.cuda.driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED, dynamic)
        return LoadedModule(self, module, functions)

    def session(self, arrays: Sequence[Any], stream: Any) -> CudaSession:
        from .arrays import CudaSession

        return CudaSession.of(self, arrays, stream)


class LoadedModule:
    """The kernels of one cubin."""

    def __init__(self, device: CudaDevice, module: Any, functions: dict[str, Any]) -> None:
        self._device, self._module, self._functions = device, module, functions

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        self.bind(entry, grid, arguments, stream)()

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        cp, function = cupy(), self._functions[entry.name]
        if grid >= 2**31:
            raise LaunchError(f"{entry.name}: {grid} blocks, and a grid has 2147483647 at most")
        values = tuple(_value(argument, value) for argument, value in arguments)
        device, dynamic = cp.cuda.Device(self._device.number), dynamic_bytes(entry.shared_bytes)

        def launched() -> None:
            try:
                with device:
                    function((grid, 1, 1), (entry.block, 1, 1), values, dynamic, stream)
            except cp.cuda.driver.CUDADriverError as error:
                raise LaunchError(f"{entry.name}: the driver refuses the launch: {error}") from None

        return launched


def _value(argument: Argument, value: Any) -> Any:
    import numpy as np

    if argument.is_pointer:
        return np.uintp(value if isinstance(value, int) else value.data.ptr)
    return np.int64(value) if argument.type == "i64" else value


def devices() -> list[CudaDevice]:
    """The GPUs of this machine whose arch is known."""
    return list(_devices())


@cache
def _devices() -> tuple[CudaDevice, ...]:
    cp = cupy()
    if cp is None:
        return ()
    out = []
    driver = str(cp.cuda.runtime.driverGetVersion())
    for number in range(cp.cuda.runtime.getDeviceCount()):
        properties = cp.cuda.runtime.getDeviceProperties(number)
        names = runnable(properties["major"], properties["minor"])
        if not names:
            continue
        arch = replace(ARCHS[names[0]], multiprocessors=int(properties["multiProcessorCount"]))
        name = properties["name"].decode()
        out.append(CudaDevice(number, name, f"gpu:{number}", arch, names[1:], driver))
    return tuple(out)


def runnable(major: int, minor: int) -> tuple[str, ...]:
    """Archs whose cubins a device of this compute capability runs, its own first.

    A cubin runs within its major version from its minor version on, one for an ``a`` arch on that
    alone (CUDA C++ Programming Guide, Binary Compatibility, and Family-Specific Features).
    """
    own = [f"sm_{major}{minor}a", *(f"sm_{major}{m}" for m in range(minor, -1, -1))]
    return tuple(name for name in own if name in ARCHS)
