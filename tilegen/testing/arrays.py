"""The arrays of a problem: drawn, and put where its views say, amid what must not be touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.dtypes import DTYPES
from tilegen.spec import TileSpec
from tilegen.testing.problem import Arrays, Memory, Problem, View
from tilegen.tiling import operand_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What the memory around D holds.
SENTINEL = 777.0


def make_arrays(problem: Problem, spec: TileSpec, memory: Memory | None = None) -> Arrays:
    """The arrays of a problem, operands surrounded by NaN and D by a guard band."""
    rng = np.random.default_rng(problem.seed)
    p, count = problem, problem.batch
    a_values = _values(rng, p, spec.types.a, (count or 1, p.m, p.k), "a")
    b_values = _values(rng, p, spec.types.b, (count or 1, p.k, p.n), "b")
    c_values = _values(rng, p, spec.types.c, (count or 1, p.m, p.n), "c")
    if p.poison_c and p.beta == 0:
        c_values[...] = np.nan if DTYPES[spec.types.c].is_float else DTYPES[spec.types.c].largest
    if p.poison_ab and p.alpha == 0 and DTYPES[spec.types.a].is_float:
        a_values[...], b_values[...] = np.nan, np.inf
    if p.specials:
        for values, kind in zip((a_values, b_values, c_values), "abc", strict=True):
            if DTYPES[getattr(spec.types, kind)].is_float:
                _sprinkle(rng, values)
    if count == 0:
        a_values, b_values, c_values = a_values[:0], b_values[:0], c_values[:0]
    in_place = p.in_place and spec.types.c == spec.types.d and spec.layout.c == spec.layout.d
    a, _ = _place(a_values, spec.types.a, spec.layout.a, p.view("a"), count, memory=memory)
    b, _ = _place(b_values, spec.types.b, spec.layout.b, p.view("b"), count, memory=memory)
    d_values = c_values if in_place else np.full_like(c_values, SENTINEL % 100)
    out, guard = _place(
        d_values, spec.types.d, spec.layout.d, p.view("d"), count, SENTINEL, memory, writes=True
    )
    c: NDArray[Any] | None = None
    if in_place:
        c = out
    elif p.beta != 0 or p.poison_c:
        c, _ = _place(c_values, spec.types.c, spec.layout.c, p.view("c"), count, memory=memory)
    extras: dict[str, NDArray[Any]] = {}
    for step in spec.epilogue:
        if step.op in ("bias", "scale"):
            length = p.m if step.along == "m" else p.n
            each = count if count is not None and p.seed % 2 else 1
            values = _values(rng, p, operand_type(spec, step.op), (each, 1, length), step.op)
            kind = operand_type(spec, step.op)
            placed, _ = _place(values, kind, "row", p.view(step.op), each, memory=memory)
            vectors = placed[:, 0]
            # One vector for each batch, or one for all of them.
            extras[step.op] = vectors if count is not None and p.seed % 2 else vectors[0]
        elif step.op == "residual":
            values = _values(rng, p, operand_type(spec, "residual"), (count or 1, p.m, p.n), "c")
            values = values[:0] if count == 0 else values
            kind = operand_type(spec, "residual")
            view = p.view("residual")
            extras["residual"], _ = _place(values, kind, spec.layout.d, view, count, memory=memory)
    return Arrays(a, b, c, out, guard, extras)


def _sprinkle(rng: np.random.Generator, values: NDArray[Any]) -> None:
    """A NaN and infinities of either sign at a few places."""
    if values.size:
        for special in (np.nan, np.inf, -np.inf):
            values.flat[rng.integers(0, values.size, 1 + values.size // 1000)] = special


def _values(
    rng: np.random.Generator, p: Problem, kind: str, shape: tuple[int, int, int], operand: str
) -> NDArray[Any]:
    dtype = DTYPES[kind]
    if p.values == "normal" and dtype.is_float:
        return rng.standard_normal(shape)
    if p.values == "normal" and dtype.bits == 8:
        return rng.integers(int(dtype.smallest), int(dtype.largest) + 1, shape).astype(np.float64)
    if p.values == "position" and operand == "a":
        batch, rows, cols = shape
        return np.broadcast_to(np.eye(rows, cols), (batch, rows, cols)).copy()
    if p.values == "position" and operand == "b":
        # Codes of place that every type holds exactly and that differ between neighbours.
        codes = np.arange(shape[1])[:, None] * 5 + np.arange(shape[2])[None, :] * 3
        return np.broadcast_to(codes % 13 - (0 if dtype.kind == "unsigned" else 6.0), shape).copy()
    low = 0 if dtype.kind == "unsigned" else -3
    return rng.integers(low, 4, shape).astype(np.float64)


def strided(room: NDArray[Any], shape: Sequence[int], strides: Sequence[int]) -> NDArray[Any]:
    """A view of a one-dimensional array, steps in bytes; it must not leave the array.

    NumPy's as_strided cannot describe every type of ml_dtypes.
    """
    return np.ndarray(tuple(shape), room.dtype, room.view(np.uint8), 0, tuple(strides))


def _place(
    values: NDArray[Any],
    kind: str,
    majorness: str,
    view: View,
    batch: int | None,
    fill: float = float("nan"),
    memory: Memory | None = None,
    *,
    writes: bool = False,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The values as a view into a larger array that is filled with ``fill``; view and array."""
    dtype = DTYPES[kind]
    if not dtype.is_float and np.isnan(fill):
        fill = dtype.largest
    fill = min(fill, dtype.largest)
    turned = values if majorness == "row" else np.swapaxes(values, -1, -2)
    count, slow, fast = turned.shape
    if view.broadcast == "batch" and count:
        turned = turned[:1]
    if view.broadcast in ("rows", "cols", "all"):
        slow_is_rows = majorness == "row"
        if view.broadcast == "all" or (view.broadcast == "rows") == slow_is_rows:
            turned = turned[:, :1, :]
        if view.broadcast == "all" or (view.broadcast == "rows") != slow_is_rows:
            turned = turned[:, :, :1]
    ld = -(-(turned.shape[2] + view.pad) // view.multiple) * view.multiple
    if memory is None:
        size = turned.shape[0] * (turned.shape[1] * ld) + view.offset + 64
        # Aligned to 64 bytes, so that `offset` alone decides the alignment.
        room = np.full(size * dtype.bytes + 64, 0, np.uint8)
        lead = -room.ctypes.data % 64
        store, start = room[lead : lead + size * dtype.bytes].view(dtype.numpy), view.offset
    else:
        # Exactly to the last element: what lies behind it is not the operand's.
        size = turned.size and ((turned.shape[0] * turned.shape[1] - 1) * ld + turned.shape[2])
        room, first = memory.room(view.offset * dtype.bytes, size * dtype.bytes)
        store, start = room.view(dtype.numpy), first // dtype.bytes
    store[...] = fill
    stride = store.itemsize
    places = (turned.shape[1] * ld * stride, ld * stride, stride)
    inner = strided(store[start:], turned.shape, places)
    inner[...] = turned.astype(dtype.numpy)
    if memory is not None:
        memory.filled(room, writes=writes)
    wide = (
        np.broadcast_to(inner, (count, slow, fast)) if inner.shape != (count, slow, fast) else inner
    )
    out = wide if majorness == "row" else np.swapaxes(wide, -1, -2)
    return (out if batch is not None else out[0]), store
