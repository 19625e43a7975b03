// The trainer of tokenizers against recorded merges of Hugging Face's BpeTrainer (test/golden/bpe, made by
// dev/golden/bpe.py), against the rule written as short loops, and with little memory.
#include "llmc/tokenizer/bpe_trainer.h"
#include "llmc/tokenizer/byte_level.h"
#include "llmc/base/rng.h"
#include "test/test.h"
#include <jansson.h>

enum { PLENTY = 1 << 28 };

// Counts the pieces of the texts, each on another thread's table.
static Pieces count(const char* const* texts, int num_texts, size_t memory, size_t max_bytes) {
    PieceCounts* p = piece_counts_open(3, memory, test_folder);
    for (int i = 0; i < num_texts; i++) { piece_counts_add(p, i % 3, texts[i], strlen(texts[i])); }
    return piece_counts_finish(p, max_bytes);
}

// Returns the number of the first merge that is not the wanted one, "LEFT RIGHT"; -1 if all are the same.
static int first_difference(const BpeMerge* merges, int n, const json_t* want) {
    const ByteLevel b = byte_level();
    static unsigned char token[70000][256];
    static size_t bytes[70000];
    unsigned char half[2][256];
    size_t half_bytes[2];
    if ((size_t)n != json_array_size(want)) { return 0; }
    for (int i = 0; i < 256; i++) { token[i][0] = b.order[i], bytes[i] = 1; }
    for (int i = 0; i < n; i++) {
        char* line = format("%s", json_string_value(json_array_get(want, (size_t)i)));
        char* space = strchr(line, ' ');
        *space = 0;
        bool same = byte_level_decode(&b, line, half[0], 256, &half_bytes[0]) &&
                    byte_level_decode(&b, space + 1, half[1], 256, &half_bytes[1]);
        const int id[2] = {merges[i].left, merges[i].right};
        bytes[256 + i] = 0;
        for (int k = 0; k < 2; k++) {
            same = same && id[k] < 256 + i && bytes[id[k]] == half_bytes[k] &&
                   !memcmp(token[id[k]], half[k], half_bytes[k]);
            if (!same) { free(line); return i; }
            memcpy(token[256 + i] + bytes[256 + i], half[k], half_bytes[k]);
            bytes[256 + i] += half_bytes[k];
        }
        free(line);
    }
    return -1;
}

TEST(merges_are_those_of_hugging_face) {
    json_error_t err;
    json_t *root = json_load_file("test/golden/bpe/cases.json", 0, &err), *one;
    size_t i;
    EXPECT(json_array_size(json_object_get(root, "cases")) == 5);
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        const char* texts[256];
        json_t *list = json_object_get(one, "texts"), *want = json_object_get(one, "merges");
        const int n = (int)json_array_size(want), num_texts = (int)json_array_size(list);
        for (int k = 0; k < num_texts; k++) { texts[k] = json_string_value(json_array_get(list, (size_t)k)); }
        test_case = json_string_value(json_object_get(one, "name"));
        for (int tight = 0; tight < 2; tight++) { // all in memory, or through the files after each text
            Pieces pieces = count(texts, num_texts, tight ? 0 : PLENTY, PLENTY);
            BpeMerge* merges = alloc_or_die((size_t)n + 1, sizeof *merges, "merges");
            EXPECT(pieces.least == 1);
            EXPECT(bpe_train(merges, n, &pieces) == n);
            const int at = first_difference(merges, n, want);
            if (at >= 0) { TEST_FAIL("merge %d differs", at); }
            free(merges);
            pieces_free(&pieces);
        }
        test_case = NULL;
    }
    json_decref(root);
}

// A text of many short words, of which most come often, behind a long word of one letter, whose pairs overlap.
static char* random_text(size_t words, uint64_t seed) {
    enum { LONG = 40004 };
    char *text = alloc_or_die(LONG + words * 14 + 2, 1, "a text"), *p = text + LONG;
    memset(text, 'f', LONG);
    *p++ = ' ';
    for (size_t i = 0; i < words; i++) {
        const uint64_t x = rng_u64(seed, RNG_TEST, i), length = 1 + (x >> 8) % 12;
        for (uint64_t k = 0; k < length; k++) { *p++ = "aabcde"[(x >> (16 + 3 * k)) % 6]; }
        *p++ = ' ';
    }
    return text;
}

