// A product and the sum that takes it are rounded one by one on every machine.
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif
#include "matrix.hpp"

#include "memory.hpp"

namespace tg_ptx {

namespace {

// A row of sums at a time, in one register: compilers leave the plain loops as they are.
template <int n, class T>
void in_k_order(int m, int k, const T* a, const T* b, T* d) {
  typedef T Row __attribute__((vector_size(n * sizeof(T))));
  for (int i = 0; i < m; i++) {
    Row sums, row;
    memcpy(&sums, d + i * n, sizeof sums);
    for (int x = 0; x < k; x++) {
      memcpy(&row, b + x * n, sizeof row);
      sums += a[i * k + x] * row;
    }
    memcpy(d + i * n, &sums, sizeof sums);
  }
}
template <class T>
void in_k_order(const MatrixOp& op, const T* a, const T* b, T* d) {
  if (op.n == 8) return in_k_order<8>(op.m, op.k, a, b, d);
  for (int i = 0; i < op.m; i++)
    for (int x = 0; x < op.k; x++)
      for (int j = 0; j < op.n; j++) d[i * op.n + j] += a[i * op.k + x] * b[x * op.n + j];
}
void f32_in_k_order(const MatrixOp& op, const float* a, const float* b, float* d) {
  in_k_order<float>(op, a, b, d);
  for (int i = 0; i < op.m * op.n; i++)
    if (d[i] != d[i]) d[i] = bit_cast<float>(0x7fffffffu);
}
// Integers wrap, so the order does not matter; .satfinite clamps the exact sum once.
void exact_s32(const MatrixOp& op, const int32_t* a, const int32_t* b, int32_t* d) {
  if (!op.saturate) {
    using U = uint32_t;
    return in_k_order<U>(op, reinterpret_cast<const U*>(a), reinterpret_cast<const U*>(b),
                         reinterpret_cast<U*>(d));
  }
  for (int i = 0; i < op.m; i++)
    for (int j = 0; j < op.n; j++) {
      int64_t sum = d[i * op.n + j];
      for (int x = 0; x < op.k; x++) sum += a[i * op.k + x] * b[x * op.n + j];
      d[i * op.n + j] = int32_t(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
    }
}

template <class T>
constexpr const char* name_of = "";
template <> constexpr const char* name_of<f16> = "f16";
template <> constexpr const char* name_of<bf16> = "bf16";
template <> constexpr const char* name_of<tf32> = "tf32";
template <> constexpr const char* name_of<e4m3> = "e4m3";
template <> constexpr const char* name_of<e5m2> = "e5m2";
template <> constexpr const char* name_of<s8> = "s8";
template <> constexpr const char* name_of<u8> = "u8";
template <> constexpr const char* name_of<s32> = "s32";
template <> constexpr const char* name_of<f32> = "f32";
template <> constexpr const char* name_of<f64> = "f64";

void apply(const MatrixOp& op, const float* a, const float* b, float* d) { matrix_arithmetic().f32(op, a, b, d); }
void apply(const MatrixOp& op, const double* a, const double* b, double* d) { matrix_arithmetic().f64(op, a, b, d); }
void apply(const MatrixOp& op, const int32_t* a, const int32_t* b, int32_t* d) { matrix_arithmetic().s32(op, a, b, d); }

// These instructions are undefined unless all 32 lanes take part.
void need_whole_warp(const tg::Collective& warp, const char* what) {
  for (int lane = 0; lane < 32; lane++)
    if (!warp.args[lane])
      tg::fail("divergent-collective", warp.line, "%s by a warp without lane %d", what, lane);
}

template <class T>
typename T::Raw element(const void* registers, int i) {
  typename T::Raw out;
  memcpy(&out, static_cast<const char*>(registers) + i * sizeof out, sizeof out);
  return out;
}

}  // namespace

const MatrixArithmetic matrix_arithmetics[] = {
    {f32_in_k_order, fma_f64, exact_s32},
    {tensor_core_f32, fma_f64, exact_s32},
};

namespace {

// Where the elements of all lanes lie in row-major matrices, lane by lane.
template <class Shape, int k, int packed>
struct Places {
  static constexpr int m = Shape::m, n = Shape::n;
  uint16_t a[m * k]{}, b[k * n]{}, c[m * n]{};
  constexpr Places() {
    for (int lane = 0; lane < 32; lane++) {
      for (int i = 0; i < m * k / 32; i++) {
        const Place at = Shape::a(lane, i, packed);
        a[lane * (m * k / 32) + i] = uint16_t(at.row * k + at.col);
      }
      for (int i = 0; i < k * n / 32; i++) {
        const Place at = Shape::b(lane, i, packed);
        b[lane * (k * n / 32) + i] = uint16_t(at.row * n + at.col);
      }
      for (int i = 0; i < m * n / 32; i++) {
        const Place at = Shape::c(lane, i);
        c[lane * (m * n / 32) + i] = uint16_t(at.row * n + at.col);
      }
    }
  }
};
template <class Shape, int k, int packed>
constexpr Places<Shape, k, packed> places{};

}  // namespace

template <class Shape, int k, class D, class A, class B>
void mma_compute(tg::Collective& warp) {
  using Sum = typename D::Native;
  constexpr int m = Shape::m, n = Shape::n, packed = bits_of<A> >= 32 ? 1 : 32 / bits_of<A>;
  constexpr const auto& at = places<Shape, k, packed>;
  constexpr int of_a = m * k / 32, of_b = k * n / 32, of_c = m * n / 32;
  Sum a[m * k], b[k * n], d[m * n];
  need_whole_warp(warp, "mma.sync");
  for (int lane = 0; lane < 32; lane++) {
    const MmaArgs& args = *static_cast<MmaArgs*>(warp.args[lane]);
    for (int i = 0; i < of_a; i++)
      a[at.a[lane * of_a + i]] = Sum(value<A>(element<A>(args.a, i)));
    for (int i = 0; i < of_b; i++)
      b[at.b[lane * of_b + i]] = Sum(value<B>(element<B>(args.b, i)));
    for (int i = 0; i < of_c; i++) d[at.c[lane * of_c + i]] = value<D>(element<D>(args.c, i));
  }
  const bool saturate = static_cast<MmaArgs*>(warp.args[0])->saturate;
  apply(MatrixOp{m, n, k, name_of<D>, name_of<A>, name_of<B>, name_of<D>, saturate, false}, a, b, d);
  for (int lane = 0; lane < 32; lane++) {
    const MmaArgs& args = *static_cast<MmaArgs*>(warp.args[lane]);
    for (int i = 0; i < of_c; i++) {
      const typename D::Raw bits = raw<D>(d[at.c[lane * of_c + i]]);
      memcpy(static_cast<char*>(args.d) + i * sizeof bits, &bits, sizeof bits);
    }
  }
}

#define TG_PTX_MMA(Shape, k, D, A, B) template void mma_compute<Shape, k, D, A, B>(tg::Collective&);
TG_PTX_MMA(Shape16, 8, f32, f16, f16)
TG_PTX_MMA(Shape16, 8, f16, f16, f16)
TG_PTX_MMA(Shape16, 8, f32, bf16, bf16)
TG_PTX_MMA(Shape16, 16, f32, f16, f16)
TG_PTX_MMA(Shape16, 16, f16, f16, f16)
TG_PTX_MMA(Shape16, 16, f32, bf16, bf16)
TG_PTX_MMA(Shape16, 4, f32, tf32, tf32)
TG_PTX_MMA(Shape16, 8, f32, tf32, tf32)
TG_PTX_MMA(Shape16, 32, f32, e4m3, e4m3)
TG_PTX_MMA(Shape16, 32, f32, e4m3, e5m2)
TG_PTX_MMA(Shape16, 32, f32, e5m2, e4m3)
TG_PTX_MMA(Shape16, 32, f32, e5m2, e5m2)
TG_PTX_MMA(Shape16, 16, f32, e4m3, e4m3)
TG_PTX_MMA(Shape16, 16, f32, e4m3, e5m2)
TG_PTX_MMA(Shape16, 16, f32, e5m2, e4m3)
TG_PTX_MMA(Shape16, 16, f32, e5m2, e5m2)
TG_PTX_MMA(Shape16, 32, f16, e4m3, e4m3)
TG_PTX_MMA(Shape16, 32, f16, e4m3, e5m2)
TG_PTX_MMA(Shape16, 32, f16, e5m2, e4m3)
TG_PTX_MMA(Shape16, 32, f16, e5m2, e5m2)
#define TG_PTX_MMA_INT(Shape, k)   \
  TG_PTX_MMA(Shape, k, s32, s8, s8) \
  TG_PTX_MMA(Shape, k, s32, s8, u8) \
  TG_PTX_MMA(Shape, k, s32, u8, s8) \
  TG_PTX_MMA(Shape, k, s32, u8, u8)
TG_PTX_MMA_INT(Shape8, 16)
TG_PTX_MMA_INT(Shape16, 16)
TG_PTX_MMA_INT(Shape16, 32)
TG_PTX_MMA(Shape8, 4, f64, f64, f64)
TG_PTX_MMA(Shape16, 4, f64, f64, f64)
TG_PTX_MMA(Shape16, 8, f64, f64, f64)
TG_PTX_MMA(Shape16, 16, f64, f64, f64)

// ---- ldmatrix, stmatrix, movmatrix -------------------------------------------------------------

namespace {

struct MoveArgs {
  uint32_t* registers;
  uint32_t address;
  int count;
  bool transposed;
};

// Lane l holds elements (l/4, 2*(l%4)) and the next one, in the low and the high half.
void to_registers(const uint16_t (&matrix)[8][8], bool transposed, int lane, uint32_t* out) {
  const int row = lane >> 2, col = 2 * (lane & 3);
  const uint32_t low = transposed ? matrix[col][row] : matrix[row][col];
  const uint32_t high = transposed ? matrix[col + 1][row] : matrix[row][col + 1];
  *out = low | high << 16;
}
void from_registers(uint16_t (&matrix)[8][8], bool transposed, int lane, uint32_t in) {
  const int row = lane >> 2, col = 2 * (lane & 3);
  (transposed ? matrix[col][row] : matrix[row][col]) = uint16_t(in);
  (transposed ? matrix[col + 1][row] : matrix[row][col + 1]) = uint16_t(in >> 16);
}

// Rows of matrix j between shared memory and `matrix`, each on behalf of the lane that gave its address.
void move_rows(tg::Collective& warp, int j, uint16_t (&matrix)[8][8], bool store) {
  uint32_t addresses[8];
  tg::Thread* before = tg::current;
  for (int row = 0; row < 8; row++) {
    const int lane = 8 * j + row;
    const MoveArgs& args = *static_cast<MoveArgs*>(warp.args[lane]);
    const char* what = store ? "stmatrix" : "ldmatrix";
    tg::act_as(warp.threads[lane]);
    addresses[row] = args.address;
    void* at = tg::shared_access(args.address, 16, 16, store ? tg::Access::write : tg::Access::read,
                                 what, warp.line);
    if (store) {
      tg::note_write(at, 16, warp.line);
      memcpy(at, matrix[row], 16);
    } else {
      tg::note_read(at, 16, warp.line);
      memcpy(matrix[row], at, 16);
    }
  }
  tg::act_as(before);
  if (tg::launch.banks) tg::bank_access(addresses, 8, 16, store, j == 0, warp.line);
}

void load_matrices(tg::Collective& warp) {
  need_whole_warp(warp, "ldmatrix");
  const MoveArgs& first = *static_cast<MoveArgs*>(warp.args[0]);
  for (int j = 0; j < first.count; j++) {
    uint16_t matrix[8][8];
    move_rows(warp, j, matrix, false);
    for (int lane = 0; lane < 32; lane++)
      to_registers(matrix, first.transposed, lane,
                   &static_cast<MoveArgs*>(warp.args[lane])->registers[j]);
  }
}
void store_matrices(tg::Collective& warp) {
  need_whole_warp(warp, "stmatrix");
  const MoveArgs& first = *static_cast<MoveArgs*>(warp.args[0]);
  for (int j = 0; j < first.count; j++) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < 32; lane++)
      from_registers(matrix, first.transposed, lane,
                     static_cast<MoveArgs*>(warp.args[lane])->registers[j]);
    move_rows(warp, j, matrix, true);
  }
}
void transpose_matrix(tg::Collective& warp) {
  uint16_t matrix[8][8];
  need_whole_warp(warp, "movmatrix");
  for (int lane = 0; lane < 32; lane++)
    from_registers(matrix, false, lane, *static_cast<uint32_t*>(warp.args[lane]));
  for (int lane = 0; lane < 32; lane++)
    to_registers(matrix, true, lane, static_cast<uint32_t*>(warp.args[lane]));
}

}  // namespace

void ldmatrix(uint32_t* d, int count, bool transposed, uint64_t address, int line) {
  MoveArgs args{d, shared32(address, line), count, transposed};
  tg::warp_collective("ldmatrix", ~0ull, &args, load_matrices, tg::Aligned::warp, line);
}

void stmatrix(const uint32_t* a, int count, bool transposed, uint64_t address, int line) {
  MoveArgs args{const_cast<uint32_t*>(a), shared32(address, line), count, transposed};
  tg::warp_collective("stmatrix", ~0ull, &args, store_matrices, tg::Aligned::warp, line);
}

uint32_t movmatrix(uint32_t a, int line) {
  tg::warp_collective("movmatrix", ~0ull, &a, transpose_matrix, tg::Aligned::warp, line);
  return a;
}

}  // namespace tg_ptx
