#!/bin/sh
# Tests scripts/: settings of published runs, several processes, Slurm.
. "$(dirname "$0")/lib.sh"
corpus

# Starts each script on the CPU with a tiny model, and stops it when metrics.jsonl has its settings. The table has, for
# each script, the model of its preset and the settings of the run that it follows.
run_scripts_have_the_settings_of_their_sources() {
    while read -r name model settings; do
        case $name in *:*) script="run_preset.sh $name" ;; *) script=run_$name.sh ;; esac
        TRAINER="$train" GPUS=1 sh scripts/$script $data --model L=1,H=1,C=2,T=8,V=257 --tokenizer bytes \
            --batch_size 1024 $quiet --save_every 0 --out "$dir/$name" </dev/null >"$dir/out" 2>"$dir/err" &
        pid=$!
        await '"kind":"config"' "$dir/$name/metrics.jsonl" $pid
        kill -TERM $pid
        finish $pid
        code=$?
        [ $code = 0 ] || [ $code = 143 ] ||
            note "$name: exit code $code: $(tail -n 1 "$dir/err")" # 143: it was not yet training
        for setting in $settings; do
            grep -qF "\"${setting%%=*}\":${setting#*=}," "$dir/$name/metrics.jsonl" || note "$name: not $setting"
        done
        preset=$(sed -n 's/.*"preset":"\([^"]*\)".*/\1/p' "$dir/$name/metrics.jsonl")
        "$train" info --preset "$preset" --batch_size 1 </dev/null >"$dir/$name/info" 2>/dev/null &
        await ": $(echo "$model" | tr , ' ') V=50257" "$dir/$name/info" $! # the rest of what info says takes a while
        kill $! 2>/dev/null
    done <<END
gpt2_124M L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0006 max_steps=19073 warmup_steps=715 \
    min_lr_frac=0.1 weight_decay=0.1 schedule="cosine" beta2=0.95 grad_clip=1.0 batch_ramp="" zero=true resume="auto"
gpt2_350M L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.0003 max_steps=60000 warmup_steps=700 \
    min_lr_frac=0.0 weight_decay=0.1 batch_ramp=""
gpt2_774M L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00025 max_steps=286102 warmup_steps=700 \
    min_lr_frac=0.0 weight_decay=0.1 batch_ramp=""
gpt2_1558M L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.0006 max_steps=32000 warmup_steps=700 \
    min_lr_frac=0.1 weight_decay=0.1 batch_ramp=""
gpt3_125M L=12,H=12,C=768,T=2048 total_batch_size=524288 lr=0.0006 max_steps=495911 warmup_steps=715 \
    min_lr_frac=0.1 weight_decay=0.1 batch_ramp="32768:4000000000"
fast:124m L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0018 max_steps=12288 warmup_steps=256 \
    min_lr_frac=0.0 weight_decay=0.1 schedule="wsd_linear" decay_frac=0.16667 batch_ramp=""
fast:350m L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.00135 max_steps=37700 schedule="wsd_linear"
fast:774m L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00108 max_steps=179700 schedule="wsd_linear"
fast:1558m L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.000864 max_steps=20100 schedule="wsd_linear"
muon:124m L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0036 matrix_lr="auto" matrix_decay=0.01 max_steps=8800 \
    optimizer="muon" init_out="zero" cautious_decay=true weight_decay=0.0 momentum="0.95,cooldown:50:0.85" \
    warmup_steps=256 decay_frac=0.29 min_lr_frac=0.0
muon:350m L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.00312 matrix_decay=0.0056 max_steps=30000
muon:774m L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00279 matrix_decay=0.0036 max_steps=155000
muon:1558m L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.00249 matrix_decay=0.0023 max_steps=18300
END
}

