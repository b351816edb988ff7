"""Planted faults: each is found, by its kind and at its line, and none harms the process that asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tilegen import emulator


@dataclass(frozen=True)
class Fault:
    """A kernel with a fault; `//!` marks the line that must be named."""

    name: str
    text: str
    kind: str
    runs: Sequence[str] = ()  # that must find it; none: any
    block: int = 64
    grid: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> int | None:
        marked = [i for i, line in enumerate(self.text.splitlines(), 1) if "//!" in line]
        return marked[0] if marked else None


N = 64
FAULTS = [
    Fault(
        "no __syncthreads between write and read",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = a[threadIdx.x];
  out[threadIdx.x] = s[63 - threadIdx.x];  //!
}""",
        "data-race",
        ["races"],
    ),
    Fault(
        "no __syncthreads before the next write",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[64];
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    s[threadIdx.x] = a[threadIdx.x] + i;  //!
    __syncthreads();
    sum += s[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}""",
        "data-race",
        ["races"],
    ),
    Fault(
        "__syncthreads in a branch that half the block takes",
        """
__global__ void k(const float* a, float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();  //!
  }
  out[threadIdx.x] = a[threadIdx.x];
}""",
        "divergent-barrier",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "two __syncthreads in the branches of one condition",
        """
__global__ void k(const float* a, float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x];
  } else {
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x] + 1;
  }
}""",
        "divergent-barrier",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a race inside one warp",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[32];
  s[threadIdx.x] = a[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) {
    if (threadIdx.x < step) s[threadIdx.x] += s[threadIdx.x + step];  //!
  }
  __syncwarp();
  out[threadIdx.x] = s[0];
}""",
        "data-race",
        ["races"],
        block=32,
    ),
    Fault(
        "__syncwarp missing between write and read, with a shuffle that orders no memory",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[32];
  s[threadIdx.x] = a[threadIdx.x];
  float other = __shfl_xor_sync(~0u, a[threadIdx.x], 1);
  out[threadIdx.x] = s[threadIdx.x ^ 1] + other;  //!
}""",
        "data-race",
        ["races"],
        block=32,
    ),
    Fault(
        "a read past the end of an array",
        """
__global__ void k(const float* a, float* out) {
  float x = a[threadIdx.x + 1];  //!
  out[threadIdx.x] = x;
}""",
        "out-of-bounds",
        ["races"],
    ),
    Fault(
        "a read far past the end of an array",
        """
__global__ void k(const float* a, float* out) {
  float x = a[threadIdx.x + 4096];  //!
  out[threadIdx.x] = x;
}""",
        "out-of-bounds",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a write past the end of an array",
        """
