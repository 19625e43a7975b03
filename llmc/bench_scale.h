// `bench scale`: what 1, 2, 4, ... 1,024 GPUs (or CPU processes) would make of a step of --total_batch_size tokens:
// time, tokens per second, efficiency and cost, by the method of scale.h. What goes into it is measured here or given:
//
//   the parts of a step     measured on this device, with as many processes at work at the same time as were started,
//                           so that they share cores and memory as in training; or --step_ms, and --update_ms
//   what connects them      measured by adding up a layer's gradients, when several processes were started; or --link
#pragma once
#include "bench_comm.h"
#include "chart.h"

enum { SCALE_MOST = 1024, SCALE_COUNTS = 11, SCALE_TOKENS = 524288, SCALE_STEPS = 5 };
static const char* const SCALE_NAMES[SCALE_WAYS] = {"no overlap", "overlap", "ZeRO-1, no overlap", "ZeRO-1, overlap"};
static const char* const SCALE_KEYS[SCALE_WAYS] = {"plain", "overlap", "zero", "zero_overlap"};

typedef struct {
    Config* config;
    Comm* comm;
    const Harness* harness;
    GPT2Config shape;
    ScaleModel model;
    Network net;
    double copy_bandwidth;
    char device[128];
    int n[SCALE_COUNTS], count; // processes
    ScaledStep at[SCALE_COUNTS][SCALE_WAYS];
} BenchScale;

static inline double scale_tokens_per_second(const BenchScale* b, const ScaledStep* p) {
    return (double)b->config->total_batch_size / p->seconds;
}
static inline double scale_efficiency(const BenchScale* b, int i, int way) {
    return b->at[0][way].seconds / (b->n[i] * b->at[i][way].seconds);
}
// Of a billion tokens.
static inline double scale_cost(const BenchScale* b, int i, int way) {
    return 1e9 * b->config->price / 3600 * b->n[i] / scale_tokens_per_second(b, &b->at[i][way]);
}

// ---------------------------------------------------------------------------------------------------------------------
// what goes in

static inline void scale_model_init(BenchScale* b, const Trainer* trainer) {
    const TensorTable table = b->harness->model_table(&b->shape);
    ScaleModel* m = &b->model;
    m->num_layers = table.num_layers;
    m->first = table.layers_begin;
    m->layer = table.layer_size;
    m->last = table.size - table.layers_begin - (size_t)table.num_layers * table.layer_size;
    m->param_bytes = strcmp(trainer->storage, "bf16") ? 4 : 2;
    m->windows = b->config->total_batch_size / b->config->seq_len;
    m->most_rows = (int)b->config->batch_size;
    for (int n = 1; n <= SCALE_MOST; n *= 2) {
        if (scale_is_possible(m, n)) { b->n[b->count++] = n; }
    }
}

// Every process measures, all at the same time; the slowest counts.
static inline void scale_measure_micro(BenchScale* b, HarnessModel* model, const int* batch, int rows, int steps) {
    ScaleModel* m = &b->model;
    double part[sizeof(StepTimes) / sizeof(double)];
    if (b->comm->size > 1) { bootstrap_barrier(b->comm->peers); }
    StepTimes t = b->harness->model_times(model, batch, rows, steps);
    memcpy(part, &t, sizeof part);
    for (size_t i = 0; b->comm->size > 1 && i < sizeof part / sizeof *part; i++) {
        part[i] = comm_slowest(b->comm, part[i]);
    }
    memcpy(&t, part, sizeof t);
    const MicroTime micro = {rows, t.forward, t.head, t.layer, t.tail};
    if (m->micros == 0) {
        m->begin = t.begin;
        m->update = t.update;
    }
    m->micro[m->micros++] = micro;
}

