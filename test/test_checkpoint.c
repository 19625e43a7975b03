// Checkpoints and Hugging Face folders: which folders count, rotation, what a damaged or foreign one is refused for.
// Every message must name the file and, where there is one, the tensor. test_gpt2.c saves and loads a whole model.
#include "../llmc/cpu/kernels.h"
#include "../llmc/checkpoint.h"
#include "../llmc/rng.h"
#include "test.h"

Cpu cpu;

// Options live as long as the program, so nobody frees their texts: LeakSanitizer need not look.
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

enum { L = 2, NH = 2, C = 8, MAX_T = 6, V = 11 };

static GPT2 open_model(int channels) {
    GPT2 g;
    const GPT2Config m = {MAX_T, V, 128, L, NH, channels};
    cpu_open(1, KERNELS_FAST);
    gpt2_layout(&g, &m, 1, MAX_T, KEEP_ALL);
    gpt2_alloc(&g);
    return g;
}

// Every weight a multiple of 1/16 between -2 and 2: a number that fp16 and bf16 hold exactly.
static void fill_weights(GPT2* g) {
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        for (int l = 0; l < t->layers; l++) {
            float* x = g->masters + tensor_at(t, l);
            for (size_t j = 0; j < t->used_rows * t->cols; j++) {
                x[j] = (float)((int)(rng_u64((uint64_t)i, RNG_TEST, (uint64_t)l << 32 | j) % 65) - 32) / 16.0f;
            }
        }
    }
}

static bool same_weights(const GPT2* a, const GPT2* b) {
    return !memcmp(a->masters, b->masters, a->params_table.size * sizeof(float));
}

static char* below(const char* folder, const char* name) { return format("%s/%s", folder, name); }

// A new folder of this test's own; the caller frees the path.
static char* new_folder(void) {
    static int count;
    Error err;
    char* path = format("%s/%d", test_folder, count++);
    if (!make_directories(path, &err)) { fatal("%s", err.text); }
    return path;
}

static void write_text(const char* folder, const char* name, const char* text) {
    char* path = below(folder, name);
    FILE* f = fopen(path, "wb");
    if (!f || fputs(text, f) < 0 || fclose(f)) { fatal("%s: cannot write", path); }
    free(path);
}

// ---------------------------------------------------------------------------------------------------------------------
// folders

static void make_folder(const char* out, const char* name) {
    Error err;
    char* path = below(out, name);
    if (!make_directories(path, &err)) { fatal("%s", err.text); }
    free(path);
}

static bool has(const char* folder, const char* name) {
    char* path = below(folder, name);
    const bool there = path_exists(path);
    free(path);
    return there;
}

static void expect_list(const char* out, int count, long long first, long long second) {
    size_t n;
    long long* steps = checkpoint_list(out, &n);
    if ((int)n != count || (count > 0 && steps[0] != first) || (count > 1 && steps[1] != second)) {
        TEST_FAIL("%zu checkpoints, the newest %lld, not %d, the newest %lld and %lld", n, n ? steps[0] : -1LL, count,
                  first, second);
    }
    free(steps);
}

TEST(only_checkpoints_are_listed_newest_first) {
    static const char* const others[] = {
        "step_1",        "step_0000001",      "step_00000010x",     "step_",         "step_0000001x", "xstep_00000001",
        "step_-0000001", "step_00000007.tmp", ".tmp-step_00000005", "STEP_00000009", "step-00000009", "metrics.jsonl",
        "step_+0000001", "step_ 0000001", "step_000000010"}; // other spellings of a number
    char* out = new_folder();
    expect_list(out, 0, 0, 0);
    for (int i = 0; i < 15; i++) { make_folder(out, others[i]); }
    expect_list(out, 0, 0, 0);
    make_folder(out, "step_00000009");
    make_folder(out, "step_00000100");
    make_folder(out, "step_00000000");
    make_folder(out, "step_00000020");
    expect_list(out, 4, 100, 20);
    make_folder(out, "step_1234567890"); // more digits than the format's eight
    expect_list(out, 5, 1234567890, 100);
    expect_list("/none", 0, 0, 0);
    free(out);
}

