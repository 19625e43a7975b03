# GPT-2 in C and CUDA. `make help` lists the targets.
#
#   config=release|debug|sanitize   optimized (default); for the debugger; with address and undefined behaviour checks
#   config=thread|memcheck          for test/watched.sh: reports data races (CC=clang); not too slow under valgrind
#   LEVELS="generic avx2 ..."       instruction sets to build CPU kernels for; the program takes the best it can run
#   ARCH=...                        gcc's -march for everything else; default: the compiler's
#   CC=gcc                          or clang
#   MPI=0|1 NCCL=0|1                several processes; default: 1 if mpicc, or nccl.h, is found
#   ZLIB=0|1 ZSTD=0|1 SNAPPY=0|1    compressed input of ./prepare; default: 1 if the library's headers are found
#   CUDNN=0|1                       attention by cuDNN too; default: 1 if cuDNN and its frontend's headers are found
#   GPU="80 90"                     compute capabilities that train_gpt2cu is built for; default: this GPU's, or "80 90"
#   GPU=all                         75 80 86 89 90 100 120

MAKEFLAGS += --no-builtin-rules
comma := ,
hash  := \#

config ?= release
CC     ?= cc
CXX    ?= c++

BUILD := build/$(config)
OPT_release  := -O3
OPT_debug    := -O0 -g
OPT_sanitize := -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT_thread   := -O1 -g1 -fsanitize=thread
OPT_memcheck := -O1 -g1
OPT_fuzz     := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined
OPT := $(OPT_$(config))
KERNEL_OPT_sanitize := -O1 # the loops that take long; at -O0 all else compiles three times as fast
TEST_OPT_release := -O1 # of test programs: compiles faster, and no time is measured
$(if $(OPT),,$(error config=$(config) is not one of release, debug, sanitize, thread, memcheck, fuzz))

# -ffp-contract=fast allows fused multiply-adds, which -std=c11 forbids. -fno-math-errno and -fno-trapping-math let gcc
# vectorize loops with square roots or comparisons: nothing here reads errno or the floating-point flags after them.
# Never -ffast-math: NaN must stay NaN.
FLAGS   := $(OPT) $(if $(ARCH),-march=$(ARCH)) -ffp-contract=fast -fno-math-errno -fno-trapping-math -D_GNU_SOURCE \
    -Wall -Wextra -MMD -MP
CFLAGS   = -std=c11 $(FLAGS)
LDFLAGS := $(filter -fsanitize%,$(OPT)) -Wl,-z,relro,-z,now
# everything but the kernels, which take no data from others
HARDEN  := $(if $(filter release,$(config)),-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
LDLIBS  := -ljansson -lm -lpthread

# Optional: OpenMP. Without it the programs run on one thread.
OPENMP := $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c - -o /dev/null 2>/dev/null && echo -fopenmp)
FLAGS += $(OPENMP) $(if $(OPENMP),,-Wno-unknown-pragmas -fopenmp-simd)
# not empty if $(CC) compiles for x86-64
IS_X86 := $(filter x86_64%,$(shell $(CC) -dumpmachine))
# gcc 12 for aarch64 ends with an internal error at loops that reduce floats or bf16 by fmax of a wider type
FLAGS += $(if $(IS_X86),,-fno-builtin-fmax -fno-builtin-fmaxf -fno-builtin-fmin -fno-builtin-fminf)
# clang warns of `omp simd` loops that it does not vectorize; they need no change
FLAGS += $(if $(findstring clang,$(shell $(CC) --version)),-Wno-pass-failed)
LDFLAGS += $(OPENMP)
# $(call has_header,NAME.h): 1 or 0
has_header = $(or $(shell echo '$(hash)include <$(1)>' | $(CC) -E -x c - >/dev/null 2>&1 && echo 1),0)
# Optional: zlib, libzstd and libsnappy, for compressed input of ./prepare (llmc/prepare/compression.h). Only
# programs that call them are linked with them.
ZLIB   ?= $(call has_header,zlib.h)
ZSTD   ?= $(call has_header,zstd.h)
SNAPPY ?= $(call has_header,snappy-c.h)
DECOMPRESSION := $(if $(filter 1,$(ZLIB)),-lz) $(if $(filter 1,$(ZSTD)),-lzstd) $(if $(filter 1,$(SNAPPY)),-lsnappy)
LDLIBS += $(if $(strip $(DECOMPRESSION)),-Wl$(comma)--as-needed $(DECOMPRESSION) -Wl$(comma)--no-as-needed)
FLAGS_llmc/prepare/compression := $(if $(filter 1,$(ZLIB)),-DHAS_ZLIB) $(if $(filter 1,$(ZSTD)),-DHAS_ZSTD) \
    $(if $(filter 1,$(SNAPPY)),-DHAS_SNAPPY)
