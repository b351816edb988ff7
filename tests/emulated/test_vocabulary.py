"""CUDA's vocabulary: values against NumPy, and legal kernels of which nothing may be said."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilegen import emulator

ONE = {"orders": [0], "races": False}


def run(text: str, args: list[Any], block: Any = 32, grid: Any = 1, **options: Any) -> list[Any]:
    """The arrays that a clean run leaves behind."""
    done = emulator.run(text, entry="k", grid=grid, block=block, args=args, **options)
    assert done.clean, done
    return list(done.arrays)


# ---- types and conversions ---------------------------------------------------------------------


def test_sizes_and_alignments() -> None:
    rows = {
        "char1": (1, 1), "char2": (2, 2), "char3": (3, 1), "char4": (4, 4), "uchar4": (4, 4),
        "short2": (4, 4), "short4": (8, 8), "int2": (8, 8), "int3": (12, 4), "int4": (16, 16),
        "uint4": (16, 16), "float1": (4, 4), "float2": (8, 8), "float3": (12, 4), "float4": (16, 16),
        "double2": (16, 16), "longlong2": (16, 16), "dim3": (12, 4), "half": (2, 2), "half2": (4, 4),
        "__nv_bfloat16": (2, 2), "__nv_bfloat162": (4, 4), "__nv_fp8_e4m3": (1, 1),
    }  # fmt: skip
    asserts = "\n".join(
        f'static_assert(sizeof({name}) == {size} && alignof({name}) == {align}, "{name}");'
        for name, (size, align) in rows.items()
    )
    heads = "".join(f"#include <cuda_{name}.h>\n" for name in ("fp16", "bf16", "fp8"))
    run(f"{heads}{asserts}\n__global__ void k() {{}}", [], **ONE)


def awkward_floats() -> npt.NDArray[np.float32]:
    random = np.random.default_rng(1)
    bits = random.integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32)
    near = (random.standard_normal(1 << 14) * 2.0 ** random.integers(-28, 18, 1 << 14)).astype("f4")
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (exact[:-1] + exact[1:]) / 2
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519, 65520, 448, 464, 465, 57344,
                        61439, 61440, 2**-24, 2**-25, 2**-9, 2**-10, 3.4e38], np.float32)  # fmt: skip
    return np.concatenate([bits, near, exact, halfway, special])


@pytest.mark.parametrize(
    ("type_", "header", "dtype", "bits"),
    [
        ("half", "fp16", np.float16, np.uint16),
        ("__nv_bfloat16", "bf16", ml_dtypes.bfloat16, np.uint16),
        ("__nv_fp8_e4m3", "fp8", ml_dtypes.float8_e4m3fn, np.uint8),
        ("__nv_fp8_e5m2", "fp8", ml_dtypes.float8_e5m2, np.uint8),
    ],
)
def test_conversions(type_: str, header: str, dtype: Any, bits: Any) -> None:
    text = f"""
    #include <cuda_{header}.h>
    __global__ void k(const float* in, {type_}* narrow, float* wide, int n) {{
      for (int i = threadIdx.x; i < n; i += blockDim.x) {{
        narrow[i] = {type_}(in[i]);
        wide[i] = float(narrow[i]);
      }}
    }}"""
    floats = awkward_floats()
    args = [floats, np.zeros(floats.size, bits), np.zeros_like(floats), floats.size]
    with np.errstate(over="ignore", invalid="ignore"):
        want = floats.astype(dtype)
        if header == "fp8":  # CUDA's constructors saturate to the largest finite value
            top = float(ml_dtypes.finfo(dtype).max)
            finite = np.where(np.isnan(floats), floats, np.clip(floats, -top, top)).astype(dtype)
            infinite = np.isinf(floats) & (dtype is ml_dtypes.float8_e5m2)
            want = np.where(infinite, want, finite)
    _, narrow, wide = run(text, args, **ONE)
    got = narrow.view(dtype)
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got[~nan].view(bits), want[~nan].view(bits))
    np.testing.assert_array_equal(wide[~nan], want[~nan].astype(np.float32))


def test_half_arithmetic_rounds_once() -> None:
    text = """
    #include <cuda_fp16.h>
    __global__ void k(const half* a, const half* b, const half* c, half* out, int n) {
      for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = a[i] + b[i];
        out[n + i] = a[i] * b[i];
        out[2 * n + i] = __hfma(a[i], b[i], c[i]);
        half2 pair = __hmul2(__halves2half2(a[i], b[i]), __half2half2(c[i]));
        out[3 * n + i] = __low2half(pair);
        out[4 * n + i] = __high2half(pair);
      }
    }"""
    random = np.random.default_rng(3)
    n = 20000
    a, b, c = (
        (random.standard_normal(n) * 2.0 ** random.integers(-9, 9, n)).astype("f2") for _ in "abc"
    )
    out = run(text, [a, b, c, np.zeros(5 * n, np.float16), n], **ONE)[3].reshape(5, n)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
        wants = [a + b, a * b, exact.astype(np.float16), a * c, b * c]
    for got, want in zip(out, wants, strict=True):
        np.testing.assert_array_equal(got, want)


# ---- functions ---------------------------------------------------------------------------------

FUNCTIONS = {
    "sqrtf(x)": np.sqrt, "rsqrtf(x)": lambda x: 1 / np.sqrt(x), "expf(x)": np.exp,
    "exp2f(x)": np.exp2, "logf(x)": np.log, "log2f(x)": np.log2, "tanhf(x)": np.tanh,
    "fmaxf(x, 1.5f)": lambda x: np.maximum(x, 1.5), "fminf(x, 1.5f)": lambda x: np.minimum(x, 1.5),
    "fabsf(-x)": np.abs, "floorf(x)": np.floor, "ceilf(x)": np.ceil, "rintf(x)": np.rint,
    "truncf(x)": np.trunc, "powf(x, 2.5f)": lambda x: x**2.5, "sinf(x)": np.sin, "cosf(x)": np.cos,
    "max(x, 2.0f)": lambda x: np.maximum(x, 2), "sqrt(x)": np.sqrt, "exp(x)": np.exp,
    "__expf(x)": np.exp, "__fdividef(x, 3.0f)": lambda x: x / 3, "__saturatef(x)": lambda x: np.clip(x, 0, 1),
    "fmaf(x, x, 1.0f)": lambda x: x * x + 1, "__fmul_rn(x, x)": lambda x: x * x,
    "float(__float2int_rn(x))": np.rint, "float(__float2int_rz(x))": np.trunc,
    "float(max(int(x), 3))": lambda x: np.maximum(np.trunc(x), 3),
    "__int_as_float(__float_as_int(x))": lambda x: x,
}  # fmt: skip


def test_functions() -> None:
    lines = "\n".join(f"out[{i} * n + t] = {call};" for i, call in enumerate(FUNCTIONS))
    text = f"""
    #include <cmath>
    __global__ void k(const float* in, float* out, int n) {{
      int t = threadIdx.x;
      float x = in[t];
      {lines}
    }}"""
    x = np.linspace(0.1, 6, 32, dtype=np.float32)
    out = run(text, [x, np.zeros(32 * len(FUNCTIONS), np.float32), 32], outputs=[1])[1]
    for call, got in zip(FUNCTIONS, out.reshape(-1, 32), strict=True):
        np.testing.assert_allclose(got, FUNCTIONS[call](x), rtol=1e-6, err_msg=call)


def test_bits() -> None:
    text = """
    __global__ void k(unsigned* out) {
      unsigned v[] = {
        (unsigned)__popc(0xF0F0u), (unsigned)__clz(1), (unsigned)__clz(0), (unsigned)__ffs(8),
        __brev(1u), __umulhi(0x80000000u, 6u), __byte_perm(0x33221100u, 0x77665544u, 0x7530u),
        (unsigned)__dp4a(0x01020304, 0x01010101, 5), __funnelshift_l(0x80000000u, 1u, 1),
        __funnelshift_r(0x80000001u, 1u, 1), (unsigned)__float2int_rn(3e9f),
        (unsigned)__float2int_rz(0.0f / 0.0f)};
      for (int i = 0; i < 12; i++) out[i] = v[i];
    }"""
    out = run(text, [np.zeros(12, np.uint32)], block=1, **ONE)[0]
    assert [hex(n) for n in out] == [
        "0x8", "0x1f", "0x20", "0x4", "0x80000000", "0x3", "0x77553300", "0xf", "0x3", "0xc0000000",
        "0x7fffffff", "0x0",
    ]  # fmt: skip


# ---- warps -------------------------------------------------------------------------------------


def test_shuffles() -> None:
    text = """
    __global__ void k(const int* in, int* out, double* wide) {
      int t = threadIdx.x, v = in[t];
      int n = blockDim.x;
      out[t] = __shfl_sync(~0u, v, 5);
      out[n + t] = __shfl_sync(~0u, v, t + 1, 8);
      out[2 * n + t] = __shfl_up_sync(~0u, v, 3);
      out[3 * n + t] = __shfl_down_sync(~0u, v, 3, 16);
      out[4 * n + t] = __shfl_xor_sync(~0u, v, 9);
      wide[t] = __shfl_xor_sync(~0u, double(v) + 0.5, 1);
    }"""
    v = np.arange(100, 164, dtype=np.int32)
    _, out, wide = run(
        text, [v, np.zeros(5 * 64, np.int32), np.zeros(64)], block=64, outputs=[1, 2]
    )
    t, lane = np.arange(64), np.arange(64) % 32
    base = t - lane
    got = out.reshape(5, 64)
    np.testing.assert_array_equal(got[0], v[base + 5])
    np.testing.assert_array_equal(got[1], v[base + lane // 8 * 8 + (lane + 1) % 8])
    np.testing.assert_array_equal(got[2], v[base + np.where(lane >= 3, lane - 3, lane)])
    np.testing.assert_array_equal(got[3], v[base + np.where(lane % 16 < 13, lane + 3, lane)])
    np.testing.assert_array_equal(got[4], v[base + (lane ^ 9)])
    np.testing.assert_array_equal(wide, v[base + (lane ^ 1)] + 0.5)


def test_votes_and_reductions() -> None:
    text = """
    __global__ void k(unsigned* out) {
      int t = threadIdx.x;
      unsigned v[] = {
        __ballot_sync(~0u, t % 3 == 0), (unsigned)__any_sync(~0u, t == 40),
        (unsigned)__all_sync(~0u, t < 40), __match_any_sync(~0u, t % 4),
        __reduce_add_sync(~0u, (unsigned)t), (unsigned)__reduce_max_sync(~0u, -t),
        (unsigned)__syncthreads_count(t < 37), (unsigned)__syncthreads_and(t < 64),
        (unsigned)__syncthreads_or(t > 63)};
      for (int i = 0; i < 9; i++) out[i * 64 + t] = v[i];
    }"""
    out = run(text, [np.zeros(9 * 64, np.uint32)], block=64, outputs=[0])[0].reshape(9, 64)
    t = np.arange(64)
    ballots = [sum(1 << i for i in range(32) if (32 * w + i) % 3 == 0) for w in range(2)]
    np.testing.assert_array_equal(out[0], np.repeat(ballots, 32))
    np.testing.assert_array_equal(out[1], t // 32)
    np.testing.assert_array_equal(out[2], 1 - t // 32)
    np.testing.assert_array_equal(out[3], [0x11111111 << (i % 4) for i in t])
    np.testing.assert_array_equal(out[4], np.where(t < 32, 496, 496 + 1024))
    np.testing.assert_array_equal(out[5].view(np.int32), np.where(t < 32, 0, -32))
    assert [set(row.tolist()) for row in out[6:]] == [{37}, {1}, {0}]


def test_a_warp_that_is_not_full() -> None:
    text = """
    __global__ void k(int* out) {
      int v = threadIdx.x;
      for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffu, v, step, 8);
      out[threadIdx.x] = v;
      __syncthreads();
    }"""
    run(text, [np.zeros(8, np.int32)], block=8)


# ---- atomics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "start", "want"),
    [
        ("atomicAdd(p, t)", 5, 5 + 2016),
        ("atomicSub(p, t)", 5, 5 - 2016),
        ("atomicMax(p, t)", 5, 63),
        ("atomicMin(p, t)", 5, 0),
        ("atomicAnd(p, ~(1 << t % 3))", 255, 248),
        ("atomicOr(p, 1 << t % 8)", 0, 255),
        ("atomicXor(p, t)", 0, 0),
        ("atomicCAS(p, 5, 77)", 5, 77),
    ],
)
def test_atomics(call: str, start: int, want: int) -> None:
    text = f"__global__ void k(int* p, int t0) {{ int t = threadIdx.x + t0; {call}; }}"
    assert run(text, [np.array([start], np.int32), 0], block=64)[0][0] == want


def test_atomics_of_other_types() -> None:
    text = """
    #include <cuda_fp16.h>
    __global__ void k(float* f, double* d, unsigned long long* u, half* h, unsigned* wrapped) {
      atomicAdd(f, 0.5f);
      atomicAdd(d, 0.25);
      atomicAdd(u, 1ull << 40);
      atomicAdd(h, half(1.0f));
      atomicInc(wrapped, 6);
    }"""
    zeros = [np.zeros(1, name) for name in ("f4", "f8", "u8", "f2", "u4")]
    out = run(text, zeros, block=32)
    assert [float(a[0]) for a in out] == [16, 8, 32 * 2.0**40, 32, 32 % 7]


# ---- legal kernels that look dangerous ---------------------------------------------------------

LEGAL = {
    "both halves of a warp meet in their own branch": """
