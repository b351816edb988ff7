// Bulk asynchronous copies and tensor maps (PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor",
// "Tensors"; CUDA driver API, cuTensorMapEncodeTiled).
#pragma once
#include "async.hpp"

namespace tg_ptx {

// What lies in the 128 bytes of a CUtensorMap here.
struct TensorMap {
  uint32_t magic;
  uint8_t element_bytes, rank, swizzle;  // swizzle as the driver's enum: 0 none, 1 32B, 2 64B, 3 128B
  uint8_t nan_fill;
  uint8_t* base;
  uint64_t dims[5];
  uint64_t strides[4];  // in bytes, of dimensions 1 and up
  uint16_t box[5];
};
static_assert(sizeof(TensorMap) <= 128, "a tensor map has 128 bytes");

// What cuTensorMapEncodeTiled checks and does; null, or what is wrong.
const char* encode_tensor_map(void* map, uint32_t element_bytes, uint32_t rank, void* base,
                              const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                              uint32_t swizzle, bool nan_fill);

// The XOR that a swizzle mode of 0, 32, 64 or 128 bytes applies to an absolute shared address.
constexpr uint32_t swizzled(uint32_t address, uint32_t bytes) {
  return address ^ ((address >> 3) & (bytes ? bytes - 16 : 0));
}

// `blocks` is the multicast mask; 1 without one.
void tensor_load(uint64_t to, uint64_t map, int rank, const int32_t* at, uint64_t barrier,
                 uint32_t blocks, int line);
void tensor_store(uint64_t map, int rank, const int32_t* at, uint64_t from, int line);
void bulk_load(uint64_t to, uint64_t from, uint32_t bytes, uint64_t barrier, uint32_t blocks, int line);
void bulk_store(uint64_t to, uint64_t from, uint32_t bytes, int line);
void bulk_commit_group();
// `read`: the sources have been read; else the stores are complete.
void bulk_wait_group(uint32_t n, bool read, int line);

}  // namespace tg_ptx
