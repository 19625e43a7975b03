# GPT-2 in C and CUDA. test/rules.mk has the rules of tests, emulators and fuzzers.
#
#   make                 train_gpt2 (the CPU trainer), prepare (text to token files), train_gpt2cu where nvcc is
#   make train_gpt2cu    the GPU trainer
#   make install         copy the programs to PREFIX/bin (/usr/local/bin), after DESTDIR; make uninstall removes them
#   make dist            the tarball of a release, of the last commit: build/gpt2.c-VERSION.tar.gz
#   make clean           remove everything that was built
#
#   config=release|debug|sanitize   optimized (default); for the debugger; checks of addresses and undefined behaviour
#   LEVELS="generic avx2 ..."       instruction sets to build CPU kernels for; the program takes the best it can run
#   CC=gcc|clang ARCH=...           compiler, and its -march for everything but CPU kernels; default: the compiler's
#   MPI=0|1 NCCL=0|1                several processes; default: 1 if mpicc, or nccl.h, is found
#   ZLIB=0|1 ZSTD=0|1 SNAPPY=0|1    compressed input of ./prepare; default: 1 if the library's headers are found
#   CUDNN=0|1                       attention by cuDNN too; default: 1 if cuDNN and its frontend's headers are found
#   GPU="80 90"|all                 compute capabilities to build train_gpt2cu for; default: this GPU's, or "80 90"

MAKEFLAGS += --no-builtin-rules
hash := \#
config ?= release
BUILD  := build/$(config)
OPT_release := -O3
OPT_debug   := -O0 -g
OPT = $(OPT_$(config))

# -ffp-contract=fast allows fused multiply-adds, which -std=c11 forbids. -fno-math-errno and -fno-trapping-math let gcc
# vectorize loops with square roots or comparisons: nothing here reads errno or the floating-point flags after them.
# Never -ffast-math: NaN must stay NaN.
FLAGS    = $(OPT) $(if $(ARCH),-march=$(ARCH)) -ffp-contract=fast -fno-math-errno -fno-trapping-math -D_GNU_SOURCE \
    -Wall -Wextra -MMD -MP $(COMPILER_FLAGS)
CFLAGS   = -std=c11 $(FLAGS)
LDFLAGS  = $(filter -fsanitize%,$(OPT)) -Wl,-z,relro,-z,now $(OPENMP)
# everything but the kernels, which take no data from others
HARDEN  := $(if $(filter release,$(config)),-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)

# Optional: OpenMP. Without it the programs run on one thread.
OPENMP := $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c - -o /dev/null 2>/dev/null && echo -fopenmp)
COMPILER_FLAGS := $(or $(OPENMP),-Wno-unknown-pragmas -fopenmp-simd)
# not empty if $(CC) compiles for x86-64
IS_X86 := $(filter x86_64%,$(shell $(CC) -dumpmachine))
# gcc 12 for aarch64 ends with an internal error at loops that reduce floats or bf16 by fmax of a wider type
COMPILER_FLAGS += $(if $(IS_X86),,-fno-builtin-fmax -fno-builtin-fmaxf -fno-builtin-fmin -fno-builtin-fminf)
# clang warns of `omp simd` loops that it does not vectorize; they need no change
COMPILER_FLAGS += $(if $(findstring clang,$(shell $(CC) --version)),-Wno-pass-failed)
# $(call has_header,NAME.h): 1 or nothing
has_header = $(filter 1,$(shell printf '%s\n' '$(hash)if __has_include(<$(1)>)' 1 '$(hash)endif' | \
    $(CC) $(GPU_INCLUDES) -E -P -x c - 2>/dev/null))
