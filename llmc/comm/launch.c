#include "launch.h"
#include "secret.h"
#include "socket.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MAX_RANKS = 4096 }; // chosen; rank 0 needs a file descriptor for each

typedef struct {
    const char *name, *rank, *size, *local_rank, *run_id;
    const char* mark; // the variable by which this launcher is recognized; NULL: that of the rank or of the size
} LauncherVariables;

static const LauncherVariables LAUNCHERS[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .run_id = "TORCHELASTIC_RUN_ID"},
    {.name = "mpirun",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .run_id = "PMIX_NAMESPACE"},
    {.name = "MPICH's mpirun", .rank = "PMI_RANK", .size = "PMI_SIZE", .local_rank = "MPI_LOCALRANKID"},
    {.name = "srun",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .run_id = "SLURM_JOB_ID",
     .mark = "SLURM_STEP_NUM_TASKS"},
};

enum { NUM_LAUNCHERS = sizeof LAUNCHERS / sizeof *LAUNCHERS };

// Reads an environment variable that must be a whole number from `min` to `max`.
static bool launch_number(const char* variable, int min, int max, int* value, Error* err) {
    const char* text = getenv(variable);
    char* end = NULL;
    if (!text) { return fail(err, "%s is not set", variable); }
    errno = 0;
    const long n = strtol(text, &end, 10);
    const bool is_number = *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
    if (!is_number || n < min || n > max) {
        return fail(err, "%s=%.40s is not a number from %d to %d", variable, text, min, max);
    }
    *value = (int)n;
    return true;
}

// Returns the launcher whose variables are set, or NULL.
static const LauncherVariables* launch_find(void) {
    for (int i = 0; i < NUM_LAUNCHERS; i++) {
        const LauncherVariables* v = &LAUNCHERS[i];
        if (v->mark ? getenv(v->mark) != NULL : getenv(v->rank) || getenv(v->size)) { return v; }
    }
    return NULL;
}

// Reads MASTER_ADDR and MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE is True, torchrun's agent listens at that port
// itself (torch/distributed/rendezvous.py), and rank 0 takes the next one (65534 after 65535).
static bool launch_master(Launch* launch, Error* err) {
    const char *address = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!address || !*address) { return fail(err, "MASTER_ADDR, the host of rank 0, is not set"); }
    if (strlen(address) >= sizeof launch->address) { return fail(err, "MASTER_ADDR=%.40s... is too long", address); }
    snprintf(launch->address, sizeof launch->address, "%s", address);
    if (!launch_number("MASTER_PORT", 1, 65535, &launch->port, err)) { return false; }
    if (agent && !strcmp(agent, "True")) { launch->port += launch->port < 65535 ? 1 : -1; }
    return true;
}

// Sets how and where the ranks of a launch connect, and the run's name.
static bool launch_rendezvous(Launch* launch, const LauncherVariables* v, MpiSupport mpi, Error* err) {
    const char* run_id = v->run_id ? getenv(v->run_id) : NULL;
    const bool torchrun = v == &LAUNCHERS[0];
    Error why;
    launch->rendezvous = torchrun || mpi == MPI_ABSENT ? RENDEZVOUS_TCP : RENDEZVOUS_MPI;
    if (torchrun && launch->local_rank < 0) {
        return fail(err, "LOCAL_RANK is not set, though RANK and WORLD_SIZE are: set it to this rank's number on its "
                         "machine, which is the GPU to use");
    }
    snprintf(launch->run_id, sizeof launch->run_id, "%s", run_id ? run_id : "");
    if (launch->rendezvous == RENDEZVOUS_MPI || launch_master(launch, &why)) { return true; }
    if (torchrun) { return fail(err, "%s, though RANK and WORLD_SIZE are: start all ranks with torchrun", why.text); }
    return fail(err,
                "%s started %d processes, but this program was built without MPI, and %s: build with MPI, or set "
                "MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
                v->name, launch->size, why.text);
}

