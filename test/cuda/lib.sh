# Functions for the tests of the GPU trainer, every kernel emulated on the CPU (test/emulator/).
. "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
export EMU_CUDNN=0 # else every start would measure cuDNN's attention; some tests do
[ -x "$cuda" ] || { echo "skipped: no $cuda; make emu builds it"; exit 77; }

tiny="$small --batch_size 2 --val_every 0"

is_checking_build() { # succeeds in the build that checks every access, which costs
    case $emu in *-check) return 0 ;; *) return 1 ;; esac
}

is_slow_build() { is_checking_build && [ -z "$long" ]; } # not all is to be tried

# The checking build has no fp16: its kernels are those of bf16.
has_fp16() { ! is_checking_build; }

same_files() { # FOLDER FOLDER STEP: weights and moments of two runs have the same bits
    step=step_$(printf %08d "$3")
    same_checkpoint "$1/$step" "$2/$step"
}
