#!/bin/sh
# Tests `check` itself: plants bugs in a copy of the GPU's kernels, builds it once with the emulator, and switches the
# bugs on one at a time. `check` must find each of them, and nothing while all are off.
# sh test/cuda/plants.sh build/EMU [WORD...]: only bugs whose names contain a word
. "$(dirname "$0")/../lib.sh"
set +f
workers=$(nproc 2>/dev/null || echo 1) # before OMP_NUM_THREADS is set, which nproc obeys
export OMP_NUM_THREADS=1 EMU_CUDNN=0

# A bug is five lines: its name, the --dtype that shows it (residual: --dtype bf16 --residual bf16), the file, the text
# to replace (wherever it stands in the file), and the replacement, in which BUG is true while this bug is on.
cat >"$root/bugs" <<'END'
a missing barrier in flash attention
bf16
flash.cuh
__syncthreads(); // tile j is here for all threads, and none reads tile j-1 any more
if (!BUG) { __syncthreads(); }

a missing wait for an asynchronous copy
bf16
flash.cuh
cp_async_wait<0>();
if (BUG) { cp_async_wait<2>(); } else { cp_async_wait<0>(); }

a wrong fragment in the scores
bf16
flash_tile.cuh
mma<Type>(acc[g][n + 1], rows[g].x[i], b[2], b[3]);
mma<Type>(acc[g][n + 1], rows[g].x[i], b[BUG ? 1 : 2], b[3]);

a wrong fragment in the weighted sum
bf16
flash_tile.cuh
mma<Type>(acc[g][2 * i], a[g], b[0], b[1]);
mma<Type>(acc[g][2 * i], a[g], b[0], b[BUG ? 2 : 1]);

a tile that reads behind the last row
bf16
flash_tile.cuh
first + row < T
first + row < T + BUG

a mask that is off by one
fp32
flash.cuh
acc_column(n, i) > group_first + acc_row(i))
acc_column(n, i) > group_first + acc_row(i) - BUG)

a query that sees the document before its own
fp32
flash.cuh
column < bound :
column + BUG < bound :

a key that the next document sees
fp32
flash.cuh
column >= bound)
column >= bound + BUG)

a softmax that forgets to scale what it summed
fp32
flash.cuh
out[n][2 * r + 1] *= shrink;
if (!BUG || n < COLUMNS - 1) { out[n][2 * r + 1] *= shrink; }

a barrier missing before sums are joined
fp32
attention.cuh
__syncthreads();
if (!BUG) { __syncthreads(); }

a query that does not see its own key
fp32
attention.cuh
s <= past + t
s <= past + t - BUG

a transposed matrix
fp32
cublaslt.cuh
TRANSA, m->b_transposed
TRANSA, m->b_transposed != BUG

a matrix described with its rows for its columns
bf16
cublaslt.cuh
(uint64_t)cols, (uint64_t)rows, cols
(uint64_t)(BUG ? rows : cols), (uint64_t)(BUG ? cols : rows), BUG ? rows : cols

a forgotten beta
bf16
cublaslt.cuh
m->add_scale : sets ?
m->add_scale : BUG || sets ?

a step's first gradient of a weight that is added, not set
bf16
cublaslt.cuh
m->sum_mode == GRADS_SET;
(!BUG && m->sum_mode == GRADS_SET);

a bias gradient that is set, not added
bf16
column_sums.cuh
*out = ADD ? *out + total : total;
*out = ADD && !BUG ? *out + total : total;

a plain matmul without its barrier
fp32
matmul_plain.cuh
__syncthreads();
if (!BUG) { __syncthreads(); }

a sum that goes on behind the last row
fp32
column_sums.cuh
part_rows : N - begin);
part_rows : BUG ? part_rows : N - begin);

a layernorm without its epsilon
fp32
layernorm.cuh
+ LAYERNORM_EPS
+ (BUG ? 0.0f : LAYERNORM_EPS)

