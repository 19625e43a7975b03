// Weights and moments to and from safetensors files, and the two JSON files that make a folder a Hugging Face model:
// GPT2LMHeadModel.from_pretrained(folder) reads what is written here, and what transformers saves is read here.
#pragma once
#include "gpt2.h"
#include "safetensors.h"
#include "safetensors_write.h"

// A block of fp32 numbers laid out by the table of parameters, and how it stands in a file.
typedef struct {
    const char* prefix; // of the names: "transformer." for weights, "m." and "v." for moments
    float* data;        // device memory: all of it or, where processes share it, this one's shards
    bool hf_layout;     // matrices as Hugging Face has them (GPT2_PARAMS says which are transposed), else as ours
} TensorBlock;

static inline char* tensor_file_name(const Tensor* t, int layer, const char* prefix) {
    char name[128];
    if (t->repeat == EACH) {
        const char* at = strstr(t->file_name, "%d");
        snprintf(name, sizeof name, "%.*s%d%s", (int)(at - t->file_name), t->file_name, layer, at + 2);
    } else {
        snprintf(name, sizeof name, "%s", t->file_name);
    }
    return format("%s%s", prefix, name);
}

// The shape in the file; returns the number of dimensions.
static inline int tensor_file_shape(const Tensor* t, bool hf_layout, size_t shape[2]) {
    const bool swap = hf_layout && t->layout == TRANSPOSED;
    shape[0] = swap ? t->cols : t->used_rows;
    shape[1] = swap ? t->used_rows : t->cols;
    if (t->rows > 1) { return 2; }
    shape[0] = t->cols;
    return 1;
}

// out (cols,rows) = in (rows,cols)^T, in squares that stay in the cache
static inline void transpose(float* out, const float* in, size_t rows, size_t cols) {
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

// Room for the largest tensor, twice: as it lies in the file, and as it lies here.
typedef struct {
    float *file, *ours;
} TensorBuffers;

static inline TensorBuffers tensor_buffers(const TensorTable* table) {
    const size_t most = tensors_largest(table);
    TensorBuffers b = {(float*)alloc_or_die(most, sizeof(float), "a tensor"),
                       (float*)alloc_or_die(most, sizeof(float), "a tensor")};
    return b;
}
static inline void tensor_buffers_free(TensorBuffers* b) {
    free(b->file);
    free(b->ours);
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

// Fetches one tensor, in the file's layout, into b->file; returns its elements.
static inline size_t tensor_fetch(TensorBuffers* b, const Tensor* t, int layer, const TensorBlock* block) {
    const size_t n = t->used_rows * t->cols;
    const bool swap = block->hf_layout && t->layout == TRANSPOSED;
    device_copy_out(swap ? b->ours : b->file, block->data + tensor_at(t, layer), n * sizeof(float));
    if (swap) { transpose(b->file, b->ours, t->used_rows, t->cols); }
    return n;
}

static inline bool tensors_write(SafeTensorsWriter* w, GPT2* g, const TensorBlock* blocks, int num_blocks,
                                 json_t* checksums, Error* err) {
    const TensorTable* table = &g->params_table;
    size_t shape[2];
    bool ok = safetensors_annotate(w, "format", "pt", err); // transformers asks for it
    for (int b = 0; b < num_blocks; b++) {
        for (int i = 0; i < table->count; i++) {
            for (int l = 0; ok && l < table->row[i].layers; l++) {
                char* name = tensor_file_name(&table->row[i], l, blocks[b].prefix);
                const int dims = tensor_file_shape(&table->row[i], blocks[b].hf_layout, shape);
                ok = safetensors_declare(w, name, "F32", shape, dims, err);
                free(name);
            }
        }
    }
    TensorBuffers buffers = tensor_buffers(table);
    for (int b = 0; b < num_blocks; b++) {
        const TensorBlock whole = {blocks[b].prefix, (float*)gpt2_whole(g, blocks[b].data), blocks[b].hf_layout};
        for (int i = 0; i < table->count; i++) {
            for (int l = 0; ok && l < table->row[i].layers; l++) {
                char *name = tensor_file_name(&table->row[i], l, blocks[b].prefix), hex[17];
                const size_t bytes = tensor_fetch(&buffers, &table->row[i], l, &whole) * sizeof(float);
                snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash64(buffers.file, bytes, 0));
                json_object_set_new(checksums, name, json_string(hex));
                ok = safetensors_write(w, name, buffers.file, bytes, err);
                free(name);
            }
        }
    }
    tensor_buffers_free(&buffers);
    return ok && safetensors_finish(w, err);
}

// Writes blocks of parameters' shape to a file and the hash64 of every tensor's bytes to `checksums`, by name. Where
// processes share a block, they call gpt2_whole() for it meanwhile.
static inline bool tensors_save(const char* path, GPT2* g, const TensorBlock* blocks, int num_blocks, json_t* checksums,
                                Error* err) {
    SafeTensorsWriter w;
    const bool ok = safetensors_create(&w, path, err) && tensors_write(&w, g, blocks, num_blocks, checksums, err);
    if (!ok) { safetensors_abandon(&w); }
    return ok;
}

static inline bool json_save(const char* folder, const char* file, json_t* value, Error* err) {
    char* path = format("%s/%s", folder, file);
    char* text = json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS);
    FILE* f = text ? fopen(path, "wb") : NULL;
    bool ok = f != NULL;
    if (!ok) { fail(err, "%s: cannot create: %s", path, text ? strerror(errno) : "out of memory"); }
    if (ok) {
        fprintf(f, "%s\n", text);
        ok = close_synced(f, path, err);
    }
    free(text);
    free(path);
    return ok;
}

