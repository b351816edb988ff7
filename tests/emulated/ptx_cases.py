"""Kernels of one asm statement each, and what they should give: shared by the tests of inline PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilegen import emulator

THREADS = 256
Array = npt.NDArray[Any]
# By constraint letter: the type of C++ and of NumPy.
CPP = {
    "h": "unsigned short",
    "r": "unsigned",
    "l": "unsigned long long",
    "f": "float",
    "d": "double",
}
NUMPY = {"h": np.uint16, "r": np.uint32, "l": np.uint64, "f": np.float32, "d": np.float64}


@dataclass(frozen=True)
class Case:
    """One asm statement.

    Attributes
    ----------
    ptx : str
        With ``%0`` as the output, then the inputs.
    letters : str
        Constraints: the output's, then the inputs'.
    model : callable
        From the inputs as arrays to the output.
    """

    ptx: str
    letters: str
    model: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.ptx.rstrip(";")


def kernel(name: str, case: Case) -> str:
    out, *ins = case.letters
    parameters = "".join(f", const {CPP[x]}* i{n}" for n, x in enumerate(ins))
    inputs = ", ".join(f'"{x}"(i{n}[t])' for n, x in enumerate(ins))
    return (
        f'extern "C" __global__ void {name}({CPP[out]}* o{parameters}) {{\n'
        f"  const unsigned t = threadIdx.x;\n  {CPP[out]} x;\n"
        f'  asm volatile("{case.ptx}" : "={out}"(x) : {inputs} : "memory");\n  o[t] = x;\n}}\n'
    )


@cache
def program(cases: tuple[Case, ...]) -> emulator.Program:
    """All cases as entries of one text."""
    names = [f"k{i}" for i in range(len(cases))]
    text = "".join(kernel(name, case) for name, case in zip(names, cases, strict=True))
    return emulator.compile(text, "cuda", names)


_WORDS = {
    np.uint16: [0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0x7C00, 0xFC00, 0x7E00],
    np.uint32: [0, 1, 2, 7, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01020304],
    np.uint64: [0, 1, 63, 64, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
}
_REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-40, -1e-40, 65504.0, 65520.0, 1e30, -1e30, 448.0,
          464.0, np.inf, -np.inf, np.nan, 3.0e-5, 6e-8, 2.0**-9, 2.0**-10, 255.5, -128.5]  # fmt: skip


def data(letters: str, seed: int = 0) -> list[Array]:
    """Inputs with every pair of edge values among the first, then random ones."""
    rng = np.random.default_rng(seed)
    out: list[Array] = []
    for place, letter in enumerate(letters):
        kind = NUMPY[letter]
        if letter in "fd":
            x = (rng.standard_normal(THREADS) * 10.0 ** rng.integers(-4, 5, THREADS)).astype(kind)
            edges = np.array(_REALS).astype(kind)
        else:
            x = rng.integers(0, np.iinfo(kind).max, THREADS, dtype=kind, endpoint=True)
            small = rng.random(THREADS) < 0.4
            x[small] = rng.integers(0, 70, int(small.sum()), dtype=kind)
            edges = np.array(_WORDS[kind], kind)
        count = min(len(edges) ** 2, THREADS // 2)
        index = np.arange(count)
        x[:count] = edges[
            (index if place == 0 else index // len(edges) ** (place - 1)) % len(edges)
        ]
        out.append(x)
    return out


def outcome(cases: Sequence[Case], case: Case, inputs: list[Array]) -> Array:
    """What the emulator gives for one of the cases; no finding is allowed."""
    built = program(tuple(cases))
    result = emulator.run(
        built,
        entry=f"k{list(cases).index(case)}",
        grid=1,
        block=THREADS,
        args=[np.zeros(THREADS, NUMPY[case.letters[0]]), *inputs],
        orders=(0,),
        races=False,
    )
    assert not result.findings, str(result)
    return result.arrays[0]


def check(cases: Sequence[Case], case: Case) -> None:
    """Compare bit for bit; any NaN equals any other."""
    inputs = data(case.letters[1:])
    got = outcome(cases, case, inputs)
    with np.errstate(all="ignore"):
        want = np.asarray(case.model(*inputs)).astype(got.dtype)
    if got.dtype.kind == "f":
        bits = np.uint32 if got.dtype == np.float32 else np.uint64
        equal = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
    else:
        equal = got == want
    if not equal.all():
        at = int(np.flatnonzero(~equal)[0])
        shown = ", ".join(str(x[at]) for x in inputs)
        raise AssertionError(f"{case.ptx} of {shown}: {got[at]!r}, should be {want[at]!r}")
