// C[M][N] = A[M][K] * B[K][N] in half: two stages through registers, XOR swizzle, ldmatrix plain and transposed,
// and the result back through stmatrix to 16-byte stores. Whole tiles.
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 32, A_BYTES = BM * BK * 2, STAGE = A_BYTES + BK * BN * 2, C_ROW = BN * 2 + 16;

__device__ __forceinline__ unsigned place_a(int row, int chunk) { return row * 64 + ((chunk ^ (row / 2 & 3)) << 4); }
__device__ __forceinline__ unsigned place_b(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

__device__ __forceinline__ void store16(unsigned to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[2], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

extern "C" __global__ void __launch_bounds__(128) gemm(const half* A, const half* B, half* C, int M, int N, int K) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned base = (unsigned)__cvta_generic_to_shared(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  uint4 next_a[2], next_b[2];
  auto load = [&](int k0) {
    for (int p = 0; p < 2; p++) {
      const int i = threadIdx.x + p * 128;
      next_a[p] = *reinterpret_cast<const uint4*>(&A[i / 4 * K + k0 + i % 4 * 8]);
      next_b[p] = *reinterpret_cast<const uint4*>(&B[(k0 + i / 8) * N + i % 8 * 8]);
    }
  };
  auto store = [&](unsigned stage) {
    for (int p = 0; p < 2; p++) {
      const int i = threadIdx.x + p * 128;
      store16(stage + place_a(i / 4, i % 4), next_a[p]);
      store16(stage + A_BYTES + place_b(i / 8, i % 8), next_b[p]);
    }
  };

  float acc[2][4][4] = {};
  load(0);
  store(base);
  __syncthreads();
  for (int k0 = 0; k0 < K; k0 += BK) {
    const unsigned a_tile = base + k0 / BK % 2 * STAGE, b_tile = a_tile + A_BYTES;
    if (k0 + BK < K) load(k0 + BK);
    for (int k = 0; k < BK / 16; k++) {
      unsigned a[2][4], b[4][2];
      for (int i = 0; i < 2; i++) ldmatrix(a[i], a_tile + place_a(warp_m + 16 * i + lane % 16, 2 * k + lane / 16));
      for (int j = 0; j < 4; j++) ldmatrix_trans(b[j], b_tile + place_b(16 * k + lane % 16, warp_n / 8 + j));
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) mma(acc[i][j], a[i], b[j]);
    }
    if (k0 + BK < K) store(base + (k0 / BK + 1) % 2 * STAGE);
    __syncthreads();
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j += 2) {
      const unsigned to = base + (warp_m + 16 * i + lane % 16) * C_ROW + (warp_n + 8 * j + lane / 16 * 8) * 2;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                   "r"(packed(acc[i][j][0], acc[i][j][1])), "r"(packed(acc[i][j][2], acc[i][j][3])),
                   "r"(packed(acc[i][j + 1][0], acc[i][j + 1][1])), "r"(packed(acc[i][j + 1][2], acc[i][j + 1][3]))
                   : "memory");
    }
  __syncthreads();
  for (int i = threadIdx.x; i < BM * BN / 8; i += 128)
    *reinterpret_cast<uint4*>(&C[i / 8 * N + i % 8 * 8]) =
        *reinterpret_cast<const uint4*>(memory + i / 8 * C_ROW + i % 8 * 16);
}
