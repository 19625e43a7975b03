// The optimizer's state in pieces: every element has one owner, all ranks have about the same work, memory is what the
// plan says. Rates of groups of parameters, and the momentum of Muon.
#include "llmc/train/backends.h"
#include "llmc/train/plan.h"
#include "test/test.h"

// ---------------------------------------------------------------------------------------------------------------------
// pieces

typedef struct {
    GPT2 g;
    Optimizer o;
    Comm group;
} Part;

// The part of one rank of a model of 5 layers, C 24, in bf16: masters are apart from the parameters.
static Part* open_part(OptimizerKind kind, int rank, int ranks) {
    const GPT2Config shape = {.max_seq_len = 6, .vocab_size = 11, .padded_vocab_size = 128, .num_layers = 5,
                              .num_heads = 2, .channels = 24};
    const DeviceOptions options = {.threads = 1, .fused = true, .flash = true};
    const Backend* b = find_cpu_backend(dtype_bf16, cpu_generic);
    if (!b) { fatal("there is no generic backend"); }
    b->device_open(&options);
    Part* p = alloc_or_die(1, sizeof *p, "a part of a model");
    p->group = comm_alone();
    p->group.rank = rank;
    p->group.size = ranks;
    gpt2_layout(&p->g, b, &shape, 1, 6, KEEP_ALL, ranks);
    gpt2_alloc(&p->g);
    optimizer_alloc(&p->o, &p->g, kind, STATE_ON_DEVICE, &p->group);
    return p;
}

static void close_part(Part* p) {
    optimizer_free(&p->o);
    gpt2_free(&p->g);
    free(p);
}

static const OptimizerKind KINDS[] = {OPTIMIZER_ADAMW, OPTIMIZER_MUON};

// Puts 1, 2, 3, ... into a block of each rank. Every element of every tensor must lie in the memory of one rank.
static void check_owners(OptimizerKind kind, int ranks, bool of_v) {
    size_t found = 0, elements = 0;
    for (int r = 0; r < ranks; r++) {
        Part* p = open_part(kind, r, ranks);
        MemoryLine line[OPTIMIZER_MEMORY_LINES];
        optimizer_memory(&p->g, kind, STATE_ON_DEVICE, ranks, line);
        float* block = of_v ? p->o.v : p->o.m;
        const size_t held = line[of_v ? 2 : 1].bytes / sizeof(float);
        const TensorTable* table = optimizer_table(&p->o, block);
        unsigned char* seen = alloc_or_die(table->size + 1, 1, "elements");
        elements = 0;
        for (int i = 0; i < table->count; i++) {
            const Tensor* t = &table->row[i];
            for (int l = 0; l < t->layers; l++) {
                const size_t n = tensor_elements(t), at = tensor_at(t, l);
                float* values = alloc_or_die(n + 1, sizeof *values, "values");
                for (size_t k = 0; k < n; k++) { values[k] = (float)(at + k + 1); }
                optimizer_put(&p->o, block, at, values, n);
                elements += n;
                free(values);
            }
        }
        for (size_t k = 0; k < held; k++) {
            if (block[k] == 0) { continue; } // padding
            EXPECT(!seen[(size_t)block[k] - 1]++); // once on this rank
            found++;
        }
        free(seen);
        close_part(p);
    }
    EXPECT(found == elements);
}

TEST(every_element_has_one_owner) {
    for (int k = 0; k < 2; k++) {
        for (int ranks = 1; ranks <= 7; ranks += 3) {
            check_owners(KINDS[k], ranks, false);
            check_owners(KINDS[k], ranks, true);
        }
    }
}

TEST(muon_has_no_second_moments_of_matrices) {
    enum { MATRICES = 5 * 12 * 24 * 24 };
    Part *adamw = open_part(OPTIMIZER_ADAMW, 0, 1), *muon = open_part(OPTIMIZER_MUON, 0, 1);
    EXPECT(adamw->o.segments.v_table.size == adamw->g.params_table.size);
    EXPECT(muon->o.segments.v_table.size == muon->g.params_table.size - MATRICES);
    MemoryLine line[OPTIMIZER_MEMORY_LINES];
    optimizer_memory(&muon->g, OPTIMIZER_MUON, STATE_ON_DEVICE, 1, line);
    EXPECT(line[2].bytes == muon->o.segments.v_table.size * sizeof(float));
    close_part(adamw);
    close_part(muon);
}

static double cost_of(const MuonList* list) {
    const double m = fmin(list->rows, list->cols), n = fmax(list->rows, list->cols);
    return list->count * (2 * m * m * n + m * m * m);
}

