// Shapes for the tests of the CPU's attention: lengths around those of its blocks, head sizes around those of vectors.
#pragma once

typedef struct {
    int B, T, NH, HS;
} Shape;

static const Shape SHAPES[] = {
    {2, 1, 3, 16},  {1, 2, 2, 1},   {2, 31, 2, 7},  {1, 33, 2, 20}, {1, 64, 3, 64},   {1, 95, 1, 33},
    {2, 96, 1, 32}, {1, 97, 3, 48}, {1, 191, 1, 5}, {1, 192, 2, 80}, {3, 193, 1, 12}, {1, 289, 2, 100},
    {1, 385, 1, 64}, {1, 107, 1, 255}, {1, 205, 1, 256}, {1, 700, 1, 24},
};
enum { NUM_SHAPES = sizeof SHAPES / sizeof *SHAPES };

// Some of them, for tests with documents; the last is of many blocks.
static const Shape DOCUMENT_SHAPES[] = {{2, 31, 2, 7}, {2, 193, 1, 12}, {1, 389, 1, 80}};
enum { NUM_DOCUMENT_SHAPES = sizeof DOCUMENT_SHAPES / sizeof *DOCUMENT_SHAPES };
