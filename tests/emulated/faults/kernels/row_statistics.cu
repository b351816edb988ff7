// Sum and maximum of each row: shuffles within warps, shared memory between them. One block a row.
constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

__device__ float warp_sum(float v) {
  for (int by = 16; by > 0; by /= 2) v += __shfl_down_sync(ALL, v, by);
  return v;
}
__device__ float warp_max(float v) {
  for (int by = 16; by > 0; by /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, by));
  return v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
row_statistics(const float* x, float* sums, float* maxima, float* centred, int columns) {
  __shared__ float partial[2][WARPS];
  __shared__ float total;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* row = x + blockIdx.x * columns;
  float sum = 0.0f, most = -1e30f;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    sum += row[i];
    most = fmaxf(most, row[i]);
  }
  sum = warp_sum(sum);
  most = warp_max(most);
  if (lane == 0) {
    partial[0][warp] = sum;
    partial[1][warp] = most;
  }
  __syncthreads();
  if (warp == 0) {
    float s = lane < WARPS ? partial[0][lane] : 0.0f;
    float m = lane < WARPS ? partial[1][lane] : -1e30f;
    s = warp_sum(s);
    m = warp_max(m);
    if (lane == 0) {
      sums[blockIdx.x] = s;
      maxima[blockIdx.x] = m;
      total = s;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += THREADS) centred[blockIdx.x * columns + i] = row[i] * 8.0f - total;
}
