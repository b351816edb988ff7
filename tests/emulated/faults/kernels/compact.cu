// The positive elements of each row of 256, in order, and how many they are: votes, bit counts, one scan.
constexpr int THREADS = 256, WARPS = THREADS / 32;

extern "C" __global__ void __launch_bounds__(THREADS) compact(const int* in, int* out, int* counts) {
  __shared__ int before[WARPS + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int value = in[blockIdx.x * THREADS + threadIdx.x];
  const unsigned votes = __ballot_sync(0xffffffffu, value > 0);
  if (lane == 0) before[warp + 1] = __popc(votes);
  if (threadIdx.x == 0) before[0] = 0;
  __syncthreads();
  if (warp == 0) {
    int count = lane <= WARPS ? before[lane] : 0;
    for (int by = 1; by <= WARPS; by *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, count, by);
      if (lane >= by) count += other;
    }
    if (lane <= WARPS) before[lane] = count;
  }
  __syncthreads();
  const int place = before[warp] + __popc(votes & ((1u << lane) - 1));
  if (value > 0) out[blockIdx.x * THREADS + place] = value;
  if (threadIdx.x == 0) counts[blockIdx.x] = before[WARPS];
}
