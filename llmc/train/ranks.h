// The ranks of a run: requests to stop or to save (requests.h) become votes, and all ranks obey after the same step.
#pragma once
#include "../comm/comm.h"
#include "../model/optimizer.h"

// Host memory for copies to and from the device while work goes on there (Backend.host_alloc).
typedef struct {
    double sums[NUM_SUMS]; // fetched from the device: the sums of a step
    double votes[3];       // sent to the device, SUM_STOP to SUM_SLOW: 1 or 0
} Mailbox;

typedef struct {
    Comm* comm;
    Mailbox* mailbox;
    bool stops;   // a rank was asked to stop
    bool saves;   // a rank was asked to save, or its last save failed
    bool is_slow; // a micro-batch takes long on some rank: ranks ask each other between two whether to stop
} Ranks;

void ranks_open(Ranks* r, Comm* comm, const Backend* b);
void ranks_close(Ranks* r, const Backend* b);

// Takes a request to stop of a run of one process, which has no votes to wait for.
void ranks_look(Ranks* r);

// Returns true if the run is to stop now, between two batches of validation or of test sets, and notes that. All ranks
// call it at the same places. ranks: a Ranks.
bool ranks_are_interrupted(void* ranks);

// The same between two micro-batches. If these are fast, several ranks stop only between steps.
bool ranks_leave_step(Ranks* r);

// Queues the vote of this rank after a step of `rounds` micro-batches that has taken so long, the sum of all ranks'
// losses, votes and, with ZeRO, norms, and their way to mailbox->sums. saves: save again, whoever asks.
void ranks_vote(Ranks* r, const Optimizer* o, bool saves, double seconds, long long rounds);

// Obeys the votes, once the device has ended its work.
void ranks_count_votes(Ranks* r);
