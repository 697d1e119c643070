/* What the store is to know: manifests, runs, members. Messages live in the arena of the step's actions; what
   they point to holds until the next step. */
#include "server/coordinator/messages/record.h"

#include <math.h>

#include "common/modes/mode.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

static void tell_progress(const struct run *run, Weir__Manifest *manifest);
static Weir__RunRecord *record_of(const struct coordinator *coordinator, const struct run *run,
                                  struct arena *arena);
static Weir__RunReference *record_reference(struct arena *arena, const struct run *run);
static Weir__Quarantine *record_quarantine(struct arena *arena, const struct quarantine *quarantine);

/* But for weights_sha256 and the time. */
void coordinator_commit(struct coordinator *coordinator, const struct run *run) {
  struct arena *arena = &coordinator->actions->arena;
  struct coordinator_action *action = coordinator_act(coordinator, ACTION_COMMIT);
  Weir__Manifest *manifest = arena_new(arena, sizeof *manifest);
  struct mode mode = mode_of(run->spec);
  weir__manifest__init(manifest);
  manifest->run = run->id;
  manifest->tenant = run->tenant;
  manifest->spec = run->spec;
  manifest->plan = coordinator_plan_message(arena, run);
  manifest->model_sha256 = run->model_sha256;
  manifest->incarnation = run->incarnation;
  manifest->term = coordinator->options.term;
  manifest->step = run->checkpointing.step;
  manifest->versions_before = (uint32_t)mode_before(&mode, manifest->step);
  manifest->slots_step = run->origin.slots_step;
  manifest->written_bytes = run->checkpointing.written_bytes;
  tell_progress(run, manifest);
  manifest->n_blocks = run->n_blocks;
  manifest->blocks = arena_new(arena, run->n_blocks * sizeof *manifest->blocks);
  for (uint32_t i = 0; i < run->n_blocks; i++) {
    Weir__WrittenBlock *block = manifest->blocks[i] = arena_new(arena, sizeof *block);
    weir__written_block__init(block);
    block->block = i;
    block->sha256 = run->checkpointing.written[i].sha256;
    block->bytes = run->checkpointing.written[i].bytes;
  }
  action->run = run->id;
  action->step = manifest->step;
  action->is_last = manifest->step == coordinator_last_version(run) || run->is_stopping;
  action->manifest = manifest;
}

static void tell_progress(const struct run *run, Weir__Manifest *manifest) {
  const struct logged_event *newest =
      event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_STEP, manifest->step - 1);
  const struct logged_event *evaluated =
      event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_EVAL, manifest->step);
  manifest->loss = newest ? newest->step.loss : NAN;
  manifest->accuracy = evaluated ? evaluated->eval->accuracy : NAN;
  manifest->eval_loss = evaluated ? evaluated->eval->loss : NAN;
  manifest->eval_step = evaluated ? evaluated->eval->step : 0;
  manifest->metrics = evaluated ? evaluated->eval->metrics : NULL;
  manifest->n_metrics = evaluated ? evaluated->eval->n_metrics : 0;
}

void coordinator_save(struct coordinator *coordinator, const struct run *run) {
  struct coordinator_action *action = coordinator_act(coordinator, ACTION_SAVE);
  action->run = run->id;
  action->record = record_of(coordinator, run, &coordinator->actions->arena);
  action->is_awaited = run->is_save_awaited || run->is_start_awaited || run->is_stop_awaited;
}

Weir__RunRecord *coordinator_run_record(const struct coordinator *coordinator, const char *id,
                                        struct arena *arena) {
  const struct run *run = coordinator_run(coordinator, id);
  return run ? record_of(coordinator, run, arena) : NULL;
}

