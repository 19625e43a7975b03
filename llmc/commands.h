// The commands beside train that need a model: generate, eval and info.
#pragma once
#include "memory_table.h"
#include "train.h"

// The folder that a command's weights come from: --init or, if that was not given, the newest checkpoint in --out. NULL
// stands for random weights. Settings that go with the weights are put under those of the command line.
static inline char* weights_folder(Config* c) {
    if (strcmp(c->init, "random")) { return format("%s", c->init); }
    if (config_source(c, "init") >= FROM_FILE) { return NULL; }
    json_t* state = NULL;
    char* folder = *c->out ? checkpoint_newest(c->out, &state) : NULL;
    if (!folder) {
        fatal("--out %s holds no checkpoint: train first, or give --init FOLDER (or --init random)", c->out);
    }
    json_decref(state);
    notice("using %s", folder);
    return folder;
}

// What a checkpoint of ours remembers of its tokens.
static inline void take_data_options(Config* c, const char* folder) {
    static const char* const names[] = {"tokenizer", "val_data", "seq_len"};
    Error err;
    json_t* state = folder ? folder_state(folder) : NULL;
    json_t *options = json_object_get(state, "options"), *taken = json_object();
    for (int i = 0; options && i < 3; i++) { json_object_set(taken, names[i], json_object_get(options, names[i])); }
    if (!config_from_json(c, taken, folder ? folder : "", &err)) { fatal("%s", err.text); }
    json_decref(taken);
    json_decref(state);
}

// A model without backward, of the shape and weights that the options name, for batches of B x T.
static inline void open_model(GPT2* g, Config* c, const char* folder, const GPT2Config* shape, int B, int T) {
    Error err;
    gpt2_layout(g, shape, B, T, FORWARD_ONLY);
    const Comm alone = comm_alone();
    if (!check_memory(g, c, &alone, &err)) { fatal("%s", err.text); }
    gpt2_alloc(g);
    load_weights(g, c, folder);
    gpt2_free_masters(g);
}

static inline void write_text(void* file, const char* text, size_t bytes) {
    fwrite(text, 1, bytes, (FILE*)file);
    if (fflush((FILE*)file) != 0) { fatal("standard output: cannot write: %s", strerror(errno)); }
}

static inline int generate_command(Config* c) {
    Error err;
    GPT2Config shape;
    GPT2 g;
    char* folder = weights_folder(c);
    take_data_options(c, folder);
    device_open_for(c);
    if (!shape_from_config(c, folder, &shape, &err)) { usage_error("%s", err.text); }
    Tokenizer tokenizer = tokenizer_open(c->tokenizer);
    if (!tokenizer_fits(&tokenizer, &shape, c->tokenizer, &err)) { usage_error("%s", err.text); }
    c->sample_every = 1; // the plan of memory counts the cache
    open_model(&g, c, folder, &shape, 1, (int)min_size((size_t)shape.max_seq_len, 256));
    const Sampling s = {c->temperature, (int)c->top_k, c->top_p, (uint64_t)c->seed};
    write_text(stdout, c->prompt, strlen(c->prompt));
    generate(&g, &tokenizer, c->prompt, (size_t)c->sample_tokens, &s, write_text, stdout);
    write_text(stdout, "\n", 1);
    gpt2_free(&g);
    tokenizer_free(&tokenizer);
    free(folder);
    return EXIT_DONE;
}

static inline int eval_command(Config* c, Comm* comm) {
    Error err;
    GPT2Config shape;
    GPT2 g;
    Dataset data;
    EvalLoader loader;
    char* folder = weights_folder(c);
    take_data_options(c, folder);
    device_open_for(c);
    if (config_source(c, "val_tokens") < FROM_FILE) { c->val_tokens = -1; }
    if (!shape_from_config(c, folder, &shape, &err) || !resolve_seq_len(c, &shape, &err)) {
        usage_error("%s", err.text);
    }
    const int T = (int)c->seq_len, B = c->batch_size ? (int)c->batch_size : 4;
    if (!dataset_open(&data, "--val_data", c->val_data, T, shape.vocab_size, &err)) { fatal("%s", err.text); }
    c->sample_every = 0;
    open_model(&g, c, folder, &shape, B, T);
    int* memory = open_batches(B, T);
    evalloader_open(&loader, &data, c->val_tokens, B, memory);
    const double start = seconds_now(), loss = validation_loss(&g, &loader, comm);
    notice("%llu windows of %d tokens in %.1f s", (unsigned long long)loader.num_windows, T, seconds_now() - start);
    if (comm->rank == 0) { printf("val loss %f\n", loss); }
    const double floor_loss = corpus_floor(&data);
    if (isfinite(floor_loss)) { notice("the corpus' own entropy is %f nats a token", floor_loss); }
    evalloader_close(&loader);
    dataset_close(&data);
    host_free(memory);
    gpt2_free(&g);
    free(folder);
    return isfinite(loss) ? EXIT_DONE : EXIT_NONFINITE;
}

// ---------------------------------------------------------------------------------------------------------------------
// info

