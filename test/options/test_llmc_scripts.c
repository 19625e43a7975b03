// The command lines of llm.c's own scripts (its folder scripts/) mean here what they mean there.
#include "llmc/comm/launch.h"
#include "llmc/options/config.h"
#include "llmc/options/flags.h"
#include "test/test.h"

typedef struct {
    const char *name, *line; // as the shell passes the words on, separated by spaces
    const char* want;        // words "option=value" that differ from those of all of them
} Script;

#define FINEWEB(SIZE) "-i dev/data/" SIZE "/fineweb_train_*.bin -j dev/data/" SIZE "/fineweb_val_*.bin "
#define DATA(SIZE) "train_data=dev/data/" SIZE "/fineweb_train_*.bin val_data=dev/data/" SIZE "/fineweb_val_*.bin "
#define MULTI_NODE "-i /data/fineweb_train_*.bin -j /data/fineweb_val_*.bin -o /data/log "
#define MULTI_NODE_DATA "train_data=/data/fineweb_train_*.bin val_data=/data/fineweb_val_*.bin out=/data/log "

static const Script SCRIPTS[] = {
    {"run_gpt2_124M.sh",
     FINEWEB("fineweb10B") "-o log_gpt2_124M -v 250 -s 20000 -g 144 -h 1 -b 64 -t 1024 -d 524288 -r 0 -z 1 -c 0.1 "
     "-l 0.0006 -q 0.0 -u 700 -n 5000 -y 1 -e d12",
     DATA("fineweb10B") "out=log_gpt2_124M model=d12 sample_every=20000 batch_size=64 seq_len=1024 "
     "total_batch_size=524288 lr=0.0006 min_lr_frac=0 save_every=5000 max_steps=-1 resume=auto"},
    {"run_gpt2_350M.sh",
     FINEWEB("fineweb100B") "-o log_gpt2_350M -v 250 -s 100000 -g 144 -h 1 -b 64 -t 1024 -d 524288 -r 0 -z 1 -c 0.1 "
     "-l 0.0003 -q 0.0 -u 700 -n 2000 -x 60000 -y 1 -e d24 -pn 8 -pr 3",
     DATA("fineweb100B") "out=log_gpt2_350M model=d24 sample_every=100000 batch_size=64 seq_len=1024 "
     "total_batch_size=524288 lr=0.0003 min_lr_frac=0 save_every=2000 max_steps=60000 resume=auto"},
    {"run_gpt2_774M.sh",
     FINEWEB("fineweb100B") "-o log_gpt2_774M -v 250 -s 300000 -g 144 -h 1 -b 32 -t 1024 -d 524288 -r 0 -z 1 -c 0.1 "
     "-l 0.00025 -q 0.0 -u 700 -n 4000 -x 286102 -y 1 -e d36",
     DATA("fineweb100B") "out=log_gpt2_774M model=d36 sample_every=300000 batch_size=32 seq_len=1024 "
     "total_batch_size=524288 lr=0.00025 min_lr_frac=0 save_every=4000 max_steps=286102 resume=auto"},
    {"run_gpt2_1558M.sh",
     "-i dev/data/edu_fineweb100B/edu_fineweb_train_*.bin -j dev/data/edu_fineweb100B/edu_fineweb_val_*.bin "
     "-o log_gpt2_1558M -v 250 -s 300000 -g 384 -h 1 -b 16 -t 1024 -d 1048576 -r 0 -z 1 -c 0.1 -k cosine -l 0.0006 "
     "-q 0.1 -u 700 -n 2000 -x 32000 -ge 1 -y 1 -e d48",
     "train_data=dev/data/edu_fineweb100B/edu_fineweb_train_*.bin out=log_gpt2_1558M model=d48 sample_every=300000 "
     "sample_tokens=384 batch_size=16 seq_len=1024 total_batch_size=1048576 lr=0.0006 min_lr_frac=0.1 save_every=2000 "
     "max_steps=32000 resume=auto"},
    {"run_gpt3_125M.sh",
     FINEWEB("fineweb100B") "-o log_gpt3_125M -v 250 -s 20000 -g 144 -h 1 -b 32 -t 2048 -d 524288 -r 0 -z 1 -c 0.1 "
     "-l 0.0006 -q 0.1 -u 700 -n 10000 -nk 5 -nm 50000 -ge 1 -sl 7.0 -sg 7.0 -y 1 -x 572204 -e gpt3:c768",
     DATA("fineweb100B") "out=log_gpt3_125M model=gpt3:c768 sample_every=20000 batch_size=32 seq_len=2048 "
     "total_batch_size=524288 lr=0.0006 min_lr_frac=0.1 save_every=10000 keep=5,best,every:50000 skip_z=7.0:7.0 "
     "max_steps=572204 resume=auto"},
    {"multi_node/run_gpt2_124M_mpi.sh",
     MULTI_NODE "-v 250 -s 20000 -g 144 -h 1 -b 64 -t 1024 -d 2097152 -r 0 -z 1 -c 0.1 -l 0.0006 -q 0.1 -u 700 -n 1000 "
     "-y 0 -e gpt2:12 -pi mpi",
     MULTI_NODE_DATA "model=d12 total_batch_size=2097152 min_lr_frac=0.1 save_every=1000 resume="},
    {"multi_node/run_gpt2_124M_tcp.sbatch",
     MULTI_NODE "-v 250 -s 20000 -g 144 -h 1 -b 64 -t 1024 -d 2097152 -r 0 -z 1 -c 0.1 -l 0.0006 -q 0.0 -u 700 -n 5000 "
     "-y 1 -e d12 -pn 16 -pr 11 -pg 8 -ps 10.0.1.220 -pi tcp",
     MULTI_NODE_DATA "model=d12 total_batch_size=2097152 min_lr_frac=0 save_every=5000 resume=auto"},
    {"multi_node/run_gpt2_124M_fs.sbatch",
     MULTI_NODE "-v 250 -s 20000 -g 144 -h 1 -b 64 -t 1024 -d 2097152 -r 0 -z 1 -c 0.1 -l 0.0006 -q 0.0 -u 700 -n 5000 "
     "-y 1 -e d12 -pn 8 -pr 3 -pg 8 -pf /data/log -pi fs",
     MULTI_NODE_DATA "model=d12 total_batch_size=2097152 min_lr_frac=0 save_every=5000 resume=auto"},
};
static const char ALL[] = "val_every=250 eval_data=dev/data/hellaswag/hellaswag_val.bin recompute=none "
                          "zero=1 weight_decay=0.1 warmup_steps=700 schedule=cosine init=random";

