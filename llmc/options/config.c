#include "config.h"
#include "../base/file.h"
#include "../base/json.h"

OPTION_NAMES(CONFIG)
#define OPTION_STRUCT Config
const Option CONFIG_OPTIONS[NUM_ROWS] = {OPTION_ROWS(CONFIG)};

// Options of version 2.0, and of other programs, that have no name here.
static const OptionAdvice ADVICE[] = {
    {"adam_epsilon", "AdamW's eps is 1e-8"},
    {"bias", "GPT-2 has biases"},
    {"comm_timeout", "here it is --timeout"},
    {"connect_timeout", "the processes of a run have 300 s to meet, or --timeout if that is more"},
    {"device", "CUDA_VISIBLE_DEVICES chooses the GPU; train_gpt2 computes on the CPU, train_gpt2cu on a GPU"},
    {"dropout", "GPT-2 is trained without it here, on purpose; on small data stop early (dev/small_data.md)"},
    {"eps", "AdamW's eps is 1e-8"},
    {"eval_only", "the command eval prints the validation loss"},
    {"flash", "--attention plain is without tiles"},
    {"growth_interval", "a dynamic --loss_scale doubles after 2000 steps without overflow"},
    {"link", "python3 dev/bench/predict.py GPU --gpus N --link GB/S predicts several GPUs"},
    {"log_interval", "a terminal shows at most 500 step lines, a file all of them; metrics.jsonl has every step"},
    {"logging_steps", "a terminal shows at most 500 step lines, a file all of them; metrics.jsonl has every step"},
    {"loss_scale_window", "a dynamic --loss_scale doubles after 2000 steps without overflow"},
    {"overwrite", "here it is --force"},
    {"price", "the bar has the remaining time; dev/bench/predict.py GPU --price predicts the cost of a run"},
    {"skip_loss_z", "--skip_z LOSS, or LOSS:NORM for --skip_norm_z too"},
    {"skip_norm_z", "--skip_z LOSS:NORM, or 0:NORM for the norm alone"},
    {"step_ms", "python3 dev/bench/predict.py GPU --gpus N predicts several GPUs"},
    {"update_ms", "python3 dev/bench/predict.py GPU --gpus N predicts several GPUs"},
    {"wpe_std", "position embeddings begin with a standard deviation of 0.02; --init takes other weights"},
};

const OptionTable CONFIG_TABLE = {.rows = CONFIG_OPTIONS, .num_rows = NUM_ROWS, .advice = ADVICE,
                                  .num_advice = sizeof ADVICE / sizeof *ADVICE};

const Command COMMANDS[NUM_COMMANDS] = {
    {"train", TRAIN, "", "train a model (the default)"},
    {"generate", GENERATE, "", "continue prompts by a checkpoint"},
    {"eval", EVAL, "", "print the validation loss of a checkpoint, or its score on the test sets of --eval_data"},
    {"tokenize", TOKENIZE, "< FILE ", "turn text on standard input into token ids, or back with --decode"},
    {"info", INFO, "[FOLDER|FILE ...] ",
     "print a model's tensors, memory and largest batch in 8 to 80 GB of it (--model all: of GPT-2's sizes); or check "
     "whole token files; info FOLDER: sum up a run and verify its checkpoints; info FILE: describe and verify a file "
     "of weights"},
    {"check", CHECK, "",
     "compare every kernel and ten training steps with the CPU's, in the shapes and precision given"},
    {"bench", BENCH, "ladder|ops|step|plans|comm ",
     "bench ladder: what each technique brings on this machine; bench ops: each operation beside its limit; bench "
     "step: the operations of a step, listed; bench plans: the algorithms of each matmul on a GPU; bench comm: "
     "collectives"},
    {"export", EXPORT, "hf|llmc|gguf ",
     "write the weights of --init for other programs to --out: export hf (a Hugging Face folder), llmc (llm.c's "
     "model.bin) or gguf (llama.cpp)"},
    {"report", REPORT, "FOLDER... ", "write an HTML page about one or several runs: report FOLDER..."},
    {"forecast", FORECAST, "FOLDER... ",
     "fit a law of loss over parameters and tokens to finished runs, and forecast others: forecast FOLDER..."},
    {"inspect", INSPECT, "", "write an HTML page about what happens inside the model --init while it reads --prompt"},
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

OptionSource config_source(const Config* c, const char* name) {
    return (OptionSource)c->source[config_find(name) - CONFIG_OPTIONS];
}

// ---------------------------------------------------------------------------------------------------------------------
// values

bool config_set(Config* c, const Option* o, const char* value, OptionSource source, Error* err) {
    unsigned char* from = &c->source[o - CONFIG_OPTIONS];
    union { long long i; double r; int f; Text t; } ignored;
    const bool is_overridden = (int)*from > (int)source;
    void* field = is_overridden ? (void*)&ignored : (char*)c + o->offset;
    if (!option_parse(o, value, field, err)) { return false; }
    if (is_overridden) { return true; }
    *from = (unsigned char)source;
    if (o->type == TYPE_TEXT) { *(Text*)field = format("%s", value); }
    return true;
}

void append_option(char** command, const Config* c, const Option* o) {
    char *value = option_value(o, c), *word = shell_word(value);
    append_format(command, " --%s %s", o->name, word);
    free(value);
    free(word);
}

void config_defaults(Config* c) {
    memset(c, 0, sizeof *c);
    options_set_defaults(&CONFIG_TABLE, c);
}

static json_t* option_to_json(const Option* o, const void* field) {
    switch (o->type) {
    case TYPE_INT: return json_integer(*(const long long*)field);
    case TYPE_REAL: return option_is_word(o, field) ? json_string(o->word) : json_real(*(const double*)field);
    case TYPE_FLAG: return json_boolean(*(const int*)field);
    case TYPE_CHOICE: return json_string(o->choices[*(const int*)field]);
    default: return json_string(*(const Text*)field);
    }
}

json_t* config_to_json(const Config* c) {
    json_t* object = json_object();
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name) { json_object_set_new(object, o->name, option_to_json(o, (const char*)c + o->offset)); }
    }
    return object;
}

