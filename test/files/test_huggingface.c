// Hugging Face folders: read in every form that transformers saves, refused with the file and the tensor in the
// message, and written as transformers reads them.
#include "llmc/files/model_file.h"
#include "test/files/small_model.h"
#include "test/test.h"

// ---------------------------------------------------------------------------------------------------------------------
// Hugging Face folders

typedef struct {
    const char *prefix, *type;
    int files;             // into which the tensors are dealt
    int extras;            // 1: mask buffers and the classifier's weight beside them; 2: another weight than wte;
                           // 3: a row of wte less
    const char *left_out, *with_nan, *with_shape; // tensors, by name; the last is turned, or a column
} FolderOptions;

// Converts a tensor to another type and returns its bytes; exact for the numbers of fill_weights().
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

static void write_part(const char* folder, const Model* m, const FolderOptions* o, int part, json_t* map) {
    Error err;
    SafeTensorsWriter w;
    char *file =
             o->files > 1 ? format("model-%05d-of-%05d.safetensors", part + 1, o->files) : format("model.safetensors"),
         *path = below(folder, file);
    TensorBuffers b = tensor_buffers(&m->g.params_table);
    const TensorBlock block = {.prefix = o->prefix, .data = m->o.masters, .hf_layout = true};
    const size_t mask[4] = {1, 1, MAX_T, MAX_T};
    must(safetensors_create(&w, path, &err), &err);
    for (int pass = 0; pass < 2; pass++) { // declare, write
        int at = 0;
        for (int i = 0; i < m->g.params_table.count; i++) {
            const Tensor* t = &m->g.params_table.row[i];
            for (int l = 0; l < t->layers; l++, at++) {
                char *name = tensor_file_name(t, l, o->prefix), *bare = name + strlen(o->prefix);
                size_t shape[2], bytes;
                int dims = tensor_file_shape(t, true, shape);
                if (o->with_shape && !strcmp(bare, o->with_shape)) {
                    const size_t rows = shape[0];
                    shape[0] = dims == 1 ? rows : shape[1];
                    shape[1] = dims == 1 ? 1 : rows;
                    dims = 2;
                }
                if (at % o->files != part || (o->left_out && !strcmp(bare, o->left_out))) { free(name); continue; }
                if (pass == 0) {
                    safetensors_declare(&w, name, o->type, shape, dims,
                                        t->used_rows * t->cols * (strcmp(o->type, "F32") ? 2 : 4));
                    json_object_set_new(map, name, json_string(file));
                } else {
                    const size_t n = tensor_fetch(m->g.backend, &b, t, l, &block);
                    if (o->with_nan && !strcmp(bare, o->with_nan)) { b.file[3] = NAN; }
                    bytes = convert(b.ours, b.file, n, o->type);
                    must(safetensors_write(&w, b.ours, bytes, &err), &err);
                }
                free(name);
            }
        }
        static const unsigned char ones[MAX_T * MAX_T] = {1};
        tensor_fetch(m->g.backend, &b, &m->g.params_table.row[0], 0, &block); // wte
        if (o->extras == 2) { b.file[V * C - 1] += 1; }
        const size_t classifier[2] = {o->extras == 3 ? V - 1 : V, C}, bytes = classifier[0] * C * sizeof *b.file;
        if (!o->extras || part) { continue; }
        if (pass == 0) {
            safetensors_declare(&w, "h.0.attn.bias", "U8", mask, 4, sizeof ones);
            safetensors_declare(&w, "lm_head.weight", "F32", classifier, 2, bytes);
        } else {
            must(safetensors_write(&w, ones, sizeof ones, &err), &err);
            must(safetensors_write(&w, b.file, bytes, &err), &err);
        }
    }
    must(safetensors_finish(&w, NULL, &err), &err);
    tensor_buffers_free(&b);
    free(path);
    free(file);
}

// Writes a folder as transformers would save the model, with these options; the caller frees the path.
static char* write_folder(const Model* m, const FolderOptions* o) {
    Error err;
    char* folder = new_folder();
    json_t* map = json_object();
    for (int part = 0; part < o->files; part++) { write_part(folder, m, o, part, map); }
    json_t* index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    if (o->files > 1) { write_json(folder, "model.safetensors.index.json", index); }
    must(hf_save_config(folder, &m->g.config, -1, "float32", &err), &err);
    json_decref(index);
    return folder;
}

TEST(folders_of_all_kinds_give_the_same_weights) {
    static const FolderOptions kinds[] = {
        {"transformer.", "F32", 1, false, NULL, NULL, NULL}, {"", "F32", 1, false, NULL, NULL, NULL},
        {"", "F32", 1, true, NULL, NULL, NULL},              {"transformer.", "F16", 1, false, NULL, NULL, NULL},
        {"transformer.", "BF16", 1, true, NULL, NULL, NULL}, {"transformer.", "F32", 2, true, NULL, NULL, NULL},
        {"", "BF16", 3, false, NULL, NULL, NULL},            {"", "F32", 1, true, "wte.weight", NULL, NULL}};
    Error err;
    Model* m = open_model(C);
    fill_weights(m);
    for (int i = 0; i < 8; i++) {
        Model* h = open_model(C);
        GPT2Config shape;
        char* folder = write_folder(m, &kinds[i]);
        EXPECT(hf_load_config(folder, true, &shape, &err) && !memcmp(&shape, &m->g.config, sizeof shape));
        if (!model_file_load(&h->g, &h->o, folder, &err)) { TEST_FAIL("kind %d: %s", i, err.text); }
        if (!same_weights(m, h)) { TEST_FAIL("kind %d has other weights", i); }
        free(folder);
        close_model(h);
    }
    close_model(m);
}

