#include "mpi.h"
#include "rendezvous.h"
#include <limits.h>
#include <mpi.h>

// Large ranges are reduced in pieces: the messages of several pieces overlap, and the library's buffers stay small.
// Both numbers are chosen, not measured.
enum { PIECE_ELEMENTS = 4 << 20, MAX_REQUESTS = 4096 };

// A reduce-scatter under way. MPI leaves the sums of this process's part at the beginning of x.
typedef struct {
    float* x;
    size_t part; // elements
} MpiScatter;

typedef struct {
    MPI_Request request[MAX_REQUESTS];
    int requests;
    MpiScatter scatter[MAX_REQUESTS];
    int scatters;
} MpiState;

static void mpi_check(int error, const char* what) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (error == MPI_SUCCESS) { return; }
    MPI_Error_string(error, text, &length);
    fatal("%s: MPI failed: %.*s. " CHECKPOINTS_ARE_WHOLE, what, length, text);
}

static bool mpi_init(Launch* launch, Error* err) {
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        return fail(err, "MPI did not start: was this process started by the mpirun of the MPI it was built with?");
    }
    MPI_Comm here;
    mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "starting MPI");
    const int started = launch->size;
    int local_size = 0;
    mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &launch->rank), "asking for the rank");
    mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &launch->size), "asking for the number of processes");
    if (launch->size != started) { // started by the launcher of another MPI: each process would train alone
        return fail(err,
                    "%s started %d processes, but MPI counts %d: start them with the mpirun of the MPI that this "
                    "program was built with, or with srun --mpi=pmix",
                    launch->launcher, started, launch->size);
    }
    mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
              "finding the processes on this machine");
    mpi_check(MPI_Comm_rank(here, &launch->local_rank), "asking for the local rank");
    mpi_check(MPI_Comm_size(here, &local_size), "counting the processes on this machine");
    mpi_check(MPI_Comm_free(&here), "finding the processes on this machine");
    if (launch->rank == 0) {
        const char* address = local_size == launch->size ? "127.0.0.1" : NULL;
        launch->listener = endpoint_open(&launch->endpoint, address, err);
        if (launch->listener < 0) { return false; }
    }
    mpi_check(MPI_Bcast(&launch->endpoint, sizeof launch->endpoint, MPI_BYTE, 0, MPI_COMM_WORLD),
              "broadcasting where rank 0 listens");
    return true;
}

static void mpi_finalize(void) {
    int started = 0;
    MPI_Initialized(&started);
    if (started) { MPI_Finalize(); }
}

static bool mpi_open(Comm* comm, Error* err) {
    int started = 0;
    MPI_Initialized(&started);
    if (!started) {
        return fail(err, "several CPU processes need MPI to add up their gradients: start them with mpirun -np %d",
                    comm->size);
    }
    comm->state = alloc_or_die(1, sizeof(MpiState), "MPI's requests");
    return true;
}

static void mpi_connect(Comm* comm) { (void)comm; } // mpi_init has connected the processes

static void mpi_end(Comm* comm) {
    MpiState* s = comm->state;
    mpi_check(MPI_Waitall(s->requests, s->request, MPI_STATUSES_IGNORE), "adding up gradients");
    for (int i = 0; i < s->scatters; i++) {
        const MpiScatter* scatter = &s->scatter[i];
        memmove(scatter->x + (size_t)comm->rank * scatter->part, scatter->x, scatter->part * sizeof(float));
    }
    s->requests = s->scatters = 0;
}

// Returns a free request, after a call that lets MPI make progress on those under way.
static MPI_Request* mpi_request(Comm* comm) {
    MpiState* s = comm->state;
    int done = 0;
    if (s->requests == MAX_REQUESTS) { mpi_end(comm); } // on all processes at the same call
    mpi_check(MPI_Testall(s->requests, s->request, &done, MPI_STATUSES_IGNORE), "adding up gradients");
    return &s->request[s->requests++];
}

static void mpi_all_reduce_begin(Comm* comm, float* x, size_t n) {
    for (size_t at = 0; at < n; at += PIECE_ELEMENTS) {
        const int piece = (int)min_size(PIECE_ELEMENTS, n - at);
        mpi_check(MPI_Iallreduce(MPI_IN_PLACE, x + at, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, mpi_request(comm)),
                  "adding up gradients");
    }
}

static void mpi_reduce_scatter_begin(Comm* comm, float* x, size_t n) {
    MpiState* s = comm->state;
    const MpiScatter scatter = {.x = x, .part = n / (size_t)comm->size};
    if (scatter.part > INT_MAX) {
        fatal("a shard of %zu gradients exceeds the %d elements of an MPI message: start more processes", scatter.part,
              INT_MAX);
    }
    mpi_check(MPI_Ireduce_scatter_block(MPI_IN_PLACE, x, (int)scatter.part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                                        mpi_request(comm)),
              "adding up gradients");
    s->scatter[s->scatters++] = scatter;
}

static void mpi_all_gather_begin(Comm* comm, void* x, size_t bytes) {
    const size_t part = bytes / (size_t)comm->size;
    if (part > INT_MAX) {
        fatal("a shard of %zu bytes exceeds the %d bytes of an MPI message: start more processes", part, INT_MAX);
    }
    mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, (int)part, MPI_BYTE, MPI_COMM_WORLD,
                             mpi_request(comm)),
              "exchanging parameters");
}

static void mpi_reduce_begin(Comm* comm, float* x, size_t n, int root) {
    for (size_t at = 0; at < n; at += PIECE_ELEMENTS) {
        const int piece = (int)min_size(PIECE_ELEMENTS, n - at);
        const bool is_root = comm->rank == root;
        mpi_check(MPI_Ireduce(is_root ? MPI_IN_PLACE : x + at, is_root ? x + at : NULL, piece, MPI_FLOAT, MPI_SUM, root,
                              MPI_COMM_WORLD, mpi_request(comm)),
                  "adding up gradients");
    }
}

static void mpi_broadcast_begin(Comm* comm, void* x, size_t bytes, int root) {
    const size_t most = (size_t)PIECE_ELEMENTS * sizeof(float);
    for (size_t at = 0; at < bytes; at += most) {
        mpi_check(MPI_Ibcast((char*)x + at, (int)min_size(most, bytes - at), MPI_BYTE, root, MPI_COMM_WORLD,
                             mpi_request(comm)),
                  "exchanging parameters");
    }
}

static void mpi_sum(Comm* comm, double* x, int n) {
    (void)comm;
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "adding up losses");
}

static void mpi_close(Comm* comm) { free(comm->state); }

const Mpi gpt2_mpi = {
    .engine = {.name = "MPI",
               .open = mpi_open,
               .connect = mpi_connect,
               .all_reduce_begin = mpi_all_reduce_begin,
               .reduce_scatter_begin = mpi_reduce_scatter_begin,
               .all_gather_begin = mpi_all_gather_begin,
               .reduce_begin = mpi_reduce_begin,
               .broadcast_begin = mpi_broadcast_begin,
               .end = mpi_end,
               .sum = mpi_sum,
               .close = mpi_close},
    .init = mpi_init,
    .finalize = mpi_finalize,
};
