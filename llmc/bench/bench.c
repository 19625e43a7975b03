#include "bench.h"
#include "../train/effects.h"
#include "collectives.h"
#include "data.h"
#include "ladder.h"
#include "ops.h"
#include "peers.h"
#include "plans.h"
#include "predict.h"
#include "presets.h"
#include "scale.h"

// Ends the program if an option was given that is not among `known`: it would have no effect.
static void refuse_options(const Config* c, const char* what, const char* known) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const char* name = CONFIG_OPTIONS[i].name;
        if (!name || config_source(c, name) == FROM_DEFAULT || is_one_of(name, known)) { continue; }
        usage_error("bench %s takes no --%s%s%s", what, name, *known ? "; it takes " : ": it has no options", known);
    }
}

int bench_command(const Config* config, Comm* comm) {
    Error err;
    const char* what = config->num_args > 0 ? config->args[0] : "without a name";
    if (!is_one_of(what, "ladder|ops|peers|plans|predict|presets|data|comm|scale")) {
        usage_error("bench %s: give one of: ladder (each technique on top of the one before, measured), ops [NAME...] "
                    "(each operation beside its limit), peers (a step beside PyTorch's), plans (cuBLASLt's algorithms "
                    "for each matmul, measured), predict GPU (a training step on a GPU, predicted), presets (the "
                    "cost of each --preset, predicted), data (the speed of the data loader), comm (collectives of "
                    "several processes, measured), scale (a step on many GPUs, predicted)", what);
    }
    if (config->num_args > 1 && !is_one_of(what, "ops|predict")) {
        usage_error("bench %s takes no word after it, but got '%s'; options are --name value (see bench --help)", what,
                    config->args[1]);
    }
    if (!strcmp(what, "presets")) { refuse_options(config, what, ""); }
    if (!strcmp(what, "peers")) {
        refuse_options(config, what, "python|llmc|model|dtype|batch_size|seq_len|cpu|threads|max_steps|out");
    }
    if (!effects_check(config, BENCH, NULL, &err)) { usage_error("%s", err.text); }
    if (!strcmp(what, "comm")) { return bench_comm(config, comm); }
    if (!strcmp(what, "scale")) { return bench_scale(config, comm); }
    if (comm->size > 1) { usage_error("bench %s is for one process; comm and scale run in several", what); }
    if (!strcmp(what, "predict")) { return bench_predict(config); }
    if (!strcmp(what, "presets")) { return bench_presets(); }
    if (config_source(config, "total_batch_size") > FROM_DEFAULT) {
        usage_error("bench %s: --total_batch_size is an option of bench scale and bench predict alone", what);
    }
    if (!strcmp(what, "ladder")) { return bench_ladder(config); }
    if (!strcmp(what, "data")) { return bench_data(config); }
    if (!strcmp(what, "peers")) { return bench_peers(config); }
    return !strcmp(what, "ops") ? bench_ops(config) : bench_plans(config);
}
