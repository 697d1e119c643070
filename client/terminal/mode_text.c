/* A run's mode in words. */
#include "client/terminal/mode_text.h"

#include <string.h>

#include "client/terminal/output.h"
#include "common/agree/spec.h"
#include "common/modes/mode.h"
#include "common/optim/update_rule.h"
#include "common/settle/spec_settle.h"

static const char *plural(uint32_t n) {
  return n == 1 ? "" : "s";
}

static void print_options(FILE *file, const Weir__TrainSpec *train) {
  if (train->has_staleness)
    fprintf(file, ", staleness %u", train->staleness);
  if (train->local)
    fprintf(file, ", %u replica%s of %u inner step%s", train->local->replicas, plural(train->local->replicas),
            train->local->inner_steps, plural(train->local->inner_steps));
}

/* What optimizers keep in mode local, of the group whose optimizer keeps most: the inner one on each worker,
   the outer one on the servers. */
static void print_states(FILE *file, const Weir__TrainSpec *train, const struct mode_bounds *bounds,
                         uint64_t version_bytes) {
  const struct update_rule inner = update_rule_of_steps(train), outer = update_rule_of_servers(train);
  uint64_t inner_bytes = update_rule_slots_most(&inner) * version_bytes;
  uint64_t outer_bytes = update_rule_slots_most(&outer) * version_bytes;
  char worker[OUTPUT_TEXT_MAX], servers[OUTPUT_TEXT_MAX], gradients[OUTPUT_TEXT_MAX], part[OUTPUT_TEXT_MAX];
  if (strcmp(train->local->inner_state, "kept") == 0)
    fprintf(
        file,
        "; what train.optimizer keeps (%s) is kept: with each version on the servers (%s) and on each worker "
        "(%s), with each push and pull of a round beside the weights' %s, and in checkpoints",
        output_bytes(inner_bytes, gradients), output_bytes(bounds->versions * inner_bytes, servers),
        output_bytes((bounds->sets + bounds->replica_sets) * inner_bytes, worker),
        output_bytes(version_bytes, part));
  else
    fprintf(file, "; what train.optimizer keeps on each worker (%s)", output_bytes(inner_bytes, worker));
  fprintf(file, "; what train.local.outer keeps on the servers (%s)", output_bytes(outer_bytes, servers));
}

static void mode_print_settled(FILE *file, const Weir__RunSpec *spec, uint64_t weights) {
  struct mode mode = mode_of(spec);
  struct mode_bounds bounds = mode_bounds(&mode);
  uint32_t sets = bounds.sets + bounds.replica_sets;
  uint64_t version_bytes = weights * sizeof(float);
  char servers[OUTPUT_TEXT_MAX], gradients[OUTPUT_TEXT_MAX], worker[OUTPUT_TEXT_MAX];
  fprintf(file, "%s", mode.def->name);
  print_options(file, spec->train);
  if (mode.def->applies_units)
    fprintf(file, ", window %u", bounds.rounds - 1);
  fprintf(
      file,
      ": at most %u versions of the weights on the servers (%s) and sums of gradients of %u step%s (%s), %u "
      "versions on each worker (%s)",
      bounds.versions, output_bytes(bounds.versions * version_bytes, servers), bounds.sums,
      plural(bounds.sums), output_bytes(bounds.sums * version_bytes, gradients), sets,
      output_bytes(sets * version_bytes, worker));
  if (spec->train->local)
    print_states(file, spec->train, &bounds, version_bytes);
  fprintf(file, "\n");
}

void mode_print(FILE *file, const char *prefix, const Weir__RunSpec *spec, uint64_t weights) {
  struct err err = ERR_NONE;
  Weir__RunSpec *settled;
  if (!spec || !spec->train || mode_check(spec, &err))
    return;
  settled = spec_copy(spec);
  if (spec_settle(settled, &err) == 0) {
    fprintf(file, "%s", prefix);
    mode_print_settled(file, settled, weights);
  }
  spec_free(settled);
}

void mode_print_note(FILE *file, const char *prefix, const Weir__RunSpec *spec) {
  const char *note = mode_note(spec);
  if (note)
    fprintf(file, "%s%s\n", prefix, note);
}
