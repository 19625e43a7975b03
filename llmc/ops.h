// The contract between the model and its kernels: llmc/cpu/ and llmc/cuda/ both implement exactly these.
//
// Arguments: what is written, what is read, sizes. Tensors are dense and row-major; N = B*T rows. All pointers are
// device memory. Gradients of parameters, and of the residual stream, are added to (+=); all other outputs are set (=).
//
// Types: floatX is what activations and weights are stored in, chosen for each object file (-DFLOATX=fp32 or bf16).
// The residual stream, gradients of parameters, statistics and losses are float whatever floatX is. Gradients of the
// residual stream are kept twice where the types differ: in float, where they are summed, and rounded to floatX for the
// matmuls that read them.
//
// A function here is declared and then defined by a header of the device, in the same translation unit; this file is
// therefore complete only after llmc/cpu/kernels.h or llmc/cuda/kernels.cuh.
#pragma once
#include "device.h"
#include "tensors.h"

// out (B,T,C) = wte (V,C) at the tokens + wpe (T,C). To begin at a later position, pass wpe + position * C.
OP void encoder_forward(float* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C);

// `order` (B*T): the positions 0 .. B*T-1 sorted by their token, stably: each row of dwte is then one deterministic
// sum.
OP void encoder_backward(float* dwte, float* dwpe, const float* dout, const int* tokens, const int* order, int B, int T,
                         int C);

// out (N,C) = (inp - mean) * rstd * weight + bias with eps = 1e-5; mean and rstd (N) are kept for backward.
OP void layernorm_forward(floatX* out, float* mean, float* rstd, const float* inp, const floatX* weight,
                          const floatX* bias, int N, int C);

// residual (N,C) = inp1 + inp2, then its layernorm. residual may be inp1.
OP void residual_layernorm_forward(float* residual, floatX* out, float* mean, float* rstd, const float* inp1,
                                   const floatX* inp2, const floatX* weight, const floatX* bias, int N, int C);

// dinp (N,C) += the gradient through the layernorm; dinp_x = the sum rounded to floatX (dinp itself if that is float).
OP void layernorm_backward(float* dinp, floatX* dinp_x, float* dweight, float* dbias, const floatX* dout,
                           const float* inp, const floatX* weight, const float* mean, const float* rstd, int N, int C);

// out (N,OC) = inp (N,C) @ weight (OC,C)^T + bias (OC). A weight is known by its address: an implementation may keep a
// packed form of it until params_changed().
OP void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC);

// The same followed by GELU (Hendrycks & Gimpel 2016, the tanh form): pre (N,OC) is what enters it, kept for backward.
OP void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                            int N, int C, int OC);

// dinp (N,C) = dout @ weight; dweight (OC,C) += dout^T @ inp; dbias (OC) += the column sums of dout.
OP void matmul_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                        const floatX* weight, int N, int C, int OC);

// The same where inp = gelu(pre): dinp is the gradient of pre.
OP void matmul_gelu_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                             const floatX* pre, const floatX* weight, int N, int C, int OC);

// out = gelu(inp), n elements: to compute again in backward what was not kept.
OP void gelu_forward(floatX* out, const floatX* inp, size_t n);

// Causal attention of NH heads: qkv (B,T,3,NH,C/NH) -> out (B,T,C). The log-sum-exp of the scores, lse (B,NH,T), is all
// that backward needs besides qkv and out: nothing of size T*T is kept (Dao et al. 2022, FlashAttention). delta
// (B,NH,T) is scratch, for the sums over each head of dout * out.
OP void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int C, int NH);
OP void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* out, const float* lse,
                           const floatX* qkv, int B, int T, int C, int NH);

// The form for generation: T new positions that follow `past` earlier ones. cache (B,capacity,2,C) holds keys and
// values of the earlier ones; those of the new ones are put behind them. past + T <= capacity. T = 1 is one decoding
// step.
OP void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int B, int T, int past, int capacity, int C,
                         int NH);

// The classifier: logits = inp (N,C) @ weight (Vp,C)^T, softmax over the first V columns, cross entropy with targets
// (N). It goes over the rows in chunks, `logits` (chunk,Vp) being the scratch, so that logits are never held in full.
//   classifier_loss      losses (N)
//   classifier_backward  losses (N); with the gradient of dloss * sum(losses): dinp (N,C) =, dweight (Vp,C) +=.
//                        Rows V..Vp of dweight get exact zeros, whatever the padding of weight holds.
//   classifier_logits    out (N,V) in float
// classifier_chunk is how many rows suit this device.
OP int classifier_chunk(int C);
OP void classifier_loss(float* losses, floatX* logits, const floatX* inp, const floatX* weight, const int* targets,
                        int chunk, int N, int C, int V, int Vp);
OP void classifier_backward(float* losses, floatX* dinp, float* dweight, floatX* logits, const floatX* inp,
                            const floatX* weight, const int* targets, float dloss, int chunk, int N, int C, int V,
                            int Vp);
OP void classifier_logits(float* out, floatX* logits, const floatX* inp, const floatX* weight, int chunk, int N, int C,
                          int V, int Vp);

// *total += the sum of losses (N), in an order that does not depend on the number of threads.
OP void loss_add(double* total, const float* losses, int N);

// *out += the sum of squares of x (n), in an order that does not depend on the number of threads.
OP void norm_squared(double* out, const float* x, size_t n);

// What one AdamW step needs to know; it lies in device memory, so that a recorded graph can be replayed.
typedef struct {
    float lr, beta1, beta2, eps, weight_decay;
    float grad_clip; // largest global norm of the gradient; 0: do not clip
    int step;        // 1 for the first
    uint64_t rounding_seed; // 0: params are the masters rounded to nearest; else stochastically, by this seed
} AdamW;

// Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2) with bias correction, for the elements [begin, end) of
// the table's layout; the five pointers are to element `begin`, whether all or only these are in memory. Only matrices
// decay. The gradient is first scaled to a norm of at most grad_clip, its squared
// global norm being *grad_norm_squared; where that is not finite nothing changes. params become the masters rounded to
// floatX; masters may be params if that is float. Call params_changed() afterwards.
OP void adamw_update(floatX* params, float* masters, float* m, float* v, const float* grads,
                     const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table, size_t begin,
                     size_t end);

// params (n) = masters rounded to floatX, after those have been written from outside. Call params_changed() afterwards.
OP void params_round(floatX* params, const float* masters, size_t n);

// Weights have changed: packed forms of them are forgotten.
OP void params_changed(void);

// Bytes of device memory that the operations take at most beside what they are given, to train or only forward, for
// micro-batches of (B,T): packed weights, scratch, workspaces of libraries.
OP size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH);

// What can be done in more than one way, on some devices; which way is the fastest is measured there (choose.h).
typedef enum { CHOICE_ATTENTION, CHOICE_GELU_FORWARD, CHOICE_GELU_BACKWARD, NUM_CHOICES } Choice;

// The name of way `i`, for micro-batches of (B,T). Way 0 is what the device takes if nobody chooses, and is always
// there; NULL: there are no more, or this device has nothing to choose.
OP const char* operations_way(Choice choice, int i, int B, int T, int C, int NH);

// From now on operations take way `i` for micro-batches of (B,T).
OP void operations_choose(Choice choice, int i, int B, int T, int C, int NH);
