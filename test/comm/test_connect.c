// Ranks as processes on the loopback: they connect and exchange data, strangers are refused, and every way for a rank
// to end is noticed.
//
//   test_connect --as-rank SECONDS TIMEOUT FOLDER     a rank as launch_detect finds it, for hosts.sh
#include "llmc/comm/comm.h"
#include "llmc/comm/connect.h"
#include "llmc/comm/frame.h"
#include "llmc/comm/launch.h"
#include "llmc/comm/rendezvous.h"
#include "llmc/comm/socket.h"
#include "test/test.h"
#include <stdatomic.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { MAX_TEST_RANKS = 64 };

typedef struct {
    Launch launch;
    pid_t pid;
    FILE* errors;
} Child;

typedef void Body(const Launch* launch);
static double test_timeout;  // of the ranks that are started next
static double test_patience; // seconds that they have to connect

// A number for a run whose ranks meet by a file in test_folder.
static int new_run(void) {
    static int runs = 0;
    return ++runs;
}

static Launch launch_of(int rank, int size, int run) {
    Launch l;
    memset(&l, 0, sizeof l);
    l.rendezvous = RENDEZVOUS_FILE;
    l.rank = rank;
    l.size = size;
    l.launcher = "a test";
    l.folder = test_folder;
    l.run = (uint64_t)run;
    return l;
}

static void start_launch(Child* c, Launch launch, Body* body) {
    c->launch = launch;
    c->errors = tmpfile();
    fflush(stdout);
    c->pid = fork();
    if (c->pid != 0) { return; }
    dup2(fileno(c->errors), STDERR_FILENO);
    dup2(fileno(c->errors), STDOUT_FILENO);
    body(&c->launch);
    _exit(0);
}

static void start(Child* c, int rank, int size, int run, Body* body) {
    start_launch(c, launch_of(rank, size, run), body);
}

// Waits for a rank's end and checks its exit code (128 + the number of a signal) and output.
static void finish(Child* c, int code, const char* words) {
    static char text[1 << 16];
    int status = 0;
    waitpid(c->pid, &status, 0);
    rewind(c->errors);
    text[fread(text, 1, sizeof text - 1, c->errors)] = 0;
    fclose(c->errors);
    const int got = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (got != code || !strstr(text, words)) {
        TEST_FAIL("rank %d: exit code %d, expected %d and \"%s\"; it said: %s", c->launch.rank, got, code, words, text);
    }
    const char* first = strstr(text, "error: ");
    if (first && strstr(first + 1, "error: ")) { TEST_FAIL("rank %d says it twice: %s", c->launch.rank, text); }
}

static void begin(double timeout) { test_timeout = test_patience = timeout; }

static Connection* open_or_die(const Launch* launch) {
    Error err;
    Connection* c = connection_open(launch, test_patience, test_timeout, &err);
    if (!c) { notice("error: %s", err.text); _exit(1); }
    return c;
}

static void check(bool ok, const char* what) {
    if (!ok) { notice("wrong: %s", what); _exit(99); }
}
#define CHECK(cond) check(cond, #cond)

static void run_all(int size, Body* body, int code, const char* words) {
    Child c[MAX_TEST_RANKS];
    const int run = new_run();
    for (int i = 0; i < size; i++) { start(&c[i], i, size, run, body); }
    for (int i = 0; i < size; i++) { finish(&c[i], code, words); }
}

// ---------------------------------------------------------------------------------------------------------------------
// exchanges

static void exchange_body(const Launch* l) {
    Connection* c = open_or_die(l);
    enum { MANY = 100000 };
    static unsigned char data[MANY];
    uint64_t mine[3], all[3 * MAX_TEST_RANKS];
    char host[HOST_BYTES] = {0};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++) { data[i] = (unsigned char)(l->rank ? 0 : mix64(i + (size_t)round)); }
        connection_broadcast(c, data, MANY);
        for (size_t i = 0; i < MANY; i++) { CHECK(data[i] == (unsigned char)mix64(i + (size_t)round)); }
        for (uint64_t i = 0; i < 3; i++) { mine[i] = mix64((uint64_t)l->rank * 3 + i + (uint64_t)round); }
        connection_gather(c, mine, sizeof mine, all);
        for (uint64_t i = 0; i < 3 * (uint64_t)l->size; i++) { CHECK(all[i] == mix64(i + (uint64_t)round)); }
        connection_barrier(c);
    }
    connection_broadcast(c, data, 0);
    connection_gather(c, mine, 0, all);
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < l->size; i++) { CHECK(!strcmp(connection_host(c, i), host)); }
    connection_close(c);
}

TEST(two_to_eight_ranks_exchange) {
    begin(20);
    for (int size = 2; size <= 8; size++) { run_all(size, exchange_body, 0, ""); }
}

