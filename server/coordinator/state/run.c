/* Runs: what is known of each. */
#include "server/coordinator/state/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/groups_past.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/sweep_kind.h"
#include "server/coordinator/state/tenant.h"

enum { MESSAGE_MAX = 1500, LEAD_STEPS = 2, TERM_SHIFT = 32 };

struct run *coordinator_run_new(const struct coordinator *coordinator,
                                const struct run_submission *submission) {
  struct run *run = mem_new(sizeof *run);
  size_t blocks = submission->n_blocks;
  run->id = mem_strdup(submission->id);
  run->tenant = text_copy_clean(tenant_or_default(submission->tenant), CERT_WORD_MAX);
  ticket_derive_key(coordinator->options.secret, run->id, run->key);
  run->spec = spec_copy(submission->spec);
  run->model_bytes = submission->model_bytes;
  run->model_sha256 = mem_strdup(submission->model_sha256);
  run->outline_bytes = submission->outline_bytes;
  run->model_pieces = submission->model_pieces;
  run->outline_sha256 = mem_strdup(submission->outline_sha256 ? submission->outline_sha256 : "");
  run->parameters = submission->parameters;
  run->n_blocks = submission->n_blocks;
  run->block_elems = mem_new(blocks * sizeof *run->block_elems);
  memcpy(run->block_elems, submission->block_elems, blocks * sizeof *run->block_elems);
  run->owners = mem_new(blocks * sizeof *run->owners);
  run->server_bytes = room_of_blocks(run->spec, run->block_elems, run->n_blocks);
  run->checkpointing.written = mem_new(blocks * sizeof *run->checkpointing.written);
  run->checkpointing.message = mem_strdup("");
  run->checkpointing.lead = LEAD_STEPS;
  run->sweep = mem_strdup(submission->sweep ? submission->sweep : "");
  run->trial = submission->trial;
  run->kind = sweep_kind_find(coordinator, run->sweep);
  run->origin.parent = mem_strdup(submission->origin.parent ? submission->origin.parent : "");
  run->origin.step = run->base_step = run->step = submission->origin.step;
  run->origin.slots_step = submission->origin.slots_step;
  run->origin.incarnation = submission->origin.incarnation;
  run->origin.is_to_come = submission->origin.is_to_come;
  run->pin = UINT64_MAX;
  run->state = WEIR__RUN_STATE__QUEUED;
  run->message = mem_strdup("");
  run->cause = mem_strdup("");
  run->loss_cause = mem_strdup("");
  run->loss = NAN;
  weir__patience__init(&run->patience);
  run->patience.best = NAN;
  run->view = run->events.next = coordinator->options.term << TERM_SHIFT;
  run->submitted_unix_ms = submission->submitted_unix_ms;
  if (submission->weights_sha256)
    snprintf(run->weights_sha256, sizeof run->weights_sha256, "%s", submission->weights_sha256);
  run->is_load_due = run->is_info_due = run->is_save_due = true;
  return run;
}

void coordinator_run_free(struct run *run) {
  for (int i = 0; i < run->n_checkpoints; i++)
    message_free(run->checkpoints[i]);
  message_free(run->evaluation);
  event_log_fini(&run->events);
  coordinator_run_free_servers(run);
  spec_free(run->spec);
  free(run->id);
  free(run->tenant);
  free(run->model_sha256);
  free(run->outline_sha256);
  free(run->origin.parent);
  free(run->sweep);
  free(run->block_elems);
  free(run->owners);
  free(run->message);
  free(run->cause);
  free(run->loss_cause);
  free(run->distrust);
  free(run->reference.worker);
  free(run->reference.fingerprint);
  free(run->reference.dataset_sha256);
  free(run->reference.probe_sha256);
  free(run->reference.server);
  free(run->reference.server_fingerprint);
  coordinator_reissue_free(run);
  groups_past_fini(&run->groups_past);
  free(run->suspicion);
  free(run->seats);
  free(run->refused);
  free(run->refusal);
  free(run->checkpoints);
  free(run->checkpointing.written);
  free(run->checkpointing.message);
  free(run);
}