JANSSON := $(call has_header,jansson.h)
# Optional: zlib, libzstd and libsnappy, for compressed input of ./prepare (llmc/prepare/compression.h). Only
# programs that call them are linked with them.
ZLIB   ?= $(call has_header,zlib.h)
ZSTD   ?= $(call has_header,zstd.h)
SNAPPY ?= $(call has_header,snappy-c.h)
COMPRESSIONS  := $(strip $(foreach l,ZLIB ZSTD SNAPPY,$(if $(filter 1,$($(l))),$(l))))
DECOMPRESSION := $(if $(filter 1,$(ZLIB)),-lz) $(if $(filter 1,$(ZSTD)),-lzstd) $(if $(filter 1,$(SNAPPY)),-lsnappy)
LDLIBS := -ljansson -lm -lpthread -Wl,--as-needed $(DECOMPRESSION) -Wl,--no-as-needed
FLAGS_llmc/prepare/compression := $(COMPRESSIONS:%=-DHAS_%)
# Optional: MPI, for several CPU processes, and to start GPU processes by mpirun. mpicc knows MPI's paths and libraries.
MPICC ?= mpicc
MPI   ?= $(if $(shell command -v $(MPICC) 2>/dev/null),1,0)
WITH_MPI = $(if $(filter 1,$(MPI)),OMPI_CC='$(1)' MPICH_CC='$(1)' $(MPICC),$(1))
MPI_FLAGS := $(if $(filter 1,$(MPI)),-DHAS_MPI)
# Optional: the CUDA toolkit. Without it only the CPU half is built.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),/usr/local/cuda)
NVCC      := $(wildcard $(CUDA_HOME)/bin/nvcc)
GPUS      := $(or $(GPU:all=75 80 86 89 90 100 120),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
    2>/dev/null | tr -d . | grep -xE '[0-9]+' | sort -un),80 90)
NO_NVCC   := no nvcc in the path or in $(CUDA_HOME)
# Optional: NCCL, for several GPUs, and attention by cuDNN, which needs the headers of cuDNN's frontend too
CUDNN_FRONTEND ?= build/cudnn_frontend/include
GPU_INCLUDES   := -isystem $(CUDA_HOME)/include -isystem $(CUDNN_FRONTEND)
NCCL       ?= $(and $(NVCC),$(call has_header,nccl.h))
NCCL_FLAGS := $(if $(filter 1,$(NCCL)),-DHAS_NCCL)
HAS_CUDNN  := $(and $(NVCC),$(call has_header,cudnn.h),$(call has_header,cudnn_frontend.h))
CUDNN      ?= $(HAS_CUDNN)
NO_CUDNN   := no cudnn.h, or no cudnn_frontend.h, which `sh scripts/setup.sh cudnn` downloads

.PHONY: all help train_gpt2 train_gpt2cu prepare check-packages install uninstall dist clean
# only the optimized programs get a name in the top folder
PROGRAMS := train_gpt2 prepare $(if $(NVCC),$(if $(filter release,$(config)),train_gpt2cu))
all: $(if $(filter release,$(config)),$(PROGRAMS),$(PROGRAMS:%=$(BUILD)/%))
	@$(if $(NVCC),,echo '$(NO_NVCC): train_gpt2cu was not built (CUDA_HOME=... says where it is)')

FOUND = $(CC)$(if $(OPENMP),, without OpenMP), $(if $(NVCC),$(NVCC) for GPU="$(strip $(GPUS))",no nvcc), \
    $(if $(MPI_FLAGS),MPI,no mpicc), $(or $(COMPRESSIONS),no decompression), $(if $(NCCL_FLAGS),NCCL,no NCCL), \
    $(if $(filter 1,$(CUDNN)),cuDNN,$(NO_CUDNN)), $(if $(JANSSON),jansson,no jansson: sh scripts/setup.sh)
help:
	@sed -s -n '2,/^$$/s/^# \{0,1\}//p' Makefile test/rules.mk
	@echo 'found: $(FOUND)'

check-packages:
	$(if $(JANSSON),,$(error jansson.h is missing: install libjansson-dev, or run `sh scripts/setup.sh`))

