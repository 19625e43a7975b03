// Options that have no effect beside others are refused (Option.needs).
#include "llmc/options/models.h"
#include "test/test.h"

// Sets options, "name value name value ..." with an underscore for an empty value, as from `source`.
static void set(Config* c, const char* options, OptionSource source) {
    Error err;
    char* text = format("%s", options); // it stays: words of a command are in it
    for (char *rest = NULL, *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        const char* value = strtok_r(NULL, " ", &rest);
        if (!config_set(c, config_find(name), strcmp(value, "_") ? value : "", source, &err)) {
            TEST_FAIL("--%s %s", name, err.text);
        }
    }
}

static Config configured(const char* options, OptionSource source) {
    Config c;
    config_defaults(&c);
    set(&c, options, source);
    return c;
}

static void expect_refused(const Config* c, int command, const char* what, const char* words) {
    Error err = {.text = ""};
    if (config_check_needs(c, command, &err)) { TEST_FAIL("%s is accepted", what); }
    else if (!strstr(err.text, words)) { TEST_FAIL("%s: '%s', not '%s'", what, err.text, words); }
}

static void expect_accepted(const Config* c, int command, const char* what) {
    Error err;
    if (!config_check_needs(c, command, &err)) { TEST_FAIL("%s: %s", what, err.text); }
}

// The last option of `refused` has no effect. Beside `accepted` it has one, or it is off.
typedef struct {
    int command;
    const char *refused, *words, *accepted;
} NeedCase;

static const NeedCase CASES[] = {
    {TRAIN, "init folder init_out zero", "--init_out zero has no effect without --init random: leave it out",
     "init random init_out zero"},
    {INFO, "init folder init_out zero", "--init_out zero", "init_out zero"},
    {EVAL, "eval_data f document_mask 1", "--document_mask 1 has no effect with --eval_data f: leave it out",
     "document_mask 1"},
    {EVAL, "text f document_mask 1", "with --text f", "text f document_mask 0"},
    {TRAIN, "schedule constant min_lr_frac 0.2", "with --schedule constant", "schedule linear min_lr_frac 0.2"},
    {TRAIN, "decay_frac 0.4", "--decay_frac 0.4 has no effect without --schedule wsd|wsd_linear",
     "schedule wsd_linear decay_frac 0.4"},
    {TRAIN, "overfit 1 skip_windows 3", "with --overfit", "overfit 0 skip_windows 3"},
    {TRAIN, "momentum 0.9", "without --optimizer muon", "optimizer muon momentum 0.9"},
    {EVAL, "eval_data f val_data g", "with --eval_data f", "val_data g"},
    {EVAL, "text f val_tokens 9", "with --text f", "val_tokens 9"},
    {EVAL, "text f data_format nanogpt", "with --text f", "data_format nanogpt"},
    {TRAIN, "eval_rules limit:9", "without --eval_data", "eval_data f eval_rules limit:9"},
    {EVAL, "text f eval_rules lm-eval", "without --eval_data", "eval_data f text f eval_rules lm-eval"},
    {EVAL, "eval_data f field body", "without --text", "text f field body"},
    {EVAL, "stride 9", "without --text", "text f stride 9"},
    {TRAIN, "tokenizer none sample_every 9", "with --tokenizer none", "tokenizer none sample_every 0"},
    {TRAIN, "out _ tensorboard 1", "without --out", "tensorboard 1"},
};
enum { NUM_CASES = sizeof CASES / sizeof *CASES };

TEST(options_without_effect_are_refused_and_their_neighbours_are_not) {
    for (int i = 0; i < NUM_CASES; i++) {
        const NeedCase* e = &CASES[i];
        const Config refused = configured(e->refused, FROM_COMMAND_LINE);
        const Config accepted = configured(e->accepted, FROM_COMMAND_LINE);
        expect_refused(&refused, e->command, e->refused, e->words);
        expect_accepted(&accepted, e->command, e->accepted);
    }
}

// Of a preset, a checkpoint or llm.c's letters; a default that is given again; in other commands than training also
// those of a file.
TEST(what_nobody_gave_is_not_refused) {
    for (int i = 0; i < NUM_CASES; i++) {
        const NeedCase* e = &CASES[i];
        Config c = configured(e->refused, FROM_PRESET);
        expect_accepted(&c, e->command, e->refused);
        c = configured(e->refused, FROM_CHECKPOINT);
        expect_accepted(&c, e->command, e->refused);
        c = configured(e->refused, FROM_COMMAND_LINE);
        c.has_letters = true;
        expect_accepted(&c, e->command, e->refused);
        c = configured(e->refused, FROM_FILE);
        if (e->command == TRAIN) { expect_refused(&c, e->command, e->refused, e->words); }
        else { expect_accepted(&c, e->command, e->refused); }
    }
    Config c;
    config_defaults(&c);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        Error err;
        if (o->name) { EXPECT(config_set(&c, o, o->fallback, FROM_COMMAND_LINE, &err)); }
    }
    for (int command = 1; command <= EXPORT; command *= 2) { expect_accepted(&c, command, "all defaults"); }
}

// A resumed run has the settings of its checkpoint: what it gives must have an effect beside these.
TEST(options_of_the_checkpoint_count) {
    Config c = configured("schedule wsd optimizer muon", FROM_CHECKPOINT);
    set(&c, "decay_frac 0.4 momentum 0.9", FROM_COMMAND_LINE);
    expect_accepted(&c, TRAIN, "beside the checkpoint's options");
    c = configured("schedule constant", FROM_CHECKPOINT);
    set(&c, "decay_frac 0.4", FROM_COMMAND_LINE);
    expect_refused(&c, TRAIN, "a run of a constant rate", "without --schedule");
}

TEST(a_need_of_one_command_is_none_of_another) {
    const Config c = configured("eval_data f val_data g", FROM_COMMAND_LINE);
    expect_accepted(&c, TRAIN, "training validates and scores");
}

TEST(every_preset_is_accepted) {
    for (int i = 0; preset_name(i); i++) {
        Config c;
        config_defaults(&c);
        set(&c, format("preset %s init folder", preset_name(i)), FROM_COMMAND_LINE);
        preset_apply(&c);
        expect_accepted(&c, TRAIN, preset_name(i));
        expect_accepted(&c, INFO, preset_name(i));
    }
}

TEST(every_need_names_options_that_exist) { // option_unmet_need() ends the program if one does not
    Config c;
    config_defaults(&c);
    for (int i = 0; i < NUM_ROWS; i++) {
        if (CONFIG_OPTIONS[i].name) { free(option_unmet_need(&CONFIG_TABLE, &CONFIG_OPTIONS[i], &c, ~0)); }
    }
}

TEST_MAIN()
