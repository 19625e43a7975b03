// Free host memory, as Linux, the container or job (cgroups) and the process's limits allow it.
#pragma once
#include "base.h"

BEGIN_C

// Returns the bytes that this process can still use: the least of the system's free memory and what is left of the
// limits of its cgroups and of its own; SIZE_MAX if none is known. malloc() and mmap() grant more than that, and the
// process is killed when it touches the pages, so ask before allocating.
size_t host_memory_available(void);

// Returns the part of it that is about cgroups: what is left of the limits of the process's group and of all above it,
// the least. SIZE_MAX if none has a limit. /proc and /sys are looked up in the folder `root`: "" but for tests.
size_t cgroups_memory_left(const char* root);

END_C
