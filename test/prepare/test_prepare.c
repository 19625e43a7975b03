// ./prepare: the contents of the shards, interrupted runs that continue to the same bytes, and every error.
#include "test/prepare/run_prepare.h"
#include <sys/file.h>
#include "llmc/tokenizer/tokenizer_open.h"

// 22 tokens of bytes: "#One two.\n\nThree\n#Four" in the notation of expect_documents.
static void write_short_texts(void) {
    write_text("a.txt", "One two.\n\nThree\n");
    write_text("b.txt", "Four");
    write_text("empty.txt", "");
}

// A text of several chunks. At the size of the first there are four line ends, which must not be taken apart.
static Buffer write_long_text(void) {
    static const char* const pieces[] = {"word ", " \n",  "\n\n\n",  "\xc2\xa0\n", "don't",
                                         "12,3",  "\r\n", "x\n \ty", "\xff\n",     ".\n"};
    Buffer text = {NULL, 0, 0};
    while (text.bytes < CHUNK_BYTES - 2) { buffer_append(&text, " w", 2); }
    buffer_append(&text, "\n\n\n\nA", 5);
    for (uint64_t i = 0; text.bytes < 3 * CHUNK_BYTES; i++) {
        const char* piece = pieces[rng_u64(1, RNG_TEST, i) % 10];
        buffer_append(&text, piece, strlen(piece));
    }
    write_bytes("long.txt", text.data, text.bytes);
    return text;
}

// ---------------------------------------------------------------------------------------------------------------------
// contents of the shards

TEST(a_file_is_a_document) {
    write_short_texts();
    EXPECT_RUN(0, "a_train_*.bin: 17 tokens in 1 shard\n",
               "--out a --tokenizer bytes --val_size 5 a.txt empty.txt b.txt");
    expect_documents("a", 5, "#One two.\n\nThree\n#Four");
}

TEST(shards_have_the_size_asked_for) {
    write_short_texts();
    EXPECT_RUN(0, "16 tokens in 3 shards", "--out size --tokenizer bytes --val_size 6 --shard_size 7 a.txt b.txt");
    char* path = test_path("size_train_000003.bin");
    Shard s;
    Error err;
    EXPECT(shard_open(&s, path, &err) && shard_check_all(&s, 257, &err) && s.num_tokens == 2);
    shard_close(&s);
    expect_documents("size", 6, "#One two.\n\nThree\n#Four");
    EXPECT_RUN(0, "2 shards", "--out exact --tokenizer bytes --val_size 6 --shard_size 8 a.txt b.txt");
    EXPECT(exists("exact_train_000002.bin") && !exists("exact_train_000003.bin")); // no empty third
    EXPECT_RUN(0, "22 tokens in 1 shard", "--out noval --tokenizer bytes --val_size 0 a.txt b.txt");
    EXPECT(!exists("noval_val_000000.bin"));
    expect_documents("noval", 0, "#One two.\n\nThree\n#Four");
}

TEST(validation_is_a_tenth_by_default) {
    write_short_texts();
    EXPECT_RUN(0, "tenth_val_000000.bin: 2 tokens", "--out tenth --tokenizer bytes a.txt b.txt"); // of 22
    expect_documents("tenth", 2, "#One two.\n\nThree\n#Four");
    write_text("few.txt", "Few");
    EXPECT_RUN(1, "give --val_size", "--out few --tokenizer bytes few.txt");
}

TEST(split_at_blank_lines_and_at_a_line) {
    write_text("blank.txt", "a\nb\n\nc\n\n\nd\n\n\n\n\ne");
    EXPECT_RUN(0, "", "--out blank --tokenizer bytes --split blank --val_size 1 blank.txt");
    expect_documents("blank", 1, "#a\nb\n\n#c\n\n#\nd\n\n#\n\n\ne");
    write_text("line.txt", "---\na\n--- \n---\n---\nb\n\n---\nc\n---");
    EXPECT_RUN(0, "", "--out line --tokenizer bytes --split --- --val_size 1 line.txt");
    expect_documents("line", 1, "#a\n--- \n#b\n\n#c\n");
}

// A document is cut before the line end which the blank line follows; a run may go on from there.
TEST(a_blank_line_ends_a_long_document_too) {
    Buffer text = {NULL, 0, 0}, expected = {NULL, 0, 0};
    while (text.bytes < CHUNK_BYTES) { buffer_append(&text, "a word\n", 7); }
    const size_t val = text.bytes + 2; // all of the document
    buffer_append(&text, "\nb\n\nc", 5);
    write_bytes("cut.txt", text.data, text.bytes);
    buffer_append(&expected, "#", 1);
    buffer_append(&expected, text.data, text.bytes - 4);
    buffer_append(&expected, "#b\n\n#c", 7); // and its end
    char *arguments = format("--out cut --tokenizer bytes --split blank --val_size %zu cut.txt", val),
         *fresh = format("--force %s", arguments);
    EXPECT_RUN(0, "3 documents", arguments);
    expect_documents("cut", val, expected.data);
    int killed = 0;
    for (int at = (int)(val / 4096); run_until(at, NULL, fresh) == KILLED; at += 6, killed++) {
        EXPECT_RUN(0, "3 documents", arguments);
        expect_documents("cut", val, expected.data);
    }
    EXPECT(killed > 2);
    free(text.data);
    free(expected.data);
    free(arguments);
    free(fresh);
}

TEST(lines_end_as_on_windows_too) {
    write_text("crlf.txt", "a\r\nb\r\n\r\nc\r\n\r\n\r\nd\r\r\n");
    EXPECT_RUN(0, "", "--out crlf_blank --tokenizer bytes --split blank --val_size 1 crlf.txt");
    expect_documents("crlf_blank", 1, "#a\r\nb\r\n\r\n#c\r\n\r\n#\r\nd\r\r\n");
    write_text("crlf_line.txt", "a\r\n---\r\nb\r\n\r\n---\nc\r\n---\r");
    EXPECT_RUN(0, "", "--out crlf_line --tokenizer bytes --split --- --val_size 1 crlf_line.txt");
    expect_documents("crlf_line", 1, "#a\r\n#b\r\n\r\n#c\r\n---\r");
}

