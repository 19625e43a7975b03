// Attention by cuDNN, in place of flash.cuh: the same tensors, bf16 or fp16, in the same layout and the same
// log-sum-exp, so that one may compute forward and the other backward. The Makefile links attention_cudnn.cpp if cuDNN
// and its frontend are installed. The functions are weak: NULL in a program without it.
#pragma once
#include "../base/base.h"
#include <cuda_runtime.h>

typedef enum { ATTENTION_IN_BF16, ATTENTION_IN_FP16 } AttentionType;

// Backward adds the gradients of queries over the blocks of keys: in a fixed order, or as the blocks finish, which is
// faster but gives other bits each time.
typedef enum { CUDNN_FORWARD, CUDNN_BACKWARD, CUDNN_BACKWARD_ANY_ORDER } CudnnPass;

typedef struct {
    int B, T, NH, HS;
    AttentionType type;
    CudnnPass pass;
} AttentionShape;

extern "C" {

// Returns cuDNN's version, 91900 for 9.19.0; 0 if it cannot be opened.
__attribute__((weak)) size_t attention_cudnn_version(void);

// Builds cuDNN's plan for a shape and its pass, which takes seconds; later calls look it up. Sets *workspace_bytes to
// the workspace that it needs. Returns false, with cuDNN's reason, if cuDNN has no such kernels on this GPU, or none
// that needs at most most_bytes of workspace.
__attribute__((weak)) bool attention_cudnn_prepare(const AttentionShape* shape, size_t most_bytes,
                                                   size_t* workspace_bytes, Error* err);

// Queue attention in `stream`, for a shape that was prepared. out (B,T,NH*HS), lse (B,NH,T), qkv (B,T,3,NH,HS), all
// aligned to 16 bytes; workspace has the bytes that attention_cudnn_prepare() returned. Errors end the program.
__attribute__((weak)) void attention_cudnn_forward(void* out, float* lse, const void* qkv, const AttentionShape* shape,
                                                   void* workspace, cudaStream_t stream);
__attribute__((weak)) void attention_cudnn_backward(void* dqkv, const void* dout, const void* out, const float* lse,
                                                    const void* qkv, const AttentionShape* shape, void* workspace,
                                                    cudaStream_t stream);
}
