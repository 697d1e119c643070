/* The checks of a spec against the tables that its names come from. */
#include "common/settle/spec_settle.h"

#include "common/agree/spec.h"
#include "common/compress/compression.h"
#include "common/modes/mode.h"
#include "common/optim/schedule.h"
#include "common/optim/update_rule.h"
#include "model/metrics/metric.h"

/* Of a mode that updates blocks as parts come. */
static int check_sums(const Weir__RunSpec *spec, struct err *err) {
  struct update_rule rule = update_rule_of_servers(spec->train);
  struct mode mode = mode_of(spec);
  if (!mode.def->applies_units || rule.optimizer->n_phases == 0)
    return 0;
  return err_set(err, ERR_INVALID,
                 "train.optimizer.name: each update of %s takes sums over whole tensors, and mode %s updates "
                 "each block by itself",
                 rule.optimizer->name, mode.def->name);
}

int spec_settle(Weir__RunSpec *spec, struct err *err) {
  Weir__TrainSpec *train = spec->train;
  if (spec->eval && metric_check_names(spec->eval->metrics, spec->eval->n_metrics, err))
    return err->code;
  if (update_rules_settle(train, err) || schedule_settle(train->schedule, err) ||
      schedule_check_optimizer(train->schedule, train->optimizer, err))
    return err->code;
  if (mode_check(spec, err) || check_sums(spec, err))
    return err->code;
  return compression_check(train, err);
}

int spec_settle_steps(Weir__RunSpec *spec, struct err *err) {
  if (spec->train->local)
    return spec_settle(spec, err);
  return mode_check(spec, err) ? (int)err->code : compression_check(spec->train, err);
}

int spec_settle_check(const Weir__RunSpec *spec, struct err *err) {
  Weir__RunSpec *copy = spec_copy(spec);
  int code = spec_settle(copy, err);
  spec_free(copy);
  return code;
}
