// Replaces fsync and rename in a test program, so that a test sees what a power cut would lose. No test cuts the power:
// fsync writes nothing, but notes the file or folder as it is then. rename counts what gets its final name before it
// was synced. Include it once.
#pragma once
#include "llmc/base/file.h"
#include <dirent.h>

enum { MAX_SYNCED = 256 };
static struct stat synced[MAX_SYNCED]; // the last files and folders, as they were when they were synced
static size_t num_synced;
static bool is_folder_synced = true; // since the last rename
static int num_unsynced;             // renames that could lose something
static void (*on_rename)(void);      // not NULL: called before a rename and after it
static void (*on_sync)(int fd);      // not NULL: called before a file or folder counts as synced

int fsync(int fd) {
    if (on_sync) { on_sync(fd); }
    struct stat* st = &synced[num_synced++ % MAX_SYNCED];
    if (fstat(fd, st) != 0) { return -1; }
    is_folder_synced = is_folder_synced || S_ISDIR(st->st_mode);
    return 0;
}

// Returns true if a file, or a folder with all of its files, has not changed since it was synced.
static bool is_synced(const char* path) {
    struct stat now;
    bool found = false;
    if (stat(path, &now) != 0) { return false; }
    for (size_t i = 0; i < MAX_SYNCED; i++) {
        const struct stat* then = &synced[i];
        found = found || (then->st_dev == now.st_dev && then->st_ino == now.st_ino && then->st_size == now.st_size &&
                          then->st_mtim.tv_sec == now.st_mtim.tv_sec && then->st_mtim.tv_nsec == now.st_mtim.tv_nsec);
    }
    DIR* folder = found && S_ISDIR(now.st_mode) ? opendir(path) : NULL;
    for (struct dirent* e; folder && (e = readdir(folder));) {
        char* file = format("%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) { found = found && is_synced(file); }
        free(file);
    }
    if (folder) { closedir(folder); }
    return found;
}

int rename(const char* from, const char* to) {
    const char *name = path_name(from), *end = strrchr(name, '.');
    if (!strncmp(name, ".tmp-", 5) || (end && !strcmp(end, ".tmp"))) { // otherwise it is set aside, or removed
        if (!is_folder_synced || !is_synced(from)) {
            fprintf(stderr, "%s was not synced, or the folder after the last rename\n", from);
            num_unsynced++;
        }
        is_folder_synced = false;
    }
    if (on_rename) { on_rename(); }
    const int result = renameat(AT_FDCWD, from, AT_FDCWD, to);
    if (on_rename) { on_rename(); }
    return result;
}

// Returns true if a power cut would lose nothing that has its final name.
static inline bool is_all_synced(void) { return num_unsynced == 0 && is_folder_synced; }