// config.json and generation_config.json; `eot` is the tokenizer's end-of-text id, -1 if there is none.
static inline bool hf_save_config(const char* folder, const GPT2Config* m, int eot, Error* err) {
    json_t* id = eot >= 0 && eot < m->vocab_size ? json_integer(eot) : json_null();
    json_t* config = json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:n, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:s, s:O, s:O}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "vocab_size",
        m->vocab_size, "n_positions", m->max_seq_len, "n_embd", m->channels, "n_layer", m->num_layers, "n_head",
        m->num_heads, "n_inner", "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "resid_pdrop", 0.0,
        "embd_pdrop", 0.0, "attn_pdrop", 0.0, "tie_word_embeddings", 1, "scale_attn_weights", 1, "use_cache", 1,
        "torch_dtype", "float32", "bos_token_id", id, "eos_token_id", id);
    json_t* generation =
        json_pack("{s:b, s:i, s:O, s:O}", "do_sample", 1, "top_k", 50, "bos_token_id", id, "eos_token_id", id);
    if (!config || !generation) { fatal("out of memory: config.json"); }
    const bool ok =
        json_save(folder, "config.json", config, err) && json_save(folder, "generation_config.json", generation, err);
    json_decref(config);
    json_decref(generation);
    json_decref(id);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// reading

static inline json_t* json_load_from(const char* folder, const char* file, Error* err) {
    char* path = format("%s/%s", folder, file);
    json_error_t e;
    json_t* value = NULL;
    if (!path_exists(path)) { fail(err, "%s: there is no such file", path);
    } else if (!(value = json_load_file(path, JSON_REJECT_DUPLICATES, &e))) {
        fail(err, "%s:%d: %s", path, e.line, e.text);
    } else if (!json_is_object(value)) {
        fail(err, "%s: not a JSON object", path);
        json_decref(value);
        value = NULL;
    }
    free(path);
    return value;
}

// A setting of config.json that must have one value, where it is there at all, for the model to be the one we compute.
static inline bool hf_require(json_t* config, const char* folder, const char* key, json_t* wanted, Error* err) {
    json_t* value = json_object_get(config, key);
    const bool ok =
        !value || json_is_null(value) || json_equal(value, wanted) ||
        (json_is_number(value) && json_is_number(wanted) && json_number_value(value) == json_number_value(wanted));
    char *has = json_dumps(value, JSON_ENCODE_ANY), *want = json_dumps(wanted, JSON_ENCODE_ANY);
    if (!ok) { fail(err, "%s/config.json: %s is %s: this program's GPT-2 has %s", folder, key, has, want); }
    free(has);
    free(want);
    json_decref(wanted);
    return ok;
}

