#include "record.h"
#include "../base/file.h"
#include "../train/backends.h"
#include "../train/weights.h"

const Backend* bench_backend(const Config* c, enum dtype dtype) {
    const Backend* b = find_backend(dtype, c->cpu);
    if (!b) {
        usage_error("--dtype %s: this program has no kernels of that type for this device with --cpu %s",
                    dtype_names[dtype], cpu_names[c->cpu]);
    }
    return with_residual(b, c->residual, dtype);
}

enum dtype bench_dtype(const Config* c, const Backend* b) {
    return c->dtype == dtype_auto ? dtype_of_storage(b) : c->dtype;
}

Plan bench_plan(const Backend* b, enum dtype dtype, const Config* c, int seq_len) {
    Error err;
    Plan p;
    Comm alone = comm_alone();
    if (!plan_make(&p, b, dtype, c, init_folder(c), &err) || !plan_check_effects(&p, c, &err)) {
        usage_error("%s", err.text);
    }
    if (seq_len && c->seq_len == 0) { p.T = min_int(p.T, seq_len); }
    if (!plan_batch(&p, &alone, &err)) { usage_error("%s", err.text); }
    p.samples = 0;
    return p;
}

Plan bench_open(const Config* c, Comm* comm) {
    enum { CPU_SEQ_LEN = 64 }; // so that the slowest kernels take a minute, not an hour
    const Backend* b = bench_backend(c, c->dtype);
    const enum dtype dtype = bench_dtype(c, b);
    const DeviceOptions options = device_options(c, dtype);
    open_device(b, &options, comm);
    return bench_plan(b, dtype, c, b->is_host ? CPU_SEQ_LEN : 0);
}

// Returns "bench" and the arguments and options that were given, as a shell reads them.
static char* command_given(const Config* c) {
    char* line = format("bench");
    for (int i = 0; i < c->num_args; i++) {
        char* word = shell_word(c->args[i]);
        append_format(&line, " %s", word);
        free(word);
    }
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name && config_source(c, o->name) >= FROM_FILE) { append_option(&line, c, o); }
    }
    return line;
}

BenchGiven bench_given(const Config* c, const Plan* p) {
    return (BenchGiven){.out = c->out, .command = command_given(c), .options = plan_options(p, c)};
}

json_t* bench_record(const char* kind, const BenchGiven* given, const Plan* p, const char* device,
                     double copy_bandwidth, const char* rows_name, json_t* rows) {
    const GPT2Config* m = &p->shape;
    char date[32];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    json_t* record =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i}, s:o, s:o}", "kind", kind,
                  "program", "gpt2.c", "date", date, "device", device, "command", given->command, "model", "name",
                  p->model, "parameters", (json_int_t)model_parameters(m), "L", m->num_layers, "NH", m->num_heads, "C",
                  m->channels, "B", p->B, "T", p->T, "V", m->vocab_size, "options", given->options, rows_name, rows);
    if (copy_bandwidth > 0) { json_object_set_new(record, "copy_gb_s", json_real(copy_bandwidth / 1e9)); }
    return record;
}

void bench_write(const char* out, const char* name, const char* text) {
    Error err;
    if (!*out) { return; }
    char* path = format("%s/%s", out, name);
    if (!make_directories(out, &err) || !write_file_atomically(path, text, strlen(text), &err)) {
        fatal("--out %s", err.text);
    }
    printf("%s\n", path);
    free(path);
}

void bench_write_json(const char* out, const char* name, json_t* record) {
    char* text = record ? json_dumps(record, JSON_INDENT(2)) : NULL;
    if (*out && !text) { fatal("%s: a value that JSON cannot hold", name); }
    bench_write(out, name, text);
    free(text);
    json_decref(record);
}

const char* percent_text(char* out, double share) {
    if (isfinite(share)) { snprintf(out, 32, "%.1f%%", 100 * share); }
    else { snprintf(out, 32, "-"); }
    return out;
}
