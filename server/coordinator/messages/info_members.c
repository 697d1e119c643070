/* Answers about members, to those who may see them: of what they compute for other tenants nothing is said.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

/* What is listed, for whom and where. */
struct listing {
  const struct coordinator *coordinator;
  const struct viewer *viewer;
  uint64_t now_ms;
  struct arena *arena;
};

static void worker_info(const struct listing *listing, const struct member *worker, Weir__WorkerInfo *info);
static void server_info(const struct listing *listing, const struct member *server, Weir__ServerInfo *info);
static char *server_message(const struct listing *listing, const struct member *server);

void coordinator_list_staged(const struct coordinator *coordinator, const struct viewer *viewer,
                             uint64_t now_ms, struct arena *arena, Weir__RunInfo *info) {
  const struct listing listing = {coordinator, viewer, now_ms, arena};
  const struct run *run = coordinator_run(coordinator, info->run);
  if (!run)
    return;
  info->staged_workers = arena_new(arena, (size_t)run->n_seats * sizeof *info->staged_workers);
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (!seat->teams)
      continue;
    info->staged_workers[info->n_staged_workers] = arena_new(arena, sizeof **info->staged_workers);
    worker_info(&listing, seat->worker, info->staged_workers[info->n_staged_workers++]);
  }
}

static bool is_on(const struct device_name *device, const char *host, const char *name) {
  return !device || (strcmp(device->host, host) == 0 && strcmp(device->device, name) == 0);
}

/* device: NULL: on any. */
static void list_workers_on(const struct listing *listing, const struct device_name *device,
                            Weir__ListWorkersReply *reply) {
  const struct coordinator *coordinator = listing->coordinator;
  int room = coordinator->n_members + coordinator->quarantines.count;
  weir__list_workers_reply__init(reply);
  reply->workers = arena_new(listing->arena, (size_t)(room + 1) * sizeof *reply->workers);
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role != WEIR__ROLE__WORKER || !is_on(device, member->host, member->device) ||
        !viewer_sees_member(listing->viewer, member))
      continue;
    reply->workers[reply->n_workers] = arena_new(listing->arena, sizeof **reply->workers);
    worker_info(listing, member, reply->workers[reply->n_workers++]);
  }
}

static Weir__WorkerInfo *add_absent(struct arena *arena, Weir__ListWorkersReply *reply) {
  Weir__WorkerInfo *info = reply->workers[reply->n_workers++] = arena_new(arena, sizeof *info);
  weir__worker_info__init(info);
  return info;
}

static bool has_worker(const struct coordinator *coordinator, const struct quarantine *quarantine) {
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role == WEIR__ROLE__WORKER && strcmp(member->host, quarantine->host) == 0 &&
        strcmp(member->device, quarantine->device) == 0)
      return true;
  }
  return false;
}

void coordinator_list_workers(const struct coordinator *coordinator, const struct viewer *viewer,
                              uint64_t now_ms, struct arena *arena, Weir__ListWorkersReply *reply) {
  const struct listing listing = {coordinator, viewer, now_ms, arena};
  list_workers_on(&listing, NULL, reply);
  for (int i = 0; i < coordinator->quarantines.count; i++) {
    const struct quarantine *quarantine = &coordinator->quarantines.items[i];
    Weir__WorkerInfo *info;
    if (has_worker(coordinator, quarantine) || !viewer_sees_holder(viewer, quarantine->holder))
      continue;
    info = add_absent(arena, reply);
    info->id = quarantine->worker;
    info->host = quarantine->host;
    info->device = quarantine->device;
    info->state = "quarantined";
    info->message =
        arena_printf(arena, "not connected; in quarantine: %s",
                     viewer_sees(viewer, quarantine->tenant) ? quarantine->reason
                                                             : "another tenant's run has found it out");
  }
}

void coordinator_list_device(const struct coordinator *coordinator, const struct viewer *viewer,
                             const struct device_name *device, struct arena *arena,
                             Weir__ListWorkersReply *reply) {
  const struct listing listing = {coordinator, viewer, coordinator->now_ms, arena};
  list_workers_on(&listing, device, reply);
  if (reply->n_workers == 0) {
    Weir__WorkerInfo *info = add_absent(arena, reply);
    info->host = arena_strdup(arena, device->host);
    info->device = arena_strdup(arena, device->device);
    info->message = "not connected";
  }
}

void coordinator_list_servers(const struct coordinator *coordinator, const struct viewer *viewer,
                              uint64_t now_ms, struct arena *arena, Weir__ListServersReply *reply) {
  const struct listing listing = {coordinator, viewer, now_ms, arena};
  weir__list_servers_reply__init(reply);
  reply->servers = arena_new(arena, (size_t)coordinator->n_members * sizeof *reply->servers);
  for (int i = 0; i < coordinator->n_members; i++) {
    if (coordinator->members[i]->role != WEIR__ROLE__SERVER)
      continue;
    reply->servers[reply->n_servers] = arena_new(arena, sizeof **reply->servers);
    server_info(&listing, coordinator->members[i], reply->servers[reply->n_servers++]);
  }
}

