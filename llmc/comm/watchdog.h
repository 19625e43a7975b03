// The watchdog: a thread that reads from all connected ranks, exchanges heartbeats with them, and ends the process when
// a rank is gone or hangs. Used by connect.c, whose head says what users see.
//
// Silence is summed over the thread's turns, each counted as two heartbeat intervals at most. So the other ranks do not
// seem silent after this process was suspended as a whole (SIGSTOP, a sleeping machine, a debugger).
#pragma once
#include "../base/base.h"
#include "frame.h"
#include <pthread.h>

#define NO_DEADLINE 1e18

// Activity of a rank's main thread: for messages, and for finding hangs.
typedef enum {
    RANK_SETS_UP,
    RANK_CONNECTS, // its device with those of the others
    RANK_TRAINS,
    RANK_VALIDATES,
    RANK_SCORES,
    RANK_SAMPLES,
    RANK_SAVES,
    RANK_ENDS,
    NUM_ACTIVITIES
} RankActivity;

// Another rank. In this rank's own entry only step, activity and progress are used.
typedef struct {
    int fd;                  // -1: not connected to this rank; set by watchdog_add
    pthread_mutex_t sending; // held while a frame is sent, so that frames do not mix
    // used by the watchdog thread alone
    FrameReader reader;
    double silence; // seconds since the last byte
    // under Connection.lock
    FrameHeader part_header;
    uint8_t* part;     // its part of the current exchange, until the main thread takes it
    bool may_end;      // all ranks are done, so it may disconnect
    bool ended;        // it has disconnected
    long long step;    // as its last heartbeat said
    uint32_t activity, progress;
    double heard;      // when that came, seconds_now()
} Peer;

typedef struct {
    int rank, size;
    double timeout;            // seconds of silence after which a rank is lost
    Peer* peers;               // for each rank; rank 0 is connected to all, the others to rank 0
    char (*hosts)[HOST_BYTES]; // for each rank; written under the lock
    uint32_t sequence;         // number of the current exchange

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; // a part has arrived, or a rank has disconnected
    int wake;               // an eventfd that ends the thread's poll()
    bool stop, ending;      // under the lock

    // under the lock: returns the failure of collectives that will never end, or NULL (watchdog_watch)
    const char* (*failure)(void* state);
    void* failure_state;

    // used by the watchdog thread of rank 0 alone: a hash of what all ranks have reported, the time since it changed,
    // and the longest time after which it changed
    uint64_t reported;
    double unchanged_seconds, longest_unchanged;
} Connection;

BEGIN_C

// Starts the thread. Ends the program if it cannot be started.
void watchdog_start(Connection* c);

// Adds the connection to a rank and the name of its host. From now on the thread reads it, and nobody else does.
void watchdog_add(Connection* c, int rank, int fd, const char* host);

// Ends the thread and waits for it.
void watchdog_stop(Connection* c);

// Ends the process with this message and exit code 1, and on rank 0 all other ranks too. May be called by any thread;
// the first call counts.
void ATTR_NORETURN ATTR_PRINTF(2, 3) watchdog_fatal(Connection* c, const char* fmt, ...);

// Reports this rank's step and activity to the others: before each step, and before anything else that takes long.
// Cheap; never waits. Another activity is sent at once, a step with the next heartbeat.
void watchdog_report_activity(Connection* c, long long step, RankActivity activity);

// Rank 0: ends the run as hung if no rank has advanced, by a step, a micro-batch or a batch (progress()), for the
// longest of ten minutes, ten time-outs and, unless a rank connects its device, twenty times the longest wait so far
// (all chosen, not measured). Only time in which all ranks train, validate or score, or one connects, counts.
// `elapsed`: seconds since the last call.
void watchdog_check_progress(Connection* c, double elapsed);

// From now on the thread calls failure(state) in each interval, and ends the process if that returns a text. NULL: no
// more.
void watchdog_watch(Connection* c, const char* (*failure)(void* state), void* state);

// From now on the other ranks may disconnect.
void watchdog_allow_end(Connection* c);

// Rank 0: waits until all others have disconnected. If rank 0 disconnected first, with heartbeats unread, the kernel
// would reset the connections, and the last answer on its way to the others could be lost.
void watchdog_wait_for_ends(Connection* c);

END_C