TEST(jsonl_in_order_for_any_number_of_threads) {
    Buffer text = {NULL, 0, 0};
    for (int i = 0; i < 3000; i++) {
        char* line = format("{\"id\": %d, \"body\": \"caf\\u00e9 \\ud83d\\ude00 %d\\u0000\", \"text\": 1}\n%s", i, i,
                            i % 7 ? "" : " \n");
        buffer_append(&text, line, strlen(line));
        free(line);
    }
    write_bytes("many.jsonl", text.data, text.bytes);
    free(text.data);
    EXPECT_RUN(0, "", "--out one --field body --val_size 999 --shard_size 10000 --threads 1 many.jsonl");
    EXPECT_RUN(0, "", "--out four --field body --val_size 999 --shard_size 10000 --threads 4 many.jsonl");
    size_t val;
    TokenList one = tokens_of("one", &val), four = tokens_of("four", &val), expected = token_list();
    Tokenizer t = tokenizer_open("gpt2");
    for (int i = 0; i < 3000; i++) {
        char* document = format("caf\xc3\xa9 \xf0\x9f\x98\x80 %d", i);
        encode_document(&t, document, strlen(document) + 1, &expected); // with the 0
        free(document);
    }
    EXPECT(val == 999 && one.count == expected.count && four.count == expected.count);
    EXPECT(memcmp(one.ids, expected.ids, one.count * sizeof(int)) == 0);
    EXPECT(memcmp(four.ids, expected.ids, one.count * sizeof(int)) == 0);
    token_list_free(&one);
    token_list_free(&four);
    token_list_free(&expected);
    tokenizer_free(&t);
}

// Expects the shards to have the tokens of one text, `val` of them for validation, and a second end-of-text token where
// the training split begins.
static void expect_text(const char* prefix, size_t val, const char* text, size_t bytes) {
    Tokenizer t = tokenizer_open("gpt2");
    TokenList expected = token_list();
    size_t got_val;
    TokenList got = tokens_of(prefix, &got_val);
    encode_document(&t, text, bytes, &expected);
    EXPECT(got_val == val && got.count == expected.count + 1 && got.ids[val] == t.eot &&
           !memcmp(got.ids, expected.ids, val * sizeof(int)) &&
           !memcmp(got.ids + val + 1, expected.ids + val, (expected.count - val) * sizeof(int)));
    token_list_free(&got);
    token_list_free(&expected);
    tokenizer_free(&t);
}

TEST(long_documents_are_cut_without_a_trace) {
    Buffer text = write_long_text();
    EXPECT_RUN(0, "", "--out long --val_size 777 --shard_size 100000 long.txt");
    expect_text("long", 777, text.data, text.bytes);
    text.data[0] = 'x'; // all of a long file counts
    write_bytes("long.txt", text.data, text.bytes);
    EXPECT_RUN(1, "other input", "--out long --val_size 777 --shard_size 100000 long.txt");
    free(text.data);
}

// Its only end-of-text token is in the validation split, if there is one.
TEST(the_training_split_of_one_text_begins_with_an_end_of_text) {
    write_text("book.txt", "One two three");
    EXPECT_RUN(0, "book_train_*.bin: 11 tokens in 1 shard", "--out book --tokenizer bytes --val_size 4 book.txt");
    expect_documents("book", 4, "#One# two three");
    EXPECT_RUN(0, "11 tokens in 11 shards", "--out book1 --tokenizer bytes --val_size 4 --shard_size 1 book.txt");
    expect_documents("book1", 4, "#One# two three");
    EXPECT_RUN(0, "14 tokens in 1 shard", "--out book0 --tokenizer bytes --val_size 0 book.txt");
    expect_documents("book0", 0, "#One two three");
    EXPECT_RUN(0, "", "--out book_lines --tokenizer bytes --val_size 4 --split blank book.txt"); // may have had more
    expect_documents("book_lines", 4, "#One two three");
}

// ---------------------------------------------------------------------------------------------------------------------
// inputs

TEST(compressed_and_parquet_files_have_the_tokens_of_their_text) {
    static const struct { const char* name; Codec codec; } files[] = {
        {"rows.jsonl.gz", CODEC_GZIP},      {"rows.jsonl.zst", CODEC_ZSTD},  {"plain_v1.parquet", CODEC_NONE},
        {"plain_v2.parquet", CODEC_NONE},   {"zstd_v2.parquet", CODEC_ZSTD}, {"snappy_v1.parquet", CODEC_SNAPPY},
        {"gzip_v1.parquet", CODEC_GZIP}};
    copy_golden("rows.jsonl", "rows.jsonl");
    EXPECT_RUN(0, "skipped documents: 2 empty, 25 null", "--out rows --val_size 20 --shard_size 100 rows.jsonl");
    EXPECT(strstr(run_out, "108 documents of 1507 bytes") && strstr(run_out, "the longest has 300 bytes"));
    size_t val;
    TokenList expected = tokens_of("rows", &val);
    EXPECT(expected.count > 400);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!has_codec(files[i].codec)) { continue; }
        test_case = files[i].name;
        copy_golden(files[i].name, files[i].name);
        char* arguments = format("--force --out packed --val_size 20 --shard_size 100 %s", files[i].name);
        EXPECT_RUN(0, "skipped documents: 2 empty, 25 null", arguments);
        TokenList got = tokens_of("packed", &val);
        EXPECT(val == 20 && got.count == expected.count);
        EXPECT(got.count == expected.count && memcmp(got.ids, expected.ids, got.count * sizeof(int)) == 0);
        token_list_free(&got);
        free(arguments);
    }
    token_list_free(&expected);
}

// pzstd begins a file with a frame that readers skip.
TEST(a_file_of_pzstd_is_recognized) {
    Error err;
    size_t size;
    if (!has_codec(CODEC_ZSTD)) { return; }
    char* packed = read_file("test/golden/parquet/rows.jsonl.zst", &size, &err);
    EXPECT(packed);
    char* file = alloc_or_die(size + 12, 1, "a test");
    memcpy(file, "\x50\x2a\x4d\x18\4\0\0\0size", 12);
    memcpy(file + 12, packed, size);
    write_bytes("pzstd.jsonl.zst", file, size + 12);
    EXPECT_RUN(0, "skipped documents: 2 empty, 25 null", "--out pzstd --val_size 20 --shard_size 100 pzstd.jsonl.zst");
    file[0] = '\x5f'; // any of sixteen such frames
    write_bytes("last.jsonl.zst", file, size + 12);
    EXPECT_RUN(0, "skipped documents: 2 empty, 25 null", "--out last --val_size 20 --shard_size 100 last.jsonl.zst");
    write_bytes("cut.jsonl.zst", packed, size - 1);
    EXPECT_RUN(1, "cut.jsonl.zst: cut short", "--out torn --val_size 20 cut.jsonl.zst");
    free(packed);
    free(file);
}

