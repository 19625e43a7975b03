// `bench predict`: the operations of a step against the formula of MFU, its bytes against sums made by hand, its time
// against the assumptions that it is computed from.
#include "llmc/bench/predict.h"
#include "test/test.h"

extern const Backend cpu_bf16_generic; // for the bytes of bf16: predictions ask no device

static const GPT2Config SHAPE = {.max_seq_len = 1024,
                                 .vocab_size = 50257,
                                 .padded_vocab_size = 50304,
                                 .num_layers = 12,
                                 .num_heads = 12,
                                 .channels = 768};
enum { BF16 = 2 }; // bytes

static Step example_step(const char* gpu) {
    Config c;
    config_defaults(&c);
    const Plan p = {.backend = &cpu_bf16_generic,
                    .dtype = "bf16",
                    .shape = SHAPE,
                    .B = 16,
                    .T = 1024,
                    .total_batch_size = 16 * 1024,
                    .keep = KEEP_ALL,
                    .shards = 1};
    return step_of(&p, &c, gpu_find(gpu));
}

static double step_bytes(const Step* s) {
    const Prediction p = predict_step(s, NUM_PARTS);
    return p.read + p.written;
}

// All matmuls of a step are the formula's operations, except that the formula also counts positions, biases, layernorms
// and padding, and leaves out that backward computes scores again and that those on the diagonal are whole.
TEST(operations_of_a_step_are_those_of_the_formula) {
    GPT2 g;
    const Step s = example_step("A100");
    const double C = 768, L = 12, T = 1024, tokens = 16 * T;
    gpt2_layout(&g, &cpu_bf16_generic, &SHAPE, 16, 1024, KEEP_ALL, 1);
    const double vectors = L * (4 * C + 9 * C) + 2 * C; // layernorms, then biases of qkv, attproj, fc, fcproj
    const double no_matmuls = 6 * (T * C + vectors + (50304 - 50257) * C);
    const double scores = L * C * (7 * (T + 1) - 6 * T);
    const double want = gpt2_flops_per_token(&g, g.T) - no_matmuls + scores;
    EXPECT_NEAR(predict_step(&s, NUM_PARTS).matmul_flops / tokens / want, 1, 1e-12);
    EXPECT_NEAR(want / gpt2_flops_per_token(&g, g.T), 1, 0.02);
}

// The casts of fp8.cuh: forward a layer's input takes 5 bytes an element, backward the gradient of its output 6 and its
// input 5, which is 124 C for each token of a block; a weight 6, once in a step.
TEST(fp8_casts_what_its_matmuls_read) {
    Step s = example_step("H100");
    const double C = 768, L = 12, tokens = 16 * 1024, weights = L * 12 * C * C, scales = 16 * 4 * L;
    const Prediction bf16 = predict_step(&s, NUM_PARTS), bf16_update = predict_step(&s, PART_UPDATE);
    s.dtype = "fp8";
    s.fp8 = true;
    const Prediction fp8 = predict_step(&s, NUM_PARTS), update = predict_step(&s, PART_UPDATE);
    const double in_update = update.read + update.written - bf16_update.read - bf16_update.written;
    EXPECT_NEAR(in_update, 6 * weights + scales, 1);
    EXPECT(update.launches - bf16_update.launches == 4 * 3 * L);
    EXPECT(fp8.matmul_flops == bf16.matmul_flops);
    // three launches for each of three casts; GELU and its gradient; sums of columns are two launches, for one addition
    EXPECT(fp8.launches - update.launches == bf16.launches - bf16_update.launches + L * (4 * 3 * 3 + 2 + 4));
    const double gelu = 2 * 4 + 2 * 2 * 4; // `pre` is read again; dinp is read and written again
    const double bias = 2 * 9 - 2 * 9;     // dout is read for it, but by one matmul less
    const double matmuls = -7 - 7;         // the input, forward and backward
    const double sums = 12 * 9 * C * L;    // of bias gradients, which waited to be added
    const double more = step_bytes(&s) - bf16.read - bf16.written - in_update;
    EXPECT_NEAR(more, tokens * L * C * (124 + gelu + bias + matmuls) - 2 * weights - sums + 3 * scales, 1);
}