TEST(cleaning_removes_the_half_written_and_nothing_else) {
    char* out = new_folder();
    make_folder(out, ".tmp-step_00000005/deep/er");
    make_folder(out, ".tmp-removed-step_00000001");
    make_folder(out, "step_00000003");
    make_folder(out, ".tmpfile");
    write_text(out, ".tmp-file", "x");
    write_text(out, ".tmp-step_00000005/model.safetensors", "x");
    write_text(out, "metrics.jsonl", "x");
    char* link = below(out, ".tmp-link");
    if (symlink("step_00000003", link) != 0) { fatal("symlink"); }
    checkpoint_clean(out);
    EXPECT(!has(out, ".tmp-step_00000005") && !has(out, ".tmp-removed-step_00000001") && !has(out, ".tmp-file") &&
           !has(out, ".tmp-link"));
    EXPECT(has(out, "step_00000003") && has(out, "metrics.jsonl") &&
           has(out, ".tmpfile")); // a link is removed, not what it names
    checkpoint_clean("/none");
    free(link);
    free(out);
}

TEST(removing_takes_all_of_one_checkpoint) {
    char* out = new_folder();
    make_folder(out, "step_00000003/more");
    make_folder(out, "step_00000004");
    write_text(out, "step_00000003/state.json", "x");
    char* path = below(out, "step_00000003");
    checkpoint_remove(path);
    EXPECT(!has(out, "step_00000003") && !has(out, ".tmp-removed-step_00000003") && has(out, "step_00000004"));
    EXPECT_DEATH(0, "cannot remove the old checkpoint: No such file", checkpoint_remove(path); exit(0)); // a warning
    free(path);
    free(out);
}

// ---------------------------------------------------------------------------------------------------------------------
// saving

static TrainState state_at(long long step) {
    TrainState s;
    memset(&s, 0, sizeof s);
    s.step = step, s.tokens = 100 * step, s.window = (uint64_t)step * 3, s.data_hash = 0x8000000000000001ull;
    return s;
}

// Saves a checkpoint of that step; returns its path, which the caller frees.
static char* save(const char* out, GPT2* g, long long step, long long keep) {
    Error err;
    Config c;
    config_defaults(&c);
    c.keep = keep;
    const TrainState s = state_at(step);
    char* path = checkpoint_save(out, g, &s, &c, -1, &err);
    if (!path) { fatal("%s", err.text); }
    return path;
}

TEST(the_newest_are_kept) {
    GPT2 g = open_model(C);
    char* out = new_folder();
    for (long long step = 10; step <= 40; step += 10) {
        char *path = save(out, &g, step, 2), *want = format("%s/step_%08lld", out, step);
        EXPECT(!strcmp(path, want) && is_directory(path));
        free(path);
        free(want);
    }
    expect_list(out, 2, 40, 30);
    free(save(out, &g, 50, 1));
    expect_list(out, 1, 50, 0);
    for (long long step = 60; step <= 80; step += 10) { free(save(out, &g, step, 0)); }
    expect_list(out, 4, 80, 70); // 0: all are kept
    free(save(out, &g, 80, 0));  // over one of the same name
    expect_list(out, 4, 80, 70);
    EXPECT(!has(out, ".tmp-step_00000080") && !has(out, ".tmp-removed-step_00000080"));
    free(out);
    gpt2_free(&g);
}

TEST(a_run_taken_back_keeps_what_it_saves) {
    GPT2 g = open_model(C);
    char* out = new_folder();
    for (long long step = 10; step <= 30; step += 10) { free(save(out, &g, step, 0)); }
    char* path = save(out, &g, 15, 1); // after resuming from step 10, by choice or because the newer ones are damaged
    EXPECT(is_directory(path));
    expect_list(out, 1, 15, 0);
    free(path);
    path = save(out, &g, 20, 0); // 0: all are kept
    expect_list(out, 2, 20, 15);
    free(path);
    free(out);
    gpt2_free(&g);
}

