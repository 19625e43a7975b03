#include "scale.h"
#include "../check/trial.h"
#include "../comm/connect.h"
#include "collectives.h"
#include "scale_picture.h"

// --total_batch_size and --max_steps, if they are not given: the lecture's and llm.c's batch of 124M; chosen.
enum { SCALE_TOKENS = 524288, SCALE_STEPS = 5 };

const char* const SCALE_NAMES[SCALE_MODES] = {"no overlap", "overlap", "ZeRO-1, no overlap", "ZeRO-1, overlap"};
static const char* const SCALE_KEYS[SCALE_MODES] = {"plain", "overlap", "zero", "zero_overlap"};

double scale_tokens_per_second(const BenchScale* b, int i, int mode) {
    return (double)b->plan.total_batch_size / b->at[i][mode].seconds;
}

double scale_efficiency(const BenchScale* b, int i, int mode) {
    return b->at[0][mode].seconds / (b->n[i] * b->at[i][mode].seconds);
}

// Returns the cost of a billion tokens.
static double scale_cost(const BenchScale* b, int i, int mode) {
    return 1e9 * b->config->price / 3600 * b->n[i] / scale_tokens_per_second(b, i, mode);
}

// ---------------------------------------------------------------------------------------------------------------------
// inputs

static void scale_model_init(BenchScale* b) {
    const Plan* p = &b->plan;
    const TensorTable table = gpt2_params_table(&p->shape, 1);
    ScaleModel* m = &b->model;
    m->num_layers = table.num_layers;
    m->first = table.layers_begin;
    m->layer = table.layer_size;
    m->last = table.size - table.layers_begin - (size_t)table.num_layers * table.layer_size;
    m->param_bytes = b->backend->element_bytes;
    m->windows = p->total_batch_size / p->T;
    m->most_rows = p->B;
    for (int n = 1; n <= SCALE_MOST; n *= 2) {
        if (scale_is_possible(m, n)) { b->n[b->count++] = n; }
    }
}

// Measures a micro-batch of so many sequences on every process, all at the same time; the slowest counts.
static void scale_measure_micro(BenchScale* b, Trial* trial, const int* batch, int rows, int steps) {
    ScaleModel* m = &b->model;
    double part[sizeof(StepTimes) / sizeof(double)];
    if (b->comm->size > 1) { connection_barrier(b->comm->peers); }
    StepTimes t = trial_times(trial, batch, rows, steps);
    memcpy(part, &t, sizeof part);
    for (size_t i = 0; b->comm->size > 1 && i < sizeof part / sizeof *part; i++) {
        part[i] = comm_slowest(b->comm, part[i]);
    }
    memcpy(&t, part, sizeof t);
    const MicroTime micro = {.rows = rows, .forward = t.forward, .classifier = t.classifier, .layer = t.layer,
                             .embeddings = t.embeddings};
    if (m->micros == 0) {
        m->begin = t.begin;
        m->update = t.update;
    }
    m->micro[m->micros++] = micro;
}

// Measures all sizes of micro-batches that the counts of processes lead to.
static void scale_measure(BenchScale* b) {
    Error err;
    const Config* c = b->config;
    ScaleModel* m = &b->model;
    const int steps = c->max_steps < 0 ? SCALE_STEPS : (int)c->max_steps;
    Trial* trial = trial_open(&b->plan, c, NULL, &err);
    if (!trial) { fatal("%s", err.text); }
    const size_t T = (size_t)b->plan.T;
    int* batch = alloc_or_die(3 * (size_t)m->most_rows * T, sizeof *batch, "a batch of tokens");
    for (int i = 0, last = 0; i < b->count && m->micros < MAX_MICRO_TIMES; i++) {
        const int rows = scale_rows(m->windows / b->n[i], m->most_rows);
        if (rows == last) { continue; }
        batch_random(batch, (size_t)rows * T, b->plan.shape.vocab_size, (uint64_t)c->seed, 0);
        scale_measure_micro(b, trial, batch, rows, steps);
        last = rows;
    }
    free(batch);
    trial_close(trial);
}

// Divides the time that --step_ms gives into the parts of a step.
static void scale_take_step(BenchScale* b) {
    ScaleModel* m = &b->model;
    const Config* c = b->config;
    if (c->update_ms >= c->step_ms) {
        usage_error("--update_ms %g is not a part of --step_ms %g", c->update_ms, c->step_ms);
    }
    const int rows = scale_rows(m->windows, m->most_rows);
    const double micro = 1e-3 * (c->step_ms - c->update_ms) / ((double)m->windows / rows);
    m->update = 1e-3 * c->update_ms;
    m->micro[m->micros++] = micro_of_whole(rows, micro, m);
}

