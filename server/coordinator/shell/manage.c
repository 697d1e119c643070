/* What people ask of runs and their checkpoints: cancel, pause, stop, resume, set, list, verify, collect
   garbage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_live.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/shell/shell.h"

enum { DAMAGE_LINES_MAX = 100, STEPS_SHOWN = 20, COLLECTED_RUNS_MAX = 1000, SETTINGS_MAX = 100 };

/* Checkpoints to verify, one after the other. Its call holds those that are left. */
struct verification {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  char *run;
  uint64_t *steps;
  int at, n_steps;
  struct checkpoint_damage found; /* in the one at hand */
  char *lines[DAMAGE_LINES_MAX];  /* what was found */
  size_t n_lines;
};

static int stop_allowed(const Weir__RunInfo *info, struct err *err);
static int pause_allowed(const Weir__RunInfo *info, struct err *err);
static int resume_allowed(const Weir__RunInfo *info, struct err *err);
static void unknown_step(const Weir__ListCheckpointsReply *known, uint64_t wanted, struct err *err);
static void verify_run(struct task *task);
static int verify_step(struct verification *verification, struct err *err);
static void verdict_send(struct verification *verification, struct err *err);
static void forget_lines(struct verification *verification);
static void verification_go_on(struct verification *verification, struct err *err);

static const char *state_text(Weir__RunState state) {
  switch (state) {
  case WEIR__RUN_STATE__QUEUED:
    return "is queued";
  case WEIR__RUN_STATE__LOADING:
    return "is loading";
  case WEIR__RUN_STATE__RUNNING:
    return "is running";
  case WEIR__RUN_STATE__FINISHING:
    return "is finishing";
  case WEIR__RUN_STATE__DONE:
    return "is done";
  case WEIR__RUN_STATE__FAILED:
    return "has failed";
  case WEIR__RUN_STATE__CANCELLED:
    return "was cancelled";
  case WEIR__RUN_STATE__PAUSED:
    return "is paused";
  case WEIR__RUN_STATE__HELD:
    return "is held";
  case WEIR__RUN_STATE__STOPPED:
    return "was stopped";
  default:
    return "is in an unknown state";
  }
}

static void run_cancel(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  shell_wish(shell, call, asked->run,
             &(struct coordinator_event){.kind = EVENT_RUN_CANCELLED, .run = asked->run});
}

/* Carries out an event that ends the run or lets it rest, if its state allows that. */
static void run_end(struct coordinator_service *shell, struct rpc_call *call, const char *id,
                    int (*allowed)(const Weir__RunInfo *info, struct err *err),
                    enum coordinator_event_kind kind) {
  Weir__RunInfo info;
  struct err err = ERR_NONE;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  if (allowed(&info, &err))
    rpc_call_finish(call, &err);
  else
    shell_wish(shell, call, id, &(struct coordinator_event){.kind = kind, .run = id});
}

static void pause_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  run_end(shell, call, asked->run, pause_allowed, EVENT_RUN_PAUSED);
}

static void stop_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  run_end(shell, call, asked->run, stop_allowed, EVENT_RUN_STOP);
}

static int stop_allowed(const Weir__RunInfo *info, struct err *err) {
  switch (info->state) {
  case WEIR__RUN_STATE__RUNNING:
  case WEIR__RUN_STATE__HELD:
  case WEIR__RUN_STATE__STOPPED: /* nothing is left to do */
    return 0;
  case WEIR__RUN_STATE__LOADING:
    return err_set(err, ERR_INVALID,
                   "run '%s' is loading: stop it once it runs, or end it with 'weir cancel'", info->run);
  case WEIR__RUN_STATE__QUEUED:
    return err_set(err, ERR_INVALID,
                   "run '%s' %s: it computes nothing yet that could be kept: 'weir cancel' ends it",
                   info->run, state_text(info->state));
  case WEIR__RUN_STATE__PAUSED:
    return err_set(err, ERR_INVALID,
                   "run '%s' is paused: 'weir export' takes its newest checkpoint, 'weir cancel' ends it",
                   info->run);
  default:
    return err_set(err, ERR_INVALID, "run '%s' %s: there is nothing to stop", info->run,
                   state_text(info->state));
  }
}

