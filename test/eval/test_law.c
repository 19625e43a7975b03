// The law of loss: recovered from runs that obey it, its intervals on runs drawn from it, and sets of runs that cannot
// tell it.
#include "llmc/base/rng.h"
#include "llmc/eval/law.h"
#include "test/test.h"

static const Law TRUE_LAW = {{0.5, 6, 0.35, 5.5, 0.37}}; // near Hoffmann et al.'s exponents, for sizes of a small study

// Fills a grid of runs whose losses scatter around the law by `scatter`; returns their number.
static int grid(LawRun run[64], double scatter, uint64_t seed) {
    int count = 0;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 5; k++, count++) {
            run[count] = (LawRun){2e4 * pow(2.3, i), 2.5e5 * pow(2, k), 0};
            run[count].loss = law_loss(&TRUE_LAW, run[count].parameters, run[count].tokens) *
                              exp(scatter * rng_normal(seed, RNG_TEST, (uint64_t)count));
        }
    }
    return count;
}

TEST(runs_without_scatter_give_their_law_back) {
    static LawFit fit;
    LawRun run[64];
    Error err;
    EXPECT(law_fit(&fit, run, grid(run, 0, 1), 1, &err));
    for (int i = 0; i < LAW_NUM; i++) { EXPECT_NEAR(fit.best.x[i], TRUE_LAW.x[i], 1e-4); }
    EXPECT(fit.scatter < 1e-6);
}

// 95% are stated; of new runs of four times the largest size and length at least 90% must lie inside, and so must E.
TEST(intervals_hold_nine_times_of_ten) {
    enum { SETS = 10, NEW = 10 };
    static LawFit fit;
    LawRun run[64];
    Error err;
    int inside = 0, inside_E = 0;
    for (uint64_t set = 0; set < SETS; set++) {
        const int count = grid(run, 0.01, set);
        EXPECT(law_fit(&fit, run, count, set, &err));
        for (int i = 0; i < NEW; i++) {
            const double parameters = 2e4 * pow(2.3, i % 5 + 1.5), tokens = i < 5 ? 1.6e7 : 1e6;
            const double loss = law_loss(&TRUE_LAW, parameters, tokens) *
                                exp(0.01 * rng_normal(set, RNG_TEST, 1000 + (uint64_t)i));
            const Interval at = law_forecast(&fit, parameters, tokens);
            inside += loss >= at.low && loss <= at.high;
        }
        int E = 0;
        for (int b = 0; b < LAW_REFITS; b++) { E += fit.refit[b].x[LAW_LN_E] < TRUE_LAW.x[LAW_LN_E]; }
        inside_E += E >= LAW_REFITS / 40 && E <= LAW_REFITS - LAW_REFITS / 40;
    }
    printf("inside: %d of %d runs, E in %d of %d\n", inside, SETS * NEW, inside_E, SETS);
    EXPECT(inside >= SETS * NEW * 9 / 10);
    EXPECT(inside_E >= SETS * 9 / 10);
}

// Four sizes and lengths of four runs each: without one of them the others can still be fitted.
static int square(LawRun run[16]) {
    LawRun all[64];
    grid(all, 0.01, 3);
    for (int i = 0; i < 16; i++) { run[i] = all[i / 4 * 5 + i % 4]; }
    return 16;
}

// Expects that the errors of a fit's refits have those of each run that was left out, by the law of the others, up and
// down.
static void expect_errors(const LawFit* fit, const LawRun* run, int count, bool (*left_out)(const LawRun*)) {
    static LawFit others;
    LawRun left[64] = {{0}};
    Error err;
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (!left_out(&run[i])) { left[n++] = run[i]; }
    }
    EXPECT(n < count && law_fit(&others, left, n, 1, &err));
    for (int i = 0; i < count; i++) {
        const double error = log(run[i].loss / law_loss(&others.best, run[i].parameters, run[i].tokens));
        bool up = false, down = false;
        for (int b = 0; b < LAW_REFITS; b++) {
            up = up || fabs(fit->error[b] - error) < 1e-6;
            down = down || fabs(fit->error[b] + error) < 1e-6;
        }
        EXPECT(!left_out(&run[i]) || (up && down));
    }
}

static bool is_smallest(const LawRun* r) { return r->parameters == 2e4; }
static bool is_longest(const LawRun* r) { return r->tokens == 2e6; }

// Each size and each length is left out in turn; the errors of a forecast are those of its runs, up or down.
TEST(errors_are_those_of_runs_whose_size_or_length_was_left_out) {
    static LawFit fit;
    LawRun run[64];
    Error err;
    const int count = square(run);
    double residuals = 0, distinct[LAW_REFITS], squares = 0;
    int num_distinct = 0;
    EXPECT(law_fit(&fit, run, count, 1, &err));
    expect_errors(&fit, run, count, is_smallest);
    expect_errors(&fit, run, count, is_longest);
    for (int i = 0; i < count; i++) {
        residuals += pow(log(run[i].loss / law_loss(&fit.best, run[i].parameters, run[i].tokens)), 2);
    }
    EXPECT_NEAR(fit.scatter, sqrt(residuals / (count - LAW_NUM)), 1e-9);
    for (int b = 0; b < LAW_REFITS; b++) {
        int k = 0;
        while (k < num_distinct && distinct[k] != fabs(fit.error[b])) { k++; }
        if (k == num_distinct) { squares += pow(distinct[num_distinct++] = fabs(fit.error[b]), 2); }
    }
    EXPECT(num_distinct == 2 * count);
    EXPECT_NEAR(fit.left_out, sqrt(squares / num_distinct), 1e-9);
}

static double alpha_of(const Law* law, const void* context) {
    (void)context;
    return law->x[LAW_ALPHA];
}

