// llm.c's command line: one- and two-letter flags, each with one value, rewritten into ours over llm.c's defaults.
#pragma once
#include "config.h"

typedef struct {
    const char *letters, *name; // NULL: not supported, unless the value is `only`
    const char* fallback;       // llm.c's default, as one of our values; NULL: ours is the same, or it must be given
    const char* only;
    const char* why;
} LetterFlag;

static const LetterFlag LETTER_FLAGS[] = {
    {"i", "train_data", "dev/data/tinyshakespeare/tiny_shakespeare_train.bin", NULL, NULL},
    {"j", "val_data", "dev/data/tinyshakespeare/tiny_shakespeare_val.bin", NULL, NULL},
    {"e", "model", NULL, NULL, NULL},
    {"o", "out", "", NULL, NULL},
    {"n", "save_every", "0", NULL, NULL},
    {"nk", "keep", "0", NULL, NULL},
    {"y", "resume", NULL, NULL, NULL},
    {"b", "batch_size", "4", NULL, NULL},
    {"t", "seq_len", "1024", NULL, NULL},
    {"d", "total_batch_size", NULL, NULL, NULL},
    {"x", "max_steps", "-1", NULL, NULL},
    {"k", "schedule", "cosine", NULL, NULL},
    {"l", "lr", "3e-4", NULL, NULL},
    {"u", "warmup_steps", "0", NULL, NULL},
    {"q", "min_lr_frac", "1.0", NULL, NULL},
    {"c", "weight_decay", "0.0", NULL, NULL},
    {"sl", "skip_loss_z", "0", NULL, NULL},
    {"sg", "skip_norm_z", "0", NULL, NULL},
    {"v", "val_every", "20", NULL, NULL},
    {"m", "val_tokens", NULL, NULL, NULL}, // llm.c counts batches, 20 of them
    {"s", "sample_every", "20", NULL, NULL},
    {"g", "sample_tokens", "64", NULL, NULL},
    {"a", "overfit", "0", NULL, NULL},
    {"r", "recompute", "gelu", NULL, NULL},
    {"lg", NULL, NULL, "-1", "there are no GPU statistics"},
    {"nm", NULL, NULL, "0", "there are no major checkpoints: see --keep"},
    {"h", NULL, NULL, "0", "HellaSwag is not evaluated"},
    {"f", NULL, NULL, "0", "there is no TF32 on a CPU"},
    {"w", NULL, NULL, "1", "master weights are always fp32"},
    {"ge", NULL, NULL, "0", "GELU is not fused into matmuls"},
    {"z", "zero", "0", NULL, NULL},
    {"pn", NULL, NULL, "1", "start the processes with mpirun, srun, torchrun or --gpus"},
    {"pr", NULL, NULL, "0", "start the processes with mpirun, srun, torchrun or --gpus"},
    {"pg", NULL, NULL, NULL, "start the processes with mpirun, srun, torchrun or --gpus"},
    {"pi", NULL, NULL, "mpi", "start the processes with mpirun, srun, torchrun or --gpus"},
    {"ps", NULL, NULL, NULL, "start the processes with mpirun, srun or torchrun, whose MASTER_ADDR is the server"},
    {"pf", NULL, NULL, NULL, "processes find each other by MPI or TCP, not by a shared file"},
};
enum { NUM_LETTER_FLAGS = sizeof LETTER_FLAGS / sizeof *LETTER_FLAGS };

static inline bool is_letter_flag(const char* arg) {
    return arg[0] == '-' && arg[1] >= 'a' && arg[1] <= 'z' &&
           (arg[2] == 0 || (arg[2] >= 'a' && arg[2] <= 'z' && arg[3] == 0));
}

typedef struct {
    const char* value[NUM_LETTER_FLAGS]; // NULL: not given
} LetterValues;

static inline const char* letter_value(const LetterValues* v, const char* letters) {
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        if (!strcmp(LETTER_FLAGS[i].letters, letters)) { return v->value[i] ? v->value[i] : LETTER_FLAGS[i].fallback; }
    }
    return NULL;
}

// The values whose form differs from ours; in fresh memory where it does.
static inline const char* letter_translate(const LetterValues* v, const LetterFlag* flag, const char* value) {
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

// Turns `argv` (after the program) into ours, in fresh memory, if its first word is a letter flag; else leaves it
// alone.
static inline char** flags_rewrite(int* argc, char** argv) {
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
        if (!flag->name && (!flag->only || strcmp(flag->only, argv[i + 1]))) {
            usage_error("%s %s is not supported: %s", argv[i], argv[i + 1], flag->why);
        }
    }
    char** out = (char**)alloc_or_die(2 * NUM_LETTER_FLAGS + 2, sizeof *out, "the command line");
    *argc = 0;
    for (int i = 0; i < NUM_LETTER_FLAGS; i++) {
        const LetterFlag* flag = &LETTER_FLAGS[i];
        const char* value = flag->name ? letter_translate(&values, flag, values.value[i]) : NULL;
        if (!value) { continue; }
        out[(*argc)++] = format("--%s", flag->name);
        out[(*argc)++] = format("%s", value);
    }
    return out;
}
