// Free host memory, as Linux, the container (cgroup) and the process's limits allow it.
#pragma once
#include "base.h"

BEGIN_C

// Returns the bytes that this process can still use: the least of the system's free memory, the container's limit less
// its use, and the process's limits; SIZE_MAX if none is known. malloc() and mmap() grant more than that, and the
// process is killed when it touches the pages, so ask before allocating.
size_t host_memory_available(void);

END_C
