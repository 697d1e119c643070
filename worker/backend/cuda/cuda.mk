# weir-cuda.so: everything that needs CUDA, built where nvcc is; CUDA=1 insists on it, CUDA=0 does without.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
NVCC = $(CUDA_HOME)/bin/nvcc
CUDA ?= $(if $(SAN),0,$(if $(wildcard $(NVCC)),1,0))
# Ampere and Hopper, and code that later GPUs translate for themselves.
CUDA_CODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
NVCCFLAGS = -O3 -lineinfo $(CUDA_CODE) -Xcompiler -fPIC,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra \
  -Werror all-warnings -I.
CUDA_C = $(wildcard worker/backend/cuda/*.c worker/backend/cuda/*/*.c)
CUDA_CU = $(wildcard worker/backend/cuda/*/*.cu)
CUDA_O = $(call objects,$(CUDA_C)) $(CUDA_CU:%=$(B)/obj/%.o)


all: $(if $(filter 1,$(CUDA)),$(B)/weir-cuda.so)

$(B)/obj/worker/backend/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include

# The simulated device is linked with the same C files, and needs the headers alone.
$(if $(wildcard $(CUDA_HOME)/include/nccl.h),$(filter %.cu.o,$(CUDA_O)),$(CUDA_O)): | cuda-compiler
cuda-compiler:
	@[ -x $(NVCC) ] || { echo "make: CUDA=1 needs nvcc (CUDA Toolkit 13 with cuDNN 9 and NCCL): it is neither on PATH" \
	"nor in $(CUDA_HOME)/bin; set CUDA_HOME, or CUDA=0 to do without" >&2; exit 1; }
.PHONY: cuda-compiler

# What ptxas says of each kernel lies beside its object, for tests/gpu/test_kernels.py.
$(B)/obj/%.cu.o: %.cu | $(B)/gen/.done
	@echo "  NVCC  $<"
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -Xptxas -v -MMD -MP -c -o $@ $< 2>$(@:o=ptxas) || { cat $(@:o=ptxas) >&2; exit 1; }

$(B)/weir-cuda.so: $(CUDA_O) $(B)/libweir.a
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--as-needed -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(CUDA_HOME)/lib64 -o $@ $(CUDA_O) $(B)/libweir.a \
	  -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lcudnn -lnccl $(LDLIBS)

gpu-check: deps-check ## on a machine with a GPU: every op, whole models, clusters, compute-sanitizer; then gpu-bench
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@$(MAKE) --no-print-directory build/venv/.done
	@WEIR_BUILD_DIR=$(B) tests/gpu/check.sh
	@$(MAKE) --no-print-directory gpu-bench

gpu-bench: deps-check ## training on this machine's GPU beside PyTorch on the same GPU, where python3 has it
	@$(MAKE) --no-print-directory -j$$(nproc) all $(B)/tests/conformance/op_test
	@WEIR_BUILD_DIR=$(B) python3 tests/gpu/bench.py

.PHONY: gpu-check gpu-bench
