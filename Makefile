# Weir. `make help` lists the targets.
B ?= build
CC = gcc
BUILD_ID := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
BUILD_DATE := $(or $(shell git log -1 --format=%cs 2>/dev/null),$(shell date +%F))
PKGS = grpc gpr libprotobuf-c openssl zlib yaml-0.1 jansson hiredis libjpeg libpng libxxhash libmicrohttpd gnutls
PACKAGES = build-essential pkg-config git libgrpc-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler \
  libdnnl-dev libssl-dev zlib1g-dev libyaml-dev libjansson-dev libhiredis-dev libonnx-dev libjpeg62-turbo-dev \
  libpng-dev libxxhash-dev libmicrohttpd-dev libgnutls28-dev libjs-chart.js
DEMO_PACKAGES = dataset-fashion-mnist
FUZZ_PACKAGES = clang libclang-rt-14-dev
CHECK_PACKAGES = libcmocka-dev redis-server redis-sentinel openssl libonnx-testdata clang-format cppcheck python3 python3-venv iproute2 \
  mandoc zsh fish chromium-headless-shell valgrind
# Only root can test containers; an engine that is there already is not replaced by another.
ifeq ($(shell id -u),0)
  CHECK_PACKAGES += $(shell type dockerd >/dev/null 2>&1 || echo docker.io) docker-compose iptables debootstrap
endif

ifneq ($(SAN),)
  override B := $(B)/san-$(SAN)
  # Checks of pointers make gcc believe that some are null.
  SANFLAGS = -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-format-truncation
endif
Q = $(if $(filter 1,$(V)),,@)
DEBUG = -g1 # lines, for stack traces; DEBUG=-g: variables too, which takes the compiler a seventh longer
# Position-independent, because weir-cuda.so takes what it needs from the same library.
CFLAGS = -std=gnu11 -O3 $(DEBUG) -fPIC -fno-semantic-interposition -ffp-contract=off -fno-math-errno -fno-strict-aliasing \
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror $(SANFLAGS)
CPPFLAGS = -I. -I$(B)/gen -D_GNU_SOURCE
LDFLAGS = -fopenmp $(SANFLAGS)
LDLIBS = $(eval LDLIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -ldnnl -lm -lpthread)$(LDLIBS) # once: it is slow

PROTOS = spec sweep overview training cluster parameters peers store grpc/health/v1/health grpc/reflection/v1/reflection \
  grpc/reflection/v1alpha/reflection
