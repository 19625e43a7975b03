// `bench comm`: times the collectives of a run by size, through the functions that training calls (comm.h).
//
// Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), so that figures compare. Algorithm bandwidth: bytes of
// the whole array over time. Bus bandwidth: that times the least number of times that each byte has to move, 2(n-1)/n
// for an all-reduce and (n-1)/n for a reduce-scatter or all-gather. It does not depend on the number of processes and
// compares with the speed of the wires.
//
// Before it is timed, each operation runs once on values that differ by element and by process. Their sums are whole
// numbers that fp32 holds, so any order of adding gives the same. A wrong sum is exit code 3.
#include "bench.h"
#include "record.h"

typedef enum { COMM_SUMS, COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER, NUM_COLLECTIVES } Collective;

static const char* const COLLECTIVES[NUM_COLLECTIVES] = {"numbers", "all-reduce", "reduce-scatter", "all-gather"};

typedef struct {
    const Backend* backend;
    Comm* comm;
    void* x; // `room` bytes of device memory
    size_t room;
    bool wrong; // a result was wrong
} CommBench;

enum { MAX_COMM_SIZES = 24 };
enum { COMM_PERIOD = 4093 };    // the values that are reduced repeat after so many elements
enum { COMM_PIECE = 1 << 18 };  // elements copied to or from the device at a time

typedef struct {
    const char* what; // of the model, or empty
    size_t bytes;
} CommSize;

typedef struct {
    double seconds;
    double algorithm, bus; // bandwidths, in bytes per second
    bool right;            // the result, on all processes
} CommTime;

// ---------------------------------------------------------------------------------------------------------------------
// one operation

static void collective_run(const CommBench* b, Collective what, size_t bytes) {
    switch (what) {
    case COMM_SUMS: comm_all_reduce_sums(b->comm, b->x, (int)(bytes / sizeof(double))); return;
    case COMM_ALL_REDUCE: comm_all_reduce_begin(b->comm, b->x, bytes / sizeof(float)); break;
    case COMM_REDUCE_SCATTER: comm_reduce_scatter_begin(b->comm, b->x, bytes / sizeof(float)); break;
    default: comm_all_gather_begin(b->comm, b->x, bytes); break;
    }
    comm_end(b->comm);
}

