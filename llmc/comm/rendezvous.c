#include "rendezvous.h"
#include "../base/file.h"
#include "socket.h"
#include <poll.h>
#include <sys/random.h>

// Returns true if the tokens are equal. The time does not depend on where they differ.
static bool is_token(const uint8_t a[TOKEN_BYTES], const uint8_t b[TOKEN_BYTES]) {
    int differ = 0;
    for (int i = 0; i < TOKEN_BYTES; i++) { differ |= a[i] ^ b[i]; }
    return differ == 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// the endpoint

int endpoint_open(Endpoint* e, const char* address, Error* err) {
    uint8_t random[2 * TOKEN_BYTES];
    memset(e, 0, sizeof *e);
    if (!address) { address = getenv("MASTER_ADDR"); }
    if (address && *address) { snprintf(e->address, sizeof e->address, "%s", address); }
    else if (gethostname(e->address, sizeof e->address - 1) != 0) {
        fail(err, "cannot read this machine's name (gethostname): %s", strerror(errno));
        return -1;
    }
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        fail(err, "the system has no random numbers (getrandom): %s", strerror(errno));
        return -1;
    }
    memcpy(e->rank_token, random, TOKEN_BYTES);
    memcpy(e->rank0_token, random + TOKEN_BYTES, TOKEN_BYTES);
    return tcp_listen(e->address, &e->port, err);
}

char* endpoint_path(const Launch* launch) {
    if (launch->rendezvous != RENDEZVOUS_FILE) { return NULL; }
    return format("%s/.tmp-ranks-%016llx", launch->folder, (unsigned long long)launch->run);
}

static bool endpoint_write(const char* path, const Endpoint* e, Error* err) {
    const mode_t before = umask(077); // for its owner alone
    const bool ok = write_file_atomically(path, (const char*)e, sizeof *e, err);
    umask(before);
    return ok;
}

static bool endpoint_read(const char* path, Endpoint* e, Error* err) {
    size_t size;
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    const bool ok = size == sizeof *e || fail(err, "%s: rank 0 of this run has not written it", path);
    if (ok) {
        memcpy(e, text, size);
        e->address[sizeof e->address - 1] = 0;
    }
    free(text);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// rank 0

bool rendezvous_open(Rendezvous* r, Connection* c, const Launch* launch, Error* err) {
    r->connection = c;
    r->missing = c->size - 1;
    r->path = endpoint_path(launch);
    r->endpoint = launch->endpoint;
    r->listener = launch->listener;
    for (int i = 0; i < MAX_VISITORS; i++) { r->visitors[i].fd = -1; }
    allow_sockets(c->size + MAX_VISITORS);
    if (!r->path) { return true; }
    r->listener = make_directories(launch->folder, err) ? endpoint_open(&r->endpoint, NULL, err) : -1;
    if (r->listener >= 0 && endpoint_write(r->path, &r->endpoint, err)) { return true; }
    if (r->listener >= 0) { close(r->listener); }
    free(r->path);
    return false;
}

static void visitor_close(Visitor* v) {
    if (v->fd >= 0) { close(v->fd); }
    frame_next(&v->reader);
    v->fd = -1;
}

// Stops to listen. The connections to admitted ranks stay.
static void rendezvous_close(Rendezvous* r) {
    for (int i = 0; i < MAX_VISITORS; i++) { visitor_close(&r->visitors[i]); }
    if (r->path) { unlink(r->path); }
    free(r->path);
    close(r->listener);
}

// Returns true if the rank must be refused, and writes why to `text`.
static bool is_refused(const Rendezvous* r, const Hello* h, char* text, size_t room) {
    const Connection* c = r->connection;
    const char* host = c->hosts[0];
    if (h->size != (uint32_t)c->size) {
        snprintf(text, room, "rank %u was started as one of %u ranks, rank 0 on %s as one of %d: start all with one "
                 "number", h->rank, h->size, host, c->size);
    } else if (h->rank == 0 || h->rank >= h->size) {
        snprintf(text, room, "rank %u: rank 0 on %s waits for ranks 1 to %d", h->rank, host, c->size - 1);
    } else if (c->peers[h->rank].fd >= 0) {
        snprintf(text, room, "rank %u is connected already, on %s: give each process its own rank", h->rank,
                 c->hosts[h->rank]);
    } else { return false; }
    return true;
}

void rendezvous_receive(Rendezvous* r, Visitor* v) {
    Hello hello;
    Welcome welcome;
    memset(&welcome, 0, sizeof welcome);
    if (v->reader.header.type == FRAME_HELLO) { memcpy(&hello, v->reader.payload, sizeof hello); }
    if (v->reader.header.type == FRAME_HELLO && is_token(hello.token, r->endpoint.rank_token)) {
        memcpy(welcome.token, r->endpoint.rank0_token, TOKEN_BYTES);
        memcpy(welcome.host, r->connection->hosts[0], HOST_BYTES);
        const bool refused = is_refused(r, &hello, welcome.refusal, sizeof welcome.refusal);
        const bool sent = frame_send(v->fd, FRAME_WELCOME, 0, &welcome, sizeof welcome, seconds_now() + 1);
        if (refused) { notice("refused: %s", welcome.refusal); }
        else if (sent) {
            watchdog_add(r->connection, (int)hello.rank, v->fd, hello.host);
            r->missing--;
            v->fd = -1;
        }
    }
    visitor_close(v);
}

static void rendezvous_accept(Rendezvous* r) {
    const int fd = tcp_accept(r->listener);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        const int error = errno;
        rendezvous_close(r);
        watchdog_fatal(r->connection, "rank 0 cannot accept more connections: %s: raise the limit of open files "
                       "(ulimit -n)", strerror(error));
    }
    if (fd < 0) { return; } // the visitor has left
    Visitor* v = &r->visitors[0]; // a free place, or that of the visitor that has been silent for longest
    for (int i = 1; i < MAX_VISITORS && v->fd >= 0; i++) {
        if (r->visitors[i].fd < 0 || r->visitors[i].until < v->until) { v = &r->visitors[i]; }
    }
    visitor_close(v);
    v->fd = fd;
    v->until = seconds_now() + HELLO_SECONDS;
}