TEST(sixty_four_ranks_exchange) {
    begin(60);
    run_all(64, exchange_body, 0, "");
}

static void sum_body(const Launch* l) {
    enum { MANY = MAX_FRAME_BYTES / 8 + 1 }; // more of each rank than fits into one frame
    static double x[MANY];
    Comm comm = {.rank = l->rank, .size = l->size, .peers = open_or_die(l)};
    for (size_t i = 0; i < MANY; i++) { x[i] = (double)i * (l->rank + 1); }
    comm_all_reduce_host(&comm, x, MANY);
    for (size_t i = 0; i < MANY; i++) { CHECK(x[i] == (double)i * (l->size * (l->size + 1) / 2)); }
    comm_all_reduce_host(&comm, x, 0);
    CHECK(comm_min_host(&comm, (size_t)(l->size - l->rank)) == 1); // the last rank's
    CHECK(comm_min_host(&comm, (size_t)l->rank) == 0);
    connection_close(comm.peers);
}

TEST(sums_of_any_length_and_the_smallest_number) {
    begin(20);
    for (int size = 2; size <= 3; size++) { run_all(size, sum_body, 0, ""); }
}

static void late_body(const Launch* l) {
    if (l->rank % 2 == 0) { sleep_seconds(0.3); }
    exchange_body(l);
}

TEST(late_ranks_are_waited_for) { // rank 0 too
    begin(20);
    run_all(4, late_body, 0, "");
}

static void ipv6_body(const Launch* l) {
    setenv("MASTER_ADDR", "::1", 1);
    exchange_body(l);
}

static void by_name_body(const Launch* l) {
    setenv("MASTER_ADDR", "localhost", 1);
    exchange_body(l);
}

TEST(names_and_ipv6) {
    begin(20);
    run_all(3, by_name_body, 0, "");
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a;
    memset(&a, 0, sizeof a);
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_loopback;
    if (fd < 0 || bind(fd, (struct sockaddr*)&a, sizeof a) != 0) { SKIP("no IPv6 here"); }
    close(fd);
    run_all(3, ipv6_body, 0, "");
}

// Ranks wait for a part of an exchange past the time-out, as long as all live; likewise for the end.
static void patient_body(const Launch* l) {
    Connection* c = open_or_die(l);
    int mine = l->rank, all[MAX_TEST_RANKS];
    if (l->rank == 1) { sleep_seconds(1.5 * test_timeout); }
    connection_gather(c, &mine, sizeof mine, all);
    CHECK(all[2] == 2);
    if (l->rank == 0) { sleep_seconds(1.5 * test_timeout); }
    connection_close(c);
}

TEST(a_slow_main_thread_is_no_dead_rank) {
    begin(1);
    run_all(3, patient_body, 0, "");
}

static void mismatch_body(const Launch* l) {
    Connection* c = open_or_die(l);
    char bytes[16 * MAX_TEST_RANKS] = {0};
    connection_barrier(c);
    if (l->rank == 1) { connection_barrier(c); }
    else { connection_gather(c, bytes, 16, bytes); }
    connection_close(c);
}
static void sizes_body(const Launch* l) {
    Connection* c = open_or_die(l);
    char bytes[64] = {0};
    connection_broadcast(c, bytes, l->rank == 2 ? 63 : 64);
    connection_close(c);
}
static void early_end_body(const Launch* l) {
    Connection* c = open_or_die(l);
    if (l->rank == 1) { connection_barrier(c); }
    connection_close(c);
}
static void parts_body(const Launch* l) {
    Connection* c = open_or_die(l);
    char part[8] = {0}, all[8 * 3];
    connection_gather(c, part, l->rank == 1 ? 4 : 8, all);
    connection_close(c);
}

TEST(ranks_that_do_different_things_end) {
    begin(20);
    run_all(3, early_end_body, 1, "a barrier of 0 bytes; number 2, the end of 0 bytes");
    run_all(3, parts_body, 1, "a gather of 4 bytes; number 2, a gather of 8 bytes");
    run_all(3, mismatch_body, 1, "a barrier of 0 bytes; number 3, a gather of 16 bytes");
    run_all(3, sizes_body, 1, "expects another number of bytes than rank 0");
}

// ---------------------------------------------------------------------------------------------------------------------
// the rendezvous

static char* file_of(int run) {
    const Launch l = launch_of(0, 2, run);
    return endpoint_path(&l);
}

static void write_endpoint(int run, const Endpoint* e) {
    Error err;
    char* path = file_of(run);
    EXPECT(write_file_atomically(path, (const char*)e, sizeof *e, &err));
    free(path);
}

