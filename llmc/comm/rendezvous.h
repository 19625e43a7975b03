// How the ranks come together: rank 0 receives whoever connects and lets in those that belong, the others knock until
// they are let in. Part of bootstrap.h.
#pragma once
#include "frame.h"
#include "launch.h"
#include <sys/resource.h>

enum { MOST_VISITORS = 64, HELLO_SECONDS = 5, ADDRESS_BYTES = 80 };

// Whoever has connected and was not let in yet: a rank, or a stranger.
typedef struct {
    int fd;
    double until; // when it has to have said hello
    FrameReader reader;
    char address[ADDRESS_BYTES];
} Visitor;

typedef struct {
    const Launch* launch;
    uint64_t key;
    const char* host; // this machine
    double seconds;   // how long to wait, for messages
    int* fds;         // out: the connection to each rank, -1 for rank 0 itself
    char (*hosts)[HOST_BYTES];         // out: in order of rank
    char (*addresses)[ADDRESS_BYTES];
    int listener, missing, refused;
    char refusal[FRAME_TEXT]; // the last
    Visitor visitors[MOST_VISITORS];
    struct pollfd* polled; // the listener, the visitors, the ranks
} Reception;

static inline void visitor_leave(Visitor* v) {
    if (v->fd >= 0) { close(v->fd); }
    frame_next(&v->reader);
    v->fd = -1;
}

// Why this hello is not one of a rank that is waited for, in `text`; false if it is.
static inline bool reception_objects(const Reception* r, const Visitor* v, const Hello* h, bool parsed, char* text) {
    const int size = r->launch->size;
    const size_t room = FRAME_TEXT;
    char who[192];
    snprintf(who, sizeof who, "rank %u on %s (%s)", h->rank, h->host, v->address);
    if (!parsed) {
        snprintf(text, room,
                 "the process at %s speaks version %u of the ranks' protocol, rank 0 on %s version %d: start "
                 "the same program everywhere",
                 v->address, h->version, r->host, FRAME_VERSION);
    } else if (h->size != (uint32_t)size) {
        snprintf(text, room, "%s belongs to %u ranks, rank 0 on %s to %d: they were started differently", who, h->size,
                 r->host, size);
    } else if (h->key != r->key) {
        snprintf(text, room,
                 "%s has another key than rank 0 on %s: it is of another run, or another build of the program; "
                 "give each run its own MASTER_PORT, and build one program",
                 who, r->host);
    } else if (h->rank == 0 || h->rank >= (uint32_t)size) {
        snprintf(text, room, "%s: rank 0 on %s waits for ranks 1 to %d", who, r->host, size - 1);
    } else if (r->fds[h->rank] >= 0) {
        snprintf(text, room, "%s: that rank is there already, on %s (%s)", who, r->hosts[h->rank],
                 r->addresses[h->rank]);
    } else { return false; }
    return true;
}

// A visitor has said something: a rank that belongs is let in, another is told why not, a stranger is shown the door.
static inline void reception_hear(Reception* r, Visitor* v) {
    Hello hello;
    const bool parsed = hello_parse(&v->reader, &hello);
    if (v->reader.header.type == FRAME_HELLO && (parsed || hello.version)) {
        if (!reception_objects(r, v, &hello, parsed, r->refusal)) {
            r->fds[hello.rank] = v->fd;
            memcpy(r->hosts[hello.rank], hello.host, HOST_BYTES);
            memcpy(r->addresses[hello.rank], v->address, ADDRESS_BYTES);
            r->missing--;
            frame_send(v->fd, FRAME_WELCOME, 0, NULL, 0, seconds_now() + 1); // if it is gone, that shows at its socket
            v->fd = -1;
        } else {
            if (r->refused++ < 5) { notice("refused: %s", r->refusal); } // one that tries for ever fills no log
            frame_send(v->fd, FRAME_REFUSED, 0, r->refusal, strlen(r->refusal), seconds_now() + 1);
        }
    }
    visitor_leave(v);
}

static inline bool reception_accept(Reception* r, Error* err) {
    const int fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != EMFILE && errno != ENFILE && errno != ENOMEM) { return true; } // it went away again
        return fail(err, "rank 0 cannot take more connections: %s (see ulimit -n)", strerror(errno));
    }
    Visitor* v = &r->visitors[0]; // a free place, or that of who has been silent for longest
    for (int i = 1; i < MOST_VISITORS && v->fd >= 0; i++) {
        if (r->visitors[i].fd < 0 || r->visitors[i].until < v->until) { v = &r->visitors[i]; }
    }
    visitor_leave(v);
    v->fd = fd;
    v->until = seconds_now() + HELLO_SECONDS;
    v->reader.most = 4 * sizeof(Hello);
    tcp_prepare(fd);
    tcp_peer_name(fd, v->address, sizeof v->address);
    return true;
}

