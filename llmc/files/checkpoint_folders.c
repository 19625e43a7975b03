#include "checkpoint_folders.h"
#include "../base/file.h"
#include "../options/options.h"
#include <dirent.h>
#include <ftw.h>
#include <sys/file.h>

static int remove_entry(const char* path, const struct stat* s, int type, struct FTW* at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

long long checkpoint_step(const char* name) {
    char same[32];
    long long step = -1;
    if (sscanf(name, "step_%lld", &step) != 1 || step < 0) { return -1; }
    snprintf(same, sizeof same, "step_%08lld", step);
    return strcmp(same, name) ? -1 : step; // no other spelling of the number
}

static int compare_steps(const void* a, const void* b) {
    const long long x = *(const long long*)a, y = *(const long long*)b;
    return (x < y) - (x > y);
}

// Opens a folder: *d is NULL if it does not exist. Fails if it cannot be listed.
static bool open_folder(DIR** d, const char* path, Error* err) {
    *d = opendir(path);
    return *d || errno == ENOENT || fail_system(err, path, "list the folder");
}

// Reads the next entry of a folder: *e is NULL at its end. Fails if it cannot be read.
static bool next_entry(const struct dirent** e, DIR* d, const char* path, Error* err) {
    errno = 0;
    *e = readdir(d);
    return *e || errno == 0 || fail_system(err, path, "list the folder");
}

// Lists the steps of the checkpoints in `out`, newest first; none if the folder does not exist. Fails, with none, if
// the system cannot tell which there are.
static bool list_steps(const char* out, long long** steps, size_t* count, Error* err) {
    DIR* d;
    const struct dirent* e;
    *steps = NULL;
    *count = 0;
    bool ok = open_folder(&d, out, err);
    while (ok && d && (ok = next_entry(&e, d, out, err)) && e) {
        const long long step = checkpoint_step(e->d_name);
        if (step < 0) { continue; }
        char* path = checkpoint_path(out, step);
        struct stat s;
        const bool exists = stat(path, &s) == 0;
        ok = exists || is_absent(errno) || fail_system(err, path, "look at it");
        free(path);
        if (!exists || !S_ISDIR(s.st_mode)) { continue; }
        *steps = grown(*steps, *count, sizeof **steps, "the list of checkpoints");
        (*steps)[(*count)++] = step;
    }
    if (d) { closedir(d); }
    if (!ok) {
        free(*steps);
        *steps = NULL;
        *count = 0;
    }
    if (*count) { qsort(*steps, *count, sizeof **steps, compare_steps); }
    return ok;
}

long long* checkpoint_list(const char* out, size_t* count) {
    Error err;
    long long* steps;
    if (!list_steps(out, &steps, count, &err)) { fatal("%s; nothing was changed", err.text); }
    return steps;
}

bool check_no_run(const char* folder, Error* err) {
    size_t count;
    long long* steps = checkpoint_list(folder, &count);
    if (count) {
        char *run = trimmed_path(folder), *newest = checkpoint_path(run, steps[0]);
        fail(err, "%s: the folder of a run: give one of its checkpoints, such as %s", folder, newest);
        free(run);
        free(newest);
    }
    free(steps);
    return count == 0;
}

void checkpoint_remove_unfinished(const char* path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

void checkpoint_clean(const char* out) {
    Error err;
    DIR* d;
    const struct dirent* e;
    bool ok = open_folder(&d, out, &err);
    while (ok && d && (ok = next_entry(&e, d, out, &err)) && e) {
        if (strncmp(e->d_name, ".tmp-", 5)) { continue; }
        char* path = format("%s/%s", out, e->d_name);
        checkpoint_remove_unfinished(path);
        free(path);
    }
    if (!ok) { fatal("%s; nothing was changed", err.text); }
    if (d) { closedir(d); }
}

char* checkpoint_path(const char* out, long long step) { return format("%s/step_%08lld", out, step); }

// Opens and locks a folder. Returns -1 with ENOENT in errno if it is gone, EWOULDBLOCK if it is locked otherwise. Where
// folders cannot be locked (some network file systems) it counts as locked.
static int lock_folder(const char* path, int how) {
    struct stat opened, now;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { return -1; }
    bool ok = flock(fd, how | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    ok = ok && fstat(fd, &opened) == 0 && stat(path, &now) == 0;
    if (ok && opened.st_ino != now.st_ino) { // renamed before it was locked
        ok = false;
        errno = ENOENT;
    }
    if (ok) { return fd; }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int checkpoint_hold(const char* path) {
    const int lock = lock_folder(path, LOCK_SH);
    if (lock < 0 && errno != ENOENT && errno != EWOULDBLOCK) {
        fatal("%s: cannot open the folder: %s", path, strerror(errno));
    }
    return lock;
}

void checkpoint_remove(const char* path) {
    const char* name = path_name(path);
    char* doomed = format("%.*s.tmp-removed-%s", (int)(name - path), path, name);
    const int lock = lock_folder(path, LOCK_EX);
    const bool is_read = lock < 0 && errno == EWOULDBLOCK;
    if (!is_read && (lock < 0 || rename(path, doomed) != 0 || nftw(doomed, remove_entry, 8, FTW_DEPTH | FTW_PHYS))) {
        notice("warning: %s: cannot remove the old checkpoint: %s", path, strerror(errno));
    }
    if (lock >= 0) { close(lock); }
    free(doomed);
}

void checkpoint_set_aside(const char* path, const char* why) {
    Error err;
    const char* name = path_name(path);
    char* aside = format("%.*s%s-%s", (int)(name - path), path, why, name);
    for (int i = 2; path_exists(aside); i++) {
        free(aside);
        aside = format("%.*s%s-%s-%d", (int)(name - path), path, why, name, i);
    }
    if (rename(path, aside) != 0) { fatal("%s: cannot rename it to %s: %s", path, aside, strerror(errno)); }
    if (!sync_parent(path, &err)) { fatal("%s", err.text); }
    notice("the %s %s is now %s", why, path, aside);
    free(aside);
}

bool keep_parse(KeepRule* keep, const char* text, Error* err) {
    char *copy = format("%s", text), *rest = copy, *name, *value;
    memset(keep, 0, sizeof *keep);
    bool ok = part_next(&rest, &name, &value) && !value && count_parse(name, 0, &keep->newest);
    while (ok && part_next(&rest, &name, &value)) {
        const bool is_best = !strcmp(name, "best") && !value;
        keep->best = keep->best || is_best;
        ok = is_best || (!strcmp(name, "every") && count_parse(value, 1, &keep->every));
    }
    free(copy);
    return ok || fail(err, "--keep '%s': give N[,best][,every:M], such as 3,best or 3,best,every:10000", text);
}

void checkpoint_rotate(const char* out, long long step, const KeepRule* keep) {
    Error err;
    size_t count;
    long long behind = 0, *steps;
    if (keep->newest == 0) { return; }
    if (!list_steps(out, &steps, &count, &err)) {
        notice("warning: %s; no old checkpoint is removed now", err.text);
    }
    for (size_t i = 0; i < count; i++) {
        if (steps[i] > step || behind++ < keep->newest) { continue; }
        const bool is_best = keep->best && steps[i] == keep->best_step;
        if (is_best || (keep->every > 0 && steps[i] % keep->every == 0)) { continue; }
        char* old = checkpoint_path(out, steps[i]);
        checkpoint_remove(old);
        free(old);
    }
    free(steps);
}
