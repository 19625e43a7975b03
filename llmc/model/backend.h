// The contract between the program and a device. A backend is one device (a CPU or an NVIDIA GPU) with one storage type
// (fp32, bf16 or fp16) and, on a CPU, one level of instructions. Each is an object file of its own, compiled from
// train_gpt2.c or train_gpt2.cu, and exports one constant table: the operations of GPT-2 and the functions of the
// device. The rest of the program is compiled once, over a `const Backend*`.
//
// Arguments of operations: what is written, what is read, sizes. Tensors are dense and row-major; N = B*T rows. All
// pointers are device memory. Gradients of parameters and of the residual stream are added to (+=), unless an operation
// has a GradMode and it says otherwise; all other outputs are set (=).
//
// Types: weights and activations are `Stored`, an element in the backend's storage type. The residual stream and its
// gradient are `Residual`: float, or bf16 (--residual). Gradients of parameters, statistics and losses are float in
// every backend. The gradient of the residual stream is kept twice where Residual and Stored differ: as Residual, where
// it is summed, and rounded to Stored for the matmuls that read it.
//
// Operations compute and sum in float, and round to nearest what they store. A residual stream in bf16 is rounded after
// each of its 2L additions. So is its gradient, which is summed over layers in bf16, as in llm.c. Each rounding is an
// error of at most 2^-8 of an element; what a layer adds below 2^-9 of the sum is lost. (Weights do not lose small
// updates in this way: their masters are float.)
//
// Work is queued and runs in the order of the calls; functions may return before it is done. device_copy_out() and
// device_sync() wait for it. A failing device ends the program.
#pragma once
#include "../base/base.h"
#include "../base/rounding.h"
#include "tensors.h"

// One element of weights and activations. The type is complete only inside a backend; elsewhere sizes and addresses
// come from Backend.element_bytes (stored_at).
typedef struct Stored Stored;

// One element of the residual stream or of its gradient, in the same way: Backend.residual_bytes.
typedef struct Residual Residual;

// Says whether the gradient of the weight of a linear layer or the classifier is set or added to. A step's first
// micro-batch sets it, which saves zeroing and reading it (PyTorch: zero_grad(set_to_none=True)); later ones add to it.
typedef enum { GRADS_ADD, GRADS_SET } GradMode;

// Options of a device.
typedef struct {
    int local_rank;    // of the process on this machine: the number of its GPU, if it sees more than one
    int threads;       // of the CPU; 0: OpenMP's choice
    bool plain;        // the readable kernels that the fast ones are tested against
    bool fused;        // bias, GELU and GELU's gradient inside the matmuls
    bool flash;        // attention in tiles
    bool tf32;         // matmuls of fp32 storage in TF32
    bool fp8;          // matmuls of the blocks, of bf16 storage, in FP8
    bool graph;        // replay recorded work as CUDA graphs (device_replay)
    bool document_mask; // attention_forward and attention_backward are given documents
    bool recomputes_gelu; // backward calls gelu_forward(), which must give what matmul_gelu_forward() gave
    const char* attention; // "flash" (this program's) or "cudnn"; NULL: the faster one
    bool nondeterministic; // cuDNN's backward of attention may add in any order
} DeviceOptions;

// Hyperparameters of one AdamW step. They lie in device memory, so that a recorded update can be replayed.
typedef struct {
    float lr[NUM_GROUPS], weight_decay[NUM_GROUPS];
    bool cautious;          // decay only elements that this update shrinks anyway (Muon.cautious)
    float beta1, beta2, eps;
    float grad_clip;        // largest global norm of the gradient; 0: do not clip
    double grad_scale;      // what the gradients are multiplied by first: 1 / the loss scale (loss_scale.h)
    int step;               // 1 for the first
    uint64_t rounding_seed; // 0: weights are the masters rounded to nearest; else rounded stochastically, by this seed
} AdamW;

// Hyperparameters of one step of Muon, in device memory as well.
typedef struct {
    float lr, momentum, weight_decay;
    bool cautious;          // decay only where update * weight >= 0 (Chen et al. 2025, "Cautious Weight Decay")
    double grad_scale;      // as in AdamW; gradients are not clipped, because the update has no length of its own
    int step;
    uint64_t rounding_seed;
} Muon;

// All settings of one update, which lie in device memory as one.
typedef struct {
    AdamW adamw;
    Muon muon;
} Hyper;

