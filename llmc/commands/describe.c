#include "describe.h"
#include "../base/file.h"
#include "../files/checkpoint.h"
#include "../base/json.h"
#include "../files/model_file.h"
#include "../files/sums.h"

static void print_tensor(const char* name, const char* type, const size_t* shape, int dims) {
    char text[128] = "";
    for (int d = 0; d < dims; d++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%zu", d ? " x " : "", shape[d]);
    }
    print_result("  %-36s %-6s %s\n", name, type, text);
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c's models and GGUF

static bool verify_model(const ModelFile* m, Error* err) {
    TensorBuffers b = tensor_buffers(&m->table);
    bool ok = true;
    for (int i = 0; i < m->table.count; i++) {
        for (int l = 0; ok && l < m->table.row[i].layers; l++) { ok = model_file_read(m, &b, i, l, err); }
    }
    tensor_buffers_free(&b);
    return ok;
}

static bool describe_model(const char* path, Error* err) {
    ModelFile m;
    if (!model_file_open(&m, path, false, err)) { return false; }
    const GPT2Config* s = &m.shape;
    print_result("%s: %s, L=%d H=%d C=%d T=%d V=%d, %zu parameters\n", path, m.format->name, s->num_layers,
                 s->num_heads, s->channels, s->max_seq_len, s->vocab_size, model_parameters(s));
    if (m.llmc.path) {
        printf("  all tensors %s, %d rows of wte\n", m.llmc.type->name, m.llmc.shape.padded_vocab_size);
    }
    for (size_t i = 0; i < m.gguf.num_tensors; i++) {
        const GgufTensor* t = &m.gguf.tensors[i];
        print_tensor(t->name, t->type ? t->type->name : "?", t->shape, t->dims);
    }
    const bool ok = verify_model(&m, err);
    model_file_close(&m);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// safetensors

static bool describe_safetensors(const char* path, Error* err) {
    SafeTensors s;
    size_t elements = 0;
    if (!safetensors_open(&s, path, err)) { return false; }
    for (int i = 0; i < s.count; i++) { elements += s.tensors[i].elements; }
    print_result("%s: safetensors, %d tensor%s, %zu elements\n", path, s.count, plural((uint64_t)s.count), elements);
    bool ok = true;
    for (int i = 0; ok && i < s.count; i++) {
        const SafeTensor* t = &s.tensors[i];
        print_tensor(t->name, t->dtype, t->shape, t->dims);
        if (!t->type) { printf("    its numbers are not read: a type that this program does not know\n"); }
        ok = !t->type || safetensor_is_finite(&s, t, err);
    }
    safetensors_close(&s);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// by the first bytes

static bool is_safetensors(const char* path) { // the JSON object of the header begins at byte 8
    Error ignored;
    char begin[9];
    return read_begin(path, begin, sizeof begin, &ignored) && begin[8] == '{' && begin[7] == 0;
}

bool can_describe(const char* path) { return is_model_file(path) || is_safetensors(path); }

// Compares the file with the checksums in its folder; true if there are none.
static bool verify_sum(const char* path, Error* err) {
    char* list = path_beside(path, CHECKPOINT_SUMS);
    bool has_sum;
    const bool ok = sum_verify_by_list(path, list, &has_sum, err);
    if (ok && has_sum) { print_result("  its checksum in %s is right\n", list); }
    free(list);
    return ok;
}

bool describe(const char* path) {
    Error err;
    const bool is_folder = is_directory(path);
    // A model's header may look like one of safetensors: that of llm.c with 123 positions, or GGUF with 123 tensors.
    const bool is_model = is_folder || is_model_file(path);
    const bool ok = (is_model ? describe_model(path, &err) : describe_safetensors(path, &err)) &&
                    (is_folder || verify_sum(path, &err));
    if (ok) { printf("  all numbers are finite\n"); }
    else { notice("error: %s", err.text); }
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// token files

enum { END_OF_TEXT = 50256, END_OF_BYTES = 256 }; // the last ids of GPT-2's tokenizer, and of --tokenizer bytes

typedef struct {
    uint32_t least, greatest;
    size_t ends, ends_of_bytes; // tokens END_OF_TEXT, END_OF_BYTES
} IdCounts;

static bool count_ids(IdCounts* c, const Shard* s, Error* err) {
    enum { CHUNK = 1 << 15 };
    int tokens[CHUNK];
    *c = (IdCounts){.least = UINT32_MAX};
    for (size_t first = 0; first < s->num_tokens; first += CHUNK) {
        const size_t count = min_size(CHUNK, s->num_tokens - first);
        if (!shard_read(s, first, count, tokens, err)) { return false; }
        for (size_t i = 0; i < count; i++) {
            const uint32_t id = (uint32_t)tokens[i];
            if (id < c->least) { c->least = id; }
            if (id > c->greatest) { c->greatest = id; }
            c->ends += id == END_OF_TEXT;
            c->ends_of_bytes += id == END_OF_BYTES;
        }
    }
    return true;
}

bool describe_tokens(const char* path, TokenHeader header, Error* err) {
    Shard s;
    IdCounts c;
    bool has_sum;
    if (!shard_open_as(&s, path, header, err)) { return false; }
    const bool ok = count_ids(&c, &s, err) && shard_verify_sum(path, &has_sum, err);
    if (ok) {
        print_result("file        %s\n", path);
        printf("format      %s, %d bytes a token\n", s.format, s.width);
        printf("tokens      %zu\n", s.num_tokens);
    }
    if (ok && s.num_tokens > 0) {
        const bool bytes = c.greatest <= END_OF_BYTES;
        printf("ids         %u to %u%s\n", c.least, c.greatest,
               c.greatest > END_OF_TEXT ? ", beyond GPT-2's vocabulary of 50257" : "");
        const size_t ends = bytes ? c.ends_of_bytes : c.ends;
        if (c.greatest <= END_OF_TEXT && ends > 0) { // none: it may be another tokenizer's
            printf("end of text %zu times (%d)\n", ends, bytes ? END_OF_BYTES : END_OF_TEXT);
        }
    }
    if (ok) { printf("checksum    %s\n", has_sum ? "right" : "none"); }
    shard_close(&s);
    return ok;
}