# Optional: MPI, for several CPU processes, and to start GPU processes by mpirun. mpicc knows MPI's paths and libraries.
MPICC ?= mpicc
MPI   ?= $(if $(shell command -v $(MPICC) 2>/dev/null),1,0)
ifeq ($(MPI),1)
WITH_MPI = OMPI_CC='$(1)' MPICH_CC='$(1)' $(MPICC)
MPI_FLAGS := -DHAS_MPI
else
WITH_MPI = $(1)
endif
# Optional: the CUDA toolkit. Without it only the CPU half is built.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),/usr/local/cuda)
NVCC      := $(wildcard $(CUDA_HOME)/bin/nvcc)
GPU       := $(or $(GPU),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
    tr -d . | grep -xE '[0-9]+' | sort -un),80 90)
GPUS      := $(if $(filter all,$(GPU)),75 80 86 89 90 100 120,$(GPU))
NO_NVCC    = no nvcc in the path or in $(CUDA_HOME)
# Optional: attention by cuDNN. `sh scripts/setup.sh cudnn` downloads the headers of its frontend.
CUDNN_FRONTEND ?= $(patsubst %/cudnn_frontend.h,%,$(firstword $(wildcard $(addsuffix /cudnn_frontend.h,\
    build/cudnn_frontend/include $(CUDA_HOME)/include /usr/local/include /usr/include))))
CUDNN_HEADER   := $(firstword $(wildcard $(CUDA_HOME)/include/cudnn.h /usr/include/cudnn.h \
    /usr/include/$(shell uname -m)-linux-gnu/cudnn.h))
CUDNN          ?= $(if $(and $(NVCC),$(CUDNN_HEADER),$(CUDNN_FRONTEND)),1,0)
JANSSON := $(filter 1,$(call has_header,jansson.h))

.PHONY: all train_gpt2 train_gpt2cu prepare emu amx tests test headers fuzz fuzzers mutators clean help \
    install uninstall dist check-packages libraries
# only the optimized programs get a name in the top folder
PROGRAMS := train_gpt2 prepare $(if $(NVCC),$(if $(filter release,$(config)),train_gpt2cu))
all: $(if $(filter release,$(config)),$(PROGRAMS),$(PROGRAMS:%=$(BUILD)/%))
	@$(if $(NVCC),,echo '$(NO_NVCC): train_gpt2cu was not built (CUDA_HOME=... says where it is)')

FOUND = $(CC)$(if $(OPENMP),, without OpenMP), \
    $(if $(NVCC),$(NVCC) for GPU="$(strip $(GPUS))",no nvcc), \
    $(if $(filter 1,$(MPI)),MPI,no mpicc), \
    $(or $(strip $(foreach l,ZLIB ZSTD SNAPPY,$(if $(filter 1,$($(l))),$(l)))),no decompression), \
    $(if $(filter 1,$(NCCL)),NCCL,no NCCL), \
    $(if $(filter 1,$(CUDNN)),cuDNN,no cuDNN or no frontend for it: sh scripts/setup.sh cudnn), \
    $(if $(JANSSON),jansson,no jansson: sh scripts/setup.sh installs it)
