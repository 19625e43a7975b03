// Who started this process, and as which of how many: read from the variables that launchers set.
//
//   torchrun, --gpus N           RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT [TORCHELASTIC_RUN_ID]
//   mpirun of Open MPI           OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE [OMPI_COMM_WORLD_LOCAL_RANK]
//   mpirun of MPICH, Intel MPI   PMI_RANK PMI_SIZE [MPI_LOCALRANKID]
//   srun                         SLURM_PROCID SLURM_STEP_NUM_TASKS [SLURM_LOCALID]
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

typedef struct {
    const char *name, *rank, *size, *local_rank, *run_id;
    const char* mark; // the variable that tells that this launcher was there; NULL: its rank's or its size's
} LauncherVariables;

static const LauncherVariables LAUNCHERS[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", NULL},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE", NULL},
    {"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL, NULL},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS"},
};
enum { NUM_LAUNCHERS = sizeof LAUNCHERS / sizeof *LAUNCHERS };

// The whole number from `least` to `most` in an environment variable.
static inline bool launch_number(const char* variable, int least, int most, int* value, Error* err) {
    const char* text = getenv(variable);
    char* end = NULL;
    if (!text) { return fail(err, "%s is not set", variable); }
    errno = 0;
    const long n = strtol(text, &end, 10);
    const bool is_number = *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
    if (!is_number || n < least || n > most) {
        return fail(err, "%s=%.40s is not a number from %d to %d", variable, text, least, most);
    }
    *value = (int)n;
    return true;
}

static inline const LauncherVariables* launch_find(void) {
    for (int i = 0; i < NUM_LAUNCHERS; i++) {
        const LauncherVariables* v = &LAUNCHERS[i];
        if (v->mark ? getenv(v->mark) != NULL : getenv(v->rank) || getenv(v->size)) { return v; }
    }
    return NULL;
}

// MASTER_ADDR and MASTER_PORT. torchrun's agent may keep the port for a server of its own, which it tells by
// TORCHELASTIC_USE_AGENT_STORE (torch/distributed/rendezvous.py): then ours is the next one.
static inline bool launch_master(Launch* launch, Error* err) {
    const char *address = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!address || !*address) { return fail(err, "MASTER_ADDR, the host of rank 0, is not set"); }
    if (strlen(address) >= sizeof launch->address) { return fail(err, "MASTER_ADDR=%.40s... is too long", address); }
    snprintf(launch->address, sizeof launch->address, "%s", address);
    if (!launch_number("MASTER_PORT", 1, 65535, &launch->port, err)) { return false; }
    if (agent && !strcmp(agent, "True")) { launch->port += launch->port < 65535 ? 1 : -1; }
    return true;
}

// How the ranks of a launch meet, where that is, and the run's name.
static inline bool launch_meeting(Launch* launch, const LauncherVariables* v, MpiSupport mpi, Error* err) {
    const char* run_id = v->run_id ? getenv(v->run_id) : NULL;
    const bool torchrun = v == &LAUNCHERS[0];
    Error why;
    launch->meeting = torchrun || mpi == MPI_ABSENT ? MEET_BY_TCP : MEET_BY_MPI;
    if (torchrun && launch->local_rank < 0) {
        return fail(
            err, "LOCAL_RANK is not set, though RANK and WORLD_SIZE are: it is this rank's place on its machine, and "
                 "so its GPU");
    }
    snprintf(launch->run_id, sizeof launch->run_id, "%s", run_id ? run_id : "");
    if (launch->meeting == MEET_BY_MPI || launch_master(launch, &why)) { return true; }
    if (torchrun) { return fail(err, "%s, though RANK and WORLD_SIZE are: start all ranks by torchrun", why.text); }
    return fail(err,
                "%s started %d processes, but this program was built without MPI, and %s: build it with MPI, or set "
                "MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
                v->name, launch->size, why.text);
}

// False for a set of variables that is incomplete or makes no sense; the message names the variable. A usage error.
static inline bool launch_detect(Launch* launch, MpiSupport mpi, Error* err) {
    const LauncherVariables* v = launch_find();
    memset(launch, 0, sizeof *launch);
    launch->size = 1;
    launch->launcher = v ? v->name : "no launcher";
    if (!v) { return true; }
    Error why;
    int local_rank = -1;
    if (!launch_number(v->size, 1, LAUNCH_MOST_RANKS, &launch->size, &why) ||
        !launch_number(v->rank, 0, LAUNCH_MOST_RANKS, &launch->rank, &why) ||
        (getenv(v->local_rank) && !launch_number(v->local_rank, 0, LAUNCH_MOST_RANKS, &local_rank, &why))) {
        return fail(err, "%s: %s, %s and %s go together, as %s sets them; unset them all to start a single process",
                    why.text, v->rank, v->size, v->local_rank, v->name);
    }
    if (launch->rank >= launch->size) {
        return fail(err, "%s=%d is not below %s=%d: ranks are counted from 0", v->rank, launch->rank, v->size,
                    launch->size);
    }
    if (local_rank >= launch->size) {
        return fail(err, "%s=%d is not below %s=%d", v->local_rank, local_rank, v->size, launch->size);
    }
    launch->local_rank = launch->size == 1 && local_rank < 0 ? 0 : local_rank;
    return launch->size == 1 || launch_meeting(launch, v, mpi, err);
}
