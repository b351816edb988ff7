// Tensor cores through fragments: each of four warps computes 32 x 32 of a 64 x 64 tile.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int BM = 64, BN = 64, BK = 32, WM = 32, WN = 32, PAD = 8;

__global__ void gemm(const half* A, const half* B, float* C, int M, int N, int K) {
  __shared__ __align__(32) half As[BM][BK + 2 * PAD];
  __shared__ __align__(32) half Bs[BK][BN + 2 * PAD];
  const int warp = threadIdx.x / 32, warpRow = warp / 2 * WM, warpCol = warp % 2 * WN;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
  for (auto& row : acc)
    for (auto& f : row) wmma::fill_fragment(f, 0.0f);

  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK / 8; i += blockDim.x)
      *reinterpret_cast<uint4*>(&As[i / (BK / 8)][i % (BK / 8) * 8]) =
          *reinterpret_cast<const uint4*>(
              &A[(blockIdx.y * BM + i / (BK / 8)) * K + k0 + i % (BK / 8) * 8]);
    for (int i = threadIdx.x; i < BK * BN / 8; i += blockDim.x)
      *reinterpret_cast<uint4*>(&Bs[i / (BN / 8)][i % (BN / 8) * 8]) =
          *reinterpret_cast<const uint4*>(
              &B[(k0 + i / (BN / 8)) * N + blockIdx.x * BN + i % (BN / 8) * 8]);
    __syncthreads();
    for (int k = 0; k < BK; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b[2];
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(a[i], &As[warpRow + 16 * i][k], BK + 2 * PAD);
      for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(b[j], &Bs[k][warpCol + 16 * j], BN + 2 * PAD);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], a[i], b[j], acc[i][j]);
    }
    __syncthreads();
  }
  float* tile = C + (blockIdx.y * BM + warpRow) * N + blockIdx.x * BN + warpCol;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&tile[16 * i * N + 16 * j], acc[i][j], N, wmma::mem_row_major);
}
