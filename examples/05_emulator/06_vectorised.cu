// As 05, with 16-byte loads and stores, and A transposed on its way into shared memory.
#include <cuda_runtime.h>

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;

extern "C" __global__ void __launch_bounds__(256)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
     int M, int N, int K) {
  __shared__ float As[BK][BM];
  __shared__ __align__(16) float Bs[BK][BN];
  const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
  const int rowA = threadIdx.x / (BK / 4), colA = threadIdx.x % (BK / 4) * 4;
  const int rowB = threadIdx.x / (BN / 4), colB = threadIdx.x % (BN / 4) * 4;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    const float4 a = *reinterpret_cast<const float4*>(&A[rowA * K + k0 + colA]);
    As[colA + 0][rowA] = a.x;
    As[colA + 1][rowA] = a.y;
    As[colA + 2][rowA] = a.z;
    As[colA + 3][rowA] = a.w;
    reinterpret_cast<float4*>(&Bs[rowB][colB])[0] =
        reinterpret_cast<const float4*>(&B[(k0 + rowB) * N + colB])[0];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = As[k][threadRow * TM + i];
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = Bs[k][threadCol * TN + j];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      *reinterpret_cast<float4*>(&C[(threadRow * TM + i) * N + threadCol * TN + j]) =
          make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
}
