// The product of packed panels, whichever tile.h this object has: packing in both orientations with all kinds of tails,
// sums against sums in double, and what the tile may read and write.
#include "../llmc/cpu/peak.h"
#include "test.h"

Cpu cpu;

enum { DEPTHS = 10 };
static const int depths[DEPTHS] = {1, 2, KR - 1, KR, KR + 1, 31, 2 * KR + 1, 64, 384, 1000};
static const bool multiplies_bf16 = sizeof(Packed) == 2; // what is packed stays bf16

// `bytes` that end where memory that may not be touched begins, all 0xff, which is NaN in both types.
static void* guarded(size_t bytes) {
    const size_t page = 4096, room = round_up(bytes, page);
    char* p = (char*)device_alloc(room + page, "a test");
    if (mprotect(p + room, page, PROT_NONE) != 0) { fatal("mprotect: %s", strerror(errno)); }
    memset(p, 0xff, room);
    return p + room - bytes;
}

static void guarded_free(void* p, size_t bytes) {
    const size_t page = 4096, room = round_up(bytes, page);
    device_free((char*)p + bytes - room, room + page);
}

// What lies before p on its page is untouched.
static bool untouched_before(const void* p) {
    const unsigned char* c = (const unsigned char*)p;
    while ((uintptr_t)c % 4096 != 0) {
        if (*--c != 0xff) { return false; }
    }
    return true;
}

// A matrix in guarded memory, `row` and `col` apart: rows together, or columns, with a gap in between.
typedef struct {
    floatX* at;
    size_t row, col, n;
    int rows, cols;
} Matrix;

typedef enum { ROWS, COLUMNS } Together;

static Matrix matrix_open(int rows, int cols, Together together, int gap) {
    Matrix m = {NULL, 1, 1, 0, rows, cols};
    if (together == ROWS) {
        m.row = (size_t)(cols + gap);
    } else {
        m.col = (size_t)(rows + gap);
    }
    m.n = (size_t)(rows - 1) * m.row + (size_t)(cols - 1) * m.col + 1;
    m.at = (floatX*)guarded(m.n * sizeof(floatX));
    return m;
}
static void matrix_close(Matrix* m) { guarded_free(m->at, m->n * sizeof(floatX)); }
static floatX* element(const Matrix* m, int i, int j) { return m->at + (size_t)i * m->row + (size_t)j * m->col; }

static float small_integer(uint64_t seed, uint64_t i) { return (float)(int)(rng_u64(seed, RNG_TEST, i) % 17) - 8.0f; }
static float normal(uint64_t seed, uint64_t i) { return rng_normal(seed, RNG_TEST, i); }

// The same numbers, rounded to floatX, whatever lies together.
static void matrix_fill(Matrix* m, float (*number)(uint64_t, uint64_t), uint64_t seed) {
    for (int i = 0; i < m->rows; i++) {
        for (int j = 0; j < m->cols; j++) {
            *element(m, i, j) = to_floatX(number(seed, (uint64_t)i * 65536 + (uint64_t)j));
        }
    }
}

typedef struct {
    Packed* at;
    size_t bytes;
} Panel;

static Panel panel_a(const Matrix* a) {
    const size_t bytes = panel_size(MR, a->cols) * sizeof(Packed);
    const Panel p = {(Packed*)guarded(bytes), bytes};
    pack_a(p.at, a->at, a->row, a->col, a->rows, a->cols);
    return p;
}
static Panel panel_b(const Matrix* b) {
    const size_t bytes = panel_size(NR, b->rows) * sizeof(Packed);
    const Panel p = {(Packed*)guarded(bytes), bytes};
    pack_b(p.at, b->at, b->row, b->col, b->rows, b->cols);
    return p;
}
static void panel_close(Panel* p) { guarded_free(p->at, p->bytes); }

// A tile of c in rows of ldc, the last one without what would follow it. Before a product element i holds before(i).
typedef struct {
    float* at;
    size_t ldc, n;
} Tile;

