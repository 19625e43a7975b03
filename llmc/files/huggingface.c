#include "huggingface.h"
#include "../base/file.h"
#include "../base/json.h"

char* tensor_file_name(const Tensor* t, int layer, const char* prefix) {
    return t->repeat == EACH ? format("%sh.%d.%s", prefix, layer, t->hf_name) : format("%s%s", prefix, t->hf_name);
}

int tensor_file_shape(const Tensor* t, bool hf_layout, size_t shape[2]) {
    const bool swap = hf_layout && t->layout == TRANSPOSED, is_matrix = tensor_is_matrix(t);
    shape[0] = swap || !is_matrix ? t->cols : t->used_rows;
    shape[1] = !is_matrix ? 0 : swap ? t->used_rows : t->cols;
    return is_matrix ? 2 : 1;
}

// out (cols,rows) = in (rows,cols)^T, in squares of 32 x 32 that stay in the cache
static void transpose(float* out, const float* in, size_t rows, size_t cols) {
    const size_t square = 32;
    #pragma omp parallel for
    for (size_t r = 0; r < rows; r += square) {
        for (size_t c = 0; c < cols; c += square) {
            for (size_t i = r; i < min_size(rows, r + square); i++) {
                for (size_t j = c; j < min_size(cols, c + square); j++) { out[j * rows + i] = in[i * cols + j]; }
            }
        }
    }
}

TensorBuffers tensor_buffers(const TensorTable* table) {
    const size_t most = tensors_largest(table);
    return (TensorBuffers){.file = alloc_or_die(most, sizeof(float), "a tensor"),
                           .ours = alloc_or_die(most, sizeof(float), "a tensor")};
}

void tensor_buffers_free(TensorBuffers* b) {
    free(b->file);
    free(b->ours);
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

size_t tensor_fetch(const Backend* backend, TensorBuffers* b, const Tensor* t, int layer, const TensorBlock* block) {
    const size_t n = t->used_rows * t->cols;
    const bool swap = block->hf_layout && t->layout == TRANSPOSED;
    float* to = swap ? b->ours : b->file;
    if (block->host) { memcpy(to, block->host + tensor_at(t, layer), n * sizeof(float)); }
    else { backend->device_copy_out(to, block->data + tensor_at(t, layer), n * sizeof(float)); }
    if (swap) { transpose(b->file, b->ours, t->used_rows, t->cols); }
    return n;
}

void tensor_to_hf(TensorBuffers* b, const Tensor* t) {
    if (t->layout == TRANSPOSED) { transpose(b->file, b->ours, t->used_rows, t->cols); }
    else { memcpy(b->file, b->ours, t->used_rows * t->cols * sizeof(float)); }
}

// Returns the tensors of a row that a block has: none if the row has no rows (second moments of Muon's matrices).
static int layers_in_file(const Tensor* t) { return t->rows ? t->layers : 0; }

static bool tensors_write(SafeTensorsWriter* w, const Optimizer* o, const TensorBlock* blocks, int num_blocks,
                          char hex[BLAKE2B_HEX + 1], Error* err) {
    const Backend* backend = o->model->backend;
    size_t shape[2];
    bool ok = true;
    for (int b = 0; b < num_blocks; b++) {
        const TensorTable* table = optimizer_table(o, blocks[b].data);
        for (int i = 0; i < table->count; i++) {
            const Tensor* t = &table->row[i];
            const int dims = tensor_file_shape(t, blocks[b].hf_layout, shape);
            for (int l = 0; l < layers_in_file(t); l++) {
                char* name = tensor_file_name(t, l, blocks[b].prefix);
                safetensors_declare(w, name, "F32", shape, dims, t->used_rows * t->cols * sizeof(float));
                free(name);
            }
        }
    }
    TensorBuffers buffers = tensor_buffers(&o->model->params_table);
    for (int b = 0; b < num_blocks; b++) {
        const TensorTable* table = optimizer_table(o, blocks[b].data);
        TensorBlock whole = blocks[b];
        if (!whole.host) { whole.host = optimizer_in_host(o, whole.data); }
        if (!whole.host) { whole.data = (float*)optimizer_whole(o, whole.data); }
        for (int i = 0; i < table->count; i++) {
            for (int l = 0; ok && l < layers_in_file(&table->row[i]); l++) {
                const size_t bytes = tensor_fetch(backend, &buffers, &table->row[i], l, &whole) * sizeof(float);
                ok = safetensors_write(w, buffers.file, bytes, err);
            }
        }
    }
    tensor_buffers_free(&buffers);
    return ok && safetensors_finish(w, hex, err);
}

bool tensors_save(const char* path, const Optimizer* o, const TensorBlock* blocks, int num_blocks,
                  char hex[BLAKE2B_HEX + 1], Error* err) {
    SafeTensorsWriter w;
    const bool ok = safetensors_create(&w, path, err) && tensors_write(&w, o, blocks, num_blocks, hex, err);
    if (!ok) { safetensors_abandon(&w); }
    return ok;
}

bool hf_save_config(const char* folder, const GPT2Config* m, int eot, const char* torch_dtype, Error* err) {
    json_t* id = eot >= 0 && eot < m->vocab_size ? json_integer(eot) : json_null();
    json_t* config = json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:n, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:s, s:O, s:O}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "vocab_size",
        m->vocab_size, "n_positions", m->max_seq_len, "n_ctx", m->max_seq_len, "n_embd", m->channels, "n_layer",
        m->num_layers, "n_head", m->num_heads, "n_inner", "layer_norm_epsilon", 1e-5, "initializer_range", 0.02,
        "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0, "tie_word_embeddings", 1, "scale_attn_weights", 1,
        "use_cache", 1, "torch_dtype", torch_dtype, "bos_token_id", id, "eos_token_id", id);
    json_t* generation =
        json_pack("{s:b, s:i, s:O, s:O}", "do_sample", 1, "top_k", 50, "bos_token_id", id, "eos_token_id", id);
    const bool ok = json_save_in(config, folder, "config.json", err) &&
                    json_save_in(generation, folder, "generation_config.json", err);
    json_decref(config);
    json_decref(generation);
    json_decref(id);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// reading

