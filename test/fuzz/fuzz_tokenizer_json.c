// Any bytes as a tokenizer.json, as a vocab.json, and as the merges.txt of a small vocabulary: they are refused, or
// text decodes to itself and the tokenizer, written and read again, is the same.
#include "llmc/tokenizer/tokenizer_json.h"
#include "llmc/tokenizer/tokenizer_save.h"
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// A file in memory.
typedef struct {
    int fd;
    char path[32];
} MemoryFile;

static MemoryFile memory_file(void) {
    MemoryFile f = {.fd = memfd_create("input", 0)};
    if (f.fd < 0) { fatal("memfd_create: %s", strerror(errno)); }
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static void set_contents(const MemoryFile* f, const void* data, size_t size) {
    if (ftruncate(f->fd, 0) != 0 || pwrite(f->fd, data, size, 0) != (ssize_t)size) { fatal("%s", strerror(errno)); }
}

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

static void check(Tokenizer* t, const MemoryFile* again, const uint8_t* text, size_t size) {
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
        set_contents(again, files.text[2], files.size[2]);
        if (!tokenizer_read_json(&u, again->path, &err)) { fprintf(stderr, "%s\n", err.text); abort(); }
        if (tokenizer_hash(&u) != tokenizer_hash(t)) { abort(); }
        tokenizer_free(&u);
    }
    tokenizer_files_free(&files);
    token_list_free(&list);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static MemoryFile input, again, vocab, merges;
    static TokenizerFiles small;
    Tokenizer t;
    Error err;
    if (!small.text[0]) {
        input = memory_file(), again = memory_file(), vocab = memory_file(), merges = memory_file();
        small = small_files();
        set_contents(&vocab, small.text[0], small.size[0]);
        set_contents(&merges, small.text[1], small.size[1]);
    }
    set_contents(&input, data, size);
    if (tokenizer_read_json(&t, input.path, &err)) { check(&t, &again, data, size); }
    if (tokenizer_read_vocab(&t, input.path, merges.path, &err)) { check(&t, &again, data, size); }
    if (tokenizer_read_vocab(&t, vocab.path, input.path, &err)) { check(&t, &again, data, size); }
    return 0;
}