void coordinator_run_free_servers(struct run *run) {
  for (int i = 0; i < run->n_servers; i++) {
    free(run->servers[i].id);
    free(run->servers[i].address);
    free(run->servers[i].host);
    free(run->servers[i].share_host);
    free(run->servers[i].holder);
  }
  free(run->servers);
  run->servers = NULL;
  run->n_servers = 0;
}

void coordinator_reissue_free(struct run *run) {
  if (!run->reissue)
    return;
  free(run->reissue->microbatches);
  free(run->reissue->chunks);
  free(run->reissue->doubts.is_open);
  free(run->reissue);
  run->reissue = NULL;
}

struct run *coordinator_run(const struct coordinator *coordinator, const char *id) {
  for (int i = 0; i < coordinator->n_runs; i++)
    if (strcmp(coordinator->runs[i]->id, id) == 0)
      return coordinator->runs[i];
  return NULL;
}

const char *coordinator_state_name(Weir__RunState state) {
  static const char *const names[] = {"unknown", "queued",    "loading", "running", "finishing", "done",
                                      "failed",  "cancelled", "paused",  "held",    "stopped"};
  return names[state];
}

bool coordinator_is_over(const struct run *run) {
  return run->state == WEIR__RUN_STATE__DONE || run->state == WEIR__RUN_STATE__FAILED ||
         run->state == WEIR__RUN_STATE__CANCELLED || run->state == WEIR__RUN_STATE__STOPPED;
}

bool coordinator_has_blocks(const struct run *run) {
  return run->state == WEIR__RUN_STATE__RUNNING || run->state == WEIR__RUN_STATE__FINISHING ||
         (run->state == WEIR__RUN_STATE__HELD && !run->is_spilled);
}

bool coordinator_has_result(const struct run *run) {
  return run->state == WEIR__RUN_STATE__DONE || run->state == WEIR__RUN_STATE__STOPPED;
}

Weir__RunState coordinator_told_state(const struct run *run) {
  return run->is_stop_awaited ? run->told_state : run->state;
}

void coordinator_run_set_message(struct run *run, const char *message) {
  char *copy;
  if (strcmp(run->message, message) == 0)
    return;
  copy = text_copy_clean(message, MESSAGE_MAX);
  free(run->message);
  run->message = copy;
  run->is_info_due = run->is_save_due = true;
}

struct run_server *coordinator_run_server(const struct run *run, const struct member *member) {
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member == member)
      return &run->servers[i];
  return NULL;
}

bool coordinator_owns_block(const struct run *run, const struct member *member, uint32_t block) {
  return run->servers[run->owners[block]].member == member;
}

void coordinator_place_blocks(struct run *run) {
  placement_compute(run->block_elems, run->n_blocks, (uint32_t)run->n_servers, run->owners);
  for (uint32_t block = 0; block < run->n_blocks; block++) {
    run->servers[run->owners[block]].blocks++;
    run->servers[run->owners[block]].bytes += (uint64_t)run->block_elems[block] * sizeof(float);
  }
}

int coordinator_lost_servers(const struct run *run) {
  int lost = 0;
  for (int i = 0; i < run->n_servers && !run->is_load_due; i++)
    lost += !run->servers[i].member;
  return lost;
}

uint64_t coordinator_last_version(const struct run *run) {
  return run->patience.last_step ? run->patience.last_step : run->plan.steps;
}

uint64_t coordinator_run_hold(const struct run *run) {
  const Weir__TrainSpec *train = run->spec->train;
  if (!train->has_hold || (plan_is_known(&run->plan) && train->hold >= coordinator_last_version(run)))
    return UINT64_MAX;
  return train->hold;
}

bool coordinator_stands(const struct run *run) {
  return run->checkpointing.is_for_move || run->pin <= run->step;
}

