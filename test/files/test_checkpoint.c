// Checkpoints: listing, rotation, refusal of damaged ones, options.json. Every message must name the file and, where
// there is one, the tensor. test_gpt2.c saves and loads a model on every backend.
#include "test/base/synced.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/train/weights.h"
#include "llmc/base/json.h"
#include "llmc/files/sums.h"
#include "test/files/small_save.h"
#include "test/test.h"
#include "llmc/tokenizer/tokenizer_open.h"
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

// ---------------------------------------------------------------------------------------------------------------------
// folders

static void expect_list(const char* out, int count, long long first, long long second) {
    size_t n;
    long long* steps = checkpoint_list(out, &n);
    if ((int)n != count || (count > 0 && steps[0] != first) || (count > 1 && steps[1] != second)) {
        TEST_FAIL("%zu checkpoints, the newest %lld, not %d, the newest %lld and %lld", n, n ? steps[0] : -1LL, count,
                  first, second);
    }
    free(steps);
}

TEST(only_checkpoints_are_listed_newest_first) {
    static const char* const others[] = {
        "step_1",        "step_0000001",      "step_00000010x",     "step_",         "step_0000001x", "xstep_00000001",
        "step_-0000001", "step_00000007.tmp", ".tmp-step_00000005", "STEP_00000009", "step-00000009", "metrics.jsonl",
        "step_+0000001", "step_ 0000001", "step_000000010"}; // other spellings of a number
    char* out = new_folder();
    expect_list(out, 0, 0, 0);
    for (int i = 0; i < 15; i++) { make_folder(out, others[i]); }
    expect_list(out, 0, 0, 0);
    make_folder(out, "step_00000009");
    make_folder(out, "step_00000100");
    make_folder(out, "step_00000000");
    make_folder(out, "step_00000020");
    expect_list(out, 4, 100, 20);
    make_folder(out, "step_1234567890"); // more digits than the format's eight
    expect_list(out, 5, 1234567890, 100);
    write_text(out, "step_00000200", "x"); // a file
    expect_list(out, 5, 1234567890, 100);
    Error err;
    EXPECT(!check_no_run(out, &err) && strstr(err.text, "such as ") && strstr(err.text, "/step_1234567890"));
    expect_list("/none", 0, 0, 0);
    free(out);
}

static void forbid_more_files(void) {
    const struct rlimit none = {3, 3}; // standard input, output and error are open
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) { fatal("setrlimit: %s", strerror(errno)); }
}

TEST(a_folder_that_cannot_be_listed_ends_the_program_and_loses_nothing) {
    size_t n;
    json_t* state;
    char *out = new_folder(), *file = below(out, "file");
    write_text(out, "file", "x");
    EXPECT_DEATH(EXIT_RUNTIME, "file: cannot list the folder: Not a directory", checkpoint_list(file, &n));
    EXPECT_DEATH(EXIT_RUNTIME, "file: cannot list the folder: Not a directory", checkpoint_clean(file));
    make_folder(out, "step_00000003");
    make_folder(out, ".tmp-step_00000005");
    static const char words[] = "cannot list the folder: Too many open files; nothing was changed";
    EXPECT_DEATH(EXIT_RUNTIME, words, forbid_more_files(); checkpoint_list(out, &n));
    EXPECT_DEATH(EXIT_RUNTIME, words, forbid_more_files(); checkpoint_newest(out, &state, CHECKPOINT_READ));
    EXPECT_DEATH(EXIT_RUNTIME, words, forbid_more_files(); checkpoint_clean(out));
    EXPECT(folder_has(out, "file") && folder_has(out, "step_00000003") && folder_has(out, ".tmp-step_00000005"));
    char* unknown = below(out, "step_00000009"); // it may be the newest
    EXPECT(symlink("step_00000009", unknown) == 0);
    EXPECT_DEATH(EXIT_RUNTIME, "step_00000009: cannot look at it: Too many levels", checkpoint_list(out, &n));
    make_folder(out, "step_00000004");
    const KeepRule newest = {.newest = 1};
    EXPECT_DEATH(0, "step_00000009: cannot look at it: Too many levels of symbolic links; no old checkpoint is removed",
                 checkpoint_rotate(out, 4, &newest); exit(0)); // the run goes on
    EXPECT(folder_has(out, "step_00000003") && folder_has(out, "step_00000004"));
    free(unknown);
    free(file);
    free(out);
}

