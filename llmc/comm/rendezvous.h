// Connects the ranks of a run. Rank 0 listens, sends a challenge to whoever connects, and admits the processes whose
// Hello (frame.h) proves that they know the run's secret (secret.h) and has the run's key. Every other rank connects to
// it and sends its Hello until it is admitted, and believes an answer only with rank 0's own proof. Used by connect.c
// alone; tests and the fuzzer call the single steps.
#pragma once
#include "../base/base.h"
#include "frame.h"
#include "launch.h"
#include <poll.h>

enum { MAX_VISITORS = 64, HELLO_SECONDS = 5, ADDRESS_BYTES = 80 }; // chosen

// A connection that rank 0 has accepted but not admitted: of a rank, or of any other program.
typedef struct {
    int fd;       // -1: none
    double until; // its hello must arrive before
    FrameReader reader;
    Challenge challenge; // sent to it
    char address[ADDRESS_BYTES];
} Visitor;

typedef struct {
    const Launch* launch;
    Secret secret;
    uint64_t key;
    const char* host;                 // this machine
    double seconds;                   // how long to wait for the ranks, for messages
    int* fds;                         // result: the connection to each rank, -1 if there is none
    char (*hosts)[HOST_BYTES];        // result, in order of rank
    char (*addresses)[ADDRESS_BYTES]; // for messages, in order of rank
    // rank 0 alone
    int listener, missing, refused; // the socket; ranks not admitted yet; processes refused so far
    char refusal[FRAME_TEXT_BYTES]; // why the last one was refused, for messages
    Visitor visitors[MAX_VISITORS];
    struct pollfd* polled; // 1 + MAX_VISITORS + size: the listener, the visitors, the ranks
} Rendezvous;

BEGIN_C

// Rank 0: listens until all ranks are admitted, and tells them so. False if a rank is missing at the deadline or has
// ended, or if the port cannot be used; then the admitted ranks are told why.
bool rendezvous_host(Rendezvous* r, double deadline, Error* err);

// Rank 0: handles the next event: a connection, a visitor's bytes, a visitor's or the run's deadline. False as above.
bool rendezvous_step(Rendezvous* r, double deadline, Error* err);

// Rank 0: answers the frame that a visitor has sent. A rank of this run is admitted, any other rank is told why it is
// refused, any other program is disconnected. The visitor's place is free afterwards.
void rendezvous_receive(Rendezvous* r, Visitor* v);

// Closes the visitor's connection, if any, and frees its place.
void visitor_close(Visitor* v);

// The other ranks: connects to rank 0 and sends a Hello, again and again until this rank is admitted, then waits until
// all are. Fails if that has not happened at the deadline, or if rank 0 refuses this rank.
bool greet(Rendezvous* r, double deadline, Error* err);

END_C
