// base.h: the checksum, allocated strings, errors. file.h: files, folders, locks. threads.h: their number.
#include "test/test.h"
#include "llmc/base/threads.h"

enum { LONGEST = 100 }; // three rounds of hash64's four lanes, and a tail

static void fill(unsigned char* bytes, size_t n) {
    for (size_t i = 0; i < n; i++) { bytes[i] = (unsigned char)mix64(i); }
}

TEST(hash_sees_every_bit_that_changes) {
    unsigned char bytes[LONGEST];
    fill(bytes, sizeof bytes);
    for (size_t n = 1; n <= LONGEST; n++) {
        const uint64_t before = hash64(bytes, n, 7);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            if (hash64(bytes, n, 7) == before) { TEST_FAIL("bit %zu of %zu bytes does not count", bit, n); }
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        EXPECT(hash64(bytes, n, 7) == before); // a function of the bytes alone
    }
}

TEST(hash_sees_length_order_and_seed) {
    unsigned char zeros[LONGEST] = {0}, bytes[LONGEST];
    uint64_t of_length[LONGEST + 1];
    for (size_t n = 0; n <= LONGEST; n++) { // zeros differ in nothing but their number
        of_length[n] = hash64(zeros, n, 0);
        for (size_t i = 0; i < n; i++) { EXPECT(of_length[i] != of_length[n]); }
    }
    EXPECT(hash64(NULL, 0, 0) == of_length[0] && hash64(NULL, 0, 1) != of_length[0]);
    fill(bytes, sizeof bytes);
    const uint64_t before = hash64(bytes, sizeof bytes, 0);
    EXPECT(hash64(bytes, sizeof bytes, 1) != before);
    for (size_t i = 0; i + 16 <= sizeof bytes; i += 8) { // words that change places
        unsigned char swapped[LONGEST];
        memcpy(swapped, bytes, sizeof bytes);
        memcpy(swapped + i, bytes + i + 8, 8);
        memcpy(swapped + i + 8, bytes + i, 8);
        EXPECT(hash64(swapped, sizeof swapped, 0) != before);
    }
    for (size_t i = 0; i + 64 <= sizeof bytes; i++) { // blocks of 32 bytes that change places
        unsigned char swapped[LONGEST];
        memcpy(swapped, bytes, sizeof bytes);
        memcpy(swapped + i, bytes + i + 32, 32);
        memcpy(swapped + i + 32, bytes + i, 32);
        EXPECT(hash64(swapped, sizeof swapped, 0) != before);
    }
}

TEST(hash_does_not_depend_on_alignment_and_stays_what_it_is) {
    unsigned char room[LONGEST + 8], bytes[LONGEST];
    fill(bytes, sizeof bytes);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(room + shift, bytes, sizeof bytes);
        EXPECT(hash64(room + shift, sizeof bytes, 3) == hash64(bytes, sizeof bytes, 3));
    }
    // checkpoints carry these numbers: if one changes, CHECKPOINT_FORMAT must too
    EXPECT(hash64("", 0, 0) == 0x002bb742d0bce1f3ull);
    EXPECT(hash64("gpt2", 4, 0) == 0x1e1f6fae3e0dae26ull);
    EXPECT(hash64(bytes, sizeof bytes, 1337) == 0xbbca65289cde94f4ull);
}

TEST(the_median_is_the_middle) {
    double odd[3] = {3, 1, 2}, even[4] = {4, 1, 3, 2};
    EXPECT(median(odd, 3) == 2 && median(even, 4) == 2.5);
}

TEST(sizes_are_rounded_up) {
    EXPECT(ceil_div(0, 8) == 0 && ceil_div(1, 8) == 1 && ceil_div(8, 8) == 1 && ceil_div(9, 8) == 2);
    EXPECT(round_up(50257, 128) == 50304 && round_up(50304, 128) == 50304 && round_up(0, 128) == 0);
    EXPECT(min_size(2, 3) == 2 && max_size(2, 3) == 3);
}

TEST(format_and_allocation) {
    char* text = format("%s=%d%%", "x", 42);
    EXPECT(!strcmp(text, "x=42%"));
    free(text);
    text = format("%*s|", 5000, "far");
    EXPECT(strlen(text) == 5001 && !strcmp(text + 4997, "far|"));
    free(text);
    text = format("%s", "");
    EXPECT(text && !*text);
    free(text);
    unsigned char* zeroed = (unsigned char*)alloc_or_die(1000, 3, "a test");
    for (int i = 0; i < 3000; i++) { EXPECT(zeroed[i] == 0); }
    zeroed = (unsigned char*)realloc_or_die(zeroed, 0, "a test");
    EXPECT(zeroed != NULL);
    free(zeroed);
}

