// The float arithmetic of Hopper's tensor cores, bit for bit (docs/matrix-arithmetic.md): a block of
// products and the accumulator are aligned to the largest exponent among them, cut off some bits below
// it, summed exactly and rounded once. f64 is one FMA after the other.
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
  // 8-bit mma.sync is a sequence: both operands to f16, an instruction for the lower and one for the
  // upper two of every four of k, from zero, and at last an ordinary addition of C.
  bool by_f16;
};
constexpr int most = 32;  // of k

bool is(const char* name, const char* other) { return !strcmp(name, other); }

int least_exponent(const char* type) {
  return is(type, "f16") || is(type, "e5m2") ? -14 : is(type, "e4m3") ? -6 : -126;
}
int bytes_of(const char* type) { return is(type, "tf32") ? 4 : is(type, "f16") || is(type, "bf16") ? 2 : 1; }

Summation summation_of(const MatrixOp& op) {
  const int bytes = bytes_of(op.a);
  const bool half = is(op.d, "f16"), eight_bit = bytes == 1 && op.warpgroup;
  if (bytes == 1 && !op.warpgroup)
    return {op.k / 2, 25, half ? 10 : 23, -14, -14, least_exponent(op.d), true};
  return {32 / bytes, eight_bit ? 13 : 25, half ? 10 : eight_bit ? 13 : 23,
          least_exponent(op.a), least_exponent(op.b), least_exponent(op.d), false};
}

// The place in k of the x-th product.
int place(int x, int k, const Summation& how) {
  if (!how.by_f16) return x;
  const int in_half = x % (k / 2);
  return in_half / 2 * 4 + in_half % 2 + (x < k / 2 ? 0 : 2);
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
      const float c = d[i * op.n + j];
      float sum = how.by_f16 ? 0 : c;
      for (int first = 0; first < op.k; first += how.block) {
        Number products[most];
        const int count = op.k - first < how.block ? op.k - first : how.block;
        float special = 0;
        for (int x = 0; x < count; x++) {
          const int at = place(first + x, op.k, how);
          const float p = a[i * op.k + at], q = b[at * op.n + j];
          if (!isfinite(p) || !isfinite(q)) special += p * q;
          const Number u = taken_apart(p, how.least_a), v = taken_apart(q, how.least_b);
          products[x] = {u.significand * v.significand, u.exponent + v.exponent};
        }
        if (special != 0 || !isfinite(sum)) sum += special;
        else sum = sum_of_block(products, count, sum, how);
      }
      if (how.by_f16) sum += c;
      d[i * op.n + j] = sum != sum ? bit_cast<float>(0x7fffffffu) : sum;
    }
}

void fma_f64(const MatrixOp& op, const double* a, const double* b, double* d) {
  for (int i = 0; i < op.m; i++)
    for (int x = 0; x < op.k; x++)
      for (int j = 0; j < op.n; j++) {
        double& sum = d[i * op.n + j];
        // A NaN stays what it is, whatever the host's FMA makes of two.
        if (sum == sum) sum = fma(a[i * op.k + x], b[x * op.n + j], sum);
      }
}

}  // namespace tg_ptx
