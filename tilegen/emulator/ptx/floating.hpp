// Floating-point instructions (PTX ISA, "Floating Point Instructions", "Half Precision Floating Point
// Instructions"). Approximations (.approx) are computed exactly and rounded: the device's last bits
// are not modelled.
#pragma once
#include <fenv.h>

#include "types.hpp"

namespace tg_ptx {

constexpr uint32_t nan_f32 = 0x7fffffffu;
constexpr uint64_t nan_f64 = 0x7ff8000000000000u;

// What stands behind a mnemonic: .rn .rz .rm .rp, .ftz, .sat, .relu.
template <Round round_ = Round::nearest_even, bool ftz_ = false, bool sat_ = false, bool relu_ = false>
struct Mode {
  static constexpr Round round = round_;
  static constexpr bool ftz = ftz_, sat = sat_, relu = relu_;
};

inline float flushed(float x, bool ftz) {
  return ftz && __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x;
}
inline double flushed(double x, bool) { return x; }

inline float canonical(float x) { return x != x ? bit_cast<float>(nan_f32) : x; }
inline double canonical(double x) { return x != x ? bit_cast<double>(nan_f64) : x; }

template <class M, class F>
inline F finished(F x) {
  x = flushed(x, M::ftz);
  if (M::sat) x = x > F(0) ? (x < F(1) ? x : F(1)) : F(0);  // NaN becomes +0
  if (M::relu && x < F(0)) x = F(0);
  return canonical(x);
}

inline int host_rounding(Round round) {
  return round == Round::zero ? FE_TOWARDZERO : round == Round::down ? FE_DOWNWARD : FE_UPWARD;
}
// Computes with the host's rounding changed; noinline keeps the operation between the two switches.
template <class M, class F, class Op>
__attribute__((noinline)) F rounded_otherwise(Op op, F a, F b, F c) {
  volatile F x = a, y = b, z = c;
  const int before = fegetround();
  fesetround(host_rounding(M::round));
  volatile F out = op(x, y, z);
  fesetround(before);
  return out;
}
template <class T, class M, class Op>
inline typename T::Raw compute(Op op, typename T::Raw a, typename T::Raw b, typename T::Raw c) {
  using F = typename T::Native;
  const F x = flushed(value<T>(a), M::ftz), y = flushed(value<T>(b), M::ftz),
          z = flushed(value<T>(c), M::ftz);
  if constexpr (M::round == Round::nearest_even) return raw<T>(finished<M>(op(x, y, z)));
  else return raw<T>(finished<M>(rounded_otherwise<M>(op, x, y, z)));
}

// Keeps the host from contracting a product with a sum that follows, in the text around too.
inline float kept(float x) {
  uint32_t bits = bit_cast<uint32_t>(x);
  asm("" : "+r"(bits));
  return bit_cast<float>(bits);
}
inline double kept(double x) {
  uint64_t bits = bit_cast<uint64_t>(x);
  asm("" : "+r"(bits));
  return bit_cast<double>(bits);
}

struct OpAdd { template <class F> F operator()(F a, F b, F) const { return a + b; } };
struct OpSub { template <class F> F operator()(F a, F b, F) const { return a - b; } };
struct OpMul { template <class F> F operator()(F a, F b, F) const { return kept(a * b); } };
struct OpDiv { template <class F> F operator()(F a, F b, F) const { return a / b; } };
struct OpFma {
  float operator()(float a, float b, float c) const { return __builtin_fmaf(a, b, c); }
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
struct OpSqrt {
  float operator()(float a, float, float) const { return __builtin_sqrtf(a); }
  double operator()(double a, double, double) const { return __builtin_sqrt(a); }
};

template <class T, class M>
inline typename T::Raw fadd(typename T::Raw a, typename T::Raw b) { return compute<T, M>(OpAdd(), a, b, b); }
template <class T, class M>
inline typename T::Raw fsub(typename T::Raw a, typename T::Raw b) { return compute<T, M>(OpSub(), a, b, b); }
template <class T, class M>
inline typename T::Raw fmul(typename T::Raw a, typename T::Raw b) { return compute<T, M>(OpMul(), a, b, b); }
template <class T, class M>
inline typename T::Raw fdiv(typename T::Raw a, typename T::Raw b) { return compute<T, M>(OpDiv(), a, b, b); }
template <class T, class M>
inline typename T::Raw fsqrt(typename T::Raw a) { return compute<T, M>(OpSqrt(), a, a, a); }

// a*b+c of 16-bit values, rounded once: the double sum is made odd where it is not exact, so that the
// second rounding sees on which side of a tie the true value lies.
inline double odd_fma(float a, float b, float c) {
  const double p = kept(double(a) * b), s = p + c, t = s - p, lost = (p - (s - t)) + (c - t);
  if (!(lost != 0) || s - s != 0) return s;
  int64_t bits = bit_cast<int64_t>(s);
  if (!(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : -1;
  return bit_cast<double>(bits);
}
template <class T, class M>
inline typename T::Raw ffma(typename T::Raw a, typename T::Raw b, typename T::Raw c) {
  if constexpr (bits_of<T> == 16) {
    double x = odd_fma(value<T>(a), value<T>(b), value<T>(c));
    if (M::sat) x = x > 0 ? (x < 1 ? x : 1) : 0;
    return typename T::Raw(encode(x, format_of<T>, Round::nearest_even, false, M::relu));
  } else {
    return compute<T, M>(OpFma(), a, b, c);
  }
}

template <class T>
constexpr typename T::Raw sign_of = typename T::Raw(typename T::Raw(1) << (bits_of<T> - 1));
// A NaN becomes the canonical one here too, as an H200 does it.
template <class T, class M>
inline typename T::Raw with_sign(typename T::Raw bits) {
  const auto x = value<T>(bits);
  if (x != x) return raw<T>(canonical(x));
  return M::ftz ? raw<T>(flushed(x, true)) : bits;
}
template <class T, class M>
inline typename T::Raw fneg(typename T::Raw a) {
  return with_sign<T, M>(typename T::Raw(a ^ sign_of<T>));
}
template <class T, class M>
inline typename T::Raw fabs_(typename T::Raw a) {
  return with_sign<T, M>(typename T::Raw(a & ~sign_of<T>));
}
template <class T>
inline typename T::Raw copysign_(typename T::Raw sign, typename T::Raw size) {
  return typename T::Raw((size & ~sign_of<T>) | (sign & sign_of<T>));
}

// min and max give the other operand for a NaN (with .NaN: the canonical NaN), and -0 < +0.
template <class T, class M, bool want_max, bool nan, bool xorsign>
inline typename T::Raw fminmax(typename T::Raw a, typename T::Raw b) {
  using F = typename T::Native;
  const F x = flushed(value<T>(a), M::ftz), y = flushed(value<T>(b), M::ftz);
  const typename T::Raw sign = (a ^ b) & sign_of<T>;
  const F p = xorsign ? F(__builtin_fabs(x)) : x, q = xorsign ? F(__builtin_fabs(y)) : y;
  F out;
  if (p != p || q != q) out = nan || (p != p && q != q) ? F(__builtin_nanf("")) : p != p ? q : p;
  else if (p == q) out = (__builtin_signbit(p) != 0) == want_max ? q : p;
  else out = (p < q) == want_max ? q : p;
  out = canonical(out);
  const typename T::Raw bits = raw<T>(out);
  return xorsign && out == out ? typename T::Raw(bits | sign) : bits;
}
template <class T, class M, bool nan, bool xorsign>
inline typename T::Raw fmin_(typename T::Raw a, typename T::Raw b) {
  return fminmax<T, M, false, nan, xorsign>(a, b);
}
template <class T, class M, bool nan, bool xorsign>
inline typename T::Raw fmax_(typename T::Raw a, typename T::Raw b) {
  return fminmax<T, M, true, nan, xorsign>(a, b);
}

#define TG_PTX_UNARY(name, expression)                          \
  template <class T, class M>                                   \
  inline typename T::Raw name(typename T::Raw a) {              \
    const double x = flushed(value<T>(a), M::ftz);              \
    return raw<T>(finished<M>(typename T::Native(expression))); \
  }
TG_PTX_UNARY(frcp, 1.0 / x)
TG_PTX_UNARY(frsqrt, 1.0 / __builtin_sqrt(x))
TG_PTX_UNARY(fex2, __builtin_exp2(x))
TG_PTX_UNARY(flg2, __builtin_log2(x))
TG_PTX_UNARY(fsin, __builtin_sin(x))
TG_PTX_UNARY(fcos, __builtin_cos(x))
TG_PTX_UNARY(ftanh, __builtin_tanh(x))
#undef TG_PTX_UNARY

// Packed pairs: the same on each half.
template <class H, class Op, class... A>
inline uint32_t pairwise(Op op, A... a) {
  const uint32_t low = op(typename H::Raw(a)...), high = op(typename H::Raw(a >> 16)...);
  return low | high << 16;
}

}  // namespace tg_ptx
