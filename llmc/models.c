#include "models.h"

typedef struct {
    const char* name;
    int num_layers, num_heads, channels, max_seq_len;
} ModelSize;

// GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1, with two errors of the table corrected: its 1.3B has
// 24 heads of 128 channels but C = 2048 (here 16 heads), its 13B 40 heads of 128 but C = 5140 (here 5120).
static const ModelSize MODEL_SIZES[] = {
    {"d12", 12, 12, 768, 1024},          {"gpt2", 12, 12, 768, 1024},
    {"d24", 24, 16, 1024, 1024},         {"gpt2-medium", 24, 16, 1024, 1024},
    {"d36", 36, 20, 1280, 1024},         {"gpt2-large", 36, 20, 1280, 1024},
    {"d48", 48, 25, 1600, 1024},         {"gpt2-xl", 48, 25, 1600, 1024},
    {"gpt3:125m", 12, 12, 768, 2048},    {"gpt3:350m", 24, 16, 1024, 2048},
    {"gpt3:760m", 24, 16, 1536, 2048},   {"gpt3:1.3b", 24, 16, 2048, 2048},
    {"gpt3:2.7b", 32, 32, 2560, 2048},   {"gpt3:6.7b", 32, 32, 4096, 2048},
    {"gpt3:13b", 40, 40, 5120, 2048},
    // llm.c's names of the same, by channels
    {"gpt3:c768", 12, 12, 768, 2048},    {"gpt3:c1024", 24, 16, 1024, 2048},
    {"gpt3:c1536", 24, 16, 1536, 2048},  {"gpt3:c2048", 24, 16, 2048, 2048},
    {"gpt3:c2560", 32, 32, 2560, 2048},  {"gpt3:c4096", 32, 32, 4096, 2048},
};

enum { NUM_MODEL_SIZES = sizeof MODEL_SIZES / sizeof *MODEL_SIZES };

// Published settings. gpt2:124m are the lecture's: 10B tokens of FineWeb-Edu in steps of 2^19, 375M tokens of warm-up.
// The larger GPT-2s are those of llm.c's scripts/run_gpt2_*.sh: 350M on 31B tokens, 774M on 150B, 1558M on 34B. gpt3:
// table 2.1 and appendix B of the paper: 375M tokens of warm-up, cosine to 10% at 260B tokens, the batch growing from
// 32k tokens over the first 4 to 12 billion.
typedef struct {
    const char *name, *model;
    long long total_batch_size;
    double lr;
    long long max_steps, warmup_steps;
    double min_lr_frac;
    const char* batch_ramp;
} Preset;

static const Preset PRESETS[] = {
    {"gpt2:124m", "d12", 524288, 6e-4, 19073, 715, 0.1, ""},
    {"gpt2:350m", "d24", 524288, 3e-4, 60000, 700, 0, ""},
    {"gpt2:774m", "d36", 524288, 2.5e-4, 286102, 700, 0, ""},
    {"gpt2:1558m", "d48", 1048576, 6e-4, 32000, 700, 0.1, ""},
    {"gpt3:125m", "gpt3:125m", 524288, 6.0e-4, 495911, 715, 0.1, "32768:4000000000"},
    {"gpt3:350m", "gpt3:350m", 524288, 3.0e-4, 495911, 715, 0.1, "32768:4000000000"},
    {"gpt3:760m", "gpt3:760m", 524288, 2.5e-4, 495911, 715, 0.1, "32768:4000000000"},
    {"gpt3:1.3b", "gpt3:1.3b", 1048576, 2.0e-4, 247955, 358, 0.1, "32768:6000000000"},
    {"gpt3:2.7b", "gpt3:2.7b", 1048576, 1.6e-4, 247955, 358, 0.1, "32768:6000000000"},
    {"gpt3:6.7b", "gpt3:6.7b", 2097152, 1.2e-4, 123978, 179, 0.1, "32768:10000000000"},
    {"gpt3:13b", "gpt3:13b", 2097152, 1.0e-4, 123978, 179, 0.1, "32768:12000000000"},
};

