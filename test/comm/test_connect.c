// Ranks as processes on the loopback: they connect and exchange data, strangers are refused, and every way for a rank
// to end is noticed.
//
//   test_connect --as-rank SECONDS TIMEOUT     a rank as launch_detect finds it, for test/netns.sh
#include "llmc/comm/comm.h"
#include "llmc/comm/connect.h"
#include "llmc/comm/frame.h"
#include "llmc/comm/launch.h"
#include "llmc/comm/rendezvous.h"
#include "llmc/comm/socket.h"
#include "test/test.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
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
static const char* test_key;

static Launch launch_of(int rank, int size, int port) {
    Launch l;
    memset(&l, 0, sizeof l);
    l.rendezvous = RENDEZVOUS_TCP;
    l.rank = rank;
    l.size = size;
    l.launcher = "a test";
    snprintf(l.address, sizeof l.address, "127.0.0.1");
    l.port = port;
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

static void start(Child* c, int rank, int size, int port, Body* body) {
    start_launch(c, launch_of(rank, size, port), body);
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

static void begin(double timeout, const char* key) {
    test_timeout = test_patience = timeout;
    test_key = key;
}

static Connection* open_or_die(const Launch* launch) {
    Error err;
    Connection* c = connection_open(launch, test_key, test_patience, test_timeout, &err);
    if (!c) { notice("error: %s", err.text); _exit(1); }
    return c;
}

static void check(bool ok, const char* what) {
    if (!ok) { notice("wrong: %s", what); _exit(99); }
}
#define CHECK(cond) check(cond, #cond)

static void run_all(int size, int port, Body* body, int code, const char* words) {
    Child c[MAX_TEST_RANKS];
    for (int i = 0; i < size; i++) { start(&c[i], i, size, port, body); }
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

TEST(one_to_eight_ranks_exchange) {
    begin(20, "key");
    const int port = reserve_local_port(); // the same every time: none has to wait for the end of old connections
    for (int size = 1; size <= 8; size++) { run_all(size, port, exchange_body, 0, ""); }
}

TEST(sixty_four_ranks_exchange) {
    begin(60, "key");
    run_all(64, reserve_local_port(), exchange_body, 0, "");
}

static void sum_body(const Launch* l) {
    enum { MANY = MAX_FRAME_BYTES / 8 + 1 }; // more of each rank than fits into one frame
    static double x[MANY];
    Comm comm = {.rank = l->rank, .size = l->size, .peers = open_or_die(l)};
    for (size_t i = 0; i < MANY; i++) { x[i] = (double)i * (l->rank + 1); }
    comm_all_reduce_host(&comm, x, MANY);
    for (size_t i = 0; i < MANY; i++) { CHECK(x[i] == (double)i * (l->size * (l->size + 1) / 2)); }
    comm_all_reduce_host(&comm, x, 0);
    connection_close(comm.peers);
}

TEST(sums_of_any_length) {
    begin(20, "key");
    const int port = reserve_local_port();
    for (int size = 1; size <= 3; size++) { run_all(size, port, sum_body, 0, ""); }
}

TEST(one_process_needs_no_socket) {
    begin(1, "key");
    Launch l = launch_of(0, 1, 0);
    snprintf(l.address, sizeof l.address, "no.such.host.invalid");
    exchange_body(&l);
}

static void late_body(const Launch* l) {
    if (l->rank % 2 == 0) { sleep_seconds(0.3); }
    exchange_body(l);
}

TEST(late_ranks_are_waited_for) { // rank 0 too
    begin(20, "key");
    run_all(4, reserve_local_port(), late_body, 0, "");
}

static void by_name_body(const Launch* l) {
    Launch named = *l;
    snprintf(named.address, sizeof named.address, "localhost");
    exchange_body(&named);
}

static void ipv6_body(const Launch* l) {
    Launch named = *l;
    snprintf(named.address, sizeof named.address, "::1");
    exchange_body(&named);
}

TEST(names_and_ipv6) {
    begin(20, "key");
    run_all(3, reserve_local_port(), by_name_body, 0, "");
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a;
    memset(&a, 0, sizeof a);
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_loopback;
    if (fd < 0 || bind(fd, (struct sockaddr*)&a, sizeof a) != 0) { SKIP("no IPv6 here"); }
    close(fd);
    run_all(3, reserve_local_port(), ipv6_body, 0, "");
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
    begin(1, "key");
    run_all(3, reserve_local_port(), patient_body, 0, "");
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
    begin(20, "key");
    run_all(3, reserve_local_port(), early_end_body, 1, "a barrier of 0 bytes; number 1, the end of 0 bytes");
    run_all(3, reserve_local_port(), parts_body, 1, "a gather of 4 bytes; number 1, a gather of 8 bytes");
    run_all(3, reserve_local_port(), mismatch_body, 1, "a barrier of 0 bytes; number 2, a gather of 16 bytes");
    run_all(3, reserve_local_port(), sizes_body, 1, "expects another number of bytes than rank 0");
}

// ---------------------------------------------------------------------------------------------------------------------
// refusals

// Connects to a port at which rank 0 may not listen yet.
static int raw_connect(int port) {
    Error err;
    for (int i = 0; i < 1000; i++) {
        const int fd = tcp_connect("127.0.0.1", port, seconds_now() + 10, &err);
        if (fd >= 0) { return fd; }
        sleep_seconds(0.01);
    }
    return -1;
}

static const char SECRET[] = "the secret of these tests";

static Secret test_secret(void) {
    Secret secret;
    Error err;
    EXPECT(secret_find(&secret, &err));
    return secret;
}

static Hello hello_of(int rank, int size, const char* key) {
    Hello h;
    Launch l = launch_of(rank, size, 0);
    memset(&h, 0, sizeof h);
    h.version = FRAME_VERSION;
    h.rank = (uint32_t)rank;
    h.size = (uint32_t)size;
    h.key = connection_key(&l, key);
    snprintf(h.host, sizeof h.host, "hand\nmade");
    return h;
}

// Returns the type of the next frame, 0 at the end of the connection, and its text.
static uint32_t raw_read(int fd, char* text, size_t room) {
    FrameReader r = {.max_bytes = 4096};
    struct pollfd p = {fd, POLLIN, 0};
    FrameState state;
    while ((state = frame_receive(&r, fd)) == FRAME_PART) { poll(&p, 1, 10000); }
    const uint32_t type = state == FRAME_WHOLE ? r.header.type : 0;
    if (text) { printable_text(text, room, type ? r.payload : (const void*)"", type ? r.header.bytes : 0); }
    frame_next(&r);
    return type;
}

// Connects and reads rank 0's challenge.
static int raw_challenged(int port, Challenge* challenge) {
    const int fd = raw_connect(port);
    FrameReader r = {.max_bytes = 4096};
    struct pollfd p = {fd, POLLIN, 0};
    while (frame_receive(&r, fd) == FRAME_PART) { poll(&p, 1, 10000); }
    EXPECT(r.header.type == FRAME_CHALLENGE && r.header.bytes == sizeof *challenge);
    memcpy(challenge, r.payload, sizeof *challenge);
    frame_next(&r);
    return fd;
}

// Connects as a rank does, up to sending the hello with its proof.
static int raw_greet(int port, Hello hello) {
    Challenge challenge;
    const Secret secret = test_secret();
    const int fd = raw_challenged(port, &challenge);
    hello_prove(&hello, &challenge, &secret);
    EXPECT(frame_send(fd, FRAME_HELLO, 0, &hello, sizeof hello, seconds_now() + 10));
    return fd;
}

static void other_key_body(const Launch* l) {
    test_key = "another";
    exchange_body(l);
}
static void other_size_body(const Launch* l) {
    Launch other = *l;
    other.size = 4;
    exchange_body(&other);
}

// Each impostor is refused on its side and named on rank 0's; the run goes on when the right rank comes.
static void refuse(Body* impostor, const char* words) {
    Child zero, one, bad;
    const int port = reserve_local_port();
    start(&zero, 0, 2, port, exchange_body);
    start(&bad, 1, 2, port, impostor);
    finish(&bad, 1, words);
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, words);
}

TEST(wrong_key_and_wrong_size_are_refused) {
    begin(20, "key");
    refuse(other_key_body, "has another key than rank 0");
    refuse(other_size_body, "was started as one of 4 ranks, rank 0 on ");
}

static void other_run_body(const Launch* l) {
    Launch other = *l;
    snprintf(other.run_id, sizeof other.run_id, "tuesday");
    exchange_body(&other);
}

TEST(another_run_id_is_another_run) {
    begin(20, "key");
    refuse(other_run_body, "it belongs to another run");
}

TEST(hand_made_hellos_are_refused_by_what_is_wrong) {
    static const struct { uint32_t version; int rank, size; const char* words; } wrong[] = {
        {FRAME_VERSION + 1, 1, 2, "uses protocol version 3"},
        {FRAME_VERSION, 0, 2, "waits for ranks 1 to 1"},
        {FRAME_VERSION, 2, 2, "waits for ranks 1 to 1"},
        {FRAME_VERSION, -1, 2, "waits for ranks 1 to 1"},
        {FRAME_VERSION, 1, 3, "rank 1 on hand?made"},
    };
    begin(20, "key");
    Child zero, one;
    char text[FRAME_TEXT_BYTES];
    const int port = reserve_local_port();
    start(&zero, 0, 2, port, exchange_body);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Hello h = hello_of(wrong[i].rank, wrong[i].size, "key");
        h.version = wrong[i].version;
        const int fd = raw_greet(port, h);
        EXPECT(raw_read(fd, text, sizeof text) == FRAME_REFUSED && strstr(text, wrong[i].words));
        EXPECT(raw_read(fd, NULL, 0) == 0);
        close(fd);
    }
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "uses protocol version 3");
}

