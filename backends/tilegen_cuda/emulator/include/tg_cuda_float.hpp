// Sixteen- and eight-bit floating point: conversions, and the types' common shape.
#pragma once

#if defined(__F16C__)
typedef float tg_floats4 __attribute__((vector_size(16)));
typedef short tg_shorts8 __attribute__((vector_size(16)));
#endif

// Round to nearest even into `E` bits of exponent and `M` of mantissa. `finite`: the format has no
// infinity, and its all-ones pattern alone is NaN (OCP e4m3); values beyond the largest saturate.
template <int E, int M, bool finite>
TG_DEVICE unsigned tg_encode(float x) {
  unsigned bits = tg_bits<unsigned>(x), sign = (bits >> 31) << (E + M);
  unsigned magnitude = bits & 0x7fffffffu;
  constexpr int bias = (1 << (E - 1)) - 1;
  constexpr unsigned all = ((1u << E) - 1) << M;
  if (magnitude > 0x7f800000u) return sign | (finite ? all | ((1u << M) - 1) : all | 1u << (M - 1));
  if (magnitude == 0x7f800000u && !finite) return sign | all;
  int exponent = int(magnitude >> 23) - 127;
  unsigned long long mantissa = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0u);
  int shift = 23 - M;
  if (exponent < 1 - bias) shift += 1 - bias - exponent;  // subnormal in the small format
  unsigned value;
  if (shift > 40) {
    value = 0;
  } else {
    unsigned long long half = 1ull << (shift - 1), rest = mantissa & ((1ull << shift) - 1);
    value = unsigned(mantissa >> shift);
    if (rest > half || (rest == half && (value & 1))) value++;
  }
  // A carry out of the mantissa runs into the exponent by itself.
  unsigned code = exponent < 1 - bias ? value : unsigned(exponent + bias - 1) * (1u << M) + value;
  unsigned largest = finite ? (all | ((1u << M) - 1)) - 1 : all - 1;
  if (code > largest || exponent > bias + 1) code = finite || M == 2 ? largest : all;
  return sign | code;
}

template <int E, int M, bool finite>
TG_DEVICE float tg_decode(unsigned code) {
  constexpr int bias = (1 << (E - 1)) - 1;
  unsigned sign = code >> (E + M) & 1, exponent = code >> M & ((1u << E) - 1);
  unsigned mantissa = code & ((1u << M) - 1);
  float value;
  if (!finite && exponent == (1u << E) - 1)
    value = mantissa ? __builtin_nanf("") : __builtin_inff();
  else if (finite && exponent == (1u << E) - 1 && mantissa == (1u << M) - 1)
    value = __builtin_nanf("");
  else if (exponent == 0)
    value = __builtin_ldexpf(float(mantissa), 1 - bias - M);
  else
    value = __builtin_ldexpf(float(mantissa | 1u << M), int(exponent) - bias - M);
  return sign ? -value : value;
}

