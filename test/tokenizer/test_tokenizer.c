// The tokenizer against recorded output of tiktoken (test/golden/tokenizer.json), and where there is none (bytes that
// are no UTF-8, other tokenizer files, damage, work) against its contract.
#include "llmc/base/rng.h"
#include "llmc/commands/tokenize.h"
#include "llmc/tokenizer/tokenizer_open.h"
#include "llmc/tokenizer/unicode.h"
#include "test/test.h"
#include <jansson.h>
#include <pthread.h>

static json_t* golden(void) {
    static json_t* root;
    json_error_t err;
    if (!root) { root = json_load_file("test/golden/tokenizer.json", JSON_ALLOW_NUL, &err); }
    if (!root) { fatal("test/golden/tokenizer.json: line %d: %s", err.line, err.text); }
    return root;
}

static uint64_t golden_hash(json_t* object, const char* key) {
    const char* hex = json_string_value(json_object_get(object, key));
    if (!hex) { fatal("test/golden/tokenizer.json: no hash '%s'", key); }
    return strtoull(hex, NULL, 16);
}

static bool decodes_to(const Tokenizer* t, const TokenList* list, const char* text, size_t bytes) {
    size_t at = 0, n = 0;
    for (size_t i = 0; i < list->count; i++, at += n) {
        const char* token = tokenizer_token(t, list->ids[i], &n);
        if (!token || list->ids[i] == t->eot || n > bytes - at || memcmp(token, text + at, n) != 0) { return false; }
    }
    return at == bytes;
}

static bool round_trips(const Tokenizer* t, const char* text, size_t bytes) {
    TokenList list = token_list();
    tokenizer_encode(t, text, bytes, &list);
    bool same = decodes_to(t, &list, text, bytes);
    token_list_free(&list);
    return same;
}

// Returns true if the pieces of a text are those between the bars.
static bool cut_as(const Tokenizer* t, const char* barred) {
    char text[256];
    bool cut_after[256] = {false}, same = true;
    size_t bytes = 0;
    for (const char* c = barred; *c; c++) {
        if (*c == '|') { cut_after[bytes] = true; } else { text[bytes++] = *c; }
    }
    cut_after[bytes] = true;
    const unsigned char *p = (const unsigned char*)text, *end = p + bytes;
    for (size_t at = 0; at < bytes && same;) {
        size_t n = tokenizer_piece(t, p + at, end);
        for (size_t i = at + 1; i < at + n; i++) { same = same && !cut_after[i]; }
        at += n;
        same = same && n > 0 && at <= bytes && cut_after[at];
    }
    return same;
}

// ---------------------------------------------------------------------------------------------------------------------
// the same as tiktoken

TEST(vocabulary_is_gpt2s) {
    Tokenizer t = tokenizer_builtin();
    size_t size;
    Error err;
    char* file = read_file("data/gpt2_tokenizer.bin", &size, &err);
    EXPECT(t.vocab_size == 50257 && t.eot == 50256);
    EXPECT(file && size == (size_t)(gpt2_tokenizer_file_end - gpt2_tokenizer_file));
    EXPECT(file && memcmp(file, gpt2_tokenizer_file, size) == 0);
    EXPECT(file && hash64(file + 1024, size - 1024, 0) == golden_hash(golden(), "vocabulary"));
    size_t bytes = 0;
    const char* token = tokenizer_token(&t, t.eot, &bytes);
    EXPECT(bytes == 13 && memcmp(token, "<|endoftext|>", 13) == 0);
    EXPECT(tokenizer_token(&t, -1, &bytes) == NULL && tokenizer_token(&t, 50257, &bytes) == NULL);
    EXPECT(tokenizer_hash(&t) == 0x7402cb2de4d50b87); // records of ./prepare have it
    free(file);
    tokenizer_free(&t);
}

TEST(classes_of_all_code_points) {
    unsigned char* classes = (unsigned char*)alloc_or_die(0x110000, 1, "classes");
    for (uint32_t c = 0; c < 0x110000; c++) { classes[c] = (unsigned char)unicode_class(c); }
    EXPECT(hash64(classes, 0x110000, 0) == golden_hash(golden(), "classes"));
    free(classes);
}