// A rank that comes twice; then the first one goes, and with it the run.
TEST(a_rank_that_is_there_already_is_refused) {
    begin(20, "key");
    Child zero, again;
    const int port = reserve_local_port();
    start(&zero, 0, 3, port, exchange_body);
    const int fd = raw_greet(port, hello_of(1, 3, "key"));
    EXPECT(raw_read(fd, NULL, 0) == FRAME_WELCOME);
    start(&again, 1, 3, port, exchange_body);
    finish(&again, 1, "that rank is connected already, on hand?made");
    close(fd);
    finish(&zero, 1, "rank 1 on hand?made (127.0.0.1 port ");
}

TEST(a_hello_may_come_byte_by_byte) {
    begin(20, "key");
    Child zero;
    const int port = reserve_local_port();
    start(&zero, 0, 3, port, exchange_body);
    Challenge challenge;
    const Secret secret = test_secret();
    const int fd = raw_challenged(port, &challenge);
    Hello h = hello_of(2, 3, "key");
    hello_prove(&h, &challenge, &secret);
    uint8_t* frame = frame_make(FRAME_HELLO, 0, &h, sizeof h);
    for (size_t i = 0; i < sizeof(FrameHeader) + sizeof h; i++) {
        EXPECT(tcp_send(fd, frame + i, 1, seconds_now() + 10));
        sleep_seconds(0.001);
    }
    free(frame);
    EXPECT(raw_read(fd, NULL, 0) == FRAME_WELCOME);
    close(fd);
    finish(&zero, 1, "ended while rank 0 waited for the others");
}

