// Prints how kernels are launched, for sass.c: type, kernel, threads of a block, bytes of dynamic shared memory.
// Kernels that are missing here have blocks of THREADS_IN_BLOCK threads and no dynamic shared memory.
#include "../../llmc/cuda/column_sums.cuh"
#include "../../llmc/cuda/flash.cuh"
#include "../../llmc/cuda/layernorm.cuh"
#include "../../llmc/cuda/softmax.cuh"

// Prints all variants of a kernel of flash.cuh. `type` is that of `element`, or with a -75 behind it, for Turing.
template <FlashKernel KERNEL, class Type, int HD, int VARIANT = 0>
static void print_variants(const char* name, const char* type, const char* element) {
    typedef Flash<KERNEL, Type, HD, VARIANT> Shape;
    const int bytes = strcmp(type, element) ? Shape::BYTES_TURING : Shape::BYTES;
    for (const char* switches : {"false", "true", "false,false", "true,false", "false,true", "true,true"}) {
        if ((KERNEL == FLASH_FORWARD) != (strchr(switches, ',') != NULL)) { continue; } // forward alone has REST
        printf("%s %s<%s,%d,%d,%s> %d %d\n", type, name, element, HD, VARIANT, switches, (int)Shape::THREADS, bytes);
    }
    if constexpr (flash_tiling(KERNEL, sizeof(Type), HD, VARIANT + 1).warps > 0) {
        print_variants<KERNEL, Type, HD, VARIANT + 1>(name, type, element);
    }
}

template <class Type, int HD> static void print_flash(const char* type, const char* element) {
    print_variants<FLASH_FORWARD, Type, HD>("flash_forward_kernel", type, element);
    print_variants<FLASH_KEYS, Type, HD>("flash_backward_keys_kernel", type, element);
    print_variants<FLASH_QUERIES, Type, HD>("flash_backward_queries_kernel", type, element);
}

// Prints layernorm over a residual stream of type R. Its shared memory depends on the width of the model: 768 is the
// 124M model's, 1024 the 350M's, 1600 the 1558M's.
template <class R> static void print_layernorm(const char* type, const char* residual) {
    const int width = Pack<R>::SIZE, threads = LAYERNORM_HELD_WARPS * WARP_SIZE;
    const int forward_bytes = WARPS_IN_BLOCK * 768 * (int)sizeof(R);
    for (int C : {768, 1024, 1600}) { // of three instances (layernorm_backward)
        const int columns = C > LAYERNORM_HELD_COLUMNS / 2 ? LAYERNORM_HELD_COLUMNS : C;
        const int bytes = 2 * LAYERNORM_HELD_WARPS * sums_size<width>(C) * (int)sizeof(float);
        printf("%s layernorm_backward_held_kernel<%d,%s> %d %d\n", type, columns / (WARP_SIZE * width), residual,
               threads, bytes);
    }
    for (const char* add : {"true", "false"}) {
        printf("%s layernorm_forward_kernel<%d,%s,true,%s> %d %d\n", type, width, add, residual, THREADS_IN_BLOCK,
               forward_bytes);
    }
}

template <class Type> static void print_type(const char* type, const char* element) {
    const int width = 16 / sizeof(Type), column_threads = WARP_SIZE * COLUMN_SUM_ROWS;
    print_flash<Type, 32>(type, element);
    print_flash<Type, 64>(type, element);
    print_flash<Type, 96>(type, element);
    print_flash<Type, 128>(type, element);
    printf("%s softmax_held_kernel %d 0\n", type, HELD_THREADS);
    printf("%s softmax_rows_kernel<%d> %d 0\n", type, width, SOFTMAX_THREADS);
    printf("%s two_column_sums_kernel %d 0\n", type, column_threads);
    print_layernorm<fp32>(type, "fp32");
    for (const char* add : {"true", "false"}) {
        printf("%s column_sums_kernel<%d,%s,%s> %d 0\n", type, width, add, element, column_threads);
        if (width != 4) { printf("%s column_sums_kernel<4,%s,fp32> %d 0\n", type, add, column_threads); }
    }
}

int main() {
    static_assert(THREADS_IN_BLOCK == 256, "DEFAULT_THREADS of sass.c");
    print_type<fp32>("fp32", "fp32");
    print_type<bf16>("bf16", "bf16");
    print_layernorm<bf16>("bf16", "bf16");
    print_type<fp16>("fp16", "fp16");
    print_type<fp16>("fp16-75", "fp16");
}
