#include "config.h"
#include "../base/json.h"
#include <ctype.h>

#define OPTION_STRUCT Config
const Option CONFIG_OPTIONS[NUM_ROWS] = {OPTION_ROWS(CONFIG)};

// Names of nanoGPT (train.py, sample.py), of llm.c (train_gpt2.py), of Hugging Face's Trainer, and of earlier versions.
static const OptionAlias ALIASES[] = {
    {"num_samples", "samples", NULL},
    {"num_return_sequences", "samples", NULL},
    {"max_new_tokens", "sample_tokens", NULL},
    {"block_size", "seq_len", NULL},
    {"sequence_length", "seq_len", NULL},
    {"max_seq_length", "seq_len", NULL},
    {"max_seq_len", "seq_len", NULL},
    {"learning_rate", "lr", NULL},
    {"min_lr", "min_lr_frac", "a fraction of --lr"},
    {"learning_rate_decay_frac", "min_lr_frac", NULL},
    {"max_iters", "max_steps", NULL},
    {"num_iterations", "max_steps", NULL},
    {"num_train_epochs", "max_steps", "-1: one epoch"},
    {"num_epochs", "max_steps", "-1: one epoch"},
    {"epochs", "max_steps", "-1: one epoch"},
    {"lr_decay_iters", "max_steps", "the learning rate decays until the last step"},
    {"decay_lr", "schedule", "constant: no decay"},
    {"lr_scheduler_type", "schedule", NULL},
    {"warmup_iters", "warmup_steps", NULL},
    {"warmup_ratio", "warmup_steps", "counted in steps"},
    {"adam_beta1", "beta1", NULL},
    {"adam_beta2", "beta2", NULL},
    {"adam_epsilon", "eps", NULL},
    {"max_grad_norm", "grad_clip", NULL},
    {"init_scale", "loss_scale", "dynamic:START"},
    {"initial_loss_scale", "loss_scale", "dynamic:START"},
    {"per_device_train_batch_size", "batch_size", NULL},
    {"per_device_eval_batch_size", "batch_size", NULL},
    {"gradient_accumulation_steps", "total_batch_size", "tokens of a step: B*T * processes * accumulation steps"},
    {"n_layer", "model", "L of L=12,H=12,C=768,T=1024"},
    {"n_head", "model", "H of L=12,H=12,C=768,T=1024"},
    {"n_embd", "model", "C of L=12,H=12,C=768,T=1024"},
    {"vocab_size", "model", "V of L=12,H=12,C=768,T=1024,V=50257"},
    {"init_from", "init", "a folder; to continue a run: --resume auto"},
    {"model_name_or_path", "init", NULL},
    {"resume_from_checkpoint", "resume", NULL},
    {"out_dir", "out", NULL},
    {"output_dir", "out", NULL},
    {"output", "out", NULL},
    {"dataset", "train_data", NULL},
    {"train_file", "train_data", NULL},
    {"input_bin", "train_data", NULL},
    {"validation_file", "val_data", NULL},
    {"input_val_bin", "val_data", NULL},
    {"eval_interval", "val_every", NULL},
    {"eval_steps", "val_every", NULL},
    {"val_loss_every", "val_every", NULL},
    {"eval_iters", "val_tokens", "counted in tokens"},
    {"val_max_steps", "val_tokens", "counted in tokens"},
    {"tasks", "eval_data", "the files of test sets"},
    {"hellaswag", "eval_data", "the file of a test set"},
    {"limit", "eval_limit", NULL},
    {"start", "prompt", NULL},
    {"save_steps", "save_every", NULL},
    {"save_interval", "save_every", NULL},
    {"checkpoint_every", "save_every", NULL},
    {"save_total_limit", "keep", NULL},
    {"overfit_single_batch", "overfit", NULL},
    {"gradient_checkpointing", "recompute", "none, gelu or all"},
    {"compile", "graph", NULL},
    {"torch_compile", "graph", NULL},
    {"tensorcores", "dtype", "tf32"},
    {"tf32", "dtype", "tf32"},
    {"bf16", "dtype", "bf16"},
    {"fp16", "dtype", "fp16"},
    {"zero_stage", "zero", NULL},
    {"num_gpus", "gpus", NULL},
    {"nproc_per_node", "gpus", NULL},
    {"wandb", "tensorboard", NULL},
    {"wandb_log", "tensorboard", NULL},
    {"report_to", "tensorboard", NULL},
    {"bias", NULL, "GPT-2 has biases"},
    {"dropout", NULL, "GPT-2 is trained without it here, on purpose; on small data stop early (dev/small_data.md)"},
    {"eval_only", NULL, "the command eval prints the validation loss"},
    {"growth_interval", NULL, "a dynamic --loss_scale doubles after 2000 steps without overflow"},
    {"histogram_every", NULL, "--tensorboard 1 writes scalars and samples; a checkpoint's weights are in safetensors"},
    {"link", NULL, "python3 dev/bench/predict.py GPU --gpus N --link GB/S predicts several GPUs"},
    {"llmc", NULL, "run python3 dev/bench/peers.py"},
    {"loss_scale_every", NULL, "a dynamic --loss_scale doubles after 2000 steps without overflow"},
    {"loss_scale_window", NULL, "a dynamic --loss_scale doubles after 2000 steps without overflow"},
    {"python", NULL, "run python3 dev/bench/peers.py"},
    {"ramp_lr", NULL, "with --batch_ramp the learning rate follows --schedule alone"},
    {"save_async", NULL, "checkpoints are written while training goes on, if memory has room for a copy"},
    {"save_retries", NULL, "a save that fails is tried again three times"},
    {"tui", NULL, "a terminal shows a bar; OUT/report.html has the curves, nvidia-smi the state of a GPU"},
    {"step_ms", NULL, "python3 dev/bench/predict.py GPU --gpus N predicts several GPUs"},
    {"tune_cache", "tune", "anew: without what earlier starts measured; XDG_CACHE_HOME moves their folder"},
    {"update_ms", NULL, "python3 dev/bench/predict.py GPU --gpus N predicts several GPUs"},
    {"wpe_std", NULL, "position embeddings begin with a standard deviation of 0.02; --init takes other weights"},
};