TG_DEVICE unsigned short tg_to_f16(float x) {
#if defined(__F16C__)
  tg_floats4 wide = {x, 0, 0, 0};
  return (unsigned short)__builtin_ia32_vcvtps2ph(wide, 0)[0];
#else
  return (unsigned short)tg_encode<5, 10, false>(x);
#endif
}
TG_DEVICE float tg_from_f16(unsigned short x) {
#if defined(__F16C__)
  tg_shorts8 narrow = {short(x), 0, 0, 0, 0, 0, 0, 0};
  return __builtin_ia32_vcvtph2ps(narrow)[0];
#else
  return tg_decode<5, 10, false>(x);
#endif
}
TG_DEVICE unsigned short tg_to_bf16(float x) {
  unsigned bits = tg_bits<unsigned>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
TG_DEVICE float tg_from_bf16(unsigned short x) { return tg_bits<float>(unsigned(x) << 16); }

// a * b + c in double, rounded to odd into float, so that the next rounding is the only one that counts.
TG_DEVICE float tg_fma_to_odd(float a, float b, float c) {
  double exact = double(a) * double(b) + double(c);
  float near = float(exact);
  if (double(near) == exact || near - near != 0) return near;
  unsigned bits = tg_bits<unsigned>(near);
  if (bits & 1) return near;
  bool away = near == 0 || (double(near) < exact) == (near > 0);
  return tg_bits<float>(near == 0 ? (exact < 0 ? 0x80000001u : 1u) : away ? bits + 1 : bits - 1);
}

// The arithmetic that __half and __nv_bfloat16 share: in float, which rounds the same as directly.
#define TG_SMALL_FLOAT(type, pair, encode, decode)                                              \
  struct __attribute__((aligned(2))) type {                                                     \
    unsigned short __x;                                                                         \
    type() = default;                                                                           \
    type(float x) : __x(encode(x)) {}                                                           \
    type(double x) : __x(encode(float(x))) {}                                                   \
    type(int x) : __x(encode(float(x))) {}                                                      \
    type(unsigned x) : __x(encode(float(x))) {}                                                 \
    operator float() const { return decode(__x); }                                              \
    type& operator+=(type o) { return *this = type(decode(__x) + decode(o.__x)); }              \
    type& operator-=(type o) { return *this = type(decode(__x) - decode(o.__x)); }              \
    type& operator*=(type o) { return *this = type(decode(__x) * decode(o.__x)); }              \
    type& operator/=(type o) { return *this = type(decode(__x) / decode(o.__x)); }              \
  };                                                                                            \
  struct __attribute__((aligned(4))) pair {                                                     \
    type x, y;                                                                                  \
    pair() = default;                                                                           \
    pair(type x, type y) : x(x), y(y) {}                                                        \
  };                                                                                            \
  TG_DEVICE type operator+(type a, type b) { return type(float(a) + float(b)); }                \
  TG_DEVICE type operator-(type a, type b) { return type(float(a) - float(b)); }                \
  TG_DEVICE type operator*(type a, type b) { return type(float(a) * float(b)); }                \
  TG_DEVICE type operator/(type a, type b) { return type(float(a) / float(b)); }                \
  TG_DEVICE type operator-(type a) { return type(-float(a)); }                                  \
  TG_DEVICE bool operator==(type a, type b) { return float(a) == float(b); }                    \
  TG_DEVICE bool operator!=(type a, type b) { return float(a) != float(b); }                    \
  TG_DEVICE bool operator<(type a, type b) { return float(a) < float(b); }                      \
  TG_DEVICE bool operator>(type a, type b) { return float(a) > float(b); }                      \
  TG_DEVICE bool operator<=(type a, type b) { return float(a) <= float(b); }                    \
  TG_DEVICE bool operator>=(type a, type b) { return float(a) >= float(b); }                    \
  TG_DEVICE type __hadd(type a, type b) { return a + b; }                                       \
  TG_DEVICE type __hsub(type a, type b) { return a - b; }                                       \
  TG_DEVICE type __hmul(type a, type b) { return a * b; }                                       \
  TG_DEVICE type __hdiv(type a, type b) { return a / b; }                                       \
  TG_DEVICE type __hneg(type a) { return -a; }                                                  \
  TG_DEVICE type __habs(type a) { return type(fabsf(float(a))); }                               \
  TG_DEVICE type __hfma(type a, type b, type c) {                                               \
    return type(tg_fma_to_odd(float(a), float(b), float(c)));                                   \
  }                                                                                             \
  TG_DEVICE type __hfma_relu(type a, type b, type c) {                                          \
    type v = __hfma(a, b, c);                                                                   \
    return v > type(0.0f) ? v : type(0.0f);                                                     \
  }                                                                                             \
  TG_DEVICE type __hmax(type a, type b) { return type(fmaxf(float(a), float(b))); }             \
  TG_DEVICE type __hmin(type a, type b) { return type(fminf(float(a), float(b))); }             \
  TG_DEVICE bool __heq(type a, type b) { return a == b; }                                       \
  TG_DEVICE bool __hne(type a, type b) { return a != b; }                                       \
  TG_DEVICE bool __hlt(type a, type b) { return a < b; }                                        \
  TG_DEVICE bool __hle(type a, type b) { return a <= b; }                                       \
  TG_DEVICE bool __hgt(type a, type b) { return a > b; }                                        \
  TG_DEVICE bool __hge(type a, type b) { return a >= b; }                                       \
  TG_DEVICE bool __hisnan(type a) { return float(a) != float(a); }                              \
  TG_DEVICE type hsqrt(type a) { return type(sqrtf(float(a))); }                                \
  TG_DEVICE type hrsqrt(type a) { return type(rsqrtf(float(a))); }                              \
  TG_DEVICE type hexp(type a) { return type(expf(float(a))); }                                  \
  TG_DEVICE type hlog(type a) { return type(logf(float(a))); }                                  \
  TG_DEVICE type htanh(type a) { return type(tanhf(float(a))); }                                \
  TG_DEVICE pair operator+(pair a, pair b) { return {a.x + b.x, a.y + b.y}; }                   \
  TG_DEVICE pair operator-(pair a, pair b) { return {a.x - b.x, a.y - b.y}; }                   \
  TG_DEVICE pair operator*(pair a, pair b) { return {a.x * b.x, a.y * b.y}; }                   \
  TG_DEVICE pair operator/(pair a, pair b) { return {a.x / b.x, a.y / b.y}; }                   \
  TG_DEVICE pair& operator+=(pair& a, pair b) { return a = a + b; }                             \
  TG_DEVICE pair& operator*=(pair& a, pair b) { return a = a * b; }                             \
  TG_DEVICE pair __hadd2(pair a, pair b) { return a + b; }                                      \
  TG_DEVICE pair __hsub2(pair a, pair b) { return a - b; }                                      \
  TG_DEVICE pair __hmul2(pair a, pair b) { return a * b; }                                      \
  TG_DEVICE pair __h2div(pair a, pair b) { return a / b; }                                      \
  TG_DEVICE pair __hneg2(pair a) { return {-a.x, -a.y}; }                                       \
  TG_DEVICE pair __habs2(pair a) { return {__habs(a.x), __habs(a.y)}; }                         \
  TG_DEVICE pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }       \
  TG_DEVICE pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }       \
  TG_DEVICE pair __hfma2(pair a, pair b, pair c) {                                              \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                      \
  }                                                                                             \
  TG_DEVICE float __low2float(pair v) { return float(v.x); }                                    \
  TG_DEVICE float __high2float(pair v) { return float(v.y); }
