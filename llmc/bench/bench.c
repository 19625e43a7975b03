#include "bench.h"
#include "collectives.h"
#include "ladder.h"
#include "ops.h"
#include "plans.h"
#include "step.h"

// Benches that this program no longer has.
static const struct {
    const char *name, *instead;
} GONE[] = {
    {"predict", "python3 dev/bench/predict.py GPU predicts a step from bench step"},
    {"presets", "python3 dev/bench/predict.py GPU --preset NAME predicts hours and dollars; dev/learning.md has all"},
    {"scale", "python3 dev/bench/predict.py GPU --gpus N predicts several GPUs"},
    {"peers", "run python3 dev/bench/peers.py --python PYTHON"},
    {"data", "train with --overfit 1, which reads one batch: if that has more tok/s, the data is the limit"},
};

// Ends the program: there is no such bench.
static void ATTR_NORETURN no_such_bench(const char* what) {
    for (size_t i = 0; i < sizeof GONE / sizeof *GONE; i++) {
        if (!strcmp(what, GONE[i].name)) { usage_error("bench %s is gone: %s", what, GONE[i].instead); }
    }
    usage_error("bench %s: give one of: ladder (each technique on top of the one before), ops [NAME...] (each "
                "operation beside its limit), step (the operations of a step, listed without a device), plans "
                "(cuBLASLt's algorithms for each matmul), comm (collectives of several processes)", what);
}

int bench_command(const Config* config, Comm* comm) {
    Error err;
    const char* what = config->num_args > 0 ? config->args[0] : "without a name";
    if (!is_one_of(what, "ladder|ops|step|plans|comm")) { no_such_bench(what); }
    if (config->num_args > 1 && strcmp(what, "ops")) {
        usage_error("bench %s takes no word after it, but got '%s'; options are --name value (see bench --help)", what,
                    config->args[1]);
    }
    if (!config_check_needs(config, BENCH, &err)) { usage_error("%s", err.text); }
    if (!strcmp(what, "comm")) { return bench_comm(config, comm); }
    if (comm->size > 1) { usage_error("bench %s is for one process; bench comm runs in several", what); }
    if (!strcmp(what, "step")) { return bench_step(config); }
    if (config_source(config, "total_batch_size") > FROM_DEFAULT || *config->preset) {
        usage_error("bench %s: --total_batch_size and --preset are options of bench step alone", what);
    }
    if (!strcmp(what, "ladder")) { return bench_ladder(config); }
    return !strcmp(what, "ops") ? bench_ops(config) : bench_plans(config);
}
