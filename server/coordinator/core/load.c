/* Members load a run: what workers find must be the same everywhere, and what refusals mean. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/core/probes.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/sweep_kind.h"

enum { MESSAGE_MAX = 1500, HASH_MAX = 128 };
#define SAMPLES_MAX (UINT64_C(1) << 38) /* a plan's numbers fit below it */

static void worker_loaded(struct coordinator *coordinator, struct seat *seat, const Weir__RunLoaded *loaded);
static void reference_set(struct coordinator *coordinator, struct run *run, const struct seat *seat,
                          const Weir__RunLoaded *loaded);
static void reference_set_kind(struct run *run, const struct seat *seat);
static void reference_add(struct run *run, const struct seat *seat, const Weir__RunLoaded *loaded);
static char *reference_mismatch(const struct run *run, const struct seat *seat,
                                const Weir__RunLoaded *loaded);
static void seat_crowded(struct coordinator *coordinator, struct seat *seat, const char *message);
static void seat_refuse(struct coordinator *coordinator, struct seat *seat, const char *message);

void coordinator_loaded(struct coordinator *coordinator, struct member *member,
                        const Weir__RunLoaded *loaded) {
  struct run *run = coordinator_run(coordinator, loaded->run);
  struct run_server *server = run ? coordinator_run_server(run, member) : NULL;
  struct seat *seat = run ? coordinator_seat_of(member, run) : NULL;
  if (!run)
    return; /* it was over before this member had loaded it */
  if (server && loaded->incarnation == run->incarnation) {
    server->is_loaded = true;
    *member->message = 0; /* its store is the right one */
  } else if (seat && seat->state == SEAT_LOADING && loaded->incarnation >= seat->load_incarnation &&
             loaded->stage_begin == seat->stages.begin &&
             loaded->stage_end == seat->stages.end) /* else it answers an order that is over */
    worker_loaded(coordinator, seat, loaded);
}

static void worker_loaded(struct coordinator *coordinator, struct seat *seat, const Weir__RunLoaded *loaded) {
  struct run *run = seat->run;
  bool is_absurd = loaded->train_samples > SAMPLES_MAX || loaded->eval_samples > SAMPLES_MAX;
  char *mismatch = coordinator_worker_mismatch(run, seat->worker);
  if (mismatch) { /* another trial has fixed the kind meanwhile */
    seat_refuse(coordinator, seat, mismatch);
    free(mismatch);
    return;
  }
  if (!run->reference.dataset_sha256 && !is_absurd)
    reference_set(coordinator, run, seat, loaded);
  if (coordinator_is_over(run))
    return;
  mismatch = is_absurd ? mem_printf("%s (%s) claims more samples than a run can have", seat->worker->id,
                                    seat->worker->host)
                       : reference_mismatch(run, seat, loaded);
  if (mismatch) {
    seat_refuse(coordinator, seat, mismatch);
    free(mismatch);
    return;
  }
  if (!run->reference.fingerprint) /* resumed: the first one says of which build all must be */
    reference_set_kind(run, seat);
  reference_add(run, seat, loaded);
  run->is_info_due = true;
  coordinator_seat_follow(coordinator, seat);
}

static void reference_set(struct coordinator *coordinator, struct run *run, const struct seat *seat,
                          const Weir__RunLoaded *loaded) {
  struct err err;
  reference_set_kind(run, seat);
  run->reference.dataset_sha256 = text_copy_clean(loaded->dataset_sha256, HASH_MAX);
  if (plan_init(&run->plan, run->spec, loaded->train_samples, loaded->eval_samples, &err)) {
    run->plan = (struct plan){0};
    coordinator_run_fail(coordinator, run, FAILURE_BAD_INPUT, "%s", err.text);
    return;
  }
  plan_fix_hold(&run->plan, run->spec->train);
}

static void reference_set_kind(struct run *run, const struct seat *seat) {
  struct sweep_kind *sweep = sweep_kind_of(run);
  free(run->reference.worker);
  run->reference.worker = mem_printf("%s (%s)", seat->worker->id, seat->worker->host);
  run->reference.fingerprint = mem_strdup(seat->worker->fingerprint);
  run->is_save_due = true;
  if (sweep)
    sweep_kind_fix_worker(sweep, seat->worker);
}

/* What foreign workers do not know: the dataset's hash and, of the stages that it has, the probe's, which the
   first worker that has these says. */
static void reference_add(struct run *run, const struct seat *seat, const Weir__RunLoaded *loaded) {
  char *probe = probes_clean(loaded->probe_sha256);
  char *known = probes_find(run->reference.probe_sha256, seat->stages), *probes;
  if (!*run->reference.dataset_sha256) {
    free(run->reference.dataset_sha256);
    run->reference.dataset_sha256 = text_copy_clean(loaded->dataset_sha256, HASH_MAX);
    run->is_save_due = true;
  }
  if (!known && !seat->worker->is_foreign) {
    probes = probes_add(run->reference.probe_sha256, seat->stages, probe);
    free(run->reference.probe_sha256);
    run->reference.probe_sha256 = probes;
    run->is_save_due = true;
  }
  free(known);
  free(probe);
}

/* What the probe is to be, where the worker found another; freed by the caller. */
static char *probe_mismatch(const struct run *run, const struct seat *seat, const Weir__RunLoaded *loaded) {
  char *known = probes_find(run->reference.probe_sha256, seat->stages);
  char *probe = probes_clean(loaded->probe_sha256);
  bool is_other = known && strcmp(probe, known) != 0;
  free(probe);
  if (is_other)
    return known;
  free(known);
  return NULL;
}

