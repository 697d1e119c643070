/* Forks: asked for on the event loop, checked by the thread `slow`, queued by the event loop, and written
   with their first record by the jobs. */
#include "server/coordinator/shell/fork.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/plan.h"
#include "common/optim/trained_model.h"
#include "common/specs/spec_fork.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/optim/update_rule.h"
#include "common/settle/spec_settle.h"
#include "model/stages/cuts.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/record.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/shell/sweeps.h"
#include "server/coordinator/state/room.h"

enum { SETTINGS_MAX = 100, NOTES_MAX = 3 };

/* A fork that a call asks for, or a sweep; or one that has waited for its base (base.is_late). */
struct forking {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call; /* NULL: no call does */
  char *sweep;           /* NULL: no sweep does */
  uint32_t trial, repeat;
  bool is_to_come;     /* what it is to begin with; it only waits for that so far */
  Weir__RunSpec *spec; /* of the fork */
  struct fork_base base;
  /* what `slow` finds */
  Weir__RunRecord *record;  /* of the parent; of one that is to come to the step known before */
  Weir__Manifest *manifest; /* its checkpoint; NULL: to come */
  Weir__Plan plan;          /* of the fork */
  uint64_t slots_step;
  char id[RUN_ID_SIZE]; /* of a call's fork drawn by `slow` */
  char *notes[NOTES_MAX];
  size_t n_notes;
  struct err err;
};

static void forking_check(struct task *task);
static int read_parent(struct forking *forking);
static int check_plan(struct forking *forking);
static int find_layout(struct forking *forking);
static int check_model(struct forking *forking);
static void forking_accept(struct task *task);
static void trial_accept(struct forking *forking);
static void base_accept(struct forking *forking);
static void run_queue(struct forking *forking);

static void forking_free(struct forking *forking) {
  for (size_t i = 0; i < forking->n_notes; i++)
    free(forking->notes[i]);
  message_free(forking->record);
  message_free(forking->manifest);
  spec_free(forking->spec);
  free(forking->base.parent);
  free(forking->sweep);
  free(forking);
}

void fork_base_free(struct fork_base *base) {
  if (base)
    free(base->parent);
  free(base);
}

/* As the store will have it: it may not have the plan yet. */
static Weir__RunRecord *copy_record(struct coordinator_service *shell, const char *run) {
  Weir__RunRecord *copy;
  struct arena arena;
  arena_init(&arena);
  copy = message_copy(coordinator_run_record(shell->core, run, &arena));
  arena_fini(&arena);
  return copy;
}

void shell_fork_begin(struct coordinator_service *shell, struct rpc_call *call,
                      const Weir__ForkRequest *request, const struct fork_point *point) {
  const char *parent = point->parent;
  struct spec_source settings = {.file = parent,
                                 .settings = (const char *const *)request->settings,
                                 .n_settings = (int)request->n_settings};
  Weir__RunSpec *spec = NULL;
  struct forking *forking;
  struct err err = ERR_NONE;
  if (shell_saves_is_deleting(shell, parent))
    err_set(&err, ERR_INVALID, "run '%s' is being deleted", parent);
  else if (request->n_settings > SETTINGS_MAX)
    err_set(&err, ERR_INVALID, "%zu settings: at most %d", request->n_settings, SETTINGS_MAX);
  else if (spec_fork(coordinator_run_spec(shell->core, parent), &settings, request->name, &spec, &err) == 0)
    spec_settle_check(spec, &err);
  if (err.code) {
    rpc_call_finish(call, &err);
    spec_free(spec);
    return;
  }
  forking = mem_new(sizeof *forking);
  *forking = (struct forking){.task.run = forking_check,
                              .shell = shell,
                              .call = call,
                              .is_to_come = point->is_to_come,
                              .spec = spec,
                              .base = {.parent = mem_strdup(parent), .step = point->step}};
  if (point->is_to_come)
    forking->record = copy_record(shell, parent);
  if (task_offer(shell->slow, &forking->task))
    return;
  rpc_call_fail(call, ERR_BUSY, "too many downloads and submissions wait");
  forking_free(forking);
}