TEST(cleaning_removes_the_half_written_and_nothing_else) {
    char* out = new_folder();
    make_folder(out, ".tmp-step_00000005/deep/er");
    make_folder(out, ".tmp-removed-step_00000001");
    make_folder(out, "step_00000003");
    make_folder(out, ".tmpfile");
    write_text(out, ".tmp-file", "x");
    write_text(out, ".tmp-step_00000005/model.safetensors", "x");
    write_text(out, "metrics.jsonl", "x");
    char* link = below(out, ".tmp-link");
    if (symlink("step_00000003", link) != 0) { fatal("symlink"); }
    checkpoint_clean(out);
    EXPECT(!folder_has(out, ".tmp-step_00000005") && !folder_has(out, ".tmp-removed-step_00000001"));
    EXPECT(!folder_has(out, ".tmp-file") && !folder_has(out, ".tmp-link"));
    EXPECT(folder_has(out, "step_00000003") && folder_has(out, "metrics.jsonl") &&
           folder_has(out, ".tmpfile")); // a link is removed, not what it names
    checkpoint_clean("/none");
    free(link);
    free(out);
}

TEST(removing_takes_all_of_one_checkpoint) {
    char* out = new_folder();
    make_folder(out, "step_00000003/more");
    make_folder(out, "step_00000004");
    write_text(out, "step_00000003/state.json", "x");
    char* path = below(out, "step_00000003");
    checkpoint_remove(path);
    EXPECT(!folder_has(out, "step_00000003") && !folder_has(out, ".tmp-removed-step_00000003") &&
           folder_has(out, "step_00000004"));
    EXPECT_DEATH(0, "cannot remove the old checkpoint: No such file", checkpoint_remove(path); exit(0)); // a warning
    free(path);
    free(out);
}

TEST(a_checkpoint_that_is_being_read_is_removed_later) {
    char *out = new_folder(), *path = below(out, "step_00000003");
    make_folder(out, "step_00000003");
    make_folder(out, "step_00000004");
    const int lock = checkpoint_hold(path);
    EXPECT(lock >= 0);
    checkpoint_rotate(out, 4, &(KeepRule){.newest = 1});
    EXPECT(folder_has(out, "step_00000003"));
    close(lock);
    checkpoint_rotate(out, 4, &(KeepRule){.newest = 1});
    EXPECT(!folder_has(out, "step_00000003") && folder_has(out, "step_00000004"));
    EXPECT(checkpoint_hold(path) == -1); // it was removed
    free(path);
    free(out);
}

static int shared_locks; // that were asked for

int flock(int fd, int how) {
    shared_locks += (how & LOCK_SH) != 0;
    return (int)syscall(SYS_flock, fd, how);
}

// A run that begins with another one's checkpoint goes on for days.
TEST(a_checkpoint_is_locked_until_its_weights_are_loaded) {
    char* out = new_folder();
    Model* m = open_model(C);
    char* path = save(out, m, 1, 1);
    const Plan plan = {.weights = path};
    shared_locks = 0;
    load_weights(&m->g, &m->o, &plan);
    EXPECT(shared_locks == 1);
    checkpoint_remove(path);
    EXPECT(!path_exists(path));
    close_model(m);
    free(path);
    free(out);
}

TEST(a_checkpoint_that_is_being_removed_is_not_read) {
    json_t* state;
    char *out = new_folder(), *path = below(out, "step_00000003");
    make_folder(out, "step_00000003");
    const int lock = open(path, O_RDONLY | O_DIRECTORY);
    EXPECT(flock(lock, LOCK_EX) == 0 && checkpoint_hold(path) == -1);
    EXPECT_DEATH(EXIT_RUNTIME, "its checkpoints are removed faster than they can be read",
                 checkpoint_newest(out, &state, CHECKPOINT_READ));
    close(lock);
    free(path);
    free(out);
}

TEST(rules_of_the_checkpoints_to_keep) {
    static const char* const wrong[] = {"", "best", "-1", "3,", "3,better", "3:1", "3,best:1", "3,every", "3,every:0",
                                        "3,every:1x", "3,best,3", "99999999999999999999"};
    Error err;
    KeepRule keep;
    EXPECT(keep_parse(&keep, "0", &err) && keep.newest == 0 && !keep.best && keep.every == 0 && keep.best_step == 0);
    EXPECT(keep_parse(&keep, "3,best", &err) && keep.newest == 3 && keep.best && keep.every == 0);
    EXPECT(keep_parse(&keep, "12,every:500,best", &err) && keep.newest == 12 && keep.best && keep.every == 500);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        test_case = wrong[i];
        EXPECT(!keep_parse(&keep, wrong[i], &err) && strstr(err.text, "give N[,best][,every:M], such as 3,best"));
    }
    test_case = NULL;
}

TEST(the_best_and_every_so_many_are_kept_beside_the_newest) {
    char* out = new_folder();
    for (int step = 10; step <= 60; step += 10) {
        char* name = format("step_%08d", step);
        make_folder(out, name);
        free(name);
    }
    checkpoint_rotate(out, 60, &(KeepRule){.newest = 1, .best = true, .best_step = 30, .every = 20});
    expect_list(out, 4, 60, 40);
    EXPECT(folder_has(out, "step_00000030") && folder_has(out, "step_00000020"));
    checkpoint_rotate(out, 60, &(KeepRule){.newest = 2, .best_step = 30}); // which is only kept if it is asked for
    expect_list(out, 2, 60, 40);
    free(out);
}

