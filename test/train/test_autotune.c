// The choice among variants of operations, on a device whose times the test sets.
#include "llmc/train/autotune.h"
#include "test/files/small_model.h"

enum { VARIANTS = 3 };
static const char* const NAMES[VARIANTS] = {"4x3", "4x32", "8x32"}; // one begins like another, one is as long
static double seconds[VARIANTS];
static int chosen[NUM_CHOICES], newest; // variants

static const char* name_of(Choice choice, int i, int B, int T, int C_, int heads) {
    (void)B, (void)T, (void)C_, (void)heads;
    return choice != CHOICE_MATMUL_SMS && i < VARIANTS ? NAMES[i] : NULL;
}
static void choose(Choice choice, int i, int B, int T, int C_, int heads) {
    (void)B, (void)T, (void)C_, (void)heads;
    chosen[choice] = newest = i;
}
static const char* key(int B, int T, int C_, int heads) {
    (void)B, (void)T, (void)C_, (void)heads;
    return "key";
}
static void start(void) {}
static double stop(void) { return seconds[newest]; }
static void alone(Choice choice) { (void)choice; }

// Returns the variant that is chosen of an operation when they take so long. saved: the variants of a run, or NULL.
static int choose_by(double first, double second, double third, const char* saved) {
    Model* m = open_model(C);
    Backend device = *m->g.backend;
    device.is_host = false;
    device.variant_name = name_of, device.choose_variant = choose, device.run_alone = alone, device.variants_key = key;
    device.device_timer_start = start, device.device_timer_stop = stop;
    m->g.backend = &device;
    seconds[0] = first, seconds[1] = second, seconds[2] = third;
    Comm comm = comm_alone();
    autotune(&m->o, &(Plan){.tune = tune_0}, &comm, saved, NULL);
    close_model(m);
    return chosen[CHOICE_GELU_BACKWARD];
}

// Times vary by a few percent: repeated starts would choose otherwise, and have other bits.
TEST(another_variant_than_the_first_is_faster_by_3_percent) {
    EXPECT(choose_by(1, 1, 1, NULL) == 0);
    EXPECT(choose_by(1, 0.98, 0.975, NULL) == 0);
    EXPECT(choose_by(1, 0.96, 0.98, NULL) == 1);
    EXPECT(choose_by(1, 0.96, 0.95, NULL) == 2); // of the others the fastest
}

TEST(a_saved_variant_is_taken_by_its_whole_name) {
    for (int i = 0; i < VARIANTS; i++) {
        char* saved = format("gelu_forward=%s gelu_backward=%s flash_keys=4x3", NAMES[(i + 1) % VARIANTS], NAMES[i]);
        EXPECT(choose_by(1 + (i == 0), 1 + (i == 1), 1 + (i == 2), saved) == i); // though it is the slowest
        free(saved);
    }
    EXPECT_DEATH(2, "gelu_backward=4x, which an earlier start chose, does not exist here: choosing again",
                 exit(choose_by(1, 1, 0.5, "gelu_backward=4x")));
}

TEST_MAIN()