static void stages_fill(const struct teams *teams, struct arena *arena, Weir__WorkerInfo *info) {
  info->teams = teams->n;
  info->bubble = teams->bubble;
  info->stages = arena_new(arena, (size_t)teams->n_stages * sizeof *info->stages);
  for (int s = 0; s < teams->n_stages; s++) {
    Weir__StageInfo *stage = arena_new(arena, sizeof *stage);
    weir__stage_info__init(stage);
    stage->idle = teams->stages[s].idle;
    stage->program_bytes = teams->stages[s].program_bytes;
    info->stages[info->n_stages++] = stage;
  }
}

static char *seat_message(const struct seat *seat) {
  if (seat->unreached_text)
    return seat->unreached_text;
  return coordinator_missed_mates(seat) ? coordinator_missed_mates(seat) : seat->following.text;
}

static Weir__SeatInfo *seat_info(const struct seat *seat, struct arena *arena) {
  Weir__SeatInfo *info = arena_new(arena, sizeof *info);
  double speed = speed_of(seat->speed, seat->executors);
  char *message = seat_message(seat);
  weir__seat_info__init(info);
  info->run = seat->run->id;
  info->state = (char *)coordinator_seat_state_name(seat->state);
  info->executors = seat->executors;
  info->microbatches = seat->microbatches.end - seat->microbatches.begin;
  info->speed = isnan(speed) ? 0 : speed;
  if (message)
    info->message = message;
  return info;
}

/* What is said of a worker that computes one run, of its first. */
static void fill_from_seat(const struct seat *seat, struct arena *arena, Weir__WorkerInfo *info) {
  const Weir__SeatInfo *first = info->seats[0];
  info->run = first->run;
  info->state = first->state;
  info->microbatches = first->microbatches;
  info->speed = first->speed;
  info->first_stage = seat->stages.begin;
  if (seat->teams)
    stages_fill(seat->teams, arena, info);
  if (*first->message)
    info->message = first->message;
}

static void worker_info(const struct listing *listing, const struct member *worker, Weir__WorkerInfo *info) {
  struct arena *arena = listing->arena;
  const struct seat *first = NULL;
  weir__worker_info__init(info);
  info->id = worker->id;
  info->tenant = (char *)worker->tenant;
  info->host = worker->host;
  info->pid = worker->pid;
  info->device = worker->device;
  info->executors = worker->executors;
  info->labels = worker->labels.list;
  info->n_labels = worker->labels.n;
  info->run = "";
  info->state = worker->n_seats ? "busy" : (char *)coordinator_worker_state_name(worker);
  info->connected_seconds = (double)(listing->now_ms - worker->joined_ms) / 1000;
  info->message = (char *)viewer_told(listing->viewer, worker);
  info->seats = arena_new(arena, (size_t)worker->n_seats * sizeof *info->seats);
  for (int i = 0; i < worker->n_seats; i++) {
    if (!viewer_sees_run(listing->viewer, worker->seats[i]->run))
      continue;
    first = first ? first : worker->seats[i];
    info->seats[info->n_seats++] = seat_info(worker->seats[i], arena);
  }
  if (first)
    fill_from_seat(first, arena, info);
}

static void server_info(const struct listing *listing, const struct member *server, Weir__ServerInfo *info) {
  const struct coordinator *coordinator = listing->coordinator;
  weir__server_info__init(info);
  info->id = server->id;
  info->address = server->address;
  info->host = server->host;
  info->pid = server->pid;
  info->memory_bytes = server->memory_bytes;
  info->draining = server->is_draining;
  info->connected_seconds = (double)(listing->now_ms - server->joined_ms) / 1000;
  info->message = server_message(listing, server);
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    const struct run_server *part = coordinator_run_server(run, server);
    if (!part || run->is_load_due || !viewer_sees_run(listing->viewer, run))
      continue;
    info->runs++;
    info->blocks += part->blocks;
    info->bytes += part->bytes;
  }
}

/* Why it is left out; else of the first run that may not have it; else empty. */
static char *server_message(const struct listing *listing, const struct member *server) {
  const struct coordinator *coordinator = listing->coordinator;
  for (int i = 0; i < coordinator->n_runs && !*server->message; i++) {
    const struct run *run = coordinator->runs[i];
    bool is_told = viewer_sees_run(listing->viewer, run) && !coordinator_is_over(run);
    char *mismatch = is_told ? coordinator_server_mismatch(run, server) : NULL, *text;
    if (!mismatch)
      continue;
    text = arena_printf(listing->arena, "%s: %s", run->id, mismatch);
    free(mismatch);
    return text;
  }
  return (char *)viewer_told(listing->viewer, server);
}

int coordinator_find_quarantine(const struct coordinator *coordinator, const struct viewer *viewer,
                                const char *name, struct device_name *device, struct err *err) {
  int at = coordinator_quarantine_find(coordinator, viewer, name);
  const struct quarantine *found;
  char tenant[CERT_WORD_SIZE];
  if (at < 0)
    return err_set(err, ERR_NOT_FOUND,
                   "no worker or device '%.200s' is in quarantine: name a worker, or HOST/DEVICE, that 'weir "
                   "workers' lists as quarantined",
                   name);
  found = &coordinator->quarantines.items[at];
  tenant_of_member(found->holder, tenant);
  if (viewer_check_rule(viewer, found->worker, tenant, err))
    return err->code;
  *device = (struct device_name){found->host, found->device};
  return 0;
}
