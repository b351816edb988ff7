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

template <class T>
struct Argument<T*> {
  TG_UNTRACED static T* get(const Slot& slot, uint32_t number) {
    if (slot.about->kind == arg_int && slot.about->integer == 0) return nullptr;
    if (slot.about->kind != arg_buffer)
      fail("bad-argument", 0, "argument %u must be an array: the parameter is a pointer", number);
    return reinterpret_cast<T*>(slot.pointer);
  }
};

template <class T>
struct Number {
  TG_UNTRACED static T get(const Slot& slot, uint32_t number) {
    if (slot.about->kind == arg_int) return T(slot.about->integer);
    if (slot.about->kind == arg_float) return T(slot.about->real);
    fail("bad-argument", 0, "argument %u must be a number", number);
  }
};
#define TG_NUMBER(type) \
  template <>           \
  struct Argument<type> : Number<type> {};
TG_NUMBER(bool)
TG_NUMBER(char)
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
