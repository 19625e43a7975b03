// Models in the forms of transformers, llm.c and llama.cpp: all are read as the same weights, what is exported is what
// the others write, bit for bit, and damaged files are refused with the file in the message.
#include "test/base/synced.h"
#include "llmc/commands/commands.h"
#include "llmc/files/model_file.h"
#include "llmc/train/requests.h"
#include "test/files/small_save.h"
#include "test/test.h"
#include <sys/file.h>

#define MODELS "test/golden/models/"

// Returns all weights of a folder or file; the caller frees them. NULL: it is refused.
static float* weights_of(const char* path, size_t* n, Error* err) {
    ModelFile m;
    size_t at = 0;
    if (!model_file_open(&m, path, true, err)) { return NULL; }
    float* all = alloc_or_die(m.table.size, sizeof *all, "weights");
    TensorBuffers b = tensor_buffers(&m.table);
    bool ok = true;
    for (int i = 0; i < m.table.count; i++) {
        const size_t elements = m.table.row[i].used_rows * m.table.row[i].cols;
        for (int l = 0; ok && l < m.table.row[i].layers; l++, at += elements) {
            ok = model_file_read(&m, &b, i, l, err);
            if (ok) { memcpy(all + at, b.ours, elements * sizeof *all); }
        }
    }
    tensor_buffers_free(&b);
    model_file_close(&m);
    *n = at;
    if (ok) { return all; }
    free(all);
    return NULL;
}

static void expect_same_weights(const char* a, const char* b) {
    Error err = {.text = ""};
    size_t n = 0, m = 0;
    float *x = weights_of(a, &n, &err), *y = weights_of(b, &m, &err);
    if (!x || !y || n != m || memcmp(x, y, n * sizeof *x)) { TEST_FAIL("%s and %s differ: %s", a, b, err.text); }
    free(x);
    free(y);
}

static void expect_same_file(const char* a, const char* b) {
    Error err;
    size_t n = 0, m = 0;
    char *x = read_file(a, &n, &err), *y = read_file(b, &m, &err);
    if (!x || !y || n != m || memcmp(x, y, n)) { TEST_FAIL("%s and %s differ", a, b); }
    free(x);
    free(y);
}

// Runs `export FORMAT --init FROM --out TO --dtype TYPE --tokenizer NAME`; tokenizer NULL: not given.
static void run_export(const char* as, const char* from, const char* to, const char* type, const char* tokenizer) {
    char* argv[] = {(char*)as, "--init", (char*)from, "--out", (char*)to, "--dtype", (char*)type, "--tokenizer",
                    (char*)tokenizer};
    Config c;
    config_defaults(&c);
    config_parse(&c, EXPORT, "export", tokenizer ? 9 : 7, argv);
    EXPECT(export_command(&c) == EXIT_DONE && is_all_synced());
}

// Exports to a new path, which the caller frees.
static char* exported(const char* as, const char* from, const char* type, const char* tokenizer) {
    char *folder = new_folder(), *to = below(folder, "exported");
    run_export(as, from, to, type, tokenizer);
    EXPECT(!folder_has(folder, ".tmp-exported"));
    free(folder);
    return to;
}

TEST(files_of_other_programs_have_the_same_weights) {
    static const char* const others[] = {"bf16_sharded", "f16_bare", "f32_head",  "llmc_f32.bin",
                                         "llmc_bf16.bin", "f16.gguf", "bf16.gguf"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char* path = below(MODELS, others[i]);
        expect_same_weights(MODELS "f32", path);
        free(path);
    }
}

TEST(llmc_files_are_those_of_llmc) {
    char *f32 = exported("llmc", MODELS "f32", "fp32", NULL), *bf16 = exported("llmc", MODELS "f16_bare", "bf16", NULL);
    expect_same_file(f32, MODELS "llmc_f32.bin");
    expect_same_file(bf16, MODELS "llmc_bf16.bin");
    free(f32);
    free(bf16);
}