a layernorm that leaves out the sums of a warp
fp32
layernorm.cuh
for (int warp = 0; warp < WARPS; warp++) {
for (int warp = BUG; warp < WARPS; warp++) {

sums of columns in the wrong half
residual
layernorm.cuh
c / 8 * 4 + c % 4 : c;
c / 8 * 4 + c % (BUG ? 3 : 4) : c;

halves of sums that overlap
residual
layernorm.cuh
C / 2 / 32 * 32 + 48
C / 2 / 32 * 32 + (BUG ? 0 : 48)

a token whose run is cut
fp32
encoder.cuh
const bool goes_on = run_goes_on(s, i + 1);
const bool goes_on = (!BUG || i + 1 < end) && run_goes_on(s, i + 1);

a derivative of GELU without its cubic term
fp32
gelu.cuh
(1.0f + 3.0f * GELU_CUBIC * x * x)
(1.0f + (BUG ? 0.0f : 3.0f) * GELU_CUBIC * x * x)

a loss of the wrong target
bf16
softmax.cuh
targets[blockIdx.x]
targets[BUG ? 0 : blockIdx.x]

a softmax over the padding too
bf16
softmax.cuh
if (v + k >= V) { x[k] = -INFINITY; }
if (v + k >= V + 8 * BUG) { x[k] = -INFINITY; }

an AdamW without bias correction
fp32
adamw.cuh
(float)hyper->step));
BUG ? 1e9f : (float)hyper->step));

an AdamW that decays vectors
fp32
adamw.cuh
tensors.row[i].group = tensor_group(t);
tensors.row[i].group = BUG ? GROUP_MATRIX : tensor_group(t);

an AdamW that decays what it should not, as Muon
fp32
adamw.cuh
h.cautious && direction
!BUG && h.cautious && direction

a norm of Muon without its last part
fp32
muon.cuh
threadIdx.x < gridDim.x ?
threadIdx.x + BUG < gridDim.x ?

a Muon with plain momentum
fp32
muon.cuh
u[k] = (1.0f - momentum) * g + momentum * m[k];
u[k] = BUG ? m[k] : (1.0f - momentum) * g + momentum * m[k];

a Muon that decays what it should not
fp32
muon.cuh
h.cautious && update
!BUG && h.cautious && update

a Muon that forgets its last matrix
fp32
muon.cuh
(unsigned)c->count);
(unsigned)(c->count - BUG * (c->count > 1)));

a stack of Muon without padding
fp32
cublaslt.cuh
(int64_t)stack_stride(rows, cols)
(int64_t)(BUG ? (size_t)rows * cols : stack_stride(rows, cols))

plain matmuls of Muon that stay at the first matrix
fp32
matmul_plain.cuh
z = blockIdx.z;
z = BUG ? 0 : blockIdx.z;

a weight that is not transposed
fp8
matmul.cuh
w->transposed, w->scale);
BUG ? w->rows : w->transposed, w->scale);

a factor whose scale is forgotten
fp8
matmul.cuh
m.a_scale = &a_scale->inverse;
if (!BUG) { m.a_scale = &a_scale->inverse; }

a scale for the other format
fp8
fp8.cuh
FORMAT == __NV_E4M3 ? 8 : 15
(FORMAT == __NV_E4M3) != BUG ? 8 : 15

a cast without its barrier
fp8
fp8.cuh
__syncthreads();
if (!BUG) { __syncthreads(); }

a cast that turns its rows around
fp8
fp8.cuh
bytes[r][k] << (8 * r)
bytes[r][k] << (BUG ? 24 - 8 * r : 8 * r)

a norm that leaves out the last elements
fp32
norm.cuh
i < n; i +=
i + BUG < n; i +=

halves in the wrong order
fp16
flash_tile.cuh
__floats2half2_rn(low, high)
__floats2half2_rn(BUG ? high : low, BUG ? low : high)

halves that are multiplied as bf16
fp16
cublaslt.cuh
FLOATX_IS_FP16 ? CUDA_R_16F
FLOATX_IS_FP16 && !BUG ? CUDA_R_16F
END
# heads of 8 fill tiles only in part; rows end within tiles, blocks and vectors
shape="--model L=1,H=3,C=24,T=72,V=133 --batch_size 2 --seq_len 70 --recompute none --max_steps 1 --tune 0"
# FP8 takes only multiples of 16
fp8_shape="--model L=1,H=3,C=48,T=72,V=133 --batch_size 2 --seq_len 72 --recompute none --max_steps 1 --tune 0"

# Prints a line of a bug: 1 is the name, 5 the replacement.
field() { awk -v RS= -F '\n' -v n="$1" -v i="$2" 'NR == n { print $i }' "$root/bugs"; } # BUG LINE

# Writes a bug into the copy.
plant() { # BUG
    file="$root/copy/llmc/cuda/$(field "$1" 3)"
    awk -v n="$1" -v text="$(field "$1" 4)" -v new="$(field "$1" 5)" '
        BEGIN { gsub(/BUG/, "(planted_bug == " n ")", new) }
        { line = $0; out = ""
          while ((i = index(line, text)) > 0) {
              out = out substr(line, 1, i - 1) new; line = substr(line, i + length(text)); found = 1
          }
          print out line }
        END { exit !found }' "$file" >"$root/planted" ||
        { echo "FAILED  $(field "$1" 1): no '$(field "$1" 4)' in $(field "$1" 3)"; return 1; }
    cp "$root/planted" "$file"
}

