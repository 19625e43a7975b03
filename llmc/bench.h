// `bench ladder`: what each technique brings, on this machine, in one table. A rung is a switch on top of the rung
// before, and trains the same model from the same weights on the same batch; it must arrive at the same loss.
//
// The rungs, and the figures beside ours, are those of the lecture "Let's reproduce GPT-2 (124M)" and of people who
// followed it in PyTorch, B = 16, T = 1024 where they say.
#pragma once
#include "report.h"
#include "trainer.h"

typedef struct {
    const char* name;
    const char *dtype, *kernels;
    int fused, flash, pad_vocab;
    // published: tokens/s on an A100 and on an RTX 4060 Ti, ms per step of 16 x 1024 tokens on an A100, speed-up on an
    // RTX 3090 against the rung before; empty: none
    const char* published[4];
} Rung;

enum { NUM_PUBLISHED = 4 };
static const char* const PUBLISHED[NUM_PUBLISHED] = {"A100 tok/s", "4060 Ti tok/s", "A100 ms", "3090 gain"};

static const Rung GPU_RUNGS[] = {
    {"plain kernels, fp32", "fp32", "plain", 0, 0, 0, {"", "", "", ""}},
    {"cuBLASLt, fp32", "fp32", "fast", 0, 0, 0, {"16000", "1600", "1000", ""}},
    {"tf32", "tf32", "fast", 0, 0, 0, {"49000", "2000", "380", "1.5"}},
    {"bf16", "bf16", "fast", 0, 0, 0, {"54500", "3250", "334", "1.5"}},
    {"fused", "bf16", "fast", 1, 0, 0, {"126000", "", "", "1.3"}},
    {"flash attention", "bf16", "fast", 1, 1, 0, {"170000", "15000", "", "1.1"}},
    {"padded vocabulary", "bf16", "fast", 1, 1, 1, {"175000", "15300", "100", "1.06"}},
};
static const Rung CPU_RUNGS[] = {
    {"plain loops", "fp32", "plain", 1, 1, 0, {"", "", "", ""}},
    {"fast kernels", "fp32", "fast", 1, 1, 0, {"", "", "", ""}},
    {"padded vocabulary", "fp32", "fast", 1, 1, 1, {"", "", "", ""}},
};
enum {
    NUM_GPU_RUNGS = sizeof GPU_RUNGS / sizeof *GPU_RUNGS,
    NUM_CPU_RUNGS = sizeof CPU_RUNGS / sizeof *CPU_RUNGS,
    MAX_RUNGS = NUM_GPU_RUNGS
};
enum { NUM_DECIDED = 5 };
static const char* const DECIDED[NUM_DECIDED] = {"dtype", "kernels", "fused", "flash", "pad_vocab"}; // by the rungs

enum { BENCH_WARM_UP = 2, BENCH_STEPS = 10 };

// How far the loss may be from the rung before, relatively, by the coarser of the two types: a dozen steps on one batch
// multiply the rounding of the first one.
typedef struct {
    const char* dtype;
    double tolerance;
} LossTolerance;
static const LossTolerance LOSS_TOLERANCES[] = {{"bf16", 1e-2}, {"tf32", 2e-3}, {"fp32", 1e-5}}; // coarsest first

static inline double loss_tolerance(const char* a, const char* b) {
    for (int i = 0; i < 3; i++) {
        const LossTolerance* t = &LOSS_TOLERANCES[i];
        if (!strcmp(t->dtype, a) || !strcmp(t->dtype, b)) { return t->tolerance; }
    }
    fatal("the ladder has no tolerance for %s", a);
}

typedef struct {
    const Rung* rung;
    bool ran; // false: it does not fit into memory
    double ms, tokens_per_second, mfu, loss;
    double loss_error, tolerance; // against the rung before; 0 at the first
    double gain, total_gain;      // tokens/s against the rung before and against the first
    size_t bytes;
} RungResult;

typedef const Trainer* (*FindTrainer)(const char* dtype);

