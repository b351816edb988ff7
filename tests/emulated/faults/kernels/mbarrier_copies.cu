// out[r][t] = in[r][t] + 10 in[r][(t + 1) % 128], rows through cp.async in three stages whose arrival the copies
// themselves announce at mbarriers (cp.async.mbarrier.arrive); the whole block loads and computes.
#include <cstdint>

constexpr int THREADS = 128, STAGES = 3;

__device__ __forceinline__ uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void fetch(int* to, const int* from, uint32_t bar) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared(to)), "l"(from) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(bar),
      "r"(parity) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS) neighbours(const int* in, int* out, int rows) {
  __shared__ int stage[STAGES][THREADS];
  __shared__ __align__(8) uint64_t full[STAGES];
  const int t = threadIdx.x;
  in += blockIdx.x * rows * THREADS;
  out += blockIdx.x * rows * THREADS;
  if (t == 0)
    for (int s = 0; s < STAGES; s++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&full[s])), "r"(THREADS) : "memory");
  __syncthreads();
  for (int r = 0; r < STAGES - 1 && r < rows; r++) fetch(&stage[r][t], &in[r * THREADS + t], shared(&full[r]));
  for (int r = 0; r < rows; r++) {
    const int s = r % STAGES, next = r + STAGES - 1;
    wait(shared(&full[s]), r / STAGES & 1);
    out[r * THREADS + t] = stage[s][t] + 10 * stage[s][(t + 1) % THREADS];
    __syncthreads();
    if (next < rows) fetch(&stage[next % STAGES][t], &in[next * THREADS + t], shared(&full[next % STAGES]));
  }
}
