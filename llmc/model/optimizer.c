#include "optimizer.h"

// ---------------------------------------------------------------------------------------------------------------------
// memory

typedef size_t OfMatrices(const Backend* b, int count, int rows, int cols);

// Returns the most that `of` returns for one rank's matrices of one shape.
static size_t most_of_matrices(const Backend* b, const Segments* p, int shards, OfMatrices* of) {
    size_t most = 0;
    for (int i = 0; i < p->count; i++) {
        const Segment* shape = &p->segment[i];
        for (int r = 0; shape->rows && r < shards; r++) {
            int count = 0;
            for (int k = i; k < p->count; k++) {
                const Segment* other = &p->segment[k];
                count += other->rows == shape->rows && other->cols == shape->cols && other->owner == r;
            }
            most = max_size(most, of(b, count, shape->rows, shape->cols));
        }
    }
    return most;
}

static size_t scratch_bytes(const Backend* b, int count, int rows, int cols) {
    return b->muon_bytes(count, rows, cols);
}

// Returns the floats that a block of the matrices which Muon updates at a time takes in a slot.
static size_t staged_floats(const Backend* b, int count, int rows, int cols) {
    return (size_t)b->muon_at_a_time(count, rows, cols) * staging_floats((size_t)rows * (size_t)cols);
}

static bool has_masters(const Backend* b) { return b->element_bytes != sizeof(float); }

// Returns the most elements of state in host memory that AdamW updates at a time: a 64th of it, so that little of the
// copies is without an update beside it, at most 16 MiB of a block (both chosen, not measured).
static size_t part_size(const Segments* p) {
    return min_size((size_t)1 << 22, round_up(ceil_div(p->most, 64), TENSOR_ALIGN));
}

static size_t slot_floats(const Backend* b, const Segments* p, int shards) {
    const size_t masters = has_masters(b), of_adamw = (masters + 2) * staging_floats(part_size(p));
    return max_size(of_adamw, (masters + 1) * most_of_matrices(b, p, shards, staged_floats));
}

static void memory_of_segments(const GPT2* g, const Segments* p, StatePlace place, int shards,
                               MemoryLine line[OPTIMIZER_MEMORY_LINES]) {
    const Backend* b = g->backend;
    const bool in_host = place == STATE_IN_HOST;
    const size_t bytes = p->most * sizeof(float), bytes_v = p->most_v * sizeof(float);
    const size_t staging = in_host ? STATE_SLOTS * slot_floats(b, p, shards) * sizeof(float) : 0;
    const MemoryLine lines[OPTIMIZER_MEMORY_LINES] = {
        {"master weights", has_masters(b) ? bytes : 0, offsetof(Optimizer, masters), in_host},
        {"first moments", bytes, offsetof(Optimizer, m), in_host},
        {"second moments", bytes_v, offsetof(Optimizer, v), in_host},
        {"staging of masters, moments", staging, offsetof(Optimizer, staging), false},
        {"scratch of Muon", most_of_matrices(b, p, shards, scratch_bytes), offsetof(Optimizer, scratch), false},
        {"settings of the optimizer", sizeof(Hyper), offsetof(Optimizer, hyper), false},
    };
    memcpy(line, lines, sizeof lines);
}

void optimizer_memory(const GPT2* g, OptimizerKind kind, StatePlace place, int shards,
                      MemoryLine line[OPTIMIZER_MEMORY_LINES]) {
    const Segments p = make_segments(&g->params_table, kind, 0, shards);
    memory_of_segments(g, &p, place, shards, line);
    free(p.segment);
}

static int group_size(const Optimizer* o) { return o->zero_group ? o->zero_group->size : 1; }
static int group_rank(const Optimizer* o) { return o->zero_group ? o->zero_group->rank : 0; }
static void list_matrices(Optimizer* o);

void optimizer_alloc(Optimizer* o, GPT2* model, OptimizerKind kind, StatePlace place, Comm* zero_group) {
    const Backend* b = model->backend;
    memset(o, 0, sizeof *o);
    o->model = model;
    o->zero_group = zero_group && zero_group->size > 1 ? zero_group : NULL;
    o->segments = make_segments(&model->params_table, kind, group_rank(o), group_size(o));
    o->part = place == STATE_IN_HOST ? part_size(&o->segments) : SIZE_MAX;
    o->slot_floats = slot_floats(b, &o->segments, group_size(o));
    memory_of_segments(model, &o->segments, place, group_size(o), o->memory);
    memory_lines_alloc(b, o, o->memory, OPTIMIZER_MEMORY_LINES);
    if (!o->masters) { o->masters = (float*)model->params; }
    o->host_hyper = b->host_alloc(sizeof *o->host_hyper, "settings of the optimizer");
    list_matrices(o);
    if (o->staging) { b->device_sync(); } // the first copy does not wait for the queued zeroing of its memory
}

