#include "llmc/log/tensorboard.h"
#include "test/test.h"
#include <glob.h>

static time_t test_time; // what time() returns; 0: the time

time_t time(time_t* to) { // in place of the C library's
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const time_t seconds = test_time ? test_time : now.tv_sec;
    if (to) { *to = seconds; }
    return seconds;
}

// The CRC-32C of RFC 3720, bit by bit, unmasked.
static uint32_t crc32c(const unsigned char* bytes, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 8 * size; i++) {
        const uint32_t bit = (uint32_t)(bytes[i / 8] >> i % 8 & 1);
        crc = (crc >> 1) ^ ((crc ^ bit) & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint64_t little_endian(const unsigned char* p, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) { x |= (uint64_t)p[i] << 8 * i; }
    return x;
}

static bool has_crc(const unsigned char* bytes, size_t size) {
    const uint32_t crc = crc32c(bytes, size);
    return little_endian(bytes + size, 4) == (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u);
}

typedef struct {
    const unsigned char* data;
    size_t size;
} Record;

// Splits a file into its records, with right lengths and CRCs, and returns their number.
static int split(const unsigned char* text, size_t size, Record* records, int most) {
    int n = 0;
    for (size_t at = 0; at < size && n < most; n++) {
        const size_t length = size - at >= 16 ? (size_t)little_endian(text + at, 8) : SIZE_MAX;
        if (length > size - at - 16) { TEST_FAIL("record %d is cut short", n); break; }
        if (!has_crc(text + at, 8) || !has_crc(text + at + 12, length)) { TEST_FAIL("record %d: CRC", n); }
        records[n] = (Record){text + at + 12, length};
        at += length + 16;
    }
    return n;
}

// Returns the only file, or the last by name, in a folder; the caller frees it.
static char* event_file(const char* folder, size_t count) {
    glob_t found;
    char *pattern = format("%s/*", folder), *path = NULL;
    if (glob(pattern, 0, NULL, &found) == 0) {
        EXPECT(found.gl_pathc == count);
        path = format("%s", found.gl_pathv[found.gl_pathc - 1]);
        globfree(&found);
    }
    free(pattern);
    return path;
}

TEST(the_checksum_is_castagnolis) { EXPECT(crc32c((const unsigned char*)"123456789", 9) == 0xe3069283u); }

static void write_events(const char* folder) {
    static const char* const tags[] = {"train/loss", "train/norm", "speed/mfu", "train/lr"};
    EventFile e;
    Error err;
    if (!events_open(&e, folder, 301, &err)) { TEST_FAIL("%s", err.text); return; }
    events_scalars(&e, 301, 4, tags, (const double[]){10.98, 15.5, NAN, 8.4e-7});
    events_scalars(&e, 302, 1, tags, (const double[]){INFINITY}); // nothing is left to write
    events_scalars(&e, 2000000000, 1, (const char* const[]){"val/loss"}, (const double[]){3.25});
    char* text = format("a <b> & \"x\"\n\xe2\x82\xac %.1000d", 0);
    char* zeros = strchr(text, '0');
    for (int i = 0; i < 1000; i++) { zeros[i] = "long "[i % 5]; }
    events_text(&e, 302, "sample", text, strlen(text));
    free(text);
    EXPECT(events_close(&e, &err));
}

// dev/golden/event_files.py recorded the same events.
TEST(the_bytes_are_tensorboards) {
    Error err;
    size_t size[2];
    Record got[16], want[16];
    char* folder = test_path("bytes");
    write_events(folder);
    char* path = event_file(folder, 1);
    char *ours = read_file(path, &size[0], &err), *golden = read_file("test/golden/events.tfevents", &size[1], &err);
    const int n = ours ? split((unsigned char*)ours, size[0], got, 16) : 0;
    EXPECT(golden && split((unsigned char*)golden, size[1], want, 16) == n && n == 5);
    for (int i = 0; i < n && golden; i++) {
        const size_t skip = 9; // the wall time is the first field; proto3 leaves out the golden one, which is 0
        if (got[i].size - skip != want[i].size || memcmp(got[i].data + skip, want[i].data, want[i].size)) {
            TEST_FAIL("event %d of %zu bytes differs from TensorBoard's of %zu", i, got[i].size - skip, want[i].size);
        }
        double seconds;
        memcpy(&seconds, got[i].data + 1, sizeof seconds);
        EXPECT(got[i].data[0] == 0x09 && fabs(seconds - (double)time(NULL)) < 3600);
    }
    free(ours);
    free(golden);
    free(path);
}

// Files of later starts sort behind earlier ones, also within a second and after the clock was set back.
TEST(a_start_has_its_own_file_behind_the_others) {
    EventFile e;
    Error err;
    char* folder = test_path("starts");
    char* future = format("%s/events.out.tfevents.4000000000.host.1.0", folder);
    EXPECT(make_directories(folder, &err) && write_file_atomically(future, "x", 1, &err));
    for (size_t i = 0; i < 3; i++) {
        if (!events_open(&e, folder, (int)i, &err)) { TEST_FAIL("%s", err.text); break; }
        char* last = event_file(folder, i + 2);
        EXPECT(!strcmp(last, e.path) && strcmp(last, future) > 0);
        free(last);
        EXPECT(events_close(&e, &err));
    }
    free(future);
}

TEST(a_clock_before_1970_is_no_error) {
    EventFile e;
    Error err;
    char* folder = test_path("before");
    test_time = -5;
    for (size_t i = 0; i < 2; i++) {
        if (!events_open(&e, folder, 0, &err)) { TEST_FAIL("%s", err.text); break; }
        char *last = event_file(folder, i + 1), *name = format("/events.out.tfevents.000000000%zu.", i);
        EXPECT(!strcmp(last, e.path) && strstr(last, name));
        free(name);
        free(last);
        EXPECT(events_close(&e, &err));
    }
    test_time = 0;
}

TEST(errors_name_the_file) {
    EventFile e;
    Error err;
    char* file = test_path("file");
    EXPECT(write_file_atomically(file, "x", 1, &err));
    EXPECT(!events_open(&e, file, 0, &err) && strstr(err.text, "/file: a file, not a folder"));
    if (access("/dev/full", W_OK) != 0) { SKIP("no /dev/full"); }
    e = (EventFile){fopen("/dev/full", "wb"), format("full")};
    EXPECT_DEATH(EXIT_RUNTIME, "full: cannot write: No space", {
        events_text(&e, 1, "x", "x", 1);
    });
    fclose(e.file);
    free(e.path);
}

TEST_MAIN()
