#include "comm.h"
#include "connect.h"
#include "frame.h"

Comm comm_alone(void) { return (Comm){.size = 1, .local_size = 1}; }

// Seconds that all ranks have to begin, at least: machines of a cluster start minutes apart (chosen, not measured).
enum { CONNECT_SECONDS = 300 };

bool comm_open(Comm* comm, const Launch* launch, double timeout, Error* err) {
    comm->rank = launch->rank;
    comm->size = launch->size;
    if (!comm->engine->open(comm, err)) { return false; }
    comm->peers = connection_open(launch, fmax(timeout, CONNECT_SECONDS), timeout, err);
    if (!comm->peers) { return false; }
    comm->local_rank = comm->local_size = 0;
    for (int r = 0; r < comm->size; r++) {
        if (strcmp(connection_host(comm->peers, r), connection_host(comm->peers, comm->rank))) { continue; }
        comm->local_rank += r < comm->rank;
        comm->local_size++;
    }
    if (launch->local_rank >= 0) { comm->local_rank = launch->local_rank; }
    return true;
}

void comm_close(Comm* comm) {
    if (comm->size == 1) { return; }
    comm_barrier(comm); // rank 0 may still be saving, and NCCL could take a rank that leaves before it for a failure
    watchdog_watch(comm->peers, NULL, NULL);
    comm->engine->close(comm);
    connection_close(comm->peers);
}

void comm_connect(Comm* comm) {
    if (comm->size == 1) { return; }
    watchdog_report_activity(comm->peers, 0, RANK_CONNECTS);
    comm->engine->connect(comm);
    watchdog_report_activity(comm->peers, 0, RANK_SETS_UP);
}

void comm_report_activity(Comm* comm, long long step, RankActivity activity) {
    if (comm->size > 1) { watchdog_report_activity(comm->peers, step, activity); }
}

// ---------------------------------------------------------------------------------------------------------------------
// between steps

void comm_barrier(Comm* comm) {
    if (comm->size > 1) { connection_barrier(comm->peers); }
}

void* comm_gather(Comm* comm, const void* mine, size_t bytes) {
    void* all = alloc_or_die((size_t)comm->size, bytes, "what each process tells");
    connection_gather(comm->peers, mine, bytes, all);
    return all;
}

size_t comm_min_host(Comm* comm, size_t mine) {
    if (comm->size == 1) { return mine; }
    size_t* all = comm_gather(comm, &mine, sizeof mine);
    for (int r = 0; r < comm->size; r++) { mine = min_size(mine, all[r]); }
    free(all);
    return mine;
}

bool comm_all(Comm* comm, bool mine) { return comm_min_host(comm, mine) == 1; }

void comm_all_reduce_host(Comm* comm, double* x, size_t n) {
    const size_t size = (size_t)comm->size, most = MAX_FRAME_BYTES / (size * sizeof *x); // in one exchange
    if (size == 1) { return; }
    double* all = alloc_or_die(size * min_size(n, most), sizeof *all, "numbers of each process");
    for (size_t begin = 0; begin < n; begin += most) {
        const size_t count = min_size(most, n - begin);
        connection_gather(comm->peers, x + begin, count * sizeof *x, all);
        for (size_t i = 0; i < count; i++) {
            x[begin + i] = 0;
            for (size_t r = 0; r < size; r++) { x[begin + i] += all[r * count + i]; }
        }
    }
    free(all);
}

// ---------------------------------------------------------------------------------------------------------------------
// within a step

void comm_all_reduce_begin(Comm* comm, float* x, size_t n) {
    if (comm->size > 1 && n > 0) { comm->engine->all_reduce_begin(comm, x, n); }
}

void comm_reduce_scatter_begin(Comm* comm, float* x, size_t n) {
    if (comm->size > 1 && n > 0) { comm->engine->reduce_scatter_begin(comm, x, n); }
}

void comm_all_gather_begin(Comm* comm, void* x, size_t bytes) {
    if (comm->size > 1 && bytes > 0) { comm->engine->all_gather_begin(comm, x, bytes); }
}

void comm_reduce_begin(Comm* comm, float* x, size_t n, int root) {
    if (comm->size > 1 && n > 0) { comm->engine->reduce_begin(comm, x, n, root); }
}

void comm_broadcast_begin(Comm* comm, void* x, size_t bytes, int root) {
    if (comm->size > 1 && bytes > 0) { comm->engine->broadcast_begin(comm, x, bytes, root); }
}

void comm_end(Comm* comm) {
    if (comm->size > 1) { comm->engine->end(comm); }
}

void comm_all_reduce_sums(Comm* comm, double* x, int n) {
    if (comm->size > 1) { comm->engine->sum(comm, x, n); }
}