TEST(fp8_leaves_the_classifier_and_odd_layers_in_bf16) {
    Step s = example_step("H100");
    const Prediction bf16 = predict_step(&s, PART_CLASSIFIER);
    s.dtype = "fp8";
    s.fp8 = true;
    EXPECT(predict_step(&s, PART_CLASSIFIER).seconds == bf16.seconds);
    const StepOp* row = STEP_OPS;
    while (strcmp(row->op, "matmul_forward")) { row++; }
    const KernelList k = step_kernels(&s, row);
    EXPECT(k.count == 2 && k.kernel[1].work == WORK_FP8_MATMUL);
    EXPECT(!strcmp(work_dtype(&s, WORK_FP8_MATMUL), "fp8") && !strcmp(work_dtype(&s, WORK_MATMUL), "bf16"));
    s.B = 1;
    s.T = 1000; // no multiple of 16
    const KernelList odd = step_kernels(&s, row);
    EXPECT(odd.count == 1 && odd.kernel[0].work == WORK_MATMUL);
}

TEST(a_graph_halves_the_gaps_and_nothing_else) {
    Step s = example_step("A100");
    s.graph = false;
    const Prediction launched = predict_step(&s, NUM_PARTS);
    s.graph = true;
    const Prediction replayed = predict_step(&s, NUM_PARTS);
    EXPECT(replayed.launches == launched.launches && replayed.read == launched.read);
    EXPECT_NEAR(launched.gap_seconds, KERNEL_GAP * launched.launches, 1e-12);
    EXPECT_NEAR(launched.seconds - replayed.seconds, (KERNEL_GAP - GRAPH_KERNEL_GAP) * launched.launches, 1e-12);
}

// One kernel where ours has two: it does not read q, k, v, dout and the statistics again, but keeps sums in fp32.
TEST(cudnns_attention_is_one_kernel_of_its_own_efficiency) {
    Step s = example_step("H100");
    const Prediction ours = predict_step(&s, PART_ATTENTION);
    s.attention = ATTENTION_BY_CUDNN;
    const Prediction cudnns = predict_step(&s, PART_ATTENTION);
    const double tokens = 16 * 1024, rows = tokens * 768 * BF16, statistic = 4 * tokens * 12, L = 12;
    EXPECT(cudnns.launches == ours.launches && cudnns.matmul_flops == ours.matmul_flops);
    EXPECT_NEAR(ours.read - cudnns.read, L * (4 * rows + 2 * statistic - 2 * rows), 1);
    EXPECT_NEAR(cudnns.written - ours.written, L * 2 * rows, 1);
    EXPECT(step_has(&s, WORK_CUDNN_FORWARD) && step_has(&s, WORK_CUDNN_BACKWARD) && !step_has(&s, WORK_FLASH_BACKWARD));
    EXPECT(cudnns.seconds < ours.seconds);
}

TEST(accumulation_repeats_all_but_the_update) {
    Step s = example_step("A100");
    const Prediction once = predict_step(&s, NUM_PARTS), update = predict_step(&s, PART_UPDATE);
    s.micro_batches = 4;
    const Prediction four = predict_step(&s, NUM_PARTS);
    EXPECT_NEAR(four.matmul_flops / once.matmul_flops, 4, 1e-12);
    EXPECT_NEAR(four.read + 3 * update.read, 4 * once.read, 1);
    EXPECT_NEAR(four.launches + 3 * update.launches, 4 * once.launches, 1e-9);
}

// A block's forward again, without its last matmul: 2 C (3 C + C + 4 C) and attention; or its GELUs alone.
TEST(recomputing_runs_forward_again) {
    Step s = example_step("A100");
    const double C = 768, L = 12, T = 1024, tokens = 16 * T;
    const Prediction none = predict_step(&s, NUM_PARTS);
    s.keep = RECOMPUTE_ALL;
    const Prediction all = predict_step(&s, NUM_PARTS);
    EXPECT_NEAR((all.matmul_flops - none.matmul_flops) / tokens / (L * (16 * C * C + 2 * C * (T + 1))), 1, 1e-12);
    s.keep = RECOMPUTE_GELU;
    const Prediction gelu = predict_step(&s, NUM_PARTS);
    EXPECT(gelu.matmul_flops == none.matmul_flops && gelu.launches == none.launches + 12);
    EXPECT_NEAR(gelu.read - none.read, L * tokens * 4 * C * BF16, 1);
}

