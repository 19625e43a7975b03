#!/bin/sh
# Says what nvidia-smi tells of this machine's GPUs that should be looked at before a long run. Exit code 1 if there is
# anything; 0 if all is well, or if nvidia-smi does not tell.
# usage: sh scripts/gpu_health.sh
#
#   a GPU that is lost, or a driver that fails                 a reboot may bring it back
#   uncorrected memory errors since the driver was loaded      the program that ran then has wrong numbers, or died
#   memory rows (A100 and later) or pages to be replaced       a reset of the GPU or a reboot replaces them
#   rows that could not be replaced                            the GPU should go back to its maker
#   clocks held down by heat or power (hardware)               a step takes longer than it should
# (NVIDIA, "GPU Memory Error Management".) The kernel's log tells more: dmesg | grep Xid
set -u
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
found=0
# ask FIELD 'what it means': a field that this driver does not know or tell counts as fine, and so does a machine whose
# nvidia-smi finds no driver. Its exit codes: 8 no power cable, 10 interrupts fail, 14 a damaged infoROM (the answers
# are there), 15 a GPU is lost, 255 another error.
ask() {
    answers=$(timeout -k 1 30 nvidia-smi --query-gpu="index,name,$1" --format=csv,noheader,nounits 2>/dev/null)
    code=$?
    case $code in
    0 | 14) ;;
    8 | 10 | 15 | 255)
        echo "nvidia-smi fails (exit code $code): $(echo "$answers" | grep -v '^[0-9]*,' | head -n 1)" >&2
        exit 1
        ;;
    124 | 137) echo "nvidia-smi does not answer within 30 s: reboot" >&2; exit 1 ;;
    *) return 0 ;;
    esac
    answers=$(printf '%s\n' "$answers" | grep '^[0-9]*,')
    lost=$(printf '%s\n' "$answers" | awk -F ', *' '$NF ~ /Error|ERR|[Ll]ost/ { print $1 }')
    if [ -n "$lost" ]; then
        echo "GPU $(echo "$lost" | paste -sd ' '): nvidia-smi cannot read $1: reboot" >&2
        exit 1
    fi
    bad=$(printf '%s\n' "$answers" | awk -F ', *' '$NF == "Yes" || $NF == "Active" || $NF + 0 > 0 { print $1 }')
    [ -n "$bad" ] || return 0
    echo "GPU $(echo "$bad" | paste -sd ' '): $2 ($1)" >&2
    found=1
}
ask ecc.errors.uncorrected.volatile.total 'uncorrected errors of its memory'
ask remapped_rows.pending 'rows of its memory wait to be replaced: reset it or reboot'
ask retired_pages.pending 'pages of its memory wait to be retired: reboot'
ask remapped_rows.failure 'a row of its memory could not be replaced: the GPU is faulty'
ask clocks_throttle_reasons.hw_thermal_slowdown 'its clocks are held down by heat'
ask clocks_throttle_reasons.hw_power_brake_slowdown 'its clocks are held down by the power supply'
exit $found