# Builds the copy's kernels of one type.
build() { # TYPE
    (cd "$root/copy" && test/emulator/emucc -O1 -D_GNU_SOURCE -DHAS_NCCL -w -DFLOATX="$1" \
        -c train_gpt2.cu -o "$1.o") >"$root/log.$1" 2>&1
}

# Prints the first complaint of `check` with a bug on, or nothing. grep then closes the pipe, which ends `check`.
# ORDER 1 runs threads in reverse order and streams late.
first_complaint() { # BUG TYPE ORDER FLAGS
    capability=80 sizes=$shape
    [ "$2" = fp8 ] && capability=90 sizes=$fp8_shape
    case $2 in residual) dtype='bf16 --residual bf16' ;; *) dtype=$2 ;; esac
    { timeout 600 env PLANTED_BUG="$1" EMU_CC=$capability EMU_ORDER="$3" EMU_LAZY="$3" \
        "$root/copy/program" check $sizes --dtype $dtype $4 2>&1
        echo "exit code $?"; } | grep -m 1 -E 'FAILED|emu:|error:|^exit code [1-9]' |
        tr -s ' ' | cut -c 1-100 | sed 's/ FAILED$//'
}
find_bug() { # BUG TYPE
    for flags in "" "--fused 0 --attention plain" "--kernels plain"; do
        [ "$2 $flags" != 'fp8 --kernels plain' ] || continue # there are no plain FP8 kernels
        for order in 0 1; do
            found=$(first_complaint "$1" "$2" $order "$flags")
            [ -z "$found" ] || { echo "found   $(field "$1" 1): $found"; return; }
        done
    done
    echo "FAILED  $(field "$1" 1): not found"
}
without_bugs() { # TYPE
    found=$(first_complaint 0 "$1" 0 "")
    if [ -z "$found" ]; then echo "found   nothing in $1 with all bugs off"
    else echo "FAILED  $1 with all bugs off: $found"; fi
}
work() { # NUMBER: worker NUMBER tries its share of $root/todo
    awk -v workers="$workers" -v me="$1" 'NR % workers == me' "$root/todo" | while read -r bug type; do
        if [ "$bug" = 0 ]; then without_bugs "$type"; else find_bug "$bug" "$type"; fi
    done | tee "$root/said.$1"
}

mkdir "$root/copy"
cp -r llmc test train_gpt2.cu "$root/copy"
{ echo '#include <stdlib.h>'
    echo 'static const int planted_bug = getenv("PLANTED_BUG") ? atoi(getenv("PLANTED_BUG")) : 0;'
    cat train_gpt2.cu; } >"$root/copy/train_gpt2.cu"
types="fp32 bf16 fp16 residual fp8" objects="fp32 bf16 fp16"
bug=0
: >"$root/todo"
while [ $bug -lt "$(awk -v RS= 'END { print NR }' "$root/bugs")" ]; do
    bug=$((bug + 1))
    plant $bug || { failed=$((failed + 1)); continue; }
    type=$(field $bug 2)
    case $(field $bug 1) in *"$chosen"*) ;; *) continue ;; esac
    echo "$bug $type" >>"$root/todo"
done
for type in $types; do echo "0 $type" >>"$root/todo"; done
set -- $(for object in $objects; do echo "$root/copy/$object.o"; done)
build fp32 &
build bf16
build fp16
wait $!
link=c++
if nm build/release/libllmc.a 2>/dev/null | grep -q MPI_Init_thread; then link='env OMPI_CXX=c++ mpicxx'; fi
if ! $link -fopenmp -rdynamic "$@" "$emu/attention_cudnn.o" \
    build/release/llmc/commands/main.o build/release/cpu/fp32/generic.o build/release/libllmc.a --coverage \
    -o "$root/copy/program" $(make -s libraries) >"$root/log.link" 2>&1; then
    grep -h -m 5 error "$root"/log.* || cat "$root"/log.*
    echo "FAILED  the kernels with bugs were not built"
    failed=$((failed + 1))
    end_tests
    exit 1
fi
i=0
while [ $i -lt "$workers" ]; do
    work $i &
    i=$((i + 1))
done
wait
passed=$(cat "$root"/said.* | grep -c '^found') failed=$((failed + $(cat "$root"/said.* | grep -c '^FAILED')))
[ $((passed + failed)) -ge "$(wc -l <"$root/todo")" ] ||
    { echo "FAILED  some bugs were not tried"; failed=$((failed + 1)); }
end_tests
