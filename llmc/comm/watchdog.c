#include "watchdog.h"
#include "socket.h"
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

// Seconds without an advance after which ranks hang, at least. Chosen.
#define HANG_SECONDS 600.0

// When another rank is lost, this one may be ending too, with a better message: wait so long for it. Chosen.
#define GRACE_SECONDS 1.0

static const char* const ACTIVITIES[] = {"setting up", "connecting devices", "training", "validating", "scoring",
                                         "sampling",   "saving",             "ending"};

void ATTR_NORETURN ATTR_PRINTF(2, 3) watchdog_fatal(Connection* c, const char* fmt, ...) {
    char text[FRAME_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&c->lock);
    const bool first = !c->ending;
    c->ending = true;
    pthread_mutex_unlock(&c->lock);
    while (!first) { pause(); } // NOLINT(bugprone-infinite-loop): another thread ends the process
    struct timespec deadline;   // for a frame that another thread is sending, perhaps to the lost rank
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec++;
    for (int i = 0; c->rank == 0 && i < c->size; i++) {
        Peer* p = &c->peers[i];
        if (pthread_mutex_timedlock(&p->sending, &deadline) != 0) { continue; }
        if (p->fd >= 0) { frame_send(p->fd, FRAME_ABORT, 0, text, strlen(text), seconds_now()); }
        pthread_mutex_unlock(&p->sending);
    }
    sleep_seconds(GRACE_SECONDS);
    // Flush standard output unless another thread holds its lock or its reader is stuck. Write to standard error
    // without its lock, which the main thread may hold.
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && ftrylockfile(stdout) == 0) { fflush(stdout); }
    char line[FRAME_TEXT_BYTES + 32];
    const int n = snprintf(line, sizeof line, "%serror: %s\n", isatty(STDERR_FILENO) ? "\r\033[J" : "", text);
    if (write(STDERR_FILENO, line, min_size((size_t)n, sizeof line - 1)) < 0) {} // an error here cannot be reported
    _exit(EXIT_RUNTIME);
}

static const char* activity_name(uint32_t activity) {
    return activity < NUM_ACTIVITIES ? ACTIVITIES[activity] : "busy";
}

// Ends the process because the connection to a rank is lost or useless; `how` completes "rank 3 on node0 ...".
static void ATTR_NORETURN rank_lost(Connection* c, int rank, const char* how) {
    char host[HOST_BYTES];
    pthread_mutex_lock(&c->lock);
    const long long step = c->peers[rank].step;
    const uint32_t activity = c->peers[rank].activity;
    const double age = seconds_now() - c->peers[rank].heard;
    memcpy(host, c->hosts[rank], HOST_BYTES);
    pthread_mutex_unlock(&c->lock);
    watchdog_fatal(c, "rank %d on %s %s. It was last heard of %.1f s ago, at step %lld, %s", rank, host, how, age, step,
                   activity_name(activity));
}

// ---------------------------------------------------------------------------------------------------------------------
// the thread

static void receive_heartbeat(Connection* c, Peer* p) {
    Heartbeat heartbeat;
    memcpy(&heartbeat, p->reader.payload, sizeof heartbeat);
    pthread_mutex_lock(&c->lock);
    p->step = heartbeat.step;
    p->activity = heartbeat.activity;
    p->progress = heartbeat.progress;
    p->heard = seconds_now();
    pthread_mutex_unlock(&c->lock);
}

