// Attention of every backend, in each of its forms and tilings, at lengths around those of its blocks, with and without
// documents, against the formulas in double precision. Finite differences confirm these. Forward by one form is also
// followed by backward of another. Linked with the CPU's backends and, emulated or on a GPU, with those of CUDA.
#include "llmc/check/compare.h"
#include "llmc/base/rng.h"
#include "llmc/train/plan.h"
#include "test/check/attention_shapes.h"
#include "test/check/backends.h"

// Places of documents behind the first position of a sequence. NO_MASK: attention is not given any.
typedef enum { NO_MASK, ONE_DOCUMENT, SINGLE_TOKENS, AT_BORDERS, ANYWHERE, NUM_LAYOUTS } Layout;
static const char* const LAYOUT_NAMES[NUM_LAYOUTS] = {"no documents", "one document", "single tokens",
                                                      "documents of whole tiles", "documents"};
enum { EOT = 3 }; // a document begins at each such token

static bool begins_document(Layout layout, int n) {
    switch (layout) {
    case SINGLE_TOKENS: return true;
    case AT_BORDERS: return n % 32 == 0;
    case ANYWHERE: return n % 31 == 15 || n % 67 < 3;
    default: return false;
    }
}

// A problem and its solution in double precision. starts and ends: Backend.document_bounds; whole sequences with
// NO_MASK.
typedef struct {
    Shape s;
    Layout layout;
    int rows, C; // B*T and NH*HS
    size_t n, heads; // elements of out, and of lse
    double *qkv, *dout, *out, *lse, *dqkv;
    int *tokens, *starts, *ends;
} Problem;

// ---------------------------------------------------------------------------------------------------------------------
// in double precision

// Locates a row's head: its query, key and value in qkv, its part of out, its element of lse.
typedef struct {
    size_t q, k, v, out, lse;
} HeadAt;

static HeadAt head_at(const Problem* p, int row, int h) {
    const size_t C = (size_t)p->C, q = (size_t)row * 3 * C + (size_t)h * (size_t)p->s.HS;
    const int b = row / p->s.T, t = row % p->s.T;
    return (HeadAt){q, q + C, q + 2 * C, (size_t)row * C + (size_t)h * (size_t)p->s.HS,
                    ((size_t)b * (size_t)p->s.NH + (size_t)h) * (size_t)p->s.T + (size_t)t};
}

static double dot_product(const double* a, const double* b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) { sum += a[i] * b[i]; }
    return sum;
}

static void add_scaled(double* sum, double factor, const double* x, int n) {
    for (int i = 0; i < n; i++) { sum[i] += factor * x[i]; }
}

// Sets out and lse.
static void solve_forward(Problem* p) {
    const int HS = p->s.HS, T = p->s.T;
    const double scale = 1 / sqrt(HS);
    double* score = alloc_or_die((size_t)T, sizeof *score, "scores");
    memset(p->out, 0, p->n * sizeof *p->out);
    for (int row = 0; row < p->rows; row++) {
        const int sequence = row - row % T, first = sequence + p->starts[row];
        for (int h = 0; h < p->s.NH; h++) {
            const HeadAt at = head_at(p, row, h);
            double max = -INFINITY, sum = 0;
            for (int r = first; r <= row; r++) {
                score[r - sequence] = scale * dot_product(p->qkv + at.q, p->qkv + head_at(p, r, h).k, (size_t)HS);
                max = fmax(max, score[r - sequence]);
            }
            for (int r = first; r <= row; r++) { sum += exp(score[r - sequence] - max); }
            p->lse[at.lse] = max + log(sum);
            for (int r = first; r <= row; r++) {
                const double weight = exp(score[r - sequence] - p->lse[at.lse]);
                add_scaled(p->out + at.out, weight, p->qkv + head_at(p, r, h).v, HS);
            }
        }
    }
    free(score);
}

