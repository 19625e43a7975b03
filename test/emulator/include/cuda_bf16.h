// A stand-in for CUDA's header of bfloat16: the type and its conversions, single and in pairs. Conversions to bf16
// round to nearest, ties to even.
#pragma once
#include "cuda_runtime.h"
#include "emu/bf16.h"

#define EMU_FLOAT16 __nv_bfloat16
#define EMU_FLOAT16_RAW __nv_bfloat16_raw
#define EMU_FLOAT16_PAIR __nv_bfloat162
#define EMU_FLOAT16_BITS emu::bf16_bits
#define EMU_FLOAT16_VALUE emu::bf16_value
#include "emu/float16.h"

inline __nv_bfloat16 __float2bfloat16_rn(float f) { return f; }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
