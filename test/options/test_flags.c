// llm.c's letters: the option that each becomes, its default, and those that are refused.
#include "llmc/options/config.h"
#include "llmc/options/flags.h"
#include "test/test.h"

// The configuration that a command line of letters gives; it ends at NULL.
static Config parse(FlagsDevice device, const char* const* argv) {
    Config c;
    int argc = 0;
    while (argv[argc]) { argc++; }
    char** rewritten = flags_rewrite(&argc, (char**)argv, device);
    config_defaults(&c);
    config_parse(&c, TRAIN, "train", argc, rewritten);
    return c;
}
#define PARSE(...) parse(FLAGS_CPU, (const char*[]){__VA_ARGS__, NULL})
#define PARSE_GPU(...) parse(FLAGS_GPU, (const char*[]){__VA_ARGS__, NULL})

typedef struct {
    const char *letters, *value, *option, *want; // want: as option_value() gives it
} LetterCase;

static const LetterCase GIVEN[] = {
    {"-i", "a*.bin", "train_data", "a*.bin"},
    {"-j", "", "val_data", ""},
    {"-e", "d24", "model", "d24"},
    {"-e", "gpt2:d36", "model", "d36"},
    {"-o", "log", "out", "log"},
    {"-n", "500", "save_every", "500"},
    {"-nk", "5", "keep", "5,best"},
    {"-y", "1", "resume", "auto"},
    {"-y", "0", "resume", ""},
    {"-b", "64", "batch_size", "64"},
    {"-t", "512", "seq_len", "512"},
    {"-d", "524288", "total_batch_size", "524288"},
    {"-x", "19560", "max_steps", "19560"},
    {"-x", "-1", "max_steps", "-1"},
    {"-k", "wsd", "schedule", "wsd"},
    {"-l", "0.0006", "lr", "0.0006"},
    {"-u", "700", "warmup_steps", "700"},
    {"-q", "0.0", "min_lr_frac", "0"},
    {"-c", "0.1", "weight_decay", "0.1"},
    {"-sl", "5.5", "skip_z", "5.5:0"},
    {"-sg", "4", "skip_z", "0:4"},
    {"-v", "250", "val_every", "250"},
    {"-m", "-1", "val_tokens", "-1"},
    {"-m", "3", "val_tokens", "12288"}, // 3 * 4 * 1024
    {"-m", "0", "val_tokens", "0"},
    {"-s", "20000", "sample_every", "20000"},
    {"-g", "144", "sample_tokens", "144"},
    {"-a", "1", "overfit", "1"},
    {"-r", "0", "recompute", "none"},
    {"-r", "1", "recompute", "gelu"},
    {"-r", "2", "recompute", "all"},
    {"-z", "1", "zero", "1"},
    {"-nm", "5000", "keep", "0,best,every:5000"},
    {"-e", "gpt2:12", "model", "d12"},
    {"-e", "gpt3:c768", "model", "gpt3:c768"},
    {"-e", "log/model_00019560.bin", "init", "log/model_00019560.bin"},
    {"-h", "1", "eval_data", "dev/data/hellaswag/hellaswag_val.bin"},
};
enum { NUM_GIVEN = sizeof GIVEN / sizeof *GIVEN };