TEST(a_failed_save_leaves_the_older_checkpoints) {
    Error err;
    GPT2 g = open_model(C);
    Config c;
    config_defaults(&c);
    char* out = new_folder();
    free(save(out, &g, 1, 3));
    const TrainState s = state_at(2);
    write_text(out, ".tmp-step_00000002", "in the way");
    c.keep = 1;
    EXPECT(!checkpoint_save(out, &g, &s, &c, -1, &err) &&
           strstr(err.text, ".tmp-step_00000002: cannot make the folder"));
    expect_list(out, 1, 1, 0);
    EXPECT(!has(out, ".tmp-step_00000002"));
    char* none = below(out, "none");
    EXPECT(!checkpoint_save(none, &g, &s, &c, -1, &err) && strstr(err.text, none));
    free(none);
    free(out);
    gpt2_free(&g);
}

TEST(the_state_of_a_run_comes_back) {
    Error err;
    GPT2 g = open_model(C), h = open_model(C);
    Config c;
    config_defaults(&c);
    TrainState s = state_at(123456789), back = state_at(0);
    s.tokens = 300000000000, s.window = 1ull << 40;
    for (int i = 0; i < OUTLIER_WINDOW + 9; i++) { // full, and gone round
        outlier_update(&s.loss_window, 3.0 + rng_uniform(1, RNG_TEST, (uint64_t)i));
        if (i < 50) { outlier_update(&s.norm_window, 1.0 / (i + 3)); }
    }
    char *out = new_folder(), *path = checkpoint_save(out, &g, &s, &c, -1, &err);
    json_t* state = path ? checkpoint_verify(path, &err) : NULL;
    EXPECT(state && checkpoint_load(&h, &back, path, state, &err));
    EXPECT(back.step == s.step && back.tokens == s.tokens && back.window == s.window && back.data_hash == s.data_hash);
    EXPECT(back.loss_window.count == OUTLIER_WINDOW && back.norm_window.count == 50);
    EXPECT(!memcmp(back.loss_window.values, s.loss_window.values, sizeof s.loss_window.values));
    EXPECT(!memcmp(back.norm_window.values, s.norm_window.values, 50 * sizeof(double)));
    EXPECT(outlier_update(&back.loss_window, 3.7) == outlier_update(&s.loss_window, 3.7));
    json_t* options = json_object_get(state, "options");
    EXPECT(json_object_size(options) == NUM_OPTIONS && json_real_value(json_object_get(options, "lr")) == 3e-4);
    EXPECT(!strcmp(json_string_value(json_object_get(json_object_get(state, "kernels"), "cpu")), "generic"));
    json_decref(state);
    free(path);
    free(out);
    gpt2_free(&g);
    gpt2_free(&h);
}

// ---------------------------------------------------------------------------------------------------------------------
// damage

// A checkpoint for a test to damage.
static char* new_checkpoint(void) {
    GPT2 g = open_model(C);
    fill_weights(&g);
    char *out = new_folder(), *path = save(out, &g, 5, 0);
    free(out);
    gpt2_free(&g);
    return path;
}

static void expect_refused(const char* folder, const char* file, const char* words) {
    Error err = {""};
    json_t* state = checkpoint_verify(folder, &err);
    char* name = below(folder, file);
    if (state || !strstr(err.text, name) || !strstr(err.text, words)) {
        TEST_FAIL("%s: no '%s' but '%s'", file, words, err.text);
    }
    json_decref(state);
    free(name);
}

TEST(missing_files_are_named) {
    static const char* const files[] = {"model.safetensors", "optimizer.safetensors", "config.json", "state.json"};
    static const char* const words[] = {"cannot open: No such file", "cannot open: No such file",
                                        "there is no such file", "there is no such file"};
    char* folder = new_checkpoint();
    for (int i = 0; i < 4; i++) {
        char *file = below(folder, files[i]), *away = below(folder, "away");
        EXPECT(rename(file, away) == 0);
        expect_refused(folder, files[i], words[i]);
        EXPECT(rename(away, file) == 0);
        free(file);
        free(away);
    }
    Error err;
    json_t* state = checkpoint_verify(folder, &err);
    EXPECT(state != NULL);
    json_decref(state);
    free(folder);
}

