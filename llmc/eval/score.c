#include "score.h"
#include "../base/json.h"

enum { LEAST_LENGTH = 32 }; // tokens that the rows of a batch are padded to at least (chosen)

// ---------------------------------------------------------------------------------------------------------------------
// batches

typedef struct {
    int inputs; // tokens that the model reads: all of a row but the last
    size_t row;
} RowLength;

// Orders longest first, then as in the file.
static int place_order(const void* a, const void* b) {
    const RowLength *x = (const RowLength*)a, *y = (const RowLength*)b;
    if (x->inputs != y->inputs) { return x->inputs < y->inputs ? 1 : -1; }
    return (x->row > y->row) - (x->row < y->row);
}

// Returns the rows of a set in the order of their batches; the caller frees it.
static RowLength* place_rows(const TestSet* s) {
    RowLength* places = alloc_or_die(s->num_rows, sizeof *places, "the order of a test set");
    for (size_t i = 0; i < s->num_rows; i++) { places[i] = (RowLength){.inputs = s->rows[i].tokens - 1, .row = i}; }
    qsort(places, s->num_rows, sizeof *places, place_order);
    return places;
}

// Returns the length that a batch is padded to: a power of two, so that a GPU meets few shapes, or T.
static int padded_length(int inputs, int T) {
    int length = LEAST_LENGTH;
    while (length < inputs) { length *= 2; }
    return min_int(length, T);
}

// Memory for batches: `batch` holds tokens, targets and order, which only backward reads, of B*T positions. `cache`
// holds keys and values of shared contexts.
typedef struct {
    const TestSet* set;
    GPT2* model;
    int* batch;
    float* losses; // (B*T)
    float *device_logits, *logits; // (V) of one position; NULL unless the set's norm needs them
    KVCache cache;
    double *sums, *predicted; // for each row: the sum of the losses of its ending; 1 if all its tokens were predicted
    Comm* comm;
    bool (*is_interrupted)(void*); // or NULL
    void* context;
} Scorer;

// Returns true if the run ends: all ranks ask in the same round.
static bool is_stopped(const Scorer* c, int turn) {
    return turn == 0 && c->is_interrupted && c->is_interrupted(c->context);
}

// Returns true if token `id` is the likeliest one behind a position of the batch, the first one among equals.
static bool is_predicted(const Scorer* c, int position, int id) {
    const int V = c->model->config.vocab_size;
    int best = 0;
    gpt2_logits(c->model, c->device_logits, position, 1);
    c->model->backend->device_copy_out(c->logits, c->device_logits, (size_t)V * sizeof *c->logits);
    for (int v = 1; v < V; v++) {
        if (c->logits[v] > c->logits[best]) { best = v; }
    }
    return best == id;
}

// Fetches the losses of a pass, adds up the losses of a row's ending, which ends before position `end`, and sets
// predicted[row] to 1 if each token of the ending is the likeliest one.
static void take_row(const Scorer* c, size_t row, int end, const int* targets) {
    double sum = 0;
    bool all = c->logits != NULL;
    for (int at = end - c->set->rows[row].scored; at < end; at++) {
        sum += c->losses[at];
        all = all && is_predicted(c, at, targets[at]);
    }
    c->sums[row] = sum;
    c->predicted[row] = all;
}

// Scores `count` rows in one pass through the model.
static void score_batch(Scorer* c, const RowLength* places, int count, int T) {
    GPT2* g = c->model;
    const size_t n = (size_t)count * (size_t)T;
    int *tokens = c->batch, *targets = tokens + n;
    memset(tokens, 0, 3 * n * sizeof *tokens);
    for (int i = 0; i < count; i++) {
        const int* ids = c->set->tokens.ids + c->set->rows[places[i].row].begin;
        memcpy(tokens + (size_t)i * (size_t)T, ids, (size_t)places[i].inputs * sizeof *ids);
        memcpy(targets + (size_t)i * (size_t)T, ids + 1, (size_t)places[i].inputs * sizeof *ids);
    }
    gpt2_upload(g, tokens, n);
    gpt2_forward(g, count, T, NULL);
    gpt2_loss(g, count, T);
    g->backend->device_copy_out(c->losses, acts_at(g, 0).losses, n * sizeof *c->losses);
    for (int i = 0; i < count; i++) { take_row(c, places[i].row, i * T + places[i].inputs, targets); }
}