TEST(errors_end_the_program_with_their_code) {
    Error err;
    EXPECT_DEATH(EXIT_RUNTIME, "error: file x: 3", fatal("file %s: %d", "x", 3));
    EXPECT_DEATH(EXIT_USAGE, "error: --lr takes", usage_error("--lr takes"));
    EXPECT(!fail(&err, "%s is %d", "it", 1) && !strcmp(err.text, "it is 1"));
    char* endless = format("%*s", 5000, "x");
    EXPECT(!fail(&err, "%s", endless) && strlen(err.text) == sizeof err.text - 1);
    free(endless);
}

// ---------------------------------------------------------------------------------------------------------------------
// files

static void check_whole_file(size_t size) {
    Error err;
    char* path = test_path("file");
    unsigned char* bytes = (unsigned char*)alloc_or_die(size, 1, "a file");
    for (size_t i = 0; i < size; i++) { bytes[i] = (unsigned char)mix64(i / 2); } // some are zero
    FILE* f = fopen(path, "wb");
    EXPECT(f && fwrite(bytes, 1, size, f) == size && close_synced(f, path, &err) && sync_parent(path, &err));
    size_t got = size + 1;
    char* text = read_file(path, &got, &err);
    EXPECT(text && got == size && !memcmp(text, bytes, size) && text[size] == 0);
    free(text);
    free(bytes);
}