// Changes an entry of state.json and puts its checksum right again, unless that is what was changed.
static void edit_state(const char* folder, const char* key, json_t* value, bool seal) {
    Error err;
    json_t* state = json_load_from(folder, "state.json", &err);
    if (!state) { fatal("%s", err.text); }
    if (value) { json_object_set_new(state, key, value); }
    else { json_object_del(state, key); }
    if (seal) { json_object_set_new(state, "checksum", json_hex(0)); }
    if (!(seal ? state_save(folder, state, &err) : json_save(folder, "state.json", state, &err))) {
        fatal("%s", err.text);
    }
    json_decref(state);
}

TEST(states_that_are_newer_edited_or_torn_are_refused) {
    char* folder = new_checkpoint();
    edit_state(folder, "format", json_integer(2), true);
    expect_refused(folder, "state.json", "format 2, this program reads 1: it was written by another version");
    edit_state(folder, "format", json_integer(1), true);
    edit_state(folder, "step", json_integer(6), false);
    expect_refused(folder, "state.json", "damaged or edited (its checksum is wrong)");
    edit_state(folder, "step", json_integer(5), true);
    edit_state(folder, "checksum", json_string("0"), false);
    expect_refused(folder, "state.json", "checksum is wrong");
    edit_state(folder, "checksum", NULL, false);
    expect_refused(folder, "state.json", "checksum is wrong");
    edit_state(folder, "checksums", NULL, true);
    expect_refused(folder, "model.safetensors", "tensors are missing");
    write_text(folder, "state.json", "{\"format\": 1,");
    expect_refused(folder, "state.json", "state.json:1: ");
    write_text(folder, "state.json", "[1]");
    expect_refused(folder, "state.json", "not a JSON object");
    write_text(folder, "state.json", "");
    expect_refused(folder, "state.json", "state.json:");
    free(folder);
}

static void flip_last_byte(const char* folder, const char* file) {
    char* path = below(folder, file);
    FILE* f = fopen(path, "r+b");
    if (!f || fseek(f, -1, SEEK_END)) { fatal("%s", path); }
    const int byte = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(byte ^ 1, f);
    fclose(f);
    free(path);
}

TEST(damaged_tensors_are_named) {
    char* folder = new_checkpoint();
    flip_last_byte(folder, "model.safetensors");
    expect_refused(folder, "model.safetensors", "tensor transformer.ln_f.bias is damaged");
    flip_last_byte(folder, "model.safetensors");
    flip_last_byte(folder, "optimizer.safetensors");
    expect_refused(folder, "optimizer.safetensors", "tensor v.ln_f.bias is damaged");
    char* path = below(folder, "optimizer.safetensors");
    EXPECT(truncate(path, 5000) == 0);
    expect_refused(folder, "optimizer.safetensors", "cut short");
    free(path);
    free(folder);
}

TEST(the_newest_that_is_whole_is_taken) {
    GPT2 g = open_model(C);
    json_t* state = NULL;
    char* out = new_folder();
    EXPECT(checkpoint_newest(out, &state) == NULL);
    for (long long step = 1; step <= 3; step++) { free(save(out, &g, step, 0)); }
    char *path = checkpoint_newest(out, &state), *third = below(out, "step_00000003"),
         *second = below(out, "step_00000002");
    EXPECT(!strcmp(path, third) && json_integer_value(json_object_get(state, "step")) == 3);
    free(path);
    json_decref(state);
    flip_last_byte(third, "optimizer.safetensors");
    EXPECT_DEATH(0, "tensor v.ln_f.bias is damaged (its checksum is wrong); trying the checkpoint before it",
                 path = checkpoint_newest(out, &state);
                 exit(strcmp(path, second) || json_integer_value(json_object_get(state, "step")) != 2));
    flip_last_byte(second, "model.safetensors");
    char* first = below(out, "step_00000001");
    flip_last_byte(first, "state.json");
    write_text(first, "state.json", "{}");
    EXPECT_DEATH(EXIT_RUNTIME, "none of its 3 checkpoints can be read", checkpoint_newest(out, &state));
    free(first);
    free(second);
    free(third);
    free(out);
    gpt2_free(&g);
}

