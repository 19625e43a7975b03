#include "tokenizer_json.h"
#include "../base/file.h"
#include "../base/json.h"
#include "byte_level.h"

#define CONFIG_FILE "tokenizer_config.json"

typedef struct {
    const char* path; // of the vocabulary, for messages
    int count;
    const char** name;   // [count] of each token, in the JSON text
    bool* is_added;      // [count] stands for its own characters
    TokenBytes* tokens;  // [count]
    int (*half)[2];      // [count] the merge that makes it; NO_TOKEN: none
    unsigned char* memory; // of the tokens' bytes
    json_t* ids;         // name -> id
} Vocab;

// Returns true for a member that is missing, or null.
static bool is_null(const json_t* value) { return !value || json_is_null(value); }

// ---------------------------------------------------------------------------------------------------------------------
// the vocabulary

static void vocab_free(Vocab* v) {
    free(v->name);
    free(v->is_added);
    free(v->tokens);
    free(v->half);
    free(v->memory);
    json_decref(v->ids);
}

// Names the token of the id that is `value`.
static bool vocab_name(Vocab* v, const char* name, const json_t* value, Error* err) {
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= v->count) {
        return fail(err, "%s: token \"%.60s\" should have an id from 0 to %d, one for each token", v->path,
                    name, v->count - 1);
    }
    if (v->name[id]) {
        return fail(err, "%s: tokens \"%.60s\" and \"%.60s\" have the same id, %d", v->path, v->name[id],
                    name, (int)id);
    }
    v->name[id] = name;
    return true;
}

// Begins a vocabulary from {"name": id, ...} and added_tokens, which may be NULL. Both outlive it.
static bool vocab_open(Vocab* v, const char* path, const json_t* ids, const json_t* added, Error* err) {
    const char* name;
    json_t *value, *token;
    size_t i;
    *v = (Vocab){.path = path, .ids = json_copy((json_t*)ids)};
    json_array_foreach(added, i, token) {
        const char* content = json_string_value(json_object_get(token, "content"));
        json_t* id = json_object_get(token, "id");
        if (!content || !json_is_integer(id)) {
            return fail(err, "%s: added_tokens: entry %zu has no id or no content", path, i);
        }
        if (!json_is_true(json_object_get(token, "special"))) {
            return fail(err, "%s: added token \"%.60s\" is not special: it is looked for before text is cut, which is "
                             "not supported", path, content);
        }
        const json_t* old = json_object_get(v->ids, content);
        if (old && !json_equal(old, id)) {
            return fail(err, "%s: token \"%.60s\" has two ids", path, content);
        }
        json_object_set(v->ids, content, id);
    }
    if (!is_null(added) && !json_is_array(added)) { return fail(err, "%s: added_tokens is not an array", path); }
    const size_t count = json_object_size(v->ids);
    if (count > TOKENIZER_MAX_VOCAB) { return fail(err, "%s: %zu tokens are too many", path, count); }
    v->count = (int)count;
    v->name = alloc_or_die(count + 1, sizeof *v->name, "the tokenizer");
    v->is_added = alloc_or_die(count + 1, sizeof *v->is_added, "the tokenizer");
    v->tokens = alloc_or_die(count + 1, sizeof *v->tokens, "the tokenizer");
    v->half = alloc_or_die(count + 1, sizeof *v->half, "the tokenizer");
    for (size_t id = 0; id < count; id++) { v->half[id][0] = NO_TOKEN; }
    json_object_foreach(v->ids, name, value) {
        if (!vocab_name(v, name, value, err)) { return false; }
    }
    json_array_foreach(added, i, token) { v->is_added[json_integer_value(json_object_get(token, "id"))] = true; }
    return true;
}

// Adds merge number `i` of `path`, counted from 1. `last`: the token that the one before made.
static bool vocab_merge(Vocab* v, const char* path, size_t i, const char* left, const char* right, int* last,
                        Error* err) {
    char* whole = format("%s%s", left, right);
    const char* names[3] = {left, right, whole};
    int id[3];
    bool ok = true;
    for (int k = 0; ok && k < 3; k++) {
        const json_t* value = json_object_get(v->ids, names[k]);
        id[k] = value ? (int)json_integer_value(value) : NO_TOKEN;
        if (!value || v->is_added[id[k]]) {
            ok = fail(err, "%s: merge %zu, \"%.60s\" and \"%.60s\": there is no token of text \"%.60s\"", path, i,
                      left, right, names[k]);
        }
    }
    if (ok && id[2] <= *last) {
        ok = fail(err, "%s: merge %zu makes token %d, the one before it %d: not supported, ids must rise in the order "
                       "of the merges", path, i, id[2], *last);
    }
    free(whole);
    if (!ok) { return false; }
    v->half[id[2]][0] = id[0];
    v->half[id[2]][1] = id[1];
    *last = id[2];
    return true;
}

