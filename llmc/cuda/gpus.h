// Peak speeds of GPUs by data sheet. dev/bench/predict.py reads the table too.
#pragma once
#include "../base/base.h"

// TFLOP/s of dense matmuls summed in fp32, and GB/s of memory, as NVIDIA publishes them. Only GPUs of exactly these
// names are looked up; others (a laptop's, a MIG instance) are measured. Sources: the white papers on the architectures
// (TU102, GA100, GA102, AD102, GH100, GB202); data sheets for the T4, Titan RTX, A10, A30, A40, A5000, L4, L40, L40S,
// RTX 6000, GH200, H100 NVL, H200 (SXM and NVL) and HGX B200. Where only a figure with sparsity is published, half of
// it is listed. A GeForce of Turing sums in fp32 at half of the speed that it has in fp16. 0: the GPU lacks that type.
typedef struct {
    const char *name, *alias; // the driver's name; the common name
    int major;                // compute capability before the point
    double fp32, tf32, half, fp8, memory; // half: fp16 and, but for Turing, bf16
} GpuFacts;

static const GpuFacts GPUS[] = {
    {"Tesla T4", "T4", 7, 8.1, 0, 65, 0, 320},
    {"NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti", 7, 14.2, 0, 56.9, 0, 616},
    {"Quadro RTX 6000", "Quadro RTX 6000", 7, 16.3, 0, 130.5, 0, 672},
    {"NVIDIA TITAN RTX", "Titan RTX", 7, 16.3, 0, 130.5, 0, 672},
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

// Returns the GPU that the driver calls `name`; NULL if it is not in the table.
static inline const GpuFacts* gpu_named(const char* name) {
    for (int i = 0; i < NUM_GPUS; i++) {
        if (!strcmp(GPUS[i].name, name)) { return &GPUS[i]; }
    }
    return NULL;
}

// Returns the peak operations per second of matmuls in a --dtype; 0 if the GPU lacks that type.
static inline double gpu_peak_flops(const GpuFacts* g, const char* dtype) {
    const double tflops = !strcmp(dtype, "fp32")   ? g->fp32
                          : !strcmp(dtype, "tf32") ? g->tf32
                          : !strcmp(dtype, "bf16") ? (g->major >= 8 ? g->half : 0)
                          : !strcmp(dtype, "fp16") ? g->half
                          : !strcmp(dtype, "fp8")  ? g->fp8
                                                   : 0;
    return 1e12 * tflops;
}
