// The emulator's cuda_bf16.h: the names of the CUDA Math API, section "Bfloat16 Precision Intrinsics".
#pragma once
#include "tg_cuda_float.hpp"

TG_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, tg_to_bf16, tg_from_bf16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

TG_DEVICE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
TG_DEVICE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
TG_DEVICE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
TG_DEVICE __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(float(x)); }
TG_DEVICE float __bfloat162float(__nv_bfloat16 x) { return float(x); }
TG_DEVICE __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
TG_DEVICE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
TG_DEVICE __nv_bfloat162 __float2bfloat162_rn(float x) { return __floats2bfloat162_rn(x, x); }
TG_DEVICE float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
TG_DEVICE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
TG_DEVICE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
TG_DEVICE __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
TG_DEVICE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
TG_DEVICE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
TG_DEVICE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
TG_DEVICE short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.__x); }
TG_DEVICE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return tg_bits<__nv_bfloat16>(x); }
TG_DEVICE __nv_bfloat16 __short_as_bfloat16(short x) { return tg_bits<__nv_bfloat16>(x); }
