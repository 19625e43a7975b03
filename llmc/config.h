// Every option of the programs, once. The parser, --help, the logged configuration and what a checkpoint remembers all
// follow from the list CONFIG.
//
// An option has a value and the place the value came from. A later place overrides an earlier one, in whatever order they
// are read: default < preset < checkpoint being resumed < --config file < command line.
#pragma once
#include "base.h"
#include <jansson.h>

typedef enum { FROM_DEFAULT, FROM_PRESET, FROM_CHECKPOINT, FROM_FILE, FROM_COMMAND_LINE } Source;

// Which commands an option belongs to.
enum {
    TRAIN = 1, GENERATE = 2, EVAL = 4, TOKENIZE = 8, INFO = 16, REPORT = 32,
    CHECK = 64, BENCH = 128,
    MODEL_COMMANDS = TRAIN | GENERATE | EVAL | INFO | CHECK | BENCH, SHAPE_COMMANDS = TRAIN | INFO | CHECK | BENCH
};

#define BILLION 1000000000.0
#define HUGE_COUNT 1e15

// GROUP(title)  INT(name, default, least, greatest, word, commands, help)  REAL(name, default, least, greatest, ...)
// FLAG(name, default, ...)  TEXT(name, default, ...)  CHOICE(name, default, choices, ...)
// `word` may be given in place of a number, and is stored as 0.
#define CONFIG(GROUP, INT, REAL, FLAG, TEXT, CHOICE)                                                                        \
    GROUP("model")                                                                                                          \
    TEXT(model, "d12", MODEL_COMMANDS, "d12|d24|d36|d48, gpt2|gpt2-medium|gpt2-large|gpt2-xl, gpt3:125m..13b, or L=6,H=6,C=384,T=256[,V=50257]") \
    TEXT(init, "random", MODEL_COMMANDS, "initial weights: random, or a Hugging Face folder or checkpoint (the model is then read from it)") \
    REAL(wpe_std, 0.02, 0, 10, TRAIN | INFO, "standard deviation of the initial position embedding (OpenAI's code has 0.01)") \
    INT(seed, 1337, 0, HUGE_COUNT, NULL, SHAPE_COMMANDS | GENERATE, "of the initial weights, of the order of the data and of samples") \
    TEXT(tokenizer, "gpt2", TRAIN | GENERATE | EVAL | TOKENIZE, "gpt2 (built in), bytes, or a tokenizer file")              \
    TEXT(preset, "", TRAIN | INFO, "published settings by name: gpt2:124m..1558m, gpt3:125m..13b")                                 \
    GROUP("data")                                                                                                           \
    TEXT(train_data, "data/stories_train_*.bin", TRAIN | INFO | BENCH, "token shards to train on (glob)")                           \
    TEXT(val_data, "data/stories_val_*.bin", TRAIN | EVAL | INFO, "token shards to validate on (glob); empty: none")        \
    INT(batch_size, 4, 1, 1e6, "auto", SHAPE_COMMANDS | EVAL, "sequences in a micro-batch, B; auto: the largest that fits")   \
    INT(seq_len, 0, 1, 1e6, "model", SHAPE_COMMANDS | EVAL, "tokens in a sequence, T; model: the model's own")                \
    INT(total_batch_size, 0, 1, HUGE_COUNT, "B*T", TRAIN | INFO | BENCH, "tokens in an optimizer step, over all micro-batches")     \
    TEXT(batch_ramp, "", TRAIN | INFO, "START:TOKENS: begin with START tokens a step and double to the total batch over TOKENS tokens") \
    FLAG(shuffle, 1, TRAIN, "visit the windows of the data in random order, each once an epoch")                            \
    FLAG(overfit, 0, TRAIN, "train on the first batch for ever")                                                            \
    GROUP("schedule")                                                                                                       \
    INT(max_steps, -1, -1, HUGE_COUNT, NULL, TRAIN | BENCH | CHECK, "optimizer steps (with --batch_ramp: the tokens of so many full ones); -1: one epoch")                                       \
    REAL(lr, 3e-4, 0, 1e3, TRAIN, "peak learning rate")                                                                     \
    REAL(min_lr_frac, 0.1, 0, 1, TRAIN, "learning rate at the end, as a part of the peak")                                  \
    INT(warmup_steps, 0, 0, HUGE_COUNT, NULL, TRAIN, "steps of linear warm-up")                                             \
    CHOICE(schedule, "cosine", "cosine|linear|constant|wsd", TRAIN, "of the learning rate after the warm-up")               \
    REAL(weight_decay, 0.1, 0, 1e3, TRAIN, "decoupled decay, of matrices only")                                             \
    REAL(beta1, 0.9, 0, 0.999999, TRAIN, "AdamW")                                                                           \
    REAL(beta2, 0.95, 0, 0.999999, TRAIN, "AdamW")                                                                          \
    REAL(eps, 1e-8, 1e-30, 1, TRAIN, "AdamW")                                                                               \
    REAL(grad_clip, 1.0, 0, 1e9, TRAIN, "largest global norm of the gradient; 0: do not clip")                              \
    REAL(skip_loss_z, 0, 0, 1e9, TRAIN, "skip the update when the loss is this many standard deviations high; 0: never")    \
    REAL(skip_norm_z, 0, 0, 1e9, TRAIN, "the same for the gradient's norm")                                                 \
    GROUP("speed")                                                                                                          \
    CHOICE(dtype, "auto", "auto|fp32|tf32|bf16|fp8", MODEL_COMMANDS, "precision of activations, weights and matmuls; fp8: bf16, with the blocks' matmuls in 8 bits (GPUs from Ada on); auto: bf16 on a GPU, fp32 on a CPU") \
    CHOICE(kernels, "fast", "fast|plain|flash|cudnn|generic|avx2|avx512|avx512_bf16|amx", MODEL_COMMANDS, "plain: the readable ones that the fast are tested against; by name: whose attention on a GPU, or the fast ones for those instructions of a CPU") \
    FLAG(fused, 1, MODEL_COMMANDS, "bias and GELU inside the matmuls, addition and layernorm in one pass")                                  \
    FLAG(flash, 1, MODEL_COMMANDS, "attention in tiles, as FlashAttention")                                             \
    FLAG(pad_vocab, 1, MODEL_COMMANDS, "round the vocabulary up to a multiple of 128 in memory (50257 -> 50304)")           \
    FLAG(graph, 1, TRAIN | CHECK | BENCH, "on a GPU: record a micro-step and an update as CUDA graphs and replay them")     \
    CHOICE(recompute, "none", "none|gelu|all", SHAPE_COMMANDS, "what backward computes again to save memory: GELUs, or all but each block's input") \
    FLAG(stochastic_round, 0, TRAIN, "round updated weights to bf16 at random, by how near they are, instead of to the nearest (with --zero 1 the numbers depend on the processes)") \
    INT(threads, 0, 1, 4096, "all", MODEL_COMMANDS, "CPU threads; all: OpenMP's choice")                                    \
    INT(device, 0, 0, 1023, NULL, MODEL_COMMANDS, "which of the GPUs that this process can see")                            \
    GROUP("processes")                                                                                                      \
    INT(gpus, 1, 1, 1024, NULL, TRAIN | EVAL | INFO | BENCH, "start so many processes on this machine, one for each GPU, without mpirun")  \
    CHOICE(zero, "0", "0|1", TRAIN | INFO, "1: each process keeps a share of master weights and moments (ZeRO-1), not all of them") \
    REAL(connect_timeout, 300, 0.1, 1e6, TRAIN | EVAL | BENCH, "seconds to wait for the other processes at the start")              \
    REAL(comm_timeout, 120, 0.1, 1e6, TRAIN | EVAL | BENCH, "seconds of silence after which another process is given up, and the run ended") \
    GROUP("watch")                                                                                                          \
    INT(val_every, 250, 0, HUGE_COUNT, NULL, TRAIN, "steps between validations; 0: never")                                  \
    INT(val_tokens, 1048576, -1, HUGE_COUNT, NULL, TRAIN | EVAL, "tokens to validate on; -1: all (eval's default)")         \
    INT(sample_every, 250, 0, HUGE_COUNT, NULL, TRAIN, "steps between samples; 0: never")                                   \
    INT(sample_tokens, 64, 1, 1e9, NULL, TRAIN | GENERATE, "tokens to generate")                                            \
    TEXT(prompt, "", TRAIN | GENERATE, "what generated text goes on from; empty: the start of a document")                  \
    REAL(temperature, 1.0, 0, 100, TRAIN | GENERATE, "of sampling; 0: always the likeliest token")                          \
    INT(top_k, 50, 0, 1e9, NULL, TRAIN | GENERATE, "sample among the k likeliest tokens; 0: all")                           \
    REAL(top_p, 1.0, 0, 1, TRAIN | GENERATE, "sample among the likeliest tokens that hold this much probability")           \
    INT(save_every, 1000, 0, HUGE_COUNT, NULL, TRAIN, "steps between checkpoints (and one after the last step); 0: none")   \
    INT(keep, 3, 0, 1e9, NULL, TRAIN, "newest checkpoints kept; 0: all")                                                    \
    TEXT(resume, "", TRAIN, "auto: go on from the newest checkpoint in --out; or the path of a checkpoint")                 \
    TEXT(out, "run", TRAIN | GENERATE | EVAL | REPORT | BENCH, "folder of checkpoints, logs and the report; empty: write nothing")  \
    REAL(price, 0, 0, 1e9, TRAIN | BENCH, "of this machine per hour, to print the cost of the run (bench scale: of a GPU)")                                 \
    GROUP("bench scale")                                                                                                    \
    TEXT(link, "", BENCH, "what connects the GPUs, if not measured: 300GB/s:5us, or 8x300GB/s:5us,50GB/s:15us: 8 in a machine, then between machines") \
    REAL(step_ms, 0, 0, 1e9, BENCH, "time of a step of --total_batch_size tokens on one GPU, if not measured")              \
    REAL(update_ms, 0, 0, 1e9, BENCH, "the part of --step_ms that the update takes")                                        \
    GROUP("other")                                                                                                          \
    FLAG(decode, 0, TOKENIZE, "turn token ids back into text")                                                              \
    TEXT(config, "", TRAIN | GENERATE | EVAL | INFO, "file of `name value` lines; the command line overrides it")