/* What a worker found otherwise than the run's first one; NULL if nothing. */
static char *reference_mismatch(const struct run *run, const struct seat *seat,
                                const Weir__RunLoaded *loaded) {
  const struct reference *reference = &run->reference;
  char *probe, *text;
  bool is_known;
  if (loaded->train_samples != run->plan.train_samples || loaded->eval_samples != run->plan.eval_samples)
    return mem_printf(
        "%s (%s) has %llu + %llu samples, %s has %llu + %llu: the data must be the same on all workers",
        seat->worker->id, seat->worker->host, (unsigned long long)loaded->train_samples,
        (unsigned long long)loaded->eval_samples, reference->worker,
        (unsigned long long)run->plan.train_samples, (unsigned long long)run->plan.eval_samples);
  is_known = *reference->dataset_sha256 && (*loaded->dataset_sha256 || !seat->worker->is_foreign);
  if (is_known && strcmp(loaded->dataset_sha256, reference->dataset_sha256))
    return mem_printf(
        "%s (%s) has a dataset of hash %.128s, %s of %s: the data must be the same on all workers",
        seat->worker->id, seat->worker->host, loaded->dataset_sha256, reference->worker,
        reference->dataset_sha256);
  if (!reference->fingerprint || !run->spec->train->deterministic)
    return NULL;
  if (strcmp(seat->worker->fingerprint, reference->fingerprint))
    return mem_printf("%s (%s) is '%s', %s is '%s': workers of a run must be of one kind, or "
                      "train.deterministic false",
                      seat->worker->id, seat->worker->host, seat->worker->fingerprint, reference->worker,
                      reference->fingerprint);
  probe = probe_mismatch(run, seat, loaded);
  if (!probe)
    return NULL;
  text =
      mem_printf("%s (%s) computes a probe gradient of hash %.128s, %s of %s: workers of a run must compute "
                 "the same bits, or train.deterministic be false",
                 seat->worker->id, seat->worker->host, loaded->probe_sha256,
                 coordinator_is_staged(seat) ? "others with these stages" : reference->worker, probe);
  free(probe);
  return text;
}

void coordinator_refused(struct coordinator *coordinator, struct member *member,
                         const Weir__RunRefused *refused) {
  struct run *run = coordinator_run(coordinator, refused->run);
  const char *text = *refused->message ? refused->message : "it gave no reason";
  struct run_server *server;
  struct seat *seat;
  bool was_ready, was_following, is_present;
  if (!run || coordinator_is_over(run))
    return;
  is_present = refused->incarnation == run->incarnation;
  if ((server = coordinator_run_server(run, member))) {
    if (is_present)
      coordinator_server_refused(coordinator, run, server, refused);
    return;
  }
  seat = coordinator_seat_of(member, run);
  if (!seat || seat->state == SEAT_LEAVING)
    return;
  if (refused->no_memory_beside && member->n_seats > 1) {
    seat_crowded(coordinator, seat, text);
    return;
  }
  was_ready = seat->state == SEAT_READY;
  was_following = seat->state == SEAT_FOLLOWING;
  if ((was_ready || was_following) && !is_present)
    return; /* what troubled it was rolled back */
  seat_refuse(coordinator, seat, text);
  if (coordinator_count_seats(run, SEAT_LOADING) + coordinator_count_seats(run, SEAT_FOLLOWING) > 0)
    return;
  if (refused->bad_input && !run->reference.dataset_sha256)
    coordinator_run_fail(coordinator, run, FAILURE_BAD_INPUT, "%s", text);
  else if (was_ready && coordinator_count_seats(run, SEAT_READY) == 0)
    coordinator_run_fail(coordinator, run, FAILURE_DIVERGED, "%s",
                         text); /* all who trained gave up: it diverges */
}

/* The worker may have the run alone, and others may have the run beside what they compute. */
static void seat_crowded(struct coordinator *coordinator, struct seat *seat, const char *message) {
  struct member *worker = seat->worker;
  coordinator_order_unload(coordinator, seat->run->id, worker, message);
  log_event(LOG_WARN, "coordinator", "worker_crowded", "run=%s id=%s message=\"%.1000s\"", seat->run->id,
            worker->id, message);
  loaded_add(&worker->crowded, seat->run);
  coordinator_seat_end(seat);
}

/* The run goes on without the worker, which lets go of it, and does not ask it again. */
static void seat_refuse(struct coordinator *coordinator, struct seat *seat, const char *message) {
  struct member *worker = seat->worker;
  struct run *run = seat->run;
  coordinator_order_unload(coordinator, run->id, worker, message);
  log_event(LOG_WARN, "coordinator", "worker_refused", "run=%s id=%s message=\"%.1000s\"", run->id,
            worker->id, message);
  array_reserve((void **)&run->refused, &run->refused_capacity, run->n_refused, sizeof *run->refused);
  run->refused[run->n_refused++] = worker->key;
  free(run->refusal);
  run->refusal = mem_printf("%s refused: %.*s", worker->id, MESSAGE_MAX, message);
  coordinator_member_set_message(worker, text_copy_clean(message, MESSAGE_MAX), run->tenant);
  worker->refusals++;
  coordinator_seat_end(seat);
  coordinator_worker_set_state(worker, WORKER_REFUSED);
}
