"""Bank conflicts by line: known patterns, and what the pad of a tile is for."""

from __future__ import annotations

import numpy as np
import pytest

from tilegen import emulator
from tilegen.errors import LaunchError

LINE = 4


def use(index: str, type_: str = "float") -> emulator.BankUse:
    text = f"""__global__ void k(float* out, int n) {{
  __shared__ {type_} s[2048];
  {type_} value = {{}};
  s[{index}] = value;
  __syncthreads();
  if (n) out[threadIdx.x] = *reinterpret_cast<float*>(&s[n]);
}}"""
    run = emulator.run(text, entry="k", grid=1, block=32, args=[np.zeros(32, np.float32), 0],
                       orders=[0], banks=True)  # fmt: skip
    assert run.clean, run
    return run.banks[LINE]


@pytest.mark.parametrize(
    ("index", "type_", "phases", "conflicts"),
    [
        ("threadIdx.x", "float", 1, 0),
        ("31 - threadIdx.x", "float", 1, 0),
        ("threadIdx.x * 2", "float", 1, 1),
        ("threadIdx.x * 32", "float", 1, 31),
        ("threadIdx.x * 33", "float", 1, 0),
        ("threadIdx.x", "double", 2, 0),
        ("threadIdx.x * 16", "double", 2, 30),
        ("threadIdx.x", "float4", 4, 0),
        ("threadIdx.x * 8", "float4", 4, 28),
        ("threadIdx.x", "short", 1, 0),
    ],
)
def test_pattern(index: str, type_: str, phases: int, conflicts: int) -> None:
    assert use(index, type_) == emulator.BankUse(phases, conflicts)


def test_a_broadcast_has_no_conflict() -> None:
    text = """__global__ void k(float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x / 32];
}"""
    run = emulator.run(
        text, entry="k", grid=1, block=64, args=[np.zeros(64, np.float32)], banks=True
    )
    assert run.clean, run
    assert run.banks == {3: emulator.BankUse(2, 0), 5: emulator.BankUse(2, 0)}


def test_lanes_that_diverge_are_put_together_again() -> None:
    # Odd lanes write twice, even lanes once; the first write of all of them is one phase.
    text = """__global__ void k(float* out) {
  __shared__ float s[2048];
  for (int i = 0; i <= threadIdx.x % 2; i++)
    s[threadIdx.x * 32] = i;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x * 32];
}"""
    run = emulator.run(
        text, entry="k", grid=1, block=32, args=[np.zeros(32, np.float32)], banks=True
    )
    assert run.clean, run
    assert run.banks[4] == emulator.BankUse(2, 31 + 15)
    assert run.banks[6] == emulator.BankUse(1, 31)


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 31), (1, 0)])
def test_the_pad_of_a_transposed_tile(pad: int, conflicts: int) -> None:
    text = f"""__global__ void k(const float* a, float* out) {{
  __shared__ float tile[32][32 + {pad}];
  for (int i = 0; i < 32; i++) tile[i][threadIdx.x] = a[i * 32 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 32; i++)
    out[i * 32 + threadIdx.x] = tile[threadIdx.x][i];
}}"""
    a = np.arange(1024, dtype=np.float32).reshape(32, 32)
    run = emulator.run(text, entry="k", grid=1, block=32, args=[a, np.zeros_like(a)], outputs=[1],
                       banks=True)  # fmt: skip
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[1], a.T)
    assert run.banks[6] == emulator.BankUse(32, 32 * conflicts)


def test_counting_needs_the_race_run() -> None:
    with pytest.raises(LaunchError, match="races=False"):
        emulator.run("", entry="k", grid=1, block=1, banks=True, races=False)
