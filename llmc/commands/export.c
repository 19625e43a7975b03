// The command `export`: writes the weights of --init as files of other programs.
//
//   hf      --out FOLDER    a Hugging Face model with its tokenizer; fp32, bf16, fp16
//   llmc    --out FILE      llm.c's model file, version 3 (fp32) or 5 (bf16)
//   gguf    --out FILE      for llama.cpp; fp32, bf16, fp16, q8_0
//
// Weights go from file to file, a tensor at a time: no model is built, and no device is needed. Everything is written
// under another name (.tmp-*), synced and renamed.
//
// --average N writes the mean of the last N checkpoints of a run, "latest weight averaging" (LAWA; Kaddour 2022, arXiv
// 2209.14981): it is ahead of the last weights while the learning rate is high, as a decay of the rate would be.
#include "../base/file.h"
#include "commands.h"
#include "open_model.h"
#include "../tokenizer/tokenizer_save.h"
#include "../base/json.h"
#include "../files/checkpoint.h"
#include "../files/checkpoint_folders.h"
#include "../files/model_file.h"
#include "../model/generate.h"
#include "../train/open_plan.h"
#include "../train/requests.h"

typedef struct {
    const ModelFile* model; // of `count` models of one shape, whose mean is written
    int count;
    double* sum;            // memory for the largest tensor
    const WeightType* type;
    const Tokenizer* tokenizer; // NULL: none
    const char* name;           // of the model
    TensorBuffers buffers;
    void* encoded;              // memory for the largest tensor
} Export;

// Reads a tensor, or the mean of it over all models, to e->buffers.ours.
static bool read_tensor(Export* e, int row, int layer, Error* err) {
    const Tensor* t = &e->model->table.row[row];
    const size_t n = t->used_rows * t->cols;
    float* ours = e->buffers.ours;
    if (request_to_stop()) { return fail(err, "%s came", request_to_stop()); }
    if (e->count == 1) { return model_file_read(e->model, &e->buffers, row, layer, err); }
    memset(e->sum, 0, n * sizeof *e->sum);
    for (int m = 0; m < e->count; m++) {
        if (!model_file_read(&e->model[m], &e->buffers, row, layer, err)) { return false; }
        for (size_t i = 0; i < n; i++) { e->sum[i] += ours[i]; }
    }
    for (size_t i = 0; i < n; i++) { ours[i] = (float)(e->sum[i] / e->count); }
    return true;
}

