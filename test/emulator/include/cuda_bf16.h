// A stand-in for CUDA's header of bfloat16: the type, its conversions and arithmetic, single and in pairs. Conversions
// to bf16 round to nearest, ties to even.
#pragma once
#include "cuda_runtime.h"

namespace emu {

inline unsigned short bf16_bits(float f) {
    const unsigned u = __float_as_uint(f);
    const bool nan = (u & 0x7fffffff) > 0x7f800000;
    return nan ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline float bf16_value(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

} // namespace emu

#define EMU_FLOAT16 __nv_bfloat16
#define EMU_FLOAT16_RAW __nv_bfloat16_raw
#define EMU_FLOAT16_PAIR __nv_bfloat162
#define EMU_FLOAT16_BITS emu::bf16_bits
#define EMU_FLOAT16_VALUE emu::bf16_value
#include "emu/float16.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float f) { return f; }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return f; }
inline __nv_bfloat16 __float2bfloat16_rz(float f) {
    return std::isnan(f) ? __nv_bfloat16(f)
                         : __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)(__float_as_uint(f) >> 16)});
}
inline __nv_bfloat16 __double2bfloat16(double d) { return d; }
inline __nv_bfloat16 __int2bfloat16_rn(int i) { return i; }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned i) { return i; }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
inline int __bfloat162int_rz(__nv_bfloat16 h) { return (int)(float)h; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return ((__nv_bfloat16_raw)h).x; }
inline short __bfloat16_as_short(__nv_bfloat16 h) { return (short)__bfloat16_as_ushort(h); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16_raw{u}; }
inline __nv_bfloat16 __short_as_bfloat16(short s) { return __nv_bfloat16_raw{(unsigned short)s}; }

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h) { return {h, h}; }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return {f, f}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }
