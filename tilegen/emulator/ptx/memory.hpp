// Loads, stores and atomics in every state space (PTX ISA, "Data Movement and Conversion
// Instructions", "Parallel Synchronization and Communication Instructions: atom, red").
#pragma once
#include "tg_runtime.hpp"
#include "compare.hpp"
#include "integer.hpp"
#include "types.hpp"

namespace tg_ptx {

enum class Space { generic, global, shared, local, constant };
enum class Order { weak, watched, acquire, release, acq_rel };

// A shared address from a register that may have 64 bits: those above are zero in a real one, and set
// in a generic pointer that nobody converted.
inline uint32_t shared32(uint64_t address, int line) {
  if (address >> 32)
    tg::fail("wrong-space", line,
             "0x%llx is no shared address: convert the pointer with __cvta_generic_to_shared",
             static_cast<unsigned long long>(address));
  return uint32_t(address);
}

// Host pointer of an access, checked.
void* resolve(Space space, uint64_t address, uint32_t bytes, tg::Access access, const char* what,
              int line);
void load_bytes(Space space, uint64_t address, void* to, uint32_t bytes, Order order, const char* what,
                int line);
void store_bytes(Space space, uint64_t address, const void* from, uint32_t bytes, Order order,
                 const char* what, int line);

template <class T, int n>
TG_UNTRACED inline void load(typename T::Raw (&to)[n], Space space, uint64_t address, Order order,
                             const char* what, int line) {
  load_bytes(space, address, to, sizeof to, order, what, line);
}
template <class T, int n>
TG_UNTRACED inline void store(const typename T::Raw (&from)[n], Space space, uint64_t address,
                              Order order, const char* what, int line) {
  store_bytes(space, address, from, sizeof from, order, what, line);
}

// ---- atomics -----------------------------------------------------------------------------------

enum class Atomic { add, inc, dec, min, max, and_, or_, xor_, exch, cas };

// One atomic access; `update` computes the new bits from the old ones.
void atomic_begin(Space space, uint64_t address, uint32_t bytes, Order order, void** at,
                  const char* what, int line);
void atomic_end(Order order, void* at);

template <class T, Atomic op>
inline typename T::Raw updated(typename T::Raw old, typename T::Raw b, typename T::Raw c) {
  using Raw = typename T::Raw;
  switch (op) {
    case Atomic::add:
      if constexpr (is_floating<typename T::Native>) return raw<T>(value<T>(old) + value<T>(b));
      else return Raw(old + b);
    case Atomic::inc: return old >= b ? Raw(0) : Raw(old + 1);
    case Atomic::dec: return old == 0 || old > b ? b : Raw(old - 1);
    case Atomic::min: return min<T>(old, b);
    case Atomic::max: return max<T>(old, b);
    case Atomic::and_: return old & b;
    case Atomic::or_: return old | b;
    case Atomic::xor_: return old ^ b;
    case Atomic::exch: return b;
    case Atomic::cas: return old == b ? c : old;
  }
}
template <>
inline uint32_t updated<f16x2, Atomic::add>(uint32_t old, uint32_t b, uint32_t) {
  return pairwise<f16>([](uint16_t x, uint16_t y) { return updated<f16, Atomic::add>(x, y, 0); }, old, b);
}
template <>
inline uint32_t updated<bf16x2, Atomic::add>(uint32_t old, uint32_t b, uint32_t) {
  return pairwise<bf16>([](uint16_t x, uint16_t y) { return updated<bf16, Atomic::add>(x, y, 0); }, old, b);
}

template <class T, Atomic op>
TG_UNTRACED inline typename T::Raw atomic(Space space, uint64_t address, typename T::Raw b,
                                          typename T::Raw c, Order order, const char* what, int line) {
  void* at;
  atomic_begin(space, address, sizeof(typename T::Raw), order, &at, what, line);
  typename T::Raw old;
  memcpy(&old, at, sizeof old);
  const typename T::Raw fresh = updated<T, op>(old, b, c);
  memcpy(at, &fresh, sizeof fresh);
  atomic_end(order, at);
  return old;
}

}  // namespace tg_ptx
