#include "flags.h"
#include "options.h"

#define LAUNCHER "start the processes with mpirun, srun, torchrun or --gpus"

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
    {.letters = "sl", .name = "skip_loss_z", .fallback = "0"},
    {.letters = "sg", .name = "skip_norm_z", .fallback = "0"},
    {.letters = "v", .name = "val_every", .fallback = "20"},
    {.letters = "m", .name = "val_tokens"}, // llm.c counts batches, 20 of them
    {.letters = "s", .name = "sample_every", .fallback = "20"},
    {.letters = "g", .name = "sample_tokens", .fallback = "64"},
    {.letters = "a", .name = "overfit", .fallback = "0"},
    {.letters = "r", .name = "recompute", .fallback = "gelu"},
    {.letters = "lg", .on_cpu = "-1", .on_gpu = "-1", .why = "there are no GPU statistics"},
    {.letters = "nm", .on_cpu = "0", .on_gpu = "0", .why = "there are no major checkpoints: see --keep"},
    {.letters = "h", .name = "eval_data"}, // llm.c's path of HellaSwag, if 1
    {.letters = "f", .on_cpu = "0", .on_gpu = "0|1", .why = "a CPU has no TF32"},
    {.letters = "w", .on_cpu = "1", .on_gpu = "1", .why = "master weights are always fp32"},
    {.letters = "ge", .on_cpu = "0", .on_gpu = "0|1|2", .why = "it chooses cuBLASLt's GELU; on a CPU see --fused"},
    {.letters = "z", .name = "zero", .fallback = "0"},
    {.letters = "pn", .on_cpu = "1", .on_gpu = "1", .why = LAUNCHER},
    {.letters = "pr", .on_cpu = "0", .on_gpu = "0", .why = LAUNCHER},
    {.letters = "pg", .why = LAUNCHER},
    {.letters = "pi", .on_cpu = "mpi", .on_gpu = "mpi", .why = LAUNCHER},
    {.letters = "ps", .why = "start the processes with mpirun, srun or torchrun, whose MASTER_ADDR is the server"},
    {.letters = "pf", .why = "processes find each other by MPI or TCP, not by a shared file"},
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

// Returns a flag's value in the form of our option; NULL if the option is left at its default.
static const char* letter_translate(const LetterValues* v, const LetterFlag* flag, const char* value) {
    if (!strcmp(flag->letters, "e")) {
        if (!value) {
            usage_error("-e is missing: llm.c would load gpt2_124M_bf16.bin, this program starts from random weights: "
                        "give -e d12");
        }
        const size_t n = strlen(value);
        if (n > 4 && !strcmp(value + n - 4, ".bin")) {
            usage_error("-e %s: llm.c's model files are not read; give -e d12 for random weights, or --init with a "
                        "Hugging Face folder",
                        value);
        }
        return !strncmp(value, "gpt2:", 5) ? value + 5 : value;
    }
    if (!strcmp(flag->letters, "y")) {
        if (value && strcmp(value, "0") && strcmp(value, "1")) { usage_error("-y takes 0 or 1, not '%s'", value); }
        return value && *value == '1' ? "auto" : "";
    }
    if (!strcmp(flag->letters, "h")) {
        if (value && strcmp(value, "0") && strcmp(value, "1")) { usage_error("-h takes 0 or 1, not '%s'", value); }
        return value && *value == '1' ? "dev/data/hellaswag/hellaswag_val.bin" : NULL;
    }
    if (!strcmp(flag->letters, "m")) {
        char* end;
        const long long batches = value ? strtoll(value, &end, 10) : 20;
        if (value && (*end || end == value || batches < -1)) {
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
    return value ? value : flag->fallback;
}

// Returns our options for the letters, in fresh memory. HellaSwag is scored whenever the loss is validated.
static char** rewritten(const LetterValues* values, int* argc) {
    char** out = alloc_or_die(2 * NUM_LETTER_FLAGS + 4, sizeof *out, "the command line");
    *argc = 0;
    out[(*argc)++] = format("--eval_every");
    out[(*argc)++] = format("%s", letter_value(values, "v"));
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        const LetterFlag* flag = &LETTER_FLAGS[i];
        const char* value = flag->name ? letter_translate(values, flag, values->value[i]) : NULL;
        if (!value) { continue; }
        out[(*argc)++] = format("--%s", flag->name);
        out[(*argc)++] = format("%s", value);
    }
    return out;
}

char** flags_rewrite(int* argc, char** argv, FlagsDevice device) {
    LetterValues values;
    memset(&values, 0, sizeof values);
    if (*argc == 0 || !is_letter_flag(argv[0])) { return argv; }
    for (int i = 0; i < *argc; i += 2) {
        int at = 0;
        if (!is_letter_flag(argv[i])) {
            usage_error("'%s': llm.c's letters and long options do not mix; give all as letters or all as --name value",
                        argv[i]);
        }
        while (at < NUM_LETTER_FLAGS && strcmp(LETTER_FLAGS[at].letters, argv[i] + 1)) { at++; }
        if (at == NUM_LETTER_FLAGS) { usage_error("%s is not one of llm.c's flags", argv[i]); }
        if (i + 1 == *argc) { usage_error("%s needs a value", argv[i]); }
        const LetterFlag* flag = &LETTER_FLAGS[at];
        values.value[at] = argv[i + 1];
        const char* accepted = device == FLAGS_GPU ? flag->on_gpu : flag->on_cpu;
        if (!flag->name && !(accepted && is_one_of(argv[i + 1], accepted))) {
            usage_error("%s %s is not supported: %s", argv[i], argv[i + 1], flag->why);
        }
    }
    return rewritten(&values, argc);
}
