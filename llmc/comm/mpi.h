// Collectives over MPI (any implementation of MPI 3), in host memory, and the rendezvous under mpirun or srun. This
// file is built only with MPI (HAS_MPI).
//
// The operations are MPI's non-blocking collectives. An MPI library makes progress on them only while it is called.
// Each new range of gradients is such a call: the all-reduces of the layers above progress while backward works on the
// layers below.
#pragma once
#include "comm.h"
#include "launch.h"

extern const CommEngine MPI_ENGINE;

// Starts MPI. Sets rank, local rank and size of the launch, and the endpoint of rank 0, which listens from now on: at
// the loopback if all ranks are on one machine, else at the name of rank 0's machine. False if MPI does not start, if
// MPI and the launcher disagree about the number of processes, or if rank 0 has no port.
bool mpi_init(Launch* launch, Error* err);

// Ends MPI if it was started. The last call of a program.
void mpi_finalize(void);
