// The float arithmetic of Hopper's tensor cores, bit for bit (docs/matrix-arithmetic.md): a block of
// products and the accumulator are aligned to the largest exponent among them, cut off some bits below
// it, summed exactly and rounded once.
#include <math.h>

#include "matrix.hpp"

namespace tg_ptx {

namespace {

// How one instruction sums.
struct Summation {
  int block;     // products that are summed at once
  int fraction;  // bits kept below the largest exponent
  int mantissa;  // bits of D's mantissa that are not cut off; 10: f16, rounded to nearest even
  int least_a, least_b, least_c;  // exponents of the smallest normal numbers
};

bool is(const char* name, const char* other) { return !strcmp(name, other); }

int least_exponent(const char* type) {
  return is(type, "f16") || is(type, "e5m2") ? -14 : is(type, "e4m3") ? -6 : -126;
}
int bytes_of(const char* type) { return is(type, "tf32") ? 4 : is(type, "f16") || is(type, "bf16") ? 2 : 1; }

Summation summation_of(const MatrixOp& op) {
  const int bytes = bytes_of(op.a);
  const bool half = is(op.d, "f16"), eight_bit = bytes == 1 && op.warpgroup;
  return {32 / bytes, eight_bit ? 13 : 25, half ? 10 : eight_bit ? 13 : 23,
          least_exponent(op.a), least_exponent(op.b), least_exponent(op.d)};
}

// A finite number as significand * 2^(exponent - 23); subnormal numbers keep the smallest exponent.
struct Number {
  int64_t significand;
  int exponent;
};
Number taken_apart(float x, int least) {
  const uint32_t bits = bit_cast<uint32_t>(x), mantissa = bits & 0x7fffffu;
  int exponent = int(bits >> 23 & 0xff);
  int64_t significand = exponent ? mantissa | 0x800000u : mantissa;
  exponent = exponent ? exponent - 127 : -126;
  if (exponent < least) significand >>= least - exponent, exponent = least;
  return {bits >> 31 ? -significand : significand, exponent};
}

// Toward zero, of either sign.
int64_t cut(int64_t x, int right) {
  if (right <= 0) return x * (int64_t(1) << -right);
  if (right > 62) return 0;
  return x < 0 ? -(-x >> right) : x >> right;
}

float rounded(int64_t sum, int exponent, const Summation& how) {
  const double exact = ldexp(double(sum), exponent);
  if (how.mantissa == 10) return f16_to_f32(uint16_t(encode(exact, format_f16, Round::nearest_even, false, false)));
  if (fabs(exact) >= 0x1p128) return exact < 0 ? -INFINITY : INFINITY;
  const Format kept{8, how.mantissa, true};
  return bit_cast<float>(encode(exact, kept, Round::zero, false, false) << (23 - how.mantissa));
}

constexpr int most = 32;  // products of a block

float sum_of_block(const Number* products, int count, float c, const Summation& how) {
  Number start = taken_apart(c, how.least_c);
  int largest = start.significand ? start.exponent : -1000;
  for (int i = 0; i < count; i++)
    if (products[i].significand && products[i].exponent > largest) largest = products[i].exponent;
  if (largest == -1000) return 0;
  int64_t sum = cut(start.significand, 23 - how.fraction + largest - start.exponent);
  for (int i = 0; i < count; i++)
    sum += cut(products[i].significand, 46 - how.fraction + largest - products[i].exponent);
  return rounded(sum, largest - how.fraction, how);
}

}  // namespace

void tensor_core_f32(const MatrixOp& op, const float* a, const float* b, float* d) {
  const Summation how = summation_of(op);
  for (int i = 0; i < op.m; i++)
    for (int j = 0; j < op.n; j++) {
      float sum = d[i * op.n + j];
      for (int first = 0; first < op.k; first += how.block) {
        Number products[most];
        const int count = op.k - first < how.block ? op.k - first : how.block;
        float special = 0;
        for (int x = 0; x < count; x++) {
          const float p = a[i * op.k + first + x], q = b[(first + x) * op.n + j];
          if (!isfinite(p) || !isfinite(q)) special += p * q;
          const Number u = taken_apart(p, how.least_a), v = taken_apart(q, how.least_b);
          products[x] = {u.significand * v.significand, u.exponent + v.exponent};
        }
        if (special != 0 || !isfinite(sum)) sum += special;
        else sum = sum_of_block(products, count, sum, how);
      }
      d[i * op.n + j] = sum != sum ? bit_cast<float>(0x7fffffffu) : sum;
    }
}

void tensor_core_f64(const MatrixOp& op, const double* a, const double* b, double* d) {
  for (int i = 0; i < op.m; i++)
    for (int x = 0; x < op.k; x++)
      for (int j = 0; j < op.n; j++)
        d[i * op.n + j] = fma(a[i * op.k + x], b[x * op.n + j], d[i * op.n + j]);
}

}  // namespace tg_ptx
