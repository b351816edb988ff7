// Narrow floating-point formats: to f32 and back, with every rounding that PTX names.
#pragma once
#include <stdint.h>
#include <string.h>

namespace tg_ptx {

enum class Round {
  nearest_even,   // .rn
  nearest_away,   // .rna
  zero,           // .rz
  down,           // .rm
  up,             // .rp
};

// A binary format with `exponent` and `mantissa` bits. e4m3 has no infinity: its all-ones code is its
// only NaN (PTX ISA, "Alternate Floating-Point Data Formats").
struct Format {
  int exponent, mantissa;
  bool infinity;
};
constexpr Format format_f16{5, 10, true}, format_bf16{8, 7, true}, format_tf32{8, 10, true},
    format_e4m3{4, 3, false}, format_e5m2{5, 2, true}, format_f32{8, 23, true};

// The bits of `x` in a format. `saturate` (.satfinite): what would overflow, and an infinity, becomes
// the largest finite value. `relu`: negative values become +0. NaN becomes the canonical NaN.
uint32_t encode(double x, Format format, Round round, bool saturate, bool relu);

extern const float table_e4m3[256], table_e5m2[256];
inline float e4m3_to_f32(uint8_t raw) { return table_e4m3[raw]; }
inline float e5m2_to_f32(uint8_t raw) { return table_e5m2[raw]; }

inline float bf16_to_f32(uint16_t raw) {
  const uint32_t bits = uint32_t(raw) << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}
inline uint16_t f32_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

#if defined(__FLT16_MAX__)
inline float f16_to_f32(uint16_t raw) {
  _Float16 half;
  memcpy(&half, &raw, 2);
  return float(half);
}
inline uint16_t f32_to_f16(float x) {
  if (x != x) return 0x7fff;
  const _Float16 half = _Float16(x);
  uint16_t raw;
  memcpy(&raw, &half, 2);
  return raw;
}
#else
inline float f16_to_f32(uint16_t raw) {
  // The exponent is moved to f32's; a subnormal is normalised by a subtraction.
  uint32_t bits = uint32_t(raw & 0x7fffu) << 13, sign = uint32_t(raw & 0x8000u) << 16;
  float out;
  if (bits >= 0x0f800000u) bits += (255u - 31u) << 23;
  else if (bits >= 0x00800000u) bits += (127u - 15u) << 23;
  else {
    const uint32_t one = 113u << 23, shifted = bits + one;
    float a, b;
    memcpy(&a, &shifted, 4);
    memcpy(&b, &one, 4);
    a -= b;
    memcpy(&bits, &a, 4);
  }
  bits |= sign;
  memcpy(&out, &bits, 4);
  return out;
}
inline uint16_t f32_to_f16(float x) {
  return uint16_t(encode(x, format_f16, Round::nearest_even, false, false));
}
#endif

}  // namespace tg_ptx