typedef struct {
    Config* config;
    FindTrainer find;
    bool on_gpu;
    const Rung* rungs;
    int count, failed;
    RungResult result[MAX_RUNGS];
    GPT2Config shape;
    const char* device;
    int* batch;
} Ladder;

// ---------------------------------------------------------------------------------------------------------------------
// measuring

static inline int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static inline double median(double* x, size_t n) {
    qsort(x, n, sizeof *x, compare_doubles);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

// The batch that all rungs train on: random tokens, or the first of --train_data.
static inline void ladder_batch(Ladder* l) {
    const Config* c = l->config;
    Error err;
    const size_t B = (size_t)c->batch_size, T = (size_t)c->seq_len, n = B * T;
    l->batch = (int*)alloc_or_die(3 * n, sizeof *l->batch, "a batch of tokens");
    if (config_source(c, "train_data") == FROM_DEFAULT) {
        batch_random(l->batch, n, l->shape.vocab_size, (uint64_t)c->seed, 0);
        return;
    }
    Dataset data;
    bool ok = dataset_open(&data, "--train_data", c->train_data, (int)T, l->shape.vocab_size, &err);
    for (size_t row = 0; ok && row < B; row++) {
        const uint64_t window = data_window(row, data.num_windows, DATA_SHUFFLED, (uint64_t)c->seed);
        ok = dataset_read(&data, window, l->batch + row * T, l->batch + n + row * T, &err);
    }
    if (!ok) { fatal("%s", err.text); }
    dataset_close(&data);
    batch_sort(l->batch, n, l->shape.vocab_size);
}

static inline Config rung_config(const Config* config, const Rung* r) {
    Config c = *config;
    c.dtype = r->dtype;
    c.kernels = r->kernels;
    c.fused = r->fused;
    c.flash = r->flash;
    c.pad_vocab = r->pad_vocab;
    return c;
}

// Trains a few steps on a rung and fills in what was measured.
static inline void rung_run(Ladder* l, RungResult* result) {
    Error err;
    GPT2Config shape;
    Config c = rung_config(l->config, result->rung);
    const Harness* h = l->find(c.dtype)->harness;
    h->open(&c);
    h->resolve(&c, &shape);
    const ModelPlan plan = h->model_plan(&c, &shape);
    result->bytes = plan.bytes;
    HarnessModel* model = h->model_open(&c, &shape, &err);
    if (!model) {
        notice("%s: %s", result->rung->name, err.text);
        return;
    }
    const size_t steps = (size_t)c.max_steps;
    double* ms = (double*)alloc_or_die(steps, sizeof *ms, "times");
    double norm;
    for (size_t i = 0; i < BENCH_WARM_UP + steps; i++) {
        const double start = seconds_now();
        h->model_step(model, l->batch, 1, &result->loss, &norm);
        if (i >= BENCH_WARM_UP) { ms[i - BENCH_WARM_UP] = 1e3 * (seconds_now() - start); }
    }
    h->model_close(model);
    result->ran = true;
    result->ms = median(ms, steps);
    result->tokens_per_second = 1e3 * (double)(c.batch_size * c.seq_len) / result->ms;
    result->mfu = plan.flops_per_token * result->tokens_per_second / h->peak_flops();
    free(ms);
}

static inline bool rung_is_ok(const RungResult* r) { return isfinite(r->loss) && r->loss_error <= r->tolerance; }

// Sets a rung against the last one that ran before it, and against the first.
static inline void rung_compare(Ladder* l, RungResult* result, const RungResult* first, const RungResult* before) {
    if (!result->ran) { return; }
    result->gain = before ? result->tokens_per_second / before->tokens_per_second : 1.0;
    result->total_gain = first ? result->tokens_per_second / first->tokens_per_second : 1.0;
    if (before) {
        result->tolerance = loss_tolerance(before->rung->dtype, result->rung->dtype);
        result->loss_error = fabs(result->loss / before->loss - 1.0);
    }
    l->failed += !rung_is_ok(result);
}

// ---------------------------------------------------------------------------------------------------------------------
// results

static inline const char* rung_verdict(const RungResult* r) { return rung_is_ok(r) ? "ok" : "FAILED"; }

static inline void print_heading(const Ladder* l) {
    const Config* c = l->config;
    const GPT2Config* m = &l->shape;
    printf("ladder: %s, %s: L=%d H=%d C=%d T=%d V=%d, %lld x %lld tokens, median of %lld steps after %d\n", l->device,
           c->model, m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size, c->batch_size,
           c->seq_len, c->max_steps, BENCH_WARM_UP);
    printf("%-22s %10s %10s %6s %9s %7s %7s %10s %9s %9s %-6s", "rung", "ms/step", "tok/s", "MFU", "MiB", "gain",
           "total", "loss", "error", "bound", "");
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { printf(" %13s", PUBLISHED[i]); }
    putchar('\n');
    fflush(stdout);
}

static inline void print_rung(const Ladder* l, const RungResult* r) {
    printf("%-22s", r->rung->name);
    if (r->ran) {
        printf(" %10.2f %10.0f %5.1f%% %9.1f %6.2fx %6.2fx %10.6f %9.2e %9.2e %-6s", r->ms, r->tokens_per_second,
               100 * r->mfu, (double)r->bytes / 1048576, r->gain, r->total_gain, r->loss, r->loss_error, r->tolerance,
               rung_verdict(r));
    } else {
        printf(" %10s %10s %6s %9.1f %-57s", "", "", "", (double)r->bytes / 1048576, " does not fit into memory");
    }
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { printf(" %13s", r->rung->published[i]); }
    putchar('\n');
    fflush(stdout);
}

static inline json_t* rung_json(const RungResult* r) {
    const struct {
        const char* name;
        double value;
    } measured[] = {{"ms", r->ms},         {"tok_s", r->tokens_per_second}, {"mfu", r->mfu},
                    {"gain", r->gain},     {"total_gain", r->total_gain},   {"loss", r->loss},
                    {"loss_error", r->loss_error}, {"tolerance", r->tolerance}};
    json_t *record = json_pack("{s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:b}", "name", r->rung->name, "dtype",
                               r->rung->dtype, "kernels", r->rung->kernels, "fused", r->rung->fused, "flash",
                               r->rung->flash, "pad_vocab", r->rung->pad_vocab, "bytes", (json_int_t)r->bytes, "ran",
                               (int)r->ran);
    for (size_t i = 0; r->ran && i < sizeof measured / sizeof *measured; i++) {
        json_object_set_new(record, measured[i].name, json_float(measured[i].value));
    }
    if (r->ran) { json_object_set_new(record, "ok", json_boolean(rung_is_ok(r))); }
    json_t* published = json_object();
    for (int i = 0; i < NUM_PUBLISHED; i++) {
        if (*r->rung->published[i]) {
            json_object_set_new(published, PUBLISHED[i], json_real(atof(r->rung->published[i])));
        }
    }
    json_object_set_new(record, "published", published);
    return record;
}

// The options as they were given.
static inline char* given_options(const Config* c) {
    char* line = format("bench ladder");
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || (Source)c->source[config_index(o)] < FROM_FILE) { continue; }
        char *value = config_value(c, o), *longer = format("%s --%s %s", line, o->name, value);
        free(value);
        free(line);
        line = longer;
    }
    return line;
}

