// Options: values and limits, precedence, the configuration as JSON and as a file, the command line, help.
#include "llmc/options/config.h"
#include "test/test.h"

static Config defaults(void) {
    Config c;
    config_defaults(&c);
    return c;
}

static bool set(Config* c, const char* name, const char* value, OptionSource source, Error* err) {
    return config_set(c, config_find(name), value, source, err);
}

// The options that a command line gives (after the program and its command); it ends at NULL.
static Config parse(int command, char** argv) {
    Config c = defaults();
    int argc = 0;
    while (argv[argc]) { argc++; }
    config_parse(&c, command, "train", argc, argv);
    return c;
}
#define PARSE(command, ...) parse(command, (char*[]){__VA_ARGS__, NULL})

// ---------------------------------------------------------------------------------------------------------------------
// the table

TEST(the_table_is_sound) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        EXPECT((o->group != NULL) != (o->name != NULL));
        if (!o->name) { continue; }
        EXPECT(config_find(o->name) == o);
        EXPECT(*o->help && o->commands && strlen(o->name) <= 18); // help's column
        EXPECT(o->type == TYPE_TEXT || o->type == TYPE_CHOICE || o->least < o->greatest);
    }
    EXPECT(!config_find("no_such_option") && !config_find(""));
}

TEST(defaults_are_those_documented) {
    Config c = defaults();
    EXPECT(!strcmp(c.model, "d12") && !strcmp(c.init, "random") && !strcmp(c.out, "run") &&
           c.schedule == schedule_cosine);
    EXPECT(c.seed == 1337 && c.batch_size == 4 && c.seq_len == 0 && c.total_batch_size == 0 && c.max_steps == -1);
    EXPECT(c.lr == 3e-4 && c.min_lr_frac == 0.1 && c.warmup_steps == 0 && c.weight_decay == 0.1);
    EXPECT(c.beta1 == 0.9 && c.beta2 == 0.95 && c.grad_clip == -1);
    EXPECT(c.shuffle == 1 && c.overfit == 0 && c.pad_vocab == 1 && c.recompute == recompute_none && c.threads == 0);
    EXPECT(c.val_every == 250 && c.val_tokens == 1048576 && c.sample_every == 250 && c.sample_tokens == 64);
    EXPECT(c.temperature == 1 && c.top_k == 50 && c.top_p == 1 && c.save_every == 1000 && !strcmp(c.keep, "3,best"));
    for (int i = 0; i < NUM_ROWS; i++) { EXPECT(c.source[i] == FROM_DEFAULT); }
}

// ---------------------------------------------------------------------------------------------------------------------
// values

// One value: accepted and stored as `want`, or refused with `want` in the message.
typedef struct {
    const char *name, *value;
    bool good;
    const char* want;
} ValueCase;

