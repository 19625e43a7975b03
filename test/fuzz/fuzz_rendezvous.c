// Any bytes from the network: frames keep to their limits whatever the pieces they come in, and rank 0 admits a visitor
// with a right hello, tells a rank why it is refused, or disconnects.
#include "llmc/comm/rendezvous.h"
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check_text(const char* text, size_t room) {
    const size_t n = strnlen(text, room);
    if (n == room) { abort(); }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 32 || text[i] > 126) { abort(); }
    }
}

static void check_frame(const FrameReader* r) {
    Hello hello;
    char text[FRAME_TEXT_BYTES];
    if (r->header.type == 0 || r->header.type >= NUM_FRAME_TYPES) { abort(); }
    if (r->header.bytes > r->max_bytes && r->header.bytes > FRAME_TEXT_BYTES) { abort(); }
    if (r->have != sizeof r->header + r->header.bytes) { abort(); }
    hello_parse(r, &hello);
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

// Sends the bytes to rank 0 as a visitor.
static void greet_with(const uint8_t* data, size_t size) {
    static Rendezvous r;
    static char hosts[RANKS][HOST_BYTES], addresses[RANKS][ADDRESS_BYTES];
    Launch launch;
    int ends[2], fds[RANKS] = {-1, -1, -1, -1};
    memset(&launch, 0, sizeof launch);
    launch.size = RANKS;
    r.launch = &launch;
    r.host = "here";
    r.fds = fds;
    r.hosts = hosts;
    r.addresses = addresses;
    r.missing = RANKS - 1;
    r.refused = 5; // from here on nothing is printed
    Visitor* v = &r.visitors[0];
    v->reader.max_bytes = 4 * sizeof(Hello);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) { abort(); }
    v->fd = ends[0];
    if (size && send(ends[1], data, min_size(size, 4096), MSG_NOSIGNAL) < 0) { abort(); }
    const FrameState state = frame_receive(&v->reader, v->fd);
    if (state == FRAME_WHOLE) { rendezvous_receive(&r, v); }
    visitor_close(v);
    for (int i = 0; i < RANKS; i++) {
        if (fds[i] < 0) { continue; }
        if (i == 0 || r.missing != RANKS - 2) { abort(); }
        check_text(hosts[i], HOST_BYTES);
        close(fds[i]);
    }
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
    if (data[0] % 2) {
        const uint32_t version = FRAME_VERSION;
        memcpy(frame + sizeof h, &version, sizeof version);
    }
    if (data[0] % 4 >= 2) { // from a rank that knows the secret, which is all zeros here, as the challenge is
        static const Challenge challenge;
        static const Secret secret;
        Hello hello;
        memcpy(&hello, frame + sizeof h, sizeof hello);
        hello_prove(&hello, &challenge, &secret);
        memcpy(frame + sizeof h, &hello, sizeof hello);
    }
    read_frames(frame, sizeof frame, piece);
    greet_with(frame, sizeof frame);
    return 0;
}
