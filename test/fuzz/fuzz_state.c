// Any bytes at all as state.json and config.json: a checkpoint or Hugging Face folder is refused, or what was read from
// it keeps to its limits. The two files are parted by the first 0 byte.
#include "../../llmc/cpu/kernels.h"
#include "../../llmc/checkpoint.h"

Cpu cpu;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void write_file(const char* folder, const char* name, const void* data, size_t size) {
    char* path = format("%s/%s", folder, name);
    FILE* f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) { fatal("%s: %s", path, strerror(errno)); }
    free(path);
}

// Gives back the texts of `old` that `now` does not have (NULL: all). The program itself lets options live to its end.
static void free_texts(const Config* old, const Config* now) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || o->type != TYPE_TEXT) { continue; }
        char* text = *(char* const*)((const char*)old + o->offset);
        if (!now || text != *(char* const*)((const char*)now + o->offset)) { free(text); }
    }
}

// Options that were accepted must come back from their own text.
static void check_options(json_t* options) {
    Error err;
    Config c, old;
    config_defaults(&c);
    old = c;
    const bool ok = config_from_json(&c, options, "state.json", &err);
    free_texts(&old, &c);
    for (int i = 0; ok && i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        char* text = o->name ? config_value(&c, o) : NULL;
        old = c;
        if (text && !config_set(&c, o, text, FROM_COMMAND_LINE, &err)) { abort(); }
        free_texts(&old, &c);
        free(text);
    }
    free_texts(&c, NULL);
}

static void check_state(const char* folder) {
    Error err;
    OutlierDetector d;
    json_t* state = checkpoint_read_state(folder, &err);
    if (!state) { return; }
    check_options(json_object_get(state, "options"));
    memset(&d, 0, sizeof d);
    if (outliers_from_json(&d, json_object_get(state, "loss_window"), &err) && d.count > OUTLIER_WINDOW) { abort(); }
    json_decref(checkpoint_verify(folder, &err));
    json_decref(state);
}

// As it came, and once more with the format and the checksum put right, or few inputs would come past them.
static void check_state_both_ways(const char* folder) {
    Error err;
    check_state(folder);
    json_t* state = json_load_from(folder, "state.json", &err);
    if (!state) { return; }
    json_object_set_new(state, "format", json_integer(CHECKPOINT_FORMAT));
    json_object_set_new(state, "checksum", json_hex(0));
    if (!state_save(folder, state, &err)) { abort(); }
    json_decref(state);
    check_state(folder);
}

static void check_config(const char* folder) {
    Error err;
    GPT2Config m;
    if (!hf_load_config(folder, true, &m, &err)) { return; }
    if (m.num_layers < 1 || m.num_heads < 1 || m.channels % m.num_heads || m.channels / m.num_heads > 256) { abort(); }
    if (m.padded_vocab_size < m.vocab_size || m.padded_vocab_size % VOCAB_MULTIPLE || model_parameters(&m) == 0) {
        abort();
    }
    GPT2 g;
    gpt2_layout(&g, &m, 1, 1, KEEP_ALL); // sizes alone: nothing is allocated
    if (g.params_table.size < model_parameters(&m)) { abort(); }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static char folder[] = "/tmp/gpt2c-fuzz-XXXXXX";
    static bool made;
    if (!made && !mkdtemp(folder)) { fatal("%s: %s", folder, strerror(errno)); }
    made = true;
    const uint8_t* cut = (const uint8_t*)memchr(data, 0, size);
    const size_t first = cut ? (size_t)(cut - data) : size;
    write_file(folder, "state.json", data, first);
    write_file(folder, "config.json", cut ? cut + 1 : data, cut ? size - first - 1 : size);
    check_config(folder);
    check_state_both_ways(folder);
    return 0;
}