static inline json_t* ladder_json(const Ladder* l) {
    const GPT2Config* m = &l->shape;
    char date[32];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    char* command = given_options(l->config);
    json_t *rungs = json_array(), *options = config_to_json(l->config);
    for (int i = 0; i < NUM_DECIDED; i++) { json_object_del(options, DECIDED[i]); }
    for (int i = 0; i < l->count; i++) { json_array_append_new(rungs, rung_json(&l->result[i])); }
    json_t* record = json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:I, s:i, s:i, s:i, s:i, s:i}, s:o, s:o}", "kind",
                               "ladder", "program", "gpt2.c", "date", date, "device", l->device, "command", command,
                               "model", "name", l->config->model, "parameters", (json_int_t)model_parameters(m), "L",
                               m->num_layers, "NH", m->num_heads, "C", m->channels, "T", (int)l->config->seq_len, "V",
                               m->vocab_size, "options", options, "rungs", rungs);
    free(command);
    return record;
}

// ---------------------------------------------------------------------------------------------------------------------
// the picture

// A bar for each rung: tokens per second, and the gain against the first.
static inline void page_bars(Page* page, const Ladder* l) {
    enum { WIDTH = 1120, LEFT = 160, RIGHT = 170, ROW = 34 };
    double most = 0;
    for (int i = 0; i < l->count; i++) { most = fmax(most, l->result[i].tokens_per_second); }
    page_add(page, "<figure class=\"wide one\">\n<figcaption><h2>Tokens per second</h2></figcaption>\n");
    page_add(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Tokens per second by rung\">\n", WIDTH,
             l->count * ROW + 6);
    for (int i = 0; i < l->count; i++) {
        const RungResult* r = &l->result[i];
        const double width = r->ran ? (WIDTH - LEFT - RIGHT) * r->tokens_per_second / most : 0;
        const int y = ROW * i + ROW / 2 + 3;
        page_add(page, "<g class=\"y\"><text x=\"%d\" y=\"%d\">", LEFT - 10, y + 4);
        page_escape(page, r->rung->name);
        page_add(page, "</text></g>\n<path class=\"bar c%d\" d=\"M%d %dh%.1f\"/>", rung_is_ok(r) ? 0 : 1, LEFT, y,
                 width);
        page_add(page, "<text x=\"%.1f\" y=\"%d\">", LEFT + width + 8, y + 4);
        if (r->ran) { page_add(page, "%.0f tok/s, %.2fx", r->tokens_per_second, r->total_gain); }
        else { page_add(page, "does not fit into memory"); }
        page_add(page, "%s</text>\n", r->ran && !rung_is_ok(r) ? ", wrong loss" : "");
    }
    page_add(page, "</svg>\n</figure>\n");
}