// Sets dqkv, the gradient of sum(dout * out). out and lse must be set.
static void solve_backward(Problem* p) {
    const int HS = p->s.HS;
    const double scale = 1 / sqrt(HS);
    memset(p->dqkv, 0, 3 * p->n * sizeof *p->dqkv);
    for (int row = 0; row < p->rows; row++) {
        for (int h = 0; h < p->s.NH; h++) {
            const HeadAt at = head_at(p, row, h);
            const double *q = p->qkv + at.q, *dout = p->dout + at.out;
            const double delta = dot_product(dout, p->out + at.out, (size_t)HS);
            for (int r = row - row % p->s.T + p->starts[row]; r <= row; r++) {
                const HeadAt key = head_at(p, r, h);
                const double* k = p->qkv + key.k;
                const double prob = exp(scale * dot_product(q, k, (size_t)HS) - p->lse[at.lse]);
                const double dprob = dot_product(dout, p->qkv + key.v, (size_t)HS);
                const double ds = scale * prob * (dprob - delta);
                add_scaled(p->dqkv + at.q, ds, k, HS);
                add_scaled(p->dqkv + key.k, ds, q, HS);
                add_scaled(p->dqkv + key.v, prob, dout, HS);
            }
        }
    }
}

// Compares a few elements of dqkv with finite differences of sum(dout * out).
static void expect_finite_differences(Problem* p) {
    const double step = 1e-4;
    for (uint64_t k = 0; k < 6; k++) {
        const size_t i = rng_u64(5, RNG_TEST, k) % (3 * p->n);
        const double value = p->qkv[i];
        double sum[2];
        for (int side = 0; side < 2; side++) {
            p->qkv[i] = value + (side ? -step : step);
            solve_forward(p);
            sum[side] = dot_product(p->dout, p->out, p->n);
        }
        p->qkv[i] = value;
        EXPECT_NEAR(p->dqkv[i], (sum[0] - sum[1]) / (2 * step), 1e-6);
    }
    solve_forward(p);
}

// Sets the numbers of a problem, normally distributed and rounded to the type of a backend, and solves it.
static void solve(Problem* p, const Backend* b) {
    for (size_t i = 0; i < 3 * p->n; i++) { p->qkv[i] = as_stored(b, rng_normal(1, RNG_TEST, i)); }
    for (size_t i = 0; i < p->n; i++) { p->dout[i] = as_stored(b, rng_normal(2, RNG_TEST, i)); }
    solve_forward(p);
    solve_backward(p);
    if (p->s.T <= 64) { expect_finite_differences(p); }
}

static Problem problem_open(const Shape* s, Layout layout) {
    Problem p = {.s = *s, .layout = layout, .rows = s->B * s->T, .C = s->NH * s->HS};
    p.n = (size_t)p.rows * (size_t)p.C;
    p.heads = (size_t)p.rows * (size_t)s->NH;
    p.qkv = alloc_or_die(8 * p.n + p.heads, sizeof *p.qkv, "a problem");
    p.dqkv = p.qkv + 3 * p.n;
    p.dout = p.dqkv + 3 * p.n;
    p.out = p.dout + p.n;
    p.lse = p.out + p.n;
    p.tokens = alloc_or_die(3 * (size_t)p.rows, sizeof *p.tokens, "documents");
    p.starts = p.tokens + p.rows;
    p.ends = p.starts + p.rows;
    for (int i = 0, start = 0; i < p.rows; i++) {
        const int t = i % s->T;
        p.tokens[i] = begins_document(layout, i) ? EOT : EOT - 1;
        if (t == 0 || p.tokens[i] == EOT) { start = t; }
        p.starts[i] = start;
    }
    for (int i = p.rows - 1, end = 0; i >= 0; i--) {
        if ((i + 1) % s->T == 0) { end = s->T; }
        p.ends[i] = end;
        if (p.tokens[i] == EOT) { end = i % s->T; }
    }
    return p;
}

static void problem_close(Problem* p) {
    free(p->qkv);
    free(p->tokens);
}

// ---------------------------------------------------------------------------------------------------------------------
// on a device

static void* to_device(const Backend* b, const void* host, size_t bytes) {
    void* device = b->device_alloc(bytes, "a test's tensor");
    b->device_copy_in(device, host, bytes);
    return device;
}

// Copies numbers to the device; NULL: NaN, which shows elements that are not written.
static Stored* stored_to_device(const Backend* b, const double* values, size_t n) {
    void* host = alloc_or_die(n, b->element_bytes, "values");
    for (size_t i = 0; i < n; i++) { stored_put(b, host, i, values ? (float)values[i] : NAN); }
    Stored* device = to_device(b, host, n * b->element_bytes);
    free(host);
    return device;
}

// The device's copy of a problem.
typedef struct {
    Stored *qkv, *dqkv, *dout, *out, *rest;
    float *lse, *delta;
    int *starts, *ends;
} DeviceTensors;

