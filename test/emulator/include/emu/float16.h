// The struct of a 16-bit float, that of a pair, and their arithmetic, for cuda_bf16.h and cuda_fp16.h. Each defines
//   EMU_FLOAT16, EMU_FLOAT16_RAW, EMU_FLOAT16_PAIR   the names of the structs
//   EMU_FLOAT16_BITS(float), EMU_FLOAT16_VALUE(bits)  conversions, to the nearest, ties to even
// and includes this file, which undefines them. Arithmetic is done in float and rounded once.

struct EMU_FLOAT16_RAW {
    unsigned short x;
};

struct alignas(2) EMU_FLOAT16 {
  protected:
    unsigned short __x;

  public:
    EMU_FLOAT16() = default;
    constexpr EMU_FLOAT16(const EMU_FLOAT16_RAW& raw) : __x(raw.x) {}
    EMU_FLOAT16(float f) : __x(EMU_FLOAT16_BITS(f)) {}
    EMU_FLOAT16(double d) : EMU_FLOAT16(narrow(d)) {}
    EMU_FLOAT16(short v) : EMU_FLOAT16((float)v) {}
    EMU_FLOAT16(unsigned short v) : EMU_FLOAT16((float)v) {}
    EMU_FLOAT16(int v) : EMU_FLOAT16((double)v) {}
    EMU_FLOAT16(unsigned v) : EMU_FLOAT16((double)v) {}
    EMU_FLOAT16(long v) : EMU_FLOAT16((long long)v) {}
    EMU_FLOAT16(unsigned long v) : EMU_FLOAT16((unsigned long long)v) {}
    EMU_FLOAT16(long long v) : EMU_FLOAT16((double)v) {}
    EMU_FLOAT16(unsigned long long v) : EMU_FLOAT16((double)v) {}
    operator EMU_FLOAT16_RAW() const { return {__x}; }
    operator float() const { return EMU_FLOAT16_VALUE(__x); }
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
    // Rounds to float so that rounding that to 16 bits equals rounding once: inexact results become odd (round to odd).
    static float narrow(double d) {
        float f = (float)d;
        unsigned u = __float_as_uint(f);
        if (!((double)f != d) || std::isnan(d) || std::isinf(f)) { return f; }
        if (std::fabs((double)f) > std::fabs(d)) { u--; }
        return __uint_as_float(u | 1);
    }
};

struct alignas(4) EMU_FLOAT16_PAIR {
    EMU_FLOAT16 x, y;
    EMU_FLOAT16_PAIR() = default;
    EMU_FLOAT16_PAIR(const EMU_FLOAT16& a, const EMU_FLOAT16& b) : x(a), y(b) {}
};

// ---------------------------------------------------------------------------------------------------------------------
// arithmetic and comparison, as operators and under CUDA's names

#define EMU_ARITHMETIC(op, name)                                                                                   \
    inline EMU_FLOAT16 operator op(const EMU_FLOAT16& a, const EMU_FLOAT16& b) { return (float)a op (float)b; }    \
    inline EMU_FLOAT16& operator op##=(EMU_FLOAT16& a, const EMU_FLOAT16& b) { return a = a op b; }                \
    inline EMU_FLOAT16_PAIR operator op(const EMU_FLOAT16_PAIR& a, const EMU_FLOAT16_PAIR& b) {                    \
        return {a.x op b.x, a.y op b.y};                                                                           \
    }                                                                                                              \
    inline EMU_FLOAT16_PAIR& operator op##=(EMU_FLOAT16_PAIR& a, const EMU_FLOAT16_PAIR& b) { return a = a op b; } \
    inline EMU_FLOAT16 __h##name(EMU_FLOAT16 a, EMU_FLOAT16 b) { return a op b; }
EMU_ARITHMETIC(+, add)
EMU_ARITHMETIC(-, sub)
EMU_ARITHMETIC(*, mul)
EMU_ARITHMETIC(/, div)
#undef EMU_ARITHMETIC
inline EMU_FLOAT16_PAIR __hadd2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return a + b; }
inline EMU_FLOAT16_PAIR __hsub2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return a - b; }
inline EMU_FLOAT16_PAIR __hmul2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return a * b; }
inline EMU_FLOAT16_PAIR __h2div(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return a / b; }

#define EMU_COMPARISON(op, name)                                                                                   \
    inline bool operator op(const EMU_FLOAT16& a, const EMU_FLOAT16& b) { return (float)a op (float)b; }           \
    inline bool __h##name(EMU_FLOAT16 a, EMU_FLOAT16 b) { return a op b; }
EMU_COMPARISON(==, eq)
EMU_COMPARISON(!=, ne)
EMU_COMPARISON(<, lt)
EMU_COMPARISON(<=, le)
EMU_COMPARISON(>, gt)
EMU_COMPARISON(>=, ge)
#undef EMU_COMPARISON

inline EMU_FLOAT16 operator+(const EMU_FLOAT16& h) { return h; }
inline EMU_FLOAT16 operator-(const EMU_FLOAT16& h) {
    return EMU_FLOAT16_RAW{(unsigned short)(((EMU_FLOAT16_RAW)h).x ^ 0x8000)};
}
inline EMU_FLOAT16 __hneg(EMU_FLOAT16 h) { return -h; }
inline EMU_FLOAT16 __habs(EMU_FLOAT16 h) { return EMU_FLOAT16_RAW{(unsigned short)(((EMU_FLOAT16_RAW)h).x & 0x7fff)}; }
inline bool __hisnan(EMU_FLOAT16 h) { return std::isnan((float)h); }
inline int __hisinf(EMU_FLOAT16 h) { return std::isinf((float)h) ? ((float)h > 0 ? 1 : -1) : 0; }
inline EMU_FLOAT16 __hmax(EMU_FLOAT16 a, EMU_FLOAT16 b) { return fmaxf(a, b); }
inline EMU_FLOAT16 __hmin(EMU_FLOAT16 a, EMU_FLOAT16 b) { return fminf(a, b); }
inline EMU_FLOAT16_PAIR __hmax2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline EMU_FLOAT16_PAIR __hmin2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
// The product of two is exact in double; its sum with a third is rounded there far behind the bits that stay.
inline EMU_FLOAT16 __hfma(EMU_FLOAT16 a, EMU_FLOAT16 b, EMU_FLOAT16 c) {
    return (double)(float)a * (double)(float)b + (double)(float)c;
}
inline EMU_FLOAT16_PAIR __hfma2(EMU_FLOAT16_PAIR a, EMU_FLOAT16_PAIR b, EMU_FLOAT16_PAIR c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

#undef EMU_FLOAT16
#undef EMU_FLOAT16_RAW
#undef EMU_FLOAT16_PAIR
#undef EMU_FLOAT16_BITS
#undef EMU_FLOAT16_VALUE
