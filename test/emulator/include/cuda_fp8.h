// A stand-in for CUDA's header of 8-bit floats: storage, and conversions to and from it. E4M3 has a bias of 7, no
// infinities and one NaN (0x7f, and its negative); E5M2 is the upper byte of an IEEE half.
#pragma once
#include "cuda_bf16.h"
#include "emu/fp8.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    const emu::Fp8Format& format = kind == __NV_E4M3 ? emu::E4M3 : emu::E5M2;
    return emu::to_fp8(x, format, saturate == __NV_SATFINITE);
}
// Converts both; x becomes the lower byte.
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturate,
                                                     __nv_fp8_interpretation_t kind) {
    const unsigned low = __nv_cvt_float_to_fp8(x.x, saturate, kind), high = __nv_cvt_float_to_fp8(x.y, saturate, kind);
    return (__nv_fp8x2_storage_t)(low | high << 8);
}
