#include "host_memory.h"
#include "file.h"
#include <sys/resource.h>

// Returns the number behind `key` in FOLDER/FILE, a small file of /proc or /sys, times `unit`; `fallback` if there is
// none or it is "max".
static size_t number_in_file(const char* folder, const char* file, const char* key, size_t unit, size_t fallback) {
    Error err;
    char *path = format("%s/%s", folder, file), *text = read_file(path, NULL, &err);
    const char* at = text ? strstr(text, key) : NULL;
    char* end = NULL;
    unsigned long long value = at ? strtoull(at + strlen(key), &end, 10) : 0;
    size_t result = at && end != at + strlen(key) ? (size_t)value * unit : fallback;
    free(text);
    free(path);
    return result;
}

// The two versions of cgroups: how a line of /proc/self/cgroup names the process's group, where groups are folders, and
// their files.
typedef struct {
    const char *before_group, *mount, *limit, *used, *inactive;
} CgroupVersion;

static const CgroupVersion CGROUP_VERSIONS[2] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file "}};

// Returns what is left of a group's limit; SIZE_MAX if it has none.
static size_t cgroup_left(const char* folder, const CgroupVersion* v) {
    const size_t limit = number_in_file(folder, v->limit, "", 1, SIZE_MAX);
    size_t used = number_in_file(folder, v->used, "", 1, 0);
    // the page cache counts as used, but its inactive part is freed on demand
    used -= min_size(used, number_in_file(folder, "memory.stat", v->inactive, 1, 0));
    return limit == SIZE_MAX ? SIZE_MAX : limit - min_size(limit, used);
}

size_t cgroups_memory_left(const char* root) {
    Error err;
    char *path = format("%s/proc/self/cgroup", root), *lines = read_file(path, NULL, &err);
    size_t least = SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        const CgroupVersion* v = &CGROUP_VERSIONS[i];
        const char *line = lines ? strstr(lines, v->before_group) : NULL,
                   *group = line ? line + strlen(v->before_group) : "";
        char *mount = format("%s%s", root, v->mount),
             *folder = format("%s%.*s", mount, (int)strcspn(group, "\n"), group);
        for (;;) { // from the process's group up to the one above all; in a container its own may be mounted as that
            least = min_size(least, cgroup_left(folder, v));
            if (strlen(folder) <= strlen(mount)) { break; }
            *strrchr(folder, '/') = 0;
        }
        free(folder);
        free(mount);
    }
    free(lines);
    free(path);
    return least;
}

size_t host_memory_available(void) {
    static const struct {
        int resource;
        const char* used; // in /proc/self/status
    } limits[2] = {{RLIMIT_AS, "VmSize:"}, {RLIMIT_DATA, "VmData:"}};
    const size_t system = number_in_file("/proc", "meminfo", "MemAvailable:", 1024, SIZE_MAX);
    size_t bytes = min_size(system, cgroups_memory_left(""));
    for (int i = 0; i < 2; i++) {
        struct rlimit r;
        if (getrlimit(limits[i].resource, &r) != 0 || r.rlim_cur == RLIM_INFINITY) { continue; }
        const size_t limit = (size_t)r.rlim_cur, used = number_in_file("/proc/self", "status", limits[i].used, 1024, 0);
        bytes = min_size(bytes, limit - min_size(limit, used));
    }
    return bytes;
}
