// Rounding to bf16 and fp16: to the nearest, ties to even; stochastic rounding only to the two neighbours, and on
// average to the number itself.
#include "llmc/base/rounding.h"
#include "test/test.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------------------------
// to the nearest

TEST(the_nearest_bf16_and_the_even_one_of_two) {
    EXPECT(bf16_nearest(1.0f) == 0x3f80);
    EXPECT(bf16_nearest(1.00390625f) == 0x3f80); // halfway: to the even one
    EXPECT(bf16_nearest(1.01171875f) == 0x3f82);
    EXPECT(bf16_nearest(-1.004f) == 0xbf81);
    EXPECT(bf16_value(bf16_nearest(INFINITY)) == INFINITY);
    EXPECT(isnan(bf16_value(bf16_nearest(NAN))));
}

// Returns the value of a finite half by its definition.
static double half_by_definition(unsigned bits) {
    const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    const double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// All halves; and the floats at, just below and just above the middle between each half and the next one. 65536 stands
// for infinity.
static void check_all_halves(void) {
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x8000; bits++) {
        const float value = fp16_value((uint16_t)bits), negative = fp16_value((uint16_t)(bits | 0x8000));
        if (bits >= 0x7c00) {
            wrong += bits == 0x7c00 ? value != INFINITY || negative != -INFINITY : !isnan(value) || !isnan(negative);
            continue;
        }
        const double next = bits == 0x7bff ? 65536.0 : half_by_definition(bits + 1);
        const float middle = (float)((half_by_definition(bits) + next) / 2);
        wrong += value != half_by_definition(bits) || bits_of_float(negative) != (bits_of_float(value) | 1u << 31);
        wrong += fp16_nearest(value) != bits || fp16_nearest(negative) != (bits | 0x8000);
        wrong += fp16_nearest(middle) != bits + bits % 2 || fp16_nearest(-middle) != (0x8000 | (bits + bits % 2));
        wrong += fp16_nearest(nextafterf(middle, 0)) != bits;
        wrong += fp16_nearest(nextafterf(middle, INFINITY)) != bits + 1;
    }
    if (wrong) { TEST_FAIL("%d conversions are wrong", wrong); }
}

// Also as in the CPU's threads, which flush subnormal floats to zero: subnormal halves are none.
TEST(every_half_and_every_middle_between_two_are_converted_exactly) {
    check_all_halves();
#ifdef __SSE__
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    check_all_halves();
    _mm_setcsr(before);
#endif
}

TEST(floats_beyond_halves_become_zero_infinity_or_nan) {
    const float vanish[] = {0x1p-25f, 0x1.fp-26f, 0x1p-126f, 0x1p-149f, 0.0f};
    const float overflow[] = {65520.0f, 65536.0f, 1e6f, 0x1.fffffep127f, INFINITY};
    for (int i = 0; i < 5; i++) {
        EXPECT(fp16_nearest(vanish[i]) == 0 && fp16_nearest(-vanish[i]) == 0x8000);
        EXPECT(fp16_nearest(overflow[i]) == 0x7c00 && fp16_nearest(-overflow[i]) == 0xfc00);
    }
    for (uint32_t bits = 0x7f800001; bits < 0x7fffffff; bits += 12345) {
        EXPECT(isnan(fp16_value(fp16_nearest(float_of_bits(bits)))));
        EXPECT(isnan(fp16_value(fp16_nearest(float_of_bits(bits | 1u << 31)))));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// stochastic rounding

typedef float (*Round)(float x, uint64_t random);

// Draws roundings of x, which lies between two numbers of the type.
static void check_draws(Round round, float x, double below, double above) {
    enum { DRAWS = 1 << 16 };
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        const float rounded = round(x, rounding_random(7, 3, (size_t)i));
        EXPECT(rounded == below || rounded == above);
        sum += rounded;
    }
    EXPECT_NEAR(sum / DRAWS, x, 4 * (above - below) / 2 / sqrt((double)DRAWS)); // four deviations of the mean
}

TEST(only_the_two_neighbours_come_and_their_mean_is_the_number) {
    const float numbers[] = {1.0f + 0x1p-9f, -3.14159265f, 1e-20f, 0.0123456f, -65504.5f};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const float x = numbers[n], toward_zero = float_of_bits(bits_of_float(x) & 0xffff0000u);
        const float away = float_of_bits((bits_of_float(x) & 0xffff0000u) + 0x10000u);
        check_draws(bf16_stochastic, x, fminf(toward_zero, away), fmaxf(toward_zero, away));
    }
    const double step = 0x1p-24; // of subnormal halves
    check_draws(fp16_stochastic, 1.0f + 0x1.8p-12f, 1, 1 + 0x1p-10);
    check_draws(fp16_stochastic, -3.14159265f, -3.142578125, -3.140625);
    check_draws(fp16_stochastic, 65503.0f, 65472, 65504);
    check_draws(fp16_stochastic, -0x1p-14f - 0x1p-27f, -0x1p-14 - step, -0x1p-14);
    check_draws(fp16_stochastic, 0x1p-14f - 0x1p-26f, 0x1p-14 - step, 0x1p-14);
    check_draws(fp16_stochastic, -1e-6f, -17 * step, -16 * step);
    check_draws(fp16_stochastic, 0x1.8p-28f, 0, step);
}

static void check_unchanged(Round round, float x) {
    for (uint64_t random = 0; random < 1 << 16; random += 4095) {
        EXPECT(bits_of_float(round(x, random)) == bits_of_float(x));
    }
}

TEST(what_the_type_can_hold_stays_what_it_is) {
    const float numbers[] = {0.0f, -0.0f, 1.0f, -1.5f, INFINITY, -INFINITY};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        check_unchanged(bf16_stochastic, numbers[n]);
        check_unchanged(fp16_stochastic, numbers[n]);
    }
    check_unchanged(bf16_stochastic, 0x1p-120f);
    for (uint16_t bits = 0; bits < 0x7c00; bits += 31) { check_unchanged(fp16_stochastic, fp16_value(bits)); }
    check_unchanged(fp16_stochastic, 65504.0f);
    check_unchanged(fp16_stochastic, 1e9f); // has no half above it: infinity comes from rounding to the nearest
    EXPECT(isnan(bf16_stochastic(NAN, 0xffff)) && isnan(fp16_stochastic(NAN, 0xffff)));
}

TEST(steps_elements_and_seeds_have_random_numbers_of_their_own) {
    const uint64_t first = rounding_random(7, 3, 5);
    EXPECT(first == rounding_random(7, 3, 5));
    EXPECT(first != rounding_random(8, 3, 5) && first != rounding_random(7, 4, 5) && first != rounding_random(7, 3, 6));
}

TEST_MAIN()
