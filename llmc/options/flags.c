#include "flags.h"
#include "../base/file.h"
#include "../comm/launch.h"
#include "options.h"
#include <strings.h>

// -f is about llm.c's FP32 build. In its default build, which stores bf16 as train_gpt2cu does, it has no effect. -ge
// chooses where GELU is computed: train_gpt2cu has it inside of the matmul and behind it, and takes the faster.
const LetterFlag LETTER_FLAGS[NUM_LETTER_FLAGS] = {
    {.letters = "i", .name = "train_data", .fallback = "dev/data/tinyshakespeare/tiny_shakespeare_train.bin"},
    {.letters = "j", .name = "val_data", .fallback = "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"},
    {.letters = "e", .name = "model"},
    {.letters = "o", .name = "out", .fallback = ""},
    {.letters = "n", .name = "save_every", .fallback = "0"},
    {.letters = "nk", .name = "keep", .fallback = "0"},
    {.letters = "y", .name = "resume"},
    {.letters = "b", .name = "batch_size", .fallback = "4"},
    {.letters = "t", .name = "seq_len", .fallback = "1024"},
    {.letters = "d", .name = "total_batch_size"},
    {.letters = "x", .name = "max_steps", .fallback = "-1"},
    {.letters = "k", .name = "schedule", .fallback = "cosine"},
    {.letters = "l", .name = "lr", .fallback = "3e-4"},
    {.letters = "u", .name = "warmup_steps", .fallback = "0"},
    {.letters = "q", .name = "min_lr_frac", .fallback = "1.0"},
    {.letters = "c", .name = "weight_decay", .fallback = "0.0"},
    {.letters = "sl", .name = "skip_z", .fallback = "0"},
    {.letters = "sg", .name = "skip_z", .fallback = "0"},
    {.letters = "v", .name = "val_every", .fallback = "20"},
    {.letters = "m", .name = "val_tokens"}, // llm.c counts batches, 20 of them
    {.letters = "s", .name = "sample_every", .fallback = "20"},
    {.letters = "g", .name = "sample_tokens", .fallback = "64"},
    {.letters = "a", .name = "overfit", .fallback = "0"},
    {.letters = "r", .name = "recompute", .fallback = "gelu"},
    {.letters = "lg", .on_cpu = "-1", .on_gpu = "-1", .ignored = "*",
     .why = "nvidia-smi shows the state of a GPU, the log does not"},
    {.letters = "nm", .name = "keep", .fallback = "0"},
    {.letters = "h", .name = "eval_data"}, // llm.c's path of HellaSwag, if 1
    {.letters = "f", .on_cpu = "0", .on_gpu = "0|1", .ignored = "0|1", .why = "a CPU has no TF32"},
    {.letters = "w", .on_cpu = "1", .on_gpu = "1", .ignored = "0|1", .why = "master weights are always kept, in fp32"},
    {.letters = "ge", .on_cpu = "0", .on_gpu = "0|1|2", .ignored = "0|1|2",
     .why = "it chooses cuBLASLt's GELU; on a CPU see --fused"},
    {.letters = "z", .name = "zero", .fallback = "0"},
    {.letters = "pn", .fallback = "1"}, // these six: how processes start
    {.letters = "pr", .fallback = "0"},
    {.letters = "pg", .fallback = "8"},
    {.letters = "pi", .fallback = "mpi"},
    {.letters = "ps"},
    {.letters = "pf"},
};

bool is_letter_flag(const char* arg) {
    return arg[0] == '-' && arg[1] >= 'a' && arg[1] <= 'z' &&
           (arg[2] == 0 || (arg[2] >= 'a' && arg[2] <= 'z' && arg[3] == 0));
}

typedef struct {
    const char* value[NUM_LETTER_FLAGS]; // NULL: not given
} LetterValues;

static const char* letter_value(const LetterValues* v, const char* letters) {
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        if (!strcmp(LETTER_FLAGS[i].letters, letters)) { return v->value[i] ? v->value[i] : LETTER_FLAGS[i].fallback; }
    }
    return NULL;
}

