// BLAKE2b against recorded values, and files of checksums.
#include "llmc/files/sums.h"
#include "test/test.h"

static const char ABC[] = "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1" // RFC 7693, appendix A
                          "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923";

static void hash_pieces(const unsigned char* data, size_t size, size_t piece, char hex[BLAKE2B_HEX + 1]) {
    Blake2b b;
    blake2b_begin(&b);
    for (size_t at = 0; at < size; at += piece) { blake2b_add(&b, data + at, min_size(piece, size - at)); }
    blake2b_end(&b, hex);
}

static bool verify(const Sums* s, const char* name, Error* err) {
    return sum_verify(test_folder, name, sums_find(s, name), err);
}

TEST(known_texts_have_their_known_hashes) {
    char hex[BLAKE2B_HEX + 1];
    hash_pieces((const unsigned char*)"abc", 3, 3, hex);
    EXPECT(!strcmp(hex, ABC));
    hash_pieces(NULL, 0, 1, hex); // b2sum /dev/null
    EXPECT(!strcmp(hex, "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419"
                        "d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce"));
}

// The texts of the self-test of RFC 7693, appendix E: a hash over the hashes of six lengths, recorded from Python's
// hashlib. Each is computed in pieces too.
TEST(lengths_around_a_block_have_their_known_hashes) {
    static const size_t lengths[] = {0, 3, 128, 129, 255, 1024}, pieces[] = {1, 64, 127, 128, 129, 1024};
    unsigned char data[1024];
    char all[6 * BLAKE2B_HEX + 1], hex[BLAKE2B_HEX + 1];
    for (int i = 0; i < 6; i++) {
        uint32_t a = 0xdead4bad * (uint32_t)lengths[i], b = 1; // a Fibonacci generator
        for (size_t j = 0; j < lengths[i]; j++) {
            const uint32_t t = a + b;
            a = b;
            b = t;
            data[j] = (unsigned char)(t >> 24);
        }
        hash_pieces(data, lengths[i], 1024, all + i * BLAKE2B_HEX);
        for (int k = 0; k < 6; k++) {
            hash_pieces(data, lengths[i], pieces[k], hex);
            EXPECT(!memcmp(hex, all + i * BLAKE2B_HEX, BLAKE2B_HEX));
        }
    }
    hash_pieces((const unsigned char*)all, 6 * BLAKE2B_HEX, 999, hex);
    EXPECT(!strcmp(hex, "03aeb47a2c331824c8593819609f0236590c2ce58d5d4130aa7ff4f7c302c882"
                        "a24e26f434aef39375084e5561f041551323fd51276a2c27909784fb0490b1b4"));
}

TEST(checksums_come_back_and_find_damage) {
    Error err;
    Sums s = {.list = NULL}, back;
    char hex[BLAKE2B_HEX + 1], *file = test_path("a file"), *list = test_path("list.b2sums");
    test_write(file, "abc", 3);
    EXPECT(sum_file(file, hex, &err) && !strcmp(hex, ABC));
    sums_set(&s, "other", ABC);
    sums_set(&s, "a file", "wrong");
    sums_set(&s, "a file", hex); // in its place
    EXPECT(sums_save(&s, list, &err) && sums_load(&back, list, &err) && back.count == 2);
    EXPECT(sums_find(&back, "other") && !sums_find(&back, "none"));
    EXPECT(verify(&back, "a file", &err));
    test_write(file, "abd", 3);
    EXPECT(!verify(&back, "a file", &err) && strstr(err.text, "a file: damaged or edited"));
    EXPECT(!verify(&back, "other", &err) && strstr(err.text, "other: cannot open"));
    EXPECT(!verify(&back, "list.b2sums", &err) && strstr(err.text, "it has no checksum"));
    sums_free(&s);
    sums_free(&back);
}

TEST(other_lines_are_refused) {
    Error err;
    Sums s;
    char* list = test_path("list.b2sums");
    char* const texts[] = {format("%s  a", ABC),      format("%s a\n", ABC),           format("%.127s  a\n", ABC),
                           format("%s  \n", ABC),     format("%s  ../a\n", ABC),       format("%.127sG  a\n", ABC),
                           format("%s  a\n\n", ABC),  format("%s  a\n%s  a\n", ABC, ABC), format("%.127sA  a\n", ABC)};
    for (int i = 0; i < 9; i++) {
        test_write(list, texts[i], strlen(texts[i]));
        if (sums_load(&s, list, &err) || !strstr(err.text, "list.b2sums: damaged")) { TEST_FAIL("%s", texts[i]); }
        free(texts[i]);
    }
    char* text = format("%s  a_b\n", ABC);
    const size_t size = strlen(text);
    text[size - 3] = 0; // in the name
    test_write(list, text, size);
    EXPECT(!sums_load(&s, list, &err) && strstr(err.text, "list.b2sums: damaged"));
    free(text);
}

TEST_MAIN()
