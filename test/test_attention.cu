// Tests attention on a GPU at lengths around those of its tiles, for every head size that flash.cuh is compiled for
// from 64 on, and in all of its tilings. It is compared with the formulas in double precision on the host, which
// finite differences confirm. Forward by one variant is also followed by backward of another. All of this with
// documents of several lengths too. Built once for each storage type.
#include "../llmc/cuda/attention.cuh"
#include "../llmc/cuda/documents.cuh"
#include "../llmc/cuda/open.cuh"
#include "../llmc/rng.h"
extern "C" {
#include "../llmc/check/compare.h"
}

static int failures;

struct Doubles {
    double *qkv, *dout, *out, *lse, *dqkv;
    int *starts, *ends; // of documents (Backend.document_bounds); whole sequences without
    bool has_documents;
    const char* layout;
};

// Places of documents behind the first position of a sequence.
enum Layout { NO_MASK, ONE_DOCUMENT, SINGLE_TOKENS, AT_BORDERS, ANYWHERE };
static const char* const LAYOUT_NAMES[] = {"no documents", "one document", "single tokens", "documents of whole tiles",
                                           "documents"};

static bool begins_document(Layout layout, int n) {
    switch (layout) {
    case SINGLE_TOKENS: return true;
    case AT_BORDERS: return n % 32 == 0;
    case ANYWHERE: return n % 31 == 15 || n % 67 < 3;
    default: return false;
    }
}

static size_t out_size(const AttentionShape* s) { return (size_t)s->B * s->T * s->NH * s->HS; }
static size_t lse_size(const AttentionShape* s) { return (size_t)s->B * s->NH * s->T; }
static double* doubles(size_t n) { return (double*)alloc_or_die(n, sizeof(double), "doubles"); }

// Returns a normally distributed number, rounded to floatX.
static double random_value(uint64_t seed, size_t i) { return to_float(to_floatX(rng_normal(seed, RNG_TEST, i))); }

// ---------------------------------------------------------------------------------------------------------------------
// in double precision

struct HeadAt {
    const double *q, *k, *v;
    size_t out, lse, row;
};
static HeadAt head_at(const AttentionShape* s, const double* qkv, int b, int h) {
    const size_t C = (size_t)s->NH * s->HS;
    const double* q = qkv + (size_t)b * s->T * 3 * C + h * s->HS;
    return {q, q + C, q + 2 * C, (size_t)b * s->T * C + h * s->HS, ((size_t)b * s->NH + h) * s->T, C};
}

static double dot_product(const double* a, const double* b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }
    return sum;
}

static void host_forward(const AttentionShape* s, const Doubles* x) {
    const double scale = 1 / sqrt(s->HS);
    double* p = doubles(s->T);
    memset(x->out, 0, out_size(s) * sizeof(double));
    for (int head = 0; head < s->B * s->NH; head++) {
        const HeadAt at = head_at(s, x->qkv, head / s->NH, head % s->NH);
        for (int t = 0; t < s->T; t++) {
            double max = -INFINITY, sum = 0;
            const int first = x->starts[head / s->NH * s->T + t];
            for (int j = first; j <= t; j++) {
                p[j] = scale * dot_product(at.q + t * 3 * at.row, at.k + j * 3 * at.row, s->HS);
                max = fmax(max, p[j]);
            }
            for (int j = first; j <= t; j++) { sum += exp(p[j] - max); }
            x->lse[at.lse + t] = max + log(sum);
            for (int j = first; j <= t; j++) {
                const double weight = exp(p[j] - x->lse[at.lse + t]);
                double* out = x->out + at.out + t * at.row;
                for (int c = 0; c < s->HS; c++) { out[c] += weight * at.v[j * 3 * at.row + c]; }
            }
        }
    }
    free(p);
}

