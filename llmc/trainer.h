// What an object file of a device and storage type offers to main: train_gpt2.c is compiled once for each type and
// exports one of these.
#pragma once
#include "comm/none.h"
#include "config.h"

typedef struct {
    const char *device, *dtype;
    int (*train)(Config* config, Comm* comm); // these return the exit code
    int (*generate)(Config* config);
    int (*eval)(Config* config, Comm* comm);
    int (*info)(Config* config);
} Trainer;