static inline void print_tensors(const TensorTable* table) {
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

// The standard deviation of the residual stream at each depth, on random tokens: how the initial scale of 1/sqrt(2L) on
// what each block adds keeps it from growing with the depth.
static inline void print_residual_stream(Config* c, const char* folder, const GPT2Config* shape) {
    GPT2 g;
    const int T = (int)min_size((size_t)shape->max_seq_len, 32), C = shape->channels, N = T * C;
    gpt2_layout(&g, shape, 1, T, FORWARD_ONLY);
    if (run_bytes(&g, c) > device_memory_available()) {
        printf("\nthe weights do not fit into memory: no residual stream\n");
        return;
    }
    gpt2_alloc(&g);
    load_weights(&g, c, folder);
    int* tokens = (int*)alloc_or_die((size_t)T, sizeof *tokens, "tokens");
    float* stream = (float*)alloc_or_die((size_t)N, sizeof *stream, "the residual stream");
    for (int t = 0; t < T; t++) {
        tokens[t] = (int)(rng_u64((uint64_t)c->seed, RNG_TEST, (uint64_t)t) % (uint64_t)shape->vocab_size);
    }
    device_copy_in(g.tokens, tokens, (size_t)T * sizeof *tokens);
    gpt2_embed(&g, 1, T, NULL);
    printf("\nstandard deviation of the residual stream by depth:");
    const float* at = acts_at(&g, 0).residual1;
    for (int l = 0; l <= shape->num_layers; l++) {
        device_copy_out(stream, at, (size_t)N * sizeof(float));
        double sum = 0, squares = 0;
        for (int i = 0; i < N; i++) { sum += stream[i], squares += (double)stream[i] * stream[i]; }
        printf("%s%d: %.4f", l % 6 ? "   " : "\n  ", l, sqrt(squares / N - (sum / N) * (sum / N)));
        if (l < shape->num_layers) { at = gpt2_layer(&g, l, 1, T, NULL); }
    }
    putchar('\n');
    free(tokens);
    free(stream);
    gpt2_free(&g);
}

// Reads every token of the files that an option names; false if one is damaged.
static inline bool verify_files(const char* option, const char* patterns, int T, int vocab_size) {
    Error err;
    Dataset data;
    if (!dataset_open(&data, option, patterns, T, vocab_size, &err)) { fatal("%s", err.text); }
    for (int i = 0; i < data.num_files; i++) {
        size_t tokens;
        if (!shard_verify(data.files[i].path, vocab_size, &tokens, &err)) {
            notice("error: %s", err.text);
            return false;
        }
        printf("%s: %zu tokens, all below %d\n", data.files[i].path, tokens, vocab_size);
    }
    printf("%s: %zu tokens in %d files, %llu windows of %d\n", option, (size_t)data.num_tokens, data.num_files,
           (unsigned long long)data.num_windows, T);
    dataset_close(&data);
    return true;
}

// So many processes as --gpus names, for plans alone.
static inline Comm comm_planned(const Config* c) {
    Comm planned = comm_alone();
    planned.size = (int)c->gpus;
    return planned;
}

// The plan of memory, and whether it would do here.
static inline void print_plans(const GPT2Config* shape, const Config* c, bool device_is_here) {
    Comm planned = comm_planned(c);
    GPT2 g;
    const size_t here = device_is_here ? device_memory_available() : 0;
    print_memory(shape, c, &planned);
    if (device_is_here) {
        gpt2_layout(&g, shape, (int)c->batch_size, (int)c->seq_len, keep_of(c));
        printf("  available here: %.1f MiB%s\n", mib_of(here),
               run_bytes(&g, c) > here ? ": too little for this" : "");
    }
    print_batches_heading(c, &planned, here);
    print_batches(c->model, shape, c, &planned, here);
}

// What can be said of a model without a device, then what only one can tell.
static inline int info_command(Config* c) {
    Error err;
    GPT2Config shape;
    Comm alone = comm_alone();
    const char* folder = strcmp(c->init, "random") ? c->init : NULL;
    const bool device_is_here = device_exists();
    preset_apply(c);
    if (device_is_here) { device_open_for(c); }
    else { notice("there is no GPU here: what only one can tell is left out"); }
    if (!strcmp(c->model, "all")) {
        Comm planned = comm_planned(c);
        print_batches_of_all(c, &planned, device_is_here ? device_memory_available() : 0);
        return EXIT_DONE;
    }
    if (!device_is_here && !c->batch_size) { usage_error("--batch_size auto: there is no GPU here; give a number"); }
    if (!shape_from_config(c, folder, &shape, &err) || !resolve_seq_len(c, &shape, &err) ||
        !resolve_batch(c, &shape, &alone, &err)) {
        usage_error("%s", err.text);
    }
    if (config_source(c, "train_data") >= FROM_FILE || config_source(c, "val_data") >= FROM_FILE) {
        const int T = (int)c->seq_len;
        const bool train = config_source(c, "train_data") >= FROM_FILE, val = config_source(c, "val_data") >= FROM_FILE;
        const bool ok = (!train || verify_files("--train_data", c->train_data, T, shape.vocab_size)) &&
                        (!val || verify_files("--val_data", c->val_data, T, shape.vocab_size));
        return ok ? EXIT_DONE : EXIT_CHECK_FAILED;
    }
    printf("%s: L=%d H=%d C=%d T=%d V=%d\n\n", folder ? folder : c->model, shape.num_layers, shape.num_heads,
           shape.channels, shape.max_seq_len, shape.vocab_size);
    const TensorTable table = gpt2_params_table(&shape);
    print_tensors(&table);
    print_plans(&shape, c, device_is_here);
    fflush(stdout);
    if (device_is_here) { print_residual_stream(c, folder, &shape); }
    return EXIT_DONE;
}
