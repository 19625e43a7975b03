// Finds and reads the tensors of an open operation (llmc/check/op_run.h), for tests.
#pragma once
#include "llmc/check/op_run.h"

// Returns the tensor of this name; NULL if the case has none.
static inline OpTensor* op_find_tensor(OpCase* c, const char* name) {
    for (int i = 0; i < c->count; i++) {
        if (!strcmp(c->tensor[i].name, name)) { return &c->tensor[i]; }
    }
    return NULL;
}

// Returns a copy of a tensor's values, which the caller frees.
static inline double* op_values(const OpCase* c, const OpTensor* t) {
    double* values = alloc_or_die(t->n, sizeof *values, t->name);
    op_get(c, t, values);
    return values;
}