TEST(a_fortieth_of_the_refits_lies_beyond_each_end) {
    static LawFit fit, again;
    LawRun run[64];
    Error err;
    int below = 0, above = 0;
    EXPECT(law_fit(&again, run, square(run), 2, &err)); // the seed decides the refits alone
    EXPECT(law_fit(&fit, run, square(run), 1, &err));
    EXPECT(!memcmp(&again.best, &fit.best, sizeof fit.best) && memcmp(again.refit, fit.refit, sizeof fit.refit[0]));
    EXPECT(law_fit(&again, run, square(run), 1, &err) && !memcmp(again.refit, fit.refit, sizeof fit.refit));
    const Interval alpha = law_interval(&fit, alpha_of, NULL);
    for (int b = 0; b < LAW_REFITS; b++) {
        below += fit.refit[b].x[LAW_ALPHA] < alpha.low;
        above += fit.refit[b].x[LAW_ALPHA] > alpha.high;
    }
    EXPECT(alpha.value == fit.best.x[LAW_ALPHA] && below == LAW_REFITS / 40 && above == LAW_REFITS / 40);
}

TEST(a_floor_that_runs_cannot_tell_from_0_is_0) {
    const Law small = {{-14, 6, 0.35, 5.5, 0.37}};
    EXPECT(law_floor(&small) == 0);
    EXPECT_NEAR(law_floor(&TRUE_LAW), exp(0.5), 1e-15);
}

TEST(best_size_has_the_lowest_loss) {
    const double flops = 1e16, best = law_best_size(&TRUE_LAW, flops);
    const double lowest = law_loss(&TRUE_LAW, best, flops / 6 / best);
    EXPECT(lowest < law_loss(&TRUE_LAW, 1.05 * best, flops / 6 / best / 1.05));
    EXPECT(lowest < law_loss(&TRUE_LAW, best / 1.05, flops / 6 / best * 1.05));
}

TEST(too_few_runs_sizes_or_lengths_are_refused) {
    static LawFit fit;
    LawRun run[64], few[8];
    Error err;
    EXPECT(!law_fit(&fit, run, grid(run, 0.01, 1) / 5, 1, &err));
    EXPECT(strstr(err.text, "5 runs of 1 size and 5 lengths"));
    for (int i = 0; i < 8; i++) { few[i] = run[i / 2 * 5 + i % 2]; }
    EXPECT(!law_fit(&fit, few, 8, 1, &err) && strstr(err.text, "8 runs of 4 sizes and 2 lengths"));
    for (int i = 0; i < 6; i++) { few[i] = run[i / 2 * 5 + (i % 2 ? i / 2 : 4)]; }
    EXPECT(!law_fit(&fit, few, 6, 1, &err) && strstr(err.text, "6 runs of 3 sizes and 4 lengths"));
}

TEST(runs_that_follow_no_law_are_refused) {
    static LawFit fit;
    LawRun run[64];
    Error err;
    const int count = grid(run, 0, 1);
    for (int i = 0; i < count; i++) { run[i].loss = 2 + run[i].parameters / 1e6; } // larger models are worse
    EXPECT(!law_fit(&fit, run, count, 1, &err));
    EXPECT(strstr(err.text, "25 runs that follow no law of this form"));
    for (int i = 0; i < count; i++) { run[i].loss = 3; }
    EXPECT(!law_fit(&fit, run, count, 1, &err));
    EXPECT(strstr(err.text, "25 runs that follow no law of this form"));
    const Law steep = {{0.5, 6 * log(2e4), 6, 5.5, 0.37}}, steep_in_length = {{0.5, 6, 0.35, 6 * log(2.5e5), 6}};
    for (int i = 0; i < count; i++) { run[i].loss = law_loss(&steep, run[i].parameters, run[i].tokens); }
    EXPECT(!law_fit(&fit, run, count, 1, &err) && strstr(err.text, "exponents would be 6 for parameters and 0.37 for"));
    for (int i = 0; i < count; i++) { run[i].loss = law_loss(&steep_in_length, run[i].parameters, run[i].tokens); }
    EXPECT(!law_fit(&fit, run, count, 1, &err) && strstr(err.text, "would be 0.35 for parameters and 6 for tokens"));
}

// Sizes help only the shortest runs: losses of nine runs of 40, 80 and 160 steps with one rate. Then exchanged.
TEST(a_law_without_an_effect_of_size_or_length_is_refused) {
    static const double loss[9] = {3.8587, 3.4832, 3.4154, 3.5946, 3.4516, 3.2912, 3.4793, 3.4556, 3.3966};
    static LawFit fit;
    LawRun run[9];
    Error err;
    for (int i = 0; i < 9; i++) { run[i] = (LawRun){10700 * pow(2.5, i / 3), 10240 << i % 3, loss[i]}; }
    EXPECT(!law_fit(&fit, run, 9, 1, &err));
    EXPECT(strstr(err.text, "finds no effect of their parameters"));
    for (int i = 0; i < 9; i++) { run[i] = (LawRun){run[i].tokens, run[i].parameters, loss[i]}; }
    EXPECT(!law_fit(&fit, run, 9, 1, &err));
    EXPECT(strstr(err.text, "finds no effect of their tokens"));
}

// As those of refits can be.
TEST(a_term_that_grows_has_its_best_size_at_an_end) {
    const Law without_size = {{0.5, 6, -0.1, 5.5, 0.37}}, without_length = {{0.5, 6, 0.35, 5.5, -0.1}};
    EXPECT(law_best_size(&without_size, 1e16) == 0);
    EXPECT(isinf(law_best_size(&without_length, 1e16)));
}

TEST_MAIN()