// Silent ones and half hellos stay connected all the while, more of them than rank 0 keeps.
TEST(strangers_do_no_harm) {
    enum { SILENT = 1000 };
    begin(60, "key");
    Child zero, one;
    struct rlimit files;
    int silent[SILENT], loud[4];
    EXPECT(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    EXPECT(setrlimit(RLIMIT_NOFILE, &files) == 0);
    const int port = reserve_local_port();
    const char* request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const FrameHeader huge = {FRAME_MAGIC, FRAME_HELLO, 0, 0xffffffffu},
                      beat = {FRAME_MAGIC, FRAME_HEARTBEAT, 0, sizeof(Heartbeat)};
    uint8_t garbage[200];
    for (size_t i = 0; i < sizeof garbage; i++) { garbage[i] = (uint8_t)mix64(i); }
    start(&zero, 0, 2, port, exchange_body);
    Challenge challenge;
    for (int i = 0; i < 4; i++) { EXPECT((loud[i] = raw_challenged(port, &challenge)) >= 0); }
    EXPECT(tcp_send(loud[0], request, strlen(request), seconds_now() + 10));
    EXPECT(tcp_send(loud[1], garbage, sizeof garbage, seconds_now() + 10));
    EXPECT(tcp_send(loud[2], &huge, sizeof huge, seconds_now() + 10));
    EXPECT(tcp_send(loud[3], &beat, sizeof beat, seconds_now() + 10) &&
           tcp_send(loud[3], garbage, sizeof(Heartbeat), seconds_now() + 10));
    for (int i = 0; i < 4; i++) { EXPECT(raw_read(loud[i], NULL, 0) == 0); }
    for (int i = 0; i < SILENT; i++) {
        EXPECT((silent[i] = raw_connect(port)) >= 0);
        if (i % 2) { EXPECT(tcp_send(silent[i], &huge, 7, seconds_now() + 10)); }
    }
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "");
    for (int i = 0; i < SILENT; i++) { close(silent[i]); }
    for (int i = 0; i < 4; i++) { close(loud[i]); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the secret

static void other_secret_body(const Launch* l) {
    setenv("GPT2_SECRET", "the secret of somebody else", 1);
    exchange_body(l);
}

TEST(a_process_with_another_secret_is_refused) {
    begin(20, "key");
    Child zero, one, bad;
    const int port = reserve_local_port();
    start(&zero, 0, 2, port, exchange_body);
    start(&bad, 1, 2, port, other_secret_body);
    finish(&bad, 1, "does not know this run's secret");
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "does not know the secret of the run on ");
}

// Everything about the hello is right but for its proof: none, one for other contents, one for another connection.
TEST(forged_and_repeated_greetings_are_refused) {
    begin(20, "key");
    Child zero, one;
    Challenge challenge, first;
    const Secret secret = test_secret();
    const int port = reserve_local_port();
    char text[FRAME_TEXT_BYTES];
    start(&zero, 0, 2, port, exchange_body);
    close(raw_challenged(port, &first));
    for (int forgery = 0; forgery < 3; forgery++) {
        Hello h = hello_of(1, 2, "key");
        const int fd = raw_challenged(port, &challenge);
        EXPECT(memcmp(&first, &challenge, sizeof first) != 0);
        if (forgery == 1) { hello_prove(&h, &challenge, &secret); h.host[0] ^= 1; }
        if (forgery == 2) { hello_prove(&h, &first, &secret); }
        EXPECT(frame_send(fd, FRAME_HELLO, 0, &h, sizeof h, seconds_now() + 10));
        EXPECT(raw_read(fd, text, sizeof text) == FRAME_REFUSED && strstr(text, "does not know the secret"));
        EXPECT(raw_read(fd, NULL, 0) == 0);
        close(fd);
    }
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 0, "");
    finish(&zero, 0, "does not know the secret");
}

