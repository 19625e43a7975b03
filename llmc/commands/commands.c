#include "commands.h"
#include "../train/consistency.h"
#include "tokenize.h"
#include "../eval/core.h"
#include "../eval/score.h"
#include "../files/checkpoint.h"
#include "../log/report.h"
#include "../train/plan.h"
#include "../base/rng.h"
#include "../base/json.h"
#include "../base/rounding.h"
#include "../train/setup.h"
#include "../train/weights.h"
#include "../train/train.h"
#include "../tokenizer/tokenizer_open.h"

// ---------------------------------------------------------------------------------------------------------------------
// weights

char* weights_folder(const Config* c) {
    if (strcmp(c->init, "random")) {
        if (is_directory(c->init)) { checkpoint_hold(c->init); } // its run may go on
        return format("%s", c->init);
    }
    if (config_source(c, "init") >= FROM_FILE) { return NULL; }
    json_t* state = NULL;
    char* folder = *c->out ? checkpoint_newest(c->out, &state, CHECKPOINT_READ) : NULL;
    if (!folder) {
        fatal("--out %s holds no checkpoint: train first, or give --init FOLDER (or --init random)", c->out);
    }
    json_decref(state);
    notice("using %s", folder);
    return folder;
}

void take_data_options(Config* c, const char* folder) {
    static const char* const names[] = {"tokenizer", "val_data", "data_format", "seq_len", "document_mask"};
    Error err;
    json_t* state = folder ? folder_state(folder) : NULL;
    json_t *options = json_object_get(state, "options"), *taken = json_object();
    for (size_t i = 0; options && i < sizeof names / sizeof *names; i++) {
        json_object_set(taken, names[i], json_object_get(options, names[i]));
    }
    if (!config_from_json(c, taken, folder ? folder : "", &err)) { fatal("%s", err.text); }
    json_decref(taken);
    json_decref(state);
}

void open_model(GPT2* g, const Plan* p, const Config* c, const Comm* comm, const char* folder) {
    Error err;
    if (!plan_check_memory(p, comm, &err)) { fatal("%s", err.text); }
    plan_layout(p, g);
    gpt2_alloc(g);
    load_weights(g, NULL, c, folder);
}

// ---------------------------------------------------------------------------------------------------------------------
// eval

// Prints the validation loss of an open model; returns the exit code. `what` names its weights in errors.
static int eval_val_data(const Config* c, GPT2* g, Dataset* data, Comm* comm, const char* what) {
    EvalLoader loader;
    const long long val_tokens = config_source(c, "val_tokens") < FROM_FILE ? -1 : c->val_tokens;
    int* memory = open_batches(g->backend, g->B, g->T);
    comm_report_activity(comm, 0, RANK_VALIDATES);
    evalloader_open(&loader, data, val_tokens, g->B, memory);
    const double start = seconds_now(), loss = validation_loss(g, &loader, comm, NULL, NULL);
    notice("%llu window%s of %d tokens in %.1f s", (unsigned long long)loader.num_windows, plural(loader.num_windows),
           g->T, seconds_now() - start);
    if (comm->rank == 0) { printf("val loss %f\n", loss); }
    if (!isfinite(loss)) { notice("error: %s: the loss is not finite", what); }
    const double floor_loss = corpus_floor(data);
    if (isfinite(floor_loss)) { notice("the corpus' own entropy is %f nats a token", floor_loss); }
    evalloader_close(&loader);
    g->backend->host_free(memory);
    return isfinite(loss) ? EXIT_DONE : EXIT_NONFINITE;
}

// Prints the scores of an open model on test sets; returns the exit code.
static int eval_test_sets(GPT2* g, const TestSet* sets, int count, Comm* comm, const char* what) {
    Error err;
    TestScore* scores = alloc_or_die((size_t)count, sizeof *scores, "scores");
    int status = EXIT_DONE;
    comm_report_activity(comm, 0, RANK_SCORES);
    for (int i = 0; status == EXIT_DONE && i < count; i++) {
        const double start = seconds_now();
        if (!test_set_score(&scores[i], NULL, &sets[i], g, comm, NULL, NULL, &err)) {
            notice("error: %s: %s", what, err.text);
            status = EXIT_NONFINITE;
            break;
        }
        notice("%zu row%s in %.1f s", sets[i].num_rows, plural(sets[i].num_rows), seconds_now() - start);
        if (comm->rank == 0) { test_score_print(&sets[i], &scores[i]); }
    }
    if (status == EXIT_DONE && comm->rank == 0) { core_print(sets, scores, count); }
    free(scores);
    return status;
}

