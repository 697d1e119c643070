/* Runs: their states, and how members come to serve one. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/spec.h"
#include "common/text.h"
#include "server/coordinator/state.h"

enum { RUNS_KEPT = 1000, MESSAGE_MAX = 1500, HASH_MAX = 128 };
#define SAMPLES_MAX (UINT64_C(1) << 38) /* a plan's numbers fit below it */

/* transitions[from] has bit `to`. */
#define TO(state) (1u << WEIR__RUN_STATE__##state)
static const unsigned transitions[] = {
    [WEIR__RUN_STATE__QUEUED] = TO(LOADING) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__LOADING] = TO(RUNNING) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__RUNNING] = TO(FINISHING) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__FINISHING] = TO(DONE) | TO(FAILED) | TO(CANCELLED),
    [WEIR__RUN_STATE__DONE] = 0,
    [WEIR__RUN_STATE__FAILED] = 0,
    [WEIR__RUN_STATE__CANCELLED] = 0,
};
#undef TO

static void forget_old_runs(struct coordinator *coordinator);
static void release(struct coordinator *coordinator, struct run *run);
static void publish_end(struct coordinator *coordinator, struct run *run);
static void worker_loaded(struct coordinator *coordinator, struct member *worker,
                          const Weir__RunLoaded *loaded);
static void reference_set(struct coordinator *coordinator, struct run *run, const struct member *worker,
                          const Weir__RunLoaded *loaded);
static char *reference_mismatch(const struct run *run, const struct member *worker,
                                const Weir__RunLoaded *loaded);
static void worker_refuse(struct coordinator *coordinator, struct member *worker, const char *message);

struct run *coordinator_run(const struct coordinator *coordinator, const char *id) {
  for (int i = 0; i < coordinator->n_runs; i++)
    if (strcmp(coordinator->runs[i]->id, id) == 0)
      return coordinator->runs[i];
  return NULL;
}

struct run_server *coordinator_run_server(const struct run *run, const struct member *member) {
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member == member)
      return &run->servers[i];
  return NULL;
}

bool coordinator_is_over(const struct run *run) {
  return transitions[run->state] == 0;
}

void coordinator_run_set_state(struct coordinator *coordinator, struct run *run, Weir__RunState state) {
  CHECK(transitions[run->state] & (1u << state));
  log_event(LOG_INFO, "coordinator", "run_state", "run=%s from=%s to=%s message=\"%s\"", run->id,
            coordinator_state_name(run->state), coordinator_state_name(state), run->message);
  run->state = state;
  run->is_info_due = true;
  if (!coordinator_is_over(run))
    return;
  run->finished_ms = coordinator->now_ms;
  release(coordinator, run);
  publish_end(coordinator, run);
}

void coordinator_run_set_message(struct run *run, const char *message) {
  char *copy;
  if (strcmp(run->message, message) == 0)
    return;
  copy = text_copy_clean(message, MESSAGE_MAX);
  free(run->message);
  run->message = copy;
  run->is_info_due = true;
}

void coordinator_run_fail(struct coordinator *coordinator, struct run *run, bool is_bad_input,
                          const char *format, ...) {
  char message[MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  coordinator_run_set_message(run, message);
  run->is_bad_input = is_bad_input;
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__FAILED);
}

void coordinator_run_submitted(struct coordinator *coordinator, const struct run_submission *submission) {
  struct run *run = mem_new(sizeof *run);
  size_t blocks = submission->n_blocks;
  CHECK(!coordinator_run(coordinator, submission->id));
  forget_old_runs(coordinator);
  run->id = mem_strdup(submission->id);
  run->spec = spec_copy(submission->spec);
  run->model_bytes = submission->model_bytes;
  run->model_sha256 = mem_strdup(submission->model_sha256);
  run->parameters = submission->parameters;
  run->n_blocks = submission->n_blocks;
  run->block_elems = mem_new(blocks * sizeof *run->block_elems);
  memcpy(run->block_elems, submission->block_elems, blocks * sizeof *run->block_elems);
  run->written = mem_new(blocks * sizeof *run->written);
  run->state = WEIR__RUN_STATE__QUEUED;
  run->message = mem_strdup("");
  run->loss = run->accuracy = run->eval_loss = NAN;
  run->submitted_unix_ms = submission->submitted_unix_ms;
  run->submitted_ms = coordinator->now_ms;
  run->is_info_due = true;
  array_reserve((void **)&coordinator->runs, &coordinator->runs_capacity, coordinator->n_runs,
                sizeof *coordinator->runs);
  coordinator->runs[coordinator->n_runs++] = run;
  log_event(LOG_INFO, "coordinator", "run_submitted", "run=%s model_bytes=%llu parameters=%llu blocks=%u",
            run->id, (unsigned long long)run->model_bytes, (unsigned long long)run->parameters,
            run->n_blocks);
}

