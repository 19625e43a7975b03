#include "data.h"
#include "../data/dataloader.h"
#include "predict.h"

static const double LEAST_SECONDS = 1; // of a measurement; chosen

// ---------------------------------------------------------------------------------------------------------------------
// measuring

// Drops the shards from the page cache. Pages that are not on the disk yet stay there.
static void drop_from_cache(const Dataset* d) {
    for (int i = 0; i < d->num_files; i++) {
        const int fd = open(d->files[i].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) { fatal("%s: cannot open: %s", d->files[i].path, strerror(errno)); }
        const int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (error) { fatal("%s: cannot drop from the page cache: %s", d->files[i].path, strerror(error)); }
        close(fd);
    }
}

static double seconds_to_open(Dataset* d, const Config* c, const Plan* p) {
    Error err;
    const double start = seconds_now();
    if (!dataset_open(d, "--train_data", c->train_data, c->data_format, p->T, p->shape.vocab_size, &err)) {
        fatal("%s", err.text);
    }
    return seconds_now() - start;
}

typedef struct {
    uint64_t batches; // different ones that were read
    double windows_per_second;
} Speed;

// Reads batches of `rows` windows, again and again the first `batches` ones, or, if that is 0, each batch of an epoch
// at most once: --max_steps batches, or for LEAST_SECONDS.
static Speed read_windows(Dataset* d, DataOrder order, const Config* c, int rows, uint64_t batches, int* memory) {
    const uint64_t epoch = d->num_windows / (uint64_t)rows, period = batches ? batches : epoch;
    uint64_t most = batches ? UINT64_MAX : epoch;
    if (c->max_steps > 0) { most = min_size(most, (uint64_t)c->max_steps); }
    uint64_t asked = 0, taken = 0;
    DataLoader loader;
    dataloader_open(&loader, d, order, (uint64_t)c->seed, rows, memory);
    const double start = seconds_now();
    double seconds = 0;
    do {
        while (asked < most && dataloader_pending(&loader) < LOADER_AHEAD) {
            dataloader_request(&loader, asked++ % period * (uint64_t)rows, rows);
        }
        dataloader_wait(&loader);
        taken++;
        seconds = seconds_now() - start;
    } while (taken < most && (c->max_steps > 0 || seconds < LEAST_SECONDS));
    dataloader_close(&loader);
    return (Speed){.batches = asked, .windows_per_second = (double)(taken * (uint64_t)rows) / seconds};
}

// ---------------------------------------------------------------------------------------------------------------------
// what GPUs take

enum { NUM_SEEN = 4 };
static const char* const SEEN_GPUS[NUM_SEEN] = {"A100-SXM-80GB", "H100-SXM", "H200-SXM", "B200"};

// Predicts the tokens/s of training this model on a GPU, in bf16, half a million tokens a step.
static double predicted_tokens(const Config* given, const char* gpu_name, int T) {
    Config c = *given;
    const GpuFacts* gpu = gpu_find(gpu_name);
    c.dtype = "bf16";
    c.seq_len = T;
    c.batch_size = (long long)max_size(1, 65536 / (size_t)T);
    c.total_batch_size = 8 * c.batch_size * T;
    const Plan p = bench_plan(bench_backend(&c, c.dtype), c.dtype, &c, 0);
    const Step s = step_of(&p, &c, gpu);
    return (double)p.total_batch_size / (training_factor(gpu) * predict_step(&s, NUM_PARTS).seconds);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

// Returns the mean bytes of a token.
static double token_bytes(const Dataset* d) {
    double bytes = 0;
    for (int i = 0; i < d->num_files; i++) { bytes += (double)d->files[i].num_tokens * d->files[i].width; }
    return bytes / (double)d->num_tokens;
}

static void print_speed(json_t* rows, const char* order, const char* cache, Speed s, const Dataset* d,
                        const double* gpus) {
    const double tokens = s.windows_per_second * d->T, megabytes = 1e-6 * token_bytes(d) * tokens;
    json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f}", "order", order, "page_cache", cache, "windows_per_second",
                            s.windows_per_second, "tok_s", tokens, "mb_s", megabytes), *fed = json_object();
    printf("%-10s %-10s %12.0f %13.0f %9.1f", order, cache, s.windows_per_second, tokens, megabytes);
    for (int i = 0; i < NUM_SEEN; i++) {
        printf(" %13.1f", tokens / gpus[i]);
        json_object_set_new(fed, SEEN_GPUS[i], json_real(tokens / gpus[i]));
    }
    puts("");
    json_object_set_new(row, "gpus_fed", fed);
    json_array_append_new(rows, row);
}