// All sizes of micro-batches that the counts of processes lead to.
static inline void scale_measure(BenchScale* b) {
    Error err;
    Config* c = b->config;
    ScaleModel* m = &b->model;
    const int steps = c->max_steps < 0 ? SCALE_STEPS : (int)c->max_steps;
    HarnessModel* model = b->harness->model_open(c, &b->shape, &err);
    if (!model) { fatal("%s", err.text); }
    const size_t T = (size_t)c->seq_len;
    int* batch = (int*)alloc_or_die(3 * (size_t)m->most_rows * T, sizeof *batch, "a batch of tokens");
    for (int i = 0, last = 0; i < b->count && m->micros < MAX_MICRO_TIMES; i++) {
        const int rows = scale_rows(m->windows / b->n[i], m->most_rows);
        if (rows == last) { continue; }
        batch_random(batch, (size_t)rows * T, b->shape.vocab_size, (uint64_t)c->seed, 0);
        scale_measure_micro(b, model, batch, rows, steps);
        last = rows;
    }
    free(batch);
    b->harness->model_close(model);
}

// The parts of a step of which --step_ms says how long it takes.
static inline void scale_take_step(BenchScale* b) {
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

// The device, and what --link and --step_ms leave to be measured.
static inline void scale_open(BenchScale* b, const Trainer* trainer) {
    Error err;
    Config* c = b->config;
    const bool measures = c->step_ms == 0 || !*c->link;
    if (*c->link && !link_parse(c->link, &b->net, &err)) { usage_error("%s", err.text); }
    if (!*c->link && b->comm->size == 1) {
        how_to_start_several("scale", ", so that the line between them can be measured; or give --link, such as "
                             "300GB/s:5us");
    }
    if (c->total_batch_size == 0) { c->total_batch_size = SCALE_TOKENS; }
    if (measures) { b->harness->open_for_rank(c, b->comm); }
    bench_resolve(b->harness, c, &b->shape, c->step_ms > 0 || strcmp(trainer->device, "cpu") != 0);
    scale_model_init(b, trainer);
    const char* device = c->step_ms > 0 ? "a GPU of the given speed" : b->harness->device_name();
    snprintf(b->device, sizeof b->device, "%s", device);
    if (c->step_ms > 0) { scale_take_step(b); }
    else { scale_measure(b); }
    if (!*c->link) {
        CommBench comm = comm_bench_open(b->harness, b->comm, b->model.layer * sizeof(float));
        b->net.within = b->net.between = comm_bench_link(&comm, b->model.layer * sizeof(float));
        b->net.per_machine = INT32_MAX;
        comm_bench_close(&comm);
        if (comm.wrong) { fatal("a sum over the processes is wrong: bench comm says more"); }
    }
    b->copy_bandwidth = measures ? b->harness->copy_bandwidth() : 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// what comes out: the table

static inline void print_scale_inputs(const BenchScale* b) {
    const Config* c = b->config;
    const ScaleModel* m = &b->model;
    const Network* net = &b->net;
    const bool is_one = net->per_machine == INT32_MAX;
    printf("scale: %s, %s, %s, %lld tokens a step in sequences of %lld, at most %lld at a time\n", c->model, b->device,
           c->dtype, c->total_batch_size, c->seq_len, c->batch_size);
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

static inline void print_scale_table(const BenchScale* b) {
    const bool costs = b->config->price > 0;
    printf("%6s %14s %11s %11s %11s %11s %11s %11s %12s %10s %10s%s\n", "GPUs", "micro-batches", "computing", "sums",
           "ms/step", "overlap", "ZeRO-1", "ZeRO+over.", "tok/s", "efficiency", "ZeRO", costs ? "  cost/Gtok" : "");
    for (int i = 0; i < b->count; i++) {
        const ScaledStep* p = b->at[i];
        char micro[32];
        snprintf(micro, sizeof micro, "%lld x %d", p->micro_steps, p->rows);
        printf("%6d %14s %11.2f %11.2f %11.2f %11.2f %11.2f %11.2f %12.0f %9.1f%% %9.1f%%", b->n[i], micro,
               1e3 * p->computing, 1e3 * p->sent, 1e3 * p->seconds, 1e3 * p[SCALE_OVERLAP].seconds,
               1e3 * p[SCALE_ZERO].seconds, 1e3 * p[SCALE_OVERLAP | SCALE_ZERO].seconds,
               scale_tokens_per_second(b, &p[SCALE_OVERLAP]), 100 * scale_efficiency(b, i, SCALE_OVERLAP),
               100 * scale_efficiency(b, i, SCALE_OVERLAP | SCALE_ZERO));
        if (costs) { printf(" %10.4g", scale_cost(b, i, SCALE_OVERLAP)); }
        putchar('\n');
    }
    puts("Foretold, not measured. tok/s, efficiency and cost (per billion tokens): with overlap. Method (scale.h): n\n"
         "processes share a step's sequences. A sum of S bytes takes twice (n-1)/n S/bandwidth + (n-1) latencies in\n"
         "a ring, or S/bandwidth + log2 n latencies in trees. It begins when the last micro-batch's backward has done\n"
         "with a layer, and what has not arrived at backward's end is waited for: the embeddings always, which come\n"
         "last. ZeRO-1 adds up half as much, updates an n-th, and gathers the parameters in their storage type. That\n"
         "sums slow the computing beside them down is left out.");
    if (b->n[b->count - 1] < SCALE_MOST) {
        printf("The sequences of a step do not go evenly among more than %d: that takes another --total_batch_size.\n",
               b->n[b->count - 1]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON

static inline json_t* scaled_json(const BenchScale* b, int i, int way) {
    const ScaledStep* p = &b->at[i][way];
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ms", 1e3 * p->seconds, "computing_ms",
                     1e3 * p->computing, "update_ms", 1e3 * p->update, "communication_ms", 1e3 * p->sent, "exposed_ms",
                     1e3 * p->exposed, "bytes", p->bytes, "tok_s", scale_tokens_per_second(b, p), "efficiency",
                     scale_efficiency(b, i, way), "cost_per_gtok", scale_cost(b, i, way));
}

static inline json_t* scale_inputs_json(const BenchScale* b) {
    const ScaleModel* m = &b->model;
    const Network* net = &b->net;
    json_t* micro = json_array();
    for (int i = 0; i < m->micros; i++) {
        const MicroTime* t = &m->micro[i];
        json_array_append_new(micro, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "rows", t->rows, "ms",
                                               1e3 * micro_seconds(m, t), "forward_ms", 1e3 * t->forward, "head_ms",
                                               1e3 * t->head, "layer_ms", 1e3 * t->layer, "tail_ms", 1e3 * t->tail));
    }
    return json_pack("{s:b, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o}", "step_measured",
                     b->config->step_ms == 0, "link_measured", !*b->config->link, "processes", b->comm->size,
                     "begin_ms", 1e3 * m->begin, "update_ms", 1e3 * m->update, "within_gb_s",
                     net->within.bandwidth / 1e9, "within_us", 1e6 * net->within.latency, "between_gb_s",
                     net->between.bandwidth / 1e9, "between_us", 1e6 * net->between.latency, "per_machine",
                     net->per_machine, "micro_batches", micro);
}

static inline json_t* scale_json(const BenchScale* b) {
    json_t* rows = json_array();
    for (int i = 0; i < b->count; i++) {
        json_t* row = json_pack("{s:i, s:I, s:i}", "gpus", b->n[i], "micro_batches",
                                (json_int_t)b->at[i][0].micro_steps, "rows", b->at[i][0].rows);
        for (int way = 0; way < SCALE_WAYS; way++) {
            json_object_set_new(row, SCALE_KEYS[way], scaled_json(b, i, way));
        }
        json_array_append_new(rows, row);
    }
    json_t* record = bench_record("scale", b->config, &b->shape, b->device, b->copy_bandwidth,
                                  config_to_json(b->config), "predictions", rows);
    if (record) { json_object_set_new(record, "inputs", scale_inputs_json(b)); }
    return record;
}

// ---------------------------------------------------------------------------------------------------------------------
// the picture: tokens per second, and efficiency, over the number of GPUs

static const char SCALE_STYLE[] =
    ".scale { font: 12px system-ui, sans-serif; --ink: #1b1f27; --soft: #667085; --grid: #e4e7ec; --all: #2563c9;\n"
    "    --share: #c2560c }\n"
    "@media (prefers-color-scheme: dark) { .scale { --ink: #e6e9ee; --soft: #98a2b3; --grid: #2c323c; --all: #6aa5ff;\n"
    "    --share: #ff9a5c } }\n"
    ".scale text { font-size: 12px; fill: var(--soft) }\n"
    ".scale .title { fill: var(--ink); font-weight: 600 }\n"
    ".scale .x { text-anchor: middle }\n"
    ".scale .y { text-anchor: end }\n"
    ".scale path { fill: none; stroke-width: 1.5 }\n"
    ".scale .grid { stroke: var(--grid); stroke-width: 1 }\n"
    ".scale .ideal { stroke: var(--soft); stroke-width: 1 }\n"
    ".scale .all { stroke: var(--all) }\n"
    ".scale .share { stroke: var(--share) }\n"
    ".scale .serial { stroke-dasharray: 5 4 }\n";

enum { SCALE_WIDTH = 1120, SCALE_HEIGHT = 400, SCALE_TOP = 76, SCALE_PLOT_WIDTH = 430, SCALE_PLOT_HEIGHT = 280 };

// One of the two plots: x and y logarithmic, or y from 0 to 1.
typedef struct {
    const BenchScale* bench;
    int left;
    bool is_speed;
    double low, high; // of y, of which log2 is taken for speed
} ScalePlot;

static inline double scale_x(const ScalePlot* p, int i) {
    const BenchScale* b = p->bench;
    return p->left + SCALE_PLOT_WIDTH * log2(b->n[i]) / fmax(1, log2(b->n[b->count - 1]));
}
static inline double scale_y(const ScalePlot* p, double value) {
    const double y = p->is_speed ? log2(value) : value;
    return SCALE_TOP + SCALE_PLOT_HEIGHT * (1 - (y - p->low) / (p->high - p->low));
}

// A line across, and what it stands for.
static inline void scale_tick(Page* page, const ScalePlot* p, double value) {
    char text[32];
    const double y = scale_y(p, value);
    if (p->is_speed) { tick_text(text, value, value); }
    else { snprintf(text, sizeof text, "%.0f%%", 100 * value); }
    page_add(page, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"y\" x=\"%d\" y=\"%.1f\">%s</text>\n",
             p->left, y, SCALE_PLOT_WIDTH, p->left - 8, y + 4, text);
}

static inline void scale_grid(Page* page, const ScalePlot* p) {
    const BenchScale* b = p->bench;
    const int bottom = SCALE_TOP + SCALE_PLOT_HEIGHT;
    const bool is_wide = p->high - p->low > 12; // powers of ten alone, beside the first
    for (int k = 0; !p->is_speed && k <= 5; k++) { scale_tick(page, p, k / 5.0); }
    double value = exp2(p->low);
    for (; p->is_speed && log2(value) < p->high + 0.01; value = nice_step(1.5 * value)) {
        const double digit = value / pow(10, floor(log10(value) + 1e-9));
        if (!is_wide || digit < 1.5) { scale_tick(page, p, value); }
    }
    for (int i = 0; i < b->count; i++) {
        page_add(page, "<text class=\"x\" x=\"%.1f\" y=\"%d\">%d</text>\n", scale_x(p, i), bottom + 20, b->n[i]);
    }
    page_add(page, "<text class=\"x\" x=\"%d\" y=\"%d\">GPUs</text>\n", p->left + SCALE_PLOT_WIDTH / 2, bottom + 38);
}

static inline void scale_line(Page* page, const ScalePlot* p, int way) {
    const BenchScale* b = p->bench;
    page_add(page, "<path class=\"%s%s\" d=\"", way & SCALE_ZERO ? "share" : "all",
             way & SCALE_OVERLAP ? "" : " serial");
    for (int i = 0; i < b->count; i++) {
        const double y = p->is_speed ? scale_tokens_per_second(b, &b->at[i][way]) : scale_efficiency(b, i, way);
        page_add(page, "%s%.1f %.1f", i ? "L" : "M", scale_x(p, i), scale_y(p, y));
    }
    page_add(page, "\"/>\n");
}

static inline void scale_plot(Page* page, const BenchScale* b, int left, bool is_speed) {
    ScalePlot p = {b, left, is_speed, 0, 1};
    const int last = b->count - 1;
    const double first = scale_tokens_per_second(b, &b->at[0][SCALE_OVERLAP]);
    if (is_speed) {
        p.low = -log2(nice_step(1 / first)); // the numbers next to both, of 1, 2, 5 times a power of ten
        p.high = log2(nice_step(first * b->n[last]));
    }
    page_add(page, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", left, SCALE_TOP - 16,
             is_speed ? "Tokens per second" : "Efficiency: speed over that of one, by the number");
    scale_grid(page, &p);
    page_add(page, "<path class=\"ideal\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", scale_x(&p, 0),
             scale_y(&p, is_speed ? first : 1), scale_x(&p, last), scale_y(&p, is_speed ? first * b->n[last] : 1));
    for (int way = 0; way < SCALE_WAYS; way++) { scale_line(page, &p, way); }
}

static inline void scale_picture(Page* page, const BenchScale* b) {
    page_add(page, "<svg class=\"scale\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
             "aria-label=\"Tokens per second and efficiency by the number of GPUs, foretold\">\n<style>\n%s</style>\n",
             SCALE_WIDTH, SCALE_HEIGHT, SCALE_STYLE);
    char* text = format("%s, %lld tokens a step; %s; foretold, not measured", b->config->model,
                        b->config->total_batch_size, b->device);
    page_add(page, "<text x=\"60\" y=\"18\">");
    page_escape(page, text);
    page_add(page, "</text>\n");
    free(text);
    for (int way = 0; way < SCALE_WAYS; way++) {
        const int x = 60 + 190 * way;
        page_add(page, "<path class=\"%s%s\" d=\"M%d 36h28\"/><text x=\"%d\" y=\"40\">%s</text>\n",
                 way & SCALE_ZERO ? "share" : "all", way & SCALE_OVERLAP ? "" : " serial", x, x + 36, SCALE_NAMES[way]);
    }
    page_add(page, "<path class=\"ideal\" d=\"M820 36h28\"/><text x=\"856\" y=\"40\">nothing lost</text>\n");
    scale_plot(page, b, 60, true);
    scale_plot(page, b, 650, false);
    page_add(page, "</svg>\n");
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static inline int bench_scale(Config* config, FindTrainer find, Comm* comm) {
    BenchScale b;
    memset(&b, 0, sizeof b);
    const Trainer* trainer = bench_trainer(config, find, comm);
    b.config = config;
    b.comm = comm;
    b.harness = trainer->harness;
    scale_open(&b, trainer);
    for (int i = 0; i < b.count; i++) {
        for (int way = 0; way < SCALE_WAYS; way++) { b.at[i][way] = scale_predict(&b.model, &b.net, b.n[i], way); }
    }
    if (comm->rank > 0) { return EXIT_DONE; }
    print_scale_inputs(&b);
    print_scale_table(&b);
    if (*config->out) {
        Page picture = {NULL, 0, 0};
        scale_picture(&picture, &b);
        bench_write_json(config->out, "scale.json", scale_json(&b));
        bench_write(config->out, "scale.svg", picture.text);
        free(picture.text);
        printf("%s/scale.json\n%s/scale.svg\n", config->out, config->out);
    }
    return EXIT_DONE;
}