// Stores a part of an exchange for the main thread. Returns false if the previous part was not taken.
static bool receive_part(Connection* c, Peer* p) {
    const FrameHeader h = p->reader.header;
    pthread_mutex_lock(&c->lock);
    const bool room = !p->part;
    if (room) {
        p->part_header = h;
        p->part = p->reader.payload;
        p->reader.payload = NULL;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return room;
}

// Handles a complete frame. Returns false if a rank may not send frames of this type.
static bool receive_frame(Connection* c, Peer* p) {
    const FrameHeader h = p->reader.header;
    bool ok = true;
    if (h.type == FRAME_HEARTBEAT) { receive_heartbeat(c, p); }
    else if (h.type == FRAME_ABORT && c->rank != 0) {
        char text[FRAME_TEXT_BYTES];
        printable_text(text, sizeof text, p->reader.payload, h.bytes);
        watchdog_fatal(c, "%s", text);
    } else { ok = h.type >= FRAME_BROADCAST && h.type <= FRAME_CLOSE && receive_part(c, p); }
    frame_next(&p->reader);
    return ok;
}

// Receives what a rank has sent.
static void read_rank(Connection* c, int rank) {
    Peer* p = &c->peers[rank];
    const size_t had = p->reader.have;
    FrameState state;
    while ((state = frame_receive(&p->reader, p->fd)) == FRAME_WHOLE) {
        p->silence = 0;
        if (!receive_frame(c, p)) { state = FRAME_BAD; break; }
    }
    if (p->reader.have != had) { p->silence = 0; }
    if (state == FRAME_BAD) { rank_lost(c, rank, "sent an invalid message: is it the same program?"); }
    if (state != FRAME_END) { return; }
    pthread_mutex_lock(&c->lock);
    p->ended = p->may_end;
    const bool lost = !p->ended;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (lost) {
        rank_lost(c, rank, "ended before the run did, or its connection broke: see its output for the reason");
    }
}

// Sends a heartbeat; the caller holds p->sending. Skips it while the connection takes no bytes: then the other end has
// not read all of those sent.
static void send_heartbeat(Connection* c, Peer* p) {
    pthread_mutex_lock(&c->lock);
    const Peer* own = &c->peers[c->rank];
    const Heartbeat heartbeat = {.step = own->step, .activity = own->activity, .progress = progress_count()};
    pthread_mutex_unlock(&c->lock);
    uint8_t* frame = frame_make(FRAME_HEARTBEAT, 0, &heartbeat, sizeof heartbeat);
    const size_t bytes = sizeof(FrameHeader) + sizeof heartbeat;
    const ssize_t n = send(p->fd, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) { socket_send(p->fd, frame + n, bytes - (size_t)n, seconds_now() + c->timeout); } // no half frames
    free(frame);
}

// Returns false for what has no batches that could be counted.
static bool is_counted(uint32_t activity) {
    return activity == RANK_TRAINS || activity == RANK_VALIDATES || activity == RANK_SCORES;
}

void watchdog_check_progress(Connection* c, double elapsed) {
    uint64_t reported = 0;
    bool all_counted = true;
    int slowest = 0, connecting = -1, setting_up = -1;
    pthread_mutex_lock(&c->lock);
    c->peers[c->rank].progress = progress_count();
    for (int i = 0; i < c->size; i++) {
        const Peer* p = &c->peers[i];
        reported = mix64(reported ^ mix64((uint64_t)p->step * NUM_ACTIVITIES + p->activity) ^ p->progress);
        all_counted = all_counted && is_counted(p->activity);
        if (p->activity == RANK_CONNECTS) { connecting = i; }
        if (p->activity == RANK_SETS_UP) { setting_up = i; }
        if (p->step < c->peers[slowest].step) { slowest = i; }
    }
    const long long step = c->peers[slowest].step;
    const char* activity = activity_name(c->peers[slowest].activity);
    pthread_mutex_unlock(&c->lock);
    const bool has_changed = reported != c->reported;
    if (has_changed && all_counted) { c->longest_unchanged = fmax(c->longest_unchanged, c->unchanged_seconds); }
    c->unchanged_seconds = has_changed || !(all_counted || connecting >= 0) ? 0 : c->unchanged_seconds + elapsed;
    c->reported = reported;
    const double limit = fmax(fmax(HANG_SECONDS, 10 * c->timeout), connecting >= 0 ? 0 : 20 * c->longest_unchanged);
    if (c->unchanged_seconds <= limit) { return; }
    if (connecting >= 0 && setting_up >= 0) {
        watchdog_fatal(c, "rank %d on %s has waited for the device of rank %d on %s for %.0f s: that one hangs",
                       connecting, c->hosts[connecting], setting_up, c->hosts[setting_up], c->unchanged_seconds);
    } else if (connecting >= 0) {
        watchdog_fatal(c,
                       "rank %d on %s has been connecting its device to the others' for %.0f s: it hangs. "
                       "NCCL_DEBUG=INFO may show why; NCCL_SOCKET_IFNAME chooses the network, NCCL_P2P_DISABLE=1 "
                       "avoids direct access between GPUs",
                       connecting, c->hosts[connecting], c->unchanged_seconds);
    } else {
        watchdog_fatal(c,
                       "no rank has advanced for %.0f s (before for %.0f s at most): they hang. Furthest behind is "
                       "rank %d on %s, at step %lld, %s. NCCL_DEBUG=INFO may show why; go on with --resume auto",
                       c->unchanged_seconds, c->longest_unchanged, slowest, c->hosts[slowest], step, activity);
    }
}

// Sends heartbeats to the ranks that are polled, and looks for lost ones; called once in each interval.
static void heartbeat_turn(Connection* c, const struct pollfd* polled, double elapsed) {
    char how[160];
    for (int i = 0; i < c->size; i++) {
        Peer* p = &c->peers[i];
        if (polled[i].fd < 0 || p->ended) { continue; }
        if (pthread_mutex_trylock(&p->sending) == 0) { // else another frame is being sent, whose bytes count as one
            send_heartbeat(c, p);
            pthread_mutex_unlock(&p->sending);
        }
        p->silence += elapsed;
        if (p->silence <= c->timeout) { continue; }
        snprintf(how, sizeof how, "has sent no heartbeat for %.3g s: it was stopped, or its network was cut",
                 p->silence);
        rank_lost(c, i, how);
    }
    pthread_mutex_lock(&c->lock);
    const char* failure = c->failure ? c->failure(c->failure_state) : NULL;
    pthread_mutex_unlock(&c->lock);
    if (failure) { watchdog_fatal(c, "rank %d: %s", c->rank, failure); }
    if (c->rank == 0) { watchdog_check_progress(c, elapsed); }
}

static void* watchdog_thread(void* connection) {
    Connection* c = connection;
    const double interval = fmin(1, c->timeout / 4); // seconds between heartbeats
    struct pollfd* polled = alloc_or_die((size_t)c->size + 1, sizeof *polled, "connections");
    double last_turn = seconds_now() - interval; // the first turn is at once
    for (;;) {
        uint64_t wakes;
        pthread_mutex_lock(&c->lock);
        const bool stop = c->stop;
        for (int i = 0; i < c->size; i++) {
            polled[i] = (struct pollfd){.fd = c->peers[i].ended ? -1 : c->peers[i].fd, .events = POLLIN};
        }
        pthread_mutex_unlock(&c->lock);
        if (stop) { break; }
        polled[c->size] = (struct pollfd){.fd = c->wake, .events = POLLIN};
        const int ready = poll(polled, (nfds_t)c->size + 1, poll_until(last_turn + interval));
        if (ready > 0 && polled[c->size].revents) { (void)!read(c->wake, &wakes, sizeof wakes); }
        for (int i = 0; ready > 0 && i < c->size; i++) {
            if (polled[i].revents) { read_rank(c, i); }
        }
        const double now = seconds_now(), elapsed = now - last_turn;
        if (elapsed < interval) { continue; }
        last_turn = now;
        heartbeat_turn(c, polled, elapsed < 2 * interval ? elapsed : 2 * interval);
    }
    free(polled);
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// from other threads

// Ends the thread's poll(), so that it sees what has changed.
static void watchdog_wake(Connection* c) {
    const uint64_t one = 1;
    if (write(c->wake, &one, sizeof one) < 0) {
        notice("warning: cannot wake the watchdog thread: %s", strerror(errno));
    }
}

void watchdog_start(Connection* c) {
    sigset_t all, before; // the thread blocks all signals: they are for the main thread
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0) { fatal("cannot create the eventfd of the watchdog thread: %s", strerror(errno)); }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&c->thread, NULL, watchdog_thread, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) { fatal("cannot start the watchdog thread: %s", strerror(error)); }
}

