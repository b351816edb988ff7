// Warp-level matrix instructions (PTX ISA, "Warp Level Matrix Instructions"): mma.sync, ldmatrix,
// stmatrix, movmatrix.
#pragma once
#include "tg_runtime.hpp"
#include "types.hpp"

namespace tg_ptx {

// ---- arithmetic --------------------------------------------------------------------------------

// Which instruction asks: shape and types, for a model that treats them differently.
struct MatrixOp {
  int m, n, k;
  const char *d, *a, *b, *c;  // PTX names of the element types
  bool saturate;              // .satfinite of integer instructions
  bool warpgroup;             // wgmma
};

// The arithmetic of matrix instructions, replaceable as a whole: D = A * B + D, in place, on dense
// row-major matrices of decoded values. Float results are rounded to D's type by the caller.
struct MatrixArithmetic {
  void (*f32)(const MatrixOp& op, const float* a, const float* b, float* d);
  void (*f64)(const MatrixOp& op, const double* a, const double* b, double* d);
  void (*s32)(const MatrixOp& op, const int32_t* a, const int32_t* b, int32_t* d);
};
// By the launch's `arithmetic`, as tilegen/emulator/job.py names them. The first: each product and each
// sum rounded to f32, k ascending. The second: the bits of Hopper's tensor cores. f64 by FMA in both.
extern const MatrixArithmetic matrix_arithmetics[];
inline const MatrixArithmetic& matrix_arithmetic() { return matrix_arithmetics[tg::launch.arithmetic]; }

void tensor_core_f32(const MatrixOp& op, const float* a, const float* b, float* d);
void fma_f64(const MatrixOp& op, const double* a, const double* b, double* d);

// ---- fragments ---------------------------------------------------------------------------------

struct Place {
  int row, col;
};

// Where element i of lane l's registers lies, in register order with the low bits first (PTX ISA,
// "Matrix Fragments for mma.m16n8k4 ... m16n8k32", "... mma.m8n8k4 with .f64"). `packed` is the number
// of elements in one register: 4 of 8 bits, 2 of 16, 1 of 32 or 64.
struct Shape16 {  // m16n8kK
  static constexpr int m = 16, n = 8;
  static constexpr Place a(int lane, int i, int packed) {
    const int group = lane >> 2, thread = lane & 3, reg = i / packed;
    return {group + 8 * (reg & 1), thread * packed + i % packed + 4 * packed * (reg >> 1)};
  }
  static constexpr Place b(int lane, int i, int packed) {
    const int group = lane >> 2, thread = lane & 3, reg = i / packed;
    return {thread * packed + i % packed + 4 * packed * reg, group};
  }
  static constexpr Place c(int lane, int i) {
    return {(lane >> 2) + 8 * (i >> 1), 2 * (lane & 3) + (i & 1)};
  }
};
struct Shape8 {  // m8n8kK
  static constexpr int m = 8, n = 8;
  static constexpr Place a(int lane, int i, int packed) {
    return {lane >> 2, (lane & 3) * packed + i};
  }
  static constexpr Place b(int lane, int i, int packed) {
    return {(lane & 3) * packed + i, lane >> 2};
  }
  static constexpr Place c(int lane, int i) { return {lane >> 2, 2 * (lane & 3) + i}; }
};

// ---- instructions ------------------------------------------------------------------------------

struct MmaArgs {
  void* d;
  const void *a, *b, *c;
  bool saturate;
};
// The warp's computation, one instance per instruction in matrix.cpp.
template <class Shape, int k, class D, class A, class B>
void mma_compute(tg::Collective& warp);

template <class Shape, int k, class D, class A, class B, class RegD, class Reg>
TG_UNTRACED inline void mma(RegD* d, const Reg* a, const Reg* b, const RegD* c, bool saturate,
                            int line) {
  MmaArgs args{d, a, b, c, saturate};
  tg::warp_collective("mma.sync", ~0ull, &args, mma_compute<Shape, k, D, A, B>, tg::Aligned::warp, line);
}

// 8x8 matrices of 16-bit elements; `count` of them, row i of matrix j at lane 8*j+i's address.
void ldmatrix(uint32_t* d, int count, bool transposed, uint64_t address, int line);
void stmatrix(const uint32_t* a, int count, bool transposed, uint64_t address, int line);
uint32_t movmatrix(uint32_t a, int line);

}  // namespace tg_ptx
