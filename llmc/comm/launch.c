#include "launch.h"
#include "../base/file.h"
#include "socket.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MAX_RANKS = 4096 }; // chosen; rank 0 needs a file descriptor for each

typedef struct {
    const char *name, *rank, *size, *local_rank, *run_id;
    const char* mark; // the variable by which this launcher is recognized; NULL: that of the rank or of the size
    RendezvousMethod rendezvous;
} LauncherVariables;

static const LauncherVariables LAUNCHERS[] = {
    {.name = "--gpus",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .mark = "GPT2_SOCKETS",
     .rendezvous = RENDEZVOUS_SOCKETS},
    {.name = "torchrun",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .run_id = "TORCHELASTIC_RUN_ID",
     .rendezvous = RENDEZVOUS_FILE},
    {.name = "mpirun",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .run_id = "PMIX_NAMESPACE",
     .rendezvous = RENDEZVOUS_MPI},
    {.name = "MPICH's mpirun",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .rendezvous = RENDEZVOUS_MPI},
    {.name = "srun",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .run_id = "SLURM_JOB_ID",
     .mark = "SLURM_STEP_NUM_TASKS",
     .rendezvous = RENDEZVOUS_MPI},
};

enum { NUM_LAUNCHERS = sizeof LAUNCHERS / sizeof *LAUNCHERS };

// Reads an environment variable that must be a whole number from `min` to MAX_RANKS.
static bool launch_number(const char* variable, int min, int* value, Error* err) {
    const char* text = getenv(variable);
    char* end = NULL;
    if (!text) { return fail(err, "%s is not set", variable); }
    errno = 0;
    const long n = strtol(text, &end, 10);
    const bool is_number = *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
    if (!is_number || n < min || n > MAX_RANKS) {
        return fail(err, "%s=%.40s is not a number from %d to %d", variable, text, min, MAX_RANKS);
    }
    *value = (int)n;
    return true;
}

// Returns the launcher whose variables are set, or NULL. The first one counts, but one of several processes more than
// one of a single process: that may be left over from another command.
static const LauncherVariables* launch_find(void) {
    const LauncherVariables* found = NULL;
    for (int i = 0; i < NUM_LAUNCHERS; i++) {
        const LauncherVariables* v = &LAUNCHERS[i];
        const char* size = getenv(v->size);
        if (v->mark ? !getenv(v->mark) : !getenv(v->rank) && !size) { continue; }
        if (!size || strcmp(size, "1")) { return v; }
        if (!found) { found = v; }
    }
    return found;
}

bool launch_is_local(void) { return getenv("GPT2_SOCKETS") != NULL; }

// Hashes the variables that all ranks of a run share and that differ between runs.
static uint64_t launch_hash(const LauncherVariables* v) {
    const char* names[] = {"MASTER_ADDR", "MASTER_PORT", v->run_id};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char* value = names[i] ? getenv(names[i]) : NULL;
        if (value) { hash = hash64(value, strlen(value) + 1, hash); }
    }
    return hash;
}

