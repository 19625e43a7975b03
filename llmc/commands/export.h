// The command `export`: writes the weights of --init as files of other programs.
//
//   hf      --out FOLDER    a Hugging Face model with its tokenizer; fp32, bf16, fp16
//   llmc    --out FILE      llm.c's model file, version 3 (fp32) or 5 (bf16)
//   gguf    --out FILE      for llama.cpp; fp32, bf16, fp16, q8_0
//
// Weights go from file to file, a tensor at a time: no model is built, and no device is needed. Everything is written
// under another name (.tmp-*), synced and renamed.
#pragma once
#include "../options/config.h"

// Runs the command; returns the exit code.
int export_command(const Config* c);
