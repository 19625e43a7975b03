#include "models.h"

typedef struct {
    const char* name;
    int shape[4]; // L, H, C and T; V is GPT-2's
} NamedModel;

// GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1, with two errors of the table corrected: its 1.3B has
// 24 heads of 128 channels but C = 2048 (here 16 heads), its 13B 40 heads of 128 but C = 5140 (here 5120).
static const NamedModel NAMED_MODELS[] = {
    {"d12", {12, 12, 768, 1024}},          {"gpt2", {12, 12, 768, 1024}},
    {"d24", {24, 16, 1024, 1024}},         {"gpt2-medium", {24, 16, 1024, 1024}},
    {"d36", {36, 20, 1280, 1024}},         {"gpt2-large", {36, 20, 1280, 1024}},
    {"d48", {48, 25, 1600, 1024}},         {"gpt2-xl", {48, 25, 1600, 1024}},
    {"gpt3:125m", {12, 12, 768, 2048}},    {"gpt3:350m", {24, 16, 1024, 2048}},
    {"gpt3:760m", {24, 16, 1536, 2048}},   {"gpt3:1.3b", {24, 16, 2048, 2048}},
    {"gpt3:2.7b", {32, 32, 2560, 2048}},   {"gpt3:6.7b", {32, 32, 4096, 2048}},
    {"gpt3:13b", {40, 40, 5120, 2048}},
    // llm.c's names of the same, by channels
    {"gpt3:c768", {12, 12, 768, 2048}},    {"gpt3:c1024", {24, 16, 1024, 2048}},
    {"gpt3:c1536", {24, 16, 1536, 2048}},  {"gpt3:c2048", {24, 16, 2048, 2048}},
    {"gpt3:c2560", {32, 32, 2560, 2048}},  {"gpt3:c4096", {32, 32, 4096, 2048}},
};

enum { NUM_NAMED_MODELS = sizeof NAMED_MODELS / sizeof *NAMED_MODELS };

// Settings by name, in four families. A preset leaves the other options at their defaults.
//
// gpt2: published runs. 124m is the lecture's: 10B tokens of FineWeb-Edu in steps of 2^19, 375M tokens of warm-up. The
// larger ones are those of llm.c's scripts/run_gpt2_*.sh: 350M on 31B tokens, 774M on 150B, 1558M on 34B.
//
// gpt3: table 2.1 and appendix B of the paper: 375M tokens of warm-up, cosine to 10% at 260B tokens, the batch growing
// from 32k tokens over the first 4 to 12 billion.
//
// fast: AdamW with three times GPT-3's learning rate, held until it falls to zero in a straight line over the last
// sixth of the run. 124m is modded-nanogpt's run of 2024-06-05: 12,288 steps, warm-up 256, the fall over 2,048. Larger
// ones are predictions by two rules. Rate: 1.8e-3 * 768/C, since Adam's best rate for a matrix falls as 1/fan-in (Yang
// et al. 2022, "Tensor Programs V"). Steps: 0.63 of those of gpt2:, the part that 124m takes of llm.c's 19,560.
//
// muon: all predictions. The matrices have Muon's own settings, cautious decay of 0.01 (modded-nanogpt, track 3), which
// falls as 1/width^2 (nanochat), and a momentum that is back at 0.85 after the last 50 steps (modded-nanogpt). AdamW's
// rate for the rest, 3.6e-3 without decay, and the fall over the last 0.29 are those of modded-nanogpt's record of
// 2024-10-11; the rate falls as the root of the width (nanochat). Steps: those of fast:, divided by Muon's gain over
// tuned AdamW, 1.4 at 0.1B parameters and 1.1 at 1.2B (Wen et al. 2025, arXiv 2509.02046), and between them by the
// logarithm of the size. These gains are the most that was found: a run may need the steps of fast:.
typedef struct {
    const char *name, *options;
} Preset;

#define GPT2_ALL "--schedule cosine --weight_decay 0.1 --grad_clip 1 "
#define GPT3_ALL "--schedule cosine --weight_decay 0.1 --grad_clip 1 --min_lr_frac 0.1 "
#define FAST_ALL                                                                                               \
    "--schedule wsd_linear --decay_frac 0.16667 --min_lr_frac 0 --weight_decay 0.1 --grad_clip 1 "

#define MUON_ALL                                                                                                \
    "--optimizer muon --cautious_decay 1 --weight_decay 0 --momentum 0.95,cooldown:50:0.85 "                     \
    "--init_out zero --schedule wsd_linear --decay_frac 0.29 --min_lr_frac 0 --warmup_steps 256 "

