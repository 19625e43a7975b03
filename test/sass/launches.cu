// Prints how kernels are launched, for sass.c: type, kernel, threads of a block, bytes of dynamic shared memory.
// Kernels that are missing here have blocks of THREADS_IN_BLOCK threads and no dynamic shared memory.
#include "../../llmc/cuda/column_sums.cuh"
#include "../../llmc/cuda/flash.cuh"
#include "../../llmc/cuda/layernorm.cuh"
#include "../../llmc/cuda/softmax.cuh"

template <class Type, int HD> static void print_flash(const char* type) {
    typedef Flash<Type, HD> Shape;
    const int forward = Shape::BYTES_FORWARD, queries = Shape::BYTES_BACKWARD, keys = queries + Shape::BYTES_STATISTICS;
    printf("%s flash_forward_kernel<%s,%d> %d %d\n", type, type, HD, Shape::THREADS, forward);
    printf("%s flash_backward_keys_kernel<%s,%d> %d %d\n", type, type, HD, Shape::THREADS, keys);
    printf("%s flash_backward_queries_kernel<%s,%d> %d %d\n", type, type, HD, Shape::THREADS, queries);
}

// Layernorm's shared memory depends on the width of the model: 768 is the 124M model's, 1600 the 1558M's.
static void print_layernorm(const char* type, int vectors, int C) {
    const int row = C * (int)sizeof(float), threads = LAYERNORM_HELD_WARPS * WARP_SIZE;
    printf("%s layernorm_backward_held_kernel<%d> %d %d\n", type, vectors, threads, 2 * LAYERNORM_HELD_WARPS * row);
    printf("%s layernorm_forward_kernel<4,true,true> %d %d\n", type, THREADS_IN_BLOCK, WARPS_IN_BLOCK * 768 * 4);
    printf("%s layernorm_forward_kernel<4,false,true> %d %d\n", type, THREADS_IN_BLOCK, WARPS_IN_BLOCK * 768 * 4);
}

template <class Type> static void print_type(const char* type) {
    const int width = 16 / sizeof(Type), column_threads = WARP_SIZE * COLUMN_SUM_ROWS;
    print_flash<Type, 32>(type);
    print_flash<Type, 64>(type);
    print_flash<Type, 96>(type);
    print_flash<Type, 128>(type);
    printf("%s softmax_held_kernel %d 0\n", type, HELD_THREADS);
    printf("%s softmax_rows_kernel<%d> %d 0\n", type, width, SOFTMAX_THREADS);
    print_layernorm(type, 8, 768);
    print_layernorm(type, 16, 1600);
    for (int add = 0; add < 2; add++) {
        printf("%s column_sums_kernel<%d,%s,%s> %d 0\n", type, width, add ? "true" : "false", type, column_threads);
    }
    printf("bf16 column_sums_kernel<4,true,fp32> %d 0\n", column_threads);
}

int main() {
    static_assert(THREADS_IN_BLOCK == 256, "DEFAULT_THREADS of sass.c");
    print_type<fp32>("fp32");
    print_type<bf16>("bf16");
}
