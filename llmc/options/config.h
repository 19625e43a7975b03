// Every option of the programs, once: the parser, --help, the logged configuration and the options that a checkpoint
// remembers all follow from the list CONFIG (options.h has its form).
//
// An option has a value and the source of the value. A later source overrides an earlier one, in whatever order they
// are read: default < preset < checkpoint being resumed < --config file < command line.
#pragma once
#include "options.h"
#include "../base/threads.h"
#include <jansson.h>

typedef enum { FROM_DEFAULT, FROM_PRESET, FROM_CHECKPOINT, FROM_FILE, FROM_COMMAND_LINE } OptionSource;

// The commands that an option belongs to.
enum {
    TRAIN = 1, GENERATE = 2, EVAL = 4, TOKENIZE = 8, INFO = 16, REPORT = 32, CHECK = 64, BENCH = 128, EXPORT = 256,
    FORECAST = 512, INSPECT = 1024,
    MODEL_COMMANDS = TRAIN | GENERATE | EVAL | INFO | CHECK | BENCH,
    SHAPE_COMMANDS = TRAIN | INFO | CHECK | BENCH
};

#define HUGE_COUNT 1e15 // no limit in practice; limits are doubles, which are exact up to 2^53

#define CONFIG(GROUP, INT, REAL, FLAG, TEXT, CHOICE)                                                                  \
    GROUP("model")                                                                                                    \
    TEXT(model, "d12", MODEL_COMMANDS | FORECAST,                                                                     \
         "d12|d24|d36|d48, gpt2|gpt2-medium|gpt2-large|gpt2-xl, gpt3:125m..13b, or L=6,H=6,C=384,T=256[,V=50257];"    \
         " check on a CPU: a small one",                                                                              \
         .also = "n_layer (L of L=12,H=12,C=768,T=1024)|n_head (H of L=12,H=12,C=768,T=1024)|"                        \
                 "n_embd (C of L=12,H=12,C=768,T=1024)|vocab_size (V of L=12,H=12,C=768,T=1024,V=50257)")             \
    TEXT(init, "random", MODEL_COMMANDS | EXPORT | INSPECT,                                                           \
         "initial weights: random, or a Hugging Face folder, a checkpoint, llm.c's model.bin or a .gguf (the model is"\
         " then read from it); generate and eval, without it: the newest checkpoint in --out",                       \
         .scope = SCOPE_IDENTITY,                                                                                     \
         .also = "init_from (a folder; to continue a run: --resume auto)|model_name_or_path")                         \
    CHOICE(init_out, normal, (normal, zero), TRAIN | INFO,                                                            \
           "initial output projections of attention and MLP: normal (1/sqrt(2L) of the others' deviation), or zero",  \
         .scope = SCOPE_IDENTITY, .needs = "init=random")                                                             \
    INT(seed, 1337, 0, HUGE_COUNT, NULL, SHAPE_COMMANDS | GENERATE | FORECAST,                                        \
         "of the initial weights, of the order of the data, of samples and of a forecast's refits",                   \
         .scope = SCOPE_IDENTITY)                                                                                     \
    TEXT(tokenizer, "gpt2", TRAIN | GENERATE | EVAL | TOKENIZE | EXPORT | INSPECT,                                    \
         "gpt2 (built in), bytes, none (token ids only), or a tokenizer file or folder; with --init: its own",        \
         .scope = SCOPE_IDENTITY)                                                                                     \
    TEXT(preset, "", TRAIN | INFO | BENCH,                                                                            \
         "settings by name: gpt2:, fast: or muon:124m..1558m, gpt3:125m..13b; with bench, of bench step alone",       \
         .scope = SCOPE_IDENTITY)                                                                                     \
    GROUP("data")                                                                                                     \
    TEXT(train_data, "data/stories_train_*.bin", TRAIN | INFO,                                                        \
         "token shards to train on (a pattern, in quotation marks)", .scope = SCOPE_DATA,                             \
         .also = "dataset|train_file|input_bin")                                                                      \
    TEXT(val_data, "data/stories_val_*.bin", TRAIN | EVAL | INFO,                                                     \
         "token shards to validate on (a pattern); empty: none; train, without it: those beside --train_data, with"   \
         " _val_ in place of _train_", .needs = "!eval_data !text",                                                   \
         .needs_in = EVAL, .also = "validation_file|input_val_bin")                                                   \
    CHOICE(data_format, auto, (auto, nanogpt), TRAIN | EVAL | INFO,                                                   \
         "of token files: auto: llm.c's shards and NumPy's, as each file says; nanogpt: also uint16 ids"      \
         " without a header", .needs = "!eval_data !text", .needs_in = EVAL)                                          \
    INT(batch_size, 4, 1, 1e6, "auto", SHAPE_COMMANDS | EVAL,                                                         \
         "sequences in a micro-batch, B; auto: the largest that fits",                                                \
         .also = "per_device_train_batch_size|per_device_eval_batch_size")                                            \
    INT(seq_len, 0, 1, 1e6, "model", SHAPE_COMMANDS | EVAL,                                                           \
        "tokens in a sequence, T; model: the model's own (check: at most 64 of them)",                                \
        .scope = SCOPE_IDENTITY, .also = "block_size|sequence_length|max_seq_length|max_seq_len")                     \
    INT(total_batch_size, 0, 1, 1e9, "B*T", TRAIN | INFO | BENCH,                                                     \
         "tokens in an optimizer step, over all micro-batches and processes",                                         \
         .also = "gradient_accumulation_steps (tokens of a step: B*T * processes * accumulation steps)")              \
    TEXT(batch_ramp, "", TRAIN | INFO,                                                                                \
         "START:TOKENS: begin with START tokens a step and double to the total batch over TOKENS tokens",             \
         .scope = SCOPE_IDENTITY)                                                                                     \
    TEXT(seq_ramp, "", TRAIN | INFO,                                                                                  \
         "START:TOKENS: begin with sequences of START tokens and double to --seq_len over TOKENS tokens")             \
    FLAG(shuffle, 1, TRAIN, "visit the windows of the data in random order, each once an epoch",                      \
         .scope = SCOPE_IDENTITY)                                                                                     \
    FLAG(overfit, 0, TRAIN, "train on the first batch for ever", .scope = SCOPE_IDENTITY,                             \
         .also = "overfit_single_batch")                                                                              \
    FLAG(document_mask, 0, TRAIN | EVAL,                                                                              \
         "attention sees no earlier document of a window; eval: as the checkpoint was trained",                       \
         .scope = SCOPE_IDENTITY, .needs = "!eval_data !text", .needs_in = EVAL)                                      \
    GROUP("schedule")                                                                                                 \
    INT(max_steps, -1, -1, HUGE_COUNT, NULL, TRAIN | BENCH | CHECK,                                                   \
         "optimizer steps (with --batch_ramp: the tokens of so many full ones); -1: one epoch; check: ten",           \
         .also = "max_iters|num_iterations|num_train_epochs (-1: one epoch)|num_epochs (-1: one epoch)|"              \
                 "epochs (-1: one epoch)|"                                                                            \
                 "lr_decay_iters (the learning rate decays until the last step)")                                     \
    REAL(lr, 3e-4, 0, 1e3, NULL, TRAIN, "peak learning rate", .also = "learning_rate")                                \
    REAL(min_lr_frac, 0.1, 0, 1, NULL, TRAIN, "learning rate at the end, as a fraction of the peak",                  \
         .needs = "schedule!=constant", .also = "min_lr (a fraction of --lr)|learning_rate_decay_frac")               \
    INT(warmup_steps, 0, 0, HUGE_COUNT, NULL, TRAIN, "steps of linear warm-up",                                       \
         .also = "warmup_iters|warmup_ratio (counted in steps)")                                                      \
    CHOICE(schedule, cosine, (cosine, linear, constant, wsd, wsd_linear), TRAIN,                                      \
           "of the learning rate after the warm-up; wsd: flat, and at the end down by 1 - sqrt; wsd_linear: in a line",\
         .also = "decay_lr (constant: no decay)|lr_scheduler_type")                                                   \
    REAL(decay_frac, 0.2, 0, 1, NULL, TRAIN,                                                                          \
         "the part of the run, at its end, in which the rate of --schedule wsd falls",                                \
         .needs = "schedule=wsd|wsd_linear")                                                                          \
    TEXT(skip_z, "0", TRAIN,                                                                                          \
         "LOSS[:NORM]: skip the update when the loss, or the gradient's norm, is this many standard deviations high;" \
         " 0: never")                                                                                                 \
    TEXT(on_spike, "skip", TRAIN,                                                                                     \
         "skip or stop[:N]: after such a step, or one that is not finite: skip its update, or after N of them in a row"\
         " (1) end the run with the --skip_windows of a run that goes on without these data (scripts/supervise.sh does"\
         " so)")                                                                                                      \
    TEXT(skip_windows, "", TRAIN,                                                                                     \
         "windows of the data to leave out, FIRST-LAST,...; with --resume auto from before the first of them",        \
         .needs = "!overfit")                                                                                         \
    TEXT(loss_scale, "auto", TRAIN,                                                                                   \
         "off, a power of two that the loss is multiplied by, or dynamic[:START]: halved when a gradient overflows"   \
         " (the update is skipped), doubled after a while; auto: dynamic with fp16, else off",                        \
         .also = "init_scale (dynamic:START)|initial_loss_scale (dynamic:START)")                                     \
    GROUP("optimizer")                                                                                                \
    CHOICE(optimizer, adamw, (adamw, muon), TRAIN | INFO | BENCH,                                                     \
           "muon: orthogonal updates for the weights of the blocks' linear layers (Jordan et al. 2024), AdamW for the"\
           " rest", .scope = SCOPE_IDENTITY)                                                                          \
    REAL(embedding_lr, auto, 0, 1e3, "auto", TRAIN, "peak learning rate of the embeddings; auto: --lr")               \
    REAL(matrix_lr, auto, 0, 1e3, "auto", TRAIN, "of the blocks' matrices; auto: --lr, or 0.02 with muon")            \
    REAL(weight_decay, 0.1, 0, 1e3, NULL, TRAIN, "decoupled decay of embeddings, and of matrices without their own")   \
    REAL(matrix_decay, auto, 0, 1e3, "auto", TRAIN,                                                                   \
         "decay of the blocks' matrices; auto: --weight_decay, or 0.01 with muon")                                    \
    FLAG(cautious_decay, 0, TRAIN, "decay only elements that the update makes smaller anyway")                        \
    REAL(beta1, 0.9, 0, 0.999999, NULL, TRAIN, "AdamW", .also = "adam_beta1")                                         \
    REAL(beta2, 0.95, 0, 0.999999, NULL, TRAIN, "AdamW", .also = "adam_beta2")                                        \
    TEXT(momentum, "0.95", TRAIN,                                                                                     \
         "of Muon, M[,warmup:STEPS:START][,cooldown:STEPS:END]: it rises from START in the first steps (300:0.85;"    \
         " warmup:none: it does not) and falls to END in the last", .needs = "optimizer=muon")                        \
    REAL(grad_clip, auto, 0, 1e9, "auto", TRAIN,                                                                      \
         "largest global norm of the gradient; 0: do not clip; auto: 1, or 0 with muon (it clips AdamW's part alone)",\
         .also = "max_grad_norm")                                                                                     \
    GROUP("speed")                                                                                                    \
    CHOICE(dtype, auto, (auto, fp32, tf32, bf16, fp16, fp8, q8_0), MODEL_COMMANDS | EXPORT,                           \
         "precision of activations, weights and matmuls; fp16: more digits than bf16, but none beyond 65504;"         \
         " fp8: bf16, with the blocks' matmuls in 8 bits (GPUs from Ada on);"                                         \
         " auto: bf16 on a GPU, fp16 on Turing, fp32 on a CPU; export: type of the weights in the file, fp32 (auto)," \
         " bf16, fp16, or q8_0, which is llama.cpp's alone",                                                          \
         .also = "tensorcores (tf32)|tf32 (tf32)|bf16 (bf16)|fp16 (fp16)")                                            \
    CHOICE(residual, fp32, (fp32, bf16), MODEL_COMMANDS,                                                              \
         "type of the residual stream and its gradient; bf16: half their memory traffic, each addition rounded; with" \
         " --dtype bf16 or fp8")                                                                                      \
    CHOICE(kernels, fast, (fast, plain), MODEL_COMMANDS,                                                              \
         "plain: the readable ones that the fast ones are tested against")                                            \
    CHOICE(attention, auto, (auto, flash, exact, cudnn, plain), MODEL_COMMANDS,                                       \
           "flash: this program's, in tiles as FlashAttention; exact: flash that also keeps, for backward, what"      \
           " rounding to 16 bits takes from its output; cudnn: cuDNN's, on a GPU; plain: a query at a time; auto:"    \
           " the fastest")                                                                                            \
    FLAG(deterministic, 1, TRAIN | BENCH,                                                                             \
         "on a GPU: a run repeats its bits; 0: cuDNN's backward of attention may add in any order, which is faster"   \
         " and needs less memory on Hopper")                                                                          \
    CHOICE(cpu, auto, (auto, generic, avx2, avx512, avx512_bf16, amx), MODEL_COMMANDS | INSPECT,                      \
         "instructions of the CPU's fast kernels; auto: the fastest that this processor has")                         \
    FLAG(fused, 1, MODEL_COMMANDS, "bias and GELU inside the matmuls, addition and layernorm in one pass")            \
    FLAG(pad_vocab, 1, MODEL_COMMANDS, "round the vocabulary up to a multiple of 128 in memory (50257 -> 50304)")     \
    FLAG(graph, 1, TRAIN | CHECK | BENCH,                                                                             \
         "on a GPU: record a micro-step and an update as CUDA graphs and replay them",                                \
         .also = "compile|torch_compile")                                                                             \
    CHOICE(tune, 1, (0, 1, anew), TRAIN | CHECK | BENCH,                                                              \
           "on a GPU: 1: at the start, time cuBLASLt's algorithms for each matmul, and keep the fastest in"           \
           " ~/.cache/gpt2.c for the next start, with the variants of kernels; anew: whatever is kept there;"         \
           " 0: the library's first proposal, and no cache")                                                          \
    CHOICE(recompute, none, (none, gelu, all), SHAPE_COMMANDS,                                                        \
         "what backward computes again to save memory: GELUs, or all but each block's input",                         \
         .also = "gradient_checkpointing (none, gelu or all)")                                                        \
    CHOICE(offload, none, (none, optimizer), TRAIN | INFO,                                                            \
           "what lies in host memory and is copied through the GPU in each update: nothing, or fp32 master weights"   \
           " and moments; the numbers are the same (on a CPU a stand-in for tests, which only costs)",                \
           .scope = SCOPE_START, .also = "offload_optimizer|cpu_offload|optimizer_cpu_offload")                       \
    FLAG(stochastic_round, 0, TRAIN,                                                                                  \
         "round updated weights to 16 bits at random, in proportion to the distance, instead of to the nearest (with" \
         " --zero 1 the numbers depend on the processes)")                                                            \
    INT(threads, 0, 1, MAX_THREADS, "all", MODEL_COMMANDS | INSPECT, "CPU threads; all: OpenMP's choice",             \
        .scope = SCOPE_START)                                                                                         \
    GROUP("processes")                                                                                                \
    INT(gpus, 1, 1, 1024, NULL, TRAIN | EVAL | INFO | BENCH,                                                          \
         "processes to start on this machine, one for each GPU, without mpirun", .scope = SCOPE_START,                \
         .also = "num_gpus|nproc_per_node")                                                                           \
    FLAG(zero, 0, TRAIN | INFO, "shard master weights and moments over the processes (ZeRO-1)",                       \
         .also = "zero_stage")                                                                                        \
    REAL(timeout, 120, 0.1, 1e6, NULL, TRAIN | EVAL | BENCH,                                                          \
         "seconds of silence of another process after which the run ends; at the start at least 300",                 \
         .scope = SCOPE_START)                                                                                        \
    INT(replay, 0, 0, HUGE_COUNT, NULL, TRAIN,                                                                        \
         "steps after which a micro-batch is computed twice more, and weights of ranks compared; 0: never")           \
    GROUP("watch")                                                                                                    \
    INT(val_every, 250, 0, HUGE_COUNT, NULL, TRAIN, "steps between validations; 0: never",                            \
         .also = "eval_interval|eval_steps|val_loss_every")                                                           \
    INT(val_tokens, 1048576, -1, HUGE_COUNT, NULL, TRAIN | EVAL, "tokens to validate on; -1: all (eval's default)",   \
         .needs = "!eval_data !text", .needs_in = EVAL,                                                               \
         .also = "eval_iters (counted in tokens)|val_max_steps (counted in tokens)")                                  \
    TEXT(eval_data, "", TRAIN | EVAL,                                                                                 \
         "test sets to score (patterns), as published: HellaSwag, LAMBADA, MMLU, ... (dev/evaluation.md), or CORE's"  \
         " folder; eval: in place of validating",                                                                     \
         .also = "tasks (the files of test sets)|hellaswag (the file of a test set)")                                 \
    TEXT(eval_rules, "llm.c", TRAIN | EVAL,                                                                           \
         "how --eval_data is scored, parts separated by commas: llm.c or lm-eval, whose rules score HellaSwag's JSON" \
         " lines (their numbers differ); shots:N answered examples in front of each item, of examples:FILE or else of"\
         " the same file; limit:N, the first items alone; every:N steps while training (else --val_every)",           \
         .needs = "eval_data", .also = "limit (limit:N)|num_fewshot (shots:N)")                                       \
    TEXT(text, "", EVAL, "text, JSONL or Parquet (patterns) whose perplexity and bits per byte are printed")          \
    TEXT(field, "text", EVAL, "field of a line of JSONL, or column of a Parquet file, that has the text of --text",   \
         .needs = "text")                                                                                             \
    INT(stride, 0, 1, 1e6, "none", EVAL,                                                                              \
        "tokens between windows of --text that overlap, at most --seq_len; none: each token behind up to T others",   \
         .needs = "text")                                                                                             \
    INT(sample_every, 250, 0, HUGE_COUNT, NULL, TRAIN, "steps between samples; 0: never",                             \
         .needs = "tokenizer!=none")                                                                                  \
    INT(sample_tokens, 64, 1, 1e9, NULL, TRAIN | GENERATE, "tokens to generate",                                      \
        .also = "max_new_tokens|max_tokens|num_tokens|n_predict")                                                     \
    TEXT(prompt, "", TRAIN | GENERATE | INSPECT,                                                                      \
         "text that a sample continues, or that inspect reads; empty: the start of a document; generate, inspect: -"  \
         " reads standard input, @FILE a file of prompts, one on each line", .also = "start")                         \
    INT(samples, 1, 1, 1e6, NULL, GENERATE, "texts for each prompt; up to 16 texts are generated at once",            \
         .also = "num_samples|num_return_sequences")                                                                  \
    INT(logprobs, 0, 0, 100, NULL, GENERATE,                                                                          \
         "print each token with its log-probability and so many of the likeliest tokens; 0: do not")                  \
    FLAG(json, 0, GENERATE, "print each text as a line of JSON")                                                      \
    REAL(temperature, 1.0, 0, 100, NULL, TRAIN | GENERATE, "of sampling; 0: always the likeliest token")              \
    INT(top_k, 50, 0, 1e9, NULL, TRAIN | GENERATE, "sample among the k likeliest tokens; 0: all")                     \
    REAL(top_p, 1.0, 0, 1, NULL, TRAIN | GENERATE, "sample among the likeliest tokens that hold this much probability")\
    REAL(max_time, 0, 0, 1e6, NULL, TRAIN, "hours after which the run saves and ends; 0: no limit",                   \
         .scope = SCOPE_START)                                                                                        \
    INT(save_every, 1000, 0, HUGE_COUNT, NULL, TRAIN,                                                                 \
         "steps between checkpoints (and one after the last step); 0: none",                                          \
         .also = "save_steps|save_interval|checkpoint_every")                                                         \
    TEXT(keep, "3,best", TRAIN,                                                                                       \
         "checkpoints that stay, N[,best][,every:M]: the N newest (0: all), the one of the lowest validation loss,"   \
         " and those of steps that M divides", .also = "save_total_limit")                                            \
    TEXT(resume, "", TRAIN, "auto: continue from the newest checkpoint in --out; or the path of a checkpoint",        \
         .scope = SCOPE_START, .also = "resume_from_checkpoint")                                                      \
    TEXT(out, "run", TRAIN | GENERATE | EVAL | REPORT | BENCH | EXPORT | FORECAST | INSPECT,                          \
         "folder of checkpoints, logs and the report; generate, eval: that folder; empty: none; report, inspect: the" \
         " folder or .html file to write (inspect: ./inspect.html); export: the folder or file to write, without a"   \
         " default; forecast: the .svg file to write, if any",                                                        \
         .scope = SCOPE_START, .also = "out_dir|output_dir|output")                                                   \
    FLAG(tensorboard, 0, TRAIN, "write TensorBoard's event files too, into OUT/tensorboard", .needs = "out",          \
         .also = "wandb|wandb_log|report_to")                                                                         \
    GROUP("export")                                                                                                   \
    INT(average, 0, 2, 1000, "none", EXPORT,                                                                          \
        "write the mean of so many checkpoints, the newest of the run --init (LAWA, Kaddour 2022)")                   \
    FLAG(force, 0, EXPORT, "replace the file --out")                                                                  \
    GROUP("forecast")                                                                                                 \
    TEXT(budget, "", FORECAST,                                                                                        \
         "tokens:1e10 to train --model on, or flops:1e19")                                                            \
    GROUP("other")                                                                                                    \
    FLAG(decode, 0, TOKENIZE, "turn token ids back into text")                                                        \
    TEXT(config, "", TRAIN | GENERATE | EVAL | INFO, "file of `name value` lines; the command line overrides it",     \
         .scope = SCOPE_START)