static float before(size_t i) { return (float)(int)(i % 61) - 30.0f; }

static Tile tile_open(size_t ldc) {
    Tile t = {NULL, ldc, (MR - 1) * ldc + NR};
    t.at = (float*)guarded(t.n * sizeof(float));
    for (size_t i = 0; i < t.n; i++) { t.at[i] = before(i); }
    return t;
}
static void tile_close(Tile* t) { guarded_free(t->at, t->n * sizeof(float)); }

// How far c may be from start + a @ b: each of the k products and sums is rounded to float once, in any order.
static double tolerance(double start, const Matrix* a, const Matrix* b, int i, int j) {
    double size = fabs(start);
    for (int k = 0; k < a->cols; k++) {
        size += fabs((double)to_float(*element(a, i, k)) * (double)to_float(*element(b, k, j)));
    }
    return (a->cols + 2) * 0x1p-24 * size;
}

// Compares the part of the tile that a and b have with a @ b, and the gap between its rows with what it was.
static void check_tile(const Tile* c, TileMode mode, const Matrix* a, const Matrix* b, bool exactly) {
    int wrong = 0;
    for (int i = 0; i < a->rows; i++) {
        for (int j = 0; j < b->cols; j++) {
            const size_t at = (size_t)i * c->ldc + (size_t)j;
            const double start = mode == TILE_ADD ? (double)before(at) : 0.0;
            double sum = start;
            for (int k = 0; k < a->cols; k++) {
                sum += (double)to_float(*element(a, i, k)) * (double)to_float(*element(b, k, j));
            }
            wrong += !(fabs(sum - (double)c->at[at]) <= (exactly ? 0.0 : tolerance(start, a, b, i, j)));
        }
    }
    for (int i = 0; i + 1 < MR; i++) {
        for (size_t j = (size_t)i * c->ldc + NR; j < (size_t)(i + 1) * c->ldc; j++) { wrong += c->at[j] != before(j); }
    }
    if (wrong > 0 || !untouched_before(c->at)) {
        TEST_FAIL("(%d,%d) @ (%d,%d), ldc %zu: %d are wrong", a->rows, a->cols, b->rows, b->cols, c->ldc, wrong);
    }
}

static void check_product(Together a_together, Together b_together, int rows, int cols, int k, bool exactly) {
    const size_t ldcs[3] = {NR, NR + 1, 768};
    Matrix a = matrix_open(rows, k, a_together, 3), b = matrix_open(k, cols, b_together, 0);
    matrix_fill(&a, exactly ? small_integer : normal, 1);
    matrix_fill(&b, exactly ? small_integer : normal, 2);
    Panel pa = panel_a(&a), pb = panel_b(&b);
    for (int l = 0; l < 3; l++) {
        Tile set = tile_open(ldcs[l]), add = tile_open(ldcs[l]);
        tile_product(set.at, set.ldc, TILE_SET, pa.at, pb.at, k);
        tile_product(add.at, add.ldc, TILE_ADD, pa.at, pb.at, k);
        check_tile(&set, TILE_SET, &a, &b, exactly);
        check_tile(&add, TILE_ADD, &a, &b, exactly);
        tile_close(&set);
        tile_close(&add);
    }
    panel_close(&pa);
    panel_close(&pb);
    matrix_close(&a);
    matrix_close(&b);
}

// Every orientation and depth, for all sizes of one operand while the other is whole.
static void check_products(bool exactly) {
    tile_begin();
    for (int d = 0; d < DEPTHS; d++) {
        const int k = depths[d], step = k > 64 ? 5 : 1;
        for (int orientation = 0; orientation < 4 && k > 0; orientation++) {
            const Together a = (Together)(orientation & 1), b = (Together)(orientation >> 1);
            for (int rows = 1; rows < MR; rows += step) { check_product(a, b, rows, NR, k, exactly); }
            for (int cols = 1; cols < NR; cols += step) { check_product(a, b, MR, cols, k, exactly); }
            check_product(a, b, MR, NR, k, exactly);
        }
    }
}

