#include "optimizer.h"

// ---------------------------------------------------------------------------------------------------------------------
// segments

// The layout cut into segments, for one rank of a group. All of it is a pure function of the model and of the ranks.
typedef struct {
    Segment* segment;
    int count;
    TensorTable v_table;
    size_t most, most_v; // elements of the largest shards, over all ranks: of masters and m, of v
} Segments;

static Segment* add_segment(Segments* p, size_t begin, size_t size) {
    p->segment = realloc_or_die(p->segment, (size_t)(p->count + 1) * sizeof *p->segment, "segments of the parameters");
    p->segment[p->count] = (Segment){.range = {begin, size}, .owner = -1};
    return &p->segment[p->count++];
}

// The weight of q, k and v is three matrices, one below the other.
static int num_matrices(const Tensor* t) { return strcmp(t->name, "qkvw") ? 1 : 3; }

// Adds the matrices of a layer.
static void add_matrices(Segments* p, const TensorTable* table, int layer) {
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        if (tensor_group(t) != GROUP_MATRIX) { continue; }
        const size_t rows = t->rows / (size_t)num_matrices(t);
        for (int k = 0; k < num_matrices(t); k++) {
            Segment* segment = add_segment(p, tensor_at(t, layer) + (size_t)k * rows * t->cols, rows * t->cols);
            segment->rows = (int)rows;
            segment->cols = (int)t->cols;
        }
    }
}

// Returns the work of Muon's update of a matrix: multiply-adds of one Newton-Schulz step.
static double matrix_cost(const Segment* k) {
    const double m = k->rows < k->cols ? k->rows : k->cols, n = k->rows < k->cols ? k->cols : k->rows;
    return 2 * m * m * n + m * m * m;
}

// Orders matrices by falling cost, and those of equal cost as they lie.
static int compare_cost(const void* a, const void* b) {
    const Segment *x = *(Segment* const*)a, *y = *(Segment* const*)b;
    const double difference = matrix_cost(y) - matrix_cost(x);
    return difference ? (difference > 0) - (difference < 0) : (x > y) - (x < y);
}

// Gives each matrix, the largest first, to the rank that has least to do (Graham 1969): the slowest rank has at most
// 4/3 of the least possible work.
static void choose_owners(const Segments* p, int shards) {
    Segment** by_cost = alloc_or_die((size_t)p->count, sizeof(Segment*), "matrices by cost");
    double* work = alloc_or_die((size_t)shards, sizeof *work, "work of ranks");
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->segment[i].rows) { by_cost[count++] = &p->segment[i]; }
    }
    qsort(by_cost, (size_t)count, sizeof *by_cost, compare_cost);
    for (int i = 0; i < count; i++) {
        int least = 0;
        for (int r = 1; r < shards; r++) { least = work[r] < work[least] ? r : least; }
        by_cost[i]->owner = least;
        work[least] += matrix_cost(by_cost[i]);
    }
    free(by_cost);
    free(work);
}

// Returns the elements of a segment that a rank has.
static size_t shard_size(const Segment* k, int rank, int shards) {
    if (!k->rows) { return k->range.size / (size_t)shards; }
    return k->owner == rank ? k->range.size : 0;
}

// Sets the places of a rank's shards, and the largest sums over all ranks.
static void place_shards(Segments* p, int rank, int shards) {
    for (int r = 0; r < shards; r++) {
        size_t size = 0, size_v = 0;
        for (int i = 0; i < p->count; i++) {
            Segment* k = &p->segment[i];
            if (r == rank) { k->at = size, k->v_at = size_v; }
            size += shard_size(k, r, shards);
            size_v += k->rows ? 0 : shard_size(k, r, shards);
        }
        p->most = max_size(p->most, size);
        p->most_v = max_size(p->most_v, size_v);
    }
}