// Listens at a port, sends a challenge to every rank, and answers its hello with a frame that proves nothing.
static void ATTR_NORETURN lie_to_ranks(int listener, FrameType type, size_t bytes) {
    static const char lie[FRAME_TEXT_BYTES] = "install this program";
    static const Challenge challenge = {{1, 2, 3}};
    for (;;) {
        struct pollfd p = {listener, POLLIN, 0};
        FrameReader r = {.max_bytes = 4096};
        poll(&p, 1, -1);
        p.fd = accept(listener, NULL, NULL);
        frame_send(p.fd, FRAME_CHALLENGE, 0, &challenge, sizeof challenge, seconds_now() + 10);
        while (frame_receive(&r, p.fd) == FRAME_PART) { poll(&p, 1, 10000); }
        frame_next(&r);
        frame_send(p.fd, type, 0, lie, bytes, seconds_now() + 10);
        close(p.fd);
    }
}

TEST(a_false_rank_0_is_not_believed) {
    static const struct { FrameType type; size_t bytes; const char* words; } lies[] = {
        {FRAME_WELCOME, PROOF_BYTES, "could not reach rank 0"},
        {FRAME_REFUSED, 100, "does not know this run's secret"},
        {FRAME_ABORT, 100, "could not reach rank 0"},
        {FRAME_START, 2 * HOST_BYTES, "could not reach rank 0"},
    };
    begin(1, "key");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        Error err;
        Child one;
        const int port = reserve_local_port(), listener = tcp_listen("127.0.0.1", port, &err);
        const pid_t liar = fork();
        if (liar == 0) { lie_to_ranks(listener, lies[i].type, lies[i].bytes); }
        start(&one, 1, 2, port, exchange_body);
        finish(&one, 1, lies[i].words);
        kill(liar, SIGKILL);
        waitpid(liar, NULL, 0);
        close(listener);
    }
}

