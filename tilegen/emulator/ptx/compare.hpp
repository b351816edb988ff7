// Comparison and selection (PTX ISA, "Comparison and Selection Instructions").
#pragma once
#include "floating.hpp"
#include "types.hpp"

namespace tg_ptx {

enum class Compare {
  eq, ne, lt, le, gt, ge,              // for floats: false if either is NaN
  equ, neu, ltu, leu, gtu, geu,        // floats: true if either is NaN
  num, nan,
};

template <class T, Compare op, bool ftz>
inline bool compare(typename T::Raw a, typename T::Raw b) {
  using N = typename T::Native;
  if constexpr (is_floating<N>) {
    const N x = flushed(value<T>(a), ftz), y = flushed(value<T>(b), ftz);
    const bool unordered = x != x || y != y;
    switch (op) {
      case Compare::eq: return !unordered && x == y;
      case Compare::ne: return !unordered && x != y;
      case Compare::lt: return x < y;
      case Compare::le: return x <= y;
      case Compare::gt: return x > y;
      case Compare::ge: return x >= y;
      case Compare::equ: return unordered || x == y;
      case Compare::neu: return unordered || x != y;
      case Compare::ltu: return unordered || x < y;
      case Compare::leu: return unordered || x <= y;
      case Compare::gtu: return unordered || x > y;
      case Compare::geu: return unordered || x >= y;
      case Compare::num: return !unordered;
      case Compare::nan: return unordered;
    }
  } else {
    const N x = value<T>(a), y = value<T>(b);
    switch (op) {
      case Compare::eq: return x == y;
      case Compare::ne: return x != y;
      case Compare::lt: return x < y;
      case Compare::le: return x <= y;
      case Compare::gt: return x > y;
      case Compare::ge: return x >= y;
      default: return false;  // the translator lets only floats come here
    }
  }
}

enum class Combine { and_, or_, xor_ };
template <Combine op>
inline bool combine(bool a, bool b) {
  return op == Combine::and_ ? a && b : op == Combine::or_ ? a || b : a != b;
}

// What set.* writes for true: 1.0 for a float destination, all ones for an integer.
template <class D>
inline typename D::Raw set_result(bool holds) {
  if (!holds) return 0;
  if constexpr (is_floating<typename D::Native>) return raw<D>(1);
  else return typename D::Raw(-1);
}

// slct: by the sign of c; a NaN counts as negative.
template <class C>
inline bool not_negative(typename C::Raw c) {
  return value<C>(c) >= 0;
}

}  // namespace tg_ptx
