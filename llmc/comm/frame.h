// What ranks say to each other over TCP: frames, each a header and a payload, little-endian. Nothing that was
// received is believed: every length has its limit before memory is taken for it, and text is cleaned before it is
// printed.
#pragma once
#include "socket.h"

enum {
    FRAME_MAGIC = 0x63327067, // "gp2c"
    FRAME_VERSION = 1,        // of all below; the header, and a hello's first number, stay as they are for ever
    FRAME_TEXT = 1000,        // bytes of a message
    FRAME_MOST = 1 << 20,     // bytes of a payload
    HOST_BYTES = 64,          // a machine's name with its closing 0, cut if longer
};

typedef enum {
    FRAME_HELLO = 1, // a Hello, from a rank to rank 0
    FRAME_WELCOME,   // rank 0 has taken it in
    FRAME_REFUSED,   // text: why not
    FRAME_START,     // all are there: the hosts' names, HOST_BYTES each
    FRAME_BEAT,      // a Beat: a sign of life
    FRAME_ABORT,     // text: why the run ends, from rank 0 to all
    FRAME_BROADCAST, // a rank's part in an exchange, or rank 0's answer to it
    FRAME_GATHER,
    FRAME_BARRIER,
    FRAME_CLOSE,
    NUM_FRAME_TYPES
} FrameType;

typedef struct {
    uint32_t magic, type, sequence, bytes;
} FrameHeader;

typedef struct {
    uint32_t version, rank, size, zero;
    uint64_t key;
    char host[HOST_BYTES];
} Hello;

typedef struct {
    int64_t step;
    uint32_t activity, zero;
} Beat;

// A frame as it comes in, in pieces of any size.
typedef struct {
    FrameHeader header;
    uint8_t* payload; // header.bytes of them, once the frame is whole
    size_t have;      // bytes of both
    size_t most;      // of a payload
} FrameReader;

typedef enum { FRAME_PART, FRAME_WHOLE, FRAME_BAD, FRAME_END } FrameState;

// Where the next bytes go, and how many of them still belong to this frame.
static inline void* frame_room(FrameReader* r, size_t* bytes) {
    const size_t header = sizeof r->header;
    *bytes = (r->have < header ? header : header + r->header.bytes) - r->have;
    return r->have < header ? (uint8_t*)&r->header + r->have : r->payload + (r->have - header);
}

static inline bool frame_fits(const FrameHeader* h, size_t most) {
    switch (h->type) {
    case FRAME_WELCOME: return h->bytes == 0;
    case FRAME_BEAT: return h->bytes == sizeof(Beat);
    case FRAME_REFUSED:
    case FRAME_ABORT: return h->bytes <= FRAME_TEXT;
    default: return h->type >= FRAME_HELLO && h->type < NUM_FRAME_TYPES && h->bytes <= most;
    }
}

// After `n` bytes were put there.
static inline FrameState frame_add(FrameReader* r, size_t n) {
    const bool had_header = r->have >= sizeof r->header;
    r->have += n;
    if (r->have < sizeof r->header) { return FRAME_PART; }
    if (!had_header) {
        if (r->header.magic != FRAME_MAGIC || !frame_fits(&r->header, r->most)) {
            r->header.bytes = 0;
            return FRAME_BAD;
        }
        r->payload = (uint8_t*)alloc_or_die(r->header.bytes, 1, "a message from another rank");
    }
    return r->have == sizeof r->header + r->header.bytes ? FRAME_WHOLE : FRAME_PART;
}

// Gives the payload back, and begins the next frame.
static inline void frame_next(FrameReader* r) {
    free(r->payload);
    r->payload = NULL;
    r->have = 0;
}

// What has come so far, no further than the end of the frame; never waits.
static inline FrameState frame_receive(FrameReader* r, int fd) {
    for (;;) {
        size_t room;
        void* to = frame_room(r, &room);
        const ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) { return FRAME_PART; }
        if (n <= 0) { return FRAME_END; }
        const FrameState state = frame_add(r, (size_t)n);
        if (state != FRAME_PART) { return state; }
    }
}

// Header and payload in one piece, which the caller frees: small ones then travel in one packet.
static inline uint8_t* frame_make(FrameType type, uint32_t sequence, const void* payload, size_t bytes) {
    const FrameHeader h = {FRAME_MAGIC, (uint32_t)type, sequence, (uint32_t)bytes};
    uint8_t* frame = (uint8_t*)alloc_or_die(sizeof h + bytes, 1, "a message to another rank");
    memcpy(frame, &h, sizeof h);
    if (bytes) { memcpy(frame + sizeof h, payload, bytes); }
    return frame;
}

static inline bool frame_send(int fd, FrameType type, uint32_t sequence, const void* payload, size_t bytes,
                              double deadline) {
    uint8_t* frame = frame_make(type, sequence, payload, bytes);
    const bool ok = tcp_send(fd, frame, sizeof(FrameHeader) + bytes, deadline);
    free(frame);
    return ok;
}

// Text that another process sent, fit to be printed: cut at `size` and at its first 0, one line, in ASCII.
static inline void printable_text(char* to, size_t size, const void* from, size_t bytes) {
    size_t n = 0;
    for (const char* p = (const char*)from; n < bytes && n + 1 < size && p[n]; n++) {
        to[n] = p[n];
        if (p[n] < 32 || p[n] > 126) { to[n] = '?'; }
    }
    to[n] = 0;
}

// True for a payload that is a hello of this version, with a host fit to be printed; else only its version is right, 0
// if there is none.
static inline bool hello_parse(const FrameReader* r, Hello* hello) {
    memset(hello, 0, sizeof *hello);
    if (r->header.type != FRAME_HELLO || r->header.bytes < sizeof hello->version) { return false; }
    memcpy(&hello->version, r->payload, sizeof hello->version);
    if (hello->version != FRAME_VERSION || r->header.bytes != sizeof *hello) { return false; }
    memcpy(hello, r->payload, sizeof *hello);
    printable_text(hello->host, sizeof hello->host, r->payload + offsetof(Hello, host), HOST_BYTES);
    return true;
}

// The name of an exchange, for messages.
static inline const char* frame_name(uint32_t type) {
    switch (type) {
    case FRAME_BROADCAST: return "a broadcast";
    case FRAME_GATHER: return "a gather";
    case FRAME_BARRIER: return "a barrier";
    case FRAME_CLOSE: return "the end";
    default: return "something else";
    }
}