typedef const char* Text;

#define CONFIG_NO_GROUP(title)
#define CONFIG_INT_FIELD(name, ...) long long name;
#define CONFIG_REAL_FIELD(name, ...) double name;
#define CONFIG_FLAG_FIELD(name, ...) int name;
#define CONFIG_TEXT_FIELD(name, ...) Text name;
#define CONFIG_COUNT_NONE(title)
#define CONFIG_COUNT(name, ...) + 1
enum { NUM_OPTIONS = 0 CONFIG(CONFIG_COUNT_NONE, CONFIG_COUNT, CONFIG_COUNT, CONFIG_COUNT, CONFIG_COUNT, CONFIG_COUNT) };

typedef struct {
    CONFIG(CONFIG_NO_GROUP, CONFIG_INT_FIELD, CONFIG_REAL_FIELD, CONFIG_FLAG_FIELD, CONFIG_TEXT_FIELD, CONFIG_TEXT_FIELD)
    unsigned char source[NUM_OPTIONS]; // a Source for each option, in the order of the list
    int num_args;                      // what stands on the command line without a name: report's folders
    char** args;
} Config;

typedef enum { TYPE_INT, TYPE_REAL, TYPE_FLAG, TYPE_TEXT } OptionType;
typedef struct {
    const char *group, *name; // a row with a group is a heading and nothing else
    OptionType type;
    size_t offset;
    double least, greatest;
    const char *word, *choices;
    const char* fallback; // the default, as it would be given
    int commands;
    const char* help;
} Option;

