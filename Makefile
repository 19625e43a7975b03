# GPT-2 in C and CUDA. llmc/cuda/rules.mk has the rules of the GPU trainer, test/rules.mk of tests, emulators, fuzzers.
#
#   make                 train_gpt2 (the CPU trainer), prepare (text to token files), train_gpt2cu where nvcc is
#   make train_gpt2cu    the GPU trainer
#   make portable        both trainers, stripped, in build/portable, for machines that have less than this one
#   make install         copy the programs to PREFIX/bin (/usr/local/bin), after DESTDIR; make uninstall removes them
#   make dist            the tarball of a release, of the last commit: build/gpt2.c-VERSION.tar.gz
#   make clean           remove everything that was built
#
#   config=release|debug|sanitize   optimized (default); for the debugger; checks of addresses and undefined behaviour
#   LEVELS="generic avx2 ..."       instruction sets to build CPU kernels for; the program takes the best it can run
#   CC=gcc|clang ARCH=...           compiler, and its -march for what LEVELS leaves open; default: the compiler's
#   CFLAGS=... LDFLAGS=...          further flags in C, and for linking; they come before ours
#   MPI=0|1 NCCL=0|1                several processes; default: 1 if mpicc, or nccl.h, is found
#   ZLIB=0|1 ZSTD=0|1 SNAPPY=0|1    compressed input of ./prepare; default: 1 if the library's headers are found
#   CUDNN=0|1                       attention by cuDNN too; default: 1 if cuDNN and its frontend's headers are found
#   GPU="80 90"|all                 compute capabilities to build train_gpt2cu for; default: this GPU's, or "80 90";
#                                   all: from 7.5 on, those that nvcc knows
#   CUDA_TYPES="fp32 bf16 fp16"     storage types to build its kernels for

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
hash := \#
# set only in the command: the environment may hold variables of these names for other programs
config := release
ARCH   :=
BUILD  := build/$(config)
OPT_release := -O3
OPT_debug   := -O0 -g
OPT = $(OPT_$(config))

# -ffp-contract=fast allows fused multiply-adds, which -std=c11 forbids. -fno-math-errno and -fno-trapping-math let gcc
# vectorize loops with square roots or comparisons: nothing here reads errno or the floating-point flags after them.
# Never -ffast-math: NaN must stay NaN.
FLAGS    = $(OPT) $(if $(ARCH),-march=$(ARCH)) -ffp-contract=fast -fno-math-errno -fno-trapping-math -D_GNU_SOURCE \
    -Wall -Wextra -MMD -MP $(COMPILER_FLAGS)
C_FLAGS    = $(CFLAGS) -std=c11 $(FLAGS)
LINK_FLAGS = $(LDFLAGS) $(filter -fsanitize%,$(OPT)) -Wl,-z,relro,-z,now $(OPENMP) \
    -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib'
# links C++ with C: the C++ compiler of the family of $(CC), so that both use one OpenMP
ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),g++)
endif
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
# $(call static,NAME): a library's archive or, if there is none, the option that links the shared library
static = $(or $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a)),-l$(1))
# Optional: zlib, libzstd and libsnappy, for compressed input of ./prepare (llmc/prepare/compression.h).
ZLIB   ?= $(call has_header,zlib.h)
ZSTD   ?= $(call has_header,zstd.h)
SNAPPY ?= $(call has_header,snappy-c.h)
COMPRESSIONS := $(strip $(foreach l,ZLIB ZSTD SNAPPY,$(if $(filter 1,$($(l))),$(l))))
SNAPPY_LIBS := $(if $(filter /%,$(call static,stdc++)),$(foreach l,snappy stdc++,$(call static,$(l))),-lsnappy)
STATIC_LIBS := $(call static,jansson) $(if $(filter 1,$(ZLIB)),$(call static,z)) \
    $(if $(filter 1,$(ZSTD)),$(call static,zstd)) $(if $(filter 1,$(SNAPPY)),$(SNAPPY_LIBS))
