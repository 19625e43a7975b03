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

PlanMemory plan_memory(const Plan* p) {
    const Backend* b = p->backend;
    const GPT2Config* m = &p->shape;
    const bool trains = p->keep != FORWARD_ONLY;
    const size_t margin = (size_t)48 << 20; // chosen, not measured
    PlanMemory memory = {.of_lines = 0};
    GPT2 g;
    plan_layout(p, &g);
    gpt2_memory(&g, memory.line);
    if (trains) { optimizer_memory(&g, p->rates.kind, p->place, p->shards, memory.line + GPT2_MEMORY_LINES); }
    for (int i = 0; i < PLAN_MEMORY_LINES; i++) {
        if (memory.line[i].in_host) { memory.state += memory.line[i].bytes; }
        else { memory.of_lines += memory.line[i].bytes; }
    }
    memory.host = host_bytes(&g) + memory.state;
    memory.device = memory.of_lines + kv_cache_bytes(b, m, p->samples, p->sample_capacity) + margin +
                    b->operations_bytes(&g.params_table, trains, p->B, p->T, m->channels, m->num_heads) +
                    (b->is_host ? memory.host : 0);
    return memory;
}

size_t plan_bytes(const Plan* p) { return plan_memory(p).device; }

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

// Returns the largest batch that divides the planned one and fits into `available` bytes with these settings; 0: none.
static int fitting_batch(const Plan* p, Keep keep, StatePlace place, size_t available) {
    Plan plan = *p;
    plan.keep = keep;
    plan.place = place;
    return dividing_batch(largest_batch(&plan, p->B, available), p->B);
}

// Returns what would make a plan fit into `available` bytes, as advice in an error; the caller frees it.
static char* memory_advice(const Plan* p, size_t available) {
    const bool trains = p->keep != FORWARD_ONLY;
    const int B = trains ? fitting_batch(p, p->keep, p->place, available) : 0;
    const int B_of_all = trains ? fitting_batch(p, RECOMPUTE_ALL, p->place, available) : 0;
    const bool may_offload = trains && !B_of_all && !p->backend->is_host;
    const int B_offloaded = may_offload ? fitting_batch(p, RECOMPUTE_ALL, STATE_IN_HOST, available) : 0;
    char* text = NULL;
    if (B) { append_format(&text, "--batch_size %d", B); }
    if (B_of_all > B) { append_format(&text, "%s--recompute all", B ? ", or " : ""); }
    if (B_of_all > B && B_of_all < p->B) { append_format(&text, " --batch_size %d", B_of_all); }
    if (B_offloaded) { append_format(&text, "--offload optimizer --recompute all --batch_size %d", B_offloaded); }
    if (!text) { text = format("%s", p->samples > 1 ? "fewer --samples or prompts" : "a smaller model"); }
    return text;
}

bool plan_check_memory(const Plan* p, Comm* comm, Error* err) {
    const Backend* b = p->backend;
    const PlanMemory memory = plan_memory(p);
    const size_t available = memory_of_rank(b, comm), host_available = host_memory_available();
    const size_t host_need = (size_t)comm->local_size * memory.host; // each rank of this machine needs as much
    if (!b->is_host && host_need > host_available) {
        const char* advice = memory.state ? "; --offload none leaves masters and moments on the GPU" : "";
        return fail(err, "not enough host memory: %.1f MiB are needed, %.1f MiB are available%s", in_mib(host_need),
                    in_mib(host_available), advice);
    }
    if (memory.device <= available) {
        comm_barrier(comm);
        return true;
    }
    for (int i = 0; i < PLAN_MEMORY_LINES; i++) {
        const MemoryLine* line = &memory.line[i];
        if (line->bytes >> 20) { notice("  %-28s %10.1f MiB", line->what, in_mib(line->bytes)); }
    }
    char* advice = memory_advice(p, available);
    fail(err, "not enough memory%s: %.1f MiB are needed, %.1f MiB are available; give %s",
         b->is_host ? "" : " on the GPU", in_mib(memory.device), in_mib(available), advice);
    free(advice);
    return false;
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
    if (total % (T * comm->size)) {
        p->B = 1; // nor does a larger one divide it: resolve_batch() says what would
        return true;
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