static inline void page_rungs(Page* page, const Ladder* l) {
    static const char* const titles[] = {"ms/step", "tok/s", "MFU", "MiB", "Gain", "Total", "Loss"};
    page_add(page, "<section><h2>Rungs</h2>\n<table class=\"runs\"><thead><tr><th>Rung</th>");
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) { page_add(page, "<th>%s</th>", titles[i]); }
    for (int i = 0; l->on_gpu && i < NUM_PUBLISHED; i++) { page_add(page, "<th>%s</th>", PUBLISHED[i]); }
    page_add(page, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < l->count; i++) {
        const RungResult* r = &l->result[i];
        page_fact(page, "<tr><th>", format("%s", r->rung->name), "</th>");
        if (r->ran) {
            page_add(page, "<td>%.2f</td><td>%.0f</td><td>%.1f%%</td><td>%.1f</td>", r->ms, r->tokens_per_second,
                     100 * r->mfu, (double)r->bytes / 1048576);
            page_add(page, "<td>%.2fx</td><td>%.2fx</td><td>%.6f</td>", r->gain, r->total_gain, r->loss);
        } else {
            page_add(page, "<td></td><td></td><td></td><td>%.1f</td><td></td><td></td><td></td>",
                     (double)r->bytes / 1048576);
        }
        for (int k = 0; l->on_gpu && k < NUM_PUBLISHED; k++) { page_add(page, "<td>%s</td>", r->rung->published[k]); }
        page_add(page, "</tr>\n");
    }
    page_add(page, "</tbody></table></section>\n");
}

static inline void page_ladder(Page* page, const Ladder* l) {
    page_add(page, "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
             "<meta charset=\"utf-8\"/>\n<title>ladder</title>\n<style>\n%s"
             ".bar { stroke: currentColor; stroke-width: 20 }\n</style>\n</head>\n<body>\n<main>\n", REPORT_STYLE);
    char* command = given_options(l->config);
    page_fact(page, "<header><h1>The ladder on ", format("%s", l->device), "</h1>\n");
    page_fact(page, "<p>", format("%s, %lld x %lld tokens, median of %lld steps", l->config->model,
                                  l->config->batch_size, l->config->seq_len, l->config->max_steps), "</p>\n");
    page_fact(page, "<p>", command, "</p></header>\n");
    page_bars(page, l);
    page_rungs(page, l);
    page_add(page, "</main>\n</body>\n</html>\n");
}