// AdamW: masters and moments in both directions, the gradient once, the parameters written.
TEST(the_update_goes_over_all_parameters) {
    const Step s = example_step("A100");
    const double n = (double)gpt2_params_table(&SHAPE, 1).size, x = BF16;
    const Prediction p = predict_step(&s, PART_UPDATE);
    EXPECT_NEAR(p.written / n, 4 + 3 * 4 + x, 1e-4); // zeroing besides
    EXPECT_NEAR(p.read / n, 4 + 4 * 4, 1e-4);        // the norm besides
}

// Matmuls: for a square matrix five times 6 C^3, for one of (4C,C) or (C,4C) five times 18 C^3. Gradients and momentum
// are read twice; momentum and masters are written, weights and X too.
TEST(muon_updates_the_matrices_and_adamw_the_rest) {
    Step s = example_step("H100");
    const double C = 768, L = 12, n = 12 * C * C * L, x = BF16;
    const Prediction adamw = predict_step(&s, PART_UPDATE);
    s.muon = true;
    const Prediction both = predict_step(&s, PART_UPDATE);
    EXPECT_NEAR(both.matmul_flops / (5 * (4 * L * 6 + 2 * L * 18) * C * C * C), 1, 1e-12);
    // for each stack, of 24 square matrices or of 12 others, three kernels and fifteen matmuls; AdamW for each range
    EXPECT(both.launches == adamw.launches + 4 * (3 + 15) + L + 1);
    const double squares = 4 * C * C * L, others = 8 * C * C * L, grams = 2 * C * C * L; // A of the others
    const double read = 5 * (2 * squares + 3 * squares + 3 * squares + 4 * others + 4 * grams);
    const double written = 5 * (3 * squares + others + 2 * grams);
    EXPECT_NEAR((both.read - adamw.read) / (n * (2 * 8 + 4 + x - 4 * 4) + x * read), 1, 1e-6);
    EXPECT_NEAR((both.written - adamw.written) / (n * (4 + 4 + 2 * x - 3 * 4 - x) + x * written), 1, 1e-6);
}