#define OPTION_GROUP(title) {title, NULL, TYPE_INT, 0, 0, 0, NULL, NULL, NULL, ~0, NULL},
#define OPTION_INT(name, def, least, greatest, word, commands, help) \
    {NULL, #name, TYPE_INT, offsetof(Config, name), least, greatest, word, NULL, #def, commands, help},
#define OPTION_REAL(name, def, least, greatest, commands, help) \
    {NULL, #name, TYPE_REAL, offsetof(Config, name), least, greatest, NULL, NULL, #def, commands, help},
#define OPTION_FLAG(name, def, commands, help) \
    {NULL, #name, TYPE_FLAG, offsetof(Config, name), 0, 1, NULL, NULL, #def, commands, help},
#define OPTION_TEXT(name, def, commands, help) \
    {NULL, #name, TYPE_TEXT, offsetof(Config, name), 0, 0, NULL, NULL, def, commands, help},
#define OPTION_CHOICE(name, def, choices, commands, help) \
    {NULL, #name, TYPE_TEXT, offsetof(Config, name), 0, 0, NULL, choices, def, commands, help},
static const Option CONFIG_OPTIONS[] = {
    CONFIG(OPTION_GROUP, OPTION_INT, OPTION_REAL, OPTION_FLAG, OPTION_TEXT, OPTION_CHOICE)
};
enum { NUM_ROWS = sizeof CONFIG_OPTIONS / sizeof *CONFIG_OPTIONS };

typedef struct {
    const char* name;
    int bit;
    const char* help;
} Command;
static const Command COMMANDS[] = {
    {"train", TRAIN, "train a model (the default)"},
    {"generate", GENERATE, "print text that a checkpoint goes on with"},
    {"eval", EVAL, "the validation loss of a checkpoint"},
    {"tokenize", TOKENIZE, "text on standard input to token ids, or back with --decode"},
    {"info", INFO, "a model's tensors, memory and largest batch on GPUs of 8 to 80 GB (--model all: of GPT-2's sizes); and check whole token files"},
    {"check", CHECK, "every kernel and ten training steps against the CPU's, in the shapes and precision given"},
    {"bench", BENCH, "bench ladder: what each technique brings on this machine; bench ops: each operation beside its limit; bench predict GPU: a step there, computed; bench comm: sums over processes; bench scale: a step on many GPUs, foretold"},
    {"report", REPORT, "an HTML page of one or several runs: report FOLDER..."},
};
enum { NUM_COMMANDS = sizeof COMMANDS / sizeof *COMMANDS };

// ---------------------------------------------------------------------------------------------------------------------
// names

// Edits (insert, delete, replace, swap of neighbours) from a to b.
static inline int edit_distance(const char* a, const char* b) {
    enum { LONGEST = 32 };
    int d[LONGEST + 1][LONGEST + 1];
    const int n = (int)min_size(strlen(a), LONGEST), m = (int)min_size(strlen(b), LONGEST);
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) { d[i][j] = i + j; continue; }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) { best = d[i - 1][j] + 1; }
            if (d[i][j - 1] + 1 < best) { best = d[i][j - 1] + 1; }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

// The option of this name; NULL if there is none.
static inline const Option* config_find(const char* name) {
    for (int i = 0; i < NUM_ROWS; i++) {
        if (CONFIG_OPTIONS[i].name && !strcmp(CONFIG_OPTIONS[i].name, name)) { return &CONFIG_OPTIONS[i]; }
    }
    return NULL;
}

// The option or command whose name is nearest to one that does not exist.
static inline const char* config_nearest(const char* name, bool commands) {
    const char* best = "--help";
    int least = 1 << 20;
    for (int i = 0; i < (commands ? (int)NUM_COMMANDS : (int)NUM_ROWS); i++) {
        const char* other = commands ? COMMANDS[i].name : CONFIG_OPTIONS[i].name;
        int d = other ? edit_distance(name, other) : least;
        if (other && strlen(name) > 2 && !strncmp(other, name, strlen(name))) { d = 0; } // an abbreviation
        if (d < least) { least = d; best = other; }
    }
    return best;
}

// The option's place in Config.source.
static inline int config_index(const Option* option) {
    int index = 0;
    for (const Option* o = CONFIG_OPTIONS; o < option; o++) { index += o->name != NULL; }
    return index;
}

// Where the value of an option came from.
static inline Source config_source(const Config* c, const char* name) {
    return (Source)c->source[config_index(config_find(name))];
}

// ---------------------------------------------------------------------------------------------------------------------
// values

static inline bool is_one_of(const char* value, const char* choices) {
    const size_t n = strcspn(value, "|");
    for (const char* c = value[n] ? NULL : choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
        if (n > 0 && !strncmp(c, value, n) && (c[n] == 0 || c[n] == '|')) { return true; }
    }
    return false;
}

// Reads a value into `field` (of the option's type). What is wrong is said without naming the option: the caller does.
static inline bool option_parse(const Option* o, const char* value, void* field, Error* err) {
    char* end = NULL;
    errno = 0;
    if (o->type == TYPE_TEXT) {
        uint32_t ignored;
        for (const char *at = value, *stop = value + strlen(value); at < stop;) { // it will stand in JSON files
            const size_t n = utf8_decode(at, stop, &ignored);
            if (n == 0) { return fail(err, "takes UTF-8 text; byte %zu is not", (size_t)(at - value)); }
            at += n;
        }
        if (!strcmp(value, "fp16") && is_one_of("bf16", o->choices ? o->choices : "")) {
            return fail(err, "fp16 is not supported: its 5 bits of exponent need a loss scaler; give bf16, whose range is fp32's");
        }
        if (o->choices && !is_one_of(value, o->choices)) { return fail(err, "takes %s, not '%s'", o->choices, value); }
        Text copy = format("%s", value);
        memcpy(field, &copy, sizeof copy);
    } else if (o->type == TYPE_FLAG) {
        if (strcmp(value, "0") && strcmp(value, "1")) { return fail(err, "takes 0 or 1, not '%s'", value); }
        *(int*)field = value[0] == '1';
    } else if (o->type == TYPE_INT) {
        if (o->word && !strcmp(value, o->word)) { *(long long*)field = 0; return true; }
        const long long number = strtoll(value, &end, 10);
        const bool in_word_range = o->word && number == 0; // 0 is how the word is stored and printed back
        if (end == value || *end) { return fail(err, "takes a whole number%s%s, not '%s'", o->word ? " or " : "", o->word ? o->word : "", value); }
        if (errno || (!in_word_range && ((double)number < o->least || (double)number > o->greatest))) {
            return fail(err, "takes a number from %.15g to %.15g, not %s", o->least, o->greatest, value);
        }
        *(long long*)field = number;
    } else {
        const double number = strtod(value, &end);
        if (end == value || *end) { return fail(err, "takes a number, not '%s'", value); }
        if (!(number >= o->least && number <= o->greatest)) {
            return fail(err, "takes a number from %.15g to %.15g, not %s", o->least, o->greatest, value);
        }
        *(double*)field = number;
    }
    return true;
}

// Sets an option unless a place that overrides `source` has set it already.
static inline bool config_set(Config* c, const Option* o, const char* value, Source source, Error* err) {
    unsigned char* from = &c->source[config_index(o)];
    union { long long i; double r; int f; Text t; } ignored;
    if ((int)*from > (int)source) { return option_parse(o, value, &ignored, err); }
    *from = (unsigned char)source;
    return option_parse(o, value, (char*)c + o->offset, err);
}

// The value of an option as text that option_parse reads back; the caller frees it.
static inline char* config_value(const Config* c, const Option* o) {
    const void* field = (const char*)c + o->offset;
    switch (o->type) {
    case TYPE_INT: return format("%lld", *(const long long*)field);
    case TYPE_FLAG: return format("%d", *(const int*)field);
    case TYPE_TEXT: return format("%s", *(const Text*)field);
    default: break;
    }
    char* text = NULL; // the shortest form that reads back as the same number
    for (int digits = 6; digits <= 17; digits++) {
        free(text);
        text = format("%.*g", digits, *(const double*)field);
        if (strtod(text, NULL) == *(const double*)field) { break; }
    }
    return text;
}

static inline void config_defaults(Config* c) {
    Error err;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name && !config_set(c, o, o->fallback, FROM_DEFAULT, &err)) { fatal("default of --%s %s", o->name, err.text); }
    }
}

// Every option and its value; new reference.
static inline json_t* config_to_json(const Config* c) {
    json_t* object = json_object();
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name) { continue; }
        const void* field = (const char*)c + o->offset;
        json_t* value = o->type == TYPE_INT    ? json_integer(*(const long long*)field)
                        : o->type == TYPE_FLAG ? json_boolean(*(const int*)field)
                        : o->type == TYPE_REAL ? json_real(*(const double*)field)
                                               : json_string(*(const Text*)field);
        json_object_set_new(object, o->name, value ? value : json_string(""));
    }
    return object;
}

