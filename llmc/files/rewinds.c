#include "rewinds.h"
#include "../base/json.h"

json_t* rewinds_to_json(const Rewinds* r) {
    json_t* left_out = json_array();
    for (int i = 0; i < r->num_ranges; i++) {
        const WindowRange* w = &r->left_out[i];
        json_array_append_new(left_out, json_pack("[I, I]", (json_int_t)w->first, (json_int_t)w->count));
    }
    return json_pack("{s:i, s:o}", "count", r->count, "left_out", left_out);
}

bool rewinds_from_json(Rewinds* r, const json_t* saved, Error* err) {
    memset(r, 0, sizeof *r);
    if (!saved) { return true; }
    const json_int_t count = json_integer_value(json_object_get(saved, "count"));
    const json_t* left_out = json_object_get(saved, "left_out");
    const size_t n = json_array_size(left_out);
    if (count < 1 || count > MAX_REWINDS || n < 1 || n > (size_t)count) {
        return fail(err, "rewinds: %zu ranges of windows left out in %lld times are not possible", n, (long long)count);
    }
    uint64_t end = 0; // of the range before
    for (size_t i = 0; i < n; i++) {
        const json_t* pair = json_array_get(left_out, i);
        const json_int_t first = json_integer_value(json_array_get(pair, 0)),
                         windows = json_integer_value(json_array_get(pair, 1));
        if (first < 0 || (uint64_t)first < end || windows < 1 || windows > INT64_MAX - first) {
            return fail(err, "rewinds: range %zu of the windows left out is not possible", i + 1);
        }
        r->left_out[i] = (WindowRange){(uint64_t)first, (uint64_t)windows};
        end = (uint64_t)(first + windows);
    }
    r->count = (int)count;
    r->num_ranges = (int)n;
    return true;
}

bool rewind_write(const char* folder, const Rewinds* r, uint64_t window, Error* err) {
    char* path = format("%s/rewind.json", folder);
    json_t* rewind = json_pack("{s:s, s:I, s:o}", "checksum", "0000000000000000", "window", (json_int_t)window,
                               "rewinds", rewinds_to_json(r));
    const bool ok = json_save_checked(rewind, path, err);
    json_decref(rewind);
    free(path);
    return ok;
}

bool rewind_read(json_t* state, const char* folder, Error* err) {
    char* path = format("%s/rewind.json", folder);
    const bool exists = path_exists(path);
    json_t* rewind = exists ? json_load_checked(path, err) : NULL;
    bool ok = !exists || rewind;
    if (rewind && (json_object_set(state, "window", json_object_get(rewind, "window")) != 0 ||
                   json_object_set(state, "rewinds", json_object_get(rewind, "rewinds")) != 0)) {
        ok = fail(err, "%s: window or rewinds is missing: damaged", path);
    }
    json_decref(rewind);
    free(path);
    return ok;
}
