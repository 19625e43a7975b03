#include "llmc/train/effects.h"
#include "llmc/options/models.h"
#include "test/test.h"

// Sets options, "name value name value ..." with an underscore for an empty value, as from `source`.
static void set(Config* c, const char* options, Source source) {
    Error err;
    char* text = format("%s", options); // it stays: words of a command are in it
    for (char *rest = NULL, *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        const char* value = strtok_r(NULL, " ", &rest);
        if (!config_set(c, config_find(name), strcmp(value, "_") ? value : "", source, &err)) {
            TEST_FAIL("--%s %s", name, err.text);
        }
    }
}

static Config configured(const char* options, Source source) {
    Config c;
    config_defaults(&c);
    set(&c, options, source);
    return c;
}

static void expect_refused(const Config* c, int command, const char* dtype, const char* what, const char* words) {
    Error err = {.text = ""};
    if (effects_check(c, command, dtype, &err)) { TEST_FAIL("%s is accepted", what); }
    else if (!strstr(err.text, words)) { TEST_FAIL("%s: '%s', not '%s'", what, err.text, words); }
}

static void expect_accepted(const Config* c, int command, const char* dtype, const char* what) {
    Error err;
    if (!effects_check(c, command, dtype, &err)) { TEST_FAIL("%s: %s", what, err.text); }
}

// The last option of `refused` has no effect. Beside it `accepted` has the same option, where it has one, or a value
// that asks for nothing.
typedef struct {
    int command;
    const char *dtype, *refused, *words, *accepted;
} EffectCase;

static const EffectCase CASES[] = {
    {TRAIN, "fp32", "init folder init_out zero", "--init_out zero has no effect: the initial weights are those of",
     "init_out zero"},
    {TRAIN, "fp32", "init folder init_out zero", "; give --init random, or leave it out", "init random init_out zero"},
    {INFO, NULL, "init folder init_out zero", "--init_out zero", "init_out zero"},
    {EVAL, NULL, "eval_data f document_mask 1", "--document_mask 1 has no effect: a test set or a text is scored, and "
     "each of its rows is one document; leave it out", "document_mask 1"},
    {EVAL, NULL, "text f document_mask 1", "--document_mask 1", "text f document_mask 0"},
    {TRAIN, "fp32", "schedule constant min_lr_frac 0", "--min_lr_frac 0", "schedule linear min_lr_frac 0"},
    {TRAIN, "fp32", "decay_frac 0.4", "it is of --schedule wsd; give that", "schedule wsd decay_frac 0.4"},
    {TRAIN, "fp32", "schedule linear decay_shape linear", "--decay_shape linear", "schedule wsd decay_shape linear"},
    {TRAIN, "fp32", "skip_loss_z 7 bad_steps 2", "--on_spike stop or rewind:N", "on_spike stop bad_steps 2"},
    {TRAIN, "fp32", "on_spike stop max_rewinds 2", "the run does not go back", "on_spike rewind:9 max_rewinds 2"},
    {TRAIN, "fp32", "max_rewinds 2", "the run does not go back", "on_spike rewind:9 max_rewinds 2 bad_steps 2"},
    {TRAIN, "fp32", "optimizer muon decay_embeddings 0 weight_decay 0.2", "give --matrix_decay",
     "optimizer muon weight_decay 0.2"},
    {TRAIN, "fp32", "matrix_decay 0.2 decay_embeddings 0 weight_decay 0.2", "give --matrix_decay",
     "decay_embeddings 0 weight_decay 0.2"},
    {TRAIN, "fp32", "momentum 0.9", "it is Muon's, and AdamW has --beta1", "optimizer muon momentum 0.9"},
    {TRAIN, "fp32", "momentum_warmup none", "it is Muon's", "optimizer muon momentum_warmup none"},
    {TRAIN, "fp32", "momentum_cooldown 9:0.5", "it is Muon's", "optimizer muon momentum_cooldown 9:0.5"},
    {TRAIN, "fp32", "stochastic_round 1", "weights are not rounded to 16 bits", "stochastic_round 0"},
    {TRAIN, "tf32", "stochastic_round 1", "give --dtype bf16 or fp16", "stochastic_round 0"},
    {EVAL, NULL, "eval_data f val_data g", "in place of validating; validate by another eval", "val_data g"},
    {EVAL, NULL, "text f val_tokens 9", "in place of validating", "val_tokens 9"},
    {EVAL, NULL, "text f data_format nanogpt", "in place of validating", "data_format nanogpt"},
    {TRAIN, "fp32", "eval_every 9", "no test set is scored; give --eval_data FILES", "eval_every 0"},
    {TRAIN, "fp32", "eval_limit 9", "no test set is scored", "eval_data f eval_limit 9"},
    {EVAL, NULL, "text f eval_limit 9", "no test set is scored", "eval_data f text f eval_limit 9"},
    {EVAL, NULL, "eval_rules lm-eval", "no test set is scored", "eval_data f eval_rules lm-eval"},
    {EVAL, NULL, "eval_shots 2", "no test set is scored", "eval_data f eval_shots 2"},
    {EVAL, NULL, "eval_shots 0 eval_examples f", "no test set is scored", "eval_data f eval_shots 1 eval_examples f"},
    {EVAL, NULL, "eval_data f eval_examples f", "give --eval_shots K", "eval_data f eval_shots 1 eval_examples f"},
    {EVAL, NULL, "eval_data f field body", "it is of --text; give --text FILES", "text f field body"},
    {EVAL, NULL, "stride 9", "it is of --text", "text f stride 9"},
    {TRAIN, "fp32", "tokenizer none sample_every 9", "give --sample_every 0, or a tokenizer, or leave it out",
     "tokenizer none sample_every 0"},
    {TRAIN, "fp32", "keep 0 keep_every 9", "--keep 0 keeps all", "keep 1 keep_every 9"},
    {TRAIN, "fp32", "save_every 0 done_file 1", "wait for it for ever", "save_every 1 done_file 1"},
    {TRAIN, "fp32", "out _ done_file 1", "wait for it for ever", "out _ done_file 0"},
    {TRAIN, "fp32", "out _ tensorboard 1", "its files go to --out, which is empty", "tensorboard 1"},
};
enum { NUM_CASES = sizeof CASES / sizeof *CASES };