// The rule itself: counts all pairs anew for each merge.
static void train_plainly(BpeMerge* merges, int n, const Pieces* pieces) {
    enum { TOKENS = 400 };
    static uint64_t count[TOKENS][TOKENS];
    int bytes[TOKENS];
    const ByteLevel b = byte_level();
    int** piece = alloc_or_die(pieces->count, sizeof *piece, "pieces");
    uint32_t* length = alloc_or_die(pieces->count, sizeof *length, "pieces");
    const unsigned char* from = pieces->bytes;
    for (size_t i = 0; i < pieces->count; i++) {
        length[i] = pieces->length[i];
        piece[i] = alloc_or_die(length[i], sizeof **piece, "a piece");
        for (uint32_t k = 0; k < length[i]; k++, from++) { while (b.order[piece[i][k]] != *from) { piece[i][k]++; } }
    }
    for (int i = 0; i < 256; i++) { bytes[i] = 1; }
    for (int m = 0; m < n; m++) {
        uint64_t most = 0;
        memset(count, 0, sizeof count);
        for (size_t i = 0; i < pieces->count; i++) {
            for (uint32_t k = 0; k + 1 < length[i]; k++) { count[piece[i][k]][piece[i][k + 1]] += pieces->times[i]; }
        }
        for (int l = 0; l < 256 + m; l++) {
            for (int r = 0; r < 256 + m; r++) {
                if (count[l][r] <= most || bytes[l] + bytes[r] > TOKENIZER_MAX_BYTES) { continue; }
                most = count[l][r];
                merges[m] = (BpeMerge){(uint16_t)l, (uint16_t)r};
                bytes[256 + m] = bytes[l] + bytes[r];
            }
        }
        for (size_t i = 0; i < pieces->count; i++) {
            uint32_t to = 0;
            for (uint32_t k = 0; k < length[i]; k++) {
                const bool is_pair = k + 1 < length[i] && piece[i][k] == merges[m].left &&
                                     piece[i][k + 1] == merges[m].right;
                piece[i][to++] = is_pair ? 256 + m : piece[i][k];
                k += is_pair;
            }
            length[i] = to;
        }
    }
    for (size_t i = 0; i < pieces->count; i++) { free(piece[i]); }
    free(piece);
    free(length);
}

TEST(merges_follow_the_rule) {
    enum { MERGES = 120, MORE = 4000 };
    BpeMerge plain[MERGES], fast[MORE];
    char* text = random_text(60000, 5);
    const char* texts[] = {text};
    Pieces pieces = count(texts, 1, PLENTY, PLENTY);
    train_plainly(plain, MERGES, &pieces);
    EXPECT(bpe_train(fast, MORE, &pieces) == MORE);
    EXPECT(memcmp(plain, fast, sizeof plain) == 0);
    pieces_free(&pieces);
    free(text);
}

static uint64_t times_of(const Pieces* p, const char* piece) {
    const unsigned char* at = p->bytes;
    for (size_t i = 0; i < p->count; at += p->length[i++]) {
        if (p->length[i] == strlen(piece) && !memcmp(at, piece, p->length[i])) { return p->times[i]; }
    }
    return 0;
}

TEST(pieces_are_counted) {
    const char* texts[] = {"the cat the dog's", " the   cat", "the cat"};
    for (int tight = 0; tight < 2; tight++) {
        Pieces p = count(texts, 3, tight ? 0 : PLENTY, PLENTY);
        EXPECT(p.count == 6 && p.least == 1);
        EXPECT(times_of(&p, "the") == 2 && times_of(&p, " the") == 2 && times_of(&p, " cat") == 3);
        EXPECT(times_of(&p, " dog") == 1 && times_of(&p, "'s") == 1 && times_of(&p, "  ") == 1);
        pieces_free(&p);
        p = count(texts, 3, tight ? 0 : PLENTY, 14); // "the", " the" and " cat", each with a byte more
        EXPECT(p.count == 3 && p.least == 2 && times_of(&p, " cat") == 3);
        pieces_free(&p);
    }
    Pieces p = count(texts, 3, PLENTY, 13); // nor do all that came twice fit
    EXPECT(p.count == 2 && p.num_bytes + p.count <= 13 && p.least == 3 && times_of(&p, " cat") == 3);
    pieces_free(&p);
}