static DeviceTensors device_tensors(const Backend* b, const Problem* p) {
    const size_t statistics = 2 * p->heads * sizeof(float), bounds = 2 * (size_t)p->rows * sizeof(int);
    float* nans = alloc_or_die(2 * p->heads, sizeof *nans, "statistics");
    for (size_t i = 0; i < 2 * p->heads; i++) { nans[i] = NAN; }
    DeviceTensors t = {stored_to_device(b, p->qkv, 3 * p->n), stored_to_device(b, NULL, 3 * p->n),
                       stored_to_device(b, p->dout, p->n), stored_to_device(b, NULL, p->n),
                       stored_to_device(b, NULL, p->n),
                       to_device(b, nans, statistics), NULL, to_device(b, p->starts, bounds), NULL};
    t.delta = t.lse + p->heads;
    t.ends = t.starts + p->rows;
    free(nans);
    return t;
}

static void device_tensors_free(const Backend* b, const Problem* p, DeviceTensors* t) {
    Stored* const stored[] = {t->qkv, t->dqkv, t->dout, t->out, t->rest};
    for (int i = 0; i < 5; i++) { b->device_free(stored[i], (i < 2 ? 3 : 1) * p->n * b->element_bytes); }
    b->device_free(t->lse, 2 * p->heads * sizeof(float));
    b->device_free(t->starts, 2 * (size_t)p->rows * sizeof(int));
}

// Checks the bounds of the documents that the device finds.
static void expect_documents(const Backend* b, const Problem* p) {
    const size_t bytes = (size_t)p->rows * sizeof(int);
    int *tokens = to_device(b, p->tokens, bytes), *bounds = b->device_alloc(2 * bytes, "bounds of documents");
    int* got = alloc_or_die(2, bytes, "bounds of documents");
    b->document_bounds(bounds, bounds + p->rows, tokens, EOT, p->s.B, p->s.T);
    b->device_copy_out(got, bounds, 2 * bytes);
    for (int i = 0; i < p->rows; i++) {
        if (got[i] == p->starts[i] && got[p->rows + i] == p->ends[i]) { continue; }
        TEST_FAIL("%s, T=%d: the document of %d is %d to %d, not %d to %d", LAYOUT_NAMES[p->layout], p->s.T, i,
                  got[i], got[p->rows + i], p->starts[i], p->ends[i]);
    }
    free(got);
    b->device_free(tokens, bytes);
    b->device_free(bounds, 2 * bytes);
}

// Fails if a tensor of the device, of n elements, is not what it should be. An element has a wider bound: at early
// positions few roundings can cancel.
static void expect_near(const Backend* b, const Problem* p, const char* tensor, const char* form, const void* device,
                        bool is_stored, const double* want, size_t n) {
    const double u = unit_roundoff(b), bound = is_stored && stores_16_bits(b) ? 1.6 * u : 1e-5;
    const size_t size = is_stored ? b->element_bytes : sizeof(float);
    void* host = alloc_or_die(n, size, "values");
    double* got = alloc_or_die(n, sizeof *got, "values");
    b->device_copy_out(host, device, n * size);
    for (size_t i = 0; i < n; i++) { got[i] = is_stored ? stored_get(b, host, i) : ((const float*)host)[i]; }
    const Difference d = compare(got, want, n);
    if (!(d.error <= bound && d.worst <= 9 * bound)) {
        TEST_FAIL("%s, %s, B=%d T=%d NH=%d HS=%d: %s is off by %.2g, an element by %.2g", form,
                  LAYOUT_NAMES[p->layout], p->s.B, p->s.T, p->s.NH, p->s.HS, tensor, d.error, d.worst);
    }
    free(host);
    free(got);
}

// A way of a device to compute attention.
typedef struct {
    const char* name;
    DeviceOptions options;
    int tiling;    // of a GPU's kernels in tiles (Backend.choose_variant)
    bool is_exact; // --attention exact
} Form;

// Returns true if a kernel of attention in tiles has this variant.
static bool has_tiling(const Backend* b, const Problem* p, int i) {
    for (int choice = CHOICE_FLASH_FORWARD; !b->is_host && choice <= CHOICE_FLASH_QUERIES; choice++) {
        if (b->variant_name((Choice)choice, i, p->s.B, p->s.T, p->C, p->s.NH)) { return true; }
    }
    return false;
}

