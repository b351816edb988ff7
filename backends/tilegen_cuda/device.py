"""NVIDIA's GPUs through CuPy: what runs here, and how cubins are loaded and launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tilegen.backend import Toolchain
from tilegen.build import KernelBinary
from tilegen.errors import LaunchError
from tilegen.hardware import Arch

from .archs import ARCHS
from .arrays import CudaSession, address, glance
from .failures import explained
from .launching import LoadedModule
from .runtime import cupy
from .toolchain import toolchain


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
        return toolchain(self.arch)

    def load(self, binary: KernelBinary) -> LoadedModule:
        cp, source = cupy(), binary.source
        if not binary.data:
            raise LaunchError(f"{source.name} has no cubin: {self.toolchain().missing}")
        try:
            with cp.cuda.Device(self.number):
                # A thread that never used CUDA has no context, and asking for one makes it.
                cp.cuda.runtime.setDevice(self.number)
                module = cp.cuda.function.Module()
                module.load(binary.data)
                return LoadedModule(self.number, module, source)
        except (cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError) as error:
            raise explained(f"{self.name} cannot load {source.name}", error) from None

    def glance(
        self, arrays: Sequence[Any], stream: Any
    ) -> tuple[Any, list[int], CudaSession] | None:
        """Types, shapes and strides of arrays that are all CuPy's or torch's, and on this GPU."""
        return glance(self, arrays, stream)

    def address(self, array: Any) -> int:
        return address(array)

    def session(self, arrays: Sequence[Any], stream: Any) -> CudaSession:
        return CudaSession.of(self, arrays, stream)


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