TEST(what_is_set_aside_keeps_a_name_of_its_own) {
    char *out = new_folder(), *path = below(out, "step_00000003");
    static const char* const names[] = {"damaged-step_00000003", "damaged-step_00000003-2", "damaged-step_00000003-3"};
    for (int i = 0; i < 3; i++) {
        make_folder(out, "step_00000003");
        const size_t before = num_synced;
        checkpoint_set_aside(path, "damaged");
        EXPECT(num_synced == before + 1); // their folder
        EXPECT(!folder_has(out, "step_00000003") && folder_has(out, names[i]) && folder_has(out, names[0]));
    }
    expect_list(out, 0, 0, 0);
    checkpoint_clean(out);
    EXPECT(folder_has(out, names[0]));
    free(path);
    free(out);
}

// ---------------------------------------------------------------------------------------------------------------------
// saving

TEST(the_newest_are_kept) {
    Model* m = open_model(C);
    char* out = new_folder();
    for (long long step = 10; step <= 40; step += 10) {
        char *path = save(out, m, step, 2), *want = format("%s/step_%08lld", out, step);
        EXPECT(!strcmp(path, want) && is_directory(path) && is_all_synced());
        free(path);
        free(want);
    }
    expect_list(out, 2, 40, 30);
    free(save(out, m, 50, 1));
    expect_list(out, 1, 50, 0);
    for (long long step = 60; step <= 80; step += 10) { free(save(out, m, step, 0)); }
    expect_list(out, 4, 80, 70); // 0: all are kept
    free(save(out, m, 80, 0));  // in the place of the same one, which could not be synced
    expect_list(out, 4, 80, 70);
    EXPECT(!folder_has(out, "replaced-step_00000080"));
    m->o.masters[0] += 1;
    free(save(out, m, 80, 0)); // in the place of one that is not this run's
    expect_list(out, 4, 80, 70);
    EXPECT(folder_has(out, "replaced-step_00000080"));
    EXPECT(!folder_has(out, ".tmp-step_00000080") && !folder_has(out, ".tmp-removed-step_00000080"));
    free(out);
    close_model(m);
}

TEST(newer_checkpoints_are_not_removed) {
    Model* m = open_model(C);
    char* out = new_folder();
    for (long long step = 10; step <= 30; step += 10) { free(save(out, m, step, 0)); }
    free(save(out, m, 15, 1)); // they are not this run's
    expect_list(out, 3, 30, 20);
    EXPECT(folder_has(out, "step_00000015") && !folder_has(out, "step_00000010"));
    free(out);
    close_model(m);
}

TEST(a_failed_save_leaves_the_older_checkpoints) {
    Error err;
    Model* m = open_model(C);
    Config c;
    config_defaults(&c);
    char* out = new_folder();
    free(save(out, m, 1, 3));
    const TrainState s = state_at(2);
    write_text(out, ".tmp-step_00000002", "in the way");
    c.keep = "1,best";
    EXPECT(!save_with(out, m, &s, &c, &err) &&
           strstr(err.text, ".tmp-step_00000002: a file, not a folder"));
    expect_list(out, 1, 1, 0);
    EXPECT(!folder_has(out, ".tmp-step_00000002"));
    char* none = below(out, "none");
    EXPECT(!save_with(none, m, &s, &c, &err) && strstr(err.text, none));
    free(none);
    free(out);
    close_model(m);
}

static const char* changing_file; // one whose last byte the disk changes as soon as it is synced

static void change_last_byte(int fd) {
    struct stat st;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0 || fstat(fd, &st) != 0) { fatal("%s: %s", link, strerror(errno)); }
    path[n] = 0;
    if (!strstr(path_name(path), changing_file)) { return; }
    if (pwrite(fd, "x", 1, st.st_size - 1) != 1) { fatal("%s: %s", path, strerror(errno)); }
}

TEST(a_checkpoint_that_reads_back_otherwise_does_not_count) {
    Error err;
    Model* m = open_model(C);
    char* out = new_folder();
    on_sync = change_last_byte;
    for (int i = 0; i <= NUM_CHECKPOINT_FILES; i++) {
        test_case = changing_file = i < NUM_CHECKPOINT_FILES ? CHECKPOINT_FILES[i] : CHECKPOINT_SUMS;
        EXPECT(!try_save(out, m, 1, 3, &err) && strstr(err.text, changing_file) &&
               strstr(err.text, "what was written reads back otherwise: is the disk damaged?"));
        EXPECT(!folder_has(out, "step_00000001") && !folder_has(out, ".tmp-step_00000001"));
    }
    test_case = NULL;
    on_sync = NULL;
    free(out);
    close_model(m);
}

