// Any bytes from the network: frames keep to their limits whatever the pieces they come in, and rank 0 admits a visitor
// with a right hello, tells a rank why it is refused, or disconnects without a byte in answer.
#include "llmc/base/file.h"
#include "llmc/comm/rendezvous.h"
#include "test/fuzz/input.h"
#include <stddef.h>
#include <sys/socket.h>

static void check_text(const char* text, size_t room) {
    const size_t n = strnlen(text, room);
    if (n == room) { abort(); }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 32 || text[i] > 126) { abort(); }
    }
}

static void check_frame(const FrameReader* r) {
    char text[FRAME_TEXT_BYTES];
    if (r->header.type == 0 || r->header.type >= NUM_FRAME_TYPES) { abort(); }
    if (r->header.bytes > r->max_bytes && r->header.bytes > FRAME_TEXT_BYTES) { abort(); }
    if (r->have != sizeof r->header + r->header.bytes) { abort(); }
    printable_text(text, sizeof text, r->payload, r->header.bytes);
    check_text(text, sizeof text);
}

// As they are read from a rank that was admitted.
static void read_frames(const uint8_t* data, size_t size, size_t piece) {
    FrameReader r = {.max_bytes = MAX_FRAME_BYTES};
    FrameState state = FRAME_PART;
    for (size_t room; size > 0 && state != FRAME_BAD; data += room, size -= room) {
        void* to = frame_room(&r, &room);
        room = min_size(room, min_size(piece, size));
        memcpy(to, data, room);
        state = frame_add(&r, room);
        if (state == FRAME_WHOLE) {
            check_frame(&r);
            frame_next(&r);
        }
    }
    frame_next(&r);
}

enum { RANKS = 4 };

static Rendezvous rank0(Connection* c) {
    static Peer peers[RANKS];
    static char hosts[RANKS][HOST_BYTES];
    Rendezvous r = {.connection = c, .missing = RANKS - 1};
    memset(r.endpoint.rank_token, 'r', TOKEN_BYTES);
    memset(r.endpoint.rank0_token, '0', TOKEN_BYTES);
    memset(peers, 0, sizeof peers);
    memset(c, 0, sizeof *c);
    c->size = RANKS;
    c->peers = peers;
    c->hosts = hosts;
    c->wake = open("/dev/null", O_WRONLY);
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < RANKS; i++) {
        c->peers[i].fd = -1;
        pthread_mutex_init(&c->peers[i].sending, NULL);
    }
    return r;
}

// Sends the bytes to rank 0 as a visitor.
static void greet_with(const uint8_t* data, size_t size) {
    Connection c;
    Rendezvous r = rank0(&c);
    Visitor* v = &r.visitors[0];
    int ends[2], admitted = 0;
    char answer[1];
    process_rank = 1; // prints no notices
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) { abort(); }
    v->fd = ends[0];
    if (size && send(ends[1], data, min_size(size, 4096), MSG_NOSIGNAL) < 0) { abort(); }
    if (frame_receive(&v->reader, v->fd) == FRAME_WHOLE) { rendezvous_receive(&r, v); }
    const size_t token = sizeof(FrameHeader) + offsetof(Hello, token);
    const bool is_known = size >= token + TOKEN_BYTES && !memcmp(data + token, r.endpoint.rank_token, TOKEN_BYTES);
    if (!is_known && recv(ends[1], answer, 1, 0) > 0) { abort(); }
    for (int i = 0; i < RANKS; i++) {
        if (c.peers[i].fd < 0) { continue; }
        if (i == 0 || !is_known || r.missing != RANKS - 2 || admitted++) { abort(); }
        check_text(c.hosts[i], HOST_BYTES);
        close(c.peers[i].fd);
    }
    if (v->fd >= 0) { close(v->fd); }
    frame_next(&v->reader);
    close(c.wake);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) { return 0; }
    const size_t piece = (size_t)data[0] + 1;
    read_frames(data + 1, size - 1, piece);
    greet_with(data + 1, size - 1);
    // Again as a hello with the right lengths: few inputs have them.
    uint8_t frame[sizeof(FrameHeader) + sizeof(Hello)] = {0};
    const FrameHeader h = {FRAME_MAGIC, FRAME_HELLO, 0, sizeof(Hello)};
    memcpy(frame, &h, sizeof h);
    memcpy(frame + sizeof h, data + 1, min_size(size - 1, sizeof(Hello)));
    if (data[0] % 2) { memset(frame + sizeof h + offsetof(Hello, token), 'r', TOKEN_BYTES); } // from a rank
    read_frames(frame, sizeof frame, piece);
    greet_with(frame, sizeof frame);
    return 0;
}
