/* Answers about runs. */
#include "server/coordinator/messages/info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settle/spec_collective.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/rate.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

/* Trials have their sweep's name, and are not meant by it. */
static const struct run *newest_of_name(const struct coordinator *coordinator, const struct viewer *viewer,
                                        const char *name) {
  for (int i = coordinator->n_runs - 1; i >= 0; i--) {
    const struct run *run = coordinator->runs[i];
    if (viewer_sees_run(viewer, run) && !*run->sweep && strcmp(run->spec->name, name) == 0)
      return run;
  }
  return NULL;
}

int coordinator_find_run(const struct coordinator *coordinator, const struct viewer *viewer,
                         const char *prefix, const char **id, struct err *err) {
  char matches[512] = "";
  const struct run *named = newest_of_name(coordinator, viewer, prefix);
  int n_matches = 0;
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    size_t length = strlen(matches);
    if (!viewer_sees_run(viewer, run) || strncmp(run->id, prefix, strlen(prefix)))
      continue;
    *id = run->id;
    if (strcmp(run->id, prefix) == 0)
      return 0;
    n_matches++;
    snprintf(matches + length, sizeof matches - length, "%s%s", length ? ", " : "", run->id);
  }
  if (named)
    *id = named->id;
  if (*prefix && (named || n_matches == 1))
    return 0;
  if (!*prefix)
    return err_set(err, ERR_INVALID, "no run is named");
  if (n_matches == 0)
    return err_set(err, ERR_NOT_FOUND, "no run '%.100s'", prefix);
  return err_set(err, ERR_INVALID, "run '%.100s' is ambiguous: it may be %s", prefix, matches);
}

bool coordinator_run_info(const struct coordinator *coordinator, const char *id, uint64_t now_ms,
                          Weir__RunInfo *info) {
  const struct run *run = coordinator_run(coordinator, id);
  if (run)
    coordinator_info_fill(coordinator, run, now_ms, info);
  return run != NULL;
}

bool coordinator_run_is_over(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return !run || coordinator_is_over(run);
}

bool coordinator_run_has_told_end(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return !run || (coordinator_is_over(run) && !run->is_stop_awaited);
}

bool coordinator_run_is_evaluated(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && run->evaluation && run->evaluation->step == run->step;
}

bool coordinator_run_awaits_store(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && run->is_stop_awaited;
}

bool coordinator_makes_checkpoint(const struct coordinator *coordinator, const char *id, uint64_t step) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && run->checkpointing.step == step;
}

const char *coordinator_run_model(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run ? run->model_sha256 : NULL;
}

const char *coordinator_run_outline(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return !run ? NULL : *run->outline_sha256 ? run->outline_sha256 : run->model_sha256;
}

Weir__RunSpec *coordinator_run_spec(const struct coordinator *coordinator, const char *id) {
  const struct run *run = coordinator_run(coordinator, id);
  return run ? run->spec : NULL;
}

bool coordinator_run_event(const struct coordinator *coordinator, const char *id, uint64_t number,
                           struct run_event_view *view) {
  const struct run *run = coordinator_run(coordinator, id);
  return run && event_log_view(&run->events, number, view);
}

int coordinator_check_room(const struct coordinator *coordinator, const Weir__RunSpec *spec,
                           const uint32_t *block_elems, uint32_t n_blocks, struct err *err) {
  struct room_lack lack;
  if (coordinator_could_have_room(coordinator, room_of_blocks(spec, block_elems, n_blocks), &lack))
    return 0;
  return err_set(err, ERR_INVALID,
                 "submit: the run takes %llu bytes of each parameter server, and %s (%s) has %llu for runs: "
                 "more servers, or more of their --memory, are needed",
                 (unsigned long long)lack.needed, lack.server->id, lack.server->address,
                 (unsigned long long)lack.server->memory_bytes);
}

int coordinator_live_runs(const struct coordinator *coordinator) {
  int count = 0;
  for (int i = 0; i < coordinator->n_runs; i++)
    count +=
        !coordinator_is_over(coordinator->runs[i]) && coordinator->runs[i]->state != WEIR__RUN_STATE__HELD;
  return count;
}

