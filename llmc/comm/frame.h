// Messages between ranks over TCP. A frame is a header and a payload, little-endian. Received bytes are not trusted:
// every length is checked against its limit before memory is allocated for it, and text is made printable.
#pragma once
#include "../base/base.h"
#include "secret.h"

enum {
    FRAME_MAGIC = 0x63327067,  // "gp2c"
    FRAME_VERSION = 2,         // of the protocol; FrameHeader and Hello.version are laid out alike in all versions
    FRAME_TEXT_BYTES = 1000,   // largest text of a message
    MAX_FRAME_BYTES = 1 << 20, // largest payload; chosen
    HOST_BYTES = 64,           // a host's name with its closing 0, cut if longer
};

typedef enum {
    FRAME_HELLO = 1, // a Hello, from a rank to rank 0, in answer to its challenge
    FRAME_WELCOME,   // rank 0 has admitted it: a proof
    FRAME_REFUSED,   // text, its closing 0 and a proof: why not
    FRAME_START,     // all ranks are connected: their hosts' names, HOST_BYTES each
    FRAME_HEARTBEAT, // a Heartbeat
    FRAME_ABORT,     // text: why the run ends, from rank 0 to all
    FRAME_BROADCAST, // this and the next three: a rank's part of an exchange, or rank 0's answer
    FRAME_GATHER,
    FRAME_BARRIER,
    FRAME_CLOSE,
    FRAME_CHALLENGE, // a Challenge, from rank 0 to whoever connects
    NUM_FRAME_TYPES
} FrameType;

typedef struct {
    uint32_t magic, type, sequence, bytes;
} FrameHeader;

typedef struct {
    uint8_t nonce[NONCE_BYTES]; // drawn for this connection
} Challenge;

typedef struct {
    uint32_t version, rank, size, zero;
    uint64_t key; // connection_key
    char host[HOST_BYTES];
    uint8_t nonce[NONCE_BYTES]; // drawn for this connection
    uint8_t proof[PROOF_BYTES]; // of all above and of the challenge (hello_prove)
} Hello;

typedef struct {
    int64_t step;
    uint32_t activity, zero; // a RankActivity
} Heartbeat;

// A frame that is being received, in pieces of any size. Set max_bytes; all else begins as 0.
typedef struct {
    FrameHeader header;
    uint8_t* payload; // header.bytes of them, once the frame is complete
    size_t have;      // bytes of header and payload received
    size_t max_bytes; // largest payload accepted
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

// Reads a Hello of this version. Its host is as it was sent: printable_text() it. Returns false for any other frame;
// then only hello->version is set, 0 if the frame is no Hello.
bool hello_parse(const FrameReader* r, Hello* hello);

// Sets the proof of a Hello; returns true if it is right.
void hello_prove(Hello* hello, const Challenge* challenge, const Secret* secret);
bool hello_is_proven(const Hello* hello, const Challenge* challenge, const Secret* secret);

// Send rank 0's answer to a Hello, with the proof that it comes from a process which knows the secret and has seen this
// very Hello. Return false as frame_send.
bool send_welcome(int fd, const Hello* hello, const Secret* secret);
bool send_refusal(int fd, const Hello* hello, const Secret* secret, const char* text);
// Returns true if a FRAME_WELCOME or FRAME_REFUSED was sent by such a process.
bool answer_is_proven(const FrameReader* r, const Hello* hello, const Secret* secret);

// Returns the name of a type of exchange, for messages.
const char* frame_name(uint32_t type);

END_C
