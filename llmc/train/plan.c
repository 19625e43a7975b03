#include "plan.h"
#include "consistency.h"
#include "../data/dataloader.h"
#include "../files/model_file.h"
#include "../tokenizer/tokenizer_json.h"
#include "../base/host_memory.h"
#include <limits.h>

// ---------------------------------------------------------------------------------------------------------------------
// the device

DeviceOptions device_options(const Config* c, enum dtype dtype) {
    const bool is_exact = c->attention == attention_exact, is_plain = c->kernels == kernels_plain;
    const enum attention kernels = is_exact ? attention_flash : c->attention;
    const bool is_named = kernels == attention_flash || kernels == attention_cudnn;
    if (is_named && is_plain) {
        usage_error("--attention %s contradicts --kernels plain: give one or the other",
                    attention_names[c->attention]);
    }
    return (DeviceOptions){.threads = (int)c->threads,
                           .plain = is_plain,
                           .fused = c->fused != 0,
                           .flash = c->attention != attention_plain,
                           .tf32 = dtype == dtype_tf32,
                           .fp8 = dtype == dtype_fp8,
                           .graph = c->graph != 0,
                           .document_mask = c->document_mask != 0,
                           .recomputes_gelu = c->recompute == recompute_gelu,
                           .attention = is_named ? attention_names[kernels] : NULL,
                           .nondeterministic = !c->deterministic};
}

bool device_is_emulated(const Backend* b) { return !b->is_host && !strncmp(b->device_name(), "emulated ", 9); }

// A rank takes the GPU with the index of its local rank.
void open_device(const Backend* b, const DeviceOptions* options, Comm* comm) {
    DeviceOptions mine = *options;
    mine.local_rank = comm->local_rank;
    b->device_open(&mine);
    if (comm->size == 1) { return; }
    check_distinct_devices(comm, b);
    comm_connect(comm);
}

// ---------------------------------------------------------------------------------------------------------------------
// shape and sequence length

char* shape_text(const GPT2Config* m) {
    return format("L=%d,H=%d,C=%d,T=%d,V=%d", m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size);
}

// Sets the shape to that of the weights' folder or, without one, to --model. Fails if --model contradicts the folder.
static bool resolve_shape(Plan* p, const Config* c, const char* folder, Error* err) {
    GPT2Config named;
    p->model = c->model;
    if (!folder) { return model_parse(c->model, c->pad_vocab, &p->shape, err); }
    if (!model_file_shape(folder, c->pad_vocab, &p->shape, err)) { fatal("%s", err->text); }
    const bool is_given = config_source(c, "model") >= FROM_FILE;
    const bool is_name = model_parse(c->model, c->pad_vocab, &named, err);
    if (is_name && !memcmp(&named, &p->shape, sizeof named)) { return true; }
    char* text = shape_text(&p->shape);
    if (!is_given) {
        p->model = text;
        return true;
    }
    if (is_name) {
        fail(err, "--model %s is not the model in %s, which is %s: leave --model out, or give another folder", c->model,
             folder, text);
    }
    free(text);
    return false;
}

static bool resolve_seq_len(Plan* p, const Config* c, Error* err) {
    const int most = p->shape.max_seq_len;
    p->T = c->seq_len == 0 ? most : (int)c->seq_len;
    if (c->seq_len <= most) { return true; }
    return fail(err, "--seq_len %lld: the model has only %d positions; give at most that, or a --model with a larger T",
                c->seq_len, most);
}

TokenHeader token_header(const Config* c) {
    return c->data_format == data_format_nanogpt ? HEADER_OPTIONAL : HEADER_REQUIRED;
}

Keep keep_of(enum recompute recompute) {
    return recompute == recompute_all ? RECOMPUTE_ALL : recompute == recompute_gelu ? RECOMPUTE_GELU : KEEP_ALL;
}

