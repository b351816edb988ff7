// CUDA's vector types, with the alignment that the guide's table of built-in vector types gives.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define TG_VECTORS(name, type, align1, align2, align4)                                            \
  struct __attribute__((aligned(align1))) name##1 { type x; };                                     \
  struct __attribute__((aligned(align2))) name##2 { type x, y; };                                  \
  struct __attribute__((aligned(align1))) name##3 { type x, y, z; };                               \
  struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                            \
  static inline constexpr name##1 make_##name##1(type x) { return {x}; }                           \
  static inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }                \
  static inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }     \
  static inline constexpr name##4 make_##name##4(type x, type y, type z, type w) {                 \
    return {x, y, z, w};                                                                           \
  }

TG_VECTORS(char, signed char, 1, 2, 4)
TG_VECTORS(uchar, unsigned char, 1, 2, 4)
TG_VECTORS(short, short, 2, 4, 8)
TG_VECTORS(ushort, unsigned short, 2, 4, 8)
TG_VECTORS(int, int, 4, 8, 16)
TG_VECTORS(uint, unsigned, 4, 8, 16)
TG_VECTORS(long, long, 8, 16, 16)
TG_VECTORS(ulong, unsigned long, 8, 16, 16)
TG_VECTORS(longlong, long long, 8, 16, 16)
TG_VECTORS(ulonglong, unsigned long long, 8, 16, 16)
TG_VECTORS(float, float, 4, 8, 16)
TG_VECTORS(double, double, 8, 16, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
