/* By what weights are updated, and where: servers update by the spec's optimizer, schedule and clipping. In
   mode local these are of the inner steps, which workers take, and servers update by train.local.outer. */
#ifndef WEIR_COMMON_OPTIM_UPDATE_RULE_H
#define WEIR_COMMON_OPTIM_UPDATE_RULE_H

#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

struct update_rule {
  const struct optimizer_def *optimizer;
  const Weir__OptimizerSpec *options;
  const Weir__ScheduleSpec *schedule; /* NULL: rates stay as they are */
  double clip_norm, clip_value;       /* 0: there is none */
};

/* Settles both (optimizer_settle). Errors: likewise. */
int update_rules_settle(Weir__TrainSpec *train, struct err *err);

/* Whether servers keep the same values of each weight by either: optimizer_slots_are_alike. */
bool update_rules_keep_alike(const Weir__TrainSpec *a, const Weir__TrainSpec *b);

/* Errors: INVALID, naming the key, where train.local.inner_state is kept, and a fork could not go on with
   what the parent's inner optimizer keeps. Both are settled. */
int update_rules_check_kept(const Weir__TrainSpec *parent, const Weir__TrainSpec *fork, struct err *err);

/* Of a spec that was checked; settled only where options are read. It outlives the rule. */
struct update_rule update_rule_of_servers(const Weir__TrainSpec *train);
struct update_rule update_rule_of_steps(const Weir__TrainSpec *train);

/* How many f32s of each weight of the group go with each version, because replicas hand on what their
   optimizer keeps (train.local.inner_state: kept); 0: none do. Settled. */
uint32_t update_rule_kept(const Weir__TrainSpec *train, uint32_t group);

/* The most f32s that are kept of a weight of any group. Settled. */
uint32_t update_rule_slots_most(const struct update_rule *rule);

/* The options of a group of the model. */
const Weir__OptimizerSpec *update_rule_group(const struct update_rule *rule, uint32_t group);

/* The learning rate of a step, of the group's base rate; and the group's options at it, in *own where the
   schedule moves them. */
double update_rule_lr(const struct update_rule *rule, double lr, uint64_t step, uint64_t steps);
const Weir__OptimizerSpec *update_rule_options(const struct update_rule *rule,
                                               const Weir__OptimizerSpec *options, uint64_t step,
                                               uint64_t steps, struct step_options *own);

/* clip_norm, where there is one. squares: the sum of those of the gradients of all weights. */
void update_rule_scale(const struct update_rule *rule, double squares, float *grads, uint32_t elems);

#endif
