#include "dataset.h"
#include "../base/file.h"
#include <sys/resource.h>

// Finds all files that match, sorted as bytes whatever the locale. The caller calls globfree, also after a failure.
static bool data_match(glob_t* found, const char* option, const char* patterns, Error* err) {
    const char* advice = "token shards are made by ./prepare or fetched by data/fetch.sh";
    const bool ok = find_option_paths(found, option, patterns, advice, err);
    if (ok) { sort_texts(found->gl_pathv, found->gl_pathc); }
    return ok;
}

bool dataset_exists(const char* option, const char* patterns, Error* err) {
    glob_t found;
    const bool ok = data_match(&found, option, patterns, err);
    globfree(&found);
    return ok;
}

// Returns true for the records that ./prepare leaves beside its shards, which a pattern like data/stories* matches too.
static bool is_record(const char* path) {
    const char* dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".json") || !strcmp(dot, ".b2sums"));
}

// Lists the files of the data set, each once, and without records unless nothing else matches.
static void data_list_files(Dataset* d, const glob_t* found) {
    bool only_records = true;
    for (size_t i = 0; i < found->gl_pathc; i++) { only_records = only_records && is_record(found->gl_pathv[i]); }
    d->files = alloc_or_die(found->gl_pathc, sizeof *d->files, "the list of shards");
    for (size_t i = 0; i < found->gl_pathc; i++) {
        const char* path = found->gl_pathv[i];
        if (i > 0 && strcmp(path, found->gl_pathv[i - 1]) == 0) { continue; } // two patterns may match one file
        if (is_record(path) && !only_records) { continue; }
        d->files[d->num_files++].path = format("%s", path);
    }
}

// Returns file i, open, until the next call; NULL on failure.
static const Shard* dataset_shard(Dataset* d, int i, Error* err) {
    OpenShard* slot = &d->open[i % d->num_open];
    if (slot->file == i) { return &slot->shard; }
    if (slot->file >= 0) { shard_close(&slot->shard); }
    slot->file = shard_open_as(&slot->shard, d->files[i].path, d->header, err) ? i : -1;
    return slot->file == i ? &slot->shard : NULL;
}

// dataset_open reads and hashes both ends of a shard.
enum { HASHED = 1 << 15 }; // tokens at each end; chosen

// Adds file i to the counts of windows and tokens and to the hash. tokens (HASHED) is scratch.
static bool dataset_add(Dataset* d, int i, int* tokens, Error* err) {
    const Shard* shard = dataset_shard(d, i, err);
    if (!shard) { return false; }
    DataFile* file = &d->files[i];
    const size_t n = shard->num_tokens, T = (size_t)d->T, hashed = min_size(n, HASHED);
    const char* name = path_name(file->path);
    uint16_t low[HASHED]; // what is hashed: a shard's uint16
    if (n < T + 1) {
        return fail(err, "%s: %zu tokens are too few for one window of %d and its last target: leave the file out, or "
                    "lower --seq_len", file->path, n, d->T);
    }
    d->hash = hash64(name, strlen(name), d->hash);
    d->hash = hash64(&n, sizeof n, d->hash);
    file->content = hash64(&n, sizeof n, 0);
    for (int end = 0; end < 2; end++) {
        const size_t first = end ? n - hashed : 0;
        if (!shard_read(shard, first, hashed, tokens, err) ||
            !shard_check_tokens(file->path, first, tokens, hashed, d->vocab_size, err)) {
            return false;
        }
        for (size_t t = 0; t < hashed; t++) {
            low[t] = (uint16_t)tokens[t];
            file->largest = max_int(file->largest, tokens[t]);
        }
        d->hash = hash64(low, hashed * sizeof *low, d->hash);
        file->content = hash64(low, hashed * sizeof *low, file->content);
    }
    file->num_tokens = n;
    file->first_window = d->num_windows;
    d->num_windows += (n - 1) / T;
    d->num_tokens += n;
    return true;
}

static bool dataset_add_all(Dataset* d, Error* err) {
    int* tokens = alloc_or_die(HASHED, sizeof *tokens, "the end of a shard");
    bool ok = true;
    for (int i = 0; ok && i < d->num_files; i++) { ok = dataset_add(d, i, tokens, err); }
    free(tokens);
    return ok;
}

// Splits a path such as part_000017.bin: returns its number, and where its digits begin; -1 if it has none.
static long long shard_number(const char* path, size_t* begin) {
    const char* dot = strrchr(path_name(path), '.');
    size_t end = dot ? (size_t)(dot - path) : strlen(path);
    for (*begin = end; *begin > 0 && path[*begin - 1] >= '0' && path[*begin - 1] <= '9';) { --*begin; }
    return end - *begin >= 1 && end - *begin <= 12 ? strtoll(path + *begin, NULL, 10) : -1;
}