enum { NUM_PRESETS = sizeof PRESETS / sizeof *PRESETS };

// Sets an option to `value`, and frees that.
static void preset_set(Config* c, const char* name, char* value) {
    Error err;
    if (!config_set(c, config_find(name), value, FROM_PRESET, &err)) { fatal("preset: --%s %s", name, err.text); }
    free(value);
}

void preset_apply(Config* c) {
    if (!*c->preset) { return; }
    for (int i = 0; i < NUM_PRESETS; i++) {
        const Preset* p = &PRESETS[i];
        if (strcmp(p->name, c->preset)) { continue; }
        preset_set(c, "model", format("%s", p->model));
        preset_set(c, "total_batch_size", format("%lld", p->total_batch_size));
        preset_set(c, "lr", format("%g", p->lr));
        preset_set(c, "max_steps", format("%lld", p->max_steps));
        preset_set(c, "warmup_steps", format("%lld", p->warmup_steps));
        preset_set(c, "batch_ramp", format("%s", p->batch_ramp));
        preset_set(c, "schedule", format("cosine"));
        preset_set(c, "min_lr_frac", format("%g", p->min_lr_frac));
        preset_set(c, "weight_decay", format("0.1"));
        return;
    }
    char names[256] = "";
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
        return fail(err, "%s: too large: at most L=1024, C=65536, T=1000000, V=65536 (token files hold 16-bit ids)",
                    where);
    }
    return true;
}

// "L=6,H=6,C=384,T=256[,V=50257]", in any order.
static bool model_parse_shape(const char* text, GPT2Config* m, Error* err) {
    static const char letters[] = "LHCTV";
    int value[5] = {0, 0, 0, 0, GPT2_VOCAB};
    for (const char* at = text; *at;) {
        const char* letter = strchr(letters, *at);
        char* end = NULL;
        long number = letter && at[1] == '=' ? strtol(at + 2, &end, 10) : 0;
        if (!end || end == at + 2 || (*end && *end != ',') || number < 1 || number > 1000000) {
            return fail(err, "--model '%s': cannot read it from '%s' on; give a name (see --help) or "
                             "L=6,H=6,C=384,T=256[,V=50257]", text, at);
        }
        value[letter - letters] = (int)number;
        at = *end ? end + 1 : end;
    }
    for (int i = 0; i < 5; i++) {
        if (value[i]) { continue; }
        return fail(err, "--model '%s': %c is missing; give L=...,H=...,C=...,T=...", text, letters[i]);
    }
    m->num_layers = value[0];
    m->num_heads = value[1];
    m->channels = value[2];
    m->max_seq_len = value[3];
    m->vocab_size = value[4];
    return true;
}

bool model_parse(const char* text, bool pad_vocab, GPT2Config* m, Error* err) {
    bool named = false;
    memset(m, 0, sizeof *m);
    for (int i = 0; i < NUM_MODEL_SIZES && !named; i++) {
        const ModelSize* s = &MODEL_SIZES[i];
        if (strcmp(s->name, text)) { continue; }
        m->num_layers = s->num_layers;
        m->num_heads = s->num_heads;
        m->channels = s->channels;
        m->max_seq_len = s->max_seq_len;
        m->vocab_size = GPT2_VOCAB;
        named = true;
    }
    if (!named && !model_parse_shape(text, m, err)) { return false; }
    m->padded_vocab_size = padded_vocab(m->vocab_size, pad_vocab);
    return model_check(m, "--model", err);
}

size_t model_parameters(const GPT2Config* m) {
    const size_t C = (size_t)m->channels, L = (size_t)m->num_layers;
    return ((size_t)m->vocab_size + (size_t)m->max_seq_len) * C + L * (12 * C * C + 13 * C) + 2 * C;
}
