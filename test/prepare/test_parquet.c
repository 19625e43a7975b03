// Parquet files by pyarrow (dev/golden/parquet.py) are read row by row; damaged ones are refused, or read within their
// bounds.
#include "llmc/prepare/reader.h"
#include "test/test.h"
#include <jansson.h>
#include <sys/mman.h>

static const char FOLDER[] = "test/golden/parquet";

// Names of files with the rows of rows.jsonl. In the required ones nulls are empty strings.
static const char* const FILES[] = {
    "none_v1", "none_v2", "snappy_v1", "snappy_v2", "gzip_v1", "gzip_v2", "zstd_v1", "zstd_v2", "plain_v1", "plain_v2",
    "mixed", "checksums", "binary", "large_string", "required"};
enum { NUM_FILES = sizeof FILES / sizeof *FILES };

static char* golden(const char* name) { return format("%s/%s.parquet", FOLDER, name); }

static bool needs_missing_library(const char* name) {
    Error err;
    const Codec codec = strstr(name, "snappy") || !strcmp(name, "mixed") ? CODEC_SNAPPY
                        : strstr(name, "gzip") || !strcmp(name, "binary") ? CODEC_GZIP
                        : strstr(name, "zstd") || strstr(name, "required") || strstr(name, "large") ? CODEC_ZSTD
                                                                                                    : CODEC_NONE;
    return !codec_check(codec, name, &err);
}

// Returns the texts of rows.jsonl as an array, a new reference.
static json_t* golden_rows(void) {
    json_t* rows = json_array();
    FILE* f = fopen("test/golden/parquet/rows.jsonl", "r");
    char line[4096];
    while (f && fgets(line, sizeof line, f)) {
        json_t* object = json_loads(line, 0, NULL);
        json_array_append(rows, json_object_get(object, "text"));
        json_decref(object);
    }
    if (f) { fclose(f); }
    return rows;
}

static bool is_row(ParquetRow kind, const Bytes* value, const json_t* row, bool is_optional) {
    if (json_is_null(row) && is_optional) { return kind == PARQUET_NULL; }
    const size_t bytes = json_is_null(row) ? 0 : json_string_length(row);
    return kind == PARQUET_VALUE && value->bytes == bytes &&
           (bytes == 0 || memcmp(value->data, json_string_value(row), bytes) == 0);
}

TEST(every_kind_of_file_has_its_rows) {
    json_t* rows = golden_rows();
    EXPECT(json_array_size(rows) > 100);
    for (int f = 0; f < NUM_FILES; f++) {
        char* path = golden(FILES[f]);
        Parquet p;
        Error err;
        test_case = FILES[f];
        if (needs_missing_library(FILES[f])) { EXPECT(!parquet_open(&p, path, "text", &err)); free(path); continue; }
        if (!parquet_open(&p, path, "text", &err)) { TEST_FAIL("%s", err.text); }
        EXPECT(p.num_rows == json_array_size(rows) && p.is_optional == !strstr(FILES[f], "required"));
        ParquetRow kind;
        Bytes value;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            if (!parquet_next(&p, &kind, &value, &err)) { TEST_FAIL("%s", err.text); }
            if (!is_row(kind, &value, json_array_get(rows, i), p.is_optional)) { TEST_FAIL("row %zu differs", i); }
        }
        EXPECT(parquet_next(&p, &kind, &value, &err) && kind == PARQUET_END);
        parquet_close(&p);
        free(path);
    }
    json_decref(rows);
}

TEST(rows_can_be_skipped) {
    json_t* rows = golden_rows();
    const size_t count = json_array_size(rows);
    char* path = golden("plain_v1");
    for (size_t i = 0; i <= count; i++) {
        Parquet p;
        Error err;
        ParquetRow kind;
        Bytes value;
        EXPECT(parquet_open(&p, path, "text", &err) && parquet_skip(&p, i, &err));
        EXPECT(parquet_next(&p, &kind, &value, &err));
        EXPECT(i == count ? kind == PARQUET_END : is_row(kind, &value, json_array_get(rows, i), true));
        EXPECT(!parquet_skip(&p, count + 1, &err));
        parquet_close(&p);
    }
    json_decref(rows);
    free(path);
}

static void expect_refused(int line, const char* path, const char* column, const char* words) {
    Parquet p;
    Error err;
    if (parquet_open(&p, path, column, &err)) { fail(&err, "%s was opened", path); }
    if (!strstr(err.text, words)) { printf("line %d: %s\n", line, err.text); test_failures++; }
}
#define EXPECT_REFUSED(path, column, words) expect_refused(__LINE__, path, column, words)

