// Rewrites a command line of llm.c (one- and two-letter flags, each with one value) into our options. Flags that are
// not given get llm.c's defaults (error_usage() and main() in llm.c's train_gpt2.cu).
//
// Processes. -pi tcp with -pn, -pr, -pg and -ps sets torchrun's variables (comm/launch.h), so that llm.c's lines for
// several nodes need no other launcher. Otherwise mpirun, srun or torchrun tell a process its rank, and -pn and -pr
// must agree with them.
#pragma once
#include "../base/base.h"

// The device that the program trains on. Some of llm.c's flags make sense only on a GPU.
typedef enum { FLAGS_CPU, FLAGS_GPU } FlagsDevice;

typedef struct {
    const char *letters, *name;  // name: of our option; NULL: there is none; then, without `why`, it is of the launch
    const char* fallback;        // llm.c's default, as a value of our option; NULL: ours is the same, or none is needed
    const char *on_cpu, *on_gpu; // if name is NULL: values ("a|b") that ask for what the program does anyway
    const char* ignored;         // values that are taken with a notice that they have no effect; "*": any
    const char* why;             // the reason of the notice, and of the refusal of any other value
} LetterFlag;

enum { NUM_LETTER_FLAGS = 37 };
extern const LetterFlag LETTER_FLAGS[NUM_LETTER_FLAGS];

// Returns true for "-x" and "-xy", in small letters.
bool is_letter_flag(const char* arg);

// Returns the arguments (argv without the program's name) as our options and sets *argc to their number. They are in
// fresh memory, which lasts until the program ends. If the first argument is no letter flag, returns argv itself.
// Rank 0 prints a notice for a flag that has no effect here. An unknown flag, a value that is not supported on this
// device, or a launch that contradicts the flags ends the program with a usage error.
char** flags_rewrite(int* argc, char** argv, FlagsDevice device);
