// The fundamental types of PTX (PTX ISA, "Types") as tags, and the two views of a register: its bits
// and its value.
//
// A translated register is always its bits, as an unsigned integer of its width; an instruction's
// type says how they are read. Raw is those bits, Native what the host computes with.
#pragma once
#include <stdint.h>
#include <string.h>

#include "formats.hpp"

namespace tg_ptx {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast between different sizes");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

#define TG_PTX_TYPE(name, raw_type, native_type) \
  struct name {                                  \
    using Raw = raw_type;                        \
    using Native = native_type;                  \
  };
TG_PTX_TYPE(b8, uint8_t, uint8_t)
TG_PTX_TYPE(u8, uint8_t, uint8_t)
TG_PTX_TYPE(s8, uint8_t, int8_t)
TG_PTX_TYPE(b16, uint16_t, uint16_t)
TG_PTX_TYPE(u16, uint16_t, uint16_t)
TG_PTX_TYPE(s16, uint16_t, int16_t)
TG_PTX_TYPE(b32, uint32_t, uint32_t)
TG_PTX_TYPE(u32, uint32_t, uint32_t)
TG_PTX_TYPE(s32, uint32_t, int32_t)
TG_PTX_TYPE(b64, uint64_t, uint64_t)
TG_PTX_TYPE(u64, uint64_t, uint64_t)
TG_PTX_TYPE(s64, uint64_t, int64_t)
TG_PTX_TYPE(f16, uint16_t, float)
TG_PTX_TYPE(bf16, uint16_t, float)
TG_PTX_TYPE(tf32, uint32_t, float)
TG_PTX_TYPE(e4m3, uint8_t, float)
TG_PTX_TYPE(e5m2, uint8_t, float)
TG_PTX_TYPE(f32, uint32_t, float)
TG_PTX_TYPE(f64, uint64_t, double)
// Two packed values: the first lies in the low half.
TG_PTX_TYPE(f16x2, uint32_t, uint32_t)
TG_PTX_TYPE(bf16x2, uint32_t, uint32_t)
TG_PTX_TYPE(pred, bool, bool)
#undef TG_PTX_TYPE

template <class T>
constexpr int bits_of = 8 * int(sizeof(typename T::Raw));

// inline: clang gives a specialization a symbol in every file, and the link would fail.
template <class T>
inline constexpr Format format_of = format_f32;
template <>
inline constexpr Format format_of<f16> = format_f16;
template <>
inline constexpr Format format_of<bf16> = format_bf16;
template <>
inline constexpr Format format_of<tf32> = format_tf32;
template <>
inline constexpr Format format_of<e4m3> = format_e4m3;
template <>
inline constexpr Format format_of<e5m2> = format_e5m2;

// Bits to value.
template <class T>
inline typename T::Native value(typename T::Raw raw) {
  return bit_cast<typename T::Native>(raw);
}
template <>
inline float value<f16>(uint16_t raw) { return f16_to_f32(raw); }
template <>
inline float value<bf16>(uint16_t raw) { return bf16_to_f32(raw); }
template <>
inline float value<e4m3>(uint8_t raw) { return e4m3_to_f32(raw); }
template <>
inline float value<e5m2>(uint8_t raw) { return e5m2_to_f32(raw); }
// Matrix instructions do not look at the low 13 bits of a tf32 register.
template <>
inline float value<tf32>(uint32_t raw) { return bit_cast<float>(raw & 0xffffe000u); }

// Value to bits, to nearest even.
template <class T>
inline typename T::Raw raw(typename T::Native native) {
  return bit_cast<typename T::Raw>(native);
}
template <>
inline uint16_t raw<f16>(float native) { return f32_to_f16(native); }
template <>
inline uint16_t raw<bf16>(float native) { return f32_to_bf16(native); }

// ---- asm operands ------------------------------------------------------------------------------

template <class T>
constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

template <class T>
struct Plain { using Type = T; };
template <class T>
struct Plain<T&> { using Type = T; };
template <class T>
struct Plain<const T> { using Type = T; };
template <class T>
struct Plain<volatile T> { using Type = T; };
template <class T>
struct Plain<const volatile T> { using Type = T; };

// What a constraint letter asks of the expression's type; nvcc refuses the others in the same way.
template <class T, class Reg, bool floating>
constexpr bool fits = sizeof(T) == sizeof(typename Reg::Raw) && is_floating<T> == floating &&
                      !__is_class(T) && !__is_union(T);

#define TG_PTX_FITS(T, Reg, floating, letter)                                                     \
  static_assert(fits<typename Plain<T>::Type, Reg, floating>,                                     \
                "asm operand: the type or size of the expression does not match its constraint '" \
                letter "'")
template <char letter, class T>
constexpr bool check_operand() {
  if constexpr (letter == 'h') TG_PTX_FITS(T, b16, false, "h");
  if constexpr (letter == 'r') TG_PTX_FITS(T, b32, false, "r");
  if constexpr (letter == 'l') TG_PTX_FITS(T, b64, false, "l");
  if constexpr (letter == 'f') TG_PTX_FITS(T, f32, true, "f");
  if constexpr (letter == 'd') TG_PTX_FITS(T, f64, true, "d");
  return true;
}
#undef TG_PTX_FITS

// Operand to register bits and back.
template <char letter, class T>
inline auto take(T operand) {  // by value: an array is a pointer
  static_assert(check_operand<letter, T>(), "");
  if constexpr (letter == 'h') return bit_cast<uint16_t>(operand);
  else if constexpr (letter == 'r' || letter == 'f') return bit_cast<uint32_t>(operand);
  else return bit_cast<uint64_t>(operand);
}
template <char letter, class T, class Raw>
inline void give(T& operand, Raw raw) {
  static_assert(check_operand<letter, T>(), "");
  operand = bit_cast<typename Plain<T>::Type>(raw);
}

// The check alone, of an operand that is changed where it lies.
template <char letter, class T>
inline void stays(T&) {
  static_assert(check_operand<letter, T>(), "");
}

}  // namespace tg_ptx
