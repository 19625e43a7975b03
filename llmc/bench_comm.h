// `bench comm`: what it takes to add up and to exchange between the processes of a run, by size, through the functions
// that training calls (comm.h).
//
// Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), so that figures compare: the algorithm's is the bytes
// of the whole array, as each process knows it, over time; the bus's is that times what each byte must move at least,
// 2(n-1)/n times for a sum and (n-1)/n times for half of one, so that it does not depend on the number of processes and
// can be set beside the speed of the wires.
//
// Before its time is taken, each operation is made once with values that differ by place and by process; their sums are
// whole numbers that fp32 holds, so that any order of adding gives the same. A wrong one is exit code 3.
#pragma once
#include "bench_record.h"
#include "scale.h"

typedef enum { COMM_NUMBERS, COMM_SUM, COMM_SCATTER, COMM_GATHER, NUM_COLLECTIVES } Collective;
static const char* const COLLECTIVES[NUM_COLLECTIVES] = {"numbers", "all-reduce", "reduce-scatter", "all-gather"};
enum { MAX_COMM_SIZES = 24, COMM_PERIOD = 4093, COMM_PIECE = 1 << 18 };

typedef struct {
    const char* what; // of the model, or empty
    size_t bytes;
} CommSize;

typedef struct {
    const Harness* harness;
    Comm* comm;
    void* x; // in device memory
    size_t room;
    bool wrong;
} CommBench;

typedef struct {
    double seconds, algorithm, bus; // bytes per second
} CommTime;

// ---------------------------------------------------------------------------------------------------------------------
// one operation

static inline void collective_run(const CommBench* b, Collective what, size_t bytes) {
    switch (what) {
    case COMM_NUMBERS: comm_sum(b->comm, (double*)b->x, (int)(bytes / sizeof(double))); return;
    case COMM_SUM: comm_sum_begin(b->comm, (float*)b->x, bytes / sizeof(float)); break;
    case COMM_SCATTER: comm_scatter_begin(b->comm, (float*)b->x, bytes / sizeof(float)); break;
    default: comm_gather_begin(b->comm, b->x, bytes); break;
    }
    comm_end(b->comm);
}

// How often each byte has to move, for every process.
static inline double collective_moves(Collective what, int n) {
    return (what == COMM_NUMBERS || what == COMM_SUM ? 2.0 : 1.0) * (n - 1) / n;
}

// What element `i` is on process `rank` beforehand, and what it has to be afterwards on a process that gets it: whole
// numbers below 2^24 for up to 2,000 processes.
static inline double collective_input(size_t i, int rank) { return (double)(i % COMM_PERIOD) + rank; }
static inline double collective_output(Collective what, size_t i, size_t n, int size) {
    if (what == COMM_GATHER) { return collective_input(i, (int)(i / (n / (size_t)size))); }
    return (double)size * (double)(i % COMM_PERIOD) + 0.5 * size * (size - 1);
}

static inline double element_get(const void* piece, Collective what, size_t i) {
    return what == COMM_NUMBERS ? ((const double*)piece)[i] : (double)((const float*)piece)[i];
}
static inline void element_set(void* piece, Collective what, size_t i, double value) {
    if (what == COMM_NUMBERS) { ((double*)piece)[i] = value; }
    else { ((float*)piece)[i] = (float)value; }
}

// Makes the operation once and looks at all elements that this process gets.
static inline bool collective_is_right(const CommBench* b, Collective what, size_t bytes) {
    const size_t element = what == COMM_NUMBERS ? sizeof(double) : sizeof(float), n = bytes / element;
    const int size = b->comm->size, rank = b->comm->rank;
    const size_t part = n / (size_t)size, first = part * (size_t)rank, last = first + part;
    void* piece = alloc_or_die(COMM_PIECE, element, "a piece of what is added up");
    bool right = true;
    for (size_t at = 0; at < n; at += COMM_PIECE) {
        const size_t count = min_size(COMM_PIECE, n - at);
        for (size_t i = 0; i < count; i++) {
            const bool is_mine = what != COMM_GATHER || (at + i >= first && at + i < last);
            element_set(piece, what, i, is_mine ? collective_input(at + i, rank) : -1);
        }
        b->harness->copy_in((char*)b->x + at * element, piece, count * element);
    }
    collective_run(b, what, bytes);
    for (size_t at = 0; at < n; at += COMM_PIECE) {
        const size_t count = min_size(COMM_PIECE, n - at);
        b->harness->copy_out(piece, (char*)b->x + at * element, count * element);
        for (size_t i = 0; i < count; i++) {
            const bool is_mine = what != COMM_SCATTER || (at + i >= first && at + i < last);
            right = right && (!is_mine || element_get(piece, what, i) == collective_output(what, at + i, n, size));
        }
    }
    free(piece);
    return right;
}