// The caller frees Segments.segment.
static Segments make_segments(const GPT2* g, OptimizerKind kind, int rank, int shards) {
    const TensorTable* table = &g->params_table;
    Segments p = {.v_table = *table};
    if (kind == OPTIMIZER_MUON) {
        Tensor rows[MAX_TENSORS];
        memcpy(rows, table->row, sizeof rows);
        for (int i = 0; i < table->count; i++) {
            if (tensor_group(&rows[i]) == GROUP_MATRIX) { rows[i].rows = rows[i].used_rows = 0; }
        }
        p.v_table = tensors_layout_in_shards(rows, table->count, table->num_layers, shards);
        for (int i = 0; i < tensors_num_ranges(table); i++) {
            const TensorRange of_v = tensors_range(&p.v_table, i);
            add_segment(&p, tensors_range(table, i).begin, of_v.size)->v_begin = of_v.begin;
            if (i > 0 && i <= table->num_layers) { add_matrices(&p, table, i - 1); }
        }
        choose_owners(&p, shards);
    } else if (shards == 1) {
        add_segment(&p, 0, table->size);
    } else {
        for (int i = 0; i < tensors_num_ranges(table); i++) {
            const TensorRange r = tensors_range(table, i);
            add_segment(&p, r.begin, r.size)->v_begin = r.begin;
        }
    }
    place_shards(&p, rank, shards);
    if (shards == 1) { p.most = table->size; } // the whole layout, with the padding between segments
    return p;
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Returns the most bytes of scratch that muon_update needs for one rank's matrices of one shape.
static size_t scratch_bytes(const Backend* b, const Segments* p, int shards) {
    size_t most = 0;
    for (int i = 0; i < p->count; i++) {
        const Segment* shape = &p->segment[i];
        for (int r = 0; shape->rows && r < shards; r++) {
            int count = 0;
            for (int k = i; k < p->count; k++) {
                const Segment* other = &p->segment[k];
                count += other->rows == shape->rows && other->cols == shape->cols && other->owner == r;
            }
            most = max_size(most, b->muon_bytes(count, shape->rows, shape->cols));
        }
    }
    return most;
}

static void memory_of_segments(const GPT2* g, const Segments* p, int shards, MemoryLine line[OPTIMIZER_MEMORY_LINES]) {
    const bool is_fp32 = g->backend->element_bytes == sizeof(float);
    const size_t bytes = p->most * sizeof(float);
    const MemoryLine lines[OPTIMIZER_MEMORY_LINES] = {
        {"master weights", is_fp32 ? 0 : bytes, offsetof(Optimizer, masters)},
        {"first moments", bytes, offsetof(Optimizer, m)},
        {"second moments", p->most_v * sizeof(float), offsetof(Optimizer, v)},
        {"scratch of Muon", scratch_bytes(g->backend, p, shards), offsetof(Optimizer, scratch)},
        {"settings of the optimizer", sizeof(Hyper), offsetof(Optimizer, hyper)},
    };
    memcpy(line, lines, sizeof lines);
}

void optimizer_memory(const GPT2* g, OptimizerKind kind, int shards, MemoryLine line[OPTIMIZER_MEMORY_LINES]) {
    const Segments p = make_segments(g, kind, 0, shards);
    memory_of_segments(g, &p, shards, line);
    free(p.segment);
}

static int group_size(const Optimizer* o) { return o->zero_group ? o->zero_group->size : 1; }
static int group_rank(const Optimizer* o) { return o->zero_group ? o->zero_group->rank : 0; }
static void list_matrices(Optimizer* o);

void optimizer_alloc(Optimizer* o, GPT2* model, OptimizerKind kind, Comm* zero_group) {
    const Backend* b = model->backend;
    MemoryLine line[OPTIMIZER_MEMORY_LINES];
    memset(o, 0, sizeof *o);
    o->model = model;
    o->kind = kind;
    o->zero_group = zero_group && zero_group->size > 1 ? zero_group : NULL;
    const Segments p = make_segments(model, kind, group_rank(o), group_size(o));
    o->segments = p.segment;
    o->num_segments = p.count;
    o->v_table = p.v_table;
    memory_of_segments(model, &p, group_size(o), line);
    memory_lines_alloc(b, o, line, OPTIMIZER_MEMORY_LINES);
    if (!o->masters) { o->masters = (float*)model->params; }
    o->host_hyper = b->host_alloc(sizeof *o->host_hyper, "settings of the optimizer");
    list_matrices(o);
}

void optimizer_free(Optimizer* o) {
    const Backend* b = o->model->backend;
    MemoryLine line[OPTIMIZER_MEMORY_LINES];
    b->device_forget(&o->norm);
    b->device_forget(&o->update);
    optimizer_memory(o->model, o->kind, group_size(o), line);
    memory_lines_free(b, o, line, OPTIMIZER_MEMORY_LINES);
    b->host_free(o->host_hyper);
    free(o->matrices);
    free(o->segments);
    memset(o, 0, sizeof *o);
}

// ---------------------------------------------------------------------------------------------------------------------
// shards

// A rank's part of a segment: a range of the layout of masters and m, or of v, and where a sharded block has it.
typedef struct {
    TensorRange range;
    size_t at;
} RankShard;

static bool is_v(const Optimizer* o, const float* block) { return block == o->v; }

const TensorTable* optimizer_table(const Optimizer* o, const float* block) {
    return is_v(o, block) ? &o->v_table : &o->model->params_table;
}

bool optimizer_is_whole(const Optimizer* o, const float* block) {
    return !o->zero_group || (const void*)block == (const void*)o->model->params;
}

// Returns the range that a segment takes in the layout of a block; v has none of the matrices.
static TensorRange segment_range(const Optimizer* o, const float* block, const Segment* k) {
    const TensorRange of_v = {k->v_begin, k->rows ? 0 : k->range.size};
    return is_v(o, block) ? of_v : k->range;
}

// Returns this rank's shard of a segment, in the layout of a block.
static RankShard shard_of(const Optimizer* o, const float* block, const Segment* k) {
    RankShard s = {segment_range(o, block, k), is_v(o, block) ? k->v_at : k->at};
    if (!o->zero_group) { return s; }
    const size_t size = s.range.size ? shard_size(k, group_rank(o), group_size(o)) : 0;
    if (!k->rows) { s.range.begin += (size_t)group_rank(o) * size; }
    s.range.size = size;
    return s;
}

// Returns the address of a shard in a block.
static float* shard_block(const Optimizer* o, float* block, const Segment* k) {
    const RankShard s = shard_of(o, block, k);
    return block + (optimizer_is_whole(o, block) ? s.range.begin : s.at);
}

void optimizer_put(const Optimizer* o, float* block, size_t begin, const float* host, size_t n) {
    const Backend* b = o->model->backend;
    if (optimizer_is_whole(o, block)) {
        b->device_copy_in(block + begin, host, n * sizeof *host);
        return;
    }
    for (int i = 0; i < o->num_segments; i++) {
        const RankShard s = shard_of(o, block, &o->segments[i]);
        const size_t first = max_size(begin, s.range.begin), last = min_size(begin + n, s.range.begin + s.range.size);
        if (first < last) {
            b->device_copy_in(block + s.at + (first - s.range.begin), host + (first - begin),
                              (last - first) * sizeof *host);
        }
    }
}

// Begins the exchange of a segment that takes `range` of memory: each rank provides its shard and receives the others.
static void gather_begin(const Optimizer* o, const Segment* k, void* memory, TensorRange range, size_t element) {
    void* at = (char*)memory + range.begin * element;
    if (k->rows) { comm_broadcast_begin(o->zero_group, at, range.size * element, k->owner); }
    else { comm_all_gather_begin(o->zero_group, at, range.size * element); }
}

const float* optimizer_whole(const Optimizer* o, float* block) {
    GPT2* g = o->model;
    if (optimizer_is_whole(o, block)) { return block; }
    for (int i = 0; i < o->num_segments; i++) {
        const Segment* k = &o->segments[i];
        const RankShard s = shard_of(o, block, k);
        if (s.range.size) {
            g->backend->device_copy(g->grads + s.range.begin, block + s.at, s.range.size * sizeof *block);
        }
        gather_begin(o, k, g->grads, segment_range(o, block, k), sizeof *block);
    }
    comm_end(o->zero_group);
    return g->grads;
}

// Gathers the parameters from the ranks that have set their shards of them.
static void gather_params(const Optimizer* o) {
    const GPT2* g = o->model;
    if (!o->zero_group) { return; }
    for (int i = 0; i < o->num_segments; i++) {
        gather_begin(o, &o->segments[i], g->params, o->segments[i].range, g->backend->element_bytes);
    }
    comm_end(o->zero_group);
}

void optimizer_masters_changed(const Optimizer* o) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    const Rounding nearest = {0}, rounding = o->rounding.step > 0 ? o->rounding : nearest;
    for (int i = 0; i < o->num_segments; i++) {
        const RankShard s = shard_of(o, o->masters, &o->segments[i]);
        if (!s.range.size) { continue; }
        b->params_round(stored_at(b, g->params, s.range.begin), shard_block(o, o->masters, &o->segments[i]),
                        s.range.size, s.range.begin, rounding);
    }
    gather_params(o);
    b->params_changed();
}

