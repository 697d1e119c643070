/* Members come and go: who they are, what they still have of a membership before, and what becomes of it. */
#include "server/coordinator/core/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/compress/compressor.h"
#include "server/coordinator/core/beside.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/quarantine/quarantine.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

enum { MEMBERS_MAX = 4096, TEXT_MAX = 255, FINGERPRINT_MAX = 1023, HOSTED_MAX = 1000, FIRST_TERM = 1 };

static int hello_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err);
static int former_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err);
static void replace_former(struct coordinator *coordinator, const Weir__Hello *hello);
static void term_outlived(struct coordinator *coordinator, uint64_t key, uint64_t term);
static struct member *member_new(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello);
static char *choose_id(struct coordinator *coordinator, const Weir__Hello *hello);
static void take_up_server(struct coordinator *coordinator, struct member *server, const Weir__Hello *hello);
static void take_up_worker(struct coordinator *coordinator, struct member *worker, const Weir__Hello *hello);

void coordinator_member_joined(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello) {
  bool is_server = hello->role == WEIR__ROLE__SERVER;
  struct member *member;
  struct err err;
  if (hello->term > coordinator->options.term) {
    term_outlived(coordinator, key, hello->term);
    return;
  }
  if (hello_check(coordinator, hello, &err)) {
    coordinator_close_link(coordinator, key, err.code, err.text);
    return;
  }
  replace_former(coordinator, hello);
  member = member_new(coordinator, key, hello);
  log_event(LOG_INFO, "coordinator", "member_joined",
            "id=%s former=\"%.60s\" host=\"%s\" pid=%u %s=\"%s\" executors=%u runs=%zu", member->id,
            hello->id, member->host, member->pid, is_server ? "address" : "device",
            is_server ? member->address : member->device, is_server ? 0 : member->executors, hello->n_runs);
  coordinator_order_welcome(coordinator, member);
  if (is_server)
    take_up_server(coordinator, member, hello);
  else {
    coordinator_quarantine_newcomer(coordinator, member);
    if (hello->draining)
      coordinator_worker_set_state(member, WORKER_DRAINING);
    take_up_worker(coordinator, member, hello);
  }
}

/* A member obeys a higher term. It may be mistaken, or lie: the store knows who leads. The first coordinator
   of a store, which has no run to disturb, steps down at once: the store has lost what it had, and its next
   leader is to outdo what members remember. */
static void term_outlived(struct coordinator *coordinator, uint64_t key, uint64_t term) {
  bool is_first = coordinator->options.term == FIRST_TERM && coordinator->n_runs == 0;
  char reason[128];
  log_event(LOG_WARN, "coordinator", "outlived", "term=%llu member_term=%llu",
            (unsigned long long)coordinator->options.term, (unsigned long long)term);
  if (is_first) {
    coordinator->is_deposed = true;
    coordinator_act(coordinator, ACTION_DEPOSED)->term = term;
    return;
  }
  snprintf(reason, sizeof reason,
           "it obeys term %llu, this coordinator has %llu: if no other leads, start it anew",
           (unsigned long long)term, (unsigned long long)coordinator->options.term);
  coordinator_close_link(coordinator, key, ERR_STALE, reason);
  coordinator_act(coordinator, ACTION_DOUBT);
}

static int hello_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err) {
  if (hello->role != WEIR__ROLE__SERVER && hello->role != WEIR__ROLE__WORKER)
    return err_set(err, ERR_INVALID, "the hello names no role");
  if (hello->role == WEIR__ROLE__SERVER && !*hello->address)
    return err_set(err, ERR_INVALID, "the hello of a server names no address");
  if (hello->n_runs > HOSTED_MAX)
    return err_set(err, ERR_INVALID, "the hello names %zu runs: at most %d may be hosted", hello->n_runs,
                   HOSTED_MAX);
  if (labels_check((struct labels){hello->labels, hello->n_labels}, err))
    return err_prefix(err, "the hello's labels");
  if (coordinator->n_members == MEMBERS_MAX)
    return err_set(err, ERR_BUSY, "the cluster is full: it has %d members", MEMBERS_MAX);
  return former_check(coordinator, hello, err);
}

/* A link may look alive long after its other end gave it up. The same process on a new one, or another
   process on the address that a server had, says that the former membership is over. */
static bool is_former(const struct member *member, const Weir__Hello *hello) {
  bool is_same_host = member->role == hello->role && strcmp(member->host, hello->host) == 0;
  bool is_same_process = member->pid == hello->pid && strcmp(member->id, hello->id) == 0;
  bool is_same_address = hello->role == WEIR__ROLE__SERVER && strcmp(member->address, hello->address) == 0;
  return is_same_host && (is_same_process || is_same_address);
}