int shell_fork_trial(struct coordinator_service *shell, const struct trial_fork *fork, struct err *err) {
  struct forking *forking = mem_new(sizeof *forking);
  *forking = (struct forking){.task.run = forking_check,
                              .shell = shell,
                              .sweep = mem_strdup(fork->sweep),
                              .trial = fork->trial,
                              .repeat = fork->repeat,
                              .spec = fork->spec,
                              .base = {.parent = mem_strdup(fork->parent), .step = fork->step}};
  snprintf(forking->id, sizeof forking->id, "%s", fork->id);
  if (task_offer(shell->slow, &forking->task))
    return 0;
  forking_free(forking);
  return err_set(err, ERR_BUSY, "too many downloads and submissions wait");
}

void shell_fork_base(struct coordinator_service *shell, const char *run) {
  struct forking *forking = mem_new(sizeof *forking);
  Weir__RunInfo info;
  CHECK(coordinator_run_info(shell->core, run, shell_now_ms(), &info));
  *forking = (struct forking){
      .task.run = forking_check,
      .shell = shell,
      .spec = spec_copy(coordinator_run_spec(shell->core, run)),
      .base = {.parent = mem_strdup(info.parent), .step = info.parent_step, .is_late = true}};
  snprintf(forking->id, sizeof forking->id, "%s", run);
  if (task_offer(shell->slow, &forking->task))
    return;
  err_set(&forking->err, ERR_BUSY, "too many downloads and submissions wait");
  forking->task.run = forking_accept;
  task_post(shell->event_loop, &forking->task); /* asked again in a second */
}

static void forking_check(struct task *task) {
  struct forking *forking = TASK_OWNER(task, struct forking, task);
  struct coordinator_service *shell = forking->shell;
  char why[SHELL_TEXT_SIZE];
  if (!shell_is_leading(shell, why))
    err_set(&forking->err, ERR_UNAVAILABLE, "%s", why);
  else if (read_parent(forking) == 0 && check_plan(forking) == 0 && find_layout(forking) == 0 &&
           check_model(forking) == 0 && forking->call)
    run_id_draw(shell->store, forking->spec->name, forking->id, &forking->err);
  forking->task.run = forking_accept;
  task_post(shell->event_loop, &forking->task); /* bounded by the tasks of `slow` */
}

/* Errors also: NOT_FOUND where it was deleted since it was picked. */
static int read_base(struct coordinator_service *shell, const struct fork_base *base,
                     Weir__Manifest **manifest, struct err *err) {
  char *name = checkpoint_name(base->parent, base->step);
  if (checkpoint_read(shell->store, name, manifest, err) == ERR_NOT_FOUND)
    err_set(err, ERR_NOT_FOUND, "run '%s' no longer has its checkpoint of step %" PRIu64 ": fork a newer one",
            base->parent, base->step);
  free(name);
  return err->code;
}

static int read_parent(struct forking *forking) {
  struct store *store = forking->shell->store;
  struct err *err = &forking->err;
  if (forking->is_to_come || read_base(forking->shell, &forking->base, &forking->manifest, err) ||
      checkpoint_find_run(store, forking->base.parent, &forking->record, err))
    return err->code;
  if (!forking->record->reference || forking->record->n_block_elems != forking->manifest->n_blocks ||
      strcmp(forking->record->model_sha256, forking->manifest->model_sha256))
    err_set(err, ERR_CORRUPT, "store: the record of run '%s' does not fit its checkpoint",
            forking->base.parent);
  return err->code;
}

