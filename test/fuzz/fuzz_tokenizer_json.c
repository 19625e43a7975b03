// Any bytes as a tokenizer.json, as a vocab.json, as the merges.txt of a small vocabulary, and as the files beside it:
// they are refused, or text decodes to itself and the tokenizer, written and read again, is the same.
#include "llmc/tokenizer/tokenizer_json.h"
#include "llmc/tokenizer/tokenizer_save.h"
#include "test/fuzz/input.h"

// Returns the small vocabulary: the bytes, ab, abc, bc, aa, aaa and the end of text.
static TokenizerFiles small_files(void) {
    static const char* const more[] = {"ab", "abc", "bc", "aa", "aaa"};
    unsigned char byte[256];
    TokenBytes tokens[262] = {[261] = {"<|endoftext|>", 13, true}};
    TokenizerFiles files;
    Tokenizer t;
    Error err;
    memset(&files, 0, sizeof files);
    for (int i = 0; i < 256; i++) { byte[i] = (unsigned char)i, tokens[i] = (TokenBytes){&byte[i], 1, false}; }
    for (int i = 0; i < 5; i++) { tokens[256 + i] = (TokenBytes){more[i], strlen(more[i]), false}; }
    if (!tokenizer_from_tokens(&t, tokens, 262, 261, "small", &err) ||
        !tokenizer_files_make(&files, &t, 0, "small", &err)) {
        fatal("%s", err.text);
    }
    tokenizer_free(&t);
    return files;
}

static void check(Tokenizer* t, const char* folder, const uint8_t* text, size_t size) {
    TokenList list = token_list();
    TokenizerFiles files;
    Tokenizer u;
    Error err;
    size_t at = 0, bytes;
    memset(&files, 0, sizeof files);
    tokenizer_encode(t, (const char*)text, size, &list);
    for (size_t i = 0; i < list.count; i++, at += bytes) {
        const char* token = tokenizer_token(t, list.ids[i], &bytes);
        if (t->is_special[list.ids[i]] || bytes > size - at || memcmp(text + at, token, bytes)) { abort(); }
    }
    if (at != size) { abort(); }
    if (tokenizer_files_make(&files, t, 0, "input", &err)) {
        char* again = format("%s/again", folder);
        write_input(folder, "again", files.text[2], files.size[2]);
        if (!tokenizer_read_json(&u, again, &err)) { fprintf(stderr, "%s\n", err.text); abort(); }
        free(again);
        if (tokenizer_hash(&u) != tokenizer_hash(t)) { abort(); }
        tokenizer_free(&u);
    }
    tokenizer_files_free(&files);
    token_list_free(&list);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static char *input, *vocab, *merges;
    const char* folder = input_folder();
    Tokenizer t;
    Error err;
    if (!input) {
        TokenizerFiles small = small_files();
        input = format("%s/input", folder), vocab = format("%s/vocab", folder), merges = format("%s/merges", folder);
        write_input(folder, "vocab", small.text[0], small.size[0]);
        write_input(folder, "merges", small.text[1], small.size[1]);
        tokenizer_files_free(&small);
    }
    write_input(folder, "input", data, size);
    if (tokenizer_read_json(&t, input, &err)) { check(&t, folder, data, size); }
    if (tokenizer_read_vocab(&t, input, merges, &err)) { check(&t, folder, data, size); }
    if (tokenizer_read_vocab(&t, vocab, input, &err)) { check(&t, folder, data, size); }
    static const char* const beside[] = {"tokenizer_config.json", "added_tokens.json"};
    for (int i = 0; i < 2; i++) {
        char* path = format("%s/%s", folder, beside[i]);
        write_input(folder, beside[i], data, size);
        if (tokenizer_read_vocab(&t, vocab, merges, &err)) { check(&t, folder, data, size); }
        remove(path);
        free(path);
    }
    return 0;
}
