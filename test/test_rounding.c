// Rounding to bf16: to the nearest, ties to even; stochastic rounding only to the two neighbours, and on average to the
// number itself.
#include "llmc/rounding.h"
#include "test/test.h"

TEST(only_the_two_neighbours_come_and_their_mean_is_the_number) {
    enum { DRAWS = 1 << 16 };
    const float numbers[] = {1.0f + 0x1p-9f, -3.14159265f, 1e-20f, 0.0123456f, -65504.5f};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        const float x = numbers[n], toward_zero = float_of_bits(bits_of_float(x) & 0xffff0000u);
        const float away = float_of_bits((bits_of_float(x) & 0xffff0000u) + 0x10000u);
        double sum = 0;
        for (int i = 0; i < DRAWS; i++) {
            const float rounded = round_stochastically(x, rounding_random(7, 3, (size_t)i));
            EXPECT(rounded == toward_zero || rounded == away);
            sum += rounded;
        }
        const double spacing = fabs((double)away - toward_zero);
        EXPECT_NEAR(sum / DRAWS, x, 4 * spacing / 2 / sqrt((double)DRAWS)); // four deviations of the mean
    }
}

TEST(what_bf16_can_hold_stays_what_it_is) {
    const float numbers[] = {0.0f, -0.0f, 1.0f, -1.5f, 0x1p-120f, INFINITY, -INFINITY};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        for (uint64_t random = 0; random < 1 << 16; random += 4095) {
            EXPECT(bits_of_float(round_stochastically(numbers[n], random)) == bits_of_float(numbers[n]));
        }
    }
    const float nan = round_stochastically(NAN, 0xffff);
    EXPECT(nan != nan);
}

TEST(steps_elements_and_seeds_have_random_numbers_of_their_own) {
    const uint64_t first = rounding_random(7, 3, 5);
    EXPECT(first == rounding_random(7, 3, 5));
    EXPECT(first != rounding_random(8, 3, 5) && first != rounding_random(7, 4, 5) && first != rounding_random(7, 3, 6));
}

TEST(the_nearest_bf16_and_the_even_one_of_two) {
    EXPECT(bf16_nearest(1.0f) == 0x3f80);
    EXPECT(bf16_nearest(1.00390625f) == 0x3f80); // halfway: to the even one
    EXPECT(bf16_nearest(1.01171875f) == 0x3f82);
    EXPECT(bf16_nearest(-1.004f) == 0xbf81);
    EXPECT(bf16_value(bf16_nearest(INFINITY)) == INFINITY);
    EXPECT(isnan(bf16_value(bf16_nearest(NAN))));
}

TEST_MAIN()
