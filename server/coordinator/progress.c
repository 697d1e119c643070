/* A run's progress: what its servers report, up to the last version. */
#include <math.h>
#include <string.h>

#include "common/log.h"
#include "server/coordinator/state.h"

#define CREDIT_MAX_S 1.0

/* Reports that a server remembers, and tells again when it is kept. */
enum { REPORTS_REMEMBERED = 65536, SHA256_LENGTH = 64 };

static bool is_early(const struct run *run, uint64_t step);
static void count_samples(struct coordinator *coordinator, struct run *run, double seconds);

struct run *coordinator_reporting_run(struct coordinator *coordinator, const struct member *member,
                                      const char *id, uint64_t incarnation) {
  struct run *run = coordinator_run(coordinator, id);
  bool is_training =
      run && (run->state == WEIR__RUN_STATE__RUNNING || run->state == WEIR__RUN_STATE__FINISHING);
  if (is_training && run->incarnation == incarnation && coordinator_run_server(run, member))
    return run;
  log_event(LOG_DEBUG, "coordinator", "report_ignored", "id=%s run=\"%.60s\"", member->id, id);
  return NULL;
}

void coordinator_step_report(struct coordinator *coordinator, struct member *member,
                             const Weir__StepReport *report) {
  struct run *run = coordinator_reporting_run(coordinator, member, report->run, report->incarnation);
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = WEIR__STEP_EVENT__INIT};
  if (!run || report->step < run->step || report->step >= run->plan.steps || is_early(run, report->step))
    return;
  run->step = report->step + 1;
  run->loss = report->loss;
  count_samples(coordinator, run, report->seconds);
  event.step.step = report->step;
  event.step.epoch = plan_epoch(&run->plan, report->step);
  event.step.loss = report->loss;
  event.step.lr = report->lr;
  event.step.samples = report->samples;
  event.step.workers = (uint32_t)coordinator_count_workers(coordinator, run, WORKER_READY);
  event.step.seconds = report->seconds;
  event.step.incarnation = run->incarnation;
  event_log_add(&run->events, &event);
  coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
}

/* A server that came back may tell of the present before it tells again what was missed. The former comes a
   second time then, in its order; but what is longer ago than it remembers does not. */
static bool is_early(const struct run *run, uint64_t step) {
  return step > run->step && step - run->step < REPORTS_REMEMBERED;
}

/* Steps that were done while we were away are told in one breath: they say nothing of the present speed. So
   what is counted may take no longer than the time in which it was told. */
static void count_samples(struct coordinator *coordinator, struct run *run, double seconds) {
  run->credit_s += (double)(coordinator->now_ms - run->reported_ms) / 1000;
  run->reported_ms = coordinator->now_ms;
  if (run->credit_s > CREDIT_MAX_S + seconds)
    run->credit_s = CREDIT_MAX_S + seconds;
  if (!(seconds <= run->credit_s))
    return;
  run->credit_s -= seconds;
  rate_add(&run->rate, coordinator->now_ms, run->plan.batch);
}

void coordinator_eval_report(struct coordinator *coordinator, struct member *member,
                             const Weir__EvalReport *report) {
  struct run *run = coordinator_reporting_run(coordinator, member, report->run, report->incarnation);
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL, .eval = WEIR__EVAL_EVENT__INIT};
  if (!run || report->step <= run->eval_step || report->step > run->plan.steps || is_early(run, report->step))
    return;
  run->eval_step = report->step;
  run->eval_loss = report->loss;
  run->accuracy = report->accuracy;
  event.eval.step = report->step;
  event.eval.loss = report->loss;
  event.eval.accuracy = report->accuracy;
  event.eval.incarnation = run->incarnation;
  event_log_add(&run->events, &event);
  coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
  coordinator_checkpoint_evaluated(run, report->step, report->loss, report->accuracy);
  coordinator_checkpoints_retain(coordinator, run);
}

void coordinator_complete(struct coordinator *coordinator, struct member *member,
                          const Weir__RunComplete *complete) {
  struct run *run = coordinator_reporting_run(coordinator, member, complete->run, complete->incarnation);
  if (run)
    coordinator_run_server(run, member)->is_complete = true;
}

void coordinator_finish_when_complete(struct coordinator *coordinator, struct run *run) {
  if (run->state != WEIR__RUN_STATE__RUNNING || run->step < run->plan.steps)
    return; /* not before every step was told */
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_complete)
      return;
  if (plan_evaluates(&run->plan, run->plan.steps) && run->eval_step < run->plan.steps)
    return;
  run->is_pausing = false; /* it ends before it could */
  coordinator_clock_stop(coordinator, run);
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FINISHING);
}

bool coordinator_is_complete(const struct run *run) {
  const Weir__CheckpointInfo *newest = run->n_checkpoints ? run->checkpoints[run->n_checkpoints - 1] : NULL;
  return newest && newest->step == run->plan.steps && strlen(newest->weights_sha256) == SHA256_LENGTH;
}

void coordinator_run_done(struct coordinator *coordinator, struct run *run) {
  CHECK(coordinator_is_complete(run));
  memcpy(run->weights_sha256, run->checkpoints[run->n_checkpoints - 1]->weights_sha256,
         sizeof run->weights_sha256);
  coordinator_progress_reset(run, run->plan.steps);
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__DONE);
}

void coordinator_progress_reset(struct run *run, uint64_t step) {
  const struct logged_event *newest =
      step ? event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_STEP, step - 1) : NULL;
  const struct logged_event *evaluated =
      step ? event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_EVAL, step) : NULL;
  run->step = step;
  run->loss = newest ? newest->step.loss : NAN;
  run->eval_step = evaluated ? evaluated->eval.step : 0;
  run->eval_loss = evaluated ? evaluated->eval.loss : NAN;
  run->accuracy = evaluated ? evaluated->eval.accuracy : NAN;
  run->checkpointing.newest = step;
}

/* The clock runs on while a run that began recovers: that is part of what training took. */
void coordinator_clock_start(struct coordinator *coordinator, struct run *run) {
  if (run->is_clock_running)
    return;
  run->is_clock_running = true;
  run->clock_ms = coordinator->now_ms;
}

void coordinator_clock_stop(struct coordinator *coordinator, struct run *run) {
  if (!run->is_clock_running)
    return;
  run->trained_seconds += (double)(coordinator->now_ms - run->clock_ms) / 1000;
  run->is_clock_running = false;
}