// Opens the sets of --eval_data, and before them those of --text. test_sets_close() frees them.
static TestSet* open_scored_sets(const Config* c, const Tokenizer* t, const Plan* p, int* count) {
    int num_texts, num_sets;
    TestSet *texts = open_texts(c, t, p, &num_texts), *sets = open_test_sets(c, t, p, &num_sets);
    *count = num_texts + num_sets;
    texts = realloc_or_die(texts, ((size_t)*count + 1) * sizeof *texts, "test sets");
    if (num_sets) { memcpy(texts + num_texts, sets, (size_t)num_sets * sizeof *sets); }
    free(sets);
    return texts;
}

// Returns true if eval opens a tokenizer: what it scores is text, or else the data is compared with it. The default is
// not meant for weights with fewer tokens that do not say which tokenizer they have.
static bool opens_tokenizer(const Config* c, const Plan* p, bool scores) {
    return scores || c->document_mask || config_source(c, "tokenizer") > FROM_DEFAULT ||
           p->shape.vocab_size > TOKENIZER_V1_EOT;
}

int eval_command(Config* c, const Backend* b, enum dtype dtype, Comm* comm) {
    Error err;
    Plan plan;
    GPT2 g;
    Dataset data;
    Tokenizer tokenizer;
    int num_sets = 0;
    TestSet* sets = NULL;
    const bool scores = *c->eval_data || *c->text;
    char* folder = share_text(comm, comm->rank == 0 ? weights_folder(c) : NULL); // another rank might find a newer one
    const char* what = folder ? folder : "random weights";
    take_data_options(c, folder);
    take_folder_tokenizer(c, folder);
    if (!config_check_needs(c, EVAL, &err)) { usage_error("%s", err.text); }
    if (scores) { c->document_mask = 0; } // a row of a test set is one document
    check_same_run(comm, c, NULL);
    open_device(b, c, dtype, comm);
    if (!plan_shape(&plan, b, dtype, c, folder, &err)) { usage_error("%s", err.text); }
    plan.keep = FORWARD_ONLY;
    plan.samples = scores && b->is_host; // the cache of shared contexts
    plan.sample_capacity = plan.shape.max_seq_len;
    plan.B = c->batch_size ? (int)c->batch_size : 4;
    if (c->stride > plan.T) {
        usage_error("--stride %lld is more than --seq_len %d: tokens would be left out", c->stride, plan.T);
    }
    const bool has_tokenizer = opens_tokenizer(c, &plan, scores) && open_tokenizer(&tokenizer, c, &plan.shape, folder);
    if (scores) { sets = open_scored_sets(c, has_tokenizer ? &tokenizer : NULL, &plan, &num_sets); }
    else if (!dataset_open(&data, "--val_data", c->val_data, token_header(c), plan.T, plan.shape.vocab_size, &err)) {
        fatal("%s", err.text);
    }
    if (has_tokenizer && !scores) { check_data_tokenizer(&data, "--val_data", &tokenizer, c); }
    check_same_data(comm, 0, scores ? 0 : data.hash, test_sets_hash(sets, num_sets));
    open_model(&g, &plan, c, comm, folder);
    g.eot = documents_eot(c, has_tokenizer ? &tokenizer : NULL);
    check_same_weights(&g, comm);
    const int status = scores ? eval_test_sets(&g, sets, num_sets, comm, what)
                              : eval_val_data(c, &g, &data, comm, what);
    if (scores) { test_sets_close(sets, num_sets); }
    else { dataset_close(&data); }
    if (has_tokenizer) { tokenizer_free(&tokenizer); }
    gpt2_free(&g);
    free(folder);
    return status;
}

// ---------------------------------------------------------------------------------------------------------------------
// info

static void print_tensors(const TensorTable* table) {
    printf("%-10s %-28s %4s %14s %7s %14s\n", "tensor", "in files", "of", "shape", "decays", "elements");
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        char shape[32];
        if (t->rows > 1) { snprintf(shape, sizeof shape, "%zu x %zu", t->rows, t->cols); }
        else { snprintf(shape, sizeof shape, "%zu", t->cols); }
        printf("%-10s %-28s %4d %14s %7s %14zu\n", t->name, t->file_name, t->layers, shape,
               tensor_decays(t) ? "yes" : "no", (size_t)t->layers * t->used_rows * t->cols);
    }
    const TensorCount decayed = tensors_count(table, true), others = tensors_count(table, false);
    printf("\ndecayed: %zu tensors, %zu parameters\nnot decayed: %zu tensors, %zu parameters\n", decayed.tensors,
           decayed.elements, others.tensors, others.elements);
    printf("parameters: %zu, in memory with padding: %zu\n", decayed.elements + others.elements, table->size);
}