// Members of config.json that change what the model computes, with the values that this program computes. A member that
// is left out has the first value, as in transformers. Other members change nothing: scores of attention are always
// computed in fp32 (reorder_and_upcast_attn), dropout is for training.
static const struct {
    const char* key;
    const char* values; // JSON; choices are separated by |
} HF_REQUIRED[] = {
    {"model_type", "\"gpt2\""},
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\"|\"gelu_fast\""}, // GELU by tanh, written three ways
    {"layer_norm_epsilon", "1e-5"},
    {"tie_word_embeddings", "true"},
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},
    {"pruned_heads", "{}|null"},
    {"quantization_config", "null"},
};

// Returns true if a value is one of the choices.
static bool hf_is_one_of(const json_t* value, const char* choices) {
    bool found = false;
    for (const char* c = choices; c && !found; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
        json_t* wanted = json_loadb(c, strcspn(c, "|"), JSON_DECODE_ANY, NULL);
        found = json_equal(value, wanted);
        json_decref(wanted);
    }
    return found;
}

// Fails if config.json has another value than one of the choices.
static bool hf_check_member(json_t* config, const char* folder, const char* key, const char* choices, Error* err) {
    const json_t* value = json_object_get(config, key);
    if (!value || hf_is_one_of(value, choices)) { return true; }
    char* has = json_value_text(value);
    fail(err, "%s/config.json: %s is %.300s: this program's GPT-2 has %s", folder, key, has, choices);
    free(has);
    return false;
}

// Fails if config.json describes a model that this program does not compute.
static bool hf_check_config(json_t* config, const char* folder, const GPT2Config* m, Error* err) {
    char n_inner[32];
    for (size_t i = 0; i < sizeof HF_REQUIRED / sizeof *HF_REQUIRED; i++) {
        if (!hf_check_member(config, folder, HF_REQUIRED[i].key, HF_REQUIRED[i].values, err)) { return false; }
    }
    snprintf(n_inner, sizeof n_inner, "%d|null", 4 * m->channels);
    return hf_check_member(config, folder, "n_inner", n_inner, err);
}

static bool hf_shape_from_json(json_t* config, const char* folder, GPT2Config* m, Error* err) {
    int* const field[] = {&m->vocab_size, &m->max_seq_len, &m->channels, &m->num_layers, &m->num_heads};
    const char* const key[] = {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"};
    for (int i = 0; i < 5; i++) {
        json_t* value = json_object_get(config, key[i]);
        if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 1 << 24) {
            return fail(err, "%s/config.json: %s is missing or not a size: not a GPT-2?", folder, key[i]);
        }
        *field[i] = (int)json_integer_value(value);
    }
    return hf_check_config(config, folder, m, err) && model_check(m, folder, err);
}

bool hf_load_config(const char* folder, bool pad_vocab, GPT2Config* m, Error* err) {
    if (!is_directory(folder)) {
        return fail(err, "%s: %s; give a folder with config.json and model.safetensors", folder,
                    path_exists(folder) ? "not a folder" : "there is no such folder");
    }
    memset(m, 0, sizeof *m);
    json_t* config = json_read_in(folder, "config.json", err);
    if (!config && !folder_has(folder, "config.json")) {
        fail(err, "%s/config.json: no such file: give a folder with config.json and model.safetensors", folder);
    }
    const bool ok = config && hf_shape_from_json(config, folder, m, err);
    m->padded_vocab_size = padded_vocab(m->vocab_size, pad_vocab);
    json_decref(config);
    return ok;
}

bool tensor_is_finite(const float* x, size_t n, const char* path, const char* name, Error* err) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) { return fail(err, "%s: tensor %s: element %zu is not finite", path, name, i); }
    }
    return true;
}

bool safetensor_is_finite(const SafeTensors* s, const SafeTensor* t, Error* err) {
    float* x = alloc_or_die(t->elements, sizeof *x, "a tensor");
    const bool ok = safetensors_read_float(s, t, x, err) &&
                    tensor_is_finite(x, t->elements, s->files[t->file].path, t->name, err);
    free(x);
    return ok;
}

