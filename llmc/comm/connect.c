#include "connect.h"
#include "../base/file.h"
#include "rendezvous.h"

// Takes the sockets that the ranks of --gpus inherit.
static bool connection_inherit(Connection* c, const char* sockets, Error* err) {
    const int first = c->rank == 0, end = c->rank == 0 ? c->size : 1;
    const char* at = sockets;
    for (int i = first; i < end; i++) {
        char* rest;
        const int fd = (int)strtol(at, &rest, 10);
        if (rest == at || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            return fail(err, "GPT2_SOCKETS=%.40s: these are not the sockets of --gpus; unset it", sockets);
        }
        watchdog_add(c, i, fd, c->hosts[c->rank]);
        at = rest + (*rest == ',');
    }
    return true;
}

// Connects to rank 0, or as rank 0 to all others.
static bool connection_rendezvous(Connection* c, const Launch* launch, double seconds, Error* err) {
    Rendezvous r = {.missing = 0};
    if (launch->rendezvous == RENDEZVOUS_SOCKETS) { return connection_inherit(c, launch->sockets, err); }
    if (launch->rendezvous == RENDEZVOUS_FILE && !(launch->folder && *launch->folder)) {
        return fail(err, "the %d processes that %s started meet by a file in --out: give --out a folder that all of "
                         "them see", c->size, launch->launcher);
    }
    if (c->rank > 0) { return greet(c, launch, seconds, err); }
    if (!rendezvous_open(&r, c, launch, err)) { return false; }
    rendezvous_admit(&r, seconds);
    return true;
}

static void connection_free(Connection* c) {
    for (int i = 0; i < c->size; i++) {
        if (c->peers[i].fd >= 0) { close(c->peers[i].fd); }
        frame_next(&c->peers[i].reader);
        free(c->peers[i].part);
        pthread_mutex_destroy(&c->peers[i].sending);
    }
    close(c->wake);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->peers);
    free(c->hosts);
    free(c);
}

// Tells every rank the names of all hosts.
static void connection_share_hosts(Connection* c) {
    char(*all)[HOST_BYTES] = alloc_or_die((size_t)c->size, HOST_BYTES, "names of hosts");
    connection_gather(c, c->hosts[c->rank], HOST_BYTES, all);
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->size; i++) { printable_text(c->hosts[i], HOST_BYTES, all[i], HOST_BYTES); }
    pthread_mutex_unlock(&c->lock);
    free(all);
}

Connection* connection_open(const Launch* launch, double connect_seconds, double silence_seconds, Error* err) {
    const size_t size = (size_t)launch->size;
    Connection* c = alloc_or_die(1, sizeof *c, "connections");
    c->rank = launch->rank;
    c->size = launch->size;
    c->timeout = silence_seconds;
    c->peers = alloc_or_die(size, sizeof *c->peers, "connections");
    c->hosts = alloc_or_die(size, HOST_BYTES, "names of hosts");
    if (gethostname(c->hosts[c->rank], HOST_BYTES - 1) != 0) { snprintf(c->hosts[c->rank], HOST_BYTES, "unnamed"); }
    int error = pthread_mutex_init(&c->lock, NULL);
    if (!error) { error = pthread_cond_init(&c->changed, NULL); }
    for (size_t i = 0; i < size; i++) {
        c->peers[i].fd = -1;
        c->peers[i].reader.max_bytes = MAX_FRAME_BYTES;
        if (!error) { error = pthread_mutex_init(&c->peers[i].sending, NULL); }
    }
    if (error) { fatal("cannot create a mutex for the connections between ranks: %s", strerror(error)); }
    watchdog_start(c);
    if (connection_rendezvous(c, launch, connect_seconds, err)) {
        connection_share_hosts(c);
        return c;
    }
    watchdog_stop(c);
    connection_free(c);
    return NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// exchanges: every rank sends its part to rank 0, which waits for all and sends the answer to all

// Waits for a rank's part of this exchange, or for rank 0's answer to it, and checks its type, number and size.
static uint8_t* exchange_await(Connection* c, int from, FrameType type, size_t bytes) {
    Peer* p = &c->peers[from];
    pthread_mutex_lock(&c->lock);
    while (!p->part) { pthread_cond_wait(&c->changed, &c->lock); } // if it never comes, the watchdog ends the process
    uint8_t* part = p->part;
    const FrameHeader h = p->part_header;
    p->part = NULL;
    pthread_mutex_unlock(&c->lock);
    if (h.type != (uint32_t)type || h.sequence != c->sequence || h.bytes != bytes) {
        watchdog_fatal(c,
                       "rank %d on %s and rank %d on %s are at different exchanges (number %u, %s of %u bytes; number "
                       "%u, %s of %zu bytes): they run different programs or options",
                       from, c->hosts[from], c->rank, c->hosts[c->rank], h.sequence, frame_name(h.type), h.bytes,
                       c->sequence, frame_name((uint32_t)type), bytes);
    }
    return part;
}

static void exchange_send(Connection* c, int to, FrameType type, const void* data, size_t bytes) {
    Peer* p = &c->peers[to];
    pthread_mutex_lock(&p->sending);
    // if the connection is lost, the watchdog thread notices that by itself
    frame_send(p->fd, type, c->sequence, data, bytes, NO_DEADLINE);
    pthread_mutex_unlock(&p->sending);
}

// Rank 0 concatenates the parts into the answer (gather), or checks that they equal its own (broadcast, barrier), whose
// answer it has already.
static void exchange(Connection* c, FrameType type, const void* part, size_t bytes, void* answer, size_t answer_bytes) {
    if (answer_bytes > MAX_FRAME_BYTES) {
        fatal("an exchange of %zu bytes between ranks exceeds the limit of %d", answer_bytes, MAX_FRAME_BYTES);
    }
    c->sequence++;
    if (c->rank != 0) {
        exchange_send(c, 0, type, part, bytes);
        uint8_t* got = exchange_await(c, 0, type, answer_bytes);
        if (answer_bytes) { memcpy(answer, got, answer_bytes); }
        free(got);
        return;
    }
    for (int i = 0; i < c->size; i++) {
        uint8_t* got = i ? exchange_await(c, i, type, bytes) : NULL;
        const void* from = i ? got : part;
        if (type == FRAME_GATHER) { memcpy((char*)answer + (size_t)i * bytes, from, bytes); }
        else if (bytes && memcmp(from, part, bytes) != 0) {
            watchdog_fatal(c,
                           "rank %d on %s expects another number of bytes than rank 0: they run different programs or "
                           "options",
                           i, c->hosts[i]);
        }
        free(got);
    }
    if (type == FRAME_CLOSE) { watchdog_allow_end(c); }
    for (int i = 1; i < c->size; i++) { exchange_send(c, i, type, answer, answer_bytes); }
}

void connection_broadcast(Connection* c, void* data, size_t bytes) {
    const uint64_t expected = bytes;
    exchange(c, FRAME_BROADCAST, &expected, sizeof expected, data, bytes);
}

void connection_gather(Connection* c, const void* mine, size_t bytes, void* all) {
    if (bytes) { exchange(c, FRAME_GATHER, mine, bytes, all, (size_t)c->size * bytes); }
}

void connection_barrier(Connection* c) {
    exchange(c, FRAME_BARRIER, NULL, 0, NULL, 0);
}

const char* connection_host(const Connection* c, int rank) { return c->hosts[rank]; }

void connection_close(Connection* c) {
    exchange(c, FRAME_CLOSE, NULL, 0, NULL, 0);
    if (c->rank == 0) { watchdog_wait_for_ends(c); }
    watchdog_stop(c);
    connection_free(c);
}
