// What the two forms of `bench` share: which options they take, what is written, and where.
#pragma once
#include "dataset.h"
#include "trainer.h"
#include <limits.h>

typedef const Trainer* (*FindTrainer)(const char* dtype);

// A processor gets shorter sequences, unless --seq_len is given, so that the slowest kernels take a minute and no hour.
enum { CPU_SEQ_LEN = 64 };

// Decides shape, --seq_len and --batch_size for the device that `config` opens.
static inline void bench_resolve(const Harness* h, Config* config, GPT2Config* shape, bool on_gpu) {
    if (!on_gpu && config->seq_len == 0) {
        Config any = *config;
        any.batch_size = 1;
        h->resolve(&any, shape);
        config->seq_len = shape->max_seq_len < CPU_SEQ_LEN ? shape->max_seq_len : CPU_SEQ_LEN;
    }
    h->resolve(config, shape);
}

// The options as they were given.
static inline char* given_options(const Config* c) {
    char* line = format("bench");
    for (int i = 0; i < c->num_args + NUM_ROWS; i++) {
        const Option* o = i < c->num_args ? NULL : &CONFIG_OPTIONS[i - c->num_args];
        if (o && (!o->name || (Source)c->source[config_index(o)] < FROM_FILE)) { continue; }
        char* value = o ? config_value(c, o) : format("%s", c->args[i]);
        char* longer = o ? format("%s --%s %s", line, o->name, value) : format("%s %s", line, value);
        free(value);
        free(line);
        line = longer;
    }
    return line;
}

// What every record begins with: of which run, model and machine. copy_bandwidth: measured, or NAN. Takes the
// references `options` and `rows`, which `rows_name` names.
static inline json_t* bench_record(const char* kind, const Config* c, const GPT2Config* m, const char* device,
                                   double copy_bandwidth, json_t* options, const char* rows_name, json_t* rows) {
    char date[32];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    char* command = given_options(c);
    json_t* record = json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:I, s:i, s:i, s:i, s:I, s:I, s:i}, s:o, s:o}",
                               "kind", kind, "program", "gpt2.c", "date", date, "device", device, "command", command,
                               "model", "name", c->model, "parameters", (json_int_t)model_parameters(m), "L",
                               m->num_layers, "NH", m->num_heads, "C", m->channels, "B", (json_int_t)c->batch_size, "T",
                               (json_int_t)c->seq_len, "V", m->vocab_size, "options", options, rows_name, rows);
    if (copy_bandwidth > 0) { json_object_set_new(record, "copy_gb_s", json_real(copy_bandwidth / 1e9)); }
    free(command);
    return record;
}

// Writes a file into --out.
static inline void bench_write(const char* out, const char* name, const char* text) {
    Error err;
    char* path = format("%s/%s", out, name);
    if (!make_directories(out, &err) || !write_file_atomically(path, text, strlen(text), &err)) {
        fatal("--out %s", err.text);
    }
    free(path);
}

static inline void bench_write_json(const char* out, const char* name, json_t* record) {
    char* text = record ? json_dumps(record, JSON_INDENT(2)) : NULL;
    if (!text) { fatal("%s: a value that JSON cannot hold", name); }
    bench_write(out, name, text);
    free(text);
    json_decref(record);
}