// Steps of 524,288 tokens on one GPU.
TEST(muon_takes_a_small_part_of_a_step) {
    const char* const models[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    Error err;
    for (int i = 0; i < 8; i++) {
        Step s = example_step(i < 4 ? "H100" : "A100");
        EXPECT(model_parse(models[i % 4], true, &s.shape, &err));
        s.parameters = (double)gpt2_params_table(&s.shape, 1).size;
        s.micro_batches = 32; // 524,288 tokens
        s.muon = true;
        const Prediction step = predict_step(&s, NUM_PARTS), update = predict_step(&s, PART_UPDATE);
        s.muon = false;
        const Prediction adamw = predict_step(&s, PART_UPDATE);
        EXPECT(update.seconds < 0.03 * step.seconds && update.seconds > adamw.seconds);
    }
}

TEST(fusing_saves_the_bytes_of_its_passes) {
    Step s = example_step("A100"); // before Hopper GELU is a pass of its own
    const double tokens = 16 * 1024, unit = tokens * 768 * BF16, L = 12;
    const double fused = step_bytes(&s);
    s.fused = false;
    const double adding = 2 * (3 + 1 + 4 + 1),
                 summing = 3 + 1 + 4 + 1; // read and write each output; read each gradient
    const double scratch = 12.0 * (3 + 1 + 4 + 1) * 768 * L;             // sums that wait for their addition
    EXPECT_NEAR((step_bytes(&s) - fused + scratch) / (L * unit * (adding + summing)), 1, 1e-9);
    s.attention = ATTENTION_BY_MATMULS;
    EXPECT(step_bytes(&s) > 2 * fused);
}

TEST(gelu_is_fused_from_hopper_on_in_bf16_alone) {
    const Step a100 = example_step("A100"), h100 = example_step("H100");
    EXPECT(gpu_fuses_gelu(true, 9, 2) && !gpu_fuses_gelu(true, 9, 4) && !gpu_fuses_gelu(false, 9, 2));
    const double saved = step_bytes(&a100) - step_bytes(&h100);
    const double unit = 16.0 * 1024 * 4 * 768 * BF16 * 12; // all layers' GELUs, once
    EXPECT_NEAR(saved / unit, 1 + 2, 1e-9); // forward reads it again, backward both ways
}

TEST(a_kernel_takes_the_longer_of_two_times) {
    const Step s = example_step("A100");
    KernelList k;
    memset(&k, 0, sizeof k);
    add_kernel(&k, WORK_ELEMENTS, 2, 1, 1e9 * s.gpu->memory * MEMORY_EFFICIENCY, 0);
    Prediction p = predict_kernels(&s, &k, 3);
    EXPECT_NEAR(p.seconds, 3 * (1 + 2 * step_gap(&s)), 1e-9);
    EXPECT(!strcmp(prediction_bound(&p), "memory"));
    k.kernel[0].flops = 2 * 19.5e12 * efficiency_of(&s, WORK_ELEMENTS);
    p = predict_kernels(&s, &k, 1);
    EXPECT_NEAR(p.seconds, 2 + 2 * step_gap(&s), 1e-9);
    EXPECT(!strcmp(prediction_bound(&p), "arithmetic"));
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c's published steps

// Steps of llm.c on eight GPUs, with cuDNN's attention, ZeRO-1 and 1024 tokens in a sequence. Sources: the scripts of
// github.com/karpathy/llm.c (run_gpt2_124M.sh, 350M, 774M, 1558M), whose heads have the times; 1558M: 2.7 to 2.8 s, 47%
// MFU. On H100s 124M and 350M by the llm.c records of github.com/KellerJordan/modded-nanogpt: 19,560 steps in 45.6
// minutes, 60,000 in 5.8 hours.
typedef struct {
    const char *gpu, *model;
    int B;
    double tokens, ms; // of a step on eight GPUs
    bool gelu_fused;   // forward, by -ge 1
} PublishedStep;

static const PublishedStep LLM_C[] = {
    {"A100", "gpt2", 64, 524288, 300, false},
    {"H100", "gpt2", 64, 524288, 140, false},
    {"A100", "gpt2-medium", 64, 524288, 820, false},
    {"A100", "gpt2-large", 32, 524288, 1700, false},
    {"H100", "gpt2-medium", 64, 524288, 348, false},
    {"H100", "gpt2-xl", 16, 1048576, 2750, true},
};

enum { NUM_LLM_C = sizeof LLM_C / sizeof *LLM_C, CALIBRATED = 2 }; // training_factor() is from the first two

// Returns the step of one of the eight GPUs in our terms: the residual stream in bf16, all logits at once, GELU and the
// gradients of biases in kernels of their own, no CUDA graph. Not in it: gradients in bf16, communication.
static Step llm_c_step(const PublishedStep* p) {
    Error err;
    Step s = example_step(p->gpu);
    EXPECT(model_parse(p->model, true, &s.shape, &err));
    s.B = p->B;
    s.micro_batches = p->tokens / 8 / (s.B * s.T);
    s.parameters = (double)gpt2_params_table(&s.shape, 1).size;
    s.backend = cpu_bf16_generic.with_bf16_residual;
    s.classifier_chunk = s.B * s.T;
    s.bias_gradient_apart = s.gelu_gradient_apart = true;
    s.gelu_apart = !p->gelu_fused;
    s.graph = false;
    s.attention = ATTENTION_BY_CUDNN;
    return s;
}

// Returns the seconds of the step's kernels. ZeRO-1 leaves each GPU an eighth of the update.
static double llm_c_seconds(const PublishedStep* p) {
    const Step s = llm_c_step(p);
    return predict_step(&s, NUM_PARTS).seconds - 7.0 / 8 * predict_step(&s, PART_UPDATE).seconds;
}

TEST(the_training_factor_is_that_of_llm_cs_124m) {
    for (int i = 0; i < CALIBRATED; i++) {
        EXPECT_NEAR(LLM_C[i].ms / (1e3 * llm_c_seconds(&LLM_C[i])), training_factor(gpu_find(LLM_C[i].gpu)), 0.01);
    }
}

TEST(llm_cs_other_steps_are_predicted) {
    for (int i = CALIBRATED; i < NUM_LLM_C; i++) {
        const double ms = 1e3 * training_factor(gpu_find(LLM_C[i].gpu)) * llm_c_seconds(&LLM_C[i]);
        EXPECT_NEAR(ms / LLM_C[i].ms, 1, 0.06);
    }
}

// 6.1 TFLOP of weights and 1.5 of attention for 1024 tokens, as llm.c counts them: 47%.
TEST(llm_cs_1558m_has_its_published_mfu) {
    const PublishedStep* p = &LLM_C[NUM_LLM_C - 1];
    const Step s = llm_c_step(p);
    const double flops = 6 * (s.parameters + 48.0 * 1600 * 1024) * p->tokens / 8;
    const double seconds = training_factor(s.gpu) * llm_c_seconds(p);
    EXPECT_NEAR(flops / seconds / 989.4e12, 0.47, 0.01);
}

TEST(a_residual_stream_in_bf16_has_half_the_bytes) {
    Step s = example_step("H100");
    const double whole = step_bytes(&s), rows = 16.0 * 1024 * 768, L = 12;
    s.backend = s.backend->with_bf16_residual;
    // encoder; layernorm; in each layer two forward with an addition and two backward; backward of the last layernorm;
    // zeroing; the encoder's backward. And each layernorm's backward writes no second, rounded gradient.
    const double passes = 1 + 1 + L * (2 * 2 + 2 * 3) + 3 + 1 + 2 + (2 * L + 1);
    EXPECT_NEAR((whole - step_bytes(&s)) / (2 * rows), passes, 1e-9);
}

// ---------------------------------------------------------------------------------------------------------------------
// GPUs and the list

static bool finds(const char* asked, const char* name) {
    const GpuFacts* gpu = gpu_find(asked);
    return gpu && !strcmp(gpu->name, name);
}

TEST(gpus_are_found_by_what_people_call_them) {
    EXPECT(finds("h100", "NVIDIA H100 80GB HBM3"));
    EXPECT(finds("H100-PCIe", "NVIDIA H100 PCIe"));
    EXPECT(finds("A100", "NVIDIA A100-SXM4-80GB"));
    EXPECT(finds("L4", "NVIDIA L4") && finds("l40", "NVIDIA L40"));
    EXPECT(finds("4090", "NVIDIA GeForce RTX 4090") && finds("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"));
    EXPECT(finds("t4", "Tesla T4") && finds("2080", "NVIDIA GeForce RTX 2080 Ti"));
    EXPECT(!gpu_find("") && !gpu_find("V100"));
}

TEST(every_gpu_is_known_in_full) {
    for (int i = 0; i < NUM_GPUS; i++) {
        const GpuFacts* g = &GPUS[i];
        EXPECT(finds(g->alias, g->name) && finds(g->name, g->name) && gpu_named(g->name) == g);
        const bool is_turing = g->major == 7;
        EXPECT(g->fp32 > 0 && (is_turing ? g->tf32 == 0 : g->tf32 >= g->fp32));
        EXPECT(is_turing ? g->half >= 4 * g->fp32 : g->half > 1.9 * g->tf32 && g->half < 2.1 * g->tf32);
        const double lanes = is_turing || (g->major == 8 && g->half > 10 * g->fp32) ? 64 : 128;
        const double ghz = 1e3 * g->fp32 / (2 * lanes * g->sms);
        EXPECT(ghz > 1.4 && ghz < 2.7);
        EXPECT((g->fp8 == 0 || (g->fp8 > 1.9 * g->half && g->fp8 < 2.1 * g->half)) && g->memory > 100);
        EXPECT((gpu_peak_flops(g, "bf16") == 0) == is_turing && gpu_peak_flops(g, "fp16") == 1e12 * g->half);
    }
}

// Every operation that a step runs is in the list, and the list names no other.
TEST(the_list_names_operations_that_exist) {
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const Step s = example_step("A100");
        const KernelList k = step_kernels(&s, &STEP_OPS[i]);
        EXPECT(k.count > 0 || step_times(&s, &STEP_OPS[i]) == 0);
        for (int j = 0; j < k.count; j++) { EXPECT(k.kernel[j].read >= 0 && k.kernel[j].written >= 0); }
    }
}

TEST_MAIN()
