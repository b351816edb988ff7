// Each thread computes TM x TN results from registers.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
    gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  static_assert(BM * BK % THREADS == 0 && BN * BK % THREADS == 0, "whole passes of loads");
  __shared__ float As[BM * BK];
  __shared__ float Bs[BK * BN];
  const int threadCol = threadIdx.x % (BN / TN);
  const int threadRow = threadIdx.x / (BN / TN);
  const float* blockA = A + size_t(blockIdx.y) * BM * K;
  const float* blockB = B + size_t(blockIdx.x) * BN;

  float results[TM * TN] = {0.0f};
  float regM[TM], regN[TN];
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += THREADS)
      As[i] = blockA[(i / BK) * K + k0 + i % BK];
    for (int i = threadIdx.x; i < BK * BN; i += THREADS)
      Bs[i] = blockB[(k0 + i / BN) * N + i % BN];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
#pragma unroll
      for (int i = 0; i < TM; ++i) regM[i] = As[(threadRow * TM + i) * BK + k];
#pragma unroll
      for (int j = 0; j < TN; ++j) regN[j] = Bs[k * BN + threadCol * TN + j];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) results[i * TN + j] = fmaf(regM[i], regN[j], results[i * TN + j]);
    }
    __syncthreads();
  }
  float* blockC = C + size_t(blockIdx.y) * BM * N + blockIdx.x * BN;
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; ++j)
      blockC[(threadRow * TM + i) * N + threadCol * TN + j] = results[i * TN + j];
}