// ---------------------------------------------------------------------------------------------------------------------
// a step

// Returns the list of a shape, which is made if there is none.
static MuonList* list_of(Optimizer* o, const Segment* k) {
    for (int i = 0; i < MUON_SHAPES; i++) {
        MuonList* list = &o->lists[i];
        if (!list->rows) { *list = (MuonList){.rows = k->rows, .cols = k->cols}; }
        if (list->rows == k->rows && list->cols == k->cols) { return list; }
    }
    fatal("the matrices of a block have more than %d shapes", MUON_SHAPES);
}

// Lists this rank's matrices by shape. Their addresses do not change while the optimizer lives.
static void list_matrices(Optimizer* o) {
    const GPT2* g = o->model;
    MuonMatrix* next = alloc_or_die((size_t)o->num_segments, sizeof *next, "matrices of Muon");
    o->matrices = next;
    for (int i = 0; i < o->num_segments; i++) {
        if (o->segments[i].rows) { list_of(o, &o->segments[i]); }
    }
    for (int i = 0; i < MUON_SHAPES; i++) {
        MuonList* list = &o->lists[i];
        list->matrices = next;
        for (int j = 0; list->rows && j < o->num_segments; j++) {
            const Segment* k = &o->segments[j];
            const size_t begin = k->range.begin;
            if (!k->rows || list_of(o, k) != list || !shard_of(o, o->m, k).range.size) { continue; }
            *next++ = (MuonMatrix){.params = stored_at(g->backend, g->params, begin),
                                   .masters = shard_block(o, o->masters, k),
                                   .m = shard_block(o, o->m, k),
                                   .grads = g->grads + begin,
                                   .begin = begin};
            list->count++;
        }
    }
}

