#include "threads.h"
#include "base.h"
#include <limits.h>
#ifdef _OPENMP
#include <omp.h>
#endif

void choose_wait_policy(char** argv) {
#ifdef _OPENMP
    char program[PATH_MAX];
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME")) { return; }
    // The program's own path, not /proc/self/exe: `ps` shows the name that execv() is given.
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", "1000", 1) || setenv("KMP_BLOCKTIME", "0", 1)) { return; } // libgomp, libomp
    program[n] = 0;
    execv(program, argv); // returns only if it failed: the threads then wait as OpenMP's default says
#else
    (void)argv;
#endif
}

void use_one_thread(void) {
#ifdef _OPENMP
    omp_set_num_threads(1); // of this thread alone: the number is thread-local
#endif
}
