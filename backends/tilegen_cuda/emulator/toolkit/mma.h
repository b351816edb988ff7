// The emulator's mma.h: nvcuda::wmma, section "Warp Matrix Functions" of the CUDA C++ Programming Guide.
//
// Which lane holds which element of a fragment is unspecified there, so any map will do: element e of
// lane l is number e * 32 + l of the tile, counted along rows; A and B of 16-bit types are held twice.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}

template <class Layout>
struct tg_by_rows;
template <>
struct tg_by_rows<row_major> { enum { value = 1 }; };
template <>
struct tg_by_rows<col_major> { enum { value = 0 }; };

template <class Use, int M, int N, int K>
struct tg_tile;
template <int M, int N, int K>
struct tg_tile<matrix_a, M, N, K> { enum { rows = M, columns = K }; };
template <int M, int N, int K>
struct tg_tile<matrix_b, M, N, K> { enum { rows = K, columns = N }; };
template <int M, int N, int K>
struct tg_tile<accumulator, M, N, K> { enum { rows = M, columns = N }; };

template <class T>
struct tg_storage { using type = T; };
template <>
struct tg_storage<precision::tf32> { using type = float; };

template <class Use, class T>
struct tg_copies { enum { count = sizeof(T) == 2 ? 2 : 1 }; };
template <class T>
struct tg_copies<accumulator, T> { enum { count = 1 }; };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  using element_type = typename tg_storage<T>::type;
  enum {
    rows = tg_tile<Use, M, N, K>::rows,
    columns = tg_tile<Use, M, N, K>::columns,
    num_elements = rows * columns / 32 * tg_copies<Use, element_type>::count,
  };
  element_type x[num_elements];
};

TG_DEVICE float __float_to_tf32(float v) {
  return tg_bits<float>((tg_bits<unsigned>(v) + 0x1000u) & 0xffffe000u);
}

template <class F, class T>
TG_DEVICE void fill_fragment(F& f, const T& value) {
  for (auto& x : f.x) x = typename F::element_type(value);
}

// A collective that does nothing but check that the warp is together.
TG_DEVICE void tg_together(tg::Collective&) {}

template <class F, class T>
TG_DEVICE void tg_load(F& f, const T* p, unsigned stride, bool by_rows, int line) {
  tg::warp_collective("wmma::load_matrix_sync", ~0u, &f, tg_together, tg::Aligned::warp, line);
  if (reinterpret_cast<size_t>(p) % 32 || stride * sizeof(T) % 16)
    tg::fail("misaligned", line, "load_matrix_sync: the pointer must be a multiple of 32 bytes and "
             "the stride of 16 bytes");
  for (unsigned e = 0; e < F::num_elements; e++) {
    unsigned number = (e * 32 + tg::current->lane) % unsigned(F::rows * F::columns);
    unsigned row = number / F::columns, column = number % F::columns;
    const T* at = p + (by_rows ? size_t(row) * stride + column : size_t(column) * stride + row);
    tg::global_access(at, sizeof(T), sizeof(T), tg::Access::read, "load_matrix_sync", line);
    tg::note_read(at, sizeof(T), line);
    f.x[e] = *at;
  }
}
template <class Use, int M, int N, int K, class T, class Layout, class E>
TG_DEVICE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const E* p, unsigned stride,
                                TG_LINE) {
  tg_load(f, p, stride, tg_by_rows<Layout>::value, line);
}
template <int M, int N, int K, class T, class E>
TG_DEVICE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const E* p, unsigned stride,
                                layout_t layout, TG_LINE) {
  tg_load(f, p, stride, layout == mem_row_major, line);
}

template <int M, int N, int K, class T>
TG_DEVICE void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, unsigned stride,
                                 layout_t layout, TG_LINE) {
  tg::warp_collective("wmma::store_matrix_sync", ~0u, nullptr, tg_together, tg::Aligned::warp, line);
  if (reinterpret_cast<size_t>(p) % 32 || stride * sizeof(T) % 16)
    tg::fail("misaligned", line, "store_matrix_sync: the pointer must be a multiple of 32 bytes and "
             "the stride of 16 bytes");
  for (unsigned e = 0; e < unsigned(f.num_elements); e++) {
    unsigned number = e * 32 + tg::current->lane, row = number / N, column = number % N;
    T* at = p + (layout == mem_row_major ? size_t(row) * stride + column
                                         : size_t(column) * stride + row);
    tg::global_access(at, sizeof(T), sizeof(T), tg::Access::write, "store_matrix_sync", line);
    tg::note_write(at, sizeof(T), line);
    *at = f.x[e];
  }
}

template <class D, class A, class B, class C>
struct tg_product {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class F>
TG_DEVICE float tg_number(const F& f, unsigned e) { return float(f.x[e]); }

template <int M, int N, int K, class D, class A, class B, class C>
TG_DEVICE void tg_multiply(tg::Collective& all) {
  using Product = tg_product<D, A, B, C>;
  static float a[M][K], b[K][N];
  for (unsigned lane = 0; lane < 32; lane++) {
    const Product& one = *static_cast<Product*>(all.args[lane]);
    for (unsigned e = 0; e < M * K / 32; e++)
      a[(e * 32 + lane) / K][(e * 32 + lane) % K] = tg_number(*one.a, e);
    for (unsigned e = 0; e < K * N / 32; e++)
      b[(e * 32 + lane) / N][(e * 32 + lane) % N] = tg_number(*one.b, e);
  }
  for (unsigned lane = 0; lane < 32; lane++) {
    const Product& one = *static_cast<Product*>(all.args[lane]);
    for (unsigned e = 0; e < M * N / 32; e++) {
      unsigned row = (e * 32 + lane) / N, column = (e * 32 + lane) % N;
      float sum = float(one.c->x[e]);
      for (int k = 0; k < K; k++) sum += a[row][k] * b[k][column];
      one.d->x[e] = typename D::element_type(sum);
    }
  }
}
template <int M, int N, int K, class TD, class TA, class LA, class TB, class LB, class TC>
TG_DEVICE void mma_sync(fragment<accumulator, M, N, K, TD>& d,
                        const fragment<matrix_a, M, N, K, TA, LA>& a,
                        const fragment<matrix_b, M, N, K, TB, LB>& b,
                        const fragment<accumulator, M, N, K, TC>& c, TG_LINE) {
  using D = fragment<accumulator, M, N, K, TD>;
  using A = fragment<matrix_a, M, N, K, TA, LA>;
  using B = fragment<matrix_b, M, N, K, TB, LB>;
  using C = fragment<accumulator, M, N, K, TC>;
  tg_product<D, A, B, C> mine = {&d, &a, &b, &c};
  tg::warp_collective("wmma::mma_sync", ~0u, &mine, tg_multiply<M, N, K, D, A, B, C>,
                      tg::Aligned::warp, line);
}

}  // namespace wmma
}  // namespace nvcuda
