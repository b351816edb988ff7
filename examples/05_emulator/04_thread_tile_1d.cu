// Each thread computes a column of TM results, so one value of B serves TM products.
#define BM 64
#define BN 64
#define BK 8
#define TM 8

__global__ void __launch_bounds__(BM * BN / TM)
gemm(const float *A, const float *B, float *C, int M, int N, int K) {
  extern __shared__ float shared[];
  float *As = shared;            // BM x BK
  float *Bs = shared + BM * BK;  // BK x BN

  const uint rowA = threadIdx.x / BK, colA = threadIdx.x % BK;
  const uint rowB = threadIdx.x / BN, colB = threadIdx.x % BN;
  const uint threadRow = threadIdx.x / BN, threadCol = threadIdx.x % BN;

  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float results[TM] = {0.0f};
  for (uint k0 = 0; k0 < K; k0 += BK) {
    As[rowA * BK + colA] = A[rowA * K + colA];
    Bs[rowB * BN + colB] = B[rowB * N + colB];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (uint k = 0; k < BK; ++k) {
      float b = Bs[k * BN + threadCol];
      for (uint i = 0; i < TM; ++i) results[i] += As[(threadRow * TM + i) * BK + k] * b;
    }
    __syncthreads();
  }
  for (uint i = 0; i < TM; ++i) C[(threadRow * TM + i) * N + threadCol] = results[i];
}
