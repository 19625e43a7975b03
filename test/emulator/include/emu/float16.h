// The struct of a 16-bit float, and that of a pair, for cuda_bf16.h and cuda_fp16.h. Each defines
//   EMU_FLOAT16, EMU_FLOAT16_RAW, EMU_FLOAT16_PAIR   the names of the structs
//   EMU_FLOAT16_BITS(float), EMU_FLOAT16_VALUE(bits)  conversions, to the nearest, ties to even
// and includes this file, which undefines them. There is no arithmetic: kernels compute in float.

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
    EMU_FLOAT16(double) = delete; // would be rounded twice, first to float; integers are ambiguous
    operator EMU_FLOAT16_RAW() const { return {__x}; }
    operator float() const { return EMU_FLOAT16_VALUE(__x); }
    // CUDA converts to each integer, too, so that expressions that mix types are ambiguous. One is enough for that.
    operator int() const = delete;
};

struct alignas(4) EMU_FLOAT16_PAIR {
    EMU_FLOAT16 x, y;
    EMU_FLOAT16_PAIR() = default;
    EMU_FLOAT16_PAIR(const EMU_FLOAT16& a, const EMU_FLOAT16& b) : x(a), y(b) {}
};

#undef EMU_FLOAT16
#undef EMU_FLOAT16_RAW
#undef EMU_FLOAT16_PAIR
#undef EMU_FLOAT16_BITS
#undef EMU_FLOAT16_VALUE
