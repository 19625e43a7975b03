# Rules of what tests need, included by the Makefile.
#
#   make test            build and run the tests
#   make emu             the GPU trainer on the CPU, every kernel emulated: build/emu/train_gpt2cu
#   make headers         compile headers alone, as C11, and those that C++ includes as C++20
#   make kernels         compile the CPU's kernels
#   make fuzz            the fuzz targets, with clang (build/fuzz/*)
#   make lint            clang-tidy and cppcheck, where they are installed

.PHONY: emu tests rank_tools test headers kernels fuzz fuzzers mutators lint libraries

# config=sanitize, and thread and memcheck for test/watched.sh: reports data races (CC=clang); not too slow under
# valgrind
OPT_sanitize := -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT_thread   := -O1 -g1 -fsanitize=thread
OPT_memcheck := -O1 -g1
OPT_fuzz     := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined
KERNEL_OPT_sanitize := -Og # the loops that take long; at -O0 all else compiles three times as fast
NVCC_sanitize := -O1 -g -Xcompiler -fsanitize=undefined
TEST_OPT_release := -O1 # of test programs: compiles faster, and no time is measured

# ----------------------------------------------------------------------------------------------------------------------
# the GPU trainer without a GPU: test/emulator/ compiles the same files for the CPU
#
#   make emu                 build/emu/train_gpt2cu, optimized
#   make emu EMU=check       build/emu-check/...: stops at wrong addresses, undefined behaviour and data races or, with
#                            EMU_TRAFFIC=FILE in the environment, counts the memory traffic of each kernel
#   make emu EMU=coverage    build/emu-coverage/...: counts the lines that run

EMU ?= plain
EMU_BUILD := build/emu$(if $(filter plain,$(EMU)),,-$(EMU))
EMU_OPT_plain := -O2
EMU_OPT_coverage := -Og
# fmaf() as an instruction, where the processor has one, and none that the code does not ask for: the same bits anywhere
EMU_FLAGS := $(EMU_OPT_$(EMU)) -march=native -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas \
    -Wno-unused-function -D_GNU_SOURCE
EMUCC       := test/emulator/emucc $(if $(filter plain,$(EMU)),,--$(EMU)) $(EMU_FLAGS)
# fp16's kernels are bf16's: the checking build leaves them out
EMU_TYPES   := fp32 bf16 $(if $(filter plain coverage,$(EMU)),fp16)
EMU_OBJECTS := $(EMU_TYPES:%=$(EMU_BUILD)/cuda_%.o)
EMU_CUDNN   := $(EMU_BUILD)/attention_cudnn.o
EMU_SOURCES := $(wildcard llmc/*/*.h llmc/cuda/*.cuh llmc/cuda/*.h \
    test/emulator/*.c test/emulator/emucc test/emulator/include/*.h test/emulator/include/*/*.h)
EMU_TESTS   := $(EMU_BUILD)/test_attention_forms

emu: $(EMU_BUILD)/train_gpt2cu $(EMU_TESTS) $(if $(filter check,$(EMU)),$(EMU_BUILD)/test_full_size)
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
	$(CC) $(C_FLAGS) -I. -c $< -o $@
$(EMU_BUILD)/test_attention_forms: $(TEST_FORMS) $(EMU_LINKED)
	$(CXX) $(EMU_LINK_$(EMU)) $(LINK_FLAGS) $^ -o $@ $(LDLIBS)
# the same on a GPU
$(BUILD)/cuda_test_attention_forms: $(TEST_FORMS) $(CUDA_LINKED)
	$(CXX) $(LINK_FLAGS) $^ -o $@ $(CUDA_LIBS) $(LDLIBS)
$(EMU_BUILD)/test_full_size: test/test_full_size.cu $(EMU_LINKED)
	$(EMUCC) -Wno-deprecated-enum-enum-conversion $< $(filter %.o %.a,$^) -o $@ $(if $(OPENMP),-lgomp) $(LDLIBS)