/* A fork's first version may be evaluated, too. */
static uint64_t next_decision(const struct run *run) {
  uint64_t from = run->patience.step + 1 > run->origin.step ? run->patience.step + 1 : run->origin.step;
  uint64_t next;
  if (!run->spec->train->early_stopping || !plan_is_known(&run->plan))
    return UINT64_MAX;
  next = run->patience.last_step ? run->patience.last_step : plan_next_evaluated(&run->plan, from);
  return next < run->plan.steps ? next : UINT64_MAX;
}

uint64_t coordinator_run_bound(const struct run *run) {
  uint64_t hold = coordinator_run_hold(run), next = next_decision(run);
  return hold < next ? hold : next;
}

bool coordinator_is_at_hold(const struct run *run) {
  uint64_t hold = coordinator_run_hold(run);
  if (!plan_is_known(&run->plan) || run->step < hold)
    return false;
  return !plan_evaluates(&run->plan, hold) || (run->evaluation && run->evaluation->step >= hold);
}

const Weir__CheckpointInfo *coordinator_newest_info(const struct run *run) {
  for (int i = run->n_checkpoints - 1; i >= 0; i--)
    if (!run->checkpoints[i]->unreadable)
      return run->checkpoints[i];
  return NULL;
}

uint64_t coordinator_newest_checkpoint(const struct run *run) {
  const Weir__CheckpointInfo *newest = coordinator_newest_info(run);
  return newest ? newest->step : 0;
}

bool coordinator_has_lost_base(const struct run *run) {
  return !run->origin.is_to_come && coordinator_newest_checkpoint(run) < run->origin.step;
}

/* A version has one content in an incarnation, but may have another in the next one, where that did not begin
   with it: a run that is not deterministic computes it anew. */
static bool has_made(const struct run *parent, uint64_t step, uint64_t incarnation) {
  if (parent->incarnation == incarnation)
    return true;
  for (int i = 0; i < parent->n_checkpoints; i++)
    if (parent->checkpoints[i]->step == step)
      return parent->base_step == step && parent->checkpoints[i]->incarnation == incarnation;
  return false;
}

/* Servers keep the newest version and at times the one before; reports of steps may be behind, not ahead. */
const struct run *coordinator_fork_source(const struct coordinator *coordinator, const struct run *run) {
  const struct origin *origin = &run->origin;
  const struct run *parent;
  if (origin->step == 0 || run->base_step != origin->step || origin->incarnation == INCARNATION_UNKNOWN)
    return NULL;
  parent = coordinator_run(coordinator, origin->parent);
  if (!parent || parent->n_servers == 0 || parent->is_load_due || parent->step > origin->step + 1 ||
      !has_made(parent, origin->step, origin->incarnation))
    return NULL;
  return parent;
}

void coordinator_run_add_seat(struct run *run, struct seat *seat) {
  int at = run->n_seats;
  array_reserve((void **)&run->seats, &run->seats_capacity, run->n_seats, sizeof *run->seats);
  for (; at > 0 && run->seats[at - 1]->worker->joined > seat->worker->joined; at--)
    run->seats[at] = run->seats[at - 1];
  run->seats[at] = seat;
  run->n_seats++;
  seat->run = run;
}

void coordinator_run_remove_seat(struct seat *seat) {
  struct run *run = seat->run;
  int at = 0;
  while (run->seats[at] != seat)
    at++;
  run->n_seats--;
  memmove(run->seats + at, run->seats + at + 1, (size_t)(run->n_seats - at) * sizeof *run->seats);
}

int coordinator_count_seats(const struct run *run, enum seat_state state) {
  int count = 0;
  for (int i = 0; i < run->n_seats; i++)
    count += run->seats[i]->state == state;
  return count;
}

uint32_t coordinator_count_held(const struct run *run) {
  uint32_t count = 0;
  for (int i = 0; i < run->n_seats; i++)
    count += coordinator_is_seated(run->seats[i]);
  return count;
}

void coordinator_workers_changed(struct run *run) {
  run->is_view_due = run->are_workers_new = run->are_shares_due = true;
}
