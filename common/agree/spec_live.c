/* What of a run's spec can be changed while it goes on. */
#include "common/agree/spec_live.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/agree/labels.h"
#include "common/base/nearest.h"

enum { PATH_MAX_BYTES = 64, DOCUMENT_BYTES = 256 + 2 * LABELS_TEXT_MAX };

static const char *const live_paths[] = {"priority",       "workers.min",     "workers.max",
                                         "workers.weight", "workers.require", "train.hold"};
enum { LIVE_PATHS = sizeof live_paths / sizeof *live_paths };

/* Up to '=', or the mapping whose entry it is. */
static bool is_path(const char *setting, size_t length, const char *path) {
  size_t least = strlen(path);
  return length >= least && memcmp(setting, path, least) == 0 &&
         (length == least || (setting[least] == '.' && strcmp(path, "workers.require") == 0));
}

static int check_path(const char *setting, struct err *err) {
  size_t length = strcspn(setting, "=");
  char path[PATH_MAX_BYTES];
  const char *near;
  for (int i = 0; i < LIVE_PATHS; i++)
    if (is_path(setting, length, live_paths[i]))
      return setting[length] ? 0 : err_set(err, ERR_INVALID, "%s: a value is missing: PATH=VALUE", setting);
  snprintf(path, sizeof path, "%.*s", (int)(length < sizeof path ? length : sizeof path - 1), setting);
  near = nearest_word(path, live_paths, LIVE_PATHS);
  return err_set(err, ERR_INVALID,
                 "%s: this cannot be set on a run that is there%s%s%s: priority, workers.min, workers.max, "
                 "workers.weight, workers.require and train.hold can",
                 path, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static bool is_hold(const char *setting) {
  return is_path(setting, strcspn(setting, "="), "train.hold");
}

bool spec_sets_hold(const char *const *settings, int n) {
  for (int i = 0; i < n; i++)
    if (is_hold(settings[i]))
      return true;
  return false;
}

/* What the run's hold is must be known. */
static int check_hold(const Weir__RunSpec *spec, const char *setting, struct err *err) {
  if (!spec->train->has_hold_epochs || !is_hold(setting))
    return 0;
  return err_set(
      err, ERR_INVALID,
      "train.hold: the hold of this run is told by train.hold_epochs, and becomes a version when a "
      "worker has read the data: set it then");
}

/* The keys as they are, in YAML: all of them, for null takes away only what is there. */
static void document_write(const Weir__RunSpec *spec, char out[DOCUMENT_BYTES]) {
  const Weir__WorkersSpec *workers = spec->workers;
  int at = snprintf(out, DOCUMENT_BYTES,
                    "{priority: %" PRId64 ", train: {hold: %" PRIu64 "}, workers: {min: %" PRIu32
                    ", max: %" PRIu32 ", weight: %.17g, require: {",
                    spec->priority, spec->train->has_hold ? spec->train->hold : UINT64_MAX, workers->min,
                    workers->has_max ? workers->max : UINT32_MAX, workers->weight);
  for (size_t i = 0; i < workers->n_require; i++)
    at += snprintf(out + at, DOCUMENT_BYTES - (size_t)at, "%s\"%s\": \"%s\"", i ? ", " : "",
                   workers->require[i]->key, workers->require[i]->value);
  snprintf(out + at, DOCUMENT_BYTES - (size_t)at, "}}}");
}

/* It was none, or is a higher one, or none any more. */
static int check_raise(const Weir__TrainSpec *train, const Weir__TrainSpec *was, struct err *err) {
  if (!train->has_hold || (was->has_hold && train->hold >= was->hold))
    return 0;
  if (!was->has_hold)
    return err_set(
        err, ERR_INVALID,
        "train.hold: the run has no hold, and one that is there is only ever raised: submit a run with it");
  return err_set(err, ERR_INVALID,
                 "train.hold: %" PRIu64 " is below %" PRIu64
                 ", which the run has: a hold is only ever raised",
                 train->hold, was->hold);
}

static void take_hold(Weir__TrainSpec *train, const Weir__TrainSpec *from) {
  if (!train->has_hold || (from->has_hold && from->hold <= train->hold))
    return;
  train->has_hold = from->has_hold;
  train->hold = from->hold;
}

static void take_require(Weir__WorkersSpec *workers, const Weir__WorkersSpec *from) {
  struct labels was = {workers->require, workers->n_require};
  struct labels taken = labels_copy((struct labels){from->require, from->n_require});
  labels_free(&was);
  workers->require = taken.list;
  workers->n_require = taken.n;
}

void spec_take_live(Weir__RunSpec *spec, const Weir__RunSpec *from) {
  spec->has_priority = from->has_priority;
  spec->priority = from->priority;
  spec->workers->has_min = from->workers->has_min;
  spec->workers->min = from->workers->min;
  spec->workers->has_max = from->workers->has_max;
  spec->workers->max = from->workers->max;
  spec->workers->has_weight = from->workers->has_weight;
  spec->workers->weight = from->workers->weight;
  take_require(spec->workers, from->workers);
  take_hold(spec->train, from->train);
}

int spec_set_live(Weir__RunSpec *spec, const char *const *settings, int n, struct err *err) {
  const struct spec_source source = {.file = "run", .settings = settings, .n_settings = n};
  Weir__RunSpec *read, *changed;
  char document[DOCUMENT_BYTES];
  for (int i = 0; i < n; i++)
    if (check_path(settings[i], err) || check_hold(spec, settings[i], err))
      return err->code;
  document_write(spec, document);
  if (spec_read_text(&source, document, strlen(document), &read, err))
    return err->code;
  read->workers->has_max &= read->workers->max != UINT32_MAX;
  read->train->has_hold &= read->train->hold != UINT64_MAX;
  changed = spec_copy(spec);
  spec_take_live(changed, read);
  if (check_raise(read->train, spec->train, err) == 0 && spec_check(changed, err) == 0)
    spec_take_live(spec, changed);
  spec_free(read);
  spec_free(changed);
  return err->code;
}