// Waits for something to happen, `until` at the latest.
static inline void reception_poll(Reception* r, double until) {
    const int size = r->launch->size;
    struct pollfd* p = r->polled;
    const struct pollfd listener = {r->listener, POLLIN, 0};
    p[0] = listener;
    for (int i = 0; i < MOST_VISITORS; i++) {
        const struct pollfd visitor = {r->visitors[i].fd, POLLIN, 0}; // poll() passes over those of -1
        p[1 + i] = visitor;
        if (visitor.fd >= 0 && r->visitors[i].until < until) { until = r->visitors[i].until; }
    }
    for (int i = 0; i < size; i++) {
        const struct pollfd rank = {r->fds[i], POLLIN | POLLRDHUP, 0};
        p[1 + MOST_VISITORS + i] = rank;
    }
    if (poll(p, (nfds_t)(1 + MOST_VISITORS + size), poll_until(until)) < 0) {
        for (int i = 0; i < 1 + MOST_VISITORS + size; i++) { p[i].revents = 0; } // a signal
    }
}

static inline bool reception_step(Reception* r, double deadline, Error* err) {
    reception_poll(r, deadline);
    for (int i = 1; i < r->launch->size; i++) { // they have nothing to say yet, so it is their end
        if (r->polled[1 + MOST_VISITORS + i].revents) {
            return fail(err, "rank %d on %s (%s) ended while the others were waited for: see its output for the reason",
                        i, r->hosts[i], r->addresses[i]);
        }
    }
    for (int i = 0; i < MOST_VISITORS; i++) {
        Visitor* v = &r->visitors[i];
        if (v->fd < 0) { continue; }
        const FrameState state = r->polled[1 + i].revents ? frame_receive(&v->reader, v->fd) : FRAME_PART;
        if (state == FRAME_WHOLE) { reception_hear(r, v); }
        else if (state != FRAME_PART || seconds_now() >= v->until) { visitor_leave(v); }
    }
    return !(r->polled[0].revents & POLLIN) || reception_accept(r, err);
}

// "1, 3-5": the ranks that have not come.
static inline void reception_list_missing(const Reception* r, char* text, size_t room) {
    const int size = r->launch->size;
    size_t n = 0;
    *text = 0;
    for (int i = 1, end; i < size && n + 24 < room; i = end + 1) {
        for (end = i; end < size && r->fds[end] < 0; end++) {}
        if (end == i) { continue; }
        n += (size_t)snprintf(text + n, room - n, end == i + 1 ? "%s%d" : "%s%d-%d", n ? ", " : "", i, end - 1);
    }
}

static inline bool reception_wait(Reception* r, double deadline, Error* err) {
    char missing[256];
    while (r->missing > 0) {
        if (!reception_step(r, deadline, err)) { return false; }
        if (r->missing == 0 || seconds_now() < deadline) { continue; }
        reception_list_missing(r, missing, sizeof missing);
        return fail(err, "of %d ranks, rank %s did not come to rank 0 on %s at port %d within %g s%s%.600s",
                    r->launch->size, missing, r->host, r->launch->port, r->seconds,
                    r->refused ? "; refused was, last, " : "", r->refused ? r->refusal : "");
    }
    return true;
}

// Room for a descriptor for each rank, as far as the system gives it; accept() tells if that was not enough.
static inline void reception_allow_files(int size) {
    struct rlimit limit;
    const rlim_t need = (rlim_t)size + MOST_VISITORS + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) { return; }
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) { notice("warning: cannot open more files: %s", strerror(errno)); }
}

