/* Rows of runs and members. */
#include "server/coordinator/overview/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/line.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"

enum { QUEUE_SHOWN = 50 };

/* What its early stopping goes by; else the first of those that it has. */
static void fill_objective(const struct run *run, const Weir__RunInfo *info, Weir__RunRow *row) {
  const Weir__EarlyStoppingSpec *stopping = run->spec->train->early_stopping;
  const char *wanted = stopping ? stopping->metric : "";
  if (!run->evaluation)
    return;
  row->objective = "eval_loss";
  row->objective_value = info->eval_loss;
  if (strcmp(wanted, "loss") == 0)
    return;
  if (!isnan(info->accuracy)) {
    row->objective = "accuracy";
    row->objective_value = info->accuracy;
  }
  for (size_t m = 0; m < info->n_metrics; m++)
    if (strcmp(info->metrics[m]->name, wanted) == 0 || (!*wanted && m == 0 && isnan(info->accuracy))) {
      row->objective = info->metrics[m]->name;
      row->objective_value = info->metrics[m]->value;
    }
}

static void fill_sparkline(const struct sight *sight, const struct run *run, Weir__RunRow *row) {
  float sparkline[RUN_CURVES_SPARKLINE];
  row->n_sparkline = (size_t)run_curves_sparkline(&run->events.curves, sparkline);
  row->sparkline = arena_copy(sight->arena, sparkline, row->n_sparkline * sizeof *sparkline);
}

Weir__RunRow *run_row(const struct sight *sight, const struct run *run) {
  Weir__RunRow *row = arena_new(sight->arena, sizeof *row);
  Weir__RunInfo info;
  coordinator_info_fill(sight->coordinator, run, sight->now_ms, &info);
  weir__run_row__init(row);
  row->run = info.run;
  row->name = info.name;
  row->state = (char *)coordinator_state_name(info.state);
  row->message = info.message;
  row->step = info.step;
  row->steps = info.steps;
  row->epoch = info.epoch;
  row->epochs = info.epochs;
  row->loss = info.loss;
  row->seconds_left = info.seconds_left;
  row->samples_per_second = info.samples_per_second;
  row->workers = info.workers;
  row->executors = info.executors;
  row->share = info.share;
  row->priority = info.priority;
  row->tenant = info.tenant;
  row->sweep = info.sweep;
  row->trial = info.trial;
  row->parent = info.parent;
  row->submitted_unix_ms = info.submitted_unix_ms;
  row->finished_unix_ms = info.finished_unix_ms;
  row->incarnation = info.incarnation;
  row->checkpoint_step = info.checkpoint_step;
  row->store_message = run->checkpointing.message;
  fill_objective(run, &info, row);
  fill_sparkline(sight, run, row);
  return row;
}

static void fill_seats(const struct sight *sight, const struct member *worker, Weir__MemberRow *row) {
  row->seats = arena_new(sight->arena, (size_t)worker->n_seats * sizeof *row->seats);
  for (int i = 0; i < worker->n_seats; i++) {
    const struct seat *seat = worker->seats[i];
    double speed = speed_of(seat->speed, seat->executors);
    Weir__SeatRow *shown;
    if (!viewer_sees_run(sight->viewer, seat->run))
      continue;
    shown = row->seats[row->n_seats++] = arena_new(sight->arena, sizeof *shown);
    weir__seat_row__init(shown);
    shown->run = seat->run->id;
    shown->state = (char *)coordinator_seat_state_name(seat->state);
    shown->executors = seat->executors;
    shown->microbatches = seat->microbatches.end - seat->microbatches.begin;
    shown->speed = isnan(speed) ? 0 : speed;
    row->received_bytes += seat->received_bytes;
    row->unreached += (uint32_t)seat->n_unreached + (coordinator_missed_mates(seat) ? 1 : 0);
    if (seat->unreached_text && !*row->message)
      row->message = seat->unreached_text;
  }
}

static void fill_worker(const struct sight *sight, const struct member *worker, Weir__MemberRow *row) {
  row->role = "worker";
  row->device = worker->device;
  row->executors = worker->executors;
  row->tenant = (char *)worker->tenant;
  row->draining = worker->state == WORKER_DRAINING;
  row->labels = arena_new(sight->arena, worker->labels.n * sizeof *row->labels);
  for (size_t i = 0; i < worker->labels.n; i++)
    row->labels[row->n_labels++] =
        arena_printf(sight->arena, "%s=%s", worker->labels.list[i]->key, worker->labels.list[i]->value);
  fill_seats(sight, worker, row);
  row->state = row->n_seats      ? row->seats[0]->state
               : worker->n_seats ? "busy"
                                 : (char *)coordinator_worker_state_name(worker);
}

