#include "host_memory.h"
#include <sys/resource.h>

// Returns the number behind `key` in a small file of /proc or /sys, times `unit`; `fallback` if there is none or it is
// "max".
static size_t number_in_file(const char* path, const char* key, size_t unit, size_t fallback) {
    Error err;
    char* text = read_file(path, NULL, &err);
    const char* at = text ? strstr(text, key) : NULL;
    char* end = NULL;
    unsigned long long value = at ? strtoull(at + strlen(key), &end, 10) : 0;
    size_t result = at && end != at + strlen(key) ? (size_t)value * unit : fallback;
    free(text);
    return result;
}

size_t host_memory_available(void) {
    size_t bytes = number_in_file("/proc/meminfo", "MemAvailable:", 1024, SIZE_MAX);
    size_t limit = number_in_file("/sys/fs/cgroup/memory.max", "", 1, SIZE_MAX);
    size_t used = number_in_file("/sys/fs/cgroup/memory.current", "", 1, 0);
    if (limit == SIZE_MAX) {
        limit = number_in_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", 1, SIZE_MAX);
        used = number_in_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", 1, 0);
    }
    // the page cache counts as used, but its inactive part is freed on demand
    used -= min_size(used, number_in_file("/sys/fs/cgroup/memory.stat", "\ninactive_file ", 1, 0));
    if (limit != SIZE_MAX) { bytes = min_size(bytes, limit > used ? limit - used : 0); }
    const int resources[2] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        struct rlimit r;
        if (getrlimit(resources[i], &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
            bytes = min_size(bytes, (size_t)r.rlim_cur);
        }
    }
    return bytes;
}