// Random weights in place of the golden ones: no type but F32 holds them.
TEST(round_trips_change_no_bit) {
    char* hf = exported("hf", "test/golden/gpt2", "fp32", "bytes");
    expect_same_weights(hf, "test/golden/gpt2");
    static const struct { const char *as, *type; } kinds[] = {
        {"llmc", "fp32"}, {"gguf", "fp32"}, {"llmc", "bf16"}, {"hf", "bf16"}, {"hf", "fp16"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *there = exported(kinds[i].as, hf, kinds[i].type, "bytes"), *back = exported("hf", there, "fp32", "bytes"),
             *again = exported(kinds[i].as, back, kinds[i].type, "bytes");
        expect_same_weights(there, back);
        if (i < 2) { expect_same_weights(there, hf); }
        if (!is_directory(there)) { expect_same_file(there, again); }
        else { expect_same_weights(there, again); }
        free(there);
        free(back);
        free(again);
    }
    free(hf);
}

TEST(an_exported_folder_is_complete) {
    static const char* const files[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                        "vocab.json", "merges.txt"};
    Error err;
    char* folder = exported("hf", "test/golden/gpt2", "bf16", "bytes");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) { EXPECT(folder_has(folder, files[i])); }
    json_t* config = json_read_in(folder, "config.json", &err);
    EXPECT(!strcmp(json_string_value(json_object_get(config, "torch_dtype")), "bfloat16"));
    EXPECT(json_integer_value(json_object_get(config, "eos_token_id")) == 256);
    json_decref(config);
    free(folder);
}

TEST(gguf_has_the_tokenizer_and_falls_back_to_f16) {
    Error err;
    Gguf g;
    char* path = exported("gguf", "test/golden/gpt2", "q8_0", "bytes"); // rows of 36, no multiple of 32, and of 144
    if (!gguf_open(&g, path, &err)) { fatal("%s", err.text); }
    EXPECT(gguf_pair(&g, "general.file_type")->number == 7);
    EXPECT(gguf_pair(&g, "tokenizer.ggml.eos_token_id")->number == 256);
    EXPECT(gguf_pair(&g, "general.quantization_version")->number == 2);
    EXPECT(!strcmp(gguf_pair(&g, "tokenizer.ggml.model")->text, "gpt2"));
    EXPECT(!strcmp(gguf_tensor(&g, "token_embd.weight")->type->name, "fp16"));
    EXPECT(!strcmp(gguf_tensor(&g, "blk.2.attn_qkv.bias")->type->name, "fp32"));
    EXPECT(!strcmp(gguf_tensor(&g, "position_embd.weight")->type->name, "fp32"));
    gguf_close(&g);
    free(path);
}

TEST(blocks_are_those_of_ggml) {
    static const char* const names[NUM_WEIGHT_TYPES] = {"f32", "f16", "bf16", "q8_0"}; // ggml's, of WEIGHT_TYPES
    Error err;
    SafeTensors s;
    if (!safetensors_open(&s, MODELS "blocks.safetensors", &err)) { fatal("%s", err.text); }
    const SafeTensor* x = safetensors_find(&s, "x");
    const size_t n = x->elements;
    float *in = alloc_or_die(n, sizeof *in, "x"), *back = alloc_or_die(n, sizeof *in, "x"),
          *want = alloc_or_die(n, sizeof *in, "x");
    void *bytes = alloc_or_die(n, sizeof *in, "bytes"), *ours = alloc_or_die(n, sizeof *in, "bytes");
    EXPECT(safetensors_read_float(&s, x, in, &err));
    for (int i = 0; i < NUM_WEIGHT_TYPES; i++) {
        const WeightType* t = &WEIGHT_TYPES[i];
        char* name = format("%s.x", names[i]);
        test_case = names[i];
        EXPECT(safetensors_read(&s, safetensors_find(&s, names[i]), bytes, &err));
        EXPECT(safetensors_read_float(&s, safetensors_find(&s, name), want, &err));
        t->encode(ours, in, n);
        EXPECT(!memcmp(ours, bytes, weight_bytes(t, n)));
        t->decode(back, bytes, n);
        for (size_t k = 0; k < n; k++) { EXPECT(back[k] == want[k]); }
        for (int beyond = 0; i > 0 && beyond < 2; beyond++) { // but for fp32: the largest number, and more
            for (size_t k = 0; k < n; k++) { want[k] = t->most * (beyond ? 1.003f : 1); }
            t->encode(ours, want, n);
            t->decode(back, ours, n);
            EXPECT(beyond ? !isfinite(back[0]) : back[0] == t->most);
        }
        free(name);
    }
    test_case = NULL;
    safetensors_close(&s);
    free(in);
    free(back);
    free(want);
    free(bytes);
    free(ours);
}

// ---------------------------------------------------------------------------------------------------------------------
// refusals

