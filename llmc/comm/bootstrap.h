// How processes find each other without MPI, exchange small things before training, and notice when one of them is gone.
//
// The first rank listens at the launch's address and port, the others connect to it: a star of TCP connections. Each
// process has a thread, started by bootstrap_open, which does all reading: it sends and receives a sign of life every
// second and so knows of a rank that died, was stopped, or whose network was cut, whatever the main thread waits for.
// Then it ends the process with exit code 1 (by _exit: the main thread may hang in NCCL for ever) and one message, which
// names the rank, its host, its last step and what it was doing. All ranks end so, since the first tells the others.
//
//   Bootstrap* b = bootstrap_open(&launch, version, 60, &err);
//   bootstrap_broadcast(b, &nccl_id, sizeof nccl_id);              // from rank 0
//   bootstrap_gather(b, &my_hash, sizeof my_hash, hashes);         // to all, in order of rank
//   for (...) { bootstrap_progress(b, step, RANK_TRAINS); ... }
//   bootstrap_close(b);                                            // all wait for each other here
//
// The key tells runs apart that meet by mistake. It is no secret and keeps no attacker away: as MPI and NCCL do, this
// trusts the network. Strangers (port scanners, browsers) are turned away without harm.
#pragma once
#include "launch.h"

enum { BOOTSTRAP_MOST_BYTES = 1 << 20 }; // of one exchange, all ranks' parts together

typedef struct Bootstrap Bootstrap;

// What a rank's main thread is doing, as others are told when something is wrong.
typedef enum { RANK_SETS_UP, RANK_TRAINS, RANK_VALIDATES, RANK_SAMPLES, RANK_SAVES, RANK_ENDS } RankActivity;

// Waits until all ranks are there. `key` is any text that must be the same in all of them, such as the program's version;
// the launch's run id is added to it. NULL if not all came within the time, with a message that says who is missing or
// what was not reached, or if a rank does not belong (another key, version or number of ranks; a rank that is there
// already). Silence of another rank for `timeout_seconds` ends the process from then on. With a launch of one process
// all functions here do nothing or copy.
static inline Bootstrap* bootstrap_open(const Launch* launch, const char* key, double timeout_seconds, Error* err);

// These three are collective: every rank calls them in the same order, from one thread at a time, at any time between
// open and close. They wait as long as all ranks live, however late one of them comes, and end the process with a
// message when ranks do not call the same one with the same number of bytes.
//
// Rank 0's bytes to all.
static inline void bootstrap_broadcast(Bootstrap* b, void* data, size_t bytes);
// Each rank's bytes to all: `all` has room for size * bytes, in order of rank. size * bytes <= BOOTSTRAP_MOST_BYTES.
static inline void bootstrap_gather(Bootstrap* b, const void* mine, size_t bytes, void* all);
static inline void bootstrap_barrier(Bootstrap* b);

// The name of a rank's machine.
static inline const char* bootstrap_host(const Bootstrap* b, int rank);

// Tells the others where this rank is: before each step, and before whatever else takes long. Cheap, never waits.
// A run is taken for hung, and ended, when all ranks say that they train, and none has told of a new step for ten
// time-outs and twenty times the longest step so far, after at least two steps. One rank that validates, samples or
// saves while the others wait for it stops the clock, as long as it takes.
static inline void bootstrap_progress(Bootstrap* b, long long step, RankActivity activity);

// An orderly end: waits for all ranks to call it, then gives the memory back. A process that ends without it, by exit()
// or a signal, is missed by the others: they wait a second, so that ranks which all end for the same reason do so with
// their own messages and exit codes, then end as described above.
static inline void bootstrap_close(Bootstrap* b);
