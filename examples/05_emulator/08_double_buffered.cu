// Two stages of shared memory, filled by asynchronous copies one step ahead of the products.
#include <cuda_pipeline.h>

constexpr int BM = 64, BN = 64, BK = 16, TM = 4, TN = 4, STAGES = 2;
constexpr int THREADS = (BM / TM) * (BN / TN);

struct Stage {
  float a[BM][BK + 4];  // padded: rows of A are read down a column
  float b[BK][BN];
};

static __device__ void fetch(Stage& stage, const float* A, const float* B, int N, int K) {
  for (int i = threadIdx.x; i < BM * BK / 4; i += THREADS)
    __pipeline_memcpy_async(&stage.a[i / (BK / 4)][i % (BK / 4) * 4],
                            &A[(i / (BK / 4)) * K + i % (BK / 4) * 4], 16);
  for (int i = threadIdx.x; i < BK * BN / 4; i += THREADS)
    __pipeline_memcpy_async(&stage.b[i / (BN / 4)][i % (BN / 4) * 4],
                            &B[(i / (BN / 4)) * N + i % (BN / 4) * 4], 16);
  __pipeline_commit();
}

__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char memory[];
  Stage* stages = reinterpret_cast<Stage*>(memory);
  const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;

  float acc[TM][TN] = {};
  fetch(stages[0], A, B, N, K);
  for (int k0 = 0; k0 < K; k0 += BK) {
    const Stage& now = stages[k0 / BK % STAGES];
    if (k0 + BK < K) {
      fetch(stages[(k0 / BK + 1) % STAGES], A + k0 + BK, B + (k0 + BK) * N, N, K);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k)
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
          acc[i][j] += now.a[threadRow * TM + i][k] * now.b[k][threadCol * TN + j];
    __syncthreads();
  }
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; ++j)
      C[(blockIdx.y * BM + threadRow * TM + i) * N + blockIdx.x * BN + threadCol * TN + j] =
          acc[i][j];
}
