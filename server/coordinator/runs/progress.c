/* A run's progress: what its servers report, up to the last version. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/rate.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

#define CREDIT_MAX_S 1.0

/* Reports that a server remembers, and tells again when it is kept. */
enum { REPORTS_REMEMBERED = 65536, SHA256_LENGTH = 64 };

static bool is_early(const struct run *run, uint64_t step);
static void count_samples(struct coordinator *coordinator, struct run *run, double seconds);
static void take_metrics(struct coordinator *coordinator, const struct run *run,
                         const Weir__EvalReport *report, Weir__EvalEvent *eval);

struct run *coordinator_reporting_run(struct coordinator *coordinator, const struct member *member,
                                      const char *id, uint64_t incarnation) {
  struct run *run = coordinator_run(coordinator, id);
  if (run && coordinator_has_blocks(run) && run->incarnation == incarnation &&
      coordinator_run_server(run, member))
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
  turn_step(&run->turn, coordinator->now_ms);
  event.step.step = report->step;
  event.step.epoch = plan_epoch(&run->plan, report->step);
  event.step.loss = report->loss;
  event.step.lr = report->lr;
  event.step.samples = report->samples;
  event.step.workers = (uint32_t)coordinator_count_seats(run, SEAT_READY);
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
   what is counted may take no longer than the time in which it was told. Those between two versions are told
   together. */
static void count_samples(struct coordinator *coordinator, struct run *run, double seconds) {
  double most_s = CREDIT_MAX_S + seconds * (run->plan.inner_steps ? run->plan.inner_steps : 1);
  run->credit_s += (double)(coordinator->now_ms - run->reported_ms) / 1000;
  run->reported_ms = coordinator->now_ms;
  if (run->credit_s > most_s)
    run->credit_s = most_s;
  if (!(seconds <= run->credit_s))
    return;
  run->credit_s -= seconds;
  rate_add(&run->rate, coordinator->now_ms, run->plan.batch);
}

void coordinator_eval_report(struct coordinator *coordinator, struct member *member,
                             const Weir__EvalReport *report) {
  struct run *run = coordinator_reporting_run(coordinator, member, report->run, report->incarnation);
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL};
  Weir__EvalEvent eval = WEIR__EVAL_EVENT__INIT;
  if (!run || !plan_evaluates(&run->plan, report->step) || is_early(run, report->step) ||
      (run->evaluation && report->step <= run->evaluation->step))
    return;
  eval.step = report->step;
  eval.loss = report->loss;
  eval.accuracy = report->accuracy;
  eval.incarnation = run->incarnation;
  take_metrics(coordinator, run, report, &eval);
  message_free(run->evaluation);
  run->evaluation = message_copy(&eval);
  event.eval = message_copy(&eval);
  event_log_add(&run->events, &event);
  coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
  run->is_save_due = true;
  coordinator_patience_evaluated(run, &eval);
  coordinator_checkpoint_evaluated(run, &eval);
  coordinator_checkpoints_retain(coordinator, run);
}

/* Those that the spec names, whatever the report has. */
static void take_metrics(struct coordinator *coordinator, const struct run *run,
                         const Weir__EvalReport *report, Weir__EvalEvent *eval) {
  const Weir__EvalSpec *spec = run->spec->eval;
  struct arena *arena = &coordinator->actions->arena;
  size_t n = spec ? spec->n_metrics : 0;
  eval->metrics = arena_new(arena, n * sizeof *eval->metrics);
  for (size_t named = 0; named < n; named++)
    for (size_t m = 0; m < report->n_metrics; m++) {
      Weir__MetricValue *value;
      if (strcmp(report->metrics[m]->name, spec->metrics[named]) != 0)
        continue;
      value = eval->metrics[eval->n_metrics++] = arena_new(arena, sizeof *value);
      *value = *report->metrics[m];
      break;
    }
}

/* Also of a run that still loads: where it begins at its last version, a server that has nothing to evaluate
   is complete at once. */
void coordinator_complete(struct coordinator *coordinator, struct member *member,
                          const Weir__RunComplete *complete) {
  struct run *run = coordinator_run(coordinator, complete->run);
  struct run_server *server = run ? coordinator_run_server(run, member) : NULL;
  if (server && !run->is_load_due && run->incarnation == complete->incarnation)
    server->is_complete = true;
}

/* All that it has: of a run that ends early the servers know that version as a bound alone. */
static bool has_all_steps(const struct run *run, const struct run_server *server) {
  uint64_t last = coordinator_last_version(run);
  return last < run->plan.steps ? server->held_step == last : server->is_complete;
}

void coordinator_finish_when_complete(struct coordinator *coordinator, struct run *run) {
  if (run->state != WEIR__RUN_STATE__RUNNING || run->step < coordinator_last_version(run))
    return; /* not before every step was told */
  for (int i = 0; i < run->n_servers; i++)
    if (!has_all_steps(run, &run->servers[i]))
      return;
  if (plan_evaluates(&run->plan, coordinator_last_version(run)) &&
      (!run->evaluation || run->evaluation->step < coordinator_last_version(run)))
    return;
  run->is_pausing = run->is_stopping = false; /* it ends before it could */
  coordinator_clock_stop(coordinator, run);
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FINISHING);
  if (coordinator_is_complete(run)) /* it only evaluated: there is nothing to write */
    coordinator_run_done(coordinator, run);
}

static const Weir__CheckpointInfo *last_checkpoint(const struct run *run) {
  return run->n_checkpoints ? run->checkpoints[run->n_checkpoints - 1] : NULL;
}

bool coordinator_is_complete(const struct run *run) {
  const Weir__CheckpointInfo *newest = last_checkpoint(run);
  if (plan_is_known(&run->plan) && run->plan.steps == 0)
    return run->evaluation != NULL;
  return newest && newest->step == coordinator_last_version(run) &&
         strlen(newest->weights_sha256) == SHA256_LENGTH;
}

void coordinator_run_done(struct coordinator *coordinator, struct run *run) {
  CHECK(coordinator_is_complete(run));
  /* Of a run of no steps they are the model's, which was hashed at submission. */
  coordinator_run_end(coordinator, run, run->plan.steps > 0 ? last_checkpoint(run) : NULL,
                      WEIR__RUN_STATE__DONE);
}

void coordinator_run_end(struct coordinator *coordinator, struct run *run, const Weir__CheckpointInfo *last,
                         Weir__RunState state) {
  if (last)
    memcpy(run->weights_sha256, last->weights_sha256, sizeof run->weights_sha256);
  coordinator_progress_reset(run, last ? last->step : 0);
  coordinator_run_set_message(run, "");
  if (state == WEIR__RUN_STATE__DONE)
    coordinator_patience_explain(run);
  coordinator_run_set_state(coordinator, run, state);
}

void coordinator_progress_reset(struct run *run, uint64_t step) {
  const struct logged_event *newest =
      step ? event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_STEP, step - 1) : NULL;
  const struct logged_event *evaluated = event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_EVAL, step);
  run->step = step;
  run->loss = newest ? newest->step.loss : NAN;
  message_free(run->evaluation);
  run->evaluation = evaluated ? message_copy(evaluated->eval) : NULL;
  run->checkpointing.newest = step;
}

void coordinator_measure_anew(struct coordinator *coordinator, struct run *run) {
  coordinator_clock_start(coordinator, run);
  run->rate = (struct rate){0};
  rate_add(&run->rate, coordinator->now_ms, 0);
  run->reported_ms = run->checkpointing.since_ms = coordinator->now_ms;
  run->credit_s = 0;
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