static bool tensor_shape_is(const SafeTensor* found, const size_t* shape, int dims) {
    bool same = found->dims == dims;
    for (int d = 0; same && d < dims; d++) { same = found->shape[d] == shape[d]; }
    return same;
}

static const char WTE[] = "transformer.wte.weight", CLASSIFIER[] = "lm_head.weight";

// Returns the tensor of this name; NULL if it is missing.
static const SafeTensor* find_tensor(const SafeTensors* s, const char* name, Error* err) {
    const SafeTensor* found = safetensors_find(s, name);
    if (!strncmp(name, "transformer.", 12)) { // OpenAI's own files have no prefix
        const SafeTensor* bare = safetensors_find(s, name + 12);
        if (found && bare) {
            fail(err, "%s: tensor %s is there twice: with `transformer.` and without", s->files[bare->file].path,
                 name + 12);
            return NULL;
        }
        found = found ? found : bare;
    }
    if (!found && !strcmp(name, WTE)) { found = safetensors_find(s, CLASSIFIER); } // one of both, by save_model()
    if (!found) { fail(err, "%s: tensor %s is missing", s->files[0].path, name); }
    return found;
}

bool hf_check_tied(const SafeTensors* s, Error* err) {
    const SafeTensor *wte = find_tensor(s, WTE, err), *classifier = safetensors_find(s, CLASSIFIER);
    if (!wte || !classifier || wte == classifier) { return wte != NULL; }
    const size_t n = wte->elements;
    float *a = alloc_or_die(n, sizeof *a, "a tensor"), *b = alloc_or_die(n, sizeof *b, "a tensor");
    const bool is_read = classifier->elements != n || (safetensors_read_float(s, wte, a, err) &&
                                                       safetensors_read_float(s, classifier, b, err));
    const bool is_equal = is_read && classifier->elements == n && !memcmp(a, b, n * sizeof *a);
    free(a);
    free(b);
    if (is_equal || !is_read) { return is_equal; }
    return fail(err, "%s: tensor %s differs from %s: this program's GPT-2 has one for both",
                s->files[classifier->file].path, CLASSIFIER, wte->name);
}

// Reads a tensor of a block to b->ours, in our layout. Fails if it is missing, has another shape, or is not finite.
static bool tensor_read(const SafeTensors* s, TensorBuffers* b, const Tensor* t, int layer, const TensorBlock* block,
                        Error* err) {
    size_t shape[2];
    const int dims = tensor_file_shape(t, block->hf_layout, shape);
    char* wanted = tensor_file_name(t, layer, block->prefix);
    const SafeTensor* found = find_tensor(s, wanted, err);
    free(wanted);
    if (!found) { return false; }
    const char *path = s->files[found->file].path, *name = found->name;
    if (!tensor_shape_is(found, shape, dims)) {
        return fail_shape(err, path, name, found->shape, found->dims, shape, dims);
    }
    const size_t n = t->used_rows * t->cols;
    if (!safetensors_read_float(s, found, b->file, err)) { return false; }
    if (!tensor_is_finite(b->file, n, path, name, err)) { return false; }
    const bool swap = block->hf_layout && t->layout == TRANSPOSED;
    if (swap) { transpose(b->ours, b->file, t->cols, t->used_rows); }
    else { memcpy(b->ours, b->file, n * sizeof *b->ours); }
    return true;
}

bool params_load(const GPT2* g, const Optimizer* o, float* data, TensorReader* read, const void* source, Error* err) {
    const TensorTable* table = o ? optimizer_table(o, data) : &g->params_table;
    TensorBuffers buffers = tensor_buffers(table);
    bool ok = true;
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; ok && l < layers_in_file(t); l++) {
            ok = read(source, &buffers, i, l, err);
            if (ok && o) { optimizer_put(o, data, tensor_at(t, l), buffers.ours, t->used_rows * t->cols); }
            else if (ok) { gpt2_put(g, tensor_at(t, l), buffers.ours, t->used_rows * t->cols); }
        }
    }
    tensor_buffers_free(&buffers);
    return ok;
}

// A block of tensors in a file, as the source of params_load().
typedef struct {
    const SafeTensors* file;
    const TensorBlock* block;
    const TensorTable* table;
} BlockSource;

static bool block_read(const void* source, TensorBuffers* b, int row, int layer, Error* err) {
    const BlockSource* s = source;
    return tensor_read(s->file, b, &s->table->row[row], layer, s->block, err);
}

bool hf_read(const SafeTensors* s, TensorBuffers* b, const Tensor* t, int layer, Error* err) {
    const TensorBlock weights = {.prefix = "transformer.", .hf_layout = true};
    return tensor_read(s, b, t, layer, &weights, err);
}

bool tensors_load(const SafeTensors* s, const Optimizer* o, const TensorBlock* blocks, int num_blocks, Error* err) {
    bool ok = true;
    for (int b = 0; ok && b < num_blocks; b++) {
        const BlockSource source = {.file = s, .block = &blocks[b], .table = optimizer_table(o, blocks[b].data)};
        ok = params_load(o->model, o, blocks[b].data, block_read, &source, err);
    }
    return ok;
}
