"""What the kernels of the corpus are given, and what they should leave behind: exact, on every device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilegen.emulator import TensorMap

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Operands:
    """Arguments of one launch.

    Attributes
    ----------
    args : tuple
        Arrays, tensor maps and numbers, one for each parameter of the kernel.
    outputs : tuple of int
        Positions of the arrays that are written once, every element.
    expected : tuple of ndarray
        What each array argument, in order, holds after the launch.
    """

    args: tuple[Any, ...]
    outputs: tuple[int, ...]
    expected: tuple[Array, ...]

    @property
    def arrays(self) -> list[Array]:
        """The array arguments, in order; those behind tensor maps too."""
        return [
            a.array if isinstance(a, TensorMap) else a
            for a in self.args
            if isinstance(a, (TensorMap, np.ndarray))
        ]


def _integers(seed: int, shape: Sequence[int], kind: Any, low: int = -3, high: int = 4) -> Array:
    # Small integers: every product and sum is exact in every type, in any order.
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)


def _operands(args: Sequence[Any], outputs: Sequence[int], after: dict[int, Array]) -> Operands:
    """``after``: what the launch changes, by position; every other array stays as it was."""
    expected = []
    for i, argument in enumerate(args):
        array = argument.array if isinstance(argument, TensorMap) else argument
        if isinstance(array, np.ndarray):
            expected.append(after.get(i, array))
    return Operands(tuple(args), tuple(outputs), tuple(expected))


def gemm(
    sizes: Sequence[int],
    inputs: str = "f4",
    output: str = "f4",
    order: str = "ABC",
    b_is_nk: bool = False,
    box: Sequence[int] = (),
) -> Operands:
    """C = A B; B as K x N or N x K; through tensor maps where a box is given."""
    m, n, k = sizes
    kind = ml_dtypes.bfloat16 if inputs == "bfloat16" else inputs
    a, b = _integers(1, (m, k), kind), _integers(2, (n, k) if b_is_nk else (k, n), kind)
    wide = b.astype(np.float32)
    c = np.full((m, n), np.nan, output)
    want = (a.astype(np.float32) @ (wide.T if b_is_nk else wide)).astype(output)
    named: dict[str, Any] = {"A": a, "B": b, "C": c}
    if box:
        named |= {x: TensorMap(named[x], box=tuple(box), swizzle=128) for x in "AB"}
    at = order.index("C")
    return _operands([*(named[x] for x in order), m, n, k], [at], {at: want})


def split_k(sizes: Sequence[int], splits: int) -> Operands:
    m, n, k = sizes
    a, b = _integers(1, (m, k), "f4"), _integers(2, (k, n), "f4")
    parts = [slice(i * k // splits, (i + 1) * k // splits) for i in range(splits)]
    partial = np.stack([a[:, p] @ b[p] for p in parts])
    args = [a, b, np.full((m, n), np.nan, "f4"), np.full_like(partial, np.nan),
            np.zeros(m * n // 32**2, "u4"), m, n, k]  # fmt: skip
    return _operands(args, [2, 3], {2: a @ b, 3: partial})


def scale_add(tiles: int, tile: int) -> Operands:
    x, w = (_integers(seed, (tiles, tile), "f4", -99, 100) for seed in (1, 2))
    return _operands([x, w, np.full_like(x, np.nan), tiles], [2], {2: 2 * x + w[:, ::-1]})


def transpose(rows: int, columns: int, box: int, swizzle: int) -> Operands:
    x = np.arange(rows * columns, dtype="f4").reshape(rows, columns)
    maps = [
        TensorMap(a, box=(box, box), swizzle=swizzle)
        for a in (x, np.full((columns, rows), np.nan, "f4"))
    ]
    return _operands([*maps, columns], [], {1: np.ascontiguousarray(x.T)})


def row_statistics(rows: int, columns: int) -> Operands:
    x = _integers(1, (rows, columns), "f4", -99, 100)
    sums = x.sum(1, dtype="f4")
    args = [x, *(np.full(s, np.nan, "f4") for s in (rows, rows, x.shape)), columns]
    return _operands(args, [1, 2, 3], {1: sums, 2: x.max(1), 3: x * 8 - sums[:, None]})


def reversed_rows(blocks: int, rows: int, width: int) -> Operands:
    x = _integers(1, (blocks, rows, width), "i4", -99, 100)
    want = 3 * x[:, :, ::-1] + np.arange(rows, dtype="i4")[:, None]
    return _operands([x, np.full_like(x, -1), rows], [1], {1: want})


def warp_scan(blocks: int, warps: int) -> Operands:
    x = _integers(1, (blocks * warps, 32), "i4", -99, 100)
    sums = x.cumsum(1, dtype="i4")
    first = np.repeat(sums[:, ::8], 8, axis=1)
    args = [x, np.full_like(x, -1), np.full(len(x), -1, "i4")]
    return _operands(args, [1, 2], {1: sums - first, 2: sums[:, -1].copy()})


def compact(rows: int, width: int) -> Operands:
    x = _integers(1, (rows, width), "i4", -99, 100)
    out = np.full_like(x, -1)
    for row, kept in zip(x, out, strict=True):
        kept[: (row > 0).sum()] = row[row > 0]
    args = [x, np.full_like(x, -1), np.full(rows, -1, "i4")]
    return _operands(args, [2], {1: out, 2: (x > 0).sum(1).astype("i4")})


def histogram(n: int, bins: int) -> Operands:
    x = _integers(1, (n,), "u1", 0, 256)
    x[:40] = bins - 5  # the largest bin is not among the first half
    counts = np.bincount(x % bins, minlength=bins).astype("u4")
    args = [x, np.zeros(bins, "u4"), np.zeros(1, "u4"), np.zeros(1, "u4"), n]
    return _operands(args, [3], {1: counts, 2: np.array([4], "u4"), 3: counts.max(keepdims=True)})


def s8(sizes: Sequence[int]) -> Operands:
    m, n, k = sizes
    a, b = _integers(1, (m, k), "i1", -99, 100), _integers(2, (n, k), "i1", -99, 100)
    wide = a.astype("i4")
    args = [a, b, np.full((m, n), -1, "i4"), np.full(m, -1, "i4"), m, n, k]
    return _operands(args, [2, 3], {2: wide @ b.astype("i4").T, 3: wide.sum(1, dtype="i4")})


def neighbours(blocks: int, rows: int, width: int) -> Operands:
    x = _integers(1, (blocks, rows, width), "i4", -99, 100)
    return _operands([x, np.full_like(x, -1), rows], [1], {1: x + 10 * np.roll(x, -1, axis=2)})


MAKERS: dict[str, Callable[..., Operands]] = {
    f.__name__: f
    for f in (
        gemm, split_k, scale_add, transpose, row_statistics, reversed_rows, warp_scan, compact,
        histogram, s8, neighbours,
    )
}  # fmt: skip
