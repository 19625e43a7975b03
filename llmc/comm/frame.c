#include "frame.h"
#include "socket.h"

void* frame_room(FrameReader* r, size_t* bytes) {
    const size_t header = sizeof r->header;
    *bytes = (r->have < header ? header : header + r->header.bytes) - r->have;
    return r->have < header ? (uint8_t*)&r->header + r->have : r->payload + (r->have - header);
}

// True if the payload has a size that this type may have.
static bool frame_fits(const FrameHeader* h, size_t max_bytes) {
    switch (h->type) {
    case FRAME_CHALLENGE: return h->bytes == sizeof(Challenge);
    case FRAME_WELCOME: return h->bytes == PROOF_BYTES;
    case FRAME_HEARTBEAT: return h->bytes == sizeof(Heartbeat);
    case FRAME_REFUSED: return h->bytes <= FRAME_TEXT_BYTES + 1 + PROOF_BYTES;
    case FRAME_ABORT: return h->bytes <= FRAME_TEXT_BYTES;
    default: return h->type >= FRAME_HELLO && h->type < NUM_FRAME_TYPES && h->bytes <= max_bytes;
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
    const bool ok = tcp_send(fd, frame, sizeof(FrameHeader) + bytes, deadline);
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

bool hello_parse(const FrameReader* r, Hello* hello) {
    memset(hello, 0, sizeof *hello);
    if (r->header.type != FRAME_HELLO || r->header.bytes < sizeof hello->version) { return false; }
    memcpy(&hello->version, r->payload, sizeof hello->version);
    if (hello->version != FRAME_VERSION || r->header.bytes != sizeof *hello) { return false; }
    memcpy(hello, r->payload, sizeof *hello);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// proofs: each names what it proves, so that none can be used as another

// A Hello proves its own bytes before the proof, and the challenge.
typedef struct {
    Hello hello; // its proof is 0
    Challenge challenge;
} HelloClaim;

static HelloClaim hello_claim(const Hello* hello, const Challenge* challenge) {
    HelloClaim claim;
    memcpy(&claim.hello, hello, sizeof *hello);
    memset(claim.hello.proof, 0, PROOF_BYTES);
    claim.challenge = *challenge;
    return claim;
}

void hello_prove(Hello* hello, const Challenge* challenge, const Secret* secret) {
    const HelloClaim claim = hello_claim(hello, challenge);
    secret_prove(secret, "hello", &claim, sizeof claim, hello->proof);
}

bool hello_is_proven(const Hello* hello, const Challenge* challenge, const Secret* secret) {
    const HelloClaim claim = hello_claim(hello, challenge);
    return secret_verify(secret, "hello", &claim, sizeof claim, hello->proof);
}

// The content that an answer proves: its text, if any, and the Hello with its nonce.
typedef struct {
    Hello hello;
    char text[FRAME_TEXT_BYTES + 1];
} AnswerClaim;

static AnswerClaim answer_claim(const Hello* hello, const void* text, size_t bytes) {
    AnswerClaim claim;
    memset(&claim, 0, sizeof claim);
    memcpy(&claim.hello, hello, sizeof *hello);
    memcpy(claim.text, text, bytes);
    return claim;
}

bool send_welcome(int fd, const Hello* hello, const Secret* secret) {
    uint8_t proof[PROOF_BYTES];
    const AnswerClaim claim = answer_claim(hello, "", 0);
    secret_prove(secret, "welcome", &claim, sizeof claim, proof);
    return frame_send(fd, FRAME_WELCOME, 0, proof, sizeof proof, seconds_now() + 1);
}

bool send_refusal(int fd, const Hello* hello, const Secret* secret, const char* text) {
    uint8_t answer[FRAME_TEXT_BYTES + 1 + PROOF_BYTES];
    const size_t n = min_size(strlen(text), FRAME_TEXT_BYTES);
    const AnswerClaim claim = answer_claim(hello, text, n);
    memcpy(answer, claim.text, n + 1);
    secret_prove(secret, "refused", &claim, sizeof claim, answer + n + 1);
    return frame_send(fd, FRAME_REFUSED, 0, answer, n + 1 + PROOF_BYTES, seconds_now() + 1);
}

bool answer_is_proven(const FrameReader* r, const Hello* hello, const Secret* secret) {
    const size_t bytes = r->header.bytes;
    if (bytes < PROOF_BYTES) { return false; }
    const size_t text = min_size(bytes - PROOF_BYTES, FRAME_TEXT_BYTES + 1);
    const AnswerClaim claim = answer_claim(hello, r->payload, text);
    return secret_verify(secret, r->header.type == FRAME_WELCOME ? "welcome" : "refused", &claim, sizeof claim,
                         r->payload + bytes - PROOF_BYTES);
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
