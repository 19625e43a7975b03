#!/bin/sh
# Plants a bug in a copy of the GPU's kernels, one at a time, builds that with the emulator and sees `check` find it: so the
# tests of the kernels are tests. usage: plants.sh [WORD]      only the bugs whose names contain a word
# Needs the programs of `make` and `make emu`.
chosen=$*
. "$(dirname "$0")/lib.sh"
workers=$(nproc 2>/dev/null || echo 1) # before the next line, which nproc would obey
export OMP_NUM_THREADS=1 EMU_GUARD=0

# name | type it is built for | file | text | what becomes of it 
# The shape has heads of 8, which fill tiles only in part, and rows that end within tiles, blocks and vectors.
bugs='
a missing barrier in flash attention | bf16 | flash.cuh | __syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more | //
a missing wait for an asynchronous copy | bf16 | flash.cuh | cp_async_wait<0>(); | cp_async_wait<2>();
a wrong fragment in the scores | bf16 | flash_tile.cuh | mma_bf16(acc[g][n + 1], rows[g].x[i], b[2], b[3]); | mma_bf16(acc[g][n + 1], rows[g].x[i], b[1], b[3]);
a wrong fragment in the weighted sum | bf16 | flash_tile.cuh | mma_bf16(acc[g][2 * i], a[g], b[0], b[1]); | mma_bf16(acc[g][2 * i], a[g], b[0], b[2]);
a tile that reads behind the last row | bf16 | flash_tile.cuh | first + row < T | first + row <= T
a mask that is off by one | fp32 | flash.cuh | acc_column(n, i) > group_first + acc_row(i)) | acc_column(n, i) >= group_first + acc_row(i))
a softmax that forgets to scale what it summed | fp32 | flash.cuh | state->sum[r] *= shrink; |
a barrier missing before sums are joined | fp32 | attention.cuh | __syncthreads(); |
a query that does not see its own key | fp32 | attention.cuh | s <= past + t | s < past + t
a transposed matrix | fp32 | cublaslt.cuh | TRANSA, m->b_transposed | TRANSA, !m->b_transposed
a matrix described with its rows for its columns | bf16 | cublaslt.cuh | (uint64_t)cols, (uint64_t)rows, cols | (uint64_t)rows, (uint64_t)cols, rows
a forgotten beta | bf16 | cublaslt.cuh | beta = m->out ? 0.0f : 1.0f | beta = 0.0f
a bias gradient that is set, not added | bf16 | matmul.cuh | sums[i] += x[i]; | sums[i] = x[i];
a plain matmul without its barrier | fp32 | matmul_plain.cuh | __syncthreads(); |
a sum that goes on behind the last row | fp32 | column_sums.cuh | part_rows : N - begin); | part_rows : part_rows);
a layernorm without its epsilon | fp32 | layernorm.cuh | + LAYERNORM_EPS |
a layernorm that takes full blocks for granted | fp32 | layernorm.cuh | < N ? WARPS_IN_BLOCK : (int)(N - begin) | < N ? WARPS_IN_BLOCK : WARPS_IN_BLOCK
a token whose run is cut | fp32 | encoder.cuh | const bool goes_on = run_goes_on(s, i + 1); | const bool goes_on = i + 1 < end && run_goes_on(s, i + 1);
a derivative of GELU without its cubic term | fp32 | gelu.cuh | (1.0f + 3.0f * GELU_CUBIC * x * x) | 1.0f
a loss of the wrong target | bf16 | softmax.cuh | targets[blockIdx.x] | targets[0]
an AdamW without bias correction | fp32 | adamw.cuh | (float)hyper->step)); | 1e9f));
an AdamW that decays vectors | fp32 | adamw.cuh | tensors.row[i].decays = tensor_decays(t); | tensors.row[i].decays = true;
a weight that is not transposed | fp8 | matmul.cuh | w->transposed, w->scale); | w->rows, w->scale);
a factor whose scale is forgotten | fp8 | matmul.cuh | m.a_scale = &a_scale->inverse; |
a scale for the other format | fp8 | fp8.cuh | FORMAT == __NV_E4M3 ? 8 : 15 | FORMAT == __NV_E4M3 ? 15 : 8
a cast without its barrier | fp8 | fp8.cuh | __syncthreads(); |
a cast that turns its rows around | fp8 | fp8.cuh | bytes[r][k] << (8 * r) | bytes[r][k] << (24 - 8 * r)
a norm that leaves out the last elements | fp32 | norm.cuh | i < n; i += | i + 1 < n; i +=
'
shape="--model L=1,H=3,C=24,T=72,V=133 --batch_size 2 --seq_len 70 --recompute none --max_steps 1"
# FP8 takes multiples of 16, and a GPU of Hopper's kind; its storage is bf16.
fp8_shape="--model L=1,H=3,C=48,T=72,V=133 --batch_size 2 --seq_len 72 --recompute none --max_steps 1"

