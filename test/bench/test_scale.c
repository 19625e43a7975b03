// Predicted steps on many processes: limits that any prediction has to keep, and values computed by hand.
#include "llmc/bench/scale_model.h"
#include "test/test.h"

// Two layers; a micro-batch of 8 takes 1 + 0.5 + 2 * 0.6 + 0.3 = 3 s; a step has 64 sequences, so 8 of these.
static ScaleModel open_model(void) {
    ScaleModel m;
    const MicroTime eight = {8, 1.0, 0.5, 0.6, 0.3}, one = {1, 0.2, 0.1, 0.1, 0.1};
    memset(&m, 0, sizeof m);
    m.num_layers = 2;
    m.first = 400;
    m.layer = 100;
    m.last = 10;
    m.param_bytes = 2;
    m.windows = 64;
    m.most_rows = 8;
    m.micro[0] = eight;
    m.micro[1] = one;
    m.micros = 2;
    m.begin = 0.25;
    m.update = 0.5;
    return m;
}

static Network open_network(double bandwidth, double latency) {
    const Network net = {{bandwidth, latency}, {bandwidth, latency}, INT32_MAX};
    return net;
}

TEST(one_process_takes_what_was_measured) {
    const ScaleModel m = open_model();
    const Network net = open_network(1, 1);
    for (int mode = 0; mode < SCALE_MODES; mode++) {
        const ScaledStep p = scale_predict(&m, &net, 1, mode);
        EXPECT_NEAR(p.seconds, 0.25 + 8 * 3.0 + 0.5, 1e-12);
        EXPECT_NEAR(p.sent, 0, 0);
        EXPECT_NEAR(p.bytes, 0, 0);
    }
}

TEST(without_limits_of_the_line_only_computing_remains) {
    const ScaleModel m = open_model();
    const Network net = open_network(INFINITY, 0);
    for (int mode = 0; mode < SCALE_MODES; mode++) {
        const double update = mode & SCALE_ZERO ? 0.125 : 0.5;
        EXPECT_NEAR(scale_predict(&m, &net, 4, mode).seconds, 0.25 + 2 * 3.0 + update, 1e-12);
    }
}

TEST(overlap_hides_backward_at_most_and_never_the_embeddings) {
    const ScaleModel m = open_model();
    for (double bandwidth = 10; bandwidth < 1e7; bandwidth *= 3) {
        for (int n = 2; n <= 64; n *= 2) {
            const Network net = open_network(bandwidth, 1e-3);
            for (int zero = 0; zero <= SCALE_ZERO; zero += SCALE_ZERO) {
                const ScaledStep serial = scale_predict(&m, &net, n, zero);
                const ScaledStep over = scale_predict(&m, &net, n, zero | SCALE_OVERLAP);
                const MicroTime t = scale_micro(&m, over.rows);
                EXPECT_NEAR(serial.exposed, serial.sent, 1e-9 * serial.sent);
                EXPECT(over.seconds <= serial.seconds * (1 + 1e-12));
                EXPECT(serial.exposed - over.exposed <= micro_seconds(&m, &t) - t.forward - t.classifier + 1e-9);
                EXPECT(over.exposed >= over.embeddings - 1e-9);
            }
        }
    }
}

// Two processes, 400 bytes a second: an all-reduce of S bytes takes S/400 s. The ranges take 0.1, 1, 1 and 4 s. The
// last two parts of backward are shorter than the all-reduces, so that these go out one behind another.
TEST(two_processes_by_hand) {
    const ScaleModel m = open_model();
    const Network net = open_network(400, 0);
    const ScaledStep serial = scale_predict(&m, &net, 2, 0), over = scale_predict(&m, &net, 2, SCALE_OVERLAP);
    EXPECT_NEAR(serial.sent, 0.1 + 2 * 1 + 4, 1e-12);
    EXPECT_NEAR(serial.seconds, 0.25 + 4 * 3.0 + 0.5 + 6.1, 1e-12);
    // ready at 0.5, 1.1, 1.7, 2.0; sent by 0.6, 2.1, 3.1, 7.1
    EXPECT_NEAR(over.exposed, 7.1 - 2.0, 1e-12);
    EXPECT_NEAR(over.embeddings, 4, 1e-12); // 400 elements
    EXPECT_NEAR(over.seconds, 0.25 + 4 * 3.0 + 0.5 + 5.1, 1e-12);
    // half of each sum, and 610 parameters of 2 bytes: n-1 of n parts go out, at 400 bytes a second
    const ScaledStep zero = scale_predict(&m, &net, 2, SCALE_ZERO);
    EXPECT_NEAR(zero.sent, 6.1 / 2 + 0.5 * 2 * 610 / 400, 1e-12);
    EXPECT_NEAR(zero.embeddings, 4.0 / 2, 1e-12);
    EXPECT_NEAR(zero.update, 0.25, 1e-12);
}