enum { NUM_ROWS = OPTION_NUM_ROWS(CONFIG) };

OPTION_ENUMS(CONFIG)
OPTION_EXTERN_NAMES(CONFIG)

typedef struct {
    OPTION_FIELDS(CONFIG)
    unsigned char source[NUM_ROWS]; // an OptionSource for each row of CONFIG_OPTIONS
    int num_args;                   // words without a name: folders, kinds of bench, formats of export
    char** args;
    bool has_letters;               // the command line was llm.c's: flags_rewrite() has translated it
} Config;

// CONFIG_OPTIONS: the rows of the list, headings included. CONFIG_TABLE: the same rows, and the names that other
// programs have for these options.
extern const Option CONFIG_OPTIONS[NUM_ROWS];
extern const OptionTable CONFIG_TABLE;

typedef struct {
    const char* name;
    int bit;
    const char *words, *help; // words: that it takes beside options, for the first line of its help
} Command;

enum { NUM_COMMANDS = 11 };
extern const Command COMMANDS[NUM_COMMANDS];

// ---------------------------------------------------------------------------------------------------------------------
// names

// Returns the command of this name. If there is none, ends the program with a usage error, which suggests the nearest.
const Command* command_find(const char* name);

// Returns the option of this name; NULL if there is none.
const Option* config_find(const char* name);

