#!/bin/sh
# Plants a bug in a copy of the GPU's kernels, one at a time, builds that with the emulator and sees `check` find it: so the
# tests of the kernels are tests. usage: plants.sh [WORD...]      only the bugs whose names contain a word
# Needs the programs of `make` and `make emu`.
chosen=$*
. "$(dirname "$0")/lib.sh"
jobs=$(nproc 2>/dev/null || echo 1)
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0

# name | type it is built for | file | text | what becomes of it (a pattern of sed's s command, with | for its own |)
# The shape has heads of 8, which fill tiles only in part, and rows that end within tiles, blocks and vectors.
bugs='
a missing barrier in flash attention | bf16 | flash.cuh | __syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more | //
a missing wait for an asynchronous copy | bf16 | flash.cuh | cp_async_wait<0>(); | cp_async_wait<2>();
a wrong fragment in the scores | bf16 | flash_tile.cuh | mma_bf16(acc[n + 1], rows.x[i], b[2], b[3]); | mma_bf16(acc[n + 1], rows.x[i], b[1], b[3]);
a wrong fragment in the weighted sum | bf16 | flash_tile.cuh | mma_bf16(acc[2 * i], a, b[0], b[1]); | mma_bf16(acc[2 * i], a, b[0], b[2]);
a tile that reads behind the last row | bf16 | flash_tile.cuh | first + row < T | first + row <= T
a mask that is off by one | fp32 | flash.cuh | > warp_first + acc_row(i)) | >= warp_first + acc_row(i))
a softmax that forgets to scale what it summed | fp32 | flash.cuh | state->sum[r] *= shrink; |
a barrier missing before sums are joined | fp32 | attention.cuh | __syncthreads(); |
a query that does not see its own key | fp32 | attention.cuh | s <= past + t | s < past + t
a transposed matrix | fp32 | cublaslt.cuh | TRANSA, m->b_transposed | TRANSA, !m->b_transposed
a matrix described with its rows for its columns | bf16 | cublaslt.cuh | (uint64_t)cols, (uint64_t)rows, cols | (uint64_t)rows, (uint64_t)cols, rows
a forgotten beta | bf16 | cublaslt.cuh | beta = m->out ? 0.0f : 1.0f | beta = 0.0f
a bias gradient that is set, not added | bf16 | matmul.cuh | sums[i] += x[i]; | sums[i] = x[i];
a plain matmul without its barrier | fp32 | matmul_plain.cuh | __syncthreads(); |
a column behind the last | fp32 | column_sums.cuh | if (o < OC) { | if (true) {
a layernorm without its epsilon | fp32 | layernorm.cuh | + LAYERNORM_EPS |
a layernorm that takes full blocks for granted | fp32 | layernorm.cuh | < N ? WARPS_IN_BLOCK : (int)(N - begin) | < N ? WARPS_IN_BLOCK : WARPS_IN_BLOCK
a token whose run is cut | fp32 | encoder.cuh | const bool goes_on = run_goes_on(s, i + 1); | const bool goes_on = i + 1 < end \&\& run_goes_on(s, i + 1);
a derivative of GELU without its cubic term | fp32 | gelu.cuh | (1.0f + 3.0f * GELU_CUBIC * x * x) | 1.0f
a loss of the wrong target | bf16 | softmax.cuh | targets[blockIdx.x] | targets[0]
an AdamW without bias correction | fp32 | adamw.cuh | (float)hyper->step)); | 1e9f));
an AdamW that decays vectors | fp32 | adamw.cuh | tensors.row[i].decays = tensor_decays(t); | tensors.row[i].decays = true;
a norm that leaves out the last elements | fp32 | norm.cuh | i < n; i += | i + 1 < n; i +=
'
shape="--model L=1,H=3,C=24,T=72,V=133 --batch_size 2 --seq_len 70 --recompute none"

copy="$root/copy"
mkdir -p "$copy/build" "$root/objects"
cp -r llmc test train_gpt2.cu "$copy"

# builds the copy's kernels of one type beside the objects of the other, as they are
build_copy() { # TYPE
    other=fp32
    [ "$1" = fp32 ] && other=bf16
    (cd "$copy" && test/emulator/emucc -O1 -D_GNU_SOURCE -w -DFLOATX="$1" -c train_gpt2.cu -o "$root/objects/$1.o") || return 1
    c++ -fopenmp "$root/objects/$1.o" "build/emu/cuda_$other.o" build/release/cpu_fp32.o build/release/main.o build/release/tokenizer_data.o \
        -o "$root/objects/program" -ljansson -lm -lpthread -ldl
}

# exit code 0: all is as it should be, in both orders of threads and with streams that run late
checked() { # TYPE
    for flags in "" "--fused 0 --flash 0" "--kernels plain"; do
        for order in 0 1; do
            timeout 300 env EMU_ORDER=$order EMU_LAZY=$order "$root/objects/program" check $shape --dtype "$1" $flags >"$root/log" 2>&1 || return 1
        done
    done
}

try() { # NAME TYPE FILE TEXT REPLACEMENT
    case "$chosen" in "") ;; *) for word in $chosen; do case $1 in *"$word"*) ;; *) return ;; esac; done ;; esac
    file="llmc/cuda/$3"
    awk -v text="$4" -v new="$5" '{ while ((i = index($0, text)) > 0) { out = out substr($0, 1, i - 1) "\001"; $0 = substr($0, i + length(text)) }
        gsub(/&/, "\\\\&", new); line = out $0; out = ""; gsub("\001", new, line); print line }' "$file" >"$copy/$file"
    if cmp -s "$file" "$copy/$file"; then echo "FAILED  $1: nothing to plant it in: no '$4' in $file"; failed=$((failed + 1)); return; fi
    if ! build_copy "$2" >"$root/log" 2>&1; then echo "FAILED  $1: it does not compile: $(grep -m 1 error "$root/log")"; failed=$((failed + 1))
    elif checked "$2"; then echo "FAILED  $1: nobody noticed"; failed=$((failed + 1))
    else passed=$((passed + 1)); echo "found   $1: $(grep -m 1 -E 'FAILED|emu:|error' "$root/log" | tr -s ' ' | cut -c 1-110)"; fi
    cp "$file" "$copy/$file"
}

for type in fp32 bf16; do # without a bug nothing is found
    [ -z "$chosen" ] || continue
    build_copy $type && checked $type && passed=$((passed + 1)) || { echo "FAILED  $type kernels as they are: $(tail -n 3 "$root/log")"; failed=$((failed + 1)); }
done
echo "$bugs" | grep '|' >"$root/bugs"
while IFS= read -r line; do
    set -- "$(echo "$line" | awk -F ' [|] ?' '{ print $1 }')" "$(echo "$line" | awk -F ' [|] ?' '{ print $2 }')" \
        "$(echo "$line" | awk -F ' [|] ?' '{ print $3 }')" "$(echo "$line" | awk -F ' [|] ?' '{ print $4 }')" "$(echo "$line" | awk -F ' [|] ?' '{ print $5 }')"
    try "$@"
done <"$root/bugs"
end_tests plants