// The model has 5 * 10 units of work: a matrix (C,C) is one, (4C,C) and (C,4C) are three.
TEST(ranks_have_the_same_work_and_whole_matrices) {
    const double unit = 3.0 * 24 * 24 * 24;
    for (int ranks = 1; ranks <= 10; ranks++) {
        int matrices = 0;
        for (int r = 0; r < ranks; r++) {
            Part* p = open_part(OPTIMIZER_MUON, r, ranks);
            double work = 0;
            for (int i = 0; i < MUON_SHAPES; i++) {
                const MuonList* list = &p->o.lists[i];
                work += cost_of(list) / unit;
                matrices += list->count;
                for (int k = 0; k < list->count; k++) {
                    const MuonMatrix* w = &list->matrices[k];
                    EXPECT(w->grads == p->g.grads + w->begin);
                    EXPECT(w->params == stored_at(p->g.backend, p->g.params, w->begin));
                    EXPECT(w->masters - p->o.masters == w->m - p->o.m);
                }
            }
            EXPECT(fabs(work - 50.0 / ranks) < 1); // 20 of the pieces are single units, so none needs to have one more
            close_part(p);
        }
        EXPECT(matrices == 5 * 6); // q, k, v, the projection, and the two of the MLP
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// rates

// Sets options, NAME VALUE ..., and reads them.
static bool parse(Rates* r, const char* const* options, Error* err) {
    Config c;
    config_defaults(&c);
    for (int i = 0; options[i]; i += 2) {
        if (!config_set(&c, config_find(options[i]), options[i + 1], FROM_COMMAND_LINE, err)) { return false; }
    }
    return rates_parse(r, &c, err);
}

TEST(rates_of_groups_are_those_given_or_follow_lr) {
    Error err;
    Rates r;
    EXPECT(parse(&r, (const char* const[]){"lr", "0.5", NULL}, &err) && r.kind == OPTIMIZER_ADAMW);
    for (int g = 0; g < NUM_GROUPS; g++) { EXPECT(r.lr[g] == 0.5 && r.peak.adamw.lr[g] == 0.5f); }
    EXPECT(r.peak.adamw.weight_decay[GROUP_EMBEDDING] == 0.1f && r.peak.adamw.weight_decay[GROUP_MATRIX] == 0.1f);
    EXPECT(r.peak.adamw.weight_decay[GROUP_VECTOR] == 0 && r.peak.adamw.grad_clip == 1 && !r.peak.adamw.cautious);
    EXPECT(parse(&r, (const char* const[]){"optimizer", "muon", "lr", "0.5", "embedding_lr", "0", NULL}, &err));
    EXPECT(r.lr[GROUP_EMBEDDING] == 0 && r.lr[GROUP_MATRIX] == 0.02 && r.lr[GROUP_VECTOR] == 0.5);
    EXPECT(r.peak.muon.weight_decay == 0.01f && r.peak.adamw.weight_decay[GROUP_EMBEDDING] == 0.1f);
    EXPECT(r.peak.adamw.grad_clip == 0 && r.peak.muon.momentum == 0.95f);
    EXPECT(parse(&r, (const char* const[]){"matrix_lr", "0.25", "lr", "2", "matrix_decay", "0", "grad_clip", "3",
                                           "weight_decay", "0", "cautious_decay", "1", NULL}, &err));
    EXPECT(r.lr[GROUP_EMBEDDING] == 2 && r.lr[GROUP_MATRIX] == 0.25 && r.lr[GROUP_VECTOR] == 2);
    EXPECT(r.peak.adamw.weight_decay[GROUP_MATRIX] == 0 && r.peak.adamw.weight_decay[GROUP_EMBEDDING] == 0);
    EXPECT(r.peak.adamw.grad_clip == 3 && r.peak.adamw.cautious && r.peak.muon.cautious);
}

TEST(the_momentum_rises_and_falls) {
    Error err;
    Rates r;
    EXPECT(parse(&r, (const char* const[]){"optimizer", "muon", NULL}, &err));
    EXPECT_NEAR(rates_momentum(&r, 0, 1000), 0.85, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 150, 1000), 0.9, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 300, 1000), 0.95, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 999, 1000), 0.95, 1e-7);
    EXPECT(parse(&r, (const char* const[]){"optimizer", "muon", "momentum", "0.8", NULL}, &err));
    EXPECT_NEAR(rates_momentum(&r, 0, 1000), 0.8, 1e-7); // it does not fall at first
    EXPECT(parse(&r, (const char* const[]){"optimizer", "muon", "momentum",
                                           "0.8,cooldown:4:0.4,warmup:none", NULL}, &err));
    EXPECT_NEAR(rates_momentum(&r, 0, 10), 0.8, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 5, 10), 0.8, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 7, 10), 0.6, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 9, 10), 0.4, 1e-7);
    EXPECT_NEAR(rates_momentum(&r, 9.5, 10), 0.4, 1e-7); // a batch ramp has fractions
}

TEST(options_without_sense_are_refused) {
    static const struct {
        const char* options[5];
        const char* want;
    } cases[] = {{{"optimizer", "muon", "momentum", "1", NULL}, "a momentum is at least 0, and below 1"},
                 {{"optimizer", "muon", "momentum", "", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9:1", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,warmup", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,warmup:300", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,warmup:0:0.5", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,cooldown:9:1", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,cooldown:9:", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"optimizer", "muon", "momentum", "0.9,decay:9:0.1", NULL}, "give M[,warmup:STEPS:START]"},
                 {{"matrix_lr", "-1", NULL}, "takes a number from 0"},
                 {{"grad_clip", "none", NULL}, "takes a number or auto"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {.text = ""};
        Rates r;
        EXPECT(!parse(&r, cases[i].options, &err));
        if (!strstr(err.text, cases[i].want)) { TEST_FAIL("'%s', not '%s'", err.text, cases[i].want); }
    }
}

TEST_MAIN()
