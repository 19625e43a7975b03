#include "tensorboard.h"
#include <dirent.h>

// ---------------------------------------------------------------------------------------------------------------------
// protocol buffers

typedef struct {
    unsigned char* at;
    size_t size, room;
} Message;

typedef enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH_AND_BYTES = 2, FOUR_BYTES = 5 } WireType;

static void put(Message* m, const void* bytes, size_t size) {
    if (m->size + size > m->room) {
        m->room = 2 * (m->size + size);
        m->at = realloc_or_die(m->at, m->room, "an event");
    }
    memcpy(m->at + m->size, bytes, size);
    m->size += size;
}

// Numbers are written byte by byte, the lowest first, on any machine.
static void put_little_endian(Message* m, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)(x >> 8 * i);
        put(m, &byte, 1);
    }
}

static void put_varint(Message* m, uint64_t x) {
    for (; x >= 128; x >>= 7) { put_little_endian(m, (x & 127) | 128, 1); }
    put_little_endian(m, x, 1);
}

static void put_key(Message* m, int field, WireType type) { put_varint(m, (uint64_t)field << 3 | type); }

static void put_int(Message* m, int field, uint64_t x) {
    put_key(m, field, VARINT);
    put_varint(m, x);
}

static void put_double(Message* m, int field, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, EIGHT_BYTES);
    put_little_endian(m, bits, 8);
}

static void put_float(Message* m, int field, float x) {
    put_key(m, field, FOUR_BYTES);
    put_little_endian(m, bits_of_float(x), 4);
}

static void put_bytes(Message* m, int field, const void* bytes, size_t size) {
    put_key(m, field, LENGTH_AND_BYTES);
    put_varint(m, size);
    put(m, bytes, size);
}

static void put_string(Message* m, int field, const char* text) { put_bytes(m, field, text, strlen(text)); }

// Adds a message as a field of another one, and frees it.
static void put_message(Message* m, int field, Message* inner) {
    put_bytes(m, field, inner->at, inner->size);
    free(inner->at);
    memset(inner, 0, sizeof *inner);
}

// ---------------------------------------------------------------------------------------------------------------------
// records

static uint32_t masked_crc(const unsigned char* bytes, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) { crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); }
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Writes a record and frees its message.
static void write_record(EventFile* e, Message* data) {
    Message record = {NULL, 0, 0};
    put_little_endian(&record, data->size, 8);
    put_little_endian(&record, masked_crc(record.at, 8), 4);
    put(&record, data->at, data->size);
    put_little_endian(&record, masked_crc(data->at, data->size), 4);
    fwrite(record.at, 1, record.size, e->file);
    if (fflush(e->file) != 0 || ferror(e->file)) {
        fatal("%s: cannot write: %s; make room, then go on with --resume auto", e->path, strerror(errno));
    }
    free(record.at);
    free(data->at);
}

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Returns an event of this step, or without one for step 0, as protocol buffers leave out what is 0.
static Message new_event(int step) {
    Message event = {NULL, 0, 0};
    put_double(&event, 1, wall_time());
    if (step) { put_int(&event, 2, (uint64_t)step); }
    return event;
}

// Writes an event with this summary, and frees the summary.
static void write_summary(EventFile* e, int step, Message* summary) {
    Message event = new_event(step);
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
        fail(err, "%s: cannot list: %s", folder, strerror(errno));
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
        fail(err, "%s: cannot write: %s", e->path, strerror(errno));
        free(e->path);
        memset(e, 0, sizeof *e);
        return false;
    }
    Message version = new_event(0), start = new_event(first_step), session = {NULL, 0, 0};
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
    Message summary = {NULL, 0, 0};
    if (!e->file) { return; }
    for (int i = 0; i < n; i++) {
        Message value = {NULL, 0, 0};
        if (!isfinite(values[i])) { continue; }
        put_string(&value, 1, tags[i]);
        put_float(&value, 2, (float)values[i]);
        put_message(&summary, 1, &value);
    }
    if (summary.size) { write_summary(e, step, &summary); }
}

// A text is a tensor of one string, which the plugin "text" shows.
void events_text(EventFile* e, int step, const char* tag, const char* text, size_t size) {
    Message summary = {NULL, 0, 0}, value = summary, tensor = summary, shape = summary, dim = summary,
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