// Opens the device, and measures what --link and --step_ms leave open.
static void scale_open(BenchScale* b) {
    Error err;
    const Config* c = b->config;
    const bool measures = c->step_ms == 0 || !*c->link;
    if (*c->link && !link_parse(c->link, &b->net, &err)) { usage_error("%s", err.text); }
    if (!*c->link && b->comm->size == 1) {
        how_to_start_several("scale", ", so that the connection can be measured; or give --link, such as 300GB/s:5us");
    }
    b->backend = bench_backend(c, c->dtype);
    const char* dtype = bench_dtype(c, b->backend);
    if (measures) { open_device(b->backend, c, dtype, b->comm); }
    b->plan = bench_plan(b->backend, dtype, c, c->step_ms > 0 ? 0 : bench_seq_len(b->backend));
    scale_model_init(b);
    const char* device = c->step_ms > 0 ? "a GPU of the given speed" : b->backend->device_name();
    snprintf(b->device, sizeof b->device, "%s", device);
    if (c->step_ms > 0) { scale_take_step(b); }
    else { scale_measure(b); }
    if (!*c->link) {
        CommBench comm = comm_bench_open(b->backend, b->comm, b->model.layer * sizeof(float));
        b->net.within = b->net.between = comm_bench_link(&comm, b->model.layer * sizeof(float));
        b->net.per_machine = INT32_MAX;
        comm_bench_close(&comm);
        if (comm.wrong) { fatal("a sum over the processes is wrong: bench comm shows which"); }
    }
    b->copy_bandwidth = measures ? b->backend->device_copy_bandwidth() : 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// the table

static void print_scale_inputs(const BenchScale* b) {
    const Config* c = b->config;
    const ScaleModel* m = &b->model;
    const Network* net = &b->net;
    const bool is_one = net->per_machine == INT32_MAX;
    printf("scale: %s, %s, %s, %lld tokens a step in sequences of %d, at most %d at a time\n", b->plan.model, b->device,
           b->plan.dtype, b->plan.total_batch_size, b->plan.T, b->plan.B);
    printf("one process, ms: %.2f to begin a step, %.2f to update", 1e3 * m->begin, 1e3 * m->update);
    for (int i = 0; i < m->micros; i++) {
        printf("; %.2f for %d sequence%s", 1e3 * micro_seconds(m, &m->micro[i]), m->micro[i].rows,
               m->micro[i].rows > 1 ? "s" : "");
    }
    printf(" (%s)\n", c->step_ms > 0       ? "given, not measured"
                      : b->comm->size > 1 ? "measured, with the others at work"
                                          : "measured");
    printf("connected by %.3f GB/s with %.1f us", net->within.bandwidth / 1e9, 1e6 * net->within.latency);
    if (!is_one) {
        printf(" within machines of %d, by %.3f GB/s with %.1f us between them", net->per_machine,
               net->between.bandwidth / 1e9, 1e6 * net->between.latency);
    }
    if (*c->link) { printf(" (given, not measured)\n"); }
    else { printf(" (measured with %d processes, taken to hold for all)\n", b->comm->size); }
}

static void print_scale_table(const BenchScale* b) {
    const bool costs = b->config->price > 0;
    printf("%6s %14s %11s %11s %11s %11s %11s %11s %11s %11s %12s %10s %10s%s\n", "GPUs", "micro-batches",
           "computing", "all-reduce", "exposed", "embeddings", "ms/step", "overlap", "ZeRO-1", "ZeRO+over.", "tok/s",
           "efficiency", "ZeRO", costs ? "  cost/Gtok" : "");
    for (int i = 0; i < b->count; i++) {
        const ScaledStep* p = b->at[i];
        char micro[32];
        snprintf(micro, sizeof micro, "%lld x %d", p->micro_steps, p->rows);
        printf("%6d %14s %11.2f %11.2f %11.2f %11.2f %11.2f %11.2f %11.2f %11.2f %12.0f %9.1f%% %9.1f%%", b->n[i],
               micro, 1e3 * p->computing, 1e3 * p->sent, 1e3 * p[SCALE_OVERLAP].exposed,
               1e3 * p[SCALE_OVERLAP].embeddings, 1e3 * p->seconds, 1e3 * p[SCALE_OVERLAP].seconds,
               1e3 * p[SCALE_ZERO].seconds, 1e3 * p[SCALE_OVERLAP | SCALE_ZERO].seconds,
               scale_tokens_per_second(b, i, SCALE_OVERLAP), 100 * scale_efficiency(b, i, SCALE_OVERLAP),
               100 * scale_efficiency(b, i, SCALE_OVERLAP | SCALE_ZERO));
        if (costs) { printf(" %10.4g", scale_cost(b, i, SCALE_OVERLAP)); }
        putchar('\n');
    }
    puts("Predicted, not measured. tok/s, efficiency and cost (per billion tokens): with overlap. exposed: the\n"
         "part of the all-reduce that overlap does not hide; embeddings: the part that it never hides. Method\n"
         "(bench/scale_model.h): n processes share a step's sequences. An all-reduce of S bytes takes twice\n"
         "(n-1)/n S/bandwidth + (n-1) latencies in a ring, or S/bandwidth + log2 n latencies in trees. It begins when\n"
         "the last micro-batch's backward is done with a layer; the step waits for all that has not arrived when\n"
         "backward ends: always for the embeddings, which come last. ZeRO-1 reduces half as much, updates an n-th,\n"
         "and gathers the parameters in their storage type. Left out: all-reduces slow the computing beside them.");
    if (b->n[b->count - 1] < SCALE_MOST) {
        printf("The sequences of a step do not go evenly among more than %d: that takes another --total_batch_size.\n",
               b->n[b->count - 1]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON

static json_t* scaled_json(const BenchScale* b, int i, int mode) {
    const ScaledStep* p = &b->at[i][mode];
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ms", 1e3 * p->seconds, "computing_ms",
                     1e3 * p->computing, "update_ms", 1e3 * p->update, "communication_ms", 1e3 * p->sent, "exposed_ms",
                     1e3 * p->exposed, "embeddings_ms", 1e3 * p->embeddings, "bytes", p->bytes, "tok_s",
                     scale_tokens_per_second(b, i, mode), "efficiency", scale_efficiency(b, i, mode), "cost_per_gtok",
                     scale_cost(b, i, mode));
}

static json_t* scale_inputs_json(const BenchScale* b) {
    const ScaleModel* m = &b->model;
    const Network* net = &b->net;
    json_t* micro = json_array();
    for (int i = 0; i < m->micros; i++) {
        const MicroTime* t = &m->micro[i];
        json_array_append_new(micro, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "rows", t->rows, "ms",
                                               1e3 * micro_seconds(m, t), "forward_ms", 1e3 * t->forward, "head_ms",
                                               1e3 * t->classifier, "layer_ms", 1e3 * t->layer, "tail_ms",
                                               1e3 * t->embeddings));
    }
    return json_pack("{s:b, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o}", "step_measured",
                     b->config->step_ms == 0, "link_measured", !*b->config->link, "processes", b->comm->size,
                     "begin_ms", 1e3 * m->begin, "update_ms", 1e3 * m->update, "within_gb_s",
                     net->within.bandwidth / 1e9, "within_us", 1e6 * net->within.latency, "between_gb_s",
                     net->between.bandwidth / 1e9, "between_us", 1e6 * net->between.latency, "per_machine",
                     net->per_machine, "micro_batches", micro);
}

static json_t* scale_json(const BenchScale* b) {
    json_t* rows = json_array();
    for (int i = 0; i < b->count; i++) {
        json_t* row = json_pack("{s:i, s:I, s:i}", "gpus", b->n[i], "micro_batches",
                                (json_int_t)b->at[i][0].micro_steps, "rows", b->at[i][0].rows);
        for (int mode = 0; mode < SCALE_MODES; mode++) {
            json_object_set_new(row, SCALE_KEYS[mode], scaled_json(b, i, mode));
        }
        json_array_append_new(rows, row);
    }
    json_t* record = bench_record("scale", b->config, &b->plan, b->device, b->copy_bandwidth, "predictions", rows);
    if (record) { json_object_set_new(record, "inputs", scale_inputs_json(b)); }
    return record;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

int bench_scale(const Config* config, Comm* comm) {
    Config c = *config;
    if (c.total_batch_size == 0) { c.total_batch_size = SCALE_TOKENS; }
    BenchScale b = {.config = &c, .comm = comm};
    bench_check_batch(&c, comm);
    scale_open(&b);
    for (int i = 0; i < b.count; i++) {
        for (int mode = 0; mode < SCALE_MODES; mode++) {
            b.at[i][mode] = scale_predict(&b.model, &b.net, b.n[i], mode);
        }
    }
    if (comm->rank > 0) { return EXIT_DONE; }
    print_scale_inputs(&b);
    print_scale_table(&b);
    if (*c.out) {
        Page picture = {NULL, 0, 0};
        scale_picture(&picture, &b);
        bench_write_json(c.out, "scale.json", scale_json(&b));
        bench_write(c.out, "scale.svg", picture.text);
        free(picture.text);
        printf("%s/scale.json\n%s/scale.svg\n", c.out, c.out);
    }
    return EXIT_DONE;
}