bool launch_detect(Launch* launch, Error* err) {
    const LauncherVariables* v = launch_find();
    memset(launch, 0, sizeof *launch);
    launch->size = 1;
    launch->launcher = v ? v->name : "no launcher";
    if (!v) { return true; }
    Error why;
    int local_rank = -1;
    if (!launch_number(v->size, 1, &launch->size, &why) ||
        !launch_number(v->rank, 0, &launch->rank, &why) ||
        (getenv(v->local_rank) && !launch_number(v->local_rank, 0, &local_rank, &why))) {
        return fail(err, "%s: %s sets %s, %s and %s together; unset all of them to start a single process", why.text,
                    v->name, v->rank, v->size, v->local_rank);
    }
    if (launch->rank >= launch->size) {
        return fail(err, "%s=%d is not below %s=%d: ranks are counted from 0", v->rank, launch->rank, v->size,
                    launch->size);
    }
    if (local_rank >= launch->size) {
        return fail(err, "%s=%d is not below %s=%d", v->local_rank, local_rank, v->size, launch->size);
    }
    launch->local_rank = launch->size == 1 && local_rank < 0 ? 0 : local_rank;
    if (launch->size == 1) { return true; }
    launch->rendezvous = v->rendezvous;
    launch->sockets = getenv("GPT2_SOCKETS");
    launch->run = launch_hash(v);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// --gpus N: several ranks on this machine

typedef struct {
    int ranks, alive;
    pid_t* pids;   // 0: has ended and was waited for
    pid_t group;   // the process group of all
    int code;      // exit code of the first rank that failed, or 0
    double failed; // when it failed
    int kills;     // 1: the others have got SIGTERM, 2: SIGKILL
    double grace;  // seconds before each of the two
} LocalRanks;

static void local_set(const char* variable, int value) {
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    if (setenv(variable, text, 1) != 0) { fatal("cannot set %s: %s", variable, strerror(errno)); }
}

// Sets the variables that all ranks share.
static void local_environment(int ranks) {
    cpu_set_t processors;
    local_set("WORLD_SIZE", ranks);
    if (!getenv("OMP_NUM_THREADS") && sched_getaffinity(0, sizeof processors, &processors) == 0) {
        local_set("OMP_NUM_THREADS", max_int(1, CPU_COUNT(&processors) / ranks)); // they share the processors
    }
}

// Executes this program as a rank, in a child process.
static void ATTR_NORETURN local_exec(char** argv, pid_t launcher, const sigset_t* signals) {
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || empty < 0 || dup2(empty, STDIN_FILENO) < 0 ||
        sigprocmask(SIG_SETMASK, signals, NULL) != 0) {
        notice("error: cannot start a rank: %s", strerror(errno));
        _exit(EXIT_RUNTIME);
    }
    if (getppid() != launcher) { _exit(EXIT_RUNTIME); } // the launcher was killed before prctl took effect
    signal(SIGTTOU, SIG_IGN); // the ranks are no job of the terminal: with `stty tostop` their output would stop them
    execv(program_path(), argv);
    notice("error: %s: cannot start it as a rank: %s", argv[0], strerror(errno));
    _exit(EXIT_RUNTIME);
}

static void local_signal(const LocalRanks* l, int signal_number) {
    for (int i = 0; i < l->ranks; i++) { // a rank that was not waited for keeps its process id, even if it has ended
        if (l->pids[i] && kill(l->pids[i], signal_number) != 0) {
            notice("warning: rank %d cannot be sent signal %d: %s", i, signal_number, strerror(errno));
        }
    }
}

// Lets these sockets, all others being closed on exec, and their numbers pass to a rank.
static void local_pass_sockets(const int* sockets, int count) {
    char *list = alloc_or_die((size_t)count, 12, "sockets of ranks"), *end = list;
    for (int i = 0; i < count; i++) {
        if (fcntl(sockets[i], F_SETFD, 0) != 0) { fatal("cannot pass a socket to a rank: %s", strerror(errno)); }
        end += sprintf(end, "%s%d", i ? "," : "", sockets[i]);
    }
    if (setenv("GPT2_SOCKETS", list, 1) != 0) { fatal("cannot set GPT2_SOCKETS: %s", strerror(errno)); }
    free(list);
}

// Starts a rank with these sockets.
static void local_start(LocalRanks* l, int rank, const int* sockets, int count, char** argv, const sigset_t* signals) {
    const pid_t launcher = getpid(), pid = fork();
    if (pid < 0) {
        const int error = errno;
        local_signal(l, SIGKILL);
        fatal("cannot start rank %d of %d: %s", rank, l->ranks, strerror(error));
    }
    // Parent and child both set the group, since either may run first; the later call may fail.
    setpgid(pid, l->group ? l->group : pid);
    if (pid == 0) {
        local_set("RANK", rank);
        local_set("LOCAL_RANK", rank);
        local_pass_sockets(sockets, count);
        local_exec(argv, launcher, signals);
    }
    if (!l->group) { l->group = pid; }
    l->pids[rank] = pid;
    l->alive++;
}

