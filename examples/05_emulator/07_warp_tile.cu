// A tile for each warp between those of block and thread, walked in WMITER x WNITER steps.
namespace tiles {
constexpr int WARP = 32;
constexpr int BM = 128, BN = 128, BK = 16;
constexpr int WM = 64, WN = 64, WNITER = 4, TM = 8, TN = 4;
constexpr int THREADS = (BM / WM) * (BN / WN) * WARP;
constexpr int WMITER = (WM * WN) / (WARP * TM * TN * WNITER);
constexpr int WSUBM = WM / WMITER, WSUBN = WN / WNITER;
}  // namespace tiles

using namespace tiles;

__device__ __forceinline__ void loadTiles(const float* A, const float* B, int N, int K, float* As,
                                          float* Bs) {
  for (int i = threadIdx.x; i < BM * BK / 4; i += THREADS) {
    const int row = i / (BK / 4), col = i % (BK / 4) * 4;
    const float4 v = reinterpret_cast<const float4*>(&A[row * K + col])[0];
    As[(col + 0) * BM + row] = v.x;
    As[(col + 1) * BM + row] = v.y;
    As[(col + 2) * BM + row] = v.z;
    As[(col + 3) * BM + row] = v.w;
  }
  for (int i = threadIdx.x; i < BK * BN / 4; i += THREADS) {
    const int row = i / (BN / 4), col = i % (BN / 4) * 4;
    reinterpret_cast<float4*>(&Bs[row * BN + col])[0] =
        reinterpret_cast<const float4*>(&B[row * N + col])[0];
  }
}

__global__ void __launch_bounds__(THREADS)
gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[BK * BM], Bs[BK * BN];
  const int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
  const int warpRow = warp / (BN / WN), warpCol = warp % (BN / WN);
  const int laneRow = lane / (WSUBN / TN), laneCol = lane % (WSUBN / TN);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (blockIdx.y * BM + warpRow * WM) * N + blockIdx.x * BN + warpCol * WN;

  float results[WMITER * TM * WNITER * TN] = {0.0f};
  float regM[WMITER * TM], regN[WNITER * TN];
  for (int k0 = 0; k0 < K; k0 += BK) {
    loadTiles(A, B, N, K, As, Bs);
    __syncthreads();
    for (int k = 0; k < BK; ++k) {
      for (int wm = 0; wm < WMITER; ++wm)
        for (int i = 0; i < TM; ++i)
          regM[wm * TM + i] = As[k * BM + warpRow * WM + wm * WSUBM + laneRow * TM + i];
      for (int wn = 0; wn < WNITER; ++wn)
        for (int j = 0; j < TN; ++j)
          regN[wn * TN + j] = Bs[k * BN + warpCol * WN + wn * WSUBN + laneCol * TN + j];
      for (int i = 0; i < WMITER * TM; ++i)
        for (int j = 0; j < WNITER * TN; ++j) results[i * WNITER * TN + j] += regM[i] * regN[j];
    }
    A += BK;
    B += BK * N;
    __syncthreads();
  }
  for (int wm = 0; wm < WMITER; ++wm)
    for (int wn = 0; wn < WNITER; ++wn)
      for (int i = 0; i < TM; ++i) {
        const float* r = &results[(wm * TM + i) * WNITER * TN + wn * TN];
        reinterpret_cast<float4*>(
            &C[(wm * WSUBM + laneRow * TM + i) * N + wn * WSUBN + laneCol * TN])[0] =
            make_float4(r[0], r[1], r[2], r[3]);
      }
}