TEST(folders_and_patterns_give_their_files_in_order) {
    char* folder = test_path("many/deep");
    Error err;
    EXPECT(make_directories(folder, &err));
    write_text("many/c.txt", "c");
    write_text("many/b.jsonl", "{\"text\": \"b\", \"id\": 18446744073709551615}\n");
    write_text("many/deep/d.txt", "d");
    write_text("many/README.md", "no");
    write_text("many/info.json", "{\"text\": \"i\"}");
    write_text("many/.hidden.txt", "no");
    write_text("many/deep/merges.txt", "no");
    write_text("many/deep/tokenizer.json", "{}");
    EXPECT(make_directories(test_path("many/vocab"), &err));
    write_text("many/vocab/merges.txt", "no");
    write_text("many/vocab/vocab.json", "{}");
    write_text("many/merges.txt", "m"); // of no tokenizer
    EXPECT_RUN(0, "many: 6 files left out: a tokenizer's, or not named *.txt,",
               "--force --out many1 --tokenizer bytes --val_size 1 many");
    expect_documents("many1", 1, "#b#c#d#m");
    write_text("z.txt", "z");
    EXPECT_RUN(0, "", "--force --out many1 --tokenizer bytes --val_size 1 z.txt many/*.[jt]* many/deep/");
    expect_documents("many1", 1, "#z#b#c#i#m#d");
    write_text("b*.txt", "star");
    write_text("but.txt", "no");
    EXPECT_RUN(0, "", "--force --out many1 --tokenizer bytes --val_size 1 b*.txt"); // a file has this name
    expect_documents("many1", 1, "##star");
    write_text("rows.ndjson", "{\"text\": \"r\"}\n");
    EXPECT_RUN(0, "", "--force --out many1 --tokenizer bytes --val_size 1 z.txt rows.ndjson");
    expect_documents("many1", 1, "#z#r");
    folder = test_path("none");
    EXPECT(make_directories(folder, &err));
    EXPECT_RUN(2, "none: no file in this folder is named", "--out x --val_size 1 none");
    EXPECT(symlink(".", test_path("none/circle")) == 0);
    EXPECT_RUN(1, "circle: more than 32 folders in each other", "--out x --val_size 1 none");
}

TEST(bad_documents_are_left_out_only_on_request) {
    write_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\": null}\n{\"tex\n\n{\"text\": \"b\"}\n[]\n"
                            "{\"text\": \"\"}\n{\"text\": \"\xff\"}\n{\"text\": \"ccc\"}\n");
    const char* arguments = "--out bad --tokenizer bytes --val_size 1 --shard_size 1 bad.jsonl";
    EXPECT_RUN(1, "bad.jsonl:2: field \"text\" is not a string; --skip_bad 1 leaves out such documents", arguments);
    EXPECT(exists("bad_val_000000.bin"));
    // the same run goes on
    char* more = format("--skip_bad 1 %s", arguments);
    EXPECT_RUN(0, "skipped documents: 1 empty, 1 null, 4 invalid", more);
    EXPECT(strstr(run_out, "3 documents of 5 bytes, 0.62 bytes per token; the longest has 3 bytes"));
    EXPECT(strstr(run_err, "left out: bad.jsonl:9: invalid JSON"));
    expect_documents("bad", 1, "#a#b#ccc");
    EXPECT_RUN(0, "skipped documents: 1 empty, 1 null, 4 invalid", more); // done already
    free(more);
    write_text("bad.jsonl", "1\n2\n3\n4\n5\n6\n7\n{\"text\": \"a\"}\n");
    EXPECT_RUN(0, "7 invalid", "--out bad --tokenizer bytes --val_size 1 --force --skip_bad 1 bad.jsonl");
    EXPECT(strstr(run_err, "bad.jsonl:5: invalid JSON") && !strstr(run_err, "bad.jsonl:6"));
    EXPECT(strstr(run_err, "left out: more, which are only counted"));
}

// A file of zeros would be tokens of bytes 0.
TEST(a_file_that_is_no_text_is_taken_only_on_request) {
    char bytes[9000];
    memset(bytes, 'x', sizeof bytes);
    bytes[7] = bytes[7999] = bytes[8000] = 0;
    write_bytes("image.txt", bytes, sizeof bytes);
    write_text("a.txt", "One");
    EXPECT_RUN(1, "image.txt: byte 7 is 0, so this is not text",
               "--out image --tokenizer bytes --val_size 1 a.txt image.txt");
    EXPECT(!exists("image.json"));
    write_bytes("utf16.txt", "\xff\xfeh\0i\0", 6);
    EXPECT_RUN(1, "utf16.txt: byte 3 is 0, so this is not text: convert it by iconv", "--out image utf16.txt");
    write_bytes("text.zip", "PK\3\4\0", 5);
    EXPECT_RUN(1, "text.zip: byte 4 is 0, so this is not text: unpack it by unzip", "--out image text.zip");
    EXPECT_RUN(0, "9004 tokens", "--out image --tokenizer bytes --val_size 1 --format text a.txt image.txt");
    input_bytes = sizeof bytes;
    EXPECT(run_until(-1, bytes, "--out image_in --tokenizer bytes --val_size 1 -") == 1);
    EXPECT(strstr(run_err, "standard input: byte 7 is 0"));
    bytes[7] = 'x';
    EXPECT(run_until(-1, bytes, "--out image_in --tokenizer bytes --val_size 1 -") == 1);
    EXPECT(strstr(run_err, "standard input: byte 7999 is 0"));
    bytes[7999] = 'x'; // what follows is not looked at
    EXPECT(run_until(-1, bytes, "--out image_in --tokenizer bytes --val_size 1 -") == 0);
    input_bytes = 0;
}

// Lines longer than memory should hold: text is cut, JSONL is refused or left out.
TEST(lines_may_be_longer_than_memory) {
    const size_t bytes = MAX_DOCUMENT_BYTES + 3 * CHUNK_BYTES;
    char* line = alloc_or_die(bytes + 1, 1, "a line");
    memset(line, 'x', bytes);
    write_bytes("xxx.txt", line, bytes);
    EXPECT_RUN(1, "xxx.txt:1: 16 MiB without white space", "--out xxx --tokenizer bytes --val_size 1 xxx.txt");
    EXPECT_RUN(1, "xxx.txt:1: a line of more than 16 MiB; --skip_bad 1",
               "--out xxx --tokenizer bytes --val_size 1 --format jsonl xxx.txt");
    char* path = test_path("xxx.txt");
    FILE* f = fopen(path, "ab");
    EXPECT(f && fputs("\n{\"text\": \"short\"}\n", f) >= 0 && fclose(f) == 0);
    EXPECT_RUN(0, "skipped documents: 1 too long",
               "--out xxx --tokenizer bytes --val_size 1 --format jsonl --skip_bad 1 xxx.txt");
    expect_documents("xxx", 1, "#short");
    write_bytes("word.txt", line, 2 * CHUNK_BYTES);
    EXPECT_RUN(1, "word.txt: line 1: a word of more than 1 MiB", "--out xxx --val_size 1 --force word.txt");
    EXPECT_RUN(1, "error: word.txt: line 1: a word of more", "--out xxx --val_size 1 --force --skip_bad 1 word.txt");
    EXPECT_RUN(0, "1 document of 2097152 bytes", "--out xxx --tokenizer bytes --val_size 1 --force word.txt");
    Buffer lines = {NULL, 0, 0};
    buffer_append(&lines, "{\"text\": \"short\"}\n{\"text\": \"", 28);
    buffer_append(&lines, line, 2 * CHUNK_BYTES);
    buffer_append(&lines, "\"}\n{\"text\": \"two words\"}\n", 25);
    write_bytes("word.jsonl", lines.data, lines.bytes);
    free(lines.data);
    EXPECT_RUN(0, "skipped documents: 1 too long", "--out xxx --val_size 1 --force --skip_bad 1 word.jsonl");
    EXPECT(strstr(run_err, "left out: word.jsonl: line 2: a word of more than 1 MiB"));
    // A text is cut between a letter of any script and ASCII white space, and not within white space:
    // space and no-break space, twice, are one token, in which the first CHUNK_BYTES end.
    for (size_t i = 3; i + 8 <= bytes; i += 8) {
        memcpy(line + i, i % 80 != 3 ? "x \xc2\xa0 \xc2\xa0 " : "\xe6\xbc\xa2 \xc3\xa9 x", 8);
    }
    write_bytes("wide.txt", line, 3 * CHUNK_BYTES);
    EXPECT_RUN(0, "1 document of 3145728 bytes", "--out wide --val_size 10 wide.txt");
    expect_text("wide", 10, line, 3 * CHUNK_BYTES);
    for (size_t i = 0; i + 8 <= bytes; i += 8) { memcpy(line + i, "words.\r\n", 8); }
    write_bytes("words.txt", line, bytes);
    EXPECT_RUN(0, "1 document of 19922944 bytes", "--out words --tokenizer bytes --val_size 10 words.txt");
    memset(line + 2 * CHUNK_BYTES, 'x', 2 * CHUNK_BYTES); // behind 262144 lines; the text is cut before an end of line
    write_bytes("late.txt", line, 4 * CHUNK_BYTES);
    EXPECT_RUN(1, "late.txt: line 262144: a word of more", "--out late --val_size 1 late.txt");
    free(line);
}

