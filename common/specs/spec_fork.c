/* What a fork's spec may have otherwise than its parent's: what the servers apply, and who computes. What a
   step computes from which samples stays, as the fork goes on with its parent's steps. */
#include "common/specs/spec_fork.h"

#include <stdlib.h>
#include <string.h>

#include "common/specs/spec_diff.h"
#include "common/specs/spec_with.h"
#include "common/base/memory.h"

enum { DIFFERENCE_SIZE = 600 };

static bool begins_with(const char *path, const char *with) {
  return strncmp(path, with, strlen(with)) == 0;
}

/* Of the optimizer and of its groups: options, but not which tensors they are for. */
static bool is_option(const char *path) {
  static const char optimizer[] = "train.optimizer.", groups[] = "train.optimizer.groups";
  const char *name = path + strlen(optimizer);
  if (!begins_with(path, optimizer))
    return false;
  if (begins_with(path, groups)) {
    name = strchr(path + strlen(groups), '.');
    if (!name++)
      return false;
  }
  return strcmp(name, "params") != 0 && strcmp(name, "frozen") != 0 && strcmp(name, "groups") != 0;
}

static bool may_differ(const char *path) {
  static const char *const free_paths[] = {"name",          "priority",          "workers",
                                           "eval",          "checkpoint",        "train.steps",
                                           "train.epochs",  "train.schedule",    "train.clip_norm",
                                           "train.average", "train.clip_value",  "train.collective",
                                           "train.hold",    "train.hold_epochs", "train.early_stopping"};
  for (size_t i = 0; i < sizeof free_paths / sizeof *free_paths; i++)
    if (strcmp(path, free_paths[i]) == 0)
      return true;
  return is_option(path);
}

int spec_fork(const Weir__RunSpec *parent, const struct spec_source *settings, const char *name,
              Weir__RunSpec **out, struct err *err) {
  Weir__RunSpec *spec, *base = spec_copy(parent);
  *out = NULL;
  base->train->has_hold = base->train->has_hold_epochs = false; /* it has its own */
  spec_with(base, settings, &spec, err);
  spec_free(base);
  if (err->code)
    return err->code;
  if (name && *name) {
    free(spec->name);
    spec->name = mem_strdup(name);
  }
  if (spec_check(spec, err) == 0 && spec_fork_check(parent, spec, err)) {
    char *why = mem_strdup(err->text);
    err_set(err, ERR_INVALID,
            "%s; 'weir submit SPEC --from RUN@STEP' begins a run of its own from the weights alone", why);
    free(why);
  }
  if (err->code)
    spec_free(spec);
  else
    *out = spec;
  return err->code;
}

int spec_fork_check(const Weir__RunSpec *parent, const Weir__RunSpec *spec, struct err *err) {
  char difference[DIFFERENCE_SIZE];
  return spec_differs(spec, parent, may_differ, difference, sizeof difference)
             ? err_set(err, ERR_INVALID, "%s: a fork goes on with its parent's steps, so this cannot differ",
                       difference)
             : 0;
}
