#include "llmc_model.h"
#include "../base/file.h"

enum { VERSION_FP32 = 3, VERSION_BF16 = 5 };

void llmc_model_header(int32_t header[LLMC_MODEL_HEADER / 4], const GPT2Config* shape, const WeightType* type) {
    const bool is_fp32 = !strcmp(type->name, "fp32");
    const int32_t fields[] = {LLMC_MODEL_MAGIC,  is_fp32 ? VERSION_FP32 : VERSION_BF16, shape->max_seq_len,
                              shape->vocab_size, shape->num_layers,                     shape->num_heads,
                              shape->channels,   shape->padded_vocab_size};
    memset(header, 0, LLMC_MODEL_HEADER);
    memcpy(header, fields, sizeof fields);
}

// Takes the shape and the type from the header.
static bool parse_header(LlmcModel* m, const int32_t* header, Error* err) {
    if (header[0] != LLMC_MODEL_MAGIC) { return fail(err, "%s: not a GPT-2 of llm.c (its magic number)", m->path); }
    m->type = weight_type_find(header[1] == VERSION_FP32 ? "fp32" : "bf16");
    if (header[1] != VERSION_FP32 && header[1] != VERSION_BF16) {
        return fail(err, "%s: version %d: only 3 (fp32) and 5 (bf16) are read", m->path, (int)header[1]);
    }
    m->shape = (GPT2Config){.max_seq_len = header[2],
                            .vocab_size = header[3],
                            .num_layers = header[4],
                            .num_heads = header[5],
                            .channels = header[6],
                            .padded_vocab_size = header[7]};
    if (!model_check(&m->shape, m->path, err)) { return false; }
    if (header[7] < header[3] || header[7] > 1 << 20) {
        return fail(err, "%s: %d rows for a vocabulary of %d: damaged", m->path, (int)header[7], (int)header[3]);
    }
    return true;
}

bool llmc_model_open(LlmcModel* m, const char* path, Error* err) {
    int32_t header[LLMC_MODEL_HEADER / 4];
    size_t size, elements = 0;
    memset(m, 0, sizeof *m);
    m->fd = open_regular(path, &size, err);
    if (m->fd < 0) { return false; }
    m->path = format("%s", path);
    bool ok = size >= sizeof header || fail(err, "%s: %zu bytes are too few for a model of llm.c", path, size);
    ok = ok && read_exactly(m->fd, path, header, sizeof header, 0, err) && parse_header(m, header, err);
    if (ok) {
        m->table = gpt2_params_table(&m->shape, 1);
        for (int i = 0; i < m->table.count; i++) {
            elements += (size_t)m->table.row[i].layers * tensor_elements(&m->table.row[i]);
        }
        const size_t wanted = sizeof header + elements * m->type->bytes;
        ok = size == wanted || fail(err, "%s: %zu bytes, but its header makes %zu: it was cut short, or is damaged",
                                    path, size, wanted);
    }
    if (!ok) { llmc_model_close(m); }
    return ok;
}

void llmc_model_close(LlmcModel* m) {
    if (m->path) { close(m->fd); }
    free(m->path);
    memset(m, 0, sizeof *m);
}

bool llmc_model_read(const LlmcModel* m, int row, int layer, float* out, Error* err) {
    const Tensor* t = &m->table.row[row];
    size_t at = (size_t)layer * tensor_elements(t), n = t->used_rows * t->cols;
    for (int i = 0; i < row; i++) { at += (size_t)m->table.row[i].layers * tensor_elements(&m->table.row[i]); }
    const size_t bytes = weight_bytes(m->type, n);
    char* in = alloc_or_die(bytes, 1, "a tensor");
    const bool ok = read_exactly(m->fd, m->path, in, bytes, LLMC_MODEL_HEADER + at * m->type->bytes, err);
    if (ok) { m->type->decode(out, in, n); }
    free(in);
    return ok;
}
