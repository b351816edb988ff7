// As 01, with neighbouring threads along a row of C: loads of B and stores of C coalesce.
template <int TILE>
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  const int row = blockIdx.x * TILE + threadIdx.x / TILE;
  const int col = blockIdx.y * TILE + threadIdx.x % TILE;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += __ldg(&A[row * K + k]) * __ldg(&B[k * N + col]);
    C[row * N + col] = sum;
  }
}
