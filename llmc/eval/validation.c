#include "validation.h"

double validation_loss(GPT2* g, EvalLoader* val, Comm* comm, bool (*is_interrupted)(void*), void* context) {
    const Backend* b = g->backend;
    double loss = 0;
    Progress shown = {0, 0};
    const long long share = (long long)g->B * comm->size, batches = ((long long)val->num_windows + share - 1) / share;
    b->device_zero(g->sums, NUM_SUMS * sizeof(double));
    evalloader_begin(val, comm->rank, comm->size);
    for (long long i = 0; i < batches; i++) {
        if (is_interrupted && is_interrupted(context)) { return NAN; }
        const Batch* next = evalloader_next(val); // in the last round some ranks may have none
        if (next) {
            gpt2_upload(g, next->tokens, (size_t)next->rows * (size_t)next->T);
            gpt2_forward(g, next->rows, next->T, NULL);
            gpt2_loss(g, next->rows, next->T);
        }
        progress(&shown, "validating: batch %lld of %lld", i + 1, batches);
    }
    comm_all_reduce_sums(comm, &g->sums[SUM_LOSS], 1);
    b->device_copy_out(&loss, &g->sums[SUM_LOSS], sizeof loss);
    return loss / ((double)val->num_windows * g->T);
}
