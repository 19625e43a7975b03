#include "tokenizer_save.h"
#include "../base/file.h"
#include "../base/text_stream.h"
#include "byte_level.h"

const char* const TOKENIZER_FILES[NUM_TOKENIZER_FILES] = {"vocab.json", "merges.txt", "tokenizer.json",
                                                          "tokenizer_config.json"};

// ---------------------------------------------------------------------------------------------------------------------
// names

void token_names_free(TokenNames* n) {
    for (int id = 0; id < n->count; id++) { free(n->name[id]); }
    free(n->name);
    free(n->half);
}

// Returns the name of a token of text, a character for each byte.
static char* visible_name(const ByteLevel* b, const char* token, size_t bytes) {
    char *name = alloc_or_die(2 * bytes + 1, 1, "a token"), *p = name;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned c = b->character[(unsigned char)token[i]];
        if (c < 0x80) { *p++ = (char)c; continue; }
        *p++ = (char)(0xc0 | c >> 6);
        *p++ = (char)(0x80 | (c & 0x3f));
    }
    return name;
}

// Returns the name of a special token, its bytes; NULL if they are not UTF-8, or have a 0.
static char* special_name(const char* token, size_t bytes) {
    uint32_t c;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = utf8_decode(token + i, token + bytes, &c);
        if (n == 0 || c == 0) { return NULL; }
    }
    return format("%.*s", (int)bytes, token);
}

bool token_names_make(TokenNames* n, const Tokenizer* t, const char* tokenizer, Error* err) {
    const ByteLevel b = byte_level();
    const size_t count = (size_t)t->vocab_size;
    *n = (TokenNames){alloc_or_die(count, sizeof *n->name, "names of tokens"),
                 alloc_or_die(count, sizeof *n->half, "merges"), t->vocab_size};
    for (int id = 0; id < n->count; id++) {
        size_t bytes;
        const char* token = tokenizer_token(t, id, &bytes);
        n->half[id][0] = NO_TOKEN;
        if (!t->is_special[id]) {
            n->name[id] = visible_name(&b, token, bytes);
            if (bytes > 1 && !tokenizer_halves(t, id, n->half[id])) {
                return fail(err, "%s: token %d is not a merge of two others, which the files cannot hold",
                            tokenizer, id);
            }
            continue;
        }
        n->name[id] = special_name(token, bytes);
        if (!n->name[id]) { return fail(err, "%s: special token %d is not UTF-8, or has a byte 0", tokenizer, id); }
    }
    // a special token may have the name of a token of text, or of another special one
    const char* twice = text_that_stands_twice(n->name, count);
    return !twice || fail(err, "%s: two tokens have the name \"%.60s\"", tokenizer, twice);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON text

typedef enum { ESCAPED, RAW } Characters; // beyond ASCII: \uXXXX, as Python's json writes them, or UTF-8

static void put_json(FILE* out, const char* text, Characters how) {
    static const char odd[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *end = text + strlen(text), *at;
    uint32_t c;
    fputc('"', out);
    for (size_t n; text < end; text += n) {
        n = max_size(utf8_decode(text, end, &c), 1);
        if (n == 1 && (at = strchr(odd, *text))) { fprintf(out, "\\%c", letter[at - odd]); }
        else if (n == 1 && (unsigned char)*text < 0x20) { fprintf(out, "\\u%04x", (unsigned)*text); }
        else if (n == 1 || how == RAW) { fwrite(text, 1, n, out); }
        else if (c < 0x10000) { fprintf(out, "\\u%04x", c); }
        else { fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff)); }
    }
    fputc('"', out);
}

static void put_vocab(FILE* out, const TokenNames* n, Characters how) {
    const bool spaced = how == ESCAPED; // Python's json sets spaces, the library `tokenizers` does not
    fputc('{', out);
    for (int id = 0; id < n->count; id++) {
        if (id > 0) { fputs(spaced ? ", " : ",", out); }
        put_json(out, n->name[id], how);
        fprintf(out, spaced ? ": %d" : ":%d", id);
    }
    fputc('}', out);
}