// ---------------------------------------------------------------------------------------------------------------------
// Hugging Face folders

typedef struct {
    const char *prefix, *type;
    int files;             // into which the tensors are dealt
    bool extras;           // mask buffers and the classifier's weight beside them
    const char *left_out, *with_nan, *with_shape; // tensors, by name
} FolderOptions;

// The bytes of a tensor in another type; exact for what fill_weights makes.
static size_t convert(void* out, const float* x, size_t n, const char* type) {
    const bool half = !strcmp(type, "F16");
    if (!strcmp(type, "F32")) { memcpy(out, x, n * sizeof *x); return n * sizeof *x; }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        const uint32_t exponent = bits >> 23 & 255;
        ((uint16_t*)out)[i] =
            (uint16_t)(!half ? bits >> 16
                             : (bits >> 31 << 15) | (exponent ? (exponent - 112) << 10 | (bits >> 13 & 1023) : 0));
    }
    return n * sizeof(uint16_t);
}

static void must(bool ok, const Error* err) {
    if (!ok) { fatal("%s", err->text); }
}

static void write_part(const char* folder, const GPT2* g, const FolderOptions* o, int part, json_t* map) {
    Error err;
    SafeTensorsWriter w;
    char *file =
             o->files > 1 ? format("model-%05d-of-%05d.safetensors", part + 1, o->files) : format("model.safetensors"),
         *path = below(folder, file);
    TensorBuffers b = tensor_buffers(&g->params_table);
    const TensorBlock block = {o->prefix, g->masters, true};
    const size_t mask[4] = {1, 1, MAX_T, MAX_T};
    must(safetensors_create(&w, path, &err), &err);
    for (int pass = 0; pass < 2; pass++) { // declare, write
        int at = 0;
        for (int i = 0; i < g->params_table.count; i++) {
            const Tensor* t = &g->params_table.row[i];
            for (int l = 0; l < t->layers; l++, at++) {
                char *name = tensor_file_name(t, l, o->prefix), *bare = name + strlen(o->prefix);
                size_t shape[2], bytes;
                const int dims = tensor_file_shape(t, true, shape);
                if (o->with_shape && !strcmp(bare, o->with_shape)) {
                    size_t swap = shape[0];
                    shape[0] = shape[1], shape[1] = swap;
                }
                if (at % o->files != part || (o->left_out && !strcmp(bare, o->left_out))) { free(name); continue; }
                if (pass == 0) {
                    must(safetensors_declare(&w, name, o->type, shape, dims, &err), &err);
                    json_object_set_new(map, name, json_string(file));
                } else {
                    const size_t n = tensor_fetch(&b, t, l, &block);
                    if (o->with_nan && !strcmp(bare, o->with_nan)) { b.file[3] = NAN; }
                    bytes = convert(b.ours, b.file, n, o->type);
                    must(safetensors_write(&w, name, b.ours, bytes, &err), &err);
                }
                free(name);
            }
        }
        static const unsigned char ones[MAX_T * MAX_T] = {1};
        static const float head[V * C] = {7};
        const size_t classifier[2] = {V, C};
        if (!o->extras || part) { continue; }
        must(pass ? safetensors_write(&w, "h.0.attn.bias", ones, sizeof ones, &err)
                  : safetensors_declare(&w, "h.0.attn.bias", "U8", mask, 4, &err),
             &err);
        must(pass ? safetensors_write(&w, "lm_head.weight", head, sizeof head, &err)
                  : safetensors_declare(&w, "lm_head.weight", "F32", classifier, 2, &err),
             &err);
    }
    must(safetensors_finish(&w, &err), &err);
    tensor_buffers_free(&b);
    free(path);
    free(file);
}