EMU_LINK_check    := -fsanitize=undefined
EMU_LINK_coverage := --coverage
$(EMU_BUILD)/train_gpt2cu: $(MAIN_OBJECT) $(EMU_LINKED) | $(MPI_LIBRARY)
	$(CXX) $(EMU_LINK_$(EMU)) $(LINK_FLAGS) $(FOR_MPI) -Wl,-rpath,'$$ORIGIN/../$(config)' $^ -o $@ $(LDLIBS)

# ----------------------------------------------------------------------------------------------------------------------
# tests

# The AMX backend with its tiles emulated (test/amx), for tests of all backends on processors that have AVX512_BF16 but
# no AMX.
AMX_EMULATED := $(BUILD)/amx_emulated/bf16/amx.o
$(AMX_EMULATED): train_gpt2.c $(wildcard test/amx/*.h) $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) -Itest/amx $(LEVEL_amx) -DFLOATX=bf16 -DLEVEL=amx -c $< -o $@
$(BUILD)/amx_emulated/backends.o: llmc/train/backends.c test/amx/processor.h $(BUILD)/settings | check-packages
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) -include test/amx/processor.h -c $< -o $@
WITH_AMX := $(BUILD)/amx_emulated/backends.o $(AMX_EMULATED) $(filter-out %/amx.o,$(CPU_OBJECTS))
EMULATES_AMX := $(if $(AMX),$(shell grep -w avx512_bf16 /proc/cpuinfo 2>/dev/null | grep -vw amx_bf16))
TEST_BACKENDS := $(if $(EMULATES_AMX),$(WITH_AMX),$(CPU_OBJECTS))
# A test program is named like its source, and linked with all backends.
TEST_SOURCES := $(filter-out test/amx/%,$(wildcard test/test_*.c test/*/test_*.c))
TESTS := $(addprefix $(BUILD)/,$(notdir $(TEST_SOURCES:.c=)))
vpath test_%.c $(sort $(dir $(TEST_SOURCES)))
$(TESTS): $(BUILD)/test_%: test_%.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(C_FLAGS) $(TEST_OPT_$(config)) -I. $(LINK_FLAGS) $< $(filter %.o,$^) $(LIBRARY) -o $@ $(LDLIBS)
BACKEND_TESTS := $(addprefix $(BUILD)/,\
    test_backends test_operations test_cpu test_matmul test_packed test_scratch test_attention test_attention_forms \
    test_gpt2 test_generate test_score)
$(BACKEND_TESTS): $(TEST_BACKENDS)
$(filter-out $(BACKEND_TESTS),$(TESTS)): $(CPU_OBJECTS)

ifneq ($(filter amx,$(LEVELS)),)
TESTS += $(BUILD)/test_amx
$(BUILD)/test_amx: test/amx/test_amx.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(C_FLAGS) -I. -Itest/amx $(LEVEL_amx) $(LINK_FLAGS) $< $(LIBRARY) -o $@ $(LDLIBS)
endif

# programs for the tests of several processes
COMPARER   := $(BUILD)/compare_checkpoints
RANK_TOOLS := $(COMPARER) $(if $(MPI_LIBRARY),$(BUILD)/count_collectives.so)
$(COMPARER): $(BUILD)/%: test/%.c $(LIBRARY) $(BUILD)/settings | check-packages
	$(CC) $(C_FLAGS) -I. $(LINK_FLAGS) $< $(LIBRARY) -o $@ $(LDLIBS)
$(BUILD)/count_collectives.so: test/comm/count_collectives.c
	@mkdir -p $(@D)
	$(WITH_MPI) -O1 -fPIC -shared $< -o $@

kernels: $(CPU_OBJECTS)
rank_tools: $(RANK_TOOLS)
tests: $(TESTS) rank_tools

# fuzz targets, with clang's libFuzzer: build/fuzz/fuzz_*
fuzz:
	@$(MAKE) --no-print-directory config=fuzz CC=clang MPI=0 fuzzers
GENERIC := $(BUILD)/cpu/fp32/generic.o
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/%,$(wildcard test/fuzz/fuzz_*.c))
fuzzers: $(FUZZERS)
$(FUZZERS): $(BUILD)/%: test/fuzz/%.c $(GENERIC) $(LIBRARY)
	$(CC) $(C_FLAGS) -I. -fsanitize=fuzzer $(LINK_FLAGS) $< $(GENERIC) $(LIBRARY) -o $@ $(LDLIBS)