static void fill_server(const struct sight *sight, const struct member *server, Weir__MemberRow *row) {
  const struct coordinator *coordinator = sight->coordinator;
  row->role = "server";
  row->address = server->address;
  row->memory_bytes = server->memory_bytes;
  row->draining = server->is_draining;
  row->state = server->is_draining ? "draining" : *server->message ? "left-out" : "ready";
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    const struct run_server *part = run->is_load_due ? NULL : coordinator_run_server(run, server);
    if (!part || !viewer_sees_run(sight->viewer, run))
      continue;
    row->runs++;
    row->blocks += part->blocks;
    row->bytes += part->bytes;
  }
}

Weir__MemberRow *member_row(const struct sight *sight, const struct member *member) {
  Weir__MemberRow *row = arena_new(sight->arena, sizeof *row);
  weir__member_row__init(row);
  row->id = member->id;
  row->host = member->host;
  row->pid = member->pid;
  row->message = (char *)viewer_told(sight->viewer, member);
  row->joined_unix_ms = sight->unix_offset_ms + (int64_t)member->joined_ms;
  row->refusals = member->refusals;
  if (member->role == WEIR__ROLE__WORKER)
    fill_worker(sight, member, row);
  else
    fill_server(sight, member, row);
  return row;
}

static void fill_members(const struct sight *sight, Weir__FleetInfo *fleet) {
  for (int i = 0; i < sight->coordinator->n_members; i++) {
    const struct member *member = sight->coordinator->members[i];
    if (!viewer_sees_member(sight->viewer, member))
      continue;
    fleet->workers += member->role == WEIR__ROLE__WORKER;
    fleet->servers += member->role == WEIR__ROLE__SERVER;
    fleet->executors += member->role == WEIR__ROLE__WORKER ? member->executors : 0;
    for (int at = 0; at < member->n_seats; at++)
      if (member->seats[at]->state == SEAT_READY && viewer_sees_run(sight->viewer, member->seats[at]->run))
        fleet->busy_executors += member->seats[at]->executors;
  }
}

struct waiting {
  const struct run *run;
  int order;
};

static int compare_waiting(const void *a, const void *b) {
  const struct waiting *x = a, *y = b;
  int32_t of_x = line_priority(x->run), of_y = line_priority(y->run);
  return of_x != of_y ? (of_x > of_y ? -1 : 1) : (x->order > y->order) - (x->order < y->order);
}

static void fill_runs(const struct sight *sight, Weir__FleetInfo *fleet) {
  const struct coordinator *coordinator = sight->coordinator;
  struct waiting *waiting = arena_new(sight->arena, (size_t)coordinator->n_runs * sizeof *waiting);
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    Weir__RunState state = coordinator_told_state(run);
    if (!viewer_sees_run(sight->viewer, run))
      continue;
    fleet->runs++;
    fleet->live_runs += state == WEIR__RUN_STATE__QUEUED || state == WEIR__RUN_STATE__LOADING ||
                        state == WEIR__RUN_STATE__RUNNING || state == WEIR__RUN_STATE__FINISHING;
    if (state == WEIR__RUN_STATE__QUEUED)
      waiting[fleet->queued++] = (struct waiting){run, i};
  }
  qsort(waiting, fleet->queued, sizeof *waiting, compare_waiting);
  fleet->queue = arena_new(sight->arena, QUEUE_SHOWN * sizeof *fleet->queue);
  while (fleet->n_queue < fleet->queued && fleet->n_queue < QUEUE_SHOWN) {
    fleet->queue[fleet->n_queue] = waiting[fleet->n_queue].run->id;
    fleet->n_queue++;
  }
}

Weir__FleetInfo *fleet_info(const struct sight *sight) {
  Weir__FleetInfo *fleet = arena_new(sight->arena, sizeof *fleet);
  weir__fleet_info__init(fleet);
  fill_members(sight, fleet);
  fill_runs(sight, fleet);
  fleet->store_message = (char *)coordinator_store_trouble(sight->coordinator);
  fleet->tenant = (char *)sight->viewer->tenant;
  fleet->sees_all = sight->viewer->sees_all;
  return fleet;
}
