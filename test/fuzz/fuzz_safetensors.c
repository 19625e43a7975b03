// Any bytes as a safetensors file: it is refused, or all that it declares can be read within its bounds.
#include "llmc/files/safetensors.h"
#include "test/fuzz/input.h"

static bool read_all(const SafeTensors* s, const SafeTensor* t, Error* err) {
    if (t->begin + t->bytes > s->files[0].data_bytes) { return false; }
    if (!t->type) { return true; }
    float* floats = alloc_or_die(t->elements, sizeof *floats, "a tensor");
    const bool ok = safetensors_read_float(s, t, floats, err);
    free(floats);
    return ok;
}

static void check(const char* path) {
    SafeTensors s;
    Error err;
    if (!safetensors_open(&s, path, &err)) { return; }
    for (int i = 0; i < s.count; i++) {
        if (safetensors_find(&s, s.tensors[i].name) != &s.tensors[i] || !read_all(&s, &s.tensors[i], &err)) { abort(); }
    }
    safetensors_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const char* path = input_file(data, size);
    check(path);
    // Again with the right length of the header: few inputs have it.
    const uint8_t* end = memrchr(data, '}', size);
    if (!end || end - data < 8) { return 0; }
    const uint64_t length = (uint64_t)(end + 1 - data) - sizeof length;
    if (pwrite(input_fd(), &length, sizeof length, 0) != sizeof length) { fatal("%s: %s", path, strerror(errno)); }
    check(path);
    return 0;
}
