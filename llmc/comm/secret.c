#include "secret.h"
#include <sys/random.h>
#include <sys/stat.h>
#ifdef HAS_CRYPTO
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

enum { MAX_SECRET_CHARACTERS = 4096 };

void random_bytes(void* bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = getrandom((char*)bytes + done, n - done, 0);
        if (got > 0) { done += (size_t)got; }
        else if (errno != EINTR) { fatal("the system has no random numbers (getrandom): %s", strerror(errno)); }
    }
}

// Writes a new secret in hexadecimal digits.
static void random_text(char text[SECRET_TEXT_BYTES]) {
    uint8_t bytes[SECRET_BYTES];
    random_bytes(bytes, sizeof bytes);
    for (int i = 0; i < SECRET_BYTES; i++) { snprintf(text + 2 * i, 3, "%02x", bytes[i]); }
}

void secret_draw(char text[SECRET_TEXT_BYTES]) {
    random_text(text);
    if (setenv("GPT2_SECRET", text, 1) != 0) { fatal("cannot set GPT2_SECRET: %s", strerror(errno)); }
}

// ---------------------------------------------------------------------------------------------------------------------
// where it comes from

// Reads a secret's file into `text`.
static bool secret_read(const char* path, char text[MAX_SECRET_CHARACTERS + 1], Error* err) {
    struct stat info;
    Error why;
    const int fd = open_regular(path, NULL, &why);
    if (fd < 0) { return fail(err, "the run's secret cannot be read: %s", why.text); }
    ssize_t n = -1;
    if (fstat(fd, &info) != 0) { fail_system(err, path, "stat"); }
    else if (info.st_mode & 077) { fail(err, "%s: others may read the run's secret; run: chmod 600 %s", path, path); }
    else if ((n = read(fd, text, MAX_SECRET_CHARACTERS)) < 0) { fail(err, "%s: %s", path, strerror(errno)); }
    close(fd);
    if (n < 0) { return false; }
    text[n] = 0;
    text[strcspn(text, "\r\n")] = 0;
    if (strlen(text) >= MIN_SECRET_CHARACTERS) { return true; }
    return fail(err, "%s: the run's secret has fewer than %d characters: remove the file, or write a longer one", path,
                MIN_SECRET_CHARACTERS);
}

// Writes `text` as a line to a new file that its owner alone may read.
static bool secret_write(const char* path, const char* text) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) { return false; }
    const bool written = dprintf(fd, "%s\n", text) == (int)strlen(text) + 1 && fsync(fd) == 0;
    return close(fd) == 0 && written;
}

// Makes the file with a new secret, unless another process has just made it. It gets its name once it is complete.
static bool secret_make(const char* path, Error* err) {
    char text[SECRET_TEXT_BYTES];
    char *folder = format("%s", path), *part = format("%s.%ld", path, (long)getpid());
    *strrchr(folder, '/') = 0;
    random_text(text);
    bool ok = make_directories(folder, err);
    if (ok && (!secret_write(part, text) || (link(part, path) != 0 && errno != EEXIST))) {
        ok = fail(err, "%s: cannot be written: %s", path, strerror(errno));
    }
    unlink(part);
    free(folder);
    free(part);
    return ok;
}

static bool secret_text(char text[MAX_SECRET_CHARACTERS + 1], Error* err) {
    const char *given = getenv("GPT2_SECRET"), *file = getenv("GPT2_SECRET_FILE");
    if (given && *given) {
        if (strlen(given) < MIN_SECRET_CHARACTERS || strlen(given) > MAX_SECRET_CHARACTERS) {
            return fail(err, "GPT2_SECRET has %zu characters; it must have %d to %d", strlen(given),
                        MIN_SECRET_CHARACTERS, MAX_SECRET_CHARACTERS);
        }
        snprintf(text, MAX_SECRET_CHARACTERS + 1, "%s", given);
        return true;
    }
    if (file && *file) { return secret_read(file, text, err); }
    char* path = user_path("XDG_CONFIG_HOME", ".config", "secret");
    if (!path) {
        return fail(err, "there is no home folder to keep the run's secret in: set GPT2_SECRET to the same long random "
                         "text for all processes");
    }
    Error why;
    bool ok = true;
    if (!path_exists(path) && !secret_make(path, &why)) {
        ok = fail(err, "the run's secret cannot be kept: %s; set GPT2_SECRET to the same long random text for all "
                       "processes", why.text);
    }
    ok = ok && secret_read(path, text, err);
    free(path);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// proofs

#ifdef HAS_CRYPTO
bool secret_find(Secret* secret, Error* err) {
    char text[MAX_SECRET_CHARACTERS + 1];
    if (!secret_text(text, err)) { return false; }
    if (EVP_Digest(text, strlen(text), secret->bytes, NULL, EVP_sha256(), NULL) != 1) {
        return fail(err, "libcrypto cannot compute SHA-256");
    }
    return true;
}

void secret_prove(const Secret* secret, const char* purpose, const void* message, size_t bytes,
                  uint8_t proof[PROOF_BYTES]) {
    const size_t head = strlen(purpose) + 1; // its closing 0 ends it
    uint8_t* all = alloc_or_die(head + bytes, 1, "a proof");
    memcpy(all, purpose, head);
    memcpy(all + head, message, bytes);
    if (!HMAC(EVP_sha256(), secret->bytes, SECRET_BYTES, all, head + bytes, proof, NULL)) {
        fatal("libcrypto cannot compute an HMAC");
    }
    free(all);
}

bool secret_verify(const Secret* secret, const char* purpose, const void* message, size_t bytes, const void* proof) {
    uint8_t right[PROOF_BYTES];
    secret_prove(secret, purpose, message, bytes, right);
    return CRYPTO_memcmp(right, proof, PROOF_BYTES) == 0;
}
#else
bool secret_find(Secret* secret, Error* err) {
    (void)secret, (void)secret_text;
    return fail(err, "this program was built without libcrypto, by which processes make sure of each other: install "
                     "libssl-dev (OpenSSL's headers) and run make again");
}

void secret_prove(const Secret* secret, const char* purpose, const void* message, size_t bytes,
                  uint8_t proof[PROOF_BYTES]) {
    (void)secret, (void)purpose, (void)message, (void)bytes, (void)proof;
    fatal("built without libcrypto"); // secret_find has failed before
}

bool secret_verify(const Secret* secret, const char* purpose, const void* message, size_t bytes, const void* proof) {
    (void)secret, (void)purpose, (void)message, (void)bytes, (void)proof;
    return false;
}
#endif
