#!/bin/sh
# Tests dev/bench/gpu.sh without a GPU, so that no mistake in it wastes a GPU's minutes. It runs in a folder that has no
# more than a machine with little: a few of the system's programs, stand-ins for NVIDIA's tools and for Python, and the
# emulated trainer with small shapes. Where accidents are tried, a stand-in for the trainer takes its place.
. "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1 EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3' GPU_SMALL=1

program() { cat >"$box/$1"; chmod +x "$box/$1"; } # FILE: writes an executable script

make_box() { # makes the folder $box
    box="$dir/box"
    mkdir -p "$box/dev/bench" "$box/scripts" "$box/build/release" "$box/bin"
    cp dev/bench/gpu.sh "$box/dev/bench"
    cp -r dev/profile "$box/dev"
    cp scripts/gpu_health.sh "$box/scripts"
    ln -s "$PWD/$cuda" "$box/train_gpt2cu"
    ln -s "$PWD/$emu/test_attention_forms" "$box/build/release/cuda_test_attention_forms"
    corpus
    for file in $(ls "$root" | grep ^corpus_); do ln -s "$root/$file" "$box/build/gpu_$file"; done
    for tool in awk cat cmp cp cut date dirname echo env expr grep head ldd ls mkdir mv nproc rm sed seq sh sleep tail \
        tar tee timeout tr wc; do
        ln -s "$(command -v $tool)" "$box/bin/$tool"
    done
    program bin/nvidia-smi <<'END'
#!/bin/sh
for word; do
    case $word in --query-gpu=*) fields=$(echo "${word#*=}" | tr , ' ') ;; -lms) loop=1 ;; esac
done
for field in ${fields:-name}; do
    case $field in
    name) value=${GPU_NAME:-NVIDIA H100 80GB HBM3} ;; compute_cap) value=${GPU_CAP:-9.0} ;;
    memory.total) value=${GPU_MIB:-81559} ;; driver_version) value=580.65.06 ;; power.limit) value=700.00 ;;
    power.draw) value=653.21 ;; clocks.*) value=1980 ;; temperature.gpu) value=61 ;; *) value=0 ;;
    esac
    line="${line:+$line, }$value"
done
for i in $(seq "${GPUS:-1}"); do echo "$line"; done
while [ -n "${loop:-}" ]; do
    sleep 0.5
    echo "$line"
done
END
    program bin/ncu <<'END'
#!/bin/sh
echo "$0 $*"
[ "$1" != stats ] || exit 0
while [ "$1" != ./train_gpt2cu ]; do shift; done
exec "$@"
END
    ln "$box/bin/ncu" "$box/bin/compute-sanitizer"
    ln "$box/bin/ncu" "$box/bin/nsys"
    program bin/python3 <<'END'
#!/bin/sh
[ "$1" = -c ] || echo "$*"
END
}

# A script takes the place of the trainer, and writes losses. A call with the words $HANGS does not end, one with $FAILS
# fails, one with $DIFFERS has another loss.
make_stand_in() { # in the box
    rm "$box/train_gpt2cu"
    program train_gpt2cu <<'END'
#!/bin/sh
loss=5.5
case "$*" in
*"${HANGS:-nothing}"*) echo hangs; sleep 600 ;;
*"${FAILS:-nothing}"*) echo "no such library"; exit 1 ;;
esac
case "$*" in *"${DIFFERS:-nothing}"*) loss=5.4 ;; esac
for word; do
    [ "${before:-}" != --out ] || {
        mkdir -p "$word"
        echo '{"kind":"train","step":1,"ms":1,"loss":'$loss',"norm":1.5,"lr":0}' >"$word/metrics.jsonl"
    }
    before=$word
done
echo passed
END
}

in_box() { env PATH="$box/bin" CUDA_HOME="$box" "$@"; }
gpu_sh() { # CODE PART...: runs a part in the box, and unpacks what it leaves: $summary and its folder
    code=$1
    shift
    in_box sh "$box/dev/bench/gpu.sh" "$@" "$dir/results" >"$dir/log" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || note "exit code $got, not $code: $(grep -m 2 -E 'FAILED|CUT' "$dir/log")"
    [ ! -s "$dir/err" ] || note "$(head -n 2 "$dir/err")"
    unpack "$1"
}
unpack() { # PART
    [ "$(ls -A "$dir/results")" = "$1.tar" ] || note "the results are: $(ls -A "$dir/results")"
    tar -xf "$dir/results/$1.tar" -C "$dir" || note "no whole tar"
    summary="$dir/$1/summary.txt"
    rm -r "$dir/results"
}
says() { # REGEX...: the summary has lines of these
    for line; do grep -qE "$line" "$summary" || note "no '$line' in the summary"; done
}
steps_of_first='libraries check check_wide check_flash check_fp8 attention_forms memcheck_bf16 racecheck_bf16 plans
    flash cudnn residual launches ops torch_ops peers_bf16 ncu'

first_leaves_its_answers_in_one_file() {
    make_box
    gpu_sh 0 first
    for name in $steps_of_first; do
        says "^$name: done, [0-9]* s"
        [ -s "$dir/first/$name.txt" ] || note "no $name.txt"
    done
    says ', up to 653 W \(1980 and 1980 MHz\), 61 degrees: ' 'flash and launches: the same bits'
    [ "$(grep -c . "$dir/first/digits_flash.txt")" = 4 ] || note "not the digits of 4 steps"
    # The pattern for ncu matches kernels that there are.
    set +f
    grep -ohE '[a-z_]+_kernel\(' llmc/cuda/*.cuh | tr -d '(' | sort -u >"$dir/kernels"
    set -f
    found=$(grep -cE "$(sed -n 's/.* regex:\([^ ]*\) .*/\1/p;q' "$dir/first/ncu.txt")" "$dir/kernels")
    [ "$found" = 5 ] || note "ncu looks at $found kernels"
}

