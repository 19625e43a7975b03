// Lists the backends that this program is linked with, and chooses that of a run.
#pragma once
#include "../model/backend.h"
#include "../options/config.h"

// Returns true if the program trains on GPUs (train_gpt2cu).
bool program_has_gpu(void);

// Returns the storage type of a precision: fp32, bf16 or fp16; auto of auto.
enum dtype storage_of_dtype(enum dtype dtype);

// Returns the precision with the name of a backend's storage type: fp32, bf16 or fp16.
enum dtype dtype_of_storage(const Backend* b);

// Returns the backend of the program's device for a --dtype (auto: bf16 on a GPU, fp16 if the first GPU lacks bf16,
// fp32 on a CPU) and a --cpu level (auto: the fastest for this processor); NULL if there is none.
const Backend* find_backend(enum dtype dtype, enum cpu cpu);

// Returns the CPU's backend for a storage type (fp32, bf16 or fp16) and a --cpu level; NULL if there is none.
const Backend* find_cpu_backend(enum dtype storage, enum cpu cpu);

// Returns the backend `b`, of the precision `dtype`, with the residual stream of a --residual; a usage error if it has
// none of that type.
const Backend* with_residual(const Backend* b, enum residual residual, enum dtype dtype);

// Returns the backend of a run, and sets *dtype to its precision, which is never auto. All is as the options say or,
// where they say auto and the run is resumed, as in the checkpoint; so is --residual, where it is not given. If there
// is no such backend, ends the program with an error that lists those there are.
const Backend* choose_backend(const Config* c, enum dtype* dtype);

// Lists all backends that are linked in, whether this processor can run them or not. Returns their number.
enum { MAX_BACKENDS = 16 };
int list_backends(const Backend* list[MAX_BACKENDS]);
