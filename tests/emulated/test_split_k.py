"""Launches of several entries in the emulator: packs before, a reduction after, one workspace."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from emulated.split_k import SPLITS, TEXT, source

import tilegen as tg


@pytest.fixture(scope="module")
def kernel() -> tg.Kernel:
    return tg.load(source(), "emulator")


def ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(8, 12, 16), (7, 5, 3), (9, 10, 2), (1, 1, 1)])
def test_slices_of_k_are_added(kernel: tg.Kernel, m: int, n: int, k: int) -> None:
    a, b, c = ints(m, k), ints(k, n, seed=1), ints(m, n, seed=2)
    wide = k % 4 == 0 and n % 4 == 0
    explained = kernel.explain(a, b).splitlines()[-1]
    assert explained.startswith(f"gemm_{'main' if wide else 'any'}: taken")
    assert np.array_equal(kernel(a, b, c, alpha=2, beta=-1), 2 * (a @ b) - c)


def test_what_is_launched_is_told(kernel: tg.Kernel) -> None:
    a, b = ints(7, 5), ints(5, 3)
    assert kernel.explain(a, b).splitlines()[-1] == (
        "gemm_any: taken, 3 blocks of 64 threads; before it gemm_pack_a, 1 blocks of 64 threads; "
        "before it gemm_pack_b, 1 blocks of 64 threads; after it gemm_reduce, 1 blocks of 64 threads; "
        f"{SPLITS * 7 * 3 * 4 + (7 + 3) * 5 * 4} bytes of workspace"
    )


def test_nothing_to_sum_is_still_an_output(kernel: tg.Kernel) -> None:
    c, nan = ints(6, 5), np.float32(np.nan)
    empty = np.zeros((6, 0), np.float32), np.zeros((0, 5), np.float32)
    assert np.array_equal(kernel(*empty, c, beta=2), 2 * c)
    assert (kernel(*empty, np.full_like(c, nan)) == 0).all()
    full = np.full((6, 7), nan), np.full((7, 5), nan)
    assert np.array_equal(kernel(*full, c, alpha=0, beta=3), 3 * c)
    assert kernel(np.zeros((0, 4), np.float32), np.zeros((4, 3), np.float32)).shape == (0, 3)
    assert kernel(np.zeros((3, 4), np.float32), np.zeros((4, 0), np.float32)).shape == (3, 0)


def test_a_prepared_call_keeps_its_workspace(kernel: tg.Kernel) -> None:
    a, b = ints(7, 6), ints(6, 5, seed=3)
    prepared = kernel.prepare(a, b)
    for _ in range(3):
        a += 1
        assert np.array_equal(prepared(), a @ b)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        # A plane that nobody writes reads as the NaN that a workspace holds at first.
        (("split < split_k", "split + 1 < split_k"), None),
        (("partial[p * M * N + i]", "partial[p * M * N + i + 1]"), "out-of-bounds"),
    ],
    ids=["unwritten", "beyond"],
)
def test_a_fault_in_the_workspace_shows(fault: tuple[str, str], says: str | None) -> None:
    text = TEXT.replace("    partial[split", "    if (split < split_k)\n        partial[split")
    assert fault[0] in text
    broken = tg.load(replace(source(), text=text.replace(*fault)), "emulator")
    a, b = ints(8, 8), ints(8, 8)
    if says is None:
        assert np.isnan(broken(a, b)).all()
        return
    with pytest.raises(tg.VerifyError, match=says):
        broken(a, b)


def test_the_same_bits_in_every_order_of_the_slices(kernel: tg.Kernel) -> None:
    draw = np.random.default_rng(5)
    a, b = (draw.standard_normal(s).astype(np.float32) for s in ((9, 30), (30, 7)))
    got, slice_ = kernel(a, b), 10
    want = np.zeros((9, 7), np.float32)
    for first in range(0, 30, slice_):
        plane = np.zeros((9, 7), np.float32)
        for k, row in product(range(first, first + slice_), range(9)):
            plane[row] = np.float64(a[row, k]) * b[k] + plane[row]
        want += plane
    assert np.allclose(got, want, rtol=0, atol=1e-5)
    assert np.array_equal(got.view(np.uint32), kernel(a, b).view(np.uint32))