static int pause_allowed(const Weir__RunInfo *info, struct err *err) {
  switch (info->state) {
  case WEIR__RUN_STATE__QUEUED:
  case WEIR__RUN_STATE__LOADING:
  case WEIR__RUN_STATE__RUNNING:
  case WEIR__RUN_STATE__HELD:
  case WEIR__RUN_STATE__PAUSED: /* nothing is left to do */
    return 0;
  default:
    return err_set(err, ERR_INVALID, "run '%s' %s: there is nothing to pause", info->run,
                   state_text(info->state));
  }
}

static void resume_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  const Weir__ResumeRequest *request = asked->message;
  struct coordinator_event event = {.kind = EVENT_RUN_RESUMED};
  Weir__RunInfo info;
  struct err err = ERR_NONE;
  const char *id = asked->run;
  const uint64_t *wanted = request->has_step ? &request->step : NULL;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  if (wanted && *wanted == 0) /* the start, which is its base of a fork */
    wanted = &info.parent_step;
  if (shell_saves_is_deleting(shell, id))
    err_set(&err, ERR_INVALID, "run '%s' is being deleted", id);
  else if (resume_allowed(&info, &err) == 0 && info.base_to_come) /* it waits for it again */
    event.resumed.step = info.parent_step;
  else if (!err.code && (!wanted || *wanted > 0) &&
           !shell_pick_checkpoint(shell, id, wanted, &event.resumed.step, &err) && !wanted &&
           !info.parent_step)
    err = ERR_NONE; /* without a checkpoint from the start */
  if (err.code) {
    rpc_call_finish(call, &err);
    return;
  }
  if (quota_admit_again(shell->core, id, &err)) {
    rpc_call_finish(call, &err);
    return;
  }
  event.resumed.run = id;
  shell_wish(shell, call, id, &event);
  shell_fetch_model(shell, id);
}

static int resume_allowed(const Weir__RunInfo *info, struct err *err) {
  switch (info->state) {
  case WEIR__RUN_STATE__PAUSED:
  case WEIR__RUN_STATE__FAILED:
  case WEIR__RUN_STATE__CANCELLED:
    return 0;
  case WEIR__RUN_STATE__DONE:
    return err_set(err, ERR_INVALID, "run '%s' is done: there is nothing to resume", info->run);
  case WEIR__RUN_STATE__HELD:
    return err_set(err, ERR_INVALID,
                   "run '%s' is held at step %" PRIu64
                   ": 'weir set %s train.hold=STEP', or null, raises its hold",
                   info->run, info->step, info->run);
  case WEIR__RUN_STATE__STOPPED:
    return err_set(err, ERR_INVALID, "run '%s' was stopped: 'weir fork' begins a run from its checkpoint",
                   info->run);
  default:
    return err_set(err, ERR_INVALID, "run '%s' %s: it needs no resuming", info->run, state_text(info->state));
  }
}

/* What a run's state or its sweep does not allow. */
static int check_set(struct coordinator_service *shell, const Weir__RunInfo *info,
                     const Weir__SetRequest *request, struct err *err) {
  if (coordinator_run_is_over(shell->core, info->run))
    return err_set(err, ERR_INVALID, "run '%s' %s: there is nothing to set", info->run,
                   state_text(info->state));
  if (request->n_settings == 0 || request->n_settings > SETTINGS_MAX)
    return err_set(err, ERR_INVALID, "%zu settings: at least one, and at most %d", request->n_settings,
                   SETTINGS_MAX);
  if (spec_sets_hold((const char *const *)request->settings, (int)request->n_settings))
    return shell_sweep_check_hold(shell, info, err);
  return 0;
}

static void set_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  const Weir__SetRequest *request = asked->message;
  struct coordinator_event event = {.kind = EVENT_RUN_SET};
  Weir__RunInfo info;
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  const char *id = asked->run;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  spec = spec_copy(coordinator_run_spec(shell->core, id));
  if (check_set(shell, &info, request, &err) == 0 &&
      spec_set_live(spec, (const char *const *)request->settings, (int)request->n_settings, &err) == 0 &&
      spec->train->has_hold)
    coordinator_check_hold(shell->core, id, spec->train->hold, &err);
  if (err.code) {
    rpc_call_finish(call, &err);
  } else {
    event.set.run = id;
    event.set.spec = spec;
    shell_wish(shell, call, id, &event);
  }
  spec_free(spec);
}