// ---------------------------------------------------------------------------------------------------------------------
// other sources

TEST(standard_input) {
    EXPECT(run_until(-1, "{\"text\":\"abc\"}\n{\"text\":\"\"}\n{\"text\":\"de\"}",
                     "--out in --tokenizer bytes --format jsonl --val_size 2 -") == 0);
    expect_documents("in", 2, "#abc#de");
    EXPECT(run_until(-1, "abc", "--out in --tokenizer bytes --val_size 2 -") == 1);
    EXPECT(strstr(run_err, "standard input cannot be continued"));
    EXPECT_RUN(2, "--val_size must be given", "--out in2 --tokenizer bytes -");
}

TEST(standard_input_may_be_compressed) {
    // "abc", by gzip
    static const char packed[] = "\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\0\xc2\x41\x24\x35\x03\0\0\0";
    if (!HAS(GZIP)) { SKIP("built without zlib"); }
    input_bytes = sizeof packed - 1;
    EXPECT(run_until(-1, packed, "--out packed_in --tokenizer bytes --val_size 1 -") == 0);
    expect_documents("packed_in", 1, "##abc");
    char padded[600] = {0}; // with zeros, as from a tape
    memcpy(padded, packed, input_bytes);
    memcpy(padded + 500, packed, input_bytes);
    input_bytes = sizeof padded;
    EXPECT(run_until(-1, padded, "--force --out packed_in --tokenizer bytes --val_size 1 -") == 0);
    expect_documents("packed_in", 1, "##abcabc");
    input_bytes = sizeof packed - 1 - 9;
    EXPECT(run_until(-1, packed, "--force --out packed_in --tokenizer bytes --val_size 1 -") == 1);
    EXPECT(strstr(run_err, "standard input: cut short"));
    input_bytes = 0;
}

TEST(a_tiny_corpus_of_stories_has_one_to_train_on) {
    EXPECT_RUN(0, "tiny_train_*.bin: ", "--out tiny --stories 100");
    size_t val;
    TokenList got = tokens_of("tiny", &val);
    EXPECT(val > 10 && got.count > val && got.ids[0] == 50256 && got.ids[val] == 50256);
    EXPECT_RUN(0, "done already", "--out tiny --stories 100");
    EXPECT_RUN(0, "1 shard", "--out tiny0 --stories 1 --val_size 0");
    token_list_free(&got);
}

TEST(stories_and_their_floor) {
    EXPECT_RUN(0, "floor of the validation loss", "--out st --tokenizer bytes --stories 40000 --seed 5");
    size_t val, n = 0;
    double nll = 0;
    TokenList got = tokens_of("st", &val), expected = token_list();
    Tokenizer t = tokenizer_open("bytes");
    for (uint64_t i = 0; expected.count < got.count; i++) {
        Buffer story = {NULL, 0, 0};
        double cost = 0;
        story_make(5, i, &story, &cost);
        if (expected.count < 4000) { nll += cost; n = expected.count + story.bytes + 1; }
        encode_document(&t, story.data, story.bytes, &expected);
        free(story.data);
    }
    EXPECT(val == n); // whole stories
    char* floor = format(" %.6f nats", nll / (double)n);
    EXPECT(strstr(run_out, floor));
    free(floor);
    EXPECT(got.count == expected.count && got.count >= 40000 && got.count < 42000);
    EXPECT(memcmp(got.ids, expected.ids, got.count * sizeof(int)) == 0);
    char* path = test_path("st_val.json");
    json_t* json = json_load_file(path, 0, NULL);
    EXPECT_NEAR(json_real_value(json_object_get(json, "nll")), nll, 1e-6);
    EXPECT_NEAR(json_real_value(json_object_get(json, "floor")), nll / (double)n, 1e-9);
    EXPECT_NEAR(json_real_value(json_object_get(json, "H")), story_state_entropy(), 1e-9);
    EXPECT(json_integer_value(json_object_get(json, "tokens")) == (json_int_t)n);
    json_decref(json);
    token_list_free(&got);
    token_list_free(&expected);
    tokenizer_free(&t);
}

// ---------------------------------------------------------------------------------------------------------------------
// interruptions and existing output

TEST(killed_and_resumed_is_byte_identical) {
    static const char* const text[] = {
        "whole_val_000000.bin",   "part_val_000000.bin",   "whole_train_000001.bin", "part_train_000001.bin",
        "whole_train_000003.bin", "part_train_000003.bin", "whole.json",             "part.json", NULL};
    write_text("docs.txt", "One.\n\nTwo two.\n\nThree three three.\n\nFour.\n\nAnd a fifth one.\n");
    expect_resumable("--tokenizer bytes --split blank --val_size 11 --shard_size 17 docs.txt", 1, text);
    expect_resumable("--tokenizer bytes --val_size 11 --shard_size 17 docs.txt", 1, text); // one document
    if (HAS(GZIP) && HAS(ZSTD)) {
        copy_golden("rows.jsonl.gz", "rows.jsonl.gz");
        copy_golden("zstd_v1.parquet", "zstd_v1.parquet");
        write_text("docs.txt", "One.\n\nTwo two.\n\nThree");
        expect_resumable("--tokenizer bytes --split blank --val_size 1000 --shard_size 900 docs.txt rows.jsonl.gz "
                         "zstd_v1.parquet", 11, text);
    }
    static const char* const stories[] = {
        "whole_val_000000.bin",   "part_val_000000.bin",   "whole_val.json", "part_val.json",
        "whole_train_000004.bin", "part_train_000004.bin", "whole.json",     "part.json", NULL};
    expect_resumable("--tokenizer bytes --stories 9000 --shard_size 2000", 1, stories);
}