// Copies a golden file with `count` bytes at `at` replaced, cut to `size` bytes (0: not); expects an error with the
// path and the words.
static void expect_refused(const char* golden, size_t at, const void* bytes, size_t count, size_t size,
                           const char* words) {
    Error err = {.text = ""};
    size_t whole, n;
    char *from = below(MODELS, golden), *text = read_file(from, &whole, &err), *folder = new_folder(),
         *path = below(folder, golden);
    if (!text) { fatal("%s", err.text); }
    memcpy(text + at, bytes, count);
    test_write(path, text, size ? size : whole);
    float* x = weights_of(path, &n, &err);
    if (x || !strstr(err.text, path) || !strstr(err.text, words)) { TEST_FAIL("no '%s' but '%s'", words, err.text); }
    free(x);
    free(path);
    free(folder);
    free(text);
    free(from);
}

// Returns where text stands in a golden file, 0 if nowhere.
static size_t place_of(const char* golden, const char* text) {
    Error err;
    size_t size;
    char *path = below(MODELS, golden), *file = read_file(path, &size, &err);
    const char* at = file ? memmem(file, size, text, strlen(text)) : NULL;
    const size_t place = at ? (size_t)(at - file) : 0;
    free(file);
    free(path);
    return place;
}

TEST(damaged_files_of_llmc_are_refused) {
    const int32_t llama = 20240803, version = 4, many = INT32_MAX, rows = 44, none = 0;
    const float nan = NAN;
    expect_refused("llmc_f32.bin", 0, &none, 4, 0, "not a model");
    expect_refused("llmc_f32.bin", 4, &version, 4, 0, "version 4");
    expect_refused("llmc_f32.bin", 8, &many, 4, 0, "too large");
    expect_refused("llmc_f32.bin", 12, &many, 4, 0, "too large");
    expect_refused("llmc_f32.bin", 16, &none, 4, 0, "L and H must be at least 1");
    expect_refused("llmc_f32.bin", 28, &rows, 4, 0, "44 rows for a vocabulary of 45");
    expect_refused("llmc_f32.bin", 28, &many, 4, 0, "rows for a vocabulary of 45");
    expect_refused("llmc_f32.bin", 0, "", 0, 12380, "12380 bytes, but its header makes 12384");
    expect_refused("llmc_f32.bin", 0, "", 0, 12385, "12385 bytes, but its header makes 12384"); // 0 ends read_file()'s
    expect_refused("llmc_f32.bin", 0, "", 0, 100, "100 bytes are too few");
    expect_refused("llmc_f32.bin", 1024 + 12, &nan, 4, 0, "tensor wte: element 3 is not finite");
    expect_refused("llmc_f32.bin", 0, &llama, 4, 0, "not a model");
}