// A folder as transformers would save the model, with these peculiarities; the caller frees the path.
static char* write_folder(const GPT2* g, const FolderOptions* o) {
    Error err;
    char* folder = new_folder();
    json_t* map = json_object();
    for (int part = 0; part < o->files; part++) { write_part(folder, g, o, part, map); }
    json_t* index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    if (o->files > 1) { must(json_save(folder, "model.safetensors.index.json", index, &err), &err); }
    must(hf_save_config(folder, &g->config, -1, &err), &err);
    json_decref(index);
    return folder;
}

TEST(folders_of_all_kinds_give_the_same_weights) {
    static const FolderOptions kinds[] = {
        {"transformer.", "F32", 1, false, NULL, NULL, NULL}, {"", "F32", 1, false, NULL, NULL, NULL},
        {"", "F32", 1, true, NULL, NULL, NULL},              {"transformer.", "F16", 1, false, NULL, NULL, NULL},
        {"transformer.", "BF16", 1, true, NULL, NULL, NULL}, {"transformer.", "F32", 2, true, NULL, NULL, NULL},
        {"", "BF16", 3, false, NULL, NULL, NULL}};
    Error err;
    GPT2 g = open_model(C);
    fill_weights(&g);
    for (int i = 0; i < 7; i++) {
        GPT2 h = open_model(C);
        GPT2Config shape;
        char* folder = write_folder(&g, &kinds[i]);
        EXPECT(hf_load_config(folder, true, &shape, &err) && !memcmp(&shape, &g.config, sizeof shape));
        if (!hf_load_weights(&h, folder, &err)) { TEST_FAIL("kind %d: %s", i, err.text); }
        if (!same_weights(&g, &h)) { TEST_FAIL("kind %d has other weights", i); }
        free(folder);
        gpt2_free(&h);
    }
    gpt2_free(&g);
}

static void expect_weights_refused(const FolderOptions* o, const char* file, const char* words) {
    Error err = {""};
    GPT2 g = open_model(C), h = open_model(C);
    fill_weights(&g);
    char *folder = write_folder(&g, o), *path = below(folder, file);
    if (hf_load_weights(&h, folder, &err) || !strstr(err.text, path) || !strstr(err.text, words)) {
        TEST_FAIL("no '%s' but '%s'", words, err.text);
    }
    free(path);
    free(folder);
    gpt2_free(&g);
    gpt2_free(&h);
}

TEST(weights_that_do_not_fit_are_named) {
    const FolderOptions missing = {"", "F32", 1, false, "h.1.mlp.c_fc.bias", NULL, NULL};
    expect_weights_refused(&missing, "model.safetensors", "tensor transformer.h.1.mlp.c_fc.bias is missing");
    const FolderOptions turned = {"transformer.", "F32", 1, false, NULL, NULL, "h.0.attn.c_attn.weight"};
    expect_weights_refused(
        &turned, "model.safetensors",
        "tensor transformer.h.0.attn.c_attn.weight is (24,8) in 2 dimensions, the model's is (8,24) in 2");
    const FolderOptions nan = {"transformer.", "F32", 1, false, NULL, "h.1.ln_1.weight", NULL};
    expect_weights_refused(&nan, "model.safetensors", "tensor transformer.h.1.ln_1.weight: element 3 is not finite");
    const FolderOptions nan_in_part = {"transformer.", "BF16", 2, false, NULL, "wpe.weight", NULL};
    expect_weights_refused(&nan_in_part, "model-00002-of-00002.safetensors",
                           "tensor transformer.wpe.weight: element 3 is not finite");
}

TEST(a_model_of_another_size_is_refused) {
    Error err;
    GPT2 large = open_model(2 * C);
    TrainState s = state_at(0);
    char* folder = new_checkpoint();
    EXPECT(!hf_load_weights(&large, folder, &err));
    EXPECT(strstr(
        err.text,
        "model.safetensors: tensor transformer.wte.weight is (11,8) in 2 dimensions, the model's is (11,16) in 2"));
    json_t* state = checkpoint_verify(folder, &err);
    EXPECT(state && !checkpoint_load(&large, &s, folder, state, &err) && strstr(err.text, "transformer.wte.weight"));
    json_decref(state);
    free(folder);
    gpt2_free(&large);
}