// The Newton-Schulz steps of muon_update, and a, b, c of their polynomial a x + b x^3 + c x^5 of the singular values.
enum { MUON_STEPS = 5 };
#define MUON_A 3.4445f
#define MUON_B (-4.7750f)
#define MUON_C 2.0315f

// A matrix (rows,cols) that Muon updates: whole rows of a tensor, one behind another in memory. Pointers are to its
// first element, which is element `begin` of the table's layout (for stochastic rounding). Without params and masters
// (NULL) only its momentum is updated and the direction computed: autotune.c times the matmuls.
typedef struct {
    Stored* params;
    float *masters, *m; // m: the momentum
    const float* grads;
    size_t begin;
} MuonMatrix;

// Operations that a device can do in several variants (autotune.h times them).
typedef enum {
    CHOICE_FLASH_FORWARD, // tilings of the kernels of flash attention
    CHOICE_FLASH_KEYS,
    CHOICE_FLASH_QUERIES,
    CHOICE_ATTENTION_FORWARD, // after the kernels, so that their best variants compete
    CHOICE_ATTENTION_BACKWARD,
    CHOICE_GELU_FORWARD,
    CHOICE_GELU_BACKWARD,
    CHOICE_MATMUL_SMS, // multiprocessors that matmuls of backward use beside collectives
    NUM_CHOICES
} Choice;

enum { MAX_VARIANTS = 3 }; // of a choice, on any device

enum { KERNELS_TEXT = 256 }; // longest text of Backend.device_kernels

// An algorithm of the library for a matmul out (rows,cols) = a (rows,depth) @ b (depth,cols), and the choice that was
// made (cuda/tune.cuh).
typedef struct {
    int batch; // matmuls of this shape in one call
    int rows, cols, depth;
    bool a_transposed, b_transposed, is_fp8;
    const char* fusion; // "bias" for instance, "a matrix" that is added; "": none
    int count, chosen;  // algorithms that the library offers; the one in use
    double seconds;     // the shortest run; INFINITY: not measured, or it failed
    size_t workspace_bytes;
    int id, tile, stages, split_k, reduction; // numbers of cublasLt.h
} MatmulFacts;

// Slots of state_in() and state_out(): while the device works on one, a second is filled and a third is copied back.
enum { STATE_SLOTS = 3 };

// A recording of work that is queued again and again (device_replay).
typedef struct Recording Recording;
typedef void (*Work)(const void* arguments);

