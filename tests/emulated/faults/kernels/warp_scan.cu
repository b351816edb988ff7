// Running sums within each warp, in shared memory: what lanes exchange is ordered by __syncwarp alone.
constexpr int WARPS = 4;

extern "C" __global__ void __launch_bounds__(32 * WARPS) warp_scan(const int* in, int* out, int* totals) {
  __shared__ int sums[WARPS][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  int* mine = sums[warp];
  mine[lane] = in[at];
  __syncwarp();
  for (int by = 1; by < 32; by *= 2) {
    int other = 0;
    if (lane >= by) other = mine[lane - by];
    __syncwarp();
    mine[lane] += other;
    __syncwarp();
  }
  out[at] = mine[lane] - mine[lane / 8 * 8];
  if (lane == 31) totals[blockIdx.x * WARPS + warp] = mine[31];
}
