// The engine for memory of the host, and the start under mpirun or srun: any MPI 3.
//
// Operations are non-blocking collectives, which an MPI library moves on only while it is called: each new range of
// gradients is such a call, so that the sums of the layers above go on while backward works on those below.
#pragma once
#include "../comm.h"
#include "local.h"
#include <limits.h>
#define OMPI_SKIP_MPICXX 1 // no C++ of MPI's own: it is gone from the standard, and does not compile without warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

// Large ranges go in pieces: their messages overlap, and the library's buffers stay small.
enum { MPI_PIECE = 4 << 20, MPI_MOST_REQUESTS = 4096 };

// A sum of which this process gets part `rank`, which MPI leaves at the beginning of x.
typedef struct {
    float* x;
    size_t part;
} MpiScatter;

typedef struct {
    MPI_Request request[MPI_MOST_REQUESTS];
    int requests;
    MpiScatter scatter[MPI_MOST_REQUESTS];
    int scatters;
} MpiState;

static inline void mpi_check(int error, const char* what) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (error == MPI_SUCCESS) { return; }
    MPI_Error_string(error, text, &length);
    fatal("%s: MPI failed: %.*s. Checkpoints on disk are whole: go on with --resume auto", what, length, text);
}

// Fills in rank and size, and where the first rank can be reached by TCP; the name that its own machine has, unless all
// are on one.
static inline bool mpi_meet(Launch* launch, Error* err) {
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        return fail(err, "MPI did not start: was this process started by the mpirun of the MPI it was built with?");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm here;
    const int started = launch->size;
    int local_size = 0;
    mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &launch->rank), "asking for the rank");
    mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &launch->size), "asking for the number of processes");
    if (launch->size != started) { // the launcher and MPI know nothing of each other: each would train for itself
        return fail(err,
                    "%s started %d processes, but for MPI there are %d: start them with the mpirun of the MPI that this "
                    "program was built with, or with srun --mpi=pmix",
                    launch->launcher, started, launch->size);
    }
    mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "finding neighbours");
    mpi_check(MPI_Comm_rank(here, &launch->local_rank), "asking for the local rank");
    mpi_check(MPI_Comm_size(here, &local_size), "counting neighbours");
    mpi_check(MPI_Comm_free(&here), "finding neighbours");
    if (launch->rank == 0) {
        snprintf(launch->address, sizeof launch->address, "127.0.0.1");
        if (local_size < launch->size && gethostname(launch->address, sizeof launch->address - 1) != 0) {
            return fail(err, "this machine has no name: %s", strerror(errno));
        }
        launch->port = local_port();
    }
    mpi_check(MPI_Bcast(launch->address, sizeof launch->address, MPI_CHAR, 0, MPI_COMM_WORLD), "telling the address");
    mpi_check(MPI_Bcast(&launch->port, 1, MPI_INT, 0, MPI_COMM_WORLD), "telling the port");
    launch->meeting = launch->size > 1 ? MEET_BY_TCP : MEET_NOBODY;
    return true;
}

static inline bool mpi_open(Comm* comm, Error* err) {
    int started = 0;
    MPI_Initialized(&started);
    if (!started) {
        return fail(err, "several CPU processes need MPI to add up their gradients: start them with mpirun -np %d",
                    comm->size);
    }
    comm->state = alloc_or_die(1, sizeof(MpiState), "MPI's requests");
    return true;
}

static inline void mpi_connect(Comm* comm) { (void)comm; } // MPI_Init did

static inline MPI_Request* mpi_request(Comm* comm) {
    MpiState* s = (MpiState*)comm->state;
    int done = 0;
    if (s->requests == MPI_MOST_REQUESTS) { // on all processes at the same call
        mpi_check(MPI_Waitall(s->requests, s->request, MPI_STATUSES_IGNORE), "adding up gradients");
        s->requests = 0;
    }
    mpi_check(MPI_Testall(s->requests, s->request, &done, MPI_STATUSES_IGNORE), "adding up gradients"); // moves all on
    return &s->request[s->requests++];
}

static inline void mpi_sum_begin(Comm* comm, float* x, size_t n) {
    for (size_t at = 0; at < n; at += MPI_PIECE) {
        const int piece = (int)min_size(MPI_PIECE, n - at);
        mpi_check(MPI_Iallreduce(MPI_IN_PLACE, x + at, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, mpi_request(comm)),
                  "adding up gradients");
    }
}

static inline void mpi_scatter_begin(Comm* comm, float* x, size_t n) {
    MpiState* s = (MpiState*)comm->state;
    const MpiScatter scatter = {x, n / (size_t)comm->size};
    if (scatter.part > INT_MAX) {
        fatal("a shard of %zu gradients is more than MPI counts: start more processes", scatter.part);
    }
    mpi_check(MPI_Ireduce_scatter_block(MPI_IN_PLACE, x, (int)scatter.part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                                        mpi_request(comm)),
              "adding up gradients");
    s->scatter[s->scatters++] = scatter;
}

static inline void mpi_gather_begin(Comm* comm, void* x, size_t bytes) {
    const size_t part = bytes / (size_t)comm->size;
    if (part > INT_MAX) { fatal("a shard of %zu bytes is more than MPI counts: start more processes", part); }
    mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, (int)part, MPI_BYTE, MPI_COMM_WORLD,
                             mpi_request(comm)),
              "exchanging parameters");
}

static inline void mpi_end(Comm* comm) {
    MpiState* s = (MpiState*)comm->state;
    mpi_check(MPI_Waitall(s->requests, s->request, MPI_STATUSES_IGNORE), "adding up gradients");
    for (int i = 0; i < s->scatters; i++) {
        const MpiScatter* scatter = &s->scatter[i];
        memmove(scatter->x + (size_t)comm->rank * scatter->part, scatter->x, scatter->part * sizeof(float));
    }
    s->requests = s->scatters = 0;
}

static inline void mpi_sum(Comm* comm, double* x, int n) {
    (void)comm;
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "adding up losses");
}

static inline void mpi_close(Comm* comm) { free(comm->state); }

// At the very end, if MPI was started.
static inline void mpi_leave(void) {
    int started = 0;
    MPI_Initialized(&started);
    if (started) { MPI_Finalize(); }
}

static const CommEngine MPI_ENGINE = {"MPI",          "cpu",   mpi_open, mpi_connect, mpi_sum_begin, mpi_scatter_begin,
                                      mpi_gather_begin, mpi_end, mpi_sum,  mpi_close};