static size_t free_bytes; // of the disk; 0: as many as it says

int statvfs(const char* path, struct statvfs* v) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) { return -1; }
    const int result = fstatvfs(fd, v);
    close(fd);
    if (free_bytes) { v->f_frsize = 1, v->f_bavail = free_bytes; }
    return result;
}

TEST(a_checkpoint_is_not_begun_without_room_for_it) {
    Error err;
    Model* m = open_model(C);
    char* out = new_folder();
    free_bytes = snapshot_bytes(&m->o) + ((size_t)1 << 20) - 1;
    EXPECT(!try_save(out, m, 1, 3, &err) && strstr(err.text, "a checkpoint takes 1.1 MB, but only 1.1 MB are free"));
    free_bytes++;
    char* path = try_save(out, m, 1, 3, &err);
    EXPECT(path != NULL);
    free_bytes = 0;
    free(path);
    free(out);
    close_model(m);
}

TEST(the_state_of_a_run_comes_back) {
    Error err;
    Model *m = open_model(C), *h = open_model(C);
    Config c;
    config_defaults(&c);
    TrainState s = state_at(123456789);
    Numerics* n = &s.numerics;
    s.tokens = 300000000000, s.window = 1ull << 40, s.updates = 123456780;
    n->bad_steps = 7, n->nonfinite_steps = 5;
    s.best = (Validated){.step = 123456700, .loss = 3.14159265358979, .data = 0xfedcba9876543210ull};
    s.pending = (Phases){.val = true, .sample = true};
    EXPECT(loss_scale_parse(&n->loss_scale, "dynamic:8", false, &err));
    for (int i = 0; i < OUTLIER_WINDOW + 9; i++) { // full, and gone round
        outlier_update(&n->loss_window, 3.0 + rng_uniform(1, RNG_TEST, (uint64_t)i));
        if (i < 50) { outlier_update(&n->norm_window, 1.0 / (i + 3)); }
    }
    char *out = new_folder(), *path = save_with(out, m, &s, &c, &err);
    json_t* state = path ? checkpoint_verify(path, &err) : NULL;
    EXPECT(state && checkpoint_load(&h->o, path, &err));
    TrainState back = train_state_from_json(state);
    Numerics* after = &back.numerics;
    EXPECT(back.updates == s.updates && after->bad_steps == 7 && after->nonfinite_steps == 5);
    EXPECT(back.best.step == s.best.step && back.best.loss == s.best.loss && back.best.data == s.best.data);
    EXPECT(back.pending.val && !back.pending.eval && back.pending.sample);
    const json_t* scale = json_object_get(state, "loss_scale");
    EXPECT(json_real_value(json_object_get(scale, "scale")) == 8 && json_object_get(scale, "good_steps"));
    EXPECT(back.step == s.step && back.tokens == s.tokens && back.window == s.window && back.data_hash == s.data_hash);
    EXPECT(after->loss_window.count == OUTLIER_WINDOW && after->norm_window.count == 50);
    EXPECT(!memcmp(after->loss_window.values, n->loss_window.values, sizeof n->loss_window.values));
    EXPECT(!memcmp(after->norm_window.values, n->norm_window.values, 50 * sizeof(double)));
    EXPECT(outlier_update(&after->loss_window, 3.7) == outlier_update(&n->loss_window, 3.7));
    json_t *options = json_object_get(state, "options"), *all = config_to_json(&c);
    EXPECT(json_object_size(options) == json_object_size(all));
    EXPECT(json_real_value(json_object_get(options, "lr")) == 3e-4);
    json_decref(all);
    EXPECT(!strcmp(json_string_value(json_object_get(json_object_get(state, "kernels"), "cpu")), "generic"));
    json_decref(state);
    free(path);
    free(out);
    close_model(m);
    close_model(h);
}

// ---------------------------------------------------------------------------------------------------------------------
// damage

// A checkpoint for a test to damage.
static char* new_checkpoint(void) {
    Model* m = open_model(C);
    fill_weights(m);
    char *out = new_folder(), *path = save(out, m, 5, 0);
    free(out);
    close_model(m);
    return path;
}

static void expect_refused(const char* folder, const char* file, const char* words) {
    Error err = {.text = ""};
    json_t* state = checkpoint_verify(folder, &err);
    char* name = below(folder, file);
    if (state || !strstr(err.text, name) || !strstr(err.text, words)) {
        TEST_FAIL("%s: no '%s' but '%s'", file, words, err.text);
    }
    json_decref(state);
    free(name);
}