help:
	@echo 'make                 train_gpt2 (the CPU trainer) and prepare (text to token files)'
	@echo 'make train_gpt2cu    the GPU trainer (part of make where nvcc is)'
	@echo 'make emu             the GPU trainer on the CPU, every kernel emulated: build/emu/train_gpt2cu'
	@echo 'make amx             the CPU trainer with AMX, its tiles emulated: build/amx/train_gpt2'
	@echo 'make test            build and run the tests'
	@echo 'make headers         compile each header alone, as C11 and, where C++ includes it, as C++20'
	@echo 'make fuzz            the fuzz targets, with clang (build/fuzz/*)'
	@echo 'make lint            clang-tidy and cppcheck, where they are installed'
	@echo 'make install         copy the programs to PREFIX/bin (/usr/local/bin); DESTDIR=FOLDER goes before it'
	@echo 'make uninstall       remove them from there'
	@echo 'make dist            the tarball of a release, of the last commit: build/gpt2.c-VERSION.tar.gz'
	@echo 'make clean           remove everything that was built'
	@echo 'config=release|debug|sanitize   LEVELS="generic avx2 ..."   CC=gcc|clang'
	@echo 'GPU="80 90"   MPI=0|1   NCCL=0|1   CUDNN=0|1   ZLIB=0|1   ZSTD=0|1   SNAPPY=0|1'
	@echo 'found: $(FOUND)'

check-packages:
	$(if $(JANSSON),,$(error jansson.h is missing: install libjansson-dev, or run `sh scripts/setup.sh`))

# ----------------------------------------------------------------------------------------------------------------------
# programs: built under build/CONFIG, the release ones linked into the top folder

