#include "ranks.h"
#include "requests.h"

// Seconds of a micro-batch from which on ranks ask each other between two whether to stop, by a message of less than a
// millisecond (chosen).
static const double SLOW_BATCH = 0.5;

void ranks_open(Ranks* r, Comm* comm, const Backend* b) {
    *r = (Ranks){.comm = comm, .mailbox = b->host_alloc(sizeof *r->mailbox, "sums of a step"),
                 .is_slow = true}; // until a step has shown otherwise
}

void ranks_close(Ranks* r, const Backend* b) { b->host_free(r->mailbox); }

void ranks_look(Ranks* r) {
    if (r->comm->size == 1 && request_to_stop()) { r->stops = true; }
}

bool ranks_leave_step(Ranks* r) { return (r->comm->size == 1 || r->is_slow) && ranks_are_interrupted(r); }

bool ranks_are_interrupted(void* ranks) {
    Ranks* r = ranks;
    if (!comm_all(r->comm, !request_to_stop())) { r->stops = true; }
    return r->stops;
}

void ranks_vote(Ranks* r, const Optimizer* o, bool saves, double seconds, long long rounds) {
    const GPT2* g = o->model;
    Mailbox* mail = r->mailbox;
    mail->votes[0] = request_to_stop() != NULL;
    mail->votes[1] = request_to_save() || saves;
    mail->votes[2] = seconds > (double)rounds * SLOW_BATCH;
    g->backend->device_send(&g->sums[SUM_STOP], mail->votes, sizeof mail->votes);
    // without ZeRO each rank has the norm of the whole gradient: only the sums before SUM_NORM are reduced
    comm_all_reduce_sums(r->comm, g->sums, o->zero_group ? NUM_SUMS : SUM_NORM);
    g->backend->device_fetch(mail->sums, g->sums, sizeof mail->sums);
}

void ranks_count_votes(Ranks* r) {
    const double* sums = r->mailbox->sums;
    r->stops = sums[SUM_STOP] > 0;
    r->saves = sums[SUM_SAVE] > 0;
    r->is_slow = sums[SUM_SLOW] > 0;
}