static const ValueCase VALUES[] = {
    {"seed", "0", true, "0"},
    {"seed", "1000000000000000", true, "1000000000000000"},
    {"seed", "1000000000000001", false, "takes a number from 0 to 1e+15"},
    {"seed", "-1", false, "takes a number from 0"},
    {"seed", "", false, "takes a whole number, not ''"},
    {"seed", "12x", false, "takes a whole number, not '12x'"},
    {"seed", "1.5", false, "takes a whole number"},
    {"seed", "1e3", false, "takes a whole number"},
    {"seed", "99999999999999999999", false, "takes a number from 0"}, // more than a long long
    {"max_steps", "-1", true, "-1"},
    {"max_steps", "-2", false, "takes a number from -1"},
    {"batch_size", "auto", true, "0"},
    {"batch_size", "0", true, "0"}, // how the word is stored
    {"batch_size", "1", true, "1"},
    {"batch_size", "-1", false, "takes a number from 1 to 1000000"},
    {"batch_size", "1000001", false, "takes a number from 1"},
    {"batch_size", "automatic", false, "takes a whole number or auto, not 'automatic'"},
    {"seq_len", "model", true, "0"},
    {"seq_len", "auto", false, "or model"},
    {"total_batch_size", "B*T", true, "0"},
    {"threads", "all", true, "0"},
    {"threads", "4097", false, "from 1 to 4096"},
    {"top_k", "0", true, "0"},
    {"top_k", "-1", false, "takes a number from 0"},
    {"sample_tokens", "0", false, "takes a number from 1"},
    {"lr", "0", true, "0"},
    {"lr", "6e-4", true, "0.0006"},
    {"lr", "1000", true, "1000"},
    {"lr", "1001", false, "takes a number from 0 to 1000"},
    {"lr", "-1e-9", false, "takes a number from 0"},
    {"lr", "nan", false, "takes a number from 0"},
    {"lr", "inf", false, "takes a number from 0"},
    {"lr", "1e999", false, "takes a number from 0"},
    {"lr", "3e-4x", false, "takes a number, not '3e-4x'"},
    {"lr", "", false, "takes a number, not ''"},
    {"beta1", "0.999999", true, "0.999999"},
    {"beta1", "1", false, "from 0 to 0.999999"},
    {"top_p", "1.01", false, "from 0 to 1"},
    {"shuffle", "0", true, "0"},
    {"shuffle", "1", true, "1"},
    {"shuffle", "2", false, "takes 0 or 1, not '2'"},
    {"shuffle", "", false, "takes 0 or 1"},
    {"shuffle", "true", false, "takes 0 or 1"},
    {"schedule", "wsd", true, "wsd"},
    {"schedule", "cosine", true, "cosine"},
    {"schedule", "cos", false, "takes cosine|linear|constant|wsd|wsd_linear, not 'cos'"},
    {"schedule", "linear|constant", false, "takes cosine"},
    {"schedule", "", false, "takes cosine"},
    {"recompute", "all", true, "all"},
    {"recompute", "al", false, "takes none|gelu|all"},
    {"dtype", "fp64", false, "takes"},
    {"prompt", "", true, ""},
    {"prompt", "caf\xe9", false, "takes UTF-8 text; byte 3 is not"},
    {"prompt", "--a b=c \"d\"\n", true, "--a b=c \"d\"\n"},
};

TEST(values_are_read_and_limits_kept) {
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        const ValueCase* v = &VALUES[i];
        Config c = defaults();
        Error err = {.text = ""};
        const bool ok = set(&c, v->name, v->value, FROM_COMMAND_LINE, &err);
        char* text = option_value(config_find(v->name), &c);
        if (ok != v->good || !strstr(ok ? text : err.text, v->want) || (ok && strcmp(text, v->want))) {
            TEST_FAIL("--%s '%s' gives '%s' and '%s'", v->name, v->value, ok ? text : "(refused)", err.text);
        }
        free(text);
    }
}

TEST(a_choice_is_a_whole_word) {
    EXPECT(is_one_of("wsd", "cosine|wsd|linear") && is_one_of("cosine", "cosine|wsd") && is_one_of("b", "a|b"));
    EXPECT(!is_one_of("wsd", "cosine|wsd_linear") && !is_one_of("linear", "wsd_linear") && !is_one_of("", "a|b"));
    EXPECT(!is_one_of("a|b", "a|b") && !is_one_of("a", "b"));
}

TEST(every_limit_is_inside_and_what_lies_beyond_is_not) {
    Error err;
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || (o->type != TYPE_INT && o->type != TYPE_REAL)) { continue; }
        const double inside[2] = {o->least, o->greatest}, outside[2] = {o->least - 1, o->greatest * 1.5 + 1};
        for (int k = 0; k < 2; k++) {
            Config c = defaults();
            char *good = format("%.15g", inside[k]), *bad = format("%.15g", outside[k]);
            if (o->type == TYPE_INT) {
                free(good), free(bad), good = format("%.0f", inside[k]), bad = format("%.0f", outside[k]);
            }
            const bool is_word = o->word && outside[k] == 0; // 0 stands for the word
            if (!config_set(&c, o, good, FROM_FILE, &err)) { TEST_FAIL("--%s %s: %s", o->name, good, err.text); }
            if (config_set(&c, o, bad, FROM_FILE, &err) != is_word) { TEST_FAIL("--%s %s is accepted", o->name, bad); }
            free(good);
            free(bad);
        }
    }
}

