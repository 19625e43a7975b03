#include "optimizer.h"

// ---------------------------------------------------------------------------------------------------------------------
// memory

void optimizer_memory(const GPT2* g, int shards, MemoryLine line[OPTIMIZER_MEMORY_LINES]) {
    const size_t bytes = g->params_table.size / (size_t)shards * sizeof(float);
    const bool is_fp32 = g->backend->element_bytes == sizeof(float);
    const MemoryLine lines[OPTIMIZER_MEMORY_LINES] = {
        {"master weights", is_fp32 ? 0 : bytes, offsetof(Optimizer, masters)},
        {"first moments", bytes, offsetof(Optimizer, m)},
        {"second moments", bytes, offsetof(Optimizer, v)},
        {"settings of the optimizer", sizeof(AdamW), offsetof(Optimizer, hyper)},
    };
    memcpy(line, lines, sizeof lines);
}

static int group_size(const Optimizer* o) { return o->zero_group ? o->zero_group->size : 1; }

void optimizer_alloc(Optimizer* o, GPT2* model, Comm* zero_group) {
    const Backend* b = model->backend;
    MemoryLine line[OPTIMIZER_MEMORY_LINES];
    memset(o, 0, sizeof *o);
    o->model = model;
    o->zero_group = zero_group && zero_group->size > 1 ? zero_group : NULL;
    optimizer_memory(model, group_size(o), line);
    memory_lines_alloc(b, o, line, OPTIMIZER_MEMORY_LINES);
    if (!o->masters) { o->masters = (float*)model->params; }
    o->host_hyper = b->host_alloc(sizeof *o->host_hyper, "settings of the optimizer");
}

void optimizer_free(Optimizer* o) {
    const Backend* b = o->model->backend;
    MemoryLine line[OPTIMIZER_MEMORY_LINES];
    b->device_forget(&o->norm);
    b->device_forget(&o->update);
    optimizer_memory(o->model, group_size(o), line);
    memory_lines_free(b, o, line, OPTIMIZER_MEMORY_LINES);
    b->host_free(o->host_hyper);
    memset(o, 0, sizeof *o);
}

// ---------------------------------------------------------------------------------------------------------------------
// shards

// A range of the parameters' layout, and where a sharded block (masters, m or v) has it.
typedef struct {
    TensorRange range;
    size_t at; // the first element in the block, which has this rank's shards one behind another
} Shard;

// Returns the number of this rank's shards: one for each range of the layout, or 1, the whole layout, without ZeRO.
static int num_shards(const Optimizer* o) { return o->zero_group ? tensors_num_ranges(&o->model->params_table) : 1; }

// Returns shard number i of this rank.
static Shard shard_of(const Optimizer* o, int i) {
    const TensorTable* table = &o->model->params_table;
    Shard k = {{0, table->size}, 0};
    if (o->zero_group) {
        const size_t shards = (size_t)o->zero_group->size;
        const TensorRange r = tensors_range(table, i);
        k.range.size = r.size / shards;
        k.range.begin = r.begin + (size_t)o->zero_group->rank * k.range.size;
        k.at = r.begin / shards;
    }
    return k;
}

bool optimizer_is_whole(const Optimizer* o, const float* block) {
    return !o->zero_group || (const void*)block == (const void*)o->model->params;
}

// Returns the address of a shard in a block: masters, m or v.
static float* shard_block(const Optimizer* o, float* block, const Shard* k) {
    return block + (optimizer_is_whole(o, block) ? k->range.begin : k->at);
}

void optimizer_put(const Optimizer* o, float* block, size_t begin, const float* host, size_t n) {
    const Backend* b = o->model->backend;
    if (optimizer_is_whole(o, block)) {
        b->device_copy_in(block + begin, host, n * sizeof *host);
        return;
    }
    for (int i = 0; i < num_shards(o); i++) {
        const Shard k = shard_of(o, i);
        const size_t first = max_size(begin, k.range.begin), last = min_size(begin + n, k.range.begin + k.range.size);
        if (first < last) {
            b->device_copy_in(block + k.at + (first - k.range.begin), host + (first - begin),
                              (last - first) * sizeof *host);
        }
    }
}

const float* optimizer_whole(const Optimizer* o, float* block) {
    GPT2* g = o->model;
    if (optimizer_is_whole(o, block)) { return block; }
    for (int i = 0; i < num_shards(o); i++) {
        const Shard k = shard_of(o, i);
        const TensorRange r = tensors_range(&g->params_table, i);
        g->backend->device_copy(g->grads + k.range.begin, block + k.at, k.range.size * sizeof *block);
        comm_all_gather_begin(o->zero_group, g->grads + r.begin, r.size * sizeof *block);
    }
    comm_end(o->zero_group);
    return g->grads;
}

void optimizer_gather_grads(const Optimizer* o) {
    const GPT2* g = o->model;
    for (int i = 0; o->zero_group && i < num_shards(o); i++) {
        const TensorRange r = tensors_range(&g->params_table, i);
        comm_all_gather_begin(o->zero_group, g->grads + r.begin, r.size * sizeof *g->grads);
    }
    if (o->zero_group) { comm_end(o->zero_group); }
}

// Gathers the parameters from the ranks that updated them.
static void gather_params(const Optimizer* o) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    if (!o->zero_group) { return; }
    for (int i = 0; i < num_shards(o); i++) {
        const TensorRange r = tensors_range(&g->params_table, i);
        comm_all_gather_begin(o->zero_group, stored_at(b, g->params, r.begin), r.size * b->element_bytes);
    }
    comm_end(o->zero_group);
}

void optimizer_masters_changed(const Optimizer* o) {
    const GPT2* g = o->model;
    const Backend* b = g->backend;
    for (int i = 0; i < num_shards(o); i++) {
        const Shard k = shard_of(o, i);
        b->params_round(stored_at(b, g->params, k.range.begin), shard_block(o, o->masters, &k), k.range.size);
    }
    gather_params(o);
    b->params_changed();
}

// ---------------------------------------------------------------------------------------------------------------------
// a step

static void norm_work(const void* arguments) {
    const Optimizer* o = *(Optimizer* const*)arguments;
    const GPT2* g = o->model;
    for (int i = 0; i < num_shards(o); i++) {
        const Shard k = shard_of(o, i);
        g->backend->norm_squared(&g->sums[SUM_NORM], g->grads + k.range.begin, k.range.size);
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
    b->device_send(o->hyper, o->host_hyper, sizeof *o->hyper);
    for (int i = 0; i < num_shards(o); i++) {
        const Shard k = shard_of(o, i);
        const size_t begin = k.range.begin, end = begin + k.range.size;
        b->adamw_update(stored_at(b, g->params, begin), shard_block(o, o->masters, &k), shard_block(o, o->m, &k),
                        shard_block(o, o->v, &k), g->grads + begin, &g->sums[SUM_NORM], o->hyper, &g->params_table,
                        begin, end);
    }
}

void optimizer_update(Optimizer* o, const AdamW* hyper) {
    const Backend* b = o->model->backend;
    *o->host_hyper = *hyper;
    b->device_replay(&o->update, "update", update_work, &o, sizeof o);
    gather_params(o);
    b->params_changed();
}