# The library: everything but main() and the kernels. It is the same for all backends.
HOST_SOURCES := $(filter-out llmc/commands/main.c $(if $(filter 1,$(MPI)),,llmc/comm/mpi.c),$(wildcard llmc/*/*.c)) \
    data/stories.c
HOST_OBJECTS := $(HOST_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/llmc/tokenizer/tokenizer_data.o
LIBRARY      := $(BUILD)/libllmc.a

# The CPU's backends: train_gpt2.c, compiled once for each storage type and instruction set (llmc/cpu/processor.h).
LEVELS ?= generic $(if $(IS_X86),avx2 avx512 avx512_bf16 amx)
LEVEL_generic     :=
LEVEL_avx2        := -march=x86-64-v3
LEVEL_avx512      := -march=x86-64-v4 -mprefer-vector-width=512
LEVEL_avx512_bf16 := $(LEVEL_avx512) -mavx512bf16
LEVEL_amx         := $(LEVEL_avx512_bf16) -mamx-tile -mamx-bf16
FP32_OBJECTS := $(patsubst %,$(BUILD)/cpu_fp32_%.o,$(filter generic avx2 avx512,$(LEVELS)))
BF16_OBJECTS := $(patsubst %,$(BUILD)/cpu_bf16_%.o,$(LEVELS))
FP16_OBJECTS := $(FP32_OBJECTS:$(BUILD)/cpu_fp32_%=$(BUILD)/cpu_fp16_%)
CPU_OBJECTS  := $(FP32_OBJECTS) $(BF16_OBJECTS) $(FP16_OBJECTS)
FP32_GENERIC := $(BUILD)/cpu_fp32_generic.o

train_gpt2 train_gpt2cu prepare: %: build/release/%
	@ln -sf $< $@
	@$(if $(filter train_gpt2cu,$@),$(WARN_OF_NO_CUDNN))

$(BUILD)/train_gpt2: $(BUILD)/llmc/commands/main.o $(CPU_OBJECTS) $(LIBRARY)
	$(call WITH_MPI,$(CC)) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(BUILD)/prepare: $(BUILD)/data/prepare.o $(LIBRARY)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

$(LIBRARY): $(HOST_OBJECTS)
	@rm -f $@
	ar rcs $@ $^
# of cpu_fp32_avx2.o
type_of  = $(firstword $(subst _, ,$*))
level_of = $(patsubst $(type_of)_%,%,$*)
$(CPU_OBJECTS): $(BUILD)/cpu_%.o: train_gpt2.c | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(KERNEL_OPT_$(config)) $(LEVEL_$(level_of)) -DFLOATX=$(type_of) -DLEVEL=$(level_of) -c $< -o $@
MPI_OBJECTS := $(BUILD)/llmc/commands/main.o $(BUILD)/llmc/comm/mpi.o
C_OBJECTS   := $(filter-out $(MPI_OBJECTS),$(HOST_SOURCES:%.c=$(BUILD)/%.o)) $(BUILD)/data/prepare.o
$(C_OBJECTS): $(BUILD)/%.o: %.c | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(HARDEN) $(FLAGS_$*) -c $< -o $@
$(MPI_OBJECTS): $(BUILD)/%.o: %.c | check-packages
	@mkdir -p $(@D)
	$(call WITH_MPI,$(CC)) $(CFLAGS) $(HARDEN) $(MPI_FLAGS) -c $< -o $@
$(BUILD)/llmc/tokenizer/tokenizer_data.o: llmc/tokenizer/tokenizer_data.S data/gpt2_tokenizer.bin
	@mkdir -p $(@D)
	$(CC) -c $< -o $@

# for --version; only here, not in a repository around this folder
COMMIT := $(if $(wildcard .git),$(shell git describe --always --dirty 2>/dev/null))
FLAGS_llmc/base/release = $(if $(COMMIT),-DBUILD_COMMIT='"$(COMMIT)"')
GPU_LIBRARIES = $(comma) cuBLASLt$(if $(filter 1,$(NCCL)),$(comma) NCCL)$(if $(filter 1,$(CUDNN)),$(comma) cuDNN)
FLAGS_llmc/commands/version = -DBUILD_LIBRARIES='"$(if $(filter 1,$(MPI)),$(comma) MPI)"' \
    -DBUILD_GPU_LIBRARIES='"$(GPU_LIBRARIES)"'

# The GPU trainer: machine code for each compute capability in $(GPUS), and PTX of the last one for later GPUs. The
# driver's library is not linked, so that the program starts without a driver and can say that it is missing.
CUDA_OBJECTS := $(BUILD)/cuda_fp32.o $(BUILD)/cuda_bf16.o $(BUILD)/cuda_fp16.o
GENCODE      := $(foreach sm,$(GPUS),-gencode arch=compute_$(sm),code=sm_$(sm)) \
                -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS))
NVCC_release  := -O3 -lineinfo
NVCC_debug    := -O0 -g -lineinfo
NVCC_sanitize := -O1 -g -lineinfo -Xcompiler -fsanitize=undefined
NVCCFLAGS     = $(NVCC_$(config)) -std=c++20 -D_GNU_SOURCE $(GENCODE) --threads 0 \
    -Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas $(if $(OPENMP),-Xcompiler -fopenmp) -Xptxas -v
CUDNN_OBJECT := $(if $(filter 1,$(CUDNN)),$(BUILD)/attention_cudnn.o)
# Optional: NCCL, for several GPUs.
HAS_NCCL_H  = $(shell echo '$(hash)include <nccl.h>' | $(NVCC) -E -x cu - >/dev/null 2>&1 && echo 1)
NCCL       ?= $(if $(NVCC),$(or $(HAS_NCCL_H),0),0)
NCCL_FLAGS := $(if $(filter 1,$(NCCL)),-DHAS_NCCL)
CUDA_LIB64 := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64
CUDA_LIBS  := $(CUDA_LIB64) $(if $(CUDNN_OBJECT),-lcudnn) $(if $(NCCL_FLAGS),-lnccl) \
    -lcublasLt -lcudart_static -ldl -lrt

CUDA_LINKED := $(CUDA_OBJECTS) $(CUDNN_OBJECT) $(FP32_OBJECTS) $(LIBRARY)
$(BUILD)/train_gpt2cu: $(BUILD)/llmc/commands/main.o $(CUDA_LINKED)
	$(call WITH_MPI,$(CXX)) $(LDFLAGS) $(filter %.o %.a,$^) -o $@ $(CUDA_LIBS) $(LDLIBS)
# -O1 is enough for a file that only calls cuDNN, and takes less of the long time that its headers need to compile
CUDNN_FLAGS := -std=c++17 -O1 -D_GNU_SOURCE -Wall -Wextra -DCUDNN_FRONTEND_SKIP_JSON_LIB \
    -isystem $(CUDA_HOME)/include -isystem $(CUDNN_FRONTEND)
NO_CUDNN     = cudnn.h: install cuDNN, or leave CUDNN out
NO_FRONTEND  = cudnn_frontend.h: run `sh scripts/setup.sh cudnn`, or give CUDNN_FRONTEND=FOLDER
# Said at the end of a build without cuDNN, unless CUDNN=0 was given.
WARN_OF_NO_CUDNN = $(if $(filter file,$(origin CUDNN)),$(if $(filter 1,$(CUDNN)),,printf '%s\n' \
    '========================================================================================' \
    'warning: train_gpt2cu has NO CUDNN, whose attention may be faster than ours.' \
    'There is no $(if $(CUDNN_HEADER),$(NO_FRONTEND),$(NO_CUDNN)).' \
    'CUDNN=0 silences this.' \
    '========================================================================================' >&2))
$(BUILD)/attention_cudnn.o: llmc/cuda/attention_cudnn.cpp | $(BUILD)
	$(if $(CUDNN_HEADER),,$(error CUDNN=1: no $(NO_CUDNN)))
	$(if $(CUDNN_FRONTEND),,$(error CUDNN=1: no $(NO_FRONTEND)))
	$(CXX) $(CUDNN_FLAGS) -MMD -MP -c $< -o $@
# Keeps ptxas' report of registers and spills beside the object: test/spills.sh reads it.
$(CUDA_OBJECTS): $(BUILD)/cuda_%.o: train_gpt2.cu | $(BUILD) check-packages
	$(if $(NVCC),,$(error $(NO_NVCC): install the CUDA toolkit, or set CUDA_HOME; `make train_gpt2` needs none))
	$(NVCC) $(NVCCFLAGS) $(NCCL_FLAGS) -DFLOATX=$* -MD -MP -MF $(@:.o=.d) -c $< -o $@ >$(@:.o=.ptxas) 2>&1 || \
	    { cat $(@:.o=.ptxas) >&2; exit 1; }
	@grep -v -E '^ptxas info|bytes stack frame|^$$' $(@:.o=.ptxas) >&2 || true

# the graphs given to cuDNN, checked without a GPU (test/cudnn.sh)
$(BUILD)/test_cudnn_graphs: test/cudnn/test_graphs.cpp $(addprefix llmc/cuda/attention_cudnn,.cpp .h) | $(BUILD)
	$(CXX) $(CUDNN_FLAGS) $< -o $@ $(CUDA_LIB64) -lcudnn

# Builds again when flags have changed: objects depend on files that hold them.
$(shell mkdir -p $(BUILD))
# $(call record,FILE,TEXT): writes TEXT to FILE if FILE holds another text
differ = $(filter-out x$(1),x$(2))$(filter-out x$(2),x$(1))
held   = $(strip $(shell cat $(BUILD)/$(1) 2>/dev/null))
record = $(if $(call differ,$(call held,$(1)),$(strip $(2))),$(file >$(BUILD)/$(1),$(strip $(2))))
$(call record,settings,$(CC) $(CFLAGS) $(KERNEL_OPT_$(config)) $(TEST_OPT_$(config)) $(HARDEN) $(LDFLAGS) $(LEVELS) \
    $(MPI_FLAGS))
$(call record,cuda_settings,$(NVCC) $(NVCCFLAGS) $(NCCL_FLAGS))
$(call record,cudnn_settings,$(CUDNN_OBJECT))
$(call record,version_settings,$(FLAGS_llmc/base/release) $(FLAGS_llmc/commands/version))
$(call record,compression_settings,$(FLAGS_llmc/prepare/compression))
$(C_OBJECTS) $(MPI_OBJECTS) $(CPU_OBJECTS): $(BUILD)/settings
$(CUDA_OBJECTS): $(BUILD)/cuda_settings
$(BUILD)/train_gpt2cu: $(BUILD)/cudnn_settings
$(BUILD)/llmc/base/release.o $(BUILD)/llmc/commands/version.o: $(BUILD)/version_settings
$(BUILD)/llmc/prepare/compression.o: $(BUILD)/compression_settings
$(BUILD)/settings $(BUILD)/cuda_settings $(BUILD)/cudnn_settings $(BUILD)/version_settings \
$(BUILD)/compression_settings:

# ----------------------------------------------------------------------------------------------------------------------
# the GPU trainer without a GPU: test/emulator/ compiles the same files for the CPU
#
#   make emu                 build/emu/train_gpt2cu, optimized
#   make emu EMU=check       build/emu-check/...: stops at wrong addresses and undefined behaviour
#   make emu EMU=race        build/emu-race/...: reports data races or, with EMU_TRAFFIC=FILE in the environment, counts
#                            the memory traffic of each kernel
#   make emu EMU=coverage    build/emu-coverage/...: counts the lines that run

EMU ?= plain
EMU_BUILD := build/emu$(if $(filter plain,$(EMU)),,-$(EMU))
EMU_OPT_plain := -O2
EMU_OPT_coverage := -O1
EMU_OPT_check := -O0
EMU_FLAGS := $(EMU_OPT_$(EMU)) -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -D_GNU_SOURCE
EMUCC       := test/emulator/emucc $(if $(filter plain,$(EMU)),,--$(EMU)) $(EMU_FLAGS)
# fp16's kernels are bf16's: the checking builds leave them out
EMU_TYPES   := fp32 bf16 $(if $(filter plain coverage,$(EMU)),fp16)
EMU_OBJECTS := $(EMU_TYPES:%=$(EMU_BUILD)/cuda_%.o)
EMU_CUDNN   := $(EMU_BUILD)/attention_cudnn.o
EMU_SOURCES := $(wildcard llmc/*/*.h llmc/cuda/*.cuh llmc/cuda/*.h \
    test/emulator/*.c test/emulator/emucc test/emulator/include/*.h test/emulator/include/*/*.h)
EMU_TESTS   := $(EMU_BUILD)/test_attention_forms

emu: $(EMU_BUILD)/train_gpt2cu $(EMU_TESTS) $(if $(filter race,$(EMU)),$(EMU_BUILD)/test_full_size)
$(EMU_OBJECTS): $(EMU_BUILD)/cuda_%.o: train_gpt2.cu $(EMU_SOURCES)
	@mkdir -p $(@D)
	@rm -f $(@:.o=.gcda) # gcov's counts belong to the old object
	$(EMUCC) -DHAS_NCCL -DFLOATX=$* -c $< -o $@
$(EMU_CUDNN): test/emulator/attention_cudnn.cu $(EMU_SOURCES)
	@mkdir -p $(@D)
	@rm -f $(@:.o=.gcda)
	$(EMUCC) -c $< -o $@
EMU_LINKED   := $(EMU_OBJECTS) $(EMU_CUDNN) $(FP32_OBJECTS) $(LIBRARY)
TEST_FORMS := $(BUILD)/test/check/test_attention_forms.o
$(TEST_FORMS): test/check/test_attention_forms.c $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -I. -c $< -o $@
$(EMU_BUILD)/test_attention_forms: $(TEST_FORMS) $(EMU_LINKED)
	$(CXX) $(EMU_LINK_$(EMU)) $(LDFLAGS) $^ -o $@ $(LDLIBS) -ldl
# the same on a GPU
$(BUILD)/cuda_test_attention_forms: $(TEST_FORMS) $(CUDA_LINKED)
	$(CXX) $(LDFLAGS) $^ -o $@ $(CUDA_LIBS) $(LDLIBS)
$(EMU_BUILD)/test_full_size: test/test_full_size.cu $(EMU_LINKED)
	$(EMUCC) -Wno-deprecated-enum-enum-conversion $< $(filter %.o %.a,$^) -o $@ $(if $(OPENMP),-lgomp) $(LDLIBS) -ldl
EMU_LINK_check    := -fsanitize=address,undefined
EMU_LINK_coverage := --coverage
$(EMU_BUILD)/train_gpt2cu: $(BUILD)/llmc/commands/main.o $(EMU_LINKED)
	$(call WITH_MPI,$(CXX)) $(EMU_LINK_$(EMU)) $(LDFLAGS) $^ -o $@ $(LDLIBS) -ldl

# ----------------------------------------------------------------------------------------------------------------------
# tests

# The AMX backend with its tiles emulated (test/amx), for processors that have AVX512_BF16 but no AMX. Test programs and
# build/amx/train_gpt2 are linked with it.
AMX_EMULATED := $(BUILD)/amx_emulated/cpu_bf16_amx.o
$(AMX_EMULATED): train_gpt2.c $(wildcard test/amx/*.h) $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Itest/amx $(LEVEL_amx) -DFLOATX=bf16 -DLEVEL=amx -c $< -o $@
$(BUILD)/amx_emulated/backends.o: llmc/train/backends.c test/amx/processor.h $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -include test/amx/processor.h -c $< -o $@
WITH_AMX := $(BUILD)/amx_emulated/backends.o $(AMX_EMULATED) $(filter-out %_amx.o,$(CPU_OBJECTS))
# Tests of all backends emulate AMX on processors of x86-64 that lack it.
HAS_AMX := $(shell grep -w amx_bf16 /proc/cpuinfo 2>/dev/null)
TEST_BACKENDS := $(if $(IS_X86),$(if $(HAS_AMX),$(CPU_OBJECTS),$(WITH_AMX)),$(CPU_OBJECTS))
# A test program is named like its source, and linked with all backends.
TEST_SOURCES := $(filter-out test/amx/%,$(wildcard test/test_*.c test/*/test_*.c))
TESTS := $(addprefix $(BUILD)/,$(notdir $(TEST_SOURCES:.c=)))
vpath test_%.c $(sort $(dir $(TEST_SOURCES)))
$(TESTS): $(BUILD)/test_%: test_%.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(CFLAGS) $(TEST_OPT_$(config)) -I. $(LDFLAGS) $< $(filter %.o,$^) $(LIBRARY) -o $@ $(LDLIBS)
BACKEND_TESTS := $(addprefix $(BUILD)/,\
    test_backends test_operations test_cpu test_matmul test_attention test_attention_forms test_gpt2 test_generate \
    test_score)
