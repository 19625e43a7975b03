// Makes token shards from text: the work of ./prepare.
//
// Every document begins with the end-of-text token. The first tokens are the validation split, the others training
// shards; documents go on from one shard to the next. Beside the shards PREFIX.json (manifest.h) records what they are
// made from and which are finished: after an interruption the same command continues with the first unfinished shard
// and writes the same bytes. With --stories PREFIX_val.json records the lowest reachable validation loss (stories.h).
#pragma once
#include "prepare_options.h"

// Makes the shards, or those of them that are missing, and prints a summary. Ends the program on any error.
void prepare(const PrepareOptions* o);
