// CUDA C++ for a host compiler: what a kernel text takes for granted. Included before the text.
// Written from the CUDA C++ Programming Guide, chapters "C++ Language Extensions" and "Mathematical
// Functions", and the CUDA Math API.
#pragma once
#include "tg_runtime.hpp"

#define __CUDACC__ 1
#if !defined(__CUDA_ARCH__)
#define __CUDA_ARCH__ 900
#endif

// ---- qualifiers --------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__
#define __forceinline__ inline
#define __inline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __maxnreg__(n)
#define __grid_constant__
#define __cluster_dims__(...)
// Legal both for function-local arrays, which become static by it, and for `extern __shared__ T x[]`.
#if defined(__clang__)
#define __shared__ __attribute__((require_constant_initialization)) thread_local
#else
#define __shared__ thread_local
#endif

#define TG_LINE int line = __builtin_LINE()
#define TG_DEVICE TG_UNTRACED static inline

#include "tg_cuda_vectors.hpp"

// ---- indices -----------------------------------------------------------------------------------

// Constant for as long as a thread lives, whatever it calls in between: the compiler may keep them.
#define TG_INDEX(name, from)                                                        \
  __attribute__((const)) TG_DEVICE unsigned tg_##name##_x() { return (from).x; }    \
  __attribute__((const)) TG_DEVICE unsigned tg_##name##_y() { return (from).y; }    \
  __attribute__((const)) TG_DEVICE unsigned tg_##name##_z() { return (from).z; }
TG_INDEX(thread, tg::current->index)
TG_INDEX(block, tg::block_index)
TG_INDEX(block_size, tg::launch.block)
TG_INDEX(grid_size, tg::launch.grid)
#define threadIdx (uint3{tg_thread_x(), tg_thread_y(), tg_thread_z()})
#define blockIdx (uint3{tg_block_x(), tg_block_y(), tg_block_z()})
#define blockDim (dim3(tg_block_size_x(), tg_block_size_y(), tg_block_size_z()))
#define gridDim (dim3(tg_grid_size_x(), tg_grid_size_y(), tg_grid_size_z()))
#define warpSize 32

// ---- synchronisation ---------------------------------------------------------------------------

TG_DEVICE void __syncthreads(TG_LINE) {
  tg::barrier(0, tg::all_threads, tg::Aligned::block, line);
}
TG_DEVICE int __syncthreads_count(int predicate, TG_LINE) {
  return tg::barrier_reduce(0, tg::all_threads, tg::Reduction::count, predicate != 0,
                            tg::Aligned::block, line);
}
TG_DEVICE int __syncthreads_and(int predicate, TG_LINE) {
  return tg::barrier_reduce(0, tg::all_threads, tg::Reduction::all, predicate != 0,
                            tg::Aligned::block, line);
}
TG_DEVICE int __syncthreads_or(int predicate, TG_LINE) {
  return tg::barrier_reduce(0, tg::all_threads, tg::Reduction::any, predicate != 0,
                            tg::Aligned::block, line);
}
TG_DEVICE void __syncwarp(unsigned mask = 0xffffffffu, TG_LINE) { tg::sync_warp(mask, line); }
TG_DEVICE void __threadfence() { tg::memory_fence(); }
TG_DEVICE void __threadfence_block() { tg::memory_fence(); }
TG_DEVICE void __threadfence_system() { tg::memory_fence(); }
TG_DEVICE void __nanosleep(unsigned, TG_LINE) { tg::polled("__nanosleep", line); }
[[noreturn]] TG_DEVICE void __trap(TG_LINE) { tg::fail("trap", line, "the kernel called __trap()"); }
TG_DEVICE void tg_assert(bool holds, const char* what, int line) {
  if (!holds) tg::fail("assert", line, "assertion failed: %s", what);
}
#define assert(...) tg_assert(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)

// ---- memory ------------------------------------------------------------------------------------

TG_DEVICE size_t __cvta_generic_to_shared(const void* p, TG_LINE) {
  return tg::shared_address(p, line);
}
TG_DEVICE void* __cvta_shared_to_generic(size_t address) {
  return tg::shared_pointer(uint32_t(address));
}
TG_DEVICE size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
TG_DEVICE bool __isShared(const void* p) { return tg::is_shared(p); }
TG_DEVICE bool __isGlobal(const void* p) { return !tg::is_shared(p); }
// These stay in the text's own functions, so that the race mode sees the access.
template <class T>
static inline T __ldg(const T* p) { return *p; }
template <class T>
static inline T __ldcg(const T* p) { return *p; }
template <class T>
static inline T __ldca(const T* p) { return *p; }
template <class T>
static inline T __ldcs(const T* p) { return *p; }
template <class T>
static inline T __ldlu(const T* p) { return *p; }
template <class T>
static inline void __stcg(T* p, T value) { *p = value; }
template <class T>
static inline void __stcs(T* p, T value) { *p = value; }
template <class T>
static inline void __stwb(T* p, T value) { *p = value; }

extern "C" int printf(const char*, ...);
#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)
#endif

#include "tg_cuda_math.hpp"

#include "tg_cuda_atomics.hpp"

#include "tg_cuda_warp.hpp"
