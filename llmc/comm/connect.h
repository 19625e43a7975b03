// Connections between the ranks: they exchange small data, and notice when one of them is gone.
//
// Rank 0 is connected to all others: a star. On one machine the ranks of --gpus inherit these sockets, other ranks
// connect by TCP (rendezvous.h). In each process a watchdog thread, started by connection_open, does all reading. It
// sends and receives a heartbeat every second, and so notices a rank that has died, was stopped, or whose network is
// cut, whatever the main thread is waiting for. It then ends the process with exit code 1 (by _exit, since the main
// thread may hang in NCCL) and one message, which names the rank, its host, its last step and its activity. All ranks
// end so, since rank 0 passes the message on.
//
//   Connection* c = connection_open(&launch, 300, 60, &err);
//   connection_broadcast(c, &nccl_id, sizeof nccl_id);              // from rank 0
//   connection_gather(c, &my_hash, sizeof my_hash, hashes);         // to all, in order of rank
//   for (...) { watchdog_report_activity(c, step, RANK_TRAINS); ... }
//   connection_close(c);                                            // all wait for each other here
#pragma once
#include "../base/base.h"
#include "launch.h"
#include "watchdog.h"

BEGIN_C

// Connects all ranks and starts the watchdog. Returns NULL if rank 0 cannot be reached within `connect_seconds` or
// refuses this rank, with a message that names its address. If a rank is missing after `connect_seconds`, all processes
// end with a message that names it. From then on, silence of a rank for `silence_seconds` ends the process. The launch
// has several processes.
Connection* connection_open(const Launch* launch, double connect_seconds, double silence_seconds, Error* err);

// Waits until all ranks call it, disconnects and frees. If a process ends without calling it, by exit() or a signal,
// the others end as described above, one second later: ranks that all end for the same reason have printed their own
// messages by then.
void connection_close(Connection* c);

// Returns the name of a rank's machine.
const char* connection_host(const Connection* c, int rank);

// ---------------------------------------------------------------------------------------------------------------------
// exchanges
//
// All ranks call the same ones in the same order, between connection_open and connection_close. They wait for a late
// rank as long as it lives. If ranks call different ones, or with different numbers of bytes, the process ends with a
// message.

// Copies rank 0's bytes to all; at most MAX_FRAME_BYTES.
void connection_broadcast(Connection* c, void* data, size_t bytes);

// Copies each rank's bytes to all: `all` has room for size * bytes, at most MAX_FRAME_BYTES, in order of rank.
void connection_gather(Connection* c, const void* mine, size_t bytes, void* all);

// Returns when all ranks have called it.
void connection_barrier(Connection* c);

END_C
