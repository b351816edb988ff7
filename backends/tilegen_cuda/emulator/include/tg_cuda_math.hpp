// CUDA's mathematical functions in terms of the C library's, which round at least as well.
#pragma once

extern "C" {
#define TG_C1(name) double name(double) noexcept; float name##f(float) noexcept;
#define TG_C2(name) double name(double, double) noexcept; float name##f(float, float) noexcept;
TG_C1(sqrt) TG_C1(cbrt) TG_C1(exp) TG_C1(exp2) TG_C1(expm1) TG_C1(log) TG_C1(log2) TG_C1(log10)
TG_C1(log1p) TG_C1(sin) TG_C1(cos) TG_C1(tan) TG_C1(asin) TG_C1(acos) TG_C1(atan) TG_C1(sinh)
TG_C1(cosh) TG_C1(tanh) TG_C1(erf) TG_C1(erfc) TG_C1(floor) TG_C1(ceil) TG_C1(trunc) TG_C1(round)
TG_C1(rint) TG_C1(nearbyint) TG_C1(fabs) TG_C1(tgamma) TG_C1(lgamma)
TG_C2(pow) TG_C2(fmod) TG_C2(atan2) TG_C2(hypot) TG_C2(fmax) TG_C2(fmin) TG_C2(copysign)
TG_C2(fdim) TG_C2(remainder)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
int abs(int) noexcept;
void* memcpy(void*, const void*, size_t) noexcept;
void* memset(void*, int, size_t) noexcept;
}

// The overloads for float that C++ has.
#define TG_F1(name) TG_DEVICE float name(float x) { return name##f(x); }
#define TG_F2(name) TG_DEVICE float name(float x, float y) { return name##f(x, y); }
TG_F1(sqrt) TG_F1(exp) TG_F1(exp2) TG_F1(log) TG_F1(log2) TG_F1(log10) TG_F1(sin) TG_F1(cos)
TG_F1(tan) TG_F1(tanh) TG_F1(erf) TG_F1(floor) TG_F1(ceil) TG_F1(trunc) TG_F1(round) TG_F1(rint)
TG_F1(fabs) TG_F2(pow) TG_F2(fmod) TG_F2(fmax) TG_F2(fmin)
TG_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
TG_DEVICE float abs(float x) { return fabsf(x); }
TG_DEVICE double abs(double x) { return fabs(x); }
TG_DEVICE long abs(long x) { return x < 0 ? -x : x; }
TG_DEVICE long long abs(long long x) { return x < 0 ? -x : x; }
TG_DEVICE bool isnan(float x) { return __builtin_isnan(x); }
TG_DEVICE bool isnan(double x) { return __builtin_isnan(x); }
TG_DEVICE bool isinf(float x) { return __builtin_isinf(x); }
TG_DEVICE bool isinf(double x) { return __builtin_isinf(x); }
TG_DEVICE bool isfinite(float x) { return __builtin_isfinite(x); }
TG_DEVICE bool isfinite(double x) { return __builtin_isfinite(x); }

#define TG_MINMAX(type)                                                      \
  TG_DEVICE constexpr type min(type a, type b) { return b < a ? b : a; }     \
  TG_DEVICE constexpr type max(type a, type b) { return a < b ? b : a; }
TG_MINMAX(int)
TG_MINMAX(unsigned)
TG_MINMAX(long)
TG_MINMAX(unsigned long)
TG_MINMAX(long long)
TG_MINMAX(unsigned long long)
TG_DEVICE float min(float a, float b) { return fminf(a, b); }
TG_DEVICE float max(float a, float b) { return fmaxf(a, b); }
TG_DEVICE double min(double a, double b) { return fmin(a, b); }
TG_DEVICE double max(double a, double b) { return fmax(a, b); }
TG_DEVICE constexpr unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
TG_DEVICE constexpr unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
TG_DEVICE constexpr unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
TG_DEVICE constexpr unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }

