// `bench ladder`: the rungs of ladder.h on this machine, as a table, as JSON and as a picture.
#pragma once
#include "ladder.h"
#include "report.h"

// ---------------------------------------------------------------------------------------------------------------------
// the table, and the same as JSON

static inline const char* rung_verdict(const RungResult* r) { return rung_is_ok(r) ? "ok" : "FAILED"; }

static inline void print_heading(const Ladder* l) {
    const Config* c = l->config;
    const GPT2Config* m = &l->shape;
    printf("ladder: %s, %s: L=%d H=%d C=%d T=%d V=%d, %lld x %lld tokens, median of %lld steps after %d\n", l->device,
           c->model, m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size, c->batch_size,
           c->seq_len, c->max_steps, BENCH_WARM_UP);
    printf("memory moves %.1f GB/s when it is copied; MFU is against the peak of each precision\n",
           l->copy_bandwidth / 1e9);
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
    json_t* record = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f, s:{s:s, s:I, s:i, s:i, s:i, s:i, s:i}, s:o, s:o}", "kind", "ladder", "program",
        "gpt2.c", "date", date, "device", l->device, "command", command, "copy_gb_s", l->copy_bandwidth / 1e9, "model",
        "name", l->config->model, "parameters", (json_int_t)model_parameters(m), "L", m->num_layers, "NH", m->num_heads,
        "C", m->channels, "T", (int)l->config->seq_len, "V", m->vocab_size, "options", options, "rungs", rungs);
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
    page_add(page, "</tbody></table>\n%s%s%s</section>\n", l->on_gpu ? "<p>" : "", l->on_gpu ? PUBLISHED_NOTE : "",
             l->on_gpu ? "</p>\n" : "");
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
    // --batch_size auto is what fits the first rung, whose activations are the largest; a rung that does not fit says
    // so
    Config first = rung_config(config, &l.rungs[0]);
    const Harness* h = find(first.dtype)->harness;
    h->open(&first);
    h->resolve(&first, &l.shape);
    config->batch_size = first.batch_size;
    config->seq_len = first.seq_len;
    config->model = first.model;
    l.device = h->device_name();
    l.copy_bandwidth = h->copy_bandwidth();
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
    if (!begin) { fatal("bench ladder: no rung fits into memory; give a smaller --batch_size, --seq_len or --model"); }
    if (l.on_gpu) { puts(PUBLISHED_NOTE); }
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
