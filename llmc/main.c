// The command line: which command, which options, which trainer.
#include "bench.h"
#include "check.h"
#ifdef HAS_MPI
#include "comm/mpi.h"
#define MPI_SUPPORT MPI_BUILT_IN
#else
#define MPI_SUPPORT MPI_ABSENT
#endif
#include "comm/local.h"
#include "cpu/processor.h"
#include "flags.h"
#include "report.h"
#include "tokenizer.h"
#include "trainer.h"

// A program is linked from some of these, the best first: train_gpt2 has none for GPUs, train_gpt2cu has the CPU's fp32
// to check against.
#define CPU_TRAINERS(_)                                                                      \
    _(cpu_fp32_avx512) _(cpu_fp32_avx2) _(cpu_fp32_generic)                                  \
    _(cpu_bf16_amx) _(cpu_bf16_avx512_bf16) _(cpu_bf16_avx512) _(cpu_bf16_avx2) _(cpu_bf16_generic)
#define DECLARE_TRAINER(name) extern const Trainer name __attribute__((weak));
#define ADDRESS_OF_TRAINER(name) &name,
DECLARE_TRAINER(cuda_bf16)
DECLARE_TRAINER(cuda_fp32)
CPU_TRAINERS(DECLARE_TRAINER)
static const Trainer* const cpu_trainers[] = {CPU_TRAINERS(ADDRESS_OF_TRAINER)};
enum { NUM_CPU_TRAINERS = sizeof cpu_trainers / sizeof *cpu_trainers };

static bool is_level(const char* kernels) { return !is_one_of(kernels, "fast|plain"); }

// AVX512_BF16 does half of what fp32's instructions do on some processors and twice as much on others, so both are
// timed: it has to be faster by a margin, so that the choice is the same every time.
static bool is_outdone(const Trainer* t) {
    const double margin = 1.2;
    return !strcmp(t->level, "avx512_bf16") && &cpu_bf16_avx512 &&
           t->kernel_flops() < margin * cpu_bf16_avx512.kernel_flops();
}

// The best of the CPU's trainers that store in fp32 or bf16 and run on this processor, or the one that `kernels` names;
// NULL if there is none.
static const Trainer* find_cpu_trainer(const char* storage, const char* kernels) {
    for (int i = 0; i < NUM_CPU_TRAINERS; i++) {
        const Trainer* t = cpu_trainers[i];
        if (!t || strcmp(t->storage, storage) || !processor_has(t->level)) { continue; }
        if (is_level(kernels) ? !strcmp(t->level, kernels) : !is_outdone(t)) { return t; }
    }
    return NULL;
}

// The trainer of a --dtype on this program's device, a GPU if it can use one; NULL if there is none. "auto" is bf16 on
// a GPU and fp32 on a CPU.
static const Trainer* find_trainer(const char* dtype, const char* kernels) {
    if (&cuda_fp32) {
        const bool is_known = is_one_of(kernels, "fast|plain|flash|cudnn");
        return !is_known ? NULL : is_one_of(dtype, "auto|bf16|fp8") ? &cuda_bf16 : &cuda_fp32;
    }
    return !is_one_of(dtype, "tf32|fp8") ? find_cpu_trainer(strcmp(dtype, "auto") ? dtype : "fp32", kernels) : NULL;
}

static const Trainer* find_fast(const char* dtype) { return find_trainer(dtype, "fast"); }

// What --kernels could have been.
static void ATTR_NORETURN no_trainer(const Config* c) {
    if (&cuda_fp32) { usage_error("--kernels %s: on a GPU give fast, plain, flash or cudnn", c->kernels); }
    if (is_one_of(c->dtype, "tf32|fp8")) {
        usage_error("--dtype %s: that is a GPU's; on a CPU give fp32 or bf16", c->dtype);
    }
    char names[128] = "fast, plain";
    for (int i = 0; i < NUM_CPU_TRAINERS; i++) {
        const Trainer* t = cpu_trainers[i];
        const char* storage = strcmp(c->dtype, "bf16") ? "fp32" : "bf16";
        if (!t || strcmp(t->storage, storage) || !processor_has(t->level)) { continue; }
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", t->level);
    }
    usage_error("--kernels %s: not on this processor, not in this build, or not for --dtype %s; there are: %s",
                c->kernels, strcmp(c->dtype, "auto") ? c->dtype : "fp32", names);
}

// Decides about --dtype auto, and about --kernels fast on a CPU: as in the run to be resumed where this program and
// processor have that, else the device's own.
static const Trainer* choose_trainer(Config* c) {
    const Trainer* trainer = find_trainer(c->dtype, c->kernels);
    if (!trainer) { no_trainer(c); }
    const bool resumes = *c->resume != 0;
    if (!strcmp(c->dtype, "auto")) {
        const char* saved = resumes ? trainer->saved_choice(c, "options", "dtype") : NULL;
        const Trainer* as_saved = saved ? find_trainer(saved, c->kernels) : NULL;
        c->dtype = as_saved ? saved : trainer->storage; // "fp32" and "bf16" name both a storage type and a dtype
        c->source[config_index(config_find("dtype"))] = FROM_COMMAND_LINE; // the checkpoint has no say any more
        if (as_saved) { trainer = as_saved; }
    }
    if (resumes && trainer->level && !strcmp(c->kernels, "fast")) {
        const char* saved = trainer->saved_choice(c, "kernels", trainer->device);
        const Trainer* as_saved = saved ? find_trainer(c->dtype, saved) : NULL;
        if (as_saved) { return as_saved; }
        if (saved) { notice("this processor has no %s kernels, as the run had: going on with %s", saved, trainer->level); }
    }
    return trainer;
}

