#include "check_op.h"
#include "op_run.h"

const char* check_verdict(Check* k, bool ok) {
    k->compared++;
    k->failed += !ok;
    return ok ? "ok" : "FAILED";
}

// Allocates and fills `inputs`, rounded as the device has them, and copies them to `copies`. NULL for scratch.
static void fill_inputs(const Check* k, const OpCase* c, double** inputs, double** copies) {
    for (int i = 0; i < c->count; i++) {
        const OpTensor* t = &c->tensor[i];
        const bool is_scratch = t->role == ROLE_SCRATCH;
        inputs[i] = is_scratch ? NULL : alloc_or_die(t->n, sizeof **inputs, t->name);
        copies[i] = is_scratch ? NULL : alloc_or_die(t->n, sizeof **copies, t->name);
    }
    op_fill(inputs, c->tensor, c->count, &c->size, 1);
    for (int i = 0; i < c->count; i++) {
        const OpTensor* t = &c->tensor[i];
        if (!copies[i]) { continue; }
        for (size_t j = 0; j < t->n; j++) { inputs[i][j] = op_rounded(k->device, t->elem, inputs[i][j]); }
        memcpy(copies[i], inputs[i], t->n * sizeof **inputs);
    }
}

void check_op(Check* k, int op, const OpSizes* sizes) {
    double *got[MAX_OP_TENSORS], *want[MAX_OP_TENSORS];
    const char* name = op_name(op);
    const OpCase c = op_declare(k->device, op, sizes);
    fill_inputs(k, &c, want, got);
    k->device->device_open(&k->device_options);
    op_run_values(k->device, op, sizes, got);
    for (int i = 0; i < c.count; i++) {
        const OpTensor* t = &c.tensor[i];
        if (t->role == ROLE_READ && memcmp(got[i], want[i], t->n * sizeof **got) != 0) {
            printf("%-28s %-12s was written to  %s\n", name, t->name, check_verdict(k, false));
        }
    }
    k->reference->device_open(&k->reference_options);
    op_run_values(k->reference, op, sizes, want);
    for (int i = 0; i < c.count; i++) {
        const OpTensor* t = &c.tensor[i];
        if (t->role == ROLE_WRITE || t->role == ROLE_ADD) {
            const Difference d = compare(got[i], want[i], t->n);
            const double bound = op_bound(k->bounds, k->device, name, t->elem);
            printf("%-28s %-12s %12zu %10.2e %10.2e %10.2e %10.2e  %s\n", name, t->name, t->n, d.error, bound, d.worst,
                   element_bound(bound), check_verdict(k, is_within(&d, bound)));
        }
        free(got[i]);
        free(want[i]);
    }
    fflush(stdout);
}