TEST(numbers_are_printed_as_short_as_they_read_back) {
    const double numbers[] = {3e-4, 0.1, 1.0 / 3, 6e-4, 1e-8, 123456.789, 0.30000000000000004};
    const char* const want[] = {"0.0003", "0.1",        "0.3333333333333333", "0.0006",
                                "1e-08",  "123456.789", "0.30000000000000004"};
    Config c = defaults();
    for (int i = 0; i < 7; i++) {
        c.lr = numbers[i];
        char* text = option_value(config_find("lr"), &c);
        if (strcmp(text, want[i]) || strtod(text, NULL) != numbers[i]) {
            TEST_FAIL("%.17g is printed as %s", numbers[i], text);
        }
        free(text);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// precedence

TEST(the_stronger_place_wins_in_whatever_order_they_are_read) {
    Error err;
    enum { PLACES = 4 };
    const OptionSource place[PLACES] = {FROM_PRESET, FROM_CHECKPOINT, FROM_FILE, FROM_COMMAND_LINE};
    for (int order = 0; order < 24; order++) { // all permutations: the Lehmer code of `order`
        for (unsigned given = 1; given < 1u << PLACES; given++) { // all subsets of the places
            int left[PLACES] = {0, 1, 2, 3}, code[PLACES] = {order / 6, order / 2 % 3, order % 2, 0}, strongest = 0;
            Config c = defaults();
            for (int i = 0; i < PLACES; i++) {
                const int p = left[code[i]];
                memmove(left + code[i], left + code[i] + 1, (size_t)(PLACES - 1 - code[i]) * sizeof *left);
                if (!(given >> p & 1)) { continue; }
                char value[2] = {(char)('1' + p), 0};
                EXPECT(set(&c, "warmup_steps", value, place[p], &err) && set(&c, "lr", value, place[p], &err) &&
                       set(&c, "out", value, place[p], &err));
                strongest = p > strongest ? p : strongest;
            }
            EXPECT(c.warmup_steps == 1 + strongest && c.lr == 1 + strongest && *c.out == '1' + strongest);
            EXPECT(config_source(&c, "warmup_steps") == place[strongest] && config_source(&c, "seed") == FROM_DEFAULT);
        }
    }
}

TEST(of_one_place_the_last_value_wins_and_hidden_values_are_checked_too) {
    Error err;
    Config c = defaults();
    EXPECT(set(&c, "seed", "3", FROM_COMMAND_LINE, &err) && set(&c, "seed", "4", FROM_COMMAND_LINE, &err) &&
           c.seed == 4);
    EXPECT(!set(&c, "seed", "x", FROM_FILE, &err) && strstr(err.text, "whole number") && c.seed == 4);
    c = PARSE(TRAIN, "--seed", "5", "--seed=6");
    EXPECT(c.seed == 6);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON

// Returns a value of the option that is not its default; the caller frees it.
static char* other_value(const Option* o) {
    if (o->type == TYPE_FLAG) { return format("%d", !atoi(o->fallback)); }
    if (o->type == TYPE_INT) { return format("%.0f", fmin(o->greatest, strtod(o->fallback, NULL) + 3)); }
    if (o->type == TYPE_REAL) { return format("%.17g", (o->least + o->greatest) / 3); }
    return o->type == TYPE_CHOICE ? format("%s", o->choices[1]) : format("x \"y\" \\ %s é", o->name);
}

TEST(json_keeps_every_option) {
    Error err;
    Config c = defaults(), back = defaults();
    size_t named = 0;
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        char* value = o->name ? other_value(o) : NULL;
        named += o->name != NULL;
        if (value && !config_set(&c, o, value, FROM_COMMAND_LINE, &err)) {
            TEST_FAIL("--%s '%s': %s", o->name, value, err.text);
        }
        free(value);
    }
    json_t* object = config_to_json(&c);
    EXPECT(json_object_size(object) == named);
    char* text = json_dumps(object, 0); // as it goes through a file
    json_decref(object);
    object = json_loads(text, 0, NULL);
    EXPECT(config_from_json(&back, object, "state.json", &err));
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name) { continue; }
        char *a = option_value(o, &c), *b = option_value(o, &back);
        if (strcmp(a, b)) { TEST_FAIL("--%s: '%s' came back as '%s'", o->name, a, b); }
        EXPECT(config_source(&back, o->name) == FROM_CHECKPOINT);
        free(a), free(b);
    }
    free(text);
    json_decref(object);
}