TG_DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
TG_DEVICE double rsqrt(double x) { return 1.0 / sqrt(x); }
TG_DEVICE float rsqrt(float x) { return rsqrtf(x); }
TG_DEVICE float exp10f(float x) { return powf(10.0f, x); }
TG_DEVICE float __expf(float x) { return expf(x); }
TG_DEVICE float __exp10f(float x) { return exp10f(x); }
TG_DEVICE float __logf(float x) { return logf(x); }
TG_DEVICE float __log2f(float x) { return log2f(x); }
TG_DEVICE float __sinf(float x) { return sinf(x); }
TG_DEVICE float __cosf(float x) { return cosf(x); }
TG_DEVICE float __powf(float x, float y) { return powf(x, y); }
TG_DEVICE float __tanhf(float x) { return tanhf(x); }
TG_DEVICE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
TG_DEVICE float __fdividef(float a, float b) { return a / b; }
TG_DEVICE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
TG_DEVICE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// Through a volatile, since these may not be contracted into an fma.
TG_DEVICE float __fadd_rn(float a, float b) { volatile float x = a; return x + b; }
TG_DEVICE float __fsub_rn(float a, float b) { volatile float x = a; return x - b; }
TG_DEVICE float __fmul_rn(float a, float b) { volatile float x = a * b; return x; }
TG_DEVICE float __fdiv_rn(float a, float b) { return a / b; }
TG_DEVICE float __frcp_rn(float x) { return 1.0f / x; }
TG_DEVICE float __fsqrt_rn(float x) { return sqrtf(x); }
TG_DEVICE float __frsqrt_rn(float x) { return rsqrtf(x); }
TG_DEVICE double __dadd_rn(double a, double b) { volatile double x = a; return x + b; }
TG_DEVICE double __dmul_rn(double a, double b) { volatile double x = a * b; return x; }

// Conversions saturate, as the hardware's do; NaN gives 0.
template <class To, class From>
TG_DEVICE To tg_saturated(From x, double low, double above) {
  if (x != x) return 0;
  if (double(x) <= low) return To(low);
  if (double(x) >= above) return To(above == 2147483648.0 ? 2147483647 : 4294967295u);
  return To(x);
}
TG_DEVICE int __float2int_rn(float x) {
  return tg_saturated<int>(rintf(x), -2147483648.0, 2147483648.0);
}
TG_DEVICE int __float2int_rz(float x) { return tg_saturated<int>(x, -2147483648.0, 2147483648.0); }
TG_DEVICE int __float2int_rd(float x) { return __float2int_rz(floorf(x)); }
TG_DEVICE int __float2int_ru(float x) { return __float2int_rz(ceilf(x)); }
TG_DEVICE unsigned __float2uint_rn(float x) {
  return tg_saturated<unsigned>(rintf(x), 0.0, 4294967296.0);
}
TG_DEVICE unsigned __float2uint_rz(float x) { return tg_saturated<unsigned>(x, 0.0, 4294967296.0); }
TG_DEVICE int __double2int_rn(double x) {
  return tg_saturated<int>(rint(x), -2147483648.0, 2147483648.0);
}
TG_DEVICE float __int2float_rn(int x) { return float(x); }
TG_DEVICE float __uint2float_rn(unsigned x) { return float(x); }
TG_DEVICE float __double2float_rn(double x) { return float(x); }

template <class To, class From>
TG_DEVICE To tg_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
TG_DEVICE int __float_as_int(float x) { return tg_bits<int>(x); }
TG_DEVICE unsigned __float_as_uint(float x) { return tg_bits<unsigned>(x); }
TG_DEVICE float __int_as_float(int x) { return tg_bits<float>(x); }
TG_DEVICE float __uint_as_float(unsigned x) { return tg_bits<float>(x); }
TG_DEVICE long long __double_as_longlong(double x) { return tg_bits<long long>(x); }
TG_DEVICE double __longlong_as_double(long long x) { return tg_bits<double>(x); }

TG_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
TG_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TG_DEVICE int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
TG_DEVICE int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
TG_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
TG_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
TG_DEVICE unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
  return y;
}
TG_DEVICE int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
TG_DEVICE unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((unsigned long long)a * b >> 32);
}
TG_DEVICE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
TG_DEVICE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
TG_DEVICE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
TG_DEVICE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = selector >> 4 * i & 15, byte = unsigned(both >> 8 * (pick & 7)) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    out |= byte << 8 * i;
  }
  return out;
}
TG_DEVICE int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += int((signed char)(a >> 8 * i)) * int((signed char)(b >> 8 * i));
  return c;
}
TG_DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return c;
}

TG_DEVICE long long clock64() {
  static long long ticks;
  return ticks += 16;
}
TG_DEVICE int clock() { return int(clock64()); }
