// Variants of operations on a GPU (autotune.h times them): tilings of the kernels of flash.cuh; attention by these or
// by cuDNN; GELU fused into the matmul or in a kernel of its own. Which one is faster depends on the GPU, the shape and
// the versions of the libraries.
#pragma once
#include "attention.cuh"
#include "matmul.cuh"
#include "open.cuh"

// Returns true if the program has cuDNN and the options allow its attention, which does not stop at documents.
static inline bool can_use_cudnn() {
    const bool is_allowed = gpu.flash && !gpu.document_mask && !is_attention_requested("flash");
    return attention_cudnn_prepare && FLOATX_IS_16_BITS && is_allowed;
}

static inline size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    const bool is_requested = is_attention_requested("cudnn");
    const bool may_run = can_use_cudnn() && gpu.major >= 8 && (trains || is_requested);
    const size_t cudnn = may_run ? cudnn_workspace_limit(B, T, C, NH) : 0;
    const size_t fp8 = gpu.fp8 ? fp8_bytes(params, trains, (size_t)B * (size_t)T, (size_t)C) : 0;
    return cudnn + fp8; // device_open() has allocated all else
}

// Returns true if cuDNN has attention for this shape. Ends the program if it has not and --attention cudnn was given.
static inline bool has_cudnn_attention(int B, int T, int C, int NH) {
    Error err;
    if (!can_use_cudnn()) { return false; }
    if (cudnn_prepare(B, T, C, NH, &err)) { return true; }
    if (is_attention_requested("cudnn")) {
        usage_error("--attention cudnn: %d x %d tokens, %d heads of %d: %s; give --attention flash", B, T, NH, C / NH,
                    err.text);
    }
    return false;
}

// cuDNN is variant 1, or the only one with --attention cudnn. Its plans are built only when its variant is asked for,
// because building takes seconds.
static inline const char* attention_variant(int i, int B, int T, int C, int NH) {
    const int cudnn = is_attention_requested("cudnn") ? 0 : 1;
    if (i == cudnn && has_cudnn_attention(B, T, C, NH)) { return ATTENTION_NAMES[ATTENTION_CUDNN]; }
    return i == 0 ? ATTENTION_NAMES[gpu.flash ? ATTENTION_FLASH : ATTENTION_PLAIN] : NULL;
}

static inline bool can_fuse_gelu_of(Choice choice) {
    return choice == CHOICE_GELU_FORWARD ? can_fuse_gelu_forward() : can_fuse_gelu();
}

// Variant 0 is what device_open() sets.
static inline bool is_gelu_fused_in(Choice choice, int variant) {
    return can_fuse_gelu_of(choice) && (variant == 0) == (gpu.major >= 9);
}

// Returns NULL where a kernel has one tiling, as there is nothing to choose.
static inline const char* flash_variant(Choice choice, int i, int HS) {
    static FlashTilingName name;
    const FlashKernel kernel = (FlashKernel)(choice - CHOICE_FLASH_FORWARD);
    if (gpu.attention != ATTENTION_FLASH || gpu.major < 8 || HS % 8 || HS > flash_max_head_size()) { return NULL; }
    if (!flash_tiling(kernel, sizeof(floatX), HS, 1).warps) { return NULL; }
    if (gpu.document_mask && flash_masked_variant(kernel, HS, i) != i) { return NULL; }
    const FlashTiling tiling = flash_tiling(kernel, sizeof(floatX), HS, i);
    name = flash_tiling_name(tiling);
    return tiling.warps ? name.text : NULL;
}

static inline const char* variant_name(Choice choice, int i, int B, int T, int C, int NH) {
    switch (choice) {
    case CHOICE_FLASH_FORWARD:
    case CHOICE_FLASH_KEYS:
    case CHOICE_FLASH_QUERIES: return flash_variant(choice, i, C / NH);
    case CHOICE_ATTENTION: return attention_variant(i, B, T, C, NH);
    default: return i <= can_fuse_gelu_of(choice) ? GELU_NAMES[is_gelu_fused_in(choice, i)] : NULL;
    }
}

static inline void choose_variant(Choice choice, int i, int B, int T, int C, int NH) {
    switch (choice) {
    case CHOICE_FLASH_FORWARD:
    case CHOICE_FLASH_KEYS:
    case CHOICE_FLASH_QUERIES: {
        const char* name = flash_variant(choice, i, C / NH);
        const int kernel = choice - CHOICE_FLASH_FORWARD;
        gpu.flash_variant[kernel] = i;
        snprintf(gpu.flash_name[kernel], sizeof gpu.flash_name[kernel], "%s", name ? name : "");
        break;
    }
    case CHOICE_ATTENTION: {
        const char* name = attention_variant(i, B, T, C, NH);
        gpu.attention = name == ATTENTION_NAMES[ATTENTION_CUDNN] ? ATTENTION_CUDNN
                        : gpu.flash                              ? ATTENTION_FLASH
                                                                 : ATTENTION_PLAIN;
        gpu.cudnn_B = B;
        gpu.cudnn_T = T;
        if (gpu.attention != ATTENTION_CUDNN) { cudnn_free_workspace(); }
        break;
    }
    case CHOICE_GELU_FORWARD: gpu.gelu_forward_fused = is_gelu_fused_in(choice, i); break;
    default: gpu.gelu_backward_fused = is_gelu_fused_in(choice, i); break;
    }
}
