/* What of a spec workers go by. */
#include "common/agree/spec_program.h"

#include <stdlib.h>

#include "common/agree/spec.h"
#include "common/base/message.h"

static void clear_text(char **text) {
  free(*text);
  *text = NULL;
}

static void clear_message(void *at) {
  void **message = at;
  message_free(*message);
  *message = NULL;
}

static void clear_labels(Weir__WorkersSpec *workers) {
  while (workers->n_require > 0)
    message_free(workers->require[--workers->n_require]);
}

static void clear_versions(Weir__EvalSpec *eval) {
  eval->has_every_steps = false;
  free(eval->at);
  eval->at = NULL;
  eval->n_at = 0;
  free(eval->at_epochs);
  eval->at_epochs = NULL;
  eval->n_at_epochs = 0;
}

/* Without what only servers, the coordinator and plans go by. Which tensors are trained is said by groups, so
   an optimizer that has some stays. */
static Weir__RunSpec *program_of(const Weir__RunSpec *spec) {
  Weir__RunSpec *copy = spec_copy(spec);
  Weir__TrainSpec *train = copy->train;
  clear_text(&copy->name);
  copy->has_priority = false;
  clear_message(&copy->checkpoint);
  train->has_steps = train->has_epochs = train->has_hold = train->has_hold_epochs = false;
  train->has_clip_norm = train->has_clip_value = false;
  clear_message(&train->schedule);
  clear_message(&train->early_stopping);
  if (train->optimizer && train->optimizer->n_groups == 0)
    clear_message(&train->optimizer);
  if (copy->eval)
    clear_versions(copy->eval);
  if (copy->eval && copy->eval->n_metrics == 0)
    clear_message(&copy->eval);
  clear_labels(copy->workers);
  copy->workers->has_min = copy->workers->has_max = copy->workers->has_weight = false;
  return copy;
}

/* Where workers take steps of their own, they go by all that servers go by elsewhere. */
bool spec_has_same_program(const Weir__RunSpec *a, const Weir__RunSpec *b) {
  if (a->train->local || b->train->local)
    return message_is_same(a, b);
  Weir__RunSpec *program_a = program_of(a), *program_b = program_of(b);
  bool is_same = message_is_same(program_a, program_b);
  spec_free(program_a);
  spec_free(program_b);
  return is_same;
}
