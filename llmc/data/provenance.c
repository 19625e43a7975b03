#include "provenance.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../tokenizer/tokenizer_open.h"
#include <inttypes.h>

// Reads the hash of the tokenizer that made the shards of a record (prepare/manifest.h). Sets *found to false if there
// is no record, or it has no such hash.
static bool read_hash(const char* record, uint64_t* hash, bool* found, Error* err) {
    *found = false;
    if (!record || !path_exists(record)) { return true; }
    json_t* root = json_read(record, SIZE_MAX, 0, err);
    if (!root && err->is_unknown) { return false; }
    *found = json_get_hex(json_object_get(root, "made_from"), "tokenizer_hash", hash);
    json_decref(root);
    return true;
}

// Returns the value of --tokenizer that names the tokenizer of this hash, or the hash; the caller frees it.
static char* name_of(uint64_t hash) {
    static const char* const built_in[] = {"gpt2", "bytes"};
    for (int i = 0; i < 2; i++) {
        Tokenizer t = tokenizer_open(built_in[i]);
        const bool is_same = tokenizer_hash(&t) == hash;
        tokenizer_free(&t);
        if (is_same) { return format("--tokenizer %s", built_in[i]); }
    }
    return format("a tokenizer of hash %016" PRIx64 " (`info PATH` prints it)", hash);
}

// Fills `err` because the record of a shard names another tokenizer.
static bool refuse(const char* option, const char* shard, const char* record, uint64_t hash, const char* name,
                   Error* err) {
    char* other = name_of(hash);
    fail(err, "%s %s: %s says that it was made with %s, and this run has --tokenizer %s: give the tokenizer of the "
              "data, or prepare the data again with that of the run", option, shard, record, other, name);
    free(other);
    return false;
}

bool dataset_check_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name, Error* err) {
    enum { BYTES = 257, ENOUGH = 1000 }; // so many tokens of a text have ids of merges, if there are any; chosen
    const uint64_t wanted = tokenizer_hash(t);
    uint64_t hash = 0, unrecorded = 0; // tokens
    int largest = 0;
    char* last = NULL; // the record that was read; shards of one follow each other
    bool ok = true, found = false;
    for (int i = 0; ok && i < d->num_files; i++) {
        const DataFile* file = &d->files[i];
        char* record = shard_record_path(file->path, ".json");
        const bool is_read = record && last && !strcmp(record, last);
        ok = is_read || read_hash(record, &hash, &found, err);
        free(last);
        last = record;
        if (ok && found && hash != wanted) { ok = refuse(option, file->path, record, hash, name, err); }
        if (!ok || found) { continue; }
        unrecorded += file->num_tokens;
        largest = max_int(largest, file->largest);
        if (file->largest < t->vocab_size) { continue; }
        ok = fail(err, "%s %s: token id %d is beyond the %d tokens of --tokenizer %s: give the tokenizer of the data, "
                       "or none", option, file->path, file->largest, t->vocab_size, name);
    }
    free(last);
    if (ok && unrecorded >= ENOUGH && largest < BYTES && t->vocab_size > BYTES) {
        notice("warning: %s: no id is above %d: was it made with --tokenizer bytes? This run has --tokenizer %s",
               option, BYTES - 1, name);
    }
    d->vocab_size = min_int(d->vocab_size, t->vocab_size);
    return ok;
}

double corpus_floor(const Dataset* data) {
    Error err;
    const char* path = data->files[0].path;
    char* record = shard_record_path(path, "_val.json");
    const bool is_val = record && !strncmp(path, record, strlen(record) - strlen(".json")); // not PREFIX_train_*.bin
    json_t *value = is_val ? json_read(record, JSON_MOST, 0, &err) : NULL, *least = json_object_get(value, "floor");
    const double floor_loss = json_is_number(least) ? json_number_value(least) : NAN;
    json_decref(value);
    free(record);
    return floor_loss;
}
