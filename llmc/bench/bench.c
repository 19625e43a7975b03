#include "bench.h"
#include "ladder.h"
#include "ops.h"

int bench_command(const Config* config, Comm* comm) {
    Error err;
    const char* what = config->num_args > 0 ? config->args[0] : "without a name";
    if (!is_one_of(what, "ladder|ops|step|plans|comm")) {
        usage_error("bench %s: give one of: ladder (each technique on top of the one before), ops [NAME...] (each "
                    "operation beside its limit), step (the operations of a step, listed without a device), plans "
                    "(cuBLASLt's algorithms for each matmul), comm (collectives of several processes)", what);
    }
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
