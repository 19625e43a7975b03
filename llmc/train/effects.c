#include "effects.h"
#include "weights.h"

typedef struct {
    const char* options;         // "option|option"
    int commands;                // in which they have no effect if ...
    bool is_unused;
    const char *reason, *remedy; // remedy: what to give, or NULL
} Effect;

// Returns true if somebody gave another value than the default.
static bool is_given(const Config* c, const Config* defaults, const Option* o, int command) {
    if (config_source(c, o->name) < (command == TRAIN ? FROM_FILE : FROM_COMMAND_LINE)) { return false; }
    char *value = config_value(c, o), *usual = config_value(defaults, o);
    const bool differs = strcmp(value, usual) != 0;
    free(value);
    free(usual);
    return differs;
}

// Fails if one of the rows has an option that was given.
static bool refuse_given(const Effect* rows, size_t count, const Config* c, int command, Error* err) {
    Config defaults;
    config_defaults(&defaults);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || !is_given(c, &defaults, o, command)) { continue; }
        for (size_t k = 0; k < count; k++) {
            const Effect* e = &rows[k];
            if (!(e->commands & command) || !e->is_unused || !is_one_of(o->name, e->options)) { continue; }
            char* value = config_value(c, o);
            fail(err, "--%s %s has no effect: %s; %s%sleave it out", o->name, value, e->reason,
                 e->remedy ? e->remedy : "", e->remedy ? ", or " : "");
            free(value);
            return false;
        }
    }
    return true;
}

bool effects_check(const Config* c, int command, const char* dtype, Error* err) {
    const bool is_muon = !strcmp(c->optimizer, "muon"), has_tests = *c->eval_data, has_texts = *c->text;
    const bool saves = *c->out && c->save_every > 0;
    const Effect rows[] = {
        {"init_out", TRAIN | INFO, init_folder(c), "the initial weights are those of --init",
         "give --init random"},
        {"document_mask", EVAL, has_tests || has_texts, "a test set or a text is scored, and each of its rows is one "
         "document", NULL},
        {"min_lr_frac", TRAIN, !strcmp(c->schedule, "constant"), "with --schedule constant the rate does not fall",
         "give another --schedule"},
        {"decay_frac|decay_shape", TRAIN, strcmp(c->schedule, "wsd"), "it is of --schedule wsd", "give that"},
        {"bad_steps", TRAIN, !strcmp(c->on_spike, "skip"), "--on_spike skip goes on after any number of such steps",
         "give --on_spike stop or rewind:N"},
        {"max_rewinds", TRAIN, is_one_of(c->on_spike, "skip|stop"), "the run does not go back",
         "give --on_spike rewind:N"},
        {"weight_decay", TRAIN, !c->decay_embeddings && (is_muon || c->matrix_decay >= 0),
         "the embeddings do not decay, and the matrices have a decay of their own", "give --matrix_decay"},
        {"momentum|momentum_warmup|momentum_cooldown", TRAIN, !is_muon,
         "it is Muon's, and AdamW has --beta1 and --beta2", "give --optimizer muon"},
        {"stochastic_round", TRAIN, dtype && is_one_of(dtype, "fp32|tf32"), "weights are not rounded to 16 bits",
         "give --dtype bf16 or fp16"},
        {"val_data|val_tokens|data_format", EVAL, has_tests || has_texts,
         "--eval_data or --text is scored in place of validating", "validate by another eval"},
        {"eval_every", TRAIN, !has_tests && c->eval_every > 0, "no test set is scored", "give --eval_data FILES"},
        {"eval_limit|eval_rules|eval_shots|eval_examples", TRAIN | EVAL, !has_tests, "no test set is scored",
         "give --eval_data FILES"},
        {"eval_examples", TRAIN | EVAL, c->eval_shots == 0, "items have no examples in front", "give --eval_shots K"},
        {"field|stride", EVAL, !has_texts, "it is of --text", "give --text FILES"},
        {"sample_every", TRAIN, c->sample_every > 0 && !strcmp(c->tokenizer, "none"),
         "samples need a tokenizer, and --tokenizer is none", "give --sample_every 0, or a tokenizer"},
        {"keep_every", TRAIN, c->keep == 0, "--keep 0 keeps all checkpoints", "give --keep N"},
        {"done_file", TRAIN, !saves, "it is left after the last checkpoint, and --save_every 0 or an empty --out asks "
         "for none; a script would wait for it for ever", "give both"},
        {"tensorboard", TRAIN, !*c->out, "its files go to --out, which is empty", "give --out FOLDER"},
    };
    return c->has_letters || refuse_given(rows, sizeof rows / sizeof *rows, c, command, err);
}
