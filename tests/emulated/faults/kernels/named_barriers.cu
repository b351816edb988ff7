// Two producer warps fill two buffers in turn, two consumer warps read them: full and empty as named barriers.
constexpr int GROUP = 64, BOTH = 2 * GROUP;

__device__ __forceinline__ void barrier_sync(int id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(BOTH) : "memory"); }
__device__ __forceinline__ void barrier_arrive(int id) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(BOTH) : "memory"); }

extern "C" __global__ void __launch_bounds__(BOTH) reversed(const int* in, int* out, int rows) {
  __shared__ int buffer[2][GROUP];
  const int FULL = 1, EMPTY = 3, t = threadIdx.x % GROUP;
  in += blockIdx.x * rows * GROUP;
  out += blockIdx.x * rows * GROUP;
  if (threadIdx.x < GROUP) {
    for (int i = 0; i < rows; i++) {
      if (i >= 2) barrier_sync(EMPTY + i % 2);
      buffer[i % 2][t] = 3 * in[i * GROUP + t] + i;
      barrier_arrive(FULL + i % 2);
    }
  } else {
    for (int i = 0; i < rows; i++) {
      barrier_sync(FULL + i % 2);
      out[i * GROUP + t] = buffer[i % 2][GROUP - 1 - t];
      if (i + 2 < rows) barrier_arrive(EMPTY + i % 2);
    }
  }
}
