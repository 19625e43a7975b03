// Shared libraries that a program opens when a run needs them. The program starts where they are missing, and says what
// to install only if the run needs it.
//
// library_open() looks for a library in this order:
//
//   1. where the loader looks: LD_LIBRARY_PATH, beside the program, the toolkit that it was built with, the system
//   2. in CUDA toolkits: CUDA_HOME, /usr/local/cuda, that of an nvcc in the path
//   3. in packages that pip installed: nvidia/*/lib of VIRTUAL_ENV, or of a python3 in the path
#pragma once
#include "base.h"

BEGIN_C

// Opens a library, "libnccl.so.2" for example, until the program ends. Returns its handle, for dlsym(). If it cannot be
// opened, returns NULL with the loader's reason and `remedy`: the sentence that says how to install it.
void* library_open(const char* file, const char* remedy, Error* err);

// Opens a library whose functions the program calls by their names (reached.S): those of libnccl.so.2 begin with
// "nccl". Call it before the first of them. Returns false if the library cannot be opened, or is too old to have one of
// these functions. Does nothing if the program calls none of them this way: if they are linked.
bool library_reach(const char* file, const char* remedy, Error* err);

END_C