LDLIBS := -Wl,--as-needed $(STATIC_LIBS) -Wl,--no-as-needed -lm -lpthread -ldl
FLAGS_llmc/prepare/compression := $(COMPRESSIONS:%=-DHAS_%)
# Optional: MPI, for several CPU processes, and to start GPU processes by mpirun. mpicc knows MPI's paths and libraries.
MPICC ?= mpicc
MPI   ?= $(if $(shell command -v $(MPICC) 2>/dev/null),1)
WITH_MPI = OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)
# Optional: the CUDA toolkit. Without it only the CPU half is built.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),/usr/local/cuda)
NVCC      := $(wildcard $(CUDA_HOME)/bin/nvcc)
NVCC_RELEASE := $(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p'))
KNOWN      = $(patsubst compute_%,%,$(if $(NVCC),$(shell $(NVCC) --list-gpu-arch)))
ALL_GPUS   = $(filter 75 80 86 89 90 100 120,$(KNOWN))
HERE       = $(filter $(KNOWN),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
    tr -d . | sort -un))
GPUS      := $(or $(if $(filter all,$(GPU)),$(ALL_GPUS),$(GPU)),$(HERE),80 90)
NO_NVCC   := there is no nvcc in the path or in $(CUDA_HOME) (CUDA_HOME=... says where it is)
# Optional: NCCL, for several GPUs, and attention by cuDNN, which needs the headers of cuDNN's frontend too
CUDNN_FRONTEND ?= build/cudnn_frontend/include
# /usr/include is searched anyway; named here, it would come before the compiler's own headers
GPU_INCLUDES   := $(patsubst %,-isystem %,$(filter-out /usr/include,$(CUDA_HOME)/include) $(CUDNN_FRONTEND))
NCCL       ?= $(and $(NVCC),$(call has_header,nccl.h))
NCCL_FLAGS := $(if $(filter 1,$(NCCL)),-DHAS_NCCL)
HAS_CUDNN  := $(and $(NVCC),$(call has_header,cudnn.h),$(call has_header,cudnn_frontend.h))
CUDNN      ?= $(HAS_CUDNN)
NO_CUDNN   := no cudnn.h, or no cudnn_frontend.h, which `sh scripts/setup.sh cudnn` downloads

.PHONY: all help train_gpt2 train_gpt2cu prepare portable check-packages install uninstall dist clean
# only the optimized programs get a name in the top folder
PROGRAMS := train_gpt2 prepare $(if $(NVCC),$(if $(filter release,$(config)),train_gpt2cu))
all: $(if $(filter release,$(config)),$(PROGRAMS),$(PROGRAMS:%=$(BUILD)/%))
	@$(if $(strip $(WITHOUT)),printf 'built without %s\n' $(WITHOUT) >&2)

# $(call without,NAME,COST): what is missing, for the end of `make`; nothing if it was found, or refused by NAME=0
without = $(if $(filter-out 0,$($(1)))$(filter-out file,$(origin $(1))),,'$(1): $(2)')
WITHOUT = $(call without,OPENMP,the programs compute on one thread) \
    $(call without,MPI,no runs of several CPU processes (install libopenmpi-dev)) \
    $(foreach l,ZLIB ZSTD SNAPPY,$(call without,$(l),text that it compressed is not read (sh scripts/setup.sh))) \
    $(if $(NVCC),$(call without,NCCL,no runs of several GPUs (install libnccl-dev)) \
        $(call without,CUDNN,not its attention: there is $(NO_CUDNN)),'nvcc: no train_gpt2cu: $(NO_NVCC)')
help:
	@sed -s -n '2,/^$$/s/^# \{0,1\}//p' Makefile test/rules.mk
	@$(if $(strip $(WITHOUT)),printf 'built without %s\n' $(WITHOUT))

check-packages:
	$(if $(JANSSON),,$(error jansson.h is missing: install libjansson-dev, or run `sh scripts/setup.sh`))