typedef struct Backend {
    const char* device;  // "cpu" or "cuda"
    const char* storage; // "fp32", "bf16" or "fp16"
    const char* level;   // instructions that it is compiled for (cpu/processor.h); NULL on a GPU
    bool is_host;        // device memory is host memory
    size_t element_bytes; // of a Stored
    size_t residual_bytes; // of a Residual
    // The same backend with a residual stream in bf16; NULL if there is none: Stored is not bf16, or this is the one.
    const struct Backend* with_bf16_residual;
    const struct CommEngine* engine; // collectives between such devices (comm/comm.h); NULL: the host's

    // -----------------------------------------------------------------------------------------------------------------
    // embedding and layernorm

    // out (B,T,C) = wte (V,C) at the tokens + wpe (T,C). To begin at a later position, pass the row of wpe for it.
    void (*encoder_forward)(Residual* out, const int* tokens, const Stored* wte, const Stored* wpe, int B, int T,
                            int C);

    // `order` (B*T): the positions 0 .. B*T-1 sorted by their token, stably, so that each row of dwte is one sum in a
    // fixed order.
    void (*encoder_backward)(float* dwte, float* dwpe, const Residual* dout, const int* tokens, const int* order, int B,
                             int T, int C);

    // out (N,C) = (inp - mean) * rstd * weight + bias with eps = 1e-5; mean and rstd (N) are kept for backward.
    void (*layernorm_forward)(Stored* out, float* mean, float* rstd, const Residual* inp, const Stored* weight,
                              const Stored* bias, int N, int C);

    // residual (N,C) = inp1 + inp2, then its layernorm, of the sum as it is stored. residual may be inp1.
    void (*residual_layernorm_forward)(Residual* residual, Stored* out, float* mean, float* rstd, const Residual* inp1,
                                       const Stored* inp2, const Stored* weight, const Stored* bias, int N, int C);

    // dinp (N,C) += the gradient through the layernorm; dinp_stored = the sum rounded to Stored. Where Residual is
    // Stored (residual_is_stored), pass dinp for it.
    void (*layernorm_backward)(Residual* dinp, Stored* dinp_stored, float* dweight, float* dbias, const Stored* dout,
                               const Residual* inp, const Stored* weight, const float* mean, const float* rstd, int N,
                               int C);

    // -----------------------------------------------------------------------------------------------------------------
    // linear layers

    // out (N,OC) = inp (N,C) @ weight (OC,C)^T + bias (OC). A backend may keep a packed form of a weight, found by its
    // address, until params_changed().
    void (*matmul_forward)(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N, int C,
                           int OC);

    // The same followed by GELU (Hendrycks & Gimpel 2016, the tanh form); pre (N,OC), the input of GELU, is kept for
    // backward.
    void (*matmul_gelu_forward)(Stored* out, Stored* pre, const Stored* inp, const Stored* weight, const Stored* bias,
                                int N, int C, int OC);

    // dinp (N,C) = dout @ weight; dweight (OC,C) = or += dout^T @ inp; dbias (OC) += the column sums of dout.
    void (*matmul_backward)(Stored* dinp, float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                            const Stored* weight, GradMode mode, int N, int C, int OC);

    // The same where inp = gelu(pre): dinp is the gradient of pre.
    void (*matmul_gelu_backward)(Stored* dinp, float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                                 const Stored* pre, const Stored* weight, GradMode mode, int N, int C, int OC);

    // out = gelu(inp), n elements: recomputes in backward what forward did not keep.
    void (*gelu_forward)(Stored* out, const Stored* inp, size_t n);

    // -----------------------------------------------------------------------------------------------------------------
    // attention

    // Causal attention of NH heads: qkv (B,T,3,NH,C/NH) -> out (B,T,C). Backward needs the log-sum-exp of the scores,
    // lse (B,NH,T), besides qkv and out: nothing of size T*T is kept (Dao et al. 2022, FlashAttention). delta (B,NH,T)
    // is scratch, for the sums of dout * out over each head. starts and ends (B,T) are those of document_bounds(): a
    // query at t attends to the positions starts[t] .. t. NULL, both: it attends to 0 .. t. rest (B,T,C), if not NULL,
    // is what rounding took from out, rounded itself: these sums are then of dout * (out + rest). cuDNN has none.
    void (*attention_forward)(Stored* out, Stored* rest, float* lse, const Stored* qkv, const int* starts, int B, int T,
                              int C, int NH);
    void (*attention_backward)(Stored* dqkv, float* delta, const Stored* dout, const Stored* out, const Stored* rest,
                               const float* lse, const Stored* qkv, const int* starts, const int* ends, int B, int T,
                               int C, int NH);

    // Finds the documents in tokens (B,T). One begins at the first position of each sequence and at each token `eot`.
    // starts (B,T): the first position of a position's own document; ends (B,T): one past its last. Positions count
    // from the beginning of the sequence.
    void (*document_bounds)(int* starts, int* ends, const int* tokens, int eot, int B, int T);

    // For generation: T new positions that follow `past` earlier ones. cache (B,capacity,2,C) holds keys and values of
    // the earlier ones; those of the new ones are appended. past + T <= capacity. past = 0 is a prompt, T = 1 one
    // decoding step. lse (B,NH,T) is scratch.
    void (*attention_cached)(Stored* out, float* lse, Stored* cache, const Stored* qkv, int B, int T, int past,
                             int capacity, int C, int NH);

    // -----------------------------------------------------------------------------------------------------------------
    // classifier and loss

    // logits = inp (N,C) @ weight (Vp,C)^T, softmax over the first V columns, cross-entropy with targets (N). Rows are
    // computed in chunks with `logits` (chunk,Vp) as scratch, so that logits are never held in full.
    //   classifier_loss      losses (N)
    //   classifier_backward  losses (N); and the gradient of dloss * sum(losses): dinp (N,C) =, dweight (Vp,C) = or +=.
    //                        dloss is not 0. Rows V..Vp of dweight get exact zeros, whatever weight's padding holds.
    //   classifier_logits    out (N,V) in float
    // classifier_chunk returns the rows of a chunk of N rows that suits this device, at most N. It grows with N.
    int (*classifier_chunk)(int N);
    void (*classifier_loss)(float* losses, Stored* logits, const Stored* inp, const Stored* weight, const int* targets,
                            int chunk, int N, int C, int V, int Vp);
    void (*classifier_backward)(float* losses, Stored* dinp, float* dweight, Stored* logits, const Stored* inp,
                                const Stored* weight, const int* targets, float dloss, GradMode mode, int chunk, int N,
                                int C, int V, int Vp);
    void (*classifier_logits)(float* out, Stored* logits, const Stored* inp, const Stored* weight, int chunk, int N,
                              int C, int V, int Vp);

    // *total += the sum of losses (N), in an order that does not depend on the number of threads.
    void (*loss_add)(double* total, const float* losses, int N);

    // -----------------------------------------------------------------------------------------------------------------
    // update

    // *out += the sum of squares of x (n), in an order that does not depend on the number of threads.
    void (*norm_squared)(double* out, const float* x, size_t n);

    // Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2) with bias correction, for the elements [begin,
    // end) of the table's layout; the five pointers are to element `begin`. lr and decay are those of each tensor's
    // group (tensor_group); with `cautious` an element whose sign differs from that of its update does not decay.
    // *grad_norm_squared is the squared global norm of the gradients: if it is not finite, nothing changes. The
    // gradients are multiplied by grad_scale and, if their norm then exceeds grad_clip, scaled down to it. params
    // become the masters rounded to Stored; in fp32 masters may be params. Call params_changed() afterwards.
    void (*adamw_update)(Stored* params, float* masters, float* m, float* v, const float* grads,
                         const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table, size_t begin,
                         size_t end);

    // Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks") with Nesterov momentum, for
    // `count` matrices of one shape. The list lies in host memory and is read before the call returns. For each, with
    // g = grad_scale * grads and mu = momentum:
    //
    //   m = mu m + (1 - mu) g,  u = (1 - mu) g + mu m
    //   X = u / (||u||_F + 1e-7), transposed if rows > cols
    //   MUON_STEPS times: A = X X^T,  B = MUON_B A + MUON_C A A,  X = MUON_A X + B X
    //   masters -= lr (sqrt(max(1, rows/cols)) X + weight_decay masters)      X transposed back
    //
    // These Newton-Schulz steps move all singular values of X near 1. X, A and B are Stored; sums are float. With
    // `cautious`, elements where X and masters differ in sign do not decay. As adamw_update: nothing changes if
    // *grad_norm_squared is not finite, params become the masters rounded, masters may be params in fp32,
    // params_changed() follows. scratch: muon_bytes() of device memory. A backend may take the matrices in turn or
    // several at a time: one matrix's result does not depend on the others in the list.
    void (*muon_update)(const MuonMatrix* matrices, int count, int rows, int cols, const double* grad_norm_squared,
                        const Muon* hyper, void* scratch);
    // Returns the bytes of scratch for a list of `count` matrices; bounded for a long list, 0 for an empty one.
    size_t (*muon_bytes)(int count, int rows, int cols);
    // Returns how many matrices of such a list muon_update takes at a time. Lists of so many, cut from it in order,
    // give the same bits.
    int (*muon_at_a_time)(int count, int rows, int cols);

    // params (n) = masters rounded to Stored as an update has rounded them, after masters were loaded. The first is
    // element `begin` of the table's layout. Call params_changed() afterwards.
    void (*params_round)(Stored* params, const float* masters, size_t n, size_t begin, Rounding rounding);

    // Forgets packed forms of weights. Call it after weights have changed.
    void (*params_changed)(void);

    // -----------------------------------------------------------------------------------------------------------------
    // facts about the operations

    // Returns the most bytes of device memory that operations need besides their arguments with micro-batches of (B,T):
    // packed weights, scratch, workspaces of libraries. trains: false if only forward operations run.
    size_t (*operations_bytes)(const TensorTable* params, bool trains, int B, int T, int C, int NH);

    // -----------------------------------------------------------------------------------------------------------------
    // the device

    bool (*device_exists)(void);
    // Returns the reason why device_open() would refuse these options; NULL if the device supports them.
    const char* (*device_lacks)(const DeviceOptions* options);
    // Opens the device. May be called again with other options for the same device.
    void (*device_open)(const DeviceOptions* options);
    const char* (*device_name)(void);
    // A name that no other GPU has; empty for a CPU, which processes may share.
    const char* (*device_identity)(void);
    int (*device_threads)(void); // of a CPU; 0 on a GPU
    // Names the kernels in use with all chosen variants. state.json keeps it, so that a resumed run uses the same.
    const char* (*device_kernels)(void);
    // device_timer_stop() waits for the work queued since device_timer_start() and returns the seconds that it took.
    void (*device_timer_start)(void);
    double (*device_timer_stop)(void);
    // Peak operations per second of matmuls in the type in use, a multiply-add counting as two: from the data sheet if
    // the GPU is known, else measured.
    double (*device_peak_flops)(void);
    // Operations per second that a large matmul reaches, measured; on a CPU those of its tiles alone, its ceiling.
    double (*device_matmul_flops)(void);
    // Operations per second of one thread that multiplies tiles of matrices in its caches, measured; 0 on a GPU.
    double (*device_kernel_flops)(void);
    // Bytes per second of a copy within device memory, measured: the sum of bytes read and bytes written.
    double (*device_copy_bandwidth)(void);

    // Zeroed device memory; `what` names its purpose in errors.
    void* (*device_alloc)(size_t bytes, const char* what);
    // Waits for all work queued before. p may be NULL.
    void (*device_free)(void* p, size_t bytes);
    // Bytes that can be allocated now. plan.h asks before anything is allocated.
    size_t (*device_memory_available)(void);
    // The same for an idle device with `total` bytes of memory; this machine need not have one.
    size_t (*device_memory_usable)(size_t total);
    // Zeroed host memory for copies to and from the device: pinned for a GPU.
    void* (*host_alloc)(size_t bytes, const char* what);
    void (*host_free)(void* p);

    // Queues zeroing.
    void (*device_zero)(void* p, size_t bytes);
    // Queues a copy within device memory; the two ranges do not overlap.
    void (*device_copy)(void* to, const void* from, size_t bytes);
    // Copy and wait; host is ordinary memory.
    void (*device_copy_in)(void* device, const void* host, size_t bytes);
    void (*device_copy_out)(void* host, const void* device, size_t bytes);
    // Copies a batch from host_alloc memory while earlier work goes on; work queued afterwards sees it. Alternate
    // between two destinations. host must not change until the next device_upload() returns.
    void (*device_upload)(void* device, const void* host, size_t bytes);
    // Queue a copy from or to host_alloc memory: do not change what is sent, nor read what is fetched, before
    // device_sync().
    void (*device_send)(void* device, const void* host, size_t bytes);
    void (*device_fetch)(void* host, const void* device, size_t bytes);
    // Waits for all queued work.
    void (*device_sync)(void);

    // Zeroed host memory of state that is streamed through the device; `what` names it in errors. It is pinned for a
    // GPU, or pageable after a warning if the system refuses to lock so much. state_free waits for its copies.
    void* (*state_alloc)(size_t bytes, const char* what);
    void (*state_free)(void* p, size_t bytes);
    // Queue copies between such memory and device memory of one of STATE_SLOTS slots, while work on other slots goes
    // on. Work queued after state_in() sees what it copied. state_out() copies what the work queued before it left; 0
    // bytes: that work has only read. state_in() waits for the last state_out() of its slot, so each use of a slot ends
    // with one. Never inside device_replay().
    void (*state_in)(int slot, void* device, const void* host, size_t bytes);
    void (*state_out)(int slot, void* host, const void* device, size_t bytes);
    // Waits for all these copies. Call it before the host reads or writes the state.
    void (*state_sync)(void);

    // Runs `work`, which only queues operations, device_zero, device_send and device_fetch. A GPU records it once as a
    // graph and replays that. Everything that changes between calls must lie in device memory or in `arguments`
    // (`bytes` of them, padding zeroed); two sets of arguments are remembered, another one costs a new recording.
    // *recording is NULL at first and belongs to one piece of work, whose operations and `bytes` are always the same.
    void (*device_replay)(Recording** recording, const char* name, Work work, const void* arguments, size_t bytes);
    // Frees a recording. Call it before memory that its work uses is freed.
    void (*device_forget)(Recording** recording);

    // Names the work queued between the two for a profiler: `name`, followed by the layer's number if layer >= 0.
    void (*device_range_push)(const char* name, int layer);
    void (*device_range_pop)(void);

    // -----------------------------------------------------------------------------------------------------------------
    // variants of operations, and algorithms of a library's matmuls. A CPU has NULL for these functions: instructions
    // are chosen with the backend (backends.c), and its matmuls are this program's own

    // Returns the name of variant `i` of a choice for micro-batches of (B,T), or NULL if there is none. Variant 0 is
    // the default; there may be gaps behind it. A GPU without a choice returns NULL for 0 too.
    const char* (*variant_name)(Choice choice, int i, int B, int T, int C, int NH);

    // From now on operations use variant `i` for micro-batches of (B,T); where variant_name() has none, one that stands
    // in for it.
    void (*choose_variant)(Choice choice, int i, int B, int T, int C, int NH);

    // For timing. If the choice is about one kernel of flash attention's backward, attention_backward() queues only
    // that kernel from now on. NUM_CHOICES: all of them again.
    void (*run_alone)(Choice choice);

    // Returns a word for all that the choice of variants for micro-batches of (B,T) depends on, beside the GPU.
    const char* (*variants_key)(int B, int T, int C, int NH);

    // matmuls_tune() and matmuls_load() concern the matmuls that are queued from now on. Their memory must be there
    // until then.
    void (*matmuls_watch)(void);
    // Times the algorithms of these matmuls, but for those that have a choice already, for about `seconds` in all, on
    // the data of their last run. From now on the fastest run. Overwrites the outputs of these matmuls.
    void (*matmuls_tune)(double seconds);
    // Returns all choices as text, a line for each matmul; free() it.
    char* (*matmuls_save)(void);
    // Takes choices from such lines for those of these matmuls that have none yet; ignores other lines.
    void (*matmuls_load)(const char* lines);
    // Names what a choice depends on beside the matmul: GPU, driver, version of the library.
    const char* (*matmuls_identity)(void);
    // Describes an algorithm of matmul number i in order of first use; algorithm -1: the matmul alone. Returns false if
    // there is no such matmul.
    bool (*matmul_facts)(int i, int algorithm, MatmulFacts* facts);
} Backend;

