// Variants of operations on a GPU (autotune.h times them): tilings of the kernels of flash.cuh; attention by these or
// by cuDNN, in each pass; GELU fused into the matmul or in a kernel of its own; matmuls beside collectives on all
// multiprocessors or on fewer. Which one is faster depends on the GPU, the shape and the versions of the libraries.
#pragma once
#include "attention.cuh"
#include "matmul.cuh"
#include "open.cuh"

// Returns true if the program has cuDNN and the options allow its attention, which does not stop at documents.
static inline bool can_use_cudnn() {
    const bool is_allowed = gpu.flash && !gpu.document_mask && !is_attention_requested("flash");
    const bool is_tried = gpu.major >= 8 || is_attention_requested("cudnn"); // whose error says what it needs
    return attention_cudnn_prepare && FLOATX_IS_16_BITS && is_allowed && is_tried;
}

static inline size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    const bool is_cudnn = trains && can_use_cudnn() && gpu.major >= 8 && is_attention_requested("cudnn");
    const size_t cudnn = is_cudnn ? cudnn_workspace_bytes(B, T, C, NH) : 0; // else it takes what is left, or nothing
    const size_t fp8 = gpu.fp8 ? fp8_bytes(params, trains, (size_t)B * (size_t)T, (size_t)C) : 0;
    return cudnn + fp8; // device_open() has allocated all else
}

// Returns true if cuDNN has this pass of attention for a shape. If not, --attention cudnn ends the program.
static inline bool has_cudnn_attention(Pass pass, int B, int T, int C, int NH) {
    Error err;
    if (!can_use_cudnn()) { return false; }
    if (cudnn_prepare(pass, B, T, C, NH, &err)) { return true; }
    if (is_attention_requested("cudnn")) {
        const bool has_other = pass == PASS_BACKWARD && !gpu.nondeterministic;
        usage_error("--attention cudnn: %d x %d tokens, %d heads of %d: %s; give --attention flash%s", B, T, NH, C / NH,
                    err.text, has_other ? " or --deterministic 0" : "");
    }
    return false;
}

// Variant 0 is the default. cuDNN is variant 1, or the only one with --attention cudnn. Asking for its name builds its
// plan, which takes seconds.
static inline Attention attention_variant(int i) { return i == 0 ? attention_default() : ATTENTION_CUDNN; }

static inline const char* attention_variant_name(Pass pass, int i, int B, int T, int C, int NH) {
    const Attention attention = attention_variant(i);
    const bool exists = i == 0 || (i == 1 && attention_default() != ATTENTION_CUDNN);
    const bool is_cudnn = attention == ATTENTION_CUDNN;
    return exists && (!is_cudnn || has_cudnn_attention(pass, B, T, C, NH)) ? attention_name(pass, attention) : NULL;
}

static inline void choose_attention(Pass pass, int i, int B, int T, int C, int NH) {
    const bool exists = attention_variant_name(pass, i, B, T, C, NH);
    gpu.attention[pass] = exists ? attention_variant(i) : attention_default();
    gpu.cudnn_B = B;
    gpu.cudnn_T = T;
    if (gpu.attention[pass] != ATTENTION_CUDNN) { cudnn_free_workspace(pass); }
}

static inline const char* gelu_variant_name(Pass pass, int i) {
    return i <= can_fuse_gelu(pass) ? GELU_NAMES[is_gelu_fused(pass, i)] : NULL;
}

// Returns NULL where a kernel has one tiling, as there is nothing to choose.
static inline const char* flash_variant(Choice choice, int i, int HS) {
    static char name[16]; // warps x rows of a warp x streamed rows: "4x32x64"
    const FlashKernel kernel = (FlashKernel)(choice - CHOICE_FLASH_FORWARD);
    if (attention_default() != ATTENTION_FLASH || gpu.major < 8) { return NULL; }
    if (HS % 8 || HS > flash_max_head_size()) { return NULL; }
    static_assert(MAX_FLASH_TILINGS <= MAX_VARIANTS, "autotune.h would not time the last ones");
    if (!flash_tiling(kernel, sizeof(floatX), HS, 1).warps) { return NULL; }
    if (gpu.document_mask && flash_masked_variant(kernel, HS, i) != i) { return NULL; }
    const FlashTiling tiling = flash_tiling(kernel, sizeof(floatX), HS, i);
    snprintf(name, sizeof name, "%dx%dx%d", tiling.warps, tiling.groups * 16, tiling.stream);
    return tiling.warps ? name : NULL;
}

static inline const char* variant_name(Choice choice, int i, int B, int T, int C, int NH) {
    switch (choice) {
    case CHOICE_FLASH_FORWARD:
    case CHOICE_FLASH_KEYS:
    case CHOICE_FLASH_QUERIES: return flash_variant(choice, i, C / NH);
    case CHOICE_ATTENTION_FORWARD: return attention_variant_name(PASS_FORWARD, i, B, T, C, NH);
    case CHOICE_ATTENTION_BACKWARD: return attention_variant_name(PASS_BACKWARD, i, B, T, C, NH);
    case CHOICE_MATMUL_SMS: return !gpu.plain && gpu.gpus_leaving_sms && i < 2 ? SMS_NAMES[i] : NULL;
    case CHOICE_GELU_FORWARD: return gelu_variant_name(PASS_FORWARD, i);
    default: return gelu_variant_name(PASS_BACKWARD, i);
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
    case CHOICE_ATTENTION_FORWARD: choose_attention(PASS_FORWARD, i, B, T, C, NH); break;
    case CHOICE_ATTENTION_BACKWARD: choose_attention(PASS_BACKWARD, i, B, T, C, NH); break;
    case CHOICE_MATMUL_SMS: gpu.leaves_sms = gpu.gpus_leaving_sms && i == 1; break;
    case CHOICE_GELU_FORWARD: gpu.gelu_fused[PASS_FORWARD] = is_gelu_fused(PASS_FORWARD, i); break;
    default: gpu.gelu_fused[PASS_BACKWARD] = is_gelu_fused(PASS_BACKWARD, i); break;
    }
}

static inline void run_alone(Choice choice) { gpu.alone = choice; }

static inline const char* variants_key(int B, int T, int C, int NH) {
    static char text[160];
    const char* attention = gpu.requested_attention ? gpu.requested_attention : "auto";
    const size_t cudnn = can_use_cudnn() ? attention_cudnn_version() : 0;
    snprintf(text, sizeof text, "%d,%d,%d,%d,%s,%d%d%d%d%d%d,%s,%zu", B, T, C, NH, gpu_dtype(), gpu.fused, gpu.flash,
             gpu.document_mask, gpu.recomputes_gelu, gpu.nondeterministic, gpu.gpus_leaving_sms, attention, cudnn);
    return text;
}
