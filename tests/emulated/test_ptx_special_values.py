"""Zeros, NaNs and overflows, bit for bit as an H200 gave them on 2026-11-30 (CuPy, NVRTC, sm_90a)."""

from __future__ import annotations

import numpy as np
import pytest
from emulated.ptx_cases import NUMPY, kernel
from emulated.ptx_cases import Case as Kernel

from tilegen import emulator

NAN, INF = float("nan"), float("inf")
# Mnemonic, constraint letters, what every operand is in each case, and the bits of the results.
MEASURED = [
    ("cvt.rn.relu.f16.f32", "hf", [-0.0, -1, NAN], [0x0, 0x0, 0x7FFF]),
    ("cvt.rn.relu.bf16.f32", "hf", [-0.0, -1, NAN], [0x0, 0x0, 0x7FFF]),
    (
        "cvt.rna.tf32.f32",
        "rf",
        [NAN, INF, -0.0, 3.4e38],
        [0x7FC00000, 0x7F800000, 0x80000000, 0x7F7FC000],
    ),
    ("cvt.rn.bf16.f32", "hf", [NAN], [0x7FFF]),
    ("cvt.rn.f16.f32", "hf", [NAN, -NAN], [0x7FFF, 0x7FFF]),
    ("cvt.rzi.s32.f64", "rd", [NAN, 1e20], [0x80000000, 0x7FFFFFFF]),
    ("cvt.rzi.u32.f64", "rd", [NAN, -1], [0x80000000, 0x0]),
    ("cvt.rzi.s64.f32", "lf", [NAN], [0x8000000000000000]),
    ("cvt.rzi.u64.f32", "lf", [NAN], [0x8000000000000000]),
    ("cvt.rzi.s32.f32", "rf", [NAN], [0x0]),
    ("cvt.rzi.u64.f64", "ld", [NAN], [0x8000000000000000]),
    ("cvt.f32.f16", "fh", [0x7E00, 0xFE01, 0x7D00], [0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF]),
    ("cvt.f64.f32", "df", [NAN], [0x7FF8000000000000]),
    ("cvt.rn.f32.f64", "fd", [NAN], [0x7FC00000]),
    ("cvt.sat.f32.f32", "ff", [NAN, -0.0], [0x0, 0x0]),
    ("neg.f32", "ff", [NAN], [0x7FFFFFFF]),
    ("abs.f32", "ff", [-NAN], [0x7FFFFFFF]),
    ("rcp.rn.f64", "dd", [NAN], [0x7FF8000000000000]),
    ("sqrt.rn.f32", "ff", [-1, -0.0], [0x7FFFFFFF, 0x80000000]),
    (
        "cvt.rn.satfinite.e4m3x2.f32",
        "hff",
        [NAN, INF, -INF, -0.0],
        [0x7F7F, 0x7E7E, 0xFEFE, 0x8080],
    ),
    ("cvt.rn.satfinite.relu.e4m3x2.f32", "hff", [NAN, -0.0, -2, 464], [0x7F7F, 0x0, 0x0, 0x7E7E]),
    ("cvt.rn.satfinite.e5m2x2.f32", "hff", [NAN, INF, -0.0, 1e9], [0x7F7F, 0x7B7B, 0x8080, 0x7B7B]),
    ("add.rm.f32", "fff", [0.0], [0x0]),
    ("add.f32", "fff", [NAN], [0x7FFFFFFF]),
    ("mul.f64", "ddd", [NAN], [0x7FF8000000000000]),
    ("add.bf16", "hhh", [0x7FC1], [0x7FFF]),
    ("add.f16", "hhh", [0x7C01], [0x7FFF]),
    ("min.f32", "fff", [NAN], [0x7FFFFFFF]),
    ("min.f16", "hhh", [0x7E00], [0x7FFF]),
    ("neg.f16", "hh", [0x7E01, 1], [0x7FFF, 0x8001]),
    ("add.sat.f32", "fff", [NAN, -0.0], [0x0, 0x0]),
    ("max.NaN.f32", "fff", [NAN], [0x7FFFFFFF]),
    ("copysign.f32", "fff", [NAN], [0x7FC00000]),
    ("div.s32", "rrr", [0, 5], [0xFFFFFFFF, 0x1]),
    ("fma.rn.relu.f16", "hhhh", [0x8000, 0x7E01], [0x0, 0x7FFF]),
]


def case(name: str, letters: str) -> Kernel:
    operands = ", ".join(f"%{i}" for i in range(len(letters)))
    return Kernel(f"{name} {operands};", letters, lambda *_: None)


@pytest.fixture(scope="module")
def program() -> emulator.Program:
    names = [f"k{i}" for i in range(len(MEASURED))]
    rows = zip(names, MEASURED, strict=True)
    return emulator.compile("".join(kernel(n, case(*row[:2])) for n, row in rows), "cuda", names)


@pytest.mark.parametrize("index", range(len(MEASURED)), ids=[row[0] for row in MEASURED])
def test_as_measured(program: emulator.Program, index: int) -> None:
    _, letters, operands, bits = MEASURED[index]
    inputs = [np.array(operands).astype(NUMPY[x]) for x in letters[1:]]
    result = emulator.run(
        program, entry=f"k{index}", grid=1, block=len(operands), orders=(0,), races=False,
        args=[np.zeros(len(operands), NUMPY[letters[0]]), *inputs],
    )  # fmt: skip
    assert not result.findings
    out = result.arrays[0]
    assert [hex(x) for x in out.view(f"u{out.itemsize}").tolist()] == [hex(x) for x in bits]