TEST(json_of_another_version_or_with_wrong_values) {
    Error err;
    Config c = defaults();
    json_t* object = json_pack("{s:s, s:i, s:b, s:i}", "of_the_future", "x", "lr", 1, "shuffle", 0, "seed", 12);
    EXPECT(config_from_json(&c, object, "run/state.json", &err) && c.lr == 1 && c.shuffle == 0 && c.seed == 12);
    json_decref(object);
    object = json_pack("{s:s}", "schedule", "step");
    EXPECT(!config_from_json(&c, object, "run/state.json", &err) &&
           strstr(err.text, "run/state.json: option schedule takes cosine"));
    json_decref(object);
    object = json_pack("{s:f}", "seed", 1.5);
    EXPECT(!config_from_json(&c, object, "run/state.json", &err) &&
           strstr(err.text, "option seed takes a whole number"));
    json_decref(object);
    EXPECT(config_from_json(&c, NULL, "", &err)); // a checkpoint without options changes nothing
}

// ---------------------------------------------------------------------------------------------------------------------
// the command line and --config

TEST(options_come_with_a_space_or_an_equals_sign) {
    Config c = PARSE(TRAIN, "--lr", "1e-3", "--seed=7", "--out=", "--prompt", "--like an option",
                     "--model=L=1,H=2,C=4,T=8", "--min_lr_frac", "0", "--max_steps", "-1");
    EXPECT(c.lr == 1e-3 && c.seed == 7 && !*c.out && !strcmp(c.prompt, "--like an option") &&
           !strcmp(c.model, "L=1,H=2,C=4,T=8"));
    EXPECT(config_source(&c, "lr") == FROM_COMMAND_LINE && config_source(&c, "keep") == FROM_DEFAULT);
}

TEST(flags_need_no_value) {
    Config c = PARSE(TRAIN, "--overfit", "--shuffle", "0");
    EXPECT(c.overfit == 1 && c.shuffle == 0);
    c = PARSE(TRAIN, "--overfit=1", "--shuffle=0", "--pad_vocab");
    EXPECT(c.overfit == 1 && c.shuffle == 0 && c.pad_vocab == 1);
    c = PARSE(TRAIN, "--overfit", "0", "--overfit");
    EXPECT(c.overfit == 1);
}

