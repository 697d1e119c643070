/* By what weights are updated. */
#include "common/optim/update_rule.h"

#include <math.h>
#include <string.h>

#include "common/optim/vector.h"

/* torch.nn.utils.clip_grad_norm_'s, against division by 0. */
static const double norm_epsilon = 1e-6;

/* In mode local no sums are exchanged. */
static int check_alone(const Weir__OptimizerSpec *spec, const char *path, struct err *err) {
  if (optimizer_find(spec->name)->n_phases == 0)
    return 0;
  return err_set(err, ERR_INVALID,
                 "%s.name: mode local trains without %s, whose updates need sums over whole tensors", path,
                 spec->name);
}

int update_rules_settle(Weir__TrainSpec *train, struct err *err) {
  if (optimizer_settle(train->optimizer, err))
    return err->code;
  if (!train->local)
    return 0;
  if (optimizer_settle_at(train->local->outer, "train.local.outer", err))
    return err->code;
  if (check_alone(train->optimizer, "train.optimizer", err))
    return err->code;
  return check_alone(train->local->outer, "train.local.outer", err);
}

bool update_rules_keep_alike(const Weir__TrainSpec *a, const Weir__TrainSpec *b) {
  return optimizer_slots_are_alike(update_rule_of_servers(a).options, update_rule_of_servers(b).options);
}

int update_rules_check_kept(const Weir__TrainSpec *parent, const Weir__TrainSpec *fork, struct err *err) {
  if (!fork->local || strcmp(fork->local->inner_state, "kept") != 0 ||
      optimizer_slots_are_alike(parent->optimizer, fork->optimizer))
    return 0;
  return err_set(err, ERR_INVALID,
                 "train.optimizer: with train.local.inner_state kept a fork goes on with what its parent's "
                 "optimizer keeps of each weight, and this one keeps other values");
}

struct update_rule update_rule_of_servers(const Weir__TrainSpec *train) {
  if (!train->local)
    return update_rule_of_steps(train);
  return (struct update_rule){.optimizer = optimizer_find(train->local->outer->name),
                              .options = train->local->outer};
}

struct update_rule update_rule_of_steps(const Weir__TrainSpec *train) {
  return (struct update_rule){.optimizer = optimizer_find(train->optimizer->name),
                              .options = train->optimizer,
                              .schedule = train->schedule,
                              .clip_norm = train->has_clip_norm ? train->clip_norm : 0,
                              .clip_value = train->has_clip_value ? train->clip_value : 0};
}

uint32_t update_rule_slots_most(const struct update_rule *rule) {
  uint32_t most = 0;
  for (uint32_t group = 0; rule->optimizer && group <= rule->options->n_groups; group++) {
    uint32_t slots = rule->optimizer->slots(update_rule_group(rule, group));
    most = slots > most ? slots : most;
  }
  return most;
}

uint32_t update_rule_kept(const Weir__TrainSpec *train, uint32_t group) {
  struct update_rule rule = update_rule_of_steps(train);
  if (!train->local || strcmp(train->local->inner_state, "kept") != 0)
    return 0;
  return rule.optimizer->slots(update_rule_group(&rule, group));
}

const Weir__OptimizerSpec *update_rule_group(const struct update_rule *rule, uint32_t group) {
  return optimizer_group(rule->options, rule->options->n_groups ? group : 0);
}

double update_rule_lr(const struct update_rule *rule, double lr, uint64_t step, uint64_t steps) {
  return rule->schedule ? schedule_lr(rule->schedule, lr, step, steps) : lr;
}

const Weir__OptimizerSpec *update_rule_options(const struct update_rule *rule,
                                               const Weir__OptimizerSpec *options, uint64_t step,
                                               uint64_t steps, struct step_options *own) {
  return rule->schedule ? schedule_options(rule->schedule, options, step, steps, own) : options;
}

void update_rule_scale(const struct update_rule *rule, double squares, float *grads, uint32_t elems) {
  double factor = rule->clip_norm > 0 ? rule->clip_norm / (sqrt(squares) + norm_epsilon) : 1;
  if (factor < 1)
    vector_scale(grads, elems, (float)factor);
}