// Finds the bytes of each token.
static bool vocab_bytes(Vocab* v, Error* err) {
    const ByteLevel b = byte_level();
    size_t all = 1;
    for (int id = 0; id < v->count; id++) { all += strlen(v->name[id]); }
    unsigned char* to = v->memory = alloc_or_die(all, 1, "the tokenizer");
    for (int id = 0; id < v->count; to += strlen(v->name[id++])) { // a name has no fewer bytes than what it stands for
        TokenBytes* token = &v->tokens[id];
        *token = (TokenBytes){to, 0, v->is_added[id]};
        const bool is_text = !v->is_added[id] &&
                             byte_level_decode(&b, v->name[id], to, TOKENIZER_MAX_BYTES, &token->count);
        if (is_text) {
            token->is_special = token->count > 1 && v->half[id][0] == NO_TOKEN;
            continue;
        }
        token->is_special = true;
        token->bytes = v->name[id];
        token->count = strlen(v->name[id]);
        if (token->count == 0 || token->count > TOKENIZER_MAX_BYTES) {
            return fail(err, "%s: token %d, \"%.60s\": it should stand for 1 to %d bytes", v->path, id,
                        v->name[id], TOKENIZER_MAX_BYTES);
        }
    }
    return true;
}

// Returns the end of text: the special token named `eos` (NULL: none is), or <|endoftext|>, or else the only one; -1 on
// failure.
static int vocab_end_of_text(const Vocab* v, const char* eos, Error* err) {
    const json_t* value = eos ? json_object_get(v->ids, eos) : NULL;
    if (value && v->tokens[json_integer_value(value)].is_special) { return (int)json_integer_value(value); }
    if (eos) { notice("warning: %s: no special token is the eos_token of " CONFIG_FILE ", \"%.60s\"", v->path, eos); }
    int found = -1, specials = 0;
    for (int id = 0; id < v->count; id++) {
        if (!v->tokens[id].is_special) { continue; }
        if (!strcmp(v->name[id], EOT_NAME)) { return id; }
        found = id;
        specials++;
    }
    if (specials == 1) { return found; }
    fail(err, "%s: which token ends a text? %d tokens are special, none of them is " EOT_NAME "; name it as eos_token "
              "in " CONFIG_FILE " beside it", v->path, specials);
    return -1;
}

