#include "library.h"
#include <dlfcn.h>
#include <glob.h>

// A function that is called by its name: an entry that reached.S makes.
typedef struct {
    void* address; // where its library has it; NULL: not opened yet
    const char* name;
} Reached;

// Mark where these entries begin and end. The linker defines both names; they are NULL in a program that has none.
extern Reached __start_reached[] __attribute__((weak)), __stop_reached[] __attribute__((weak)); // NOLINT

// Opens FOLDER/BELOW/FILE for the first of `folders` that has it. They are absolute, with colons between them; `below`
// is a pattern.
static void* open_below(const char* folders, const char* below, const char* file) {
    void* library = NULL;
    for (const char* f = folders; *f && !library;) {
        const int length = (int)strcspn(f, ":");
        char* pattern = format("%.*s/%s/%s", length, f, below, file);
        glob_t found;
        if (*f == '/' && glob(pattern, 0, NULL, &found) == 0) {
            for (size_t i = 0; i < found.gl_pathc && !library; i++) {
                library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
            }
            globfree(&found);
        }
        free(pattern);
        f += length + (f[length] == ':');
    }
    return library;
}

static const char* variable(const char* name) { return getenv(name) ? getenv(name) : ""; }

void* library_open(const char* file, const char* remedy, Error* err) {
    void* library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (library) { return library; }
    // A toolkit and a Python environment both have a folder bin, which is in the path.
    char* folders = format("%s/bin:/usr/local/cuda/bin:%s/bin:%s", variable("CUDA_HOME"), variable("VIRTUAL_ENV"),
                           variable("PATH"));
    library = open_below(folders, "../lib64", file);
    if (!library) { library = open_below(folders, "../lib/python3*/*-packages/nvidia/*/lib", file); }
    free(folders);
    if (!library) { fail(err, "%s: %s", dlerror(), remedy); }
    return library;
}

bool library_reach(const char* file, const char* remedy, Error* err) {
    const char* prefix = file + strlen("lib");
    const size_t length = strcspn(prefix, ".");
    void* library = NULL;
    for (Reached* r = __start_reached; r < __stop_reached; r++) {
        if (strncmp(r->name, prefix, length) != 0) { continue; }
        if (!library) { library = library_open(file, remedy, err); }
        if (!library) { return false; }
        r->address = dlsym(library, r->name);
        if (!r->address) { return fail(err, "%s is too old, it has no %s: %s", file, r->name, remedy); }
    }
    return true;
}
