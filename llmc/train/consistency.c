#include "consistency.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../files/huggingface.h"
#include "../comm/connect.h"

char* share_text(Comm* comm, char* text) {
    if (comm->size == 1) { return text; }
    int bytes = text ? (int)strlen(text) + 1 : 0;
    connection_broadcast(comm->peers, &bytes, sizeof bytes);
    if (bytes == 0) { return NULL; }
    if (!text) { text = alloc_or_die((size_t)bytes, 1, "a text of rank 0"); }
    connection_broadcast(comm->peers, text, (size_t)bytes);
    return text;
}

typedef struct {
    uint64_t program, options, checkpoint, dtype;
} Identity;

// of the device of one rank
typedef struct {
    char text[128];
} DeviceName;

static uint64_t program_hash(void) {
    Error err;
    size_t bytes;
    char* program = read_file("/proc/self/exe", &bytes, &err);
    const uint64_t hash = program ? hash64(program, bytes, 0) : 0;
    free(program);
    return hash;
}

// Returns the options that all ranks must share, as text; the caller frees it.
static char* shared_options(const Config* c) {
    json_t* options = config_to_json(c);
    config_drop_start(options);
    char* text = json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(options);
    return text;
}

// Ends the program with an error that names the first option in which this process differs from rank 0. `first`: rank
// 0's options.
static void ATTR_NORETURN options_differ(const char* first, const char* mine, const char* host) {
    json_t *theirs = json_loads(first, 0, NULL), *ours = json_loads(mine, 0, NULL);
    for (int i = 0; i < NUM_ROWS; i++) {
        const char* name = CONFIG_OPTIONS[i].name;
        json_t *a = name ? json_object_get(theirs, name) : NULL, *b = name ? json_object_get(ours, name) : NULL;
        if (!a || !b || json_equal(a, b)) { continue; }
        char *there = json_value_text(a), *here = json_value_text(b);
        usage_error("on %s --%s is %s, for rank 0 it is %s: give all processes the same options", host, name,
                    here, there);
    }
    usage_error("on %s the options differ from those of rank 0", host);
}

static uint64_t json_hash(json_t* value) {
    char* text = value ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const uint64_t hash = text ? hash64(text, strlen(text), 0) : 0;
    free(text);
    return hash;
}

void check_same_run(Comm* comm, const Config* c, enum dtype dtype, json_t* state) {
    if (comm->size == 1) { return; }
    char *options = shared_options(c), *first = share_text(comm, comm->rank ? NULL : format("%s", options));
    const Identity mine = {program_hash(), hash64(options, strlen(options), 0), json_hash(state), dtype};
    Identity* all = comm_gather(comm, &mine, sizeof mine);
    const char* host = connection_host(comm->peers, comm->rank);
    if (mine.program != all[0].program) {
        fatal("%s has another version of this program than %s: copy the same file to all machines", host,
              connection_host(comm->peers, 0));
    }
    if (mine.options != all[0].options) { options_differ(first, options, host); }
    if (mine.dtype != all[0].dtype) {
        usage_error("--dtype auto is %s on %s, and %s on %s: give --dtype", dtype_names[dtype], host,
                    dtype_names[all[0].dtype], connection_host(comm->peers, 0));
    }
    if (mine.checkpoint != all[0].checkpoint) {
        fatal("--resume: on %s the checkpoint is not that of rank 0: all must see the same files", host);
    }
    comm_barrier(comm); // a rank that differs never gets here, so no other rank goes on
    free(first);
    free(options);
    free(all);
}

void check_same_data(Comm* comm, uint64_t train_data, uint64_t val_data, uint64_t eval_data) {
    if (comm->size == 1) { return; }
    const uint64_t mine[3] = {train_data, val_data, eval_data};
    uint64_t* all = comm_gather(comm, mine, sizeof mine);
    if (memcmp(mine, all, sizeof mine)) {
        fatal("%s: on %s the data is not that of rank 0: copy the same files to all machines",
              mine[0] != all[0] ? "--train_data" : mine[1] != all[1] ? "--val_data" : "--eval_data",
              connection_host(comm->peers, comm->rank));
    }
    comm_barrier(comm);
    free(all);
}

