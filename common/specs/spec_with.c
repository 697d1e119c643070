/* The way leads over the spec's text, so that a setting is read as it is from a command line. */
#include "common/specs/spec_with.h"

#include <stdlib.h>
#include <string.h>

#include "common/specs/spec_text.h"

/* Whether one of the settings gives the key a value. */
static bool is_set(const struct spec_source *settings, const char *path) {
  size_t length = strlen(path);
  for (int i = 0; i < settings->n_settings; i++)
    if (strncmp(settings->settings[i], path, length) == 0 && settings->settings[i][length] == '=')
      return true;
  return false;
}

int spec_with(const Weir__RunSpec *base, const struct spec_source *settings, Weir__RunSpec **out,
              struct err *err) {
  Weir__RunSpec *now = spec_copy(base);
  char *text;
  if (now->train && is_set(settings, "train.steps") && !is_set(settings, "train.epochs"))
    now->train->has_epochs = false;
  if (now->train && is_set(settings, "train.epochs") && !is_set(settings, "train.steps"))
    now->train->has_steps = false;
  text = spec_text(now);
  spec_free(now);
  spec_read_text(settings, text, strlen(text), out, err);
  free(text);
  return err->code;
}