# In a copy of scripts/, with an nvidia-smi that fails, later finds two GPUs, and a curl that finds every file.
run_scripts_say_what_is_missing() {
    mkdir -p "$dir/scripts" "$dir/data" "$dir/bin"
    cp scripts/run.sh scripts/run_gpt2_124M.sh "$dir/scripts"
    script="env PATH=$dir/bin:$PATH sh $dir/scripts/run_gpt2_124M.sh"
    printf '#!/bin/sh\nexit 9\n' >"$dir/bin/nvidia-smi"
    chmod +x "$dir/bin/nvidia-smi"
    expect 1 'build it with: make' $script
    printf '#!/bin/sh\necho "$@"\n' >"$dir/train_gpt2cu"
    chmod +x "$dir/train_gpt2cu"
    expect 1 'sh data/fetch.sh fineweb-edu 99' $script
    expect 1 'sh data/fetch.sh fineweb100b 99' env DATA=fineweb100b $script
    : >"$dir/data/finewebedu_train_000001.bin"
    expect 1 'data/finewebedu_train_*.bin or data/finewebedu_val_000000.bin is missing' $script
    rm "$dir/data/finewebedu_train_000001.bin"
    cp data/fetch.sh data/http.sh data/sets.sh data/zip.sh "$dir/data"
    sed 's/ ~*[0-9]* [0-9a-f-]*$/ - -/; s/ ~*[0-9]* - \([a-z]\)/ - - \1/' data/sets.list >"$dir/data/sets.list"
    cat >"$dir/bin/curl" <<END
#!/bin/sh
while [ \$# -gt 1 ]; do
    case \$1 in
        --head) head=1 ;;
        --dump-header) echo 'HTTP/1.1 200 OK' >"\$2" ;;
        --output) output=\$2 ;;
    esac
    shift
done
[ -n "\${head:-}" ] || cp $root/corpus_val_000000.bin "\$output"
END
    chmod +x "$dir/bin/curl"
    for set in fineweb fineweb-edu fineweb100b fineweb-edu100b; do # fetch.sh writes the names that run.sh looks for
        expect 1 'fetch.sh' env DATA=$set $script
        must env PATH="$dir/bin:$PATH" sh "$dir/data/fetch.sh" $set 1
        expect 1 'no NVIDIA GPU here' env DATA=$set $script
    done
    expect 1 'no NVIDIA GPU here' $script
    printf '#!/bin/sh\necho "GPU 0: A"\necho "  MIG 1"\necho "GPU 1: A"\n' >"$dir/bin/nvidia-smi"
    expect 1 'GPUS=8, but this machine has 2: put GPUS=2 before the same command' $script --lr 1
    expect 0 '1 of 99 shards' env GPUS=2 $script --lr 1
    grep -q -- '--gpus 2 .*--preset gpt2:124m .*--lr 1$' "$dir/out" || note "not the command: $(cat "$dir/out")"
    expect 0 '--preset' env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 $script # a rank of a launcher checks nothing
}

# Sets $health, gpu_health.sh with an nvidia-smi that gives these answers to each question, and this exit code.
answers() { # ANSWERS CODE
    printf '#!/bin/sh\nprintf "%s"\nexit %s\n' "$1" "$2" >"$dir/bin/nvidia-smi"
    chmod +x "$dir/bin/nvidia-smi"
    health="env PATH=$dir/bin:$PATH sh scripts/gpu_health.sh"
}

gpu_health_tells_what_nvidia_smi_says() {
    mkdir "$dir/bin"
    while read -r code fine; do
        answers "$fine" $code
        must $health
        [ ! -s "$dir/err" ] || note "of $fine it says: $(cat "$dir/err")"
    done <<'END'
0 0, A, 0\n1, A, 0\n
0 0, A, No\n1, A, [N/A]\n2, A, Not Active\n
14 0, A, 0\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\n
9 NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.\n
2 Field "x" is not a valid field to query.\n
END
    answers '0, A, 0\n1, A, 3\n2, A, Yes\n' 0
    expect 1 'GPU 1 2: uncorrected errors' $health
    answers '0, A, 0\n1, A, [Unknown Error]\n' 0
    expect 1 'GPU 1: nvidia-smi cannot read' $health
    answers 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot\n' 15
    expect 1 'fails (exit code 15): Unable to determine the device handle' $health
}

