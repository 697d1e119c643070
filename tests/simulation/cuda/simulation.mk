# build/simulation/weir-cuda.so: the cuda backend on a simulated device, where the headers of CUDA are (the
# toolkit's compiler is not needed). The host's compiler takes the .cu files, as C++.
SIMULATION_H = cuda_runtime_api.h cublasLt.h cudnn.h nccl.h
SIMULATION = $(if $(and $(filter x86_64,$(shell uname -m)),$(filter $(words $(SIMULATION_H)),\
  $(words $(wildcard $(SIMULATION_H:%=$(CUDA_HOME)/include/%))))),$(B)/simulation/weir-cuda.so)
SIMULATION_O = $(call objects,$(wildcard tests/simulation/cuda/*.c))
SIMULATED_O = $(call objects,$(CUDA_C)) $(CUDA_CU:%=$(B)/obj/simulation/%.o)
SIMULATION_CXXFLAGS = -std=gnu++17 -O2 -g -fPIC -ffp-contract=off -fno-math-errno -fno-strict-aliasing \
  -fno-exceptions -fno-rtti -Wall -Wextra -Werror -Wno-unknown-pragmas $(SANFLAGS) -include tests/simulation/cuda/device_simulation.h

$(B)/obj/tests/simulation/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include

$(B)/obj/simulation/%.cu.o: %.cu | $(B)/gen/.done
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)g++ -x c++ $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(SIMULATION_CXXFLAGS) -MMD -MP -c -o $@ $<

$(B)/simulation/weir-cuda.so: $(SIMULATED_O) $(SIMULATION_O) $(B)/libweir.a
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -shared $(if $(SAN),,-Xlinker -z -Xlinker defs) -Wl,--exclude-libs,ALL -o $@ $(SIMULATED_O) $(SIMULATION_O) \
	  $(B)/libweir.a $(LDLIBS)

# Its own tests: right and wrong programs, on the device alone. Without the headers they are skips.
$(B)/tests/simulation/%_test: $(B)/obj/tests/simulation/%_test.o $(if $(SIMULATION),$(SIMULATION_O) \
  $(patsubst %,$(B)/obj/simulation/%.o,$(wildcard tests/simulation/*.cu))) $(B)/libweir.a
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libweir.a -lcmocka $(LDLIBS)
$(B)/obj/tests/simulation/%.o: CPPFLAGS += $(if $(SIMULATION),-DWEIR_SIMULATION -isystem $(CUDA_HOME)/include)

# The real cuDNN's plans for GPUs that are described to it; nothing of the simulated device is in it.
DNN_PLANS = $(B)/tests/simulation/dnn_plan_test
DNN_LIBS = -L$(CUDA_HOME)/lib64 -lcudnn -Wl,-rpath,$(CUDA_HOME)/lib64
DNN = $(and $(filter 1,$(CUDA)),$(wildcard $(CUDA_HOME)/lib64/libcudnn.so))
$(B)/obj/tests/simulation/dnn_plan_test.o: CPPFLAGS += $(if $(DNN),-DWEIR_DNN -isystem $(CUDA_HOME)/include)
$(DNN_PLANS): $(B)/obj/tests/simulation/dnn_plan_test.o $(if $(DNN),$(DNN_PLANS).driver/libcuda.so.1 \
  $(call objects,$(addprefix worker/backend/cuda/attention/,dnn_graph.c attention_graph.c))) $(B)/libweir.a
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libweir.a $(if $(DNN),$(DNN_LIBS)) \
	  $(LDLIBS) -ldl
$(DNN_PLANS).driver/libcuda.so.1: tests/simulation/driver/driver.c
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<

# What runs on it, of one build with it.
$(patsubst %.c,$(B)/%,$(wildcard tests/unit/worker/backend/cuda_*_test.c)): | $(SIMULATION)