// Returns true for a value of -e that is a file, not a description.
static bool is_bin_name(const char* value) {
    const size_t n = strlen(value);
    return n > 4 && !strcmp(value + n - 4, ".bin");
}

// Returns a flag's value in the form of our option; NULL if the option is left at its default.
static const char* letter_translate(const LetterValues* v, const LetterFlag* flag, const char* value) {
    if (value && !strcmp(flag->letters, "e")) {
        if (is_bin_name(value)) { return value; } // for --init
        if (!strncmp(value, "gpt2:", 5)) { value += 5; }
        return *value >= '0' && *value <= '9' ? format("d%s", value) : value; // gpt2:12 in run_gpt2_124M_mpi.sh
    }
    if (is_one_of(flag->letters, "y|h") && value && !is_one_of(value, "0|1")) {
        usage_error("-%s takes 0 or 1, not '%s'", flag->letters, value);
    }
    if (!strcmp(flag->letters, "y")) { return value && *value == '1' ? "auto" : ""; }
    if (!strcmp(flag->letters, "h")) {
        return value && *value == '1' ? "dev/data/hellaswag/hellaswag_val.bin" : NULL;
    }
    if (!strcmp(flag->letters, "m")) {
        long long batches = 20;
        if (value && !count_parse(value, -1, &batches)) {
            usage_error("-m takes a number of batches, or -1 for all, not '%s'", value);
        }
        const double tokens = (double)batches * atof(letter_value(v, "b")) * atof(letter_value(v, "t"));
        return batches < 0 ? "-1" : format("%.0f", tokens);
    }
    if (!strcmp(flag->letters, "r")) {
        if (!value) { return flag->fallback; }
        if (strlen(value) != 1 || *value < '0' || *value > '2') { usage_error("-r takes 0, 1 or 2, not '%s'", value); }
        return *value == '0' ? "none" : *value == '1' ? "gelu" : "all";
    }
    if (!strcmp(flag->letters, "nk")) {
        const char *newest = letter_value(v, "nk"), *every = letter_value(v, "nm");
        return strcmp(every, "0") ? format("%s,best,every:%s", newest, every) : format("%s,best", newest);
    }
    if (!strcmp(flag->letters, "nm")) { return NULL; } // -nk has it
    if (!strcmp(flag->letters, "sl")) { return format("%s:%s", letter_value(v, "sl"), letter_value(v, "sg")); }
    if (!strcmp(flag->letters, "sg")) { return NULL; } // -sl has it
    return value ? value : flag->fallback;
}

// Returns the option for -e: --init for a model file, --model for a description.
static const char* model_option(const char** value) {
    static const char fallback[] = "gpt2_124M_bf16.bin";
    if (!*value && !path_exists(fallback)) {
        usage_error("-e is missing: llm.c would load %s, which is not here; give -e d12 for random weights", fallback);
    }
    if (!*value) { *value = fallback; }
    return is_bin_name(*value) ? "init" : "model";
}

// Returns our options for the letters, in fresh memory.
static char** rewritten(const LetterValues* values, int* argc) {
    char** out = alloc_or_die(2 * NUM_LETTER_FLAGS + 4, sizeof *out, "the command line");
    *argc = 0;
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        const LetterFlag* flag = &LETTER_FLAGS[i];
        const char *given = values->value[i], *name = flag->name;
        if (!strcmp(flag->letters, "e")) { name = model_option(&given); }
        const char* value = name ? letter_translate(values, flag, given) : NULL;
        if (!value) { continue; }
        out[(*argc)++] = format("--%s", name);
        out[(*argc)++] = format("%s", value);
    }
    return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// processes

static int letter_number(const LetterValues* v, const char* letters, int least) {
    const char* text = letter_value(v, letters);
    long long n;
    if (!count_parse(text, least, &n) || n > INT16_MAX) {
        usage_error("-%s takes a number from %d, not '%s'", letters, least, text);
    }
    return (int)n;
}

static void set_variable(const char* name, const char* value) {
    if (setenv(name, value, 1) != 0) { fatal("setenv: %s", strerror(errno)); }
}

