// Several blocks share a tile of C along K; the last of them to finish adds the partial sums in order.
constexpr int TILE = 32, ROWS = 8, PER_THREAD = TILE / ROWS;

__global__ void gemm(const float* A, const float* B, float* C, float* partial,
                     unsigned* finished, int M, int N, int K) {
  __shared__ float As[TILE][TILE + 1], Bs[TILE][TILE];
  __shared__ bool last;
  const int splits = gridDim.z, split = blockIdx.z, length = K / splits;
  const int row0 = blockIdx.y * TILE, col = blockIdx.x * TILE + threadIdx.x;

  float sums[PER_THREAD] = {};
  for (int k0 = split * length; k0 < (split + 1) * length; k0 += TILE) {
    for (int r = threadIdx.y; r < TILE; r += ROWS) {
      As[r][threadIdx.x] = A[(row0 + r) * K + k0 + threadIdx.x];
      Bs[r][threadIdx.x] = B[(k0 + r) * N + col];
    }
    __syncthreads();
    for (int k = 0; k < TILE; ++k)
      for (int i = 0; i < PER_THREAD; ++i)
        sums[i] += As[threadIdx.y + i * ROWS][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  for (int i = 0; i < PER_THREAD; ++i)
    partial[(split * M + row0 + threadIdx.y + i * ROWS) * N + col] = sums[i];

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    const unsigned ticket = atomicInc(&finished[blockIdx.y * gridDim.x + blockIdx.x], splits - 1);
    last = ticket == splits - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  for (int i = 0; i < PER_THREAD; ++i) {
    const int row = row0 + threadIdx.y + i * ROWS;
    float sum = 0.0f;
    for (int s = 0; s < splits; ++s) sum += partial[(s * M + row) * N + col];
    C[row * N + col] = sum;
  }
}
