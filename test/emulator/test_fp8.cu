// Tests the stand-in for CUDA's header of 8-bit floats against the formats of Micikevicius et al. 2022 (table 1): every
// code, every tie and its neighbours. Built by nvcc it tests NVIDIA's own header, also without a GPU.
#include <cuda_fp8.h>
#include "../test.h"

struct Format {
    __nv_fp8_interpretation_t kind;
    int mantissa;            // bits
    float least, least_normal, most;
    int largest;             // code of `most`
    int infinity;            // code of infinity and of too large numbers without saturation
};
static const Format FORMATS[] = {
    {__NV_E4M3, 3, 0x1p-9f, 0x1p-6f, 448, 0x7e, 0x7f},
    {__NV_E5M2, 2, 0x1p-16f, 0x1p-14f, 57344, 0x7b, 0x7c},
};

// Lists the numbers of a format in order. Their spacing is f.least for the first 2 * 2^mantissa codes. It doubles after
// these, and after every further 2^mantissa codes.
static void list_numbers(const Format& f, float number[128]) {
    number[0] = 0;
    for (int code = 0; code < f.largest; code++) {
        const int doublings = (code >> f.mantissa) > 1 ? (code >> f.mantissa) - 1 : 0;
        number[code + 1] = number[code] + ldexpf(f.least, doublings);
    }
}

static int rounded(const Format& f, float x, __nv_saturation_t saturate = __NV_SATFINITE) {
    return __nv_cvt_float_to_fp8(x, saturate, f.kind);
}

TEST(the_numbers_are_those_of_the_paper) {
    for (const Format& f : FORMATS) {
        float number[128];
        list_numbers(f, number);
        EXPECT(number[1] == f.least && number[1 << f.mantissa] == f.least_normal && number[f.largest] == f.most);
        for (int code = 0; code <= f.largest; code++) {
            EXPECT(rounded(f, number[code]) == code);
            EXPECT(rounded(f, -number[code]) == (code | 0x80));
        }
    }
}

TEST(what_lies_between_goes_to_the_nearest_and_ties_to_the_even_code) {
    for (const Format& f : FORMATS) {
        float number[128];
        list_numbers(f, number);
        for (int code = 0; code < f.largest; code++) {
            const float middle = 0.5f * (number[code] + number[code + 1]);
            const int even = code + code % 2;
            EXPECT(rounded(f, middle) == even && rounded(f, -middle) == (even | 0x80));
            EXPECT(rounded(f, nextafterf(middle, 0)) == code);
            EXPECT(rounded(f, nextafterf(middle, INFINITY)) == code + 1);
        }
    }
}

TEST(what_is_too_large_saturates_or_not_as_is_asked) {
    for (const Format& f : FORMATS) {
        const float large[] = {1.2f * f.most, 1e30f, INFINITY};
        for (float x : large) {
            EXPECT(rounded(f, x) == f.largest && rounded(f, -x) == (f.largest | 0x80));
            EXPECT((rounded(f, x, __NV_NOSAT) & 0x7f) == f.infinity);
        }
        const int nan = rounded(f, NAN) & 0x7f;
        EXPECT(nan == 0x7f);
        EXPECT(rounded(f, 1e-30f) == 0 && rounded(f, -1e-30f) == 0x80 && rounded(f, -0.0f) == 0x80);
    }
}

TEST(of_two_the_first_is_in_the_lower_byte) {
    EXPECT(__nv_cvt_float2_to_fp8x2(make_float2(1, -2), __NV_SATFINITE, __NV_E4M3) == 0xc038);
    EXPECT(__nv_cvt_float2_to_fp8x2(make_float2(1, -2), __NV_SATFINITE, __NV_E5M2) == 0xc03c);
}

TEST_MAIN()
