/* Which workers reach which servers, as workers tell: one that misses a server which others reach computes
   nothing; a server that none reaches is done without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* What one worker tells is weighed when the others have had the time to tell the same. A roll-back costs more
   than another view. */
enum { WEIGH_MS = 3000, GIVE_UP_MS = 10000, TEXT_MAX = 400, ERROR_MAX = 200 };

static void take_unreached(struct coordinator *coordinator, struct seat *seat,
                           const Weir__Unreached *unreached);
static bool report_names(const Weir__Unreached *unreached, const char *server);
static bool worker_misses(const struct seat *seat, uint64_t server);
static uint64_t key_of(const struct coordinator *coordinator, const struct run_server *server);
static void say_unreached(const struct coordinator *coordinator, struct seat *seat, const char *error);
static void reaches_all(struct coordinator *coordinator, struct seat *seat);
static struct seat *best_placed(const struct run *run);
static bool admit_who_reach(const struct run *run);
static void admit_cut_off(struct coordinator *coordinator, struct run *run);
static void cut_off_workers(struct coordinator *coordinator, struct run *run, const struct seat *best);
static void give_up_servers(struct coordinator *coordinator, struct run *run, const struct seat *seat);
static bool is_another_left(const struct coordinator *coordinator, const struct run *run,
                            const struct seat *seat);

void coordinator_unreached(struct coordinator *coordinator, struct member *worker,
                           const Weir__Unreached *unreached) {
  struct seat *seat = coordinator_seat(worker, unreached->run);
  const struct run *run = seat ? seat->run : NULL;
  bool takes_part =
      seat && (seat->state == SEAT_FOLLOWING || seat->state == SEAT_READY || seat->state == SEAT_CUT_OFF);
  if (!takes_part || run->is_load_due || run->incarnation != unreached->incarnation)
    return;
  take_unreached(coordinator, seat, unreached);
  if (seat->n_unreached == 0)
    reaches_all(coordinator, seat);
}

/* Names of which the run has no server are ignored. */
static void take_unreached(struct coordinator *coordinator, struct seat *seat,
                           const Weir__Unreached *unreached) {
  const struct run *run = seat->run;
  uint64_t *keys = mem_new((size_t)run->n_servers * sizeof *keys);
  bool has_changed;
  int n = 0;
  for (int i = 0; i < run->n_servers; i++)
    if (key_of(coordinator, &run->servers[i]) && report_names(unreached, run->servers[i].id))
      keys[n++] = run->servers[i].key;
  has_changed = n != seat->n_unreached || (n && memcmp(keys, seat->unreached, (size_t)n * sizeof *keys));
  if (!has_changed) {
    free(keys);
    return;
  }
  free(seat->unreached);
  seat->unreached = keys;
  seat->n_unreached = n;
  seat->unreached_ms = coordinator->now_ms;
  say_unreached(coordinator, seat, unreached->message);
}

static bool report_names(const Weir__Unreached *unreached, const char *server) {
  for (size_t i = 0; i < unreached->n_servers; i++)
    if (strcmp(unreached->servers[i], server) == 0)
      return true;
  return false;
}

static bool worker_misses(const struct seat *seat, uint64_t server) {
  for (int i = 0; i < seat->n_unreached; i++)
    if (seat->unreached[i] == server)
      return true;
  return false;
}

/* 0: it is lost, and nobody reaches it: what one worker misses there says nothing of that worker. */
static uint64_t key_of(const struct coordinator *coordinator, const struct run_server *server) {
  return server->member || coordinator_is_confirmed(coordinator, server) ? server->key : 0;
}

static void say_unreached(const struct coordinator *coordinator, struct seat *seat, const char *error) {
  const struct run *run = seat->run;
  char text[TEXT_MAX];
  size_t length = (size_t)snprintf(text, sizeof text, "cannot reach");
  const char *comma = "";
  for (int i = 0; i < run->n_servers && length < sizeof text; i++) {
    const struct run_server *server = &run->servers[i];
    if (!worker_misses(seat, key_of(coordinator, server)))
      continue;
    length += (size_t)snprintf(text + length, sizeof text - length, "%s %s (%s)", comma, server->id,
                               server->address);
    comma = ",";
  }
  free(seat->unreached_text);
  seat->unreached_text = NULL;
  if (seat->n_unreached == 0)
    return;
  if (length < sizeof text)
    snprintf(text + length, sizeof text - length, ": %.*s", ERROR_MAX, *error ? error : "no answer");
  seat->unreached_text = text_copy_clean(text, TEXT_MAX);
  log_event(LOG_WARN, "coordinator", "worker_unreaching", "run=%s id=%s message=\"%s\"", run->id,
            seat->worker->id, seat->unreached_text);
}

