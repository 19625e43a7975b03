// The plan of a run: published sizes of models, memory, the largest batch, --batch_size auto.
#include "llmc/train/backends.h"
#include "llmc/train/plan.h"
#include "test/test.h"

// ---------------------------------------------------------------------------------------------------------------------
// shapes

static size_t parameters_of(const char* model) {
    Error err;
    GPT2Config m;
    if (!model_parse(model, true, &m, &err)) { fatal("%s", err.text); }
    const TensorTable table = gpt2_params_table(&m, 1);
    const TensorCounts n = tensors_count(&table);
    EXPECT(n.decayed.elements + n.others.elements == model_parameters(&m));
    return model_parameters(&m);
}

TEST(named_models_have_the_published_numbers_of_parameters) {
    Error err;
    GPT2Config m;
    EXPECT(parameters_of("d12") == 124439808);
    EXPECT(parameters_of("gpt2-medium") == 354823168);
    EXPECT(parameters_of("d36") == 774030080);
    EXPECT(parameters_of("gpt2-xl") == 1557611200);
    EXPECT(parameters_of("gpt3:125m") == 125226240);
    EXPECT(parameters_of("L=6,H=6,C=384,T=256,V=257") == (257 + 256) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384);
    EXPECT(model_parse("d12", true, &m, &err) && m.padded_vocab_size == 50304);
    const TensorTable table = gpt2_params_table(&m, 1);
    const TensorCounts n = tensors_count(&table);
    EXPECT(n.decayed.tensors == 50 && n.decayed.elements == 124318464);
    EXPECT(n.others.tensors == 98 && n.others.elements == 121344);
    EXPECT(table.size == 124475904);
}

TEST(shapes_that_cannot_be_are_refused) {
    Error err;
    GPT2Config m;
    EXPECT(!model_parse("L=6,H=5,C=384,T=256", true, &m, &err) &&
           strstr(err.text, "384 channels cannot be shared by 5 heads"));
    EXPECT(!model_parse("L=6,H=6,T=256", true, &m, &err) && strstr(err.text, "C is missing"));
    EXPECT(!model_parse("L=6,H=6,C=x,T=256", true, &m, &err) && strstr(err.text, "'C=x,T=256'"));
    EXPECT(!model_parse("L=6,H=0,C=384,T=256", true, &m, &err) && strstr(err.text, "H is from 1 to 1000000"));
    EXPECT(!model_parse("gpt5", true, &m, &err));
}

// ---------------------------------------------------------------------------------------------------------------------
// spikes

