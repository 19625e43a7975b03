// Runs a program and lets one of its system calls fail, or kills it there, by ptrace.
//
//   fault count FILE COMMAND...    writes the number of calls to FILE
//   fault kill N COMMAND...        kills the program before its N-th call that writes (see WRITES)
//   fault ERROR N COMMAND...       lets the N-th call on files return ERROR: EIO, EMFILE, ENOSPC ...
//
// Counts from the program's first fcntl(0, F_GETFD) on, main()'s first call: those before are the loader's. Ends with
// the program's exit code; 128 + N if signal N ended it; 125 if the call never came; 126 for errors of its own.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <sys/user.h>

// Calls on files. Those that change something are marked; openat() does if it opens for writing.
static const struct {
    long number;
    bool writes;
} CALLS[] = {
    {SYS_read, false}, {SYS_pread64, false}, {SYS_open, false}, {SYS_openat, false}, {SYS_fstat, false},
    {SYS_newfstatat, false}, {SYS_stat, false}, {SYS_lstat, false}, {SYS_access, false}, {SYS_faccessat, false},
    {SYS_faccessat2, false}, {SYS_lseek, false}, {SYS_getdents64, false}, {SYS_statfs, false}, {SYS_fcntl, false},
    {SYS_flock, false}, {SYS_close, false}, {SYS_write, true}, {SYS_pwrite64, true}, {SYS_writev, true},
    {SYS_rename, true}, {SYS_renameat, true}, {SYS_renameat2, true}, {SYS_unlink, true}, {SYS_unlinkat, true},
    {SYS_rmdir, true}, {SYS_mkdir, true}, {SYS_mkdirat, true}, {SYS_ftruncate, true}, {SYS_fsync, true},
    {SYS_fdatasync, true}, {SYS_fadvise64, false},
};

static const struct {
    const char* name;
    int number;
} ERRORS[] = {{"EIO", EIO}, {"EMFILE", EMFILE}, {"ENOSPC", ENOSPC}, {"EACCES", EACCES}, {"EROFS", EROFS},
              {"ENOMEM", ENOMEM}, {"EINTR", EINTR}, {"EDQUOT", EDQUOT}};

static void die(const char* what) {
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(126);
}

// Returns true if a descriptor of a thread is a file or folder, not a socket or a device.
static bool is_file(pid_t thread, int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)thread, fd);
    const ssize_t n = readlink(link, path, sizeof path);
    return n > 0 && path[0] == '/' && (n < 5 || memcmp(path, "/dev/", 5));
}

static bool is_counted(pid_t thread, const struct user_regs_struct* r, bool writes_only) {
    const long call = (long)r->orig_rax;
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        if (CALLS[i].number != call) { continue; }
        const bool opens_to_write = call == SYS_openat && (r->rdx & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC));
        if (call == SYS_write && !is_file(thread, (int)r->rdi)) { return false; }
        return !writes_only || CALLS[i].writes || opens_to_write;
    }
    return false;
}

typedef struct {
    bool kills, counts, has_begun;
    int error;
    long at, calls;
    pid_t failing; // the thread whose call fails: its result is set when the call returns
} Attack;

// Looks at a thread that stopped at the beginning or end of a system call.
static void at_call(Attack* a, pid_t root, pid_t thread, bool is_entry) {
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &r) != 0) { return; } // it was killed
    if (!is_entry) {
        if (a->failing != thread) { return; }
        r.rax = (unsigned long long)-a->error;
        ptrace(PTRACE_SETREGS, thread, NULL, &r);
        a->failing = 0;
        return;
    }
    a->has_begun = a->has_begun || (r.orig_rax == SYS_fcntl && r.rdi == 0 && r.rsi == F_GETFD);
    if (!a->has_begun || !is_counted(thread, &r, a->kills) || ++a->calls != a->at) { return; }
    if (a->kills) { kill(root, SIGKILL); }
    else {
        r.orig_rax = (unsigned long long)-1; // no such call: nothing happens
        ptrace(PTRACE_SETREGS, thread, NULL, &r);
        a->failing = thread;
    }
}

// Follows the program to its end; returns its exit code.
static int follow(Attack* a, pid_t root) {
    for (;;) {
        int status;
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) { die("waitpid"); }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == root) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
            continue;
        }
        int signal_number = WSTOPSIG(status);
        struct __ptrace_syscall_info info;
        if (signal_number == (SIGTRAP | 0x80)) {
            if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0) {
                at_call(a, root, thread, info.op == PTRACE_SYSCALL_INFO_ENTRY);
            }
            signal_number = 0;
        } else if (signal_number == SIGTRAP || signal_number == SIGSTOP) {
            signal_number = 0; // of ptrace itself: a new thread, or exec()
        }
        ptrace(PTRACE_SYSCALL, thread, NULL, (void*)(long)signal_number);
    }
}

int main(int argc, char** argv) {
    if (argc < 4) { errno = EINVAL; die("usage: fault count FILE|kill N|ERROR N COMMAND..."); }
    Attack a = {.kills = !strcmp(argv[1], "kill"), .counts = !strcmp(argv[1], "count"), .at = atol(argv[2])};
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (!strcmp(argv[1], ERRORS[i].name)) { a.error = ERRORS[i].number; }
    }
    if (!a.kills && !a.counts && !a.error) { errno = EINVAL; die(argv[1]); }
    const pid_t root = fork();
    if (root < 0) { die("fork"); }
    if (root == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) { die("ptrace"); }
        raise(SIGSTOP);
        execvp(argv[3], argv + 3);
        die(argv[3]);
    }
    int status;
    if (waitpid(root, &status, 0) != root || !WIFSTOPPED(status)) { errno = EPERM; die("ptrace"); }
    if (ptrace(PTRACE_SETOPTIONS, root, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) != 0) {
        die("ptrace");
    }
    ptrace(PTRACE_SYSCALL, root, NULL, NULL);
    const int code = follow(&a, root);
    if (a.counts) {
        FILE* f = fopen(argv[2], "w");
        if (!f || fprintf(f, "%ld\n", a.calls) < 0 || fclose(f) != 0) { die(argv[2]); }
    }
    return !a.counts && a.calls < a.at ? 125 : code;
}
#else
int main(void) {
    fprintf(stderr, "fault: for x86-64 only\n");
    return 126;
}
#endif
