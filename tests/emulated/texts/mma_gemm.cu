// C[M][N] = A[M][K] * B[N][K]^T, half inputs, float sums: cp.async in three stages, XOR-swizzled shared
// memory, ldmatrix, mma.sync. Macros and hand-written PTX, as many CUDA kernels have it.
#include <cuda_fp16.h>
#include <cstdint>

#define BM 128
#define BN 128
#define BK 32
#define STAGES 3
#define WARP_M 64
#define WARP_N 32
#define MMA_M 16
#define MMA_N 8
#define MMA_K 16

#define CP_ASYNC_CG(dst, src, bytes, valid)                        \
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;\n" \
               ::"r"(dst), "l"(src), "n"(bytes), "r"(valid)        \
               : "memory")
#define CP_ASYNC_COMMIT_GROUP() asm volatile("cp.async.commit_group;\n" ::: "memory")
#define CP_ASYNC_WAIT_GROUP(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n) : "memory")
#define LDMATRIX_X4(R0, R1, R2, R3, addr)                                                   \
  asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n"         \
               : "=r"(R0), "=r"(R1), "=r"(R2), "=r"(R3) : "r"(addr) : "memory")
#define HMMA16816F32(D, A, B)                                                               \
  asm volatile(                                                                             \
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                                  \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"                   \
      : "+f"((D)[0]), "+f"((D)[1]), "+f"((D)[2]), "+f"((D)[3])                              \
      : "r"((A)[0]), "r"((A)[1]), "r"((A)[2]), "r"((A)[3]), "r"((B)[0]), "r"((B)[1]))

// 16-byte chunks: four to a row of BK halves. Two rows share a 128-byte line; the chunk is XORed so that
// the eight rows of an ldmatrix fall into different banks.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * (BK * 2) + ((chunk ^ ((row >> 1) & 3)) << 4);
}

template <int ROWS>
__device__ __forceinline__ void load_tile(uint32_t shared, const half* global, int row0, int k0, int rows, int K) {
  for (int i = threadIdx.x; i < ROWS * 4; i += 256) {
    const int row = i >> 2, chunk = i & 3, k = k0 + chunk * 8;
    const int valid = row0 + row < rows && k < K ? 16 : 0;
    const half* src = valid ? global + (size_t)(row0 + row) * K + k : global;
    CP_ASYNC_CG(shared + swizzled(row, chunk), src, 16, valid);
  }
}

extern "C" __global__ void __launch_bounds__(256) gemm(float* C, const half* A, const half* B, int M, int N, int K) {
  extern __shared__ half smem[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(smem);
  const int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE = A_BYTES + B_BYTES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = (warp / 4) * WARP_M, warp_n = (warp % 4) * WARP_N;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  const int steps = (K + BK - 1) / BK;

  float acc[WARP_M / MMA_M][WARP_N / MMA_N][4] = {};
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) {
      load_tile<BM>(base + s * STAGE, A, m0, s * BK, M, K);
      load_tile<BN>(base + s * STAGE + A_BYTES, B, n0, s * BK, N, K);
    }
    CP_ASYNC_COMMIT_GROUP();
  }
  for (int step = 0; step < steps; step++) {
    CP_ASYNC_WAIT_GROUP(STAGES - 2);
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < steps) {
      const uint32_t to = base + (next % STAGES) * STAGE;
      load_tile<BM>(to, A, m0, next * BK, M, K);
      load_tile<BN>(to + A_BYTES, B, n0, next * BK, N, K);
    }
    CP_ASYNC_COMMIT_GROUP();
    const uint32_t a_tile = base + (step % STAGES) * STAGE, b_tile = a_tile + A_BYTES;
#pragma unroll
    for (int k = 0; k < BK / MMA_K; k++) {
      uint32_t a[WARP_M / MMA_M][4], b[WARP_N / MMA_N][2];
#pragma unroll
      for (int i = 0; i < WARP_M / MMA_M; i++) {
        const uint32_t from = a_tile + swizzled(warp_m + i * MMA_M + lane % 16, k * 2 + lane / 16);
        LDMATRIX_X4(a[i][0], a[i][1], a[i][2], a[i][3], from);
      }
#pragma unroll
      for (int j = 0; j < WARP_N / MMA_N; j += 2) {
        const uint32_t from = b_tile + swizzled(warp_n + j * MMA_N + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2);
        LDMATRIX_X4(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], from);
      }
#pragma unroll
      for (int i = 0; i < WARP_M / MMA_M; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / MMA_N; j++) HMMA16816F32(acc[i][j], a[i], b[j]);
    }
  }
  for (int i = 0; i < WARP_M / MMA_M; i++)
    for (int j = 0; j < WARP_N / MMA_N; j++)
      for (int half_ = 0; half_ < 2; half_++) {
        const int row = m0 + warp_m + i * MMA_M + lane / 4 + half_ * 8, col = n0 + warp_n + j * MMA_N + lane % 4 * 2;
        if (row < M && col < N) {
          float* to = C + (size_t)row * N + col;
          if (col + 1 < N && N % 2 == 0) {
            asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(acc[i][j][2 * half_]), "f"(acc[i][j][2 * half_ + 1]) : "memory");
          } else {
            to[0] = acc[i][j][2 * half_];
            if (col + 1 < N) to[1] = acc[i][j][2 * half_ + 1];
          }
        }
      }
}