static json_t* measure(Dataset* d, const Config* c, const Plan* p, const double* gpus) {
    const int rows = (int)min_size((size_t)p->B, d->num_windows);
    int* memory = alloc_or_die(dataloader_ints(rows, p->T), sizeof *memory, "batches of tokens");
    json_t* speeds = json_array();
    printf("%-10s %-10s %12s %13s %9s  feeds so many GPUs, predicted\n", "", "", "", "", "");
    printf("%-10s %-10s %12s %13s %9s", "order", "page cache", "windows/s", "tokens/s", "MB/s");
    for (int i = 0; i < NUM_SEEN; i++) { printf(" %13s", SEEN_GPUS[i]); }
    puts("");
    for (int order = DATA_IN_ORDER; order <= DATA_SHUFFLED; order++) {
        const char* name = order == DATA_SHUFFLED ? "shuffled" : "in order";
        drop_from_cache(d);
        const Speed cold = read_windows(d, (DataOrder)order, c, rows, 0, memory);
        const Speed warm = read_windows(d, (DataOrder)order, c, rows, cold.batches, memory);
        print_speed(speeds, name, "cold", cold, d, gpus);
        print_speed(speeds, name, "warm", warm, d, gpus);
    }
    free(memory);
    return speeds;
}

int bench_data(const Config* c) {
    const Backend* b = bench_backend(c, c->dtype);
    const Plan plan = bench_plan(b, bench_dtype(c, b), c, 0);
    Dataset d;
    double gpus[NUM_SEEN];
    json_t* predicted = json_object();
    for (int i = 0; i < NUM_SEEN; i++) {
        gpus[i] = predicted_tokens(c, SEEN_GPUS[i], plan.T);
        json_object_set_new(predicted, SEEN_GPUS[i], json_real(gpus[i]));
    }
    seconds_to_open(&d, c, &plan);
    drop_from_cache(&d);
    dataset_close(&d);
    const double cold = seconds_to_open(&d, c, &plan);
    dataset_close(&d);
    const double warm = seconds_to_open(&d, c, &plan);
    printf("data: %llu tokens in %d shards, %llu windows of %d, %d in a batch; opened in %.0f ms cold, %.0f ms warm\n",
           (unsigned long long)d.num_tokens, d.num_files, (unsigned long long)d.num_windows, plan.T, plan.B, 1e3 * cold,
           1e3 * warm);
    json_t* speeds = measure(&d, c, &plan, gpus);
    json_t* record = bench_record("data", c, &plan, b->device_name(), (double)NAN, "speeds", speeds);
    printf("predicted tokens/s of %s in bf16:", plan.model);
    for (int i = 0; i < NUM_SEEN; i++) { printf("%s %s %.0f", i ? "," : "", SEEN_GPUS[i], gpus[i]); }
    puts("");
    if (record) {
        json_object_set_new(record, "data", json_pack("{s:I, s:i, s:I, s:f, s:f}", "tokens", (json_int_t)d.num_tokens,
                                                      "shards", d.num_files, "windows", (json_int_t)d.num_windows,
                                                      "open_cold_ms", 1e3 * cold, "open_warm_ms", 1e3 * warm));
        json_object_set_new(record, "predicted_training_tok_s", predicted);
    }
    dataset_close(&d);
    if (!*c->out) {
        json_decref(record);
        return EXIT_DONE;
    }
    bench_write_json(c->out, "data.json", record);
    printf("%s/data.json\n", c->out);
    return EXIT_DONE;
}
