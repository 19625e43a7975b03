// How processes find each other without MPI, exchange small things before training, and notice when one of them is
// gone.
//
// The first rank listens at the launch's address and port, the others connect to it: a star of TCP connections. Each
// process has a thread, started by bootstrap_open, which does all reading: it sends and receives a sign of life every
// second and so knows of a rank that died, was stopped, or whose network was cut, whatever the main thread waits for.
// Then it ends the process with exit code 1 (by _exit: the main thread may hang in NCCL for ever) and one message,
// which names the rank, its host, its last step and what it was doing. All ranks end so, since the first tells the
// others.
//
//   Bootstrap* b = bootstrap_open(&launch, version, 300, 60, &err);
//   bootstrap_broadcast(b, &nccl_id, sizeof nccl_id);              // from rank 0
//   bootstrap_gather(b, &my_hash, sizeof my_hash, hashes);         // to all, in order of rank
//   for (...) { bootstrap_progress(b, step, RANK_TRAINS); ... }
//   bootstrap_close(b);                                            // all wait for each other here
//
// The key tells runs apart that meet by mistake. It is no secret and keeps no attacker away: as MPI and NCCL do, this
// trusts the network. Strangers (port scanners, browsers) are turned away without harm.
#pragma once
#include "watch.h"

enum { BOOTSTRAP_MOST_BYTES = FRAME_MOST }; // of one exchange, all ranks' parts together

static inline uint64_t bootstrap_key(const Launch* launch, const char* key) {
    return hash64(key, strlen(key), hash64(launch->run_id, strlen(launch->run_id), FRAME_VERSION));
}

// The connections to all ranks that this one talks to, in b->peers.
static inline bool bootstrap_meet(Bootstrap* b, const Launch* launch, const char* key, double seconds,
                                  Error* err) {
    const size_t size = (size_t)launch->size;
    Reception* r = (Reception*)alloc_or_die(1, sizeof *r, "connections");
    const double deadline = seconds_now() + seconds;
    r->launch = launch;
    r->key = bootstrap_key(launch, key);
    r->host = b->hosts[launch->rank];
    r->seconds = seconds;
    r->hosts = b->hosts;
    r->fds = (int*)alloc_or_die(size, sizeof *r->fds, "connections");
    r->addresses = (char(*)[ADDRESS_BYTES])alloc_or_die(size, ADDRESS_BYTES, "connections");
    for (size_t i = 0; i < size; i++) { r->fds[i] = -1; }
    const bool ok = launch->rank == 0 ? reception_hold(r, deadline, err) : knock(r, deadline, err);
    for (size_t i = 0; i < size; i++) {
        if (!ok && r->fds[i] >= 0) { close(r->fds[i]); }
        b->peers[i].fd = ok ? r->fds[i] : -1;
    }
    free(r->addresses);
    free(r->fds);
    free(r);
    return ok;
}

static inline void bootstrap_free(Bootstrap* b) {
    for (int i = 0; i < b->size; i++) {
        if (b->peers[i].fd >= 0) { close(b->peers[i].fd); }
        frame_next(&b->peers[i].reader);
        free(b->peers[i].part);
        pthread_mutex_destroy(&b->peers[i].sending);
    }
    if (b->wake >= 0) { close(b->wake); }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b->peers);
    free(b->hosts);
    free(b);
}

// Waits until all ranks are there. `key` is any text that must be the same in all of them, such as the program's
// version; the launch's run id is added to it. NULL if not all came within `connect_seconds`, with a message that says
// who is missing or what was not reached, or if this rank does not belong (another key, version or number of ranks; a
// rank that is there already). Silence of another rank for `silence_seconds` ends the process from then on. With a
// launch of one process all functions here do nothing or copy.
static inline Bootstrap* bootstrap_open(const Launch* launch, const char* key, double connect_seconds,
                                        double silence_seconds, Error* err) {
    const size_t size = (size_t)launch->size;
    Bootstrap* b = (Bootstrap*)alloc_or_die(1, sizeof *b, "connections");
    b->rank = launch->rank;
    b->size = launch->size;
    b->timeout = silence_seconds;
    b->wake = -1;
    b->peers = (Peer*)alloc_or_die(size, sizeof *b->peers, "connections");
    b->hosts = (char(*)[HOST_BYTES])alloc_or_die(size, HOST_BYTES, "names of hosts");
    if (gethostname(b->hosts[b->rank], HOST_BYTES - 1) != 0) { snprintf(b->hosts[b->rank], HOST_BYTES, "unnamed"); }
    int error = pthread_mutex_init(&b->lock, NULL);
    if (!error) { error = pthread_cond_init(&b->changed, NULL); }
    for (size_t i = 0; i < size; i++) {
        b->peers[i].fd = -1;
        b->peers[i].reader.most = FRAME_MOST;
        if (!error) { error = pthread_mutex_init(&b->peers[i].sending, NULL); }
    }
    if (error) { fatal("cannot make a lock: %s", strerror(error)); }
    if (size == 1) { return b; }
    if (!bootstrap_meet(b, launch, key, connect_seconds, err)) { bootstrap_free(b); return NULL; }
    watch_start(b);
    return b;
}

// ---------------------------------------------------------------------------------------------------------------------
// exchanges: every rank sends its part to rank 0, which waits for all and sends the answer to all

