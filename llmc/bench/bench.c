#include "bench.h"
#include "collectives.h"
#include "ladder.h"
#include "ops.h"
#include "plans.h"
#include "predict.h"
#include "scale.h"

int bench_command(const Config* config, Comm* comm) {
    const char* what = config->num_args > 0 ? config->args[0] : "without a name";
    if (!strcmp(what, "comm") && config->num_args == 1) { return bench_comm(config, comm); }
    if (!strcmp(what, "scale") && config->num_args == 1) { return bench_scale(config, comm); }
    if (comm->size > 1) { usage_error("bench %s is for one process; comm and scale run in several", what); }
    if (!strcmp(what, "predict")) { return bench_predict(config); }
    if (config_source(config, "total_batch_size") > FROM_DEFAULT) {
        usage_error("bench %s: --total_batch_size is an option of bench scale and bench predict alone", what);
    }
    if (!strcmp(what, "ladder") && config->num_args == 1) { return bench_ladder(config); }
    if (!strcmp(what, "ops")) { return bench_ops(config); }
    if (!strcmp(what, "plans") && config->num_args == 1) { return bench_plans(config); }
    usage_error("bench %s: give one of: ladder (each technique on top of the one before, measured), ops [NAME...] "
                "(each operation beside its limit), plans (cuBLASLt's algorithms for each matmul, measured), predict "
                "GPU (a training step on a GPU, predicted), comm (collectives of several processes, measured), scale "
                "(a step on many GPUs, predicted)", what);
}