static void put_merges(FILE* out, const TokenNames* n) {
    fputs("#version: 0.2\n", out);
    for (int id = 0; id < n->count; id++) {
        const int* half = n->half[id];
        if (half[0] != NO_TOKEN) { fprintf(out, "%s %s\n", n->name[half[0]], n->name[half[1]]); }
    }
}

static void put_merges_json(FILE* out, const TokenNames* n) {
    const char* comma = "";
    fputc('[', out);
    for (int id = 0; id < n->count; id++) {
        const int* half = n->half[id];
        if (half[0] == NO_TOKEN) { continue; }
        char* merge = format("%s %s", n->name[half[0]], n->name[half[1]]);
        fputs(comma, out);
        put_json(out, merge, RAW);
        free(merge);
        comma = ",";
    }
    fputc(']', out);
}

static void put_tokenizer(FILE* out, const Tokenizer* t, const TokenNames* n) {
    const char* comma = "";
    fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[", out);
    for (int id = 0; id < n->count; id++) {
        if (!t->is_special[id]) { continue; }
        fprintf(out, "%s{\"id\":%d,\"special\":true,\"content\":", comma, id);
        put_json(out, n->name[id], RAW);
        fputs(",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true}", out);
        comma = ",";
    }
    fputs("],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
          "\"trim_offsets\":true},\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
          "\"trim_offsets\":false},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
          "\"trim_offsets\":true},\"model\":{\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\","
          "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"vocab\":", out);
    put_vocab(out, n, RAW);
    fputs(",\"merges\":", out);
    put_merges_json(out, n);
    fputs("}}", out);
}

// Names the class, which transformers otherwise takes from config.json, where there is no model beside it.
static void put_config(FILE* out, const Tokenizer* t, const TokenNames* n, int max_length) {
    static const char* const keys[] = {"bos_token", "eos_token", "unk_token"};
    fputc('{', out);
    if (max_length > 0) { fprintf(out, "\"model_max_length\": %d", max_length); }
    else { fputs("\"tokenizer_class\": \"GPT2Tokenizer\"", out); }
    for (int i = 0; i < 3 && strcmp(n->name[t->eot], EOT_NAME); i++) {
        fprintf(out, ", \"%s\": ", keys[i]);
        put_json(out, n->name[t->eot], ESCAPED);
    }
    fputc('}', out);
}

// ---------------------------------------------------------------------------------------------------------------------
// files

bool tokenizer_files_make(TokenizerFiles* files, const Tokenizer* t, int max_length, const char* name, Error* err) {
    TokenNames n;
    FILE* out[NUM_TOKENIZER_FILES];
    const bool ok = token_names_make(&n, t, name, err);
    for (int i = 0; ok && i < NUM_TOKENIZER_FILES; i++) {
        out[i] = open_text_stream(&files->text[i], &files->size[i], TOKENIZER_FILES[i]);
    }
    if (ok) {
        put_vocab(out[0], &n, ESCAPED);
        put_merges(out[1], &n);
        put_tokenizer(out[2], t, &n);
        put_config(out[3], t, &n, max_length);
        for (int i = 0; i < NUM_TOKENIZER_FILES; i++) { close_text_stream(out[i], TOKENIZER_FILES[i]); }
    }
    token_names_free(&n);
    return ok;
}

void tokenizer_files_free(TokenizerFiles* files) {
    for (int i = 0; i < NUM_TOKENIZER_FILES; i++) { free(files->text[i]); }
    memset(files, 0, sizeof *files);
}

bool tokenizer_files_write(const TokenizerFiles* files, const char* folder, Error* err) {
    bool ok = true;
    for (int i = 0; ok && i < NUM_TOKENIZER_FILES; i++) {
        char* path = format("%s/%s", folder, TOKENIZER_FILES[i]);
        ok = write_file_atomically(path, files->text[i], files->size[i], err);
        free(path);
    }
    return ok;
}