bool shell_pick_checkpoint(struct coordinator_service *shell, const char *run, const uint64_t *wanted,
                           uint64_t *step, struct err *err) {
  Weir__ListCheckpointsReply known;
  struct arena arena;
  bool is_found = false;
  if (shell_saves_is_deleting(shell, run)) {
    err_set(err, ERR_INVALID, "run '%s' is being deleted", run);
    return false;
  }
  arena_init(&arena);
  CHECK(coordinator_list_checkpoints(shell->core, run, &arena, &known));
  for (size_t i = 0; i < known.n_checkpoints && !is_found; i++) {
    const Weir__CheckpointInfo *info = known.checkpoints[known.n_checkpoints - 1 - i];
    *step = info->step;
    is_found = wanted ? info->step == *wanted : !info->unreadable;
  }
  if (!is_found)
    unknown_step(&known, wanted ? *wanted : 0, err);
  arena_fini(&arena);
  return is_found;
}

/* Of many, those around the one that is wanted. */
static size_t steps_shown_from(const Weir__ListCheckpointsReply *known, uint64_t wanted) {
  size_t before = 0;
  while (before < known->n_checkpoints && known->checkpoints[before]->step < wanted)
    before++;
  if (before + STEPS_SHOWN / 2 > known->n_checkpoints)
    before = known->n_checkpoints;
  else
    before += STEPS_SHOWN / 2;
  return before > STEPS_SHOWN ? before - STEPS_SHOWN : 0;
}

static void unknown_step(const Weir__ListCheckpointsReply *known, uint64_t wanted, struct err *err) {
  char steps[STEPS_SHOWN * 24 + 16] = "";
  size_t begin;
  if (known->n_checkpoints == 0) {
    err_set(err, ERR_NOT_FOUND, "run '%s' has no checkpoint yet", known->run);
    return;
  }
  begin = steps_shown_from(known, wanted);
  for (size_t i = begin; i < known->n_checkpoints && i <= begin + STEPS_SHOWN; i++) {
    size_t length = strlen(steps);
    if (i == begin + STEPS_SHOWN)
      snprintf(steps + length, sizeof steps - length, ", ...");
    else
      snprintf(steps + length, sizeof steps - length, "%s%" PRIu64,
               i > begin ? ", "
               : begin   ? "..., "
                         : "",
               known->checkpoints[i]->step);
  }
  err_set(err, ERR_NOT_FOUND, "run '%s' has no checkpoint at step %" PRIu64 " (it has: %s)", known->run,
          wanted, steps);
}

