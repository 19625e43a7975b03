#include "llmc/files/safetensors.h"
#include "test/test.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

// Written by the safetensors library: see dev/golden/tensor_files.py.
static const char* MIXED = "test/golden/mixed.safetensors";

// ---------------------------------------------------------------------------------------------------------------------
// files of the safetensors library

static void expect_floats(const SafeTensors* s, const char* name, const float* want, size_t n) {
    Error err;
    float got[16];
    const SafeTensor* t = safetensors_find(s, name);
    if (!t || t->elements != n) { TEST_FAIL("%s: not there, or of another size", name); return; }
    EXPECT(safetensors_read_float(s, t, got, &err));
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            TEST_FAIL("%s[%zu] = %g, expected %g", name, i, (double)got[i], (double)want[i]);
        }
    }
}

TEST(reads_what_the_library_wrote) {
    SafeTensors s;
    Error err;
    if (!safetensors_open(&s, MIXED, &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(s.count == 10 && s.num_files == 1);
    EXPECT(safetensors_find(&s, "missing") == NULL && safetensors_find(&s, "__metadata__") == NULL);

    const SafeTensor* wte = safetensors_find(&s, "wte.weight");
    EXPECT(wte->dims == 2 && wte->shape[0] == 3 && wte->shape[1] == 4 && strcmp(wte->dtype, "F32") == 0);
    const SafeTensor* scalar = safetensors_find(&s, "scalar");
    EXPECT(scalar->dims == 0 && scalar->elements == 1);
    const SafeTensor* empty = safetensors_find(&s, "empty");
    EXPECT(empty->dims == 3 && empty->shape[0] == 4 && empty->shape[1] == 0 && empty->bytes == 0);
    const SafeTensor* eight = safetensors_find(&s, "eight");
    EXPECT(eight->dims == 8 && eight->shape[3] == 2 && eight->shape[7] == 1);

    int64_t unicode[2];
    EXPECT(safetensors_read(&s, safetensors_find(&s, "größe/重み"), unicode, &err));
    EXPECT(unicode[0] == -7 && unicode[1] == 8);
    char mask[3], bytes[16];
    EXPECT(safetensors_read(&s, safetensors_find(&s, "mask"), mask, &err) && memcmp(mask, "\1\0\1", 3) == 0);
    EXPECT(safetensors_read(&s, safetensors_find(&s, "bytes"), bytes, &err) && memcmp(bytes + 3, "\3\4", 2) == 0);
    safetensors_close(&s);
}

TEST(converts_to_float) {
    SafeTensors s;
    Error err;
    float ramp[12], scalar[1] = {42.5f};
    for (int i = 0; i < 12; i++) { ramp[i] = (float)i / 8; }
    const float half[12] = {0, -0.0f, 1, -1.5f, INFINITY, -INFINITY, NAN, 65504, 0x1p-14f, 0x1p-24f, -1023 * 0x1p-24f,
                            0x1.554p-2f};
    const float brain[10] = {0, -0.0f, 1, -1.5f, INFINITY, -INFINITY, NAN, 0x1.c4p127f, 0x1p-133f, 0x1.56p-2f};
    if (!safetensors_open(&s, MIXED, &err)) { TEST_FAIL("%s", err.text); return; }
    expect_floats(&s, "wte.weight", ramp, 12);
    expect_floats(&s, "half", half, 12);
    expect_floats(&s, "brain", brain, 10);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "scalar"), ramp, &err) && ramp[0] == scalar[0]);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "empty"), ramp, &err));

    const SafeTensor* masks = safetensors_find(&s, "mask");
    EXPECT(!safetensors_read_float(&s, masks, ramp, &err) && strstr(err.text, "cannot be of type BOOL"));
    safetensors_close(&s);
}

TEST(converts_halves_where_subnormal_floats_are_flushed) { // as the trainers set the processor
#ifdef __SSE__
    SafeTensors s;
    Error err;
    float got[12];
    if (!safetensors_open(&s, MIXED, &err)) { TEST_FAIL("%s", err.text); return; }
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "half"), got, &err));
    _mm_setcsr(before);
    EXPECT(got[9] == 0x1p-24f && got[10] == -1023 * 0x1p-24f);
    safetensors_close(&s);
#else
    SKIP("not an x86 processor");
#endif
}

TEST(reads_an_empty_file) {
    SafeTensors s;
    Error err;
    if (!safetensors_open(&s, "test/golden/empty.safetensors", &err)) { TEST_FAIL("%s", err.text); return; }
    EXPECT(s.count == 0 && safetensors_find(&s, "x") == NULL);
    safetensors_close(&s);
}