link=c++
if nm build/release/main.o | grep -q MPI_Init_thread; then link='env OMPI_CC=c++ MPICH_CC=c++ mpicc'; fi

# Each worker has a copy of its own. The copy's kernels of one type are built beside the objects of the other, as they are.
build_copy() { # WORKER TYPE
    stored=bf16 other=fp32
    [ "$2" = fp32 ] && stored=fp32 other=bf16
    (cd "$1" && test/emulator/emucc -O0 -D_GNU_SOURCE -w -DFLOATX=$stored -c train_gpt2.cu -o kernels_$stored.o) || return 1
    $link -fopenmp "$1/kernels_$stored.o" "build/emu/cuda_$other.o" build/release/cpu_fp32_generic.o build/release/main.o \
        build/release/tokenizer_data.o -o "$1/program" -ljansson -lm -lpthread -ldl
}

# Sets `found` to the first complaint of a check, nothing if all is as it should be. It ends there, for want of a reader.
# Reverse order of threads goes with streams that run late.
look_once() { # WORKER TYPE ORDER FLAGS
    capability=80 sizes=$shape
    [ "$2" = fp8 ] && capability=90 sizes=$fp8_shape
    found=$({ timeout 300 env EMU_CC=$capability EMU_ORDER="$3" EMU_LAZY="$3" "$1/program" check $sizes --dtype "$2" $4 2>&1
        echo "exit code $?"; } | grep -m 1 -E 'FAILED|emu:|error:|^exit code [1-9]' | tr -s ' ' | cut -c 1-100)
}
look_everywhere() { # WORKER TYPE
    for flags in "" "--fused 0 --flash 0" "--kernels plain"; do
        [ "$2 $flags" != 'fp8 --kernels plain' ] || continue # there are none
        for order in 0 1; do
            look_once "$1" "$2" $order "$flags"
            [ -z "$found" ] || return 0
        done
    done
}

as_they_are() { # WORKER TYPE: without a bug nothing is found
    build_copy "$1" "$2" >"$1/log" 2>&1 && look_once "$1" "$2" 0 "" || found='they do not compile'
    if [ -z "$found" ]; then echo "found   nothing in the $2 kernels as they are"
    else echo "FAILED  the $2 kernels as they are: $found"; fi
}

plant() { # WORKER NAME TYPE FILE TEXT REPLACEMENT
    file="llmc/cuda/$4"
    awk -v text="$5" -v new="$6" '{ line = $0; out = ""
        while ((i = index(line, text)) > 0) { out = out substr(line, 1, i - 1) new; line = substr(line, i + length(text)) }
        print out line }' "$file" >"$1/$file"
    if cmp -s "$file" "$1/$file"; then echo "FAILED  $2: nothing to plant it in: no '$5' in $file"
    elif ! build_copy "$1" "$3" >"$1/log" 2>&1; then echo "FAILED  $2: it does not compile: $(grep -m 1 error "$1/log")"
    else
        look_everywhere "$1" "$3"
        if [ -n "$found" ]; then echo "found   $2: $found"; else echo "FAILED  $2: nobody noticed"; fi
    fi
    cp "$file" "$1/$file"
}

work() { # NUMBER
    copy="$root/$1"
    mkdir -p "$copy"
    cp -r llmc test train_gpt2.cu "$copy"
    [ "$1" != 0 ] || [ -n "$chosen" ] || as_they_are "$copy" fp32
    [ "$1" != $((workers - 1)) ] || [ -n "$chosen" ] || as_they_are "$copy" bf16
    [ "$1" != $((workers - 1)) ] || [ -n "$chosen" ] || as_they_are "$copy" fp8
    awk "NR % $workers == $1" "$root/bugs" | while IFS= read -r line; do
        field() { printf '%s\n' "$line" | awk -F ' [|] ?' -v i="$1" '{ print $i }'; }
        plant "$copy" "$(field 1)" "$(field 2)" "$(field 3)" "$(field 4)" "$(field 5)"
    done
}

printf '%s\n' "$bugs" | grep ' | ' | grep -e "$chosen" >"$root/bugs"
i=0
while [ $i -lt "$workers" ]; do
    work $i >"$root/said.$i" &
    i=$((i + 1))
done
wait
set +f
cat "$root"/said.*
passed=$(cat "$root"/said.* | grep -c '^found') failed=$(cat "$root"/said.* | grep -c '^FAILED')
[ $((passed + failed)) -ge "$(wc -l <"$root/bugs")" ] || { echo "some bugs were not tried"; failed=$((failed + 1)); }
end_tests plants