// Waits for a rank's part in this exchange, or rank 0's answer to it, and checks that it is one.
static inline uint8_t* exchange_await(Bootstrap* b, int from, FrameType type, size_t bytes) {
    Peer* p = &b->peers[from];
    pthread_mutex_lock(&b->lock);
    while (!p->part) { pthread_cond_wait(&b->changed, &b->lock); } // if it never comes, the watch ends the process
    uint8_t* part = p->part;
    const FrameHeader h = p->part_header;
    p->part = NULL;
    pthread_mutex_unlock(&b->lock);
    if (h.type != (uint32_t)type || h.sequence != b->sequence || h.bytes != bytes) {
        watch_end(b,
                  "rank %d on %s and rank %d on %s do not exchange the same thing (number %u, %s of %u bytes; number "
                  "%u, %s of %zu bytes): they run different programs or options",
                  from, b->hosts[from], b->rank, b->hosts[b->rank], h.sequence, frame_name(h.type), h.bytes,
                  b->sequence, frame_name((uint32_t)type), bytes);
    }
    return part;
}

static inline void exchange_send(Bootstrap* b, int to, FrameType type, const void* data, size_t bytes) {
    Peer* p = &b->peers[to];
    pthread_mutex_lock(&p->sending);
    // should the connection be gone, the watch sees it too
    frame_send(p->fd, type, b->sequence, data, bytes, WATCH_FOREVER);
    pthread_mutex_unlock(&p->sending);
}

// What becomes of the parts on rank 0: laid one after the other they are the answer; or they have to be equal, and the
// answer is there already.
typedef enum { PARTS_MAKE_ANSWER, PARTS_ARE_CHECKED } ExchangeParts;

// `part` has `bytes`, the answer `answer_bytes`.
static inline void exchange(Bootstrap* b, FrameType type, ExchangeParts parts, const void* part, size_t bytes,
                            void* answer, size_t answer_bytes) {
    if (answer_bytes > BOOTSTRAP_MOST_BYTES) { fatal("ranks cannot exchange %zu bytes at once", answer_bytes); }
    b->sequence++;
    if (b->rank != 0) {
        exchange_send(b, 0, type, part, bytes);
        uint8_t* got = exchange_await(b, 0, type, answer_bytes);
        if (answer_bytes) { memcpy(answer, got, answer_bytes); }
        free(got);
        return;
    }
    for (int i = 0; i < b->size; i++) {
        uint8_t* got = i ? exchange_await(b, i, type, bytes) : NULL;
        const void* from = i ? got : part;
        if (parts == PARTS_MAKE_ANSWER) { memcpy((char*)answer + (size_t)i * bytes, from, bytes); }
        else if (bytes && memcmp(from, part, bytes) != 0) {
            watch_end(
                b, "rank %d on %s expects another number of bytes than rank 0: they run different programs or options",
                i, b->hosts[i]);
        }
        free(got);
    }
    if (type == FRAME_CLOSE) { watch_let_go(b); }
    for (int i = 1; i < b->size; i++) { exchange_send(b, i, type, answer, answer_bytes); }
}

// These three are collective: every rank calls them in the same order, from one thread at a time, at any time between
// open and close. They wait as long as all ranks live, however late one of them comes, and end the process with a
// message when ranks do not call the same one with the same number of bytes.
//
// Rank 0's bytes to all, BOOTSTRAP_MOST_BYTES at most.
static inline void bootstrap_broadcast(Bootstrap* b, void* data, size_t bytes) {
    const uint64_t expected = bytes;
    if (b->size > 1) { exchange(b, FRAME_BROADCAST, PARTS_ARE_CHECKED, &expected, sizeof expected, data, bytes); }
}

// Each rank's bytes to all: `all` has room for size * bytes, BOOTSTRAP_MOST_BYTES at most, in order of rank.
static inline void bootstrap_gather(Bootstrap* b, const void* mine, size_t bytes, void* all) {
    if (b->size == 1) { memcpy(all, mine, bytes); return; }
    if (bytes > BOOTSTRAP_MOST_BYTES) { fatal("ranks cannot exchange %zu bytes at once", bytes); }
    if (bytes) { exchange(b, FRAME_GATHER, PARTS_MAKE_ANSWER, mine, bytes, all, (size_t)b->size * bytes); }
}

static inline void bootstrap_barrier(Bootstrap* b) {
    if (b->size > 1) { exchange(b, FRAME_BARRIER, PARTS_ARE_CHECKED, NULL, 0, NULL, 0); }
}

// The name of a rank's machine.
static inline const char* bootstrap_host(const Bootstrap* b, int rank) { return b->hosts[rank]; }

// Tells the others where this rank is: before each step, and before whatever else takes long. Cheap, never waits.
// A run is taken for hung, and ended, when all ranks say that they train, and none has told of a new step for ten
// time-outs and twenty times the longest step so far, after at least two steps. One rank that validates, samples or
// saves while the others wait for it stops the clock, as long as it takes.
static inline void bootstrap_progress(Bootstrap* b, long long step, RankActivity activity) {
    if (b->size > 1) { watch_progress(b, step, activity); }
}

// An orderly end: waits for all ranks to call it, then gives the memory back. A process that ends without it, by
// exit() or a signal, is missed by the others: they wait a second, so that ranks which all end for the same reason do
// so with their own messages and exit codes, then end as described above.
static inline void bootstrap_close(Bootstrap* b) {
    if (b->size > 1) {
        exchange(b, FRAME_CLOSE, PARTS_ARE_CHECKED, NULL, 0, NULL, 0);
        if (b->rank == 0) { watch_await_ends(b); }
        watch_stop(b);
    }
    bootstrap_free(b);
}