TEST(damaged_gguf_files_are_refused) {
    const uint64_t huge = (uint64_t)1 << 63, none = 0, odd = 1, rows = 8, key_bytes = 17,
                   alignments[] = {0, 48, 1 << 17};
    const uint32_t version = 9, type = 77, dims = 9, q8_0 = 8, kind = GGUF_U64;
    const size_t tokens = place_of("f16.gguf", "tokenizer.ggml.tokens") + strlen("tokenizer.ggml.tokens"),
                 tensor = place_of("f16.gguf", "position_embd.weight") + strlen("position_embd.weight"),
                 length = place_of("f16.gguf", "gpt2.context_length"),
                 inner = place_of("f16.gguf", "feed_forward_length");
    EXPECT(tokens > 30 && tensor > 30 && length && inner);
    expect_refused("f16.gguf", 4, &version, 4, 0, "GGUF version 9");
    expect_refused("f16.gguf", 8, &huge, 8, 0, "tensors in");
    expect_refused("f16.gguf", 16, &huge, 8, 0, "pairs and");
    expect_refused("f16.gguf", length - 8, &huge, 8, 0, "a length of 9223372036854775808 bytes");
    expect_refused("f16.gguf", tokens, &type, 4, 0, "unknown type 77");
    expect_refused("f16.gguf", tokens + 4, &type, 4, 0, "an array of type 77");
    expect_refused("f16.gguf", tokens + 8, &huge, 8, 0, "values in");
    expect_refused("f16.gguf", tokens + 16, &huge, 8, 0, "a length of 9223372036854775808 bytes");
    expect_refused("f16.gguf", tensor, &dims, 4, 0, "tensor position_embd.weight: 9 dimensions");
    expect_refused("f16.gguf", tensor + 4, &huge, 8, 0, "tensor position_embd.weight: ");
    expect_refused("f16.gguf", tensor + 4, &none, 8, 0, "tensor position_embd.weight is (0,7)");
    expect_refused("f16.gguf", tensor + 12, &rows, 8, 0, "position_embd.weight is (8,8), the model's is (8,7)");
    expect_refused("f16.gguf", tensor + 20, &type, 4, 0, "tensor position_embd.weight: type 77");
    expect_refused("f16.gguf", tensor + 20, &q8_0, 4, 0, "tensor position_embd.weight: an impossible shape");
    expect_refused("f16.gguf", tensor + 24, &huge, 8, 0, "tensor position_embd.weight: ");
    expect_refused("f16.gguf", tensor + 24, &odd, 8, 0, "bytes at byte 1 of the data");
    expect_refused("f16.gguf", tensor - 1, "", 1, 0, "the name of a tensor is empty"); // a 0 in it
    expect_refused("f16.gguf", tensor - 1, "x", 1, 0, "tensor position_embd.weight is missing");
    expect_refused("f16.gguf", place_of("f16.gguf", "gpt2.embedding_length") + 25, "\0\1", 2, 0,
                   "this program's GPT-2 has 1024");
    expect_refused("f16.gguf", inner, "x", 1, 0, "gpt2.feed_forward_length is missing");
    expect_refused("f16.gguf", place_of("f16.gguf", "gpt2.block_count") + 20, "\1", 1, 0,
                   "tensor blk.1.attn_norm.bias is there, but gpt2.block_count is only 1");
    for (int i = 0; i < 3; i++) { // a pair in the place of another, which has a key longer by 4, a value shorter by 4
        char pair[8 + 17 + 4 + 8];
        memcpy(pair, &key_bytes, 8);
        memcpy(pair + 8, "general.alignment", 17);
        memcpy(pair + 25, &kind, 4);
        memcpy(pair + 29, &alignments[i], 8);
        expect_refused("f16.gguf", place_of("f16.gguf", "gpt2.embedding_length") - 8, pair, sizeof pair, 0,
                       "not a power of two up to 65536");
    }
    expect_refused("f16.gguf", 0, "", 0, 6900, "bytes at byte");
    expect_refused("f16.gguf", 0, "", 0, 1300, "goes beyond its end");
}

// Writes f16.gguf with one tensor more: token_embd's shape, and the data of `twin`. Expects that it is refused with the
// words, or (NULL) read.
static void expect_with(const char* name, const char* twin, const char* words) {
    Error err = {.text = ""};
    Gguf g;
    size_t size, n, end = 0, data = SIZE_MAX, with;
    char *text = read_file(MODELS "f16.gguf", &size, &err), *folder = new_folder(), *path = below(folder, "x.gguf");
    char* more;
    if (!text || !gguf_open(&g, MODELS "f16.gguf", &err)) { fatal("%s", err.text); }
    for (size_t i = 0; i < g.num_tensors; i++) { // where the list of tensors ends, and where the data begin
        const GgufTensor* t = &g.tensors[i];
        end = max_size(end, place_of("f16.gguf", t->name) + strlen(t->name) + 4 + 8 * (size_t)t->dims + 4 + 8);
        data = min_size(data, t->offset);
    }
    FILE* f = open_memstream(&more, &with);
    text[8]++; // the number of tensors
    fwrite(text, 1, end, f);
    gguf_put_text(f, name, strlen(name));
    gguf_put_u32(f, 2);
    gguf_put_u64(f, gguf_tensor(&g, "token_embd.weight")->shape[0]);
    gguf_put_u64(f, gguf_tensor(&g, "token_embd.weight")->shape[1]);
    gguf_put_u32(f, gguf_tensor(&g, "token_embd.weight")->ggml);
    gguf_put_u64(f, gguf_tensor(&g, twin)->offset - data);
    gguf_put_padding(f, (size_t)ftello(f));
    fwrite(text + data, 1, size - data, f);
    if (fclose(f) != 0) { fatal("no memory"); }
    test_write(path, more, with);
    float* x = weights_of(path, &n, &err);
    if (words ? x || !strstr(err.text, words) : !x) { TEST_FAIL("no '%s' but '%s'", words ? words : "", err.text); }
    gguf_close(&g);
    free(x);
    free(more);
    free(path);
    free(folder);
    free(text);
}