static size_t put_utf8(char* out, uint32_t c) {
    if (c < 0x80) { out[0] = (char)c; return 1; }
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, c >>= 6) { out[i] = (char)(0x80 | (c & 0x3f)); }
    out[0] = (char)((0xf00 >> bytes & 0xff) | c);
    return bytes;
}

TEST(all_code_points_among_others) {
    enum { BLOCK = 4096 };
    Tokenizer t = tokenizer_builtin();
    TokenList list = token_list();
    json_t* want = json_object_get(golden(), "code_points");
    char *text = (char*)alloc_or_die(BLOCK, 32, "text"), c[4];
    size_t count = 0;
    uint64_t hash = 0;
    for (uint32_t first = 0; first < 0x110000; first += BLOCK) {
        size_t n = 0;
        for (uint32_t i = first; i < first + BLOCK; i++) {
            if (i >= 0xd800 && i < 0xe000) { continue; }
            for (const char* pattern = "  #'s1#a#\n"; *pattern; pattern++) { // # is the character
                size_t bytes = *pattern == '#' ? put_utf8(c, i) : 1;
                memcpy(text + n, *pattern == '#' ? c : pattern, bytes);
                n += bytes;
            }
        }
        list.count = 0;
        count += tokenizer_encode(&t, text, n, &list);
        hash = hash64(list.ids, list.count * sizeof *list.ids, hash);
    }
    EXPECT((json_int_t)count == json_integer_value(json_object_get(want, "tokens")));
    EXPECT(hash == golden_hash(want, "hash"));
    free(text);
    token_list_free(&list);
    tokenizer_free(&t);
}

TEST(recorded_strings) {
    Tokenizer t = tokenizer_builtin();
    TokenList list = token_list();
    json_t *row, *strings = json_object_get(golden(), "strings");
    size_t i, j;
    EXPECT(json_array_size(strings) > 300);
    json_array_foreach(strings, i, row) {
        json_t *text = json_array_get(row, 0), *ids = json_array_get(row, 1), *id;
        list.count = 0;
        tokenizer_encode(&t, json_string_value(text), json_string_length(text), &list);
        bool same = list.count == json_array_size(ids);
        json_array_foreach(ids, j, id) { same = same && list.ids[j] == json_integer_value(id); }
        if (!same) { TEST_FAIL("string %zu, \"%s\", gives other tokens", i, json_string_value(text)); }
        EXPECT(decodes_to(&t, &list, json_string_value(text), json_string_length(text)));
    }
    token_list_free(&list);
    tokenizer_free(&t);
}

TEST(tiny_shakespeare) {
    if (!path_exists("data/tinyshakespeare.txt")) { SKIP("data/tinyshakespeare.txt is not there"); }
    Tokenizer t = tokenizer_builtin();
    TokenList list = token_list();
    Error err;
    size_t bytes;
    json_t* want = json_object_get(golden(), "tinyshakespeare");
    char* text = read_file("data/tinyshakespeare.txt", &bytes, &err);
    if (!text) { fatal("%s", err.text); }
    EXPECT(tokenizer_encode(&t, text, bytes, &list) == 338025);
    EXPECT((json_int_t)list.count == json_integer_value(json_object_get(want, "tokens")));
    EXPECT(hash64(list.ids, list.count * sizeof *list.ids, 0) == golden_hash(want, "hash"));
    EXPECT(decodes_to(&t, &list, text, bytes));
    free(text);
    token_list_free(&list);
    tokenizer_free(&t);
}

// ---------------------------------------------------------------------------------------------------------------------
// any bytes

TEST(invalid_utf8_is_kept) {
    Tokenizer t = tokenizer_builtin();
    char text[64];
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            char pair[4] = {'x', (char)a, (char)b, 'y'};
            EXPECT(round_trips(&t, pair, 4) && round_trips(&t, pair + 1, 2));
        }
    }
    for (uint64_t i = 0; i < 20000; i++) {
        size_t bytes = rng_u64(1, RNG_TEST, i) % sizeof text;
        for (size_t k = 0; k < bytes; k++) { text[k] = (char)rng_u64(i, RNG_TEST, k); }
        EXPECT(round_trips(&t, text, bytes));
    }
    tokenizer_free(&t);
}

