/* Views: who computes what, and with whom. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/shares/companions.h"
#include "server/coordinator/shares/groups.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/groups_past.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* Workers whose groups failed so often go alone, for REGROUP_MS, then twice as long each time. */
enum { GROUP_FAILURES_MAX = 2, REGROUP_MS = 60000, REGROUP_MS_MAX = 16 * REGROUP_MS, MESSAGE_MAX = 200 };

static void send_follower_views(struct coordinator *coordinator, struct run *run);
static void send_idle_views(struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                            int n);
static void make_groups(const struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                        int n);

void coordinator_regroup_when_due(struct coordinator *coordinator, struct run *run) {
  if (!run->regroup_ms || coordinator->now_ms < run->regroup_ms)
    return;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->group_failures >= GROUP_FAILURES_MAX)
      seat->group_failures = GROUP_FAILURES_MAX - 1; /* one more try */
  }
  run->regroup_ms = 0;
  run->is_view_due = true;
}

/* Several groups that fail together wait together. */
static void regroup_later(const struct coordinator *coordinator, struct run *run) {
  uint64_t pause_ms = run->regroup_pause_ms ? 2 * run->regroup_pause_ms : REGROUP_MS;
  if (run->regroup_ms)
    return;
  run->regroup_pause_ms = pause_ms < REGROUP_MS_MAX ? pause_ms : REGROUP_MS_MAX;
  run->regroup_ms = coordinator->now_ms + run->regroup_pause_ms;
}

void coordinator_send_view(struct coordinator *coordinator, struct run *run) {
  struct seat **seats;
  int n;
  if (run->state != WEIR__RUN_STATE__RUNNING || run->is_start_awaited)
    return;
  if (!run->is_view_due) {
    send_follower_views(coordinator, run);
    return;
  }
  seats = coordinator_ready_seats(coordinator, run, &n);
  for (int i = 0; i < n && run->are_workers_new; i++)
    seats[i]->group_failures = 0;
  if (run->are_workers_new)
    run->regroup_ms = run->regroup_pause_ms = 0;
  run->is_view_due = run->are_workers_new = false;
  run->is_info_due = true;
  run->view++;
  if (run->are_shares_due)
    coordinator_share_work(coordinator, run, seats, n);
  if (coordinator_spares_follow(coordinator, seats, n)) {
    seats = coordinator_ready_seats(coordinator, run, &n);
    coordinator_share_work(coordinator, run, seats, n);
  }
  make_groups(coordinator, run, seats, n);
  coordinator_remember_groups(run, seats, n);
  log_event(LOG_INFO, "coordinator", "view", "run=%s number=%llu workers=%d", run->id,
            (unsigned long long)run->view, n);
  coordinator_order_views(coordinator, run, seats, n);
  send_idle_views(coordinator, run, seats, n);
}

static bool is_among(struct seat *const *seats, int n, const struct seat *seat) {
  for (int i = 0; i < n; i++)
    if (seats[i] == seat)
      return true;
  return false;
}

/* To those that compute nothing: some of them are ready, and have no team. */
static void send_idle_views(struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                            int n) {
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    bool has_no_team = seat->state == SEAT_READY && !is_among(seats, n, seat);
    if ((seat->state != SEAT_CUT_OFF && seat->state != SEAT_FOLLOWING && !has_no_team))
      continue;
    if (has_no_team)
      coordinator_take_work(seat);
    coordinator_order_idle_view(coordinator, seat);
    seat->following.is_view_due = false;
  }
}

/* For the others nothing has changed when a worker begins to follow. */
static void send_follower_views(struct coordinator *coordinator, struct run *run) {
  bool is_numbered = false;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_FOLLOWING || !seat->following.is_view_due)
      continue;
    run->view += !is_numbered;
    is_numbered = true;
    coordinator_order_idle_view(coordinator, seat);
    seat->following.is_view_due = false;
  }
}

struct seat **coordinator_ready_seats(const struct coordinator *coordinator, const struct run *run, int *n) {
  struct arena *arena = &coordinator->actions->arena;
  size_t capacity = (size_t)run->n_seats;
  struct seat **joined = arena_new(arena, capacity * sizeof *joined);
  struct seat **seats = arena_new(arena, capacity * sizeof *seats);
  const char **hosts = arena_new(arena, capacity * sizeof *hosts);
  int *order = arena_new(arena, capacity * sizeof *order);
  *n = 0;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_READY)
      continue;
    joined[*n] = seat;
    hosts[(*n)++] = coordinator_group_host(seat);
  }
  groups_order(hosts, *n, order);
  for (int i = 0; i < *n; i++)
    seats[i] = joined[order[i]];
  *n = coordinator_line_up(arena, run, seats, *n);
  return seats;
}

/* With whom the worker makes a group: those with the same name. NULL: it goes alone. A team is a group whose
   members have the same microbatches; its name is that of its first member, which is in no other. */
static const char *companions_of(struct seat *const *seats, int at) {
  if (!coordinator_is_staged(seats[at]))
    return seats[at]->group_failures < GROUP_FAILURES_MAX ? coordinator_group_host(seats[at]) : NULL;
  while (seats[at]->stages.begin > 0)
    at--;
  return seats[at]->worker->id;
}

static void make_groups(const struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                        int n) {
  struct group_worker *list = arena_new(&coordinator->actions->arena, (size_t)n * sizeof *list);
  for (int i = 0; i < n; i++)
    list[i] = (struct group_worker){
        .host = companions_of(seats, i), .microbatches = seats[i]->microbatches, .grouping = seats[i]->group};
  groups_number(list, n, &run->groups_seen);
  for (int i = 0; i < n; i++)
    seats[i]->group = list[i].grouping;
}

/* Several members say so of one group, and some of one that a view has changed meanwhile: the first counts.
 */
void coordinator_group_failed(struct coordinator *coordinator, struct member *worker,
                              const Weir__GroupFailed *failed) {
  const struct seat *seat = coordinator_seat(worker, failed->run);
  struct run *run = seat ? seat->run : NULL;
  uint32_t number = seat ? seat->group.number : 0;
  char *message;
  if (number == 0 || seat->state != SEAT_READY || run->incarnation != failed->incarnation ||
      failed->group != number || failed->view >> 32 != run->view >> 32)
    return;
  message = text_copy_clean(failed->message, MESSAGE_MAX);
  log_event(LOG_WARN, "coordinator", "group_failed", "run=%s group=%u id=%s message=\"%s\"", run->id, number,
            worker->id, message);
  free(message);
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *other = run->seats[i];
    if (other->group.number != number)
      continue;
    other->group = (struct grouping){0};
    if (++other->group_failures >= GROUP_FAILURES_MAX && !coordinator_is_staged(other))
      regroup_later(coordinator, run);
  }
  run->is_view_due = true;
}
