// Any bytes as a model file of llm.c: it is refused, or all its tensors can be read within its bounds.
//     build/fuzz/fuzz_llmc_model -max_total_time=300 CORPUS test/golden/models
#include "llmc/files/llmc_model.h"
#include "test/fuzz/input.h"

static void check(const char* path) {
    LlmcModel m;
    Error err;
    if (!llmc_model_open(&m, path, &err)) { return; }
    float* out = alloc_or_die(tensors_largest(&m.table), sizeof *out, "a tensor");
    for (int i = 0; i < m.table.count; i++) {
        for (int l = 0; l < m.table.row[i].layers; l++) {
            if (!llmc_model_read(&m, i, l, out, &err)) { abort(); }
        }
    }
    free(out);
    llmc_model_close(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const char* path = input_file(data, size);
    check(path);
    // Again with the right magic number and version: few inputs have them.
    const int32_t head[2] = {LLMC_MODEL_MAGIC, 5};
    if (size < sizeof head) { return 0; }
    if (pwrite(input_fd(), head, sizeof head, 0) != sizeof head) { fatal("%s: %s", path, strerror(errno)); }
    check(path);
    return 0;
}
