#include "tensorboard.h"
#include "../base/file.h"
#include <dirent.h>

// ---------------------------------------------------------------------------------------------------------------------
// protocol buffers. Numbers are little-endian, as are the processors that this program runs on.

typedef enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH_AND_BYTES = 2, FOUR_BYTES = 5 } WireType;

static void put_varint(Buffer* m, uint64_t x) {
    unsigned char bytes[10];
    size_t n = 0;
    for (; x >= 128; x >>= 7) { bytes[n++] = (unsigned char)(x | 128); }
    bytes[n++] = (unsigned char)x;
    buffer_append(m, bytes, n);
}

static void put_key(Buffer* m, int field, WireType type) { put_varint(m, (uint64_t)field << 3 | type); }

static void put_int(Buffer* m, int field, uint64_t x) {
    put_key(m, field, VARINT);
    put_varint(m, x);
}

static void put_double(Buffer* m, int field, double x) {
    put_key(m, field, EIGHT_BYTES);
    buffer_append(m, &x, sizeof x);
}

static void put_float(Buffer* m, int field, float x) {
    put_key(m, field, FOUR_BYTES);
    buffer_append(m, &x, sizeof x);
}

static void put_bytes(Buffer* m, int field, const void* bytes, size_t size) {
    put_key(m, field, LENGTH_AND_BYTES);
    put_varint(m, size);
    buffer_append(m, bytes, size);
}

static void put_string(Buffer* m, int field, const char* text) { put_bytes(m, field, text, strlen(text)); }

// Adds a message as a field of another one, and frees it.
static void put_message(Buffer* m, int field, Buffer* inner) {
    put_bytes(m, field, inner->data, inner->bytes);
    free(inner->data);
    memset(inner, 0, sizeof *inner);
}

// ---------------------------------------------------------------------------------------------------------------------
// records

static uint32_t masked_crc(const char* bytes, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int k = 0; k < 8; k++) { crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); }
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Writes a record and frees its message.
static void write_record(EventFile* e, Buffer* data) {
    const uint64_t size = data->bytes;
    const uint32_t size_crc = masked_crc((const char*)&size, sizeof size), crc = masked_crc(data->data, data->bytes);
    Buffer record = {NULL, 0, 0};
    buffer_append(&record, &size, sizeof size);
    buffer_append(&record, &size_crc, sizeof size_crc);
    buffer_append(&record, data->data, data->bytes);
    buffer_append(&record, &crc, sizeof crc);
    fwrite(record.data, 1, record.bytes, e->file);
    if (fflush(e->file) != 0 || ferror(e->file)) {
        fatal("%s: cannot write: %s; make room, then go on with --resume auto", e->path, strerror(errno));
    }
    free(record.data);
    free(data->data);
}

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Returns an event of this step, or without one for step 0, as protocol buffers leave out what is 0.
static Buffer new_event(int step) {
    Buffer event = {NULL, 0, 0};
    put_double(&event, 1, wall_time());
    if (step) { put_int(&event, 2, (uint64_t)step); }
    return event;
}

// Writes an event with this summary, and frees the summary.
static void write_summary(EventFile* e, int step, Buffer* summary) {
    Buffer event = new_event(step);
    put_message(&event, 5, summary);
    write_record(e, &event);
}

// ---------------------------------------------------------------------------------------------------------------------
// files

// Returns the time for the name of the next file, in seconds since 1970: later than those in the names of all event
// files in `folder`, and 0 at least. Returns -1 on failure.
static long long next_seconds(const char* folder, Error* err) {
    const time_t now = time(NULL);
    long long next = now < 0 ? 0 : (long long)now, seconds; // a machine without a battery may begin before 1970
    DIR* directory = opendir(folder);
    if (!directory) {
        fail_system(err, folder, "list");
        return -1;
    }
    for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
        if (sscanf(entry->d_name, "events.out.tfevents.%10lld.", &seconds) == 1 && seconds >= next) {
            next = seconds + 1;
        }
    }
    closedir(directory);
    return next;
}

bool events_open(EventFile* e, const char* folder, int first_step, Error* err) {
    char host[256] = "localhost";
    memset(e, 0, sizeof *e);
    if (!make_directories(folder, err)) { return false; }
    const long long seconds = next_seconds(folder, err);
    if (seconds < 0) { return false; }
    if (gethostname(host, sizeof host - 1) != 0) { strcpy(host, "localhost"); }
    e->path = format("%s/events.out.tfevents.%010lld.%s.%ld.0", folder, seconds, host, (long)getpid());
    e->file = fopen(e->path, "wbx");
    if (!e->file) {
        fail_system(err, e->path, "write");
        free(e->path);
        memset(e, 0, sizeof *e);
        return false;
    }
    Buffer version = new_event(0), start = new_event(first_step), session = {NULL, 0, 0};
    put_string(&version, 3, "brain.Event:2");
    write_record(e, &version);
    put_int(&session, 1, 1);
    put_message(&start, 7, &session);
    write_record(e, &start);
    return true;
}

bool events_close(EventFile* e, Error* err) {
    const bool ok = !e->file || close_synced(e->file, e->path, err);
    free(e->path);
    memset(e, 0, sizeof *e);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// summaries

void events_scalars(EventFile* e, int step, int n, const char* const* tags, const double* values) {
    Buffer summary = {NULL, 0, 0};
    if (!e->file) { return; }
    for (int i = 0; i < n; i++) {
        Buffer value = {NULL, 0, 0};
        if (!isfinite(values[i])) { continue; }
        put_string(&value, 1, tags[i]);
        put_float(&value, 2, (float)values[i]);
        put_message(&summary, 1, &value);
    }
    if (summary.bytes) { write_summary(e, step, &summary); }
}

// A text is a tensor of one string, which the plugin "text" shows.
void events_text(EventFile* e, int step, const char* tag, const char* text, size_t size) {
    Buffer summary = {NULL, 0, 0}, value = summary, tensor = summary, shape = summary, dim = summary,
            plugin = summary, metadata = summary;
    if (!e->file) { return; }
    put_int(&dim, 1, 1);
    put_message(&shape, 2, &dim);
    put_int(&tensor, 1, 7);
    put_message(&tensor, 2, &shape);
    put_bytes(&tensor, 8, text, size);
    put_string(&plugin, 1, "text");
    put_message(&metadata, 1, &plugin);
    char* name = format("%s/text_summary", tag);
    put_string(&value, 1, name);
    put_message(&value, 8, &tensor);
    put_message(&value, 9, &metadata);
    put_message(&summary, 1, &value);
    write_summary(e, step, &summary);
    free(name);
}
