// Warpgroup matrix instructions (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
#pragma once
#include "tg_runtime.hpp"
#include "types.hpp"

namespace tg_ptx {

enum class Element : uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8 };
enum class Sum : uint8_t { f32, f16, s32 };

struct WgmmaOp {
  int n;
  Sum d;
  Element a, b;
  bool negate_a, negate_b;
  bool transpose_a, transpose_b;  // the operand in shared memory is M- or N-major
  bool saturate;
};

// Issues D = A * B + D, or A * B without `scale_d`. `d` holds the addresses of this thread's registers
// of D, which hold poison until the group is waited for. A comes from registers if `registers` is not
// null, else from shared memory by its descriptor.
void wgmma(const WgmmaOp& op, void* const* d, const uint32_t* registers, uint64_t a, uint64_t b,
           bool scale_d, int line);
void wgmma_fence(int line);
void wgmma_commit_group(int line);
void wgmma_wait_group(uint32_t n, int line);

// Shared address of element (mn, k) of an operand (PTX ISA, "Shared Memory Matrix Layout", "Strides",
// "Matrix Descriptor Format"). Bits 0-13 start, 16-29 leading byte offset, 32-45 stride byte offset, all
// in 16 bytes; 49-51 base offset; 62-63 swizzle: 0 none, 1 128B, 2 64B, 3 32B.
uint32_t wgmma_address(uint64_t descriptor, int element_bytes, bool mn_major, int mn, int k);

}  // namespace tg_ptx