TEST(files_are_read_whole) {
    const size_t room = 1 << 16; // read_stream's first buffer
    const size_t sizes[] = {0, 1, room - 2, room - 1, room, room + 1, 2 * room - 1, 5 * room + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { check_whole_file(sizes[i]); }
}

TEST(files_that_cannot_be_read_are_named) {
    Error err;
    char* none = test_path("none");
    EXPECT(!read_file(none, NULL, &err) && strstr(err.text, none) && strstr(err.text, "cannot open: No such file"));
    EXPECT(!path_exists(none));
    EXPECT(!read_file(test_folder, NULL, &err) && strstr(err.text, test_folder) &&
           strstr(err.text, "not a regular file"));
    char *pipe = test_path("pipe"), *loop = test_path("loop");
    EXPECT(mkfifo(pipe, 0600) == 0 && symlink("loop", loop) == 0);
    EXPECT(!read_file(pipe, NULL, &err) && strstr(err.text, "pipe: not a regular file") && !err.is_unknown);
    EXPECT(!read_file(none, NULL, &err) && !err.is_unknown);
    char* below = test_path("regular/below");
    test_write(test_path("regular"), "x", 1);
    EXPECT(!read_file(below, NULL, &err) && strstr(err.text, "below: cannot open: Not a directory") && !err.is_unknown);
    EXPECT(!read_file(loop, NULL, &err) && err.is_unknown); // as with EIO: nothing is known about the file
    EXPECT_DEATH(EXIT_RUNTIME, "loop: cannot look at it: Too many levels", path_exists(loop));
    EXPECT(!is_directory(none) && !is_directory(below) && !is_directory(pipe) && is_directory(test_folder));
}

TEST(folders_are_made_with_those_above) {
    Error err;
    const char* const good[] = {"a/b/c", "a/b/c", "a/b/c/", "a//d", "with space/ä"};
    for (int i = 0; i < 5; i++) {
        char* path = test_path(good[i]);
        EXPECT(make_directories(path, &err) && is_directory(path));
    }
    char *file = test_path("plain"), *below = test_path("plain/folder");
    fclose(fopen(file, "wb"));
    EXPECT(!make_directories(below, &err) && strstr(err.text, file) && strstr(err.text, "a file, not a folder"));
    EXPECT(!make_directories(file, &err) && strstr(err.text, file));
    EXPECT(path_exists(file) && !is_directory(file));
    EXPECT(!make_directories("", &err));
    EXPECT(!make_directories("/proc/none", &err) && strstr(err.text, "/proc/none: cannot make the folder: "));
    if (access("/sys/kernel", F_OK) == 0) { // forbidden to root too: the reason is not that there is no such folder
        EXPECT(!make_directories("/sys/kernel/none", &err) && !strstr(err.text, "No such file"));
    }
}

TEST(a_link_to_nothing_is_no_folder) {
    Error err;
    char* path = test_path("link");
    EXPECT(symlink("nowhere", path) == 0);
    EXPECT(!make_directories(path, &err) && strstr(err.text, "link: a link to what does not exist"));
}

// Names of files come into messages, and a terminal obeys control characters.
TEST(messages_are_printable) {
    char text[] = "a\tb\n\033[2J \x7f \xc2\x9b \xff \xc3\xa9 \xe2\x82\xac";
    make_printable(text);
    EXPECT(!strcmp(text, "a\tb\n?[2J ? ?? ? \xc3\xa9 \xe2\x82\xac"));
    Error err;
    fail(&err, "%s", "x\033y");
    EXPECT(!strcmp(err.text, "x?y"));
    EXPECT_DEATH(0, "x?y\n", notice("x\033y"); exit(0));
    EXPECT_DEATH(EXIT_USAGE, "error: x?y\n", usage_error("x\033y"));
}

TEST(characters_are_those_of_unicode) {
    static const struct { const char* text; size_t bytes; uint32_t c; } cases[] = {
        {"a", 1, 'a'}, {"\xc2\x80", 2, 0x80}, {"\xe0\xa0\x80", 3, 0x800}, {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\xc1\xbf", 0, 0}, {"\xe0\x9f\xbf", 0, 0}, {"\xf0\x8f\xbf\xbf", 0, 0}, // shorter ones written longer
        {"\xed\xa0\x80", 0, 0}, {"\xf4\x90\x80\x80", 0, 0}, {"\x80", 0, 0}, {"\xc3(", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t c = 0;
        const char *text = cases[i].text, *end = text + strlen(text);
        const size_t n = utf8_decode(text, end, &c);
        if (n != cases[i].bytes || (n && c != cases[i].c)) { TEST_FAIL("case %zu: %zu bytes, U+%X", i, n, c); }
        if (n > 1) { EXPECT(utf8_decode(text, end - 1, &c) == 0); } // cut
    }
}

static int told;
static void tell_fatal(void* context, const char* message) {
    fprintf(stderr, "told %s %d: %s", (const char*)context, ++told, message);
    fatal("within");
}

TEST(words_of_a_shell_are_quoted) {
    static const char* const words[][2] = {{"run/a_b-1.5,x=2", "run/a_b-1.5,x=2"}, {"", "''"}, {"a b", "'a b'"},
                                           {"it's", "'it'\\''s'"}, {"$HOME;*", "'$HOME;*'"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char* word = shell_word(words[i][0]);
        EXPECT(!strcmp(word, words[i][1]));
        free(word);
    }
    char* longest = shell_word("''''''''''"); // of ten, each takes four letters
    EXPECT(strlen(longest) == 42);
    free(longest);
}

TEST(a_listener_is_told_of_a_fatal_error_once) {
    static char name[] = "the log";
    EXPECT_DEATH(EXIT_RUNTIME, "error: disk 3\ntold the log 1: disk 3error: within\n", on_fatal(tell_fatal, name);
                 fatal("disk %d", 3));
    EXPECT_DEATH(EXIT_RUNTIME, "told the log 1: --x", on_fatal(tell_fatal, name); usage_error("--x"));
}

TEST(a_full_disk_shows_when_closing) {
    Error err;
    if (!path_exists("/dev/full")) { SKIP("no /dev/full here"); }
    FILE* f = fopen("/dev/full", "wb");
    if (!f) { SKIP("cannot open /dev/full"); }
    fputs("buffered, so that the write itself seems to go well", f);
    EXPECT(!close_synced(f, "run/file", &err));
    EXPECT(strstr(err.text, "run/file: cannot write: No space left"));
}

TEST(a_write_that_failed_before_closing_is_not_forgotten) {
    Error err;
    char* path = test_path("read only");
    fclose(fopen(path, "wb"));
    FILE* f = fopen(path, "rb");
    EXPECT(fputc('x', f) == EOF); // only ferror() remembers this: flushing, syncing and closing succeed
    EXPECT(!close_synced(f, "run/file", &err) && strstr(err.text, "run/file: cannot write"));
}

TEST(the_folder_of_a_path_is_synced) {
    Error err;
    EXPECT(sync_parent("relative", &err)); // the current folder
    EXPECT(sync_parent("/tmp", &err));     // the root
    EXPECT(!sync_parent("/none/file", &err) && strstr(err.text, "/none: cannot sync the folder"));
}

static void make_file(const char* name) {
    Error err;
    EXPECT(write_file_atomically(test_path(name), "text", 4, &err));
}

TEST(files_of_an_option_are_patterns_in_order) {
    Error err;
    glob_t found;
    const char* const names[] = {"glob/b1", "glob/b2", "glob/a b", "glob/c"};
    EXPECT(make_directories(test_path("glob"), &err));
    for (int i = 0; i < 4; i++) { make_file(names[i]); }
    char* patterns = format("%s/glob/c, %s/glob/b*\n%s/glob/a\\ b", test_folder, test_folder, test_folder);
    EXPECT(find_option_paths(&found, "--x", patterns, "", &err) && found.gl_pathc == 4);
    const char* const want[] = {"c", "b1", "b2", "a b"};
    for (size_t i = 0; i < found.gl_pathc; i++) { EXPECT(!strcmp(path_name(found.gl_pathv[i]), want[i])); }
    globfree(&found);
    free(patterns);
    make_file("glob/b*.txt");
    make_file("glob/bc.txt");
    char* alone = path_as_pattern(test_path("glob/b*.txt"));
    EXPECT(find_paths(&found, alone, &err) && found.gl_pathc == 1);
    globfree(&found);
    free(alone);
    EXPECT(unlink(test_path("glob/b*.txt")) == 0 && unlink(test_path("glob/bc.txt")) == 0);
    make_file("glob/[1].txt");
    EXPECT(find_option_paths(&found, "--x", test_path("glob/[1].txt"), "", &err) && found.gl_pathc == 1); // a name
    globfree(&found);
    EXPECT(!find_option_paths(&found, "--x", "/none*", "make it", &err) &&
           !strcmp(err.text, "--x /none*: no such file: make it"));
    globfree(&found);
    EXPECT(!find_option_paths(&found, "--x", " , ", "make it", &err) && strstr(err.text, "no file is given: make it"));
    globfree(&found);
    if (geteuid() == 0) { SKIP("root reads every folder"); }
    EXPECT(chmod(test_path("glob"), 0300) == 0);
    patterns = format("%s/*/b1", test_folder);
    EXPECT(find_option_paths(&found, "--x", patterns, "", &err)); // b1 itself is found
    globfree(&found);
    free(patterns);
    patterns = format("%s/*/b*", test_folder);
    EXPECT(!find_option_paths(&found, "--x", patterns, "", &err) && strstr(err.text, "cannot list the folder"));
    globfree(&found);
    free(patterns);
    EXPECT(chmod(test_path("glob"), 0700) == 0);
}

TEST(a_temporary_file_replaces_what_is_there) {
    Error err;
    make_file("target");
    EXPECT(symlink("target", test_path("temporary")) == 0);
    FILE* f = create_temporary(test_path("temporary"), &err);
    EXPECT(f && fputs("longer than text", f) >= 0 && fclose(f) == 0);
    char* text = read_file(test_path("target"), NULL, &err);
    EXPECT(text && !strcmp(text, "text"));
    free(text);
    EXPECT(unlink(test_path("temporary")) == 0 && mkfifo(test_path("temporary"), 0600) == 0);
    f = create_temporary(test_path("temporary"), &err);
    EXPECT(f && fclose(f) == 0);
    struct stat made;
    const mode_t mask = umask(022);
    EXPECT(unlink(test_path("temporary")) == 0 && write_file_atomically(test_path("temporary"), "text", 4, &err));
    EXPECT(stat(test_path("temporary"), &made) == 0 && (made.st_mode & 0777) == 0644); // others may read it
    umask(mask);
}

TEST(a_file_that_cannot_be_replaced_leaves_nothing_behind) {
    Error err;
    char* folder = test_path("occupied");
    EXPECT(make_directories(folder, &err) && !write_file_atomically(folder, "text", 4, &err));
    EXPECT(strstr(err.text, "occupied: cannot replace") && !path_exists(test_path(".tmp-occupied")));
}

TEST(a_lock_has_one_owner) {
    char* path = format("%s/lock", test_folder);
    const int first = open_lock(path);
    EXPECT(first >= 0 && open_lock(path) < 0 && errno == EWOULDBLOCK);
    close(first); // of a process that was killed: the file stays
    const int second = open_lock(path);
    EXPECT(second >= 0 && unlink(path) == 0);
    const int third = open_lock(path); // the file is another one
    EXPECT(third >= 0 && unlink(path) == 0 && symlink("elsewhere", path) == 0 && open_lock(path) < 0);
    close(second);
    close(third);
    free(path);
}

TEST(no_more_threads_are_taken_than_the_library_survives) {
    const int before = max_threads();
    use_threads(99999);
    cap_threads();
    EXPECT(max_threads() == 1 || max_threads() == MAX_THREADS); // 1: built without OpenMP
    use_threads(before);
}

TEST_MAIN()