// Starts the ranks in a process group of their own: a Ctrl-C then reaches them once, through this process, and not from
// the terminal too. A second one would end them without a checkpoint. Rank 0 is the last to start, and gets the other
// ends of the sockets of all others.
static void local_start_all(LocalRanks* l, char** argv, const sigset_t* signals) {
    const int others = l->ranks - 1;
    int* ends_of_0 = alloc_or_die((size_t)l->ranks, sizeof *ends_of_0, "sockets of ranks");
    fflush(NULL);
    allow_sockets(l->ranks);
    for (int rank = others, ends[2]; rank > 0; rank--) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
            const int error = errno;
            local_signal(l, SIGKILL);
            fatal("cannot make a socket for rank %d of %d: %s", rank, l->ranks, strerror(error));
        }
        local_start(l, rank, &ends[1], 1, argv, signals);
        close(ends[1]);
        ends_of_0[rank - 1] = ends[0];
    }
    local_start(l, 0, ends_of_0, others, argv, signals);
    for (int i = 0; i < others; i++) { close(ends_of_0[i]); }
    free(ends_of_0);
}

// Collects the exit codes of ranks that have ended.
static void local_reap(LocalRanks* l) {
    for (int i = 0; i < l->ranks; i++) {
        int status;
        if (!l->pids[i] || waitpid(l->pids[i], &status, WNOHANG) != l->pids[i]) { continue; }
        l->pids[i] = 0;
        l->alive--;
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code == 0 || l->code) { continue; }
        l->code = code;
        // Rank 0 reports errors that all ranks share; the others need no time for messages of their own.
        l->failed = seconds_now() - (i == 0 ? l->grace : 0);
        if (code > 128) { notice("error: rank %d was ended by signal %d (%s)", i, code - 128, strsignal(code - 128)); }
        else { notice("error: rank %d ended with exit code %d", i, code); }
    }
}

// Passes a signal on. SIGTSTP stops the ranks and then this process; when this process is continued, so are the ranks.
static void local_pass_on(LocalRanks* l, int signal_number) {
    if (signal_number == SIGCHLD) { return; }
    local_signal(l, signal_number == SIGTSTP ? SIGSTOP : signal_number);
    if (signal_number == SIGTSTP) {
        raise(SIGSTOP);
        local_signal(l, SIGCONT);
    }
}

int launch_local(int ranks, char** argv, double grace_seconds) {
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
    LocalRanks l = {
        .ranks = ranks, .pids = alloc_or_die((size_t)ranks, sizeof(pid_t), "ranks"), .grace = grace_seconds};
    sigset_t signals, before;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) { sigaddset(&signals, passed_on[i]); }
    if (sigprocmask(SIG_BLOCK, &signals, &before) != 0) { fatal("cannot block signals: %s", strerror(errno)); }
    local_environment(ranks);
    signal(SIGCHLD, SIG_DFL); // ignored, as some parents leave it, it would take away the ranks' exit codes
    local_start_all(&l, argv, &before);
    signal(SIGPIPE, SIG_IGN); // a message that nobody reads must not end the ranks, which would end with this process
    while (l.alive > 0) {
        const struct timespec turn = {0, 100000000};
        const int signal_number = sigtimedwait(&signals, NULL, &turn);
        if (signal_number > 0) { local_pass_on(&l, signal_number); }
        local_reap(&l);
        if (l.code && l.kills < 2 && seconds_now() > l.failed + (l.kills + 1) * grace_seconds) {
            local_signal(&l, l.kills++ == 0 ? SIGTERM : SIGKILL);
        }
    }
    free(l.pids);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return l.code;
}
