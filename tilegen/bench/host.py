"""The workbench of any device that runs on host memory: NumPy arrays and the wall clock."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Ceiling, Measurable, Peer, Timing, Workbench
from tilegen.spec import Types

if TYPE_CHECKING:
    from tilegen.backend import Device

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Where the system does not say: no desktop or server part of the last ten years has more per core
# complex than AMD's 3D V-Cache (96 MiB), and larger ones are read from sysfs.
CACHE_BYTES = 96 << 20
MEMORY_BYTES = 8 << 30
SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def workbench(device: Device) -> Workbench:
    """The device's own workbench, or this one."""
    return device.workbench() if isinstance(device, Measurable) else HostWorkbench()


def host_cache_bytes() -> int:
    """The largest cache of the first core, as Linux names it; else a large guess."""
    sizes = []
    for path in CACHES.glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1:] in SIZE_UNITS:
            sizes.append(int(text[:-1]) * SIZE_UNITS[text[-1]])
    return max(sizes, default=CACHE_BYTES)


def host_memory_bytes() -> int:
    """An eighth of the memory: a machine that measures has other things in it."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = MEMORY_BYTES
    return total // 8


def processor() -> str:
    """The processor's name, as Linux has it, else as Python has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


class HostWorkbench:
    """Calls that are done when they return; nothing is known of the ceilings."""

    clock = "wall"
    stream = None

    def __init__(self) -> None:
        self.cache_bytes = host_cache_bytes()
        self.memory_bytes = host_memory_bytes()
        self.versions: Mapping[str, str] = {}

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        return array

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def wait(self) -> None:
        pass

    def time(self, calls: Sequence[Callable[[], object]], lead: int = 0) -> Timing:
        for call in calls[:lead]:
            call()
        start = time.perf_counter()
        for call in calls[lead:]:
            call()
        taken = time.perf_counter() - start
        return Timing(taken, taken)

    def peak(self, types: Types) -> Ceiling | None:
        return None

    def bandwidth(self) -> Ceiling | None:
        return None

    def peers(self) -> Sequence[Peer]:
        return ()