// Opens the device for a form. Kernels that lack the tiling use the one that stands in for it.
static void choose(const Backend* b, const Problem* p, const Form* form) {
    DeviceOptions options = form->options;
    options.document_mask = p->layout != NO_MASK;
    b->device_open(&options);
    for (int choice = CHOICE_FLASH_FORWARD; form->tiling && choice <= CHOICE_FLASH_QUERIES; choice++) {
        b->choose_variant((Choice)choice, form->tiling, p->s.B, p->s.T, p->C, p->s.NH);
    }
}

// Fails if out and what rounding took from it are not together nearer to the solution than out alone.
static void expect_rest(const Backend* b, const Problem* p, const char* form, const DeviceTensors* t) {
    void* host = alloc_or_die(2 * p->n, b->element_bytes, "values");
    double* got = alloc_or_die(p->n, sizeof *got, "values");
    b->device_copy_out(host, t->out, p->n * b->element_bytes);
    for (size_t i = 0; i < p->n; i++) { got[i] = stored_get(b, host, i); }
    const double rounded = compare(got, p->out, p->n).error;
    b->device_copy_out(host, t->rest, p->n * b->element_bytes);
    for (size_t i = 0; i < p->n; i++) { got[i] += stored_get(b, host, i); }
    const double exact = compare(got, p->out, p->n).error;
    if (!(exact <= rounded)) { TEST_FAIL("%s: out is off by %.2g, with its rest by %.2g", form, rounded, exact); }
    free(host);
    free(got);
}

// Runs forward by one form and backward by another.
static void expect_forms(const Backend* b, const Problem* p, const Form* forward, const Form* backward) {
    char* form = format("%s then %s, tiling %d", forward->name, backward->name, forward->tiling);
    DeviceTensors t = device_tensors(b, p);
    const bool masks = p->layout != NO_MASK;
    const int *starts = masks ? t.starts : NULL, *ends = masks ? t.ends : NULL;
    choose(b, p, forward);
    Stored* rest = forward->is_exact ? t.rest : NULL;
    b->attention_forward(t.out, rest, t.lse, t.qkv, starts, p->s.B, p->s.T, p->C, p->s.NH);
    if (forward != backward) { choose(b, p, backward); }
    b->attention_backward(t.dqkv, t.delta, t.dout, t.out, rest, t.lse, t.qkv, starts, ends, p->s.B, p->s.T, p->C,
                          p->s.NH);
    expect_near(b, p, "out", form, t.out, true, p->out, p->n);
    if (rest) { expect_rest(b, p, form, &t); }
    expect_near(b, p, "lse", form, t.lse, false, p->lse, p->heads);
    expect_near(b, p, "dqkv", form, t.dqkv, true, p->dqkv, 3 * p->n);
    device_tensors_free(b, p, &t);
    free(form);
}

static const Form PLAIN_FORM = {"plain", {.plain = true}, 0, true},
                  UNFUSED_FORM = {"unfused", {.fused = false}, 0, true},
                  FLASH_FORM = {"flash", {.fused = true, .flash = true, .attention = "flash"}, 0, false},
                  EXACT_FORM = {"exact", {.fused = true, .flash = true, .attention = "flash"}, 0, true},
                  CUDNN_FORM = {"cuDNN", {.fused = true, .flash = true, .attention = "cudnn"}, 0, false};

// One form after another on a CPU, where all keep the same between forward and backward; on a GPU all tilings, and at
// two lengths the forms in turn.
static void expect_all_forms(const Backend* b, const Problem* p) {
    choose(b, p, &FLASH_FORM);
    expect_documents(b, p);
    expect_forms(b, p, &FLASH_FORM, &FLASH_FORM);
    if (stores_16_bits(b)) { expect_forms(b, p, &EXACT_FORM, &EXACT_FORM); }
    if (b->is_host) {
        expect_forms(b, p, &UNFUSED_FORM, &UNFUSED_FORM);
        expect_forms(b, p, &PLAIN_FORM, &PLAIN_FORM);
        return;
    }
    for (Form form = FLASH_FORM; form.tiling++, has_tiling(b, p, form.tiling);) { expect_forms(b, p, &form, &form); }
    if (p->s.T != 31 && p->s.T != 64) { return; }
    expect_forms(b, p, &PLAIN_FORM, &FLASH_FORM);
    expect_forms(b, p, &FLASH_FORM, &PLAIN_FORM);
    choose(b, p, &FLASH_FORM);
    if (p->s.T != 31 || p->layout != NO_MASK || !stores_16_bits(b) || b->device_lacks(&CUDNN_FORM.options)) { return; }
    expect_forms(b, p, &CUDNN_FORM, &FLASH_FORM);
    expect_forms(b, p, &FLASH_FORM, &CUDNN_FORM);
}