static Weir__RunRecord *record_of(const struct coordinator *coordinator, const struct run *run,
                                  struct arena *arena) {
  Weir__RunRecord *record = arena_new(arena, sizeof *record);
  Weir__RunInfo info;
  coordinator_info_fill(coordinator, run, coordinator->now_ms, &info);
  weir__run_record__init(record);
  record->run = run->id;
  record->tenant = run->tenant;
  record->key = (ProtobufCBinaryData){TICKET_KEY_BYTES, (uint8_t *)run->key};
  record->spec = run->spec;
  record->model_bytes = run->model_bytes;
  record->model_sha256 = run->model_sha256;
  record->outline_bytes = run->outline_bytes;
  record->model_pieces = run->model_pieces;
  record->outline_sha256 = run->outline_sha256;
  record->parameters = run->parameters;
  record->parent = run->origin.parent;
  record->sweep = run->sweep;
  record->trial = run->trial;
  record->parent_step = run->origin.step;
  record->parent_incarnation = run->origin.incarnation + 1; /* 0 for INCARNATION_UNKNOWN */
  record->slots_step = run->origin.slots_step;
  record->base_to_come = run->origin.is_to_come;
  record->block_elems = run->block_elems;
  record->n_block_elems = run->n_blocks;
  record->submitted_unix_ms = run->submitted_unix_ms;
  record->state = run->state;
  record->message = run->message;
  record->bad_input = run->is_bad_input;
  record->diverged = run->has_diverged;
  record->ending = run->is_stopping  ? WEIR__ENDING__STOPPING
                   : run->is_pausing ? WEIR__ENDING__PAUSING
                                     : WEIR__ENDING__NO_ENDING;
  record->incarnation = run->incarnation;
  record->plan = plan_is_known(&run->plan) ? coordinator_plan_message(arena, run) : NULL;
  record->reference = record_reference(arena, run);
  record->servers = coordinator_endpoints(arena, run);
  record->n_servers = run->is_load_due ? 0 : (size_t)run->n_servers;
  for (size_t i = 0; i < record->n_servers; i++) {
    const struct run_server *server = &run->servers[i];
    record->servers[i]->holder = arena_strdup(arena, server->holder);
    record->servers[i]->share_host = arena_strdup(arena, server->share_host ? server->share_host : "");
  }
  record->base_step = run->base_step;
  record->checkpoints = run->checkpoints;
  record->n_checkpoints = (size_t)run->n_checkpoints;
  record->weights_sha256 = (char *)run->weights_sha256;
  record->finished_unix_ms = run->finished_unix_ms;
  record->evaluation = run->evaluation;
  record->patience = info.patience;
  record->train_seconds = info.train_seconds;
  record->samples_per_second = coordinator_has_result(run) ? info.samples_per_second : 0;
  return record;
}

static Weir__RunReference *record_reference(struct arena *arena, const struct run *run) {
  Weir__RunReference *message = arena_new(arena, sizeof *message);
  weir__run_reference__init(message);
  if (!run->reference.dataset_sha256)
    return NULL;
  message->worker = run->reference.worker;
  message->dataset_sha256 = run->reference.dataset_sha256;
  if (run->reference.fingerprint) {
    message->fingerprint = run->reference.fingerprint;
    message->probe_sha256 = run->reference.probe_sha256;
  }
  if (run->reference.server_fingerprint) {
    message->server = run->reference.server;
    message->server_fingerprint = run->reference.server_fingerprint;
  }
  return message;
}

void coordinator_save_members(struct coordinator *coordinator) {
  struct arena *arena = &coordinator->actions->arena;
  Weir__Members *members = arena_new(arena, sizeof *members);
  weir__members__init(members);
  members->servers_seen = coordinator->servers_seen;
  members->workers_seen = coordinator->workers_seen;
  members->n_members = (size_t)coordinator->n_members;
  members->members = arena_new(arena, members->n_members * sizeof *members->members);
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    Weir__MemberRecord *record = members->members[i] = arena_new(arena, sizeof *record);
    weir__member_record__init(record);
    record->id = member->id;
    record->role = member->role;
    record->host = member->host;
    record->address = member->address;
  }
  members->n_quarantines = (size_t)coordinator->quarantines.count;
  members->quarantines = arena_new(arena, members->n_quarantines * sizeof *members->quarantines);
  for (int i = 0; i < coordinator->quarantines.count; i++)
    members->quarantines[i] = record_quarantine(arena, &coordinator->quarantines.items[i]);
  coordinator_act(coordinator, ACTION_MEMBERS)->members = members;
}

static Weir__Quarantine *record_quarantine(struct arena *arena, const struct quarantine *quarantine) {
  Weir__Quarantine *record = arena_new(arena, sizeof *record);
  weir__quarantine__init(record);
  record->host = quarantine->host;
  record->device = quarantine->device;
  record->worker = quarantine->worker;
  record->holder = quarantine->holder;
  record->run = quarantine->run;
  record->reason = quarantine->reason;
  record->tenant = quarantine->tenant;
  record->since_unix_ms = quarantine->since_unix_ms;
  return record;
}

Weir__Plan *coordinator_plan_message(struct arena *arena, const struct run *run) {
  Weir__Plan *plan = arena_new(arena, sizeof *plan);
  weir__plan__init(plan);
  plan->train_samples = run->plan.train_samples;
  plan->eval_samples = run->plan.eval_samples;
  plan->steps = run->plan.steps;
  return plan;
}

Weir__Endpoint **coordinator_endpoints(struct arena *arena, const struct run *run) {
  Weir__Endpoint **list = arena_new(arena, (size_t)run->n_servers * sizeof *list);
  for (int i = 0; i < run->n_servers; i++) {
    list[i] = arena_new(arena, sizeof **list);
    weir__endpoint__init(list[i]);
    list[i]->id = arena_strdup(arena, run->servers[i].id);
    list[i]->address = arena_strdup(arena, run->servers[i].address);
  }
  return list;
}
