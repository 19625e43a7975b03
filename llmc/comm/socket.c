#include "socket.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>

int poll_until(double moment) {
    const double left = moment - seconds_now();
    return left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(1e3 * left) + 1;
}

void sleep_seconds(double seconds) {
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

void allow_sockets(int count) {
    struct rlimit limit;
    const rlim_t need = (rlim_t)count + 256; // data, logs, the libraries' own
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) { return; }
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) { notice("warning: cannot open more files: %s", strerror(errno)); }
}

// Sets the options of a connection: small messages are sent at once (TCP_NODELAY), and an idle connection is probed
// (SO_KEEPALIVE).
static void tcp_prepare(int fd) {
    const int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0) {
        notice("warning: cannot set TCP_NODELAY and SO_KEEPALIVE of a connection between ranks: %s", strerror(errno));
    }
}

static int tcp_socket(int family) { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

static bool tcp_bind(int fd, const struct sockaddr* a, socklen_t length) {
    const int off = 0;
    if (a->sa_family == AF_INET6) { // accepts IPv4 connections too
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) { return false; }
    }
    return bind(fd, a, length) == 0;
}

static bool is_loopback(const struct sockaddr* a) {
    if (a->sa_family == AF_INET) { return ntohl(((const struct sockaddr_in*)a)->sin_addr.s_addr) >> 24 == 127; }
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6*)a)->sin6_addr);
}

// Returns the addresses of a host (a name, a number, or NULL: this machine's, to listen at); the caller frees the list.
// Returns NULL and sets *error to getaddrinfo's error if there are none.
static struct addrinfo* tcp_resolve(const char* host, int port, int flags, int* error) {
    struct addrinfo hints, *list = NULL;
    char service[8];
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    snprintf(service, sizeof service, "%d", port);
    *error = getaddrinfo(host, service, &hints, &list);
    return *error ? NULL : list;
}

// Listens at a free port of the first of these addresses that this machine has; that of all interfaces for IPv6 takes
// IPv4 too, so IPv6 is tried first. -1 and errno on failure.
static int tcp_listen_one(const struct addrinfo* list) {
    int last = EADDRNOTAVAIL;
    for (int pass = 0; pass < 2; pass++) {
        for (const struct addrinfo* a = list; a; a = a->ai_next) {
            if (a->ai_family != (pass ? AF_INET : AF_INET6)) { continue; }
            const int fd = tcp_socket(a->ai_family);
            if (fd >= 0 && tcp_bind(fd, a->ai_addr, a->ai_addrlen) && listen(fd, SOMAXCONN) == 0) { return fd; }
            last = errno;
            if (fd >= 0) { close(fd); }
        }
    }
    errno = last;
    return -1;
}

// Returns true if the address is a number, such as 127.0.0.1 or ::1, and no name.
static bool is_number(const char* address) {
    int error;
    struct addrinfo* list = tcp_resolve(address, 0, AI_NUMERICHOST, &error);
    if (!list) { return false; }
    freeaddrinfo(list);
    return true;
}

// Returns true if others may know the name of this machine for another address than the one that would be listened at:
// where the name has several here (of IPv4 and IPv6, or of two networks), and where it stands for a loopback address by
// /etc/hosts.
static bool is_ambiguous(const char* address, const struct addrinfo* list) {
    for (const struct addrinfo* a = list->ai_next; a && !is_loopback(list->ai_addr); a = a->ai_next) {
        if (a->ai_addrlen != list->ai_addrlen || memcmp(a->ai_addr, list->ai_addr, a->ai_addrlen)) { return true; }
    }
    return is_loopback(list->ai_addr) && strcmp(address, "localhost") != 0 && !is_number(address);
}

static int port_of(int fd) {
    char port[8] = "";
    struct sockaddr_storage a;
    socklen_t length = sizeof a;
    if (getsockname(fd, (struct sockaddr*)&a, &length) == 0) {
        getnameinfo((struct sockaddr*)&a, length, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    }
    return atoi(port);
}

int tcp_listen(const char* address, int* port, Error* err) {
    int error, fd = -1;
    struct addrinfo* list = tcp_resolve(address, 0, 0, &error);
    errno = EADDRNOTAVAIL;
    if (list && !is_ambiguous(address, list)) { fd = tcp_listen_one(list); }
    if (list) { freeaddrinfo(list); }
    if (fd < 0 && errno == EADDRNOTAVAIL && (list = tcp_resolve(NULL, 0, AI_PASSIVE, &error)) != NULL) {
        fd = tcp_listen_one(list);
        freeaddrinfo(list);
    }
    if (fd < 0) { fail(err, "rank 0 cannot listen at a port of %s: %s", address, strerror(errno)); }
    else { *port = port_of(fd); }
    return fd;
}

int tcp_accept(int listener) {
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) { tcp_prepare(fd); }
    return fd;
}

// Connects to one address until a deadline; -1 and errno on failure.
static int tcp_connect_one(const struct addrinfo* a, double deadline) {
    struct pollfd p = {tcp_socket(a->ai_family), POLLOUT, 0};
    int error = 0, ready;
    socklen_t length = sizeof error;
    if (p.fd < 0) { return -1; }
    if (connect(p.fd, a->ai_addr, a->ai_addrlen) != 0) {
        if (errno != EINPROGRESS && errno != EINTR) { error = errno; }
        while (!error && (ready = poll(&p, 1, poll_until(deadline))) <= 0) {
            if (ready == 0) { error = ETIMEDOUT; }
            else if (errno != EINTR) { error = errno; }
        }
        if (!error && getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) { error = errno; }
    }
    if (!error) { tcp_prepare(p.fd); return p.fd; }
    close(p.fd);
    errno = error;
    return -1;
}

int tcp_connect(const char* address, int port, double deadline, Error* err) {
    int error, fd = -1;
    struct addrinfo* list = tcp_resolve(address, port, 0, &error);
    if (!list) { fail(err, "%s", error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error)); return -1; }
    for (struct addrinfo* a = list; a && fd < 0; a = a->ai_next) {
        const double limit = seconds_now() + 5; // a machine that is off does not answer at all
        fd = tcp_connect_one(a, limit < deadline ? limit : deadline);
        if (fd < 0) { fail(err, "%s", strerror(errno)); }
    }
    freeaddrinfo(list);
    return fd;
}

bool socket_send(int fd, const void* data, size_t bytes, double deadline) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(fd, (const char*)data + done, bytes - done, MSG_NOSIGNAL);
        if (n >= 0) { done += (size_t)n; continue; }
        if (errno == EINTR) { continue; }
        struct pollfd p = {fd, POLLOUT, 0};
        if (errno != EAGAIN && errno != EWOULDBLOCK) { return false; }
        if (poll(&p, 1, poll_until(deadline)) == 0) { return false; }
    }
    return true;
}