TEST(products_of_small_integers_are_exact) { check_products(true); }
TEST(products_are_as_near_as_rounding_each_step_allows) { check_products(false); }

// No number of a matrix here is zero: zeros of a panel are what it was filled up with.
static void check_panel(const Panel* p, int width, int k, int numbers) {
    int zeros = 0, others = 0;
    for (size_t i = 0; i < p->bytes / sizeof(Packed); i++) {
        Packed zero;
        memset(&zero, 0, sizeof zero);
        const bool is_zero = !memcmp(&p->at[i], &zero, sizeof zero);
        const unsigned char* bytes = (const unsigned char*)&p->at[i];
        const bool unwritten = bytes[0] == 0xff && bytes[sizeof(Packed) - 1] == 0xff;
        zeros += is_zero;
        others += !is_zero && !unwritten;
    }
    const int all = (int)panel_size(width, k);
    if (others != numbers || zeros != all - numbers || !untouched_before(p->at)) {
        TEST_FAIL("a panel of width %d, depth %d: %d numbers and %d zeros, not %d and %d", width, k, others, zeros,
                  numbers, all - numbers);
    }
}

static float positive(uint64_t seed, uint64_t i) { return 1.0f + (float)(rng_u64(seed, RNG_TEST, i) % 128); }

static void check_packing(int rows, int cols, bool is_a) {
    Panel panels[2];
    for (int t = 0; t < 2; t++) {
        Matrix m = matrix_open(rows, cols, (Together)t, 1);
        matrix_fill(&m, positive, 3);
        panels[t] = is_a ? panel_a(&m) : panel_b(&m);
        check_panel(&panels[t], is_a ? MR : NR, is_a ? cols : rows, rows * cols);
        matrix_close(&m);
    }
    EXPECT(!memcmp(panels[0].at, panels[1].at, panels[0].bytes)); // both orientations give the same panel
    panel_close(&panels[0]);
    panel_close(&panels[1]);
}

TEST(panels_are_filled_with_zeros_and_nothing_else_is_touched) {
    for (int k = 1; k <= 2 * KR + 2 || k <= 66; k++) {
        for (int rows = 1; rows <= MR; rows++) { check_packing(rows, k, true); }
        for (int cols = 1; cols <= NR; cols++) { check_packing(k, cols, false); }
    }
}

// So panels can be packed, and multiplied, in pieces of depth.
TEST(pieces_of_a_panel_lie_one_behind_the_other) {
    enum { PIECES = 3, K = PIECES * 64 };
    tile_begin();
    Matrix a = matrix_open(MR, K, ROWS, 0), b = matrix_open(K, NR, ROWS, 0);
    matrix_fill(&a, normal, 1);
    matrix_fill(&b, normal, 2);
    Panel pa = panel_a(&a), pb = panel_b(&b), qa = panel_a(&a), qb = panel_b(&b);
    memset(qa.at, 0xff, qa.bytes);
    memset(qb.at, 0xff, qb.bytes);
    Tile c = tile_open(NR);
    for (int k = 0; k < K; k += 64) {
        Packed *piece_a = qa.at + panel_size(MR, k), *piece_b = qb.at + panel_size(NR, k);
        pack_a(piece_a, element(&a, 0, k), a.row, a.col, MR, 64);
        pack_b(piece_b, element(&b, k, 0), b.row, b.col, 64, NR);
        tile_product(c.at, c.ldc, k ? TILE_ADD : TILE_SET, piece_a, piece_b, 64);
    }
    EXPECT(!memcmp(pa.at, qa.at, pa.bytes));
    EXPECT(!memcmp(pb.at, qb.at, pb.bytes));
    check_tile(&c, TILE_SET, &a, &b, false);
    tile_close(&c);
    panel_close(&pa);
    panel_close(&pb);
    panel_close(&qa);
    panel_close(&qb);
    matrix_close(&a);
    matrix_close(&b);
}

