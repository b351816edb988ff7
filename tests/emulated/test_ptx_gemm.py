"""A whole kernel of hand-written PTX, in the style of others: right, clean, and its planted faults found."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tilegen import emulator

TEXT = (Path(__file__).parent / "texts" / "mma_gemm.cu").read_text(encoding="utf-8")
SHARED = 3 * (128 + 128) * 32 * 2


@cache
def compiled(text: str) -> emulator.Program:
    return emulator.compile(text, "cuda", "gemm")


def run(
    text: str, m: int, n: int, k: int, *, banks: bool = False
) -> tuple[emulator.EmulatorRun, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (n, k)))
    result = emulator.run(
        compiled(text), entry="gemm", grid=((n + 127) // 128, (m + 127) // 128), block=256,
        args=[np.zeros((m, n), np.float32), a, b, m, n, k], outputs=[0], shared_bytes=SHARED, banks=banks,
    )  # fmt: skip
    return result, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("shape", [(128, 128, 64), (256, 128, 128), (130, 77, 40)])
def test_the_kernel_is_right_and_clean(shape: tuple[int, int, int]) -> None:
    result, want = run(TEXT, *shape)
    assert result.clean, str(result)
    assert np.array_equal(result.arrays[0], want)


def test_the_swizzle_is_what_keeps_ldmatrix_from_bank_conflicts() -> None:
    plain = "return row * (BK * 2) + (chunk << 4);"
    swizzled = "return row * (BK * 2) + ((chunk ^ ((row >> 1) & 3)) << 4);"
    assert swizzled in TEXT
    lines = [
        n for n, line in enumerate(TEXT.splitlines(), 1) if line.strip().startswith("LDMATRIX_X4(")
    ]
    for text, clean in ((TEXT, True), (TEXT.replace(swizzled, plain), False)):
        result, want = run(text, 128, 128, 64, banks=True)
        assert np.array_equal(result.arrays[0], want)
        uses = [result.banks[line] for line in lines]
        assert all(use.phases for use in uses)
        assert all((use.conflicts == 0) == clean for use in uses)


FAULTS = {
    "wait count off by one": ("CP_ASYNC_WAIT_GROUP(STAGES - 2);", "CP_ASYNC_WAIT_GROUP(STAGES - 1);"),
    "no wait": ("CP_ASYNC_WAIT_GROUP(STAGES - 2);", ""),
    "no barrier": ("    __syncthreads();\n", ""),
    "barrier before the wait": (
        "    CP_ASYNC_WAIT_GROUP(STAGES - 2);\n    __syncthreads();\n",
        "    __syncthreads();\n    CP_ASYNC_WAIT_GROUP(STAGES - 2);\n",
    ),
    "swizzle on one side": ("shared + swizzled(row, chunk)", "shared + row * (BK * 2) + (chunk << 4)"),
    "fragments of A swapped": ("{%4, %5, %6, %7}", "{%4, %6, %5, %7}"),
    "accumulator not read": ('"+f"((D)[0])', '"=f"((D)[0])'),
    "wrong type": (".f32.f16.f16.f32", ".f32.bf16.bf16.f32"),
    "row of ldmatrix": ("lane / 8 % 2", "lane / 16 % 2"),
    "no zero fill": ("? 16 : 0;", "? 16 : 16;"),
    "stage reused too early": ("(next % STAGES)", "((next + 1) % STAGES)"),
    "guard of N missing": ("row < M && col < N", "row < M"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    before, after = FAULTS[name]
    assert TEXT.count(before) == 1, name
    result, want = run(TEXT.replace(before, after), 130, 77, 136)
    assert result.findings or not np.array_equal(result.arrays[0], want)
