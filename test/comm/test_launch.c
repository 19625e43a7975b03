// Detecting the launcher: the variables of each, and every way in which they can be wrong.
#include "llmc/comm/launch.h"
#include "test/test.h"

// Detects a launch with these variables and none else; NAME=VALUE, NULL at the end.
static bool detect(Launch* launch, Error* err, const char* const* variables) {
    clearenv();
    for (; *variables; variables++) { putenv((char*)*variables); }
    return launch_detect(launch, err);
}
#define DETECT(launch, err, ...) (detect(launch, err, (const char* const[]){__VA_ARGS__, NULL}))
#define EXPECT_REFUSED(words, ...)                                                                          \
    do {                                                                                                    \
        Launch l_;                                                                                          \
        Error e_ = {.text = ""};                                                                                \
        if (DETECT(&l_, &e_, __VA_ARGS__)) { TEST_FAIL("was accepted, not refused for: %s", words); }       \
        else if (!strstr(e_.text, words)) { TEST_FAIL("no \"%s\" in: %s", words, e_.text); }                \
    } while (0)
#define TORCHRUN "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node0", "MASTER_PORT=29500"

TEST(no_launcher_is_one_process) {
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "HOME=/", "MASTER_ADDR=left-behind"));
    EXPECT(l.rendezvous == RENDEZVOUS_NONE && l.rank == 0 && l.size == 1 && l.local_rank == 0 &&
           !strcmp(l.launcher, "no launcher"));
}

TEST(torchrun_s_ranks_meet_by_a_file) {
    Launch l, other;
    Error err;
    EXPECT(DETECT(&l, &err, TORCHRUN, "TORCHELASTIC_RUN_ID=blue"));
    EXPECT(l.rendezvous == RENDEZVOUS_FILE && l.rank == 3 && l.size == 8 && l.local_rank == 1 && !l.folder);
    EXPECT(!strcmp(l.launcher, "torchrun"));
    EXPECT(DETECT(&other, &err, "RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0", "MASTER_ADDR=node0",
                  "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=blue") && other.run == l.run); // of the same run
    EXPECT(DETECT(&other, &err, TORCHRUN, "TORCHELASTIC_RUN_ID=red") && other.run != l.run);
    EXPECT(DETECT(&other, &err, "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node0",
                  "MASTER_PORT=29501", "TORCHELASTIC_RUN_ID=blue") && other.run != l.run);
    EXPECT(DETECT(&l, &err, "RANK=1", "WORLD_SIZE=2")); // the least that tells ranks
    EXPECT(l.rendezvous == RENDEZVOUS_FILE && l.rank == 1 && l.local_rank == -1);
}

TEST(ranks_of_gpus_meet_by_their_sockets) {
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "RANK=0", "WORLD_SIZE=3", "LOCAL_RANK=0", "GPT2_SOCKETS=5,7"));
    EXPECT(l.rendezvous == RENDEZVOUS_SOCKETS && !strcmp(l.sockets, "5,7") && !strcmp(l.launcher, "--gpus"));
}

TEST(torchrun_under_srun_is_torchrun) {
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "OMPI_COMM_WORLD_RANK=1",
                  "OMPI_COMM_WORLD_SIZE=2", TORCHRUN));
    EXPECT(l.size == 8 && l.rank == 3 && !strcmp(l.launcher, "torchrun"));
}

TEST(ranks_of_mpirun_and_srun_meet_by_mpi) {
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                  "OMPI_COMM_WORLD_LOCAL_RANK=1"));
    EXPECT(l.rendezvous == RENDEZVOUS_MPI && l.rank == 1 && l.size == 4 && l.local_rank == 1 &&
           !strcmp(l.launcher, "mpirun"));
    EXPECT(DETECT(&l, &err, "PMI_RANK=2", "PMI_SIZE=4")); // MPICH does not always set a local rank
    EXPECT(l.rendezvous == RENDEZVOUS_MPI && l.rank == 2 && l.size == 4 && l.local_rank == -1);
    EXPECT(DETECT(&l, &err, "PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=0") && l.local_rank == 0);
    EXPECT(DETECT(&l, &err, "SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=6", "SLURM_LOCALID=2",
                  "SLURM_JOB_ID=77"));
    EXPECT(l.rendezvous == RENDEZVOUS_MPI && l.rank == 5 && l.size == 6 && l.local_rank == 2);
}

TEST(a_batch_script_is_one_process) { // sbatch sets these in the script itself
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=7"));
    EXPECT(l.rendezvous == RENDEZVOUS_NONE && l.size == 1);
}

TEST(one_rank_of_one_meets_nobody) {
    Launch l;
    Error err;
    EXPECT(DETECT(&l, &err, "RANK=0", "WORLD_SIZE=1") && l.rendezvous == RENDEZVOUS_NONE &&
           l.local_rank == 0);
    EXPECT(DETECT(&l, &err, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1") &&
           l.rendezvous == RENDEZVOUS_NONE);
}

TEST(half_given_sets_are_refused) {
    EXPECT_REFUSED("WORLD_SIZE is not set", "RANK=0");
    EXPECT_REFUSED("RANK is not set", "WORLD_SIZE=2");
    EXPECT_REFUSED("OMPI_COMM_WORLD_SIZE is not set", "OMPI_COMM_WORLD_RANK=0");
    EXPECT_REFUSED("PMI_RANK is not set", "PMI_SIZE=2");
    EXPECT_REFUSED("SLURM_PROCID is not set", "SLURM_STEP_NUM_TASKS=2");
}

TEST(senseless_values_are_refused) {
    static const char* const numbers[] = {"",    "x", "1x", " 1", "-1", "+1", "0x1", "1.0", "99999999999999999999",
                                          "4097"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char rank[64], size[64], local[64];
        snprintf(rank, sizeof rank, "RANK=%s", numbers[i]);
        snprintf(size, sizeof size, "WORLD_SIZE=%s", numbers[i]);
        snprintf(local, sizeof local, "LOCAL_RANK=%s", numbers[i]);
        EXPECT_REFUSED(rank, rank, "WORLD_SIZE=2", "LOCAL_RANK=0");
        EXPECT_REFUSED(size, "RANK=0", size, "LOCAL_RANK=0");
        EXPECT_REFUSED(local, "RANK=0", "WORLD_SIZE=2", local);
    }
    EXPECT_REFUSED("WORLD_SIZE=0", "RANK=0", "WORLD_SIZE=0");
    EXPECT_REFUSED("RANK=2 is not below WORLD_SIZE=2", "RANK=2", "WORLD_SIZE=2", "LOCAL_RANK=0");
    EXPECT_REFUSED("LOCAL_RANK=2 is not below", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=2");
    EXPECT_REFUSED("RANK=1 is not below WORLD_SIZE=1", "RANK=1", "WORLD_SIZE=1");
}

TEST_MAIN()
