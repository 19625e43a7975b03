#include "gguf_model.h"
#include "../base/file.h"
#include "../tokenizer/tokenizer_save.h"

// Returns the name of a tensor; the caller frees it.
static char* tensor_name(const Tensor* t, int layer) {
    return t->repeat == EACH ? format("blk.%d.%s", layer, t->gguf_name) : format("%s", t->gguf_name);
}

const WeightType* gguf_tensor_type(const Tensor* t, const WeightType* type) {
    if (!tensor_is_matrix(t) || !strcmp(t->name, "wpe")) { return weight_type_find("fp32"); }
    return t->cols % type->block ? weight_type_find("fp16") : type; // as llama.cpp's converter
}

// ---------------------------------------------------------------------------------------------------------------------
// reading

static bool size_at(const Gguf* g, const char* key, int* out, Error* err) {
    const GgufPair* p = gguf_pair(g, key);
    if (!p || p->type == GGUF_STRING || !(p->number >= 1 && p->number <= 1 << 24)) {
        return fail(err, "%s: %s is missing or not a size", g->path, key);
    }
    *out = (int)p->number;
    return true;
}

// Fails if there is a classifier that is not token_embd. (Older converters write token_embd twice.)
static bool check_tied(const Gguf* g, Error* err) {
    const GgufTensor *embedding = gguf_tensor(g, "token_embd.weight"), *output = gguf_tensor(g, "output.weight");
    if (!output) { return true; }
    if (output->type != embedding->type || !output->type) { // quantized in another way
        notice("warning: %s: tensor output.weight has another type than token_embd.weight, which is taken for both: "
               "whether they are the same is not known", g->path);
        return true;
    }
    const size_t bytes = embedding->bytes;
    char *a = alloc_or_die(bytes, 1, "a tensor"), *b = alloc_or_die(bytes, 1, "a tensor");
    const bool is_read = output->bytes != bytes || (read_exactly(g->fd, g->path, a, bytes, embedding->offset, err) &&
                                                    read_exactly(g->fd, g->path, b, bytes, output->offset, err));
    const bool is_equal = is_read && output->bytes == bytes && !memcmp(a, b, bytes);
    free(a);
    free(b);
    if (is_equal || !is_read) { return is_equal; }
    return fail(err, "%s: tensor output.weight differs from token_embd.weight: this program's GPT-2 has one for both",
                g->path);
}

// Returns a tensor of the model; NULL if it is missing, has another shape, or a type that is not read here.
static const GgufTensor* find(const Gguf* g, const Tensor* t, int layer, Error* err) {
    char* name = tensor_name(t, layer);
    const GgufTensor* found = gguf_tensor(g, name);
    const size_t rows = found && found->dims > 1 ? found->shape[1] : 1;
    bool ok = found ? true : fail(err, "%s: tensor %s is missing", g->path, name);
    if (ok && (found->dims > 2 || found->shape[0] != t->cols || rows != t->used_rows)) {
        const size_t wanted[] = {t->cols, t->used_rows};
        ok = fail_shape(err, g->path, name, found->shape, found->dims, wanted, tensor_is_matrix(t) ? 2 : 1);
    }
    if (ok && !found->type) {
        ok = fail(err, "%s: tensor %s: type %u of ggml is not read here: only F32, F16, BF16 and Q8_0", g->path,
                  name, found->ggml);
    }
    free(name);
    return ok ? found : NULL;
}

// Fails unless every tensor of the model is there. Memory for it is then in proportion to the file.
static bool check_tensors(const Gguf* g, const GPT2Config* m, Error* err) {
    const TensorTable table = gpt2_params_table(m, 1);
    for (int i = 0; i < table.count; i++) {
        for (int l = 0; l < table.row[i].layers; l++) {
            if (!find(g, &table.row[i], l, err)) { return false; }
        }
    }
    return true;
}

// Fails if there are tensors of layers that the model does not have: they would be left out.
static bool check_layers(const Gguf* g, int num_layers, Error* err) {
    for (size_t i = 0; i < g->num_tensors; i++) {
        const char* name = g->tensors[i].name;
        if (strncmp(name, "blk.", 4) || strtol(name + 4, NULL, 10) < num_layers) { continue; }
        return fail(err, "%s: tensor %s is there, but gpt2.block_count is only %d: damaged", g->path, name, num_layers);
    }
    return true;
}

bool gguf_model_shape(const Gguf* g, GPT2Config* m, Error* err) {
    int inner = 0;
    const GgufPair *kind = gguf_pair(g, "general.architecture"),
                   *epsilon = gguf_pair(g, "gpt2.attention.layer_norm_epsilon");
    const GgufTensor* embedding = gguf_tensor(g, "token_embd.weight");
    memset(m, 0, sizeof *m);
    if (!kind || strcmp(kind->text, "gpt2")) {
        return fail(err, "%s: general.architecture is '%s': only gpt2 is read", g->path, kind ? kind->text : "");
    }
    if (!size_at(g, "gpt2.context_length", &m->max_seq_len, err) ||
        !size_at(g, "gpt2.embedding_length", &m->channels, err) ||
        !size_at(g, "gpt2.feed_forward_length", &inner, err) || !size_at(g, "gpt2.block_count", &m->num_layers, err) ||
        !size_at(g, "gpt2.attention.head_count", &m->num_heads, err)) {
        return false;
    }
    if (inner != 4 * m->channels) {
        return fail(err, "%s: gpt2.feed_forward_length is %d: this program's GPT-2 has %d", g->path, inner,
                    4 * m->channels);
    }
    if (!epsilon || (float)epsilon->number != 1e-5f) {
        return fail(err, "%s: gpt2.attention.layer_norm_epsilon is not 1e-5", g->path);
    }
    if (!embedding || embedding->dims != 2 || embedding->shape[1] > 1 << 24) {
        return fail(err, "%s: tensor token_embd.weight is missing or not a matrix", g->path);
    }
    m->vocab_size = m->padded_vocab_size = (int)embedding->shape[1];
    return model_check(m, g->path, err) && check_tensors(g, m, err) &&
           check_layers(g, m->num_layers, err) && check_tied(g, err);
}