TEST(parts_that_are_missing_are_named) {
    const FolderOptions parts = {"transformer.", "F32", 2, false, NULL, NULL, NULL};
    Error err;
    GPT2 g = open_model(C);
    char *folder = write_folder(&g, &parts), *part = below(folder, "model-00002-of-00002.safetensors");
    EXPECT(remove(part) == 0);
    EXPECT(!hf_load_weights(&g, folder, &err) && strstr(err.text, part) && strstr(err.text, "cannot open"));
    char* empty = new_folder();
    EXPECT(!hf_load_weights(&g, empty, &err) && strstr(err.text, empty) &&
           strstr(err.text, "neither model.safetensors nor"));
    free(empty);
    free(part);
    free(folder);
    gpt2_free(&g);
}

// ---------------------------------------------------------------------------------------------------------------------
// config.json

static const char PLAIN[] = "\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2";

static void expect_config(const char* entries, const char* words) { // words NULL: it is accepted
    Error err = {""};
    GPT2Config m;
    char *folder = new_folder(), *text = format("{%s}", entries), *path = below(folder, "config.json");
    write_text(folder, "config.json", text);
    const bool ok = hf_load_config(folder, true, &m, &err);
    if (ok != !words || (words && (!strstr(err.text, folder) || !strstr(err.text, words)))) {
        TEST_FAIL("%s: '%s'", text, ok ? "accepted" : err.text);
    }
    if (ok) {
        EXPECT(m.vocab_size == 11 && m.max_seq_len == 6 && m.channels == 8 && m.num_layers == 2 && m.num_heads == 2 &&
               m.padded_vocab_size == 128);
    }
    free(path);
    free(text);
    free(folder);
}

static void expect_setting(const char* setting, const char* words) {
    char* entries = format("%s, %s", PLAIN, setting);
    expect_config(entries, words);
    free(entries);
}

TEST(settings_that_make_another_model_are_refused) {
    expect_config(PLAIN, NULL);
    expect_setting("\"activation_function\": \"gelu_new\", \"n_inner\": null, \"tie_word_embeddings\": true, "
                   "\"layer_norm_epsilon\": 1e-05",
                   NULL);
    expect_setting("\"n_inner\": 32, \"n_ctx\": 6, \"unknown\": [1], \"model_type\": \"gpt2\", "
                   "\"scale_attn_by_inverse_layer_idx\": false",
                   NULL);
    expect_setting("\"activation_function\": \"relu\"",
                   "config.json: activation_function is \"relu\": this program's GPT-2 has \"gelu_new\"");
    expect_setting("\"n_inner\": 16", "config.json: n_inner is 16: this program's GPT-2 has 32");
    expect_setting("\"tie_word_embeddings\": false", "config.json: tie_word_embeddings is false");
    expect_setting("\"model_type\": \"llama\"", "config.json: model_type is \"llama\"");
    expect_setting("\"layer_norm_epsilon\": 1e-06", "config.json: layer_norm_epsilon is ");
    expect_setting("\"scale_attn_weights\": false", "config.json: scale_attn_weights is false");
    expect_setting("\"scale_attn_by_inverse_layer_idx\": true", "config.json: scale_attn_by_inverse_layer_idx is true");
    expect_setting("\"n_head\": 2", "config.json:1: "); // twice
}

TEST(shapes_that_cannot_be_are_refused) {
    expect_config("", "config.json: vocab_size is missing or not a size: not a GPT-2?");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2",
                  "config.json: n_head is missing");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": \"8\", \"n_layer\": 2, \"n_head\": 2",
                  "config.json: n_embd is missing or not a size");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8.0, \"n_layer\": 2, \"n_head\": 2",
                  "config.json: n_embd is missing or not a size");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 0, \"n_head\": 2",
                  "config.json: n_layer is missing or not a size");
    expect_config("\"vocab_size\": 11, \"n_positions\": 99999999999, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2",
                  "config.json: n_positions is");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 3",
                  "8 channels cannot be shared by 3 heads");
    expect_config("\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 514, \"n_layer\": 2, \"n_head\": 2",
                  "a head of 257 channels is too large");
    expect_config("\"vocab_size\": 65537, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2",
                  "too large");
    expect_config("\"vocab_size\": 11, ", "config.json:1: ");
}

