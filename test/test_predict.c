// `bench predict`: what a training step takes, computed. Its operations against the formula of MFU, its bytes against
// sums made by hand, its time against the assumptions it is made of.
#define FLOATX bf16 // what there is most to predict in
#include "../llmc/cpu/kernels.h"
#include "../llmc/comm.h"
#include "../llmc/bench_predict.h"
#include "../llmc/commands.h"
#include "../llmc/harness_impl.h"
#include "test.h"

Cpu cpu;

// Options live as long as the program, so nobody frees their texts: LeakSanitizer need not look.
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

static const GPT2Config SHAPE = {1024, 50257, 50304, 12, 12, 768};

static Step example_step(const char* gpu) {
    Config c;
    config_defaults(&c);
    c.batch_size = 16;
    c.seq_len = 1024;
    c.total_batch_size = 16 * 1024;
    c.dtype = "bf16";
    return step_of(&HARNESS, &c, &SHAPE, gpu_find(gpu));
}

static double step_bytes(const Step* s) {
    const Prediction p = predict_step(s, NUM_PARTS);
    return p.read + p.written;
}

// All products of a step are the formula's operations but for what the formula takes in (positions, biases, layernorms,
// padding) and leaves out (scores are computed again in backward, and those on the diagonal are whole).
TEST(operations_of_a_step_are_those_of_the_formula) {
    GPT2 g;
    const Step s = example_step("A100");
    const double C = 768, L = 12, T = 1024, tokens = 16 * T;
    gpt2_layout(&g, &SHAPE, 16, 1024, KEEP_ALL);
    const double vectors = L * (4 * C + 9 * C) + 2 * C; // layernorms, then biases of qkv, attproj, fc, fcproj
    const double no_products = 6 * (T * C + vectors + (50304 - 50257) * C);
    const double scores = L * C * (7 * (T + 1) - 6 * T);
    const double want = model_flops_per_token(&g) - no_products + scores;
    EXPECT_NEAR(predict_step(&s, NUM_PARTS).product_flops / tokens / want, 1, 1e-12);
    EXPECT_NEAR(want / model_flops_per_token(&g), 1, 0.02);
}

TEST(accumulation_repeats_all_but_the_update) {
    Step s = example_step("A100");
    const Prediction once = predict_step(&s, NUM_PARTS), update = predict_step(&s, PART_UPDATE);
    s.micro_batches = 4;
    const Prediction four = predict_step(&s, NUM_PARTS);
    EXPECT_NEAR(four.product_flops / once.product_flops, 4, 1e-12);
    EXPECT_NEAR(four.read + 3 * update.read, 4 * once.read, 1);
    EXPECT_NEAR(four.launches + 3 * update.launches, 4 * once.launches, 1e-9);
}

// A block's forward again, without its last product: 2 C (3 C + C + 4 C) and attention; or its GELUs alone.
TEST(recomputing_runs_forward_again) {
    Step s = example_step("A100");
    const double C = 768, L = 12, T = 1024, tokens = 16 * T;
    const Prediction none = predict_step(&s, NUM_PARTS);
    s.recompute = "all";
    const Prediction all = predict_step(&s, NUM_PARTS);
    EXPECT_NEAR((all.product_flops - none.product_flops) / tokens / (L * (16 * C * C + 2 * C * (T + 1))), 1, 1e-12);
    s.recompute = "gelu";
    const Prediction gelu = predict_step(&s, NUM_PARTS);
    EXPECT(gelu.product_flops == none.product_flops && gelu.launches == none.launches + 12);
    EXPECT_NEAR(gelu.read - none.read, L * tokens * 4 * C * sizeof(floatX), 1);
}

// AdamW: masters and moments in both directions, the gradient once, the parameters written.
TEST(the_update_goes_over_all_parameters) {
    const Step s = example_step("A100");
    const double n = (double)gpt2_params_table(&SHAPE).size, x = sizeof(floatX);
    const Prediction p = predict_step(&s, PART_UPDATE);
    EXPECT_NEAR(p.written / n, 4 + 3 * 4 + x, 1e-4); // zeroing besides
    EXPECT_NEAR(p.read / n, 4 + 4 * 4, 1e-4);        // the norm besides
}

TEST(fusing_saves_the_bytes_of_its_passes) {
    Step s = example_step("A100"); // before Hopper GELU is a pass of its own
    const double tokens = 16 * 1024, unit = tokens * 768 * sizeof(floatX), L = 12;
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
    const double unit = 16.0 * 1024 * 4 * 768 * sizeof(floatX) * 12; // all layers' GELUs, once
    EXPECT_NEAR(saved / unit, 1 + 2, 1e-9); // forward reads it again, backward both ways
}

TEST(a_kernel_takes_the_longer_of_two_times) {
    const Step s = example_step("A100");
    KernelList k;
    memset(&k, 0, sizeof k);
    add_kernel(&k, WORK_ELEMENTS, 2, 1, 1e9 * s.gpu->memory * MEMORY_EFFICIENCY, 0);
    Prediction p = predict_kernels(&s, &k, 3);
    EXPECT_NEAR(p.seconds, 3 * (1 + 2 * KERNEL_GAP), 1e-9);
    EXPECT(!strcmp(prediction_bound(&p), "memory"));
    k.kernel[0].flops = 2 * 19.5e12 * efficiency_of(s.gpu, WORK_ELEMENTS);
    p = predict_kernels(&s, &k, 1);
    EXPECT_NEAR(p.seconds, 2 + 2 * KERNEL_GAP, 1e-9);
    EXPECT(!strcmp(prediction_bound(&p), "arithmetic"));
}

TEST(gpus_are_found_by_what_people_call_them) {
    EXPECT(gpu_find("h100") == gpu_named("NVIDIA H100 80GB HBM3"));
    EXPECT(gpu_find("H100-PCIe") == gpu_named("NVIDIA H100 PCIe"));
    EXPECT(gpu_find("A100") == gpu_named("NVIDIA A100-SXM4-80GB"));
    EXPECT(gpu_find("L4") == gpu_named("NVIDIA L4") && gpu_find("l40") == gpu_named("NVIDIA L40"));
    EXPECT(gpu_find("4090") == gpu_find("NVIDIA GeForce RTX 4090") && gpu_find("4090"));
    EXPECT(!gpu_find("") && !gpu_find("V100"));
}

TEST(every_gpu_is_known_in_full) {
    for (int i = 0; i < NUM_GPUS; i++) {
        const GpuFacts* g = &GPUS[i];
        EXPECT(gpu_find(g->alias) == g && gpu_find(g->name) == g && gpu_named(g->name) == g);
        EXPECT(g->fp32 > 0 && g->tf32 >= g->fp32 && g->bf16 > 1.9 * g->tf32 && g->bf16 < 2.1 * g->tf32);
        EXPECT((g->fp8 == 0 || (g->fp8 > 1.9 * g->bf16 && g->fp8 < 2.1 * g->bf16)) && g->memory > 100);
    }
}

// Every operation of ops.h that a step runs is in the list, and the list names no other.
TEST(the_list_names_operations_that_exist) {
    for (int i = 0; i < NUM_STEP_OPS; i++) {
        const Step s = example_step("A100");
        const KernelList k = step_kernels(&s, &STEP_OPS[i]);
        EXPECT(k.count > 0);
        for (int j = 0; j < k.count; j++) { EXPECT(k.kernel[j].read >= 0 && k.kernel[j].written >= 0); }
    }
}

TEST_MAIN()
