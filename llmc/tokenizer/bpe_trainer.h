// Learns the merges of a byte-level byte-pair encoding from counted pieces of text (Sennrich et al. 2016, "Neural
// machine translation of rare words with subword units").
//
// Tokens 0 to 255 are the bytes in GPT-2's order (byte_level.h). Merges follow from 256 on, in the order in which they
// are learnt. Each merge is the pair of adjacent tokens that occurs most often in all pieces, where overlapping
// occurrences count ("aaa" has two pairs aa). Among equally frequent pairs it is the one with the lowest left token,
// then with the lowest right one. Within a piece it is applied from left to right. No token gets more than 255 bytes.
// These are the rules of BpeTrainer of Hugging Face's `tokenizers` with the whole byte alphabet and
// max_token_length=256, and the merges are the same.
//
// A merge changes only the counts of pairs beside its occurrences. So each pair has the list of its places, and a heap
// has the pairs by count. Counts of pairs in the heap may be out of date, but only too high, since a merge makes no
// older pair more frequent: the pair on top is pushed again with its current count. The places of a pair may be out of
// date too: the tokens found there show it. With n bytes of pieces, all merges together take O(n) changes of counts and
// 14 to 20 bytes of memory for each byte.
#pragma once
#include "piece_counts.h"

enum { BPE_MAX_TOKENS = 65536 };

typedef struct {
    uint16_t left, right;
} BpeMerge;

// Learns up to `num_merges` merges, at most BPE_MAX_TOKENS - 256 - 1. Returns how many there are: fewer if no pair is
// left.
int bpe_train(BpeMerge* merges, int num_merges, const Pieces* pieces);