TEST(paths_that_are_no_folder_are_named) {
    Error err;
    GPT2Config m;
    char *folder = new_folder(), *file = below(folder, "file"), *none = below(folder, "none");
    write_text(folder, "file", "x");
    EXPECT(!hf_load_config(none, true, &m, &err) && strstr(err.text, none) &&
           strstr(err.text, "there is no such folder"));
    EXPECT(!hf_load_config(file, true, &m, &err) && strstr(err.text, file) && strstr(err.text, "not a folder"));
    EXPECT(!hf_load_config(folder, true, &m, &err) && strstr(err.text, "config.json: there is no such file"));
    free(none);
    free(file);
    free(folder);
}

TEST(what_is_written_is_what_transformers_wants) {
    Error err;
    GPT2 g = open_model(C);
    char* folder = new_folder();
    EXPECT(hf_save_config(folder, &g.config, 10, &err));
    json_t *config = json_load_from(folder, "config.json", &err),
           *generation = json_load_from(folder, "generation_config.json", &err);
    EXPECT(!strcmp(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)), "GPT2LMHeadModel"));
    EXPECT(!strcmp(json_string_value(json_object_get(config, "model_type")), "gpt2") &&
           json_is_null(json_object_get(config, "n_inner")));
    EXPECT(json_integer_value(json_object_get(config, "vocab_size")) == V &&
           json_integer_value(json_object_get(config, "n_positions")) == MAX_T);
    EXPECT(json_is_true(json_object_get(config, "tie_word_embeddings")) &&
           json_integer_value(json_object_get(config, "eos_token_id")) == 10);
    EXPECT(json_integer_value(json_object_get(generation, "eos_token_id")) == 10 &&
           json_is_true(json_object_get(generation, "do_sample")));
    json_decref(config);
    json_decref(generation);
    EXPECT(hf_save_config(folder, &g.config, V, &err)); // an id that the model does not have
    config = json_load_from(folder, "config.json", &err);
    EXPECT(json_is_null(json_object_get(config, "eos_token_id")));
    json_decref(config);
    free(folder);
    gpt2_free(&g);
}

TEST(matrices_are_turned_for_the_file_and_padding_stays_out) {
    static const FolderOptions plain = {"transformer.", "F32", 1, false, NULL, NULL, NULL};
    Error err;
    SafeTensors s;
    GPT2 g = open_model(C);
    fill_weights(&g);
    for (int i = V * C; i < 128 * C; i++) { g.masters[i] = 9; } // padding of wte, which must not be written
    char *folder = write_folder(&g, &plain), *path = below(folder, "model.safetensors");
    must(safetensors_open(&s, path, &err), &err);
    EXPECT(s.count == 4 + 12 * L);
    const SafeTensor *wte = safetensors_find(&s, "transformer.wte.weight"),
                     *fc = safetensors_find(&s, "transformer.h.1.mlp.c_fc.weight");
    EXPECT(wte && wte->dims == 2 && wte->shape[0] == V && wte->shape[1] == C && fc && fc->shape[0] == C &&
           fc->shape[1] == 4 * C);
    float file[4 * C * C];
    must(safetensors_read_float(&s, fc, 0, file, 4 * C * C, &err), &err);
    const floatX* ours = params_at(&g, 1).fcw; // (4C,C)
    for (int o = 0; o < 4 * C; o++) {
        for (int c = 0; c < C; c++) { EXPECT(file[c * 4 * C + o] == to_float(ours[o * C + c])); }
    }
    safetensors_close(&s);
    GPT2 h = open_model(C);
    must(hf_load_weights(&h, folder, &err), &err);
    for (int i = V * C; i < 128 * C; i++) { EXPECT(h.masters[i] == 0); }
    free(path);
    free(folder);
    gpt2_free(&g);
    gpt2_free(&h);
}

TEST_MAIN()
