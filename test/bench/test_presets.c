// The costs of presets, predicted, beside those that llm.c published for the same runs.
#include "llmc/bench/presets.h"
#include "llmc/options/models.h"
#include "test/test.h"

static int number_of(const char* name) {
    int i = 0;
    while (preset_name(i) && strcmp(preset_name(i), name)) { i++; }
    if (!preset_name(i)) { TEST_FAIL("there is no preset %s", name); }
    return i;
}

// Steps on eight A100-80 and eight H100 by the scripts of llm.c and its records in modded-nanogpt (test_predict.c).
// Our kernels are not llm.c's, so the times may differ by a tenth.
TEST(steps_cost_about_what_llm_c_published) {
    static const struct {
        const char* name;
        double ms[NUM_MACHINES]; // NAN: not published
        int B;                   // of llm.c's script
    } published[] = {{"gpt2:124m", {300, 140}, 64},
                     {"gpt2:350m", {820, 348}, 64},
                     {"gpt2:774m", {1700, NAN}, 32},
                     {"gpt2:1558m", {NAN, 2750}, 16}};
    for (int i = 0; i < 4; i++) {
        const PresetCost cost = preset_cost(number_of(published[i].name));
        for (int m = 0; m < NUM_MACHINES; m++) {
            EXPECT(cost.B[m] == published[i].B);
            if (isnan(published[i].ms[m])) { continue; }
            EXPECT_NEAR(1e3 * cost.seconds[m] / published[i].ms[m], 1, 0.1);
        }
    }
}

TEST(a_recipe_with_fewer_steps_costs_as_much_less) {
    const PresetCost slow = preset_cost(number_of("gpt2:124m")), fast = preset_cost(number_of("fast:124m"));
    EXPECT(fast.seconds[0] == slow.seconds[0] && fast.seconds[1] == slow.seconds[1]);
    EXPECT_NEAR(fast.tokens, 12288.0 * 524288, 1);
    EXPECT_NEAR(fast.tokens / slow.tokens, 12288.0 / 19073, 1e-12);
}

// 1.63e12 operations (by hand: 5 * 12 layers * 60 * 768^3) shared by eight GPUs, at two thirds of 312 TFLOP/s or so.
TEST(muon_adds_its_matmuls_to_a_step) {
    const PresetCost adamw = preset_cost(number_of("fast:124m")), muon = preset_cost(number_of("muon:124m"));
    EXPECT(muon.B[0] == adamw.B[0] && muon.B[1] == adamw.B[1]);
    EXPECT_NEAR(muon.seconds[0] - adamw.seconds[0], 1.09 * 1.63e12 / 8 / (312e12 * 0.75), 3e-4);
    EXPECT(muon.steps == 8000 && adamw.steps == 12288);
}

TEST(a_model_that_does_not_fit_has_no_cost) {
    const PresetCost cost = preset_cost(number_of("gpt3:13b"));
    EXPECT(cost.B[0] == 0 && isnan(cost.seconds[0]) && cost.steps == 123978);
}

TEST(every_preset_has_an_outcome) {
    for (int i = 0; preset_name(i); i++) { EXPECT(*preset_outcome(i)); }
}

TEST_MAIN()
