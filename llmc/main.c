// The command line: which command, which options, which trainer.
#include "bench.h"
#include "check.h"
#include "flags.h"
#include "report.h"
#include "tokenizer.h"
#include "trainer.h"

// A program is linked from some of these: train_gpt2 has none for GPUs, train_gpt2cu has the CPU's to check against.
extern const Trainer cuda_bf16 __attribute__((weak)), cuda_fp32 __attribute__((weak)), cpu_fp32 __attribute__((weak));

// The trainer of a --dtype on this program's device, a GPU if it can use one; NULL if there is none. "auto" is bf16 on
// a GPU and fp32 on a CPU.
static const Trainer* find_trainer(const char* dtype) {
    if (&cuda_fp32) { return is_one_of(dtype, "auto|bf16") ? &cuda_bf16 : &cuda_fp32; }
    return is_one_of(dtype, "auto|fp32") ? &cpu_fp32 : NULL;
}

// Decides about --dtype auto: that of the run to be resumed where this program has it, else the device's own.
static const Trainer* choose_trainer(Config* c) {
    const Trainer* trainer = find_trainer(c->dtype);
    if (!trainer) { usage_error("--dtype %s: on a CPU this program trains in fp32 alone", c->dtype); }
    if (strcmp(c->dtype, "auto")) { return trainer; }
    const char* saved = trainer->saved_dtype(c);
    const Trainer* as_saved = saved ? find_trainer(saved) : NULL;
    c->dtype = as_saved ? saved : trainer->storage; // "fp32" and "bf16" name both a storage type and a dtype
    c->source[config_index(config_find("dtype"))] = FROM_COMMAND_LINE; // the checkpoint has no say any more
    return as_saved ? as_saved : trainer;
}

// A launcher started us as one of several, and this build knows nothing of the others.
static void check_single_process(void) {
    static const char* const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"};
    for (int i = 0; i < 4; i++) {
        const char* size = getenv(variables[i]);
        if (size && atoi(size) > 1) {
            usage_error(
                "%s=%s: started as one of several processes, but this program trains in one: start it without mpirun",
                variables[i], size);
        }
    }
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
    check_single_process();
    if (command->bit == BENCH) { return bench_command(&config, find_trainer); }
    const Trainer* trainer = choose_trainer(&config);
    if (command->bit == CHECK) { return check_command(&config, trainer, &cpu_fp32); }
    Comm comm = comm_open();
    const int status = command->bit == TRAIN      ? trainer->train(&config, &comm)
                       : command->bit == GENERATE ? trainer->generate(&config)
                       : command->bit == EVAL     ? trainer->eval(&config, &comm)
                                                  : trainer->info(&config);
    comm_close(&comm);
    return status;
}
