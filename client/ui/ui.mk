# The dashboard's files, each compressed, as C; among them what draws its charts, of Debian's package.
UI_CHARTS = /usr/share/javascript/chart.js/chart.min.js
UI_FILES = $(sort $(wildcard client/ui/assets/*)) $(UI_CHARTS)
GEN_C += $(B)/gen/ui_assets.c

$(UI_CHARTS):
	@echo "make: please install the Debian package libjs-chart.js ('make deps' does)" >&2; exit 1

$(B)/gen/ui_assets.c: $(UI_FILES) client/ui/ui.mk
	@echo "  GZIP  $@"
	@mkdir -p $(@D)
	$(Q){ echo '#include "client/ui/asset.h"'; n=0; rows=; for file in $(UI_FILES); do \
	  echo "static const unsigned char asset_$$n[] = {"; gzip -9nc $$file | od -An -v -tx1 | sed 's/ \(..\)/0x\1,/g'; echo '};'; \
	  rows="$$rows {\"$${file##*/}\", asset_$$n, sizeof asset_$$n},"; n=$$((n + 1)); done; \
	  echo "const struct asset assets[] = {$$rows {0}};"; } > $@
$(B)/gen/ui_assets.o: $(B)/gen/ui_assets.c