/* Of the parent's data. */
static int check_plan(struct forking *forking) {
  const Weir__Plan *of = forking->manifest ? forking->manifest->plan : forking->record->plan;
  struct plan plan;
  if (plan_init(&plan, forking->spec, of->train_samples, of->eval_samples, &forking->err))
    return forking->err.code;
  if (plan.steps <= forking->base.step)
    return err_set(&forking->err, ERR_INVALID,
                   "train.%s: the fork would end with step %" PRIu64 ", and begins at %" PRIu64
                   ": give it more, as train.steps=%" PRIu64,
                   forking->spec->train->has_steps ? "steps" : "epochs", plan.steps, forking->base.step,
                   2 * forking->base.step);
  plan_fix_hold(&plan, forking->spec->train);
  if (forking->spec->train->has_hold && forking->spec->train->hold <= forking->base.step)
    return err_set(&forking->err, ERR_INVALID,
                   "train.hold: the fork begins at step %" PRIu64 ": a hold must lie behind it, at %" PRIu64
                   " or later",
                   forking->base.step, forking->base.step + 1);
  weir__plan__init(&forking->plan);
  forking->plan.train_samples = plan.train_samples;
  forking->plan.eval_samples = plan.eval_samples;
  forking->plan.steps = plan.steps;
  return 0;
}

/* How the blocks of the base lie: those that a run writes itself lie by its own spec. */
static const Weir__RunSpec *layout_of_base(const struct forking *forking) {
  const Weir__Manifest *manifest = forking->manifest;
  if (!manifest)
    return forking->record->spec;
  return manifest->layout_spec ? manifest->layout_spec : manifest->spec;
}

/* What the optimizer keeps goes on where it is laid out alike, and begins anew elsewhere; so does the
 * average.
 */
static int find_layout(struct forking *forking) {
  const Weir__Manifest *manifest = forking->manifest;
  Weir__RunSpec *was = spec_copy(layout_of_base(forking));
  Weir__RunSpec *now = spec_copy(forking->spec);
  if (update_rules_settle(was->train, &forking->err) == 0 &&
      update_rules_settle(now->train, &forking->err) == 0 &&
      update_rules_check_kept(was->train, now->train, &forking->err) == 0) {
    bool are_alike = update_rules_keep_alike(was->train, now->train);
    forking->slots_step = !are_alike ? forking->base.step
                          : manifest ? manifest->slots_step
                                     : forking->record->slots_step;
    forking->base.is_laid_out_otherwise = !are_alike || !was->train->average != !now->train->average;
    if (!are_alike)
      forking->notes[forking->n_notes++] = mem_printf("the optimizer keeps other values of each weight than "
                                                      "that of %s did: they begin anew at step %" PRIu64,
                                                      forking->base.parent, forking->base.step);
    if (now->train->average && !was->train->average)
      forking->notes[forking->n_notes++] =
          mem_printf("%s kept no average: it begins with the weights of step %" PRIu64, forking->base.parent,
                     forking->base.step);
    if (forking->is_to_come)
      forking->notes[forking->n_notes++] =
          mem_printf("it waits until %s has come to step %" PRIu64, forking->base.parent, forking->base.step);
  }
  spec_free(was);
  spec_free(now);
  return forking->err.code;
}

/* Metrics and cuts are checked against the model. */
static int check_model(struct forking *forking) {
  const Weir__RunRecord *record = forking->record;
  const Weir__TrainSpec *train = forking->spec->train;
  const struct model_cuts_wanted wanted = {.n_stages = (int)forking->spec->workers->stages};
  struct model_cuts cuts = {0};
  struct model *model = NULL;
  struct buffer *file = NULL;
  if (checkpoint_blob(forking->shell->store,
                      *record->outline_sha256 ? record->outline_sha256 : record->model_sha256, &file,
                      &forking->err) == 0 &&
      trained_model_open(&(struct model_source){.onnx = file->data,
                                                .size_bytes = file->size_bytes,
                                                .spec = forking->spec,
                                                .samples = train->batch / train->microbatches},
                         &model, &forking->err) == 0 &&
      model_cuts_find(model, forking->spec, &wanted, &cuts, &forking->err) == 0 &&
      model->n_blocks != record->n_block_elems)
    err_set(&forking->err, ERR_CORRUPT, "the checkpoint has %zu blocks, the model %u", record->n_block_elems,
            model->n_blocks);
  model_cuts_fini(&cuts);
  model_close(model);
  buffer_put(file);
  return forking->err.code;
}

