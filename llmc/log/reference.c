#include "reference.h"
#include "../base/file.h"

// llm.c, 124M on FineWeb 10B with 8 H100, 2^19 tokens a step: its log in modded-nanogpt,
// records/track_1_short/2024-10-13_llmc/main.log.
#define AT(step, loss) {(step) * 524288.0, loss}
static const Point LLMC_124M[] = {
    AT(0, 11.009), AT(250, 6.171), AT(500, 5.374), AT(1000, 4.317), AT(2500, 3.765), AT(5000, 3.554), AT(7500, 3.457),
    AT(10000, 3.392), AT(12500, 3.341), AT(15000, 3.300), AT(17500, 3.277), AT(19560, 3.2722)};

// OpenAI's checkpoints on FineWeb, as llm.c plots them (dev/vislog.ipynb), and on FineWeb-Edu, as build-nanogpt does
// (play.ipynb).
static const struct {
    const char* data; // the name of the validation shard begins so
    double parameters, loss;
    const char* name;
} OPENAI[] = {
    {"fineweb_val", 124439808, 3.4250, "OpenAI's GPT-2 124M"},
    {"fineweb_val", 354823168, 3.0831, "OpenAI's GPT-2 355M"},
    {"fineweb_val", 774030080, 3.0006, "OpenAI's GPT-2 774M"},
    {"fineweb_val", 1557611200, 2.8313, "OpenAI's GPT-2 1558M"},
    {"finewebedu_val", 124439808, 3.2924, "OpenAI's GPT-2 124M"},
};

Reference run_reference(const Run* run) {
    Reference found = {NULL, NAN, NULL, NULL, 0};
    json_t* options = json_object_get(run->config, "options");
    const char* name = path_name(record_text(options, "val_data"));
    const double parameters = record_number(json_object_get(run->config, "model"), "parameters");
    if (strcmp(record_text(options, "tokenizer"), "gpt2") || !isfinite(parameters)) { return found; }
    for (size_t i = 0; i < sizeof OPENAI / sizeof *OPENAI; i++) {
        const bool has_size = fabs(parameters / OPENAI[i].parameters - 1) < 0.02; // GPT-3's 125M has longer sequences
        if (!has_size || strncmp(name, OPENAI[i].data, strlen(OPENAI[i].data))) { continue; }
        found.level_name = OPENAI[i].name;
        found.level = OPENAI[i].loss;
        if (i == 0) {
            found.curve_name = "llm.c 124M";
            found.curve = LLMC_124M;
            found.count = sizeof LLMC_124M / sizeof *LLMC_124M;
        }
    }
    return found;
}