TEST(wrong_command_lines_are_refused_by_name) {
    EXPECT_DEATH(EXIT_USAGE, "no option --warmup_step; did you mean --warmup_steps?",
                 PARSE(TRAIN, "--warmup_step", "5"));
    EXPECT_DEATH(EXIT_USAGE, "did you mean --seq_len?", PARSE(TRAIN, "--seqlen=5"));
    EXPECT_DEATH(EXIT_USAGE, "did you mean --lr?", PARSE(TRAIN, "--rl", "5"));
    EXPECT_DEATH(EXIT_USAGE, "no option --; --help lists the options", PARSE(TRAIN, "--"));
    EXPECT_DEATH(EXIT_USAGE, "no option --version; --help lists", PARSE(TRAIN, "--version"));
    EXPECT_DEATH(EXIT_USAGE, "no option --frobnicate; --help lists", PARSE(TRAIN, "--frobnicate", "0.1"));
    EXPECT_DEATH(EXIT_USAGE, "--decode is not an option of train", PARSE(TRAIN, "--decode"));
    EXPECT_DEATH(EXIT_USAGE, "--lr is not an option of", PARSE(GENERATE, "--lr", "1"));
    EXPECT_DEATH(EXIT_USAGE, "--lr needs a value: peak learning rate", PARSE(TRAIN, "--seed", "1", "--lr"));
    EXPECT_DEATH(EXIT_USAGE, "--lr takes a number, not '--seed'", PARSE(TRAIN, "--lr", "--seed", "1"));
    EXPECT_DEATH(EXIT_USAGE, "--overfit takes 0 or 1, not 'yes'", PARSE(TRAIN, "--overfit", "yes"));
    EXPECT_DEATH(EXIT_USAGE, "'-lr' is not an option", PARSE(TRAIN, "-lr", "1"));
    EXPECT_DEATH(EXIT_USAGE, "'run' is not an option", PARSE(TRAIN, "run"));
    EXPECT_DEATH(EXIT_USAGE, "no such file", PARSE(TRAIN, "--config", "/no such file"));
}

TEST(other_programs_names_lead_to_ours) {
    EXPECT_DEATH(EXIT_USAGE, "no option --block_size; here it is called --seq_len\n",
                 PARSE(TRAIN, "--block_size", "5"));
    EXPECT_DEATH(EXIT_USAGE, "no option --learning_rate; here it is called --lr\n", PARSE(TRAIN, "--learning_rate=1"));
    EXPECT_DEATH(EXIT_USAGE, "no option --learning-rate; here it is called --lr\n", PARSE(TRAIN, "--learning-rate=1"));
    EXPECT_DEATH(EXIT_USAGE, "here it is called --min_lr_frac (a fraction of --lr)", PARSE(TRAIN, "--min_lr", "1e-5"));
    EXPECT_DEATH(EXIT_USAGE, "here it is called --model (H of L=12", PARSE(TRAIN, "--n_head", "2"));
    for (int i = 0; i < CONFIG_TABLE.num_advice; i++) { EXPECT(!config_find(CONFIG_TABLE.advice[i].name)); }
}

TEST(choices_are_enums) {
    Config c = PARSE(TRAIN, "--kernels", "plain", "--attention", "cudnn", "--cpu", "avx2");
    EXPECT(c.kernels == kernels_plain && c.attention == attention_cudnn && c.cpu == cpu_avx2);
    EXPECT_DEATH(EXIT_USAGE, "--kernels takes fast|plain, not 'quick'\n", PARSE(TRAIN, "--kernels", "quick"));
}

TEST(options_that_are_gone_say_what_to_do) {
    EXPECT_DEATH(EXIT_USAGE, "no option --wpe_std: position embeddings begin with a standard deviation of 0.02",
                 PARSE(TRAIN, "--wpe_std", "1"));
    EXPECT_DEATH(EXIT_USAGE, "no option --flash: --attention plain is without tiles", PARSE(TRAIN, "--flash=0"));
}

