#include "rendezvous.h"
#include "socket.h"
#include <sys/resource.h>

void visitor_close(Visitor* v) {
    if (v->fd >= 0) { close(v->fd); }
    frame_next(&v->reader);
    v->fd = -1;
}

// Returns true if the visitor must be refused, and why in `text`.
static bool refusal_reason(const Rendezvous* r, const Visitor* v, const Hello* h, bool parsed, char* text) {
    const int size = r->launch->size;
    const size_t room = FRAME_TEXT_BYTES;
    char who[192], host[HOST_BYTES];
    printable_text(host, sizeof host, h->host, HOST_BYTES);
    snprintf(who, sizeof who, "rank %u on %s (%s)", h->rank, host, v->address);
    if (!parsed) {
        snprintf(text, room,
                 "the process at %s uses protocol version %u, rank 0 on %s version %d: start the same build "
                 "everywhere",
                 v->address, h->version, r->host, FRAME_VERSION);
    } else if (!hello_is_proven(h, &v->challenge, &r->secret)) {
        snprintf(text, room,
                 "the process at %s does not know the secret of the run on %s: it belongs to another run or user, or "
                 "its machine has another GPT2_SECRET or ~/.config/gpt2.c/secret",
                 v->address, r->host);
    } else if (h->size != (uint32_t)size) {
        snprintf(text, room, "%s was started as one of %u ranks, rank 0 on %s as one of %d: start all with one number",
                 who, h->size, r->host, size);
    } else if (h->key != r->key) {
        snprintf(text, room,
                 "%s has another key than rank 0 on %s: it belongs to another run or another build of the program; "
                 "give each run its own MASTER_PORT, and start the same build everywhere",
                 who, r->host);
    } else if (h->rank == 0 || h->rank >= (uint32_t)size) {
        snprintf(text, room, "%s: rank 0 on %s waits for ranks 1 to %d", who, r->host, size - 1);
    } else if (r->fds[h->rank] >= 0) {
        snprintf(text, room, "%s: that rank is connected already, on %s (%s)", who, r->hosts[h->rank],
                 r->addresses[h->rank]);
    } else { return false; }
    return true;
}

void rendezvous_receive(Rendezvous* r, Visitor* v) {
    Hello hello;
    const bool parsed = hello_parse(&v->reader, &hello);
    if (v->reader.header.type == FRAME_HELLO && (parsed || hello.version)) {
        if (!refusal_reason(r, v, &hello, parsed, r->refusal)) {
            r->fds[hello.rank] = v->fd;
            printable_text(r->hosts[hello.rank], HOST_BYTES, hello.host, HOST_BYTES);
            memcpy(r->addresses[hello.rank], v->address, ADDRESS_BYTES);
            r->missing--;
            send_welcome(v->fd, &hello, &r->secret); // if this fails, poll() reports it
            v->fd = -1;
        } else {
            if (r->refused++ < 5) { notice("refused: %s", r->refusal); } // a process may try forever: do not fill logs
            send_refusal(v->fd, &hello, &r->secret, r->refusal);
        }
    }
    visitor_close(v);
}

static bool rendezvous_accept(Rendezvous* r, Error* err) {
    const int fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != EMFILE && errno != ENFILE && errno != ENOMEM) { return true; } // the visitor has left
        return fail(err, "rank 0 cannot accept more connections: %s: raise the limit of open files (ulimit -n)",
                    strerror(errno));
    }
    Visitor* v = &r->visitors[0]; // a free place, or that of the visitor that has been silent for longest
    for (int i = 1; i < MAX_VISITORS && v->fd >= 0; i++) {
        if (r->visitors[i].fd < 0 || r->visitors[i].until < v->until) { v = &r->visitors[i]; }
    }
    visitor_close(v);
    v->fd = fd;
    v->until = seconds_now() + HELLO_SECONDS;
    v->reader.max_bytes = 4 * sizeof(Hello);
    tcp_prepare(fd);
    tcp_peer_name(fd, v->address, sizeof v->address);
    random_bytes(v->challenge.nonce, NONCE_BYTES);
    frame_send(fd, FRAME_CHALLENGE, 0, &v->challenge, sizeof v->challenge, seconds_now() + 1);
    return true;
}

// Waits for an event on any socket, `until` at the latest.
static void rendezvous_poll(Rendezvous* r, double until) {
    const int size = r->launch->size;
    struct pollfd* p = r->polled;
    p[0] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    for (int i = 0; i < MAX_VISITORS; i++) {
        p[1 + i] = (struct pollfd){.fd = r->visitors[i].fd, .events = POLLIN}; // poll() skips -1
        if (r->visitors[i].fd >= 0 && r->visitors[i].until < until) { until = r->visitors[i].until; }
    }
    for (int i = 0; i < size; i++) {
        p[1 + MAX_VISITORS + i] = (struct pollfd){.fd = r->fds[i], .events = POLLIN | POLLRDHUP};
    }
    if (poll(p, (nfds_t)(1 + MAX_VISITORS + size), poll_until(until)) < 0) {
        for (int i = 0; i < 1 + MAX_VISITORS + size; i++) { p[i].revents = 0; } // a signal
    }
}