const OptionTable CONFIG_TABLE = {.rows = CONFIG_OPTIONS, .num_rows = NUM_ROWS, .aliases = ALIASES,
                                  .num_aliases = sizeof ALIASES / sizeof *ALIASES};

const Command COMMANDS[NUM_COMMANDS] = {
    {"train", TRAIN, "train a model (the default)"},
    {"generate", GENERATE, "continue prompts by a checkpoint"},
    {"eval", EVAL, "print the validation loss of a checkpoint, or its score on the test sets of --eval_data"},
    {"tokenize", TOKENIZE, "turn text on standard input into token ids, or back with --decode"},
    {"info", INFO, "print a model's tensors, memory and largest batch on GPUs of 8 to 80 GB (--model all: of GPT-2's "
                   "sizes); or check whole token files; info FOLDER: sum up a run and verify its checkpoints; "
                   "info FILE: describe and verify a file of weights"},
    {"check", CHECK, "compare every kernel and ten training steps with the CPU's, in the shapes and precision given"},
    {"bench", BENCH, "bench ladder: what each technique brings on this machine; bench ops: each operation beside its "
                     "limit; bench step: the operations of a step, listed; bench plans: the algorithms of each matmul "
                     "on a GPU; bench comm: collectives"},
    {"export", EXPORT, "write the weights of --init for other programs to --out: export hf (a Hugging Face folder), "
                       "llmc (llm.c's model.bin) or gguf (llama.cpp)"},
    {"report", REPORT, "write an HTML page about one or several runs: report FOLDER..."},
};

// ---------------------------------------------------------------------------------------------------------------------
// names

