// Sockets: listen, accept, connect, send. Every socket is non-blocking, closed on exec, and never raises SIGPIPE.
// Deadlines are moments of seconds_now().
#pragma once
#include "../base/base.h"
#include <sys/socket.h>

BEGIN_C

// Returns the milliseconds until a moment, at least 0, for poll().
int poll_until(double moment);

// Sleeps for so many seconds; signals do not shorten them.
void sleep_seconds(double seconds);

// Raises the limit of open files for so many sockets, as far as the system allows. Beyond that, opening one fails.
void allow_sockets(int count);

// Returns a TCP socket that listens at a free port of `address` alone, a name or number of this machine, and sets
// `port`; so a run on one machine (localhost) cannot be reached from others. It listens on all interfaces if `address`
// is none of this machine's here (the other machines' name for it, behind a router or in a container), or a name with
// several addresses, or a loopback address that stands for the machine's name (127.0.1.1 in Debian's /etc/hosts). -1
// and a message on failure.
int tcp_listen(const char* address, int* port, Error* err);

// Returns the next connection of a listening socket; -1 and errno if there is none.
int tcp_accept(int listener);

// Returns a connection to a host (a name or a number), after trying each of its addresses once, for at most 5 s each.
// -1 and a message on failure.
int tcp_connect(const char* address, int port, double deadline, Error* err);

// Sends all bytes, waiting until the other end takes them. False if the connection is lost or the deadline has passed.
bool socket_send(int fd, const void* data, size_t bytes, double deadline);

END_C