TEST(a_third_dimension_is_refused) { // the data would be longer than the model's tensor
    Error err;
    Gguf g;
    size_t size, data = SIZE_MAX;
    const uint32_t dims = 3;
    const uint64_t depth = 2;
    const size_t tensor = place_of("f16.gguf", "position_embd.weight") + strlen("position_embd.weight");
    char* text = read_file(MODELS "f16.gguf", &size, &err);
    if (!text || !gguf_open(&g, MODELS "f16.gguf", &err)) { fatal("%s", err.text); }
    for (size_t i = 0; i < g.num_tensors; i++) { data = min_size(data, g.tensors[i].offset); }
    memcpy(text + tensor, &dims, 4);
    memmove(text + tensor + 28, text + tensor + 20, data - tensor - 28); // there is padding in front of the data
    memcpy(text + tensor + 20, &depth, 8);
    expect_refused("f16.gguf", tensor, text + tensor, data - tensor, 0,
                   "tensor position_embd.weight is (8,7,2), the model's is (8,7)");
    gguf_close(&g);
    free(text);
}

TEST(gguf_files_of_another_model_are_refused) {
    const float epsilon = 1e-6f;
    const size_t after_key = 4, after_length = 4 + 8; // the type; of a string also its length
    const size_t kind = place_of("f16.gguf", "general.architecture") + strlen("general.architecture") + after_length,
                 norm = place_of("f16.gguf", "layer_norm_epsilon") + strlen("layer_norm_epsilon") + after_key;
    expect_refused("f16.gguf", kind, "gptj", 4, 0, "general.architecture is 'gptj': only gpt2 is read");
    expect_refused("f16.gguf", norm, &epsilon, 4, 0, "gpt2.attention.layer_norm_epsilon is not 1e-5");
    expect_with("output.weight", "token_embd.weight", NULL);
    expect_with("output.weight", "blk.0.ffn_up.weight", "tensor output.weight differs from token_embd.weight");
    expect_with("output_norm.weight", "token_embd.weight", "tensor output_norm.weight is there twice");
    char* name = format("%065d", 0);
    expect_with(name, "token_embd.weight", "the name of a tensor is empty or has more than 64 bytes");
    expect_with(name + 1, "token_embd.weight", NULL);
    free(name);
}

// Copies a golden folder of shards with text of its index replaced, of the same length.
static void expect_index_refused(const char* from, const char* to, const char* words) {
    Error err = {.text = ""};
    size_t size, n;
    char* folder = new_folder();
    char* text = read_file(MODELS "f32_head/model.safetensors.index.json", &size, &err);
    static const char* const files[] = {"config.json", "model-00001-of-00002.safetensors"};
    for (int i = 0; i < 2; i++) { // not the second shard
        char *source = below(MODELS "f32_head", files[i]), *target = below(folder, files[i]);
        char* whole = realpath(source, NULL);
        if (!whole || symlink(whole, target) != 0) { fatal("%s: cannot link", target); }
        free(whole);
        free(source);
        free(target);
    }
    char* at = text;
    while (*from && (at = strstr(at, from)) != NULL) { memcpy(at, to, strlen(to)); }
    write_text(folder, "model.safetensors.index.json", text);
    float* x = weights_of(folder, &n, &err);
    if (x || !strstr(err.text, folder) || !strstr(err.text, words)) { TEST_FAIL("no '%s' but '%s'", words, err.text); }
    free(x);
    free(text);
    free(folder);
}

TEST(an_index_names_files_of_its_folder_only) {
    expect_index_refused("", "", "model-00002-of-00002.safetensors: cannot open");
    expect_index_refused("model-00002", "../el-00002", "not the name of a file in the same folder");
    expect_index_refused("model-00002", "/odel-00002", "not the name of a file in the same folder");
    expect_index_refused("\"model-00002-of-00002.safetensors\"", "\"..\"                              ",
                         "not the name of a file in the same folder");
}

