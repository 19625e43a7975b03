// Packing documents into rows, compared with a plain loop.
#include "llmc/prepare/rows.h"
#include "llmc/base/rng.h"
#include "test/test.h"

enum { ROW = 17, MAX_DOCUMENTS = 300 };

// Documents of 2 to 40 tokens. The token at place i of document d is 100 d + i.
static int length_of(uint64_t seed, int d) { return 2 + (int)(rng_u64(seed, RNG_TEST, (uint64_t)d) % 39); }

// Writes the document of each row's places to `expected`: the plain loop. Returns the number of rows.
static size_t pack_plainly(uint64_t seed, int documents, int (*expected)[ROW]) {
    int lengths[MAX_DOCUMENTS], left = documents;
    size_t rows = 0, used = 0;
    for (int d = 0; d < documents; d++) { lengths[d] = (int)min_size((size_t)length_of(seed, d), ROW); }
    for (; left > 0; left--) {
        int best = -1, shortest = -1;
        for (int d = 0; d < documents; d++) {
            if (lengths[d] == 0) { continue; }
            if (lengths[d] <= ROW - (int)used && (best < 0 || lengths[d] > lengths[best])) { best = d; }
            if (shortest < 0 || lengths[d] < lengths[shortest]) { shortest = d; }
        }
        if (best < 0) { best = shortest; }
        for (int i = 0; i < lengths[best] && used < ROW; i++) { expected[rows][used++] = 100 * best + i; }
        lengths[best] = 0;
        if (used == ROW) { rows++; used = 0; }
    }
    return rows;
}

static int compare_rows(const void* a, const void* b) { return memcmp(a, b, ROW * sizeof(int)); }

TEST(rows_are_those_of_the_plain_loop) {
    static int expected[MAX_DOCUMENTS * 3][ROW];
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int documents = 1 + (int)(rng_u64(seed, RNG_TEST, 1000) % MAX_DOCUMENTS);
        RowPacker p = rows_begin(ROW);
        for (int d = 0; d < documents; d++) {
            int tokens[64];
            const int n = length_of(seed, d), part = n / 3;
            for (int i = 0; i < n; i++) { tokens[i] = 100 * d + i; }
            rows_begin_document(&p);
            rows_add(&p, tokens, (size_t)part);
            rows_add(&p, tokens + part, (size_t)(n - part));
        }
        size_t num_rows, wanted = pack_plainly(seed, documents, expected);
        int* rows = rows_pack(&p, seed, &num_rows);
        EXPECT(num_rows == wanted && p.num_documents == 0);
        bool in_order = num_rows > 20;
        for (size_t i = 0; i < num_rows && in_order; i++) { in_order = compare_rows(rows + i * ROW, expected[i]) == 0; }
        EXPECT(!in_order);
        qsort(rows, num_rows, sizeof expected[0], compare_rows);
        qsort(expected, wanted, sizeof expected[0], compare_rows);
        EXPECT(num_rows == wanted && memcmp(rows, expected, wanted * sizeof expected[0]) == 0);
        free(rows);
        rows_free(&p);
    }
}

TEST(a_group_ends) {
    const int tokens[] = {1, 2, 3};
    RowPacker p = rows_begin(4);
    for (int i = 0; i < GROUP_DOCUMENTS; i++) {
        EXPECT(!rows_are_due(&p));
        rows_begin_document(&p);
        rows_add(&p, tokens, 2);
    }
    EXPECT(rows_are_due(&p));
    size_t num_rows;
    free(rows_pack(&p, 1, &num_rows));
    EXPECT(num_rows == GROUP_DOCUMENTS / 2 && !rows_are_due(&p));
    free(rows_pack(&p, 1, &num_rows));
    EXPECT(num_rows == 0);
    rows_free(&p);
}

TEST_MAIN()