// Sets torchrun's variables for -pi tcp and fs, whose processes here meet by a file in --out. Those of a real torchrun
// stay.
static void set_file_launch(const LetterValues* v, int rank, int size) {
    const char* server = letter_value(v, "ps");
    if (getenv("RANK") || size == 1) { return; }
    set_variable("RANK", format("%d", rank));
    set_variable("WORLD_SIZE", format("%d", size));
    set_variable("LOCAL_RANK", format("%d", rank % letter_number(v, "pg", 1)));
    if (server && *server) { set_variable("MASTER_ADDR", server); }
}

// Makes the launch that the flags describe, or checks that this process was started so. Sets process_rank.
static void apply_launch(const LetterValues* v) {
    Error err;
    Launch launch;
    const char* method = letter_value(v, "pi");
    const int size = letter_number(v, "pn", 1), rank = letter_number(v, "pr", 0);
    if (!is_one_of(method, "mpi|tcp|fs")) { usage_error("-pi takes mpi, tcp or fs, not '%s'", method); }
    if (strcmp(method, "mpi")) { set_file_launch(v, rank, size); }
    if (!launch_detect(&launch, &err)) { usage_error("%s", err.text); }
    const bool names_size = size != 1, names_rank = names_size || rank != 0;
    if ((names_size && launch.size != size) || (names_rank && launch.rank != rank)) {
        usage_error("-pn %d -pr %d: %s started this process as rank %d of %d: start all with mpirun, srun, torchrun or "
                    "--gpus, or give each -pi fs", size, rank, launch.launcher, launch.rank, launch.size);
    }
    process_rank = launch.rank;
    if (letter_value(v, "pf") && process_rank == 0) { notice("-pf has no effect: processes meet in the folder of -o"); }
}

// ---------------------------------------------------------------------------------------------------------------------

// Checks the flags that have no option. Prints a notice for those without an effect.
static void check_others(const LetterValues* v, FlagsDevice device) {
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        const LetterFlag* flag = &LETTER_FLAGS[i];
        const char *value = v->value[i], *accepted = device == FLAGS_GPU ? flag->on_gpu : flag->on_cpu;
        if (flag->name || !flag->why || !value || is_one_of(value, accepted)) { continue; }
        if (strcmp(flag->ignored, "*") && !is_one_of(value, flag->ignored)) {
            usage_error("-%s %s is not supported: %s", flag->letters, value, flag->why);
        }
        if (process_rank == 0) { notice("-%s %s has no effect: %s", flag->letters, value, flag->why); }
    }
}

// Returns the index of a flag, compared by `compare`; NUM_LETTER_FLAGS if llm.c has none.
static int find_letters(const char* arg, int (*compare)(const char*, const char*)) {
    int at = 0;
    while (at < NUM_LETTER_FLAGS && (arg[0] != '-' || compare(LETTER_FLAGS[at].letters, arg + 1))) { at++; }
    return at;
}

// Ends the program because of an argument that stands in the place of a flag.
static void ATTR_NORETURN refuse_argument(const char* arg) {
    if (!strncmp(arg, "--", 2)) {
        usage_error("'%s': llm.c's letters and long options do not mix; give all as letters or all as --name value",
                    arg);
    }
    const int near = find_letters(arg, strcasecmp);
    if (near == NUM_LETTER_FLAGS) { usage_error("%s is not one of llm.c's flags", arg); }
    usage_error("%s is not one of llm.c's flags; did you mean -%s, in small letters?", arg, LETTER_FLAGS[near].letters);
}

char** flags_rewrite(int* argc, char** argv, FlagsDevice device) {
    LetterValues values;
    memset(&values, 0, sizeof values);
    if (*argc == 0 || !is_letter_flag(argv[0])) { return argv; }
    for (int i = 0; i < *argc; i += 2) {
        const int at = find_letters(argv[i], strcmp);
        if (at == NUM_LETTER_FLAGS) { refuse_argument(argv[i]); }
        if (i + 1 == *argc) { usage_error("%s needs a value", argv[i]); }
        values.value[at] = argv[i + 1];
    }
    apply_launch(&values);
    check_others(&values, device);
    return rewritten(&values, argc);
}