// Waits for rank 0's file and returns its endpoint.
static Endpoint read_endpoint(int run) {
    Endpoint e;
    Error err;
    size_t size;
    char *path = file_of(run), *text = NULL;
    for (int i = 0; i < 3000 && !(text = read_file(path, &size, &err)); i++) { sleep_seconds(0.01); }
    if (!text || size != sizeof e) { fatal("no file of rank 0"); }
    memcpy(&e, text, sizeof e);
    free(text);
    free(path);
    return e;
}

static int connect_to(const Endpoint* e) {
    Error err;
    const int fd = tcp_connect(e->address, e->port, seconds_now() + 10, &err);
    if (fd < 0) { fatal("%s", err.text); }
    return fd;
}

static Hello hello_of(const Endpoint* e, int rank, int size) {
    Hello h;
    memset(&h, 0, sizeof h);
    memcpy(h.token, e->rank_token, TOKEN_BYTES);
    h.rank = (uint32_t)rank;
    h.size = (uint32_t)size;
    snprintf(h.host, sizeof h.host, "hand\nmade");
    return h;
}

// Returns true if the next frame is a Welcome.
static bool read_welcome(int fd, Welcome* w) {
    FrameReader r = {.max_bytes = 0};
    struct pollfd p = {fd, POLLIN, 0};
    FrameState state;
    while ((state = frame_receive(&r, fd)) == FRAME_PART) { poll(&p, 1, 10000); }
    const bool ok = state == FRAME_WHOLE && r.header.type == FRAME_WELCOME;
    if (ok) { memcpy(w, r.payload, sizeof *w); }
    frame_next(&r);
    return ok;
}

// Returns the bytes that came before the end of the connection.
static size_t bytes_until_end(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    char byte;
    size_t bytes = 0;
    for (ssize_t n = -1; n != 0;) {
        if (poll(&p, 1, 60000) <= 0) { fatal("the connection was not closed"); }
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (n < 0 && errno == ECONNRESET) { break; } // rank 0 had not read all of it
        bytes += n > 0;
    }
    return bytes;
}

TEST(hand_made_hellos_are_refused_by_what_is_wrong) {
    static const struct { int rank, size; const char* words; } wrong[] = {
        {0, 2, "waits for ranks 1 to 1"}, {2, 2, "waits for ranks 1 to 1"}, {-1, 2, "waits for ranks 1 to 1"},
        {1, 3, "rank 1 was started as one of 3 ranks"},
    };
    begin(20);
    Child zero, one;
    Welcome welcome;
    const int run = new_run();
    start(&zero, 0, 2, run, exchange_body);
    const Endpoint e = read_endpoint(run);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const Hello h = hello_of(&e, wrong[i].rank, wrong[i].size);
        const int fd = connect_to(&e);
        EXPECT(frame_send(fd, FRAME_HELLO, 0, &h, sizeof h, seconds_now() + 10));
        EXPECT(read_welcome(fd, &welcome) && strstr(welcome.refusal, wrong[i].words));
        EXPECT(bytes_until_end(fd) == 0);
        close(fd);
    }
    start(&one, 1, 2, run, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "refused: rank 1 was started as one of 3 ranks");
}

// A rank that comes twice; then the first one goes, and with it the run. A hello may come byte by byte.
TEST(a_rank_that_is_there_already_is_refused) {
    begin(20);
    Child zero, again;
    Welcome welcome;
    const int run = new_run();
    start(&zero, 0, 3, run, exchange_body);
    const Endpoint e = read_endpoint(run);
    const Hello h = hello_of(&e, 1, 3);
    const int fd = connect_to(&e);
    uint8_t* frame = frame_make(FRAME_HELLO, 0, &h, sizeof h);
    for (size_t i = 0; i < sizeof(FrameHeader) + sizeof h; i++) {
        EXPECT(socket_send(fd, frame + i, 1, seconds_now() + 10));
        sleep_seconds(0.001);
    }
    free(frame);
    EXPECT(read_welcome(fd, &welcome) && !*welcome.refusal);
    EXPECT(!memcmp(welcome.token, e.rank0_token, TOKEN_BYTES));
    start(&again, 1, 3, run, exchange_body);
    finish(&again, 1, "rank 0 refused this process: rank 1 is connected already, on hand?made");
    close(fd);
    finish(&zero, 1, "rank 1 on hand?made ended before the run did");
}

