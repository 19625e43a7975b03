// Reads and writes PREFIX.json, the record of what ./prepare has done, from which an interrupted run continues:
//     {"made_from": describe_work(), "val_size": tokens of the validation split,
//      "shards": [tokens of each finished one], "next": where the next shard begins,
//      "nll": -ln p of the validation stories, "summary": counts of documents (summary.h), "complete": true or false}
#pragma once
#include "../base/file.h"
#include "documents.h"
#include "../tokenizer/tokenizer.h"
#include <jansson.h>

// The beginning of a shard: the documents that follow a state of the input, without their first `skip` tokens.
typedef struct {
    InputState input;
    uint64_t skip;
} ShardStart;

// Returns the number of the first shard: 0 is the validation split; 1 if there is none.
size_t first_shard(const json_t* manifest);

// Returns the path of a shard: PREFIX_val_000000.bin, or PREFIX_train_%06d.bin. The caller frees it.
char* shard_name(const PrepareOptions* o, size_t number);

// Returns what stat() says of each input, before it is read; the caller frees it. NULL for standard input.
struct stat* look_at_inputs(const PrepareOptions* o);

// Returns the first input that was written or replaced since then: the shards may mix two versions of it. NULL if none
// was.
const char* changed_input(const PrepareOptions* o, const struct stat* before);

// Returns everything that the shards' bytes depend on: a hash of each input and of the tokenizer, and the options; a
// new reference. Reads all inputs, and ends the program if one cannot be read.
json_t* describe_work(const PrepareOptions* o, const Tokenizer* t);

// Returns the manifest of a run that has written no shard, a new reference; `work` becomes its "made_from" and still
// belongs to the caller.
json_t* new_manifest(const PrepareOptions* o, json_t* work, uint64_t val_size);

// Reads the manifest of an earlier, interrupted or complete, run of the same work; a new reference, or NULL if that run
// wrote no shard. Ends the program if the manifest is damaged, or if shards of this prefix were made from other work.
json_t* load_manifest(const PrepareOptions* o, const char* path, const json_t* work);

// Replaces the file atomically, or ends the program.
void save_manifest(const json_t* manifest, const char* path);

// Records a finished shard of `tokens` tokens, and where the next one begins.
void record_shard(const PrepareOptions* o, json_t* manifest, size_t tokens, const ShardStart* next);

// Returns where the next shard begins, as recorded. Ends the program, naming `path`, if the record is damaged.
ShardStart next_shard_start(const PrepareOptions* o, const json_t* manifest, const char* path);

// Opens the shards that the manifest records and returns the sum of their tokens. Ends the program if one is missing or
// has another size.
uint64_t check_shards(const PrepareOptions* o, const char* path, const json_t* manifest);

// Ends the program if a file that the run is going to replace was not made by ./prepare.
void refuse_foreign_files(const PrepareOptions* o, const Records* r);

// Removes the shards of this prefix that a kill has left half written.
void remove_unfinished(const PrepareOptions* o);

// Removes all finished shards of this prefix, their checksums and their floor.
void remove_shards(const PrepareOptions* o, const Records* r);
