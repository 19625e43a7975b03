# Rules of the GPU trainer, included by the Makefile.
#
# It has machine code for each compute capability in $(GPUS), and PTX of the last one for later GPUs. Of CUDA's
# libraries only the runtime is linked. The program opens the others when a run needs them (llmc/base/library.h), and
# the runtime opens the driver. So it starts without them, and can say what is missing.

# fp32 is always needed (llmc/train/backends.c)
CUDA_TYPES   ?= fp32 bf16 fp16
CUDA_OBJECTS := $(CUDA_TYPES:%=$(BUILD)/cuda_%.o)
GENCODE      := $(foreach sm,$(GPUS),-gencode arch=compute_$(sm),code=sm_$(sm)) \
                -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS))
# Optimizes the host's code, which launches kernels; ptxas optimizes the kernels fully in any case.
NVCC_release := -O1
NVCCFLAGS     = $(or $(NVCC_$(config)),$(OPT)) -lineinfo -std=c++20 -D_GNU_SOURCE $(GENCODE) --threads 0 \
    -Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas $(if $(OPENMP),-Xcompiler -fopenmp) -Xptxas -v $(SMALLER)
# A quarter of the size for a third more time, so not for a single GPU; not all drivers of CUDA 12 can unpack it.
SMALLER      := $(if $(and $(NVCC),$(word 2,$(GPUS))),$(if $(filter 12.%,$(NVCC_RELEASE)),,\
    -compress-mode=size))
CUDNN_OBJECT  := $(if $(filter 1,$(CUDNN)),$(BUILD)/attention_cudnn.o)
CUDA_LIBS     := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -static-libstdc++ -lcudart_static -lrt
CUDA_LINKED   := $(CUDA_OBJECTS) $(CUDNN_OBJECT) $(BUILD)/reached.o $(FP32_OBJECTS) $(LIBRARY)
$(BUILD)/train_gpt2cu: $(MAIN_OBJECT) $(CUDA_LINKED) $(BUILD)/cuda_link_settings | $(MPI_LIBRARY)
	$(CXX) $(LINK_FLAGS) $(FOR_MPI) $(filter-out %settings,$^) -o $@ $(CUDA_LIBS) $(LDLIBS)
# cuBLASLt's, NCCL's and cuDNN's functions that they call: these libraries are opened by the program
$(BUILD)/reached.list: $(CUDA_OBJECTS) $(CUDNN_OBJECT)
	nm -u $^ | sed -nE 's/^ *U ((cublasLt|nccl|cudnn)[A-Z][A-Za-z0-9]*)$$/REACH \1/p' | sort -u >$@
$(BUILD)/reached.o: llmc/base/reached.S $(BUILD)/reached.list
	$(CC) -I$(BUILD) -c $< -o $@
# Keeps ptxas' report of registers and spills beside the object: test/cuda/spills.sh reads it.
$(CUDA_OBJECTS): $(BUILD)/cuda_%.o: train_gpt2.cu $(BUILD)/cuda_settings | check-packages
	$(if $(NVCC),,$(error $(NO_NVCC): install the CUDA toolkit; `make train_gpt2` needs none))
	$(NVCC) $(NVCCFLAGS) $(NCCL_FLAGS) -DFLOATX=$* -MD -MP -MF $(@:.o=.d) -c $< -o $@ >$(@:.o=.ptxas) 2>&1 || \
	    { cat $(@:.o=.ptxas) >&2; exit 1; }
	@grep -v -E '^ptxas info|bytes stack frame|^$$' $(@:.o=.ptxas) >&2 || true
# -O1 is enough for a file that only calls cuDNN, and takes less of the long time that its headers need to compile
CUDNN_FLAGS := -std=c++17 -O1 -D_GNU_SOURCE -Wall -Wextra -DCUDNN_FRONTEND_SKIP_JSON_LIB $(GPU_INCLUDES)
$(BUILD)/attention_cudnn.o: llmc/cuda/attention_cudnn.cpp $(BUILD)/cudnn_settings
	$(if $(HAS_CUDNN),,$(error CUDNN=1: there is $(NO_CUDNN)))
	$(CXX) $(CUDNN_FLAGS) -MD -MP -c $< -o $@
