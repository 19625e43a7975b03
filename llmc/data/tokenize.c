#include "tokenize.h"

void tokenize_text(const Tokenizer* t, FILE* in, FILE* out) {
    Error err;
    size_t bytes;
    char* text = read_stream(in, "the text", &bytes, &err);
    if (!text) { fatal("tokenize: %s", err.text); }
    TokenList list = token_list();
    tokenizer_encode(t, text, bytes, &list);
    for (size_t i = 0; i < list.count; i++) { fprintf(out, i ? " %d" : "%d", list.ids[i]); }
    fputc('\n', out);
    if (fflush(out) != 0 || ferror(out)) { fatal("tokenize: cannot write the ids: %s", strerror(errno)); }
    token_list_free(&list);
    free(text);
}

// Reads the next word, up to white space. Stores what fits into `room`, terminated, unprintable bytes replaced by '?'.
// Returns the length of the whole word, 0 at the end of the file.
static size_t tokenize_read_word(FILE* in, char* word, size_t room) {
    size_t n = 0;
    for (int c; (c = getc(in)) != EOF;) {
        bool space = c == ' ' || (c >= '\t' && c <= '\r');
        if (space && n > 0) { break; }
        if (space) { continue; }
        if (n + 1 < room) { word[n] = (char)(c > 32 && c < 127 ? c : '?'); }
        n++;
    }
    word[min_size(n, room - 1)] = 0;
    return n;
}

void tokenize_ids(const Tokenizer* t, FILE* in, FILE* out) {
    char word[24];
    size_t bytes;
    for (uint64_t count = 1; (bytes = tokenize_read_word(in, word, sizeof word)) > 0; count++) {
        bool digits = strspn(word, "0123456789") == bytes; // false if the word did not fit
        long long id = digits ? strtoll(word, NULL, 10) : -1;
        const char* token = id <= INT32_MAX ? tokenizer_token(t, (int)id, &bytes) : NULL;
        if (!token) {
            fatal("tokenize: word %llu, \"%s%s\", is not a token id: 0 to %d", (unsigned long long)count, word,
                  bytes < sizeof word ? "" : "...", t->vocab_size - 1);
        }
        fwrite(token, 1, bytes, out);
    }
    if (ferror(in)) { fatal("tokenize: cannot read the ids: %s", strerror(errno)); }
    if (fflush(out) != 0 || ferror(out)) { fatal("tokenize: cannot write the text: %s", strerror(errno)); }
}
