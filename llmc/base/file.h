// Paths, folders, and files that are read or written whole.
#pragma once
#include "base.h"
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

BEGIN_C

// Returns true if there is something at `path`. Ends the program if the system cannot tell (EIO, EACCES, ...): what
// cannot be seen now must not be taken for absent.
bool path_exists(const char* path);
bool folder_has(const char* folder, const char* name); // FOLDER/NAME, likewise
bool is_directory(const char* path);
bool is_same_file(const char* a, const char* b); // false if one does not exist

// Returns true if both exist and `path` is an entry of `folder`.
bool path_is_entry_of(const char* path, const char* folder);

// Returns the part of a path behind its last slash.
const char* path_name(const char* path);

// Returns the part before it, or "." if there is no slash: FOLDER/NAME is the path. The caller frees it.
char* path_folder(const char* path);

// Returns the path of another file in the same folder: FOLDER/OTHER. The caller frees it.
char* path_beside(const char* path, const char* other);

// Returns the path without slashes at its end, but for "/"; the caller frees it.
char* trimmed_path(const char* path);

// Returns the path of a hidden file or folder beside `path`, .tmp-NAME, to be renamed to it; the caller frees it.
char* temporary_path(const char* path);

// Adds to *found, which is zeroed at first, the paths that match a pattern, sorted as glob() does; no match is no
// failure. Fails if a folder cannot be read: its files would be missing. The caller calls globfree().
bool find_paths(glob_t* found, const char* pattern, Error* err);

// Returns the pattern that matches this path alone; the caller frees it.
char* path_as_pattern(const char* path);

// Finds the paths that match the value of an option: patterns, which commas or spaces separate (a backslash before one
// makes it part of a name), in their order, or names of files. Fails if there is none, or no path for one; `advice`
// says what to do then. The caller calls globfree(), also after a failure.
bool find_option_paths(glob_t* found, const char* option, const char* patterns, const char* advice, Error* err);

// Returns the next of these patterns and advances *at behind it; NULL if there is none. The caller frees it.
char* next_pattern(const char** at);

// Creates a file for writing, in place of what a killed program may have left there: neither is the target of a
// symbolic link overwritten, nor a named pipe waited at. NULL on failure.
FILE* create_temporary(const char* path, Error* err);

// Opens a file, made if there is none, as a lock that one process has until it closes it or ends. Returns its
// descriptor; -1 on failure, with EWOULDBLOCK in errno if another process has it. Where files cannot be locked (some
// network file systems) it counts as locked, with a warning. Whoever removes the file does so before closing it.
int open_lock(const char* path);

// Opens a file for reading and sets its size, which may be NULL; returns its descriptor, -1 on failure. Refuses what is
// no regular file: a named pipe would keep the program waiting.
int open_regular(const char* path, size_t* size, Error* err);

// The same, as a stream, which the caller closes; NULL on failure.
FILE* fopen_regular(const char* path, Error* err);

// Returns the path of this program, for execv(): `ps` and nvidia-smi show the name that is executed, which would be
// "exe" for /proc/self/exe. The caller frees it.
char* program_path(void);

// Creates a folder and the folders above it; one that exists is no error.
bool make_directories(const char* path, Error* err);
bool make_parent(const char* path, Error* err); // the folder of a file, likewise

// Reads the rest of `f` into fresh memory with a 0 behind it, which the caller frees; NULL on failure, or if there are
// more than `most` bytes. `name` is for messages, `size` may be NULL.
char* read_stream(FILE* f, const char* name, size_t most, size_t* size, Error* err);

// Read a whole regular file, of any size or of at most `most` bytes, as read_stream(); on failure *size is 0.
char* read_file(const char* path, size_t* size, Error* err);
char* read_file_up_to(const char* path, size_t most, size_t* size, Error* err);

// Reads the first `bytes` of a regular file, by which its format is known; zeros stand for what a shorter one lacks.
bool read_begin(const char* path, void* out, size_t bytes, Error* err);

// Bytes of standard input that are read as one text. Chosen.
enum { STANDARD_INPUT_MOST = 64 << 20 };

// Reads exactly `bytes` at `offset`; fails if the file ends before. `path` is for messages. Several threads may read
// from one descriptor.
bool read_exactly(int fd, const char* path, void* out, size_t bytes, size_t offset, Error* err);

// Syncs the folder of `path`, so that a rename or creation there survives a power cut.
bool sync_parent(const char* path, Error* err);

// Flushes, syncs and closes; false if any write to `f` has failed, also an earlier one (a full disk).
bool close_synced(FILE* f, const char* path, Error* err);

// Replaces the file in one step: a reader, also after a power cut, sees either the old text or the new one. The new one
// is read back before it takes the place of the old one.
bool write_file_atomically(const char* path, const char* text, size_t size, Error* err);

// Fails if there is something at the path that does not begin with `head`, as every `what` does, or cannot be read: it
// is not replaced.
bool may_replace(const char* path, const char* head, const char* what, Error* err);

END_C
