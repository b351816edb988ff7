// Integer, logic and bit instructions (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift
// Instructions"). Arguments and results are register bits.
#pragma once
#include "types.hpp"

namespace tg_ptx {

// Arithmetic wraps, so it is done on the unsigned view; signed overflow would be undefined here.
template <class T, bool saturate>
inline typename T::Raw add(typename T::Raw a, typename T::Raw b) {
  if constexpr (saturate) {
    const int64_t sum = int64_t(value<T>(a)) + value<T>(b);
    return raw<T>(int32_t(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum));
  }
  return typename T::Raw(a + b);
}
template <class T, bool saturate>
inline typename T::Raw sub(typename T::Raw a, typename T::Raw b) {
  if constexpr (saturate) {
    const int64_t sum = int64_t(value<T>(a)) - value<T>(b);
    return raw<T>(int32_t(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum));
  }
  return typename T::Raw(a - b);
}

// The type of twice the width, for .wide and .hi.
template <class T>
struct Wide;
template <>
struct Wide<u16> { using Type = u32; using Product = uint32_t; };
template <>
struct Wide<s16> { using Type = s32; using Product = int32_t; };
template <>
struct Wide<u32> { using Type = u64; using Product = uint64_t; };
template <>
struct Wide<s32> { using Type = s64; using Product = int64_t; };
template <>
struct Wide<u64> { using Product = unsigned __int128; };
template <>
struct Wide<s64> { using Product = __int128; };

template <class T>
inline typename Wide<T>::Product product(typename T::Raw a, typename T::Raw b) {
  return typename Wide<T>::Product(value<T>(a)) * value<T>(b);
}
template <class T>
inline typename T::Raw mul_lo(typename T::Raw a, typename T::Raw b) {
  return typename T::Raw(product<T>(a, b));
}
template <class T>
inline typename T::Raw mul_hi(typename T::Raw a, typename T::Raw b) {
  return typename T::Raw(product<T>(a, b) >> bits_of<T>);
}
template <class T>
inline typename Wide<T>::Type::Raw mul_wide(typename T::Raw a, typename T::Raw b) {
  return typename Wide<T>::Type::Raw(product<T>(a, b));
}
template <class T>
inline typename T::Raw mad_lo(typename T::Raw a, typename T::Raw b, typename T::Raw c) {
  return typename T::Raw(mul_lo<T>(a, b) + c);
}
template <class T>
inline typename T::Raw mad_hi(typename T::Raw a, typename T::Raw b, typename T::Raw c) {
  return typename T::Raw(mul_hi<T>(a, b) + c);
}
template <class T>
inline typename Wide<T>::Type::Raw mad_wide(typename T::Raw a, typename T::Raw b,
                                            typename Wide<T>::Type::Raw c) {
  return typename Wide<T>::Type::Raw(mul_wide<T>(a, b) + c);
}

// Division by zero gives an unspecified value on the device; here all ones, which no test expects.
template <class T>
inline typename T::Raw div(typename T::Raw a, typename T::Raw b) {
  if (b == 0) return typename T::Raw(-1);
  if (typename T::Raw(b + 1) == 0 && typename T::Native(-1) < 0)
    return typename T::Raw(0 - a);
  return raw<T>(typename T::Native(value<T>(a) / value<T>(b)));
}
template <class T>
inline typename T::Raw rem(typename T::Raw a, typename T::Raw b) {
  if (b == 0) return typename T::Raw(-1);
  if (typename T::Raw(b + 1) == 0 && typename T::Native(-1) < 0) return 0;
  return raw<T>(typename T::Native(value<T>(a) % value<T>(b)));
}
template <class T>
inline typename T::Raw abs(typename T::Raw a) {
  return value<T>(a) < 0 ? typename T::Raw(0 - a) : a;
}
template <class T>
inline typename T::Raw neg(typename T::Raw a) { return typename T::Raw(0 - a); }
template <class T>
inline typename T::Raw min(typename T::Raw a, typename T::Raw b) {
  return value<T>(a) < value<T>(b) ? a : b;
}
template <class T>
inline typename T::Raw max(typename T::Raw a, typename T::Raw b) {
  return value<T>(a) > value<T>(b) ? a : b;
}

template <class T>
inline typename T::Raw bit_and(typename T::Raw a, typename T::Raw b) { return a & b; }
template <class T>
inline typename T::Raw bit_or(typename T::Raw a, typename T::Raw b) { return a | b; }
template <class T>
inline typename T::Raw bit_xor(typename T::Raw a, typename T::Raw b) { return a ^ b; }
template <class T>
inline typename T::Raw bit_not(typename T::Raw a) { return typename T::Raw(~a); }
template <>
inline bool bit_not<pred>(bool a) { return !a; }
template <class T>
inline typename T::Raw cnot(typename T::Raw a) { return a == 0; }

// Shift amounts above the width give what shifting bit by bit would.
template <class T>
inline typename T::Raw shl(typename T::Raw a, uint32_t amount) {
  return amount >= uint32_t(bits_of<T>) ? 0 : typename T::Raw(a << amount);
}
template <class T>
inline typename T::Raw shr(typename T::Raw a, uint32_t amount) {
  const bool over = amount >= uint32_t(bits_of<T>);
  if (over) return value<T>(a) < 0 ? typename T::Raw(-1) : 0;
  return typename T::Raw(value<T>(a) >> amount);
}
template <bool wrap>
inline uint32_t shf_l(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t n = wrap ? c & 31 : c > 32 ? 32 : c;
  return uint32_t(((uint64_t(b) << 32 | a) << n) >> 32);
}
template <bool wrap>
inline uint32_t shf_r(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t n = wrap ? c & 31 : c > 32 ? 32 : c;
  return uint32_t((uint64_t(b) << 32 | a) >> n);
}

template <class T>
inline uint32_t popc(typename T::Raw a) { return uint32_t(__builtin_popcountll(a)); }
template <class T>
inline uint32_t clz(typename T::Raw a) {
  return a ? uint32_t(__builtin_clzll(a)) - (64 - bits_of<T>) : bits_of<T>;
}
template <class T>
inline typename T::Raw brev(typename T::Raw a) {
  typename T::Raw out = 0;
  for (int i = 0; i < bits_of<T>; i++) out |= typename T::Raw((a >> i) & 1) << (bits_of<T> - 1 - i);
  return out;
}
template <class T, bool shift_amount>
inline uint32_t bfind(typename T::Raw a) {
  if (value<T>(a) < 0) a = typename T::Raw(~a);
  if (a == 0) return 0xffffffffu;
  const uint32_t place = bits_of<T> - 1 - clz<T>(a);
  return shift_amount ? bits_of<T> - 1 - place : place;
}
template <class T>
inline typename T::Raw bfe(typename T::Raw a, uint32_t b, uint32_t c) {
  const int last = bits_of<T> - 1, place = int(b & 0xff), length = int(c & 0xff);
  const bool is_signed = typename T::Native(-1) < 0;
  const int sign_place = place + length - 1 < last ? place + length - 1 : last;
  const typename T::Raw sign = is_signed && length ? (a >> sign_place) & 1 : 0;
  typename T::Raw out = 0;
  for (int i = 0; i <= last; i++)
    out |= (i < length && place + i <= last ? (a >> (place + i)) & 1 : sign) << i;
  return out;
}
template <class T>
inline typename T::Raw bfi(typename T::Raw a, typename T::Raw b, uint32_t c, uint32_t d) {
  const int last = bits_of<T> - 1, place = int(c & 0xff), length = int(d & 0xff);
  for (int i = 0; i < length && place + i <= last; i++) {
    const typename T::Raw bit = typename T::Raw(1) << (place + i);
    b = typename T::Raw((b & ~bit) | ((a >> i) & 1 ? bit : 0));
  }
  return b;
}

inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t out = 0;
  if (table & 0x01) out |= ~a & ~b & ~c;
  if (table & 0x02) out |= ~a & ~b & c;
  if (table & 0x04) out |= ~a & b & ~c;
  if (table & 0x08) out |= ~a & b & c;
  if (table & 0x10) out |= a & ~b & ~c;
  if (table & 0x20) out |= a & ~b & c;
  if (table & 0x40) out |= a & b & ~c;
  if (table & 0x80) out |= a & b & c;
  return out;
}

enum class Permute { index, f4e, b4e, rc8, ecl, ecr, rc16 };
template <Permute mode>
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  const uint32_t k = c & 3;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t pick = 0;
    switch (mode) {
      case Permute::index: pick = (c >> (4 * i)) & 0xf; break;
      case Permute::f4e: pick = k + i; break;
      case Permute::b4e: pick = (k + 8 - i) & 7; break;
      case Permute::rc8: pick = k; break;
      case Permute::ecl: pick = i > k ? i : k; break;
      case Permute::ecr: pick = i < k ? i : k; break;
      case Permute::rc16: pick = 2 * (k & 1) + (i & 1); break;
    }
    uint32_t byte = uint32_t(bytes >> (8 * (pick & 7))) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;  // replicate the sign
    out |= byte << (8 * i);
  }
  return out;
}

template <class A, class B>
inline uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 4; i++)
    c += uint32_t(int32_t(value<A>(uint8_t(a >> (8 * i)))) * value<B>(uint8_t(b >> (8 * i))));
  return c;
}

}  // namespace tg_ptx
