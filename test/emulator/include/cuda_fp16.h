// A stand-in for CUDA's header of halves: the type, its conversions and arithmetic, single and in pairs. Conversions
// to half round to nearest, ties to even.
#pragma once
#include "cuda_runtime.h"
#include "emu/fp16.h"

#define EMU_FLOAT16 __half
#define EMU_FLOAT16_RAW __half_raw
#define EMU_FLOAT16_PAIR __half2
#define EMU_FLOAT16_BITS emu::fp16_bits
#define EMU_FLOAT16_VALUE emu::fp16_value
#include "emu/float16.h"

typedef __half half;
typedef __half2 half2;

inline __half __float2half(float f) { return f; }
inline __half __float2half_rn(float f) { return f; }
inline __half __double2half(double d) { return d; }
inline __half __int2half_rn(int i) { return i; }
inline __half __uint2half_rn(unsigned i) { return i; }
inline float __half2float(__half h) { return h; }
inline int __half2int_rz(__half h) { return (int)(float)h; }
inline unsigned short __half_as_ushort(__half h) { return ((__half_raw)h).x; }
inline short __half_as_short(__half h) { return (short)__half_as_ushort(h); }
inline __half __ushort_as_half(unsigned short u) { return __half_raw{u}; }
inline __half __short_as_half(short s) { return __half_raw{(unsigned short)s}; }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __float2half2_rn(float f) { return {f, f}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