# The emulated GPU trainer, started by a script for two steps, then for two more.
by_script="scripts/run_gpt2_124M.sh $gpu --total_batch_size 64 --batch_size 1 $quiet --save_every 2"

twice() { # FOLDER command...
    folder=$1
    shift
    for steps in 2 4; do must env TRAINER="$cuda" GPUS=2 "$@" $by_script $data --max_steps $steps --out "$folder"; done
    grep -q 'resumed after step 2' "$dir/err" || note "$folder: did not go on: $(tail -n 1 "$dir/err")"
    [ -d "$folder/step_00000004" ] || note "$folder: nothing was saved"
}

scripts_start_several_processes() {
    twice "$dir/local" sh
    twice "$dir/node" env MASTER_ADDR=127.0.0.1 NODES=1 NODE=0 sh scripts/multi_node/node.sh
    echo 'localhost slots=2' >"$dir/hosts"
    twice "$dir/mpi" env HOSTFILE="$dir/hosts" sh scripts/multi_node/mpi.sh
    for way in node mpi; do close=1e-12; same "$dir/local" "$dir/$way"; done
    unset close
    expect 2 'HOSTFILE names one' env HOSTFILE="$dir/none" sh scripts/multi_node/mpi.sh scripts/run_gpt2_124M.sh
    expect 2 'NODE must be from 0' \
        env MASTER_ADDR=127.0.0.1 NODES=2 NODE=2 sh scripts/multi_node/node.sh scripts/run_gpt2_124M.sh
    expect 2 'MASTER_ADDR' sh scripts/multi_node/node.sh scripts/run_gpt2_124M.sh
    for wrong in NODE=x NODE=-1 NODES=two GPUS=0 GPUS=all; do
        expect 2 'must be ' env MASTER_ADDR=127.0.0.1 NODES=2 NODE=1 $wrong sh scripts/multi_node/node.sh "$dir/none"
    done
}

# The signal comes before the first process is started: node.sh calls seq just before, and ssh.sh quotes the first host.
signals_end_node_and_ssh_while_they_start() {
    mkdir "$dir/bin"
    printf '#!/bin/sh\nkill -TERM $PPID\nexec %s "$@"\n' "$(command -v seq)" >"$dir/bin/seq"
    cat >"$dir/bin/sed" <<END
#!/bin/sh
text=\$(cat)
[ "\$text" != first ] || kill -TERM "\$(cat "$dir/pid")"
printf '%s' "\$text" | $(command -v sed) "\$@"
END
    printf '#!/bin/sh\nexec cat\n' >"$dir/bin/ssh"
    chmod +x "$dir/bin/seq" "$dir/bin/sed" "$dir/bin/ssh"
    echo "echo started >>'$dir/started'" >"$dir/script"
    must env PATH="$dir/bin:$PATH" MASTER_ADDR=here NODES=1 NODE=0 GPUS=2 sh scripts/multi_node/node.sh "$dir/script"
    [ ! -e "$dir/started" ] || note "node.sh started $(wc -l <"$dir/started") ranks after the signal"
    must timeout 60 sh -c 'echo $$ >"$0/pid"; PATH="$0/bin:$PATH" HOSTS="first second" exec sh "$@"' "$dir" \
        scripts/multi_node/ssh.sh "$dir/script"
}

