// One command that starts several ranks on this machine (--gpus N).
#pragma once
#include "launch.h"
#include "socket.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>

typedef struct {
    int ranks, alive;
    pid_t* pids;   // 0: has ended, and was waited for
    int code;      // that of the first which failed, or 0
    double failed; // when that was
    int kills;     // how many of SIGTERM and SIGKILL the others have got since
    double grace;  // seconds before each of them
} LocalRanks;

// A port of the loopback that nobody else gets: it is bound here and never listened at, which with SO_REUSEADDR on
// both sides leaves room for rank 0's socket, but not for one that asks for any free port. The descriptor stays open.
static inline int local_port(void) {
    struct sockaddr_in a;
    socklen_t length = sizeof a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = tcp_socket(AF_INET);
    if (fd < 0 || !tcp_bind(fd, (struct sockaddr*)&a, sizeof a) ||
        getsockname(fd, (struct sockaddr*)&a, &length) != 0) {
        fatal("no free port for the ranks to meet at: %s", strerror(errno));
    }
    return ntohs(a.sin_port);
}

static inline void local_set(const char* variable, const char* fmt, long long value) {
    char text[32];
    snprintf(text, sizeof text, fmt, value);
    if (setenv(variable, text, 1) != 0) { fatal("cannot set %s: %s", variable, strerror(errno)); }
}

// What is the same for all ranks.
static inline void local_environment(int ranks) {
    long long id = 0;
    cpu_set_t processors;
    if (getrandom(&id, sizeof id, 0) != sizeof id) { fatal("no random number for the run: %s", strerror(errno)); }
    local_set("WORLD_SIZE", "%lld", ranks);
    local_set("LOCAL_WORLD_SIZE", "%lld", ranks);
    local_set("MASTER_PORT", "%lld", local_port());
    local_set("TORCHELASTIC_RUN_ID", "%016llx", id);
    if (setenv("MASTER_ADDR", "127.0.0.1", 1) != 0 || unsetenv("TORCHELASTIC_USE_AGENT_STORE") != 0) {
        fatal("cannot set MASTER_ADDR: %s", strerror(errno));
    }
    if (!getenv("OMP_NUM_THREADS") && sched_getaffinity(0, sizeof processors, &processors) == 0) {
        local_set("OMP_NUM_THREADS", "%lld", max_int(1, CPU_COUNT(&processors) / ranks)); // they share the processors
    }
}

// In the child: becomes a rank.
static inline void ATTR_NORETURN local_become(char** argv, pid_t launcher, const sigset_t* signals) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
        sigprocmask(SIG_SETMASK, signals, NULL) != 0) {
        notice("error: cannot start a rank: %s", strerror(errno));
        _exit(EXIT_RUNTIME);
    }
    if (getppid() != launcher) { _exit(EXIT_RUNTIME); } // killed before the kernel knew that we want to go with it
    execv("/proc/self/exe", argv);
    notice("error: %s: cannot start it once more: %s", argv[0], strerror(errno));
    _exit(EXIT_RUNTIME);
}

static inline void local_signal(const LocalRanks* l, int signal_number) {
    for (int i = 0; i < l->ranks; i++) { // one that has ended is not waited for yet, so its number is nobody else's
        if (l->pids[i] && kill(l->pids[i], signal_number) != 0) {
            notice("warning: rank %d cannot be sent signal %d: %s", i, signal_number, strerror(errno));
        }
    }
}

// The ranks have a process group of their own, so that a Ctrl-C reaches them once, through their launcher, and not
// from the terminal too: a second one would end them without a checkpoint.
static inline void local_start(LocalRanks* l, char** argv, const sigset_t* signals) {
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
        // both sides do it, as either may come first; the one that comes late may fail
        setpgid(pid, i ? l->pids[0] : pid);
        if (pid == 0) { local_become(argv, launcher, signals); }
        l->pids[i] = pid;
        l->alive++;
    }
}

// Waits for those that have ended.
static inline void local_reap(LocalRanks* l) {
    for (int i = 0; i < l->ranks; i++) {
        int status;
        if (!l->pids[i] || waitpid(l->pids[i], &status, WNOHANG) != l->pids[i]) { continue; }
        l->pids[i] = 0;
        l->alive--;
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code == 0 || l->code) { continue; }
        l->code = code;
        l->failed = seconds_now() - (i == 0 ? l->grace : 0); // what is wrong on the first, others need not say
        if (code > 128) { notice("error: rank %d was ended by signal %d (%s)", i, code - 128, strsignal(code - 128)); }
        else { notice("error: rank %d ended with exit code %d", i, code); }
    }
}

// Passes a signal on; what stops this process stops the ranks too, until it goes on.
static inline void local_pass_on(LocalRanks* l, int signal_number) {
    if (signal_number == SIGCHLD) { return; }
    local_signal(l, signal_number == SIGTSTP ? SIGSTOP : signal_number);
    if (signal_number == SIGTSTP) {
        raise(SIGSTOP);
        local_signal(l, SIGCONT);
    }
}

// Starts this program `ranks` times, with the same arguments and torchrun's variables for a run on this machine,
// waits for all to end, and returns the exit code: 0, or that of the first rank which failed (128 + the signal if one
// ended it). Standard output and error are the ranks' own, standard input is empty. SIGINT, SIGTERM and SIGHUP are
// passed on to the ranks. When a rank fails, the others have `grace_seconds` to end by themselves before they get
// SIGTERM (at once if it is the first), and as long again before SIGKILL. Should this process be killed, the kernel
// kills the ranks. To be called before threads are started. A process started so finds itself launched (launch_detect),
// and so does not start others in its turn.
static inline int launch_local(int ranks, char** argv, double grace_seconds) {
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
    LocalRanks l = {ranks, 0, (pid_t*)alloc_or_die((size_t)ranks, sizeof(pid_t), "ranks"), 0, 0, 0, grace_seconds};
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
