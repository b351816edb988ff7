// C[64 y][64 x] = A[M][K] * B[K][N] in half for sm_90a: tiles written by the threads with the 128-byte swizzle,
// handed to wgmma by a proxy fence; A is K-major, B N-major. One warpgroup, whole tiles.
#include <cuda_fp16.h>
#include <cstdint>

constexpr int TILE = 64, BYTES = TILE * TILE * 2;

__device__ __forceinline__ uint32_t swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row % 8)) << 4); }
__device__ __forceinline__ void store16(uint32_t to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(8192 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, int scale_d) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(scale_d)
      : "memory");
}

extern "C" __global__ void __launch_bounds__(128) gemm(const half* A, const half* B, float* C, int M, int N, int K) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t a_tile = (uint32_t)__cvta_generic_to_shared(memory), b_tile = a_tile + BYTES;
  A += blockIdx.y * TILE * K;
  B += blockIdx.x * TILE;
  float d[32];
  for (int k0 = 0; k0 < K; k0 += TILE) {
    for (int i = threadIdx.x; i < TILE * 8; i += 128) {
      store16(a_tile + swizzled(i / 8, i % 8), *reinterpret_cast<const uint4*>(&A[i / 8 * K + k0 + i % 8 * 8]));
      store16(b_tile + swizzled(i / 8, i % 8), *reinterpret_cast<const uint4*>(&B[(k0 + i / 8) * N + i % 8 * 8]));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < TILE / 16; k++) wgmma(d, descriptor(a_tile + 32 * k), descriptor(b_tile + 2048 * k), k0 + k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  C += (blockIdx.y * TILE + warp * 16 + lane / 4) * N + blockIdx.x * TILE + lane % 4 * 2;
  for (int i = 0; i < 32; i++) C[i / 2 % 2 * 8 * N + i / 4 * 8 + i % 2] = d[i];
}