// Warns of shards that seem to be copies of others, and of numbers that are missing between two shards.
static void dataset_warn(const Dataset* d, const char* option) {
    for (int i = 1; i < d->num_files; i++) {
        const char *path = d->files[i].path, *before = d->files[i - 1].path;
        size_t begin, begin_before;
        const long long number = shard_number(path, &begin), last = shard_number(before, &begin_before);
        const bool is_next = last >= 0 && begin == begin_before && strlen(path) == strlen(before) &&
                             !strncmp(path, before, begin);
        if (is_next && number > last + 1) {
            notice("warning: %s: %lld shard%s missing between %s and %s", option, number - last - 1,
                   number > last + 2 ? "s are" : " is", before, path);
        }
        for (int k = 0; k < i; k++) {
            if (d->files[k].content != d->files[i].content) { continue; }
            notice("warning: %s: %s begins, ends and is as long as %s: if it is a copy, leave it out", option, path,
                   d->files[k].path);
            break;
        }
    }
}

void dataset_close(Dataset* d) {
    for (int i = 0; i < d->num_open; i++) {
        if (d->open[i].file >= 0) { shard_close(&d->open[i].shard); }
    }
    for (int i = 0; i < d->num_files; i++) { free(d->files[i].path); }
    free(d->files);
    free(d->open);
    free(d->window);
    memset(d, 0, sizeof *d);
}

bool dataset_open(Dataset* d, const char* option, const char* patterns, TokenHeader header, int T, int vocab_size,
                  Error* err) {
    glob_t found;
    memset(d, 0, sizeof *d);
    d->header = header;
    d->T = T;
    d->vocab_size = vocab_size;
    bool ok = data_match(&found, option, patterns, err);
    if (ok) {
        data_list_files(d, &found);
        struct rlimit descriptors;
        if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) { fatal("getrlimit: %s", strerror(errno)); }
        d->num_open = (int)max_size(1, min_size((size_t)d->num_files, descriptors.rlim_cur / 4));
        d->open = alloc_or_die((size_t)d->num_open, sizeof *d->open, "open shards");
        for (int i = 0; i < d->num_open; i++) { d->open[i].file = -1; }
        d->window = alloc_or_die((size_t)T + 1, sizeof *d->window, "a window of tokens");
    }
    ok = ok && dataset_add_all(d, err);
    if (ok) { dataset_warn(d, option); }
    globfree(&found);
    if (!ok) { dataset_close(d); }
    return ok;
}

bool dataset_check_file(Dataset* d, int i, Error* err) {
    const Shard* shard = dataset_shard(d, i, err);
    return shard && shard_check_all(shard, d->vocab_size, err);
}

// Sets *found if `count` tokens from `first` on hold the token, other than as the first of the shard. tokens: scratch.
static bool find_in(const Shard* shard, int token, size_t first, size_t count, int* tokens, bool* found, Error* err) {
    const bool ok = shard_read(shard, first, count, tokens, err);
    for (size_t t = 0; ok && t < count; t++) { *found = *found || (tokens[t] == token && first + t > 0); }
    return ok;
}

bool dataset_find(Dataset* d, int token, bool* found, Error* err) {
    int* tokens = alloc_or_die(HASHED, sizeof *tokens, "the end of a shard");
    bool ok = true;
    *found = false;
    for (int i = 0; ok && !*found && i < d->num_files; i++) { // all of the first shard, both ends of the others
        const Shard* shard = dataset_shard(d, i, err);
        const size_t n = shard ? shard->num_tokens : 0, step = i == 0 || n < 2 * HASHED ? HASHED : n - HASHED;
        ok = shard != NULL;
        for (size_t first = 0; ok && !*found && first < n; first += step) {
            ok = find_in(shard, token, first, min_size(HASHED, n - first), tokens, found, err);
        }
    }
    free(tokens);
    return ok;
}

bool dataset_read(Dataset* d, uint64_t window, int* tokens, int* targets, Error* err) {
    int i = 0;
    for (int end = d->num_files; end - i > 1;) { // the last file that begins at or before the window
        int middle = i + (end - i) / 2;
        if (d->files[middle].first_window <= window) { i = middle; } else { end = middle; }
    }
    const size_t T = (size_t)d->T, first = (size_t)(window - d->files[i].first_window) * T;
    const Shard* shard = dataset_shard(d, i, err);
    if (!shard) { return false; }
    if (shard->num_tokens != d->files[i].num_tokens) {
        return fail(err, "%s: it had %zu tokens when the run began, and now has %zu: do not change the data of a run",
                    shard->path, d->files[i].num_tokens, shard->num_tokens);
    }
    if (!shard_read(shard, first, T + 1, d->window, err)) { return false; }
    if (!shard_check_tokens(shard->path, first, d->window, T + 1, d->vocab_size, err)) { return false; }
    for (size_t t = 0; t < T; t++) {
        tokens[t] = d->window[t];
        targets[t] = d->window[t + 1];
    }
    return true;
}