bool rendezvous_step(Rendezvous* r, double deadline, Error* err) {
    rendezvous_poll(r, deadline);
    for (int i = 1; i < r->launch->size; i++) { // an admitted rank sends nothing yet, so it has ended
        if (r->polled[1 + MAX_VISITORS + i].revents) {
            return fail(err,
                        "rank %d on %s (%s) ended while rank 0 waited for the others: see its output for the reason", i,
                        r->hosts[i], r->addresses[i]);
        }
    }
    for (int i = 0; i < MAX_VISITORS; i++) {
        Visitor* v = &r->visitors[i];
        if (v->fd < 0) { continue; }
        const FrameState state = r->polled[1 + i].revents ? frame_receive(&v->reader, v->fd) : FRAME_PART;
        if (state == FRAME_WHOLE) { rendezvous_receive(r, v); }
        else if (state != FRAME_PART || seconds_now() >= v->until) { visitor_close(v); }
    }
    return !(r->polled[0].revents & POLLIN) || rendezvous_accept(r, err);
}

// Lists the ranks that are not connected: "1, 3-5".
static void rendezvous_list_missing(const Rendezvous* r, char* text, size_t room) {
    const int size = r->launch->size;
    size_t n = 0;
    *text = 0;
    for (int i = 1, end; i < size && n + 24 < room; i = end + 1) {
        for (end = i; end < size && r->fds[end] < 0; end++) {}
        if (end == i) { continue; }
        n += (size_t)snprintf(text + n, room - n, end == i + 1 ? "%s%d" : "%s%d-%d", n ? ", " : "", i, end - 1);
    }
}

// Handles events until all ranks are admitted.
static bool rendezvous_wait(Rendezvous* r, double deadline, Error* err) {
    char missing[256];
    while (r->missing > 0) {
        if (!rendezvous_step(r, deadline, err)) { return false; }
        if (r->missing == 0 || seconds_now() < deadline) { continue; }
        rendezvous_list_missing(r, missing, sizeof missing);
        return fail(err,
                    "of %d ranks, rank %s did not connect to rank 0 on %s at port %d within %g s: see their output, or "
                    "give a larger --connect_timeout%s%.500s",
                    r->launch->size, missing, r->host, r->launch->port, r->seconds,
                    r->refused ? ". Refused last: " : "", r->refused ? r->refusal : "");
    }
    return true;
}

// Raises the limit of open files for a socket per rank, as far as the system allows; accept() fails if that is not
// enough.
static void rendezvous_allow_files(int size) {
    struct rlimit limit;
    const rlim_t need = (rlim_t)size + MAX_VISITORS + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) { return; }
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) { notice("warning: cannot open more files: %s", strerror(errno)); }
}