enum { MAX_WORDS = 64 };

static int split_words(char* words[MAX_WORDS], const char* line) {
    int n = 0;
    for (char* w = strtok(format("%s", line), " "); w; w = strtok(NULL, " ")) { words[n++] = w; }
    return n;
}

static Config parse_line(const char* line, FlagsDevice device) {
    char* words[MAX_WORDS];
    int argc = split_words(words, line);
    char** options = flags_rewrite(&argc, words, device);
    Config c;
    config_defaults(&c);
    config_parse(&c, TRAIN, "train", argc, options);
    return c;
}

static void expect_options(const Config* c, const char* script, const char* want) {
    char* words[MAX_WORDS];
    const int n = split_words(words, want);
    for (int i = 0; i < n; i++) {
        char* value = strchr(words[i], '=');
        *value++ = 0;
        char* got = option_value(config_find(words[i]), c);
        if (strcmp(got, value)) { TEST_FAIL("%s: --%s is '%s', not '%s'", script, words[i], got, value); }
        free(got);
    }
}

static void clear_launch(void) {
    static const char* const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) { unsetenv(names[i]); }
    process_rank = 0;
}

// As mpirun starts rank 3 of 8.
static void set_mpirun(void) {
    clear_launch();
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
}

TEST(the_command_lines_of_llm_c_s_scripts) {
    for (size_t i = 0; i < sizeof SCRIPTS / sizeof *SCRIPTS; i++) {
        const Script* s = &SCRIPTS[i];
        for (int device = FLAGS_CPU; device <= FLAGS_GPU; device++) {
            set_mpirun();
            const Config c = parse_line(s->line, (FlagsDevice)device);
            expect_options(&c, s->name, s->want);
            expect_options(&c, s->name, ALL);
        }
    }
    clear_launch();
}

TEST(pi_tcp_and_fs_are_launchers) {
    Error err;
    Launch launch;
    clear_launch();
    parse_line("-e d12 -pn 16 -pr 11 -pg 8 -ps 10.0.1.220 -pi tcp", FLAGS_GPU);
    EXPECT(launch_detect(&launch, &err) && launch.rank == 11 && launch.size == 16);
    EXPECT(launch.local_rank == 3 && launch.rendezvous == RENDEZVOUS_FILE && process_rank == 11);
    EXPECT(!strcmp(getenv("MASTER_ADDR"), "10.0.1.220"));
    parse_line("-e d12 -pn 16 -pr 11 -ps other -pi tcp", FLAGS_GPU);
    EXPECT(!strcmp(getenv("MASTER_ADDR"), "10.0.1.220")); // a launcher's variables stay
    clear_launch();
    parse_line("-e d12 -pn 8 -pr 3 -pi fs -pf /tmp", FLAGS_GPU);
    EXPECT(launch_detect(&launch, &err) && launch.rank == 3 && launch.size == 8);
    EXPECT(launch.rendezvous == RENDEZVOUS_FILE && !getenv("MASTER_ADDR"));
    clear_launch();
    EXPECT_DEATH(EXIT_USAGE, "RANK=16 is not below", parse_line("-e d12 -pn 16 -pr 16 -ps a -pi tcp", FLAGS_GPU));
}

TEST(pn_and_pr_are_those_of_the_launcher) {
    clear_launch();
    EXPECT_DEATH(EXIT_USAGE, "-pn 8 -pr 3: no launcher started this process as rank 0 of 1",
                 parse_line("-e d12 -pn 8 -pr 3", FLAGS_GPU));
    set_mpirun();
    EXPECT_DEATH(EXIT_USAGE, "-pn 8 -pr 4: mpirun started this process as rank 3 of 8",
                 parse_line("-e d12 -pn 8 -pr 4", FLAGS_GPU));
    EXPECT_DEATH(EXIT_USAGE, "-pn 16 -pr 3: mpirun", parse_line("-e d12 -pn 16 -pr 3", FLAGS_GPU));
    parse_line("-e d12", FLAGS_GPU);
    EXPECT(process_rank == 3); // not named, not compared
    clear_launch();
}

TEST_MAIN()