$(BACKEND_TESTS): $(TEST_BACKENDS)
$(filter-out $(BACKEND_TESTS),$(TESTS)): $(CPU_OBJECTS)

ifneq ($(filter amx,$(LEVELS)),)
TESTS += $(BUILD)/test_amx
$(BUILD)/test_amx: test/amx/test_amx.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(CFLAGS) -I. -Itest/amx $(LEVEL_amx) $(LDFLAGS) $< $(LIBRARY) -o $@ $(LDLIBS)
endif
amx: build/amx/train_gpt2
build/amx/train_gpt2: $(BUILD)/llmc/commands/main.o $(WITH_AMX) $(LIBRARY)
	@mkdir -p $(@D)
	$(call WITH_MPI,$(CC)) $(LDFLAGS) $^ -o $@ $(LDLIBS)

# programs for the tests of several processes
COMPARER   := $(BUILD)/compare_checkpoints
RANK_TOOLS := $(COMPARER) $(if $(filter 1,$(MPI)),$(BUILD)/count_collectives.so)
$(COMPARER): $(BUILD)/%: test/%.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(CFLAGS) -I. $(LDFLAGS) $< $(LIBRARY) -o $@ $(LDLIBS)
$(BUILD)/count_collectives.so: test/comm/count_collectives.c
	@mkdir -p $(@D)
	$(call WITH_MPI,$(CC)) -O1 -fPIC -shared $< -o $@