static void host_backward(const AttentionShape* s, const Doubles* x) {
    const double scale = 1 / sqrt(s->HS);
    memset(x->dqkv, 0, 3 * out_size(s) * sizeof(double));
    for (int head = 0; head < s->B * s->NH; head++) {
        const HeadAt at = head_at(s, x->qkv, head / s->NH, head % s->NH);
        double *dq = x->dqkv + (at.q - x->qkv), *dk = dq + at.row, *dv = dk + at.row;
        for (int t = 0; t < s->T; t++) {
            const double *d = x->dout + at.out + t * at.row, *q = at.q + t * 3 * at.row;
            const double delta = dot_product(d, x->out + at.out + t * at.row, s->HS);
            for (int j = x->starts[head / s->NH * s->T + t]; j <= t; j++) {
                const size_t row = j * 3 * at.row;
                const double p = exp(scale * dot_product(q, at.k + row, s->HS) - x->lse[at.lse + t]);
                const double ds = scale * p * (dot_product(d, at.v + row, s->HS) - delta);
                for (int c = 0; c < s->HS; c++) {
                    dq[t * 3 * at.row + c] += ds * at.k[row + c];
                    dk[row + c] += ds * q[c];
                    dv[row + c] += p * d[c];
                }
            }
        }
    }
}

static double scalar_of(const AttentionShape* s, const Doubles* x) {
    host_forward(s, x);
    return dot_product(x->dout, x->out, (int)out_size(s));
}

// Compares a few elements of dqkv with finite differences of sum(dout * out).
static void expect_finite_differences(const AttentionShape* s, const Doubles* x) {
    const double step = 1e-4;
    for (int k = 0; k < 6; k++) {
        const size_t i = rng_u64(5, RNG_TEST, (uint64_t)k) % (3 * out_size(s));
        const double value = x->qkv[i];
        x->qkv[i] = value + step;
        double difference = scalar_of(s, x);
        x->qkv[i] = value - step;
        difference = (difference - scalar_of(s, x)) / (2 * step);
        x->qkv[i] = value;
        if (!(fabs(difference - x->dqkv[i]) < 1e-6)) {
            failures++;
            fprintf(stderr, "T=%d HS=%d: dqkv[%zu] is %g, a finite difference %g\n", s->T, s->HS, i, x->dqkv[i],
                    difference);
        }
    }
    host_forward(s, x);
}

// ---------------------------------------------------------------------------------------------------------------------
// on the device

struct DeviceTensors {
    floatX *qkv, *dout, *out, *dqkv;
    float *lse, *delta;
    int *starts, *ends;
};

// Copies values to the device; values NULL: NaN, so that elements that are not written show.
template <class Type> static Type* to_device(const double* values, size_t n) {
    Type* host = (Type*)alloc_or_die(n, sizeof *host, "values");
    Type* device = (Type*)device_alloc(n * sizeof *host, "values");
    for (size_t i = 0; i < n; i++) { host[i] = from_float<Type>(values ? (float)values[i] : NAN); }
    device_copy_in(device, host, n * sizeof *host);
    free(host);
    return device;
}

static int* ints_to_device(const int* values, size_t n) {
    int* device = (int*)device_alloc(n * sizeof *values, "bounds of documents");
    device_copy_in(device, values, n * sizeof *values);
    return device;
}

template <class Type>
static void expect_near(const AttentionShape* s, const char* name, const char* variants, const Type* got,
                        const double* want, size_t n, double bound) {
    Type* host = (Type*)alloc_or_die(n, sizeof *host, "values");
    double* values = doubles(n);
    device_copy_out(host, got, n * sizeof *host);
    for (size_t i = 0; i < n; i++) { values[i] = to_float(host[i]); }
    const Difference d = compare(values, want, n);
    if (!(d.error <= bound && d.worst <= 10 * bound)) {
        failures++;
        fprintf(stderr, "%s, T=%d HS=%d: %s is off by %.2g, an element by %.2g\n", variants, s->T, s->HS, name, d.error,
                d.worst);
    }
    free(host);
    free(values);
}

