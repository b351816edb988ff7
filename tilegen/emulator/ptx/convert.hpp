// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt").
#pragma once
#include "floating.hpp"
#include "types.hpp"

namespace tg_ptx {

template <class T>
struct Limits {
  static constexpr bool is_signed = typename T::Native(-1) < typename T::Native(0);
  static constexpr double low = is_signed ? -double(uint64_t(1) << (bits_of<T> - 1)) : 0.0;
  // One above the largest value: exact in a double for every width.
  static constexpr double high = 2.0 * double(uint64_t(1) << (bits_of<T> - 1 - is_signed));
};

// Integer to integer: cut or extended by the source's sign; .sat clamps to the destination's range.
template <class D, class S, bool saturate>
inline typename D::Raw int_to_int(typename S::Raw a) {
  const __int128 wide = value<S>(a);
  if constexpr (saturate) {
    const __int128 one = 1, low = Limits<D>::is_signed ? -(one << (bits_of<D> - 1)) : 0,
                   high = (one << (bits_of<D> - Limits<D>::is_signed)) - 1;
    return typename D::Raw(wide < low ? low : wide > high ? high : wide);
  }
  return typename D::Raw(wide);
}

inline double to_integral(double x, Round round) {
  switch (round) {
    case Round::zero: return __builtin_trunc(x);
    case Round::down: return __builtin_floor(x);
    case Round::up: return __builtin_ceil(x);
    default: return __builtin_nearbyint(x);
  }
}

// Float to integer always clamps. NaN gives 0, but the sign bit when a side has 64 bits.
template <class D, class S, class M>
inline typename D::Raw float_to_int(typename S::Raw a) {
  const double x = flushed(value<S>(a), M::ftz);
  if (x != x)
    return bits_of<S> == 64 || bits_of<D> == 64
               ? typename D::Raw(typename D::Raw(1) << (bits_of<D> - 1))
               : 0;
  const double whole = to_integral(x, M::round);
  if (whole < Limits<D>::low) return typename D::Raw(Limits<D>::is_signed ? sign_of<D> : 0);
  if (whole >= Limits<D>::high)
    return typename D::Raw(Limits<D>::is_signed ? sign_of<D> - 1 : typename D::Raw(-1));
  return raw<D>(typename D::Native(whole));
}

template <class D, class S, class M>
inline typename D::Raw int_to_float(typename S::Raw a) {
  const auto whole = value<S>(a);
  if constexpr (bits_of<D> == 16) {
    // A 64-bit integer may not fit a double, but then it overflows f16 or is far from a bf16 tie.
    return typename D::Raw(encode(double(whole), format_of<D>, M::round, false, false));
  } else {
    using F = typename D::Native;
    F x;
    if constexpr (M::round == Round::nearest_even) {
      x = F(whole);
    } else {
      const int before = fegetround();
      fesetround(host_rounding(M::round));
      volatile auto hidden = whole;
      volatile F out = F(hidden);
      fesetround(before);
      x = out;
    }
    return raw<D>(finished<M>(x));
  }
}

// Float to float. `integral`: .rni and its kin between floats of one size.
template <class D, class S, class M, bool satfinite, bool integral>
inline typename D::Raw float_to_float(typename S::Raw a) {
  double x = flushed(value<S>(a), M::ftz);
  if (integral) x = to_integral(x, M::round);
  if (M::sat) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if constexpr (bits_of<D> == 64) {
    return raw<D>(canonical(x));
  } else {
    const Round round = integral ? Round::nearest_even : M::round;
    constexpr bool plain = M::round == Round::nearest_even && !satfinite && !M::relu;
    constexpr bool wide = bits_of<D> == 32 && format_of<D>.mantissa == 23;
    // Between formats as wide as f32, a NaN stays the one it was (seen on an H200).
    if (x != x && !M::sat && bits_of<D> == 32 && bits_of<S> >= 32)
      return typename D::Raw(bit_cast<uint32_t>(float(x)) & (wide ? ~0u : 0xffffe000u));
    // The common conversions without the general encoder; an f64 would be rounded twice on the way
    // to 16 bits.
    if constexpr (plain && (wide || (bits_of<D> == 16 && bits_of<S> <= 32)))
      return raw<D>(flushed(canonical(float(x)), wide && M::ftz));
    const uint32_t code = encode(x, format_of<D>, round, satfinite, M::relu);
    if constexpr (wide) {
      return raw<D>(flushed(canonical(bit_cast<float>(code)), M::ftz));
    } else if constexpr (bits_of<D> == 32) {
      return code << 13;  // tf32: the bits of an f32
    } else {
      return typename D::Raw(code);
    }
  }
}

// Two values into one register: the first source goes to the upper half.
template <class D, class S, class M, bool satfinite>
inline uint32_t pack2(typename S::Raw upper, typename S::Raw lower) {
  const uint32_t high = float_to_float<D, S, M, satfinite, false>(upper);
  const uint32_t low = float_to_float<D, S, M, satfinite, false>(lower);
  return high << bits_of<D> | low;
}
// One pair of narrow values to a pair of other ones (e4m3x2 <-> f16x2).
template <class D, class S, class M, bool satfinite>
inline uint32_t repack2(uint32_t pair) {
  return pack2<D, S, M, satfinite>(typename S::Raw(pair >> bits_of<S>), typename S::Raw(pair));
}

}  // namespace tg_ptx