__global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  if (t % 32 < 16) { __syncwarp(0x0000ffffu); out[t] = s[t ^ 1]; }
  else { __syncwarp(0xffff0000u); out[t] = s[t ^ 2]; }
}""",
    "a tree of warps, ordered by __syncwarp": """
__global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x, lane = t % 32;
  s[t] = t;
  for (int step = 16; step > 0; step /= 2) {
    __syncwarp();
    int v = lane < step ? s[t] + s[t + step] : 0;
    __syncwarp();
    if (lane < step) s[t] = v;
  }
  out[t] = lane == 0 ? s[t] : 0;
}""",
    "bytes of one word belong to four threads": """
__global__ void k(int* out) {
  __shared__ unsigned char s[64];
  s[threadIdx.x] = threadIdx.x;
  s[threadIdx.x] += 1;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) reinterpret_cast<unsigned short*>(s)[threadIdx.x] = 0;
}""",
    "a lock that its holder gives back": """
__global__ void k(int* out) {
  __shared__ int lock, sum;
  if (threadIdx.x == 0) { lock = 0; sum = 0; }
  __syncthreads();
  while (atomicCAS(&lock, 0, 1) != 0) {}
  __threadfence_block();
  sum += threadIdx.x;
  __threadfence_block();
  atomicExch(&lock, 0);
  __syncthreads();
  out[threadIdx.x] = sum;
}""",
    "a warp that waits for a flag of another": """