// The product where one element of a is `special`, all others of it are `other`, and those of b `b_value`: what comes
// out in the row with the special one, and in all other rows.
static void product_with(float special, float other, float b_value, int k, float* with, float* without) {
    Matrix a = matrix_open(MR, k, ROWS, 0), b = matrix_open(k, NR, ROWS, 0);
    for (size_t i = 0; i < a.n; i++) { a.at[i] = to_floatX(other); }
    for (size_t i = 0; i < b.n; i++) { b.at[i] = to_floatX(b_value); }
    *element(&a, MR / 2, k / 2) = to_floatX(special);
    Panel pa = panel_a(&a), pb = panel_b(&b);
    Tile c = tile_open(NR);
    tile_begin();
    tile_product(c.at, c.ldc, TILE_SET, pa.at, pb.at, k);
    *with = c.at[(size_t)(MR / 2) * NR + NR - 1];
    *without = c.at[0];
    for (int i = 0; i < MR * NR; i++) {
        const float want = i / NR == MR / 2 ? *with : *without;
        EXPECT(!memcmp(&c.at[i], &want, sizeof want));
    }
    tile_close(&c);
    panel_close(&pa);
    panel_close(&pb);
    matrix_close(&a);
    matrix_close(&b);
}

TEST(what_is_not_finite_stays_in_its_row) {
    float with, without;
    for (int k = 1; k < 70; k += 3) {
        product_with(INFINITY, 1, 1, k, &with, &without);
        EXPECT(with == INFINITY && without == (float)k);
        product_with(-INFINITY, 1, 2, k, &with, &without);
        EXPECT(with == -INFINITY && without == 2 * (float)k);
        product_with(INFINITY, 1, 0, k, &with, &without);
        EXPECT(with != with && without == 0);
        product_with(NAN, 1, 1, k, &with, &without);
        EXPECT(with != with && without == (float)k);
    }
    if (sizeof(floatX) == sizeof(float)) { return; }
    product_with(0x1.fep127f, 0, 2, 5, &with, &without); // finite in bf16; twice that is not in float
    EXPECT(with == INFINITY && without == 0);
}

// The instructions for bf16 take denormals for zeros, and make them zeros, whatever the processor is told elsewhere.
TEST(denormals_are_zeros_in_products_of_bf16) {
    float with, without;
    product_with(0x1p-127f, 1, 0x1p126f, 1, &with, &without);
    EXPECT(without == 0x1p126f && with == (multiplies_bf16 ? 0.0f : 0.5f));
    product_with(0x1p-126f, 0, 0x1p-1f, 1, &with, &without); // the product is denormal
    EXPECT(without == 0 && with == (multiplies_bf16 ? 0.0f : 0x1p-127f));
    product_with(0x1p-126f, 0, 1, 1, &with, &without);
    EXPECT(without == 0 && with == 0x1p-126f);
}

TEST(each_thread_has_its_own_tiles) {
    enum { K = 40 };
    Matrix a = matrix_open(MR, K, ROWS, 0), b = matrix_open(K, NR, ROWS, 0);
    matrix_fill(&a, small_integer, 1);
    matrix_fill(&b, small_integer, 2);
    #pragma omp parallel num_threads(4)
    {
        tile_begin();
        #pragma omp for
        for (int i = 0; i < 64; i++) {
            Panel pa = panel_a(&a), pb = panel_b(&b);
            Tile c = tile_open(NR);
            tile_product(c.at, c.ldc, TILE_SET, pa.at, pb.at, K);
            #pragma omp critical
            check_tile(&c, TILE_SET, &a, &b, true);
            tile_close(&c);
            panel_close(&pa);
            panel_close(&pb);
        }
    }
    matrix_close(&a);
    matrix_close(&b);
}

TEST(the_peak_counts_what_it_does) {
    double once = 0, twice = 0;
    float x = tile_peak(1000, &once), y = tile_peak(2000, &twice);
    EXPECT(x == x && y == y);
    EXPECT(once >= 1000.0 * 2 && twice == 2 * once);
}

TEST_MAIN()