/* Of its parent's tenant, whose it will be. */
static int check_quota(struct forking *forking) {
  const Weir__RunRecord *record = forking->record;
  struct quota_demand demand = {
      .memory_bytes = room_of_blocks(forking->spec, record->block_elems, (uint32_t)record->n_block_elems)};
  for (size_t i = 0; forking->manifest && i < forking->manifest->n_blocks; i++)
    demand.checkpoint_bytes += forking->manifest->blocks[i]->bytes;
  return quota_admit(forking->shell->core, tenant_or_default(record->tenant), &demand, &forking->err);
}

static void forking_accept(struct task *task) {
  struct forking *forking = TASK_OWNER(task, struct forking, task);
  struct coordinator_service *shell = forking->shell;
  if (forking->base.is_late)
    base_accept(forking);
  else if (forking->sweep)
    trial_accept(forking);
  else if (shell_turns_away(shell, forking->call))
    ;
  else if (forking->err.code)
    rpc_call_finish(forking->call, &forking->err);
  else if (coordinator_live_runs(shell->core) >= LIMIT_RUNS)
    rpc_call_fail(forking->call, ERR_BUSY,
                  "fork: %d runs wait or run, the most that may: try again when some have ended", LIMIT_RUNS);
  else if (coordinator_run_model(shell->core, forking->id)) /* another drew it at the same time */
    rpc_call_fail(forking->call, ERR_BUSY, "fork: the id %s was just given away: try again", forking->id);
  else if (check_quota(forking))
    rpc_call_finish(forking->call, &forking->err);
  else
    run_queue(forking);
  forking_free(forking);
}

/* Its run may be there: a former coordinator, or an answer of the store that was lost. */
static void trial_accept(struct forking *forking) {
  struct coordinator_service *shell = forking->shell;
  struct err *err = &forking->err;
  char why[SHELL_TEXT_SIZE];
  if (!err->code && !shell_is_leading(shell, why))
    err_set(err, ERR_UNAVAILABLE, "%s", why);
  if (!err->code && coordinator_live_runs(shell->core) >= LIMIT_RUNS)
    err_set(err, ERR_BUSY, "%d runs wait or run, the most that may: try again when some have ended",
            LIMIT_RUNS);
  if (!err->code && !coordinator_run_model(shell->core, forking->id))
    run_queue(forking);
  shell_trial_forked(
      shell,
      &(struct trial_fork){.sweep = forking->sweep, .trial = forking->trial, .repeat = forking->repeat}, err);
}

/* As a fork's own: the checkpoint that it has of its parent's. */
static void base_info(const Weir__Manifest *manifest, Weir__CheckpointInfo *info) {
  checkpoint_info(manifest, info);
  info->incarnation = info->written_bytes = 0;
  info->weights_sha256 = "";
}

/* What is over when it is tried again is: the parent comes to that version again where it is gone. */
static void base_accept(struct forking *forking) {
  struct coordinator_service *shell = forking->shell;
  const struct err *err = &forking->err;
  struct coordinator_event event = {.kind = EVENT_RUN_BASED, .based = {.run = forking->id}};
  bool is_final = err->code == ERR_INVALID || err->code == ERR_CORRUPT;
  struct fork_base *base;
  Weir__CheckpointInfo info;
  if (!coordinator_run_model(shell->core, forking->id) || coordinator_run_is_over(shell->core, forking->id))
    return;
  if (!err->code) {
    base = mem_new(sizeof *base);
    *base = forking->base;
    base->parent = mem_strdup(forking->base.parent);
    base_info(forking->manifest, &info);
    event.based.base = &info;
    event.based.slots_step = forking->slots_step;
    event.based.incarnation = forking->manifest->incarnation;
    shell_saves_await_base(shell, forking->id, base);
  } else if (is_final) {
    event.based.error = err->text;
  } else {
    log_event(LOG_WARN, "coordinator", "base_not_read", "run=%s reason=\"%s\"", forking->id, err->text);
  }
  shell_step(shell, &event);
}

