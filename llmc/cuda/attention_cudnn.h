// Attention by cuDNN, in place of flash.cuh: the same tensors in the same layout, bf16, and the same log-sum-exp, so
// that one may do forward and the other backward. A program has it where it is linked with attention_cudnn.cpp (the
// Makefile does that where cuDNN and its frontend are): the functions are weak, and NULL in a program without.
#pragma once
#include "../base.h"
#include <cuda_runtime.h>

typedef struct {
    int B, T, NH, HS;
} AttentionShape;

extern "C" {

// Makes forward and backward ready for a shape, the first time; later calls look that up. *workspace_bytes is what both
// need to be given. False, with cuDNN's reason, if it has no kernels for this shape on this GPU, none for backward that
// give the same bits each time, or none that make do with `most_bytes`.
__attribute__((weak)) bool attention_cudnn_prepare(const AttentionShape* shape, size_t most_bytes,
                                                   size_t* workspace_bytes, Error* err);

// These queue their work, for a shape that is ready. out (B,T,NH*HS), lse (B,NH,T), qkv (B,T,3,NH,HS); all aligned to
// 16 bytes. Errors end the program.
__attribute__((weak)) void attention_cudnn_forward(void* out, float* lse, const void* qkv, const AttentionShape* shape,
                                                   void* workspace, cudaStream_t stream);
__attribute__((weak)) void attention_cudnn_backward(void* dqkv, const void* dout, const void* out, const float* lse,
                                                    const void* qkv, const AttentionShape* shape, void* workspace,
                                                    cudaStream_t stream);
}
