// A stand-in for CUDA's header of halves: the type and its conversions, single and in pairs. Conversions to half round
// to nearest, ties to even.
#pragma once
#include "cuda_runtime.h"
#include "emu/fp16.h"

#define EMU_FLOAT16 __half
#define EMU_FLOAT16_RAW __half_raw
#define EMU_FLOAT16_PAIR __half2
#define EMU_FLOAT16_BITS emu::fp16_bits
#define EMU_FLOAT16_VALUE emu::fp16_value
#include "emu/float16.h"

inline __half __float2half_rn(float f) { return f; }
inline float __half2float(__half h) { return h; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