/* The call is answered when the run is in the store. */
static void run_queue(struct forking *forking) {
  struct coordinator_service *shell = forking->shell;
  const Weir__RunRecord *record = forking->record;
  struct fork_base *base = NULL;
  struct live_model *live = shell_find_model(shell, forking->base.parent);
  Weir__ForkReply reply = WEIR__FORK_REPLY__INIT;
  Weir__CheckpointInfo info;
  struct run_inheritance inheritance = {&forking->plan, record->reference, NULL};
  struct run_submission submission = {.id = forking->id,
                                      .tenant = record->tenant,
                                      .spec = forking->spec,
                                      .model_bytes = record->model_bytes,
                                      .model_sha256 = record->model_sha256,
                                      .model_pieces = record->model_pieces,
                                      .outline_bytes = record->outline_bytes,
                                      .outline_sha256 = record->outline_sha256,
                                      .parameters = record->parameters,
                                      .block_elems = record->block_elems,
                                      .n_blocks = (uint32_t)record->n_block_elems,
                                      .submitted_unix_ms = clock_unix_ms(),
                                      .origin = {.parent = forking->base.parent,
                                                 .step = forking->base.step,
                                                 .slots_step = forking->slots_step,
                                                 .incarnation = INCARNATION_UNKNOWN,
                                                 .is_to_come = forking->is_to_come},
                                      .inheritance = &inheritance,
                                      .sweep = forking->sweep,
                                      .trial = forking->trial};
  if (!forking->is_to_come) {
    base = mem_new(sizeof *base);
    *base = forking->base;
    base->parent = mem_strdup(forking->base.parent);
    base_info(forking->manifest, &info);
    inheritance.base = &info;
    submission.origin.incarnation = forking->manifest->incarnation;
  }
  reply.run = forking->id;
  reply.step = forking->base.step;
  reply.notes = forking->notes;
  reply.n_notes = forking->n_notes;
  if (live)
    shell_keep_model(shell, forking->id, record->model_sha256, run_model_get(live->model));
  shell_saves_await_fork(shell, forking->call, base, &reply);
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_SUBMITTED, .submission = &submission});
  shell_fetch_model(shell, forking->id); /* where the parent is over */
}

/* As the fork's own: what is not said here is the parent's, and what is pointed to stays theirs. */
static void adopt(Weir__Manifest *own, const struct fork_base *base, const Weir__RunRecord *record,
                  uint64_t term) {
  if (!base->is_laid_out_otherwise)
    own->layout_spec = NULL;
  else if (!own->layout_spec)
    own->layout_spec = own->spec;
  own->run = record->run;
  own->tenant = record->tenant;
  own->spec = record->spec;
  own->plan = record->plan;
  own->incarnation = record->incarnation;
  own->term = term;
  own->weights_sha256 = "";
  own->written_bytes = 0;
}

int fork_base_write(struct coordinator_service *shell, const struct fork_base *base,
                    const Weir__RunRecord *record, struct err *err) {
  char term[LEASE_TERM_SIZE];
  char *to = checkpoint_name(record->run, base->step);
  char *name = checkpoint_run_name(record->run, "run");
  struct store_record guard = lease_guard(shell->term, term);
  struct onnx_outline pieces = {0};
  Weir__Manifest *parents = NULL, own;
  struct err ignored = ERR_NONE;
  if (!shell_has_refs(shell, err) || read_base(shell, base, &parents, err) ||
      checkpoint_run_pieces(shell->store, record, &pieces, err))
    goto out;
  own = *parents;
  adopt(&own, base, record, shell->term);
  if (checkpoint_commit(shell->store, shell->refs, &own, &guard, err))
    goto out;
  if (checkpoint_write_record(shell->store, name, record, &guard, err) == 0)
    block_refs_add_run(shell->refs, record, &pieces);
  else if (checkpoint_delete(shell->store, shell->refs, to, &guard, &ignored)) /* a sweep will */
    log_event(LOG_WARN, "coordinator", "fork_not_deleted", "name=%s reason=\"%s\"", to, ignored.text);
out:
  onnx_outline_fini(&pieces);
  message_free(parents);
  free(to);
  free(name);
  return err->code;
}