TEST(rank_0_listens_where_it_must) {
    static const struct { const char* address; bool is_local; } names[] = {
        {"localhost", true}, {"127.0.0.1", true}, {"192.0.2.1", false}}; // the last is nobody's (RFC 5737)
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Error err;
        struct sockaddr_storage at;
        socklen_t length = sizeof at;
        const int fd = tcp_listen(names[i].address, reserve_local_port(), &err);
        EXPECT(fd >= 0 && getsockname(fd, (struct sockaddr*)&at, &length) == 0);
        const struct sockaddr_in* a = (const struct sockaddr_in*)&at;
        const struct sockaddr_in6* a6 = (const struct sockaddr_in6*)&at;
        const bool is_local = at.ss_family == AF_INET ? ntohl(a->sin_addr.s_addr) >> 24 == 127
                                                      : IN6_IS_ADDR_LOOPBACK(&a6->sin6_addr);
        EXPECT(is_local == names[i].is_local);
        close(fd);
    }
}

// Runs in a process of its own: the variables are those of all tests.
static void find_secret(const char* home, const char* file, Secret* secret) {
    Error err;
    unsetenv("GPT2_SECRET");
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", home, 1);
    if (file) { setenv("GPT2_SECRET_FILE", file, 1); }
    if (!secret_find(secret, &err)) { fatal("%s", err.text); }
}

TEST(a_secret_is_made_once_and_kept_from_others) {
    char home[] = "/tmp/secret.XXXXXX";
    EXPECT(mkdtemp(home) != NULL);
    Secret* found = mmap(NULL, 2 * sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *file = format("%s/.config/gpt2.c/secret", home), *folder = format("%s/.config", home);
    Error err;
    struct stat info;
    for (int i = 0; i < 2; i++) { EXPECT_DEATH(0, "", find_secret(home, NULL, &found[i]); exit(0)); }
    EXPECT(!memcmp(&found[0], &found[1], sizeof *found));
    EXPECT(stat(file, &info) == 0 && (info.st_mode & 0777) == 0600 && info.st_size == 2 * SECRET_BYTES + 1);
    EXPECT(chmod(file, 0640) == 0);
    EXPECT_DEATH(1, "others may read the run's secret; run: chmod 600", find_secret(home, NULL, found));
    EXPECT(unlink(file) == 0 && write_file_atomically(file, "short\n", 6, &err) && chmod(file, 0600) == 0);
    EXPECT_DEATH(1, "has fewer than 16 characters", find_secret(home, NULL, found));
    EXPECT(unlink(file) == 0 && mkfifo(file, 0600) == 0);
    EXPECT_DEATH(1, "not a regular file", find_secret(home, file, found));
    EXPECT_DEATH(1, "No such file or directory", find_secret(home, "/no/such/file", found));
    EXPECT_DEATH(1, "set GPT2_SECRET to the same long random text", find_secret("/proc/self/fd", NULL, found));
    EXPECT_DEATH(1, "GPT2_SECRET has 3 characters", setenv("GPT2_SECRET", "abc", 1);
                 if (!secret_find(found, &err)) { fatal("%s", err.text); });
    unlink(file);
    free(file);
    free(folder);
}

// Time is over for the first visitor, not for the second.
TEST(a_silent_visitor_is_dropped_in_time) {
    begin(20, "key");
    Error err;
    int first[2], second[2], fds[2] = {-1, -1};
    Launch launch = launch_of(0, 2, reserve_local_port());
    Rendezvous* r = alloc_or_die(1, sizeof *r, "a test");
    r->launch = &launch;
    r->fds = fds;
    r->polled = alloc_or_die(1 + MAX_VISITORS + 2, sizeof *r->polled, "a test");
    r->listener = tcp_listen("127.0.0.1", launch.port, &err);
    EXPECT(r->listener >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, first) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM, 0, second) == 0);
    for (int i = 0; i < MAX_VISITORS; i++) { r->visitors[i].fd = -1; }
    r->visitors[0].fd = first[0];
    r->visitors[1].fd = second[0];
    r->visitors[0].until = seconds_now() - 1;
    r->visitors[1].until = seconds_now() + 1000;
    EXPECT(rendezvous_step(r, seconds_now() + 1000, &err));
    EXPECT(r->visitors[0].fd == -1 && r->visitors[1].fd == second[0]);
    visitor_close(&r->visitors[1]);
    close(first[1]);
    close(second[1]);
    close(r->listener);
    free(r->polled);
    free(r);
}