TEST(missing_files_are_named) {
    static const char* const files[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "generation_config.json", "state.json", "checkpoint.b2sums"};
    char* folder = new_checkpoint();
    for (int i = 0; i < 6; i++) {
        char *file = below(folder, files[i]), *away = below(folder, "away");
        EXPECT(rename(file, away) == 0);
        expect_refused(folder, files[i], "cannot open: No such file");
        EXPECT(rename(away, file) == 0);
        free(file);
        free(away);
    }
    Error err;
    json_t* state = checkpoint_verify(folder, &err);
    EXPECT(state != NULL);
    json_decref(state);
    free(folder);
}

// Changes (value NULL: removes) an entry of a JSON file.
static void edit_json(const char* folder, const char* file, const char* key, json_t* value) {
    Error err;
    json_t* object = json_read_in(folder, file, &err);
    if (!object) { fatal("%s", err.text); }
    if (value) { json_object_set_new(object, key, value); }
    else { json_object_del(object, key); }
    write_json(folder, file, object);
    json_decref(object);
}

// Computes the checksum of a file anew.
static void sum_again(const char* folder, const char* file) {
    Error err;
    Sums sums;
    char *path = below(folder, CHECKPOINT_SUMS), *edited = below(folder, file), hex[BLAKE2B_HEX + 1];
    if (!sums_load(&sums, path, &err) || !sum_file(edited, hex, &err)) { fatal("%s", err.text); }
    sums_set(&sums, file, hex);
    if (!sums_save(&sums, path, &err)) { fatal("%s", err.text); }
    sums_free(&sums);
    free(path);
    free(edited);
}

// The same for state.json, with a right checksum afterwards.
static void edit_state(const char* folder, const char* key, json_t* value) {
    edit_json(folder, "state.json", key, value);
    sum_again(folder, "state.json");
}

TEST(states_that_are_newer_edited_or_torn_are_refused) {
    char* folder = new_checkpoint();
    edit_state(folder, "format", json_integer(3));
    expect_refused(folder, "state.json", "format 3, this program reads 2: it was written by another version");
    edit_json(folder, "state.json", "format", json_integer(4));
    expect_refused(folder, "state.json", "damaged or edited (its checksum is wrong)");
    edit_state(folder, "format", json_integer(2));
    edit_json(folder, "state.json", "step", json_integer(6));
    expect_refused(folder, "state.json", "damaged or edited (its checksum is wrong)");
    edit_state(folder, "options", NULL);
    expect_refused(folder, "state.json", "options is missing or impossible");
    write_text(folder, "state.json", "{\"format\": 1,");
    expect_refused(folder, "state.json", "state.json:1: ");
    write_text(folder, "state.json", "[1]");
    expect_refused(folder, "state.json", "not a JSON object");
    write_text(folder, "state.json", "");
    expect_refused(folder, "state.json", "state.json:");
    free(folder);
}

// The program ends there: an older checkpoint must not take its place.
TEST(a_state_of_another_version_is_not_taken_for_damaged) {
    Error err;
    char *folder = new_checkpoint(), *old = new_folder();
    edit_state(folder, "format", json_integer(3));
    EXPECT(!checkpoint_read_state(folder, &err) && err.is_unknown);
    edit_state(folder, "format", NULL);
    EXPECT(!checkpoint_read_state(folder, &err) && !err.is_unknown);
    write_text(old, "state.json", "{\"format\": 1}");
    EXPECT(!checkpoint_read_state(old, &err) && err.is_unknown && strstr(err.text, "of version 2.0 or earlier"));
    free(old);
    free(folder);
}

TEST(states_that_no_run_can_have_are_refused) {
    static const char* const fields[] = {"step",        "updates",     "tokens", "window", "data_hash",
                                         "loss_window", "norm_window", "options"};
    char* folder = new_checkpoint();
    for (int i = 0; i < 8; i++) {
        json_t* state = json_read_in(folder, "state.json", &(Error){.text = ""});
        edit_state(folder, fields[i], json_integer(-1));
        expect_refused(folder, "state.json", fields[i]);
        edit_state(folder, fields[i], NULL);
        expect_refused(folder, "state.json", "is missing or impossible");
        edit_state(folder, fields[i], json_incref(json_object_get(state, fields[i])));
        json_decref(state);
    }
    edit_state(folder, "updates", json_integer(1ll << 31));
    expect_refused(folder, "state.json", "updates is missing or impossible");
    edit_state(folder, "step", json_integer(1ll << 31));
    edit_state(folder, "updates", json_integer(1));
    expect_refused(folder, "state.json", "step is missing or impossible");
    edit_state(folder, "step", json_integer(5));
    json_t* losses = json_array();
    for (int i = 0; i <= OUTLIER_WINDOW; i++) { json_array_append_new(losses, json_integer(1)); }
    edit_state(folder, "loss_window", losses); // one too many
    expect_refused(folder, "state.json", "loss_window is missing or impossible");
    free(folder);
}

