# make dist: a tarball that runs on other x86-64 machines.

# Programs look for libraries in lib/ beside their folder first. The old tag, DT_RPATH, counts for the needs of
# those libraries, too. In a build tree there is no such folder.
RPATH = -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib:$$ORIGIN/../../../lib'
DIST_TESTS = $(patsubst %.c,$(B)/%,$(wildcard tests/conformance/*_test.c))

dist: ## build/weir-VERSION-x86_64.tar.gz: programs, libraries, the GPU suite; for any x86-64 with glibc 2.36
	$(call install,$(PACKAGES) libcmocka-dev libonnx-testdata)
	@$(MAKE) --no-print-directory -j$$(nproc) all $(DIST_TESTS)
	@CUDA=$(CUDA) docker/pack.sh $(B) $(B)

.PHONY: dist