// Returns true if one of the kernels of flash.cuh has variant number i of its tilings.
static bool has_tiling(const AttentionShape* s, int i) {
    bool has = false;
    for (int k = 0; k < NUM_FLASH_KERNELS && s->HS <= FLASH_MAX_HEAD_SIZE; k++) {
        has = has || flash_tiling((FlashKernel)k, sizeof(floatX), s->HS, i).warps;
    }
    return has;
}

// Lets the kernels of flash.cuh use variant number i of their tilings, or their last one.
static void choose_tilings(int i) {
    for (int k = 0; k < NUM_FLASH_KERNELS; k++) { gpu.flash_variant[k] = i; }
}

// Runs forward by one variant and backward by another.
static void expect_variants_agree(const AttentionShape* s, const Doubles* x, Attention forward, Attention backward) {
    static const char* const NAMES[] = {"plain", "flash", "cudnn"};
    const int C = s->NH * s->HS;
    const size_t n = out_size(s), heads = lse_size(s);
    const double bound = sizeof(floatX) == 4 ? 1e-5 : FLOATX_IS_FP16 ? 8e-4 : 6e-3;
    char variants[64];
    snprintf(variants, sizeof variants, "%s, %s, %s, tilings %d", x->layout, NAMES[forward], NAMES[backward],
             gpu.flash_variant[FLASH_FORWARD]);
    DeviceTensors t = {to_device<floatX>(x->qkv, 3 * n), to_device<floatX>(x->dout, n), to_device<floatX>(NULL, n),
                       to_device<floatX>(NULL, 3 * n), to_device<float>(NULL, heads), to_device<float>(NULL, heads),
                       ints_to_device(x->starts, n / C), ints_to_device(x->ends, n / C)};
    const int *starts = x->has_documents ? t.starts : NULL, *ends = x->has_documents ? t.ends : NULL;
    gpu.attention = forward;
    attention_forward(t.out, t.lse, t.qkv, starts, s->B, s->T, C, s->NH);
    gpu.attention = backward;
    attention_backward(t.dqkv, t.delta, t.dout, t.out, t.lse, t.qkv, starts, ends, s->B, s->T, C, s->NH);
    expect_near(s, "out", variants, t.out, x->out, n, bound);
    expect_near(s, "lse", variants, t.lse, x->lse, heads, 1e-5);
    expect_near(s, "dqkv", variants, t.dqkv, x->dqkv, 3 * n, bound);
    floatX* const typed[4] = {t.qkv, t.dout, t.out, t.dqkv};
    for (int i = 0; i < 4; i++) { device_free(typed[i], 0); }
    int* const bounds[2] = {t.starts, t.ends};
    for (int i = 0; i < 2; i++) { device_free(bounds[i], 0); }
    device_free(t.lse, 0);
    device_free(t.delta, 0);
}

// Sets the bounds of the documents by the device's own operation, and checks them.
static void find_documents(const AttentionShape* s, Layout layout, const Doubles* x) {
    enum { EOT = 3 };
    const size_t n = (size_t)s->B * s->T, bytes = n * sizeof(int);
    int* tokens = (int*)alloc_or_die(n, sizeof *tokens, "tokens");
    for (size_t i = 0; i < n; i++) { tokens[i] = begins_document(layout, (int)i) ? EOT : 2; }
    int *device = ints_to_device(tokens, n), *starts = (int*)device_alloc(2 * bytes, "bounds of documents");
    document_bounds(starts, starts + n, device, EOT, s->B, s->T);
    device_copy_out(x->starts, starts, bytes);
    device_copy_out(x->ends, starts + n, bytes);
    for (int i = 0, start = 0; i < (int)n; i++) {
        const int t = i % s->T;
        if (t == 0 || tokens[i] == EOT) { start = t; }
        int end = t + 1;
        while (end < s->T && tokens[i - t + end] != EOT) { end++; }
        if (x->starts[i] == start && x->ends[i] == end) { continue; }
        failures++;
        fprintf(stderr, "%s, T=%d: the document of %d is %d to %d, not %d to %d\n", x->layout, s->T, i, x->starts[i],
                x->ends[i], start, end);
    }
    device_free(device, 0);
    device_free(starts, 0);
    free(tokens);
}