TEST(other_columns_and_files_are_refused) {
    char* plain = golden("plain_v1");
    char* brotli = golden("brotli");
    EXPECT_REFUSED(plain, "body", "no column \"body\"");
    EXPECT_REFUSED(plain, "body", "name the one with the text by --field; there are: id, meta, text, url");
    EXPECT_REFUSED(plain, "id", "type INT64");
    EXPECT_REFUSED(plain, "meta", "lists or structs");
    EXPECT_REFUSED(plain, "a", "no column"); // it is inside of meta
    EXPECT_REFUSED(brotli, "text", "compressed by brotli");
    EXPECT_REFUSED("test/golden/parquet/rows.jsonl", "text", "not a Parquet file");
    EXPECT_REFUSED("test/golden/parquet", "text", "not a regular file");
    EXPECT_REFUSED("absent.parquet", "text", "cannot open");
    free(plain);
    free(brotli);
}

TEST(strings_in_a_delta_encoding_are_refused) {
    Parquet p;
    Error err = {.text = ""};
    ParquetRow kind;
    Bytes value;
    EXPECT(parquet_open(&p, "test/golden/parquet/delta.parquet", "text", &err));
    while (parquet_next(&p, &kind, &value, &err) && kind != PARQUET_END) {}
    EXPECT(strstr(err.text, "delta.parquet: row 0: strings in encoding 7 are not read: write the file with plain or"));
    parquet_close(&p);
}

TEST(an_empty_file_has_no_rows) {
    Parquet p;
    Error err;
    ParquetRow kind;
    Bytes value;
    EXPECT(parquet_open(&p, "test/golden/parquet/empty.parquet", "text", &err));
    EXPECT(parquet_next(&p, &kind, &value, &err) && kind == PARQUET_END);
    parquet_close(&p);
}

// ---------------------------------------------------------------------------------------------------------------------
// damage

