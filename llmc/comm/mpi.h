// Collectives over MPI (any implementation of MPI 3), in host memory, and the rendezvous under mpirun or srun.
//
// mpi.c is a shared library of its own, libgpt2_mpi.so, because MPI's libraries have no common binary interface: mpicc
// builds it for one of them. The program opens it when a launch needs it (library.h). program.list has the functions of
// the program that it calls.
//
// The operations are MPI's non-blocking collectives. An MPI library makes progress on them only while it is called.
// Each new range of gradients is such a call: the all-reduces of the layers above progress while backward works on the
// layers below.
#pragma once
#include "comm.h"
#include "launch.h"

typedef struct {
    CommEngine engine;

    // Starts MPI. Sets rank, local rank and size of the launch, and the endpoint of rank 0, which listens from now on:
    // at the loopback if all ranks are on one machine, else at the name of rank 0's machine. False if MPI does not
    // start, if MPI and the launcher disagree about the number of processes, or if rank 0 has no port.
    bool (*init)(Launch* launch, Error* err);

    // Ends MPI if it was started. The last call of a program.
    void (*finalize)(void);
} Mpi;

// libgpt2_mpi.so exports this.
extern const Mpi gpt2_mpi;
