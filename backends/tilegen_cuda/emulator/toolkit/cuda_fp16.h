// The emulator's cuda_fp16.h: the names of the CUDA Math API, section "Half Precision Intrinsics".
#pragma once
#include "tg_cuda_float.hpp"

TG_SMALL_FLOAT(__half, __half2, tg_to_f16, tg_from_f16)
typedef __half half;
typedef __half2 half2;
struct __half_raw { unsigned short x; };

TG_DEVICE half __float2half(float x) { return half(x); }
TG_DEVICE half __float2half_rn(float x) { return half(x); }
TG_DEVICE half __double2half(double x) { return half(x); }
TG_DEVICE half __int2half_rn(int x) { return half(float(x)); }
TG_DEVICE float __half2float(half x) { return float(x); }
TG_DEVICE int __half2int_rn(half x) { return __float2int_rn(float(x)); }
TG_DEVICE int __half2int_rz(half x) { return __float2int_rz(float(x)); }
TG_DEVICE half2 __floats2half2_rn(float a, float b) { return {half(a), half(b)}; }
TG_DEVICE half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
TG_DEVICE half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
TG_DEVICE float2 __half22float2(half2 v) { return {float(v.x), float(v.y)}; }
TG_DEVICE half2 __halves2half2(half a, half b) { return {a, b}; }
TG_DEVICE half2 __half2half2(half a) { return {a, a}; }
TG_DEVICE half2 make_half2(half a, half b) { return {a, b}; }
TG_DEVICE half __low2half(half2 v) { return v.x; }
TG_DEVICE half __high2half(half2 v) { return v.y; }
TG_DEVICE half2 __lows2half2(half2 a, half2 b) { return {a.x, b.x}; }
TG_DEVICE half2 __highs2half2(half2 a, half2 b) { return {a.y, b.y}; }
TG_DEVICE half2 __lowhigh2highlow(half2 v) { return {v.y, v.x}; }
TG_DEVICE unsigned short __half_as_ushort(half x) { return x.__x; }
TG_DEVICE short __half_as_short(half x) { return short(x.__x); }
TG_DEVICE half __ushort_as_half(unsigned short x) { return tg_bits<half>(x); }
TG_DEVICE half __short_as_half(short x) { return tg_bits<half>(x); }