static void expect_weights_refused(const FolderOptions* o, const char* file, const char* words) {
    Error err = {.text = ""};
    Model *m = open_model(C), *h = open_model(C);
    fill_weights(m);
    char *folder = write_folder(m, o), *path = below(folder, file);
    if (model_file_load(&h->g, &h->o, folder, &err) || !strstr(err.text, path) || !strstr(err.text, words)) {
        TEST_FAIL("no '%s' but '%s'", words, err.text);
    }
    free(path);
    free(folder);
    close_model(m);
    close_model(h);
}

TEST(weights_that_do_not_fit_are_named) {
    const FolderOptions missing = {"", "F32", 1, false, "h.1.mlp.c_fc.bias", NULL, NULL};
    expect_weights_refused(&missing, "model.safetensors", "tensor transformer.h.1.mlp.c_fc.bias is missing");
    const FolderOptions turned = {"transformer.", "F32", 1, false, NULL, NULL, "h.0.attn.c_attn.weight"};
    expect_weights_refused(
        &turned, "model.safetensors",
        "tensor transformer.h.0.attn.c_attn.weight is (24,8), the model's is (8,24)");
    const FolderOptions column = {"transformer.", "F32", 1, false, NULL, NULL, "h.1.ln_2.bias"};
    expect_weights_refused(
        &column, "model.safetensors",
        "tensor transformer.h.1.ln_2.bias is (8,1), the model's is (8)");
    const FolderOptions nan = {"transformer.", "F32", 1, false, NULL, "h.1.ln_1.weight", NULL};
    expect_weights_refused(&nan, "model.safetensors", "tensor transformer.h.1.ln_1.weight: element 3 is not finite");
    const FolderOptions nan_in_part = {"transformer.", "BF16", 2, false, NULL, "wpe.weight", NULL};
    expect_weights_refused(&nan_in_part, "model-00002-of-00002.safetensors",
                           "tensor transformer.wpe.weight: element 3 is not finite");
}

TEST(a_classifier_that_is_not_wte_is_refused) {
    const FolderOptions other = {"transformer.", "F32", 1, 2, NULL, NULL, NULL};
    expect_weights_refused(&other, "model.safetensors",
                           "tensor lm_head.weight differs from transformer.wte.weight: this program's GPT-2 has one");
    const FolderOptions bare = {"", "F32", 1, 2, NULL, NULL, NULL};
    expect_weights_refused(&bare, "model.safetensors", "tensor lm_head.weight differs from wte.weight");
    const FolderOptions shorter = {"transformer.", "F32", 1, 3, NULL, NULL, NULL};
    expect_weights_refused(&shorter, "model.safetensors", "tensor lm_head.weight differs from transformer.wte.weight");
}

TEST(parts_that_are_missing_are_named) {
    const FolderOptions parts = {"transformer.", "F32", 2, false, NULL, NULL, NULL};
    Error err;
    Model* m = open_model(C);
    char *folder = write_folder(m, &parts), *part = below(folder, "model-00002-of-00002.safetensors");
    EXPECT(remove(part) == 0);
    EXPECT(!model_file_load(&m->g, &m->o, folder, &err) && strstr(err.text, part) && strstr(err.text, "cannot open"));
    char* empty = new_folder();
    EXPECT(!model_file_load(&m->g, &m->o, empty, &err) && strstr(err.text, empty) &&
           strstr(err.text, "config.json: no such file"));
    free(empty);
    free(part);
    free(folder);
    close_model(m);
}

TEST(layers_that_config_does_not_count_are_refused) {
    static const FolderOptions kinds[] = {{"transformer.", "F32", 1, false, NULL, NULL, NULL},
                                          {"", "F32", 2, true, NULL, NULL, NULL}};
    Error err;
    ModelFile file;
    Model* m = open_model(C);
    GPT2Config shape = m->g.config;
    shape.num_layers = 1;
    for (int i = 0; i < 2; i++) {
        char* folder = write_folder(m, &kinds[i]);
        EXPECT(model_file_open(&file, folder, true, &err));
        model_file_close(&file);
        EXPECT(hf_save_config(folder, &shape, -1, "float32", &err));
        EXPECT(!model_file_open(&file, folder, true, &err) && strstr(err.text, folder) &&
               strstr(err.text, "h.1.") && strstr(err.text, "n_layer in config.json is only 1"));
        free(folder);
    }
    close_model(m);
}

// ---------------------------------------------------------------------------------------------------------------------
// config.json