void rendezvous_step(Rendezvous* r, double deadline) {
    struct pollfd polled[MAX_VISITORS + 1];
    for (int i = 0; i < MAX_VISITORS; i++) {
        const Visitor* v = &r->visitors[i];
        polled[i] = (struct pollfd){.fd = v->fd, .events = POLLIN}; // poll() skips -1
        if (v->fd >= 0 && v->until < deadline) { deadline = v->until; }
    }
    polled[MAX_VISITORS] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    const int ready = poll(polled, MAX_VISITORS + 1, poll_until(deadline));
    for (int i = 0; i < MAX_VISITORS; i++) {
        Visitor* v = &r->visitors[i];
        if (v->fd < 0) { continue; }
        const FrameState state = ready > 0 && polled[i].revents ? frame_receive(&v->reader, v->fd) : FRAME_PART;
        if (state == FRAME_WHOLE) { rendezvous_receive(r, v); }
        else if (state != FRAME_PART || seconds_now() >= v->until) { visitor_close(v); }
    }
    if (ready > 0 && polled[MAX_VISITORS].revents) { rendezvous_accept(r); }
}

// Lists the ranks that are not connected: "1, 3-5".
static void list_missing(const Connection* c, char* text, size_t room) {
    size_t n = 0;
    *text = 0;
    for (int i = 1, end; i < c->size && n + 24 < room; i = end + 1) {
        for (end = i; end < c->size && c->peers[end].fd < 0; end++) {}
        if (end == i) { continue; }
        n += (size_t)snprintf(text + n, room - n, end == i + 1 ? "%s%d" : "%s%d-%d", n ? ", " : "", i, end - 1);
    }
}

void rendezvous_admit(Rendezvous* r, double seconds) {
    const double deadline = seconds_now() + seconds;
    char missing[256];
    while (r->missing > 0 && seconds_now() < deadline) { rendezvous_step(r, deadline); }
    rendezvous_close(r);
    if (r->missing == 0) { return; }
    list_missing(r->connection, missing, sizeof missing);
    watchdog_fatal(r->connection, "of %d ranks, rank %s did not connect to rank 0 on %s at port %d within %g s: see "
                   "their output, or give a larger --timeout", r->connection->size, missing,
                   r->connection->hosts[0], r->endpoint.port, seconds);
}