// ---------------------------------------------------------------------------------------------------------------------
// writing

// Copies MIXED to `path`, tensors in pieces of `piece` bytes.
static bool copy_mixed(const char* path, size_t piece, Error* err) {
    char data[256];
    SafeTensors s;
    SafeTensorsWriter w;
    if (!safetensors_open(&s, MIXED, err)) { return false; }
    bool ok = safetensors_create(&w, path, err);
    for (int i = 0; ok && i < s.count; i++) {
        const SafeTensor* t = &s.tensors[i];
        safetensors_declare(&w, t->name, t->dtype, t->shape, t->dims, t->bytes);
    }
    for (int i = 0; ok && i < s.count; i++) {
        const SafeTensor* t = &s.tensors[i];
        ok = t->bytes <= sizeof data && safetensors_read(&s, t, data, err);
        for (size_t at = 0, n; ok && at < t->bytes; at += n) {
            n = min_size(piece, t->bytes - at);
            ok = safetensors_write(&w, data + at, n, err);
        }
    }
    ok = ok && safetensors_finish(&w, NULL, err);
    if (!ok) { safetensors_abandon(&w); }
    safetensors_close(&s);
    return ok;
}

TEST(writes_what_the_library_reads) {
    static const char* ours = "test/golden/ours.safetensors"; // this file was read by the library
    Error err;
    char* path = test_path("copy.safetensors");
    for (size_t piece = 1; piece <= 16; piece += 15) {
        if (!copy_mixed(path, piece, &err)) { TEST_FAIL("%s", err.text); continue; }
        if (!path_exists(ours)) {
            EXPECT(copy_mixed(ours, 16, &err));
            TEST_FAIL("%s was made afresh: now run dev/golden/tensor_files.py --check on it", ours);
        }
        size_t size, expected;
        char* got = read_file(path, &size, &err);
        char* want = read_file(ours, &expected, &err);
        EXPECT(got && want && size == expected && memcmp(got, want, size) == 0);
        free(got);
        free(want);
    }
    SafeTensors s;
    EXPECT(safetensors_open(&s, path, &err) && s.count == 10 && s.files[0].data_begin % 8 == 0);
    safetensors_close(&s);
}

TEST(all_declared_bytes_must_be_written) {
    Error err;
    SafeTensorsWriter w;
    const size_t two = 2;
    const float data[3] = {1, 2, 3};
    char* path = test_path("bytes.safetensors");
    EXPECT(safetensors_create(&w, path, &err));
    safetensors_declare(&w, "a", "F32", &two, 1, 8);
    safetensors_declare(&w, "none", "F32", NULL, 0, 4);
    EXPECT(safetensors_write(&w, data, 4, &err));
    EXPECT(!safetensors_finish(&w, NULL, &err) && strstr(err.text, "4 bytes of tensors, but 12 are declared"));
    EXPECT(safetensors_write(&w, data + 1, 8, &err) && safetensors_finish(&w, NULL, &err));
    SafeTensors s;
    EXPECT(safetensors_open(&s, path, &err) && s.count == 2);
    safetensors_close(&s);
}

TEST(a_full_disk_is_an_error) {
    Error err;
    SafeTensorsWriter w;
    static float data[1 << 16]; // larger than any buffer on the way
    const size_t n = 1 << 16, one = 1;
    if (!path_exists("/dev/full")) { SKIP("there is no /dev/full"); }
    for (int large = 0; large < 2; large++) {
        const size_t bytes = (large ? n : one) * sizeof *data;
        EXPECT(safetensors_create(&w, "/dev/full", &err));
        safetensors_declare(&w, "x", "F32", large ? &n : &one, 1, bytes);
        err.text[0] = 0;
        EXPECT(!(safetensors_write(&w, data, bytes, &err) && safetensors_finish(&w, NULL, &err)));
        EXPECT(strstr(err.text, "/dev/full: cannot write: No space left on device"));
        safetensors_abandon(&w);
    }
    EXPECT(!safetensors_create(&w, "/nowhere/x", &err) && strstr(err.text, "/nowhere/x: cannot create"));
    safetensors_abandon(&w);
}

// ---------------------------------------------------------------------------------------------------------------------
// damaged files

