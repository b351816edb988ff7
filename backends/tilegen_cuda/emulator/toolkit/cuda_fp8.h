// The emulator's cuda_fp8.h: the two OCP formats as storage with conversions, which saturate.
#pragma once
#include "tg_cuda_float.hpp"

typedef unsigned char __nv_fp8_storage_t;

#define TG_FP8(type, E, M, finite)                                                        \
  struct type {                                                                           \
    __nv_fp8_storage_t __x;                                                               \
    type() = default;                                                                     \
    explicit type(float x) : __x((unsigned char)tg_encode<E, M, finite>(x)) {}            \
    explicit type(double x) : type(float(x)) {}                                           \
    explicit type(int x) : type(float(x)) {}                                              \
    explicit operator float() const { return tg_decode<E, M, finite>(__x); }              \
  };
TG_FP8(__nv_fp8_e4m3, 4, 3, true)
TG_FP8(__nv_fp8_e5m2, 5, 2, false)