TEST(a_missing_rank_is_named_to_all) {
    begin(1, "key");
    Child zero, two, five;
    const int port = reserve_local_port();
    start(&zero, 0, 6, port, exchange_body);
    start(&two, 2, 6, port, exchange_body);
    start(&five, 5, 6, port, exchange_body);
    finish(&zero, 1, "of 6 ranks, rank 1, 3-4 did not connect");
    finish(&two, 1, "rank 1, 3-4 did not connect");
    finish(&five, 1, "rank 1, 3-4 did not connect");
}

TEST(a_missing_rank_0_is_named_by_address) {
    begin(0.3, "key");
    Child one;
    char words[128];
    const int port = reserve_local_port();
    start(&one, 1, 2, port, exchange_body);
    snprintf(words, sizeof words, "rank 1 could not reach rank 0 at 127.0.0.1 port %d within 0.3 s: Connection refused",
             port);
    finish(&one, 1, words);
    Launch l = launch_of(1, 2, port);
    snprintf(l.address, sizeof l.address, "no.such.host.invalid");
    start_launch(&one, l, exchange_body);
    finish(&one, 1, "at no.such.host.invalid port");
}

// Other programs hold the port: one sends nothing, one something else than frames.
TEST(another_program_at_the_port_is_told_from_rank_0) {
    begin(0.3, "key");
    Error err;
    Child zero, one;
    const int port = reserve_local_port(), listener = tcp_listen("127.0.0.1", port, &err);
    EXPECT(listener >= 0);
    start(&zero, 0, 2, port, exchange_body);
    finish(&zero, 1, "another program, perhaps another run, uses it; set MASTER_PORT to another port");
    start(&one, 1, 2, port, exchange_body);
    finish(&one, 1, "the program that listens there does not answer");
    close(accept(listener, NULL, NULL));
    start(&one, 1, 2, port, exchange_body);
    struct pollfd p = {listener, POLLIN, 0};
    poll(&p, 1, 10000);
    const int fd = accept(listener, NULL, NULL);
    EXPECT(send(fd, "220 mail.example.org ESMTP\r\n", 28, MSG_NOSIGNAL) == 28);
    close(listener);
    finish(&one, 1, "port");
    close(fd);
}

// ---------------------------------------------------------------------------------------------------------------------
// the watchdog

static atomic_int* training; // ranks that train, in memory that they share

