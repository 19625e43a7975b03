// Reads the command line, chooses the backend and runs the command.
#include "../train/backends.h"
#include "../bench/bench.h"
#include "../check/check.h"
#include "commands.h"
#include "../base/json.h"
#include "../options/flags.h"
#include "../base/threads.h"
#include "../train/requests.h"
#include "../train/train.h"
#include "../base/library.h"
#include "../comm/mpi.h"
#include <dlfcn.h>

// Seconds that the processes of --gpus have to end by themselves when one of them has failed (chosen, not measured).
enum { GRACE_SECONDS = 5 };

// Commands that several processes can run together.
enum { IN_SEVERAL = TRAIN | EVAL | BENCH };

// Detects how this process was started.
static Launch detect_launch(int command) {
    Error err;
    Launch launch;
    if (!launch_detect(&launch, &err)) { usage_error("%s", err.text); }
    process_rank = launch.rank;
    if (launch.size > 1 && !(command & IN_SEVERAL)) {
        usage_error("started by %s as one of %d processes, but only train, eval and bench run in several",
                    launch.launcher, launch.size);
    }
    return launch;
}

static const Mpi* mpi; // NULL: not needed, or not there

// Opens MPI if a launch of several processes needs it. CPUs add up their gradients by it. GPUs only meet by it: without
// it they meet by a file.
static void open_mpi(Launch* launch, const Backend* b) {
    Error err;
    if (!b->is_host && launch->rendezvous != RENDEZVOUS_MPI) { return; }
    void* library = library_open("libgpt2_mpi.so",
                                 "several CPU processes need MPI: run `apt-get install libopenmpi-dev`, then `make`, "
                                 "which puts this file beside the program",
                                 &err);
    mpi = library ? dlsym(library, "gpt2_mpi") : NULL;
    if (library && !mpi) {
        fail(&err, "libgpt2_mpi.so is of another version: copy the one that was built with this program beside it");
    }
    if (!mpi && b->is_host) { usage_error("%s", err.text); }
    if (!mpi) { launch->rendezvous = RENDEZVOUS_FILE; }
}

// Connects to the other processes of the run.
static Comm open_comm(Launch* launch, const Config* c, const Backend* b) {
    Error err;
    Comm comm = comm_alone();
    if (launch->size <= 1) { return comm; }
    open_mpi(launch, b);
    comm.engine = b->is_host ? &mpi->engine : b->engine;
    if (!comm.engine) {
        usage_error("started by %s as one of %d processes, but this program was built without NCCL: install it and "
                    "build again, or start one process", launch->launcher, launch->size);
    }
    if (launch->rendezvous == RENDEZVOUS_MPI && !mpi->init(launch, &err)) { fatal("%s", err.text); }
    process_rank = launch->rank; // MPI's; normally that of the launcher
    launch->folder = c->out;
    if (!comm_open(&comm, launch, c->timeout, &err)) { fatal("%s", err.text); }
    return comm;
}

// Returns what `check` compares with: the CPU's fp32. A GPU's may be of a given level.
static const Backend* check_reference(const Config* c) {
    const Backend* b = find_cpu_backend(dtype_fp32, program_has_gpu() ? c->cpu : cpu_auto);
    if (!b) { usage_error("check --cpu %s: there are no fp32 kernels of it here; leave it out", cpu_names[c->cpu]); }
    return b;
}

// Runs a command that needs a backend; returns the exit code.
static int run_command(int command, Config* c, const Backend* b, enum dtype dtype, Comm* comm) {
    switch (command) {
    case TRAIN: return train(c, b, dtype, comm);
    case GENERATE: return generate_command(c, b, dtype);
    case INSPECT: return inspect_command(c, b);
    case EVAL: return eval_command(c, b, dtype, comm);
    case BENCH: return bench_command(c, comm);
    case CHECK: return check_command(c, b, dtype, check_reference(c));
    default: return info_command(c, b, dtype);
    }
}

