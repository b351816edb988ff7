"""Operands of a case: random, many sets of them, so that a set's turn comes when it is cold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Workbench
from tilegen.bench.cases import Case
from tilegen.bench.floor import traffic
from tilegen.dtypes import DTYPES, DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 128
# A kernel object and its arguments stay with the driver for each set of each variant.
MOST_SETS = 1024
POOL = 1 << 22


@dataclass(frozen=True)
class OperandSet:
    """A, B and D where a launch uses them in place."""

    a: Any
    b: Any
    d: Any


@dataclass(frozen=True)
class BufferSets:
    """The sets of a case, taken in turn by whoever runs next.

    Attributes
    ----------
    sets : tuple of OperandSet
    cold : bool
        Whether more bytes than the last-level cache holds lie between two turns of a set.
    """

    sets: tuple[OperandSet, ...]
    cold: bool


def set_count(case: Case, cache_bytes: int, memory_bytes: int, warm: bool = False) -> int:
    """How many sets are needed so that the others, together, are larger than the cache."""
    if warm:
        return 1
    each = traffic(case)
    needed = cache_bytes // each + 2
    return max(1, min(needed, MOST_SETS, memory_bytes // each))


def make_sets(case: Case, bench: Workbench, seed: int, warm: bool = False) -> BufferSets:
    """Random operands on the device; raises ``MemoryError`` where not even one set has room."""
    if traffic(case) > bench.memory_bytes:
        raise MemoryError
    count = set_count(case, bench.cache_bytes, bench.memory_bytes, warm)
    rng = np.random.default_rng(seed)
    pools: dict[str, NDArray[Any]] = {}
    t, layout = case.types, case.layout
    shapes = {"a": (case.m, case.k), "b": (case.k, case.n), "d": (case.m, case.n)}
    sets = []
    for _ in range(count):
        arrays = {}
        for name, shape in shapes.items():
            kind, majorness = DTYPES[getattr(t, name)], getattr(layout, name)
            array = aligned(shape, kind, majorness)
            if name != "d":
                if kind.name not in pools:
                    pools[kind.name] = random_values(rng, kind, POOL)
                pool = pools[kind.name]
                fill(array, pool, int(rng.integers(len(pool))))
            arrays[name] = bench.put(array)
        sets.append(OperandSet(arrays["a"], arrays["b"], arrays["d"]))
    return BufferSets(tuple(sets), (count - 1) * traffic(case) >= bench.cache_bytes)


def empty_output(case: Case, bench: Workbench) -> Any:
    """A D of zeros of its own, so that a product that was never computed cannot look right."""
    return bench.put(aligned((case.m, case.n), DTYPES[case.types.d], case.layout.d))


def aligned(shape: tuple[int, int], kind: DType, majorness: str) -> NDArray[Any]:
    """A zeroed array that starts on a boundary of 128 bytes, as a library's allocator gives."""
    size = shape[0] * shape[1] * kind.bytes
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    flat = raw[start : start + size].view(kind.numpy)
    return flat.reshape(shape, order="C" if majorness == "row" else "F")


def random_values(rng: np.random.Generator, kind: DType, count: int) -> NDArray[Any]:
    """Standard normal numbers; for integers, all values alike."""
    if kind.is_float:
        return rng.standard_normal(count, dtype=np.float32).astype(kind.numpy)
    low = 0 if kind.kind == "unsigned" else -128
    return rng.integers(low, low + 256, count).astype(kind.numpy)


def fill(array: NDArray[Any], pool: NDArray[Any], start: int) -> None:
    """Fill memory from a pool of random values, read around from ``start``."""
    flat = array.reshape(-1, order="A")
    done = 0
    while done < flat.size:
        part = pool[start : start + flat.size - done]
        flat[done : done + part.size] = part
        done, start = done + part.size, 0