// Writes ladder.json and ladder.html into --out, unless that is empty.
static inline void ladder_write(const Ladder* l) {
    Error err;
    const char* out = l->config->out;
    if (!*out) { return; }
    Page page = {NULL, 0, 0};
    page_ladder(&page, l);
    json_t* record = ladder_json(l);
    char* text = record ? json_dumps(record, JSON_INDENT(2)) : NULL;
    if (!text) { fatal("ladder.json: a value that JSON cannot hold"); }
    char *json = format("%s/ladder.json", out), *html = format("%s/ladder.html", out);
    if (!make_directories(out, &err) || !write_file_atomically(json, text, strlen(text), &err) ||
        !write_file_atomically(html, page.text, page.size, &err)) {
        fatal("--out %s", err.text);
    }
    free(json);
    free(html);
    free(text);
    free(page.text);
    json_decref(record);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

// What the rungs decide is not the user's to give; what was not given suits the device: a CPU takes about a minute.
static inline void ladder_options(Ladder* l) {
    Config* c = l->config;
    for (int i = 0; i < NUM_DECIDED; i++) {
        if (config_source(c, DECIDED[i]) > FROM_DEFAULT) {
            usage_error("bench ladder: --%s is what the rungs are about; leave it out", DECIDED[i]);
        }
    }
    if (c->max_steps < 0) { c->max_steps = BENCH_STEPS; }
    if (c->max_steps == 0) { usage_error("bench ladder: --max_steps 0 leaves nothing to measure"); }
    if (c->max_steps > 1000000) { usage_error("bench ladder: --max_steps %lld is too many", c->max_steps); }
    const bool named = config_source(c, "model") > FROM_DEFAULT || strcmp(c->init, "random");
    if (!named && !l->on_gpu) { c->model = "L=4,H=4,C=256,T=64,V=50257"; }
}

static inline int bench_ladder(Config* config, FindTrainer find) {
    Ladder l;
    memset(&l, 0, sizeof l);
    l.config = config;
    l.find = find;
    l.on_gpu = strcmp(find("auto")->device, "cpu") != 0;
    l.rungs = l.on_gpu ? GPU_RUNGS : CPU_RUNGS;
    l.count = l.on_gpu ? NUM_GPU_RUNGS : NUM_CPU_RUNGS;
    ladder_options(&l);
    // the first rung takes the most memory: what --batch_size auto finds there fits the others
    Config first = rung_config(config, &l.rungs[0]);
    const Harness* h = find(first.dtype)->harness;
    h->open(&first);
    h->resolve(&first, &l.shape);
    config->batch_size = first.batch_size;
    config->seq_len = first.seq_len;
    config->model = first.model;
    l.device = h->device_name();
    ladder_batch(&l);
    print_heading(&l);
    const RungResult *begin = NULL, *before = NULL;
    for (int i = 0; i < l.count; i++) {
        RungResult* r = &l.result[i];
        r->rung = &l.rungs[i];
        rung_run(&l, r);
        rung_compare(&l, r, begin, before);
        print_rung(&l, r);
        if (r->ran) { before = r; }
        if (!begin) { begin = before; }
    }
    ladder_write(&l);
    if (*config->out) { printf("%s/ladder.json\n%s/ladder.html\n", config->out, config->out); }
    free(l.batch);
    return l.failed ? EXIT_CHECK_FAILED : EXIT_DONE;
}

static inline int bench_command(Config* config, FindTrainer find) {
    if (config->num_args != 1 || strcmp(config->args[0], "ladder")) {
        usage_error("bench %s: give one of: ladder (each technique on top of the one before, measured)",
                    config->num_args ? config->args[config->num_args - 1] : "what?");
    }
    return bench_ladder(config, find);
}