bool spike_rule_parse(SpikeRule* spikes, const char* skip_z, const char* on_spike, Error* err) {
    enum { MOST_Z = 1000000000 };
    char *z = format("%s", skip_z), *action = format("%s", on_spike), *rest = z, *name, *value;
    memset(spikes, 0, sizeof *spikes);
    const bool has_z = part_next(&rest, &name, &value) && !rest && number_parse(name, 0, MOST_Z, &spikes->loss_z) &&
                       (!value || number_parse(value, 0, MOST_Z, &spikes->norm_z));
    rest = action;
    bool has_action = part_next(&rest, &name, &value) && !rest;
    const bool stops = has_action && !strcmp(name, "stop");
    spikes->bad_steps = stops;
    if (stops && value) { has_action = count_parse(value, 1, &spikes->bad_steps); }
    else { has_action = stops || (has_action && !value && !strcmp(name, "skip")); }
    free(z);
    free(action);
    if (!has_z) { return fail(err, "--skip_z '%s': give LOSS[:NORM], such as 7, 7:7, or 0 for never", skip_z); }
    return has_action || fail(err, "--on_spike '%s': give skip, stop or stop:N; with stop, scripts/supervise.sh goes "
                              "back and leaves the data out", on_spike);
}

bool plan_check_effects(const Plan* p, const Config* c, Error* err) {
    const bool is_unrounded = !strcmp(p->backend->storage, "fp32");
    if (c->has_letters) { return true; }
    if (c->stochastic_round && is_unrounded) {
        return fail(err, "--stochastic_round 1 has no effect with --dtype %s: weights are not rounded to 16 bits",
                    dtype_names[p->dtype]);
    }
    if (!c->deterministic && c->replay) {
        return fail(err, "--replay %lld compares bits, which --deterministic 0 lets differ: leave one out", c->replay);
    }
    if (p->exact && is_unrounded) {
        return fail(err, "--attention exact has no effect with --dtype %s: attention's output is not rounded to 16 "
                    "bits", dtype_names[p->dtype]);
    }
    if (config_source(c, "eval_data") > FROM_CHECKPOINT && *c->eval_data && p->phases.test_sets.every == 0) {
        return fail(err, "--eval_data %s is never scored: give --val_every, or every:N in --eval_rules", c->eval_data);
    }
    return true;
}

void take_folder_tokenizer(Config* c, const char* folder) {
    Error err;
    if (!folder || config_source(c, "tokenizer") >= FROM_CHECKPOINT || !folder_has_tokenizer(folder)) { return; }
    if (!config_set(c, config_find("tokenizer"), folder, FROM_CHECKPOINT, &err)) { fatal("%s", err.text); }
}

TokenizerPlan tokenizer_plan(const Config* c, const char* folder) {
    const bool is_built_in = !*c->tokenizer || is_one_of(c->tokenizer, "gpt2|bytes|none");
    const bool is_copied = config_source(c, "tokenizer") == FROM_CHECKPOINT && !is_built_in && folder &&
                           folder_has_tokenizer(folder);
    return (TokenizerPlan){.option = c->tokenizer, .path = is_copied ? folder : c->tokenizer};
}

static DataPlan data_plan(const Config* c) {
    return (DataPlan){.train = c->train_data, .val = c->val_data, .header = token_header(c),
                      .val_tokens = c->val_tokens, .shuffles = c->shuffle != 0, .overfits = c->overfit != 0,
                      .masks_documents = c->document_mask != 0};
}

static PhasePlan phase_plan(const Config* c) {
    return (PhasePlan){.val_every = c->val_every, .sample_every = c->sample_every, .eval_data = c->eval_data,
                       .prompt = c->prompt, .sample_tokens = (size_t)c->sample_tokens,
                       .sampling = {.temperature = c->temperature, .top_k = (int)c->top_k, .top_p = c->top_p,
                                    .seed = (uint64_t)c->seed}};
}