// Prints help or the version and returns true, if the arguments ask for one.
static bool is_answered(const char* program, const Command* command, int argc, char** argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || (argc == 1 && !strcmp(argv[i], "-h"))) {
            config_help(program, command);
            return true;
        }
        if (!strcmp(argv[i], "--version")) {
            print_version();
            return true;
        }
    }
    return false;
}

// Takes the name of the command from the arguments; NULL if none is named. `--help COMMAND` names one too.
static const Command* take_command(int* argc, char*** argv) {
    char** first = *argv;
    if (*argc > 0 && first[0][0] != '-') {
        --*argc, ++*argv;
        return command_find(first[0]);
    }
    const bool is_asked_about = *argc == 2 && !strcmp(first[0], "--help") && first[1][0] != '-';
    return is_asked_about ? command_find(first[1]) : NULL;
}

// Returns the options of the command line.
static Config parse_options(const Command* command, int argc, char** argv) {
    Config config;
    char** given = argv;
    if (command->bit == TRAIN) { argv = flags_rewrite(&argc, argv, program_has_gpu() ? FLAGS_GPU : FLAGS_CPU); }
    config_defaults(&config);
    config.has_letters = argv != given;
    config_parse(&config, command->bit, command->name, argc, argv);
    return config;
}

// Runs a command that needs no device, and returns its exit code; -1 if the command needs one.
static int run_without_device(int command, const Config* c) {
    switch (command) {
    case TOKENIZE: return tokenize_command(c);
    case EXPORT: return export_command(c);
    case REPORT: return report_command(c);
    case FORECAST: return forecast_command(c);
    case INFO: return c->num_args ? run_info_command(c) : -1;
    default: return -1;
    }
}

// Runs a command on a device, as one of the processes of `launch`; returns the exit code.
static int run_on_device(int command, Config* c, Launch* launch) {
    if (command == TRAIN) {
        requests_open(); // SIGUSR1 may come while the processes connect
        unblock_standard_streams();
    }
    if (command == INSPECT) { c->dtype = dtype_fp32; }
    enum dtype dtype = c->dtype;
    // bench finds its backends itself, also those of GPUs that are not present; this one only connects processes. A
    // single process must not even ask for a GPU here: `bench ladder` forks, and a forked process cannot use a GPU that
    // its parent has used.
    const bool has_peers = launch->size > 1;
    const Backend* backend = command != BENCH ? choose_backend(c, &dtype)
                             : has_peers      ? find_backend(dtype_auto, cpu_auto)
                                              : NULL;
    Comm comm = open_comm(launch, c, backend);
    const int status = run_command(command, c, backend, dtype, &comm);
    comm_close(&comm);
    if (mpi) { mpi->finalize(); }
    return status;
}

// Runs the program; returns its exit code.
static int run_program(int argc, char** argv) {
    char** arguments = argv;
    const char* program = argv[0];
    choose_wait_policy(argv);
    cap_threads();
    argc--, argv++;
    const Command* command = take_command(&argc, &argv);
    if (is_answered(program, command, argc, argv)) { return EXIT_DONE; }
    if (!command) { command = &COMMANDS[0]; }
    Config config = parse_options(command, argc, argv);
    const int status = run_without_device(command->bit, &config);
    if (status >= 0) { return status; }
    Launch launch = detect_launch(command->bit);
    if (config.gpus > 1 && launch.size > 1 && config.gpus != launch.size) {
        notice("--gpus %lld is ignored: %s started %d processes", config.gpus, launch.launcher, launch.size);
    }
    if (config.gpus > 1 && launch.size == 1 && (command->bit & IN_SEVERAL)) {
        return launch_local((int)config.gpus, arguments, GRACE_SECONDS);
    }
    return run_on_device(command->bit, &config, &launch);
}

int main(int argc, char** argv) {
    open_standard_streams();
    json_begin();
    return close_standard_output(run_program(argc, argv));
}
