// The judgement of steps: which update the weights, which are skipped, and which end the run.
#include "llmc/train/numerics.h"
#include "test/test.h"

enum { DYNAMIC = true, FIXED = false };

// The numerics of a run that has done as many steps as fill the windows of outliers. The scale is 2^20.
static Numerics numerics_of(bool is_dynamic) {
    Numerics n = {.loss_scale = {.scale = 0x1p20, .is_dynamic = is_dynamic}};
    for (int i = 0; i < OUTLIER_WINDOW; i++) {
        outlier_update(&n.loss_window, 1 + 0.1 * (i % 2));
        outlier_update(&n.norm_window, 1 + 0.1 * (i % 2));
    }
    return n;
}

// Returns the record of a step: '.' a good one, L or N with a spike of the loss or the norm, l or n where that is not
// finite.
static StepRecord step_of(char outcome) {
    return (StepRecord){.loss = outcome == 'L' ? 100 : outcome == 'l' ? (double)NAN : 1,
                        .norm = outcome == 'N' ? 100 : outcome == 'n' ? (double)INFINITY : 1};
}

// Judges the steps with these outcomes. Compares the verdicts, u for an update, s for a skip, E for the end, and the
// bad steps in a row at the end.
static void expect_verdicts(SpikeRule rule, bool is_dynamic, const char* outcomes, const char* want, int bad_steps) {
    Logger silent = {.options = {.rank = 1}};
    Numerics n = numerics_of(is_dynamic);
    char got[40] = "";
    double scale = 0x1p20;
    process_rank = 1; // notices are those of rank 0
    for (size_t i = 0; outcomes[i]; i++) {
        StepRecord r = step_of(outcomes[i]);
        const Verdict v = numerics_judge(&n, &r, &rule, &silent);
        got[i] = v == STEP_UPDATES ? 'u' : v == STEP_SKIPS ? 's' : 'E';
        scale /= is_dynamic && outcomes[i] == 'n' ? 2 : 1;
    }
    process_rank = 0;
    if (strcmp(got, want) || n.bad_steps != bad_steps) {
        TEST_FAIL("%s: %s, %lld bad steps, not %s, %d", outcomes, got, n.bad_steps, want, bad_steps);
    }
    EXPECT(n.loss_scale.scale == scale);
}

TEST(without_options_what_is_not_finite_ends_the_run) {
    const SpikeRule none = {0, 0, 0};
    EXPECT(!numerics_may_skip(&none));
    expect_verdicts(none, FIXED, "..LN", "uuuu", 0);
    expect_verdicts(none, FIXED, ".l", "uE", 1);
    expect_verdicts(none, FIXED, ".n", "uE", 1);
}

TEST(a_dynamic_scale_mends_an_overflow) {
    const SpikeRule none = {0, 0, 0};
    expect_verdicts(none, DYNAMIC, "nnnnnnnnnn.n", "ssssssssssus", 0);
    expect_verdicts(none, DYNAMIC, "nl", "sE", 1); // not a loss
}

TEST(outliers_are_skipped_by_loss_or_by_norm) {
    const SpikeRule loss = {.loss_z = 5}, norm = {.norm_z = 5};
    EXPECT(numerics_may_skip(&loss) && numerics_may_skip(&norm));
    expect_verdicts(loss, FIXED, ".L.N.", "usuuu", 0);
    expect_verdicts(norm, FIXED, ".L.N.", "uuusu", 0);
    expect_verdicts(loss, FIXED, "LL", "ss", 2);
}

TEST(eight_steps_in_a_row_that_are_not_finite_are_skipped) {
    const SpikeRule loss = {.loss_z = 5};
    expect_verdicts(loss, FIXED, "lnlnlnlnl", "ssssssssE", 9);
    expect_verdicts(loss, FIXED, "llll.llllllll", "ssssussssssss", 8);
    expect_verdicts(loss, FIXED, "llllLlllllllll", "sssssssssssssE", 14); // a spike is finite
    expect_verdicts(loss, DYNAMIC, "llllnlllllllll", "sssssssssssssE", 9); // an overflow is not bad
}

TEST(bad_steps_in_a_row_end_the_run) {
    const SpikeRule one = {.loss_z = 5, .bad_steps = 1}, two = {.loss_z = 5, .norm_z = 5, .bad_steps = 2},
                    three = {.bad_steps = 3}, many = {.bad_steps = 12};
    EXPECT(numerics_may_skip(&three));
    expect_verdicts(one, FIXED, ".L", "uE", 1);
    expect_verdicts(one, FIXED, ".n", "uE", 1);
    expect_verdicts(two, FIXED, "L.N.lN", "sususE", 2);
    expect_verdicts(two, FIXED, "nL", "sE", 2);
    expect_verdicts(two, DYNAMIC, "nnLnLL", "sssssE", 2); // an overflow is not bad
    expect_verdicts(three, FIXED, "ll.lLlnl", "ssusussE", 3);
    expect_verdicts(three, FIXED, "l.", "su", 0);
    expect_verdicts(many, FIXED, "llllllllllll", "sssssssssssE", 12); // more than eight that are not finite
}

TEST_MAIN()
