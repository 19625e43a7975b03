// Any bytes as state.json and config.json, or any edit of whole ones: a checkpoint or Hugging Face folder is refused,
// or what was read from it keeps to its limits.
//
// The first byte of the input chooses: 0 (modulo 3): the rest is state.json, a 0 byte and config.json; 1: an edit of
// config.json; 2: of state.json. libFuzzer would not find these texts by itself: the library that parses JSON is not
// instrumented.
#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/huggingface.h"
#include "llmc/files/sums.h"
#include "llmc/base/json.h"
#include "test/fuzz/input.h"

static const char STATE[] =
    "{\"data_hash\": \"0123456789abcdef\", \"format\": 2, \"kernels\": {\"cpu\": \"avx2\"}, \"loss_window\": [1.5, "
    "2e300], \"loss_scale\": {\"scale\": 65536.0, \"good_steps\": 7}, \"norm_window\": [], \"options\": {\"model\": "
    "\"d12\", \"dtype\": \"bf16\", \"batch_size\": 4, \"lr\": 0.0003, \"shuffle\": 1, \"prompt\": \"a\"}, \"step\": "
    "3, \"tokens\": 300, \"updates\": 2, \"window\": 9}";
static const char CONFIG_TEXT[] =
    "{\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2, \"n_inner\": null, "
    "\"layer_norm_epsilon\": 1e-05, \"activation_function\": \"gelu_new\", \"tie_word_embeddings\": true}";

// Frees the texts of `old` that are not defaults and not in `now` (NULL: none are). The program itself lets options
// live to its end.
static void free_texts(const Config* old, const Config* now) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || o->type != TYPE_TEXT) { continue; }
        char* text = *(char* const*)((const char*)old + o->offset);
        if (text == o->fallback) { continue; }
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
        char* text = o->name ? option_value(o, &c) : NULL;
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
    LossScale scale = {.scale = 1, .is_dynamic = true};
    if (loss_scale_from_json(&scale, json_object_get(state, "loss_scale"), &err) && !(scale.scale >= 1)) { abort(); }
    json_decref(checkpoint_verify(folder, &err));
    json_decref(state);
}

// Gives the files of the folder right checksums.
static void sum_files(const char* folder) {
    Error err;
    Sums sums = {.list = NULL};
    char *path = format("%s/%s", folder, CHECKPOINT_SUMS), hex[BLAKE2B_HEX + 1];
    for (int i = 0; i < NUM_CHECKPOINT_FILES; i++) {
        char* file = format("%s/%s", folder, CHECKPOINT_FILES[i]);
        if (path_exists(file) && sum_file(file, hex, &err)) { sums_set(&sums, CHECKPOINT_FILES[i], hex); }
        free(file);
    }
    if (!sums_save(&sums, path, &err)) { abort(); }
    sums_free(&sums);
    free(path);
}

// Checks the folder as it is, and again with the right format: few inputs have it.
static void check_state_both_ways(const char* folder) {
    Error err;
    sum_files(folder);
    check_state(folder);
    json_t* state = json_read_in(folder, "state.json", &err);
    if (!state) { return; }
    char* path = format("%s/state.json", folder);
    json_object_set_new(state, "format", json_integer(CHECKPOINT_FORMAT));
    if (!json_save(state, path, &err)) { abort(); }
    sum_files(folder);
    check_state(folder);
    json_decref(state);
    free(path);
}

static void check_config(const char* folder) {
    Error err;
    GPT2Config m;
    if (!hf_load_config(folder, true, &m, &err)) { return; }
    if (m.num_layers < 1 || m.num_heads < 1 || m.channels % m.num_heads || m.channels / m.num_heads > 256) { abort(); }
    if (m.padded_vocab_size < m.vocab_size || m.padded_vocab_size % VOCAB_MULTIPLE || model_parameters(&m) == 0) {
        abort();
    }
    if (gpt2_params_table(&m, 1).size < model_parameters(&m)) { abort(); }
}

// Writes `base` with some bytes replaced: data[0] and data[1] say where, data[2] how many, the rest takes their place.
static void write_edited(const char* folder, const char* name, const char* base, const uint8_t* data, size_t size) {
    const size_t length = strlen(base), at = size < 3 ? length : (data[0] | (size_t)data[1] << 8) % (length + 1);
    const size_t removed = size < 3 ? 0 : min_size(data[2], length - at), inserted = size < 3 ? 0 : size - 3;
    char* text = alloc_or_die(length - removed + inserted, 1, name);
    memcpy(text, base, at);
    memcpy(text + at, data + 3, inserted);
    memcpy(text + at + inserted, base + at + removed, length - at - removed);
    write_input(folder, name, text, length - removed + inserted);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const char* folder = input_folder();
    if (size == 0) { return 0; }
    const uint8_t how = *data++;
    size--;
    if (how % 3 == 0) {
        const uint8_t* cut = size ? memchr(data, 0, size) : NULL;
        const size_t first = cut ? (size_t)(cut - data) : size;
        write_input(folder, "state.json", data, first);
        write_input(folder, "config.json", cut ? cut + 1 : data, cut ? size - first - 1 : size);
    } else {
        write_edited(folder, "state.json", STATE, data, how % 3 == 2 ? size : 0);
        write_edited(folder, "config.json", CONFIG_TEXT, data, how % 3 == 1 ? size : 0);
    }
    check_config(folder);
    check_state_both_ways(folder);
    return 0;
}