TEST(rules_of_spikes_are_read_or_refused) {
    static const char *const wrong_z[] = {"", "x", "7:", ":7", "7:7:7", "-1", "7,7", "nan"},
                      *const wrong_actions[] = {"", "go", "skip:1", "stop:", "stop:0", "stop:x", "stop,skip",
                                              "rewind:9"};
    Error err = {.text = ""};
    SpikeRule s;
    EXPECT(spike_rule_parse(&s, "0", "skip", &err) && s.loss_z == 0 && s.norm_z == 0 && s.bad_steps == 0);
    EXPECT(spike_rule_parse(&s, "7", "stop", &err) && s.loss_z == 7 && s.norm_z == 0 && s.bad_steps == 1);
    EXPECT(spike_rule_parse(&s, "0:5.5", "stop:3", &err) && s.loss_z == 0 && s.norm_z == 5.5 && s.bad_steps == 3);
    for (size_t i = 0; i < sizeof wrong_z / sizeof *wrong_z; i++) {
        test_case = wrong_z[i];
        EXPECT(!spike_rule_parse(&s, wrong_z[i], "skip", &err) && strstr(err.text, "give LOSS[:NORM]"));
        test_case = wrong_actions[i];
        EXPECT(!spike_rule_parse(&s, "7", wrong_actions[i], &err) && strstr(err.text, "give skip, stop or stop:N"));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// options

TEST(options_reach_the_plan) {
    Error err;
    Plan p;
    Config c;
    config_defaults(&c);
    EXPECT(plan_parse(&p, dtype_fp32, &c, &err) && !p.zero_init_out && p.phases.test_sets.every == c.val_every);
    c.init_out = init_out_zero;
    c.schedule = schedule_wsd_linear;
    c.decay_frac = 0.75, c.min_lr_frac = 0.5, c.warmup_steps = 11;
    c.temperature = 0.25, c.top_k = 9, c.top_p = 0.625, c.seed = 5;
    EXPECT(plan_parse(&p, dtype_fp32, &c, &err) && p.zero_init_out && p.seed == 5);
    const Schedule* s = &p.schedule;
    EXPECT(s->kind == schedule_wsd_linear && s->decay_frac == 0.75 && s->min_lr_frac == 0.5 && s->warmup_steps == 11);
    const Sampling* by = &p.phases.sampling;
    EXPECT(by->temperature == 0.25 && by->top_k == 9 && by->top_p == 0.625 && by->seed == 5);
    c.weight_decay = 0.125, c.matrix_decay = 0.375, c.cautious_decay = 1;
    c.momentum = "0.5"; // below where the warm-up begins
    EXPECT(plan_parse(&p, dtype_fp32, &c, &err));
    const AdamW* adamw = &p.rates.peak.adamw;
    EXPECT(adamw->weight_decay[GROUP_MATRIX] == 0.375f && adamw->weight_decay[GROUP_EMBEDDING] == 0.125f);
    EXPECT(adamw->cautious);
    c.optimizer = optimizer_muon;
    EXPECT(plan_parse(&p, dtype_fp32, &c, &err) && p.rates.peak.muon.cautious);
    EXPECT(p.rates.peak.muon.weight_decay == 0.375f && rates_momentum(&p.rates, 0, 1000) == 0.5);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// The plan of a default run on the generic CPU backend.
static Plan plan_of(enum dtype dtype, const char* model) {
    Error err;
    Plan p;
    Config c;
    config_defaults(&c);
    c.model = model;
    c.seq_len = 128;
    const Backend* b = find_cpu_backend(dtype, cpu_generic);
    if (!b) { fatal("there is no generic backend for %s", dtype_names[dtype]); }
    if (!plan_make(&p, b, dtype, &c, NULL, &err)) { fatal("%s", err.text); }
    return p;
}

static size_t bytes_with(Plan p, int batch, Keep keep) {
    p.B = batch;
    p.keep = keep;
    return plan_bytes(&p);
}

// A residual stream in bf16 halves three activations and the gradient, and leaves out the gradient's rounded copy.
TEST(a_residual_stream_in_bf16_takes_half_the_bytes) {
    Plan p = plan_of(dtype_bf16, "gpt2");
    const size_t rows = 3 * 128, C = 768, L = 12, wide = bytes_with(p, 3, KEEP_ALL);
    const size_t forward_wide = bytes_with(p, 3, FORWARD_ONLY);
    p.backend = p.backend->with_bf16_residual;
    EXPECT(wide - bytes_with(p, 3, KEEP_ALL) == rows * C * (2 * (2 * L + 1) + 2 + 2));
    EXPECT(forward_wide - bytes_with(p, 3, FORWARD_ONLY) == rows * C * 2 * 3);
    EXPECT(!p.backend->with_bf16_residual && !find_cpu_backend(dtype_fp32, cpu_generic)->with_bf16_residual);
}

static size_t no_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    (void)params, (void)trains, (void)B, (void)T, (void)C, (void)NH;
    return 0;
}

TEST(a_plan_counts_samples_operations_and_on_a_cpu_the_host_s_memory) {
    Plan p = plan_of(dtype_bf16, "gpt2");
    GPT2 g;
    const Backend* b = p.backend;
    Backend other = *b;
    p.B = 2;
    p.samples = 0;
    plan_layout(&p, &g);
    const size_t none = plan_bytes(&p), model = plan_memory(&p).of_lines;
    p.samples = 3;
    EXPECT(plan_bytes(&p) == none + kv_cache_bytes(p.backend, &p.shape, 3, p.sample_capacity));
    p.samples = 0;
    p.place = STATE_IN_HOST; // the device has what it needed no more, and the host has it
    EXPECT(plan_bytes(&p) == plan_memory(&p).of_lines + (none - model) + plan_memory(&p).state);
    p.place = STATE_ON_DEVICE;
    p.backend = &other;
    other.operations_bytes = no_bytes;
    const size_t rest = plan_bytes(&p);
    EXPECT(none - rest == b->operations_bytes(&g.params_table, true, 2, 128, 768, 12) && none > rest);
    other.is_host = false;
    EXPECT(rest - plan_bytes(&p) > 2 * tensors_largest(&g.params_table) * sizeof(float));
}

// The largest batch fits and the next one does not; more memory never means a smaller one; nor does more recomputation.
static void check_largest_batch(Plan p) {
    enum { MOST = 300, STEPS = 40, KEEPS = 3 };
    static const Keep keeps[KEEPS] = {KEEP_ALL, RECOMPUTE_GELU, RECOMPUTE_ALL};
    const size_t one = bytes_with(p, 1, KEEP_ALL), most = bytes_with(p, MOST, KEEP_ALL);
    int before[KEEPS] = {0, 0, 0}, between = 0;
    for (int step = 0; step <= STEPS; step++) {
        const size_t bytes = one - 1 + (most - one + 1) / STEPS * (size_t)step;
        for (int k = 0; k < KEEPS; k++) {
            p.keep = keeps[k];
            const int fits = largest_batch(&p, MOST, bytes);
            EXPECT(fits >= before[k] && fits <= MOST && (k == 0 || fits >= before[k - 1]));
            EXPECT(fits == 0 || bytes_with(p, fits, keeps[k]) <= bytes);
            EXPECT(fits == MOST || bytes_with(p, fits + 1, keeps[k]) > bytes);
            between += fits > 0 && fits < MOST;
            before[k] = fits;
        }
        if (step == 0) { EXPECT(before[0] == 0); }
    }
    EXPECT(between > STEPS / 2);
    p.keep = KEEP_ALL;
    EXPECT(largest_batch(&p, MOST, most) == MOST);
}

TEST(the_largest_batch_is_the_largest) {
    static const enum dtype dtypes[2] = {dtype_fp32, dtype_bf16};
    for (int i = 0; i < 2; i++) {
        test_case = dtype_names[dtypes[i]];
        check_largest_batch(plan_of(dtypes[i], "L=2,H=2,C=32,T=128,V=257"));
        check_largest_batch(plan_of(dtypes[i], "gpt2"));
    }
}

static size_t available;
static size_t memory_available(void) { return available; }

TEST(a_plan_that_does_not_fit_is_refused_with_what_would_help) {
    Error err;
    Comm alone = comm_alone();
    Plan p = plan_of(dtype_fp32, "gpt2");
    p.B = 1 << 20; // terabytes of activations
    EXPECT_DEATH(0, "activations", exit(plan_check_memory(&p, &alone, &err)));
    process_rank = 1; // from here on no memory report: notices are those of rank 0
    EXPECT(!plan_check_memory(&p, &alone, &err) && strstr(err.text, "not enough memory: ") &&
           strstr(err.text, "give --batch_size ") && strstr(err.text, ", or --recompute all"));
    p.keep = RECOMPUTE_ALL;
    EXPECT(!plan_check_memory(&p, &alone, &err) && !strstr(err.text, "--recompute"));
    Backend small = *p.backend;
    small.device_memory_available = memory_available;
    p.backend = &small;
    p.keep = KEEP_ALL;
    p.B = 8;
    available = bytes_with(p, 8, RECOMPUTE_ALL);
    EXPECT(bytes_with(p, 1, KEEP_ALL) < available && bytes_with(p, 8, KEEP_ALL) > available);
    EXPECT(!plan_check_memory(&p, &alone, &err) && strstr(err.text, ", or --recompute all") &&
           !strstr(err.text, "all --batch_size"));
    available = bytes_with(p, 1, RECOMPUTE_ALL);
    EXPECT(!plan_check_memory(&p, &alone, &err) && strstr(err.text, "; give --recompute all --batch_size 1"));
    available--; // nothing fits
    EXPECT(!plan_check_memory(&p, &alone, &err) && strstr(err.text, "; give a smaller model"));
    process_rank = 0;
}

// Returns GPT-2's plan for a device that is not the host, and has `available` bytes.
static Plan plan_on_gpu(Backend* gpu) {
    Plan p = plan_of(dtype_fp32, "gpt2");
    *gpu = *p.backend;
    gpu->is_host = false;
    gpu->device_memory_available = memory_available;
    p.backend = gpu;
    return p;
}

TEST(state_in_host_memory_leaves_room_on_the_device) {
    Error err;
    Comm alone = comm_alone();
    Backend gpu;
    Plan p = plan_on_gpu(&gpu);
    p.B = 1;
    Plan offloaded = p;
    offloaded.place = STATE_IN_HOST;
    offloaded.keep = RECOMPUTE_ALL;
    GPT2 g;
    plan_layout(&p, &g);
    const size_t state = 2 * g.params_table.size * sizeof(float);
    EXPECT(plan_memory(&p).state == 0 && plan_memory(&offloaded).state == state);
    available = plan_bytes(&offloaded);
    process_rank = 1;
    EXPECT(plan_bytes(&p) > available + state * 4 / 5 && plan_check_memory(&offloaded, &alone, &err));
    EXPECT(!plan_check_memory(&p, &alone, &err) &&
           strstr(err.text, "; give --offload optimizer --recompute all --batch_size 1"));
    const double least = plan_least_gb(&offloaded);
    EXPECT(gpu.device_memory_usable((size_t)(least * 0x1p30)) >= available &&
           gpu.device_memory_usable((size_t)((least - 0.1) * 0x1p30)) < available);
    Plan large = plan_of(dtype_fp32, "L=100,H=96,C=12288,T=2048");
    large.backend = &gpu;
    large.B = 1;
    large.place = STATE_IN_HOST;
    available = SIZE_MAX;
    EXPECT(!plan_check_memory(&large, &alone, &err) && strstr(err.text, "not enough host memory: ") &&
           strstr(err.text, "; --offload none leaves masters and moments on the GPU"));
    process_rank = 0;
}

TEST(each_rank_of_a_machine_needs_host_memory) {
    Error err;
    Comm many = comm_alone();
    Backend gpu;
    const Plan p = plan_on_gpu(&gpu);
    available = SIZE_MAX;
    EXPECT(plan_check_memory(&p, &many, &err));
    many.local_size = 1 << 20; // terabytes of batches and buffers
    EXPECT(!plan_check_memory(&p, &many, &err) && strstr(err.text, "not enough host memory: ") &&
           !strstr(err.text, "--offload"));
}

// ---------------------------------------------------------------------------------------------------------------------
// the batch

// Returns B that --batch_size auto gives for steps of `windows` sequences; 0: it was refused.
static int auto_batch(long long windows, Error* err) {
    Comm alone = comm_alone();
    Plan p;
    Config c;
    config_defaults(&c);
    c.model = "L=1,H=1,C=4,T=8,V=257";
    c.batch_size = 0;
    c.total_batch_size = windows * 8;
    const bool ok = plan_make(&p, find_cpu_backend(dtype_fp32, cpu_generic), dtype_fp32, &c, NULL, err);
    return ok && plan_batch(&p, &alone, err) ? p.B : 0;
}

TEST(an_automatic_batch_divides_the_windows_of_a_step) { // at most MAX_AUTO_BATCH = 1024, for which there is memory
    Error err;
    EXPECT_DEATH(0, "batch_size 12 fits", exit(auto_batch(12, &err) != 12));
    process_rank = 1; // notices are those of rank 0
    EXPECT(auto_batch(12, &err) == 12);
    EXPECT(auto_batch(2048, &err) == 1024);
    EXPECT(auto_batch(1026, &err) == 513); // 2 * 513
    EXPECT(auto_batch(1031, &err) == 1);   // a prime
    process_rank = 0;
}

// Ranks of a CPU's machine share its memory, of which an eighth is left to others.
TEST(an_automatic_batch_leaves_memory_to_others) {
    Error err;
    Comm comm = comm_alone();
    Plan p = plan_of(dtype_fp32, "gpt2");
    Backend small = *p.backend;
    small.device_memory_available = memory_available;
    p.backend = &small;
    const size_t four = bytes_with(p, 4, p.keep) / 7 * 8 + 64;
    process_rank = 1; // notices are those of rank 0
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        comm.local_size = ranks;
        available = (size_t)ranks * four;
        for (int B = 4; B >= 2; B -= 2) {
            p.B = 0;
            p.total_batch_size = 4 * 128;
            EXPECT(plan_batch(&p, &comm, &err) && p.B == B);
            available = (size_t)ranks * (four - 1024);
        }
    }
    p.B = 0;
    p.total_batch_size = 100;
    EXPECT(!plan_batch(&p, &comm, &err) && strstr(err.text, "less than one sequence of --seq_len 128"));
    p.B = 1 << 24;
    EXPECT(!plan_batch(&p, &comm, &err) && strstr(err.text, "more than a micro-batch can hold: give at most 16777215"));
    process_rank = 0;
}

TEST(a_batch_that_does_not_divide_the_step_is_refused_with_one_that_does) {
    Error err;
    Comm alone = comm_alone();
    Plan p;
    Config c;
    config_defaults(&c);
    c.model = "L=1,H=1,C=4,T=8,V=257";
    c.batch_size = 5;
    c.total_batch_size = 12 * 8;
    const Backend* b = find_cpu_backend(dtype_fp32, cpu_generic);
    EXPECT(plan_make(&p, b, dtype_fp32, &c, NULL, &err) && !plan_batch(&p, &alone, &err) &&
           strstr(err.text, "--total_batch_size 96 is not a multiple of batch_size * seq_len * processes = "
                            "5 * 8 * 1 = 40: give 80 or 120, or --batch_size 4"));
    c.batch_size = 4;
    EXPECT(plan_make(&p, b, dtype_fp32, &c, NULL, &err) && plan_batch(&p, &alone, &err));
    EXPECT(p.B == 4 && p.T == 8 && p.total_batch_size == 96);
    c.seq_len = 9;
    EXPECT(!plan_make(&p, b, dtype_fp32, &c, NULL, &err) && strstr(err.text, "the model has only 8 positions"));
}

TEST_MAIN()