// Copies n elements of the residual stream to the host, as floats.
static void fetch_residual(const Backend* b, const Residual* from, float* to, size_t n) {
    b->device_copy_out(to, from, n * b->residual_bytes);
    if (b->residual_bytes == sizeof(float)) { return; }
    for (size_t i = n; i-- > 0;) { // the last one first: a bf16 lies before the float that it becomes
        uint16_t bits;
        memcpy(&bits, (const char*)to + i * sizeof bits, sizeof bits);
        to[i] = bf16_value(bits);
    }
}

// Prints the standard deviation of the residual stream at each depth, on random tokens. INIT_RESIDUAL, which scales the
// initial weights by 1/sqrt(2L), keeps it from growing with the depth.
static void print_residual_stream(const Plan* planned, const Config* c, const char* folder) {
    Plan p = *planned;
    const Backend* b = p.backend;
    GPT2 g;
    const int T = min_int(p.shape.max_seq_len, 32), C = p.shape.channels, N = T * C;
    p.keep = FORWARD_ONLY;
    p.samples = 0;
    p.B = 1;
    p.T = T;
    if (plan_bytes(&p) > b->device_memory_available()) {
        printf("\nthe weights do not fit into memory: no residual stream\n");
        return;
    }
    plan_layout(&p, &g);
    gpt2_alloc(&g);
    load_weights(&g, NULL, c, folder);
    int* tokens = alloc_or_die((size_t)T, sizeof *tokens, "tokens");
    float* stream = alloc_or_die((size_t)N, sizeof *stream, "the residual stream");
    for (int t = 0; t < T; t++) {
        tokens[t] = (int)(rng_u64((uint64_t)c->seed, RNG_TEST, (uint64_t)t) % (uint64_t)p.shape.vocab_size);
    }
    b->device_copy_in(g.tokens, tokens, (size_t)T * sizeof *tokens);
    gpt2_embed(&g, 1, T, NULL);
    printf("\nstandard deviation of the residual stream by depth:");
    const Residual* at = acts_at(&g, 0).residual1;
    for (int l = 0; l <= p.shape.num_layers; l++) {
        fetch_residual(b, at, stream, (size_t)N);
        double sum = 0, squares = 0;
        for (int i = 0; i < N; i++) { sum += stream[i], squares += (double)stream[i] * stream[i]; }
        printf("%s%d: %.4f", l % 6 ? "   " : "\n  ", l, sqrt(squares / N - (sum / N) * (sum / N)));
        if (l < p.shape.num_layers) { at = gpt2_layer(&g, l, 1, T, NULL); }
    }
    putchar('\n');
    free(tokens);
    free(stream);
    gpt2_free(&g);
}

// Reads every token of the files that an option names; false if one is damaged.
static bool verify_files(const char* option, const char* patterns, const Config* c, int T, int vocab_size) {
    Error err;
    Dataset data;
    if (!dataset_open(&data, option, patterns, token_header(c), T, INT32_MAX, &err)) { fatal("%s", err.text); }
    data.vocab_size = vocab_size; // only now: an id beyond it is damage, wherever it lies in a file
    for (int i = 0; i < data.num_files; i++) {
        bool has_sum;
        if (!dataset_check_file(&data, i, &err) || !shard_verify_sum(data.files[i].path, &has_sum, &err)) {
            notice("error: %s", err.text);
            return false;
        }
        print_result("%s: %zu tokens, all below %d; %s\n", data.files[i].path, data.files[i].num_tokens, vocab_size,
                     has_sum ? "its checksum is right" : "it has no checksum");
    }
    printf("%s: %zu tokens in %d file%s, %llu window%s of %d\n", option, (size_t)data.num_tokens, data.num_files,
           plural((uint64_t)data.num_files), (unsigned long long)data.num_windows, plural(data.num_windows), T);
    dataset_close(&data);
    return true;
}

