// `bench ladder`: measures what each technique brings. A rung is one switch on top of the rung before; it trains the
// same model from the same weights on the same batch, and must arrive at the same loss.
//
// A rung runs in a process of its own, so that its peak of memory is its own: the high-water mark that the system keeps
// of a process does not fall, and memory left over from one rung (scratch of threads, packed weights) would count in
// the next. Neither OpenMP's threads nor a GPU survive a fork, so the process that prints starts neither. Results come
// back in shared memory.
#pragma once
#include "rungs.h"

// Calls work(l, index) in a process of its own. Returns its end as a shell has it: its exit code, or 128 + the signal
// that killed it. *peak_bytes: the most memory it had.
int in_child(void (*work)(Ladder*, int), Ladder* l, int index, size_t* peak_bytes);

// Runs the command `bench ladder`. Returns the exit code: EXIT_CHECK_FAILED if a rung's loss was wrong.
int bench_ladder(const Config* config);