// Returns the names that all ranks give; the caller frees them.
static DeviceName* gather_names(Comm* comm, const char* name) {
    DeviceName mine;
    memset(&mine, 0, sizeof mine);
    snprintf(mine.text, sizeof mine.text, "%s", name);
    return comm_gather(comm, &mine, sizeof mine);
}

void check_distinct_devices(Comm* comm, const Backend* b) {
    DeviceName *all = gather_names(comm, b->device_identity()), *mine = &all[comm->rank];
    for (int r = 0; r < comm->size; r++) {
        const char *host = connection_host(comm->peers, comm->rank), *other = connection_host(comm->peers, r);
        if (r != comm->rank && *mine->text && !strcmp(all[r].text, mine->text) && !strcmp(host, other)) {
            usage_error("ranks %d and %d share a GPU of %s: start at most as many processes as there are GPUs",
                        min_int(r, comm->rank), max_int(r, comm->rank), host);
        }
    }
    free(all);
}

void check_equal_kernels(Comm* comm, const Backend* b) {
    if (comm->size == 1) { return; }
    DeviceName* all = gather_names(comm, b->is_host ? b->level : b->device_name());
    for (int r = 1; r < comm->size; r++) {
        const char *host = connection_host(comm->peers, r), *name = all[r].text, *first = all[0].text;
        if (!strcmp(name, first)) { continue; }
        if (b->is_host) {
            usage_error("--cpu auto is %s on %s, and %s on %s, with other bits: give --cpu, or --zero 1, by which one "
                        "of them updates each parameter", name, host, first, connection_host(comm->peers, 0));
        }
        usage_error("--optimizer muon: rank %d on %s has %s, rank 0 %s, and the matmuls of an update have other bits "
                    "there: give --zero 1, by which one of them updates each matrix", r, host, name, first);
    }
    free(all);
}

// Returns the hash of `elements` parameters from element `begin` on.
static uint64_t weights_hash(const GPT2* g, size_t begin, size_t elements) {
    enum { PIECE = 4 << 20 };
    const Backend* b = g->backend;
    const size_t bytes = elements * b->element_bytes;
    const char* weights = (const char*)g->params + begin * b->element_bytes;
    if (b->is_host) { return hash64(weights, bytes, 0); }
    uint64_t hash = 0;
    void* piece = b->host_alloc(PIECE, "comparing weights");
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = min_size(PIECE, bytes - at);
        b->device_copy_out(piece, weights + at, n);
        hash = hash64(piece, n, hash);
    }
    b->host_free(piece);
    return hash;
}

// Returns the name in files of the first tensor that rank `r` has otherwise than rank 0. Collective.
static char* different_tensor(const GPT2* g, Comm* comm, int r) {
    char* name = NULL;
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        for (int l = 0; l < t->layers; l++) {
            const uint64_t mine = weights_hash(g, tensor_at(t, l), tensor_elements(t));
            uint64_t* all = comm_gather(comm, &mine, sizeof mine);
            if (!name && all[r] != all[0]) { name = tensor_file_name(t, l, ""); }
            free(all);
        }
    }
    return name ? name : format("padding");
}

void check_same_weights(const GPT2* g, Comm* comm) {
    if (comm->size == 1) { return; }
    const uint64_t mine = weights_hash(g, 0, g->params_table.size);
    uint64_t* all = comm_gather(comm, &mine, sizeof mine);
    for (int r = 1; r < comm->size; r++) {
        if (all[r] != all[0]) {
            fatal_corruption("the weights of rank %d on %s are not those of rank 0 on %s, first in %s: one of these "
                             "machines computes or communicates wrongly; find it with `check` on each, and resume from "
                             "the last checkpoint without it",
                             r, connection_host(comm->peers, r), connection_host(comm->peers, 0),
                             different_tensor(g, comm, r));
        }
    }
    free(all);
}
