// out = in^T in 32 x 32 tiles of floats: TMA in with the 128-byte swizzle, transposed by 256 threads, TMA out.
#include <cuda.h>
#include <cstdint>

constexpr int TILE = 32;

// Where TMA with the 128-byte swizzle puts an element of a tile of 128-byte rows.
__device__ __forceinline__ int swizzled(int row, int col) { return row * TILE + (col ^ (row % 8 * 4)); }

extern "C" __global__ void __launch_bounds__(256)
transpose(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, int columns) {
  extern __shared__ __align__(1024) float memory[];
  float *tile = memory, *turned = memory + TILE * TILE;
  const uint32_t bar = (uint32_t)__cvta_generic_to_shared(memory + 2 * TILE * TILE);
  const uint32_t tile_at = (uint32_t)__cvta_generic_to_shared(tile), turned_at = (uint32_t)__cvta_generic_to_shared(turned);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int y = blockIdx.x * TILE;
  for (int x = 0, phase = 0; x < columns; x += TILE, phase ^= 1) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(TILE * TILE * 4) : "memory");
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(tile_at),
          "l"(&in), "r"(x), "r"(y), "r"(bar) : "memory");
    }
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(bar),
        "r"(phase) : "memory");
    for (int i = threadIdx.x; i < TILE * TILE; i += 256)
      turned[swizzled(i / TILE, i % TILE)] = tile[swizzled(i % TILE, i / TILE)];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(y), "r"(x),
                   "r"(turned_at) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
