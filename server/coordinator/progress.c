/* A run's progress: what its servers report, from the first step to the last checkpoint. */
#include <string.h>

#include "common/log.h"
#include "server/coordinator/state.h"

static struct run *reporting_run(struct coordinator *coordinator, const struct member *member, const char *id,
                                 uint64_t incarnation, Weir__RunState state);
static bool take_written(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written);
static void commit_when_written(struct coordinator *coordinator, struct run *run);

void coordinator_step_report(struct coordinator *coordinator, struct member *member,
                             const Weir__StepReport *report) {
  struct run *run =
      reporting_run(coordinator, member, report->run, report->incarnation, WEIR__RUN_STATE__RUNNING);
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_STEP, .step = WEIR__STEP_EVENT__INIT};
  if (!run || report->step < run->step || report->step >= run->plan.steps)
    return;
  run->step = report->step + 1;
  run->loss = report->loss;
  rate_add(&run->rate, coordinator->now_ms, run->plan.batch);
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

void coordinator_eval_report(struct coordinator *coordinator, struct member *member,
                             const Weir__EvalReport *report) {
  struct run *run =
      reporting_run(coordinator, member, report->run, report->incarnation, WEIR__RUN_STATE__RUNNING);
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_EVAL, .eval = WEIR__EVAL_EVENT__INIT};
  if (!run || report->step <= run->eval_step || report->step > run->plan.steps)
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
}

void coordinator_complete(struct coordinator *coordinator, struct member *member,
                          const Weir__RunComplete *complete) {
  struct run *run =
      reporting_run(coordinator, member, complete->run, complete->incarnation, WEIR__RUN_STATE__RUNNING);
  if (run)
    coordinator_run_server(run, member)->is_complete = true;
}

/* The run that a server reports on, if it may. */
static struct run *reporting_run(struct coordinator *coordinator, const struct member *member, const char *id,
                                 uint64_t incarnation, Weir__RunState state) {
  struct run *run = coordinator_run(coordinator, id);
  if (run && run->state == state && run->incarnation == incarnation && coordinator_run_server(run, member))
    return run;
  log_event(LOG_DEBUG, "coordinator", "report_ignored", "id=%s run=\"%.60s\"", member->id, id);
  return NULL;
}

void coordinator_finish_when_complete(struct coordinator *coordinator, struct run *run) {
  if (run->state != WEIR__RUN_STATE__RUNNING)
    return;
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_complete)
      return;
  if (plan_evaluates(&run->plan, run->plan.steps) && run->eval_step < run->plan.steps)
    return;
  run->trained_ms = coordinator->now_ms;
  run->step = run->plan.steps;
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FINISHING);
  for (int i = 0; i < run->n_servers; i++)
    coordinator_order_write(coordinator, run, run->servers[i].member);
}

void coordinator_written(struct coordinator *coordinator, struct member *member,
                         const Weir__BlocksWritten *written) {
  struct run *run =
      reporting_run(coordinator, member, written->run, written->incarnation, WEIR__RUN_STATE__FINISHING);
  if (!run || written->step != run->plan.steps || coordinator_run_server(run, member)->is_written)
    return;
  if (*written->error)
    coordinator_run_fail(coordinator, run, false, "%s (%s) could not write the last checkpoint: %s",
                         member->id, member->address, written->error);
  else if (take_written(coordinator, run, member, written)) {
    coordinator_run_server(run, member)->is_written = true;
    commit_when_written(coordinator, run);
  }
}

static bool take_written(struct coordinator *coordinator, struct run *run, const struct member *member,
                         const Weir__BlocksWritten *written) {
  for (size_t i = 0; i < written->n_blocks; i++) {
    const Weir__WrittenBlock *block = written->blocks[i];
    struct written_block *slot;
    if (block->block >= run->n_blocks || strlen(block->sha256) != 64 || *run->written[block->block].sha256) {
      coordinator_run_fail(coordinator, run, false,
                           "%s (%s) wrote block %u of %u, key '%.64s': not its to write", member->id,
                           member->address, block->block, run->n_blocks, block->sha256);
      return false;
    }
    slot = &run->written[block->block];
    memcpy(slot->sha256, block->sha256, sizeof slot->sha256);
    slot->bytes = block->bytes;
  }
  return true;
}

static void commit_when_written(struct coordinator *coordinator, struct run *run) {
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_written)
      return;
  for (uint32_t block = 0; block < run->n_blocks; block++)
    if (!*run->written[block].sha256) {
      coordinator_run_fail(coordinator, run, false, "no server wrote block %u of %u of the last checkpoint",
                           block, run->n_blocks);
      return;
    }
  coordinator_commit(coordinator, run);
}

void coordinator_checkpoint(struct coordinator *coordinator, const struct checkpoint_result *result) {
  struct run *run = coordinator_run(coordinator, result->run);
  if (!run || run->state != WEIR__RUN_STATE__FINISHING)
    return; /* cancelled meanwhile */
  if (result->error) {
    coordinator_run_fail(coordinator, run, false, "the last checkpoint failed: %s", result->error);
    return;
  }
  CHECK(strlen(result->info->weights_sha256) == 64);
  memcpy(run->weights_sha256, result->info->weights_sha256, sizeof run->weights_sha256);
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__DONE);
}