// llm.c's defaults (train_gpt2.cu), where a flag is not given.
static const LetterCase DEFAULTS[] = {
    {"-i", NULL, "train_data", "dev/data/tinyshakespeare/tiny_shakespeare_train.bin"},
    {"-j", NULL, "val_data", "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"},
    {"-o", NULL, "out", ""},            {"-n", NULL, "save_every", "0"},  {"-nk", NULL, "keep", "0,best"},
    {"-y", NULL, "resume", ""},         {"-b", NULL, "batch_size", "4"},  {"-t", NULL, "seq_len", "1024"},
    {"-d", NULL, "total_batch_size", "0"}, {"-x", NULL, "max_steps", "-1"}, {"-k", NULL, "schedule", "cosine"},
    {"-l", NULL, "lr", "0.0003"},       {"-u", NULL, "warmup_steps", "0"}, {"-q", NULL, "min_lr_frac", "1"},
    {"-c", NULL, "weight_decay", "0"},  {"-sl", NULL, "skip_z", "0:0"}, {"-sg", NULL, "skip_z", "0:0"},
    {"-v", NULL, "val_every", "20"},    {"-m", NULL, "val_tokens", "81920"}, // 20 batches of 4 * 1024
    {"-s", NULL, "sample_every", "20"}, {"-g", NULL, "sample_tokens", "64"}, {"-a", NULL, "overfit", "0"},
    {"-z", NULL, "zero", "0"},          {"-h", NULL, "eval_data", ""},
    {"-r", NULL, "recompute", "gelu"},  {"-nm", NULL, "keep", "0,best"},
};
enum { NUM_DEFAULTS = sizeof DEFAULTS / sizeof *DEFAULTS };

static void check(const Config* c, const LetterCase* l) {
    char* got = option_value(config_find(l->option), c);
    if (strcmp(got, l->want)) {
        TEST_FAIL("%s %s: --%s is '%s', not '%s'", l->letters, l->value ? l->value : "left out", l->option, got,
                  l->want);
    }
    free(got);
}

TEST(each_letter_becomes_its_option) {
    for (int i = 0; i < NUM_GIVEN; i++) {
        const LetterCase* l = &GIVEN[i];
        const Config c =
            !strcmp(l->letters, "-e") ? PARSE(l->letters, l->value) : PARSE(l->letters, l->value, "-e", "d12");
        check(&c, l);
        for (int k = 0; k < NUM_DEFAULTS; k++) { // and touches no other
            if (strcmp(DEFAULTS[k].option, l->option) && strcmp(l->letters, "-b") && strcmp(l->letters, "-t")) {
                check(&c, &DEFAULTS[k]);
            }
        }
    }
}

TEST(left_out_it_is_as_in_llmc) {
    const Config c = PARSE("-e", "d12");
    for (int i = 0; i < NUM_DEFAULTS; i++) { check(&c, &DEFAULTS[i]); }
    EXPECT(c.beta1 == 0.9 && c.beta2 == 0.95 && c.grad_clip == -1); // its constants are our defaults
}

TEST(every_letter_is_tested_here) {
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        const LetterFlag* flag = &LETTER_FLAGS[i];
        EXPECT(strlen(flag->letters) <= 2);
        EXPECT((flag->name != NULL) + (flag->why != NULL) + (*flag->letters == 'p') == 1);
        EXPECT((flag->why != NULL) == (flag->on_cpu && flag->on_gpu && flag->ignored));
        EXPECT(!flag->name || config_find(flag->name));
        for (int k = 0; k < i; k++) { EXPECT(strcmp(flag->letters, LETTER_FLAGS[k].letters)); }
        bool given = !flag->name, left_out = !flag->name || !strcmp(flag->letters, "e");
        for (int k = 0; k < NUM_GIVEN; k++) { given |= !strcmp(GIVEN[k].letters + 1, flag->letters); }
        for (int k = 0; k < NUM_DEFAULTS; k++) { left_out |= !strcmp(DEFAULTS[k].letters + 1, flag->letters); }
        if (!given || !left_out) { TEST_FAIL("-%s has no test", flag->letters); }
    }
}

TEST(batches_to_validate_become_tokens) {
    EXPECT(PARSE("-e", "d12", "-m", "7", "-b", "2", "-t", "64").val_tokens == 7 * 2 * 64);
    EXPECT(PARSE("-t", "64", "-b", "2", "-e", "d12").val_tokens == 20 * 2 * 64);
    EXPECT(PARSE("-e", "d12", "-m", "1000000", "-b", "64", "-t", "1024").val_tokens == 65536000000LL);
}