# A stand-in for mpirun starts the command, or has not yet done so, and tells by which signal it is stopped.
mpi_stops_a_run_that_has_begun_in_another_way() {
    mkdir "$dir/bin"
    cat >"$dir/bin/mpirun" <<'END'
#!/bin/sh
trap 'kill $command; exit 12' USR2
trap 'exit 15' TERM
until [ "$1" = sh ]; do shift; done
command=
[ -n "$STARTS" ] && { "$@" & command=$!; }
[ -n "$STARTS" ] || echo begun
while :; do sleep 0.1; done
END
    chmod +x "$dir/bin/mpirun"
    echo 'localhost slots=1' >"$dir/hosts"
    echo 'echo begun; exec sleep 600' >"$dir/script"
    for case in 15: 12:1; do
        begin env PATH="$dir/bin:$PATH" STARTS="${case#*:}" HOSTFILE="$dir/hosts" \
            sh scripts/multi_node/mpi.sh "$dir/script"
        await begun "$dir/out" $pid
        kill -TERM $pid
        ends "${case%:*}" $pid
    done
}

# Rank 1, and the second host, fail at once; the others would wait for them.
a_failed_start_ends_the_others() {
    echo '[ "$RANK" != 1 ] || { echo no data >&2; exit 7; }; exec sleep 600' >"$dir/script"
    mkdir "$dir/bin"
    printf '#!/bin/sh\n[ "$1" = first ] || exit 255\nexec cat\n' >"$dir/bin/ssh"
    chmod +x "$dir/bin/ssh"
    PATH="$dir/bin:$PATH" HOSTS="first second" sh scripts/multi_node/ssh.sh "$dir/script" >"$dir/hosts" 2>&1 & pid=$!
    expect 7 'no data' env MASTER_ADDR=here NODES=1 NODE=0 GPUS=3 sh scripts/multi_node/node.sh "$dir/script"
    ends 255 $pid "$dir/hosts"
}

# Writes stand-ins for Slurm's commands into $dir/bin. srun starts two tasks and stores their ids for scancel.
slurm_commands() { # no test
    mkdir -p "$dir/bin"
    cat >"$dir/bin/srun" <<'END'
#!/bin/sh
[ "$1 $2" = "--mpi=none --kill-on-bad-exit=1" ] || exit 9
shift 2
tasks=
for id in 0 1; do
    SLURM_PROCID=$id SLURM_LOCALID=$id SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 "$@" &
    tasks="$tasks $!"
done
echo "$tasks" >"$SLURM_TEST/tasks"
for task in $tasks; do wait "$task" || exit $?; done
END
    cat >"$dir/bin/scancel" <<'END' # ends after the tasks: the batch script is still in its trap then
#!/bin/sh
[ "$*" = "--signal=TERM 77" ] && kill -TERM $(cat "$SLURM_TEST/tasks")
for i in $(seq 600); do
    kill -0 $(cat "$SLURM_TEST/tasks") 2>/dev/null || break
    sleep 0.1
done
sleep 0.3
END
    printf '#!/bin/sh\ncase $1 in show) echo 127.0.0.1; echo other ;; *) echo "$*" >"$SLURM_TEST/$1" ;; esac\n' \
        >"$dir/bin/scontrol"
    chmod +x "$dir/bin/srun" "$dir/bin/scancel" "$dir/bin/scontrol"
}

a_slurm_job_saves_at_its_end_and_goes_on() {
    slurm_commands
    slurm="env PATH=$dir/bin:$PATH SLURM_TEST=$dir SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=77 SLURM_JOB_NODELIST=n \
        SLURM_CPUS_PER_TASK=1 TRAINER=$cuda sh scripts/multi_node/slurm.sh $by_script $data --out $dir/run"
    begin $slurm --max_steps 100000
    await 'step .*5/' "$dir/out" $pid
    kill -USR1 $pid
    ends 0 $pid
    [ "$(cat "$dir/requeue" 2>&1)" = "requeue 77" ] || note "not back into the queue"
    rm -f "$dir/requeue"
    last=$(ls "$dir/run" | sed -n 's/step_0*//p' | tail -n 1)
    must $slurm --max_steps $((last + 2))
    grep -q "resumed after step $last" "$dir/err" || note "did not go on after step $last: $(tail -n 1 "$dir/err")"
    [ ! -e "$dir/requeue" ] || note "a finished run was queued again"
}

run_tests