TEST(invalid_utf8_is_other) {
    Tokenizer t = tokenizer_builtin();
    EXPECT(cut_as(&t, "a|\xff\xfe!|b"));
    EXPECT(cut_as(&t, "a| \x80|1"));
    EXPECT(cut_as(&t, "\xc3\xa9|\xc3|a|\xa9|1"));           // e with acute; its halves
    EXPECT(cut_as(&t, "a|\xc1\xa1|a"));                     // an overlong 'a'
    EXPECT(cut_as(&t, "a|\xe0\x83\xa9|a"));                 // an overlong e with acute
    EXPECT(cut_as(&t, "a|\xf0\x8e\xb8\x80|a"));             // overlong U+E000 - U+10000 would be a letter otherwise
    EXPECT(cut_as(&t, "a\xe1\x82\xa0|\xed\xa0\x80|a"));     // a Georgian letter, a surrogate
    EXPECT(cut_as(&t, "a|\xf4\x90\x80\x80|a"));             // U+110000
    EXPECT(cut_as(&t, "a|\xe4\xb8"));                       // cut off at the end of the text
    EXPECT(cut_as(&t, "a\xe4\xb8\xad|\xf0\x9f\x98\x80\xf0|1"));
    EXPECT(cut_as(&t, " |\xe3\x80\x80|\xe3\x80| |\xe3\x80\x80|a")); // ideographic space, and most of one
    tokenizer_free(&t);
}

TEST(pieces) {
    Tokenizer t = tokenizer_builtin();
    EXPECT(cut_as(&t, "it|'s| a|  | '|s| 12|th|\n|\n|x|  |"));
    EXPECT(cut_as(&t, "we|'ll|'re|'|Re| it|'|S|''|d|'d"));
    EXPECT(cut_as(&t, "|   |\t|a|\n \n"));
    EXPECT(!cut_as(&t, "it's") && !cut_as(&t, "a|b"));
    tokenizer_free(&t);
}

TEST(text_never_gives_end_of_text) {
    Tokenizer t = tokenizer_builtin(), bytes = tokenizer_bytes();
    const char* text = "<|endoftext|>a <|endoftext|>";
    EXPECT(round_trips(&t, text, strlen(text)) && round_trips(&bytes, text, strlen(text)));
    tokenizer_free(&t);
    tokenizer_free(&bytes);
}

TEST(encode_appends) {
    Tokenizer t = tokenizer_builtin();
    TokenList list = token_list();
    EXPECT(tokenizer_encode(&t, NULL, 0, &list) == 0 && list.count == 0);
    EXPECT(tokenizer_encode(&t, "hello world", 11, &list) == 2);
    token_list_append(&list, t.eot);
    EXPECT(tokenizer_encode(&t, "hello", 5, &list) == 1);
    const int want[4] = {31373, 995, 50256, 31373};
    EXPECT(list.count == 4 && memcmp(list.ids, want, sizeof want) == 0);
    token_list_free(&list);
    tokenizer_free(&t);
}

TEST(bytes_tokenizer) {
    Tokenizer t = tokenizer_bytes();
    TokenList list = token_list();
    char text[256];
    for (int b = 0; b < 256; b++) { text[b] = (char)b; }
    EXPECT(t.vocab_size == 257 && t.eot == 256 && tokenizer_hash(&t) == 0x7b8881be4a0fb693);
    EXPECT(tokenizer_encode(&t, text, 256, &list) == 256);
    for (int b = 0; b < 256; b++) { EXPECT(list.ids[b] == b); }
    EXPECT(decodes_to(&t, &list, text, 256));
    token_list_free(&list);
    tokenizer_free(&t);
}

// ---------------------------------------------------------------------------------------------------------------------
// merging