// Returns the source of an option's value.
OptionSource config_source(const Config* c, const char* name);

// ---------------------------------------------------------------------------------------------------------------------
// values

// Sets an option, unless a source that overrides `source` has set it already. Fails if the value is wrong, even one
// that is not used; the error does not name the option. Text is copied and never freed: options live as long as the
// program.
bool config_set(Config* c, const Option* o, const char* value, OptionSource source, Error* err);

// Appends the option and its value to a command, as a shell reads them: " --name value".
void append_option(char** command, const Config* c, const Option* o);

// Sets every option to its default.
void config_defaults(Config* c);

// Returns every option and its value; the caller releases the object with json_decref().
json_t* config_to_json(const Config* c);

// Removes the options of a single start (SCOPE_START) from such an object.
void config_drop_start(json_t* options);

// Sets the options that a checkpoint remembers (source FROM_CHECKPOINT). Options that it does not have keep their
// value; names that this program does not know are skipped. Fails if a value is wrong; `where` names the checkpoint in
// errors.
bool config_from_json(Config* c, const json_t* object, const char* where, Error* err);

// Fails if an option was given that has no effect beside the others (Option.needs). Options of a preset or a checkpoint
// are not refused, nor those that are off or have their default value.
bool config_check_needs(const Config* c, int command, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// the command line

// Prints how to call a command and its options; NULL: all commands, and the options of train.
void config_help(const char* program, const Command* command);

// Reads `argv` (after the program and the command), and each file of --config where it is named, into `c`, which
// config_defaults() has filled. Ends the program with a usage error if anything is wrong.
void config_parse(Config* c, int command, const char* command_name, int argc, char** argv);
