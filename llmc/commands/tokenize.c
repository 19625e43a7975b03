#include "tokenize.h"
#include "../base/file.h"
#include "commands.h"
#include "../tokenizer/tokenizer_open.h"
#include "../base/json.h"
#include <inttypes.h>

void tokenize_text(const Tokenizer* t, FILE* in, FILE* out) {
    Error err;
    size_t bytes;
    char* text = read_stream(in, "the text", STANDARD_INPUT_MOST, &bytes, &err);
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

// Prints a token as a C string.
static void print_token(const char* token, size_t bytes) {
    putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)token[i];
        if (c == '"' || c == '\\') { printf("\\%c", c); }
        else if (c >= 32 && c < 127) { putchar(c); }
        else { printf("\\x%02x", c); }
    }
    putchar('"');
}

bool tokenizer_print_info(const char* path, Error* err) {
    enum { MOST_SHOWN = 8 };
    Tokenizer t;
    if (!tokenizer_read(&t, path, err)) { return false; }
    int merges = 0, bytes = 0, specials = 0, half[2], longest = t.byte_id[0];
    size_t n, most = 1;
    for (int id = 0; id < t.vocab_size; id++) {
        tokenizer_token(&t, id, &n);
        merges += tokenizer_halves(&t, id, half);
        bytes += n == 1 && !t.is_special[id];
        specials += t.is_special[id];
        if (!t.is_special[id] && n > most) { most = n, longest = id; }
    }
    print_result("tokenizer   %s\n", path);
    printf("tokens      %d: %d bytes, %d merges, %d special", t.vocab_size, bytes, merges, specials);
    const int others = t.vocab_size - bytes - merges - specials;
    if (others > 0) { printf(", %d that only whole words give", others); }
    printf("\nlongest     token %d, %zu bytes: ", longest, most);
    print_token(tokenizer_token(&t, longest, &n), most);
    printf("\nend of text token %d\nspecial     ", t.eot);
    for (int id = 0, shown = 0; id < t.vocab_size && shown <= MOST_SHOWN; id++) {
        if (!t.is_special[id]) { continue; }
        if (shown++ == MOST_SHOWN) { printf("  ..."); break; }
        printf("%s%d ", shown > 1 ? "  " : "", id);
        const char* token = tokenizer_token(&t, id, &n);
        print_token(token, n);
    }
    printf("\nhash        %016" PRIx64 "\n", tokenizer_hash(&t));
    tokenizer_free(&t);
    return true;
}

int tokenize_command(const Config* c) {
    if (!strcmp(c->tokenizer, "none")) { usage_error("tokenize --tokenizer none: give gpt2, bytes, or a file"); }
    Tokenizer t = tokenizer_open(c->tokenizer);
    if (c->decode) { tokenize_ids(&t, stdin, stdout); }
    else { tokenize_text(&t, stdin, stdout); }
    tokenizer_free(&t);
    return EXIT_DONE;
}
