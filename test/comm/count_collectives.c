// Counts the collective operations of an MPI program, by MPI's own profiling interface: loaded before it (LD_PRELOAD),
// it prints them on rank 0 when the program leaves MPI. With SPOIL_SUMS, rank 1 adds 1 to its part of all-reduces. With
// FLIP_BIT=N, a bit of what rank 1 has received flips, in the first element of all-reduce or all-gather number N. With
// KILL_AT=N, rank KILL_RANK, by default the last, is killed as it begins that one.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static long sums, scatters, gathers, numbers, reduces, broadcasts;
static int* to_flip; // what rank 1 receives next, or NULL

// Returns true if a variable of the environment is the number of the all-reduce or all-gather that begins.
static int is_number_of(const char* variable) {
    const char* number = getenv(variable);
    return number && sums + gathers == atol(number);
}
// Acts on the collective that begins: notes where it puts its result, if a bit of it is to flip, or kills the process.
static void begin(void* out) {
    int rank, ranks;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 1 && is_number_of("FLIP_BIT")) { to_flip = out; }
    const char* killed = getenv("KILL_RANK");
    if (rank == (killed ? atoi(killed) : ranks - 1) && is_number_of("KILL_AT")) { raise(SIGKILL); }
}
int MPI_Waitall(int n, MPI_Request* requests, MPI_Status* statuses) {
    const int result = PMPI_Waitall(n, requests, statuses);
    if (to_flip) { *to_flip ^= 1 << 20; }
    to_flip = NULL;
    return result;
}

int MPI_Iallreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
    int rank;
    sums++;
    begin(out);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && getenv("SPOIL_SUMS")) { ((float*)out)[n - 1] += 1; }
    return PMPI_Iallreduce(in, out, n, type, op, comm, request);
}
int MPI_Ireduce_scatter_block(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
    scatters++;
    return PMPI_Ireduce_scatter_block(in, out, n, type, op, comm, request);
}
int MPI_Iallgather(const void* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype other, MPI_Comm comm,
                   MPI_Request* request) {
    gathers++;
    begin(out);
    return PMPI_Iallgather(in, n, type, out, m, other, comm, request);
}
int MPI_Ireduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request* request) {
    reduces++;
    return PMPI_Ireduce(in, out, n, type, op, root, comm, request);
}
int MPI_Ibcast(void* x, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    broadcasts++;
    return PMPI_Ibcast(x, n, type, root, comm, request);
}
int MPI_Allreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    numbers++;
    return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Finalize(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("collectives: %ld sums, %ld scatters, %ld gathers, %ld numbers, %ld reduces, %ld broadcasts\n", sums,
               scatters, gathers, numbers, reduces, broadcasts);
    }
    return PMPI_Finalize();
}
