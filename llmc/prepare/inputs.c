#include "inputs.h"
#include "../base/file.h"
#include <dirent.h>

bool name_ends_with(const char* name, const char* ending) {
    size_t n = strlen(name), m = strlen(ending);
    if (n > 3 && strcmp(name + n - 3, ".gz") == 0) { n -= 3; }
    else if (n > 4 && strcmp(name + n - 4, ".zst") == 0) { n -= 4; }
    return n >= m && strncmp(name + n - m, ending, m) == 0;
}

typedef struct {
    char** names;
    size_t count, left_out; // files in folders, by their names
} NameList;

static void add_name(NameList* list, char* name) {
    list->names = grown(list->names, list->count, sizeof *list->names, "input files");
    list->names[list->count++] = name;
}

static bool is_text_name(const char* name) {
    static const char* const endings[] = {".txt", ".jsonl", ".ndjson", ".parquet"};
    for (int i = 0; i < 4; i++) { if (name_ends_with(name, endings[i])) { return true; } }
    return false;
}

// Returns true for the merges of a tokenizer, which lie beside its tokens.
static bool is_merges_file(const char* folder, const char* name) {
    return !strcmp(name, "merges.txt") && (folder_has(folder, "vocab.json") || folder_has(folder, "tokenizer.json"));
}

static void add_folder(NameList* list, const char* folder, int depth) {
    enum { MAX_DEPTH = 32 }; // links may lead in a circle
    DIR* d = opendir(folder);
    if (!d) { fatal("%s: cannot list: %s", folder, strerror(errno)); }
    if (depth == MAX_DEPTH) { fatal("%s: more than %d folders in each other", folder, MAX_DEPTH); }
    for (const struct dirent* entry; errno = 0, (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] == '.') { continue; }
        char* path = format("%s/%s", folder, entry->d_name);
        const bool is_folder = is_directory(path);
        const bool is_text = is_text_name(entry->d_name) && !is_merges_file(folder, entry->d_name);
        if (is_folder) { add_folder(list, path, depth + 1); }
        list->left_out += !is_folder && !is_text;
        if (is_text && !is_folder) { add_name(list, path); }
        else { free(path); }
    }
    if (errno != 0) { fatal("%s: cannot list: %s", folder, strerror(errno)); }
    closedir(d);
}

static void add_pattern(NameList* list, const char* pattern) {
    Error err;
    glob_t found = {0};
    if (!find_paths(&found, pattern, &err)) { fatal("%s", err.text); }
    if (found.gl_pathc == 0) { usage_error("%s: no file has such a name", pattern); }
    for (size_t i = 0; i < found.gl_pathc; i++) { add_name(list, format("%s", found.gl_pathv[i])); }
    globfree(&found);
}

char** inputs_expand(char** words, size_t* count) {
    static const char names[] = "*.txt, *.jsonl, *.ndjson or *.parquet, perhaps with .gz or .zst behind it";
    NameList list = {NULL, 0, 0};
    for (size_t i = 0; i < *count; i++) {
        char* word = words[i];
        const size_t first = list.count;
        list.left_out = 0;
        if (is_directory(word)) {
            char* folder = trimmed_path(word);
            add_folder(&list, folder, 0);
            free(folder);
            if (list.count == first) { usage_error("%s: no file in this folder is named %s", word, names); }
            if (list.left_out) {
                notice("%s: %zu file%s left out: a tokenizer's, or not named %s", word, list.left_out,
                       plural(list.left_out), names);
            }
            sort_texts(list.names + first, list.count - first);
        } else if (!path_exists(word) && strpbrk(word, "*?[")) {
            add_pattern(&list, word);
        } else {
            add_name(&list, format("%s", word));
        }
    }
    *count = list.count;
    return list.names;
}
