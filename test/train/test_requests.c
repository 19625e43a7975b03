// Signals that ask a run to stop.
#include "llmc/train/requests.h"
#include "test/test.h"
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

TEST_MAIN()
