// The ranks of a run connect to rank 0 by TCP. Rank 0 listens at a free port and draws two random tokens; the other
// ranks learn address, port and tokens, an Endpoint, in one of two ways:
//
//   RENDEZVOUS_MPI    mpi_init broadcasts it
//   RENDEZVOUS_FILE   rank 0 writes it to FOLDER/.tmp-ranks-HASH, which its user alone may read. The hash tells runs
//                     apart that are started in the same folder. Rank 0 removes the file when all ranks are connected.
//                     A file that a dead run has left does no harm: whoever answers at that address does not know its
//                     tokens, and ranks read it again until they reach rank 0. The next run in the folder overwrites
//                     it or, since its name begins with .tmp-, removes it.
//
// A rank shows its token in its Hello (frame.h), rank 0 shows the other one in its Welcome. Rank 0 closes any other
// connection without a byte in answer, and a rank leaves whoever does not know rank 0's token. Tokens and all that
// follows travel unencrypted: like MPI and NCCL, this trusts the network between the machines (SECURITY.md).
#pragma once
#include "launch.h"
#include "watchdog.h"

enum { MAX_VISITORS = 64, HELLO_SECONDS = 5 }; // chosen

// A connection that rank 0 has accepted but not admitted: of a rank, or of any other program.
typedef struct {
    int fd;       // -1: none
    double until; // its hello must arrive before
    FrameReader reader;
} Visitor;

// Rank 0's end.
typedef struct {
    Connection* connection; // its watchdog runs
    Endpoint endpoint;
    int listener;
    int missing; // ranks not admitted yet
    char* path;  // of the file, or NULL
    Visitor visitors[MAX_VISITORS];
} Rendezvous;

BEGIN_C

// Rank 0: listens at a free port of `address`, draws tokens and sets the endpoint. NULL: this machine's name for
// others, MASTER_ADDR or else its host name. Returns the listening socket; -1 and a message on failure.
int endpoint_open(Endpoint* e, const char* address, Error* err);

// Returns the path of the launch's file; NULL unless it uses one. The caller frees it.
char* endpoint_path(const Launch* launch);

// Rank 0: listens, and writes the file unless MPI has told the other ranks. Fails if there is no port or no folder.
bool rendezvous_open(Rendezvous* r, Connection* c, const Launch* launch, Error* err);

// Rank 0: waits until all ranks are admitted to the connection, then removes the file and stops to listen. After
// `seconds` the process ends with an error that names the missing ranks, to all others too.
void rendezvous_admit(Rendezvous* r, double seconds);

// Rank 0: handles the next event: a connection, a visitor's bytes, a visitor's deadline. Returns at `deadline`.
void rendezvous_step(Rendezvous* r, double deadline);

// Rank 0: answers the frame that a visitor has sent. A rank of this run is admitted, or told why it is refused. Any
// other program is disconnected without an answer. The visitor's place is free afterwards.
void rendezvous_receive(Rendezvous* r, Visitor* v);

// The other ranks: connects to rank 0 and sends a Hello, again and again until this rank is admitted to the connection.
// Fails if that has not happened after `seconds`, or if rank 0 refuses this rank.
bool greet(Connection* c, const Launch* launch, double seconds, Error* err);

END_C
