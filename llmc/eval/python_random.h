// Python's random.Random for what CORE does with it (core.h): the order of a task's lines and the examples in front of
// each item are those of a Python program with the same seeds.
//
// The generator is MT19937 (Matsumoto and Nishimura 1998, "Mersenne Twister: a 623-dimensionally equidistributed
// uniform pseudo-random number generator"), seeded by its init_by_array() with the seed as the only element. For a
// number below n Python draws the top bits of one output, as many as n has, and draws again while they are n or more.
#pragma once
#include "../base/base.h"

enum { MT_WORDS = 624 };

typedef struct {
    uint32_t state[MT_WORDS];
    int at; // the next word of the state
} PythonRandom;

// Returns random.Random(seed).
PythonRandom python_random(uint32_t seed);

// random.shuffle(): permutes the indices in `order` (n).
void python_shuffle(PythonRandom* r, size_t* order, size_t n);

// random.sample(range(n), k): writes k different numbers below n to `chosen`. k <= n.
void python_sample(PythonRandom* r, size_t* chosen, size_t n, size_t k);