tests: $(TESTS) $(RANK_TOOLS)

# fuzz targets, with clang's libFuzzer: build/fuzz/fuzz_*
fuzz:
	@$(MAKE) --no-print-directory config=fuzz CC=clang MPI=0 fuzzers
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/%,$(wildcard test/fuzz/fuzz_*.c))
fuzzers: $(FUZZERS)
$(FUZZERS): $(BUILD)/%: test/fuzz/%.c $(FP32_GENERIC) $(LIBRARY)
	$(CC) $(CFLAGS) -I. -fsanitize=fuzzer $(LDFLAGS) $< $(FP32_GENERIC) $(LIBRARY) -o $@ $(LDLIBS)

# the same targets without libFuzzer: build/sanitize/mutate_* with config=sanitize (test/fuzz/mutate.c)
MUTATORS := $(patsubst test/fuzz/fuzz_%.c,$(BUILD)/mutate_%,$(wildcard test/fuzz/fuzz_*.c))
mutators: $(MUTATORS)
$(MUTATORS): $(BUILD)/mutate_%: test/fuzz/fuzz_%.c test/fuzz/mutate.c $(FP32_GENERIC) $(LIBRARY)
	$(CC) $(CFLAGS) -MF $@.d -I. $(LDFLAGS) $(filter %.c %.o,$^) $(LIBRARY) -o $@ $(LDLIBS)