// Without the token there is not a byte in answer: not to a hello with another one, or with rank 0's own, nor to
// anything else. Silent ones and half hellos stay connected all the while, more of them than rank 0 keeps.
TEST(strangers_get_no_answer_and_do_no_harm) {
    enum { SILENT = 1000, LOUD = 7 };
    begin(60);
    Child zero, one;
    int silent[SILENT];
    const int run = new_run();
    allow_sockets(SILENT);
    start(&zero, 0, 2, run, exchange_body);
    const Endpoint e = read_endpoint(run);
    const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const FrameHeader huge = {FRAME_MAGIC, FRAME_HELLO, 0, 0xffffffffu},
                      large = {FRAME_MAGIC, FRAME_GATHER, 0, 1000000};
    const Heartbeat beat = {.step = 1};
    Hello wrong = hello_of(&e, 1, 2), other = wrong;
    wrong.token[TOKEN_BYTES - 1] ^= 1;
    memcpy(other.token, e.rank0_token, TOKEN_BYTES);
    uint8_t garbage[200];
    for (size_t i = 0; i < sizeof garbage; i++) { garbage[i] = (uint8_t)mix64(i); }
    const struct { const void* bytes; size_t size; } loud[LOUD] = {
        {request, strlen(request)}, {garbage, sizeof garbage}, {&huge, sizeof huge}, {&large, sizeof large},
        {frame_make(FRAME_HEARTBEAT, 0, &beat, sizeof beat), sizeof(FrameHeader) + sizeof beat},
        {frame_make(FRAME_HELLO, 0, &wrong, sizeof wrong), sizeof(FrameHeader) + sizeof wrong},
        {frame_make(FRAME_HELLO, 0, &other, sizeof other), sizeof(FrameHeader) + sizeof other},
    };
    for (int i = 0; i < LOUD; i++) {
        const int fd = connect_to(&e);
        EXPECT(socket_send(fd, loud[i].bytes, loud[i].size, seconds_now() + 10));
        EXPECT(bytes_until_end(fd) == 0);
        close(fd);
        if (i > 3) { free((void*)loud[i].bytes); }
    }
    for (int i = 0; i < SILENT; i++) {
        silent[i] = connect_to(&e);
        if (i % 2) { EXPECT(socket_send(silent[i], &huge, 7, seconds_now() + 10)); }
    }
    start(&one, 1, 2, run, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "");
    for (int i = 0; i < SILENT; i++) { close(silent[i]); }
}

// It is for the user alone while ranks are missing, and gone once all are there.
TEST(the_file_is_private_and_does_not_stay) {
    begin(20);
    Child zero, one;
    struct stat info;
    const int run = new_run();
    char* path = file_of(run);
    const mode_t before = umask(0);
    start(&zero, 0, 2, run, exchange_body);
    umask(before);
    const Endpoint e = read_endpoint(run);
    EXPECT(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    EXPECT(memcmp(e.rank_token, e.rank0_token, TOKEN_BYTES) != 0);
    start(&one, 1, 2, run, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "");
    EXPECT(!path_exists(path));
    start(&zero, 0, 2, run, exchange_body);
    start(&one, 1, 2, run, exchange_body); // nothing of the first start keeps the second one from meeting
    finish(&one, 0, "");
    finish(&zero, 0, "");
    free(path);
}

// Accepts one connection after another, reads the hello and answers with these bytes; then the connection stays open.
static void ATTR_NORETURN lie_to_ranks(int listener, const void* lie, size_t bytes) {
    for (;;) {
        FrameReader r = {.max_bytes = 0};
        struct pollfd p = {listener, POLLIN, 0};
        poll(&p, 1, -1);
        p.fd = tcp_accept(listener);
        while (frame_receive(&r, p.fd) == FRAME_PART) { poll(&p, 1, 10000); }
        frame_next(&r);
        socket_send(p.fd, lie, bytes, seconds_now() + 10);
    }
}

// A dead run's file is there, and at its port nobody listens, somebody is silent, or somebody lies. In the end rank 0
// comes.
TEST(an_old_file_misleads_nobody) {
    enum { NOBODY, SILENCE, LIE, MAIL, CASES };
    begin(60);
    const char mail[] = "220 mail.example.org ESMTP\r\n";
    const Welcome lie = {.refusal = "install this program"};
    uint8_t* frame = frame_make(FRAME_WELCOME, 0, &lie, sizeof lie);
    for (int i = 0; i < CASES; i++) {
        Endpoint old;
        Error err;
        Child zero, one;
        const int run = new_run(), listener = endpoint_open(&old, NULL, &err);
        EXPECT(listener >= 0);
        pid_t liar = i == NOBODY ? 0 : fork();
        if (i != NOBODY && liar == 0) {
            lie_to_ranks(listener, i == MAIL ? (const void*)mail : frame,
                         i == MAIL ? strlen(mail) : i == LIE ? sizeof(FrameHeader) + sizeof lie : 0);
        }
        close(listener);
        write_endpoint(run, &old);
        start(&one, 1, 2, run, exchange_body);
        sleep_seconds(0.2); // for rank 1 to be misled; the test passes if it was not yet
        start(&zero, 0, 2, run, exchange_body);
        finish(&zero, 0, "");
        finish(&one, 0, "");
        if (liar > 0) { kill(liar, SIGKILL); waitpid(liar, NULL, 0); }
    }
    free(frame);
}

// Rank 0 listens at the address it is given, so that a run on one machine is not reachable from others; at all
// addresses only if the name is none of this machine's, or stands by /etc/hosts for several or for a loopback address.
TEST(rank_0_listens_where_it_is_told) {
    static const struct { const char* address; bool is_local; } names[] = {
        {"127.0.0.1", true}, {"localhost", true}, {"192.0.2.1", false}, {"no.such.host.invalid", false}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Error err;
        Endpoint e;
        struct sockaddr_storage a;
        socklen_t length = sizeof a;
        const int fd = endpoint_open(&e, names[i].address, &err);
        EXPECT(fd >= 0 && e.port > 0 && getsockname(fd, (struct sockaddr*)&a, &length) == 0);
        const struct sockaddr_in6* a6 = (const struct sockaddr_in6*)&a;
        const bool is_local = a.ss_family == AF_INET
                                  ? ntohl(((const struct sockaddr_in*)&a)->sin_addr.s_addr) == INADDR_LOOPBACK
                                  : IN6_IS_ADDR_LOOPBACK(&a6->sin6_addr);
        EXPECT(is_local == names[i].is_local);
        close(fd);
    }
}

// Time is over for the first visitor, not for the second.
TEST(a_silent_visitor_is_dropped_in_time) {
    Error err;
    int first[2], second[2];
    Rendezvous r = {.missing = 1};
    r.listener = endpoint_open(&r.endpoint, "127.0.0.1", &err);
    EXPECT(r.listener >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, first) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM, 0, second) == 0);
    for (int i = 0; i < MAX_VISITORS; i++) { r.visitors[i].fd = -1; }
    r.visitors[0].fd = first[0];
    r.visitors[1].fd = second[0];
    r.visitors[0].until = seconds_now() - 1;
    r.visitors[1].until = seconds_now() + 1000;
    rendezvous_step(&r, seconds_now() + 1000);
    EXPECT(r.visitors[0].fd == -1 && r.visitors[1].fd == second[0]);
    close(second[0]);
    close(first[1]);
    close(second[1]);
    close(r.listener);
}

