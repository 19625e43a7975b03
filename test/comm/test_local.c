// --gpus N: the variables and output of the ranks; none outlives the others or the command.
#include "llmc/comm/connect.h"
#include "llmc/comm/launch.h"
#include "llmc/comm/socket.h"
#include "test/test.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

static const char* test_program;
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}; // that ranks take
static volatile sig_atomic_t asked;
static void on_signal(int signal_number) { asked = signal_number; }

// ---------------------------------------------------------------------------------------------------------------------
// a rank: test_local --as-rank WHAT

static void wait_until_asked(int polite) {
    while (!asked) { sleep_seconds(0.01); }
    printf("asked by %d\n", (int)asked);
    if (!polite) { for (;;) { pause(); } }
}

static int as_rank(const char* what) {
    Launch l;
    Error err;
    if (!launch_detect(&l, &err)) { usage_error("%s", err.text); }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) { signal(signals[i], on_signal); }
    if (!strcmp(what, "meet")) {
        int ranks[16];
        Connection* c = connection_open(&l, 20, 20, &err);
        if (!c) { fatal("%s", err.text); }
        connection_gather(c, &l.rank, sizeof l.rank, ranks);
        for (int i = 0; i < l.size; i++) { if (ranks[i] != i) { return 9; } }
        char name[16] = ""; // of the process
        prctl(PR_GET_NAME, name);
        printf("rank %d of %d, local %d, %s, %s, input %s, threads %s\n", l.rank, l.size, l.local_rank, l.launcher,
               name, getchar() == EOF ? "empty" : "not empty", getenv("OMP_NUM_THREADS"));
        connection_close(c);
        return 0;
    }
    if (!strcmp(what, "unread")) {
        struct pollfd errors = {.fd = STDERR_FILENO};
        poll(&errors, 1, 10000); // until its reader is gone
        return l.rank == 1 ? 7 : 0;
    }
    printf("rank %d runs\n", l.rank);
    if (!strcmp(what, "fail") && l.rank == 1) { return 7; }
    if (!strcmp(what, "fail first") && l.rank == 0) { return 6; }
    if (!strcmp(what, "crash") && l.rank == 2) { raise(SIGKILL); }
    wait_until_asked(strcmp(what, "crash"));
    return strcmp(what, "fail") ? 0 : 5;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

typedef struct {
    pid_t pid;
    int output; // of the command and its ranks, both streams; it ends when all have ended
    char text[1 << 14];
    size_t have;
} Command;