static int* ints(size_t n) { return (int*)alloc_or_die(n, sizeof(int), "bounds of documents"); }

static void test_shape(const AttentionShape* s, Layout layout) {
    const size_t n = out_size(s), rows = (size_t)s->B * s->T;
    const Doubles x = {doubles(3 * n), doubles(n), doubles(n), doubles(lse_size(s)), doubles(3 * n),
                       ints(rows), ints(rows), layout != NO_MASK, LAYOUT_NAMES[layout]};
    find_documents(s, layout, &x);
    for (size_t i = 0; i < 3 * n; i++) { x.qkv[i] = random_value(1, i); }
    for (size_t i = 0; i < n; i++) { x.dout[i] = random_value(2, i); }
    host_forward(s, &x);
    host_backward(s, &x);
    if (s->T <= 64) { expect_finite_differences(s, &x); }
    for (int i = 0; i < MAX_FLASH_TILINGS; i++) {
        if (i && !has_tiling(s, i)) { continue; }
        choose_tilings(i);
        expect_variants_agree(s, &x, ATTENTION_FLASH, ATTENTION_FLASH);
    }
    choose_tilings(0);
    if (s->T == 31 || s->T == 64) {
        expect_variants_agree(s, &x, ATTENTION_PLAIN, ATTENTION_FLASH);
        expect_variants_agree(s, &x, ATTENTION_FLASH, ATTENTION_PLAIN);
    }
    if (s->T == 31 && FLOATX_IS_16_BITS && layout == NO_MASK) {
        expect_variants_agree(s, &x, ATTENTION_CUDNN, ATTENTION_FLASH);
        expect_variants_agree(s, &x, ATTENTION_FLASH, ATTENTION_CUDNN);
    }
    void* const all[7] = {x.qkv, x.dout, x.out, x.lse, x.dqkv, x.starts, x.ends};
    for (int i = 0; i < 7; i++) { free(all[i]); }
}

// Arguments are the lengths to test, in place of all.
int main(int argc, char** argv) {
    const int all_lengths[] = {1, 31, 64, 127, 256}, heads[] = {64, 80, 96, 128};
    const int num_lengths = argc > 1 ? argc - 1 : (int)(sizeof all_lengths / sizeof *all_lengths);
    DeviceOptions options = {};
    options.fused = options.flash = true;
    device_open(&options);
    int shapes = 0;
    for (int i = 0; i < num_lengths; i++) {
        const int T = argc > 1 ? atoi(argv[i + 1]) : all_lengths[i];
        for (int HS : heads) {
            const AttentionShape s = cudnn_shape(1, T, 1, HS);
            test_shape(&s, NO_MASK);
            shapes++;
            for (int layout = ONE_DOCUMENT; T > 1 && T < 256 && HS <= 80 && layout <= ANYWHERE; layout++) {
                test_shape(&s, (Layout)layout);
                shapes++;
            }
        }
    }
    // several sequences and heads, and head sizes that flash.cuh lacks: plain kernels compute these
    const AttentionShape others[] = {cudnn_shape(2, 31, 3, 64), cudnn_shape(1, 31, 2, 20), cudnn_shape(1, 64, 1, 136)};
    for (const AttentionShape& s : others) {
        test_shape(&s, NO_MASK);
        test_shape(&s, ANYWHERE);
        shapes += 2;
    }
    printf("attention, " STRING(FLOATX) ": %d shapes, %d failures\n", shapes, failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
