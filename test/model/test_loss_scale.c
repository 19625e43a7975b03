// The loss scale: what --loss_scale accepts, how a dynamic scale moves, and its state in a checkpoint.
#include "llmc/model/loss_scale.h"
#include "test/test.h"

// Reads --loss_scale, which is right.
static LossScale scale_of(const char* option, bool is_fp16) {
    Error err;
    LossScale s;
    if (!loss_scale_parse(&s, option, is_fp16, &err)) { fatal("%s", err.text); }
    return s;
}

static void expect_scale(const char* option, bool is_fp16, double scale, bool is_dynamic) {
    const LossScale s = scale_of(option, is_fp16);
    if (s.scale != scale || s.is_dynamic != is_dynamic || s.good_steps != 0) {
        TEST_FAIL("--loss_scale %s: %g, %s", option, s.scale, s.is_dynamic ? "dynamic" : "fixed");
    }
}

static void expect_refused(const char* option, const char* words) {
    Error err = {.text = ""};
    LossScale s;
    if (loss_scale_parse(&s, option, false, &err) || !strstr(err.text, words)) {
        TEST_FAIL("--loss_scale %s: '%s'", option, err.text);
    }
}

TEST(fp16_is_scaled_unless_another_scale_is_asked_for) {
    expect_scale("auto", true, 65536, true);
    expect_scale("auto", false, 1, false);
    expect_scale("off", true, 1, false);
    expect_scale("1024", true, 1024, false);
    expect_scale("1", true, 1, false);
}

TEST(any_type_can_be_scaled) {
    expect_scale("dynamic", false, 65536, true);
    expect_scale("dynamic:8", false, 8, true);
    expect_scale("dynamic:1", false, 1, true);
    expect_scale("16777216", false, 16777216, false);
    expect_scale("0x1p127", false, 0x1p127, false);
    const LossScale off = scale_of("off", false), one = scale_of("dynamic:1", false), fixed = scale_of("2", false);
    EXPECT(!loss_scale_is_on(&off) && loss_scale_is_on(&one) && loss_scale_is_on(&fixed));
}

TEST(scales_are_powers_of_two) {
    static const char* const words[] = {"", "on", "dynamic:", "dynamic:x", "8x", "dynamic8", "off:8", "auto|off"};
    static const char* const numbers[] = {"0", "-2", "0.5", "3", "65535", "dynamic:0", "dynamic:12", "inf", "nan",
                                          "0x1p128", "1e400"};
    for (int i = 0; i < 8; i++) { expect_refused(words[i], "give auto, off, dynamic, dynamic:START or a number"); }
    for (int i = 0; i < 11; i++) { expect_refused(numbers[i], "give a power of two from 1 to 2^127"); }
}

// Updates a scale by outcomes: '.' a good step, ':' 1998 of them, 'x' an overflow. 2000 good steps double it.
static void run_steps(LossScale* s, const char* outcomes) {
    for (; *outcomes; outcomes++) {
        for (int i = *outcomes == ':' ? 1998 : 1; i > 0; i--) { loss_scale_update(s, *outcomes == 'x'); }
    }
}

TEST(an_overflow_halves_the_scale_and_an_interval_without_doubles_it) {
    LossScale s = scale_of("dynamic", false);
    run_steps(&s, ":.");
    EXPECT(s.scale == 65536);
    run_steps(&s, ".");
    EXPECT(s.scale == 131072);
    run_steps(&s, ":.");
    EXPECT(s.scale == 131072); // the count has begun anew
    run_steps(&s, "x");
    EXPECT(s.scale == 65536);
    run_steps(&s, ":.");
    EXPECT(s.scale == 65536); // and after the overflow again
    run_steps(&s, ".xx");
    EXPECT(s.scale == 32768);
}

TEST(the_scale_stays_between_1_and_2_to_the_127) {
    LossScale s = scale_of("dynamic", false);
    for (int i = 16; i < 130; i++) { run_steps(&s, ":.."); }
    EXPECT(s.scale == 0x1p127);
    for (int i = 127; i > 0; i--) {
        EXPECT(loss_scale_can_shrink(&s));
        run_steps(&s, "x");
    }
    EXPECT(s.scale == 1 && !loss_scale_can_shrink(&s));
}

TEST(a_fixed_scale_never_moves) {
    LossScale s = scale_of("1024", true);
    EXPECT(!loss_scale_can_shrink(&s));
    run_steps(&s, ":..:..x");
    EXPECT(s.scale == 1024);
}

TEST(a_resumed_scale_moves_as_if_it_had_not_stopped) {
    Error err;
    LossScale s = scale_of("dynamic", false), resumed = scale_of("dynamic", false);
    run_steps(&s, "x:...");
    json_t* saved = loss_scale_to_json(&s);
    EXPECT(loss_scale_from_json(&resumed, saved, &err));
    EXPECT(resumed.scale == 65536 && resumed.good_steps == 1);
    run_steps(&s, ":.");
    run_steps(&resumed, ":.");
    EXPECT(resumed.scale == 131072 && !memcmp(&s, &resumed, sizeof s));
    LossScale fixed = scale_of("8", false);
    EXPECT(loss_scale_from_json(&fixed, saved, &err) && fixed.scale == 8 && fixed.good_steps == 0);
    json_decref(saved);
}

TEST(states_that_no_run_can_have_are_refused) {
    static const char* const states[] = {"{}", "[]", "{\"scale\": 3, \"good_steps\": 0}",
                                         "{\"scale\": 0.5, \"good_steps\": 0}", "{\"scale\": \"8\"}",
                                         "{\"scale\": 8, \"good_steps\": -1}"};
    for (int i = 0; i < 6; i++) {
        Error err = {.text = ""};
        LossScale s = scale_of("dynamic", false);
        json_t* saved = json_loads(states[i], 0, NULL);
        EXPECT(!loss_scale_from_json(&s, saved, &err) && strstr(err.text, "is impossible"));
        EXPECT(s.scale == 65536);
        json_decref(saved);
    }
}

TEST_MAIN()
