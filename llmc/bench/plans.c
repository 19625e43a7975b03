// `bench plans`: the matmuls of a training step on a GPU, and for each the algorithms that cuBLASLt offers, timed as at
// the start of a run (cuda/tune.cuh): as a table and as JSON.
#include "bench.h"
#include "../check/trial.h"
#include "../base/json.h"
#include "../train/backends.h"
#include "record.h"

// The tiles that cuBLASLt's heuristics offer for large matmuls, by cublasLtMatmulTile_t from CUBLASLT_MATMUL_TILE_64x64
// on: rows and columns of the library's column-major output.
enum { FIRST_TILE = 15, NUM_TILES = 21 };
static const short TILES[NUM_TILES][2] = {
    {64, 64},   {128, 32},  {64, 128}, {128, 64}, {64, 256}, {128, 128}, {256, 64},  {64, 512},  {128, 256}, {256, 128},
    {512, 64},  {64, 96},   {96, 64},  {96, 128}, {128, 160}, {160, 128}, {192, 128}, {128, 192}, {128, 96},
    {32, 256},   {256, 32}};

// Returns "128x256", or "#123" for a tile that is not in the table.
static const char* tile_text(char out[16], int tile) {
    const int i = tile - FIRST_TILE;
    if (i >= 0 && i < NUM_TILES) {
        snprintf(out, 16, "%dx%d", TILES[i][0], TILES[i][1]);
    } else {
        snprintf(out, 16, "#%d", tile);
    }
    return out;
}

static double matmul_flops(const MatmulFacts* f) { return 2.0 * f->batch * f->rows * f->cols * f->depth; }

// Returns how a matmul reads its operands and what is fused, for instance "nt fp8 + bias"; free() it.
static char* matmul_text(const MatmulFacts* f) {
    return format("%c%c%s%s%s", f->a_transposed ? 't' : 'n', f->b_transposed ? 't' : 'n', f->is_fp8 ? " fp8" : "",
                  *f->fusion ? " + " : "", f->fusion);
}

static json_t* algorithm_to_json(const MatmulFacts* f, int i) {
    char tile[16];
    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:I, s:o, s:b}", "id", f->id, "tile", tile_text(tile, f->tile),
                     "stages", f->stages, "split_k", f->split_k, "reduction", f->reduction, "workspace",
                     (json_int_t)f->workspace_bytes, "ms", json_float(1e3 * f->seconds), "chosen",
                     i == f->chosen);
}

static void print_algorithm(const MatmulFacts* f, int i) {
    char tile[16];
    printf("  %2d%c ", i, i == f->chosen ? '*' : ' ');
    if (isfinite(f->seconds)) {
        printf("%10.4f %10.1f", 1e3 * f->seconds, matmul_flops(f) / f->seconds / 1e12);
    } else {
        printf("%10s %10s", "-", "-");
    }
    printf(" %5d %9s %6d %7d %9d %10.1f\n", f->id, tile_text(tile, f->tile), f->stages, f->split_k, f->reduction,
           in_mib(f->workspace_bytes));
}

// Prints matmul number i and its algorithms. Returns its record.
static json_t* print_matmul(const Backend* b, int i, const MatmulFacts* f) {
    char* text = matmul_text(f);
    json_t* algorithms = json_array();
    if (f->batch > 1) { printf("%d of ", f->batch); }
    printf("%d x %d x %d %s%s\n", f->rows, f->cols, f->depth, text, f->count ? "" : ": the library has none");
    for (int k = 0; k < f->count; k++) {
        MatmulFacts a;
        b->matmul_facts(i, k, &a);
        print_algorithm(&a, k);
        json_array_append_new(algorithms, algorithm_to_json(&a, k));
    }
    json_t* row = json_pack("{s:i, s:i, s:i, s:i, s:s, s:o}", "batch", f->batch, "rows", f->rows, "cols", f->cols,
                            "depth", f->depth, "form", text, "algorithms", algorithms);
    free(text);
    return row;
}

int bench_plans(const Config* given) {
    Error err;
    Config config = *given; // measured anew, whatever earlier starts chose
    config.tune = tune_anew;
    Comm alone = comm_alone();
    if (!program_has_gpu() || config.kernels == kernels_plain) {
        usage_error("bench plans: only the fast kernels of a GPU take matmuls from a library: run train_gpt2cu");
    }
    const Plan plan = bench_open(&config, &alone);
    const Backend* b = plan.backend;
    Trial* trial = trial_open(&plan, NULL, &err);
    if (!trial) { fatal("%s", err.text); }
    printf("plans: %s, %s, %d x %d tokens of %s\n", b->matmuls_identity(), dtype_names[plan.dtype], plan.B, plan.T,
           plan.model);
    puts("each matmul of a step, rows x cols x depth; n, t: operands as they are, transposed; * runs in training");
    printf("  %3s %10s %10s %5s %9s %6s %7s %9s %10s\n", "", "ms", "TFLOP/s", "id", "tile", "stages", "split-K",
           "reduction", "MiB");
    json_t* rows = json_array();
    MatmulFacts f;
    for (int i = 0; b->matmul_facts(i, -1, &f); i++) { json_array_append_new(rows, print_matmul(b, i, &f)); }
    trial_close(trial);
    const BenchGiven written = bench_given(given, &plan);
    json_t* record = bench_record("plans", &written, &plan, b->matmuls_identity(), (double)NAN, "matmuls", rows);
    bench_write_json(given->out, "plans.json", record);
    return EXIT_DONE;
}
