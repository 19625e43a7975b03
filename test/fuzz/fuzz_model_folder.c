// Any bytes, or any edit of whole ones, as model.safetensors.index.json beside two files of weights: the folder is
// refused, or every tensor that the index names can be read.
//
// The first byte of the input chooses: even: the rest is the index; odd: it is an edit of a whole one, which libFuzzer
// would not find by itself, since the library that parses JSON is not instrumented.
#include "llmc/files/safetensors.h"
#include "test/fuzz/input.h"

static const char INDEX[] =
    "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": "
    "\"model-00002-of-00002.safetensors\"}}";

static void write_weights(const char* folder, const char* name, const char* tensor) {
    SafeTensorsWriter w;
    Error err;
    const size_t shape[1] = {3};
    const float values[3] = {1, 2, 3};
    char* path = format("%s/%s", folder, name);
    if (!safetensors_create(&w, path, &err)) { fatal("%s", err.text); }
    safetensors_declare(&w, tensor, "F32", shape, 1, sizeof values);
    if (!safetensors_write(&w, values, sizeof values, &err) || !safetensors_finish(&w, NULL, &err)) {
        fatal("%s", err.text);
    }
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static bool made;
    const char* folder = input_folder();
    SafeTensors s;
    Error err;
    if (!made) {
        write_weights(folder, "model-00001-of-00002.safetensors", "a");
        write_weights(folder, "model-00002-of-00002.safetensors", "b");
        made = true;
    }
    if (size == 0) { return 0; }
    if (data[0] % 2 == 0) {
        write_input(folder, "model.safetensors.index.json", data + 1, size - 1);
    } else { // at a place in the index some bytes are replaced
        const size_t whole = sizeof INDEX - 1, at = size > 1 ? data[1] % whole : 0, gone = size > 2 ? data[2] % 16 : 0;
        const size_t end = min_size(at + gone, whole), more = size > 3 ? size - 3 : 0;
        char* text = alloc_or_die(whole + more + 1, 1, "an index");
        memcpy(text, INDEX, at);
        if (more) { memcpy(text + at, data + 3, more); }
        memcpy(text + at + more, INDEX + end, whole - end);
        write_input(folder, "model.safetensors.index.json", text, at + more + whole - end);
        free(text);
    }
    if (!safetensors_open_folder(&s, folder, &err)) { return 0; }
    if (s.num_files < 1 || s.num_files > 2) { abort(); }
    for (int i = 0; i < s.count; i++) {
        float values[3];
        if (s.tensors[i].elements != 3) { abort(); }
        if (!safetensors_read_float(&s, &s.tensors[i], values, &err) || values[2] != 3) { abort(); }
    }
    safetensors_close(&s);
    return 0;
}
