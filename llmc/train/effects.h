// Refuses options that would have no effect beside the other options of a run, such as --bad_steps with --on_spike skip:
// who gives one expects something of it.
//
// Refused is what somebody gave: in training on the command line or in the file of --config, elsewhere on the command
// line, since commands may share a file. Not refused are a default, and what comes from a preset, from a checkpoint or
// from llm.c's letters, which llm.c ignores too. Nor are options of what a value switches off, such as --val_tokens
// beside --val_every 0: scripts add the switch to the options of all their runs. Nor are options of a device or of
// several processes: the same command is for train_gpt2 and train_gpt2cu, for one process and for many.
#pragma once
#include "../options/config.h"

// Fails if an option of this command has no effect; the error says why, and what to give. dtype: the resolved --dtype
// of training; else it may be NULL.
bool effects_check(const Config* c, int command, const char* dtype, Error* err);