// Checks that a file with this header and `data_bytes` bytes of data is refused with these words (NULL: accepted).
static void expect_refusal(const char* header, size_t data_bytes, const char* words) {
    Error err;
    SafeTensors s;
    char* path = test_path("damaged.safetensors");
    uint64_t n = strlen(header);
    size_t size = sizeof n + n + data_bytes;
    char* file = (char*)alloc_or_die(size, 1, "a file");
    memcpy(file, &n, sizeof n);
    memcpy(file + sizeof n, header, n);
    test_write(path, file, size);
    bool ok = safetensors_open(&s, path, &err);
    if (ok != !words) { TEST_FAIL("%s: %s", header, ok ? "accepted" : err.text); }
    if (!ok && words && !(strstr(err.text, words) && strstr(err.text, path))) {
        TEST_FAIL("%s: expected \"%s\", got: %s", header, words, err.text);
    }
    if (ok) { safetensors_close(&s); }
    free(file);
}

#define X(dtype, shape, offsets) "\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define Y(dtype, shape, offsets) "\"y\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32 "\"F32\""

TEST(refuses_bad_headers) {
    expect_refusal("{" X(F32, "[2]", "[0,8]") "}   ", 8, NULL);
    expect_refusal("{" X(F32, "[2]", "[0,8]") "," Y("\"U8\"", "[3]", "[8,11]") "}", 11, NULL);
    expect_refusal("{" Y(F32, "[2,0]", "[8,8]") "," X(F32, "[2]", "[0,8]") "}", 8, NULL);
    expect_refusal("{" X(F32, "[2]", "[0,8]") "," Y(F32, "[0]", "[0,0]") "}", 8, NULL);
    expect_refusal("", 0, "does not begin with {");
    expect_refusal(" {}", 0, "does not begin with {");
    expect_refusal("[]", 0, "does not begin with {");
    expect_refusal("{\n\"x\": }", 0, "line 2 column 6");
    expect_refusal("{}x", 0, "line 1 column 3");
    expect_refusal("{\"\xff\":{}}", 0, "column");
    expect_refusal("{\"x\":1}", 0, "x is not a JSON object");
    expect_refusal("{\"x\":{}}", 0, "tensor x: damaged: it needs");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor x: damaged: it needs");
    expect_refusal("{" X("7", "[2]", "[0,8]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X("\"F4\"", "[2]", "[0,1]") "}", 1, NULL); // not read, and may have any size
    expect_refusal("{" X(F32, "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[1,-2]", "[0,8]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[2.0]", "[0,8]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[9223372036854775808]", "[0,8]") "}", 8, "too big integer");
    expect_refusal("{" X(F32, "[4611686018427387905]", "[0,4]") "}", 4, "elements of F32 in 4 bytes");
    expect_refusal("{" X(F32, "[4294967296,4294967296]", "[0,0]") "}", 0, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[3]", "[0,8]") "}", 8, "tensor x: damaged: 3 elements of F32 in 8 bytes");
    expect_refusal("{" X(F32, "[2]", "[0]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[2]", "[0,4,8]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[2]", "[8,0]") "}", 8, "tensor x: damaged: it needs");
    expect_refusal("{" X(F32, "[2]", "[-8,0]") "}", 8, "tensor x: damaged: it needs");
}

TEST(refuses_bad_layouts) {
    expect_refusal("{" X(F32, "[2]", "[0,8]") "}", 7, "tensor x ends at byte 8 of the data, of which there are 7");
    expect_refusal("{" X(F32, "[1]", "[0,4]") "," X(F32, "[1]", "[4,8]") "}", 8, "duplicate object key");
}

// Every prefix of a good file is refused, and so are lengths of the header that cannot be.
TEST(refuses_truncated_files) {
    Error err;
    SafeTensors s;
    size_t size;
    char* path = test_path("cut.safetensors");
    char* whole = read_file(MIXED, &size, &err);
    for (size_t n = 0; n < size; n++) {
        test_write(path, whole, n);
        if (safetensors_open(&s, path, &err)) { TEST_FAIL("the first %zu bytes are accepted", n); }
        else { EXPECT(strstr(err.text, path)); }
    }
    const uint64_t lengths[] = {100 * 1000 * 1000 + 1, 0x7fffffffffffffff, UINT64_MAX, size, size - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(whole, &lengths[i], 8);
        test_write(path, whole, size);
        EXPECT(!safetensors_open(&s, path, &err) && strstr(err.text, "a header of"));
    }
    // a header longer than allowed is refused unread, even where the file has the bytes: 101 MB, all hole
    const uint64_t long_header = 100 * 1000 * 1000 + 1;
    test_write(path, &long_header, sizeof long_header);
    EXPECT(truncate(path, 101 * 1000 * 1000) == 0);
    EXPECT(!safetensors_open(&s, path, &err) && strstr(err.text, "a header of 100000001 bytes"));
    EXPECT(!safetensors_open(&s, test_folder, &err) && strstr(err.text, "not a regular file"));
    EXPECT(!safetensors_open(&s, "/nowhere/x", &err) && strstr(err.text, "/nowhere/x: cannot open"));
    free(whole);
}

