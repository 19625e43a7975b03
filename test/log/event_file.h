// Reads histograms from TensorBoard's event files, whose format llmc/log/tensorboard.h describes.
#pragma once
#include "llmc/base/base.h"

typedef struct {
    const unsigned char *at, *end;
} Span;

typedef struct {
    Span tag;
    uint64_t step;
    double min, max, count, sum, squares;
} EventHistogram;

static inline uint64_t take_varint(Span* s) {
    uint64_t x = 0;
    for (int shift = 0; s->at < s->end; shift += 7) {
        const unsigned char byte = *s->at++;
        x |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) { break; }
    }
    return x;
}

// Finds the first field of this number in a message: sets `inner` to its bytes, and `number` to its value if it is a
// varint. Ends the program if the message is cut short.
static inline bool find_field(Span message, uint64_t wanted, Span* inner, uint64_t* number) {
    while (message.at < message.end) {
        const uint64_t key = take_varint(&message), type = key & 7;
        if (type == 0) { *number = take_varint(&message); }
        const uint64_t size = type == 2 ? take_varint(&message) : type == 1 ? 8 : type == 5 ? 4 : 0;
        if (size > (uint64_t)(message.end - message.at)) { fatal("a message is cut short"); }
        *inner = (Span){message.at, message.at + size};
        message.at += size;
        if (key >> 3 == wanted) { return true; }
    }
    return false;
}

static inline double find_double(Span message, uint64_t wanted) {
    Span bytes;
    uint64_t ignored;
    double x = 0; // proto3 leaves out zeros
    if (find_field(message, wanted, &bytes, &ignored)) { memcpy(&x, bytes.at, sizeof x); }
    return x;
}

// Goes to the next histogram of a file; returns false at its end. `file` begins at the file's first byte.
static inline bool next_histogram(Span* file, EventHistogram* h) {
    while (file->at < file->end) {
        uint64_t length, ignored;
        Span summary, value, inner;
        memcpy(&length, file->at, sizeof length);
        const Span event = {file->at + 12, file->at + 12 + length};
        file->at = event.end + 4;
        memset(h, 0, sizeof *h);
        if (!find_field(event, 5, &summary, &ignored) || !find_field(summary, 1, &value, &ignored) ||
            !find_field(value, 1, &h->tag, &ignored) || !find_field(value, 5, &inner, &ignored)) {
            continue;
        }
        find_field(event, 2, &summary, &h->step);
        h->min = find_double(inner, 1), h->max = find_double(inner, 2), h->count = find_double(inner, 3);
        h->sum = find_double(inner, 4), h->squares = find_double(inner, 5);
        return true;
    }
    return false;
}

static inline bool tag_begins_with(const EventHistogram* h, const char* prefix) {
    const size_t n = strlen(prefix);
    return (size_t)(h->tag.end - h->tag.at) >= n && !memcmp(h->tag.at, prefix, n);
}