TEST(the_command_line_of_the_124M_run) {
    const Config c =
        PARSE("-i", "fineweb_train_*.bin", "-o", "log124M", "-v", "250", "-l", "0.0006", "-u", "700", "-e", "d12");
    EXPECT(!strcmp(c.train_data, "fineweb_train_*.bin") && !strcmp(c.out, "log124M") && c.val_every == 250 &&
           c.lr == 6e-4);
    EXPECT(c.warmup_steps == 700 && !strcmp(c.model, "d12") && !strcmp(c.init, "random"));
    EXPECT(config_source(&c, "lr") == FROM_COMMAND_LINE);
}

TEST(hellaswag_is_scored_whenever_llm_c_does) {
    Config c = PARSE("-e", "d12", "-h", "1", "-v", "250");
    EXPECT(!strcmp(c.eval_data, "dev/data/hellaswag/hellaswag_val.bin") && c.val_every == 250);
    c = PARSE("-e", "d12", "-h", "0");
    EXPECT(!*c.eval_data);
    EXPECT_DEATH(EXIT_USAGE, "-h takes 0 or 1, not '2'", PARSE("-e", "d12", "-h", "2"));
}

TEST(later_letters_override_earlier_ones) { EXPECT(PARSE("-e", "d12", "-b", "2", "-b", "8").batch_size == 8); }

TEST(what_has_no_effect_is_said_and_other_values_are_refused) {
    static const char* const ignored[][3] = {{"-lg", "10", "-lg 10 has no effect: nvidia-smi shows"},
                                             {"-f", "1", "-f 1 has no effect: a CPU has no TF32"},
                                             {"-w", "0", "-w 0 has no effect: master weights"},
                                             {"-ge", "1", "-ge 1 has no effect: it chooses cuBLASLt's"}};
    static const char* const refused[][3] = {{"-f", "2", "-f 2 is not supported: "},
                                             {"-w", "2", "-w 2 is not supported: "},
                                             {"-ge", "3", "-ge 3 is not supported: "},
                                             {"-pi", "ssh", "-pi takes mpi, tcp or fs, not 'ssh'"},
                                             {"-pn", "x", "-pn takes a number from 1, not 'x'"},
                                             {"-pn", "32768", "-pn takes a number from 1, not '32768'"},
                                             {"-pg", "0", "-pg takes a number from 1"}};
    static const char* const silent[][2] = {{"-lg", "-1"}, {"-w", "1"},  {"-ge", "0"}, {"-f", "0"},   {"-pi", "mpi"},
                                            {"-pn", "1"},  {"-pr", "0"}, {"-pg", "4"}, {"-pf", "/tmp"}};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        EXPECT_DEATH(EXIT_USAGE, ignored[i][2], PARSE("-e", "d12", ignored[i][0], ignored[i][1], "-b", "x"));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        EXPECT_DEATH(EXIT_USAGE, refused[i][2],
                     PARSE("-e", "d12", "-pi", "tcp", "-pn", "2", "-ps", "a", refused[i][0], refused[i][1]));
    }
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        EXPECT(PARSE("-e", "d12", silent[i][0], silent[i][1]).batch_size == 4);
    }
}

static void launched_as_second(void) {
    static const char* const variables[][2] = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) { setenv(variables[i][0], variables[i][1], 1); }
}

TEST(letters_of_another_launch_are_refused) {
    EXPECT_DEATH(EXIT_USAGE, "-pn 2 -pr 0: torchrun started this process as rank 1 of 2: ", launched_as_second();
                 PARSE("-e", "d12", "-pi", "fs", "-pn", "2"));
    EXPECT_DEATH(EXIT_USAGE, "-pn 3 -pr 1: torchrun started this process as rank 1 of 2: ", launched_as_second();
                 PARSE("-e", "d12", "-pi", "fs", "-pn", "3", "-pr", "1"));
    EXPECT_DEATH(0, "", launched_as_second(); PARSE("-e", "d12", "-pi", "fs", "-pn", "2", "-pr", "1"); exit(0));
}