int coordinator_check_hold(const struct coordinator *coordinator, const char *id, uint64_t step,
                           struct err *err) {
  const struct run *run = coordinator_run(coordinator, id);
  const Weir__TrainSpec *train = run ? run->spec->train : NULL;
  if (!run)
    return err_set(err, ERR_NOT_FOUND, "no run '%.100s'", id);
  if (coordinator_is_over(run))
    return err_set(err, ERR_INVALID, "train.hold: run '%s' is over: nothing more is computed of it", id);
  if (step == 0 || (train->has_hold && step == train->hold))
    return 0;
  if (!train->has_hold || step < train->hold)
    return err_set(err, ERR_INVALID, "train.hold: run '%s' has %s: a hold is only ever raised", id,
                   train->has_hold ? "a higher one" : "none");
  return plan_is_known(&run->plan) ? plan_check_hold(&run->plan, step, err) : 0;
}

bool coordinator_list_checkpoints(const struct coordinator *coordinator, const char *id, struct arena *arena,
                                  Weir__ListCheckpointsReply *reply) {
  const struct run *run = coordinator_run(coordinator, id);
  weir__list_checkpoints_reply__init(reply);
  if (!run)
    return false;
  reply->run = run->id;
  reply->n_checkpoints = (size_t)run->n_checkpoints;
  reply->checkpoints =
      arena_copy(arena, run->checkpoints, (size_t)run->n_checkpoints * sizeof *run->checkpoints);
  return true;
}

const char *coordinator_store_trouble(const struct coordinator *coordinator) {
  return *coordinator->store_message && coordinator->has_tenants
             ? "the store is in trouble: the coordinator's log says why"
             : coordinator->store_message;
}

static double train_seconds(const struct run *run, uint64_t now_ms) {
  return run->trained_seconds + (run->is_clock_running ? (double)(now_ms - run->clock_ms) / 1000 : 0);
}

/* Up to where it is computed for now, at its present speed. */
static double seconds_left(const struct run *run, const Weir__RunInfo *info) {
  uint64_t hold = coordinator_run_hold(run), last = coordinator_last_version(run);
  uint64_t end = hold < last ? hold : last;
  if (info->state != WEIR__RUN_STATE__RUNNING || end <= info->step || !(info->samples_per_second > 0))
    return 0;
  return (double)(end - info->step) * run->plan.batch / info->samples_per_second;
}

/* Those that compute for it; a team is no group. */
static void fill_workers(const struct run *run, Weir__RunInfo *info) {
  bool is_running = info->state == WEIR__RUN_STATE__RUNNING;
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (seat->state != SEAT_READY)
      continue;
    info->workers++;
    info->executors += seat->executors;
    info->grouped_workers += is_running && seat->group.number && !coordinator_is_staged(seat);
  }
  if (is_running)
    info->collective = info->grouped_workers ? (char *)spec_collective(run->spec) : "none";
  info->useful_executors = run->spec->train->microbatches;
}