bool launch_detect(Launch* launch, MpiSupport mpi, Error* err) {
    const LauncherVariables* v = launch_find();
    memset(launch, 0, sizeof *launch);
    launch->size = 1;
    launch->launcher = v ? v->name : "no launcher";
    if (!v) { return true; }
    Error why;
    int local_rank = -1;
    if (!launch_number(v->size, 1, MAX_RANKS, &launch->size, &why) ||
        !launch_number(v->rank, 0, MAX_RANKS, &launch->rank, &why) ||
        (getenv(v->local_rank) && !launch_number(v->local_rank, 0, MAX_RANKS, &local_rank, &why))) {
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
    return launch->size == 1 || launch_rendezvous(launch, v, mpi, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// --gpus N: several ranks on this machine

typedef struct {
    int ranks, alive;
    pid_t* pids;   // 0: has ended and was waited for
    int code;      // exit code of the first rank that failed, or 0
    double failed; // when it failed
    int kills;     // 1: the others have got SIGTERM, 2: SIGKILL
    double grace;  // seconds before each of the two
} LocalRanks;

int reserve_local_port(void) {
    struct sockaddr_in a;
    socklen_t length = sizeof a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = tcp_socket(AF_INET);
    if (fd < 0 || !tcp_bind(fd, (struct sockaddr*)&a, sizeof a) ||
        getsockname(fd, (struct sockaddr*)&a, &length) != 0) {
        fatal("no free port on the loopback for the ranks to connect at: %s", strerror(errno));
    }
    return ntohs(a.sin_port);
}

static void local_set(const char* variable, const char* fmt, long long value) {
    char text[32];
    snprintf(text, sizeof text, fmt, value);
    if (setenv(variable, text, 1) != 0) { fatal("cannot set %s: %s", variable, strerror(errno)); }
}

// Sets the variables that all ranks share.
static void local_environment(int ranks) {
    long long id = 0;
    char secret[SECRET_TEXT_BYTES];
    cpu_set_t processors;
    random_bytes(&id, sizeof id);
    secret_draw(secret);
    local_set("WORLD_SIZE", "%lld", ranks);
    local_set("LOCAL_WORLD_SIZE", "%lld", ranks);
    local_set("MASTER_PORT", "%lld", reserve_local_port());
    local_set("TORCHELASTIC_RUN_ID", "%016llx", id);
    if (setenv("MASTER_ADDR", "127.0.0.1", 1) != 0 || unsetenv("TORCHELASTIC_USE_AGENT_STORE") != 0) {
        fatal("cannot set MASTER_ADDR: %s", strerror(errno));
    }
    if (!getenv("OMP_NUM_THREADS") && sched_getaffinity(0, sizeof processors, &processors) == 0) {
        local_set("OMP_NUM_THREADS", "%lld", max_int(1, CPU_COUNT(&processors) / ranks)); // they share the processors
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
    execv("/proc/self/exe", argv);
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

// Starts the ranks in a process group of their own: a Ctrl-C then reaches them once, through this process, and not from
// the terminal too. A second one would end them without a checkpoint.
static void local_start(LocalRanks* l, char** argv, const sigset_t* signals) {
    const pid_t launcher = getpid();
    fflush(NULL);
    for (int i = 0; i < l->ranks; i++) {
        local_set("RANK", "%lld", i);
        local_set("LOCAL_RANK", "%lld", i);
        const pid_t pid = fork();
        if (pid < 0) {
            const int error = errno;
            local_signal(l, SIGKILL);
            fatal("cannot start rank %d of %d: %s", i, l->ranks, strerror(error));
        }
        // Parent and child both set the group, since either may run first; the later call may fail.
        setpgid(pid, i ? l->pids[0] : pid);
        if (pid == 0) { local_exec(argv, launcher, signals); }
        l->pids[i] = pid;
        l->alive++;
    }
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
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCHLD};
    LocalRanks l = {
        .ranks = ranks, .pids = alloc_or_die((size_t)ranks, sizeof(pid_t), "ranks"), .grace = grace_seconds};
    sigset_t signals, before;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) { sigaddset(&signals, passed_on[i]); }
    if (sigprocmask(SIG_BLOCK, &signals, &before) != 0) { fatal("cannot block signals: %s", strerror(errno)); }
    local_environment(ranks);
    local_start(&l, argv, &before);
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