// All places are taken when another one comes.
TEST(the_visitor_that_is_silent_for_longest_makes_room) {
    enum { LONGEST = MAX_VISITORS / 2 };
    Error err;
    int ends[MAX_VISITORS][2];
    Rendezvous r = {.missing = 1};
    const double now = seconds_now();
    r.listener = endpoint_open(&r.endpoint, "127.0.0.1", &err);
    EXPECT(r.listener >= 0);
    for (int i = 0; i < MAX_VISITORS; i++) {
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) == 0);
        r.visitors[i].fd = ends[i][0];
        r.visitors[i].until = now + (i == LONGEST ? 1000 : 2000);
    }
    const int other = tcp_connect("127.0.0.1", r.endpoint.port, now + 10, &err);
    EXPECT(other >= 0);
    rendezvous_step(&r, now + 10);
    for (int i = 0; i < MAX_VISITORS; i++) {
        EXPECT((r.visitors[i].until < now + 100) == (i == LONGEST));
        close(r.visitors[i].fd);
        close(ends[i][1]);
    }
    close(other);
    close(r.listener);
}

TEST(a_missing_rank_is_named_to_all) {
    begin(1);
    Child zero, two, five;
    const int run = new_run();
    start(&zero, 0, 6, run, exchange_body);
    start(&two, 2, 6, run, exchange_body);
    start(&five, 5, 6, run, exchange_body);
    finish(&zero, 1, "of 6 ranks, rank 1, 3-4 did not connect");
    finish(&two, 1, "rank 1, 3-4 did not connect");
    finish(&five, 1, "rank 1, 3-4 did not connect");
}

TEST(a_missing_rank_0_is_named_by_file_or_address) {
    begin(0.3);
    Child one;
    Endpoint old;
    Error err;
    char words[128];
    const int run = new_run();
    start(&one, 1, 2, run, exchange_body);
    finish(&one, 1, "rank 1 found no word of rank 0 in --out within 0.3 s: ");
    close(endpoint_open(&old, "127.0.0.1", &err));
    write_endpoint(run, &old);
    start(&one, 1, 2, run, exchange_body);
    snprintf(words, sizeof words, "rank 1 could not reach rank 0 at 127.0.0.1 port %d within 0.3 s: Connection refused",
             old.port);
    finish(&one, 1, words);
    snprintf(old.address, sizeof old.address, "no.such.host.invalid");
    write_endpoint(run, &old);
    start(&one, 1, 2, run, exchange_body);
    finish(&one, 1, "at no.such.host.invalid port");
}

static void no_folder_body(const Launch* l) {
    Launch other = *l;
    other.folder = "";
    exchange_body(&other);
}
static void bad_folder_body(const Launch* l) {
    Launch other = *l;
    other.folder = "/proc/self/fd";
    exchange_body(&other);
}

