/* A run's mode in words. */
#include "client/terminal/mode_text.h"

#include "client/terminal/output.h"
#include "common/modes/mode.h"

static const char *plural(uint32_t n) {
  return n == 1 ? "" : "s";
}

void mode_print(FILE *file, const char *prefix, const Weir__RunSpec *spec, uint64_t weights) {
  struct err err = ERR_NONE;
  struct mode mode;
  struct mode_bounds bounds;
  uint32_t sets;
  uint64_t version_bytes = weights * sizeof(float);
  char servers[OUTPUT_TEXT_MAX], gradients[OUTPUT_TEXT_MAX], worker[OUTPUT_TEXT_MAX];
  if (!spec || !spec->train || mode_check(spec, &err))
    return;
  mode = mode_of(spec);
  bounds = mode_bounds(&mode);
  sets = bounds.sets + bounds.replica_sets;
  fprintf(file, "%s%s", prefix, mode.def->name);
  if (spec->train->has_staleness)
    fprintf(file, ", staleness %u", spec->train->staleness);
  if (mode.def->applies_units)
    fprintf(file, ", window %u", bounds.rounds - 1);
  fprintf(
      file,
      ": at most %u versions of the weights on the servers (%s) and sums of gradients of %u step%s (%s), %u "
      "versions on each worker (%s)\n",
      bounds.versions, output_bytes(bounds.versions * version_bytes, servers), bounds.sums,
      plural(bounds.sums), output_bytes(bounds.sums * version_bytes, gradients), sets,
      output_bytes(sets * version_bytes, worker));
}

void mode_print_note(FILE *file, const char *prefix, const Weir__RunSpec *spec) {
  const char *note = mode_note(spec);
  if (note)
    fprintf(file, "%s%s\n", prefix, note);
}