// Reads all rows of a file with these bytes. Returns false, with the error, if it is refused.
static bool read_all(const char* data, size_t size, Error* err) {
    static char path[64];
    static int fd = -1; // a file in memory
    if (fd < 0) {
        fd = memfd_create("damaged", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    EXPECT(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    Parquet p;
    ParquetRow kind = PARQUET_NULL;
    Bytes value;
    bool ok = parquet_open(&p, path, "text", err);
    if (ok) {
        uint64_t sum = 0, rows = 0;
        while (ok && kind != PARQUET_END && rows++ < 100000) {
            ok = parquet_next(&p, &kind, &value, err);
            if (ok && kind == PARQUET_VALUE) { sum += hash64(value.data, value.bytes, 0); }
        }
        parquet_close(&p);
        volatile uint64_t used = sum; // all bytes were read
        (void)used;
    }
    return ok;
}

TEST(files_cut_short_are_refused) {
    for (int f = 0; f < NUM_FILES; f++) {
        char* path = golden(FILES[f]);
        size_t size;
        Error err;
        char* data = read_file(path, &size, &err);
        test_case = FILES[f];
        for (size_t n = 0; n < size; n += 1 + size / 20) { EXPECT(!read_all(data, n, &err)); }
        EXPECT(needs_missing_library(FILES[f]) || read_all(data, size, &err));
        free(data);
        free(path);
    }
}

TEST(changed_bytes_are_harmless) {
    int refused = 0, read = 0;
    for (int f = 0; f < NUM_FILES; f++) {
        char* path = golden(FILES[f]);
        size_t size;
        Error err;
        char* data = read_file(path, &size, &err);
        test_case = FILES[f];
        for (size_t i = (size_t)f % 11; i < size; i += 11) {
            const char right = data[i];
            data[i] = (char)(right ^ (1 << (i / 11) % 8));
            *(read_all(data, size, &err) ? &read : &refused) += 1;
            data[i] = right;
        }
        free(data);
        free(path);
    }
    EXPECT(refused > 1000 && read > 1000);
}

TEST(checksums_find_a_changed_letter) {
    size_t size;
    Error err, unused;
    uint32_t crc;
    if (!crc32_of("", 0, &crc)) { SKIP("built without zlib"); }
    char* data = read_file("test/golden/parquet/checksums.parquet", &size, &err);
    char* letter = memmem(data, size, "hundred", 7);
    EXPECT(read_all(data, size, &unused) && letter);
    *letter = 'H';
    EXPECT(!read_all(data, size, &err) && strstr(err.text, "a page differs from its checksum"));
    free(data);
}

// ---------------------------------------------------------------------------------------------------------------------
// files that pyarrow writes only when they are large, or on request

typedef struct {
    char data[1 << 17];
    size_t size;
} Made;

enum { I32 = 5, I64 = 6, STRING = 8, LIST = 9, STRUCT = 12, ROW_GROUPS = 20, WORDS = 300 };

static void put(Made* m, int byte) { m->data[m->size++] = (char)byte; }
static void put_varint(Made* m, uint64_t x) {
    for (; x >= 0x80; x >>= 7) { put(m, (int)(x & 0x7f) | 0x80); }
    put(m, (int)x);
}
static void put_int(Made* m, int delta, int type, uint64_t x) {
    put(m, delta << 4 | type);
    put_varint(m, 2 * x); // zigzag
}
static void put_text(Made* m, const char* text) {
    while (*text) { put(m, *text++); }
}
static void put_string(Made* m, int delta, const char* text) {
    put(m, delta << 4 | STRING);
    put_varint(m, strlen(text));
    put_text(m, text);
}
static void put_page_header(Made* m, uint64_t type, uint64_t bytes) {
    put_int(m, 1, I32, type);
    put_int(m, 1, I32, bytes);
    put_int(m, 1, I32, bytes);
}

// Writes the pages of a row group: a dictionary, an index, and data of two rows, the dictionary's word `index`. Returns
// where the data begin.
static size_t put_pages(Made* m, int index) {
    char statistics[1000];
    memset(statistics, 's', sizeof statistics - 1);
    statistics[sizeof statistics - 1] = 0;
    put_page_header(m, 2, WORDS * 8);
    put(m, 4 << 4 | STRUCT); // field 7
    put_int(m, 1, I32, WORDS);
    put_int(m, 1, I32, 0);
    put(m, 0), put(m, 0);
    for (int i = 0; i < WORDS; i++) {
        put(m, 4), put(m, 0), put(m, 0), put(m, 0);
        m->size += (size_t)snprintf(m->data + m->size, 5, "w%03d", i);
    }
    put_page_header(m, 1, 3); // an index page, whose bytes are no header
    put(m, 0);
    put(m, 0xff), put(m, 0xff), put(m, 0xff);
    const size_t data = m->size;
    put_page_header(m, 0, 4);
    put(m, 2 << 4 | STRUCT); // field 5
    put_int(m, 1, I32, 2);
    put_int(m, 1, I32, 8); // indices into the dictionary
    put_int(m, 1, I32, 3);
    put_int(m, 1, I32, 3);
    put(m, 1 << 4 | STRUCT); // statistics: the header is longer than what is read of it at first
    put_string(m, 1, statistics);
    put(m, 0), put(m, 0), put(m, 0);
    put(m, 9), put(m, 2 << 1), put(m, index & 255), put(m, index >> 8); // width, a run of two, its value
    return data;
}

// Writes the footer's part about a row group: its pages lie from `begin` to `end`, the data from `data` on.
static void put_row_group(Made* m, uint64_t codec, size_t begin, size_t data, size_t end) {
    put(m, 1 << 4 | LIST), put(m, 1 << 4 | STRUCT); // columns
    put_int(m, 2, I64, begin), put(m, 1 << 4 | STRUCT);
    put_int(m, 1, I32, 6); // byte arrays
    put(m, 1 << 4 | LIST), put(m, 2 << 4 | I32), put_varint(m, 0), put_varint(m, 2 * 8); // encodings
    put(m, 1 << 4 | LIST), put_string(m, 1, "text"); // a list of one
    put_int(m, 1, I32, codec), put_int(m, 1, I64, 2); // two values
    put_int(m, 1, I64, end - begin), put_int(m, 1, I64, end - begin);
    put_int(m, 2, I64, data), put_int(m, 2, I64, begin);
    put(m, 0), put(m, 0);
    put_int(m, 1, I64, end - begin), put_int(m, 1, I64, 2); // bytes, rows
    put(m, 0);
}

// Writes the footer of row groups that begin at[0], at[1], ... and the last of which ends at[groups].
static void put_footer(Made* m, uint64_t codec, const size_t* at, const size_t* data, int groups) {
    const size_t footer = m->size;
    put_int(m, 1, I32, 1);
    put(m, 1 << 4 | LIST), put(m, 2 << 4 | STRUCT); // the schema
    put_string(m, 4, "root"), put_int(m, 1, I32, 1), put(m, 0);
    put_int(m, 1, I32, 6), put_int(m, 2, I32, 0), put_string(m, 1, "text"), put(m, 0);
    put_int(m, 1, I64, 2 * (uint64_t)groups);
    put(m, 1 << 4 | LIST), put(m, 15 << 4 | STRUCT), put_varint(m, (uint64_t)groups); // 15: the count follows
    for (int g = 0; g < groups; g++) { put_row_group(m, codec, at[g], data[g], at[g + 1]); }
    put(m, 0);
    const uint32_t bytes = (uint32_t)(m->size - footer);
    memcpy(m->data + m->size, &bytes, sizeof bytes);
    m->size += sizeof bytes;
    put_text(m, "PAR1");
}

// Makes a file that pyarrow reads, too, if the codec is 0: none.
static void make_file(Made* m, uint64_t codec) {
    size_t at[ROW_GROUPS + 1], data[ROW_GROUPS];
    m->size = 0;
    put_text(m, "PAR1");
    for (int g = 0; g < ROW_GROUPS; g++) {
        at[g] = m->size;
        data[g] = put_pages(m, WORDS - 1 - g);
    }
    at[ROW_GROUPS] = m->size;
    put_footer(m, codec, at, data, ROW_GROUPS);
}

TEST(many_row_groups_long_headers_and_index_pages_are_read) {
    static Made made;
    const char* path = test_path("made.parquet");
    Parquet p;
    Error err = {.text = ""};
    ParquetRow kind;
    Bytes value;
    make_file(&made, 0);
    test_write(path, made.data, made.size);
    if (!parquet_open(&p, path, "text", &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(p.num_rows == 2 * ROW_GROUPS);
    for (int i = 0; i < 2 * ROW_GROUPS; i++) {
        char word[16];
        snprintf(word, sizeof word, "w%03d", WORDS - 1 - i / 2); // an index of two bytes
        if (!parquet_next(&p, &kind, &value, &err)) { TEST_FAIL("%s", err.text); break; }
        if (value.bytes != 4 || memcmp(value.data, word, 4) != 0) { TEST_FAIL("row %d is not %s", i, word); }
    }
    parquet_close(&p);
}

TEST(a_codec_of_more_than_32_bits_is_not_cut) {
    static Made made;
    const char* path = test_path("codec.parquet");
    Parquet p;
    Error err;
    make_file(&made, (uint64_t)1 << 32);
    test_write(path, made.data, made.size);
    EXPECT(!parquet_open(&p, path, "text", &err) && strstr(err.text, "compressed by an unknown codec"));
}

// The page would be read into memory of its size, and its levels are longer.
TEST(levels_longer_than_their_page_are_refused) {
    enum { GZIP = 2, PAGE = 10, LEVELS = 70000 };
    static Made made;
    const char* path = test_path("levels.parquet");
    size_t at[2] = {4, 0};
    Parquet p;
    Error err;
    ParquetRow kind;
    Bytes value;
    if (!codec_check(CODEC_GZIP, path, &err)) { SKIP("built without zlib"); }
    made.size = 0;
    put_text(&made, "PAR1");
    put_int(&made, 1, I32, 3), put_int(&made, 1, I32, PAGE), put_int(&made, 1, I32, LEVELS);
    put(&made, 5 << 4 | STRUCT); // field 8
    put_int(&made, 1, I32, 2), put_int(&made, 1, I32, 0), put_int(&made, 1, I32, 2), put_int(&made, 1, I32, 0);
    put_int(&made, 1, I32, LEVELS), put_int(&made, 1, I32, 0);
    put(&made, 0), put(&made, 0);
    for (int i = 0; i < LEVELS; i++) { put(&made, 0); }
    at[1] = made.size;
    put_footer(&made, GZIP, at, at, 1);
    test_write(path, made.data, made.size);
    if (!parquet_open(&p, path, "text", &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(!parquet_next(&p, &kind, &value, &err) && strstr(err.text, "a page's sizes contradict each other"));
    parquet_close(&p);
}

// Writes a file of one page of these bytes: its header, the length of its first string, and zeros, which take no room
// on the disk.
static void write_page_of_zeros(const char* path, size_t bytes, uint32_t length) {
    static Made made;
    size_t at[2] = {4, 0};
    made.size = 0;
    put_text(&made, "PAR1");
    put_page_header(&made, 0, bytes);
    put(&made, 2 << 4 | STRUCT); // field 5
    put_int(&made, 1, I32, 2), put_int(&made, 1, I32, 0), put_int(&made, 1, I32, 3), put_int(&made, 1, I32, 3);
    put(&made, 0), put(&made, 0);
    at[1] = made.size + bytes;
    memcpy(made.data + made.size, &length, sizeof length);
    test_write(path, made.data, made.size + sizeof length);
    made.size = 0;
    put_footer(&made, 0, at, at, 1);
    const int fd = open(path, O_WRONLY);
    EXPECT(fd >= 0 && pwrite(fd, made.data, made.size, (off_t)at[1]) == (ssize_t)made.size && close(fd) == 0);
}

TEST(pages_footers_and_documents_that_take_much_memory_are_refused) {
    const char *path = test_path("large.parquet"), *footer = test_path("footer.parquet");
    const PrepareOptions o = {.inputs = (char*[]){test_path("large.parquet")}, .num_inputs = 1, .field = "text"};
    const Source source = {.end_input = 1};
    Parquet p;
    Error err;
    ParquetRow kind;
    Bytes value;
    write_page_of_zeros(path, PARQUET_MAX_PAGE / 2 + 1, 0); // it is not compressed, but could be
    EXPECT(parquet_open(&p, path, "text", &err) && !parquet_next(&p, &kind, &value, &err));
    EXPECT(strstr(err.text, "row 0: a page of 192 MiB, too much for memory"));
    parquet_close(&p);

    const uint32_t tail[2] = {(256 << 20) + 1, 0x31524150}; // PAR1
    const int fd = open(footer, O_WRONLY | O_CREAT, 0600);
    EXPECT(pwrite(fd, &tail[1], 4, 0) == 4 && pwrite(fd, tail, 8, 300 << 20) == 8 && close(fd) == 0);
    EXPECT_REFUSED(footer, "text", "a footer of 268435457 bytes");

    for (uint32_t more = 0; more < 2; more++) {
        Reader r;
        Chunk c = {.ok = false};
        write_page_of_zeros(path, MAX_DOCUMENT_BYTES + more + 8, MAX_DOCUMENT_BYTES + more);
        reader_open(&r, &o, &source, (Position){.input = 0});
        EXPECT(reader_next(&r, &c) && c.ok == !more && c.skip == (more ? SKIPPED_LONG : NOT_SKIPPED));
        EXPECT(!more || (c.error && strstr(c.error, "large.parquet: row 0: a document of 16 MiB, more than 16")));
        chunk_clear(&c);
        EXPECT(reader_next(&r, &c) && c.ok && c.text.bytes == 0); // the row behind it
        chunk_clear(&c);
        reader_close(&r);
    }
}

TEST(a_block_ends_where_its_data_end) {
    static const char frames[] = "\x28\xb5\x2f\xfd\x20\x03\x19\0\0abc" // by zstd, stored
                                 "\x28\xb5\x2f\xfd\x20\x03\x19\0\0def";
    enum { BOTH = sizeof frames - 1, ONE = BOTH / 2 };
    char out[7] = "";
    Error err;
    if (!codec_check(CODEC_ZSTD, "frame", &err)) { SKIP("built without zstd"); }
    EXPECT(decompress_block(out, 6, frames, BOTH, CODEC_ZSTD, "frame", &err) && !strcmp(out, "abcdef"));
    EXPECT(!decompress_block(out, 3, frames, ONE + 1, CODEC_ZSTD, "frame", &err)); // a byte behind it
    EXPECT(!decompress_block(out, 3, frames, BOTH, CODEC_ZSTD, "frame", &err));
    EXPECT(!decompress_block(out, 4, frames, ONE, CODEC_ZSTD, "frame", &err));
    EXPECT(!decompress_block(out, 2, frames, ONE, CODEC_ZSTD, "frame", &err));
}

TEST(an_encrypted_footer_is_named) {
    static Made made;
    const char* path = test_path("encrypted.parquet");
    make_file(&made, 0);
    memcpy(made.data, "PARE", 4);
    memcpy(made.data + made.size - 4, "PARE", 4);
    test_write(path, made.data, made.size);
    EXPECT_REFUSED(path, "text", "encrypted: decrypt it first");
}

TEST_MAIN()