TEST(names_of_other_programs_are_answered) {
    EXPECT_DEATH(EXIT_USAGE, "no option --dropout: GPT-2 is trained without it here, on purpose",
                 PARSE(TRAIN, "--dropout", "0.1"));
    EXPECT_DEATH(EXIT_USAGE, "no option --log_interval: a terminal shows at most 500 step lines",
                 PARSE(TRAIN, "--log_interval", "10"));
    EXPECT_DEATH(EXIT_USAGE, "no option --bias: GPT-2 has biases", PARSE(TRAIN, "--bias", "0"));
    EXPECT_DEATH(EXIT_USAGE, "here it is called --max_steps (-1: one epoch)", PARSE(TRAIN, "--epochs", "3"));
    EXPECT_DEATH(EXIT_USAGE, "here it is called --tensorboard", PARSE(TRAIN, "--wandb_log", "1"));
    EXPECT_DEATH(EXIT_USAGE, "no option --device: CUDA_VISIBLE_DEVICES chooses the GPU; train_gpt2 computes on the CPU",
                 PARSE(TRAIN, "--device", "cuda"));
    EXPECT_DEATH(EXIT_USAGE, "no command 'sample'; here it is generate", command_find("sample"));
    EXPECT_DEATH(EXIT_USAGE, "no command 'help'; here it is --help", command_find("help"));
    EXPECT_DEATH(EXIT_USAGE, "no command 'version'; here it is --version", command_find("version"));
}

TEST(a_pattern_that_the_shell_expanded_is_recognized) {
    char *a = format("%s/a_000.bin", test_folder), *b = format("%s/a_001.bin", test_folder);
    Error err;
    EXPECT(write_file_atomically(a, "", 0, &err) && write_file_atomically(b, "", 0, &err));
    EXPECT_DEATH(EXIT_USAGE, "quote it: --train_data 'PATTERN'", PARSE(TRAIN, "--train_data", a, b));
    free(a);
    free(b);
}

TEST(report_takes_folders) {
    Config c = PARSE(REPORT, "a", "--out", "x", "b c");
    EXPECT(c.num_args == 2 && !strcmp(c.args[0], "a") && !strcmp(c.args[1], "b c") && !strcmp(c.out, "x"));
    c = PARSE(BENCH, "--graph", "ladder", "--fused", "0"); // a word after a flag is no value of it
    EXPECT(c.num_args == 1 && !strcmp(c.args[0], "ladder") && c.graph == 1 && c.fused == 0);
}

static char* write_config(const char* text) {
    char* path = format("%s/config", test_folder);
    FILE* f = fopen(path, "wb");
    if (!f || fputs(text, f) < 0 || fclose(f)) { fatal("%s", path); }
    return path;
}

TEST(files_hold_names_and_values) {
    char* path = write_config(
        "# a comment\n\n  lr\t 1e-3  \r\nseed 5\n \t# another\nprompt  Once upon  a #time \nout\noverfit 1\nkeep 9");
    Config c = PARSE(TRAIN, "--seed", "6", "--config", path, "--overfit=0");
    EXPECT(c.lr == 1e-3 && !strcmp(c.keep, "9") && !strcmp(c.prompt, "Once upon  a #time") && !*c.out);
    EXPECT(c.seed == 6 && c.overfit == 0); // the command line wins, before --config and after it
    EXPECT(config_source(&c, "lr") == FROM_FILE && config_source(&c, "seed") == FROM_COMMAND_LINE);
    free(write_config(""));
    c = PARSE(TRAIN, "--config", path);
    EXPECT(c.lr == 3e-4);
    free(write_config("\xef\xbb\xbflr 2\nseed 5\n")); // a byte order mark
    char* other = format("%s/other", test_folder);
    EXPECT(rename(path, other) == 0);
    free(write_config("seed 9\n"));
    c = PARSE(TRAIN, "--config", other, "--config", path); // both are read, and the later one counts
    EXPECT(c.lr == 2 && c.seed == 9);
    free(other);
    free(path);
}