# The library: everything but main() and the kernels. It is the same for all backends.
HOST_SOURCES := $(filter-out llmc/commands/main.c $(if $(MPI_FLAGS),,llmc/comm/mpi.c),$(wildcard llmc/*/*.c)) \
    data/stories.c
HOST_OBJECTS := $(HOST_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/llmc/tokenizer/tokenizer_data.o
MAIN_OBJECT  := $(BUILD)/llmc/commands/main.o
LIBRARY      := $(BUILD)/libllmc.a

# The CPU's backends: train_gpt2.c, compiled once for each storage type and instruction set (llmc/cpu/processor.h).
LEVELS ?= generic $(if $(IS_X86),avx2 avx512 avx512_bf16 amx)
LEVEL_avx2        := -march=x86-64-v3
LEVEL_avx512      := -march=x86-64-v4 -mprefer-vector-width=512
LEVEL_avx512_bf16 := $(LEVEL_avx512) -mavx512bf16
LEVEL_amx         := $(LEVEL_avx512_bf16) -mamx-tile -mamx-bf16
FP32_OBJECTS := $(patsubst %,$(BUILD)/cpu/fp32/%.o,$(filter generic avx2 avx512,$(LEVELS)))
CPU_OBJECTS  := $(FP32_OBJECTS) $(LEVELS:%=$(BUILD)/cpu/bf16/%.o) $(subst /fp32/,/fp16/,$(FP32_OBJECTS))

train_gpt2 train_gpt2cu prepare: %: build/release/%
	@ln -sf $< $@
$(BUILD)/train_gpt2: $(MAIN_OBJECT) $(CPU_OBJECTS) $(LIBRARY)
	$(call WITH_MPI,$(CC)) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(BUILD)/prepare: $(BUILD)/data/prepare.o $(LIBRARY)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(LIBRARY): $(HOST_OBJECTS)
	@rm -f $@
	ar rcs $@ $^
$(CPU_OBJECTS): $(BUILD)/cpu/%.o: train_gpt2.c $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(KERNEL_OPT_$(config)) $(LEVEL_$(*F)) -DFLOATX=$(*D) -DLEVEL=$(*F) -c $< -o $@
$(BUILD)/%.o: %.c $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(COMPILER) $(CFLAGS) $(HARDEN) $(FLAGS_$*) -c $< -o $@
COMPILER = $(CC)
$(MAIN_OBJECT) $(BUILD)/llmc/comm/mpi.o: COMPILER = $(call WITH_MPI,$(CC)) $(MPI_FLAGS)
$(BUILD)/llmc/tokenizer/tokenizer_data.o: llmc/tokenizer/tokenizer_data.S data/gpt2_tokenizer.bin
	@mkdir -p $(@D)
	$(CC) -c $< -o $@

# for --version: the commit is not asked of a repository around this folder
COMMIT = $(shell git describe --always --dirty 2>/dev/null)
FLAGS_llmc/base/release := $(if $(wildcard .git),-DBUILD_COMMIT='"$(COMMIT)"')
FLAGS_llmc/commands/version := $(MPI_FLAGS) $(NCCL_FLAGS) $(if $(filter 1,$(CUDNN)),-DHAS_CUDNN)

# The GPU trainer: machine code for each compute capability in $(GPUS), and PTX of the last one for later GPUs. The
# driver's library is not linked, so that the program starts without a driver and can say that it is missing.
CUDA_OBJECTS := $(BUILD)/cuda_fp32.o $(BUILD)/cuda_bf16.o $(BUILD)/cuda_fp16.o
GENCODE      := $(foreach sm,$(GPUS),-gencode arch=compute_$(sm),code=sm_$(sm)) \
                -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS))
NVCCFLAGS     = $(or $(NVCC_$(config)),$(OPT)) -lineinfo -std=c++20 -D_GNU_SOURCE $(GENCODE) --threads 0 \
    -Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas $(if $(OPENMP),-Xcompiler -fopenmp) -Xptxas -v
CUDNN_OBJECT  := $(if $(filter 1,$(CUDNN)),$(BUILD)/attention_cudnn.o)
CUDA_LIBS     := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 $(if $(CUDNN_OBJECT),-lcudnn) \
    $(if $(NCCL_FLAGS),-lnccl) -lcublasLt -lcudart_static -ldl -lrt
CUDA_LINKED   := $(CUDA_OBJECTS) $(CUDNN_OBJECT) $(FP32_OBJECTS) $(LIBRARY)
$(BUILD)/train_gpt2cu: $(MAIN_OBJECT) $(CUDA_LINKED)
	$(call WITH_MPI,$(CXX)) $(LDFLAGS) $^ -o $@ $(CUDA_LIBS) $(LDLIBS)
	@$(if $(CUDNN)$(filter-out file,$(origin CUDNN)),,echo 'warning: $@ has NO CUDNN, whose attention may be faster \
	    than ours: there is $(NO_CUDNN). CUDNN=0 silences this.' >&2)
# Keeps ptxas' report of registers and spills beside the object: test/cuda/spills.sh reads it.
$(CUDA_OBJECTS): $(BUILD)/cuda_%.o: train_gpt2.cu $(BUILD)/cuda_settings | check-packages
	$(if $(NVCC),,$(error $(NO_NVCC): install the CUDA toolkit, or set CUDA_HOME; `make train_gpt2` needs none))
	$(NVCC) $(NVCCFLAGS) $(NCCL_FLAGS) -DFLOATX=$* -MD -MP -MF $(@:.o=.d) -c $< -o $@ >$(@:.o=.ptxas) 2>&1 || \
	    { cat $(@:.o=.ptxas) >&2; exit 1; }
	@grep -v -E '^ptxas info|bytes stack frame|^$$' $(@:.o=.ptxas) >&2 || true
# -O1 is enough for a file that only calls cuDNN, and takes less of the long time that its headers need to compile
CUDNN_FLAGS := -std=c++17 -O1 -D_GNU_SOURCE -Wall -Wextra -DCUDNN_FRONTEND_SKIP_JSON_LIB $(GPU_INCLUDES)
$(BUILD)/attention_cudnn.o: llmc/cuda/attention_cudnn.cpp
	$(if $(HAS_CUDNN),,$(error CUDNN=1: there is $(NO_CUDNN)))
	$(CXX) $(CUDNN_FLAGS) -MMD -MP -c $< -o $@

# Programs alone are installed: they hold GPT-2's tokenizer, and scripts belong to the source. PROGRAMS="train_gpt2
# prepare" leaves the GPU trainer out.
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
	git archive --prefix=gpt2.c-$(VERSION)/ -o build/gpt2.c-$(VERSION).tar.gz HEAD

clean:
	rm -rf build train_gpt2 train_gpt2cu prepare

include test/rules.mk
$(if $(OPT),,$(error config=$(config) is not one of release, debug, sanitize, thread, memcheck, fuzz))

$(shell mkdir -p $(BUILD))
# Builds again when flags have changed: objects depend on files that hold them.
# $(call record,FILE,TEXT): writes TEXT to FILE if FILE holds another text
differ = $(filter-out $(1),$(2))$(filter-out $(2),$(1))
record = $(if $(call differ,$(file <$(BUILD)/$(1)),$(2)),$(file >$(BUILD)/$(1),$(2)))
$(call record,settings,$(CC) $(CFLAGS) $(KERNEL_OPT_$(config)) $(TEST_OPT_$(config)) $(HARDEN) $(LDFLAGS) $(LEVELS) \
    $(MPI_FLAGS))
$(call record,cuda_settings,$(NVCC) $(NVCCFLAGS) $(NCCL_FLAGS))
FLAGGED := llmc/base/release llmc/commands/version llmc/prepare/compression
$(call record,file_settings,$(foreach f,$(FLAGGED),$(FLAGS_$(f))))
$(FLAGGED:%=$(BUILD)/%.o): $(BUILD)/file_settings
%settings: ;

# A source that was moved or deleted, and that a dependency file still names, stops no build.
llmc/%: ;
test/%: ;
-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d)