// Writes a folder with F32 tensors of these names and shapes, all zero, and expects its first tensor to be refused.
static void expect_tensors_refused(const char* const* names, int count, size_t rows, const char* type,
                                   const char* words) {
    static const char zeros[45 * 8 * 8];
    Error err = {.text = ""};
    SafeTensorsWriter w;
    SafeTensors s;
    const GPT2Config m = {.max_seq_len = 7, .vocab_size = 45, .padded_vocab_size = 128, .num_layers = 2, .num_heads = 2,
                          .channels = 8};
    const TensorTable table = gpt2_params_table(&m, 1);
    const size_t shape[2] = {rows, 8}, bytes = rows * 8 * (type[1] == '6' ? 8 : 4);
    char *folder = new_folder(), *path = below(folder, "model.safetensors");
    bool ok = safetensors_create(&w, path, &err);
    for (int i = 0; ok && i < count; i++) { safetensors_declare(&w, names[i], type, shape, 2, bytes); }
    for (int i = 0; i < count; i++) { ok = ok && safetensors_write(&w, zeros, bytes, &err); }
    if (!ok || !safetensors_finish(&w, NULL, &err) || !safetensors_open(&s, path, &err)) { fatal("%s", err.text); }
    TensorBuffers b = tensor_buffers(&table);
    if (hf_read(&s, &b, &table.row[0], 0, &err) || !strstr(err.text, path) || !strstr(err.text, words)) {
        TEST_FAIL("no '%s' but '%s'", words, err.text);
    }
    tensor_buffers_free(&b);
    safetensors_close(&s);
    free(path);
    free(folder);
}

TEST(tensors_that_do_not_fit_are_named) {
    static const char* const names[] = {"transformer.wte.weight", "wte.weight"};
    expect_tensors_refused(names, 2, 45, "F32", "tensor wte.weight is there twice");
    expect_tensors_refused(names, 1, 44, "F32", "tensor transformer.wte.weight is (44,8), the model's is ");
    expect_tensors_refused(names, 1, 45, "I64", "tensor transformer.wte.weight: weights cannot be of type I64");
    expect_tensors_refused(names + 1, 1, 45, "I32", "weights cannot be of type I32");
}

TEST(a_config_cannot_ask_for_more_memory_than_the_file_has) {
    Error err = {.text = ""};
    size_t size, n;
    char *folder = new_folder(), *config = read_file(MODELS "f32/config.json", &size, &err),
         *weights = realpath(MODELS "f32/model.safetensors", NULL), *link = below(folder, "model.safetensors");
    char* at = strstr(config, "\"n_embd\": 8,");
    if (!at || symlink(weights, link) != 0) { fatal("%s: cannot link", link); }
    char* large = format("%.*s\"n_embd\": 500%s", (int)(at - config), config, at + strlen("\"n_embd\": 8"));
    write_text(folder, "config.json", large);
    float* x = weights_of(folder, &n, &err);
    EXPECT(!x && strstr(err.text, folder) && strstr(err.text, "has 1000000 elements, all that are there only 2176"));
    free(x);
    free(large);
    free(link);
    free(weights);
    free(config);
    free(folder);
}

TEST(numbers_beyond_the_range_of_a_type_are_not_exported) {
    char *folder = new_folder(), *path = below(folder, "llmc.bin"), *to = below(folder, "exported");
    Error err;
    size_t size;
    char* file = read_file(MODELS "llmc_f32.bin", &size, &err);
    if (!file) { fatal("%s", err.text); }
    memcpy(file + LLMC_MODEL_HEADER + 12, &(float){-1e5f}, sizeof(float));
    test_write(path, file, size);
    EXPECT_DEATH(EXIT_RUNTIME, "wte of layer 0 has -100000, but fp16 ends at 65504: give another --dtype",
                 run_export("hf", path, to, "fp16", NULL));
    EXPECT(!folder_has(folder, "exported") && !folder_has(folder, ".tmp-exported"));
    run_export("hf", path, to, "bf16", NULL);
    free(file);
    free(to);
    free(path);
    free(folder);
}

TEST(nothing_is_overwritten) {
    char *path = exported("llmc", MODELS "f32", "fp32", NULL), *folder = exported("hf", MODELS "f32", "fp32", NULL);
    EXPECT_DEATH(EXIT_USAGE, "is there already", run_export("llmc", MODELS "llmc_f32.bin", path, "bf16", NULL));
    EXPECT_DEATH(EXIT_USAGE, "is there already", run_export("llmc", MODELS "llmc_f32.bin", folder, "bf16", NULL));
    expect_same_file(path, MODELS "llmc_f32.bin");
    EXPECT_DEATH(EXIT_USAGE, "export hf takes --dtype fp32|bf16|fp16",
                 run_export("hf", MODELS "f32", "x", "q8_0", NULL));
    EXPECT_DEATH(EXIT_USAGE, "needs the model's tokenizer", run_export("gguf", MODELS "f32", "x", "fp32", NULL));
    EXPECT_DEATH(EXIT_USAGE, "export takes one of", run_export("onnx", MODELS "f32", "x", "fp32", NULL));
    const int lock = open_lock(test_path(".lock-busy"));
    EXPECT_DEATH(EXIT_RUNTIME, "another export is writing it",
                 run_export("llmc", MODELS "f32", test_path("busy"), "fp32", NULL));
    close(lock);
    free(path);
    free(folder);
}