TEST(documents_are_shuffled) {
    enum { COUNT = WINDOW_CHUNKS + 3000 };
    size_t count, moved = 0, far = 0;
    write_numbers("numbers.jsonl", COUNT);
    const char* arguments = "--tokenizer bytes --val_size 10 --shard_size 50000 --shuffle --seed 5 numbers.jsonl";
    char* one = format("--threads 1 --out shuffled %s", arguments);
    char* four = format("--threads 4 --force --out shuffled %s", arguments);
    EXPECT_RUN(0, "", one);
    int* numbers = numbers_of("shuffled", &count);
    EXPECT(count == COUNT);
    char* seen = alloc_or_die(COUNT, 1, "flags");
    for (size_t i = 0; i < count; i++) {
        moved += numbers[i] != (int)i;
        far += (size_t)numbers[i] / WINDOW_CHUNKS != i / WINDOW_CHUNKS; // into another window
        seen[numbers[i]]++;
    }
    EXPECT(memchr(seen, 0, COUNT) == NULL && moved > COUNT - 100 && far == 0);
    EXPECT_RUN(0, "", four);
    int* again = numbers_of("shuffled", &count);
    EXPECT(memcmp(numbers, again, COUNT * sizeof *numbers) == 0);
    EXPECT_RUN(1, "made with --shuffle true:",
               "--out shuffled --tokenizer bytes --val_size 10 --shard_size 50000 --seed 5 numbers.jsonl");
    EXPECT_RUN(1, "--seed 5, now 6",
               "--out shuffled --tokenizer bytes --val_size 10 --shard_size 50000 --shuffle --seed 6 numbers.jsonl");
    static const char* const files[] = {"whole_val_000000.bin",   "part_val_000000.bin",   "whole_train_000001.bin",
                                        "part_train_000001.bin",  "whole_train_000003.bin", "part_train_000003.bin",
                                        "whole.json",             "part.json", NULL};
    expect_resumable(arguments, 1499, files);
    free(numbers);
    free(again);
    free(seen);
    free(one);
    free(four);
}

// Shuffles by these arguments; returns the numbers of two windows, or of the two sources in turn.
static int* shuffled_numbers(const char* arguments) {
    size_t count;
    char* line = format("--force --out orders --tokenizer bytes --val_size 10 --shuffle %s", arguments);
    EXPECT_RUN(0, "", line);
    free(line);
    int* numbers = numbers_of("orders", &count);
    EXPECT(count == 2 * WINDOW_CHUNKS);
    return numbers;
}

TEST(windows_sources_and_seeds_have_orders_of_their_own) {
    int windows = 0, sources = 0, seeds = 0, halves = 0; // documents at the same place; in their half of the mixture
    write_numbers("two.jsonl", 2 * WINDOW_CHUNKS);
    write_numbers("one.jsonl", WINDOW_CHUNKS);
    write_numbers("other.jsonl", WINDOW_CHUNKS);
    int *five = shuffled_numbers("--seed 5 two.jsonl"), *six = shuffled_numbers("--seed 6 two.jsonl"),
        *mixed = shuffled_numbers("--seed 5 --mix one.jsonl:1,other.jsonl:1");
    for (int i = 0; i < WINDOW_CHUNKS; i++) {
        windows += five[WINDOW_CHUNKS + i] == five[i] + WINDOW_CHUNKS;
        sources += mixed[2 * i] == mixed[2 * i + 1];
        seeds += five[i] == six[i];
        halves += mixed[i] < WINDOW_CHUNKS / 2; // two sources have windows of half the size
    }
    EXPECT(windows < 100 && sources < 100 && seeds < 100 && halves > WINDOW_CHUNKS - 100);
    free(five);
    free(six);
    free(mixed);
}

// Expects the shards of a prefix to have the long text, whose first bytes are " w w", in one piece.
static void expect_long_text(const char* prefix, const Buffer* text) {
    size_t val, at = 0;
    TokenList list = tokens_of(prefix, &val);
    while (at + 4 < list.count && !(list.ids[at] == 256 && list.ids[at + 1] == ' ')) { at++; }
    EXPECT(list.count - at > text->bytes);
    for (size_t i = 0; i < text->bytes && at + 1 + i < list.count; i++) {
        if (list.ids[at + 1 + i] != (unsigned char)text->data[i]) { TEST_FAIL("byte %zu differs", i); break; }
    }
    token_list_free(&list);
}

// In one window, and in windows of a thirty-second of 32 MiB, which end and begin inside of the document.
TEST(parts_of_a_shuffled_document_stay_together) {
    Error err;
    write_short_texts();
    Buffer text = write_long_text();
    write_numbers("numbers.jsonl", 500);
    EXPECT_RUN(0, "502 documents",
               "--force --out whole --tokenizer bytes --val_size 9 --shuffle --seed 3 numbers.jsonl long.txt a.txt");
    expect_long_text("whole", &text);
    EXPECT(make_directories(test_path("parts"), &err));
    write_bytes("parts/long.txt", text.data, text.bytes);
    static const char* const names[] = {"a", "b", "c", "d", "x", "y"};
    for (int i = 0; i < 6; i++) {
        char* name = format("parts/%s.txt", names[i]);
        write_text(name, names[i]);
        free(name);
    }
    for (int seed = 7; seed <= 8; seed++) { // which move what must stay, if it may
        char* arguments = format("--force --out mixed --tokenizer bytes --val_size 1 --shuffle --seed %d "
                                 "--mix parts:1,numbers.jsonl:31", seed);
        EXPECT_RUN(0, "used up", arguments);
        expect_long_text("mixed", &text);
        free(arguments);
    }
    free(text.data);
}

TEST(resume_within_a_long_document) {
    write_short_texts();
    free(write_long_text().data);
    static const char* const files[] = {"whole_val_000000.bin", "part_val_000000.bin", "whole_train_000001.bin",
                                        "part_train_000001.bin", "whole_train_000002.bin", "part_train_000002.bin",
                                        "whole.json",           "part.json"};
    const char* arguments = "--out part --val_size 600000 --shard_size 500000 a.txt long.txt";
    EXPECT_RUN(0, "", "--force --out whole --val_size 600000 --shard_size 500000 a.txt long.txt");
    int killed = 0;
    for (int at = 100; run_anew(at, arguments) == KILLED; at += 150) {
        killed++;
        EXPECT_RUN(0, "", arguments);
        for (int i = 0; i < 8; i += 2) { EXPECT(same_content(files[i], files[i + 1])); }
    }
    EXPECT(killed >= 2);
}

