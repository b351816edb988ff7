#include "formats.hpp"

#include <math.h>

namespace tg_ptx {

namespace {

double rounded(double x, Round round) {
  // x is not negative; the caller has turned `down` and `up` into `zero` and away from zero (`up`).
  const double low = floor(x), rest = x - low;
  switch (round) {
    case Round::nearest_even:
      return rest > 0.5 || (rest == 0.5 && fmod(low, 2) != 0) ? low + 1 : low;
    case Round::nearest_away:
      return rest >= 0.5 ? low + 1 : low;
    case Round::up:
      return rest > 0 ? low + 1 : low;
    default:
      return low;
  }
}

}  // namespace

uint32_t encode(double x, Format format, Round round, bool saturate, bool relu) {
  const int bias = (1 << (format.exponent - 1)) - 1, mantissa = format.mantissa;
  const uint32_t magnitudes = 1u << (format.exponent + mantissa), sign_bit = magnitudes;
  const uint32_t infinity = ((1u << format.exponent) - 1) << mantissa;
  const uint32_t largest = format.infinity ? infinity - 1 : magnitudes - 2;
  if (x != x) return magnitudes - 1;
  const bool negative = signbit(x);
  if (negative && relu) return 0;
  const uint32_t sign = negative ? sign_bit : 0;
  if (round == Round::down || round == Round::up)
    round = (round == Round::up) != negative ? Round::up : Round::zero;
  const double size = fabs(x);
  const uint32_t overflow = saturate || (round == Round::zero && !isinf(size)) ? largest
                            : format.infinity                                 ? infinity
                                                                              : magnitudes - 1;
  if (isinf(size)) return sign | overflow;
  if (size == 0) return sign;
  int exponent;
  frexp(size, &exponent);  // size = f * 2^exponent with f in [0.5, 1)
  exponent -= 1;
  const int least = 1 - bias;
  if (exponent < least) exponent = least;
  // In units of the last place: below 2^mantissa it is subnormal, at 2^(mantissa+1) it carries.
  const double units = rounded(ldexp(size, mantissa - exponent), round);
  // Wide enough for a carry out of the largest exponent.
  const uint64_t code = uint64_t(exponent - least) * (uint64_t(1) << mantissa) + uint64_t(units);
  return sign | (code > largest ? overflow : uint32_t(code));
}

#define TG_E4M3_ROW(sign, scale)                                                           \
  sign 8 * scale, sign 9 * scale, sign 10 * scale, sign 11 * scale, sign 12 * scale,       \
      sign 13 * scale, sign 14 * scale, sign 15 * scale
#define TG_E4M3_HALF(sign)                                                                  \
  sign 0.f, sign 0x1p-9f, sign 0x1p-8f, sign 0x1.8p-8f, sign 0x1p-7f, sign 0x1.4p-7f,       \
      sign 0x1.8p-7f, sign 0x1.cp-7f, TG_E4M3_ROW(sign, 0x1p-9f),                           \
      TG_E4M3_ROW(sign, 0x1p-8f), TG_E4M3_ROW(sign, 0x1p-7f), TG_E4M3_ROW(sign, 0x1p-6f),   \
      TG_E4M3_ROW(sign, 0x1p-5f), TG_E4M3_ROW(sign, 0x1p-4f), TG_E4M3_ROW(sign, 0x1p-3f),   \
      TG_E4M3_ROW(sign, 0x1p-2f), TG_E4M3_ROW(sign, 0x1p-1f), TG_E4M3_ROW(sign, 1.f),       \
      TG_E4M3_ROW(sign, 2.f), TG_E4M3_ROW(sign, 4.f), TG_E4M3_ROW(sign, 8.f),               \
      TG_E4M3_ROW(sign, 16.f), sign 256.f, sign 288.f, sign 320.f, sign 352.f, sign 384.f,  \
      sign 416.f, sign 448.f, NAN
const float table_e4m3[256] = {TG_E4M3_HALF(+), TG_E4M3_HALF(-)};

#define TG_E5M2_ROW(sign, scale) sign 4 * scale, sign 5 * scale, sign 6 * scale, sign 7 * scale
#define TG_E5M2_HALF(sign)                                                                  \
  sign 0.f, sign 0x1p-16f, sign 0x1p-15f, sign 0x1.8p-15f, TG_E5M2_ROW(sign, 0x1p-16f),     \
      TG_E5M2_ROW(sign, 0x1p-15f), TG_E5M2_ROW(sign, 0x1p-14f), TG_E5M2_ROW(sign, 0x1p-13f), \
      TG_E5M2_ROW(sign, 0x1p-12f), TG_E5M2_ROW(sign, 0x1p-11f), TG_E5M2_ROW(sign, 0x1p-10f), \
      TG_E5M2_ROW(sign, 0x1p-9f), TG_E5M2_ROW(sign, 0x1p-8f), TG_E5M2_ROW(sign, 0x1p-7f),   \
      TG_E5M2_ROW(sign, 0x1p-6f), TG_E5M2_ROW(sign, 0x1p-5f), TG_E5M2_ROW(sign, 0x1p-4f),   \
      TG_E5M2_ROW(sign, 0x1p-3f), TG_E5M2_ROW(sign, 0x1p-2f), TG_E5M2_ROW(sign, 0x1p-1f),   \
      TG_E5M2_ROW(sign, 1.f), TG_E5M2_ROW(sign, 2.f), TG_E5M2_ROW(sign, 4.f),               \
      TG_E5M2_ROW(sign, 8.f), TG_E5M2_ROW(sign, 16.f), TG_E5M2_ROW(sign, 32.f),             \
      TG_E5M2_ROW(sign, 64.f), TG_E5M2_ROW(sign, 128.f), TG_E5M2_ROW(sign, 256.f),          \
      TG_E5M2_ROW(sign, 512.f), TG_E5M2_ROW(sign, 1024.f), TG_E5M2_ROW(sign, 2048.f),       \
      TG_E5M2_ROW(sign, 4096.f), TG_E5M2_ROW(sign, 8192.f), sign INFINITY, NAN, NAN, NAN
const float table_e5m2[256] = {TG_E5M2_HALF(+), TG_E5M2_HALF(-)};

}  // namespace tg_ptx