// Makes the tokenizer, when all merges were added. eos: of vocab_end_of_text().
static bool vocab_finish(Vocab* v, Tokenizer* t, const char* eos, Error* err) {
    if (!vocab_bytes(v, err)) { return false; }
    const int eot = vocab_end_of_text(v, eos, err);
    if (eot < 0 || !tokenizer_from_tokens(t, v->tokens, v->count, eot, v->path, err)) { return false; }
    for (int id = 0; id < v->count; id++) {
        int half[2];
        if (v->half[id][0] == NO_TOKEN) { continue; }
        if (tokenizer_halves(t, id, half) && half[0] == v->half[id][0] && half[1] == v->half[id][1]) { continue; }
        fail(err, "%s: token %d, \"%.60s\": its bytes do not become it by the merges before its own: not supported",
             v->path, id, v->name[id]);
        tokenizer_free(t);
        return false;
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// tokenizer_config.json

// Reads the settings beside a tokenizer's file, an empty object if there are none; NULL and an Error if they ask for
// what this program does not do. model_max_length may be 10^30, which only a real number holds.
static json_t* read_settings(const char* path, Error* err) {
    char* config = path_beside(path, CONFIG_FILE);
    json_t* settings = path_exists(config) ? json_read(config, TOKENIZER_MAX_FILE, JSON_DECODE_INT_AS_REAL, err)
                                           : json_object();
    if (json_is_true(json_object_get(settings, "add_prefix_space"))) {
        fail(err, "%s: its add_prefix_space is not supported", config);
        json_decref(settings);
        settings = NULL;
    }
    free(config);
    return settings;
}

// Returns the name of the token that ends a text, a string or an object with its content; NULL if the settings have
// none.
static const char* settings_eos(const json_t* settings) {
    const json_t *eos = json_object_get(settings, "eos_token"), *content = json_object_get(eos, "content");
    return json_string_value(content ? content : eos);
}

// ---------------------------------------------------------------------------------------------------------------------
// tokenizer.json

static bool is_text(const json_t* value, const char* text) {
    return json_is_string(value) && !strcmp(json_string_value(value), text);
}

// Returns true for GPT-2's pattern, in either of the two ways in which it is written.
static bool is_gpt2_pattern(const json_t* pattern) {
    static const char rest[] = "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    static const char* const contractions[] = {"'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)"};
    const char* text = json_string_value(json_object_get(pattern, "Regex"));
    for (int i = 0; text && i < 2; i++) {
        const size_t n = strlen(contractions[i]);
        if (!strncmp(text, contractions[i], n) && !strcmp(text + n, rest)) { return true; }
    }
    return false;
}

// Returns true if text is cut by GPT-2's pattern: ByteLevel, or Split by the pattern and then ByteLevel without one.
static bool is_gpt2_split(const json_t* p) {
    const json_t* list = is_text(json_object_get(p, "type"), "Sequence") ? json_object_get(p, "pretokenizers") : NULL;
    const size_t count = list ? json_array_size(list) : 1;
    const json_t* last = list ? json_array_get(list, count - 1) : p;
    const json_t* split = count == 2 ? json_array_get(list, 0) : NULL;
    const bool splits_itself = !json_is_false(json_object_get(last, "use_regex"));
    if (count > 2 || !is_text(json_object_get(last, "type"), "ByteLevel") ||
        json_is_true(json_object_get(last, "add_prefix_space"))) {
        return false;
    }
    if (!split) { return splits_itself; }
    return !splits_itself && is_text(json_object_get(split, "type"), "Split") &&
           is_text(json_object_get(split, "behavior"), "Isolated") && !json_is_true(json_object_get(split, "invert")) &&
           is_gpt2_pattern(json_object_get(split, "pattern"));
}

// Returns the part of a tokenizer that this program does not compute; NULL if there is none.
static const char* unsupported_part(const json_t* root) {
    static const char* const changes[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *model = json_object_get(root, "model"), *type = json_object_get(model, "type");
    if (type && !is_text(type, "BPE")) { return "model"; }
    for (int i = 0; i < 3; i++) {
        const json_t* change = json_object_get(model, changes[i]);
        if (!is_null(change) && !is_text(change, "")) { return changes[i]; }
    }
    if (json_is_true(json_object_get(model, "ignore_merges"))) { return "ignore_merges"; }
    if (!is_null(json_object_get(root, "normalizer"))) { return "normalizer"; }
    return is_gpt2_split(json_object_get(root, "pre_tokenizer")) ? NULL : "pre_tokenizer";
}

static bool check_kind(const json_t* root, const char* path, Error* err) {
    const json_t* model = json_object_get(root, "model");
    if (!json_is_object(model)) { return fail(err, "%s: no \"model\": not a tokenizer.json", path); }
    const char* part = unsupported_part(root);
    if (part) {
        return fail(err, "%s: its %s is not supported: only byte-level BPE whose text is cut by GPT-2's pattern, "
                    "without a space before it", path, part);
    }
    return (json_is_object(json_object_get(model, "vocab")) && json_is_array(json_object_get(model, "merges"))) ||
           fail(err, "%s: damaged: its model has no vocab or no merges", path);
}

// Adds a merge "LEFT RIGHT", which is changed.
static bool merge_line(Vocab* v, const char* path, size_t i, char* line, int* last, Error* err) {
    char* space = strchr(line, ' ');
    if (!space || strchr(space + 1, ' ')) {
        return fail(err, "%s: merge %zu, \"%.60s\": not two tokens with a space between", path, i, line);
    }
    *space = 0;
    return vocab_merge(v, path, i, line, space + 1, last, err);
}

static bool add_merges(Vocab* v, const json_t* merges, Error* err) {
    int last = NO_TOKEN;
    size_t i;
    json_t* merge;
    bool ok = true;
    json_array_foreach(merges, i, merge) {
        const char *left = json_string_value(json_array_get(merge, 0)),
                   *right = json_string_value(json_array_get(merge, 1));
        if (json_is_string(merge)) {
            char* line = format("%s", json_string_value(merge));
            ok = merge_line(v, v->path, i + 1, line, &last, err);
            free(line);
        } else if (left && right && json_array_size(merge) == 2) {
            ok = vocab_merge(v, v->path, i + 1, left, right, &last, err);
        } else {
            ok = fail(err, "%s: merge %zu: neither a text nor a pair of texts", v->path, i + 1);
        }
        if (!ok) { break; }
    }
    return ok;
}

bool tokenizer_read_json(Tokenizer* t, const char* path, Error* err) {
    Vocab v = {.count = 0};
    json_t *root = json_read_object(path, TOKENIZER_MAX_FILE, err), *settings = root ? read_settings(path, err) : NULL;
    const json_t* model = json_object_get(root, "model");
    const bool ok = settings && check_kind(root, path, err) &&
                    vocab_open(&v, path, json_object_get(model, "vocab"), json_object_get(root, "added_tokens"), err) &&
                    add_merges(&v, json_object_get(model, "merges"), err) &&
                    vocab_finish(&v, t, settings_eos(settings), err);
    vocab_free(&v);
    json_decref(settings);
    json_decref(root);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// vocab.json and merges.txt

static bool add_merge_lines(Vocab* v, const char* path, Error* err) {
    size_t size, i = 1;
    char* text = read_file_up_to(path, TOKENIZER_MAX_FILE, &size, err);
    int last = NO_TOKEN;
    bool ok = text != NULL;
    if (ok && strlen(text) != size) { ok = fail(err, "%s: not a text: it has a byte 0", path); }
    for (char *line = text, *end; ok && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) { *end++ = 0; }
        const size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r') { line[length - 1] = 0; }
        if (line == text && !strncmp(line, "#version", 8)) { continue; }
        if (*line) { ok = merge_line(v, path, i++, line, &last, err); }
    }
    free(text);
    return ok;
}

// Returns true if added_tokens.json beside a vocabulary, {"name": id, ...}, has no other tokens. Which of them are
// special is said elsewhere, or not at all.
static bool check_added(const char* vocab_path, const json_t* ids, Error* err) {
    char* path = path_beside(vocab_path, "added_tokens.json");
    json_t* added = path_exists(path) ? json_read_object(path, TOKENIZER_MAX_FILE, err) : json_object();
    bool ok = added != NULL;
    const char* name;
    json_t* id;
    json_object_foreach(added, name, id) {
        if (!ok || json_equal(json_object_get(ids, name), id)) { continue; }
        ok = fail(err, "%s: token \"%.60s\" is not in vocab.json: not supported, save the tokenizer as tokenizer.json "
                       "(AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER))", path, name);
    }
    json_decref(added);
    free(path);
    return ok;
}

bool tokenizer_read_vocab(Tokenizer* t, const char* vocab_path, const char* merges_path, Error* err) {
    Vocab v = {.count = 0};
    json_t *ids = json_read_object(vocab_path, TOKENIZER_MAX_FILE, err),
           *settings = ids ? read_settings(vocab_path, err) : NULL;
    const bool ok = settings && check_added(vocab_path, ids, err) && vocab_open(&v, vocab_path, ids, NULL, err) &&
                    add_merge_lines(&v, merges_path, err) && vocab_finish(&v, t, settings_eos(settings), err);
    vocab_free(&v);
    json_decref(settings);
    json_decref(ids);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// folders

bool folder_has_tokenizer(const char* folder) {
    return folder_has(folder, "tokenizer.json") || folder_has(folder, "vocab.json") ||
           folder_has(folder, "tokenizer.bin");
}

bool tokenizer_read_folder(Tokenizer* t, const char* folder, Error* err) {
    char *json = format("%s/tokenizer.json", folder), *vocab = format("%s/vocab.json", folder),
         *bin = format("%s/tokenizer.bin", folder), *merges = format("%s/merges.txt", folder);
    const bool ok = path_exists(json)    ? tokenizer_read_json(t, json, err)
                    : path_exists(vocab) ? tokenizer_read_vocab(t, vocab, merges, err)
                    : path_exists(bin)   ? tokenizer_load(t, bin, err)
                                         : fail(err, "%s: neither tokenizer.json, nor vocab.json and merges.txt, nor "
                                                     "tokenizer.bin is there", folder);
    free(json);
    free(vocab);
    free(bin);
    free(merges);
    return ok;
}