static const Preset PRESETS[] = {
    {"gpt2:124m",
     GPT2_ALL "--model d12 --total_batch_size 524288 --lr 6e-4 --max_steps 19073 --warmup_steps 715 --min_lr_frac 0.1"},
    {"gpt2:350m",
     GPT2_ALL "--model d24 --total_batch_size 524288 --lr 3e-4 --max_steps 60000 --warmup_steps 700 --min_lr_frac 0"},
    {"gpt2:774m",
     GPT2_ALL "--model d36 --total_batch_size 524288 --lr 2.5e-4 --max_steps 286102 --warmup_steps 700 "
      "--min_lr_frac 0"},
    {"gpt2:1558m",
     GPT2_ALL "--model d48 --total_batch_size 1048576 --lr 6e-4 --max_steps 32000 --warmup_steps 700 "
      "--min_lr_frac 0.1"},
    {"fast:124m",
     FAST_ALL "--model d12 --total_batch_size 524288 --lr 1.8e-3 --max_steps 12288 --warmup_steps 256"},
    {"fast:350m",
     FAST_ALL "--model d24 --total_batch_size 524288 --lr 1.35e-3 --max_steps 37700 --warmup_steps 700"},
    {"fast:774m",
     FAST_ALL "--model d36 --total_batch_size 524288 --lr 1.08e-3 --max_steps 179700 --warmup_steps 700"},
    {"fast:1558m",
     FAST_ALL "--model d48 --total_batch_size 1048576 --lr 8.64e-4 --max_steps 20100 --warmup_steps 700"},
    {"muon:124m",
     MUON_ALL "--model d12 --total_batch_size 524288 --lr 3.6e-3 --matrix_decay 0.01 --max_steps 8800"},
    {"muon:350m",
     MUON_ALL "--model d24 --total_batch_size 524288 --lr 3.12e-3 --matrix_decay 0.0056 --max_steps 30000"},
    {"muon:774m",
     MUON_ALL "--model d36 --total_batch_size 524288 --lr 2.79e-3 --matrix_decay 0.0036 --max_steps 155000"},
    {"muon:1558m",
     MUON_ALL "--model d48 --total_batch_size 1048576 --lr 2.49e-3 --matrix_decay 0.0023 --max_steps 18300"},
    {"gpt3:125m",
     GPT3_ALL "--model gpt3:125m --total_batch_size 524288 --lr 6.0e-4 --max_steps 495911 --warmup_steps 715 "
              "--batch_ramp 32768:4000000000"},
    {"gpt3:350m",
     GPT3_ALL "--model gpt3:350m --total_batch_size 524288 --lr 3.0e-4 --max_steps 495911 --warmup_steps 715 "
              "--batch_ramp 32768:4000000000"},
    {"gpt3:760m",
     GPT3_ALL "--model gpt3:760m --total_batch_size 524288 --lr 2.5e-4 --max_steps 495911 --warmup_steps 715 "
              "--batch_ramp 32768:4000000000"},
    {"gpt3:1.3b",
     GPT3_ALL "--model gpt3:1.3b --total_batch_size 1048576 --lr 2.0e-4 --max_steps 247955 --warmup_steps 358 "
              "--batch_ramp 32768:6000000000"},
    {"gpt3:2.7b",
     GPT3_ALL "--model gpt3:2.7b --total_batch_size 1048576 --lr 1.6e-4 --max_steps 247955 --warmup_steps 358 "
              "--batch_ramp 32768:6000000000"},
    {"gpt3:6.7b",
     GPT3_ALL "--model gpt3:6.7b --total_batch_size 2097152 --lr 1.2e-4 --max_steps 123978 --warmup_steps 179 "
              "--batch_ramp 32768:10000000000"},
    {"gpt3:13b",
     GPT3_ALL "--model gpt3:13b --total_batch_size 2097152 --lr 1.0e-4 --max_steps 123978 --warmup_steps 179 "
              "--batch_ramp 32768:12000000000"},
};

enum { NUM_PRESETS = sizeof PRESETS / sizeof *PRESETS };

const char* preset_name(int i) { return i < NUM_PRESETS ? PRESETS[i].name : NULL; }

