"""CuPy, where it and a driver are here."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def cupy() -> Any:
    """CuPy, where it and a driver are here; ``None`` otherwise."""
    if find_spec("cupy") is None:
        return None
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    try:
        import cupy as found

        found.cuda.runtime.getDeviceCount()
    except Exception:  # whatever a half-installed driver or CuPy raises
        return None
    return found
