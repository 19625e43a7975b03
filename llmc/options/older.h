// Options of earlier versions, as their checkpoints hold them.
#pragma once
#include <jansson.h>

// Returns a copy of a checkpoint's options (NULL: none) in which those of earlier versions have become today's. The
// caller owns the reference.
json_t* options_of_today(const json_t* options);
