# make deb: a Debian package of the tree, built as Debian builds: from a copy of it, with docker/debian beside.
DEB_PACKAGES = debhelper dpkg-dev fakeroot lintian
# Later commits have later versions.
DEB_VERSION = $(shell sed -n 's/.*define WEIR_VERSION "\(.*\)"/\1/p' client/commands/version.c)+git$(shell \
  TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).$(BUILD_ID:-dirty=+dirty)
DEB_TREE = $(B)/deb/weir
COMMA = ,
SPACE = $(EMPTY) $(EMPTY)

deb: ## build/weir_VERSION_amd64.deb, and weir-cuda beside it where nvcc is; lintian has nothing to say
	$(call install,$(PACKAGES) $(DEB_PACKAGES))
	@rm -rf $(B)/deb && mkdir -p $(DEB_TREE)
	@git ls-files -co --exclude-standard -z | tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C $(DEB_TREE)
	@cp -r docker/debian $(DEB_TREE)/debian
	@sed -i 's/@BUILD_DEPENDS@/$(subst $(SPACE),$(COMMA) ,$(filter-out build-essential git,$(PACKAGES)))/' $(DEB_TREE)/debian/control
	@$(if $(filter 1,$(CUDA)),cat docker/debian/weir-cuda.control >> $(DEB_TREE)/debian/control,\
	  echo "make: there is no nvcc here, so the package weir-cuda is not made" >&2)
	@printf 'BUILD_ID = %s\nBUILD_DATE = %s\nCUDA = %s\nCUDA_HOME = %s\n' $(BUILD_ID) $(BUILD_DATE) $(CUDA) $(CUDA_HOME) > \
	  $(DEB_TREE)/debian/build_id.mk
	@printf 'weir (%s) unstable; urgency=medium\n\n  * The tree at %s.\n\n -- The Weir authors <weir@packages.debian.org>  %s\n' \
	  $(DEB_VERSION) $(BUILD_ID) "$$(git log -1 --date=rfc --format=%cd)" > $(DEB_TREE)/debian/changelog
	@echo "  DEB   $(B)/weir_$(DEB_VERSION)_amd64.deb"
	$(Q)cd $(DEB_TREE) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u B DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc >../log 2>&1 || \
	  { tail -n 20 ../log; exit 1; }
	@lintian --fail-on error,warning $(B)/deb/weir_*.changes
	@rm -f $(B)/weir_*.deb $(B)/weir-cuda_*.deb && mv $(B)/deb/weir*.deb $(B)

deb-check: deb ## the package in a fresh Debian, as root: installed, a run on its units, upgraded, removed, purged
	$(call install,debootstrap systemd-container)
	@WEIR_BUILD_DIR=$(B) python3 tests/package/deb_check.py

first-run: deb ## docs/FIRST_RUN.md anew: its commands in a fresh Debian, as root (downloads PyTorch)
	$(call install,debootstrap systemd-container)
	@WEIR_BUILD_DIR=$(B) python3 tests/package/first_run.py

.PHONY: deb deb-check first-run