void coordinator_info_fill(const struct coordinator *coordinator, const struct run *run, uint64_t now_ms,
                           Weir__RunInfo *info) {
  const struct plan *plan = &run->plan;
  double seconds = train_seconds(run, now_ms);
  weir__run_info__init(info);
  info->run = run->id;
  info->tenant = run->tenant;
  info->name = run->spec->name;
  info->state = coordinator_told_state(run);
  info->stop_pending = run->is_stop_awaited;
  info->message = run->message;
  if (run->is_stop_awaited && run->state != WEIR__RUN_STATE__FAILED)
    info->message = "waiting for the store to keep that the run has stopped";
  else
    info->tells_fault = info->state == WEIR__RUN_STATE__RUNNING && run->tells_fault;
  info->bad_input = run->is_bad_input;
  info->diverged = run->has_diverged;
  info->step = run->step;
  info->steps = plan->steps;
  info->train_samples = plan->train_samples;
  if (plan_is_known(plan)) {
    info->epoch = (double)run->step * plan->batch / (double)plan->train_samples;
    info->epochs = (double)plan->steps * plan->batch / (double)plan->train_samples;
  }
  info->loss = run->loss;
  info->accuracy = run->evaluation ? run->evaluation->accuracy : NAN;
  info->eval_loss = run->evaluation ? run->evaluation->loss : NAN;
  if (run->evaluation) {
    info->metrics = run->evaluation->metrics;
    info->n_metrics = run->evaluation->n_metrics;
  }
  if (run->state == WEIR__RUN_STATE__RUNNING)
    info->samples_per_second = rate_per_second(&run->rate, now_ms);
  else if (run->samples_per_second > 0) /* of a run that was over when this coordinator began */
    info->samples_per_second = run->samples_per_second;
  else if (run->step && seconds > 0) /* what was done twice counts once */
    info->samples_per_second = (double)(run->step - run->origin.step) * plan->batch / seconds;
  info->seconds_left = seconds_left(run, info);
  fill_workers(run, info);
  info->priority = run->spec->priority;
  info->weight = run->spec->workers->weight;
  info->share = run->claim.is_made ? run->claim.share : info->workers;
  info->parent = run->origin.parent;
  info->sweep = run->sweep;
  info->trial = run->trial;
  info->parent_step = run->origin.step;
  info->base_to_come = run->origin.is_to_come;
  info->hold = coordinator_run_hold(run) == UINT64_MAX ? 0 : coordinator_run_hold(run);
  info->patience = run->spec->train->early_stopping ? (Weir__Patience *)&run->patience : NULL;
  info->weights_sha256 = (char *)run->weights_sha256;
  info->submitted_unix_ms = run->submitted_unix_ms;
  info->finished_unix_ms = run->is_stop_awaited ? 0 : run->finished_unix_ms;
  info->parameters = run->parameters;
  info->blocks = run->n_blocks;
  info->incarnation = run->incarnation;
  info->view = run->view;
  info->train_seconds = seconds;
  info->checkpoints = (uint32_t)run->n_checkpoints;
  for (int i = 0; i < run->n_checkpoints; i++)
    if (run->checkpoints[i]->step == coordinator_newest_checkpoint(run)) {
      info->checkpoint_step = run->checkpoints[i]->step;
      info->checkpoint_unix_ms = run->checkpoints[i]->committed_unix_ms;
    }
  if (*run->checkpointing.message)
    info->store_message = run->checkpointing.message;
  else if (!coordinator_is_over(run) || run->is_stop_awaited)
    info->store_message = (char *)coordinator_store_trouble(coordinator);
  if (!run->is_load_due)
    info->servers = (uint32_t)(run->n_servers - coordinator_lost_servers(run));
}

void coordinator_list_runs(const struct coordinator *coordinator, const struct viewer *viewer,
                           uint64_t now_ms, struct arena *arena, Weir__ListRunsReply *reply) {
  weir__list_runs_reply__init(reply);
  reply->runs = arena_new(arena, (size_t)coordinator->n_runs * sizeof *reply->runs);
  for (int i = 0; i < coordinator->n_runs; i++) {
    Weir__RunInfo *info;
    if (!viewer_sees_run(viewer, coordinator->runs[i]))
      continue;
    info = reply->runs[reply->n_runs++] = arena_new(arena, sizeof *info);
    coordinator_info_fill(coordinator, coordinator->runs[i], now_ms, info);
  }
}

static struct run_member run_member(const struct member *member) {
  return (struct run_member){member->key, member->id, member->host};
}

int coordinator_list_run_members(const struct coordinator *coordinator, const char *id, struct arena *arena,
                                 struct run_member **members) {
  const struct run *run = coordinator_run(coordinator, id);
  int n = 0;
  if (!run)
    return 0;
  *members = arena_new(arena, (size_t)(run->n_seats + run->n_servers) * sizeof **members);
  for (int i = 0; i < run->n_seats; i++)
    (*members)[n++] = run_member(run->seats[i]->worker);
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member)
      (*members)[n++] = run_member(run->servers[i].member);
  return n;
}