// What processes that --gpus started have to end by themselves when one of them has failed.
enum { GRACE_SECONDS = 5 };

// Tells how this process was started. Commands other than train, eval and bench are for one process.
static Launch detect_launch(int command) {
    Error err;
    Launch launch;
    if (!launch_detect(&launch, MPI_SUPPORT, &err)) { usage_error("%s", err.text); }
    process_rank = launch.rank;
    if (launch.size > 1 && !(command & (TRAIN | EVAL | BENCH))) {
        usage_error("started by %s as one of %d processes, but only train, eval and bench run in several",
                    launch.launcher, launch.size);
    }
    return launch;
}

// How the trainer's processes add up their gradients; NULL if this build cannot.
static const CommEngine* find_engine(const Trainer* trainer) {
#ifdef HAS_MPI
    if (!strcmp(trainer->device, MPI_ENGINE.device)) { return &MPI_ENGINE; }
#endif
    return trainer->engine;
}

// Meets the other processes of the run.
static Comm open_comm(Launch* launch, const Config* c, const Trainer* trainer) {
    Error err;
    Comm comm = comm_alone();
    if (launch->size == 1) { return comm; }
    comm.engine = find_engine(trainer);
    if (!comm.engine) {
        usage_error("started by %s as one of %d processes, but this program was built without %s: install it and build "
                    "again, or start one process", launch->launcher, launch->size,
                    strcmp(trainer->device, "cpu") ? "NCCL" : "MPI");
    }
#ifdef HAS_MPI
    if (launch->meeting == MEET_BY_MPI && !mpi_meet(launch, &err)) { fatal("%s", err.text); }
    process_rank = launch->rank; // the same, as a rule
#endif
    const CommOptions options = {c->connect_timeout, c->comm_timeout};
    if (!comm_open(&comm, launch, &options, &err)) { fatal("%s", err.text); }
    return comm;
}

static int report_command(const Config* c) {
    Error err;
    const char* folders[1] = {c->out};
    const bool several = c->num_args > 1;
    const char* const* runs = c->num_args ? (const char* const*)c->args : folders;
    char* path = several ? format("report.html") : format("%s/report.html", runs[0]);
    if (!report_write(path, runs, c->num_args ? c->num_args : 1, &err)) { fatal("%s", err.text); }
    printf("%s\n", path);
    free(path);
    return EXIT_DONE;
}

static int tokenize_command(const Config* c) {
    Tokenizer t = tokenizer_open(c->tokenizer);
    if (c->decode) { tokenize_ids(&t, stdin, stdout); }
    else { tokenize_text(&t, stdin, stdout); }
    tokenizer_free(&t);
    return EXIT_DONE;
}

int main(int argc, char** argv) {
    Config config;
    char** arguments = argv;
    const char* program = argv[0];
    argc--, argv++;
    const Command* command = &COMMANDS[0];
    if (argc > 0 && argv[0][0] != '-') {
        int i = 0;
        while (i < NUM_COMMANDS && strcmp(COMMANDS[i].name, argv[0])) { i++; }
        if (i == NUM_COMMANDS) {
            usage_error("no command '%s'; did you mean %s? (see --help)", argv[0], config_nearest(argv[0], true));
        }
        command = &COMMANDS[i];
        argc--, argv++;
    }
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || (argc == 1 && !strcmp(argv[i], "-h"))) {
            config_help(program, command->bit);
            return EXIT_DONE;
        }
    }
    if (command->bit == TRAIN) { argv = flags_rewrite(&argc, argv); }
    config_defaults(&config);
    config_parse(&config, command->bit, command->name, argc, argv);
    if (command->bit == TOKENIZE) { return tokenize_command(&config); }
    if (command->bit == REPORT) { return report_command(&config); }
    Launch launch = detect_launch(command->bit);
    if (config.gpus > 1 && launch.size > 1 && config.gpus != launch.size) {
        notice("--gpus %lld has no say: %s started %d processes", config.gpus, launch.launcher, launch.size);
    }
    if (config.gpus > 1 && launch.size == 1 && command->bit != INFO) {
        return launch_local((int)config.gpus, arguments, GRACE_SECONDS);
    }
    // bench finds its trainers itself; those of a device share an engine
    const Trainer* trainer = command->bit == BENCH ? find_fast("auto") : choose_trainer(&config);
    if (command->bit == CHECK) { return check_command(&config, trainer, find_cpu_trainer("fp32", "plain")); }
    Comm comm = open_comm(&launch, &config, trainer);
    const int status = command->bit == TRAIN      ? trainer->train(&config, &comm)
                       : command->bit == GENERATE ? trainer->generate(&config)
                       : command->bit == EVAL     ? trainer->eval(&config, &comm)
                       : command->bit == BENCH    ? bench_command(&config, find_fast, &comm)
                                                  : trainer->info(&config);
    comm_close(&comm);
#ifdef HAS_MPI
    mpi_leave();
#endif
    return status;
}
