#include "threads.h"
#include "base.h"
#ifdef _OPENMP
#include <omp.h>
#endif

void choose_wait_policy(char** argv) {
#ifdef _OPENMP
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME")) { return; }
    if (setenv("GOMP_SPINCOUNT", "1000", 1) || setenv("KMP_BLOCKTIME", "0", 1)) { return; } // libgomp, libomp
    char* program = program_path();
    execv(program, argv); // returns only if it failed: the threads then wait as OpenMP's default says
    free(program);
#else
    (void)argv;
#endif
}

void use_one_thread(void) {
#ifdef _OPENMP
    omp_set_num_threads(1); // of this thread alone: the number is thread-local
#endif
}
