// Text, and tokenizer files in llm.c's format.
//
// The first byte of an input, modulo 3, says what the rest is. 0: text; 1: a tokenizer file; 2: tokens to append to the
// tokenizer of bytes.
#include "llmc/tokenizer/tokenizer.h"
#include "test/fuzz/input.h"

static void check(bool ok, const char* what) {
    if (!ok) { fprintf(stderr, "%s\n", what); abort(); }
}

// Checks that text decodes to itself, without the end of text, and both ways of merging agree on each short piece.
static void try_text(const Tokenizer* t, const unsigned char* text, size_t size) {
    TokenList list = token_list();
    size_t at = 0, bytes = 0;
    tokenizer_encode(t, (const char*)text, size, &list);
    for (size_t i = 0; i < list.count; i++, at += bytes) {
        const char* token = tokenizer_token(t, list.ids[i], &bytes);
        check(token && list.ids[i] != t->eot, "an id that text cannot have");
        check(bytes <= size - at && memcmp(text + at, token, bytes) == 0, "decodes to another text");
    }
    check(at == size, "decodes to a shorter text");
    for (size_t begin = 0; begin < size; begin += bytes) {
        bytes = tokenizer_piece(t, text + begin, text + size);
        check(bytes > 0 && bytes <= size - begin, "a piece beyond the text");
        if (bytes > TOKENIZER_SHORT) { continue; }
        int ids[TOKENIZER_SHORT];
        list.count = 0;
        tokenizer_merge_long(t, text + begin, bytes, &list);
        const size_t count = tokenizer_merge_short(t, text + begin, bytes, NO_TOKEN, ids);
        check(count == list.count && memcmp(ids, list.ids, count * sizeof *ids) == 0, "two ways of merging disagree");
    }
    token_list_free(&list);
}

// Loads a tokenizer file, if it is one, and encodes its own bytes with it.
static void try_file(const unsigned char* file, size_t size) {
    Tokenizer t;
    Error err;
    if (!tokenizer_from_memory(&t, file, size, "input", &err)) { return; }
    try_text(&t, file, size);
    tokenizer_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Tokenizer gpt2, bytes;
    if (!gpt2.file) { gpt2 = tokenizer_builtin(); bytes = tokenizer_bytes(); }
    if (size < 2) { return 0; }
    int mode = *data++ % 3;
    size--;
    if (mode == 0) { try_text(&gpt2, data, size); try_text(&bytes, data, size); }
    if (mode == 1) { try_file(data, size); }
    if (mode == 2) { // the first byte says how many tokens follow
        size_t length = 0;
        tokenizer_token(&bytes, bytes.eot, &length);
        size_t first = bytes.offset[bytes.eot] + length;
        unsigned char* file = (unsigned char*)alloc_or_die(first + size, 1, "a file");
        uint32_t vocab_size = 257u + *data;
        memcpy(file, bytes.file, first);
        memcpy(file + 8, &vocab_size, sizeof vocab_size);
        memcpy(file + first, data + 1, size - 1);
        try_file(file, first + size - 1);
        free(file);
    }
    return 0;
}
