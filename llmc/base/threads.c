#include "threads.h"
#include "file.h"
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

#ifdef _OPENMP
void use_threads(int count) { omp_set_num_threads(count); }
int num_processors(void) { return omp_get_num_procs(); }
int max_threads(void) { return omp_get_max_threads(); }
void cap_threads(void) { use_threads(min_int(max_threads(), MAX_THREADS)); }
int thread_number(void) { return omp_get_thread_num(); }
#else
void use_threads(int count) { (void)count; }
int num_processors(void) { return 1; }
int max_threads(void) { return 1; }
void cap_threads(void) {}
int thread_number(void) { return 0; }
#endif