# the same targets without libFuzzer: build/sanitize/mutate_* with config=sanitize (test/fuzz/mutate.c)
MUTATORS := $(patsubst test/fuzz/fuzz_%.c,$(BUILD)/mutate_%,$(wildcard test/fuzz/fuzz_*.c))
mutators: $(MUTATORS)
$(MUTATORS): $(BUILD)/mutate_%: test/fuzz/fuzz_%.c test/fuzz/mutate.c $(GENERIC) $(LIBRARY)
	$(CC) $(C_FLAGS) -MF $@.d -I. $(LINK_FLAGS) $< test/fuzz/mutate.c $(GENERIC) $(LIBRARY) -o $@ $(LDLIBS)

# Headers that must compile alone, as C11; those of a .c file do, which includes them first (test/rooms.sh). Those that
# .cu files include must compile as C++20 too.
PARTS       := llmc/cpu/tile_%.h llmc/cpu/encoder.h llmc/cpu/layernorm.h # of other headers
OF_SOURCES  := $(patsubst %.c,%.h,$(wildcard llmc/*/*.c data/*.c))
HEADERS     := $(filter-out $(PARTS) $(OF_SOURCES) llmc/cuda/attention_cudnn.h,$(wildcard llmc/*/*.h data/*.h test/*.h))
CPP_HEADERS := llmc/model/backend.h llmc/base/rng.h llmc/base/rounding.h $(wildcard llmc/cuda/*.h) \
    $(shell grep -l '^BEGIN_C' llmc/*/*.h)
headers: check-packages
	@for h in $(HEADERS); do \
	    $(CC) $(C_FLAGS) -Wno-unused-function -Wno-unused-const-variable -Werror -MF /dev/null -fsyntax-only \
	        -include $$h -x c /dev/null || exit 1; \
	done; echo "$(words $(HEADERS)) headers compile alone as C11"
	@! command -v $(CXX) >/dev/null || { \
	    $(CXX) $(FLAGS) -std=c++20 -idirafter test/emulator/include -Wno-unused-function -Werror -MF /dev/null \
	        -fsyntax-only $(CPP_HEADERS:%=-include %) -x c++ /dev/null && \
	    echo "$(words $(CPP_HEADERS)) compile as C++20 too"; }

# Static analysis: clang-tidy with the checks of .clang-tidy, cppcheck without what test/cppcheck.txt lists
LINTED := $(HOST_SOURCES) data/prepare.c
LINT_FLAGS := -std=c11 -D_GNU_SOURCE -I. $(OPENMP) $(FLAGS_llmc/prepare/compression)
JOBS := $(shell nproc 2>/dev/null || echo 1)
lint:
	@if command -v clang-tidy >/dev/null; then \
	    echo $(LINTED) | xargs -P $(JOBS) -n 4 sh -c \
	        'clang-tidy --quiet "$$@" -- $(LINT_FLAGS) 2>/dev/null' sh && echo "clang-tidy: nothing found"; \
	else echo "skipped clang-tidy: it is not installed"; fi
	@if command -v cppcheck >/dev/null; then \
	    cppcheck -j $(JOBS) --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
	        --suppressions-list=test/cppcheck.txt --error-exitcode=1 -D_GNU_SOURCE -I. $(LINTED) llmc/comm/mpi.c && \
	    echo "cppcheck: nothing found"; \
	else echo "skipped cppcheck: it is not installed"; fi
test: all tests
	@sh test/run.sh $(BUILD)

# the graphs given to cuDNN, checked without a GPU (test/cudnn/cudnn.sh)
$(BUILD)/test_cudnn_graphs: test/cudnn/test_graphs.cpp $(BUILD)/reached.o $(LIBRARY) \
    $(addprefix llmc/cuda/attention_cudnn,.cpp .h)
	$(CXX) $(CUDNN_FLAGS) $< $(BUILD)/reached.o $(LIBRARY) -o $@ -Wl,-rpath,$(CUDA_HOME)/lib64 $(LDLIBS)

# for test/cuda/plants.sh, which links the trainer itself
libraries:
	@echo '$(LDLIBS)'