static void list_checkpoints(struct coordinator_service *shell, struct rpc_call *call,
                             const struct asked *asked) {
  Weir__ListCheckpointsReply reply;
  struct arena arena;
  arena_init(&arena);
  CHECK(coordinator_list_checkpoints(shell->core, asked->run, &arena, &reply));
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void checkpoints_verify(struct coordinator_service *shell, struct rpc_call *call,
                               const struct asked *asked) {
  const Weir__VerifyRequest *request = asked->message;
  const char *id = asked->run;
  struct verification *verification;
  Weir__ListCheckpointsReply known;
  struct err err = ERR_NONE;
  struct arena arena;
  uint64_t step;
  if (!shell_pick_checkpoint(shell, id, request->has_step ? &request->step : NULL, &step, &err) ||
      !shell_read_begin(shell, call, READ_VERIFICATION, &err)) {
    rpc_call_finish(call, &err);
    return;
  }
  arena_init(&arena);
  CHECK(coordinator_list_checkpoints(shell->core, id, &arena, &known));
  verification = mem_new(sizeof *verification);
  *verification = (struct verification){.shell = shell, .call = call, .run = mem_strdup(id)};
  verification->steps = mem_new(known.n_checkpoints * sizeof *verification->steps);
  for (size_t i = 0; i < known.n_checkpoints; i++)
    if (!request->has_step || known.checkpoints[i]->step == step)
      verification->steps[verification->n_steps++] = known.checkpoints[i]->step;
  arena_fini(&arena);
  verification_go_on(verification, &err);
}

/* A checkpoint at a time, and then others have their turn. */
static void verification_go_on(struct verification *verification, struct err *err) {
  int at = verification->at, left = verification->n_steps - at;
  if (!err->code && left > 0) {
    read_hold(rpc_call_user(verification->call), verification->run, verification->steps + at, left);
    verification->task.run = verify_run;
    task_post(verification->shell->verifying, &verification->task); /* so many of each tenant */
    return;
  }
  sender_finish(verification->call, err);
  forget_lines(verification);
  free(verification->steps);
  free(verification->run);
  free(verification);
}

static void verify_run(struct task *task) {
  struct verification *verification = TASK_OWNER(task, struct verification, task);
  struct err err = ERR_NONE;
  if (shell_is_ending(verification->shell))
    err_set(&err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (verify_step(verification, &err) == 0)
    verdict_send(verification, &err);
  verification_go_on(verification, &err);
}

static void verdict_send(struct verification *verification, struct err *err) {
  struct checkpoint_damage *found = &verification->found;
  Weir__VerifyReply reply = WEIR__VERIFY_REPLY__INIT;
  reply.step = verification->steps[verification->at++];
  reply.blocks = found->blocks;
  reply.bytes = found->bytes;
  reply.damage = verification->lines;
  reply.n_damage = verification->n_lines;
  reply.n_damaged = found->n_damaged;
  reply.weights_sha256 = found->sha256;
  if (rpc_call_send(verification->call, &reply, NULL))
    err_set(err, ERR_CANCELLED, "the client is gone");
}

static void keep_line(void *user, const char *line) {
  struct verification *verification = user;
  if (verification->n_lines < DAMAGE_LINES_MAX)
    verification->lines[verification->n_lines++] = mem_strdup(line);
}

static void forget_lines(struct verification *verification) {
  while (verification->n_lines > 0)
    free(verification->lines[--verification->n_lines]);
}

static int verify_step(struct verification *verification, struct err *err) {
  struct checkpoint_damage *found = &verification->found;
  Weir__Manifest *manifest;
  char *name = checkpoint_name(verification->run, verification->steps[verification->at]);
  int rc = checkpoint_read(verification->shell->store, name, &manifest, err);
  forget_lines(verification);
  *found = (struct checkpoint_damage){.each = keep_line, .user = verification};
  if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT) {
    found->n_damaged = 1;
    keep_line(verification, rc == ERR_CORRUPT ? err->text : "the store has no record of it");
    *err = ERR_NONE;
  } else if (!rc) {
    checkpoint_verify(verification->shell->store, manifest, found, err);
  }
  message_free(manifest);
  free(name);
  return err->code;
}

/* The id of a run to delete, which is over, or a name that only the store may know. NULL: refused. */
static char *run_to_delete(struct coordinator_service *shell, const struct viewer *viewer, const char *prefix,
                           struct err *err) {
  Weir__RunInfo info;
  const char *id;
  int rc = coordinator_find_run(shell->core, viewer, prefix, &id, err);
  if (rc == ERR_NOT_FOUND) {
    *err = ERR_NONE;
    return mem_strdup(prefix);
  }
  if (rc)
    return NULL;
  CHECK(coordinator_run_info(shell->core, id, shell_now_ms(), &info));
  if (!coordinator_run_has_told_end(shell->core, id))
    err_set(err, ERR_INVALID, "run '%s' %s: only a run that is over can be deleted (cancel it first)", id,
            state_text(info.state));
  return err->code || shell_refuse_read(shell, id, err) ? NULL : mem_strdup(id);
}

static void collect_garbage(struct coordinator_service *shell, struct rpc_call *call,
                            const struct asked *asked) {
  const Weir__CollectGarbageRequest *request = asked->message;
  struct err err = ERR_NONE;
  char **runs, *id;
  int n = 0;
  if (request->n_runs > COLLECTED_RUNS_MAX) {
    rpc_call_fail(call, ERR_INVALID, "more than %d runs at once", COLLECTED_RUNS_MAX);
    return;
  }
  runs = mem_new(request->n_runs * sizeof *runs);
  for (size_t i = 0; i < request->n_runs && !err.code; i++)
    if ((id = run_to_delete(shell, &asked->viewer, request->runs[i], &err)))
      runs[n++] = id;
  if (!err.code) {
    shell_collect_garbage(shell, call, &asked->viewer, runs, n);
    return;
  }
  rpc_call_finish(call, &err);
  for (int i = 0; i < n; i++)
    free(runs[i]);
  free(runs);
}

void shell_cancel_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, run_cancel);
}

void shell_pause_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, pause_run);
}

void shell_stop_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, stop_run);
}

void shell_set_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, set_run);
}

void shell_resume_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, resume_run);
}

void shell_list_checkpoints_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, list_checkpoints);
}

void shell_verify_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, checkpoints_verify);
}

void shell_collect_garbage_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, collect_garbage);
}
