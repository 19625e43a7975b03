// The thread that keeps an eye on the other ranks: it does all reading, sends and expects signs of life, and ends the
// process when a rank is gone. Part of bootstrap.h.
//
// The thread counts silence in its own turns, none longer than two beats: a process that was stopped as a whole, a
// suspended machine or a debugger does not find the others silent for the time in which it did not look.
#pragma once
#include "rendezvous.h"
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#define WATCH_FOREVER 1e18 // a deadline
#define WATCH_GRACE 1.0    // seconds that a rank has to end by itself, with a better message, when another is gone

// What a rank's main thread is doing, as others are told when something is wrong.
typedef enum {
    RANK_SETS_UP,
    RANK_TRAINS,
    RANK_VALIDATES,
    RANK_SAMPLES,
    RANK_SAVES,
    RANK_ENDS,
    NUM_ACTIVITIES
} RankActivity;

static const char* const ACTIVITIES[] = {"setting up", "training", "validating", "sampling", "saving", "ending"};

typedef struct {
    // of the thread
    FrameReader reader;
    double silence; // seconds since the last byte
    // of the thread and whoever waits for an exchange: under the lock
    FrameHeader part_header;
    uint8_t* part; // what it sent for an exchange, until that is taken
    bool may_end;  // all are done, so it may close the connection (rank 0 waits for that, and closes its end last)
    bool ended;    // it has
    // where its main thread is, as told last; of this rank, in its own place: under the lock
    long long step;
    uint32_t activity;

    int fd; // -1: not connected to this rank
    pthread_mutex_t sending; // a frame leaves in one piece
} Peer;

typedef struct {
    int rank, size;
    double timeout;
    Peer* peers; // for each rank; only rank 0 is connected to all, the others to it
    char (*hosts)[HOST_BYTES];
    uint32_t sequence; // of the exchange

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake; // an eventfd, so that the thread need not be waited for
    bool stop, ending;

    // steps of this rank, under the lock
    double step_start, longest_step;
    long long steps;
    // of the thread on rank 0: what all ranks told last, as one number, and for how long it has been so
    uint64_t told;
    double same_for;
} Bootstrap;

static inline double watch_interval(const Bootstrap* b) { return b->timeout < 4 ? b->timeout / 4 : 1; }