TEST(a_signal_leaves_nothing_unfinished) {
    EXPECT_DEATH(EXIT_RUNTIME, "SIGTERM came", requests_take_stops(0, "stopping"); raise(SIGTERM);
                 run_export("hf", MODELS "f32", test_path("stopped"), "fp32", NULL));
    EXPECT(!folder_has(test_folder, "stopped") && !folder_has(test_folder, ".tmp-stopped"));
    EXPECT(!folder_has(test_folder, ".lock-stopped"));
}

// Exports the mean of the newest `count` checkpoints of a run.
static void export_average(const char* run, const char* count, const char* to) {
    char* argv[] = {"hf", "--init", (char*)run, "--average", (char*)count, "--out", (char*)to, "--tokenizer", "none"};
    Config c;
    config_defaults(&c);
    config_parse(&c, EXPORT, "export", 9, argv);
    EXPECT(export_command(&c) == EXIT_DONE);
}

TEST(an_average_is_the_mean_of_the_newest_checkpoints) {
    Error err;
    char *run = new_folder(), *to = format("%s/mean", run);
    float* weights[4];
    size_t n = 0;
    Model* m = open_model(C);
    fill_weights(m);
    for (int step = 1; step <= 4; step++) {
        for (size_t i = 0; i < m->g.params_table.size; i++) { m->o.masters[i] *= 1.0f + 0.3f * (float)(step % 3); }
        char* folder = save(run, m, step, 0);
        weights[step - 1] = weights_of(folder, &n, &err);
        free(folder);
    }
    char* newest = format("%s/step_00000004", run);
    const int lock = open(newest, O_RDONLY | O_DIRECTORY);
    EXPECT(flock(lock, LOCK_EX) == 0);
    EXPECT_DEATH(EXIT_RUNTIME, "step_00000004: the run has just removed it", export_average(run, "3", to));
    close(lock);
    free(newest);
    export_average(run, "3", to);
    float* mean = weights_of(to, &n, &err);
    for (size_t i = 0; mean && i < n; i++) {
        const double sum = (double)weights[1][i] + weights[2][i] + weights[3][i];
        if (mean[i] != (float)(sum / 3)) { TEST_FAIL("element %zu: %g", i, (double)mean[i]); }
    }
    EXPECT(mean != NULL);
    EXPECT_DEATH(EXIT_RUNTIME, "has 4 checkpoints: give fewer", export_average(run, "5", "x"));
    char *third = format("%s/step_00000003/model.safetensors", run), *bytes;
    size_t size;
    bytes = read_file(third, &size, &err);
    EXPECT(bytes != NULL);
    if (bytes) { bytes[size - 4] ^= 1; } // a mantissa's low bit
    test_write(third, bytes, size);
    EXPECT_DEATH(EXIT_RUNTIME, "step_00000003/model.safetensors", export_average(run, "3", "x"));
    if (bytes) { bytes[size - 4] ^= 1; }
    test_write(third, bytes, size);
    free(bytes);
    free(third);
    EXPECT_DEATH(EXIT_RUNTIME, "has no checkpoints: give --init the folder of a run", export_average(to, "2", "x"));
    close_model(m);
    m = open_model(2 * C);
    fill_weights(m);
    free(save(run, m, 5, 0));
    EXPECT_DEATH(EXIT_RUNTIME, "only checkpoints of one shape have a mean", export_average(run, "2", "x"));
    char* damaged = format("%s/step_00000005/model.safetensors", run);
    test_write(damaged, "damaged", 7);
    EXPECT_DEATH(EXIT_RUNTIME, "model.safetensors", export_average(run, "2", "x"));
    for (int i = 0; i < 4; i++) { free(weights[i]); }
    close_model(m);
    free(damaged);
    free(mean);
    free(to);
    free(run);
}

TEST_MAIN()