TEST(options_without_effect_are_refused_and_their_neighbours_are_not) {
    for (int i = 0; i < NUM_CASES; i++) {
        const EffectCase* e = &CASES[i];
        const Config refused = configured(e->refused, FROM_COMMAND_LINE);
        const Config accepted = configured(e->accepted, FROM_COMMAND_LINE);
        expect_refused(&refused, e->command, e->dtype, e->refused, e->words);
        expect_accepted(&accepted, e->command, e->dtype, e->accepted);
    }
}

// Of a preset, a checkpoint or llm.c's letters; a default that is given again; in other commands than training also
// those of a file.
TEST(what_nobody_gave_is_not_refused) {
    for (int i = 0; i < NUM_CASES; i++) {
        const EffectCase* e = &CASES[i];
        Config c = configured(e->refused, FROM_PRESET);
        expect_accepted(&c, e->command, e->dtype, e->refused);
        c = configured(e->refused, FROM_CHECKPOINT);
        expect_accepted(&c, e->command, e->dtype, e->refused);
        c = configured(e->refused, FROM_COMMAND_LINE);
        c.has_letters = true;
        expect_accepted(&c, e->command, e->dtype, e->refused);
        c = configured(e->refused, FROM_FILE);
        if (e->command == TRAIN) { expect_refused(&c, e->command, e->dtype, e->refused, e->words); }
        else { expect_accepted(&c, e->command, e->dtype, e->refused); }
    }
    Config c;
    config_defaults(&c);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        Error err;
        if (o->name) { EXPECT(config_set(&c, o, o->fallback, FROM_COMMAND_LINE, &err)); }
    }
    for (int command = 1; command <= EXPORT; command *= 2) { expect_accepted(&c, command, "fp32", "all defaults"); }
}

// A resumed run has the settings of its checkpoint: what it gives must have an effect beside these.
TEST(options_of_the_checkpoint_count) {
    Config c = configured("schedule wsd optimizer muon", FROM_CHECKPOINT);
    set(&c, "decay_frac 0.4 momentum 0.9", FROM_COMMAND_LINE);
    expect_accepted(&c, TRAIN, "fp32", "beside the checkpoint's options");
    c = configured("save_every 0", FROM_CHECKPOINT);
    set(&c, "done_file 1", FROM_COMMAND_LINE);
    expect_refused(&c, TRAIN, "fp32", "a run without checkpoints", "wait for it for ever");
}

TEST(every_preset_is_accepted) {
    for (int i = 0; preset_name(i); i++) {
        Config c;
        config_defaults(&c);
        set(&c, format("preset %s init folder", preset_name(i)), FROM_COMMAND_LINE);
        preset_apply(&c);
        expect_accepted(&c, TRAIN, "fp32", preset_name(i));
        expect_accepted(&c, INFO, NULL, preset_name(i));
    }
}

TEST_MAIN()