// Takes the options that a checkpoint remembers; those it does not know keep their value. `where` names it in errors.
static inline bool config_from_json(Config* c, json_t* object, const char* where, Error* err) {
    const char* name;
    json_t* value;
    json_object_foreach(object, name, value) {
        const Option* o = config_find(name);
        if (!o) { continue; } // of another version of the program
        char* text = json_is_integer(value) ? format("%lld", (long long)json_integer_value(value))
                     : json_is_real(value)  ? format("%.17g", json_real_value(value))
                     : json_is_string(value) ? format("%s", json_string_value(value)) : format("%d", json_is_true(value));
        Error why;
        bool ok = config_set(c, o, text, FROM_CHECKPOINT, &why);
        free(text);
        if (!ok) { return fail(err, "%s: option %s %s", where, name, why.text); }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// command line

static inline void config_help(const char* program, int command) {
    printf("usage: %s [COMMAND] [--option value ...]\n\ncommands:\n", program);
    for (int i = 0; i < NUM_COMMANDS; i++) { printf("  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].help); }
    const Option* heading = NULL;
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->group) { heading = o; continue; }
        if (!(o->commands & command)) { continue; }
        if (heading) { printf("\n%s:\n", heading->group); heading = NULL; }
        const char* fallback = o->word && !strcmp(o->fallback, "0") ? o->word : o->fallback;
        printf("  --%-18s %s%s%s (%s)\n", o->name, o->choices ? o->choices : "", o->choices ? ": " : "", o->help,
               *fallback ? fallback : "none");
    }
    printf("\nA flag is switched by --name, or --name 0|1. `%s COMMAND --help` lists the options of a command. Exit codes:\n"
           "0 done, or stopped on request after saving; 1 run-time error; 2 usage; 3 check failed; 4 non-finite loss.\n"
           "Single letters are llm.c's: %s -e d12 -i 'train*.bin' -j 'val*.bin' -b 4 -t 1024 -d 524288 ...\n", program, program);
}

// `name value` lines; # begins a comment.
static inline void config_read_file(Config* c, const char* path) {
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
        if (!o) { usage_error("%s:%d: no option '%s'; did you mean '%s'?", path, number, name, config_nearest(name, false)); }
        if (!config_set(c, o, value, FROM_FILE, &err)) { usage_error("%s:%d: %s %s", path, number, name, err.text); }
    }
    free(text);
}

// Reads `argv` (after the program and the command) into `c`, which config_defaults() has filled.
static inline void config_parse(Config* c, int command, const char* command_name, int argc, char** argv) {
    Error err;
    c->args = (char**)alloc_or_die((size_t)argc + 1, sizeof *c->args, "the command line");
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2)) {
            if (command != REPORT && command != BENCH) { usage_error("'%s' is not an option; options are --name value (see --help)", argv[i]); }
            c->args[c->num_args++] = argv[i];
            continue;
        }
        char* name = format("%s", argv[i] + 2);
        char* value = strchr(name, '=');
        if (value) { *value++ = 0; }
        const Option* o = config_find(name);
        if (!o) { usage_error("no option --%s; did you mean --%s?", name, config_nearest(name, false)); }
        if (!(o->commands & command)) { usage_error("--%s is not an option of %s (see %s --help)", name, command_name, command_name); }
        if (!value && o->type == TYPE_FLAG && (i + 1 == argc || !strncmp(argv[i + 1], "--", 2))) { value = (char*)"1"; }
        if (!value) {
            if (i + 1 == argc) { usage_error("--%s needs a value: %s", name, o->help); }
            value = argv[++i];
        }
        if (!config_set(c, o, value, FROM_COMMAND_LINE, &err)) { usage_error("--%s %s", name, err.text); }
        free(name);
    }
    if (*c->config) { config_read_file(c, c->config); }
}