TEST(zero_moves_three_quarters_in_bf16_and_as_much_in_fp32) {
    ScaleModel m = open_model();
    const Network net = open_network(1e3, 1e-6);
    const double all = scale_predict(&m, &net, 8, 0).bytes;
    EXPECT_NEAR(all, 7.0 / 8 * 8 * 610, 1e-9);
    EXPECT_NEAR(scale_predict(&m, &net, 8, SCALE_ZERO).bytes, 0.75 * all, 1e-9);
    m.param_bytes = 4;
    EXPECT_NEAR(scale_predict(&m, &net, 8, SCALE_ZERO).bytes, all, 1e-9);
}

TEST(micro_batches_shrink_with_what_is_left) {
    ScaleModel m = open_model();
    const Network net = open_network(INFINITY, 0);
    EXPECT(scale_predict(&m, &net, 8, 0).rows == 8 && scale_predict(&m, &net, 8, 0).micro_steps == 1);
    EXPECT(scale_predict(&m, &net, 16, 0).rows == 4);
    EXPECT_NEAR(scale_predict(&m, &net, 16, 0).computing, 0.25 + 1.5, 1e-12); // half of the measured eight
    EXPECT_NEAR(scale_predict(&m, &net, 64, 0).computing, 0.25 + 0.6, 1e-12); // one, measured
    EXPECT(!scale_is_possible(&m, 128) && scale_is_possible(&m, 64));
    EXPECT(scale_rows(12, 8) == 6 && scale_rows(7, 4) == 1 && scale_rows(3, 8) == 3);
}

TEST(sums_take_the_shorter_of_ring_and_trees) {
    const Network net = open_network(1e9, 1e-6);
    EXPECT_NEAR(half_all_reduce_seconds(&net, 8, 1024), 8e-9 + 10e-6, 1e-12);                 // trees
    EXPECT_NEAR(half_all_reduce_seconds(&net, 1e9, 4), 0.75 + 3e-6, 1e-9);                    // a ring
    EXPECT_NEAR(half_all_reduce_seconds(&net, 1e9, 2), 0.5 + 1e-6, 1e-9);
}

// Eight processes in a machine: within it, its own link counts; beyond it, the slower of the two links, and in trees
// the latencies of both.
TEST(machines_have_lines_of_their_own) {
    const Network net = {{8e9, 1e-6}, {1e9, 1e-5}, 8};
    EXPECT_NEAR(half_all_reduce_seconds(&net, 8e9, 8), 7.0 / 8 + 7e-6, 1e-9);
    EXPECT_NEAR(half_all_reduce_seconds(&net, 8e9, 16), 15.0 / 16 * 8 + 15e-5, 1e-9);
    EXPECT_NEAR(half_all_reduce_seconds(&net, 0, 64), 3e-6 + 3e-5, 1e-12);
    const Network fast = {{1e9, 1e-6}, {8e9, 1e-6}, 8}; // a fast link between machines helps none within
    EXPECT_NEAR(half_all_reduce_seconds(&fast, 8e9, 16), 15.0 / 16 * 8 + 15e-6, 1e-9);
    const Network alone = {{1e9, 1e-6}, {2e9, 1e-5}, 1}; // one in each
    EXPECT_NEAR(half_all_reduce_seconds(&alone, 2e9, 2), 0.5 + 1e-5, 1e-9);
}

TEST(links_are_read_and_refused) {
    Error err;
    Network net;
    EXPECT(link_parse("300GB/s:5us", &net, &err) && net.per_machine == INT32_MAX);
    EXPECT_NEAR(net.within.bandwidth, 300e9, 1);
    EXPECT_NEAR(net.between.latency, 5e-6, 1e-15);
    EXPECT(link_parse("8x300GB/s:5us,2.5GB/s:15us", &net, &err) && net.per_machine == 8);
    EXPECT_NEAR(net.within.latency, 5e-6, 1e-15);
    EXPECT_NEAR(net.between.bandwidth, 2.5e9, 1);
    const char* const bad[] = {"", "300", "300GB/s", "0GB/s:1us", "-1GB/s:1us", "infGB/s:1us", "nanGB/s:1us",
                               "1GB/s:-1us", "300GB/s:5us,50GB/s:5us", "8x300GB/s:5us", "0x3GB/s:5us,5GB/s:5us",
                               "300GB/s:5usec", "8x3GB/s:5us,5GB/s:5us,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (link_parse(bad[i], &net, &err)) { TEST_FAIL("--link '%s' was taken", bad[i]); }
    }
}

TEST(the_parts_of_a_given_step_are_the_whole) {
    const ScaleModel m = open_model();
    const MicroTime t = micro_of_whole(8, 3.0, &m);
    EXPECT_NEAR(micro_seconds(&m, &t), 3.0, 1e-12);
    EXPECT_NEAR(t.classifier, 3.0 * 400 / 600, 1e-12); // the classifier has as many weights as the embeddings
    EXPECT_NEAR(t.forward, 3.0 * 2 * 200 / (6 * 600), 1e-12);
}

TEST_MAIN()