static inline bool hf_shape_from_json(json_t* config, const char* folder, GPT2Config* m, Error* err) {
    int* const field[] = {&m->vocab_size, &m->max_seq_len, &m->channels, &m->num_layers, &m->num_heads};
    const char* const key[] = {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"};
    for (int i = 0; i < 5; i++) {
        json_t* value = json_object_get(config, key[i]);
        if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 1 << 24) {
            return fail(err, "%s/config.json: %s is missing or not a size: not a GPT-2?", folder, key[i]);
        }
        *field[i] = (int)json_integer_value(value);
    }
    return hf_require(config, folder, "model_type", json_string("gpt2"), err) &&
           hf_require(config, folder, "activation_function", json_string("gelu_new"), err) &&
           hf_require(config, folder, "layer_norm_epsilon", json_real(1e-5), err) &&
           hf_require(config, folder, "n_inner", json_integer(4 * (json_int_t)m->channels), err) &&
           hf_require(config, folder, "tie_word_embeddings", json_true(), err) &&
           hf_require(config, folder, "scale_attn_weights", json_true(), err) &&
           hf_require(config, folder, "scale_attn_by_inverse_layer_idx", json_false(), err) &&
           model_check(m, folder, err);
}

// The shape of the model in a Hugging Face folder.
static inline bool hf_load_config(const char* folder, bool pad_vocab, GPT2Config* m, Error* err) {
    if (!is_directory(folder)) {
        return fail(err, "%s: %s; give a folder with config.json and model.safetensors", folder,
                    path_exists(folder) ? "not a folder" : "there is no such folder");
    }
    memset(m, 0, sizeof *m);
    json_t* config = json_load_from(folder, "config.json", err);
    const bool ok = config && hf_shape_from_json(config, folder, m, err);
    m->padded_vocab_size = padded_vocab(m->vocab_size, pad_vocab);
    json_decref(config);
    return ok;
}

static inline bool tensor_shape_is(const SafeTensor* found, const size_t* shape, int dims) {
    bool same = found->dims == dims;
    for (int d = 0; same && d < dims; d++) { same = found->shape[d] == shape[d]; }
    return same;
}

// Reads one tensor from the file into the block.
static inline bool tensor_load(const SafeTensors* s, TensorBuffers* b, const GPT2* g, const Tensor* t, int layer,
                               const TensorBlock* block, const char* name, Error* err) {
    const SafeTensor* found = safetensors_find(s, name);
    size_t shape[2] = {0, 0};
    const int dims = tensor_file_shape(t, block->hf_layout, shape);
    if (!found && !strncmp(name, "transformer.", 12)) {
        found = safetensors_find(s, name + 12);
    } // OpenAI's own has no prefix
    if (!found) { return fail(err, "%s: tensor %s is missing", s->files[0].path, name); }
    const char* path = s->files[found->file].path;
    if (!tensor_shape_is(found, shape, dims)) {
        return fail(err, "%s: tensor %s is (%zu,%zu) in %d dimensions, the model's is (%zu,%zu) in %d", path, name,
                    found->shape[0], found->shape[1], found->dims, shape[0], shape[1], dims);
    }
    const size_t n = t->used_rows * t->cols;
    if (!safetensors_read_float(s, found, 0, b->file, n, err)) { return false; }
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(b->file[i])) { return fail(err, "%s: tensor %s: element %zu is not finite", path, name, i); }
    }
    const bool swap = block->hf_layout && t->layout == TRANSPOSED;
    if (swap) { transpose(b->ours, b->file, t->cols, t->used_rows); }
    gpt2_put(g, block->data, tensor_at(t, layer), swap ? b->ours : b->file, n);
    return true;
}

// Reads every tensor of the blocks from an open file or folder. Tensors that no block has are passed over: mask
// buffers, and the classifier's weight, which is wte.
static inline bool tensors_load(const SafeTensors* s, const GPT2* g, const TensorBlock* blocks, int num_blocks,
                                Error* err) {
    const TensorTable* table = &g->params_table;
    bool ok = true;
    TensorBuffers buffers = tensor_buffers(table);
    for (int b = 0; b < num_blocks; b++) {
        for (int i = 0; i < table->count; i++) {
            for (int l = 0; ok && l < table->row[i].layers; l++) {
                char* name = tensor_file_name(&table->row[i], l, blocks[b].prefix);
                ok = tensor_load(s, &buffers, g, &table->row[i], l, &blocks[b], name, err);
                free(name);
            }
        }
    }
    tensor_buffers_free(&buffers);
    return ok;
}

// The parameters from a Hugging Face folder into a model of its shape.
static inline bool hf_load_weights(GPT2* g, const char* folder, Error* err) {
    SafeTensors s;
    if (!safetensors_open_folder(&s, folder, err)) { return false; }
    const TensorBlock weights = {"transformer.", g->masters, true};
    const bool ok = tensors_load(&s, g, &weights, 1, err);
    safetensors_close(&s);
    if (ok) { gpt2_masters_changed(g); }
    return ok;
}