// Prints the memory plan, and says if it does not fit into `here`, the free bytes of this machine's device; 0: none.
static void print_plans(const Plan* p, const Config* c, size_t here) {
    Plan planned = *p;
    planned.shards = c->zero ? (int)c->gpus : 1;
    print_memory(&planned);
    if (here) {
        const char* remark = plan_bytes(&planned) > here ? ": too little for this" : "";
        printf("  available here: %.1f MiB%s\n", in_mib(here), remark);
    }
    print_batches_heading(&planned, here);
    print_batches(&planned, here);
}

// --model all: the largest batches of GPT-2's sizes.
static void print_all_models(const Config* c, const Backend* b, enum dtype dtype, size_t here) {
    static const char* const models[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    Error err;
    Plan plan;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Config one = *c; // one model of "all"
        one.model = models[i];
        if (!plan_shape(&plan, b, dtype, &one, NULL, &err)) { usage_error("%s", err.text); }
        plan.shards = c->zero ? (int)c->gpus : 1;
        if (i == 0) { print_batches_heading(&plan, here); }
        print_batches(&plan, here);
    }
}

int info_command(Config* c, const Backend* b, enum dtype dtype) {
    Error err;
    Plan plan;
    Comm alone = comm_alone();
    const char* folder = init_folder(c);
    const bool train = config_source(c, "train_data") >= FROM_FILE, val = config_source(c, "val_data") >= FROM_FILE;
    preset_apply(c);
    if (!config_check_needs(c, INFO, &err)) { usage_error("%s", err.text); }
    const bool is_here = b->device_exists();
    if (is_here) { open_device(b, c, dtype, &alone); }
    else { notice("there is no GPU here: its free memory and the residual stream are left out"); }
    const size_t here = is_here ? b->device_memory_available() : 0;
    if (!strcmp(c->model, "all")) {
        print_all_models(c, b, dtype, here);
        return EXIT_DONE;
    }
    if (!is_here && !c->batch_size) { usage_error("--batch_size auto: there is no GPU here; give a number"); }
    if (!plan_make(&plan, b, dtype, c, folder, &alone, &err)) { usage_error("%s", err.text); }
    const GPT2Config* m = &plan.shape;
    if (train || val) {
        const bool ok = (!train || verify_files("--train_data", c->train_data, c, plan.T, m->vocab_size)) &&
                        (!val || verify_files("--val_data", c->val_data, c, plan.T, m->vocab_size));
        return ok ? EXIT_DONE : EXIT_CHECK_FAILED;
    }
    print_result("%s: L=%d H=%d C=%d T=%d V=%d\n\n", folder ? folder : plan.model, m->num_layers, m->num_heads,
                 m->channels, m->max_seq_len, m->vocab_size);
    const TensorTable table = gpt2_params_table(m, 1);
    print_tensors(&table);
    print_plans(&plan, c, here);
    fflush(stdout);
    if (is_here) { print_residual_stream(&plan, c, folder); }
    return EXIT_DONE;
}

// ---------------------------------------------------------------------------------------------------------------------
// report, tokenize

// Returns the file of a page about `n` runs, which the caller frees, and makes its folder. --out names it beside runs
// that are given as words: a name that ends in .html is the file, any other one its folder.
static char* report_path(const Config* c, const char* const* runs, int n) {
    static const char suffix[] = ".html";
    Error err;
    const size_t length = strlen(c->out), end = strlen(suffix);
    const bool is_asked = c->num_args && config_source(c, "out") > FROM_DEFAULT;
    if (!is_asked) { return n > 1 ? format("report.html") : format("%s/report.html", runs[0]); }
    if (length > end && !strcmp(c->out + length - end, suffix)) { return format("%s", c->out); }
    if (!make_directories(c->out, &err)) { fatal("--out %s", err.text); }
    return format("%s/report.html", c->out);
}

int report_command(const Config* c) {
    Error err;
    const char* folders[1] = {c->out};
    const int n = c->num_args ? c->num_args : 1;
    const char* const* runs = c->num_args ? (const char* const*)c->args : folders;
    char* path = report_path(c, runs, n);
    if (!report_write(path, runs, n, &err)) { fatal("%s", err.text); }
    print_result("%s\n", path);
    free(path);
    return EXIT_DONE;
}

int tokenize_command(const Config* c) {
    if (!strcmp(c->tokenizer, "none")) { usage_error("tokenize --tokenizer none: give gpt2, bytes, or a file"); }
    Tokenizer t = tokenizer_open(c->tokenizer);
    if (c->decode) { tokenize_ids(&t, stdin, stdout); }
    else { tokenize_text(&t, stdin, stdout); }
    tokenizer_free(&t);
    return EXIT_DONE;
}
