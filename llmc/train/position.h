// The position of a run in its data: the windows and tokens that it has trained on, the next micro-batch, the length of
// its sequences, and where the run ends. One number, `window`, is all that a checkpoint needs to read on.
#pragma once
#include "../data/dataloader.h"
#include "../files/checkpoint.h"
#include "plan.h"

// The next micro-batch to request from the loader.
typedef struct {
    long long tokens; // trained on before its step
    uint64_t window;  // first window of its step
    long long row;    // its own first window, relative to `window`
} Cursor;

// A micro-batch as the model sees it: `rows` sequences of T tokens.
typedef struct {
    int rows, T;
} MicroBatch;

// Counts a run at its end.
typedef struct {
    long long steps, tokens;
} RunLength;

// Must not be moved once it has begun: its loader knows the address.
typedef struct {
    const Plan* plan;
    int rank, ranks;
    Dataset data;
    DataLoader loader;
    int* memory;      // of the loader's batches
    long long tokens; // trained on
    uint64_t window;  // the next window of the data (dataloader.h), which gives epoch and position
    Cursor next;
    int seq_len;      // of the last step's sequences; 0: there was none in this start
    long long epoch_tokens; // of the data, in windows
    RunLength length;
} Position;

// Returns the length of a run by a plan, of which so many steps and tokens are done. epoch: tokens of one. Only in a
// batch ramp are the tokens those that the plan asks for; otherwise what is done may be batches of another size.
RunLength run_length(const Plan* plan, long long epoch, long long step, long long tokens);

// Returns the count that sets the rates of the next step of a run by a plan, after so many steps and tokens.
StepCount step_count(const Plan* plan, RunLength length, long long step, long long tokens);

// Opens --train_data and counts the steps of a run that begins, or goes on, at a state. tokenizer NULL: there is none.
// Failures end the program.
void position_open(Position* p, const Plan* plan, const Comm* comm, const Tokenizer* tokenizer,
                   const TrainState* begin);

// Begins to read where a run has trained on so many tokens: opens the loader and requests the first micro-batch.
void position_begin(Position* p, long long tokens, uint64_t window);

// Ends the loader, if it has begun, and closes the data.
void position_close(Position* p);

// Returns the tokens of the next step: of a full batch, or fewer in a batch ramp.
long long position_step_tokens(const Position* p);

// Sets the length of the next step's sequences. Returns true if the run has a --seq_ramp and the length has changed
// since the step before.
bool position_set_seq_len(Position* p);

// Uploads this rank's next micro-batch to the model, its windows cut into sequences, and requests the one after it.
MicroBatch position_take(Position* p, GPT2* g);

// Returns step_count() of the run. step: the steps done.
StepCount position_steps(const Position* p, long long step);

// Counts a step of so many tokens as done.
void position_advance(Position* p, long long tokens);

// Return the first and the last window of a step of so many tokens that begins here.
uint64_t position_first(const Position* p);
uint64_t position_last(const Position* p, long long tokens);