// Returns the least number of times that each byte has to move.
static double collective_moves(Collective what, int n) {
    return (what == COMM_SUMS || what == COMM_ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}

// Returns the value of element `i` on process `rank` before the operation: whole numbers, whose sums are below 2^24 for
// up to 2,000 processes.
static double collective_input(size_t i, int rank) { return (double)(i % COMM_PERIOD) + rank; }

// Returns the value after the operation, on a process that receives the element.
static double collective_output(Collective what, size_t i, size_t n, int size) {
    if (what == COMM_ALL_GATHER) { return collective_input(i, (int)(i / (n / (size_t)size))); }
    return (double)size * (double)(i % COMM_PERIOD) + 0.5 * size * (size - 1);
}

static double element_get(const void* piece, Collective what, size_t i) {
    return what == COMM_SUMS ? ((const double*)piece)[i] : (double)((const float*)piece)[i];
}

static void element_set(void* piece, Collective what, size_t i, double value) {
    if (what == COMM_SUMS) { ((double*)piece)[i] = value; }
    else { ((float*)piece)[i] = (float)value; }
}

// Runs the operation once; returns true if all elements that this process receives are right.
static bool collective_is_right(const CommBench* b, Collective what, size_t bytes) {
    const size_t element = what == COMM_SUMS ? sizeof(double) : sizeof(float), n = bytes / element;
    const int size = b->comm->size, rank = b->comm->rank;
    const size_t part = n / (size_t)size, first = part * (size_t)rank, last = first + part;
    void* piece = alloc_or_die(COMM_PIECE, element, "a piece of an array");
    bool right = true;
    for (size_t at = 0; at < n; at += COMM_PIECE) {
        const size_t count = min_size(COMM_PIECE, n - at);
        for (size_t i = 0; i < count; i++) {
            const bool is_mine = what != COMM_ALL_GATHER || (at + i >= first && at + i < last);
            element_set(piece, what, i, is_mine ? collective_input(at + i, rank) : -1);
        }
        b->backend->device_copy_in((char*)b->x + at * element, piece, count * element);
    }
    collective_run(b, what, bytes);
    for (size_t at = 0; at < n; at += COMM_PIECE) {
        const size_t count = min_size(COMM_PIECE, n - at);
        b->backend->device_copy_out(piece, (char*)b->x + at * element, count * element);
        for (size_t i = 0; i < count; i++) {
            const bool is_mine = what != COMM_REDUCE_SCATTER || (at + i >= first && at + i < last);
            right = right && (!is_mine || element_get(piece, what, i) == collective_output(what, at + i, n, size));
        }
    }
    free(piece);
    return right;
}

static double collective_seconds(const CommBench* b, Collective what, size_t bytes, int times) {
    const double start = seconds_now();
    for (int i = 0; i < times; i++) {
        collective_run(b, what, bytes);
        b->backend->device_sync(); // as a step waits, so that the latency of a single one shows
    }
    return (seconds_now() - start) / times;
}

// Returns the largest value among all processes.
static double comm_slowest(Comm* comm, double mine) {
    double *all = comm_gather(comm, &mine, sizeof mine), most = mine;
    for (int r = 0; r < comm->size; r++) { most = fmax(most, all[r]); }
    free(all);
    return most;
}

// Returns the median over repetitions on the slowest process. Each repetition is so many operations that the resolution
// of the clock does not matter. The array is zeros, which reductions do not change. The numbers here are chosen.
static CommTime collective_time(const CommBench* b, Collective what, size_t bytes) {
    enum { LEAST = 5, MOST = 15, MOST_TIMES = 200 };
    const double enough = 1.0, resolution = 2e-3; // seconds for all, and for one repetition
    double seconds[MOST];
    const bool right = comm_all(b->comm, collective_is_right(b, what, bytes));
    b->backend->device_zero(b->x, bytes);
    collective_seconds(b, what, bytes, 2);
    const double about = comm_slowest(b->comm, collective_seconds(b, what, bytes, 3));
    const int times = (int)fmax(1, fmin(MOST_TIMES, resolution / about));
    const int repetitions = (int)fmax(LEAST, fmin(MOST, enough / (about * times)));
    for (int i = 0; i < repetitions; i++) { seconds[i] = collective_seconds(b, what, bytes, times); }
    CommTime t = {.seconds = comm_slowest(b->comm, median(seconds, (size_t)repetitions)), .right = right};
    t.algorithm = (double)bytes / t.seconds;
    t.bus = t.algorithm * collective_moves(what, b->comm->size);
    return t;
}

// ---------------------------------------------------------------------------------------------------------------------
// sizes

// Rounds up, so that the processes' parts are equal and consist of whole doubles.
static size_t comm_bytes(size_t bytes, int size) { return round_up(bytes, sizeof(double) * (size_t)size); }

// Allocates memory for arrays of up to `bytes`, or less if a process has no room for that. The device must be open.
static CommBench comm_bench_open(const Backend* backend, Comm* comm, size_t bytes) {
    CommBench b = {.backend = backend, .comm = comm};
    const size_t users = backend->is_host ? (size_t)comm->local_size : 1; // of a CPU's memory; a GPU is this rank's own
    const size_t room = comm_min_host(comm, min_size(bytes, backend->device_memory_available() / (2 * users)));
    if (room < bytes) { notice("up to %zu MiB: there is no memory for more", room >> 20); }
    b.room = comm_bytes(room, comm->size);
    b.x = backend->device_alloc(b.room, "the array of collectives");
    return b;
}

static void comm_bench_close(CommBench* b) {
    b->backend->device_sync();
    b->backend->device_free(b->x, b->room);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

static int comm_size_order(const void* a, const void* b) {
    const size_t x = ((const CommSize*)a)->bytes, y = ((const CommSize*)b)->bytes;
    return (x > y) - (x < y);
}

// Lists sizes: those of the model's gradients, and from a double of each process on, each eight times the one before.
// Returns how many.
static int comm_sizes(const TensorTable* table, int processes, CommSize sizes[MAX_COMM_SIZES]) {
    const CommSize of_model[] = {{"a layer", table->layer_size * sizeof(float)},
                                 {"embeddings", table->layers_begin * sizeof(float)},
                                 {"all gradients", table->size * sizeof(float)}};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        sizes[count++] = (CommSize){of_model[i].what, comm_bytes(of_model[i].bytes, processes)};
    }
    for (size_t bytes = comm_bytes(8, processes); bytes < of_model[2].bytes && count < MAX_COMM_SIZES; bytes *= 8) {
        sizes[count++] = (CommSize){"", bytes};
    }
    qsort(sizes, (size_t)count, sizeof *sizes, comm_size_order);
    return count;
}

static void bench_collective(CommBench* b, Collective what, const CommSize* size, json_t* rows) {
    const CommTime t = collective_time(b, what, size->bytes);
    b->wrong = b->wrong || !t.right;
    if (b->comm->rank == 0) {
        printf("%-15s %13zu %-14s %12.4f %10.3f %10.3f  %s\n", COLLECTIVES[what], size->bytes, size->what,
               1e3 * t.seconds, t.algorithm / 1e9, t.bus / 1e9, t.right ? "ok" : "WRONG");
        fflush(stdout);
    }
    json_t* row = json_pack("{s:s, s:I, s:s, s:f, s:f, s:f, s:b}", "name", COLLECTIVES[what], "bytes",
                            (json_int_t)size->bytes, "what", size->what, "ms", 1e3 * t.seconds, "algorithm_gb_s",
                            t.algorithm / 1e9, "bus_gb_s", t.bus / 1e9, "ok", (int)t.right);
    if (!row) { fatal("%s: a time that JSON cannot hold", COLLECTIVES[what]); }
    json_array_append_new(rows, row);
}

static void bench_collectives(CommBench* b, const TensorTable* table, json_t* rows) {
    enum { MOST_NUMBERS = 512 }; // bytes: a step sends four doubles, or five
    CommSize sizes[MAX_COMM_SIZES];
    const int count = comm_sizes(table, b->comm->size, sizes);
    for (int what = 0; what < NUM_COLLECTIVES; what++) {
        for (int i = 0; i < count; i++) {
            if (sizes[i].bytes > b->room || (what == COMM_SUMS && sizes[i].bytes > MOST_NUMBERS)) { continue; }
            bench_collective(b, (Collective)what, &sizes[i], rows);
        }
    }
}

int bench_comm(const Config* c, Comm* comm) {
    if (comm->size == 1) {
        usage_error("bench comm: this is one process, connected to no other: start several, by mpirun -np 2 or, with "
                    "GPUs, --gpus 2");
    }
    if (c->batch_size == 0) { usage_error("bench comm: --batch_size auto is for one process: give a number"); }
    const Plan p = bench_open(c, comm);
    const Backend* backend = p.backend;
    const TensorTable table = gpt2_params_table(&p.shape, 1);
    CommBench b = comm_bench_open(backend, comm, table.size * sizeof(float));
    json_t* rows = json_array();
    if (comm->rank == 0) {
        printf("comm: %s, %d processes, %d of them on this machine, %s\n", backend->device_name(), comm->size,
               comm->local_size, comm->engine->name);
        printf("the median, on the slowest process; GB/s: bytes / time; of the bus: those that have to move / time\n");
        printf("%-15s %13s %-14s %12s %10s %10s\n", "operation", "bytes", "", "ms", "GB/s", "bus GB/s");
    }
    bench_collectives(&b, &table, rows);
    comm_bench_close(&b);
    if (b.wrong) { notice("error: a sum is wrong: see the lines that end in WRONG"); }
    const BenchGiven given = bench_given(c, &p);
    const double copy_bandwidth = backend->device_copy_bandwidth(); // with all processes at work, as in training
    json_t* record = bench_record("comm", &given, &p, backend->device_name(), copy_bandwidth, "operations", rows);
    json_object_set_new(record, "processes", json_integer(comm->size));
    bench_write_json(comm->rank == 0 ? given.out : "", "comm.json", record);
    return b.wrong ? EXIT_CHECK_FAILED : EXIT_DONE;
}