static void start(Command* c, int ranks, const char* what, double grace) {
    int ends[2], input[2];
    char* argv[] = {(char*)test_program, (char*)"--as-rank", (char*)what, NULL};
    memset(c, 0, sizeof *c);
    if (pipe(ends) != 0 || pipe(input) != 0 || write(input[1], "x", 1) != 1) { fatal("pipe: %s", strerror(errno)); }
    fflush(stdout);
    c->pid = fork();
    c->output = ends[0];
    if (c->pid == 0) {
        dup2(input[0], STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(launch_local(ranks, argv, grace));
    }
    close(ends[1]);
    close(input[0]);
    close(input[1]);
}

static int count(const char* text, const char* words) {
    int n = 0;
    for (; (text = strstr(text, words)) != NULL; text++) { n++; }
    return n;
}

// Reads until the words came so many times; without words, until the end of output. False if that takes over 10 s.
static bool await(Command* c, const char* words, int times) {
    const double deadline = seconds_now() + 10;
    while (!words || count(c->text, words) < times) {
        struct pollfd p = {c->output, POLLIN, 0};
        if (poll(&p, 1, poll_until(deadline)) <= 0) { return false; }
        const ssize_t n = read(c->output, c->text + c->have, sizeof c->text - 1 - c->have);
        if (n <= 0) { return !words; }
        c->have += (size_t)n;
    }
    return true;
}

// The command's exit code, once it and all ranks have ended.
static int finish(Command* c) {
    int status = 0;
    if (!await(c, NULL, 0)) { TEST_FAIL("ranks are left over, after: %s", c->text); }
    waitpid(c->pid, &status, 0);
    close(c->output);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

#define EXPECT_SAID(c, words, times) \
    do {                                                                                                            \
        if (count((c).text, words) != (times)) { TEST_FAIL("not %d times \"%s\": %s", times, words, (c).text); }  \
    } while (0)

// The ranks share the processors, unless the user says how many threads each has.
TEST(ranks_meet_and_end) {
    Command c;
    cpu_set_t processors;
    char words[128], threads[16];
    EXPECT(sched_getaffinity(0, sizeof processors, &processors) == 0);
    for (int given = 0; given < 2; given++) {
        snprintf(threads, sizeof threads, "%d", given ? 7 : max_int(1, CPU_COUNT(&processors) / 2));
        if (given) { setenv("OMP_NUM_THREADS", threads, 1); }
        else { unsetenv("OMP_NUM_THREADS"); }
        start(&c, 2, "meet", 1);
        EXPECT(finish(&c) == 0);
        for (int i = 0; i < 2; i++) {
            snprintf(words, sizeof words, "rank %d of 2, local %d, --gpus, test_local, input empty, threads %s\n", i, i,
                     threads);
            EXPECT_SAID(c, words, 1);
        }
        EXPECT_SAID(c, "error", 0);
    }
}

TEST(two_commands_do_not_meet_each_other) {
    Command c, d;
    start(&c, 3, "meet", 1);
    start(&d, 3, "meet", 1);
    EXPECT(finish(&c) == 0);
    EXPECT(finish(&d) == 0);
    EXPECT_SAID(c, " of 3", 3);
    EXPECT_SAID(d, " of 3", 3);
}

TEST(a_failed_rank_ends_the_others_politely) {
    Command c;
    start(&c, 3, "fail", 0.5);
    EXPECT(finish(&c) == 7);
    EXPECT_SAID(c, "rank 1 ended with exit code 7", 1);
    EXPECT_SAID(c, "asked by 15", 2);
    EXPECT_SAID(c, "error: ", 1);
}

// It reports what all ranks fail for: they get no time for messages of their own.
TEST(a_failed_rank_0_ends_the_others_at_once) {
    Command c;
    start(&c, 3, "fail first", 30);
    EXPECT(finish(&c) == 6); // within 10 s
}

// As after `2>&1 | tee log` and Ctrl-C.
TEST(a_message_that_nobody_reads_ends_nothing) {
    Command c;
    int status = 0;
    start(&c, 3, "unread", 1);
    close(c.output);
    EXPECT(waitpid(c.pid, &status, 0) == c.pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(those_that_do_not_listen_are_killed) {
    Command c;
    start(&c, 3, "crash", 0.5);
    EXPECT(finish(&c) == 128 + SIGKILL);
    EXPECT_SAID(c, "rank 2 was ended by signal 9", 1);
    EXPECT_SAID(c, "asked by 15", 2);
}

TEST(signals_are_passed_on_once) {
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        Command c;
        char words[32];
        start(&c, 3, "wait", 5);
        EXPECT(await(&c, "runs\n", 3));
        kill(c.pid, signals[i]);
        EXPECT(finish(&c) == 0);
        snprintf(words, sizeof words, "asked by %d\n", signals[i]);
        EXPECT_SAID(c, words, 3);
    }
}

// The first rank's number and its state in the process table, "?" if that cannot be read.
static char state_of_first(const Command* c, pid_t* rank) {
    char path[64], state = '?';
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)c->pid, (int)c->pid);
    FILE* f = fopen(path, "r");
    if (f && fscanf(f, "%d", &child) != 1) { child = 0; }
    if (f) { fclose(f); }
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    f = child ? fopen(path, "r") : NULL;
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) { state = '?'; }
    if (f) { fclose(f); }
    *rank = child;
    return state;
}

// As from a terminal: the signal goes to the command's process group, of which the ranks are no part.
TEST(a_terminal_interrupts_each_rank_once) {
    Command c;
    pid_t rank;
    start(&c, 2, "crash", 5); // two ranks that stay
    EXPECT(await(&c, "runs\n", 2));
    if (state_of_first(&c, &rank) != '?') { EXPECT(getpgid(rank) == rank && rank != getpgid(c.pid)); }
    kill(c.pid, SIGINT);
    EXPECT(await(&c, "asked by 2\n", 2));
    kill(c.pid, SIGKILL);
    EXPECT(finish(&c) == 128 + SIGKILL);
}

TEST(ranks_die_with_a_command_that_was_killed) {
    Command c;
    start(&c, 4, "wait", 5);
    EXPECT(await(&c, "runs\n", 4));
    kill(c.pid, SIGKILL);
    EXPECT(finish(&c) == 128 + SIGKILL); // sees the end of their output
    EXPECT_SAID(c, "asked", 0);
}

TEST(a_stopped_command_stops_its_ranks_and_goes_on) {
    Command c;
    pid_t rank;
    int status = 0;
    start(&c, 2, "wait", 5);
    EXPECT(await(&c, "runs\n", 2));
    kill(c.pid, SIGTSTP);
    EXPECT(waitpid(c.pid, &status, WUNTRACED) == c.pid && WIFSTOPPED(status));
    char state = 'S';
    for (int i = 0; i < 1000 && state != 'T' && state != '?'; i++) { // the kernel takes its time
        sleep_seconds(0.01);
        state = state_of_first(&c, &rank);
    }
    EXPECT(state == 'T' || state == '?');
    kill(c.pid, SIGINT); // is delivered once the process continues
    kill(c.pid, SIGCONT);
    EXPECT(finish(&c) == 0);
    EXPECT_SAID(c, "asked by 2", 2);
}

int main(int argc, char** argv) {
    test_program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "--as-rank")) { return as_rank(argv[2]); }
    return test_main(argc, argv, argv[0]);
}