TEST(errors_of_a_file_name_the_line) {
    char* path = write_config("overfit\n"); // a flag alone is none
    EXPECT(PARSE(TRAIN, "--config", path).overfit == 1);
    free(write_config("# one\n\nlr fast\n"));
    EXPECT_DEATH(EXIT_USAGE, "config:3: lr takes a number, not 'fast'", PARSE(TRAIN, "--config", path));
    free(write_config("seed 1\nlearning_rate 1\n"));
    EXPECT_DEATH(EXIT_USAGE, "config:2: no option 'learning_rate'; here it is called 'lr'",
                 PARSE(TRAIN, "--config", path));
    free(write_config("seed 1\n--lr 1\n"));
    EXPECT_DEATH(EXIT_USAGE, "config:2: no option '--lr'; did you mean 'lr'?", PARSE(TRAIN, "--config", path));
    static const char* const assignments[] = {"lr=1", "lr = 1", "lr: 1", "lr : 1"};
    for (int i = 0; i < 4; i++) {
        free(write_config(assignments[i]));
        EXPECT_DEATH(EXIT_USAGE, "config:1: a line is `name value`, without = or :", PARSE(TRAIN, "--config", path));
    }
    free(write_config("prompt = 5 apples\n"));
    EXPECT(!strcmp(PARSE(TRAIN, "--config", path).prompt, "= 5 apples"));
    free(write_config("seed 1\nconfig other\n"));
    EXPECT_DEATH(EXIT_USAGE, "config:2: a file cannot name another", PARSE(TRAIN, "--config", path));
    FILE* f = fopen(path, "wb");
    EXPECT(f && fwrite("lr 1\0\nseed 2\n", 1, 14, f) == 14 && fclose(f) == 0);
    EXPECT_DEATH(EXIT_USAGE, "config: byte 4 is 0, so this is not text", PARSE(TRAIN, "--config", path));
    free(write_config("seed\n"));
    EXPECT_DEATH(EXIT_USAGE, "config:1: seed takes a whole number, not ''", PARSE(TRAIN, "--config", path));
    free(path);
}

// ---------------------------------------------------------------------------------------------------------------------
// names and help

TEST(the_nearest_name_is_found) {
    EXPECT(edit_distance("", "") == 0 && edit_distance("abc", "") == 3 && edit_distance("", "ab") == 2);
    EXPECT(edit_distance("kitten", "sitting") == 3 && edit_distance("ab", "ba") == 1 &&
           edit_distance("same", "same") == 0);
    char* endless = format("%*s", 5000, "x");
    EXPECT(edit_distance(endless, "x") == 32); // longer names count as their first 32 letters
    EXPECT(!option_nearest(&CONFIG_TABLE, TRAIN, endless));
    free(endless);
    for (int i = 0; i < NUM_ROWS; i++) { // a letter too many leads back to every option
        const char* name = CONFIG_OPTIONS[i].name;
        if (!name) { continue; }
        char* wrong = format("%sx", name);
        EXPECT(option_nearest(&CONFIG_TABLE, CONFIG_OPTIONS[i].commands, wrong) == &CONFIG_OPTIONS[i]);
        free(wrong);
    }
    EXPECT(!option_nearest(&CONFIG_TABLE, TRAIN, "version") && !option_nearest(&CONFIG_TABLE, TRAIN, "learning_rate"));
    EXPECT(!option_nearest(&CONFIG_TABLE, TRAIN, ""));
    EXPECT(option_nearest(&CONFIG_TABLE, TRAIN, "sched") == config_find("schedule"));
    EXPECT(!option_nearest(&CONFIG_TABLE, GENERATE, "sched")); // it has none
    EXPECT(!option_nearest(&CONFIG_TABLE, TRAIN, "sc"));       // two letters abbreviate nothing
    EXPECT(option_nearest(&CONFIG_TABLE, TRAIN, "top_x") == config_find("top_k")); // of equally near ones the first
    EXPECT(command_find("train") == &COMMANDS[0] && command_find("report")->bit == REPORT);
    EXPECT_DEATH(EXIT_USAGE, "no command 'genrate'; did you mean generate?", command_find("genrate"));
    EXPECT_DEATH(EXIT_USAGE, "no command 'tokenise'; did you mean tokenize?", command_find("tokenise"));
    EXPECT_DEATH(EXIT_USAGE, "no command 'serve'; --help lists the commands", command_find("serve"));
}