// Names that other programs have for a command.
static const struct {
    const char *alias, *name;
} COMMAND_ALIASES[] = {{"sample", "generate"}, {"help", "--help"}, {"version", "--version"}, {"test", "check"},
                       {"finetune", "train, with --init"}, {"prepare", "./prepare, another program"}};

const Command* command_find(const char* name) {
    const Command* nearest = NULL;
    int least = INT32_MAX, distance;
    for (int i = 0; i < NUM_COMMANDS; i++) {
        if (!strcmp(COMMANDS[i].name, name)) { return &COMMANDS[i]; }
        if (!is_near_name(name, COMMANDS[i].name, &distance) || distance >= least) { continue; }
        least = distance;
        nearest = &COMMANDS[i];
    }
    for (size_t i = 0; i < sizeof COMMAND_ALIASES / sizeof *COMMAND_ALIASES; i++) {
        if (strcmp(COMMAND_ALIASES[i].alias, name)) { continue; }
        usage_error("no command '%s'; here it is %s", name, COMMAND_ALIASES[i].name);
    }
    if (!nearest) { usage_error("no command '%s'; --help lists the commands", name); }
    usage_error("no command '%s'; did you mean %s? (see --help)", name, nearest->name);
}

const Option* config_find(const char* name) { return option_find(&CONFIG_TABLE, name); }

int config_index(const Option* option) {
    int index = 0;
    for (const Option* o = CONFIG_OPTIONS; o < option; o++) { index += o->name != NULL; }
    return index;
}

Source config_source(const Config* c, const char* name) {
    return (Source)c->source[config_index(config_find(name))];
}

// ---------------------------------------------------------------------------------------------------------------------
// values

// --kernels named attention's implementation and the CPU's instructions too, before these had options of their own.
// Returns the option that such a value belongs to now; NULL for any other value.
static const char* moved_from_kernels(const char* value) {
    if (is_one_of(value, "flash|cudnn")) { return "attention"; }
    return is_one_of(value, "generic|avx2|avx512|avx512_bf16|amx") ? "cpu" : NULL;
}

// Replaces the error about a value by one that says what to give instead, if that is known. Returns false.
static bool advise(const Option* o, const char* value, Error* err) {
    const char* moved = strcmp(o->name, "kernels") ? NULL : moved_from_kernels(value);
    if (moved) { return fail(err, "takes %s, not '%s'; give --%s %s", o->choices, value, moved, value); }
    if (!strcmp(o->name, "device") && isalpha((unsigned char)*value)) {
        return fail(err, "takes the number of a GPU, not '%s'; train_gpt2 computes on the CPU, train_gpt2cu on a GPU",
                    value);
    }
    return false;
}

bool config_set(Config* c, const Option* o, const char* value, Source source, Error* err) {
    unsigned char* from = &c->source[config_index(o)];
    union { long long i; double r; int f; Text t; } ignored;
    const bool is_overridden = (int)*from > (int)source;
    void* field = is_overridden ? (void*)&ignored : (char*)c + o->offset;
    if (!option_parse(o, value, field, err)) { return advise(o, value, err); }
    if (is_overridden) { return true; }
    *from = (unsigned char)source;
    if (o->type == TYPE_TEXT) { *(Text*)field = format("%s", value); }
    return true;
}

char* config_value(const Config* c, const Option* o) { return option_value(o, c); }

void config_defaults(Config* c) {
    memset(c, 0, sizeof *c);
    options_set_defaults(&CONFIG_TABLE, c);
}

json_t* config_to_json(const Config* c) {
    json_t* object = json_object();
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name) { continue; }
        const void* field = (const char*)c + o->offset;
        json_t* value = o->type == TYPE_INT    ? json_integer(*(const long long*)field)
                        : o->type == TYPE_FLAG ? json_boolean(*(const int*)field)
                        : option_is_word(o, field) ? json_string(o->word)
                        : o->type == TYPE_REAL ? json_real(*(const double*)field)
                                               : json_string(*(const Text*)field);
        json_object_set_new(object, o->name, value ? value : json_string(""));
    }
    return object;
}

