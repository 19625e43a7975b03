// Finds out how this process was started: alone, or as which rank of how many. Starts the processes of --gpus N.
//
// A launcher tells each process its rank by environment variables:
//
//   --gpus N                     RANK WORLD_SIZE LOCAL_RANK GPT2_SOCKETS
//   torchrun                     RANK WORLD_SIZE LOCAL_RANK [MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID]
//   mpirun of Open MPI           OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE [OMPI_COMM_WORLD_LOCAL_RANK]
//   mpirun of MPICH, Intel MPI   PMI_RANK PMI_SIZE [MPI_LOCALRANKID]
//   srun                         SLURM_PROCID SLURM_STEP_NUM_TASKS [SLURM_LOCALID]
//
// The first line whose variables are set counts: torchrun under srun is torchrun. A batch script under sbatch has
// SLURM_PROCID and SLURM_NTASKS too, but not SLURM_STEP_NUM_TASKS, which srun alone sets: it is a single process.
//
// The ranks of --gpus inherit connected sockets. Under mpirun and srun they learn by MPI where rank 0 listens. Under
// torchrun, and on GPUs without libgpt2_mpi.so, they learn it from a file in a folder that all see (rendezvous.h). A
// single process needs none of these.
#pragma once
#include "frame.h"

typedef enum { RENDEZVOUS_NONE, RENDEZVOUS_SOCKETS, RENDEZVOUS_MPI, RENDEZVOUS_FILE } RendezvousMethod;

typedef struct {
    RendezvousMethod rendezvous;
    int rank, size;
    int local_rank;       // among the ranks on this machine: the GPU to use; -1 if the launcher does not tell
    const char* launcher; // for messages: "--gpus", "torchrun", "mpirun", "MPICH's mpirun", "srun", or "no launcher"
    const char* sockets;  // RENDEZVOUS_SOCKETS: numbers, separated by commas: on rank 0 the sockets to all others in
                          // order, on another rank its socket to rank 0
    Endpoint endpoint;    // RENDEZVOUS_MPI: rank 0's, after mpi_init
    int listener;         // RENDEZVOUS_MPI: on rank 0, the socket that listens there
    const char* folder;   // RENDEZVOUS_FILE: of the file. launch_detect leaves it NULL
    uint64_t run;         // RENDEZVOUS_FILE: a hash of the launcher's variables, which tells its runs apart
} Launch;

BEGIN_C

// Reads the launcher's variables. Without any, the launch is a single process. False if a variable is missing or its
// value makes no sense; the message names it. That is a usage error.
bool launch_detect(Launch* launch, Error* err);

// Returns true in a rank that launch_local() has started.
bool launch_is_local(void);

// Starts this program `ranks` times on this machine with the arguments `argv`, waits until all ranks have ended, and
// returns the exit code: 0, or that of the first rank that failed (128 + the signal that ended it). The ranks inherit a
// socket between rank 0 and each other rank, standard output and error; their standard input is empty. SIGINT, SIGTERM,
// SIGHUP, SIGUSR1, SIGUSR2 and SIGTSTP are passed on to them.
//
// When a rank fails, the others get SIGTERM after `grace_seconds` (at once if rank 0 failed), and SIGKILL after as long
// again. If this process is killed, the kernel kills the ranks. Call it before any thread is started. A rank finds the
// variables in launch_detect, so it starts no further ranks.
int launch_local(int ranks, char** argv, double grace_seconds);

END_C