bool plan_parse(Plan* p, enum dtype dtype, const Config* c, Error* err) {
    *p = (Plan){.dtype = dtype,
                .device = device_options(c, dtype),
                .zero_init_out = c->init_out == init_out_zero,
                .seed = (uint64_t)c->seed,
                .B = (int)c->batch_size,
                .total_batch_size = c->total_batch_size,
                .max_steps = c->max_steps,
                .schedule = {.kind = c->schedule, .min_lr_frac = c->min_lr_frac, .decay_frac = c->decay_frac,
                             .warmup_steps = c->warmup_steps},
                .keep = keep_of(c->recompute),
                .exact = c->attention == attention_exact,
                .rounds_at_random = c->stochastic_round != 0,
                .has_zero = c->zero != 0,
                .place = c->offload == offload_optimizer ? STATE_IN_HOST : STATE_ON_DEVICE,
                .shards = c->zero ? (int)c->gpus : 1,
                .tune = c->tune,
                .samples = c->sample_every > 0 || *c->eval_data,
                .data = data_plan(c),
                .phases = phase_plan(c),
                .save = {.out = c->out, .every = c->save_every, .leaves_done_file = c->has_letters},
                .replay_every = c->replay,
                .max_hours = c->max_time,
                .has_tensorboard = c->tensorboard};
    if (!skip_windows_parse(&p->data.skip, c->skip_windows, err)) {
        Error why = *err;
        return fail(err, "--skip_windows %s", why.text);
    }
    TestSetOptions* sets = &p->phases.test_sets;
    if (!eval_rules_parse(sets, c->eval_rules, err) || !spike_rule_parse(&p->spikes, c->skip_z, c->on_spike, err)) {
        return false;
    }
    if (sets->every < 0) { sets->every = c->val_every; }
    return rates_parse(&p->rates, c, err) && keep_parse(&p->save.keep, c->keep, err) &&
           loss_scale_parse(&p->loss_scale, c->loss_scale, dtype == dtype_fp16, err) &&
           ramp_parse(&p->batch_ramp, "batch_ramp", c->batch_ramp, err) &&
           ramp_parse(&p->seq_ramp, "seq_ramp", c->seq_ramp, err);
}

