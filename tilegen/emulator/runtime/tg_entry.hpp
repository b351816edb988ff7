// From the job's arguments to a call of the kernel; included behind the kernel text.
#pragma once
#include "tg_job.hpp"
#include "tg_runtime.hpp"

namespace tg {

void tensor_map_argument(const Slot& slot, void* map, uint32_t number);

template <class T>
struct Argument {  // a structure, handed over as raw bytes
  TG_UNTRACED static T get(const Slot& slot, uint32_t number) {
    T value;
    // An array behind a structure as large as a CUtensorMap comes with how it is seen through one.
    if (slot.about->kind == arg_buffer && slot.about->integer && sizeof(T) == 128) {
      tensor_map_argument(slot, &value, number);
      return value;
    }
    // A number for a class that is made of one, as __half is.
    if constexpr (__is_constructible(T, float)) {
      if (slot.about->kind == arg_float) return T(float(slot.about->real));
      if (slot.about->kind == arg_int) return T(float(slot.about->integer));
    }
    if (slot.about->kind != arg_bytes || slot.about->bytes != sizeof(T))
      fail("bad-argument", 0, "argument %u must be %u raw bytes", number, unsigned(sizeof(T)));
    __builtin_memcpy(&value, slot.pointer, sizeof(T));
    return value;
  }
};

// What is known of a number's type; of the others only their size is.
template <class T>
struct Type {
  static constexpr const char* name = nullptr;
};
template <class T>
struct Type<const T> : Type<T> {};
template <class T>
struct Type<volatile T> : Type<T> {};
template <class T>
struct Type<const volatile T> : Type<T> {};

// To some compilers the size of void is 1.
template <class T>
constexpr bool is_void = false;
template <>
constexpr bool is_void<void> = true;
template <>
constexpr bool is_void<const void> = true;
template <>
constexpr bool is_void<volatile void> = true;
template <>
constexpr bool is_void<const volatile void> = true;

// 0 where T has none: functions, a structure that is only declared.
template <class T, unsigned long = sizeof(T)>
constexpr unsigned size_of(int) {
  return sizeof(T);
}
template <class T>
constexpr unsigned size_of(...) {
  return 0;
}

template <class T>
struct Argument<T*> {
  TG_UNTRACED static T* get(const Slot& slot, uint32_t number) {
    if (slot.about->kind == arg_int && slot.about->integer == 0) return nullptr;
    if (slot.about->kind != arg_buffer)
      fail("bad-argument", 0, "argument %u must be an array: the parameter is a pointer", number);
    check(*slot.about, number);
    return reinterpret_cast<T*>(slot.pointer);
  }
  TG_UNTRACED static void check(const JobArgument& given, uint32_t number) {
    if constexpr (Type<T>::name) {
      if (given.item != sizeof(T) ||
          (given.flags & (Type<T>::floating ? arg_integral : arg_floating)))
        fail("bad-argument", 0,
             "argument %u is an array of %s of %u bytes each; the parameter points to %s, of %u",
             number, elements(given), given.item, Type<T>::name, unsigned(sizeof(T)));
    } else if constexpr (!is_void<T> && size_of<T>(0) > 0) {
      if (!given.item || size_of<T>(0) % given.item)
        fail("bad-argument", 0,
             "argument %u is an array of %s of %u bytes each, which do not make up what the "
             "parameter points to, of %u",
             number, elements(given), given.item, size_of<T>(0));
    }
  }
  TG_UNTRACED static const char* elements(const JobArgument& given) {
    if (given.flags & arg_floating) return "floats";
    return given.flags & arg_integral ? "integers" : "elements";
  }
};

template <class T>
struct Number {
  TG_UNTRACED static T get(const Slot& slot, uint32_t number) {
    const JobArgument& given = *slot.about;
    if (given.kind == arg_int) return of_integer(given, number);
    if (given.kind == arg_float) return of_real(given.real, number);
    fail("bad-argument", 0, "argument %u must be a number", number);
  }
  TG_UNTRACED static T of_integer(const JobArgument& given, uint32_t number) {
    const bool large = given.flags & arg_large;
    if constexpr (Type<T>::floating) {
      return large ? T(uint64_t(given.integer)) : T(given.integer);
    } else {
      const T value = T(given.integer);
      const bool sign = large ? T(-1) > T(0) : (value < T(0)) == (given.integer < 0);
      if (int64_t(value) == given.integer && sign) return value;
      if (large)
        fail("bad-argument", 0, "argument %u is %llu, which the parameter, %s, does not hold", number,
             (unsigned long long)given.integer, Type<T>::name);
      fail("bad-argument", 0, "argument %u is %lld, which the parameter, %s, does not hold", number,
           (long long)given.integer, Type<T>::name);
    }
  }
  TG_UNTRACED static T of_real(double real, uint32_t number) {
    if constexpr (Type<T>::floating) {
      const T value = T(real);
      if (!__builtin_isinf(value) || __builtin_isinf(real)) return value;
    } else {
      // Powers of two, so that they are doubles: 2 to the value bits, and that below zero.
      constexpr bool negative = T(-1) < T(0), boolean = T(2) == T(1);
      constexpr double end = boolean ? 2.0 : 2.0 * (1ull << (8 * sizeof(T) - 1 - negative));
      const bool whole = real == __builtin_trunc(real);
      if (real >= (negative ? -end : 0.0) && real < end && whole) return T(real);
    }
    fail("bad-argument", 0, "argument %u is %.17g, which the parameter, %s, does not hold", number,
         real, Type<T>::name);
  }
};
#define TG_NUMBER(type)                                     \
  template <>                                               \
  struct Type<type> {                                       \
    static constexpr const char* name = #type;              \
    static constexpr bool floating = (type)1.5 != (type)1;   \
  };                                                        \
  template <>                                               \
  struct Argument<type> : Number<type> {};
TG_NUMBER(bool)
TG_NUMBER(signed char)
TG_NUMBER(unsigned char)
TG_NUMBER(short)
TG_NUMBER(unsigned short)
TG_NUMBER(int)
TG_NUMBER(unsigned)
TG_NUMBER(long)
TG_NUMBER(unsigned long)
TG_NUMBER(long long)
TG_NUMBER(unsigned long long)
TG_NUMBER(float)
TG_NUMBER(double)
TG_NUMBER(char)

template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<const T> {
  using type = T;
};
template <class T>
struct Plain<T&> : Plain<T> {};

template <unsigned... I>
struct Indices {};
template <unsigned N, unsigned... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <unsigned... I>
struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};

template <class... P>
struct Kernel {
  static constexpr unsigned parameters = sizeof...(P);
  template <void (*kernel)(P...)>
  TG_UNTRACED static void call(const Slot* slots) {
    spread<kernel>(slots, typename MakeIndices<sizeof...(P)>::type());
  }
  template <void (*kernel)(P...), unsigned... I>
  TG_UNTRACED static void spread(const Slot* slots, Indices<I...>) {
    (void)slots;
    kernel(Argument<typename Plain<P>::type>::get(slots[I], I)...);
  }
};
template <class... P>
Kernel<P...> kernel_type(void (*)(P...));

// One line of the table of entries: the kernel may be an instance of a template.
#define TG_ENTRY(name, ...)                                    \
  {name, decltype(tg::kernel_type(__VA_ARGS__))::parameters,   \
   &decltype(tg::kernel_type(__VA_ARGS__))::template call<__VA_ARGS__>}

}  // namespace tg