// Sets "--name value ..." with the source FROM_PRESET.
static void preset_set(Config* c, const char* options) {
    Error err;
    char* text = format("%s", options);
    for (char *rest = NULL, *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        const Option* o = config_find(name + strlen("--"));
        const char* value = strtok_r(NULL, " ", &rest);
        if (!o || !value) { fatal("preset: %s is not an option with a value", name); }
        if (!config_set(c, o, value, FROM_PRESET, &err)) { fatal("preset: %s %s", name, err.text); }
    }
    free(text);
}

void preset_apply(Config* c) {
    if (!*c->preset) { return; }
    for (int i = 0; i < NUM_PRESETS; i++) {
        if (strcmp(PRESETS[i].name, c->preset)) { continue; }
        preset_set(c, PRESETS[i].options);
        if (strstr(PRESETS[i].options, "--optimizer muon") && c->optimizer != optimizer_muon) {
            usage_error("--preset %s has rates and decays of Muon: leave out --optimizer %s, or give --preset fast%s",
                        c->preset, optimizer_names[c->optimizer], strchr(c->preset, ':'));
        }
        return;
    }
    char names[512] = "";
    for (int i = 0; i < NUM_PRESETS; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", PRESETS[i].name);
    }
    usage_error("--preset '%s' is not one of %s", c->preset, names);
}

int padded_vocab(int vocab_size, bool pad) {
    return pad ? (int)round_up((size_t)vocab_size, VOCAB_MULTIPLE) : vocab_size;
}

bool model_check(const GPT2Config* m, const char* where, Error* err) {
    if (m->num_layers < 1 || m->num_heads < 1 || m->channels < 2 || m->max_seq_len < 2 || m->vocab_size < 2) {
        return fail(err, "%s: L and H must be at least 1, and C, T and V at least 2", where);
    }
    if (m->channels % m->num_heads) {
        return fail(err, "%s: %d channels cannot be shared by %d heads: C must be a multiple of H", where, m->channels,
                    m->num_heads);
    }
    if (m->channels / m->num_heads > 256) {
        return fail(err, "%s: a head of %d channels is too large, 256 is the most: take more heads", where,
                    m->channels / m->num_heads);
    }
    if (m->num_layers > 1024 || m->channels > 65536 || m->max_seq_len > 1000000 || m->vocab_size > 65536) {
        return fail(err, "%s: too large: at most L=1024, C=65536, T=1000000, V=65536", where);
    }
    return true;
}

// "L=6,H=6,C=384,T=256[,V=50257]", in any order.
static bool model_parse_shape(const char* text, int value[5], Error* err) {
    static const char letters[] = "LHCTV";
    for (const char* at = text; *at;) {
        const char* letter = strchr(letters, *at);
        char* end = NULL;
        long number = letter && at[1] == '=' ? strtol(at + 2, &end, 10) : 0;
        if (end && end > at + 2 && (number < 1 || number > 1000000)) {
            return fail(err, "--model '%s': %c is from 1 to 1000000", text, *at);
        }
        if (!end || end == at + 2 || (*end && *end != ',')) {
            return fail(err, "--model '%s': not understood from '%s' on; give d12|d24|d36|d48, gpt2|gpt2-medium|"
                             "gpt2-large|gpt2-xl, gpt3:125m..13b, or L=6,H=6,C=384,T=256[,V=50257]", text, at);
        }
        value[letter - letters] = (int)number;
        at = *end ? end + 1 : end;
    }
    for (int i = 0; i < 5; i++) {
        if (value[i]) { continue; }
        return fail(err, "--model '%s': %c is missing; give L=...,H=...,C=...,T=...", text, letters[i]);
    }
    return true;
}

bool model_parse(const char* text, bool pad_vocab, GPT2Config* m, Error* err) {
    int value[5] = {0, 0, 0, 0, GPT2_VOCAB};
    for (int i = 0; i < NUM_NAMED_MODELS; i++) {
        if (!strcmp(NAMED_MODELS[i].name, text)) { memcpy(value, NAMED_MODELS[i].shape, sizeof NAMED_MODELS[i].shape); }
    }
    if (!value[0] && !model_parse_shape(text, value, err)) { return false; }
    *m = (GPT2Config){.num_layers = value[0], .num_heads = value[1], .channels = value[2], .max_seq_len = value[3],
                      .vocab_size = value[4], .padded_vocab_size = padded_vocab(value[4], pad_vocab)};
    return model_check(m, "--model", err);
}

size_t model_parameters(const GPT2Config* m) {
    const size_t C = (size_t)m->channels, L = (size_t)m->num_layers;
    return ((size_t)m->vocab_size + (size_t)m->max_seq_len) * C + L * (12 * C * C + 13 * C) + 2 * C;
}
