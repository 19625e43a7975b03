// Counts the collective operations of an MPI program, by MPI's own profiling interface: loaded before it (LD_PRELOAD),
// it prints them on rank 0 when the program leaves MPI. With SPOIL_SUMS, rank 1 adds 1 to its part of all-reduces.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long sums, scatters, gathers, numbers;

int MPI_Iallreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
    int rank;
    sums++;
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
    return PMPI_Iallgather(in, n, type, out, m, other, comm, request);
}
int MPI_Allreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    numbers++;
    return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Finalize(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("collectives: %ld sums, %ld scatters, %ld gathers, %ld numbers\n", sums, scatters, gathers, numbers);
    }
    return PMPI_Finalize();
}