// A record with members missing, or that promises what is not there, is refused and not followed.
TEST(damaged_records_are_refused) {
    static const char damaged[] = "damaged.json: damaged: use --force", next[] =
        "{\"made_from\": %s, \"val_size\": 5, \"shards\": [5], \"next\": {%s, \"inside_document\": false}}";
    write_short_texts();
    const char* arguments = "--out damaged --tokenizer bytes --val_size 5 a.txt b.txt";
    EXPECT_RUN(0, "17 tokens", arguments);
    char* path = test_path("damaged.json");
    json_t* whole = json_load_file(path, 0, NULL);
    char* made_from = json_dumps(json_object_get(whole, "made_from"), 0);
    const struct {
        char* record;
        const char* words;
    } records[] = {
        {format("{\"made_from\": {}, \"shards\": []}"), "were made with other input"},
        {format("{\"made_from\": %s, \"shards\": []}", made_from), damaged},
        {format("{\"made_from\": %s, \"shards\": {}, \"complete\": true}", made_from), damaged},
        {format("{\"made_from\": %s, \"val_size\": 5, \"shards\": [], \"complete\": true}", made_from), damaged},
        {format("{\"made_from\": %s, \"val_size\": 5, \"shards\": [5], \"complete\": true, \"next\": {\"input\": 2, "
                "\"offset\": 0, \"line\": 0, \"inside_document\": false, \"skip\": 0}}", made_from), damaged},
        {format(next, made_from, "\"input\": 3, \"offset\": 0, \"line\": 0, \"skip\": 0"), damaged},
        {format(next, made_from, "\"input\": -1, \"offset\": 0, \"line\": 0, \"skip\": 0"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": -1, \"line\": 0, \"skip\": 0"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": -1, \"skip\": 0"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": 0, \"skip\": 0, \"tokens\": -1"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": 0, \"skip\": 0, \"current\": -1"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": 0, \"skip\": -1"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": 0, \"skip\": 0, \"current\": 1"), damaged},
        {format(next, made_from, "\"input\": 0, \"offset\": 0, \"line\": 0, \"skip\": 0, \"sources\": []"), damaged},
        {format(next, made_from, "\"input\": 2, \"offset\": 0, \"line\": 0, \"skip\": 0"), damaged}, // nothing is left
        {format(next, made_from, "\"input\": 0, \"offset\": 1000, \"line\": 0, \"skip\": 0"),
         "a.txt: its text ends before byte 1000, the place to go on from"}};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        write_text("damaged.json", records[i].record);
        EXPECT_RUN(1, records[i].words, arguments);
        free(records[i].record);
    }
    EXPECT_RUN(0, "17 tokens", "--force --out damaged --tokenizer bytes --val_size 5 a.txt b.txt");
    free(made_from);
    json_decref(whole);
}

