// The learning rate and the size of the batch, against values computed by hand.
#include "llmc/train/schedule.h"
#include "test/test.h"

static Schedule schedule_of(enum schedule kind, long long warmup) {
    return (Schedule){.kind = kind, .min_lr_frac = 0.1, .decay_frac = 0.2, .warmup_steps = warmup};
}

#define EXPECT_LR(s, step, steps, want) EXPECT_NEAR(schedule_rate(s, 6e-4, step, steps), want, 1e-15)

TEST(warm_up_rises_to_the_peak_and_never_is_zero) {
    const enum schedule all[] = {schedule_cosine, schedule_linear, schedule_constant, schedule_wsd};
    for (int i = 0; i < 4; i++) {
        const Schedule s = schedule_of(all[i], 10);
        EXPECT_LR(&s, 0, 100, 6e-5);
        EXPECT_LR(&s, 4, 100, 3e-4);
        EXPECT_LR(&s, 9, 100, 6e-4);
        EXPECT_LR(&s, 10, 100, 6e-4); // the first step after the warm-up
        EXPECT_LR(&s, 0.25, 100, 7.5e-5);
        EXPECT_LR(&s, 9.5, 100, 6e-4); // between steps it does not overshoot
        EXPECT_LR(&s, 3, 4, 2.4e-4);   // a warm-up longer than the run
        const Schedule none = schedule_of(all[i], 0);
        EXPECT_LR(&none, 0, 100, 6e-4);
    }
}

TEST(cosine_falls_by_half_a_wave) {
    const Schedule s = schedule_of(schedule_cosine, 20);
    EXPECT_LR(&s, 20, 120, 6e-4);
    EXPECT_LR(&s, 70, 120, 3.3e-4);                                   // the middle: the mean of peak and minimum
    EXPECT_LR(&s, 45, 120, 6e-5 + 2.7e-4 * (1 + 0.70710678118654752)); // a quarter: cos(pi/4)
    EXPECT_LR(&s, 20 + 100.0 / 3, 120, 6e-5 + 2.7e-4 * 1.5);          // a third: cos(pi/3) = 1/2
    EXPECT_LR(&s, 120, 120, 6e-5);
    EXPECT_LR(&s, 500, 120, 6e-5); // and no second wave
    EXPECT_LR(&s, 20, 20, 6e-5);   // nothing but a warm-up
}

TEST(linear_falls_in_a_line) {
    const Schedule s = schedule_of(schedule_linear, 20);
    EXPECT_LR(&s, 45, 120, 4.65e-4);
    EXPECT_LR(&s, 70, 120, 3.3e-4);
    EXPECT_LR(&s, 120, 120, 6e-5);
    EXPECT_LR(&s, 121, 120, 6e-5);
}

TEST(constant_stays) {
    const Schedule s = schedule_of(schedule_constant, 5);
    EXPECT_LR(&s, 5, 100, 6e-4);
    EXPECT_LR(&s, 99, 100, 6e-4);
    EXPECT_LR(&s, 1000, 100, 6e-4);
}

TEST(wsd_decays_over_the_last_fifth) {
    const Schedule s = schedule_of(schedule_wsd, 10);
    EXPECT_LR(&s, 11, 100, 6e-4);
    EXPECT_LR(&s, 79, 100, 6e-4);
    EXPECT_LR(&s, 80, 100, 6e-4);
    EXPECT_LR(&s, 85, 100, 6e-5 + 5.4e-4 * 0.5);               // a quarter of it: 1 - sqrt(1/4)
    EXPECT_LR(&s, 90, 100, 6e-5 + 5.4e-4 * 0.29289321881345248); // half: 1 - sqrt(1/2)
    EXPECT_LR(&s, 100, 100, 6e-5);
    EXPECT_LR(&s, 130, 100, 6e-5);
}

TEST(the_decay_of_wsd_has_a_length_and_a_shape) {
    Schedule s = schedule_of(schedule_wsd, 10);
    s.decay_frac = 0.4;
    EXPECT_LR(&s, 60, 100, 6e-4);
    EXPECT_LR(&s, 70, 100, 6e-5 + 5.4e-4 * 0.5);
    s.kind = schedule_wsd_linear;
    EXPECT_LR(&s, 60, 100, 6e-4);
    EXPECT_LR(&s, 70, 100, 6e-5 + 5.4e-4 * 0.75);
    EXPECT_LR(&s, 100, 100, 6e-5);
    s.decay_frac = 1; // from the warm-up on
    EXPECT_LR(&s, 9, 100, 6e-4);
    EXPECT_LR(&s, 50, 100, 6e-5 + 5.4e-4 * 0.5);
    s.decay_frac = 0; // never
    EXPECT_LR(&s, 99, 100, 6e-4);
    EXPECT_LR(&s, 100, 100, 6e-4);
}

