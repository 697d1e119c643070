# make install: programs, weir-cuda.so where it was built, man pages, completions. DESTDIR goes before all paths, for packages.
PREFIX ?= /usr/local
MAN = $(B)/man
installed = $(DESTDIR)$(PREFIX)/$(1)

man: $(PROGRAMS) ## build/man: a man page for each program and each command of weir
	@echo "  MAN   $(MAN)"
	$(Q)rm -rf $(MAN) && mkdir -p $(MAN) && $(B)/weir help --man $(MAN)
	$(Q)$(B)/weir-server --man > $(MAN)/weir-server.1 && $(B)/weir-worker --man > $(MAN)/weir-worker.1

install: all ## programs, man pages, completions below PREFIX=/usr/local; DESTDIR= is for packages
	@$(MAKE) --no-print-directory install-built

# Of what is built already.
install-built: man
	@echo "  INSTALL $(call installed,)"
	$(Q)install -d $(call installed,bin) $(call installed,share/man/man1)
	$(Q)install -m 755 $(PROGRAMS) $(call installed,bin)
	$(Q)install -m 644 $(MAN)/*.1 $(call installed,share/man/man1)
	$(Q)[ ! -e $(B)/weir-cuda.so ] || install -D -m 755 $(B)/weir-cuda.so $(call installed,lib/weir/weir-cuda.so)
	$(Q)$(B)/weir complete bash > $(MAN)/bash && install -D -m 644 $(MAN)/bash $(call installed,share/bash-completion/completions/weir)
	$(Q)$(B)/weir complete zsh > $(MAN)/zsh && install -D -m 644 $(MAN)/zsh $(call installed,share/zsh/site-functions/_weir)
	$(Q)$(B)/weir complete fish > $(MAN)/fish && install -D -m 644 $(MAN)/fish $(call installed,share/fish/vendor_completions.d/weir.fish)

uninstall: ## removes what `make install` put below PREFIX
	rm -f $(PROGRAMS:$(B)/%=$(call installed,bin/%)) $(call installed,share/man/man1/weir.1) $(call installed,share/man/man1/weir-*.1) \
	  $(call installed,lib/weir/weir-cuda.so) $(call installed,share/bash-completion/completions/weir) \
	  $(call installed,share/zsh/site-functions/_weir) $(call installed,share/fish/vendor_completions.d/weir.fish)
	[ ! -d $(call installed,lib/weir) ] || rmdir --ignore-fail-on-non-empty $(call installed,lib/weir)

.PHONY: man install install-built uninstall