void coordinator_run_free(struct run *run) {
  event_log_fini(&run->events);
  spec_free(run->spec);
  free(run->id);
  free(run->model_sha256);
  free(run->block_elems);
  free(run->message);
  free(run->reference.worker);
  free(run->reference.fingerprint);
  free(run->reference.dataset_sha256);
  free(run->reference.probe_sha256);
  free(run->servers);
  free(run->refused);
  free(run->refusal);
  free(run->written);
  free(run);
}

/* The oldest runs that are over make place for a new one. */
static void forget_old_runs(struct coordinator *coordinator) {
  for (int i = 0; i < coordinator->n_runs && coordinator->n_runs >= RUNS_KEPT;) {
    if (!coordinator_is_over(coordinator->runs[i])) {
      i++;
      continue;
    }
    coordinator_run_free(coordinator->runs[i]);
    memmove(coordinator->runs + i, coordinator->runs + i + 1,
            (size_t)(coordinator->n_runs - i - 1) * sizeof *coordinator->runs);
    coordinator->n_runs--;
  }
}

/* All members of a run that is over are told so and are free again. */
static void release(struct coordinator *coordinator, struct run *run) {
  const char *reason = *run->message ? run->message : coordinator_state_name(run->state);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    if (member->run != run)
      continue;
    coordinator_order_unload(coordinator, run, member, reason);
    coordinator_worker_leave_run(member, member->state == WORKER_DRAINING ? WORKER_DRAINING : WORKER_IDLE);
  }
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member)
      coordinator_order_unload(coordinator, run, run->servers[i].member, reason);
  run->n_servers = 0;
  run->is_view_due = false;
}

/* A run that is over ends its events: a done event, or its state with the reason. */
static void publish_end(struct coordinator *coordinator, struct run *run) {
  Weir__RunInfo info;
  coordinator_info_fill(coordinator, run, coordinator->now_ms, &info);
  coordinator_act(coordinator, ACTION_RELEASE)->run = run->id;
  if (run->state == WEIR__RUN_STATE__DONE) {
    struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_DONE, .done = WEIR__DONE_EVENT__INIT};
    event.done.steps = run->plan.steps;
    event.done.accuracy = run->accuracy;
    event.done.loss = run->eval_loss;
    event.done.weights_sha256 = run->weights_sha256;
    event.done.samples_per_second = info.samples_per_second;
    event_log_add(&run->events, &event);
    coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
    run->is_info_due = false;
  }
}

void coordinator_loaded(struct coordinator *coordinator, struct member *member,
                        const Weir__RunLoaded *loaded) {
  struct run *run = coordinator_run(coordinator, loaded->run);
  struct run_server *server = run ? coordinator_run_server(run, member) : NULL;
  if (!run || loaded->incarnation != run->incarnation)
    return; /* it was over before this member had loaded it */
  if (server)
    server->is_loaded = true;
  else if (member->run == run && member->state == WORKER_LOADING)
    worker_loaded(coordinator, member, loaded);
}

static void worker_loaded(struct coordinator *coordinator, struct member *worker,
                          const Weir__RunLoaded *loaded) {
  struct run *run = worker->run;
  bool is_absurd = loaded->train_samples > SAMPLES_MAX || loaded->eval_samples > SAMPLES_MAX;
  char *mismatch;
  if (!run->reference.worker && !is_absurd)
    reference_set(coordinator, run, worker, loaded);
  if (coordinator_is_over(run))
    return;
  mismatch = is_absurd
                 ? mem_printf("%s (%s) claims more samples than a run can have", worker->id, worker->host)
                 : reference_mismatch(run, worker, loaded);
  if (mismatch) {
    worker_refuse(coordinator, worker, mismatch);
    free(mismatch);
    return;
  }
  coordinator_worker_set_state(worker, WORKER_READY);
  run->is_view_due = run->is_info_due = true;
}

