#include "peers.h"
#include "record.h"
#include <sys/wait.h>
#include <unistd.h>

static const char SCRIPT[] = "dev/bench/peers.py";

enum { MAX_WORDS = 40 };

// A command line that grows.
typedef struct {
    const char* word[MAX_WORDS + 1]; // NULL at the end
    int count;
} Words;

static void add_word(Words* w, const char* word) {
    if (w->count == MAX_WORDS) { fatal("bench peers: more than %d words", MAX_WORDS); }
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
}

static void add_option(Words* w, const char* name, const char* value) {
    add_word(w, name);
    add_word(w, value);
}

// Runs a command without output and returns its exit code, 127 if there is no such program.
static int exit_code_of(const Words* w) {
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) { fatal("cannot start a process: %s", strerror(errno)); }
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execvp(w->word[0], (char**)w->word);
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) { fatal("cannot wait for a process: %s", strerror(errno)); }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void require_torch(const char* python) {
    const Words import = {.word = {python, "-c", "import torch, transformers"}, .count = 3};
    const int code = exit_code_of(&import);
    if (code == 127) { fatal("--python %s: there is no such program", python); }
    if (code) {
        fatal("--python %s has no torch and transformers that can be imported: give the Python of an environment where "
              "`pip install torch transformers` was run", python);
    }
}

static void require_llmc(const Config* c) {
    char* trainer = format("%s/train_gpt2", c->llmc);
    if (access(trainer, X_OK)) { fatal("--llmc %s: no train_gpt2 there: run `make train_gpt2` in it", c->llmc); }
    free(trainer);
}

// Returns the path of this program.
static char* own_path(void) {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) { fatal("/proc/self/exe: %s", strerror(errno)); }
    path[length] = 0;
    return format("%s", path);
}

int bench_peers(const Config* c) {
    const Backend* b = bench_backend(c, c->dtype);
    const Plan plan = bench_plan(b, bench_dtype(c, b), c, bench_seq_len(b));
    if (!*c->python) { usage_error("bench peers: give --python, a Python with torch and transformers"); }
    if (access(SCRIPT, R_OK)) { fatal("no %s here: run bench peers in the repository's root", SCRIPT); }
    require_torch(c->python);
    if (*c->llmc) { require_llmc(c); }
    Words w = {.count = 0};
    add_option(&w, c->python, SCRIPT);
    add_option(&w, "--python", c->python);
    add_option(&w, "--program", own_path());
    add_option(&w, "--device", b->is_host ? "cpu" : "cuda");
    add_option(&w, "--dtype", plan.dtype);
    add_option(&w, "--model", c->model);
    add_option(&w, "-B", format("%d", plan.B));
    add_option(&w, "-T", format("%d", plan.T));
    if (strcmp(c->recompute, "none")) { add_option(&w, "--recompute", c->recompute); }
    if (strcmp(c->cpu, "auto")) { add_option(&w, "--cpu", c->cpu); }
    if (c->threads > 0) { add_option(&w, "--threads", format("%lld", c->threads)); }
    if (c->max_steps > 0) { add_option(&w, "--steps", format("%lld", c->max_steps)); }
    if (*c->llmc) { add_option(&w, "--llmc", c->llmc); }
    if (*c->out) {
        Error err;
        if (!make_directories(c->out, &err)) { fatal("%s", err.text); }
        add_option(&w, "--json", format("%s/peers.json", c->out));
    }
    fflush(NULL);
    execvp(c->python, (char**)w.word);
    fatal("--python %s: %s", c->python, strerror(errno));
}