// Ends the process, and on rank 0 those of all others: from any thread, once.
static inline void ATTR_NORETURN ATTR_PRINTF(2, 3) watch_end(Bootstrap* b, const char* fmt, ...) {
    char text[FRAME_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&b->lock);
    const bool first = !b->ending;
    b->ending = true;
    pthread_mutex_unlock(&b->lock);
    while (!first) { pause(); } // the process is about to end
    struct timespec
        patience; // for a frame that another thread is sending: not for ever, as that rank may be the lost one
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec++;
    for (int i = 0; b->rank == 0 && i < b->size; i++) {
        Peer* p = &b->peers[i];
        if (p->fd < 0 || pthread_mutex_timedlock(&p->sending, &patience) != 0) { continue; }
        frame_send(p->fd, FRAME_ABORT, 0, text, strlen(text), seconds_now());
        pthread_mutex_unlock(&p->sending);
    }
    sleep_seconds(WATCH_GRACE);
    // What was printed before, if nobody holds the lock and the reader takes it at once; stderr without its lock.
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    if (poll(&out, 1, 0) == 1 && ftrylockfile(stdout) == 0) { fflush(stdout); }
    char line[FRAME_TEXT + 32];
    const int n = snprintf(line, sizeof line, "%serror: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text);
    if (write(STDERR_FILENO, line, min_size((size_t)n, sizeof line - 1)) < 0) {} // nobody is left to be told
    _exit(EXIT_RUNTIME);
}

static inline const char* watch_activity(uint32_t activity) {
    return activity < NUM_ACTIVITIES ? ACTIVITIES[activity] : "busy";
}

// The connection to a rank is gone, or is of no use.
static inline void ATTR_NORETURN watch_lost(Bootstrap* b, int rank, const char* how) {
    pthread_mutex_lock(&b->lock);
    const long long step = b->peers[rank].step;
    const uint32_t activity = b->peers[rank].activity;
    pthread_mutex_unlock(&b->lock);
    watch_end(b, "rank %d on %s %s. It was last heard of at step %lld, %s", rank, b->hosts[rank], how, step,
              watch_activity(activity));
}

// ---------------------------------------------------------------------------------------------------------------------
// the thread

static inline void watch_hear_beat(Bootstrap* b, Peer* p) {
    Beat beat;
    memcpy(&beat, p->reader.payload, sizeof beat);
    pthread_mutex_lock(&b->lock);
    p->step = beat.step;
    p->activity = beat.activity;
    pthread_mutex_unlock(&b->lock);
}

// A part of an exchange is kept for whoever waits for it; false if the one before has not been taken, which cannot be.
static inline bool watch_hear_part(Bootstrap* b, Peer* p) {
    const FrameHeader h = p->reader.header;
    pthread_mutex_lock(&b->lock);
    const bool room = !p->part;
    if (room) {
        p->part_header = h;
        p->part = p->reader.payload;
        p->reader.payload = NULL;
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return room;
}

// A whole frame is there; false for one that does not belong there.
static inline bool watch_hear(Bootstrap* b, Peer* p) {
    const FrameHeader h = p->reader.header;
    bool ok = true;
    if (h.type == FRAME_BEAT) { watch_hear_beat(b, p); }
    else if (h.type == FRAME_ABORT && b->rank != 0) {
        char text[FRAME_TEXT];
        printable_text(text, sizeof text, p->reader.payload, h.bytes);
        watch_end(b, "%s", text);
    } else { ok = h.type >= FRAME_BROADCAST && h.type <= FRAME_CLOSE && watch_hear_part(b, p); }
    frame_next(&p->reader);
    return ok;
}

static inline void watch_read(Bootstrap* b, int rank) {
    Peer* p = &b->peers[rank];
    const size_t had = p->reader.have;
    FrameState state;
    while ((state = frame_receive(&p->reader, p->fd)) == FRAME_WHOLE) {
        p->silence = 0;
        if (!watch_hear(b, p)) { state = FRAME_BAD; break; }
    }
    if (p->reader.have != had) { p->silence = 0; }
    if (state == FRAME_BAD) { watch_lost(b, rank, "sends what does not belong there: is it the same program?"); }
    if (state != FRAME_END) { return; }
    pthread_mutex_lock(&b->lock);
    p->ended = p->may_end;
    const bool lost = !p->ended;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (lost) {
        watch_lost(b, rank, "ended before the run did, or its connection broke: see its output for the reason");
    }
}

// Tells a rank that this one lives; if it takes no more bytes just now, it has others to read.
static inline void watch_beat(Bootstrap* b, Peer* p) {
    pthread_mutex_lock(&b->lock);
    const Peer* own = &b->peers[b->rank];
    const Beat beat = {own->step, own->activity, 0};
    pthread_mutex_unlock(&b->lock);
    if (pthread_mutex_trylock(&p->sending) != 0) { return; } // another frame is on its way
    uint8_t* frame = frame_make(FRAME_BEAT, 0, &beat, sizeof beat);
    const size_t bytes = sizeof(FrameHeader) + sizeof beat;
    const ssize_t n = send(p->fd, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) { tcp_send(p->fd, frame + n, bytes - (size_t)n, seconds_now() + b->timeout); } // never half a frame
    free(frame);
    pthread_mutex_unlock(&p->sending);
}

// Whether no rank gets on though all say that they train (see bootstrap_progress).
static inline void watch_hang(Bootstrap* b, double elapsed) {
    uint64_t told = 0;
    bool all_train = true;
    int slowest = 0;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->size; i++) {
        const Peer* p = &b->peers[i];
        told = mix64(told ^ mix64((uint64_t)p->step * NUM_ACTIVITIES + p->activity));
        all_train = all_train && p->activity == RANK_TRAINS;
        if (p->step < b->peers[slowest].step) { slowest = i; }
    }
    const double longest = b->longest_step, limit = 10 * b->timeout > 20 * longest ? 10 * b->timeout : 20 * longest;
    const long long step = b->peers[slowest].step, steps = b->steps;
    pthread_mutex_unlock(&b->lock);
    b->same_for = all_train && told == b->told ? b->same_for + elapsed : 0;
    b->told = told;
    if (steps >= 2 && b->same_for > limit) {
        watch_end(
            b,
            "all ranks are training, but none has begun a step for %.0f s (the longest took %.3g s): they hang. The "
            "earliest step is that of rank %d on %s: %lld. NCCL_DEBUG=INFO may show why; go on with --resume auto",
            b->same_for, longest, slowest, b->hosts[slowest], step);
    }
}

// Once in every interval.
static inline void watch_tick(Bootstrap* b, double elapsed) {
    char how[160];
    for (int i = 0; i < b->size; i++) {
        Peer* p = &b->peers[i];
        if (p->fd < 0 || p->ended) { continue; }
        watch_beat(b, p);
        p->silence += elapsed;
        if (p->silence <= b->timeout) { continue; }
        snprintf(how, sizeof how, "has sent no sign of life for %.3g s: it was stopped, or its network was cut",
                 p->silence);
        watch_lost(b, i, how);
    }
    if (b->rank == 0) { watch_hang(b, elapsed); }
}

static inline void* watch_thread(void* bootstrap) {
    Bootstrap* b = (Bootstrap*)bootstrap;
    const double interval = watch_interval(b);
    struct pollfd* polled = (struct pollfd*)alloc_or_die((size_t)b->size + 1, sizeof *polled, "connections");
    double ticked = seconds_now() - interval; // the first one at once
    for (;;) {
        for (int i = 0; i < b->size; i++) {
            const struct pollfd rank = {b->peers[i].ended ? -1 : b->peers[i].fd, POLLIN, 0};
            polled[i] = rank;
        }
        const struct pollfd wake = {b->wake, POLLIN, 0};
        polled[b->size] = wake;
        const int ready = poll(polled, (nfds_t)b->size + 1, poll_until(ticked + interval));
        pthread_mutex_lock(&b->lock);
        const bool stop = b->stop;
        pthread_mutex_unlock(&b->lock);
        if (stop) { break; }
        for (int i = 0; ready > 0 && i < b->size; i++) {
            if (polled[i].revents) { watch_read(b, i); }
        }
        const double now = seconds_now(), elapsed = now - ticked;
        if (elapsed < interval) { continue; }
        ticked = now;
        watch_tick(b, elapsed < 2 * interval ? elapsed : 2 * interval);
    }
    free(polled);
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// from other threads

static inline void watch_start(Bootstrap* b) {
    sigset_t all, before; // signals are for the main thread
    b->wake = eventfd(0, EFD_CLOEXEC);
    if (b->wake < 0) { fatal("cannot watch the other ranks: %s", strerror(errno)); }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&b->thread, NULL, watch_thread, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) { fatal("cannot start the thread that watches the other ranks: %s", strerror(error)); }
}

static inline void watch_progress(Bootstrap* b, long long step, RankActivity activity) {
    const double now = seconds_now();
    pthread_mutex_lock(&b->lock);
    Peer* own = &b->peers[b->rank];
    if (own->activity == RANK_TRAINS && step > own->step) {
        b->steps++;
        if (now - b->step_start > b->longest_step) { b->longest_step = now - b->step_start; }
    }
    b->step_start = now;
    own->step = step;
    own->activity = (uint32_t)activity;
    pthread_mutex_unlock(&b->lock);
}

// From now on the others may end.
static inline void watch_let_go(Bootstrap* b) {
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->size; i++) { b->peers[i].may_end = true; }
    pthread_mutex_unlock(&b->lock);
}

// Rank 0 hangs up last: bytes of the others that nobody has read would make the kernel break the connection off, and
// the answer that is on its way to them could be lost.
static inline void watch_await_ends(Bootstrap* b) {
    pthread_mutex_lock(&b->lock);
    for (int i = 1; i < b->size; i++) {
        while (!b->peers[i].ended) { pthread_cond_wait(&b->changed, &b->lock); }
    }
    pthread_mutex_unlock(&b->lock);
}

static inline void watch_stop(Bootstrap* b) {
    const uint64_t one = 1;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_mutex_unlock(&b->lock);
    if (write(b->wake, &one, sizeof one) < 0) { notice("warning: cannot wake a thread: %s", strerror(errno)); }
    pthread_join(b->thread, NULL);
}
