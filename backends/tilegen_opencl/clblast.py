"""CLBlast as a peer: the library through ctypes, on the context and queue of our own kernels."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.errors import LaunchError
from tilegen.spec import Layouts, Types

from .runtime import opencl

if TYPE_CHECKING:
    from .device import OpenCLDevice

VARIABLE = "TILEGEN_CLBLAST"
NAMES = ("libclblast.so.1", "libclblast.so", "libclblast.dylib", "clblast.dll")
INSTALL = f"apt-get install libclblast1, or {VARIABLE}=PATH of the library"
# clblast_c.h 1.5: CLBlastLayout and CLBlastTranspose.
ORDERS = {"row": 101, "col": 102}
PLAIN, TRANSPOSED = 111, 112
ROUTINES: Mapping[str, tuple[str, type[Any]]] = {
    "f64": ("CLBlastDgemm", ctypes.c_double),
    "f32": ("CLBlastSgemm", ctypes.c_float),
    "f16": ("CLBlastHgemm", ctypes.c_ushort),
}


@cache
def _library(named: str | None) -> tuple[ctypes.CDLL | None, str]:
    """The library, or the sentence that says why it is not there."""
    if named:
        path = Path(named)
        if path.is_dir():
            path = next((path / name for name in NAMES if (path / name).exists()), path)
        # A library carried along brings the OpenCL loader that it is linked to.
        loader = path.parent / "libOpenCL.so.1"
        try:
            if loader.exists():
                ctypes.CDLL(str(loader), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(path)), ""
        except OSError as error:
            return None, f"CLBlast cannot be loaded from {VARIABLE}: {error}"
    reason = ""
    for name in (*NAMES, ctypes.util.find_library("clblast") or ""):
        if not name:
            continue
        try:
            return ctypes.CDLL(name), ""
        except OSError as error:
            # A library that is there and lacks another one says so; one that is not says nothing new.
            reason = reason if name in str(error) else str(error)
    return (
        None,
        f"CLBlast cannot be loaded: {reason}" if reason else f"CLBlast is not here: {INSTALL}",
    )


class CLBlast:
    """``CLBlastSgemm`` and its kin, as the library tunes itself for the device."""

    name = "CLBlast"

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._device, self._queue = device, queue
        self._library, self.missing = _library(os.environ.get(VARIABLE))

    @property
    def description(self) -> Mapping[str, str]:
        path = getattr(self._library, "_name", "")
        real = Path(path).resolve().name if os.sep in path else _loaded_path("clblast") or path
        return {"library": Path(real).name}

    def refusal(self, types: Types) -> str:
        kinds = {types.a, types.b, types.c, types.d}
        if len(kinds) > 1 or types.a not in ROUTINES:
            return f"CLBlast has no product of {types.a} and {types.b} into {types.d}"
        feature = {"f64": "fp64", "f16": "fp16"}.get(types.a)
        if feature and feature not in self._device.arch.features:
            return f"{self._device.name} has no {feature}"
        return ""

    def accumulator(self, types: Types) -> str:
        return types.a

    def prepare(
        self, a: Any, b: Any, out: Any, types: Types, layout: Layouts
    ) -> Callable[[], object]:
        """``status`` is not 0 where the library refuses; then the call raises ``LaunchError``."""
        routine, real = ROUTINES[types.a]
        function = getattr(self._library, routine)
        (m, n), k = out.shape, a.shape[1]
        arrays = [self._buffer(x) for x in (a, b, out)]
        one = _half(1.0) if types.a == "f16" else 1.0
        order = layout.d
        words: list[Any] = [ctypes.c_int(ORDERS[order])]
        words += [ctypes.c_int(PLAIN if x == order else TRANSPOSED) for x in (layout.a, layout.b)]
        words += [ctypes.c_size_t(x) for x in (m, n, k)]
        for scalar, index in ((one, 0), (None, 1), (0, 2)):
            if scalar is not None:
                words.append(real(scalar))
            x = (a, b, out)[index]
            majorness = (layout.a, layout.b, layout.d)[index]
            words += [
                ctypes.c_void_p(arrays[index].int_ptr),
                ctypes.c_size_t(0),
                ctypes.c_size_t(x.shape[1] if majorness == "row" else x.shape[0]),
            ]
        queue = ctypes.c_void_p(self._queue.int_ptr)
        words += [ctypes.byref(queue), None]

        def call() -> object:
            status = function(*words)
            if status:
                raise LaunchError(f"{routine} refuses {m}x{n}x{k} with status {status}")
            return arrays  # not None: the queue is still to be waited for

        return call

    def _buffer(self, array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            return array.base_data
        cl = opencl()
        assert cl is not None
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        flat = array.reshape(-1, order="A").view(np.uint8)
        return cl.Buffer(self._device.context, flags, hostbuf=flat)


def _half(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def _loaded_path(part: str) -> str:
    """The file that the loader took, where the system lists it."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ""
    return next((x.split()[-1] for x in lines if part in x.rpartition("/")[2]), "")
