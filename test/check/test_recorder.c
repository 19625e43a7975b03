// The recorded list of a step: its arithmetic against the formula of MFU and against sums made by hand, its runs.
#include "llmc/check/recorder.h"
#include "test/test.h"

extern const Backend cpu_bf16_generic; // for the bytes of bf16: recording asks no device

enum { BF16 = 2, L = 12, C = 768, T = 1024, B = 16, TOKENS = B * T };

static Plan example_plan(void) {
    const GPT2Config shape = {.max_seq_len = T, .vocab_size = 50257, .padded_vocab_size = 50304, .num_layers = L,
                              .num_heads = 12, .channels = C};
    return (Plan){.backend = &cpu_bf16_generic, .dtype = dtype_bf16, .shape = shape, .B = B, .T = T,
                  .total_batch_size = TOKENS, .keep = KEEP_ALL, .shards = 1};
}

// WorkDone of the operations of a plan's step whose names have one of the `words`, and how often they run.
typedef struct {
    double flops, bytes;
    int runs;
} WorkDone;

static WorkDone work_of(const Plan* p, const char* const words[3]) {
    const StepOps ops = record_step(p);
    WorkDone w = {.runs = 0};
    for (int i = 0; i < ops.count; i++) {
        const char* name = op_name(ops.op[i].op);
        const OpCost cost = step_op_cost(p->backend, &ops.op[i]);
        bool is_asked = false;
        for (int k = 0; k < 3 && words[k]; k++) { is_asked = is_asked || strstr(name, words[k]); }
        if (!is_asked) { continue; }
        w.flops += cost.flops;
        w.bytes += cost.read + cost.written;
        w.runs += ops.op[i].runs;
    }
    return w;
}

static const char *const ALL[3] = {""}, *const MATMULS[3] = {"matmul", "attention", "classifier"},
                  *const UPDATE[3] = {"norm_squared", "adamw", "muon"};

// The formula also counts positions, biases, layernorms and padding. It leaves out that backward computes scores again,
// and that those on the diagonal are whole.
TEST(the_operations_of_a_step_are_those_of_the_formula) {
    GPT2 g;
    const Plan p = example_plan();
    plan_layout(&p, &g);
    const double vectors = L * (4 * C + 9 * C) + 2 * C; // layernorms, then biases of qkv, attproj, fc, fcproj
    const double no_matmuls = 6 * ((double)T * C + vectors + (50304 - 50257) * C);
    const double scores = (double)L * C * (7 * (T + 1) - 6 * T);
    const double want = gpt2_flops_per_token(&g, T) - no_matmuls + scores;
    EXPECT_NEAR(work_of(&p, MATMULS).flops / TOKENS / want, 1, 1e-12);
    EXPECT_NEAR(want / gpt2_flops_per_token(&g, T), 1, 0.02);
}

// A block's forward: two layernorms, four linear layers, attention. Its backward: as many. Besides: encoder, layernorm
// and classifier, forward and backward, the sum of losses, the norm and the update.
TEST(each_operation_runs_once_for_each_layer) {
    const Plan p = example_plan();
    EXPECT(work_of(&p, ALL).runs == L * (7 + 7) + 8);
}

// But the first micro-batch sets the gradients of matrices, and does not read them.
TEST(accumulation_repeats_all_but_the_update) {
    Plan p = example_plan();
    const WorkDone once = work_of(&p, ALL), update = work_of(&p, UPDATE);
    p.total_batch_size = 4 * TOKENS;
    const WorkDone four = work_of(&p, ALL);
    EXPECT(four.runs + 3 * update.runs == 4 * once.runs);
    const double read = 3.0 * sizeof(float) * (12.0 * L * C * C + 50304.0 * C);
    EXPECT_NEAR((four.bytes + 3 * update.bytes) / (4 * once.bytes + read), 1, 1e-12);
}

// A block's forward again, without its last matmul: 2 C (3 C + C + 4 C) and attention; or its GELUs alone.
TEST(recomputing_runs_forward_again) {
    Plan p = example_plan();
    const WorkDone none = work_of(&p, MATMULS), none_in_all = work_of(&p, ALL);
    p.keep = RECOMPUTE_ALL;
    const double more = work_of(&p, MATMULS).flops - none.flops;
    EXPECT_NEAR(more / TOKENS / (L * (16.0 * C * C + 2.0 * C * (T + 1))), 1, 1e-12);
    p.keep = RECOMPUTE_GELU;
    const WorkDone gelu = work_of(&p, ALL);
    EXPECT(work_of(&p, MATMULS).flops == none.flops && gelu.runs == none_in_all.runs + L);
    EXPECT_NEAR((gelu.bytes - none_in_all.bytes) / (2.0 * L * TOKENS * 4 * C * BF16), 1, 1e-9);
}

// AdamW: masters and moments in both directions, the gradient once, the parameters written. The norm reads it too.
TEST(the_update_goes_over_all_parameters) {
    const Plan p = example_plan();
    const double n = (double)gpt2_params_table(&p.shape, 1).size;
    EXPECT_NEAR(work_of(&p, UPDATE).bytes / n, 3 * 8 + 4 + BF16 + 4, 1e-4);
}

// For a square matrix five times 6 C^3, for one of (4C,C) or (C,4C) five times 18 C^3, and 20 operations an element.
// AdamW updates the ranges between them.
TEST(muon_updates_the_matrices_and_adamw_the_rest) {
    Plan p = example_plan();
    const char *const muon[3] = {"muon"}, *const adamw[3] = {"adamw"};
    const double n = (double)gpt2_params_table(&p.shape, 1).size, matrices = 12.0 * L * C * C;
    p.rates.kind = OPTIMIZER_MUON;
    const double products = 5.0 * (4 * L * 6 + 2 * L * 18) * C * C * C;
    EXPECT_NEAR(work_of(&p, muon).flops / (products + 20 * matrices), 1, 1e-12);
    EXPECT(work_of(&p, muon).runs == 3 && work_of(&p, adamw).runs == L + 2);
    EXPECT_NEAR(work_of(&p, adamw).flops / (17 * (n - matrices)), 1, 1e-12);
}

TEST(a_residual_stream_in_bf16_has_half_the_bytes) {
    Plan p = example_plan();
    const double whole = work_of(&p, ALL).bytes, rows = (double)TOKENS * C;
    p.backend = p.backend->with_bf16_residual;
    // encoder; layernorm; in each layer two forward with an addition and two backward; backward of the last layernorm;
    // the encoder's backward. And each layernorm's backward writes no second, rounded gradient.
    const double passes = 1 + 1 + L * (2 * 2 + 2 * 3) + 3 + 1 + (2 * L + 1);
    EXPECT_NEAR((whole - work_of(&p, ALL).bytes) / (2 * rows), passes, 1e-9);
}

// Every operation is noted with the shapes it is called with: the case does the same work.
TEST(linear_layers_are_named_by_their_weights) {
    const Plan p = example_plan();
    const StepOps ops = record_step(&p);
    int linear = 0;
    for (int i = 0; i < ops.count; i++) {
        const StepOp* op = &ops.op[i];
        EXPECT((*op->layer != 0) == (strstr(op_name(op->op), "matmul") != NULL));
        if (!strcmp(op->layer, "fcprojw")) { EXPECT(op->size.C == 4 * C && op->size.OC == C && op->runs == L); }
        linear += *op->layer != 0;
    }
    EXPECT(linear == 8);
}

TEST_MAIN()
