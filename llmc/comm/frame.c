#include "frame.h"
#include "socket.h"

void* frame_room(FrameReader* r, size_t* bytes) {
    const size_t header = sizeof r->header;
    *bytes = (r->have < header ? header : header + r->header.bytes) - r->have;
    return r->have < header ? (uint8_t*)&r->header + r->have : r->payload + (r->have - header);
}

// Returns true if the payload has a size that this type may have.
static bool frame_fits(const FrameHeader* h, size_t max_bytes) {
    switch (h->type) {
    case FRAME_HELLO: return h->bytes == sizeof(Hello);
    case FRAME_WELCOME: return h->bytes == sizeof(Welcome);
    case FRAME_HEARTBEAT: return h->bytes == sizeof(Heartbeat);
    case FRAME_ABORT: return h->bytes <= FRAME_TEXT_BYTES;
    default: return h->type >= FRAME_BROADCAST && h->type < NUM_FRAME_TYPES && h->bytes <= max_bytes;
    }
}

FrameState frame_add(FrameReader* r, size_t n) {
    const bool had_header = r->have >= sizeof r->header;
    r->have += n;
    if (r->have < sizeof r->header) { return FRAME_PART; }
    if (!had_header) {
        if (r->header.magic != FRAME_MAGIC || !frame_fits(&r->header, r->max_bytes)) {
            r->header.bytes = 0;
            return FRAME_BAD;
        }
        r->payload = alloc_or_die(r->header.bytes, 1, "a message from another rank");
    }
    return r->have == sizeof r->header + r->header.bytes ? FRAME_WHOLE : FRAME_PART;
}

void frame_next(FrameReader* r) {
    free(r->payload);
    r->payload = NULL;
    r->have = 0;
}

FrameState frame_receive(FrameReader* r, int fd) {
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

uint8_t* frame_make(FrameType type, uint32_t sequence, const void* payload, size_t bytes) {
    const FrameHeader h = {
        .magic = FRAME_MAGIC, .type = (uint32_t)type, .sequence = sequence, .bytes = (uint32_t)bytes};
    uint8_t* frame = alloc_or_die(sizeof h + bytes, 1, "a message to another rank");
    memcpy(frame, &h, sizeof h);
    if (bytes) { memcpy(frame + sizeof h, payload, bytes); }
    return frame;
}

bool frame_send(int fd, FrameType type, uint32_t sequence, const void* payload, size_t bytes, double deadline) {
    uint8_t* frame = frame_make(type, sequence, payload, bytes);
    const bool ok = socket_send(fd, frame, sizeof(FrameHeader) + bytes, deadline);
    free(frame);
    return ok;
}

void printable_text(char* to, size_t size, const void* from, size_t bytes) {
    size_t n = 0;
    for (const char* p = from; n < bytes && n + 1 < size && p[n]; n++) {
        to[n] = p[n];
        if (p[n] < 32 || p[n] > 126) { to[n] = '?'; }
    }
    to[n] = 0;
}

const char* frame_name(uint32_t type) {
    switch (type) {
    case FRAME_BROADCAST: return "a broadcast";
    case FRAME_GATHER: return "a gather";
    case FRAME_BARRIER: return "a barrier";
    case FRAME_CLOSE: return "the end";
    default: return "something else";
    }
}