TEST(both_ways_of_merging_agree) {
    Tokenizer t = tokenizer_builtin();
    TokenList list = token_list();
    int ids[TOKENIZER_SHORT];
    const char* alphabets[] = {"a", "ab", " e", "etaoin shrdlu", "-=", "\xe4\xb8\xad\xe6\x96\x87", "the", "0123456789"};
    unsigned char piece[TOKENIZER_SHORT];
    for (uint64_t i = 0; i < 20000; i++) {
        const char* alphabet = alphabets[i % (sizeof alphabets / sizeof *alphabets)];
        size_t bytes = 1 + rng_u64(2, RNG_TEST, i) % TOKENIZER_SHORT;
        size_t letters = strlen(alphabet);
        for (size_t k = 0; k < bytes; k++) { piece[k] = (unsigned char)alphabet[rng_u64(i, RNG_TEST, k) % letters]; }
        list.count = 0;
        tokenizer_merge_long(&t, piece, bytes, &list);
        EXPECT(tokenizer_merge_short(&t, piece, bytes, NO_TOKEN, ids) == list.count);
        EXPECT(memcmp(ids, list.ids, list.count * sizeof *ids) == 0);
    }
    token_list_free(&list);
    tokenizer_free(&t);
}

// Returns the steps of merging for `bytes` bytes that repeat `unit`, or are random letters of it.
static double work_for(const Tokenizer* t, const char* unit, bool random, size_t bytes) {
    size_t length = strlen(unit);
    char* text = (char*)alloc_or_die(bytes, 1, "text");
    for (size_t i = 0; i < bytes; i++) { text[i] = unit[(random ? rng_u64(3, RNG_TEST, i) : i) % length]; }
    TokenList list = token_list();
    tokenizer_encode(t, text, bytes, &list);
    EXPECT(decodes_to(t, &list, text, bytes));
    double work = (double)list.work;
    token_list_free(&list);
    free(text);
    return work;
}

TEST(long_pieces_take_near_linear_work) {
    Tokenizer t = tokenizer_builtin();
    const char* units[] = {"a", "-", " ", "7", "\xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97", "\xff", "etaoinshrdlu"};
    // The smaller size comes first, so that quadratic work is seen before it takes hours.
    for (size_t bytes = 9999; bytes < 1000000 && !test_failures; bytes = bytes * 100 + 99) { // whole characters
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            double n = (double)bytes, work = work_for(&t, units[i], i == 6, bytes);
            if (!(work > n / 2 && work < 4 * n * log2(n))) { TEST_FAIL("'%s': %.1f steps a byte", units[i], work / n); }
        }
    }
    tokenizer_free(&t);
}

// ---------------------------------------------------------------------------------------------------------------------
// tokenizer files

typedef struct {
    uint32_t header[256];
    unsigned char tokens[1024];
    size_t bytes; // of tokens
} SmallFile;

static void add_token(SmallFile* f, const char* token) {
    f->tokens[f->bytes++] = (unsigned char)strlen(token);
    memcpy(f->tokens + f->bytes, token, strlen(token));
    f->bytes += strlen(token);
    f->header[2]++;
}