static inline void comm_bench_clear(const CommBench* b, size_t bytes) {
    const size_t most = COMM_PIECE * sizeof(float);
    void* zeros = alloc_or_die(1, most, "zeros");
    for (size_t at = 0; at < bytes; at += most) {
        b->harness->copy_in((char*)b->x + at, zeros, min_size(most, bytes - at));
    }
    free(zeros);
}

static inline double collective_seconds(const CommBench* b, Collective what, size_t bytes, int times) {
    const double start = seconds_now();
    for (int i = 0; i < times; i++) {
        collective_run(b, what, bytes);
        b->harness->sync(); // as a step waits, so that the latency of a single one shows
    }
    return (seconds_now() - start) / times;
}

// The largest value that one of the processes has.
static inline double comm_slowest(Comm* comm, double mine) {
    double* all = (double*)alloc_or_die((size_t)comm->size, sizeof *all, "times");
    double most = mine;
    bootstrap_gather(comm->peers, &mine, sizeof mine, all);
    for (int r = 0; r < comm->size; r++) { most = fmax(most, all[r]); }
    free(all);
    return most;
}

// The median over repetitions, each of so many operations that the clock does not matter, on the slowest process.
// Zeros are added up: they stay what they are.
static inline CommTime collective_time(CommBench* b, Collective what, size_t bytes) {
    enum { LEAST = 5, MOST = 15, MOST_TIMES = 200 };
    const double enough = 1.0, resolution = 2e-3; // seconds for all, and for one repetition
    double seconds[MOST];
    const int n = b->comm->size;
    const bool right = collective_is_right(b, what, bytes);
    b->wrong = b->wrong || comm_slowest(b->comm, right ? 0 : 1) > 0;
    comm_bench_clear(b, bytes);
    collective_seconds(b, what, bytes, 2);
    const double about = comm_slowest(b->comm, collective_seconds(b, what, bytes, 3));
    const int times = (int)fmax(1, fmin(MOST_TIMES, resolution / about));
    const int repetitions = (int)fmax(LEAST, fmin(MOST, enough / (about * times)));
    for (int i = 0; i < repetitions; i++) { seconds[i] = collective_seconds(b, what, bytes, times); }
    CommTime t = {comm_slowest(b->comm, median(seconds, (size_t)repetitions)), 0, 0};
    t.algorithm = (double)bytes / t.seconds;
    t.bus = t.algorithm * collective_moves(what, n);
    return t;
}

// ---------------------------------------------------------------------------------------------------------------------
// sizes

// Rounded up, so that the processes' parts are equal and of whole doubles.
static inline size_t comm_bytes(size_t bytes, int size) { return round_up(bytes, sizeof(double) * (size_t)size); }

// Opens the device for this process and memory for up to `bytes`, or for as much as all processes can have.
static inline CommBench comm_bench_open(const Harness* h, Comm* comm, size_t bytes) {
    CommBench b = {h, comm, NULL, 0, false};
    const int sharers = h->threads() ? comm->local_size : 1; // of a CPU's memory; a GPU is this process's own
    const size_t room = comm_least(comm, min_size(bytes, h->memory_available() / (size_t)(2 * sharers)));
    if (room < bytes) { notice("up to %zu MiB: there is no memory for more", room >> 20); }
    b.room = comm_bytes(room, comm->size);
    b.x = h->alloc(b.room, "what is added up");
    return b;
}

static inline void comm_bench_close(CommBench* b) {
    b->harness->sync();
    b->harness->free(b->x, b->room);
}

