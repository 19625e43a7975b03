#!/bin/sh
# Profiles a few training steps of train_gpt2cu with NVIDIA's tools; dev/profile/README.md says how to read the results.
#
# usage: sh dev/profile/profile.sh [--out FOLDER] COMMAND
#   timeline [OPTIONS]        nsys: when each kernel ran, and where gaps are
#   bytes [OPTIONS]           ncu: time, bytes and use of the limits of each kernel of one layer
#   kernel REGEX [OPTIONS]    ncu: everything about kernels of that name
# OPTIONS are the trainer's; without: --model gpt2 --batch_size 16 --seq_len 1024. Results: FOLDER (build/profile).
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
out=build/profile
[ "${1:-}" != --out ] || { out=${2:?--out needs a folder}; shift 2; case $out in /*) ;; *) out=$PWD/$out ;; esac; }
CDPATH='' cd "$(dirname "$0")/../.."
what=${1:?usage: profile.sh [--out FOLDER] timeline|bytes|kernel REGEX [OPTIONS]}
shift
case $what in
timeline) tool=nsys ;;
bytes) tool=ncu ;;
kernel) tool=ncu; regex=${1:?profile.sh kernel REGEX: which kernels, for example flash_backward}; shift ;;
*) echo "error: '$what' is not one of timeline, bytes, kernel" >&2; exit 2 ;;
esac
command -v $tool >/dev/null || {
    echo "error: no $tool in the path; the CUDA toolkit has it, in Nsight Systems (nsys) or Nsight Compute (ncu)" >&2
    exit 1
}
[ -x train_gpt2cu ] || { echo "error: no ./train_gpt2cu: run make first" >&2; exit 1; }
[ $# -gt 0 ] || set -- --model gpt2 --batch_size 16 --seq_len 1024
mkdir -p "$out"

data=build/gpu_corpus
[ -f ${data}_val.json ] || ./prepare --stories 4000000 --out $data
layer='forward of layer 5/' again='backward of layer 5/' # all layers but the first and the last are alike
# only steps: no validation, no samples, no files; and no graphs, whose kernels lack the names of their parts
steps="--graph 0 --train_data ${data}_train_*.bin --sample_every 0 --save_every 0"
set -f # the shell must not expand the pattern

case $what in
timeline)
    # six steps, because the first ones choose algorithms and allocate
    nsys profile --trace=cuda,nvtx --force-overwrite=true --output="$out/timeline" \
        ./train_gpt2cu "$@" --max_steps 6 $steps --val_data "" --out ""
    for report in nvtx_gpu_proj_sum cuda_gpu_kern_sum cuda_api_sum; do
        nsys stats --report $report --format table "$out/timeline.nsys-rep" >"$out/timeline_$report.txt"
        cat "$out/timeline_$report.txt"
    done
    echo "open $out/timeline.nsys-rep in Nsight Systems" ;;
bytes)
    # ncu runs each kernel several times, so it takes one layer of one step
    metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
    metrics=$metrics,dram__throughput.avg.pct_of_peak_sustained_elapsed,lts__t_sector_hit_rate.pct
    metrics=$metrics,sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active
    metrics=$metrics,launch__registers_per_thread
    ncu --nvtx --nvtx-include "$layer" --nvtx-include "$again" --nvtx-include "classifier/" --nvtx-include "update/" \
        --metrics $metrics --csv --page raw --log-file "$out/bytes.csv" \
        ./train_gpt2cu "$@" --max_steps 1 $steps --val_data "" --out ""
    echo "$out/bytes.csv" ;;
kernel)
    ncu --set full --import-source yes --kernel-name "regex:$regex" --launch-skip 4 --launch-count 3 --force-overwrite \
        --export "$out/kernel_$(echo "$regex" | tr -c 'a-zA-Z0-9_\n' _)" \
        ./train_gpt2cu "$@" --max_steps 2 $steps --val_data "" --out ""
    echo "open $out/kernel_*.ncu-rep in Nsight Compute, or ncu --import FILE --page details" ;;
esac