// Puts one space in the place of each newline and of the spaces around it.
static void join_lines(char* text) {
    char* end = text;
    for (const char* at = text; *at; at++) {
        const bool is_space = *at == ' ' || *at == '\n';
        if (!is_space || end == text || end[-1] != ' ') { *end++ = is_space ? ' ' : *at; }
    }
    *end = 0;
}

// Returns the text that help prints; the caller frees it. Fails if a line is too long.
static char* help_of(const Command* command) {
    Error err;
    char* path = format("%s/help", test_folder);
    fflush(stdout);
    const int kept = dup(1), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (kept < 0 || file < 0 || dup2(file, 1) < 0) { fatal("%s", path); }
    config_help("./program", command);
    fflush(stdout);
    dup2(kept, 1);
    close(kept);
    close(file);
    char* text = read_file(path, NULL, &err);
    for (const char* line = text; *line; line += strcspn(line, "\n") + 1) {
        const bool is_wrapped = strncmp(line, "Single letters are", 18) && strncmp(line, "Exit codes", 10);
        if (is_wrapped && strcspn(line, "\n") > 100) { TEST_FAIL("too long: %.60s", line); }
    }
    free(path);
    return text;
}

TEST(help_lists_exactly_the_options_of_a_command) {
    for (int i = 0; i < NUM_COMMANDS; i++) {
        char* text = help_of(&COMMANDS[i]);
        int listed = 0;
        for (const char* at = text; (at = strstr(at, "\n  --")) != NULL; at++) { listed++; }
        for (int k = 0; k < NUM_ROWS; k++) {
            const Option* o = &CONFIG_OPTIONS[k];
            if (!o->name) { continue; }
            char* line = format("\n  --%-18s ", o->name);
            const bool wanted = (o->commands & COMMANDS[i].bit) != 0, there = strstr(text, line) != NULL;
            if (wanted != there) {
                TEST_FAIL("%s --help: --%s is %s", COMMANDS[i].name, o->name, there ? "listed" : "missing");
            }
            listed -= wanted;
            free(line);
        }
        EXPECT(listed == 0);
        join_lines(text);
        for (int k = 0; k < NUM_ROWS; k++) {
            const Option* o = &CONFIG_OPTIONS[k];
            if (!o->name || !(o->commands & COMMANDS[i].bit)) { continue; }
            char* line = format(" --%s ", o->name);
            for (int c = 0; o->choices && o->choices[c]; c++) {
                append_format(&line, "%s%s", o->choices[c], o->choices[c + 1] ? "|" : ": ");
            }
            append_format(&line, "%s (", o->help);
            if (!strstr(text, line)) { TEST_FAIL("%s --help: no '%s'", COMMANDS[i].name, line); }
            free(line);
        }
        char* usage = format("usage: ./program %s %s[--option value ...] %s ", COMMANDS[i].name, COMMANDS[i].words,
                             COMMANDS[i].help);
        EXPECT(!strncmp(text, usage, strlen(usage)));
        free(usage);
        free(text);
    }
    char* text = help_of(NULL);
    join_lines(text);
    EXPECT(strstr(text, "usage: ./program [COMMAND] "));
    for (int k = 0; k < NUM_COMMANDS; k++) {
        EXPECT(strstr(text, COMMANDS[k].name) && strstr(text, COMMANDS[k].help));
    }
    EXPECT(strstr(text, "cosine|linear|constant|wsd|wsd_linear: of the learning rate") &&
           strstr(text, "auto: the largest that fits (4)") && strstr(text, "B*T)"));
    EXPECT(strstr(text, "peak learning rate (3e-4)") && strstr(text, "(model)") && strstr(text, "(all)"));
    free(text);
    text = help_of(command_find("tokenize"));
    EXPECT(!strstr(text, "\nschedule:")); // no heading without options
    free(text);
}

TEST_MAIN()