bool plan_make(Plan* p, const Backend* b, enum dtype dtype, const Config* c, const char* weights, Error* err) {
    if (!plan_parse(p, dtype, c, err)) { return false; }
    p->backend = b;
    p->weights = weights;
    p->tokenizer = tokenizer_plan(c, weights);
    if (!resolve_shape(p, c, weights, err) || !resolve_seq_len(p, c, err)) { return false; }
    p->sample_context = strcmp(c->init, "random") ? p->shape.max_seq_len : p->T;
    // A prompt has at most as many tokens as bytes. Test sets need all positions.
    const size_t prompt = max_size(1, strlen(c->prompt));
    p->sample_capacity = *c->eval_data ? p->shape.max_seq_len
                                       : generate_capacity(p->sample_context, prompt, (size_t)c->sample_tokens);
    p->phases.test_sets.T = p->T;
    p->phases.test_sets.vocab_size = p->shape.vocab_size;
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

void plan_layout(const Plan* p, GPT2* g) {
    gpt2_layout(g, p->backend, &p->shape, p->B, p->T, p->keep, p->shards);
    if (p->exact) { gpt2_keep_rest(g); }
}

// Returns the bytes of host memory of a run: batches, buffers to read and write weights, and 16 MiB for the rest
// (chosen, not measured).
static size_t host_bytes(const GPT2* g) {
    const size_t tokens = dataloader_ints(g->B, g->T) * sizeof(int);
    const size_t files = 2 * tensors_largest(&g->params_table) * sizeof(float);
    return 2 * tokens + files + ((size_t)16 << 20);
}

size_t plan_memory(const Plan* p, MemoryLine line[PLAN_MEMORY_LINES]) {
    GPT2 g;
    plan_layout(p, &g);
    memset(line, 0, PLAN_MEMORY_LINES * sizeof *line);
    gpt2_memory(&g, line);
    if (p->keep != FORWARD_ONLY) {
        optimizer_memory(&g, p->rates.kind, p->place, p->shards, line + GPT2_MEMORY_LINES);
    }
    return memory_lines_bytes(line, PLAN_MEMORY_LINES);
}

size_t plan_state_bytes(const Plan* p) {
    MemoryLine line[PLAN_MEMORY_LINES];
    plan_memory(p, line);
    return memory_lines_host_bytes(line, PLAN_MEMORY_LINES);
}

size_t plan_bytes(const Plan* p) {
    const Backend* b = p->backend;
    const GPT2Config* m = &p->shape;
    MemoryLine line[PLAN_MEMORY_LINES];
    GPT2 g;
    plan_layout(p, &g);
    const size_t cache = kv_cache_bytes(b, m, p->samples, p->sample_capacity);
    const size_t margin = (size_t)48 << 20; // chosen, not measured
    const bool trains = p->keep != FORWARD_ONLY;
    const size_t operations = b->operations_bytes(&g.params_table, trains, p->B, p->T, m->channels, m->num_heads);
    const size_t device = plan_memory(p, line);
    const size_t host = b->is_host ? host_bytes(&g) + memory_lines_host_bytes(line, PLAN_MEMORY_LINES) : 0;
    return device + cache + operations + host + margin;
}

double plan_least_gb(const Plan* p) {
    const size_t need = plan_bytes(p), tenth = ((size_t)1 << 30) / 10;
    size_t too_little = 0, enough = 2 * need / tenth + 1000;
    while (enough - too_little > 1) {
        const size_t tenths = too_little + (enough - too_little) / 2;
        if (p->backend->device_memory_usable(tenths * tenth) >= need) { enough = tenths; }
        else { too_little = tenths; }
    }
    return (double)enough / 10;
}

// Returns the bytes of device memory available to this rank; ranks on one machine share its host memory evenly.
static size_t memory_of_rank(const Backend* b, const Comm* comm) {
    return b->device_memory_available() / (b->is_host ? (size_t)comm->local_size : 1);
}

int largest_batch(const Plan* p, long long most, size_t available) {
    Plan tried = *p;
    long long fits = 0, too_many = (long long)min_size((size_t)most, (size_t)(INT_MAX / p->T)) + 1;
    while (too_many - fits > 1) {
        tried.B = (int)((fits + too_many) / 2);
        if (plan_bytes(&tried) <= available) { fits = tried.B; }
        else { too_many = tried.B; }
    }
    return (int)fits;
}

// Returns the largest batch of at most B that divides `windows`; 0 if B is 0.
static int dividing_batch(int B, long long windows) {
    while (B > 0 && windows % B) { B--; }
    return B;
}

// Writes the option that makes a plan fit into `available` bytes together with --recompute all, for advice in an error;
// nothing if none does, or if it is not needed.
static void offload_advice(const Plan* p, size_t available, char* text, size_t size) {
    Plan plan = *p;
    plan.keep = RECOMPUTE_ALL;
    plan.place = STATE_IN_HOST;
    const int B = dividing_batch(largest_batch(&plan, p->B, available), p->B);
    if (p->backend->is_host || !B) { return; }
    snprintf(text, size, "--offload optimizer --recompute all --batch_size %d", B);
}

// Writes what would make a plan fit into `available` bytes, as advice in an error, to `text`.
static void memory_advice(const Plan* p, size_t available, char* text, size_t size) {
    const bool training = p->keep != FORWARD_ONLY;
    Plan all = *p;
    all.keep = RECOMPUTE_ALL;
    const int B = training ? dividing_batch(largest_batch(p, p->B, available), p->B) : 0;
    const int B_of_all = training ? dividing_batch(largest_batch(&all, p->B, available), p->B) : 0;
    const char* smallest = p->samples > 1 ? "fewer --samples or prompts" : "a smaller model";
    char batch[32] = "", recompute[64] = "", its_batch[32] = "", offload[64] = "";
    if (B) { snprintf(batch, sizeof batch, "--batch_size %d", B); }
    if (B_of_all < p->B) { snprintf(its_batch, sizeof its_batch, " --batch_size %d", B_of_all); }
    if (B_of_all > B) { snprintf(recompute, sizeof recompute, "--recompute all%s", its_batch); }
    const bool fits = *batch || *recompute;
    if (training && !fits) { offload_advice(p, available, offload, sizeof offload); }
    snprintf(text, size, "%s%s%s%s%s", batch, *batch && *recompute ? ", or " : "", recompute, offload,
             fits || *offload ? "" : smallest);
}

bool plan_check_memory(const Plan* p, Comm* comm, Error* err) {
    const Backend* b = p->backend;
    GPT2 g;
    plan_layout(p, &g);
    const size_t need = plan_bytes(p), available = memory_of_rank(b, comm);
    const size_t state = plan_state_bytes(p), ranks = (size_t)comm->local_size; // of this machine: each needs as much
    const size_t host_need = ranks * (host_bytes(&g) + state), host_available = host_memory_available();
    if (!b->is_host && host_need > host_available) {
        return fail(err, "not enough host memory: %.1f MiB are needed, %.1f MiB are available%s", in_mib(host_need),
                    in_mib(host_available), state ? "; --offload none leaves masters and moments on the GPU" : "");
    }
    if (need <= available) {
        comm_barrier(comm);
        return true;
    }
    MemoryLine line[PLAN_MEMORY_LINES];
    plan_memory(p, line);
    for (int i = 0; i < PLAN_MEMORY_LINES; i++) {
        if (line[i].bytes >> 20) { notice("  %-28s %10.1f MiB", line[i].what, in_mib(line[i].bytes)); }
    }
    char advice[192];
    memory_advice(p, available, advice, sizeof advice);
    return fail(err, "not enough memory%s: %.1f MiB are needed, %.1f MiB are available; give %s",
                b->is_host ? "" : " on the GPU", in_mib(need), in_mib(available), advice);
}

// ---------------------------------------------------------------------------------------------------------------------
// the batch

// Appends to `text`, advice in an error, the numbers of processes up to `most` with which the total batch can be
// divided into micro-batches of `micro` tokens.
static void append_possible_ranks(long long total, long long micro, int most, char* text, size_t size) {
    const char* between = ", or start ";
    bool any = false;
    for (int n = 1; n <= most && strlen(text) + 32 < size; n++) {
        if (total % (micro * n)) { continue; }
        snprintf(text + strlen(text), size - strlen(text), "%s%d", between, n);
        between = ", ";
        any = true;
    }
    if (any) { snprintf(text + strlen(text), size - strlen(text), " processes"); }
}

// Resolves --batch_size auto. Leaves an eighth of the host's memory to other programs. Without --total_batch_size, the
// batch divides 64. Both numbers are chosen, not measured.
static bool resolve_auto_batch(Plan* p, Comm* comm, Error* err) {
    const long long T = p->T, total = p->total_batch_size;
    if (total && total < T * comm->size) {
        return fail(err, "--total_batch_size %lld is less than one sequence of --seq_len %lld on each of %d processes",
                    total, T, comm->size);
    }
    const size_t memory = memory_of_rank(p->backend, comm);
    const size_t available = p->backend->is_host ? memory - memory / 8 : memory;
    const long long windows = total ? total / T / comm->size : 64;
    const int fits = largest_batch(p, (long long)min_size((size_t)windows, MAX_AUTO_BATCH), available);
    p->B = dividing_batch((int)comm_min_host(comm, (size_t)fits), windows);
    if (!p->B) { return fail(err, "--batch_size auto: not even one sequence of %lld tokens fits into memory", T); }
    notice("batch_size %d fits", p->B);
    return true;
}

static bool resolve_batch(Plan* p, Comm* comm, Error* err) {
    const int ranks = comm->size;
    const long long T = p->T;
    if (p->B == 0 && !resolve_auto_batch(p, comm, err)) { return false; }
    if (p->B * T > INT_MAX) {
        return fail(err, "--batch_size %d of %lld tokens is more than a micro-batch can hold: give at most %lld", p->B,
                    T, INT_MAX / T);
    }
    const long long micro = p->B * T * ranks, total = p->total_batch_size ? p->total_batch_size : micro;
    p->total_batch_size = total;
    if (total % micro == 0) { return true; }
    const long long below = total / micro * micro;
    long long B = p->B; // the largest smaller micro-batch that would do
    while (B > 1 && total % (B * T * ranks)) { B--; }
    char other[160] = "";
    if (total % (B * T * ranks) == 0) { snprintf(other, sizeof other, ", or --batch_size %lld", B); }
    if (ranks > 1) { append_possible_ranks(total, p->B * T, 2 * ranks, other, sizeof other); }
    return fail(err, // %.0lld prints nothing for 0
                "--total_batch_size %lld is not a multiple of batch_size * seq_len * processes = %d * %lld * %d = "
                "%lld: give %lld%s%.0lld%s",
                total, p->B, T, ranks, micro, below ? below : micro, below ? " or " : "", below ? below + micro : 0,
                other);
}

bool plan_batch(Plan* p, Comm* comm, Error* err) {
    if (p->has_zero && comm->size > 1) { p->shards = comm->size; } // a launcher has started them
    p->nccl_algorithms = comm->algorithms;
    return resolve_batch(p, comm, err) && batch_ramp_fit(&p->batch_ramp, p->total_batch_size, p->T, err) &&
           seq_ramp_fit(&p->seq_ramp, p->T, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// options as resolved

json_t* plan_options(const Plan* p, const Config* c) {
    json_t* options = config_to_json(c);
    json_object_set_new(options, "model", json_string(p->model));
    json_object_set_new(options, "dtype", json_string(dtype_names[p->dtype]));
    json_object_set_new(options, "seq_len", json_integer(p->T));
    json_object_set_new(options, "batch_size", json_integer(p->B));
    json_object_set_new(options, "total_batch_size", json_integer((json_int_t)p->total_batch_size));
    return options;
}