/* Host, address, process and id are a member's own words: no certificate ends the membership of another one's
   holder, or has others send it what is meant for that one. */
static int former_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err) {
  char tenant[CERT_WORD_SIZE];
  struct viewer viewer;
  bool is_seen;
  tenant_of_member(hello->holder, tenant);
  viewer = viewer_of_tenant(tenant);
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    bool is_same_address = *hello->address && strcmp(member->address, hello->address) == 0;
    if (strcmp(member->holder, hello->holder) == 0 || !(is_same_address || is_former(member, hello)))
      continue;
    is_seen = !*tenant || viewer_sees_member(&viewer, member);
    return err_set(err, ERR_DENIED, "%s (%s) is there already, by the certificate of %s, not of %.255s",
                   is_seen ? member->id : "a member", is_same_address ? member->address : member->host,
                   is_seen ? member->holder : "another tenant's", hello->holder);
  }
  return 0;
}

static void replace_former(struct coordinator *coordinator, const Weir__Hello *hello) {
  for (int i = coordinator->n_members - 1; i >= 0; i--) {
    struct member *member = coordinator->members[i];
    if (!is_former(member, hello))
      continue;
    coordinator_close_link(coordinator, member->key, ERR_UNAVAILABLE, "it has joined again");
    coordinator_member_left(coordinator, member, "it has joined again");
  }
}

static struct member *member_new(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello) {
  struct member *member = mem_new(sizeof *member);
  member->key = key;
  member->role = hello->role;
  member->id = choose_id(coordinator, hello);
  member->number =
      coordinator_id_number(member->id, hello->role == WEIR__ROLE__SERVER ? "server-" : "worker-");
  member->host = text_copy_clean(hello->host, TEXT_MAX);
  member->address = text_copy_clean(hello->address, TEXT_MAX);
  member->device = text_copy_clean(hello->device, TEXT_MAX);
  member->holder = text_copy_clean(hello->holder, TEXT_MAX);
  member->shm_host = text_copy_clean(hello->shm_host, TEXT_MAX);
  member->share_host = text_copy_clean(hello->share_host, TEXT_MAX);
  member->fingerprint = text_copy_clean(hello->fingerprint, FINGERPRINT_MAX);
  tenant_of_member(member->holder, member->tenant);
  coordinator->n_tied += *member->tenant != 0;
  member->is_foreign = hello->role == WEIR__ROLE__WORKER && hello->foreign;
  coordinator->n_foreign += member->is_foreign;
  member->confines = hello->confines || hello->role != WEIR__ROLE__WORKER;
  coordinator->n_unconfining += !member->confines;
  member->compressors = compressor_set((const char *const *)hello->compressors, hello->n_compressors);
  coordinator->n_uncompressing += !member_knows_all_compressors(member);
  member->labels = labels_copy((struct labels){hello->labels, hello->n_labels});
  member->memory_bytes = hello->memory_bytes;
  member->is_draining = hello->role == WEIR__ROLE__SERVER && hello->draining;
  member->message = mem_strdup("");
  member->pid = hello->pid;
  member->executors = hello->executors ? hello->executors : 1;
  member->joined = coordinator->members_seen++;
  coordinator->n_bounded += member->memory_bytes > 0;
  member->joined_ms = member->heard_ms = coordinator->now_ms;
  array_reserve((void **)&coordinator->members, &coordinator->members_capacity, coordinator->n_members,
                sizeof *coordinator->members);
  coordinator->members[coordinator->n_members++] = member;
  coordinator->is_members_due = true;
  return member;
}

/* Whether the id was that of another certificate's holder, as runs and the workers that left know it. Records
   may not say whose it was. */
static bool is_anothers(const struct coordinator *coordinator, const Weir__Hello *hello) {
  const char *past = coordinator_past_holder(coordinator, hello->id);
  for (int i = 0; i < coordinator->n_runs && !past; i++)
    for (int at = 0; at < coordinator->runs[i]->n_servers && !past; at++)
      if (strcmp(coordinator->runs[i]->servers[at].id, hello->id) == 0)
        past = coordinator->runs[i]->servers[at].holder;
  return past && *past && strcmp(past, hello->holder) != 0;
}

/* The one it had, if that is free; else one that was never used. */
static char *choose_id(struct coordinator *coordinator, const Weir__Hello *hello) {
  bool is_server = hello->role == WEIR__ROLE__SERVER;
  bool is_kept = coordinator_id_number(hello->id, is_server ? "server-" : "worker-") > 0 &&
                 !is_anothers(coordinator, hello);
  for (int i = 0; is_kept && i < coordinator->n_members; i++)
    is_kept = strcmp(coordinator->members[i]->id, hello->id) != 0;
  if (!is_kept)
    return is_server ? mem_printf("server-%u", ++coordinator->servers_seen)
                     : mem_printf("worker-%u", ++coordinator->workers_seen);
  coordinator_id_seen(coordinator, hello->id);
  return mem_strdup(hello->id);
}

