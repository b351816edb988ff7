// Counts of bytes in 64 bins: shared atomics within blocks, global ones between them, the last block sums up.
constexpr int BINS = 64, THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const unsigned char* in, unsigned* bins, unsigned* ticket, unsigned* largest, int n) {
  __shared__ unsigned local[BINS];
  __shared__ bool last;
  if (threadIdx.x < BINS) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) atomicAdd(&local[in[i] % BINS], 1u);
  __syncthreads();
  if (threadIdx.x < BINS) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last && threadIdx.x < 32) {
    const unsigned one = atomicAdd(&bins[threadIdx.x], 0u), other = atomicAdd(&bins[threadIdx.x + 32], 0u);
    const unsigned most = __reduce_max_sync(0xffffffffu, max(one, other));
    if (threadIdx.x == 0) *largest = most;
  }
}