// Tries a shape on all backends that this machine can run; cpus_only: on those of CPUs.
static void expect_shape(const Shape* s, Layout layout, bool cpus_only) {
    Problem p = problem_open(s, layout);
    const Backend *list[MAX_BACKENDS], *solved = NULL;
    const int count = list_tested_backends(ALL_BACKENDS, list);
    for (int i = 0; i < count; i++) {
        const Backend* b = list[i];
        if ((cpus_only && !b->is_host) || b->device_lacks(&FLASH_FORM.options)) { continue; }
        char* name = format("%s %s %s", b->device, b->storage, b->level ? b->level : "");
        test_case = name;
        if (!solved || strcmp(solved->storage, b->storage)) { solve(&p, b); }
        solved = b;
        expect_all_forms(b, &p);
        test_case = NULL;
        free(name);
    }
    problem_close(&p);
}

// ---------------------------------------------------------------------------------------------------------------------
// CPUs: blocks have 192 positions, tiles up to 32, vectors up to 16

TEST(cpus_at_the_edges_of_their_blocks) {
    for (int i = 0; i < NUM_SHAPES; i++) { expect_shape(&SHAPES[i], NO_MASK, true); }
}

TEST(cpus_and_documents) {
    for (int i = 0; i < NUM_DOCUMENT_SHAPES; i++) {
        for (int layout = ONE_DOCUMENT; layout < NUM_LAYOUTS; layout++) {
            expect_shape(&DOCUMENT_SHAPES[i], (Layout)layout, true);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// GPUs and CPUs: lengths around those of tiles, each head size that a GPU's attention in tiles has from 64 on

static void expect_length(int T) {
    const int sizes[] = {64, 80, 96, 128};
    for (int i = 0; i < 4; i++) { expect_shape(&(Shape){1, T, 1, sizes[i]}, NO_MASK, false); }
}

static void expect_documents_in(int T) {
    for (int layout = ONE_DOCUMENT; layout < NUM_LAYOUTS; layout++) {
        expect_shape(&(Shape){1, T, 1, 64}, (Layout)layout, false);
        expect_shape(&(Shape){1, T, 1, 80}, (Layout)layout, false);
    }
}

TEST(of_1_token) { expect_length(1); }
TEST(of_31_tokens) { expect_length(31); }
TEST(of_64_tokens) { expect_length(64); }
TEST(of_127_tokens) { expect_length(127); }
TEST(of_256_tokens) { expect_length(256); }
TEST(documents_in_31_tokens) { expect_documents_in(31); }
TEST(documents_in_64_tokens) { expect_documents_in(64); }
TEST(documents_in_127_tokens) { expect_documents_in(127); }

// Plain kernels compute head sizes that attention in tiles lacks.
TEST(several_sequences_and_other_heads) {
    const Shape shapes[] = {{2, 31, 3, 64}, {1, 31, 2, 20}, {1, 64, 1, 136}};
    for (int i = 0; i < 3; i++) {
        expect_shape(&shapes[i], NO_MASK, false);
        expect_shape(&shapes[i], ANYWHERE, false);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the mean error of delta, sum(dout * out), where roundings of p all have one sign
//
// The first channel of queries and keys makes the scores. In the second, keys are sqrt(HS) and queries 0, so that dq
// there is the sum of p (dp - delta) over the keys: the error of delta, whose true value is the mean of dp. Values are
// spread, so that out is rounded in both directions, or nearly equal, so that it is rounded down.

typedef enum { EQUAL_TAIL, NEAR_MAXIMUM, NUM_SCORES } Scores;
static const char* const SCORE_NAMES[NUM_SCORES] = {"one key and an equal tail", "keys near the maximum"};
enum { MANY_KEYS = 64 }; // rows with fewer do not count: few roundings can cancel

// Returns the score between -4 and -2 whose exponential loses most by rounding.
static double worst_score(const Backend* b) {
    double worst = 0, most = 0;
    for (int i = 0; i < 128; i++) {
        const double score = -2 - i / 64.0, p = exp(score), loss = 1 - as_stored(b, (float)p) / p;
        if (loss > most) { most = loss, worst = score; }
    }
    return worst;
}

// Sets a problem's numbers and solves its forward pass. The first key has the largest score, 0. The mean of nearly
// equal values lies a quarter of the way from 1 to the next number.
static void solve_with_scores(Problem* p, const Backend* b, Scores scores, bool nearly_equal) {
    const int HS = p->s.HS;
    const double next = 1 + 2 * unit_roundoff(b);
    const double tail = worst_score(b), root = sqrt(HS);
    memset(p->qkv, 0, 3 * p->n * sizeof *p->qkv);
    for (int row = 0; row < p->rows; row++) {
        for (int h = 0; h < p->s.NH; h++) {
            const HeadAt at = head_at(p, row, h);
            const double score = scores == EQUAL_TAIL ? tail : -0.0018 * rng_uniform(3, RNG_TEST, at.lse);
            p->qkv[at.q] = root;
            p->qkv[at.k] = row % p->s.T == 0 ? 0 : as_stored(b, (float)score);
            p->qkv[at.k + 1] = root;
            for (size_t i = 0; i < (size_t)HS; i++) {
                const double normal = rng_normal(1, RNG_TEST, at.out + i);
                p->qkv[at.v + i] = !nearly_equal ? as_stored(b, (float)(1 + 0.3 * normal)) : normal > 0.67 ? next : 1;
                p->dout[at.out + i] = as_stored(b, 1 + 0.3f * rng_normal(2, RNG_TEST, at.out + i));
            }
        }
    }
    solve_forward(p);
}

// Returns the mean of delta's error over rows and heads, relative to delta.
static double mean_error_of_delta(const Backend* b, const Problem* p, const Form* form) {
    DeviceTensors t = device_tensors(b, p);
    choose(b, p, form);
    Stored* rest = form->is_exact ? t.rest : NULL;
    b->attention_forward(t.out, rest, t.lse, t.qkv, NULL, p->s.B, p->s.T, p->C, p->s.NH);
    b->attention_backward(t.dqkv, t.delta, t.dout, t.out, rest, t.lse, t.qkv, NULL, NULL, p->s.B, p->s.T, p->C,
                          p->s.NH);
    void* dqkv = alloc_or_die(3 * p->n, b->element_bytes, "gradients");
    b->device_copy_out(dqkv, t.dqkv, 3 * p->n * b->element_bytes);
    double sum = 0;
    int count = 0;
    for (int row = 0; row < p->rows; row++) {
        for (int h = 0; h < p->s.NH && row % p->s.T >= MANY_KEYS; h++, count++) {
            const HeadAt at = head_at(p, row, h);
            sum -= stored_get(b, dqkv, at.q + 1) / dot_product(p->dout + at.out, p->out + at.out, (size_t)p->s.HS);
        }
    }
    free(dqkv);
    device_tensors_free(b, p, &t);
    return sum / count;
}

static void expect_no_bias(const Backend* b, Problem* p, Scores scores, bool is_exact) {
    const double bound = is_exact ? 1e-5 : 0.01 * unit_roundoff(b);
    solve_with_scores(p, b, scores, is_exact);
    choose(b, p, &FLASH_FORM);
    for (Form form = is_exact ? EXACT_FORM : FLASH_FORM; !form.tiling || has_tiling(b, p, form.tiling); form.tiling++) {
        if (form.tiling > 0 && device_is_emulated(b)) { break; } // slow there, and rounds where the first does
        const double error = mean_error_of_delta(b, p, &form);
        if (!(fabs(error) <= bound)) {
            TEST_FAIL("%s, %s, tiling %d: the mean error of delta is %.2g of it, beyond %.2g", SCORE_NAMES[scores],
                      form.name, form.tiling, error, bound);
        }
    }
}

static void expect_no_biases(bool is_exact) {
    Problem p = problem_open(&(Shape){2, 256, 4, 64}, NO_MASK);
    EACH_BACKEND(b) {
        const bool runs = stores_16_bits(b) && !b->device_lacks(&FLASH_FORM.options);
        for (int scores = 0; runs && scores < NUM_SCORES; scores++) { expect_no_bias(b, &p, (Scores)scores, is_exact); }
    }
    problem_close(&p);
}

TEST(delta_has_no_bias_by_the_rounding_of_probabilities) { expect_no_biases(false); }
TEST(exact_delta_has_no_bias_by_the_rounding_of_out_either) { expect_no_biases(true); }

// ---------------------------------------------------------------------------------------------------------------------
// what autotuning relies on, on GPUs

// Expects part 0, 1 or 2 of dqkv, the gradients of queries, keys or values, to be those of `all`, or zeros.
static void expect_part(const Backend* b, const Problem* p, int part, const void* got, const void* all) {
    const bool is_written = all != NULL;
    for (int row = 0; row < p->rows; row++) {
        for (int c = 0; c < p->C; c++) {
            const size_t at = ((size_t)row * 3 + (size_t)part) * (size_t)p->C + (size_t)c;
            const float want = is_written ? stored_get(b, all, at) : 0;
            if (stored_get(b, got, at) != want) {
                TEST_FAIL("%s: part %d of row %d is %s", b->storage, part, row, is_written ? "wrong" : "written");
                return;
            }
        }
    }
}

TEST(kernels_of_backward_run_alone) {
    Problem p = problem_open(&(Shape){2, 64, 2, 32}, NO_MASK);
    EACH_BACKEND(b) {
        const size_t bytes = 3 * p.n * b->element_bytes;
        if (b->is_host || !stores_16_bits(b) || b->device_lacks(&FLASH_FORM.options)) { continue; }
        void *all = alloc_or_die(1, bytes, "gradients"), *got = alloc_or_die(1, bytes, "gradients");
        choose(b, &p, &FLASH_FORM);
        DeviceTensors t = device_tensors(b, &p);
        b->attention_forward(t.out, NULL, t.lse, t.qkv, NULL, p.s.B, p.s.T, p.C, p.s.NH);
        for (int choice = NUM_CHOICES; choice >= 0; choice--) {
            const bool is_keys = choice == CHOICE_FLASH_KEYS, is_queries = choice == CHOICE_FLASH_QUERIES;
            b->device_zero(t.dqkv, bytes);
            b->run_alone((Choice)choice);
            b->attention_backward(t.dqkv, t.delta, t.dout, t.out, NULL, t.lse, t.qkv, NULL, NULL, p.s.B, p.s.T, p.C,
                                  p.s.NH);
            b->device_copy_out(choice == NUM_CHOICES ? all : got, t.dqkv, bytes);
            for (int part = 0; choice < NUM_CHOICES && part < 3; part++) {
                expect_part(b, &p, part, got, (part == 0 ? is_keys : is_queries) ? NULL : all);
            }
        }
        b->run_alone(NUM_CHOICES);
        device_tensors_free(b, &p, &t);
        free(all);
        free(got);
    }
    problem_close(&p);
}

// cuDNN's backward is a variant only where its workspace leaves as much memory free, and gives it back if it is not
// chosen.
TEST(cudnn_has_memory_only_if_it_is_chosen) {
    const Form form = {"auto", {.fused = true, .flash = true}, 0, false};
    const int B = 8, T = 512, NH = 4, C = 32;
    EACH_BACKEND(b) {
        if (b->is_host || !stores_16_bits(b) || b->device_lacks(&form.options)) { continue; }
        b->device_open(&form.options);
        const size_t before = b->device_memory_available();
        if (!b->variant_name(CHOICE_ATTENTION_BACKWARD, 1, B, T, C, NH)) { continue; } // built without cuDNN
        const size_t bytes = before - b->device_memory_available(), filled = before - bytes - bytes / 2;
        EXPECT(bytes > 0);
        b->choose_variant(CHOICE_ATTENTION_BACKWARD, 1, B, T, C, NH);
        b->choose_variant(CHOICE_ATTENTION_FORWARD, 0, B, T, C, NH);
        EXPECT(before - b->device_memory_available() == bytes);
        b->choose_variant(CHOICE_ATTENTION_BACKWARD, 0, B, T, C, NH);
        EXPECT(b->device_memory_available() == before);
        void* rest = b->device_alloc(filled, "all but one and a half workspaces");
        EXPECT(!b->variant_name(CHOICE_ATTENTION_BACKWARD, 1, B, T, C, NH));
        EXPECT(b->variant_name(CHOICE_ATTENTION_FORWARD, 1, B, T, C, NH));
        b->device_free(rest, filled);
        EXPECT(b->variant_name(CHOICE_ATTENTION_BACKWARD, 1, B, T, C, NH));
        b->choose_variant(CHOICE_ATTENTION_BACKWARD, 0, B, T, C, NH);
    }
}

TEST_MAIN()
