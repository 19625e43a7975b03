// `./prepare --train_tokenizer N`: learns a tokenizer from the input (bpe_trainer.h), in place of encoding it.
#pragma once
#include "prepare_options.h"

// Writes a tokenizer of N tokens, the last of which ends a text, to the folder --out: Hugging Face's files
// (tokenizer_save.h), and tokenizer.bin in llm.c's format. Prints what was read and learnt. Ends the program if the
// input is too small, or if the folder has a tokenizer and --force is not given.
void train_tokenizer(const PrepareOptions* o);