TEST(min_lr_frac_may_be_1_or_0) {
    const enum schedule all[] = {schedule_cosine, schedule_linear, schedule_wsd};
    for (int i = 0; i < 3; i++) {
        Schedule s = schedule_of(all[i], 0);
        s.min_lr_frac = 1;
        for (int step = 0; step <= 20; step++) { EXPECT_LR(&s, step, 20, 6e-4); }
        s.min_lr_frac = 0;
        EXPECT_LR(&s, 20, 20, 0);
        double last = 1;
        for (int step = 0; step <= 20; step++) { // never rises, never is negative
            const double lr = schedule_rate(&s, 6e-4, step, 20);
            EXPECT(lr <= last && lr >= 0);
            last = lr;
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the batch ramp

enum { T = 64 };

// Reads a ramp of batches that ends at `full` tokens.
static bool batch_ramp_parse(const char* text, long long full, Ramp* ramp, Error* err) {
    return ramp_parse(ramp, "batch_ramp", text, err) && batch_ramp_fit(ramp, full, T, err);
}

static Ramp ramp_of(const char* text, long long full) {
    Error err;
    Ramp ramp;
    if (!batch_ramp_parse(text, full, &ramp, &err)) { TEST_FAIL("%s: %s", text, err.text); }
    return ramp;
}

TEST(without_a_ramp_every_step_is_full) {
    const Ramp none = ramp_of("", 512);
    EXPECT(none.start == 0 && ramp_size(&none, 0) == 512 && ramp_size(&none, 1000000) == 512);
    EXPECT(ramp_steps(&none, 0, 0) == 0 && ramp_steps(&none, 0, 1) == 1 && ramp_steps(&none, 0, 512) == 1 &&
           ramp_steps(&none, 0, 513) == 2);
    EXPECT(ramp_steps(&none, 0, 512LL * 1000000000) == 1000000000);
}

TEST(a_ramp_doubles_at_equal_distances) {
    const Ramp r = ramp_of("64:6000", 512); // three doublings: at 2000, 4000, 6000
    const long long at[] = {0, 1999, 2000, 3999, 4000, 5999, 6000, 1000000},
                    want[] = {64, 64, 128, 128, 256, 256, 512, 512};
    for (int i = 0; i < 8; i++) {
        if (ramp_size(&r, at[i]) != want[i]) { TEST_FAIL("after %lld tokens: %lld", at[i], ramp_size(&r, at[i])); }
    }
    // 32 steps of 64 tokens end at 2048, 16 of 128 at 4096, 8 of 256 at 6144; the following have 512
    EXPECT(ramp_steps(&r, 0, 2048) == 32 && ramp_steps(&r, 0, 4096) == 48 && ramp_steps(&r, 0, 6144) == 56);
    EXPECT(ramp_steps(&r, 0, 6145) == 57 && ramp_steps(&r, 0, 6144 + 512) == 57 && ramp_steps(&r, 0, 6144 + 513) == 58);
    EXPECT(ramp_steps(&r, 0, 64) == 1 && ramp_steps(&r, 0, 65) == 2 && ramp_steps(&r, 0, 0) == 0);
}

TEST(the_steps_of_a_ramp_add_up_to_the_tokens) {
    const char* const texts[] = {"64:6000", "512:1", "128:1000000", "64:1"};
    for (int i = 0; i < 4; i++) {
        const Ramp r = ramp_of(texts[i], 512);
        for (long long tokens = 64; tokens < 40000; tokens = tokens * 5 / 4 + 64) {
            long long seen = 0, steps = 0;
            for (; seen < tokens; steps++) { seen += ramp_size(&r, seen); }
            EXPECT(ramp_steps(&r, 0, tokens) == steps);
            EXPECT(seen - tokens < 512);
            long long first = 0, left = steps; // counted from any step on
            for (; left > 0; left -= 3) {
                EXPECT(ramp_steps(&r, first, tokens) == left);
                for (int step = 0; step < 3; step++) { first += ramp_size(&r, first); }
            }
        }
    }
    const Ramp longest = ramp_of("64:1000000000000000", 512); // counted without a loop over its 1e13 steps
    EXPECT(ramp_steps(&longest, 0, 300000000000064) == 4687500000001);
    const Ramp gpt3 = ramp_of("32768:4000000000", 524288); // GPT-3's: rounding delays no doubling
    EXPECT(ramp_size(&gpt3, 0) == 32768 && ramp_size(&gpt3, 999999999) == 32768 &&
           ramp_size(&gpt3, 1000000000) == 65536);
    EXPECT(ramp_size(&gpt3, 3999999999LL) == 262144 && ramp_size(&gpt3, 4000000000LL) == 524288);
}

TEST(ramps_that_cannot_be_are_refused) {
    static const char* const unreadable[] = {"64",     "64:",      ":6000", "64:6000x", "x64:6000",
                                             "0:6000", "-64:6000", "64:0",  "64:-1",    "64 6000"};
    static const char* const unfit[] = {"96:6000", "32:6000", "192:6000", "1024:6000", "9223372036854775807:1"};
    Error err;
    Ramp r;
    for (int i = 0; i < 10; i++) {
        if (batch_ramp_parse(unreadable[i], 512, &r, &err) || !strstr(err.text, "give START:TOKENS") ||
            !strstr(err.text, unreadable[i])) {
            TEST_FAIL("'%s' is accepted, or the message is: %s", unreadable[i], err.text);
        }
    }
    for (int i = 0; i < 5; i++) {
        if (batch_ramp_parse(unfit[i], 512, &r, &err) || !strstr(err.text, "a multiple of 64") ||
            !strstr(err.text, "--total_batch_size 512")) {
            TEST_FAIL("'%s' is accepted, or the message is: %s", unfit[i], err.text);
        }
    }
    EXPECT(strstr(err.text, "as 256 does"));
    EXPECT(!batch_ramp_parse("64:99999999999999999999", 512, &r, &err));
    EXPECT(strstr(err.text, "TOKENS is at most 1000000"));
    EXPECT(!batch_ramp_parse("99999999999999999999:64", 512, &r, &err));
    EXPECT(strstr(err.text, "99999999999999999999:64"));
    EXPECT(batch_ramp_parse("256:6000", 512, &r, &err)); // what the message advises
    EXPECT(!batch_ramp_parse("100:6000", 192, &r, &err) && strstr(err.text, "as 192 does"));
    EXPECT(batch_ramp_parse("192:6000", 192, &r, &err));
}

// ---------------------------------------------------------------------------------------------------------------------
// the sequence ramp

static bool seq_ramp_parse(const char* text, int full, Ramp* ramp, Error* err) {
    return ramp_parse(ramp, "seq_ramp", text, err) && seq_ramp_fit(ramp, full, err);
}

TEST(sequences_double_at_equal_distances) {
    Error err;
    Ramp r;
    EXPECT(seq_ramp_parse("", 1024, &r, &err) && ramp_size(&r, 0) == 1024);
    EXPECT(seq_ramp_parse("128:3000", 1024, &r, &err));
    const long long at[] = {0, 999, 1000, 1999, 2000, 2999, 3000, 1000000},
                    want[] = {128, 128, 256, 256, 512, 512, 1024, 1024};
    for (int i = 0; i < 8; i++) { EXPECT(ramp_size(&r, at[i]) == want[i]); }
}

TEST(sequences_that_cannot_double_are_refused) {
    static const char* const unfit[] = {"96:6000", "2048:6000", "1023:6000", "9223372036854775807:1"};
    Error err;
    Ramp r;
    for (int i = 0; i < 4; i++) {
        if (seq_ramp_parse(unfit[i], 1024, &r, &err) || !strstr(err.text, "--seq_len 1024, as 512 does")) {
            TEST_FAIL("'%s' is accepted, or the message is: %s", unfit[i], err.text);
        }
    }
    EXPECT(!seq_ramp_parse("128", 1024, &r, &err) && strstr(err.text, "--seq_ramp '128': give START:TOKENS"));
    EXPECT(!seq_ramp_parse("3:100", 25, &r, &err) && strstr(err.text, "as 25 does"));
    EXPECT(seq_ramp_parse("25:100", 25, &r, &err) && seq_ramp_parse("512:1", 1024, &r, &err));
}

TEST_MAIN()
