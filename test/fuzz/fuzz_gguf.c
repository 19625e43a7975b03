// Any bytes as a GGUF file: it is refused, or all tensors that it lists can be read within its bounds.
//     build/fuzz/fuzz_gguf -max_total_time=300 CORPUS test/golden/models
#include "llmc/files/gguf_model.h"
#include "test/fuzz/input.h"

static void read_model(const Gguf* g) {
    GPT2Config shape;
    Error err;
    if (!gguf_model_shape(g, &shape, &err)) { return; }
    const TensorTable table = gpt2_params_table(&shape, 1);
    float* out = alloc_or_die(tensors_largest(&table), sizeof *out, "a tensor");
    for (int i = 0; i < table.count; i++) {
        for (int l = 0; l < table.row[i].layers; l++) {
            if (!gguf_model_read(g, &table.row[i], l, out, &err)) { abort(); }
        }
    }
    free(out);
}

static void check(const char* path) {
    Gguf g;
    Error err;
    if (!gguf_open(&g, path, &err)) { return; }
    for (size_t i = 0; i < g.num_tensors; i++) {
        const GgufTensor* t = &g.tensors[i];
        if (!t->type) { continue; }
        float* out = alloc_or_die(t->elements, sizeof *out, "a tensor");
        if (!gguf_read(&g, t, out, &err) || gguf_tensor(&g, t->name) != t) { abort(); }
        free(out);
    }
    read_model(&g);
    gguf_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    check(input_file(data, size));
    return 0;
}