void optimizer_reduce_begin(const Optimizer* o, TensorRange range) {
    float* grads = o->model->grads;
    for (int i = 0; i < o->num_segments; i++) {
        const Segment* k = &o->segments[i];
        if (k->range.begin < range.begin || k->range.begin >= range.begin + range.size) { continue; }
        if (k->rows) { comm_reduce_begin(o->zero_group, grads + k->range.begin, k->range.size, k->owner); }
        else { comm_reduce_scatter_begin(o->zero_group, grads + k->range.begin, k->range.size); }
    }
}

static void norm_work(const void* arguments) {
    const Optimizer* o = *(Optimizer* const*)arguments;
    const GPT2* g = o->model;
    if (!o->zero_group) { // in as few launches as possible
        g->backend->norm_squared(&g->sums[SUM_NORM], g->grads, g->params_table.size);
        return;
    }
    for (int i = 0; i < o->num_segments; i++) {
        const TensorRange r = shard_of(o, o->m, &o->segments[i]).range;
        if (r.size) { g->backend->norm_squared(&g->sums[SUM_NORM], g->grads + r.begin, r.size); }
    }
}

void optimizer_norm(Optimizer* o) {
    o->model->backend->device_replay(&o->norm, "norm", norm_work, &o, sizeof o);
}

// Hyperparameters are copied to the device inside the recording, so that each replay sees those of its step.
static void update_work(const void* arguments) {
    const Optimizer* o = *(Optimizer* const*)arguments;
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    const double* norm = &g->sums[SUM_NORM];
    b->device_send(o->hyper, o->host_hyper, sizeof *o->hyper);
    for (int i = 0; i < o->num_segments; i++) {
        const Segment* k = &o->segments[i];
        const TensorRange r = shard_of(o, o->m, k).range;
        if (k->rows || !r.size) { continue; }
        b->adamw_update(stored_at(b, g->params, r.begin), shard_block(o, o->masters, k), shard_block(o, o->m, k),
                        shard_block(o, o->v, k), g->grads + r.begin, norm, &o->hyper->adamw, &g->params_table, r.begin,
                        r.begin + r.size);
    }
    for (int i = 0; i < MUON_SHAPES; i++) {
        const MuonList* list = &o->lists[i];
        if (!list->count) { continue; }
        b->muon_update(list->matrices, list->count, list->rows, list->cols, norm, &o->hyper->muon, o->scratch);
    }
}

void optimizer_update(Optimizer* o, const Hyper* hyper) {
    const Backend* b = o->model->backend;
    *o->host_hyper = *hyper;
    b->device_replay(&o->update, "update", update_work, &o, sizeof o);
    gather_params(o);
    b->params_changed();
}

// Queues Muon's updates with each gradient as its own momentum, so that the momentum's update writes back what is
// there: nothing changes. The matrices of all ranks are queued, since all ranks take the algorithms that the first one
// times.
void optimizer_queue_matmuls(Optimizer* o) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    const int ranks = group_size(o);
    MuonMatrix* matrices = alloc_or_die((size_t)o->num_segments, sizeof *matrices, "matrices of Muon");
    b->device_zero(&g->sums[SUM_NORM], sizeof *g->sums);
    b->norm_squared(&g->sums[SUM_NORM], g->grads, g->params_table.size); // not finite: nothing changes in real updates
    *o->host_hyper = (Hyper){.muon = {.grad_scale = 1}};
    b->device_send(o->hyper, o->host_hyper, sizeof *o->hyper);
    for (int i = 0; i < MUON_SHAPES * ranks; i++) {
        const MuonList* list = &o->lists[i / ranks];
        int count = 0;
        for (int j = 0; list->rows && j < o->num_segments; j++) {
            const Segment* k = &o->segments[j];
            if (!k->rows || list_of(o, k) != list || !shard_size(k, i % ranks, ranks)) { continue; }
            float* grads = g->grads + k->range.begin;
            matrices[count++] = (MuonMatrix){.m = grads, .grads = grads};
        }
        if (!count) { continue; }
        b->muon_update(matrices, count, list->rows, list->cols, &g->sums[SUM_NORM], &o->hyper->muon, o->scratch);
    }
    b->device_sync();
    free(matrices);
}