void optimizer_free(Optimizer* o) {
    const Backend* b = o->model->backend;
    b->device_forget(&o->norm);
    b->device_forget(&o->update);
    memory_lines_free(b, o, o->memory, OPTIMIZER_MEMORY_LINES);
    b->host_free(o->host_hyper);
    free(o->matrices);
    free(o->segments.segment);
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
static bool is_params(const Optimizer* o, const float* block) { return (const void*)block == (void*)o->model->params; }

// Returns true if an update streams `block` through device memory.
static bool is_staged(const Optimizer* o, const float* block) {
    return o->staging && !is_params(o, block);
}

const TensorTable* optimizer_table(const Optimizer* o, const float* block) {
    return is_v(o, block) ? &o->segments.v_table : &o->model->params_table;
}

bool optimizer_is_whole(const Optimizer* o, const float* block) {
    return !o->zero_group || is_params(o, block);
}

// Returns the range that a segment takes in the layout of a block; v has none of the matrices.
static TensorRange segment_range(const Optimizer* o, const float* block, const Segment* k) {
    return is_v(o, block) ? k->v : k->range;
}

// Returns this rank's shard of a segment, in the layout of a block.
static RankShard shard_of(const Optimizer* o, const float* block, const Segment* k) {
    RankShard s = {segment_range(o, block, k), is_v(o, block) ? k->v_at : k->at};
    if (!o->zero_group) { return s; }
    const size_t size = s.range.size ? segment_shard_size(k, group_rank(o), group_size(o)) : 0;
    if (!k->rows) { s.range.begin += (size_t)group_rank(o) * size; }
    s.range.size = size;
    return s;
}

// Returns the address of a shard in a block.
static float* shard_block(const Optimizer* o, float* block, const Segment* k) {
    const RankShard s = shard_of(o, block, k);
    return block + (optimizer_is_whole(o, block) ? s.range.begin : s.at);
}

// Sets n elements at `to`, an address in a block.
static void put_at(const Optimizer* o, const float* block, float* to, const float* host, size_t n) {
    const Backend* b = o->model->backend;
    if (!is_staged(o, block)) {
        b->device_copy_in(to, host, n * sizeof *host);
        return;
    }
    b->state_sync();
    memcpy(to, host, n * sizeof *host);
}

void optimizer_put(const Optimizer* o, float* block, size_t begin, const float* host, size_t n) {
    if (optimizer_is_whole(o, block)) {
        put_at(o, block, block + begin, host, n);
        return;
    }
    for (int i = 0; i < o->segments.count; i++) {
        const RankShard s = shard_of(o, block, &o->segments.segment[i]);
        const size_t first = max_size(begin, s.range.begin), last = min_size(begin + n, s.range.begin + s.range.size);
        if (first < last) {
            put_at(o, block, block + s.at + (first - s.range.begin), host + (first - begin), last - first);
        }
    }
}

// Begins the exchange of a segment that takes `range` of memory: each rank provides its shard and receives the others.
static void gather_begin(const Optimizer* o, const Segment* k, void* memory, TensorRange range, size_t element) {
    void* at = (char*)memory + range.begin * element;
    if (k->rows) { comm_broadcast_begin(o->zero_group, at, range.size * element, k->owner); }
    else { comm_all_gather_begin(o->zero_group, at, range.size * element); }
}

float* optimizer_in_host(const Optimizer* o, float* block) {
    const Backend* b = o->model->backend;
    if (!optimizer_is_whole(o, block) || (!b->is_host && !is_staged(o, block))) { return NULL; }
    b->device_sync();
    b->state_sync();
    return block;
}

// Copies this rank's shard of a segment to the gradients.
static void copy_shard(const Optimizer* o, const float* block, RankShard s) {
    const Backend* b = o->model->backend;
    float* to = o->model->grads + s.range.begin;
    if (!s.range.size) { return; }
    if (is_staged(o, block)) { b->device_copy_in(to, block + s.at, s.range.size * sizeof *block); }
    else { b->device_copy(to, block + s.at, s.range.size * sizeof *block); }
}

const float* optimizer_whole(const Optimizer* o, float* block) {
    GPT2* g = o->model;
    if (optimizer_is_whole(o, block)) { return block; }
    g->backend->state_sync();
    for (int i = 0; i < o->segments.count; i++) {
        const Segment* k = &o->segments.segment[i];
        copy_shard(o, block, shard_of(o, block, k));
        gather_begin(o, k, g->grads, segment_range(o, block, k), sizeof *block);
    }
    comm_end(o->zero_group);
    return g->grads;
}

// Gathers the parameters from the ranks that have set their shards of them.
static void gather_params(const Optimizer* o) {
    const GPT2* g = o->model;
    if (!o->zero_group) { return; }
    for (int i = 0; i < o->segments.count; i++) {
        gather_begin(o, &o->segments.segment[i], g->params, o->segments.segment[i].range, g->backend->element_bytes);
    }
    comm_end(o->zero_group);
}

// ---------------------------------------------------------------------------------------------------------------------
// state in host memory

static Staging staging_of(const Optimizer* o) {
    return (Staging){.memory = o->staging, .slot_floats = o->slot_floats};
}

// Returns device memory with n elements that begin at `at` in a block: those themselves, or a copy.
static float* stage(const Optimizer* o, Staging* s, const float* block, float* at, size_t n) {
    return is_staged(o, block) ? staging_in(s, o->model->backend, at, n) : at;
}

// Copies them back after they have changed, if they are a copy.
static void unstage(const Optimizer* o, const Staging* s, const float* block, float* to, const float* from, size_t n) {
    if (is_staged(o, block)) { staging_out(s, o->model->backend, to, from, n); }
}

void optimizer_masters_changed(const Optimizer* o) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    const Rounding nearest = {0}, rounding = o->rounding.step > 0 ? o->rounding : nearest;
    Staging staging = staging_of(o);
    for (int i = 0; i < o->segments.count; i++) {
        const TensorRange r = shard_of(o, o->masters, &o->segments.segment[i]).range;
        float* masters = shard_block(o, o->masters, &o->segments.segment[i]);
        for (size_t at = 0, n; at < r.size; at += n) {
            n = min_size(o->part, r.size - at);
            b->params_round(stored_at(b, g->params, r.begin + at), stage(o, &staging, o->masters, masters + at, n), n,
                            r.begin + at, rounding);
            unstage(o, &staging, o->masters, NULL, NULL, 0); // they are as they were
            staging_next(&staging);
        }
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
    MuonMatrix* next = alloc_or_die(2 * (size_t)o->segments.count, sizeof *next, "matrices of Muon");
    o->matrices = next;
    o->staged = next + o->segments.count;
    for (int i = 0; i < o->segments.count; i++) {
        if (o->segments.segment[i].rows) { list_of(o, &o->segments.segment[i]); }
    }
    for (int i = 0; i < MUON_SHAPES; i++) {
        MuonList* list = &o->lists[i];
        list->matrices = next;
        for (int j = 0; list->rows && j < o->segments.count; j++) {
            const Segment* k = &o->segments.segment[j];
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
    for (int i = 0; i < o->segments.count; i++) {
        const Segment* k = &o->segments.segment[i];
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
    for (int i = 0; i < o->segments.count; i++) {
        const TensorRange r = shard_of(o, o->m, &o->segments.segment[i]).range;
        if (r.size) { g->backend->norm_squared(&g->sums[SUM_NORM], g->grads + r.begin, r.size); }
    }
}

void optimizer_norm(Optimizer* o) {
    o->model->backend->device_replay(&o->norm, "norm", norm_work, &o, sizeof o);
}

// Updates elements at .. at + n - 1 of this rank's shard of a segment by AdamW.
static void adamw_part(const Optimizer* o, Staging* s, const Segment* k, size_t at, size_t n) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    const size_t begin = shard_of(o, o->m, k).range.begin + at;
    float *masters = shard_block(o, o->masters, k) + at, *m = shard_block(o, o->m, k) + at,
          *v = shard_block(o, o->v, k) + at, *staged_masters = stage(o, s, o->masters, masters, n),
          *staged_m = stage(o, s, o->m, m, n), *staged_v = stage(o, s, o->v, v, n);
    b->adamw_update(stored_at(b, g->params, begin), staged_masters, staged_m, staged_v, g->grads + begin,
                    &g->sums[SUM_NORM], &o->hyper->adamw, &g->params_table, begin, begin + n);
    unstage(o, s, o->masters, masters, staged_masters, n);
    unstage(o, s, o->m, m, staged_m, n);
    unstage(o, s, o->v, v, staged_v, n);
    staging_next(s);
}

// Updates `count` matrices of a list.
static void muon_part(const Optimizer* o, Staging* s, const MuonList* list, const MuonMatrix* matrices, int count) {
    const GPT2* g = o->model;
    const size_t n = (size_t)list->rows * (size_t)list->cols;
    for (int i = 0; i < count; i++) {
        o->staged[i] = matrices[i];
        o->staged[i].masters = stage(o, s, o->masters, matrices[i].masters, n);
        o->staged[i].m = stage(o, s, o->m, matrices[i].m, n);
    }
    g->backend->muon_update(o->staged, count, list->rows, list->cols, &g->sums[SUM_NORM], &o->hyper->muon, o->scratch);
    for (int i = 0; i < count; i++) {
        unstage(o, s, o->masters, matrices[i].masters, o->staged[i].masters, n);
        unstage(o, s, o->m, matrices[i].m, o->staged[i].m, n);
    }
    staging_next(s);
}

// Hyperparameters are copied to the device inside the recording, so that each replay sees the values of its step.
static void update_work(const void* arguments) {
    const Optimizer* o = *(Optimizer* const*)arguments;
    const Backend* b = o->model->backend;
    Staging staging = staging_of(o);
    b->device_send(o->hyper, o->host_hyper, sizeof *o->hyper);
    for (int i = 0; i < o->segments.count; i++) {
        const Segment* k = &o->segments.segment[i];
        const size_t size = k->rows ? 0 : shard_of(o, o->m, k).range.size;
        for (size_t at = 0; at < size; at += min_size(o->part, size - at)) {
            adamw_part(o, &staging, k, at, min_size(o->part, size - at));
        }
    }
    for (int i = 0; i < MUON_SHAPES; i++) {
        const MuonList* list = &o->lists[i];
        const int most = o->staging ? b->muon_at_a_time(list->count, list->rows, list->cols) : list->count;
        for (int k = 0; k < list->count; k += most) {
            muon_part(o, &staging, list, list->matrices + k, min_int(most, list->count - k));
        }
    }
}

// Copies of state in host memory are not recorded: they wait for copies of the step before, which a graph cannot do.
static void queue_update(Optimizer* o) {
    const Backend* b = o->model->backend;
    if (!o->staging) {
        b->device_replay(&o->update, "update", update_work, &o, sizeof o);
        return;
    }
    b->device_range_push("update", -1);
    update_work(&o);
    b->device_range_pop();
}

void optimizer_update(Optimizer* o, const Hyper* hyper) {
    const Backend* b = o->model->backend;
    *o->host_hyper = *hyper;
    queue_update(o);
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
    MuonMatrix* matrices = alloc_or_die((size_t)o->segments.count, sizeof *matrices, "matrices of Muon");
    b->device_zero(&g->sums[SUM_NORM], sizeof *g->sums);
    b->norm_squared(&g->sums[SUM_NORM], g->grads, g->params_table.size); // not finite: nothing changes in real updates
    *o->host_hyper = (Hyper){.muon = {.grad_scale = 1}};
    b->device_send(o->hyper, o->host_hyper, sizeof *o->hyper);
    for (int i = 0; i < MUON_SHAPES * ranks; i++) {
        const MuonList* list = &o->lists[i / ranks];
        int count = 0;
        for (int j = 0; list->rows && j < o->segments.count; j++) {
            const Segment* k = &o->segments.segment[j];
            if (!k->rows || list_of(o, k) != list || !segment_shard_size(k, i % ranks, ranks)) { continue; }
            float* grads = g->grads + k->range.begin;
            matrices[count++] = (MuonMatrix){.m = grads, .grads = grads};
        }
        if (!count) { continue; }
        b->muon_update(matrices, count, list->rows, list->cols, &g->sums[SUM_NORM], &o->hyper->muon, o->scratch);
    }
    b->device_sync();
    free(matrices);
}
