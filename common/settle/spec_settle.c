/* The checks of a spec against the tables that its names come from. */
#include "common/settle/spec_settle.h"

#include "common/agree/spec.h"
#include "common/modes/mode.h"
#include "common/optim/schedule.h"
#include "common/optim/update_rule.h"
#include "model/metrics/metric.h"

int spec_settle(Weir__RunSpec *spec, struct err *err) {
  Weir__TrainSpec *train = spec->train;
  if (spec->eval && metric_check_names(spec->eval->metrics, spec->eval->n_metrics, err))
    return err->code;
  if (update_rules_settle(train, err) || schedule_settle(train->schedule, err) ||
      schedule_check_optimizer(train->schedule, train->optimizer, err))
    return err->code;
  return mode_check(spec, err);
}

int spec_settle_steps(Weir__RunSpec *spec, struct err *err) {
  return spec->train->local ? spec_settle(spec, err) : mode_check(spec, err);
}

int spec_settle_check(const Weir__RunSpec *spec, struct err *err) {
  Weir__RunSpec *copy = spec_copy(spec);
  int code = spec_settle(copy, err);
  spec_free(copy);
  return code;
}