TEST(without_a_folder_they_cannot_meet) {
    begin(0.3);
    run_all(2, no_folder_body, 1, "the 2 processes that a test started meet by a file in --out: give --out a folder");
    Child zero;
    start(&zero, 0, 2, new_run(), bad_folder_body);
    finish(&zero, 1, "/proc/self/fd/.tmp-");
}

static void bad_sockets_body(const Launch* l) {
    Launch other = *l;
    other.rendezvous = RENDEZVOUS_SOCKETS;
    other.sockets = "98,99";
    exchange_body(&other);
}

TEST(sockets_that_are_not_there_are_refused) {
    begin(20);
    run_all(3, bad_sockets_body, 1, "GPT2_SOCKETS=98,99: these are not the sockets of --gpus; unset it");
}

// ---------------------------------------------------------------------------------------------------------------------
// the watchdog

static atomic_int* training; // ranks that train, in memory that they share

static void train_body(const Launch* l) {
    Connection* c = open_or_die(l);
    connection_barrier(c);
    atomic_fetch_add(training, 1);
    for (int step = 7;; step++) {
        watchdog_report_activity(c, step, RANK_TRAINS);
        sleep_seconds(0.02);
    }
}

// Several runs side by side, as most of their time is waiting. In each, one rank gets a signal when all train; all
// others end with its name.
typedef struct {
    int size, rank, signal_number;
    const char* words;
} Loss;

static void lose(const Loss* losses, int count) {
    Child c[4][4];
    char host[HOST_BYTES] = {0}, expected[512];
    int ranks = 0;
    gethostname(host, sizeof host - 1);
    training = mmap(NULL, sizeof *training, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    test_patience = 300;
    for (int n = 0; n < count; n++) {
        const int run = new_run();
        ranks += losses[n].size;
        for (int i = 0; i < losses[n].size; i++) { start(&c[n][i], i, losses[n].size, run, train_body); }
    }
    for (int i = 0; i < 30000 && atomic_load(training) < ranks; i++) { sleep_seconds(0.01); }
    EXPECT(atomic_load(training) == ranks);
    for (int n = 0; n < count; n++) { kill(c[n][losses[n].rank].pid, losses[n].signal_number); }
    for (int n = 0; n < count; n++) {
        const Loss* l = &losses[n];
        snprintf(expected, sizeof expected, "error: rank %d on %s %s", l->rank, host, l->words);
        for (int i = 0; i < l->size; i++) {
            if (i != l->rank) { finish(&c[n][i], 1, expected); }
        }
        kill(c[n][l->rank].pid, SIGKILL);
        finish(&c[n][l->rank], 128 + SIGKILL, "");
    }
}

TEST(a_killed_rank_is_named_by_all) {
    static const Loss losses[] = {{4, 2, SIGKILL, "ended before the run did"},
                                  {3, 0, SIGKILL, "ended before the run did"},
                                  {2, 1, SIGKILL, "ended before the run did"}};
    begin(20);
    lose(losses, 3);
}

TEST(a_stopped_rank_is_named_by_all) {
    static const Loss losses[] = {{3, 1, SIGSTOP, "has sent no heartbeat for 4"},
                                  {3, 0, SIGSTOP, "has sent no heartbeat for 4"}};
    begin(4);
    lose(losses, 2);
}

static void die_at_step_body(const Launch* l) {
    Connection* c = open_or_die(l);
    watchdog_report_activity(c, 41, l->rank == 1 ? RANK_SAVES : RANK_TRAINS);
    if (l->rank == 2) { printf("a line in the buffer"); }
    connection_barrier(c);
    if (l->rank == 1) { _exit(3); }
    connection_barrier(c);
}

TEST(the_last_step_is_reported) {
    begin(20);
    Child c[3];
    const int run = new_run();
    for (int i = 0; i < 3; i++) { start(&c[i], i, 3, run, die_at_step_body); }
    finish(&c[0], 1, " s ago, at step 41, saving");
    finish(&c[1], 3, "");
    finish(&c[2], 1, "a line in the buffererror: rank 1 on "); // what was printed before is not lost
}

// All ranks end for a reason of their own: the end of one does not end another.
static void end_alike_body(const Launch* l) {
    Connection* c = open_or_die(l);
    connection_barrier(c);
    sleep_seconds(0.05 * l->rank);
    notice("error: the loss is not finite");
    _exit(EXIT_NONFINITE);
}

TEST(ranks_that_end_alike_keep_their_exit_codes) {
    begin(20);
    run_all(4, end_alike_body, EXIT_NONFINITE, "not finite");
}

static void work_body(const Launch* l) {
    Connection* c = open_or_die(l);
    for (int step = 0; step < 50; step++) {
        watchdog_report_activity(c, step, RANK_TRAINS);
        sleep_seconds(0.02);
    }
    connection_close(c);
}

TEST(a_job_that_was_suspended_goes_on) {
    begin(5); // a busy machine may keep a heartbeat waiting for a second and more
    Child c[3];
    const int run = new_run();
    for (int i = 0; i < 3; i++) { start(&c[i], i, 3, run, work_body); }
    sleep_seconds(0.5);
    for (int i = 0; i < 3; i++) { kill(c[i].pid, SIGSTOP); }
    sleep_seconds(6);
    for (int i = 0; i < 3; i++) { kill(c[i].pid, SIGCONT); }
    for (int i = 0; i < 3; i++) { finish(&c[i], 0, ""); }
}

// Makes a connection without a thread, for watchdog_check_progress(): all ranks report that they train.
static Connection* watched(int size) {
    Connection* c = alloc_or_die(1, sizeof *c, "a test");
    c->size = size;
    c->timeout = 10;
    c->peers = alloc_or_die((size_t)size, sizeof *c->peers, "a test");
    c->hosts = alloc_or_die((size_t)size, HOST_BYTES, "a test");
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < size; i++) {
        c->peers[i].fd = -1;
        c->peers[i].step = 42;
        c->peers[i].activity = RANK_TRAINS;
        snprintf(c->hosts[i], HOST_BYTES, "node%d", i);
    }
    return c;
}
static void turn(Connection* c, int seconds) {
    for (int i = 0; i < seconds; i++) { watchdog_check_progress(c, 1); }
}