static const char PLAIN[] = "\"vocab_size\": 11, \"n_positions\": 6, \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2";

static void expect_config(const char* entries, const char* words) { // words NULL: it is accepted
    Error err = {.text = ""};
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
    expect_setting("\"activation_function\": \"gelu_pytorch_tanh\", \"pruned_heads\": {}, "
                   "\"add_cross_attention\": false, \"reorder_and_upcast_attn\": true, \"attn_pdrop\": 0.1",
                   NULL);
    expect_setting("\"activation_function\": \"relu\"",
                   "config.json: activation_function is \"relu\": this program's GPT-2 has \"gelu_new\"");
    expect_setting("\"activation_function\": \"gelu\"", "config.json: activation_function is \"gelu\"");
    expect_setting("\"activation_function\": null", "config.json: activation_function is null");
    expect_setting("\"add_cross_attention\": true", "config.json: add_cross_attention is true");
    expect_setting("\"pruned_heads\": {\"0\": [1]}", "config.json: pruned_heads is {");
    expect_setting("\"scale_attn_weights\": null", "config.json: scale_attn_weights is null"); // false, in Python
    expect_setting("\"tie_word_embeddings\": null", "config.json: tie_word_embeddings is null");
    expect_setting("\"quantization_config\": {\"bits\": 8}", "config.json: quantization_config is {");
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
    EXPECT(!hf_load_config(folder, true, &m, &err) && strstr(err.text, "config.json: no such file: give a folder"));
    char* config = below(folder, "config.json");
    write_text(folder, "config.json", "{");
    EXPECT(truncate(config, (off_t)1 << 30) == 0); // takes no room on the disk
    EXPECT(!hf_load_config(folder, true, &m, &err) && strstr(err.text, "config.json: more than 64 MiB"));
    free(config);
    free(none);
    free(file);
    free(folder);
}

TEST(what_is_written_is_what_transformers_wants) {
    Error err;
    Model* m = open_model(C);
    char* folder = new_folder();
    EXPECT(hf_save_config(folder, &m->g.config, 10, "float32", &err));
    json_t *config = json_read_in(folder, "config.json", &err),
           *generation = json_read_in(folder, "generation_config.json", &err);
    EXPECT(!strcmp(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)), "GPT2LMHeadModel"));
    EXPECT(!strcmp(json_string_value(json_object_get(config, "model_type")), "gpt2") &&
           json_is_null(json_object_get(config, "n_inner")));
    EXPECT(json_integer_value(json_object_get(config, "vocab_size")) == V &&
           json_integer_value(json_object_get(config, "n_positions")) == MAX_T &&
           json_integer_value(json_object_get(config, "n_ctx")) == MAX_T);
    EXPECT(json_is_true(json_object_get(config, "tie_word_embeddings")) &&
           json_integer_value(json_object_get(config, "eos_token_id")) == 10);
    EXPECT(json_integer_value(json_object_get(generation, "eos_token_id")) == 10 &&
           json_is_true(json_object_get(generation, "do_sample")));
    json_decref(config);
    json_decref(generation);
    EXPECT(hf_save_config(folder, &m->g.config, V, "float32", &err)); // an id that the model does not have
    config = json_read_in(folder, "config.json", &err);
    EXPECT(json_is_null(json_object_get(config, "eos_token_id")));
    json_decref(config);
    free(folder);
    close_model(m);
}

TEST(matrices_are_turned_for_the_file_and_padding_stays_out) {
    static const FolderOptions plain = {"transformer.", "F32", 1, false, NULL, NULL, NULL};
    Error err;
    SafeTensors s;
    Model* m = open_model(C);
    fill_weights(m);
    for (int i = V * C; i < 128 * C; i++) { m->o.masters[i] = 9; } // padding of wte, which must not be written
    char *folder = write_folder(m, &plain), *path = below(folder, "model.safetensors");
    must(safetensors_open(&s, path, &err), &err);
    EXPECT(s.count == 4 + 12 * L);
    const SafeTensor *wte = safetensors_find(&s, "transformer.wte.weight"),
                     *fc = safetensors_find(&s, "transformer.h.1.mlp.c_fc.weight");
    EXPECT(wte && wte->dims == 2 && wte->shape[0] == V && wte->shape[1] == C && fc && fc->shape[0] == C &&
           fc->shape[1] == 4 * C);
    float file[4 * C * C];
    must(safetensors_read_float(&s, fc, file, &err), &err);
    const float* ours = (const float*)params_at(&m->g, 1).fcw; // (4C,C)
    for (int o = 0; o < 4 * C; o++) {
        for (int c = 0; c < C; c++) { EXPECT(file[c * 4 * C + o] == ours[o * C + c]); }
    }
    safetensors_close(&s);
    Model* h = open_model(C);
    must(model_file_load(&h->g, &h->o, folder, &err), &err);
    for (int i = V * C; i < 128 * C; i++) { EXPECT(h->o.masters[i] == 0); }
    free(path);
    free(folder);
    close_model(m);
    close_model(h);
}

TEST_MAIN()