/* A server goes on with those of its runs that wait for it in the incarnation that it has. */
static void take_up_server(struct coordinator *coordinator, struct member *server, const Weir__Hello *hello) {
  for (size_t i = 0; i < hello->n_runs; i++) {
    const Weir__HostedRun *hosted = hello->runs[i];
    struct run *run = coordinator_run(coordinator, hosted->run);
    struct run_server *part = NULL;
    for (int at = 0; run && !run->is_load_due && at < run->n_servers; at++)
      if (strcmp(run->servers[at].id, server->id) == 0 && !run->servers[at].member)
        part = &run->servers[at];
    if (part && run->incarnation == hosted->incarnation && coordinator_has_blocks(run)) {
      coordinator_raise_hold(coordinator, run, hosted->hold); /* the store may not have had that */
      coordinator_server_kept(coordinator, run, part, server, hosted->version);
    } else
      coordinator_order_unload(coordinator, hosted->run, server, "the run has gone on without it");
  }
  for (int i = 0; i < coordinator->n_runs; i++) { /* parts that it has not any more */
    struct run *run = coordinator->runs[i];
    for (int at = 0; at < run->n_servers; at++)
      if (!run->servers[at].member && strcmp(run->servers[at].id, server->id) == 0)
        run->servers[at].is_gone = true;
  }
}

/* With the stages that it has, if the run may have it so. */
static void take_up_run(struct coordinator *coordinator, struct member *worker, struct run *run,
                        const Weir__HostedRun *hosted) {
  struct range loaded = {hosted->stage_begin, hosted->stage_end};
  coordinator_join_run(coordinator, worker, run, loaded)->is_back = true;
}

/* A worker is asked again for the runs that it computes: it has them loaded already. Those that rest are
   remembered, the newest first. */
static void take_up_worker(struct coordinator *coordinator, struct member *worker, const Weir__Hello *hello) {
  for (size_t i = hello->n_runs; i-- > 0;) {
    const struct run *run = hello->runs[i]->rests ? coordinator_run(coordinator, hello->runs[i]->run) : NULL;
    if (run && tenant_shares(run, worker))
      loaded_add(&worker->loaded, run);
  }
  for (size_t i = 0; i < hello->n_runs; i++) {
    struct run *run = coordinator_run(coordinator, hello->runs[i]->run);
    if (hello->runs[i]->rests)
      continue;
    if (run && !tenant_shares(run, worker))
      run = NULL;
    if (run && beside_may_join(run, worker) && worker->state == WORKER_IDLE &&
        coordinator_has_labels(run, worker) &&
        (run->state == WEIR__RUN_STATE__LOADING || run->state == WEIR__RUN_STATE__RUNNING))
      take_up_run(coordinator, worker, run, hello->runs[i]);
    else if (run && run->state == WEIR__RUN_STATE__HELD) {
      coordinator_order_rest(coordinator, run->id, worker, "the run is held");
      loaded_add(&worker->loaded, run);
    } else if (!run || !coordinator_seat_of(worker, run))
      coordinator_order_unload(coordinator, hello->runs[i]->run, worker, "the run has gone on without it");
  }
}

void coordinator_member_left(struct coordinator *coordinator, struct member *member, const char *reason) {
  int at = 0;
  log_event(LOG_INFO, "coordinator", "member_left", "id=%s host=\"%s\" reason=\"%.200s\"", member->id,
            member->host, reason);
  while (coordinator->members[at] != member)
    at++;
  memmove(coordinator->members + at, coordinator->members + at + 1,
          (size_t)(coordinator->n_members - at - 1) * sizeof *coordinator->members);
  coordinator->n_members--;
  coordinator->n_bounded -= member->memory_bytes > 0;
  coordinator->n_tied -= *member->tenant != 0;
  coordinator->n_foreign -= member->is_foreign;
  coordinator->n_unconfining -= !member->confines;
  coordinator->n_uncompressing -= !member_knows_all_compressors(member);
  coordinator->is_members_due = true;
  if (member->role == WEIR__ROLE__WORKER)
    coordinator_worker_past(coordinator, member);
  while (member->n_seats > 0)
    coordinator_seat_end(member->seats[0]);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run_server *server = coordinator_run_server(coordinator->runs[i], member);
    if (server)
      coordinator_server_lost(coordinator, coordinator->runs[i], server, reason);
  }
  coordinator_member_free(member);
}