/* It is given work again, unless others have taken its place. */
static void reaches_all(struct coordinator *coordinator, struct seat *seat) {
  struct run *run = seat->run;
  const Weir__WorkersSpec *spec = run->spec->workers;
  if (seat->state != SEAT_CUT_OFF)
    return;
  if (spec->has_max && coordinator_count_held(run) >= spec->max) {
    coordinator_order_unload(coordinator, run->id, seat->worker, "others have taken its place");
    coordinator_seat_end(seat);
    return;
  }
  coordinator_seat_follow(coordinator, seat);
}

void coordinator_weigh_reach(struct coordinator *coordinator, struct run *run) {
  struct seat *best;
  if (run->state != WEIR__RUN_STATE__RUNNING)
    return;
  if (coordinator_count_held(run) == 0)
    admit_cut_off(coordinator, run);
  best = best_placed(run);
  if (best && best->n_unreached && coordinator->now_ms - best->unreached_ms >= WEIGH_MS &&
      admit_who_reach(run))
    best = best_placed(run);
  if (!best)
    return;
  cut_off_workers(coordinator, run, best);
  if (best->n_unreached && coordinator->now_ms - best->unreached_ms >= GIVE_UP_MS)
    give_up_servers(coordinator, run, best);
}

/* Of those that compute, the one that misses the fewest servers, and for the shortest time. NULL: none
   computes. */
static struct seat *best_placed(const struct run *run) {
  struct seat *best = NULL;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_READY)
      continue;
    if (!best || seat->n_unreached < best->n_unreached ||
        (seat->n_unreached == best->n_unreached && seat->unreached_ms > best->unreached_ms))
      best = seat;
  }
  return best;
}

/* Nobody else is left: they try on. */
static void admit_cut_off(struct coordinator *coordinator, struct run *run) {
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_CUT_OFF)
      continue;
    seat->unreached_ms = coordinator->now_ms;
    coordinator_seat_set_state(seat, SEAT_READY);
    coordinator_workers_changed(run);
  }
}

/* Nobody who computes reaches all servers: workers that only follow, but have not said that they miss any,
   compute, too. */
static bool admit_who_reach(const struct run *run) {
  bool has_admitted = false;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (seat->state != SEAT_FOLLOWING || seat->n_unreached)
      continue;
    coordinator_admit_follower(seat);
    has_admitted = true;
  }
  return has_admitted;
}

bool coordinator_is_out_of_reach(const struct coordinator *coordinator, const struct seat *seat) {
  return seat->n_unreached > 0 && coordinator->now_ms - seat->unreached_ms >= WEIGH_MS;
}

/* Those that miss more than the best; all that miss any where another is about to take their place. */
static void cut_off_workers(struct coordinator *coordinator, struct run *run, const struct seat *best) {
  int bearable = coordinator_count_seats(run, SEAT_LOADING) > 0 ? 0 : best->n_unreached;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    bool takes_part = seat->state == SEAT_READY || seat->state == SEAT_FOLLOWING;
    if (!takes_part || seat->n_unreached <= bearable || coordinator->now_ms - seat->unreached_ms < WEIGH_MS)
      continue;
    coordinator_seat_set_state(seat, SEAT_CUT_OFF);
    coordinator_follow_forget(seat);
    seat->microbatches = seat->eval_chunks = (struct range){0, 0};
    seat->group = (struct grouping){0};
    coordinator_workers_changed(run);
  }
}

/* Not while a worker that loads may still reach them, nor while a lost server is waited for, nor while a
   commit may make a newer checkpoint to roll back to. */
static void give_up_servers(struct coordinator *coordinator, struct run *run, const struct seat *seat) {
  char cause[TEXT_MAX + 100];
  bool is_missed = false; /* or it has joined anew meanwhile */
  if (coordinator_lost_servers(run) > 0 || run->checkpointing.is_committing ||
      coordinator_count_seats(run, SEAT_LOADING) > 0)
    return;
  for (int i = 0; i < run->n_servers; i++)
    is_missed |= worker_misses(seat, run->servers[i].key);
  if (!is_missed || !is_another_left(coordinator, run, seat))
    return;
  snprintf(cause, sizeof cause, "no worker reaches all servers: %s (%s) %s", seat->worker->id,
           seat->worker->host, seat->unreached_text);
  for (int i = 0; i < run->n_servers; i++) {
    struct member *server = run->servers[i].member;
    if (!worker_misses(seat, run->servers[i].key))
      continue;
    coordinator_leave_out(coordinator, run, server, cause);
    server->is_cut_off = true;
  }
  coordinator_roll_back(coordinator, run, cause);
}

/* A server of the same kind, which the worker does not miss. */
static bool is_another_left(const struct coordinator *coordinator, const struct run *run,
                            const struct seat *seat) {
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *server = coordinator->members[i];
    if (coordinator_may_own_blocks(coordinator, server, true) && !worker_misses(seat, server->key) &&
        coordinator_server_fits(run, server))
      return true;
  }
  return false;
}