FILE_PROTOS = tensorboard # of files alone: no service uses them
GEN_C = $(patsubst %,$(B)/gen/%.pb-c.c,$(PROTOS) $(FILE_PROTOS) onnx) $(B)/gen/descriptors.c
GEN_O = $(GEN_C:.c=.o)
sources = $(wildcard $(1)/*.c $(1)/*/*.c $(1)/*/*/*.c $(1)/*/*/*/*.c)
objects = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIBRARY_C = $(filter-out %/main.c worker/backend/cuda/%,$(foreach d,common model storage server worker client,$(call sources,$(d))))
LIBRARY_O = $(call objects,$(LIBRARY_C))
PROGRAMS = $(B)/weir $(B)/weir-server $(B)/weir-worker
TEST_C = $(wildcard tests/unit/*/*.c tests/unit/*/*/*.c tests/conformance/*.c tests/fuzz/*_test.c tests/simulation/*_test.c)
TESTS = $(TEST_C:%.c=$(B)/%)

all: $(PROGRAMS) ## build/weir, build/weir-server, build/weir-worker; weir-cuda.so, where nvcc is
include worker/backend/cuda/cuda.mk tests/simulation/cuda/simulation.mk docker/dist.mk docker/install.mk docker/deb.mk client/ui/ui.mk

# gRPC is part of weir where there are archives of it: of the 14 ms that a command takes to start, 10 go to 46 shared libraries and
# their 15,000 symbols. Servers and workers share them.
GRPC_PARTS = -lgrpc -lgpr -lupb -laddress_sorting -lre2 -lcares -labsl_%
GRPC_ARCHIVE = $(if $(SAN),,$(wildcard $(shell $(CC) -print-file-name=libgrpc.a)))
STATIC_GRPC = -Wl,-Bstatic -Wl,--start-group $(sort $(filter $(GRPC_PARTS),$(shell pkg-config --static --libs-only-l grpc))) \
  -Wl,--end-group -Wl,-Bdynamic $(filter-out $(GRPC_PARTS),$(LDLIBS)) -lstdc++
$(B)/weir: PROGRAM_LIBS = $(if $(GRPC_ARCHIVE),$(STATIC_GRPC),$(LDLIBS))
PROGRAM_LIBS = $(LDLIBS)

$(B)/weir: $(B)/obj/client/main.o
$(B)/weir-server: $(B)/obj/server/main.o
$(B)/weir-worker: $(B)/obj/worker/main.o
$(PROGRAMS): $(B)/libweir.a
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(RPATH) -o $@ $(filter %.o,$^) $(B)/libweir.a $(PROGRAM_LIBS)

$(B)/libweir.a: $(LIBRARY_O) $(GEN_O)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/obj/%.o: %.c $(B)/gen/.done | $(B)/gen/build_id.h
	@echo "  CC    $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/gen/%.o: $(B)/gen/.done
	$(Q)$(CC) $(CPPFLAGS) -std=gnu11 -O1 $(DEBUG) $(SANFLAGS) -w -c -o $@ $(@:.o=.c)

# Written, so that what shows it is compiled again, only when it changes.
$(B)/gen/build_id.h: always
	@mkdir -p $(@D)
	$(Q)printf '#define WEIR_BUILD "%s"\n#define WEIR_BUILD_DATE "%s"\n' "$(BUILD_ID)" "$(BUILD_DATE)" > $@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Everything that protoc writes, and the descriptor set that reflection serves.
$(B)/gen/.done: $(patsubst %,proto/%.proto,$(PROTOS) $(FILE_PROTOS))
	@pkg-config --exists $(PKGS) 2>/dev/null && type protoc protoc-c >/dev/null 2>&1 || { \
	echo "make: please install these Debian packages ('make deps' does): "$$($(call missing,$(PACKAGES))) >&2; exit 1; }
	@mkdir -p $(B)/gen
	$(Q)protoc-c -Iproto --c_out=$(B)/gen $^
	$(Q)protoc-c -I/usr/include/onnx --c_out=$(B)/gen /usr/include/onnx/onnx.proto
	$(Q)protoc -Iproto --include_imports --descriptor_set_out=$(B)/gen/descriptors.bin $(PROTOS:%=proto/%.proto)
	$(Q){ echo '#include "common/rpc/descriptors.h"'; echo 'const unsigned char rpc_descriptors[] = {'; \
	  od -An -v -tx1 $(B)/gen/descriptors.bin | sed 's/ \(..\)/0x\1,/g'; \
	  echo '};'; echo 'const unsigned long rpc_descriptors_size = sizeof rpc_descriptors;'; } > $(B)/gen/descriptors.c
	$(Q)touch $@

$(B)/tests/%: $(B)/obj/tests/%.o $(B)/tests/libsupport.a $(B)/libweir.a
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(RPATH) -o $@ $^ -lcmocka $(LDLIBS)

$(B)/tests/libsupport.a: $(call objects,$(wildcard tests/support/*/*.c)) # fixtures: a test is linked with what it calls
	@echo "  AR    $@"
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/tests/chaos/%.so: tests/chaos/%.c $(wildcard tests/chaos/*.h) # preloaded into programs of any sanitizer
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out $(SANFLAGS),$(CFLAGS)) -shared -fPIC -o $@ $<

# A plugin of no GPU; it takes what it needs of the library, as weir-cuda.so does.
FAKE_CUDA = $(B)/tests/fake_cuda.so
$(FAKE_CUDA): $(B)/obj/tests/integration/fake_cuda.o $(B)/libweir.a
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,--exclude-libs,ALL -o $@ $^ $(LDLIBS)

BENCH_C = $(wildcard tests/bench/*.c)
BENCHES = $(BENCH_C:%.c=$(B)/%)
CRASH = $(patsubst %,$(B)/tests/chaos/%,crash_point.so lying_worker.so step_gate.so store_crash)
tests: $(TESTS) $(CRASH) $(FAKE_CUDA) $(SIMULATION) $(B)/tests/bench/loops_bench ## the test programs, without running them

# Shell code: $(call missing,packages) prints those that are not installed; $(call install,packages) installs
# them, and asks for sudo's password only on a terminal.
missing = for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q ' installed' || echo $$p; done
define install
	@missing=$$($(call missing,$(1))); [ -z "$$missing" ] && exit 0; echo "  APT   "$$missing; \
	sudo=; [ $$(id -u) = 0 ] || { sudo=sudo; [ -t 0 ] || sudo='sudo -n'; }; log=$$(mktemp); \
	$$sudo sh -c 'apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
	  --no-install-recommends -o DPkg::Lock::Timeout=300 "$$@"' install $$missing >$$log 2>&1 </dev/null || \
	{ tail -n 3 $$log >&2; rm -f $$log; echo "make: please install these Debian packages: "$$missing >&2; exit 1; }; \
	rm -f $$log
endef

deps: ## install what building needs (Debian packages)
	$(call install,$(PACKAGES))
deps-demo:
	$(call install,$(PACKAGES) $(DEMO_PACKAGES))
deps-check:
	$(call install,$(PACKAGES) $(DEMO_PACKAGES) $(CHECK_PACKAGES))

demo: deps-demo ## train a CNN on Fashion-MNIST on a cluster of processes on this machine
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@examples/demo.sh $(B)

# Programs of others that the tests talk to; without them those tests are counted skips.
build/venv/.done: tests/requirements.txt
	@echo "  VENV  build/venv"
	$(Q)rm -rf build/venv; python3 -m venv build/venv && build/venv/bin/pip -q install -r $< 2>build/venv/log && \
	touch $@ || { tail -n 1 build/venv/log; rm -rf build/venv; echo "make: the tests that need $< are skipped"; } >&2

# Prometheus, unpacked where it is not installed: Debian's package would start a service, now and at each boot.
build/prometheus/.done:
	@echo "  APT   build/prometheus"
	$(Q)mkdir -p $(@D) && cd $(@D) && { type prometheus promtool || { rm -f *.deb && { apt-get -q download prometheus || \
	  { apt-get -q update && apt-get -q download prometheus; }; } && dpkg-deb -x prometheus_*.deb . && rm *.deb; }; } >log 2>&1 && \
	touch .done || { tail -n 1 $(@D)/log; echo "make: the tests that need prometheus are skipped"; } >&2

# REPEAT=20: rounds, all but the first of tests for which the machine's speed could matter (TIMED=1: the first, too);
# ONLY="store lease": programs by name. More at a time than there are cores: most of them wait most of the time.
RUN_TESTS = WEIR_BUILD_DIR=$(B) python3 tests/run.py --jobs=$(or $(JOBS),$$((3 * $$(nproc)))) --repeat=$(or $(REPEAT),1) \
  $(if $(TIMED),--timed) --only="$(ONLY)"
BESIDE = $(filter $(B)/tests/simulation/%,$(TESTS)) # they only compute
LONGEST = $(patsubst %,tests/integration/test_%.py,compose silence hold groups fork checkpoints crash_points store) # first: nothing waits for them at the end
QUICK = contract bad_input same_hash recovery checkpoints outputs trace
check: deps-check ## all tests, and the habits that a program can check (REPEAT=20 ONLY="store lease")
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@$(MAKE) --no-print-directory build/venv/.done build/python/.done build/prometheus/.done
	@$(RUN_TESTS) $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/integration/test_*.py)) tests/gpu/test_*.py \
	  $(sort $(filter-out $(BESIDE),$(TESTS))) -- tests/lint.py $(BESIDE) tests/simulation/test_*.py

check-quick: deps-check ## in 4 minutes: unit and conformance tests, the heart of the integration tests, the habits
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@$(MAKE) --no-print-directory build/venv/.done
	@$(RUN_TESTS) $(QUICK:%=tests/integration/test_%.py) $(sort $(filter-out $(BESIDE),$(TESTS))) \
	  -- tests/lint.py

# The package of examples/python in an environment of its own, with what runs its notebook.
PYTHON_FILES = $(wildcard examples/python/*.toml examples/python/*.py examples/python/src/weir/*.py examples/python/src/weir/pb/* proto/*.proto)
build/python/.done: tests/python_requirements.txt $(PYTHON_FILES)
	@echo "  VENV  build/python"
	$(Q)mkdir -p build; [ -x build/python/bin/pip ] || python3 -m venv build/python; \
	build/python/bin/pip -q install -r $< && build/python/bin/pip -q install --force-reinstall --no-deps ./examples/python && \
	touch $@ || { rm -rf build/python; echo "make: the tests that need $< are skipped"; } >&2

# The same with PyTorch, which is large: for the worker of examples/python.
build/torch/.done: tests/torch_requirements.txt $(PYTHON_FILES)
	@echo "  VENV  build/torch"
	$(Q)mkdir -p build; [ -x build/torch/bin/pip ] || python3 -m venv build/torch; build/torch/bin/pip -q install -r $< && \
	build/torch/bin/pip -q install --force-reinstall --no-deps ./examples/python && touch $@

torch-check: deps-check ## the workers on PyTorch of examples/python beside ours (downloads PyTorch)
	@$(MAKE) --no-print-directory -j$$(nproc) all build/python/.done build/torch/.done
	@WEIR_BUILD_DIR=$(B) python3 tests/integration/test_foreign.py test_a_worker_on_pytorch_trains_lenet_beside_ours \
	  test_a_worker_that_reads_the_runs_onnx_file_computes_what_ours_do test_operators_that_a_worker_on_pytorch_does_not_compute_are_named

build/parity/.done: tests/parity/requirements.txt
	@echo "  VENV  build/parity"
	$(Q)rm -rf build/parity; python3 -m venv build/parity && build/parity/bin/pip -q install -r $< && touch $@

parity: deps-check ## models and exports beside PyTorch (downloads it; MODELS="gpt unet" or FAMILIES="bert xcit" alone)
	@$(MAKE) --no-print-directory -j$$(nproc) all build/parity/.done
	@$(if $(MODELS)$(FAMILIES),,build/parity/bin/python tests/parity/zoo.py $(B)/weir)
	@$(if $(FAMILIES),,build/parity/bin/python tests/parity/train_models.py $(B)/weir $(MODELS))
	@$(if $(MODELS)$(FAMILIES),,build/parity/bin/python tests/parity/distance.py $(B)/weir)
	@$(if $(MODELS),,build/parity/bin/python tests/parity/families.py $(B)/weir $(FAMILIES) --results $(B)/families.jsonl)

distance: deps-check ## fp32 and bf16 as near to float64 as PyTorch's own (downloads it; MODELS="gpt unet" alone; FULL=1: at full width)
	@$(MAKE) --no-print-directory -j$$(nproc) all build/parity/.done
	@build/parity/bin/python tests/parity/distance.py $(B)/weir $(MODELS) $(if $(FULL),--full --draws 1)

compose-check: deps-check ## docker/compose.yaml in a private engine, whose containers are scaled and killed (as root)
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@WEIR_BUILD_DIR=$(B) python3 tests/integration/test_compose.py

conformance: deps-check ## ONNX's own test vectors on every backend: passed, failed and skipped, by op
	@$(MAKE) --no-print-directory -j$$(nproc) $(B)/tests/conformance/onnx_test
	@$(B)/tests/conformance/onnx_test --table

lint: deps-check ## format, cppcheck, layering
	@python3 tests/run.py tests/lint.py

build/search/.done: tests/bench/requirements.txt
	@echo "  VENV  build/search"
	$(Q)rm -rf build/search; python3 -m venv build/search && build/search/bin/pip -q install -r $< && touch $@

build/tune/.done: tests/bench/tune_requirements.txt
	@echo "  VENV  build/tune"
	$(Q)rm -rf build/tune; python3 -m venv build/tune && build/tune/bin/pip -q install -r $< && touch $@

bench: deps-check ## training, push-pull and checkpoints, each beside its alternative (LARGE=1: a 4 GB checkpoint)
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BENCHES) $(if $(filter search,$(PARTS)),build/search/.done) \
	  $(if $(filter tune,$(PARTS)),build/tune/.done) $(if $(filter dashboard,$(or $(PARTS),dashboard)),build/venv/.done)
	@WEIR_BUILD_DIR=$(B) python3 tests/bench/bench.py $(if $(LARGE),large,$(PARTS))

bench-quick: ## in 3 minutes: training, the data plane, updates and starts, in a short round each
	@WEIR_BENCH_QUICK=1 WEIR_BENCH_MODELS="demo mlp" $(MAKE) --no-print-directory bench LARGE= \
	  PARTS="training data-plane optimizers starts"

chaos: deps-check ## kill, freeze and break everything, power cuts too, and compare every bit (SEEDS="1 2 3")
	@$(MAKE) --no-print-directory all $(CRASH)
	@WEIR_BUILD_DIR=$(B) python3 tests/chaos/chaos.py $(SEEDS)
	@WEIR_BUILD_DIR=$(B) python3 tests/chaos/commands.py $(SEEDS)
	@WEIR_BUILD_DIR=$(B) python3 tests/chaos/store_crash.py
	@WEIR_BUILD_DIR=$(B) python3 tests/chaos/crash_points.py
	@WEIR_BUILD_DIR=$(B) python3 tests/chaos/sweep_deaths.py

# Each tests/fuzz/NAME_fuzz.c, with what it needs of the library, under libFuzzer with both sanitizers.
FUZZ_SECONDS ?= 60
FUZZ_C = $(filter-out common/rpc/%,$(foreach d,common model worker/data,$(call sources,$(d)))) \
  worker/backend/ref/ref.c worker/backend/memory.c
FUZZERS = $(patsubst tests/fuzz/%_fuzz.c,%,$(wildcard tests/fuzz/*_fuzz.c))
fuzz: ## let libFuzzer attack the readers of files, FUZZ_SECONDS=60 each; findings are kept in build/fuzz
	$(call install,$(PACKAGES) $(FUZZ_PACKAGES))
	@$(MAKE) --no-print-directory B=build/fuzz CC=clang \
	  SANFLAGS='-w -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
	  $(FUZZERS:%=build/fuzz/fuzz-%)
	@for f in $(FUZZERS); do mkdir -p build/fuzz/corpus/$$f; \
	  build/fuzz/fuzz-$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
	    -print_final_stats=1 -artifact_prefix=build/fuzz/$$f- build/fuzz/corpus/$$f tests/fuzz/corpus/$$f || exit 1; done

$(B)/libfuzzed.a: $(call objects,$(FUZZ_C)) $(GEN_O)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/fuzz-%: $(B)/obj/tests/fuzz/%_fuzz.o $(B)/libfuzzed.a
	@echo "  LD    $@"
	$(Q)$(CC) $(SANFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

help: ## this list
	@cat $(MAKEFILE_LIST) | sed -n "s/^\\([a-z-]*\\):.*## \\(.*\\)/  make \\1\\t\\2/p" | expand -t 22
	@echo "  V=1 shows the commands; SAN=address|undefined|thread builds (and checks) with that sanitizer"

clean: ## remove build/
	rm -rf build

.PHONY: all always tests deps deps-demo deps-check demo check check-quick fuzz parity distance compose-check conformance lint bench \
  bench-quick chaos help clean
.SECONDARY:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