TEST(nothing_is_overwritten_silently) {
    write_short_texts();
    EXPECT_RUN(0, "", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT_RUN(0, "done already", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(strstr(run_out, "keep_train_*.bin: 17 tokens"));
    EXPECT_RUN(1, "--val_size 5, now 6", "--out keep --tokenizer bytes --val_size 6 a.txt b.txt");
    EXPECT(strstr(run_err, "--force"));
    EXPECT_RUN(1, "another --tokenizer", "--out keep --val_size 5 a.txt b.txt");
    EXPECT_RUN(1, "other input", "--out keep --tokenizer bytes --val_size 5 b.txt a.txt");
    static const char* const changed[][2] = {
        {"shard_size 7", "--shard_size 100000000, now 7"}, {"split blank", "--split \"none\", now \"blank\""},
        {"format text", "--format \"auto\", now \"text\""}, {"field body", "--field \"text\", now \"body\""}};
    for (int i = 0; i < 4; i++) {
        char* arguments = format("--out keep --tokenizer bytes --val_size 5 --%s a.txt b.txt", changed[i][0]);
        EXPECT_RUN(1, changed[i][1], arguments);
        free(arguments);
    }
    write_text("b.txt", "Five"); // as long as it was
    EXPECT_RUN(1, "other input", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    expect_documents("keep", 5, "#One two.\n\nThree\n#Four");
    EXPECT_RUN(0, "", "--out keep --tokenizer bytes --val_size 5 --shard_size 2 --force a.txt b.txt");
    expect_documents("keep", 5, "#One two.\n\nThree\n#Five");
    EXPECT_RUN(0, "", "--out keep --tokenizer bytes --val_size 5 --force a.txt b.txt");
    EXPECT(!exists("keep_train_000002.bin")); // the former shards are gone, or the trainer's glob would find them
    expect_documents("keep", 5, "#One two.\n\nThree\n#Five");
    char *path = test_path("keep_train_000001.bin"), *other;
    size_t bytes;
    Error err;
    EXPECT((other = read_file(test_path("keep_val_000000.bin"), &bytes, &err)));
    write_bytes("keep_train_000001.bin", other, bytes); // a sound shard
    free(other);
    EXPECT_RUN(1, "keep_train_000001.bin: 5 tokens, but keep.json records 17",
               "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(truncate(path, 1030) == 0);
    EXPECT_RUN(1, "recorded in keep.json", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(unlink(path) == 0);
    EXPECT_RUN(1, "keep_train_000001.bin: cannot open", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    write_text("keep.json", "{");
    EXPECT_RUN(1, "keep.json is no file of ./prepare", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT_RUN(1, "keep.json is no file of ./prepare", "--out keep --tokenizer bytes --val_size 5 --force a.txt b.txt");
    write_text("keep.json", "{\"made_from\": 7}");
    EXPECT_RUN(1, "keep.json: damaged: use --force", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    path = test_path("keep.json");
    EXPECT(unlink(path) == 0);
    EXPECT_RUN(1, "keep_val_000000.bin exists already", "--out keep --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT_RUN(0, "", "--out odd[1] --tokenizer bytes --val_size 5 a.txt b.txt"); // no pattern
    EXPECT(unlink(test_path("odd[1].json")) == 0);
    EXPECT_RUN(1, "odd[1]_val_000000.bin exists already", "--out odd[1] --tokenizer bytes --val_size 5 a.txt b.txt");
    write_text("keep_val.json", "{\"text\": \"an input\"}");
    EXPECT_RUN(2, "over the input ./keep_val.json",
               "--out keep --tokenizer bytes --val_size 1 --force ./keep_val.json");
    EXPECT_RUN(1, "keep_val.json is no file of ./prepare", "--out keep --stories 2000 --val_size 100 --force");
    write_text("fresh_val.json", "{\"nll\": 2.5}");
    EXPECT_RUN(0, "", "--out fresh --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(exists("fresh_val.json")); // it has replaced nothing
    write_text("keep_train_000007.bin.tmp", "a kill left it");
    EXPECT_RUN(0, "", "--out keep --tokenizer bytes --val_size 5 --force a.txt b.txt");
    EXPECT(exists("keep_val.json") && !exists("keep_train_000007.bin.tmp") && !exists("keep.lock"));
}

// Writes another first token than the program did. Records in JSON, which are synced too, are shorter.
static void damage_shard(int fd) {
    struct stat s;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > SHARD_HEADER_BYTES) {
        EXPECT(pwrite(fd, "xx", 2, SHARD_HEADER_BYTES) == 2);
    }
}

TEST(shards_are_removed_only_for_an_input_that_can_replace_them) {
    write_short_texts();
    write_text("empty.txt", "");
    write_text("broken.jsonl", "{\n");
    EXPECT_RUN(0, "", "--out old --tokenizer bytes --val_size 5 --shard_size 6 a.txt b.txt");
    EXPECT_RUN(1, "empty.txt: the input is empty", "--out old --tokenizer bytes --val_size 5 --force empty.txt");
    EXPECT_RUN(1, "empty.txt: the input is empty", "--out old --tokenizer bytes --force empty.txt");
    write_text("short.txt", "Oh");
    EXPECT_RUN(1, "the input has only 3 tokens: too few to split: give --val_size N",
               "--out old --tokenizer bytes --force short.txt");
    EXPECT_RUN(1, "broken.jsonl:1: invalid JSON", "--out old --tokenizer bytes --val_size 5 --force broken.jsonl");
    EXPECT_RUN(1, "--val_size 99: the input has only", "--out old --tokenizer bytes --val_size 99 --force a.txt b.txt");
    static const char of_input[] = "--out old --tokenizer bytes --val_size 5 --format jsonl --force -";
    static const char* const too_little[] = {"", "{\"text\":\"Oh\"}", "{\"text\":\"Oh\"}\n{"};
    for (int i = 0; i < 3; i++) { EXPECT(run_until(-1, too_little[i], of_input) == 1); }
    on_sync = damage_shard;
    EXPECT_RUN(1, "old_train_000001.bin: what was written reads back otherwise",
               "--out old --tokenizer bytes --val_size 0 --force a.txt");
    on_sync = NULL;
    expect_documents("old", 5, "#One two.\n\nThree\n#Four");
    EXPECT_RUN(0, "old.json: done already", "--out old --tokenizer bytes --val_size 5 --shard_size 6 a.txt b.txt");
    EXPECT(run_until(-1, "{\"text\":\"Oh well\"}", of_input) == 0);
    expect_documents("old", 5, "#Oh well");
    EXPECT(!exists("old.lock") && !exists("old_train_000002.bin"));
}

// Kills a run that replaces shards at each of its events: then either the old shards are whole, or the same command
// without --force makes the new ones.
static void expect_replaced_or_kept(const char* new, size_t val, const char* documents) {
    static const char old[] = "--threads 1 --out part --tokenizer bytes --val_size 5 --shard_size 3 a.txt b.txt";
    char* forced = format("--force %s", new);
    write_short_texts();
    int kept = 0, gone = 0;
    EXPECT(run_anew(-1, old) == 0);
    for (int at = 0; run_until(at, NULL, forced) == KILLED; at++) {
        const bool is_kept = run(new) != 0;
        kept += is_kept;
        gone += !is_kept;
        if (is_kept) { EXPECT_RUN(0, "done already", old); }
        expect_documents("part", is_kept ? 5 : val, is_kept ? "#One two.\n\nThree\n#Four" : documents);
        EXPECT(has_its_sum("part_train_000001.bin") && exists("part_train_000006.bin") == is_kept);
        EXPECT(is_kept || !exists("part_train_000002.bin.tmp"));
        EXPECT(run_anew(-1, old) == 0);
    }
    EXPECT(kept > 2 && gone > 2);
    free(forced);
}

TEST(a_kill_while_shards_are_replaced_leaves_the_old_ones_or_a_run_to_go_on_with) {
    expect_replaced_or_kept("--threads 1 --out part --tokenizer bytes --val_size 4 --shard_size 9 b.txt a.txt", 4,
                            "#Four#One two.\n\nThree\n");
    expect_replaced_or_kept("--threads 1 --out part --tokenizer bytes --val_size 0 b.txt", 0, "#Four");
}

TEST(an_input_that_changes_while_it_is_read_is_an_error) {
    write_short_texts();
    static const char* const words[] = {"a.txt: changed while it was read", "b.txt: changed while it was read"};
    for (int i = 0; i < 2; i++) {
        changing_input = i ? "b.txt" : "a.txt";
        EXPECT_RUN(1, words[i], "--out changes --tokenizer bytes --val_size 5 --force a.txt b.txt");
        EXPECT(!exists("changes_train_000001.bin.tmp"));
    }
    changing_input = NULL;
    EXPECT_RUN(0, "", "--out changes --tokenizer bytes --val_size 5 --force a.txt b.txt");
}

TEST(one_at_a_time_makes_the_shards_of_a_prefix) {
    write_short_texts();
    char* path = test_path("twice.lock");
    const int lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    EXPECT(flock(lock, LOCK_EX) == 0);
    EXPECT_RUN(1, "another ./prepare is making these", "--out twice --tokenizer bytes --val_size 5 a.txt b.txt");
    close(lock); // of a process that was killed: the file stays
    EXPECT_RUN(0, "", "--out twice --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(!exists("twice.lock"));
    write_text("foreign.lock", "of another program");
    EXPECT_RUN(1, "foreign.lock is no file of ./prepare", "--out foreign --tokenizer bytes --val_size 5 a.txt b.txt");
    EXPECT(exists("foreign.lock"));
}

// ---------------------------------------------------------------------------------------------------------------------
// errors

TEST(bad_input) {
    write_short_texts();
    EXPECT_RUN(1, "absent.txt: cannot open: No such file", "--out x absent.txt");
    EXPECT_RUN(1, "empty.txt: the input is empty", "--out x empty.txt");
    EXPECT_RUN(1, "empty.txt: the input is empty", "--out x --val_size 5 empty.txt");
    EXPECT_RUN(1, "/dev/null: not a regular file", "--out x /dev/null");
    write_text("bad.jsonl", "{\"text\": \"fine\"}\n\n{\"text\": \n");
    EXPECT_RUN(1, "bad.jsonl:3: invalid JSON", "--out x --force --val_size 1 bad.jsonl");
    write_text("bad.jsonl", "{\"text\": \"fine\"}\n{\"body\": \"no\"}\n");
    EXPECT_RUN(1, "bad.jsonl:2: no field \"text\"", "--out x --force --val_size 1 bad.jsonl");
    EXPECT(strstr(run_err, "--field"));
    write_text("bad.jsonl", "[1]\n");
    EXPECT_RUN(1, "bad.jsonl:1: not a JSON object", "--out x --force --val_size 1 bad.jsonl");
    write_text("x.gz", "\x1f\x8b\x08");
    EXPECT_RUN(1, HAS(GZIP) ? "x.gz: cut short" : "x.gz: compressed by gzip", "--out x --val_size 1 x.gz");
    write_text("x.zst", "\x28\xb5\x2f\xfd");
    EXPECT_RUN(1, HAS(ZSTD) ? "x.zst: cut short" : "x.zst: compressed by zstd", "--out x --val_size 1 x.zst");
    write_bytes("x.gz", "\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff", 12);
    if (HAS(GZIP)) { EXPECT_RUN(1, "x.gz: damaged gzip data", "--out x --val_size 1 x.gz"); }
    write_text("x.parquet", "PAR1");
    EXPECT_RUN(1, "x.parquet: too short", "--out x --val_size 1 x.parquet");
    write_text("y.parquet", "{\"text\": \"no\"}");
    EXPECT_RUN(1, "y.parquet: not a Parquet file", "--out x --val_size 1 y.parquet");
    EXPECT_RUN(1, "only 22 tokens", "--out large --tokenizer bytes --val_size 22 a.txt b.txt");
    EXPECT_RUN(1, "only 22 tokens", "--out large --tokenizer bytes --val_size 23 a.txt b.txt");
    EXPECT(!exists("large_val_000000.bin") && !exists("large_val_000000.bin.tmp") && !exists("large.json"));
    EXPECT_RUN(1, "absent.tok", "--out x --tokenizer absent.tok a.txt");
}

// Writes a tokenizer of `count` tokens: the bytes, numbers of three bytes, the end of text.
static void write_tokenizer(const char* name, uint32_t count) {
    Buffer file = {NULL, 0, 0};
    const uint32_t header[TOKENIZER_HEADER / 4] = {TOKENIZER_MAGIC, 2, count, count - 1};
    buffer_append(&file, (const char*)header, sizeof header);
    for (uint32_t id = 0; id < count; id++) {
        const char length = id < 256 ? 1 : 3;
        buffer_append(&file, &length, 1);
        buffer_append(&file, (const char*)&id, (size_t)length);
    }
    write_bytes(name, file.data, file.bytes);
    free(file.data);
}

TEST(shards_hold_16_bit_ids) {
    write_short_texts();
    write_tokenizer("most.bin", 65536);
    EXPECT_RUN(0, "21 tokens in 1 shard", "--out most --val_size 1 --tokenizer most.bin a.txt b.txt");
    write_tokenizer("more.bin", 65537);
    EXPECT_RUN(1, "more.bin: 65537 tokens, but shards hold 16-bit ids",
               "--out more --val_size 1 --tokenizer more.bin a.txt b.txt");
}

TEST(bad_output) {
    write_short_texts();
    free(write_long_text().data);
    EXPECT_RUN(1, "--out a.txt: a file, not a folder", "--out a.txt/x b.txt"); // a file where a folder should be
    EXPECT(!strstr(run_err, "counting tokens")); // it ends before all of the input is read
    EXPECT_RUN(1, "none.txt", "--out new/x --val_size 1 b.txt none.txt");
    EXPECT(!exists("new"));
    EXPECT_RUN(0, "", "--out new/folder/x --val_size 1 b.txt a.txt");
    EXPECT(exists("new/folder/x_val_000000.bin"));
    struct rlimit before, limit;
    EXPECT(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    limit.rlim_cur = 100000; // stands for a full disk
    signal(SIGXFSZ, SIG_IGN);
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    EXPECT_RUN(1, "full_train_000001.bin: cannot write: File too large", "--out full --val_size 9 long.txt");
    EXPECT(setrlimit(RLIMIT_FSIZE, &before) == 0);
    EXPECT(exists("full_val_000000.bin") && !exists("full_train_000001.bin") && !exists("full_train_000001.bin.tmp"));
    EXPECT_RUN(0, "going on after 9 tokens", "--out full --val_size 9 long.txt"); // there is room again
}

TEST(bad_usage) {
    EXPECT_RUN(2, "for example: ./prepare --out data/mytext book.txt", "");
    EXPECT_RUN(2, "--out is missing", "a.txt");
    EXPECT_RUN(2, "--out folder/: a folder: give a PREFIX in it, like folder/mytext", "--out folder/ a.txt");
    EXPECT_RUN(2, "no input", "--out x");
    EXPECT_RUN(2, "no option --vocab_size; here it is called --train_tokenizer", "--out x --vocab_size 500 a.txt");
    EXPECT_RUN(2, "--shard_size takes a number from 1 to 2147483647", "--out x --shard_size 2147483648 a.txt");
    EXPECT_RUN(2, "one or the other", "--out x --stories 5 a.txt");
    EXPECT_RUN(2, "here it is called --field", "--out x --column body a.txt");
    EXPECT_RUN(2, "no file has such a name", "--out x nothing*.txt");
    EXPECT_RUN(2, "give its name, not standard input", "--out x --val_size 5 --format parquet -");
    EXPECT_RUN(2, "only input", "--out x --val_size 5 a.txt -");
    write_text("record.json", "{\"text\": \"precious\"}\n");
    EXPECT_RUN(2, "over the input ./record.json", "--out record --force --val_size 1 ./record.json");
    EXPECT(exists("record.json"));
    static const char* const endings[] = {"_val.json", ".b2sums", ".lock"};
    for (int i = 0; i < 3; i++) {
        char *name = format("record%s", endings[i]), *words = format("over the input ./%s", name),
             *arguments = format("--out record --force --val_size 1 ./%s", name);
        write_text(name, "precious");
        EXPECT_RUN(2, words, arguments);
        free(name);
        free(words);
        free(arguments);
    }
    EXPECT(run_until(-1, "abab", "--out learnt --train_tokenizer 258 -") == 0); // which has no validation split
    EXPECT_RUN(0, "258 tokens", "--out record --train_tokenizer 258 ./record.json"); // which writes no such record
    EXPECT_RUN(1, "missing.txt: cannot open", "--out unmade --train_tokenizer 258 ./record.json missing.txt");
    EXPECT(!exists("unmade"));
    EXPECT_RUN(0, "--stories", "--help");
    EXPECT_RUN(0, "usage:", "-h");
}

TEST(options_without_effect_are_refused) {
    static const char* const of_shards[] = {"val_size 5", "shard_size 5", "tokenizer bytes", "shuffle 1", "seed 5",
                                            "stories 5", "mix a.txt:1"};
    for (int i = 0; i < 7; i++) {
        char* error = format("--%s has no effect with --train_tokenizer 300: leave it out", of_shards[i]);
        char* options = format("--out x --train_tokenizer 300 --%s%s", of_shards[i], i < 6 ? " a.txt" : "");
        EXPECT_RUN(2, error, options);
        free(error);
        free(options);
    }
    static const char* const of_files[] = {"split blank", "format text", "field body", "skip_bad 1", "shuffle 1"};
    for (int i = 0; i < 5; i++) {
        char* error = format("--%s has no effect with --stories 5: leave it out", of_files[i]);
        char* options = format("--out x --stories 5 --%s", of_files[i]);
        EXPECT_RUN(2, error, options);
        free(error);
        free(options);
    }
    EXPECT_RUN(2, "--field body has no effect with --format text", "--out x --format text --field body a.txt");
}

TEST_MAIN()
