// Makes OpenMP's threads go to sleep soon when they wait. At the end of each parallel region a thread spins before it
// sleeps: by default 300,000 turns in gcc's libgomp, about 13 ms, and 200 ms in clang's libomp. If other programs use
// the processors, the spinning threads keep the thread they wait for from running. Threads that sleep at once have to
// be woken in each region.
//
// Measured on 2026-11-22, 2 cores of an AMD EPYC (Zen 4), gcc 12: the time of a step as a multiple of that without
// spinning (OMP_WAIT_POLICY=passive), of `train_gpt2 --model L=4,H=4,C=64,T=64 --batch_size 8`. Medians of 5 rounds
// with compilers running beside it, and of 3 with two busy loops:
//
//   GOMP_SPINCOUNT     compilers   busy loops
//   1,000 (45 us)           1.00         1.02
//   10,000                  1.17         1.17
//   100,000                 2.63         3.41
//   300,000 (default)       2.83         2.37
//
// On free cores of that machine there is no difference: the fastest step of all rounds took 112 ms by default, 103
// without spinning and 110 with 1,000 turns. On others waking a thread takes 0.3 ms: wait_awake() in cpu/device.h.
#pragma once

// Sets how long threads wait by spinning, unless the user has chosen (OMP_WAIT_POLICY, GOMP_SPINCOUNT or
// KMP_BLOCKTIME). libgomp reads its environment while it is loaded, so the program starts itself again with the same
// arguments; the process id stays. Call it first in main(): before other threads, MPI or files. If the program cannot
// be started again, it continues with OpenMP's default. Processes started from here inherit the choice.
void choose_wait_policy(char** argv);

// Sets how many threads run a parallel region that the calling thread begins. One: for work in the background, which
// must not take processors from training. Nor does libgomp then start threads that end with the calling one: their end
// loads a library, and if that fails, libgomp ends the program.
void use_threads(int count);

// Lowers the number of threads to MAX_THREADS, whatever OMP_NUM_THREADS says: libgomp crashes with 99999. Call it in
// main().
enum { MAX_THREADS = 4096 };
void cap_threads(void);

// Returns how many processors this process may use. Without OpenMP: 1.
int num_processors(void);

// Return how many there will be, and the number of the calling one within its parallel region. Without OpenMP: 1 and 0.
int max_threads(void);
int thread_number(void);