// Without a checksum of config.json the weights would load as another model: n_head is in no tensor's shape.
TEST(another_shape_in_config_json_is_refused) {
    char* folder = new_checkpoint();
    edit_json(folder, "config.json", "n_head", json_integer(4));
    expect_refused(folder, "config.json", "damaged or edited (its checksum is wrong)");
    edit_json(folder, "config.json", "n_head", json_integer(NH));
    Error err;
    json_t* state = checkpoint_verify(folder, &err);
    EXPECT(state != NULL); // the same text as before
    json_decref(state);
    edit_json(folder, "config.json", "layer_norm_epsilon", json_real(1e-6)); // not computed here
    sum_again(folder, "config.json");
    expect_refused(folder, "config.json", "layer_norm_epsilon is 1e-06: this program's GPT-2 has 1e-5");
    edit_json(folder, "generation_config.json", "top_k", json_integer(1));
    expect_refused(folder, "generation_config.json", "damaged or edited (its checksum is wrong)");
    free(folder);
}

static void flip_last_byte(const char* folder, const char* file) {
    char* path = below(folder, file);
    FILE* f = fopen(path, "r+b");
    if (!f || fseek(f, -1, SEEK_END)) { fatal("%s", path); }
    const int byte = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(byte ^ 1, f);
    fclose(f);
    free(path);
}

TEST(a_change_of_any_file_or_of_its_checksum_is_noticed) {
    char *folder = new_checkpoint(), *sums = below(folder, CHECKPOINT_SUMS);
    for (int i = 0; i < NUM_CHECKPOINT_FILES; i++) {
        flip_last_byte(folder, CHECKPOINT_FILES[i]);
        expect_refused(folder, CHECKPOINT_FILES[i], "");
        flip_last_byte(folder, CHECKPOINT_FILES[i]);
    }
    flip_last_byte(folder, CHECKPOINT_SUMS);
    expect_refused(folder, CHECKPOINT_SUMS, "damaged: line");
    write_text(folder, CHECKPOINT_SUMS, "");
    expect_refused(folder, "state.json", "it has no checksum");
    sum_again(folder, "state.json");
    expect_refused(folder, "model.safetensors", "it has no checksum");
    write_text(folder, "\xff", "x");
    sum_again(folder, "\xff");
    expect_refused(folder, CHECKPOINT_SUMS, "the name of file 2 is not UTF-8");
    free(sums);
    free(folder);
}

TEST(the_tokenizer_is_in_a_checkpoint_and_is_verified) {
    Error err;
    Model* m = open_model(C);
    Config c;
    config_defaults(&c);
    const Plan plan = small_plan(m);
    const TrainState s = state_at(1);
    Tokenizer bytes = tokenizer_bytes(), t;
    TokenizerFiles files;
    memset(&files, 0, sizeof files);
    EXPECT(tokenizer_files_make(&files, &bytes, MAX_T, "bytes", &err));
    Snapshot snapshot = snapshot_take(&m->o, &s, plan_options(&plan, &c), NULL, NULL);
    snapshot.eot = bytes.eot;
    snapshot.tokenizer = &files;
    char *out = new_folder(), *folder = checkpoint_write(out, &snapshot, &err);
    json_t* state = checkpoint_verify(folder, &err);
    EXPECT(state != NULL);
    EXPECT(tokenizer_read(&t, folder, &err) && tokenizer_hash(&t) == tokenizer_hash(&bytes));
    for (int i = 0; i < NUM_TOKENIZER_FILES; i++) {
        flip_last_byte(folder, TOKENIZER_FILES[i]);
        expect_refused(folder, TOKENIZER_FILES[i], "");
        flip_last_byte(folder, TOKENIZER_FILES[i]);
    }
    snapshot_free(&snapshot);
    tokenizer_files_free(&files);
    tokenizer_free(&t);
    tokenizer_free(&bytes);
    json_decref(state);
    free(folder);
    free(out);
    close_model(m);
}

static void loop(const char* folder, const char* file) { // opening it fails, as a disk may
    char* path = below(folder, file);
    if (remove(path) != 0 || symlink(file, path) != 0) { fatal("symlink"); }
    free(path);
}

TEST(a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged) {
    Model* m = open_model(C);
    json_t* state;
    for (int i = 0; i < NUM_CHECKPOINT_FILES; i++) {
        char* out = new_folder();
        free(save(out, m, 1, 0));
        char* newest = save(out, m, 2, 0);
        loop(newest, CHECKPOINT_FILES[i]);
        for (int use = CHECKPOINT_READ; use <= CHECKPOINT_CONTINUE; use++) {
            EXPECT_DEATH(EXIT_RUNTIME, "cannot open: Too many levels of symbolic links; nothing was changed",
                         checkpoint_newest(out, &state, (CheckpointUse)use));
        }
        expect_list(out, 2, 2, 1);
        free(newest);
        free(out);
    }
    close_model(m);
}