__global__ void k(int* out) {
  __shared__ int flag, data;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 63) { data = 7; __threadfence_block(); atomicExch(&flag, 1); }
  if (threadIdx.x == 0) {
    while (atomicAdd(&flag, 0) == 0) {}
    __threadfence_block();
    out[0] = data;
  } else {
    out[threadIdx.x] = 0;
  }
}""",
    "two arrays share dynamic memory one after the other": """
__global__ void k(int* out) {
  extern __shared__ char memory[];
  int* a = reinterpret_cast<int*>(memory);
  double* b = reinterpret_cast<double*>(memory);
  a[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int v = a[63 - threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = v;
  __syncthreads();
  out[threadIdx.x] = int(b[threadIdx.x ^ 1]);
}""",
    "a barrier in a loop and one in a condition that holds for the block": """
__global__ void k(int* out) {
  __shared__ int s[64];
  int v = 0;
  for (int i = 0; i < 5; i++) {
    s[threadIdx.x] = i;
    __syncthreads();
    if (i % 2) { v += s[(threadIdx.x + 1) % 64]; __syncthreads(); }
    else { v -= s[(threadIdx.x + 2) % 64]; __syncthreads(); }
  }
  out[threadIdx.x] = v;
}""",
    "threads that leave early, in a kernel without barriers": """
__global__ void k(int* out) {
  int t = threadIdx.x;
  if (t >= 40) { out[t] = 0; return; }
  unsigned mask = t < 32 ? 0xffffffffu : 0xffu;
  int v = t;
  v += __shfl_xor_sync(mask, v, 1);
  out[t] = v;
}""",
    "templates, lambdas, structures, constant memory": """
__constant__ int table[4] = {1, 2, 3, 4};
template <int N, class F> __device__ __forceinline__ int fold(F f) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += f(i);
  return sum;
}
struct __align__(8) Both { int a, b; __device__ int sum() const { return a + b; } };
__global__ void __launch_bounds__(64) k(int* __restrict__ out) {
  Both both{int(threadIdx.x), 1};
  out[threadIdx.x] = fold<4>([&](int i) { return table[i] * both.sum(); });
}""",
}


@pytest.mark.parametrize("text", LEGAL.values(), ids=LEGAL)
def test_legal_kernels_are_clean(text: str) -> None:
    run(
        text,
        [np.zeros(64, np.int32)],
        block=64,
        outputs=[0],
        shared_bytes=512,
        orders=(0, 1, 2, 3, 4),
    )
