#include "model_file.h"
#include "../base/file.h"
#include "checkpoint_folders.h"

// Reads the shape from a folder; the error about a run's folder names its newest checkpoint.
static bool load_config(const char* folder, bool pad_vocab, GPT2Config* shape, Error* err) {
    if (hf_load_config(folder, pad_vocab, shape, err)) { return true; }
    check_no_run(folder, err);
    return false;
}

// Fails if config.json promises larger tensors than all that are there: memory for them is allocated by its word. Of a
// type that is not read, no more elements than bytes are believed.
static bool hf_check_size(ModelFile* m, Error* err) {
    const TensorTable table = gpt2_params_table(&m->shape, 1);
    size_t elements = 0;
    for (int i = 0; i < m->hf.count; i++) {
        const SafeTensor* t = &m->hf.tensors[i];
        elements += t->type ? t->elements : min_size(t->elements, t->bytes);
    }
    if (tensors_largest(&table) <= elements) { return true; }
    return fail(err, "%s: a tensor of the model in config.json has %zu elements, all that are there only %zu", m->path,
                tensors_largest(&table), elements);
}

// Fails if there are tensors of layers that config.json does not count: they would be left out.
static bool hf_check_layers(const ModelFile* m, Error* err) {
    for (int i = 0; i < m->hf.count; i++) {
        const char *name = m->hf.tensors[i].name, *bare = strncmp(name, "transformer.", 12) ? name : name + 12;
        if (strncmp(bare, "h.", 2) || strtol(bare + 2, NULL, 10) < m->shape.num_layers) { continue; }
        return fail(err, "%s: tensor %s is there, but n_layer in config.json is only %d", m->path, name,
                    m->shape.num_layers);
    }
    return true;
}

static bool open_hf(ModelFile* m, Error* err) {
    if (!load_config(m->path, false, &m->shape, err) || !safetensors_open_folder(&m->hf, m->path, err)) {
        return false;
    }
    if (hf_check_size(m, err) && hf_check_layers(m, err) && hf_check_tied(&m->hf, err)) { return true; }
    safetensors_close(&m->hf);
    return false;
}

static bool read_hf(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err) {
    return hf_read(&m->hf, b, &m->table.row[row], layer, err);
}

static bool open_llmc(ModelFile* m, Error* err) {
    if (!llmc_model_open(&m->llmc, m->path, err)) { return false; }
    m->shape = m->llmc.shape;
    return true;
}

static bool read_llmc(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err) {
    return llmc_model_read(&m->llmc, row, layer, b->ours, err);
}

static bool open_gguf(ModelFile* m, Error* err) {
    if (!gguf_open(&m->gguf, m->path, err)) { return false; }
    if (gguf_model_shape(&m->gguf, &m->shape, err)) { return true; }
    gguf_close(&m->gguf);
    return false;
}

static bool read_gguf(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err) {
    return gguf_model_read(&m->gguf, &m->table.row[row], layer, b->ours, err);
}

static const ModelFormat FORMATS[] = {
    {"Hugging Face folder", NULL, open_hf, read_hf},
    {"llm.c model", "\xc6\xd7\x34\x01", open_llmc, read_llmc}, // LLMC_MODEL_MAGIC
    {"GGUF", "GGUF", open_gguf, read_gguf},
};

// Returns the format of a file, by its first bytes; NULL if it has none of ours. Sets `why` if it cannot be read.
static const ModelFormat* format_of_file(const char* path, Error* why) {
    char magic[4];
    const bool is_read = read_begin(path, magic, sizeof magic, why);
    for (size_t i = 1; is_read && i < sizeof FORMATS / sizeof *FORMATS; i++) {
        if (!memcmp(magic, FORMATS[i].magic, 4)) { return &FORMATS[i]; }
    }
    return NULL;
}

bool is_model_file(const char* path) {
    Error ignored;
    return format_of_file(path, &ignored) != NULL;
}

#define MODEL_PATHS "give a folder with config.json and model.safetensors, a model.bin of llm.c or a .gguf"

// Returns the set of data/fetch.sh that a missing path names: "gpt2" or "openai-community/gpt2"; NULL if none.
static const char* fetched_as(const char* path) {
    static const char* const sets[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    const char* name = path_name(path);
    for (int i = 0; i < 4; i++) {
        if (!strcmp(sets[i], name)) { return name; }
    }
    return NULL;
}

// Says why a path is no model. Returns false.
static bool not_a_model(const char* path, Error* err) {
    const char* set = fetched_as(path);
    if (path_exists(path)) { return fail(err, "%s: not a model; " MODEL_PATHS, path); }
    if (!set) { return fail(err, "%s: no such file or folder; " MODEL_PATHS, path); }
    return fail(err, "%s: no such file or folder; `sh data/fetch.sh %s` downloads it to data/%s: give that path",
                path, set, set);
}

bool model_file_open(ModelFile* m, const char* path, bool pad_vocab, Error* err) {
    memset(m, 0, sizeof *m);
    m->path = path;
    *err = (Error){.is_unknown = false};
    m->format = is_directory(path) ? &FORMATS[0] : format_of_file(path, err);
    if (!m->format) { return !err->is_unknown && not_a_model(path, err); } // else the system does not let us read it
    if (!m->format->open(m, err)) { return false; }
    m->shape.padded_vocab_size = padded_vocab(m->shape.vocab_size, pad_vocab);
    m->table = gpt2_params_table(&m->shape, 1);
    return true;
}

void model_file_close(ModelFile* m) {
    safetensors_close(&m->hf);
    llmc_model_close(&m->llmc);
    gguf_close(&m->gguf);
}

bool model_file_read(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err) {
    const Tensor* t = &m->table.row[row];
    return m->format->read(m, b, row, layer, err) &&
           tensor_is_finite(b->ours, t->used_rows * t->cols, m->path, t->name, err);
}

bool model_file_shape(const char* path, bool pad_vocab, GPT2Config* shape, Error* err) {
    ModelFile m;
    if (is_directory(path)) { return load_config(path, pad_vocab, shape, err); } // its weights may be there later
    if (!model_file_open(&m, path, pad_vocab, err)) { return false; }
    *shape = m.shape;
    model_file_close(&m);
    return true;
}

static bool read_row(const void* source, TensorBuffers* b, int row, int layer, Error* err) {
    return model_file_read(source, b, row, layer, err);
}

bool model_file_load(const GPT2* g, const Optimizer* o, const char* path, Error* err) {
    ModelFile m;
    if (!model_file_open(&m, path, g->config.padded_vocab_size != g->config.vocab_size, err)) { return false; }
    const bool ok = (!memcmp(&m.shape, &g->config, sizeof m.shape) ||
                     fail(err, "%s: the weights have another shape than the model", path)) &&
                    params_load(g, o, o ? o->masters : NULL, read_row, &m, err);
    model_file_close(&m);
    if (ok && o) { optimizer_masters_changed(o); }
    else if (ok) { g->backend->params_changed(); }
    return ok;
}
