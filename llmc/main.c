// The command line: which command, which options, which trainer.
#include "flags.h"
#include "report.h"
#include "tokenizer.h"
#include "trainer.h"

extern const Trainer cpu_fp32;
static const Trainer* const trainers[] = {&cpu_fp32}; // the first is the default

static const Trainer* find_trainer(const char* dtype) {
    for (size_t i = 0; i < sizeof trainers / sizeof *trainers; i++) {
        if (!strcmp(trainers[i]->dtype, dtype)) { return trainers[i]; }
    }
    usage_error("--dtype %s: this program has no trainer of that type", dtype);
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
    const Trainer* trainer = find_trainer(config.dtype);
    Comm comm = comm_open();
    const int status = command->bit == TRAIN      ? trainer->train(&config, &comm)
                       : command->bit == GENERATE ? trainer->generate(&config)
                       : command->bit == EVAL     ? trainer->eval(&config, &comm)
                                                  : trainer->info(&config);
    comm_close(&comm);
    return status;
}
