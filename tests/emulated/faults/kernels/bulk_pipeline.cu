// y = 2 x + w in tiles of 512: a producer warp with cp.async.bulk and mbarriers, four consumer warps, results back
// by bulk copies out of shared memory. One block takes every gridDim.x-th tile.
#include <cstdint>

constexpr int TILE = 512, STAGES = 2, CONSUMERS = 128;

__device__ __forceinline__ uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(bar),
      "r"(parity) : "memory");
}
__device__ __forceinline__ void load(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar) : "memory");
}

extern "C" __global__ void __launch_bounds__(160) scale_add(const float* x, const float* w, float* y, int tiles) {
  __shared__ __align__(128) float xs[STAGES][TILE], ws[STAGES][TILE], ys[STAGES][TILE];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      init(shared(&full[s]), 1);
      init(shared(&empty[s]), CONSUMERS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int first = blockIdx.x, stride = gridDim.x;
  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS) {
      for (int tile = first, i = 0; tile < tiles; tile += stride, i++) {
        const int s = i % STAGES;
        wait(shared(&empty[s]), (i / STAGES & 1) ^ 1);
        expect(shared(&full[s]), 2 * TILE * 4);
        load(shared(xs[s]), x + tile * TILE, TILE * 4, shared(&full[s]));
        load(shared(ws[s]), w + tile * TILE, TILE * 4, shared(&full[s]));
      }
    }
    return;
  }
  for (int tile = first, i = 0; tile < tiles; tile += stride, i++) {
    const int s = i % STAGES;
    wait(shared(&full[s]), i / STAGES & 1);
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STAGES - 1) : "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
    for (int e = threadIdx.x; e < TILE; e += CONSUMERS) ys[s][e] = 2.0f * xs[s][e] + ws[s][TILE - 1 - e];
    arrive(shared(&empty[s]));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + tile * TILE), "r"(shared(ys[s])),
                   "r"(TILE * 4) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