TEST(a_file_cut_while_open_is_an_error) {
    Error err;
    SafeTensors s;
    float wte[12];
    char* path = test_path("shrinks.safetensors");
    if (!copy_mixed(path, 16, &err) || !safetensors_open(&s, path, &err)) { fatal("%s", err.text); }
    EXPECT(truncate(path, 16) == 0);
    EXPECT(!safetensors_read_float(&s, safetensors_find(&s, "wte.weight"), wte, &err));
    EXPECT(strstr(err.text, "cut short while it was open"));
    safetensors_close(&s);
}

// ---------------------------------------------------------------------------------------------------------------------
// folders

static char* make_model(const char* name, const char* index) {
    Error err;
    char* folder = format("%s/%s", test_folder, name);
    char* path = format("%s/model.safetensors.index.json", folder);
    if (!make_directories(folder, &err)) { fatal("%s", err.text); }
    test_write(path, index, strlen(index));
    free(path);
    return folder;
}

static void put_tensor(const char* folder, const char* file, const char* name, float value) {
    Error err;
    SafeTensorsWriter w;
    char* path = format("%s/%s", folder, file);
    if (!safetensors_create(&w, path, &err)) { fatal("%s", err.text); }
    safetensors_declare(&w, name, "F32", NULL, 0, sizeof value);
    if (!safetensors_write(&w, &value, sizeof value, &err) || !safetensors_finish(&w, NULL, &err)) {
        fatal("%s", err.text);
    }
    free(path);
}

TEST(reads_a_model_in_several_files) {
    Error err;
    SafeTensors s;
    float value = 0;
    char* folder = make_model("sharded", "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"b\":\"2.safetensors\","
                                         "\"a\":\"1.safetensors\"}}");
    put_tensor(folder, "1.safetensors", "a", 1);
    put_tensor(folder, "2.safetensors", "b", 2);
    EXPECT(safetensors_open_folder(&s, folder, &err) && s.num_files == 2 && s.count == 2);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "a"), &value, &err) && value == 1);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "b"), &value, &err) && value == 2);
    EXPECT(s.files[0].data_begin % 8 == 0 && s.files[1].data_begin % 8 == 0);
    safetensors_close(&s);

    put_tensor(folder, "2.safetensors", "a", 2); // the index says otherwise
    EXPECT(!safetensors_open_folder(&s, folder, &err) && strstr(err.text, "tensor a is in "));

    put_tensor(folder, "model.safetensors", "whole", 3); // comes before the index
    EXPECT(safetensors_open_folder(&s, folder, &err) && s.count == 1);
    EXPECT(safetensors_read_float(&s, safetensors_find(&s, "whole"), &value, &err) && value == 3);
    EXPECT(s.files[0].data_begin % 8 == 0); // the name is longer by 4 than those above, so one of the headers is padded
    safetensors_close(&s);
    free(folder);
}

TEST(refuses_bad_indexes) {
    static const struct { const char *index, *words; } cases[] = {
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "tensor a: not the name of a file"},
        {"{\"weight_map\":{\"a\":7}}", "tensor a: not the name of a file"},
        {"{\"weight_map\":{\"a\":\"absent.safetensors\"}}", "absent.safetensors: cannot open"},
        {"{\"weight_map\":7}", "there is no weight_map"},
        {"[]", "not a JSON object"},
        {"{", "model.safetensors.index.json:1: "},
        {"{\"weight_map\": {}}", "index.json: its weight_map names no tensors"},
    };
    Error err;
    SafeTensors s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char* folder = make_model("bad", cases[i].index);
        bool ok = safetensors_open_folder(&s, folder, &err);
        if (ok || !strstr(err.text, cases[i].words)) {
            TEST_FAIL("%s: %s", cases[i].index, ok ? "accepted" : err.text);
        }
        free(folder);
    }
    EXPECT(!safetensors_open_folder(&s, "/nowhere", &err) && strstr(err.text, "/nowhere: there is neither"));
}

TEST_MAIN()
