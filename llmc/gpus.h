// What is known of GPUs without having one: what they can do at most, by data sheet, and the choices of our kernels
// that depend on the GPU. The kernels use these (llmc/cuda/), and so does `bench predict`, which needs no GPU.
#pragma once
#include "base.h"

// TFLOP/s of dense products summed in fp32, as NVIDIA publishes them, and GB/s of memory, for devices of exactly these
// names: a variant (a laptop's, a part of a GPU under MIG) is measured instead. From the white papers on the
// architectures (GA100, GA102, AD102, GH100, GB202), and from data sheets for the A10, A30, A40, A5000, L4, L40, L40S,
// RTX 6000, GH200, B200 and both NVL. Where only a figure with sparsity is given, half of it. 0: it cannot do that.
typedef struct {
    const char *name, *alias; // as the driver has it; as people say
    int major;                // compute capability, before the point
    double fp32, tf32, bf16, fp8, memory;
} GpuFacts;

static const GpuFacts GPUS[] = {
    {"NVIDIA A100-SXM4-80GB", "A100 SXM 80GB", 8, 19.5, 156, 312, 0, 2039},
    {"NVIDIA A100-SXM4-40GB", "A100 SXM 40GB", 8, 19.5, 156, 312, 0, 1555},
    {"NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB", 8, 19.5, 156, 312, 0, 1555},
    {"NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 8, 19.5, 156, 312, 0, 1935},
    {"NVIDIA A10", "A10", 8, 31.2, 62.5, 125, 0, 600},
    {"NVIDIA A30", "A30", 8, 10.3, 82, 165, 0, 933},
    {"NVIDIA A40", "A40", 8, 37.4, 74.8, 149.7, 0, 696},
    {"NVIDIA RTX A5000", "RTX A5000", 8, 27.8, 55.5, 111.1, 0, 768},
    {"NVIDIA RTX A6000", "RTX A6000", 8, 38.7, 77.4, 154.8, 0, 768},
    {"NVIDIA GeForce RTX 3090", "RTX 3090", 8, 35.6, 35.6, 71, 0, 936},
    {"NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti", 8, 40, 40, 80, 0, 1008},
    {"NVIDIA L4", "L4", 8, 30.3, 60, 121, 242.5, 300},
    {"NVIDIA L40", "L40", 8, 90.5, 90.5, 181, 362, 864},
    {"NVIDIA L40S", "L40S", 8, 91.6, 183, 362, 733, 864},
    {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 8, 91.1, 182.1, 364.2, 728.5, 960},
    {"NVIDIA GeForce RTX 4060 Ti", "RTX 4060 Ti", 8, 22.1, 22.1, 44.1, 88.2, 288},
    {"NVIDIA GeForce RTX 4080", "RTX 4080", 8, 48.7, 48.7, 97.5, 194.9, 717},
    {"NVIDIA GeForce RTX 4090", "RTX 4090", 8, 82.6, 82.6, 165.2, 330.3, 1008},
    {"NVIDIA H100 80GB HBM3", "H100 SXM", 9, 66.9, 494.7, 989.4, 1978.9, 3352},
    {"NVIDIA H100 PCIe", "H100 PCIe", 9, 51.2, 378, 756, 1513, 2039},
    {"NVIDIA H100 NVL", "H100 NVL", 9, 60, 417.5, 835.5, 1670.5, 3938},
    {"NVIDIA H200", "H200 SXM", 9, 66.9, 494.7, 989.4, 1978.9, 4800},
    {"NVIDIA H200 NVL", "H200 NVL", 9, 60, 417.5, 835.5, 1670.5, 4800},
    {"NVIDIA GH200 480GB", "GH200", 9, 66.9, 494.7, 989.4, 1978.9, 4000},
    {"NVIDIA B200", "B200", 10, 75, 1125, 2250, 4500, 7700},
    {"NVIDIA GeForce RTX 5090", "RTX 5090", 12, 104.8, 104.8, 209.5, 419, 1792},
};
enum { NUM_GPUS = sizeof GPUS / sizeof *GPUS };

// The GPU that the driver calls so; NULL if it is not in the table.
static inline const GpuFacts* gpu_named(const char* name) {
    for (int i = 0; i < NUM_GPUS; i++) {
        if (!strcmp(GPUS[i].name, name)) { return &GPUS[i]; }
    }
    return NULL;
}

// Operations per second in products of a --dtype; 0 if there are none.
static inline double gpu_peak_flops(const GpuFacts* g, const char* dtype) {
    const double tflops = !strcmp(dtype, "fp32")   ? g->fp32
                          : !strcmp(dtype, "tf32") ? g->tf32
                          : !strcmp(dtype, "bf16") ? g->bf16
                          : !strcmp(dtype, "fp8")  ? g->fp8
                                                   : 0;
    return 1e12 * tflops;
}

// ---------------------------------------------------------------------------------------------------------------------
// choices of our kernels; the reasons stand where they are used, in llmc/cuda/

// Rows of logits that the classifier makes at a time (crossentropy.cuh).
static inline int gpu_classifier_chunk(size_t floatx_bytes) { return 16384 / (int)floatx_bytes; }

// Whether the library does GELU inside the product (matmul.cuh).
static inline bool gpu_fuses_gelu(bool fused, int major, size_t floatx_bytes) {
    return fused && major >= 9 && floatx_bytes == 2;
}