# The library: everything but main() and the kernels. It is the same for all backends.
HOST_SOURCES := $(filter-out llmc/commands/main.c llmc/comm/mpi.c,$(wildcard llmc/*/*.c)) data/stories.c
HOST_OBJECTS := $(HOST_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/llmc/tokenizer/tokenizer_data.o
MAIN_OBJECT  := $(BUILD)/llmc/commands/main.o
LIBRARY      := $(BUILD)/libllmc.a

# The CPU's backends: train_gpt2.c, compiled once for each storage type and instruction set (llmc/cpu/processor.h).
# AMX if the compiler knows it: gcc from 11 on, clang from 12 on
AMX := $(if $(IS_X86),$(shell $(CC) -mamx-bf16 -E -x c /dev/null >/dev/null 2>&1 && echo amx))
LEVELS ?= generic $(if $(IS_X86),avx2 avx512 avx512_bf16) $(AMX)
LEVEL_avx2        := -march=x86-64-v3
LEVEL_avx512      := -march=x86-64-v4 -mprefer-vector-width=512
LEVEL_avx512_bf16 := $(LEVEL_avx512) -mavx512bf16
LEVEL_amx         := $(LEVEL_avx512_bf16) -mamx-tile -mamx-bf16
FP32_OBJECTS := $(patsubst %,$(BUILD)/cpu/fp32/%.o,$(filter generic avx2 avx512,$(LEVELS)))
CPU_OBJECTS  := $(FP32_OBJECTS) $(LEVELS:%=$(BUILD)/cpu/bf16/%.o) $(subst /fp32/,/fp16/,$(FP32_OBJECTS))

# MPI's calls, which the trainers open (llmc/comm/mpi.h)
MPI_LIBRARY := $(if $(filter 1,$(MPI)),$(BUILD)/libgpt2_mpi.so)
FOR_MPI     := -Wl,--dynamic-list=llmc/comm/program.list
$(MPI_LIBRARY): llmc/comm/mpi.c $(BUILD)/settings
	$(WITH_MPI) $(C_FLAGS) $(HARDEN) -fPIC -shared $(LINK_FLAGS) $< -o $@

train_gpt2 train_gpt2cu prepare: %: $(BUILD)/%
	@ln -sf $< $@
$(BUILD)/train_gpt2: $(MAIN_OBJECT) $(CPU_OBJECTS) $(LIBRARY) | $(MPI_LIBRARY)
	$(CC) $(LINK_FLAGS) $(FOR_MPI) $^ -o $@ $(LDLIBS)
$(BUILD)/prepare: $(BUILD)/data/prepare.o $(LIBRARY)
	$(CC) $(LINK_FLAGS) $^ -o $@ $(LDLIBS)
$(LIBRARY): $(HOST_OBJECTS)
	@rm -f $@
	ar rcs $@ $^
$(CPU_OBJECTS): $(BUILD)/cpu/%.o: train_gpt2.c $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) $(KERNEL_OPT_$(config)) $(LEVEL_$(*F)) -DFLOATX=$(*D) -DLEVEL=$(*F) -c $< -o $@
$(BUILD)/%.o: %.c $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) $(HARDEN) $(FLAGS_$*) -c $< -o $@
$(BUILD)/llmc/tokenizer/tokenizer_data.o: llmc/tokenizer/tokenizer_data.S data/gpt2_tokenizer.bin $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) -c $< -o $@

# for --version: the commit is not asked of a repository around this folder
COMMIT = $(shell git -c safe.directory='*' describe --always --dirty 2>/dev/null)
FLAGS_llmc/base/release := $(if $(wildcard .git),-DBUILD_COMMIT='"$(COMMIT)"')
FLAGS_llmc/commands/version := $(NCCL_FLAGS) $(if $(filter 1,$(CUDNN)),-DHAS_CUDNN)

include llmc/cuda/rules.mk

# Programs alone are installed: they hold GPT-2's tokenizer, and scripts belong to the source. PROGRAMS="train_gpt2
# prepare" leaves the GPU trainer out.
PREFIX ?= /usr/local
INSTALLED := $(DESTDIR)$(PREFIX)
install: $(PROGRAMS:%=$(BUILD)/%) $(MPI_LIBRARY)
	install -d '$(INSTALLED)/bin' '$(INSTALLED)/lib'
	install -m 755 $(filter-out %.so,$^) '$(INSTALLED)/bin'
	$(if $(MPI_LIBRARY),install -m 644 $(MPI_LIBRARY) '$(INSTALLED)/lib')
uninstall:
	rm -f $(foreach p,bin/train_gpt2 bin/train_gpt2cu bin/prepare lib/libgpt2_mpi.so,'$(INSTALLED)/$(p)')

# The same programs, stripped. They open CUDA's libraries, and libgpt2_mpi.so beside them, where a run needs these.
portable: $(patsubst %,$(BUILD)/%,train_gpt2 $(if $(NVCC),train_gpt2cu)) $(MPI_LIBRARY)
	$(if $(filter -l%,$(STATIC_LIBS)),$(error there is no archive lib*.a of $(filter -l%,$(STATIC_LIBS))))
	install -d build/portable
	install -s $^ build/portable

# The tarball's --version names its commit (llmc/base/release.c).
VERSION = $(shell sed -n 's/^.define PROGRAM_VERSION "\(.*\)"/\1/p' llmc/base/release.c)
dist:
	git archive --prefix=gpt2.c-$(VERSION)/ -o build/gpt2.c-$(VERSION).tar.gz HEAD

clean:
	rm -rf build train_gpt2 train_gpt2cu prepare

include test/rules.mk
# MPI=yes would do without it
$(foreach v,MPI NCCL ZLIB ZSTD SNAPPY CUDNN,$(if $(filter-out 0 1,$($(v))),$(error $(v)=$($(v)): give 0 or 1)))
$(if $(OPT),,$(error config=$(config) is not one of release, debug, sanitize, thread, memcheck, fuzz))

$(shell mkdir -p $(BUILD))
# Builds again when flags have changed: objects depend on files that hold them.
# $(call record,FILE,TEXT): writes TEXT to FILE if FILE holds another text. Where nothing is built (make -n, make help),
# FILE only counts as changed.
differ  = $(filter-out $(1),$(2))$(filter-out $(2),$(1))
OPTIONS := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
BUILDS  := $(if $(findstring n,$(OPTIONS))$(findstring q,$(OPTIONS)),,$(filter-out help clean uninstall dist,\
    $(or $(MAKECMDGOALS),all)))
write   = $(if $(BUILDS),$(file >$(BUILD)/$(1),$(2)),$(eval .PHONY: $(BUILD)/$(1)))
record  = $(if $(call differ,$(file <$(BUILD)/$(1)),$(2)),$(call write,$(1),$(2)))
$(call record,settings,$(CC) $(C_FLAGS) $(KERNEL_OPT_$(config)) $(TEST_OPT_$(config)) $(HARDEN) $(LINK_FLAGS) $(MPI))
$(call record,cuda_settings,$(NVCC) $(NVCC_RELEASE) $(NVCCFLAGS) $(NCCL_FLAGS))
$(call record,cudnn_settings,$(CXX) $(CUDNN_FLAGS))
$(call record,cuda_link_settings,$(CUDA_TYPES))
FLAGGED := llmc/base/release llmc/commands/version llmc/prepare/compression
# when these have changed, all programs are linked again
$(call record,file_settings,$(foreach f,$(FLAGGED),$(FLAGS_$(f))) $(LDLIBS) $(LEVELS) $(HOST_SOURCES))
$(FLAGGED:%=$(BUILD)/%.o): $(BUILD)/file_settings
%settings: ;
# a program would open the one of an earlier build
$(if $(BUILDS),$(if $(MPI_LIBRARY),,$(shell rm -f $(BUILD)/libgpt2_mpi.so)))

# A source that was moved or deleted, and that a dependency file still names, stops no build.
llmc/%: ;
test/%: ;
-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d)