# Without a driver, a command ends at once, but not before its options were read.
options_of_all_parts_are_right() {
    make_box
    export EMU_DRIVER=0 GPUS=2
    for part in second sanitize train ops profile gpus; do
        gpu_sh 1 $part
        ! grep 'exit code 2,' "$summary" >"$dir/wrong" || note "$part: $(head -n 1 "$dir/wrong")"
    done
    unset EMU_DRIVER GPUS
}

all_other_parts_run() {
    [ -n "$long" ] || { skip='in long only'; return; }
    make_box
    for part in second sanitize train ops peers profile; do gpu_sh 0 $part; done
    export GPUS=2
    gpu_sh 0 gpus
    unset GPUS
    says 'gpus and gpus_again: the same bits'
    export GPU_NAME='Tesla T4' GPU_CAP=7.5 GPU_MIB=15360 EMU_CC=75 EMU_NAME='Tesla T4'
    gpu_sh 0 first
    ! grep -rlE 'dtype (bf16|tf32|fp8)' "$dir/first" >"$dir/wrong" || note "not in fp16: $(cat "$dir/wrong")"
    unset GPU_NAME GPU_CAP GPU_MIB
    export EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3'
}

done_but() { # STEPS: the summary has all steps of first as done but these
    for name in $steps_of_first; do
        case " $1 " in
        *" $name "*) ! grep -q "^$name: done" "$summary" || note "$name ran" ;;
        *) says "^$name: done" ;;
        esac
    done
}

without() { # TOOL 'STEPS' 'SENTENCE': a tool is missing: the sentence is there, and all steps but these ran
    mv "$box/bin/$1" "$box"
    gpu_sh 0 first
    mv "$box/$1" "$box/bin"
    done_but "$2"
    says "$3"
}

what_is_missing_is_named_and_the_rest_runs() {
    make_box
    make_stand_in
    without nvidia-smi '' '^no nvidia-smi in the path: clocks are left out'
    without ncu ncu '^no ncu in the path: '
    without compute-sanitizer 'memcheck_bf16 racecheck_bf16' '^no compute-sanitizer in the path: racecheck is left out'
    without python3 'torch_ops peers_bf16' '^no torch and transformers in python3 .*: torch_ops is left out'
    rm "$box/build/release/cuda_test_attention_forms"
    export FAILS='--attention cudnn'
    gpu_sh 1 first
    unset FAILS
    done_but 'attention_forms cudnn'
    says '^attention_forms: FAILED, exit code 127, .*No such file' '^cudnn: FAILED, exit code 1, .*: no such library'
}

runs_that_differ_are_a_failure() {
    make_box
    make_stand_in
    export DIFFERS='--graph 0'
    gpu_sh 1 first
    unset DIFFERS
    done_but ''
    says 'FAILED: flash and launches: .*/digits_flash.txt and .*/digits_launches.txt are not the same'
}

a_step_that_hangs_is_cut_and_the_rest_runs() {
    make_box
    make_stand_in
    sed -i 's/^\(    step "$name" \)60 /\13 /' "$box/dev/bench/gpu.sh"
    export GPU_SECONDS=100
    export HANGS='check --model L=1,H=2,C=128,T=64,V=300 --batch_size 2 --max_steps 1 --dtype fp8'
    gpu_sh 1 first
    done_but check_fp8
    says '^check_fp8: CUT at its limit, exit code 124, [3-9] s'
    HANGS='--attention flash' GPU_SECONDS=30 # of the steps that follow, none has time left
    sed -i 's/^\(    step "$name" \)3 /\1600 /' "$box/dev/bench/gpu.sh"
    gpu_sh 1 first
    unset HANGS GPU_SECONDS
    done_but "$(echo $steps_of_first | sed 's/.*check_flash/check_flash/')"
    says '^check_flash: CUT at its limit' "^ncu: not run, the part's time is over"
}

a_part_that_is_ended_leaves_its_tar() {
    make_box
    make_stand_in
    export HANGS='--attention cudnn'
    begin env PATH="$box/bin" CUDA_HOME="$box" sh "$box/dev/bench/gpu.sh" first "$dir/results"
    unset HANGS
    await '^hangs' "$box/build/gpu/first/cudnn.txt" $pid
    kill -TERM $pid
    finish $pid
    unpack first
    says '^flash: done' '^first: stopped in cudnn, exit code 1'
    set +f
    for i in $(seq 600); do # what was ended may take a moment
        left=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -c " $box\$")
        [ "$left" != 0 ] || break
        sleep 0.1
    done
    set -f
    [ "$left" = 0 ] || note "$left processes are left"
}

wrong_parts_are_named() {
    make_box
    expect 2 "no part 'frist'; parts are first, second, " in_box sh "$box/dev/bench/gpu.sh" frist
    rm "$box/train_gpt2cu"
    expect 1 'no train_gpt2cu here' in_box sh "$box/dev/bench/gpu.sh" first
}

run_tests
