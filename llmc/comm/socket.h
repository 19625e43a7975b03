// TCP sockets: listen, connect, send. Every socket is non-blocking, closed on exec, and never raises SIGPIPE. Deadlines
// are moments of seconds_now().
#pragma once
#include "../base/base.h"
#include <sys/socket.h>

BEGIN_C

// Returns the milliseconds until a moment, at least 0, for poll().
int poll_until(double moment);

// Sleeps for so many seconds; signals do not shorten them.
void sleep_seconds(double seconds);

// Returns a new TCP socket of a family (AF_INET, AF_INET6); -1 and errno on failure.
int tcp_socket(int family);

// Binds a socket with SO_REUSEADDR; one of AF_INET6 takes IPv4 too. False and errno on failure.
bool tcp_bind(int fd, const struct sockaddr* a, socklen_t length);

// Returns a socket that listens at a port of `address` alone, a name or number of this machine, so that a run on one
// machine (localhost) cannot be reached from others. It listens on all interfaces if `address` is none of this
// machine's here (the other machines' name for it, behind a router or in a container), or a loopback address that
// stands for the machine's name (127.0.1.1 in Debian's /etc/hosts). -1 and a message that names the port on failure.
int tcp_listen(const char* address, int port, Error* err);

// Returns a connection to a host (a name or a number), after trying each of its addresses once, for at most 5 s each.
// -1 and a message on failure.
int tcp_connect(const char* address, int port, double deadline, Error* err);

// Sets the options of a connection: small messages are sent at once (TCP_NODELAY), and an idle connection is probed
// (SO_KEEPALIVE).
void tcp_prepare(int fd);

// Writes the peer's address to `name`, as "10.0.0.7 port 29500".
void tcp_peer_name(int fd, char* name, size_t size);

// Sends all bytes, waiting until the other end takes them. False if the connection is lost or the deadline has passed.
bool tcp_send(int fd, const void* data, size_t bytes, double deadline);

END_C