static void end_again_body(const Launch* l) {
    (void)l;
    Connection* c = watched(2);
    c->ending = true; // another thread is at it
    alarm(2);
    watchdog_fatal(c, "seen once more");
}

TEST(an_end_is_reported_once) { // whoever sees it second waits for the first to end the process
    Child c;
    start(&c, 0, 2, 1, end_again_body);
    finish(&c, 128 + SIGALRM, "");
}

TEST(a_hang_of_all_is_found) {
    Connection* c = watched(3);
    c->peers[2].step = 41;
    EXPECT_DEATH(0, "", turn(c, 601); exit(0)); // the first turn sees a change
    EXPECT_DEATH(1, "they hang. Furthest behind is rank 2 on node2, at step 41, training", turn(c, 602); exit(0));
    c->peers[0].activity = RANK_VALIDATES;
    c->peers[2].activity = RANK_SCORES;
    EXPECT_DEATH(1, "they hang. Furthest behind is rank 2 on node2, at step 41, scoring", turn(c, 602); exit(0));
    c->timeout = 70; // ten of them are longer
    EXPECT_DEATH(0, "", turn(c, 701); exit(0));
    EXPECT_DEATH(1, "no rank has advanced for 701 s", turn(c, 702); exit(0));
    turn(c, 51); // and twenty times what an advance took
    c->peers[1].progress++;
    EXPECT_DEATH(0, "", turn(c, 1001); exit(0));
    EXPECT_DEATH(1, "no rank has advanced for 1001 s (before for 50 s at most)", turn(c, 1002); exit(0));
}

TEST(a_hang_while_devices_connect_is_found) {
    Connection* c = watched(3);
    for (int i = 0; i < 3; i++) { c->peers[i].activity = RANK_SETS_UP; }
    EXPECT_DEATH(0, "", turn(c, 1000); exit(0));
    c->peers[1].activity = RANK_CONNECTS;
    EXPECT_DEATH(0, "", turn(c, 600); exit(0));
    EXPECT_DEATH(1, "rank 1 on node1 has waited for the device of rank 2 on node2 for 601 s", turn(c, 602); exit(0));
    EXPECT_DEATH(0, "", turn(c, 500); c->peers[0].activity = RANK_CONNECTS; turn(c, 500); exit(0)); // it advances
    for (int i = 0; i < 3; i++) { c->peers[i].activity = RANK_CONNECTS; }
    EXPECT_DEATH(1, "rank 2 on node2 has been connecting its device to the others' for 601 s", turn(c, 602); exit(0));
}

TEST(what_may_take_long_is_no_hang) {
    Connection* c = watched(3);
    Progress shown = {0, 0};
    const RankActivity longs[] = {RANK_SETS_UP, RANK_SAMPLES, RANK_SAVES};
    for (int i = 0; i < 3; i++) {
        c->peers[1].activity = longs[i];
        EXPECT_DEATH(0, "", turn(c, 2000); exit(0));
    }
    c->peers[1].activity = RANK_TRAINS;
    EXPECT_DEATH(0, "", for (int i = 0; i < 20; i++) { turn(c, 590); c->peers[1].step++; } exit(0));
    EXPECT_DEATH(0, "", for (int i = 0; i < 20; i++) { turn(c, 590); c->peers[1].progress++; } exit(0));
    EXPECT_DEATH(0, "", for (int i = 0; i < 20; i++) { turn(c, 590); progress(&shown, "a batch"); } exit(0));
}