static void train_body(const Launch* l) {
    Connection* c = open_or_die(l);
    connection_barrier(c);
    atomic_fetch_add(training, 1);
    for (int step = 7;; step++) {
        connection_report_activity(c, step, RANK_TRAINS);
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
        const int port = reserve_local_port();
        ranks += losses[n].size;
        for (int i = 0; i < losses[n].size; i++) { start(&c[n][i], i, losses[n].size, port, train_body); }
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
    begin(20, "key");
    lose(losses, 3);
}

TEST(a_stopped_rank_is_named_by_all) {
    static const Loss losses[] = {{3, 1, SIGSTOP, "has sent no heartbeat for 4"},
                                  {3, 0, SIGSTOP, "has sent no heartbeat for 4"}};
    begin(4, "key");
    lose(losses, 2);
}

static void die_at_step_body(const Launch* l) {
    Connection* c = open_or_die(l);
    connection_report_activity(c, 41, l->rank == 1 ? RANK_SAVES : RANK_TRAINS);
    connection_barrier(c);
    if (l->rank == 2) { printf("a line in the buffer"); }
    if (l->rank == 1) { sleep_seconds(1.2); _exit(3); } // a heartbeat has reported the step by then
    connection_barrier(c);
}

TEST(the_last_step_is_reported) {
    begin(20, "key");
    Child c[3];
    const int port = reserve_local_port();
    for (int i = 0; i < 3; i++) { start(&c[i], i, 3, port, die_at_step_body); }
    finish(&c[0], 1, "last heard of at step 41, saving");
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
    begin(20, "key");
    run_all(4, reserve_local_port(), end_alike_body, EXIT_NONFINITE, "not finite");
}

static void work_body(const Launch* l) {
    Connection* c = open_or_die(l);
    for (int step = 0; step < 50; step++) {
        connection_report_activity(c, step, RANK_TRAINS);
        sleep_seconds(0.02);
    }
    connection_close(c);
}

TEST(a_job_that_was_suspended_goes_on) {
    begin(1, "key");
    Child c[3];
    const int port = reserve_local_port();
    for (int i = 0; i < 3; i++) { start(&c[i], i, 3, port, work_body); }
    sleep_seconds(0.5);
    for (int i = 0; i < 3; i++) { kill(c[i].pid, SIGSTOP); }
    sleep_seconds(1.5);
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
    c->steps = 2;
    c->longest_step = 3;
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
    EXPECT_DEATH(0, "", turn(c, 100); exit(0));
    EXPECT_DEATH(1, "they hang. Furthest behind is rank 2 on node2, at step 41", turn(c, 102); exit(0));
    c->longest_step = 10; // twenty of them are longer than ten time-outs
    EXPECT_DEATH(0, "", turn(c, 200); exit(0));
    EXPECT_DEATH(1, "they hang", turn(c, 202); exit(0));
}

TEST(what_may_take_long_is_no_hang) {
    Connection* c = watched(3);
    c->peers[0].activity = RANK_SAVES;
    EXPECT_DEATH(0, "", turn(c, 1000); exit(0));
    c->peers[0].activity = RANK_TRAINS;
    EXPECT_DEATH(0, "", c->steps = 1; turn(c, 1000); exit(0)); // how long a step takes is not known yet
    EXPECT_DEATH(0, "", for (int i = 0; i < 20; i++) { turn(c, 90); c->peers[1].step++; } exit(0));
}

TEST(steps_are_measured) {
    Connection* c = watched(1);
    c->steps = 0;
    c->longest_step = 0;
    watchdog_report_activity(c, 1, RANK_VALIDATES);
    watchdog_report_activity(c, 1, RANK_TRAINS); // validation is no step
    EXPECT(c->steps == 0);
    sleep_seconds(0.05);
    watchdog_report_activity(c, 2, RANK_TRAINS);
    watchdog_report_activity(c, 3, RANK_SAVES);
    EXPECT(c->steps == 2 && c->longest_step >= 0.05);
}

// ---------------------------------------------------------------------------------------------------------------------
// frames

TEST(sending_to_who_is_gone_is_no_signal) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[1]);
    EXPECT(!tcp_send(ends[0], "x", 1, seconds_now() + 10));
    close(ends[0]);
}

TEST(frames_come_in_pieces_of_any_size) {
    const char* text = "a frame's text";
    uint8_t* frame = frame_make(FRAME_REFUSED, 5, text, strlen(text));
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

TEST(frames_that_cannot_be_are_refused_before_memory_is_taken) {
    static const FrameHeader bad[] = {
        {FRAME_MAGIC + 1, FRAME_HELLO, 0, 10},  {FRAME_MAGIC, 0, 0, 0},
        {FRAME_MAGIC, NUM_FRAME_TYPES, 0, 0},   {FRAME_MAGIC, FRAME_HELLO, 0, 101},
        {FRAME_MAGIC, FRAME_HEARTBEAT, 0, 8},        {FRAME_MAGIC, FRAME_WELCOME, 0, 1},
        {FRAME_MAGIC, FRAME_ABORT, 0, FRAME_TEXT_BYTES + 1}, {FRAME_MAGIC, FRAME_GATHER, 0, 0xffffffffu},
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
static int as_rank(double seconds, double timeout) {
    Launch l;
    Error err;
    if (!launch_detect(&l, MPI_ABSENT, &err)) { usage_error("%s", err.text); }
    Connection* c = connection_open(&l, "test_connect", timeout, timeout, &err);
    if (!c) { fatal("%s", err.text); }
    connection_barrier(c);
    printf("rank %d of %d on %s\n", l.rank, l.size, connection_host(c, l.rank));
    fflush(stdout);
    const double end = seconds_now() + seconds;
    for (int step = 1; seconds_now() < end; step++) {
        connection_report_activity(c, step, RANK_TRAINS);
        sleep_seconds(0.05);
    }
    connection_close(c);
    return 0;
}

int main(int argc, char** argv) {
    setenv("GPT2_SECRET", SECRET, 1);
    if (argc == 4 && !strcmp(argv[1], "--as-rank")) { return as_rank(atof(argv[2]), atof(argv[3])); }
    return test_main(argc, argv, argv[0]);
}
