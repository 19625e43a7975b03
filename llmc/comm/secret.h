// The secret of a run, by which its ranks know each other when they connect (rendezvous.h). It is never sent. A rank
// proves that it knows the secret with an HMAC-SHA-256 (RFC 2104) of what it says and of random bytes that the other
// side has just drawn, so that an old proof is worth nothing. The computation is OpenSSL's libcrypto's; a program built
// without it cannot connect ranks.
//
// The secret comes from the first of these that is there:
//   GPT2_SECRET        the secret itself. mpirun and --gpus need none: rank 0, or the launcher, draws one for each run
//   GPT2_SECRET_FILE   a file that holds it
//   ~/.config/gpt2.c/secret ($XDG_CONFIG_HOME/gpt2.c/secret)   made at the first need. Machines that share a home
//                      folder thereby share the secret; to others the file must be copied
// A file must be readable by its owner alone.
#pragma once
#include "../base/base.h"

enum { SECRET_BYTES = 32, NONCE_BYTES = 32, PROOF_BYTES = 32, MIN_SECRET_CHARACTERS = 16 };

typedef struct {
    uint8_t bytes[SECRET_BYTES]; // the SHA-256 of the text that was given
} Secret;

BEGIN_C

// Finds the secret, and makes the file in ~/.config if there is none. False if it is too short, if others may read the
// file, or if this program was built without libcrypto.
bool secret_find(Secret* secret, Error* err);

// Draws a secret for this run and sets GPT2_SECRET to it, for this process and those that it starts. `text` receives
// it, in hexadecimal digits.
enum { SECRET_TEXT_BYTES = 2 * SECRET_BYTES + 1 };
void secret_draw(char text[SECRET_TEXT_BYTES]);

// Fills `bytes` with random ones of the system. Ends the program if there are none.
void random_bytes(void* bytes, size_t n);

// Computes the proof of a message: the HMAC of its bytes, `purpose` in front of them.
void secret_prove(const Secret* secret, const char* purpose, const void* message, size_t bytes,
                  uint8_t proof[PROOF_BYTES]);

// Returns true if `proof` is that of the message. The time does not depend on where the two differ.
bool secret_verify(const Secret* secret, const char* purpose, const void* message, size_t bytes, const void* proof);

END_C