// " a" 5000 times, " b" 4097 times, more than are told apart; a word longer than a block of the table's memory.
TEST(pieces_that_come_often_or_are_long_are_counted) {
    enum { A = 5000, B = 4097, WORDS = 2 * (A + B), SHORT = 257, LONG = (1 << 20) + 10 };
    char* text = alloc_or_die(WORDS + SHORT + LONG + 1, 1, "a text");
    char *shorter = text + WORDS, *longer = shorter + SHORT;
    const char* texts[] = {text};
    for (int i = 0; i < A + B; i++) { memcpy(text + 2 * i, i < A ? " a" : " b", 2); }
    memset(shorter, 'x', SHORT + LONG);
    *shorter = *longer = ' ';
    for (int tight = 0; tight < 2; tight++) {
        Pieces p = count(texts, 1, tight ? 0 : PLENTY, PLENTY);
        EXPECT(p.count == 4 && p.least == 1 && p.num_bytes == 4 + SHORT + LONG);
        EXPECT(times_of(&p, " a") == A && times_of(&p, " b") == B && times_of(&p, longer) == 1);
        pieces_free(&p);
        p = count(texts, 1, tight ? 0 : PLENTY, 5); // room for one of the two
        EXPECT(p.count == 1 && p.least == 4096 && p.share == 0);
        pieces_free(&p);
    }
    free(text);
}

// 2000 words of four letters, each once: about as many as there is room for, whichever tables they were counted in.
TEST(of_pieces_that_came_equally_often_a_part_is_taken) {
    enum { WORDS = 2000, ROOM = 6 * 900 };
    static char text[5 * WORDS + 1];
    const char* texts[] = {text};
    for (int i = 0; i < WORDS; i++) {
        snprintf(text + 5 * i, 6, " %c%c%c%c", 'a' + i % 26, 'a' + i / 26 % 26, 'a' + i / 676, 'x');
    }
    Pieces p = count(texts, 1, PLENTY, ROOM), spilled = count(texts, 1, 0, ROOM);
    EXPECT(p.least == 2 && p.count > 800 && p.count <= 900);
    EXPECT(spilled.count == p.count && spilled.num_bytes == p.num_bytes);
    for (size_t i = 0; i < spilled.count; i++) {
        const char* at = format("%.5s", (const char*)spilled.bytes + 5 * i);
        EXPECT(times_of(&p, at) == 1);
    }
    pieces_free(&p);
    pieces_free(&spilled);
}

// Returns the bytes of the longest token that is learnt from a word of random letters.
static int longest_token(size_t letters) {
    enum { MOST = 300 };
    BpeMerge merges[MOST];
    char word[MOST] = "";
    const char* texts[] = {word};
    int bytes[256 + MOST], longest = 1;
    for (size_t i = 0; i < letters; i++) { word[i] = (char)('a' + rng_u64(2, RNG_TEST, i) % 26); }
    Pieces p = count(texts, 1, PLENTY, PLENTY);
    const int n = bpe_train(merges, MOST, &p);
    for (int i = 0; i < 256; i++) { bytes[i] = 1; }
    for (int i = 0; i < n; i++) {
        bytes[256 + i] = bytes[merges[i].left] + bytes[merges[i].right];
        longest = max_int(longest, bytes[256 + i]);
    }
    pieces_free(&p);
    return longest;
}

TEST(a_token_has_at_most_255_bytes) { EXPECT(longest_token(255) == 255 && longest_token(256) < 256); }

TEST(no_pair_is_left) {
    const char* texts[] = {"aaaa b c"};
    BpeMerge merges[10];
    Pieces p = count(texts, 1, PLENTY, PLENTY);
    EXPECT(bpe_train(merges, 10, &p) == 4); // aa; aa aa; " b"; " c"
    pieces_free(&p);
    p = count(texts, 0, PLENTY, PLENTY);
    EXPECT(p.count == 0 && bpe_train(merges, 10, &p) == 0);
    pieces_free(&p);
}

TEST_MAIN()
