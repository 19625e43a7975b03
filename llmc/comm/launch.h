// Who started this process, and as which of how many: read from the variables that launchers set.
//
//   torchrun, --gpus N           RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT [TORCHELASTIC_RUN_ID]
//   mpirun of Open MPI           OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK
//   mpirun of MPICH, Intel MPI   PMI_RANK PMI_SIZE [MPI_LOCALRANKID]
//   srun                         SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID
//
// The first of these that is there counts: whoever runs torchrun under srun means torchrun. A batch script's own
// SLURM_PROCID and SLURM_NTASKS, without the SLURM_STEP_NUM_TASKS that srun adds, are those of one process.
// The ranks meet by TCP (bootstrap.h) at MASTER_ADDR and MASTER_PORT under torchrun, and under the others in a program
// built without MPI. A process that is alone needs neither.
#pragma once
#include "../base.h"

enum { LAUNCH_MOST_RANKS = 4096 }; // each costs the first process a file descriptor

typedef enum { MPI_ABSENT, MPI_BUILT_IN } MpiSupport;
typedef enum { MEET_NOBODY, MEET_BY_TCP, MEET_BY_MPI } Meeting;

typedef struct {
    Meeting meeting;
    int rank, size;
    int local_rank;       // among those on this machine: the GPU to take; -1 if the launcher does not say
    const char* launcher; // its name, for messages: "torchrun", "mpirun", "MPICH's mpirun", "srun", or "no launcher"
    char address[256];    // where the first rank listens; empty unless they meet by TCP
    int port;
    char run_id[128];     // what tells this run from another, if the launcher gives it a name
} Launch;

// False for a set of variables that is incomplete or makes no sense; the message names the variable. A usage error.
static inline bool launch_detect(Launch* launch, MpiSupport mpi, Error* err);
