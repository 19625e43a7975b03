// A stand-in for CUDA's header of bfloat16: the type, its conversions and arithmetic, single and in pairs. Conversions
// to bf16 round to nearest, ties to even; arithmetic is done in float and rounded once.
#pragma once
#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  protected:
    unsigned short __x;

  public:
    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
    __nv_bfloat16(float f) {
        unsigned u = __float_as_uint(f);
        bool nan = (u & 0x7fffffff) > 0x7f800000;
        __x = nan ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    __nv_bfloat16(double d) : __nv_bfloat16(narrow(d)) {}
    __nv_bfloat16(short v) : __nv_bfloat16((float)v) {}
    __nv_bfloat16(unsigned short v) : __nv_bfloat16((float)v) {}
    __nv_bfloat16(int v) : __nv_bfloat16((double)v) {}
    __nv_bfloat16(unsigned v) : __nv_bfloat16((double)v) {}
    __nv_bfloat16(long v) : __nv_bfloat16((long long)v) {}
    __nv_bfloat16(unsigned long v) : __nv_bfloat16((unsigned long long)v) {}
    __nv_bfloat16(long long v) : __nv_bfloat16((double)v) {}
    __nv_bfloat16(unsigned long long v) : __nv_bfloat16((double)v) {}
    operator __nv_bfloat16_raw() const { return {__x}; }
    operator float() const { return __uint_as_float((unsigned)__x << 16); }
    // CUDA's conversions to integers, by truncation. They make expressions that mix types ambiguous, as in CUDA.
    operator signed char() const { return (signed char)(float)*this; }
    operator unsigned char() const { return (unsigned char)(float)*this; }
    operator char() const { return (char)(float)*this; }
    operator short() const { return (short)(float)*this; }
    operator unsigned short() const { return (unsigned short)(float)*this; }
    operator int() const { return (int)(float)*this; }
    operator unsigned() const { return (unsigned)(float)*this; }
    operator long() const { return (long)(float)*this; }
    operator unsigned long() const { return (unsigned long)(float)*this; }
    operator long long() const { return (long long)(float)*this; }
    operator unsigned long long() const { return (unsigned long long)(float)*this; }
    constexpr operator bool() const { return (__x & 0x7fff) != 0; }

  private:
    // Rounds to float so that rounding that to bf16 equals rounding once: inexact results become odd (round to odd).
    static float narrow(double d) {
        float f = (float)d;
        unsigned u = __float_as_uint(f);
        if (!((double)f != d) || std::isnan(d) || std::isinf(f)) { return f; }
        if (std::fabs((double)f) > std::fabs(d)) { u--; }
        return __uint_as_float(u | 1);
    }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) : x(a), y(b) {}
};
typedef __nv_bfloat162 nv_bfloat162;

// ---------------------------------------------------------------------------------------------------------------------
// conversions

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

// ---------------------------------------------------------------------------------------------------------------------
// arithmetic and comparison, as operators and under CUDA's names

#define EMU_ARITHMETIC(op, name)                                                                                       \
    inline __nv_bfloat16 operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) { return (float)a op (float)b; } \
    inline __nv_bfloat16& operator op##=(__nv_bfloat16& a, const __nv_bfloat16& b) { return a = a op b; }              \
    inline __nv_bfloat162 operator op(const __nv_bfloat162& a, const __nv_bfloat162& b) {                              \
        return {a.x op b.x, a.y op b.y};                                                                               \
    }                                                                                                                  \
    inline __nv_bfloat162& operator op##=(__nv_bfloat162& a, const __nv_bfloat162& b) { return a = a op b; }           \
    inline __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b; }
EMU_ARITHMETIC(+, add)
EMU_ARITHMETIC(-, sub)
EMU_ARITHMETIC(*, mul)
EMU_ARITHMETIC(/, div)
#undef EMU_ARITHMETIC
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return a + b; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return a - b; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return a * b; }
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return a / b; }

#define EMU_COMPARISON(op, name)                                                                             \
    inline bool operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) { return (float)a op (float)b; } \
    inline bool __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b; }
EMU_COMPARISON(==, eq)
EMU_COMPARISON(!=, ne)
EMU_COMPARISON(<, lt)
EMU_COMPARISON(<=, le)
EMU_COMPARISON(>, gt)
EMU_COMPARISON(>=, ge)
#undef EMU_COMPARISON

inline __nv_bfloat16 operator+(const __nv_bfloat16& h) { return h; }
inline __nv_bfloat16 operator-(const __nv_bfloat16& h) {
    return __ushort_as_bfloat16(__bfloat16_as_ushort(h) ^ 0x8000);
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 h) { return -h; }
inline __nv_bfloat16 __habs(__nv_bfloat16 h) { return __ushort_as_bfloat16(__bfloat16_as_ushort(h) & 0x7fff); }
inline bool __hisnan(__nv_bfloat16 h) { return std::isnan((float)h); }
inline int __hisinf(__nv_bfloat16 h) { return std::isinf((float)h) ? ((float)h > 0 ? 1 : -1) : 0; }
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return fmaxf(a, b); }
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return fminf(a, b); }
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
// The product of two bf16 is exact in double, and so is its sum with a third but for the last rounding.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return (double)(float)a * (double)(float)b + (double)(float)c;
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
