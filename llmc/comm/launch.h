// Finds out how this process was started: alone, or as which rank of how many. Starts the processes of --gpus N.
//
// A launcher tells each process its rank by environment variables:
//
//   torchrun, --gpus N           RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT [TORCHELASTIC_RUN_ID]
//   mpirun of Open MPI           OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE [OMPI_COMM_WORLD_LOCAL_RANK]
//   mpirun of MPICH, Intel MPI   PMI_RANK PMI_SIZE [MPI_LOCALRANKID]
//   srun                         SLURM_PROCID SLURM_STEP_NUM_TASKS [SLURM_LOCALID]
//
// The first line whose variables are set counts: torchrun under srun is torchrun. A batch script under sbatch has
// SLURM_PROCID and SLURM_NTASKS too, but not SLURM_STEP_NUM_TASKS, which srun alone sets: it is a single process.
//
// The ranks connect over TCP (connect.h) to rank 0 at MASTER_ADDR and MASTER_PORT under torchrun, and under the other
// launchers in a program built without MPI. With MPI they learn rank 0's address by MPI (mpi.h). A single process needs
// neither.
#pragma once
#include "../base/base.h"

typedef enum { MPI_ABSENT, MPI_BUILT_IN } MpiSupport;

typedef enum { RENDEZVOUS_NONE, RENDEZVOUS_TCP, RENDEZVOUS_MPI } RendezvousMethod;

typedef struct {
    RendezvousMethod rendezvous; // how this rank learns where rank 0 listens
    int rank, size;
    int local_rank;       // among the ranks on this machine: the GPU to use; -1 if the launcher does not tell
    const char* launcher; // for messages: "torchrun", "mpirun", "MPICH's mpirun", "srun", or "no launcher"
    char address[256];    // where rank 0 listens; empty unless rendezvous is RENDEZVOUS_TCP
    int port;
    char run_id[128];     // the launcher's name for this run; may be empty
} Launch;

BEGIN_C

// Reads the launcher's variables. Without any, the launch is a single process. False if a variable is missing or its
// value makes no sense; the message names it. That is a usage error.
bool launch_detect(Launch* launch, MpiSupport mpi, Error* err);

// Starts this program `ranks` times on this machine with the arguments `argv` and torchrun's variables, waits until all
// ranks have ended, and returns the exit code: 0, or that of the first rank that failed (128 + the signal that ended
// it). The ranks inherit standard output and error; their standard input is empty. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
// SIGTSTP are passed on to them.
//
// When a rank fails, the others get SIGTERM after `grace_seconds` (at once if rank 0 failed), and SIGKILL after as long
// again. If this process is killed, the kernel kills the ranks. Call it before any thread is started. A rank finds
// torchrun's variables in launch_detect, so it starts no further ranks.
int launch_local(int ranks, char** argv, double grace_seconds);

// Returns a free port of the loopback and reserves it until this process ends: a socket is bound to it and never
// listens. Since both set SO_REUSEADDR, rank 0 can listen there nevertheless. The system gives the port to no process
// that asks for any free port. Ends the program if there is none.
int reserve_local_port(void);

END_C