// Returns a JSON value as it would be given on the command line; the caller frees it.
static char* text_of_json(const json_t* value) {
    char number[32];
    if (json_is_integer(value)) { return format("%lld", (long long)json_integer_value(value)); }
    if (json_is_real(value)) { return format("%s", double_text(number, json_real_value(value))); }
    if (json_is_string(value)) { return format("%s", json_string_value(value)); }
    return format("%d", json_is_true(value));
}

static bool set_from_json(Config* c, const char* name, const char* value, Error* err) {
    const Option* o = config_find(name);
    const char* moved = o && !strcmp(name, "kernels") ? moved_from_kernels(value) : NULL;
    if (!o) { return true; } // of another version of the program
    if (!moved) { return config_set(c, o, value, FROM_CHECKPOINT, err); }
    return config_set(c, o, "fast", FROM_CHECKPOINT, err) &&
           config_set(c, config_find(moved), value, FROM_CHECKPOINT, err);
}

bool config_from_json(Config* c, json_t* object, const char* where, Error* err) {
    const char* name;
    json_t* value;
    json_object_foreach(object, name, value) {
        Error why;
        char* text = text_of_json(value);
        const bool ok = set_from_json(c, name, text, &why);
        free(text);
        if (!ok) { return fail(err, "%s: option %s %s", where, name, why.text); }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command line

void config_help(const char* program, int command) {
    printf("usage: %s [COMMAND] [--option value ...]\n\ncommands:\n", program);
    for (int i = 0; i < NUM_COMMANDS; i++) { printf("  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].help); }
    options_print_help(&CONFIG_TABLE, command);
    printf("\nA flag is switched by --name, or --name 0|1. `%s COMMAND --help` lists the options of a command. "
           "Exit codes:\n"
           "0 done, or stopped on request after saving; 1 run-time error; 2 usage; 3 check failed;\n"
           "4 non-finite loss, or a spike; 5 a device that computes wrongly.\n"
           "Single letters are llm.c's: %s -e d12 -i 'train*.bin' -j 'val*.bin' -b 4 -t 1024 -d 524288 ...\n", program,
           program);
}

// Reads lines of `name value`; # begins a comment.
static void config_read_file(Config* c, const char* path) {
    Error err;
    char* text = read_file(path, NULL, &err);
    if (!text) { usage_error("--config %s", err.text); }
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        number++;
        next = strchr(line, '\n');
        if (next) { *next++ = 0; }
        char* name = line + strspn(line, " \t\r");
        if (*name == '#' || *name == 0) { continue; }
        char* value = name + strcspn(name, " \t\r");
        if (*value) { *value++ = 0; }
        value += strspn(value, " \t\r");
        for (size_t n = strlen(value); n > 0 && strchr(" \t\r", value[n - 1]); n--) { value[n - 1] = 0; }
        const Option* o = config_find(name);
        if (!o) { usage_error("%s:%d: %s", path, number, option_unknown(&CONFIG_TABLE, name, "'", "'")); }
        if (!config_set(c, o, value, FROM_FILE, &err)) { usage_error("%s:%d: %s %s", path, number, name, err.text); }
    }
    free(text);
}

void config_parse(Config* c, int command, const char* command_name, int argc, char** argv) {
    OptionReader reader = {.table = &CONFIG_TABLE, .command = command, .command_name = command_name,
                           .words = command & (INFO | REPORT | BENCH | EXPORT) ? WORDS_TAKEN : WORDS_REFUSED,
                           .argc = argc, .argv = argv};
    const Option* o;
    const char* value;
    Error err;
    c->args = alloc_or_die((size_t)argc + 1, sizeof *c->args, "the command line");
    while (options_next(&reader, &o, &value)) {
        if (!o) {
            c->args[c->num_args++] = (char*)value;
        } else if (!config_set(c, o, value, FROM_COMMAND_LINE, &err)) {
            usage_error("--%s %s", o->name, err.text);
        }
    }
    if (*c->config) { config_read_file(c, c->config); }
}