// Rank 0's side.
static inline bool reception_hold(Reception* r, double deadline, Error* err) {
    const int size = r->launch->size;
    r->missing = size - 1;
    memcpy(r->hosts[0], r->host, HOST_BYTES);
    reception_allow_files(size);
    r->listener = tcp_listen(r->launch->address, r->launch->port, err);
    if (r->listener < 0) { return false; }
    r->polled = (struct pollfd*)alloc_or_die((size_t)(1 + MOST_VISITORS + size), sizeof *r->polled, "connections");
    for (int i = 0; i < MOST_VISITORS; i++) { r->visitors[i].fd = -1; }
    const bool ok = reception_wait(r, deadline, err);
    for (int i = 1; i < size; i++) {
        if (r->fds[i] < 0) { continue; }
        if (ok) {
            frame_send(r->fds[i], FRAME_START, 0, r->hosts, (size_t)size * HOST_BYTES, seconds_now() + r->seconds);
        } else {
            frame_send(r->fds[i], FRAME_ABORT, 0, err->text, min_size(strlen(err->text), FRAME_TEXT),
                       seconds_now() + 1);
        }
    }
    for (int i = 0; i < MOST_VISITORS; i++) { visitor_leave(&r->visitors[i]); }
    free(r->polled);
    close(r->listener);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the other ranks

typedef enum { KNOCK_AGAIN, KNOCK_REFUSED, KNOCK_ENTERED } Knock;

// Says hello and waits to be let in, then for all the others to be: rank 0 tells when its own time is over.
static inline Knock knock_talk(Reception* r, int fd, double deadline, Error* err) {
    const Launch* l = r->launch;
    const size_t table = (size_t)l->size * HOST_BYTES;
    Hello hello = {FRAME_VERSION, (uint32_t)l->rank, (uint32_t)l->size, 0, r->key, {0}};
    FrameReader reader = {{0, 0, 0, 0}, NULL, 0, table};
    char text[FRAME_TEXT + 1];
    bool welcome = false;
    memcpy(hello.host, r->host, HOST_BYTES);
    Knock result = KNOCK_AGAIN;
    if (!frame_send(fd, FRAME_HELLO, 0, &hello, sizeof hello, deadline)) {
        fail(err, "%s", strerror(errno));
        return result;
    }
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        const int ready = poll(&p, 1, poll_until(deadline));
        const FrameState state = ready > 0 ? frame_receive(&reader, fd) : FRAME_PART;
        const uint32_t type = reader.header.type;
        if (ready == 0) {
            fail(err, welcome ? "rank 0 has not said that all ranks are there" : "who listens there does not answer");
        } else if (state == FRAME_PART) { continue; }
        else if (state == FRAME_END) { fail(err, "the connection was closed"); }
        else if (state == FRAME_BAD) { fail(err, "who listens there is not rank 0 of such a run"); }
        else if (type == FRAME_WELCOME) {
            welcome = true;
            deadline = seconds_now() + r->seconds + HELLO_SECONDS; // rank 0 may have begun to wait just now
            frame_next(&reader);
            continue;
        } else if (type == FRAME_REFUSED || type == FRAME_ABORT) {
            printable_text(text, sizeof text, reader.payload, reader.header.bytes);
            fail(err, "%s%s", type == FRAME_REFUSED ? "rank 0 refused this process: " : "", text);
            result = KNOCK_REFUSED;
        } else if (type == FRAME_START && welcome && reader.header.bytes == table) {
            for (int i = 0; i < l->size; i++) {
                printable_text(r->hosts[i], HOST_BYTES, reader.payload + (size_t)i * HOST_BYTES, HOST_BYTES);
            }
            result = KNOCK_ENTERED;
        } else { fail(err, "who listens there says what rank 0 would not"); }
        break;
    }
    frame_next(&reader);
    return result == KNOCK_AGAIN && welcome ? KNOCK_REFUSED : result;
}

static inline bool knock(Reception* r, double deadline, Error* err) {
    const Launch* l = r->launch;
    Error why;
    for (double pause = 0.02;; pause = pause < 0.5 ? 1.5 * pause : pause) {
        const int fd = tcp_connect(l->address, l->port, deadline, &why);
        Knock result = KNOCK_AGAIN;
        if (fd >= 0) {
            tcp_prepare(fd);
            tcp_peer_name(fd, r->addresses[0], ADDRESS_BYTES);
            result = knock_talk(r, fd, deadline, &why);
            if (result == KNOCK_ENTERED) { r->fds[0] = fd; return true; }
            close(fd);
        }
        if (result == KNOCK_REFUSED) { return fail(err, "%s", why.text); }
        if (seconds_now() + pause < deadline) { sleep_seconds(pause); continue; }
        return fail(err,
                    "rank %d could not reach rank 0 at %s port %d within %g s: %s. Is rank 0 running, is MASTER_ADDR "
                    "its host, does a firewall let the port through?",
                    l->rank, l->address, l->port, r->seconds, why.text);
    }
}