// Token 0, the end of text, is spelled bc; then come the bytes in falling order; then ab, abc, cd, and the letter x 40
// times.
static SmallFile small_file(void) {
    SmallFile f;
    memset(&f, 0, sizeof f);
    f.header[0] = 20240328;
    f.header[1] = 2;
    add_token(&f, "bc");
    for (int b = 255; b >= 0; b--) {
        f.tokens[f.bytes++] = 1;
        f.tokens[f.bytes++] = (unsigned char)b;
        f.header[2]++;
    }
    add_token(&f, "ab");
    add_token(&f, "abc");
    add_token(&f, "cd");
    add_token(&f, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    return f;
}

static bool load_small(const SmallFile* f, size_t bytes, Tokenizer* t, Error* err) {
    char* path = test_path("small.bin");
    test_write(path, f->header, bytes);
    bool ok = tokenizer_load(t, path, err);
    if (!ok && !strstr(err->text, path)) { TEST_FAIL("the error does not name %s: %s", path, err->text); }
    return ok;
}

TEST(another_tokenizer_file) {
    SmallFile f = small_file();
    Tokenizer t;
    Error err = {.text = ""};
    TokenList list = token_list();
    const int want[] = {258, 256 - 'd', 257, 256 - 'b', 260, 256 - 'x', 256 - 'b', 259};
    char text[] = "abcdabbxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxbcd";
    EXPECT(load_small(&f, 1024 + f.bytes, &t, &err));
    EXPECT(t.vocab_size == 261 && t.eot == 0);
    // Pieces: "abcd", whose pairs merge as (ab)cd, (abc)d; then what the lowest ids make of the rest.
    tokenizer_encode(&t, "abcd", 4, &list);
    tokenizer_encode(&t, "abb", 3, &list);
    tokenizer_encode(&t, text + 7, 40, &list);
    tokenizer_encode(&t, "xbcd", 4, &list);
    EXPECT(list.count == 8 && memcmp(list.ids, want, sizeof want) == 0);
    EXPECT(round_trips(&t, text, strlen(text)));
    token_list_free(&list);
    tokenizer_free(&t);
}

// Appends the tokens of a text by merging each piece.
static void merge_pieces(const Tokenizer* t, const unsigned char* p, size_t bytes, TokenList* out) {
    const unsigned char* end = p + bytes;
    for (size_t n; p < end; p += n) {
        n = tokenizer_piece(t, p, end);
        const int id = tokenizer_find(t, p, n);
        if (id == NO_TOKEN) { tokenizer_merge_long(t, p, n, out); }
        else { token_list_append(out, id); }
    }
}

static bool gives_merged_pieces(const Tokenizer* t, const unsigned char* text, size_t bytes) {
    TokenList got = token_list(), want = token_list();
    tokenizer_encode(t, (const char*)text, bytes, &got);
    merge_pieces(t, text, bytes, &want);
    const bool same = got.count == want.count && memcmp(got.ids, want.ids, want.count * sizeof *want.ids) == 0;
    token_list_free(&got);
    token_list_free(&want);
    return same;
}

// Sets a text of pieces of up to `longest` letters of an alphabet, and of white space and zeros.
static void random_pieces(unsigned char* text, size_t bytes, const char* alphabet, size_t letters, uint64_t seed,
                          size_t longest) {
    for (size_t k = 0; k < bytes; k++) {
        text[k] = k % longest == 0 ? ' ' : (unsigned char)alphabet[rng_u64(seed, RNG_TEST, k) % letters];
    }
}

// Far more pieces than the cache has slots.
TEST(many_pieces_have_the_tokens_of_merging) {
    enum { BYTES = 1 << 20 };
    Tokenizer t = tokenizer_builtin();
    unsigned char* text = alloc_or_die(BYTES, 1, "text");
    random_pieces(text, BYTES, "abcdefghijklmnopqrstuvwxyz", 26, 1, 6);
    for (int again = 0; again < 2; again++) { EXPECT(gives_merged_pieces(&t, text, BYTES)); }
    free(text);
    tokenizer_free(&t);
}

typedef struct {
    const Tokenizer* tokenizers; // two
    int wrong;
} CacheUser;

// Encodes texts of pieces around the longest that are kept, by two tokenizers in turn.
static void* use_cache(void* user) {
    static const char alphabets[][8] = {"ab cd", "x", "xx", {0, 'a', 0, ' '}, "etao n", "\n\t a1"};
    enum { TEXTS = 300, BYTES = 4000, ALPHABETS = sizeof alphabets / sizeof *alphabets };
    CacheUser* u = user;
    unsigned char text[BYTES];
    for (uint64_t i = 0; i < TEXTS; i++) {
        const char* alphabet = alphabets[i % ALPHABETS];
        random_pieces(text, BYTES, alphabet, alphabet[0] ? strlen(alphabet) : 4, i / ALPHABETS, 20 + i % 17);
        u->wrong += !gives_merged_pieces(&u->tokenizers[i / 3 % 2], text, BYTES);
    }
    return NULL;
}

TEST(threads_and_tokenizers_do_not_mix_their_pieces) {
    enum { THREADS = 3 };
    SmallFile f = small_file();
    Error err = {.text = ""};
    Tokenizer t[2] = {tokenizer_builtin()};
    EXPECT(load_small(&f, 1024 + f.bytes, &t[1], &err));
    pthread_t thread[THREADS];
    CacheUser user[THREADS];
    for (int i = 0; i < THREADS; i++) {
        user[i] = (CacheUser){t, 0};
        if (pthread_create(&thread[i], NULL, use_cache, &user[i]) != 0) { fatal("a test's thread"); }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        EXPECT(user[i].wrong == 0);
    }
    tokenizer_free(&t[0]);
    tokenizer_free(&t[1]);
}

// The hash of 8 bytes is a bijection of 64-bit numbers, so bytes can be found for any hash that is wanted.
static uint64_t bytes_with_hash(uint64_t hash) {
    const uint64_t odd = 0x9fb21c651e98df25ull;
    uint64_t inverse = odd;
    for (int i = 0; i < 5; i++) { inverse *= 2 - odd * inverse; } // Newton's iteration: twice the right bits each time
    return ((hash ^ hash >> 32) * inverse) ^ 8;
}

TEST(tokens_whose_hashes_collide) {
    SmallFile f = small_file();
    Tokenizer t;
    Error err = {.text = ""};
    uint64_t hash = 0x0123456789abcdefull, words[3]; // the same tag and slot, but three texts
    for (int i = 0; i < 3; i++) {
        words[i] = bytes_with_hash(hash ^ (uint64_t)i << 24);
        EXPECT(token_hash((unsigned char*)&words[i], 8) == (hash ^ (uint64_t)i << 24));
    }
    for (int i = 0; i < 2; i++) {
        f.tokens[f.bytes++] = 8;
        memcpy(f.tokens + f.bytes, &words[i], 8);
        f.bytes += 8;
        f.header[2]++;
    }
    EXPECT(load_small(&f, 1024 + f.bytes, &t, &err));
    EXPECT(tokenizer_find(&t, (unsigned char*)&words[0], 8) == 261);
    EXPECT(tokenizer_find(&t, (unsigned char*)&words[1], 8) == 262);
    EXPECT(tokenizer_find(&t, (unsigned char*)&words[2], 8) == NO_TOKEN);
    tokenizer_free(&t);
}

TEST(version_1) {
    Error err = {.text = ""};
    Tokenizer t;
    size_t size = (size_t)(gpt2_tokenizer_file_end - gpt2_tokenizer_file);
    uint32_t* file = (uint32_t*)alloc_or_die(size, 1, "a file");
    memcpy(file, gpt2_tokenizer_file, size);
    file[1] = 1;
    file[3] = 0;
    EXPECT(tokenizer_from_memory(&t, file, size, "version 1", &err) && t.eot == 50256 && t.vocab_size == 50257);
    tokenizer_free(&t);
    free(file);
}

static void expect_refused(const SmallFile* f, size_t bytes, const char* words) {
    Tokenizer t;
    Error err = {.text = ""};
    if (load_small(f, bytes, &t, &err)) { TEST_FAIL("accepted, where \"%s\" was expected", words); tokenizer_free(&t); }
    else if (!strstr(err.text, words)) { TEST_FAIL("expected \"%s\" in: %s", words, err.text); }
}

TEST(damaged_files_are_refused) {
    const SmallFile good = small_file();
    const size_t size = 1024 + good.bytes;
    SmallFile f = good;
    for (size_t bytes = 0; bytes < size; bytes++) {
        expect_refused(&good, bytes, bytes < 1024 ? "not a tokenizer file" : "ends within token");
    }
    expect_refused(&good, size + 1, "1 bytes behind the last token");
    f.header[0]++; expect_refused(&f, size, "not a tokenizer file"); f = good;
    f.header[1] = 3; expect_refused(&f, size, "version 3"); f = good;
    f.header[1] = 0; expect_refused(&f, size, "version 0"); f = good;
    f.header[1] = 1; expect_refused(&f, size, "end of text is token 50256"); f = good;
    f.header[2]++; expect_refused(&f, size, "ends within token 261 of 262"); f = good;
    f.header[2]--; expect_refused(&f, size, "41 bytes behind"); f = good;
    f.header[2] = 256; expect_refused(&f, size, "vocabulary of 256"); f = good;
    f.header[2] = UINT32_MAX; expect_refused(&f, size, "vocabulary of 4294967295"); f = good;
    f.header[3] = 261; expect_refused(&f, size, "end of text is token 261"); f = good;
    f.header[3] = 5; expect_refused(&f, size, "no token for the single byte 0xfb"); f = good;
    f.tokens[4] = 'a'; expect_refused(&f, size, "tokens 1 and 159 are the same"); f = good;
    f.tokens[3] = 0; expect_refused(&f, size, "token 1 is empty"); f = good;
    Tokenizer t;
    Error err;
    EXPECT(!tokenizer_load(&t, "/nowhere/tokenizer.bin", &err) && strstr(err.text, "/nowhere/tokenizer.bin"));
    EXPECT(!tokenizer_load(&t, "/", &err) && strstr(err.text, "/: not a regular file"));
}

TEST(the_option) {
    const char* names[] = {"", "gpt2", "data/gpt2_tokenizer.bin", "bytes"};
    for (int i = 0; i < 4; i++) {
        Tokenizer t = tokenizer_open(names[i]);
        EXPECT(t.vocab_size == (i < 3 ? 50257 : 257) && round_trips(&t, "hello world", 11));
        tokenizer_free(&t);
    }
    EXPECT_DEATH(EXIT_RUNTIME, "/nowhere.bin: cannot open", tokenizer_open("/nowhere.bin"));
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static FILE* file_of(const void* data, size_t bytes) {
    FILE* f = tmpfile();
    if (!f || fwrite(data, 1, bytes, f) != bytes) { fatal("cannot write a temporary file"); }
    rewind(f);
    return f;
}

static bool file_is(FILE* f, const void* want, size_t bytes) {
    char* got = (char*)alloc_or_die(bytes + 1, 1, "text");
    rewind(f);
    bool same = fread(got, 1, bytes + 1, f) == bytes && memcmp(got, want, bytes) == 0;
    free(got);
    fclose(f);
    return same;
}

// Runs the command on these bytes and compares what it writes.
typedef void Command(const Tokenizer* t, FILE* in, FILE* out);
static void expect_output(Command* run, const char* in_bytes, size_t in_size, const char* want, size_t size) {
    Tokenizer t = tokenizer_builtin();
    FILE *in = file_of(in_bytes, in_size), *out = tmpfile();
    run(&t, in, out);
    if (!file_is(out, want, size)) { TEST_FAIL("not %.*s", (int)min_size(size, 80), want); }
    fclose(in);
    tokenizer_free(&t);
}

TEST(command_both_ways) {
    expect_output(tokenize_text, "hello world", 11, "31373 995\n", 10);
    expect_output(tokenize_text, "", 0, "\n", 1);
    expect_output(tokenize_ids, " 31373\t995\r\n\v50256 0", 20, "hello world<|endoftext|>!", 25);
    Tokenizer t = tokenizer_builtin();
    char* text = (char*)alloc_or_die(70033, 1, "text"); // more than one block of reading
    memset(text, 'z', 70001);
    memcpy(text + 70001, "Hello\0 \xff\xfe world <|endoftext|>\r\n\n", 32);
    FILE *in = file_of(text, 70033), *ids = tmpfile(), *out = tmpfile();
    tokenize_text(&t, in, ids);
    rewind(ids);
    tokenize_ids(&t, ids, out);
    EXPECT(file_is(out, text, 70033));
    fclose(in);
    fclose(ids);
    free(text);
    tokenizer_free(&t);
}

TEST(command_names_what_is_no_id) {
    Tokenizer t = tokenizer_builtin();
    const char* inputs[][2] = {
        {"1 2 50257", "word 3, \"50257\""},     {"-1", "word 1, \"-1\""},
        {"1 2x 3", "word 2, \"2x\""},           {"1.5", "word 1, \"1.5\""},
        {"4294967296", "word 1, \"4294967296\""}, {"+7", "word 1, \"+7\""},
        {"18446744073709551616", "word 1, \"18446744073709551616\""},
        {"9 99999999999999999999999999999999999999", "word 2, \"99999999999999999999999...\""},
        {"1 \x1b[31m", "word 2, \"?[31m\""},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        FILE *in = file_of(inputs[i][0], strlen(inputs[i][0])), *out = tmpfile();
        EXPECT_DEATH(EXIT_RUNTIME, inputs[i][1], tokenize_ids(&t, in, out));
        fclose(in);
        fclose(out);
    }
    FILE *in = file_of("1\0002", 3), *full = fopen("/dev/full", "w");
    EXPECT_DEATH(EXIT_RUNTIME, "word 1, \"1?2\"", tokenize_ids(&t, in, full));
    rewind(in);
    if (full) { EXPECT_DEATH(EXIT_RUNTIME, "cannot write", tokenize_text(&t, in, full)); fclose(full); }
    fclose(in);
    tokenizer_free(&t);
}

TEST_MAIN()