__global__ void k(const float* a, float* out) {
  out[threadIdx.x] = a[threadIdx.x];
  if (threadIdx.x == 63) out[64] = 1.0f;
}""",
        "out-of-bounds",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a write past the end of shared memory",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[64];
  s[threadIdx.x + 16] = a[threadIdx.x];  //!
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}""",
        "out-of-bounds",
        ["races"],
    ),
    Fault(
        "a null pointer",
        """
__global__ void k(const float* a, float* out) {
  const float* none = nullptr;
  out[threadIdx.x] = a[threadIdx.x] > 1e9f ? 0.0f : none[threadIdx.x];  //!
}""",
        "out-of-bounds",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a misaligned 16-byte load",
        """
__global__ void k(const float* a, float* out) {
  float4 v = *reinterpret_cast<const float4*>(a + 1);  //!
  out[threadIdx.x] = v.x + v.w;
}""",
        "misaligned",
        ["forward", "reverse", "seed 2"],
        block=1,
    ),
    Fault(
        "a misaligned 8-byte store to shared memory",
        """
__global__ void k(const float* a, float* out) {
  __shared__ float s[130];
  *reinterpret_cast<float2*>(s + 2 * threadIdx.x + 1) = make_float2(a[threadIdx.x], 0.0f);  //!
  __syncthreads();
  out[threadIdx.x] = s[2 * threadIdx.x + 1];
}""",
        "misaligned",
        ["forward", "reverse", "seed 2"],
    ),
    Fault(
        "an output that is never written",
        """
__global__ void k(const float* a, float* out) {
  if (threadIdx.x != 17) out[threadIdx.x] = a[threadIdx.x];
}""",
        "never-written",
        ["races"],
    ),
    Fault(
        "an output that is written twice by one thread",
        """
__global__ void k(const float* a, float* out) {
  out[threadIdx.x] = 0.0f;
  out[threadIdx.x] += a[threadIdx.x];  //!
  __threadfence();
}""",
        "written-twice",
        ["races"],
    ),
    Fault(
        "two blocks that write the same output",
        """
__global__ void k(const float* a, float* out) {
  out[threadIdx.x] = a[threadIdx.x];  //!
}""",
        "data-race",
        ["races"],
        grid=2,
    ),
    Fault(
        "a block that reads what another writes",
        """
__global__ void k(const float* a, float* out) {
  if (blockIdx.x == 0) out[threadIdx.x] = a[threadIdx.x];
  else if (out[threadIdx.x] > 1e9f) out[0] = 0;  //!
}""",
        "data-race",
        ["races"],
        grid=2,
    ),
    Fault(
        "a deadlock between a flag and a barrier",
        """
__global__ void k(const float* a, float* out) {
  __shared__ unsigned flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) while (atomicAdd(&flag, 0u) == 0) {}  //!
  __syncthreads();
  if (threadIdx.x == 0) atomicExch(&flag, 1u);
  out[threadIdx.x] = a[threadIdx.x];
}""",
        "deadlock",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "an endless loop",
        """
__global__ void k(const float* a, float* out) {
  volatile int stop = 0;
  while (!stop) stop = 0;  //!
  out[threadIdx.x] = a[threadIdx.x];
}""",
        "endless-loop",
        ["forward", "reverse", "seed 2", "races"],
        options={"loop_seconds": 0.1},
    ),
    Fault(
        "a shuffle in a branch that half the warp takes",
        """
__global__ void k(const float* a, float* out) {
  float v = a[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_down_sync(0xffffffffu, v, 8);
  else v += __shfl_xor_sync(0xffffffffu, v, 1) + __shfl_xor_sync(0xffffffffu, v, 2);
  out[threadIdx.x] = v;
  __syncthreads();
}""",
        "divergent-collective",
    ),
    Fault(
        "a shuffle by a lane outside its mask",
        """
__global__ void k(const float* a, float* out) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, a[threadIdx.x], 1);  //!
}""",
        "divergent-collective",
    ),
    Fault(
        "a shuffle from a lane that takes no part",
        """
__global__ void k(const float* a, float* out) {
  float v = a[threadIdx.x];
  if (threadIdx.x < 16) v = __shfl_down_sync(0x0000ffffu, v, 8);  //!
  out[threadIdx.x] = v;
}""",
        "inactive-lane",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a barrier while the warp's other lanes shuffle",
        """
__global__ void k(const float* a, float* out) {
  float v = a[threadIdx.x];
  if (threadIdx.x % 2) v = __shfl_xor_sync(0xffffffffu, v, 1);
  else __syncthreads();
  out[threadIdx.x] = v;
}""",
        "divergent-collective",
    ),
    Fault(
        "an asynchronous copy that nobody waits for",
        """
#include <cuda_pipeline.h>
__global__ void k(const float* a, float* out) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &a[threadIdx.x], 4);
  __pipeline_commit();
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];  //!
}""",
        "data-race",
        ["races"],
    ),
    Fault(
        "a wait for one group too few",
        """
#include <cuda_pipeline.h>
__global__ void k(const float* a, float* out) {
  __shared__ float s[2][64];
  for (int i = 0; i < 2; i++) {
    __pipeline_memcpy_async(&s[i][threadIdx.x], &a[threadIdx.x], 4);
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  __syncthreads();
  out[threadIdx.x] = s[0][threadIdx.x] + s[1][threadIdx.x];  //!
  __pipeline_wait_prior(0);
}""",
        "data-race",
        ["races"],
    ),
    Fault(
        "the barrier before the wait",
        """
#include <cuda_pipeline.h>
__global__ void k(const float* a, float* out) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &a[threadIdx.x], 4);
  __pipeline_commit();
  __syncthreads();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = s[63 - threadIdx.x];  //!
}""",
        "data-race",
        ["races"],
    ),
    Fault(
        "partial sums handed to another block without a fence",
        """
__device__ unsigned nothing;
__global__ void k(const float* a, float* out, float* partial, unsigned* count) {
  __shared__ bool last;
  partial[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(count, 1u) == 1;
  __syncthreads();
  if (last) out[threadIdx.x] = partial[threadIdx.x] + partial[64 + threadIdx.x];  //!
}""",
        "data-race",
        ["races"],
        grid=2,
        options={"more": [np.zeros(128, np.float32), np.zeros(1, np.uint32)]},
    ),
    Fault(
        "more local variables than a stack holds",
        """
__global__ void k(const float* a, float* out) {
  volatile float local[1 << 20];
  for (int i = 0; i < 1 << 20; i += 256) local[i] = a[threadIdx.x];
  out[threadIdx.x] = local[threadIdx.x * 256];
}""",
        "stack-overflow",
        ["forward", "reverse", "seed 2", "races"],
    ),
    Fault(
        "a division of integers by zero",
        """
__global__ void k(const float* a, float* out) {
  volatile int zero = 0;
  out[threadIdx.x] = int(a[threadIdx.x]) / zero;  //!
}""",
        "division-by-zero",
    ),
    Fault(
        "an assertion that fails",
        """
#include <cassert>
__global__ void k(const float* a, float* out) {
  assert(threadIdx.x < 60);  //!
  out[threadIdx.x] = a[threadIdx.x];
}""",
        "assert",
    ),
    Fault(
        "a trap",
        """
__global__ void k(const float* a, float* out) {
  if (threadIdx.x == 3) __trap();  //!
  out[threadIdx.x] = a[threadIdx.x];
}""",
        "trap",
    ),
    Fault(
        "results that depend on which thread comes first",
        """
__global__ void k(const float* a, float* out) {
  __shared__ unsigned next;
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  out[atomicAdd(&next, 1u)] = a[threadIdx.x];
}""",
        "order-dependent",
        ["reverse"],
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_found(fault: Fault) -> None:
    options = dict(fault.options)
    a = np.arange(N, dtype=np.float32)
    args = [a, np.zeros(N, np.float32), *options.pop("more", [])]
    if fault.block < N:
        args[1] = args[1][: fault.block].copy()
    run = emulator.run(
        fault.text, entry="k", grid=fault.grid, block=fault.block, args=args, outputs=[1], **options
    )
    told = [f for f in run.findings if f.kind == fault.kind]
    assert told, f"found only: {run}"
    if fault.line is not None:
        assert fault.line in {x for f in told for x in (f.line, f.other_line)}, f"found: {run}"
    found_by = {name for f in told for name in f.runs}
    assert set(fault.runs) <= found_by, f"found: {run}"
    exact = [f for f in told if f.block is not None]
    for f in exact:
        assert f.thread is not None
        assert f.lane == f.thread % 32
        assert f.warp == f.thread // 32