// ---------------------------------------------------------------------------------------------------------------------
// the other ranks

typedef enum {
    GREET_AGAIN,   // who answered is not rank 0, or the connection was lost
    GREET_REFUSED, // by rank 0, for good
    GREET_ADMITTED
} GreetResult;

// Returns true if rank 0 has written another file since this endpoint was read.
static bool is_outdated(const Endpoint* e, const char* path) {
    Endpoint now;
    Error ignored;
    return path && endpoint_read(path, &now, &ignored) && memcmp(&now, e, sizeof now) != 0;
}

// Waits for rank 0's Welcome. Fails if it does not come: `err` says why.
static bool wait_for_welcome(int fd, Welcome* welcome, const Endpoint* e, const char* path, double deadline,
                             Error* err) {
    FrameReader reader = {.max_bytes = 0};
    FrameState state = FRAME_PART;
    while (state == FRAME_PART && seconds_now() < deadline && !is_outdated(e, path)) {
        const double turn = seconds_now() + 0.5; // then another file may be there
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, poll_until(turn < deadline ? turn : deadline));
        state = frame_receive(&reader, fd);
    }
    const bool came = state == FRAME_WHOLE && reader.header.type == FRAME_WELCOME;
    if (came) { memcpy(welcome, reader.payload, sizeof *welcome); }
    frame_next(&reader);
    return (came && is_token(welcome->token, e->rank0_token)) ||
           fail(err, "%s", state == FRAME_PART  ? "the program that listens there does not answer"
                           : state == FRAME_END ? "the connection was closed"
                                                : "another program listens there, not rank 0 of this run");
}

static GreetResult greet_once(Connection* c, int fd, const Endpoint* e, const char* path, double deadline,
                              Error* err) {
    Welcome welcome;
    Hello hello = {.rank = (uint32_t)c->rank, .size = (uint32_t)c->size};
    memcpy(hello.token, e->rank_token, TOKEN_BYTES);
    memcpy(hello.host, c->hosts[c->rank], HOST_BYTES);
    if (!frame_send(fd, FRAME_HELLO, 0, &hello, sizeof hello, deadline)) {
        fail(err, "the connection was lost");
        return GREET_AGAIN;
    }
    if (!wait_for_welcome(fd, &welcome, e, path, deadline, err)) { return GREET_AGAIN; }
    if (*welcome.refusal) {
        char text[sizeof welcome.refusal];
        printable_text(text, sizeof text, welcome.refusal, sizeof welcome.refusal);
        fail(err, "rank 0 refused this process: %s", text);
        return GREET_REFUSED;
    }
    watchdog_add(c, 0, fd, welcome.host);
    return GREET_ADMITTED;
}

bool greet(Connection* c, const Launch* launch, double seconds, Error* err) {
    const double deadline = seconds_now() + seconds;
    char* path = endpoint_path(launch);
    Endpoint e = launch->endpoint;
    Error why;
    GreetResult result = GREET_AGAIN;
    bool is_known = false;
    for (double pause = 0.02; result == GREET_AGAIN; pause = pause < 0.5 ? 1.5 * pause : pause) {
        is_known = !path || endpoint_read(path, &e, &why);
        const int fd = is_known ? tcp_connect(e.address, e.port, deadline, &why) : -1;
        if (fd >= 0) { result = greet_once(c, fd, &e, path, deadline, &why); }
        if (fd >= 0 && result != GREET_ADMITTED) { close(fd); }
        if (result != GREET_AGAIN || seconds_now() + pause >= deadline) { break; }
        sleep_seconds(pause);
    }
    free(path);
    if (result == GREET_ADMITTED) { return true; }
    if (result == GREET_REFUSED) { return fail(err, "%s", why.text); }
    if (!is_known) {
        return fail(err, "rank %d found no word of rank 0 in --out within %g s: %s. Is rank 0 running, and is --out "
                         "the same folder on all machines?", c->rank, seconds, why.text);
    }
    return fail(err, "rank %d could not reach rank 0 at %s port %d within %g s: %s. Is rank 0 running, do other "
                     "machines know it by that name (MASTER_ADDR sets one), does a firewall let the port through?",
                c->rank, e.address, e.port, seconds, why.text);
}