static void progress_body(const Launch* l) {
    Connection* c = open_or_die(l);
    Progress shown = {0, 0};
    const double end = seconds_now() + 60;
    uint32_t heard = 0;
    for (int i = 0; l->rank == 1 && i < 3; i++) { progress(&shown, "batch %d", i); }
    while (l->rank == 0 && heard < 3 && seconds_now() < end) {
        pthread_mutex_lock(&c->lock);
        heard = c->peers[1].progress;
        pthread_mutex_unlock(&c->lock);
        sleep_seconds(0.01);
    }
    CHECK(l->rank == 1 || heard == 3);
    connection_close(c);
}

TEST(heartbeats_tell_of_progress) {
    begin(60);
    run_all(2, progress_body, 0, "");
}

// ---------------------------------------------------------------------------------------------------------------------
// frames

TEST(sending_to_who_is_gone_is_no_signal) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[1]);
    EXPECT(!socket_send(ends[0], "x", 1, seconds_now() + 10));
    close(ends[0]);
}

TEST(frames_come_in_pieces_of_any_size) {
    const char* text = "a frame's text";
    uint8_t* frame = frame_make(FRAME_ABORT, 5, text, strlen(text));
    const size_t bytes = sizeof(FrameHeader) + strlen(text);
    for (size_t piece = 1; piece <= bytes; piece++) {
        FrameReader r = {.max_bytes = 100};
        FrameState state = FRAME_PART;
        for (size_t done = 0, room; state == FRAME_PART && done < bytes; done += room) {
            void* to = frame_room(&r, &room);
            room = min_size(room, min_size(piece, bytes - done));
            memcpy(to, frame + done, room);
            state = frame_add(&r, room);
        }
        EXPECT(state == FRAME_WHOLE && r.header.sequence == 5 && r.header.bytes == strlen(text));
        EXPECT(!memcmp(r.payload, text, strlen(text)));
        frame_next(&r);
    }
    free(frame);
}

// It could take over the terminal.
TEST(text_of_another_process_is_made_printable) {
    char to[8];
    printable_text(to, sizeof to, "a\033[2J\x80\n", 7);
    EXPECT(!strcmp(to, "a?[2J??"));
    printable_text(to, sizeof to, "too long", 8);
    EXPECT(!strcmp(to, "too lon"));
    printable_text(to, sizeof to, "not all of it", 3);
    EXPECT(!strcmp(to, "not"));
    printable_text(to, sizeof to, "up to\0 a 0", 10);
    EXPECT(!strcmp(to, "up to"));
}

TEST(frames_that_cannot_be_are_refused_before_memory_is_taken) {
    static const FrameHeader bad[] = {
        {FRAME_MAGIC + 1, FRAME_HELLO, 0, sizeof(Hello)},    {FRAME_MAGIC, 0, 0, 0},
        {FRAME_MAGIC, NUM_FRAME_TYPES, 0, 0},                {FRAME_MAGIC, FRAME_HELLO, 0, sizeof(Hello) + 1},
        {FRAME_MAGIC, FRAME_HEARTBEAT, 0, 8},                {FRAME_MAGIC, FRAME_WELCOME, 0, 1},
        {FRAME_MAGIC, FRAME_ABORT, 0, FRAME_TEXT_BYTES + 1}, {FRAME_MAGIC, FRAME_GATHER, 0, 101},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FrameReader r = {.max_bytes = 100};
        size_t room;
        memcpy(frame_room(&r, &room), &bad[i], sizeof bad[i]);
        EXPECT(room == sizeof bad[i] && frame_add(&r, room) == FRAME_BAD && !r.payload);
    }
}

// ---------------------------------------------------------------------------------------------------------------------

// Trains for some seconds, prints its step at the end.
static int as_rank(double seconds, double timeout, const char* folder) {
    Launch l;
    Error err;
    if (!launch_detect(&l, &err)) { usage_error("%s", err.text); }
    l.folder = folder;
    Connection* c = connection_open(&l, timeout, timeout, &err);
    if (!c) { fatal("%s", err.text); }
    connection_barrier(c);
    printf("rank %d of %d on %s\n", l.rank, l.size, connection_host(c, l.rank));
    fflush(stdout);
    const double end = seconds_now() + seconds;
    for (int step = 1; seconds_now() < end; step++) {
        watchdog_report_activity(c, step, RANK_TRAINS);
        sleep_seconds(0.05);
    }
    connection_close(c);
    return 0;
}

int main(int argc, char** argv) {
    if (argc == 5 && !strcmp(argv[1], "--as-rank")) { return as_rank(atof(argv[2]), atof(argv[3]), argv[4]); }
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    return test_main(argc, argv, argv[0]);
}
