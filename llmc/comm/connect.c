#include "connect.h"
#include "rendezvous.h"

uint64_t connection_key(const Launch* launch, const char* key) {
    return hash64(key, strlen(key), hash64(launch->run_id, strlen(launch->run_id), FRAME_VERSION));
}

// Connects to rank 0, or as rank 0 to all others: sets c->peers[].fd and c->hosts.
static bool connection_rendezvous(Connection* c, const Launch* launch, const char* key, double seconds, Error* err) {
    const size_t size = (size_t)launch->size;
    Secret secret;
    if (!secret_find(&secret, err)) { return false; }
    Rendezvous* r = alloc_or_die(1, sizeof *r, "connections");
    const double deadline = seconds_now() + seconds;
    r->secret = secret;
    r->launch = launch;
    r->key = connection_key(launch, key);
    r->host = c->hosts[launch->rank];
    r->seconds = seconds;
    r->hosts = c->hosts;
    r->fds = alloc_or_die(size, sizeof *r->fds, "connections");
    r->addresses = alloc_or_die(size, ADDRESS_BYTES, "connections");
    for (size_t i = 0; i < size; i++) { r->fds[i] = -1; }
    const bool ok = launch->rank == 0 ? rendezvous_host(r, deadline, err) : greet(r, deadline, err);
    for (size_t i = 0; i < size; i++) {
        if (!ok && r->fds[i] >= 0) { close(r->fds[i]); }
        c->peers[i].fd = ok ? r->fds[i] : -1;
    }
    free(r->addresses);
    free(r->fds);
    free(r);
    return ok;
}

static void connection_free(Connection* c) {
    for (int i = 0; i < c->size; i++) {
        if (c->peers[i].fd >= 0) { close(c->peers[i].fd); }
        frame_next(&c->peers[i].reader);
        free(c->peers[i].part);
        pthread_mutex_destroy(&c->peers[i].sending);
    }
    if (c->wake >= 0) { close(c->wake); }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->peers);
    free(c->hosts);
    free(c);
}

Connection* connection_open(const Launch* launch, const char* key, double connect_seconds, double silence_seconds,
                            Error* err) {
    const size_t size = (size_t)launch->size;
    Connection* c = alloc_or_die(1, sizeof *c, "connections");
    c->rank = launch->rank;
    c->size = launch->size;
    c->timeout = silence_seconds;
    c->wake = -1;
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
    if (size == 1) { return c; }
    if (!connection_rendezvous(c, launch, key, connect_seconds, err)) { connection_free(c); return NULL; }
    watchdog_start(c);
    return c;
}

// ---------------------------------------------------------------------------------------------------------------------
// exchanges: every rank sends its part to rank 0, which waits for all and sends the answer to all

// Rank 0 concatenates the parts into the answer (gather), or checks that they equal its own (broadcast, barrier), whose
// answer it has already.
typedef enum { PARTS_MAKE_ANSWER, PARTS_ARE_CHECKED } ExchangeParts;

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

static void exchange(Connection* c, FrameType type, ExchangeParts parts, const void* part, size_t bytes, void* answer,
                     size_t answer_bytes) {
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
        if (parts == PARTS_MAKE_ANSWER) { memcpy((char*)answer + (size_t)i * bytes, from, bytes); }
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
    if (c->size > 1) { exchange(c, FRAME_BROADCAST, PARTS_ARE_CHECKED, &expected, sizeof expected, data, bytes); }
}

void connection_gather(Connection* c, const void* mine, size_t bytes, void* all) {
    if (c->size == 1) { memcpy(all, mine, bytes); return; }
    if (bytes) { exchange(c, FRAME_GATHER, PARTS_MAKE_ANSWER, mine, bytes, all, (size_t)c->size * bytes); }
}

void connection_barrier(Connection* c) {
    if (c->size > 1) { exchange(c, FRAME_BARRIER, PARTS_ARE_CHECKED, NULL, 0, NULL, 0); }
}

const char* connection_host(const Connection* c, int rank) { return c->hosts[rank]; }

void connection_report_activity(Connection* c, long long step, RankActivity activity) {
    if (c->size > 1) { watchdog_report_activity(c, step, activity); }
}

void connection_close(Connection* c) {
    if (c->size > 1) {
        exchange(c, FRAME_CLOSE, PARTS_ARE_CHECKED, NULL, 0, NULL, 0);
        if (c->rank == 0) { watchdog_wait_for_ends(c); }
        watchdog_stop(c);
    }
    connection_free(c);
}