// Reads a tensor and encodes it as `type`, in our layout or Hugging Face's; returns its bytes in e->encoded, or 0 after
// a failure.
static size_t export_tensor(Export* e, const WeightType* type, int row, int layer, bool hf_layout, Error* err) {
    const Tensor* t = &e->model->table.row[row];
    const size_t n = t->used_rows * t->cols;
    if (!read_tensor(e, row, layer, err)) { return 0; }
    if (hf_layout) { tensor_to_hf(&e->buffers, t); }
    const float* from = hf_layout ? e->buffers.file : e->buffers.ours;
    for (size_t i = 0; i < n; i++) {
        if (fabsf(from[i]) > type->most) {
            fail(err, "%s: %s of layer %d has %g, but %s ends at %g: give another --dtype", e->model->path,
                 t->name, layer, (double)from[i], type->name, (double)type->most);
            return 0;
        }
    }
    type->encode(e->encoded, from, n);
    return weight_bytes(type, n);
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c

static bool write_llmc(Export* e, FILE* f, Error* err) {
    int32_t header[LLMC_MODEL_HEADER / 4];
    const TensorTable* table = &e->model->table;
    llmc_model_header(header, &e->model->shape, e->type);
    fwrite(header, sizeof header, 1, f);
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; l < t->layers; l++) {
            const size_t bytes = export_tensor(e, e->type, i, l, false, err);
            if (bytes == 0) { return false; }
            fwrite(e->encoded, 1, bytes, f);
            memset(e->encoded, 0, weight_bytes(e->type, tensor_elements(t)) - bytes); // the rows of padding
            fwrite(e->encoded, 1, weight_bytes(e->type, tensor_elements(t)) - bytes, f);
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// GGUF

static bool write_gguf(Export* e, FILE* f, Error* err) {
    const TensorTable* table = &e->model->table;
    if (!gguf_model_header(f, table, &e->model->shape, e->type, e->tokenizer, e->name, err)) { return false; }
    for (int i = 0; i < table->count; i++) {
        for (int l = 0; l < table->row[i].layers; l++) {
            const size_t bytes = export_tensor(e, gguf_tensor_type(&table->row[i], e->type), i, l, false, err);
            if (bytes == 0) { return false; }
            fwrite(e->encoded, 1, bytes, f);
            gguf_put_padding(f, bytes);
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// Hugging Face

static bool write_safetensors(Export* e, SafeTensorsWriter* w, Error* err) {
    const TensorTable* table = &e->model->table;
    size_t shape[2];
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        const int dims = tensor_file_shape(t, true, shape);
        for (int l = 0; l < t->layers; l++) {
            char* name = tensor_file_name(t, l, "transformer.");
            safetensors_declare(w, name, e->type->safetensors, shape, dims,
                                weight_bytes(e->type, t->used_rows * t->cols));
            free(name);
        }
    }
    for (int i = 0; i < table->count; i++) {
        for (int l = 0; l < table->row[i].layers; l++) {
            const size_t bytes = export_tensor(e, e->type, i, l, true, err);
            if (bytes == 0 || !safetensors_write(w, e->encoded, bytes, err)) { return false; }
        }
    }
    return safetensors_finish(w, NULL, err);
}

static bool write_tokenizer(const Export* e, const char* folder, Error* err) {
    TokenizerFiles files = {.text = {NULL}};
    if (!e->tokenizer) { return true; }
    const bool ok = tokenizer_files_make(&files, e->tokenizer, e->model->shape.max_seq_len, "the tokenizer", err) &&
                    tokenizer_files_write(&files, folder, err);
    tokenizer_files_free(&files);
    return ok;
}

static bool write_hf(Export* e, const char* folder, Error* err) {
    SafeTensorsWriter w;
    char* path = format("%s/model.safetensors", folder);
    bool ok = make_directories(folder, err);
    if (ok) {
        ok = safetensors_create(&w, path, err) && write_safetensors(e, &w, err);
        if (!ok) { safetensors_abandon(&w); }
        const int eot = e->tokenizer ? e->tokenizer->eot : -1;
        ok = ok && hf_save_config(folder, &e->model->shape, eot, e->type->torch, err) &&
             write_tokenizer(e, folder, err) && sync_parent(path, err);
    }
    free(path);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

typedef struct {
    const char *name, *types;
    bool (*write)(Export* e, FILE* f, Error* err); // NULL: a folder
} ExportFormat;

static const ExportFormat FORMATS[] = {
    {"hf", "fp32|bf16|fp16", NULL},
    {"llmc", "fp32|bf16", write_llmc},
    {"gguf", "fp32|bf16|fp16|q8_0", write_gguf},
};

// Returns the name of the WeightType that is written.
static const char* type_name(const Config* c) { return dtype_names[c->dtype == dtype_auto ? dtype_fp32 : c->dtype]; }

// Ends the program if the command line is not complete, or --out is there already.
static const ExportFormat* check_arguments(const Config* c) {
    const ExportFormat* format = NULL;
    for (size_t i = 0; c->num_args == 1 && i < sizeof FORMATS / sizeof *FORMATS; i++) {
        if (!strcmp(c->args[0], FORMATS[i].name)) { format = &FORMATS[i]; }
    }
    if (!format) { usage_error("export takes one of hf, llmc, gguf: export gguf --init FOLDER --out FILE"); }
    if (!strcmp(c->init, "random")) { usage_error("export %s needs --init PATH: of the weights", format->name); }
    if (config_source(c, "out") < FROM_FILE || !*c->out) { usage_error("export %s needs --out PATH", format->name); }
    if (!is_one_of(type_name(c), format->types)) {
        usage_error("export %s takes --dtype %s, not %s", format->name, format->types, type_name(c));
    }
    struct stat there;
    if (lstat(c->out, &there) != 0) { return format; }
    if (!format->write || !S_ISREG(there.st_mode)) { // rename() would replace an empty folder, a link or a device
        usage_error("--out %s is there already: nothing was written; remove it, or give another path", c->out);
    }
    if (!c->force) { usage_error("--out %s is there already: give --force, or another path", c->out); }
    return format;
}

// Writes under the name `temporary`.
static bool write_temporary(Export* e, const ExportFormat* format, const char* temporary, Error* err) {
    checkpoint_remove_unfinished(temporary); // of an export that was killed
    if (!format->write) { return write_hf(e, temporary, err); }
    FILE* f = create_temporary(temporary, err);
    if (!f) { return false; }
    if (format->write(e, f, err)) { return close_synced(f, temporary, err); }
    fclose(f);
    return false;
}

// Writes `path`, whose lock this process has.
static bool export_locked(Export* e, const ExportFormat* as, const char* path, Error* err) {
    char* temporary = temporary_path(path);
    bool ok = write_temporary(e, as, temporary, err);
    if (ok && rename(temporary, path) != 0) { ok = fail_system(err, path, "rename to it"); }
    ok = ok && sync_parent(path, err);
    if (!ok) { checkpoint_remove_unfinished(temporary); }
    free(temporary);
    return ok;
}

static bool export_to(Export* e, const ExportFormat* as, const char* out, Error* err) {
    char* path = trimmed_path(out);
    const char* name = path_name(path);
    char* lock_path = format("%.*s.lock-%s", (int)(name - path), path, name);
    bool ok = make_parent(path, err);
    const int lock = ok ? open_lock(lock_path) : -1;
    if (lock >= 0) {
        ok = export_locked(e, as, path, err);
        unlink(lock_path);
        close(lock);
    } else if (ok) {
        ok = errno == EWOULDBLOCK ? fail(err, "another export is writing it") : fail_system(err, lock_path, "create");
    }
    free(lock_path);
    free(path);
    return ok;
}

// Opens the tokenizer that goes with the weights. Returns NULL if there is none: the default one is GPT-2's.
static Tokenizer* open_model_tokenizer(Config* c, const ModelFile* m) {
    const char* folder = is_directory(m->path) ? m->path : NULL;
    take_data_options(c, folder);
    if (config_source(c, "tokenizer") == FROM_DEFAULT && m->shape.vocab_size != GPT2_VOCAB) { return NULL; }
    const TokenizerPlan plan = tokenizer_plan(c, folder);
    Tokenizer* t = open_tokenizer(&plan, &m->shape);
    check_weights_tokenizer(c, t, folder);
    return t;
}

// Opens a checkpoint, which its run does not remove before this program ends, and verifies its weights.
static bool open_checkpoint(ModelFile* m, const char* path, Error* err) {
    if (checkpoint_hold(path) < 0) {
        return fail(err, "%s: the run has just removed it; give the command again", path);
    }
    json_t* state = checkpoint_read_state(path, err);
    const bool ok = state && checkpoint_verify_file(path, "model.safetensors", state, err) &&
                    model_file_open(m, path, true, err);
    json_decref(state);
    return ok;
}

// Opens the newest `count` checkpoints of a run, the newest first, into `models`. Their paths are never freed.
static bool open_last_checkpoints(ModelFile* models, int count, const char* run, Error* err) {
    size_t there;
    long long* steps = checkpoint_list(run, &there);
    if (there == 0) {
        return fail(err, "--average %d: %s has no checkpoints: give --init the folder of a run, its --out", count, run);
    }
    bool ok = there >= (size_t)count ||
              fail(err, "--average %d: %s has %zu checkpoint%s: give fewer, or train with a larger --keep", count, run,
                   there, plural(there));
    for (int i = 0; ok && i < count; i++) {
        ok = open_checkpoint(&models[i], checkpoint_path(run, steps[i]), err);
        if (ok && memcmp(&models[i].shape, &models[0].shape, sizeof models->shape)) {
            ok = fail(err, "%s: another shape than %s: only checkpoints of one shape have a mean", models[i].path,
                      models[0].path);
        }
    }
    free(steps);
    return ok;
}

int export_command(const Config* asked) {
    Error err;
    Config with_run = *asked; // and the checkpoint's tokenizer
    const ExportFormat* as = check_arguments(asked);
    const int count = asked->average ? (int)asked->average : 1;
    ModelFile* models = alloc_or_die((size_t)count, sizeof *models, "models");
    const bool is_open = asked->average ? open_last_checkpoints(models, count, asked->init, &err)
                                        : model_file_open(models, asked->init, true, &err);
    if (!is_open) { fatal("%s", err.text); }
    Tokenizer* tokenizer = as->write == write_llmc ? NULL : open_model_tokenizer(&with_run, models);
    if (!tokenizer && as->write == write_gguf) {
        usage_error("export gguf needs the model's tokenizer, which %s does not have: give --tokenizer FILE",
                    asked->init);
    }
    if (!tokenizer && !as->write && config_source(asked, "tokenizer") < FROM_FILE) {
        notice("%s has no tokenizer: none is written", asked->init);
    }
    const size_t largest = tensors_largest(&models->table);
    Export e = {.model = models, .count = count, .sum = alloc_or_die(largest, sizeof(double), "a mean"),
                .type = weight_type_find(type_name(asked)),
                .tokenizer = tokenizer, .name = shape_text(&models->shape),
                .buffers = tensor_buffers(&models->table), .encoded = alloc_or_die(largest, sizeof(float), "a tensor")};
    requests_open();
    requests_take_stops(0, "stopping");
    if (!export_to(&e, as, asked->out, &err)) { fatal("%s; --out %s was not written", err.text, asked->out); }
    print_result("%s: %s, %s, %zu parameters", asked->out, as->name, e.type->name, model_parameters(&models->shape));
    for (int i = 0; asked->average && i < count; i++) {
        print_result("%s%s", i == 0 ? ", the mean of " : ", ", models[i].path);
    }
    print_result("\n");
    tensor_buffers_free(&e.buffers);
    free(e.sum);
    free(e.encoded);
    free((char*)e.name);
    close_tokenizer(tokenizer);
    for (int i = 0; i < count; i++) { model_file_close(&models[i]); }
    free(models);
    return EXIT_DONE;
}
