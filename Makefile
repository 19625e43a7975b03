# GPT-2 in C and CUDA. `make help` lists the targets.
#
#   config=release|debug|sanitize   optimized (default); for the debugger; with address and undefined behaviour checks
#   ARCH=native                     the processor to build for (gcc's -march); `make ARCH=x86-64-v3` runs on any with AVX2
#   CC=gcc                          or clang

MAKEFLAGS += --no-builtin-rules

config ?= release
ARCH   ?= native
CC     ?= cc
CXX    ?= c++

BUILD := build/$(config)
OPT_release  := -O3
OPT_debug    := -O0 -g
OPT_sanitize := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT := $(OPT_$(config))
$(if $(OPT),,$(error config=$(config) is not one of release, debug, sanitize))

# -ffp-contract=fast: multiply-adds, which -std=c11 would switch off. Never -ffast-math: NaN must stay NaN.
FLAGS   := $(OPT) -march=$(ARCH) -ffp-contract=fast -D_GNU_SOURCE -Wall -Wextra -MMD -MP
CFLAGS   = -std=c11 $(FLAGS)
LDFLAGS := $(filter -fsanitize%,$(OPT))
LDLIBS  := -ljansson -lm -lpthread

# Optional: OpenMP. Without it the programs run on one thread.
OPENMP := $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c - -o /dev/null 2>/dev/null && echo -fopenmp)
FLAGS += $(OPENMP) $(if $(OPENMP),,-Wno-unknown-pragmas -fopenmp-simd)
# clang says which `omp simd` loops it left scalar; that is no fault of theirs
FLAGS += $(if $(findstring clang,$(shell $(CC) --version)),-Wno-pass-failed)
LDFLAGS += $(OPENMP)
JANSSON := $(shell echo '\#include <jansson.h>' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes)

.PHONY: all train_gpt2 prepare tests test headers fuzz clean help check-packages
# only the optimized programs get a name in the top folder
all: $(if $(filter release,$(config)),train_gpt2 prepare,$(BUILD)/train_gpt2 $(BUILD)/prepare)

help:
	@echo 'make                 train_gpt2 (the CPU trainer) and prepare (text to token files)'
	@echo 'make test            build and run the tests'
	@echo 'make headers         compile each header alone, as C11 and as C++17'
	@echo 'make fuzz            the fuzz targets, with clang (build/fuzz/*)'
	@echo 'make clean           remove everything that was built'
	@echo 'config=release|debug|sanitize   ARCH=native|x86-64-v3|...   CC=gcc|clang'
	@echo 'found: $(CC)$(if $(OPENMP),, without OpenMP), $(if $(JANSSON),jansson,no jansson: sh scripts/setup.sh installs it)'

check-packages:
	$(if $(JANSSON),,$(error jansson.h is missing: install libjansson-dev, or run `sh scripts/setup.sh`))

# ----------------------------------------------------------------------------------------------------------------------
# programs: built under build/CONFIG, the release ones linked into the top folder

TRAINER_OBJECTS := $(BUILD)/cpu_fp32.o $(BUILD)/main.o $(BUILD)/tokenizer_data.o
PREPARE_OBJECTS := $(BUILD)/prepare.o $(BUILD)/tokenizer_data.o

train_gpt2 prepare: %: build/release/%
	@ln -sf $< $@

$(BUILD)/train_gpt2: $(TRAINER_OBJECTS)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(BUILD)/prepare: $(PREPARE_OBJECTS)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

# one object for each storage type
$(BUILD)/cpu_fp32.o: $(BUILD)/cpu_%.o: train_gpt2.c | $(BUILD) check-packages
	$(CC) $(CFLAGS) -DFLOATX=$* -c $< -o $@
$(BUILD)/main.o: llmc/main.c | $(BUILD) check-packages
	$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/prepare.o: data/prepare.c | $(BUILD) check-packages
	$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/tokenizer_data.o: llmc/tokenizer_data.S data/gpt2_tokenizer.bin | $(BUILD)
	$(CC) -c $< -o $@
$(BUILD):
	@mkdir -p $@

# What everything is built with: when that changes, everything is built again.
SETTINGS := $(CC) $(CFLAGS) $(LDFLAGS)
ifneq ($(SETTINGS),$(shell cat $(BUILD)/settings 2>/dev/null))
$(shell mkdir -p $(BUILD))
$(file >$(BUILD)/settings,$(SETTINGS))
endif
$(TRAINER_OBJECTS) $(PREPARE_OBJECTS): $(BUILD)/settings
$(BUILD)/settings:

# ----------------------------------------------------------------------------------------------------------------------
# tests

TESTS := $(patsubst test/%.c,$(BUILD)/%,$(wildcard test/test_*.c))
$(TESTS): $(BUILD)/test_%: test/test_%.c $(BUILD)/tokenizer_data.o $(BUILD)/settings | $(BUILD) check-packages
	$(CC) $(CFLAGS) $(LDFLAGS) $< $(BUILD)/tokenizer_data.o -o $@ $(LDLIBS)

tests: $(TESTS)
test: all $(TESTS)
	@sh test/run.sh $(BUILD)

# Headers that stand for themselves; ops.h, gpt2.h and what is built on them need floatX and the kernels before them.
NEED_KERNELS := llmc/ops.h llmc/gpt2.h llmc/generate.h llmc/huggingface.h llmc/checkpoint.h llmc/mfu.h llmc/setup.h \
                llmc/train.h llmc/commands.h test/ops.h
HEADERS := $(wildcard llmc/*.h llmc/cpu/*.h llmc/comm/*.h data/*.h test/*.h)
headers: check-packages
	@for h in $(HEADERS); do \
	    case " $(NEED_KERNELS) " in *" $$h "*) before='-include llmc/cpu/kernels.h -include llmc/comm/none.h';; *) before=;; esac; \
	    echo "#include \"$$h\"" | $(CC) $(CFLAGS) -Wno-unused-function -Wno-unused-const-variable -Werror -MF /dev/null -I. $$before -x c -fsyntax-only - || exit 1; \
	    echo "#include \"$$h\"" | $(CXX) $(FLAGS) -std=c++17 -Wno-unused-function -Werror -MF /dev/null -I. $$before -x c++ -fsyntax-only - || exit 1; \
	done; echo "$(words $(HEADERS)) headers compile alone, as C11 and as C++17"

FUZZERS := $(patsubst test/fuzz/%.c,build/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
$(FUZZERS): build/fuzz/%: test/fuzz/%.c $(BUILD)/tokenizer_data.o
	@mkdir -p $(@D)
	clang -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined $< $(BUILD)/tokenizer_data.o -o $@ $(LDLIBS)
fuzz: $(FUZZERS)

clean:
	rm -rf build train_gpt2 prepare

-include $(wildcard $(BUILD)/*.d)