// All functions of the table, for the object files that fill it: those that depend on the type of the residual stream,
// those of a GPU alone, and the others (backends.c sees that none is missing). An object file of the storage type bf16
// has a second table, with a residual stream in bf16.
#define HAS_BF16_RESIDUAL_bf16 1
#define HAS_BF16_RESIDUAL JOIN(HAS_BF16_RESIDUAL_, FLOATX)
#define RESIDUAL_FUNCTIONS(_)                                                                                 \
    _(encoder_forward), _(encoder_backward), _(layernorm_forward), _(residual_layernorm_forward),             \
    _(layernorm_backward)
#define BACKEND_FUNCTIONS(_)                                                                                  \
    _(matmul_forward), _(matmul_gelu_forward), _(matmul_backward), _(matmul_gelu_backward),                   \
    _(gelu_forward), _(attention_forward), _(attention_backward), _(document_bounds), _(attention_cached),    \
    _(classifier_chunk), _(classifier_loss), _(classifier_backward), _(classifier_logits), _(loss_add),       \
    _(norm_squared), _(adamw_update), _(muon_update), _(muon_bytes), _(muon_at_a_time), _(params_round),      \
    _(params_changed), _(operations_bytes), _(device_exists), _(device_lacks), _(device_open),                \
    _(device_name), _(device_identity), _(device_threads), _(device_kernels), _(device_timer_start),          \
    _(device_timer_stop), _(device_peak_flops), _(device_matmul_flops), _(device_kernel_flops),               \
    _(device_copy_bandwidth), _(device_alloc), _(device_free), _(device_memory_available),                    \
    _(device_memory_usable), _(host_alloc), _(host_free), _(device_zero), _(device_copy), _(device_copy_in),  \
    _(device_copy_out), _(device_upload), _(device_send), _(device_fetch), _(device_sync), _(state_alloc),    \
    _(state_free), _(state_in), _(state_out), _(state_sync), _(device_replay), _(device_forget),              \
    _(device_range_push), _(device_range_pop)
#define GPU_FUNCTIONS(_)                                                                                      \
    _(variant_name), _(choose_variant), _(run_alone), _(variants_key), _(matmuls_watch), _(matmuls_tune),     \
    _(matmuls_save), _(matmuls_load), _(matmuls_identity), _(matmul_facts)

// Returns true if Residual and Stored are the same type. Sizes tell: a Residual of 16 bits is bf16, and only beside
// Stored in bf16.
static inline bool residual_is_stored(const Backend* b) { return b->residual_bytes == b->element_bytes; }

// Returns what headings say after the precision if the residual stream is in bf16; "" if not.
static inline const char* residual_note(const Backend* b) {
    return b->residual_bytes < sizeof(float) ? ", residual stream in bf16" : "";
}

// Addresses of element number i.
static inline Stored* stored_at(const Backend* b, const Stored* p, size_t i) {
    return (Stored*)((uintptr_t)p + i * b->element_bytes);
}
static inline Residual* residual_at(const Backend* b, const Residual* p, size_t i) {
    return (Residual*)((uintptr_t)p + i * b->residual_bytes);
}