TEST(the_last_good_checkpoint_is_readable_and_undamaged) {
    Model* m = open_model(C);
    uint64_t window;
    for (int i = 0; i < NUM_CHECKPOINT_FILES; i++) {
        char *out = new_folder(), *oldest = save(out, m, 1, 0), *newest = save(out, m, 2, 0);
        EXPECT(checkpoint_before(out, 3, &window) == 2 && window == state_at(2).window);
        loop(newest, CHECKPOINT_FILES[i]);
        EXPECT_DEATH(0, "warning: ", exit(checkpoint_before(out, 3, &window) != 1 || window != state_at(1).window));
        EXPECT(checkpoint_before(out, 2, &window) == 1); // it is not looked at
        EXPECT(checkpoint_before(out, 1, &window) == -1);
        expect_list(out, 2, 2, 1);
        free(oldest);
        free(newest);
        free(out);
    }
    char *out = new_folder(), *oldest = save(out, m, 1, 0), *newest = save(out, m, 2, 0);
    flip_last_byte(newest, "optimizer.safetensors");
    EXPECT_DEATH(0, "optimizer.safetensors: damaged", exit(checkpoint_before(out, 3, &window) != 1));
    free(newest);
    float* const blocks[] = {m->o.masters, m->o.m, m->o.v};
    for (int i = 0; i < 3; i++) { // undamaged, but it cannot be loaded
        const float before = blocks[i][0];
        blocks[i][0] = NAN;
        free(save(out, m, 2, 0));
        EXPECT_DEATH(0, "element 0 is not finite", exit(checkpoint_before(out, 3, &window) != 1));
        blocks[i][0] = before;
    }
    free(oldest);
    free(out);
    close_model(m);
}

TEST(damaged_checkpoints_are_set_aside_by_the_run_that_goes_on_before_them) {
    Model* m = open_model(C);
    json_t* state;
    char* out = new_folder();
    free(save(out, m, 1, 0));
    char *second = save(out, m, 2, 0), *third = save(out, m, 3, 0);
    flip_last_byte(third, "optimizer.safetensors");
    flip_last_byte(second, "model.safetensors");
    char* path = checkpoint_newest(out, &state, CHECKPOINT_READ);
    EXPECT(path && strstr(path, "step_00000001"));
    expect_list(out, 3, 3, 2); // a reader changes nothing
    json_decref(state);
    free(path);
    path = checkpoint_newest(out, &state, CHECKPOINT_CONTINUE);
    EXPECT(path && strstr(path, "step_00000001"));
    expect_list(out, 1, 1, 0);
    EXPECT(folder_has(out, "damaged-step_00000002/model.safetensors") &&
           folder_has(out, "damaged-step_00000003/state.json"));
    json_decref(state);
    flip_last_byte(path, "model.safetensors"); // the only one: it stays, so that the next start does not begin afresh
    EXPECT_DEATH(EXIT_RUNTIME, "none of its 1 checkpoints", checkpoint_newest(out, &state, CHECKPOINT_CONTINUE));
    expect_list(out, 1, 1, 0);
    free(path);
    free(second);
    free(third);
    free(out);
    close_model(m);
}

TEST(a_renamed_checkpoint_is_not_the_newest) {
    Model* m = open_model(C);
    json_t* state;
    char *out = new_folder(), *first = save(out, m, 1, 0), *third = save(out, m, 3, 0),
         *renamed = below(out, "step_00000900");
    EXPECT(rename(third, renamed) == 0);
    expect_refused(renamed, "state.json", "of step 3, so the folder was renamed: name it step_00000003");
    char* path = checkpoint_newest(out, &state, CHECKPOINT_CONTINUE);
    EXPECT(path && !strcmp(path, first) && folder_has(out, "damaged-step_00000900"));
    json_decref(state);
    free(path);
    char *aside = below(out, "damaged-step_00000900"), *best = below(out, "best");
    EXPECT(rename(aside, best) == 0); // any other name is good
    Error err;
    EXPECT((state = checkpoint_verify(best, &err)) != NULL);
    json_decref(state);
    char* const texts[] = {out, first, third, renamed, aside, best};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) { free(texts[i]); }
    close_model(m);
}

TEST(the_newest_that_is_whole_is_taken) {
    Model* m = open_model(C);
    json_t* state = NULL;
    char* out = new_folder();
    EXPECT(checkpoint_newest(out, &state, CHECKPOINT_READ) == NULL);
    for (long long step = 1; step <= 3; step++) { free(save(out, m, step, 0)); }
    char *path = checkpoint_newest(out, &state, CHECKPOINT_READ), *third = below(out, "step_00000003"),
         *second = below(out, "step_00000002");
    EXPECT(!strcmp(path, third) && json_integer_value(json_object_get(state, "step")) == 3);
    free(path);
    json_decref(state);
    flip_last_byte(third, "optimizer.safetensors");
    EXPECT_DEATH(0, "optimizer.safetensors: damaged or edited (its checksum is wrong); trying the checkpoint before it",
                 path = checkpoint_newest(out, &state, CHECKPOINT_READ);
                 exit(strcmp(path, second) || json_integer_value(json_object_get(state, "step")) != 2));
    flip_last_byte(second, "model.safetensors");
    char* first = below(out, "step_00000001");
    flip_last_byte(first, "state.json");
    write_text(first, "state.json", "{}");
    EXPECT_DEATH(EXIT_RUNTIME, "none of its 3 checkpoints can be read",
                 checkpoint_newest(out, &state, CHECKPOINT_READ));
    free(first);
    free(second);
    free(third);
    free(out);
    close_model(m);
}