// Scores this rank's batches. Returns false if it was interrupted.
static bool score_batches(Scorer* c, const RowLength* places) {
    const TestSet* s = c->set;
    const GPT2* g = c->model;
    Progress shown = {0, 0};
    int batch = 0, count;
    for (size_t first = 0; first < s->num_rows; first += (size_t)count, batch++) {
        const int T = padded_length(places[first].inputs, g->T), turn = batch % c->comm->size;
        count = (int)min_size((size_t)g->B * (size_t)g->T / (size_t)T, s->num_rows - first);
        if (is_stopped(c, turn)) { return false; }
        if (turn == c->comm->rank) { score_batch(c, places + first, count, T); }
        progress(&shown, "%s: %zu of %zu rows", s->name, first + (size_t)count, s->num_rows);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// shared contexts

enum { RUN_ITEMS = 8 }; // items that go through the model one behind another, on one rank (chosen)

// Returns how many tokens a row can take from the row before it: those they begin with, but not the one that predicts
// the row's ending.
static int shared_tokens(const TestSet* s, size_t row) {
    const TestRow *r = &s->rows[row], *before = r - 1;
    const int *ids = s->tokens.ids + r->begin, *others = s->tokens.ids + before->begin;
    const int most = min_int(r->tokens - r->scored - 1, before->tokens - 1);
    int n = 0;
    while (n < most && ids[n] == others[n]) { n++; }
    return n;
}

// Returns the first row of run `run`; num_rows behind the last run.
static size_t run_begin(const TestSet* s, size_t run) {
    const size_t item = run * RUN_ITEMS;
    return item < s->num_items ? s->items[item].first : s->num_rows;
}

// Returns true if sharing saves a quarter of the tokens that batches would take.
static bool pays_to_share(const TestSet* s, const GPT2* g, const RowLength* places) {
    size_t batched = 0, shared = 0, count;
    if (s->sharing != SHARE_IF_LESS) { return s->sharing == SHARE_ALWAYS; }
    if (!g->backend->is_host) { return false; }
    for (size_t first = 0; first < s->num_rows; first += count) {
        const int T = padded_length(places[first].inputs, g->T);
        count = min_size((size_t)g->B * (size_t)g->T / (size_t)T, s->num_rows - first);
        batched += count * (size_t)T;
    }
    for (size_t run = 0, row = 0; row < s->num_rows; run++) {
        for (size_t begin = row, end = run_begin(s, run + 1); row < end; row++) {
            shared += (size_t)(s->rows[row].tokens - 1 - (row > begin ? shared_tokens(s, row) : 0));
        }
    }
    return shared <= batched / 4 * 3;
}

// Scores a row whose first `shared` tokens are in the cache.
static void score_row(Scorer* c, size_t row, int shared) {
    GPT2* g = c->model;
    const TestRow* r = &c->set->rows[row];
    const int* ids = c->set->tokens.ids + r->begin + shared;
    const int n = r->tokens - 1 - shared;
    memcpy(c->batch, ids, (size_t)n * sizeof *ids);
    memcpy(c->batch + n, ids + 1, (size_t)n * sizeof *ids);
    memset(c->batch + 2 * n, 0, (size_t)n * sizeof *ids);
    c->cache.length[0] = shared; // NOLINT(clang-analyzer-core.NullDereference): kv_cache_alloc() made it
    gpt2_upload(g, c->batch, (size_t)n);
    gpt2_forward(g, 1, n, &c->cache);
    gpt2_loss(g, 1, n);
    g->backend->device_copy_out(c->losses, acts_at(g, 0).losses, (size_t)n * sizeof *c->losses);
    take_row(c, row, n, c->batch + n);
}

// Scores this rank's runs of items. Returns false if it was interrupted.
static bool score_runs(Scorer* c) {
    const TestSet* s = c->set;
    Progress shown = {0, 0};
    bool goes_on = true;
    c->cache = kv_cache_alloc(c->model, 1, c->model->config.max_seq_len);
    for (size_t run = 0; goes_on && run_begin(s, run) < s->num_rows; run++) {
        const size_t begin = run_begin(s, run), end = run_begin(s, run + 1);
        const int turn = (int)(run % (size_t)c->comm->size);
        goes_on = !is_stopped(c, turn);
        for (size_t row = begin; goes_on && turn == c->comm->rank && row < end; row++) {
            score_row(c, row, row > begin ? shared_tokens(s, row) : 0);
        }
        progress(&shown, "%s: %zu of %zu rows", s->name, end, s->num_rows);
    }
    kv_cache_free(c->model, &c->cache);
    return goes_on;
}

// ---------------------------------------------------------------------------------------------------------------------
// items

// Returns the number of the ending with the lowest loss by a norm, the first one among equals.
static int best_ending(const TestSet* s, const TestItem* item, const double* losses, TestNorm norm) {
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < item->rows; i++) {
        const TestRow* row = &s->rows[item->first + (size_t)i];
        const double by = norm == BY_TOKEN ? row->scored : norm == BY_CHARACTER ? max_int(row->characters, 1) : 1;
        const double loss = losses[item->first + (size_t)i] / by;
        if (loss < least) { best = i, least = loss; }
    }
    return best;
}

// Returns the loss of a text.
static TestScore text_score(const TestSet* s, const double* losses) {
    TestScore score = {.total = s->num_items};
    double sum = 0;
    for (size_t i = 0; i < s->num_rows; i++) {
        sum += losses[i];
        score.tokens += (size_t)s->rows[i].scored;
    }
    score.perplexity = exp(sum / (double)score.tokens);
    score.bits_per_byte = sum / log(2) / (double)s->bytes;
    return score;
}

// Counts the right items, from the sums of the rows' losses and whether their tokens were predicted.
static TestScore count_items(const TestSet* s, const double* losses, const double* predicted) {
    const TestNorm norm = s->form->norm;
    TestScore score = {.total = s->num_items, .perplexity = NAN};
    double sum = 0;
    if (norm == AS_TEXT) { return text_score(s, losses); }
    for (size_t i = 0; i < s->num_items; i++) {
        const TestItem* item = &s->items[i];
        if (norm == AS_FORESEEN) {
            score.correct += predicted[item->first] > 0;
            sum += losses[item->first];
        } else {
            score.correct += best_ending(s, item, losses, norm) == item->label;
            score.correct_by_sum += best_ending(s, item, losses, BY_SUM) == item->label;
        }
    }
    if (norm == AS_FORESEEN) { score.perplexity = exp(sum / (double)s->num_items); }
    return score;
}

// Allocates a scorer's memory, which scorer_free() frees.
static Scorer scorer_alloc(const TestSet* s, GPT2* g, Comm* comm) {
    const size_t n = (size_t)g->B * (size_t)g->T, V = (size_t)g->config.vocab_size;
    Scorer c = {.set = s, .model = g, .comm = comm};
    c.sums = alloc_or_die(2 * s->num_rows, sizeof *c.sums, "losses of a test set");
    c.predicted = c.sums + s->num_rows;
    c.batch = g->backend->host_alloc(3 * n * sizeof *c.batch, "a batch of a test set");
    c.losses = alloc_or_die(n, sizeof *c.losses, "losses of a batch");
    if (s->form->norm == AS_FORESEEN) {
        c.device_logits = g->backend->device_alloc(V * sizeof(float), "logits");
        c.logits = alloc_or_die(V, sizeof *c.logits, "logits");
    }
    return c;
}

static void scorer_free(Scorer* c) {
    const Backend* b = c->model->backend;
    b->host_free(c->batch);
    if (c->logits) { b->device_free(c->device_logits, (size_t)c->model->config.vocab_size * sizeof(float)); }
    free(c->losses);
    free(c->logits);
    free(c->sums);
}

bool test_set_score(TestScore* score, double* losses, const TestSet* s, GPT2* g, Comm* comm,
                    bool (*is_interrupted)(void*), void* context, Error* err) {
    const size_t n = s->num_rows;
    Scorer c = scorer_alloc(s, g, comm);
    RowLength* places = place_rows(s);
    bool ok = true;
    c.is_interrupted = is_interrupted;
    c.context = context;
    memset(score, 0, sizeof *score);
    if (pays_to_share(s, g, places) ? score_runs(&c) : score_batches(&c, places)) {
        comm_all_reduce_host(comm, c.sums, 2 * n); // each adds to zeros: a gather
        for (size_t i = 0; ok && i < n; i++) {
            ok = isfinite(c.sums[i]) || fail(err, "%s: the loss is not finite", s->path);
        }
        if (ok) { *score = count_items(s, c.sums, c.predicted); }
        if (losses) { memcpy(losses, c.sums, n * sizeof *c.sums); }
    }
    scorer_free(&c);
    free(places);
    return ok;
}

double test_accuracy(size_t correct, size_t total) { return (double)correct / (double)total; }

double test_standard_error(size_t correct, size_t total) {
    const double p = test_accuracy(correct, total);
    return total > 1 ? sqrt(p * (1 - p) / (double)(total - 1)) : 0;
}

static void print_text_score(const TestSet* s, const TestScore* score) {
    print_result("%s: perplexity %f\n", s->name, score->perplexity);
    printf("  loss %f per token, %f bits per byte; %zu tokens of %zu bytes\n", log(score->perplexity),
           score->bits_per_byte, score->tokens, s->bytes);
}

static void print_accuracy(const TestSet* s, const TestScore* score) {
    const TestForm* f = s->form;
    const size_t n = score->total;
    const double accuracy = test_accuracy(score->correct, n);
    print_result("%s: %zu/%zu = %f\n", s->name, score->correct, n, accuracy);
    printf("  standard error %.4f", test_standard_error(score->correct, n));
    if (!isnan(s->baseline)) {
        printf("; centered %.4f, guessing %.4f", (accuracy - s->baseline) / (1 - s->baseline), s->baseline);
    }
    if (f->norm == AS_FORESEEN) { printf("; perplexity of the ending %.4f", score->perplexity); }
    if (f->norm == BY_TOKEN || f->norm == BY_CHARACTER) {
        printf("; by the sum of losses %.4f, standard error %.4f", test_accuracy(score->correct_by_sum, n),
               test_standard_error(score->correct_by_sum, n));
    }
    printf("\n");
}

void test_score_print(const TestSet* s, const TestScore* score) {
    if (s->form->norm == AS_TEXT) { print_text_score(s, score); }
    else { print_accuracy(s, score); }
    printf("  %s\n", s->convention);
    if (s->published) { printf("  published: %s\n", s->published); }
}
