/* A run that is loaded, and that nobody wants any more, becomes another one that would load the same. */
#include <string.h>

#include "common/agree/spec.h"
#include "common/agree/spec_program.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/trace/trace.h"
#include "worker/train/run.h"
#include "worker/train/run/run_state.h"

static bool is_same_model(const Weir__LoadRun *a, const Weir__LoadRun *b) {
  return strcmp(a->model_sha256, b->model_sha256) == 0 && strcmp(a->outline_sha256, b->outline_sha256) == 0 &&
         a->stage_begin == b->stage_begin && a->stage_end == b->stage_end;
}

static bool has_same_data(const struct loaded *loaded, const struct data_root *data_root) {
  const Weir__DataSpec *data = loaded->spec->data;
  return dataset_is_as_opened(loaded->train, loaded->spec, data->train, data_root) &&
         (!data->eval || dataset_is_as_opened(loaded->eval, loaded->spec, data->eval, data_root));
}

/* With its defaults; NULL: it is none. Freed by the caller. */
static Weir__RunSpec *checked_spec(const Weir__LoadRun *load) {
  Weir__RunSpec *spec = load->spec ? spec_copy(load->spec) : NULL;
  struct err err = ERR_NONE;
  if (spec && spec_check(spec, &err) == 0)
    return spec;
  spec_free(spec);
  return NULL;
}

static bool plan_of(const struct loaded *loaded, const Weir__LoadRun *load, struct plan *plan) {
  Weir__RunSpec *spec = checked_spec(load);
  struct err err = ERR_NONE;
  bool is_same = spec && spec_has_same_program(loaded->spec, spec) &&
                 plan_init(plan, spec, loaded->plan.train_samples, loaded->plan.eval_samples, &err) == 0;
  spec_free(spec);
  return is_same &&
         (plan->steps == 0) == (loaded->plan.steps == 0); /* one that only evaluates trains nothing */
}

bool run_fits(struct run *run, const Weir__LoadRun *load, const struct data_root *data_root) {
  struct plan plan;
  struct data_root root = *data_root;
  root.tenants = load->data_root;
  return is_same_model(run->load, load) && plan_of(&run->loaded, load, &plan) &&
         has_same_data(&run->loaded, &root);
}

/* What it did as the run that it was. The loader reads nothing of the plan while it expects nothing. */
static void forget_locked(struct run *run, const Weir__LoadRun *load, const struct plan *plan) {
  loader_expect(run->loaded.loader, 0, 0, 0);
  run->loaded.plan = *plan;
  message_free(run->load);
  message_free(run->applied);
  reissues_clear(&run->reissues);
  run->load = message_copy(load);
  run->applied = NULL;
  run->incarnation = load->incarnation;
  run->share = run->newest_share = (struct share){0};
  run->group = run->newest_group = run->last_group = (struct group){0};
  run->mates = run->newest_mates = (struct mates){0};
  run->is_touched = run->is_group_told = run->is_unreached_told = false;
  run->setbacks = run->drops = 0;
  run->follow = (struct follow){0};
  run->totals = (struct totals){0};
}

bool run_become(struct run *run, const Weir__LoadRun *load, struct rpc_channel *coordinator) {
  struct plan plan;
  bool fits;
  pthread_mutex_lock(&run->lock);
  fits = run->phase == RUN_IDLE && plan_of(&run->loaded, load, &plan);
  if (fits) {
    log_event(LOG_INFO, "worker", "becomes", "run=%s is=%s", load->run, run->load->run);
    forget_locked(run, load, &plan);
    trace_run_become(run->trace_number, load->run);
  }
  pthread_mutex_unlock(&run->lock);
  return fits && run_tell_again(run, load, coordinator);
}
