// Makes a tokenizer file from the two files in which OpenAI published GPT-2's vocabulary:
//
//     cc -std=c11 -D_GNU_SOURCE -O2 data/make_tokenizer.c llmc/base.c -ljansson -lm -o make_tokenizer
//     ./make_tokenizer vocab.bpe encoder.json data/gpt2_tokenizer.bin
//
// The repository contains the result, data/gpt2_tokenizer.bin, so this program need not be run.
//
// encoder.json gives every token its id, vocab.bpe lists the merges in order. Both write a byte as a visible character:
// the 188 visible ones of Latin-1 stand for themselves, the other 68 bytes, in order, for U+0100 and on. The tokenizer
// file holds ids and bytes only, for which the order of ids must be that of the merges: this is checked here.
#include "../llmc/data/tokenizer.h"
#include <jansson.h>

enum { NUM_MERGES = 50000, VOCAB_SIZE = 256 + NUM_MERGES + 1, EOT = VOCAB_SIZE - 1, NUM_CHARACTERS = 256 + 68 };

// Ends the program unless `ok`.
static void check(bool ok, const char* path, const char* what, int id) {
    if (!ok) { fatal("%s: token %d: %s; these are not GPT-2's two files", path, id, what); }
}

// Sets byte_of[c] to the byte that character c stands for, or -1.
static void characters_to_bytes(int byte_of[NUM_CHARACTERS]) {
    int hidden = 256;
    for (int c = 0; c < NUM_CHARACTERS; c++) { byte_of[c] = -1; }
    for (int b = 0; b < 256; b++) {
        bool visible = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        byte_of[visible ? b : hidden++] = b;
    }
}

// Returns the name of each id in encoder.json.
static const char** token_names(const json_t* ids, const char* path) {
    const char** names = alloc_or_die(VOCAB_SIZE, sizeof *names, path);
    const char* name;
    json_t* value;
    json_object_foreach((json_t*)ids, name, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        check(id >= 0 && id < VOCAB_SIZE, path, "no such id", (int)id);
        check(!names[id], path, "two names", (int)id);
        names[id] = name;
    }
    for (int id = 0; id < VOCAB_SIZE; id++) { check(names[id], path, "no name", id); }
    return names;
}

// Checks that the lines of vocab.bpe, behind the first, are the two halves of tokens 256 and on, with a space between.
static void check_merges(const char* line, const char* const* names, const char* path) {
    for (int id = 256; id < EOT; id++) {
        line = strchr(line, '\n');
        check(line, path, "no such line", id);
        const char *left = ++line, *right = strchr(line, ' ');
        check(right, path, "no space", id);
        size_t first = (size_t)(right++ - left), second = strcspn(right, "\n");
        bool same = strlen(names[id]) == first + second && strncmp(names[id], left, first) == 0 &&
                    strncmp(names[id] + first, right, second) == 0;
        check(same, path, "the merge does not spell the token's name", id);
    }
}

static void write_token(FILE* out, const char* name, int id, const char* path) {
    int byte_of[NUM_CHARACTERS];
    unsigned char token[1 + 255];
    size_t count = 0;
    const unsigned char *p = (const unsigned char*)name, *end = p + strlen(name);
    characters_to_bytes(byte_of);
    for (size_t bytes; p < end; p += bytes) {
        uint32_t c;
        bytes = utf8_decode(p, end, &c);
        check(bytes > 0 && c < NUM_CHARACTERS && byte_of[c] >= 0, path, "a character that stands for no byte", id);
        check(count < 255, path, "too long", id);
        token[++count] = (unsigned char)byte_of[c];
    }
    token[0] = (unsigned char)count;
    fwrite(token, 1, 1 + count, out);
}

int main(int argc, char** argv) {
    if (argc != 4) { usage_error("usage: make_tokenizer vocab.bpe encoder.json OUT"); }
    Error err;
    json_error_t json_err;
    char* merges = read_file(argv[1], NULL, &err);
    if (!merges) { fatal("%s", err.text); }
    json_t* ids = json_load_file(argv[2], 0, &json_err);
    if (!ids) { fatal("%s: line %d: %s", argv[2], json_err.line, json_err.text); }
    const char** names = token_names(ids, argv[2]);
    check(strcmp(names[EOT], "<|endoftext|>") == 0, argv[2], "not the end of text", EOT);
    check_merges(merges, names, argv[1]);

    FILE* out = fopen(argv[3], "wb");
    if (!out) { fatal("%s: cannot open: %s", argv[3], strerror(errno)); }
    uint32_t header[TOKENIZER_HEADER / 4] = {TOKENIZER_MAGIC, 2, VOCAB_SIZE, EOT};
    fwrite(header, sizeof header, 1, out);
    for (int id = 0; id < VOCAB_SIZE; id++) { write_token(out, names[id], id, argv[2]); }
    if (!close_synced(out, argv[3], &err)) { fatal("%s", err.text); }
    free((void*)names);
    json_decref(ids);
    free(merges);
    return EXIT_DONE;
}