void watchdog_watch(Connection* c, const char* (*failure)(void* state), void* state) {
    pthread_mutex_lock(&c->lock);
    c->failure = failure;
    c->failure_state = state;
    pthread_mutex_unlock(&c->lock);
}

void watchdog_add(Connection* c, int rank, int fd, const char* host) {
    Peer* p = &c->peers[rank];
    pthread_mutex_lock(&p->sending);
    pthread_mutex_lock(&c->lock);
    p->fd = fd;
    p->heard = seconds_now();
    printable_text(c->hosts[rank], HOST_BYTES, host, HOST_BYTES);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&p->sending);
    watchdog_wake(c);
}

void watchdog_report_activity(Connection* c, long long step, RankActivity activity) {
    pthread_mutex_lock(&c->lock);
    Peer* own = &c->peers[c->rank];
    own->step = step;
    const bool is_other = own->activity != (uint32_t)activity;
    own->activity = (uint32_t)activity;
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; is_other && i < c->size; i++) {
        Peer* p = &c->peers[i];
        if (p->fd < 0) { continue; }
        pthread_mutex_lock(&p->sending);
        send_heartbeat(c, p);
        pthread_mutex_unlock(&p->sending);
    }
}

void watchdog_allow_end(Connection* c) {
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->size; i++) { c->peers[i].may_end = true; }
    pthread_mutex_unlock(&c->lock);
}

void watchdog_wait_for_ends(Connection* c) {
    pthread_mutex_lock(&c->lock);
    for (int i = 1; i < c->size; i++) {
        while (!c->peers[i].ended) { pthread_cond_wait(&c->changed, &c->lock); }
    }
    pthread_mutex_unlock(&c->lock);
}

void watchdog_stop(Connection* c) {
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    watchdog_wake(c);
    pthread_join(c->thread, NULL);
}