# Headers that must compile alone: as C11, and those that .cu files include as C++20 too
PARTS       := llmc/cpu/tile_%.h llmc/cpu/encoder.h llmc/cpu/layernorm.h # of other headers
HEADERS     := $(filter-out $(PARTS) llmc/cuda/attention_cudnn.h $(if $(filter 1,$(MPI)),,llmc/comm/mpi.h),\
                            $(wildcard llmc/*/*.h data/*.h test/*.h))
CPP_HEADERS := llmc/model/backend.h llmc/base/rng.h llmc/base/rounding.h $(wildcard llmc/cuda/*.h) \
    $(shell grep -l '^BEGIN_C' llmc/*/*.h)
headers: check-packages
	@for h in $(HEADERS); do \
	    $(CC) $(CFLAGS) -Wno-unused-function -Wno-unused-const-variable -Werror -MF /dev/null -fsyntax-only \
	        -include $$h -x c /dev/null || exit 1; \
	done; echo "$(words $(HEADERS)) headers compile alone as C11"
	@! command -v $(CXX) >/dev/null || { for h in $(CPP_HEADERS); do \
	    $(CXX) $(FLAGS) -std=c++20 -idirafter test/emulator/include -Wno-unused-function -Werror -MF /dev/null \
	        -fsyntax-only -include $$h -x c++ /dev/null || exit 1; \
	done; echo "$(words $(CPP_HEADERS)) of them as C++20"; }

# Static analysis: clang-tidy with the checks of .clang-tidy, cppcheck without what test/cppcheck.txt lists
LINTED := $(filter-out $(if $(filter 1,$(MPI)),,llmc/comm/mpi.c),$(HOST_SOURCES)) data/prepare.c
LINT_FLAGS := -std=c11 -D_GNU_SOURCE -I. $(OPENMP) $(FLAGS_llmc/prepare/compression)
JOBS := $(shell nproc 2>/dev/null || echo 1)
lint:
	@if command -v clang-tidy >/dev/null; then \
	    echo $(filter-out llmc/comm/mpi.c,$(LINTED)) | xargs -P $(JOBS) -n 4 sh -c \
	        'clang-tidy --quiet "$$@" -- $(LINT_FLAGS) 2>/dev/null' sh && echo "clang-tidy: nothing found"; \
	else echo "skipped clang-tidy: it is not installed"; fi
	@if command -v cppcheck >/dev/null; then \
	    cppcheck -j $(JOBS) --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
	        --suppressions-list=test/cppcheck.txt --error-exitcode=1 -D_GNU_SOURCE -I. $(LINTED) && \
	    echo "cppcheck: nothing found"; \
	else echo "skipped cppcheck: it is not installed"; fi
test: all tests
	@sh test/run.sh $(BUILD)

# Programs alone: they hold GPT-2's tokenizer, and scripts belong to the source. PROGRAMS="train_gpt2 prepare" leaves the
# GPU trainer out.
PREFIX ?= /usr/local
INSTALLED := $(DESTDIR)$(PREFIX)/bin
install: $(PROGRAMS:%=$(BUILD)/%)
	install -d '$(INSTALLED)'
	install -m 755 $^ '$(INSTALLED)'
uninstall:
	rm -f $(foreach p,train_gpt2 train_gpt2cu prepare,'$(INSTALLED)/$(p)')

# The tarball's --version names its commit (llmc/base/release.c).
VERSION = $(shell sed -n 's/^.define PROGRAM_VERSION "\(.*\)"/\1/p' llmc/base/release.c)
dist:
	@mkdir -p build
	git archive --prefix=gpt2.c-$(VERSION)/ -o build/gpt2.c-$(VERSION).tar.gz HEAD

clean:
	rm -rf build train_gpt2 train_gpt2cu prepare

-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d)

# For test/plants.sh, which links the trainer itself.
libraries:
	@echo '$(LDLIBS)'
