// Messages between ranks. A frame is a header and a payload, little-endian. Received bytes are not trusted: every
// length is checked against its limit before memory is allocated for it, and text is made printable.
#pragma once
#include "../base/base.h"

enum {
    FRAME_MAGIC = 0x34327067,  // "gp24": the protocol, version 4
    FRAME_TEXT_BYTES = 1000,   // largest text of a message
    MAX_FRAME_BYTES = 1 << 20, // largest payload; chosen
    HOST_BYTES = 64,           // a host's name with its closing 0, cut if longer
    TOKEN_BYTES = 16,
};

typedef enum {
    FRAME_HELLO = 1, // a Hello, from a rank to rank 0
    FRAME_WELCOME,   // a Welcome, rank 0's answer
    FRAME_HEARTBEAT, // a Heartbeat
    FRAME_ABORT,     // text: why the run ends, from rank 0 to all
    FRAME_BROADCAST, // this and the next three: a rank's part of an exchange, or rank 0's answer
    FRAME_GATHER,
    FRAME_BARRIER,
    FRAME_CLOSE,
    NUM_FRAME_TYPES
} FrameType;

typedef struct {
    uint32_t magic, type, sequence, bytes;
} FrameHeader;

// Where rank 0 listens, and the random tokens by which it and the other ranks know each other. The other ranks receive
// an Endpoint by MPI or from a file (rendezvous.h).
typedef struct {
    char address[256];
    int32_t port;
    uint8_t rank_token[TOKEN_BYTES];  // a rank sends it to rank 0
    uint8_t rank0_token[TOKEN_BYTES]; // rank 0 sends it back
} Endpoint;

typedef struct {
    uint8_t token[TOKEN_BYTES]; // Endpoint.rank_token
    uint32_t rank, size;
    char host[HOST_BYTES];
} Hello;

typedef struct {
    uint8_t token[TOKEN_BYTES]; // Endpoint.rank0_token
    char host[HOST_BYTES];      // rank 0's
    char refusal[256];          // why the rank is refused; empty: it is admitted
} Welcome;

typedef struct {
    int64_t step;
    uint32_t activity; // a RankActivity
    uint32_t progress; // progress_count()
} Heartbeat;

// A frame that is being received, in pieces of any size. Set max_bytes; all else begins as 0.
typedef struct {
    FrameHeader header;
    uint8_t* payload; // header.bytes of them, once the frame is complete
    size_t have;      // bytes of header and payload received
    size_t max_bytes; // largest payload of an exchange that is accepted
} FrameReader;

typedef enum {
    FRAME_PART,  // more bytes are needed
    FRAME_WHOLE, // header and payload are complete
    FRAME_BAD,   // not a frame of this protocol, or too large
    FRAME_END    // the connection was closed
} FrameState;

BEGIN_C

// Returns where to store the next bytes of the frame, and sets `bytes` to how many may follow: up to the end of the
// header, then of the payload.
void* frame_room(FrameReader* r, size_t* bytes);

// Checks the frame after `n` bytes were stored where frame_room() said; allocates the payload once the header is
// complete. Never returns FRAME_END.
FrameState frame_add(FrameReader* r, size_t n);

// Frees the payload, and begins the next frame.
void frame_next(FrameReader* r);

// Receives what has arrived, up to the end of the frame. Never waits.
FrameState frame_receive(FrameReader* r, int fd);

// Returns header and payload in one piece, so that a small frame travels in one packet. The caller frees it.
uint8_t* frame_make(FrameType type, uint32_t sequence, const void* payload, size_t bytes);

// Sends a frame. Returns false if the connection is lost or the deadline has passed.
bool frame_send(int fd, FrameType type, uint32_t sequence, const void* payload, size_t bytes, double deadline);

// Copies text that another process sent, up to its first 0, into `to` of `size` bytes, terminated and cut to fit. '?'
// replaces every byte that is not printable ASCII.
void printable_text(char* to, size_t size, const void* from, size_t bytes);

// Returns the name of a type of exchange, for messages.
const char* frame_name(uint32_t type);

END_C