TEST(a_gpu_has_tf32_and_fused_gelu) {
    static const char* const accepted[][2] = {{"-f", "0"}, {"-f", "1"}, {"-ge", "0"}, {"-ge", "1"}, {"-ge", "2"}};
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        const Config c = PARSE_GPU("-e", "d12", accepted[i][0], accepted[i][1]);
        EXPECT(c.dtype == dtype_auto && c.fused == 1);
    }
    EXPECT_DEATH(EXIT_USAGE, "-f 2 is not supported", PARSE_GPU("-e", "d12", "-f", "2"));
    EXPECT_DEATH(EXIT_USAGE, "-ge 3 is not supported", PARSE_GPU("-e", "d12", "-ge", "3"));
}

TEST(wrong_letters_and_values_are_refused) {
    EXPECT_DEATH(EXIT_USAGE, "-e is missing: llm.c would load gpt2_124M_bf16.bin", PARSE("-b", "4"));
    EXPECT_DEATH(EXIT_USAGE, "-zz is not one of llm.c's flags", PARSE("-e", "d12", "-zz", "1"));
    EXPECT_DEATH(EXIT_USAGE, "-pm is not one of", PARSE("-e", "d12", "-pm", "mpi")); // in its help, not in its parser
    EXPECT_DEATH(EXIT_USAGE, "-b needs a value", PARSE("-e", "d12", "-b"));
    EXPECT_DEATH(EXIT_USAGE, "do not mix", PARSE("-e", "d12", "--lr", "1"));
    EXPECT_DEATH(EXIT_USAGE, "error: d24 is not one of llm.c's flags", PARSE("-e", "d12", "d24"));
    EXPECT_DEATH(EXIT_USAGE, "-T is not one of llm.c's flags; did you mean -t, in small", PARSE("-b", "4", "-T", "64"));
    EXPECT_DEATH(EXIT_USAGE, "did you mean -nk, in small", PARSE("-b", "4", "-NK", "64"));
    EXPECT_DEATH(EXIT_USAGE, "'-b' is not an option", PARSE("--lr", "1", "-b", "4"));
    EXPECT_DEATH(EXIT_USAGE, "-y takes 0 or 1, not '2'", PARSE("-e", "d12", "-y", "2"));
    EXPECT_DEATH(EXIT_USAGE, "-r takes 0, 1 or 2, not '3'", PARSE("-e", "d12", "-r", "3"));
    EXPECT_DEATH(EXIT_USAGE, "-r takes 0, 1 or 2, not '01'", PARSE("-e", "d12", "-r", "01"));
    EXPECT_DEATH(EXIT_USAGE, "-m takes a number of batches", PARSE("-e", "d12", "-m", "all"));
    EXPECT_DEATH(EXIT_USAGE, "-m takes a number of batches", PARSE("-e", "d12", "-m", "-2"));
    EXPECT_DEATH(EXIT_USAGE, "--batch_size takes a whole number",
                 PARSE("-e", "d12", "-b", "4x")); // by the option's own rules
    EXPECT_DEATH(EXIT_USAGE, "--overfit takes 0 or 1", PARSE("-e", "d12", "-a", "2"));
}

TEST(long_options_are_left_alone) {
    char* long_options[] = {(char*)"--lr", (char*)"1"};
    int argc = 2;
    EXPECT(flags_rewrite(&argc, long_options, FLAGS_CPU) == long_options && argc == 2);
    argc = 0;
    EXPECT(flags_rewrite(&argc, long_options, FLAGS_CPU) == long_options && argc == 0);
    EXPECT(is_letter_flag("-e") && is_letter_flag("-nk") && !is_letter_flag("-") && !is_letter_flag("--") &&
           !is_letter_flag("-1"));
    EXPECT(!is_letter_flag("-abc") && !is_letter_flag("-E") && !is_letter_flag("e") && !is_letter_flag("") &&
           !is_letter_flag("-e1"));
}

TEST_MAIN()