bool rendezvous_host(Rendezvous* r, double deadline, Error* err) {
    const int size = r->launch->size;
    r->missing = size - 1;
    memcpy(r->hosts[0], r->host, HOST_BYTES);
    rendezvous_allow_files(size);
    r->listener = tcp_listen(r->launch->address, r->launch->port, err);
    if (r->listener < 0) { return false; }
    r->polled = alloc_or_die((size_t)(1 + MAX_VISITORS + size), sizeof *r->polled, "connections");
    for (int i = 0; i < MAX_VISITORS; i++) { r->visitors[i].fd = -1; }
    const bool ok = rendezvous_wait(r, deadline, err);
    for (int i = 1; i < size; i++) {
        if (r->fds[i] < 0) { continue; }
        if (ok) {
            frame_send(r->fds[i], FRAME_START, 0, r->hosts, (size_t)size * HOST_BYTES, seconds_now() + r->seconds);
        } else {
            frame_send(r->fds[i], FRAME_ABORT, 0, err->text, min_size(strlen(err->text), FRAME_TEXT_BYTES),
                       seconds_now() + 1);
        }
    }
    for (int i = 0; i < MAX_VISITORS; i++) { visitor_close(&r->visitors[i]); }
    free(r->polled);
    close(r->listener);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the other ranks

typedef enum {
    GREET_AGAIN,     // no connection, or it was lost
    GREET_NOT_RANK0, // another program answered; rank 0 may come later
    GREET_REFUSED,   // by rank 0, for good
    GREET_ADMITTED
} GreetResult;

// A conversation with rank 0.
typedef struct {
    int fd;
    double deadline;
    Hello hello;
    bool welcome;
} Greeting;

// Answers rank 0's challenge.
static bool greet_hello(Rendezvous* r, Greeting* g, const FrameReader* reader, Error* err) {
    const Launch* l = r->launch;
    Challenge challenge;
    memcpy(&challenge, reader->payload, sizeof challenge);
    g->hello = (Hello){.version = FRAME_VERSION, .rank = (uint32_t)l->rank, .size = (uint32_t)l->size, .key = r->key};
    memcpy(g->hello.host, r->host, HOST_BYTES);
    random_bytes(g->hello.nonce, NONCE_BYTES);
    hello_prove(&g->hello, &challenge, &r->secret);
    return frame_send(g->fd, FRAME_HELLO, 0, &g->hello, sizeof g->hello, g->deadline) ||
           fail(err, "%s", strerror(errno));
}

// Takes rank 0's refusal. Without a proof nothing that it says is believed.
static GreetResult greet_refused(const Rendezvous* r, const Greeting* g, const FrameReader* reader, Error* err) {
    char text[FRAME_TEXT_BYTES + 1];
    if (!answer_is_proven(reader, &g->hello, &r->secret)) {
        fail(err,
             "the program that listens at %s port %d does not know this run's secret: it belongs to another run or "
             "user (set MASTER_PORT to another port), or its machine has another GPT2_SECRET or "
             "~/.config/gpt2.c/secret",
             r->launch->address, r->launch->port);
        return GREET_REFUSED;
    }
    printable_text(text, sizeof text, reader->payload, reader->header.bytes - PROOF_BYTES);
    fail(err, "rank 0 refused this process: %s", text);
    return GREET_REFUSED;
}

// Handles a complete frame from rank 0; GREET_AGAIN if more must follow. `err` says what is wrong.
static GreetResult greet_receive(Rendezvous* r, Greeting* g, const FrameReader* reader, Error* err) {
    const Launch* l = r->launch;
    const uint32_t type = reader->header.type;
    char text[FRAME_TEXT_BYTES + 1];
    if (type == FRAME_CHALLENGE && !g->hello.version) { greet_hello(r, g, reader, err); return GREET_AGAIN; }
    if (type == FRAME_REFUSED && g->hello.version) { return greet_refused(r, g, reader, err); }
    if (type == FRAME_WELCOME && g->hello.version && answer_is_proven(reader, &g->hello, &r->secret)) {
        g->welcome = true;
        return GREET_AGAIN;
    }
    if (type == FRAME_ABORT && g->welcome) {
        printable_text(text, sizeof text, reader->payload, reader->header.bytes);
        fail(err, "%s", text);
        return GREET_REFUSED;
    }
    if (type == FRAME_START && g->welcome && reader->header.bytes == (size_t)l->size * HOST_BYTES) {
        for (int i = 0; i < l->size; i++) {
            printable_text(r->hosts[i], HOST_BYTES, reader->payload + (size_t)i * HOST_BYTES, HOST_BYTES);
        }
        return GREET_ADMITTED;
    }
    return GREET_NOT_RANK0;
}

// Answers the challenge, then waits until rank 0 has admitted this rank and all others. After the welcome rank 0's
// deadline counts; rank 0 reports when it has passed.
static GreetResult greet_once(Rendezvous* r, int fd, double deadline, Error* err) {
    const Launch* l = r->launch;
    Greeting g = {.fd = fd, .deadline = deadline};
    FrameReader reader = {.max_bytes = (size_t)l->size * HOST_BYTES};
    GreetResult result = GREET_AGAIN;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, poll_until(g.deadline));
        const FrameState state = ready > 0 ? frame_receive(&reader, fd) : FRAME_PART;
        if (ready == 0) {
            fail(err, g.welcome ? "rank 0 did not report that all ranks are connected"
                                : "the program that listens there does not answer");
            break;
        }
        if (state == FRAME_PART) { continue; }
        if (state == FRAME_END) { fail(err, "the connection was closed"); break; }
        const bool was_welcome = g.welcome;
        result = state == FRAME_BAD ? GREET_NOT_RANK0 : greet_receive(r, &g, &reader, err);
        if (result != GREET_AGAIN) { break; }
        // rank 0 may have started to wait just now
        if (g.welcome && !was_welcome) { g.deadline = seconds_now() + r->seconds + HELLO_SECONDS; }
        frame_next(&reader);
    }
    frame_next(&reader);
    if (result == GREET_NOT_RANK0) {
        fail(err, "port %d answered, but not as rank 0 of this run: another program uses it; set MASTER_PORT", l->port);
    }
    return g.welcome && result != GREET_ADMITTED ? GREET_REFUSED : result;
}

bool greet(Rendezvous* r, double deadline, Error* err) {
    const Launch* l = r->launch;
    Error why;
    for (double pause = 0.02;; pause = pause < 0.5 ? 1.5 * pause : pause) {
        const int fd = tcp_connect(l->address, l->port, deadline, &why);
        GreetResult result = GREET_AGAIN;
        if (fd >= 0) {
            tcp_prepare(fd);
            tcp_peer_name(fd, r->addresses[0], ADDRESS_BYTES);
            result = greet_once(r, fd, deadline, &why);
            if (result == GREET_ADMITTED) { r->fds[0] = fd; return true; }
            close(fd);
        }
        if (result == GREET_REFUSED) { return fail(err, "%s", why.text); }
        if (seconds_now() + pause < deadline) { sleep_seconds(pause); continue; }
        const char* hint = result == GREET_NOT_RANK0 ? "" : ". Is rank 0 running, is MASTER_ADDR its host, does a "
                                                            "firewall let the port through?";
        return fail(err, "rank %d could not reach rank 0 at %s port %d within %g s: %s%s", l->rank, l->address, l->port,
                    r->seconds, why.text, hint);
    }
}