bool gguf_model_read(const Gguf* g, const Tensor* t, int layer, float* out, Error* err) {
    const GgufTensor* found = find(g, t, layer, err);
    return found && gguf_read(g, found, out, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

// Writes the tokens, their types and the merges; ids of the model that the tokenizer does not have are padding.
static void put_tokens(FILE* f, const Tokenizer* t, const TokenNames* n, int vocab_size) {
    enum { NORMAL = 1, CONTROL = 3, UNUSED = 5 };
    char* text;
    size_t merges = 0;
    gguf_pair_array(f, "tokenizer.ggml.tokens", GGUF_STRING, (size_t)vocab_size);
    for (int id = 0; id < vocab_size; id++) {
        text = id < n->count ? format("%s", n->name[id]) : format("[PAD%d]", id);
        gguf_put_text(f, text, strlen(text));
        free(text);
    }
    gguf_pair_array(f, "tokenizer.ggml.token_type", GGUF_I32, (size_t)vocab_size);
    for (int id = 0; id < vocab_size; id++) {
        gguf_put_u32(f, id >= n->count ? UNUSED : t->is_special[id] ? CONTROL : NORMAL);
    }
    for (int id = 0; id < n->count; id++) { merges += n->half[id][0] != NO_TOKEN; }
    gguf_pair_array(f, "tokenizer.ggml.merges", GGUF_STRING, merges);
    for (int id = 0; id < n->count; id++) {
        if (n->half[id][0] == NO_TOKEN) { continue; }
        text = format("%s %s", n->name[n->half[id][0]], n->name[n->half[id][1]]);
        gguf_put_text(f, text, strlen(text));
        free(text);
    }
}

// Number of the pairs that put_pairs() writes.
static uint64_t num_pairs(const WeightType* type) { return 17 + (type->block > 1); }

static void put_pairs(FILE* f, const GPT2Config* m, const WeightType* type, const Tokenizer* t, const TokenNames* names,
                      const char* name) {
    const uint32_t C = (uint32_t)m->channels, eot = (uint32_t)t->eot;
    gguf_pair_text(f, "general.architecture", "gpt2");
    gguf_pair_text(f, "general.name", name);
    gguf_pair_u32(f, "general.file_type", type->ggml_file);
    gguf_pair_u32(f, "gpt2.context_length", (uint32_t)m->max_seq_len);
    gguf_pair_u32(f, "gpt2.embedding_length", C);
    gguf_pair_u32(f, "gpt2.feed_forward_length", 4 * C);
    gguf_pair_u32(f, "gpt2.block_count", (uint32_t)m->num_layers);
    gguf_pair_u32(f, "gpt2.attention.head_count", (uint32_t)m->num_heads);
    gguf_pair_f32(f, "gpt2.attention.layer_norm_epsilon", 1e-5f);
    gguf_pair_text(f, "tokenizer.ggml.model", "gpt2");
    gguf_pair_text(f, "tokenizer.ggml.pre", "gpt-2");
    gguf_pair_u32(f, "tokenizer.ggml.bos_token_id", eot);
    gguf_pair_u32(f, "tokenizer.ggml.eos_token_id", eot);
    gguf_pair_bool(f, "tokenizer.ggml.add_bos_token", false);
    if (type->block > 1) { gguf_pair_u32(f, "general.quantization_version", 2); }
    put_tokens(f, t, names, m->vocab_size);
}

// Writes the entry of each tensor.
static void put_entries(FILE* f, const TensorTable* table, const WeightType* type) {
    uint64_t offset = 0;
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        for (int l = 0; l < t->layers; l++) {
            const WeightType* of = gguf_tensor_type(t, type);
            char* name = tensor_name(t, l);
            gguf_put_text(f, name, strlen(name));
            gguf_put_u32(f, tensor_is_matrix(t) ? 2 : 1);
            gguf_put_u64(f, t->cols);
            if (tensor_is_matrix(t)) { gguf_put_u64(f, t->used_rows); }
            gguf_put_u32(f, of->ggml);
            gguf_put_u64(f, offset);
            offset += round_up(weight_bytes(of, t->used_rows * t->cols), GGUF_ALIGNMENT);
            free(name);
        }
    }
}

bool gguf_model_header(FILE* f, const TensorTable* table, const GPT2Config* m, const WeightType* type,
                       const Tokenizer* t, const char* name, Error* err) {
    TokenNames names;
    const TensorCounts counts = tensors_count(table);
    const bool ok = token_names_make(&names, t, "the tokenizer", err);
    if (ok) {
        fwrite("GGUF", 1, 4, f);
        gguf_put_u32(f, GGUF_VERSION);
        gguf_put_u64(f, counts.decayed.tensors + counts.others.tensors);
        gguf_put_u64(f, num_pairs(type));
        put_pairs(f, m, type, t, &names, name);
        put_entries(f, table, type);
        gguf_put_padding(f, (size_t)ftello(f));
    }
    token_names_free(&names);
    return ok;
}
