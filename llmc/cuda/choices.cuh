// What a GPU can do in more than one way: attention by our kernels or by cuDNN, GELU inside of the product before it or
// after it. Which is faster depends on the GPU, the shape and the versions of the libraries.
#pragma once
#include "../ops.h"
#include "attention.cuh"
#include "matmul.cuh"

// Whether cuDNN may be asked. It is told that its workspace has a bound, which the memory plan then contains.
static inline bool cudnn_is_possible() {
    return attention_cudnn_prepare && sizeof(floatX) == sizeof(bf16) && gpu.flash && !attention_asked_is("flash");
}

OP size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    const bool is_asked = attention_asked_is("cudnn");
    const size_t cudnn = cudnn_is_possible() && (trains || is_asked) ? cudnn_workspace_most(B, T, C, NH) : 0;
    const size_t fp8 = gpu.fp8 ? fp8_bytes(params, trains, (size_t)B * (size_t)T, (size_t)C) : 0;
    return cudnn + fp8; // what else they need device_open() took
}

// Ends the program if cuDNN was asked for and cannot.
static inline bool cudnn_has(int B, int T, int C, int NH) {
    Error err;
    if (!cudnn_is_possible()) { return false; }
    if (cudnn_prepare(B, T, C, NH, &err)) { return true; }
    if (attention_asked_is("cudnn")) {
        usage_error("--kernels cudnn: %d x %d tokens, %d heads of %d: %s; give --kernels flash", B, T, NH, C / NH,
                    err.text);
    }
    return false;
}

// cuDNN is asked only if its way is: to make its plans takes it seconds. --kernels cudnn leaves no other way.
static inline const char* attention_way(int i, int B, int T, int C, int NH) {
    const int cudnns = attention_asked_is("cudnn") ? 0 : 1;
    if (i == cudnns && cudnn_has(B, T, C, NH)) { return ATTENTION_NAMES[ATTENTION_CUDNN]; }
    return i == 0 ? ATTENTION_NAMES[gpu.flash ? ATTENTION_FLASH : ATTENTION_PLAIN] : NULL;
}

static inline bool gelu_is_fused_in(int way) { return gelu_can_be_fused() && (way == 0) == (gpu.major >= 9); }

OP const char* operations_way(Choice choice, int i, int B, int T, int C, int NH) {
    if (choice == CHOICE_ATTENTION) { return attention_way(i, B, T, C, NH); }
    return i <= gelu_can_be_fused() ? GELU_NAMES[gelu_is_fused_in(i)] : NULL;
}

OP void operations_choose(Choice choice, int i, int B, int T, int C, int NH) {
    switch (choice) {
    case CHOICE_ATTENTION: {
        const char* name = attention_way(i, B, T, C, NH);
        gpu.attention = name == ATTENTION_NAMES[ATTENTION_CUDNN] ? ATTENTION_CUDNN
                        : gpu.flash                              ? ATTENTION_FLASH
                                                                 : ATTENTION_PLAIN;
        gpu.cudnn_B = B;
        gpu.cudnn_T = T;
        if (gpu.attention != ATTENTION_CUDNN) { cudnn_forget_workspace(); }
        break;
    }
    case CHOICE_GELU_FORWARD: gpu.gelu_forward_fused = gelu_is_fused_in(i); break;
    default: gpu.gelu_backward_fused = gelu_is_fused_in(i); break;
    }
}