// What connects the processes, as scale.h wants it, from the time of a sum of little and of much. A ring passes 2(n-1)
// messages on, one after another.
static inline Link comm_bench_link(CommBench* b, size_t bytes) {
    const int n = b->comm->size;
    const double small = collective_time(b, COMM_SUM, comm_bytes(sizeof(double), n)).seconds;
    const size_t large = min_size(b->room, comm_bytes(bytes, n));
    const double most = collective_time(b, COMM_SUM, large).seconds;
    const Link link = {collective_moves(COMM_SUM, n) * (double)large / fmax(most - small, 0.1 * most),
                       small / (2.0 * (n - 1))};
    return link;
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static inline int comm_size_order(const void* a, const void* b) {
    const size_t x = ((const CommSize*)a)->bytes, y = ((const CommSize*)b)->bytes;
    return (x > y) - (x < y);
}

// From 8 bytes on, each eight times the one before, and what the model sends: returns how many there are.
static inline int comm_sizes(const TensorTable* table, int processes, CommSize sizes[MAX_COMM_SIZES]) {
    const CommSize of_model[] = {{"a layer", table->layer_size * sizeof(float)},
                                 {"embeddings", table->layers_begin * sizeof(float)},
                                 {"all gradients", table->size * sizeof(float)}};
    int count = 0;
    for (int i = 0; i < 3; i++) { sizes[count++] = of_model[i]; }
    for (size_t bytes = 8; bytes < of_model[2].bytes && count < MAX_COMM_SIZES; bytes *= 8) {
        const CommSize size = {"", bytes};
        sizes[count++] = size;
    }
    for (int i = 0; i < count; i++) { sizes[i].bytes = comm_bytes(sizes[i].bytes, processes); }
    qsort(sizes, (size_t)count, sizeof *sizes, comm_size_order);
    return count;
}

static inline void bench_collective(CommBench* b, Collective what, const CommSize* size, json_t* rows) {
    const bool was_wrong = b->wrong;
    b->wrong = false;
    const CommTime t = collective_time(b, what, size->bytes);
    const bool right = !b->wrong;
    b->wrong = was_wrong || b->wrong;
    if (b->comm->rank == 0) {
        printf("%-15s %13zu %-14s %12.4f %10.3f %10.3f  %s\n", COLLECTIVES[what], size->bytes, size->what,
               1e3 * t.seconds, t.algorithm / 1e9, t.bus / 1e9, right ? "ok" : "WRONG");
        fflush(stdout);
    }
    json_t* row = json_pack("{s:s, s:I, s:s, s:f, s:f, s:f, s:b}", "name", COLLECTIVES[what], "bytes",
                            (json_int_t)size->bytes, "what", size->what, "ms", 1e3 * t.seconds, "algorithm_gb_s",
                            t.algorithm / 1e9, "bus_gb_s", t.bus / 1e9, "ok", (int)right);
    if (!row) { fatal("%s: a time that JSON cannot hold", COLLECTIVES[what]); }
    json_array_append_new(rows, row);
}

static inline void bench_collectives(CommBench* b, const TensorTable* table, json_t* rows) {
    enum { MOST_NUMBERS = 512 }; // bytes: a step sends three doubles
    CommSize sizes[MAX_COMM_SIZES];
    const int count = comm_sizes(table, b->comm->size, sizes);
    for (int what = 0; what < NUM_COLLECTIVES; what++) {
        for (int i = 0; i < count; i++) {
            if (sizes[i].bytes > b->room || (what == COMM_NUMBERS && sizes[i].bytes > MOST_NUMBERS)) { continue; }
            bench_collective(b, (Collective)what, &sizes[i], rows);
        }
    }
}

// The trainer that --dtype names.
static inline const Trainer* bench_trainer(Config* config, FindTrainer find, const Comm* several) {
    const Trainer* trainer = find(config->dtype);
    if (!trainer) { usage_error("--dtype %s: this program has none for this device", config->dtype); }
    if (!strcmp(config->dtype, "auto")) { config->dtype = trainer->storage; }
    if (config->batch_size == 0 && several->size > 1) {
        usage_error("bench: --batch_size auto is for one process: give a number, the same for all");
    }
    return trainer;
}

static inline void how_to_start_several(const char* command, const char* otherwise) {
    usage_error("bench %s: this is one process, and connected to none: start several, by mpirun -np 2 or, with GPUs, "
                "--gpus 2%s", command, otherwise);
}

static inline int bench_comm(Config* config, FindTrainer find, Comm* comm) {
    GPT2Config shape;
    if (comm->size == 1) { how_to_start_several("comm", ""); }
    const Trainer* trainer = bench_trainer(config, find, comm);
    const Harness* h = trainer->harness;
    h->open_for_rank(config, comm);
    bench_resolve(h, config, &shape, strcmp(trainer->device, "cpu") != 0);
    const TensorTable table = h->model_table(&shape);
    CommBench b = comm_bench_open(h, comm, table.size * sizeof(float));
    json_t* rows = json_array();
    if (comm->rank == 0) {
        printf("comm: %s, %d processes, %d of them on this machine, %s\n", h->device_name(), comm->size,
               comm->local_size, comm->engine->name);
        printf("the median, on the slowest process; GB/s: bytes / time; of the bus: those that have to move / time\n");
        printf("%-15s %13s %-14s %12s %10s %10s\n", "operation", "bytes", "", "ms", "GB/s", "bus GB/s");
    }
    bench_collectives(&b, &table, rows);
    comm_bench_close(&b);
    if (b.wrong) { notice("error: a sum is wrong: the lines that say so above"); }
    json_t* record = bench_record("comm", config, &shape, h->device_name(), h->copy_bandwidth(), config_to_json(config),
                                  "operations", rows);
    if (record) { json_object_set_new(record, "processes", json_integer(comm->size)); }
    if (comm->rank == 0 && *config->out) {
        bench_write_json(config->out, "comm.json", record);
        printf("%s/comm.json\n", config->out);
    } else {
        json_decref(record);
    }
    return b.wrong ? EXIT_CHECK_FAILED : EXIT_DONE;
}