TEST(a_model_of_another_size_is_refused) {
    Error err;
    Model* large = open_model(2 * C);
    char* folder = new_checkpoint();
    EXPECT(!model_file_load(&large->g, &large->o, folder, &err));
    EXPECT(strstr(err.text, folder) && strstr(err.text, "the weights have another shape than the model"));
    EXPECT(!checkpoint_load(&large->o, folder, &err) && strstr(err.text, "another shape"));
    free(folder);
    close_model(large);
}

// ---------------------------------------------------------------------------------------------------------------------
// options

static void expect_saved(const char* out, const char* resume, const char* key, const char* want) {
    char* text = checkpoint_saved_text(out, resume, "options", key);
    if (want ? !text || strcmp(text, want) : text != NULL) {
        TEST_FAIL("%s of --resume '%s' is %s, expected %s", key, resume, text ? text : "nothing",
                  want ? want : "nothing");
    }
    free(text);
}

TEST(texts_of_the_checkpoint_to_be_resumed_are_found) {
    Model* m = open_model(C);
    char *out = new_folder(), *first = save(out, m, 1, 0), *second = save(out, m, 2, 0);
    edit_state(first, "options", json_pack("{s:s, s:i}", "dtype", "bf16", "seed", 7));
    expect_saved(out, "", "dtype", NULL); // a new run
    expect_saved(out, "auto", "dtype", "fp32");
    expect_saved(out, first, "dtype", "bf16");
    expect_saved("/none", first, "dtype", "bf16");
    expect_saved(out, first, "seed", NULL); // not a text
    expect_saved(out, first, "unknown", NULL);
    expect_saved("/none", "auto", "dtype", NULL);
    expect_saved(out, "/none", "dtype", NULL);
    write_text(second, "state.json", "{");
    expect_saved(out, "auto", "dtype", "bf16"); // that of the checkpoint before
    char* kernels = checkpoint_saved_text(out, "auto", "kernels", "cpu");
    EXPECT(kernels && !strcmp(kernels, "generic"));
    EXPECT_DEATH(EXIT_RUNTIME, "state.json: cannot open: Too many open files\n",
                 forbid_more_files(); checkpoint_saved_text("/none", first, "options", "dtype"));
    free(kernels);
    free(second);
    free(first);
    free(out);
    close_model(m);
}

TEST(options_of_a_run_come_back) {
    Error err;
    char *out = new_folder(), *none = below(out, "none");
    EXPECT(run_read_options(out) == NULL && run_read_options(none) == NULL);
    json_t* options = json_pack("{s:s, s:i, s:f}", "model", "d12 \"\xc3\xa9\"", "seed", 1337, "lr", 3e-4);
    EXPECT(run_write_options(out, options, &err));
    json_t* back = run_read_options(out);
    EXPECT(back && json_equal(back, options));
    json_decref(back);
    json_object_set_new(options, "seed", json_integer(1));
    EXPECT(run_write_options(out, options, &err)); // in the place of the others
    back = run_read_options(out);
    EXPECT(back && json_equal(back, options));
    json_decref(back);
    json_decref(options);
    free(none);
    free(out);
}

TEST(damaged_options_are_refused_with_what_to_do) {
    static const char* const texts[] = {"", "{\"seed\": 1,", "[1]", "{\"seed\": 1, \"seed\": 2}"};
    char* out = new_folder();
    for (int i = 0; i < 4; i++) {
        write_text(out, "options.json", texts[i]);
        EXPECT_DEATH(EXIT_RUNTIME, "options.json", run_read_options(out));
        EXPECT_DEATH(EXIT_RUNTIME, "remove it to begin a new run there", run_read_options(out));
        EXPECT(folder_has(out, "options.json"));
    }
    EXPECT_DEATH(EXIT_RUNTIME, "options.json: cannot open: Too many open files\n", // and nothing about removing it
                 forbid_more_files(); run_read_options(out));
    json_t* options = json_object();
    Error err;
    char* none = below(out, "none");
    EXPECT(!run_write_options(none, options, &err) && strstr(err.text, none));
    json_decref(options);
    free(none);
    free(out);
}

TEST_MAIN()
