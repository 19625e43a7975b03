// Compares shards with a tokenizer. ./prepare leaves PREFIX.json beside them, with a hash of its own. Shards without
// it, such as llm.c's downloads, can only be compared by their ids: none may be beyond the vocabulary.
#pragma once
#include "../tokenizer/tokenizer.h"
#include "dataset.h"

// Fails if a shard was made with another tokenizer than `t`, or has no record and an id beyond the vocabulary of `t`
// among its first or last tokens. From then on dataset_read() and dataset_check_file() fail at such an id, wherever it
// lies. Warns if shards without a record have ids of bytes alone, but `t` has more. `option` names the data's option in
// messages, `name` is the value of --tokenizer.
bool dataset_check_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name, Error* err);

// Returns the known entropy of a corpus in nats a token, from PREFIX_val.json, which ./prepare left beside its
// validation split PREFIX_val_000000.bin; NAN if there is none.
double corpus_floor(const Dataset* data);
