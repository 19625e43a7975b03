// Compares the weights and moments of two checkpoints, tensor by tensor. Returns 1 if the error of a tensor, relative
// to its norm, is above a bound. Leaves out the bias of the keys: its true gradient is zero, its moments are noise.
// usage: compare_checkpoints FOLDER FOLDER BOUND
#include "llmc/check/compare.h"
#include "llmc/files/safetensors.h"

static double* values(const SafeTensors* s, const SafeTensor* t, size_t n) {
    Error err;
    float* x = alloc_or_die(n, sizeof *x, t->name);
    double* y = alloc_or_die(n, sizeof *y, t->name);
    if (!safetensors_read_float(s, t, x, &err)) { fatal("%s", err.text); }
    for (size_t i = 0; i < n; i++) { y[i] = x[i]; }
    free(x);
    return y;
}

static bool compare_files(const char* a, const char* b, const char* file, double bound) {
    Error err;
    SafeTensors s, t;
    char *path_a = format("%s/%s", a, file), *path_b = format("%s/%s", b, file);
    if (!safetensors_open(&s, path_a, &err) || !safetensors_open(&t, path_b, &err)) { fatal("%s", err.text); }
    if (s.count != t.count || s.count == 0) { fatal("%s and %s have different tensors", path_a, path_b); }
    bool ok = true;
    for (int i = 0; i < s.count; i++) {
        const SafeTensor *x = &s.tensors[i], *y = safetensors_find(&t, x->name);
        const size_t n = x->elements;
        if (!y || y->elements != n) { fatal("%s: no tensor %s as in %s", path_b, x->name, path_a); }
        double *got = values(&s, x, n), *want = values(&t, y, n);
        if (strstr(x->name, "attn.c_attn.bias")) {
            memset(got + n / 3, 0, n / 3 * sizeof *got);
            memset(want + n / 3, 0, n / 3 * sizeof *want);
        }
        const double error = compare(got, want, n).error;
        if (!(error <= bound)) {
            printf("%s: %s differs by %.3g\n", file, x->name, error);
            ok = false;
        }
        free(got);
        free(want);
    }
    safetensors_close(&s);
    safetensors_close(&t);
    free(path_a);
    free(path_b);
    return ok;
}

int main(int argc, char** argv) {
    if (argc != 4) { usage_error("usage: compare_checkpoints FOLDER FOLDER BOUND"); }
    const double bound = atof(argv[3]);
    const bool model = compare_files(argv[1], argv[2], "model.safetensors", bound);
    const bool optimizer = compare_files(argv[1], argv[2], "optimizer.safetensors", bound);
    return model && optimizer ? EXIT_DONE : EXIT_RUNTIME;
}
