// Signals that ask a run to stop, and the votes of its ranks.
#include "llmc/train/ranks.h"
#include "llmc/train/requests.h"
#include "test/files/small_model.h"
#include <signal.h>

enum { STOPS = 9, GOES_ON = 8 };

static int stops(void) { return request_to_stop() ? STOPS : GOES_ON; }

TEST(each_signal_asks_to_stop) {
    EXPECT_DEATH(GOES_ON, "", requests_take_stops(0, "going"); exit(stops()));
    EXPECT_DEATH(STOPS, "going; the same signal again", requests_take_stops(0, "going"); raise(SIGINT); exit(stops()));
    EXPECT_DEATH(STOPS, "going; the same signal again", requests_take_stops(0, "going"); raise(SIGTERM); exit(stops()));
}

// Ctrl-C in a terminal reaches the trainer and its supervisor, which passes it on.
TEST(a_signal_that_comes_twice_at_once_is_one_request) {
    EXPECT_DEATH(STOPS, "going; the same signal again", requests_take_stops(0, "going"); raise(SIGINT); raise(SIGINT);
                 exit(stops()));
}

TEST(the_same_signal_again_ends_the_program) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        process_rank = 1; // says nothing
        requests_take_stops(0, "going");
        raise(SIGINT);
        raise(SIGTERM); // another one does not
        usleep(1100000);
        raise(SIGINT);
        _exit(GOES_ON);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

// A stop is then noticed before the end of a step that may take minutes; otherwise no rank waits for others within one.
TEST(ranks_ask_each_other_between_micro_batches_of_half_a_second) {
    static const struct { double seconds; long long rounds; bool is_slow; } steps[] = {
        {0.4, 1, false}, {0.6, 1, true}, {4.4, 10, false}, {5.6, 10, true}};
    Model* m = open_model(C);
    Comm comm = comm_alone();
    Ranks ranks;
    ranks_open(&ranks, &comm, m->g.backend);
    EXPECT(ranks.is_slow); // until the first step has ended
    for (int i = 0; i < 4; i++) {
        ranks_vote(&ranks, &m->o, false, steps[i].seconds, steps[i].rounds);
        ranks_count_votes(&ranks);
        EXPECT(ranks.is_slow == steps[i].is_slow && !ranks.stops && !ranks.saves);
    }
    comm.size = 2;
    ranks.is_slow = false;
    EXPECT(!ranks_leave_step(&ranks)); // without a message
    ranks_close(&ranks, m->g.backend);
    close_model(m);
}

TEST_MAIN()