void config_drop_start(json_t* options) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name && o->scope == SCOPE_START) { json_object_del(options, o->name); }
    }
}

// Returns a JSON value as it would be given on the command line; the caller frees it.
static char* text_of_json(const json_t* value) {
    if (json_is_string(value)) { return format("%s", json_string_value(value)); }
    if (json_is_boolean(value)) { return format("%d", json_is_true(value)); }
    return json_value_text(value);
}

bool config_from_json(Config* c, const json_t* object, const char* where, Error* err) {
    const char* name;
    json_t* value;
    bool ok = true;
    json_object_foreach((json_t*)object, name, value) {
        Error why;
        const Option* o = config_find(name); // NULL: of another version
        char* text = text_of_json(value);
        if (o && !config_set(c, o, text, FROM_CHECKPOINT, &why)) {
            ok = fail(err, "%s: option %s %s", where, name, why.text);
        }
        free(text);
        if (!ok) { break; }
    }
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// options without effect

bool config_check_needs(const Config* c, int command, Error* err) {
    const OptionSource least = command == TRAIN ? FROM_FILE : FROM_COMMAND_LINE; // the command reads no other place
    Config defaults;
    if (c->has_letters) { return true; } // llm.c gives every option
    config_defaults(&defaults);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if ((o->commands & command) && config_source(c, o->name) >= least &&
            !option_check_need(&CONFIG_TABLE, o, c, &defaults, command, err)) {
            return false;
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command line

void config_help(const char* program, const Command* command) {
    if (command) {
        printf("usage: %s %s %s[--option value ...]\n\n", program, command->name, command->words);
        print_wrapped(0, command->help);
    } else {
        printf("usage: %s [COMMAND] [--option value ...]\n\ncommands:\n", program);
        for (int i = 0; i < NUM_COMMANDS; i++) {
            const int column = printf("  %-10s ", COMMANDS[i].name);
            print_wrapped(column, COMMANDS[i].help);
        }
    }
    options_print_help(&CONFIG_TABLE, command ? command->bit : TRAIN);
    printf("\nA flag is switched by --name, or --name 0|1.");
    if (!command) {
        printf("\nThese are the options of train; `%s COMMAND --help` lists others.\n"
               "Single letters are llm.c's: %s -e d12 -i 'train*.bin' -j 'val*.bin' -b 4 -t 1024 -d 524288 ...",
               program, program);
    }
    printf("\nExit codes: 0 done, or stopped on request after saving; 1 run-time error; 2 usage; 3 check failed;\n"
           "4 non-finite loss, or a spike; 5 a device that computes wrongly.\n");
}

// Reads lines of `name value`, of flags also `name`; a line that begins with # is a comment.
static void config_read_file(Config* c, int command, const char* path) {
    enum { MOST_BYTES = 1 << 20 }; // chosen
    static const char byte_order_mark[] = "\xef\xbb\xbf"; // which some editors write
    Error err;
    size_t size;
    char* text = read_file_up_to(path, MOST_BYTES, &size, &err);
    if (!text) { usage_error("--config %s", err.text); }
    if (strlen(text) < size) { usage_error("--config %s: byte %zu is 0, so this is not text", path, strlen(text)); }
    int number = 0;
    const bool is_marked = !strncmp(text, byte_order_mark, strlen(byte_order_mark));
    for (char *line = text + (is_marked ? strlen(byte_order_mark) : 0), *next; line; line = next) {
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
        if (strpbrk(name, "=:") || (*value && strchr("=:", *value) && strcmp(name, "prompt"))) {
            usage_error("%s:%d: a line is `name value`, without = or :", path, number);
        }
        if (!o) { usage_error("%s:%d: %s", path, number, option_unknown(&CONFIG_TABLE, command, name, "'", "'")); }
        if (!strcmp(name, "config")) {
            usage_error("%s:%d: a file cannot name another: give --config once for each", path, number);
        }
        if (!*value && o->type == TYPE_FLAG) { value = "1"; }
        if (!config_set(c, o, value, FROM_FILE, &err)) { usage_error("%s:%d: %s %s", path, number, name, err.text); }
    }
    free(text);
}

void config_parse(Config* c, int command, const char* command_name, int argc, char** argv) {
    OptionReader reader = {.table = &CONFIG_TABLE, .command = command, .command_name = command_name,
                           .words = command & (INFO | REPORT | BENCH | EXPORT | FORECAST) ? WORDS_TAKEN : WORDS_REFUSED,
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
        } else if (!strcmp(o->name, "config") && *value) {
            config_read_file(c, command, value); // changes nothing that the command line sets, before it or behind it
        }
    }
}