static void reference_set(struct coordinator *coordinator, struct run *run, const struct member *worker,
                          const Weir__RunLoaded *loaded) {
  struct err err;
  run->reference.worker = mem_printf("%s (%s)", worker->id, worker->host);
  run->reference.fingerprint = mem_strdup(worker->fingerprint);
  run->reference.dataset_sha256 = text_copy_clean(loaded->dataset_sha256, HASH_MAX);
  run->reference.probe_sha256 = text_copy_clean(loaded->probe_sha256, HASH_MAX);
  if (plan_init(&run->plan, run->spec, loaded->train_samples, loaded->eval_samples, &err)) {
    run->plan.steps = 0;
    coordinator_run_fail(coordinator, run, true, "%s", err.text);
  }
}

/* What a worker found otherwise than the run's first one; NULL if nothing. */
static char *reference_mismatch(const struct run *run, const struct member *worker,
                                const Weir__RunLoaded *loaded) {
  const struct reference *reference = &run->reference;
  if (loaded->train_samples != run->plan.train_samples || loaded->eval_samples != run->plan.eval_samples)
    return mem_printf(
        "%s (%s) has %llu + %llu samples, %s has %llu + %llu: the data must be the same on all workers",
        worker->id, worker->host, (unsigned long long)loaded->train_samples,
        (unsigned long long)loaded->eval_samples, reference->worker,
        (unsigned long long)run->plan.train_samples, (unsigned long long)run->plan.eval_samples);
  if (strcmp(loaded->dataset_sha256, reference->dataset_sha256))
    return mem_printf(
        "%s (%s) has a dataset of hash %.128s, %s of %s: the data must be the same on all workers",
        worker->id, worker->host, loaded->dataset_sha256, reference->worker, reference->dataset_sha256);
  if (strcmp(worker->fingerprint, reference->fingerprint))
    return mem_printf("%s (%s) is '%s', %s is '%s': workers of a run must be of one kind", worker->id,
                      worker->host, worker->fingerprint, reference->worker, reference->fingerprint);
  if (strcmp(loaded->probe_sha256, reference->probe_sha256))
    return mem_printf(
        "%s (%s) computes a probe gradient of hash %.128s, %s of %s: workers of a run must compute "
        "the same bits",
        worker->id, worker->host, loaded->probe_sha256, reference->worker, reference->probe_sha256);
  return NULL;
}

void coordinator_refused(struct coordinator *coordinator, struct member *member,
                         const Weir__RunRefused *refused) {
  struct run *run = coordinator_run(coordinator, refused->run);
  const char *text = *refused->message ? refused->message : "it gave no reason";
  bool was_ready;
  if (!run || refused->incarnation != run->incarnation || coordinator_is_over(run))
    return;
  if (coordinator_run_server(run, member)) {
    coordinator_run_fail(coordinator, run, refused->bad_input, "%s (%s) refused the run: %s", member->id,
                         member->address, text);
    return;
  }
  if (member->run != run || member->state == WORKER_DRAINING)
    return;
  was_ready = member->state == WORKER_READY;
  worker_refuse(coordinator, member, text);
  if (coordinator_count_workers(coordinator, run, WORKER_LOADING) > 0)
    return;
  if (refused->bad_input && !run->reference.worker)
    coordinator_run_fail(coordinator, run, true, "%s", text);
  else if (was_ready && coordinator_count_workers(coordinator, run, WORKER_READY) == 0)
    coordinator_run_fail(coordinator, run, false, "%s", text); /* all who trained gave up: it diverges */
}

/* The run goes on without the worker, which lets go of it, and does not ask it again. */
static void worker_refuse(struct coordinator *coordinator, struct member *worker, const char *message) {
  struct run *run = worker->run;
  coordinator_order_unload(coordinator, run, worker, message);
  log_event(LOG_WARN, "coordinator", "worker_refused", "run=%s id=%s message=\"%.1000s\"", run->id,
            worker->id, message);
  array_reserve((void **)&run->refused, &run->refused_capacity, run->n_refused, sizeof *run->refused);
  run->refused[run->n_refused++] = worker->key;
  free(run->refusal);
  run->refusal = mem_printf("%s refused: %.*s", worker->id, MESSAGE_MAX, message);
  free(worker->message);
  worker->message = text_copy_clean(message, MESSAGE_MAX);
  coordinator_worker_leave_run(worker, WORKER_REFUSED);
}
