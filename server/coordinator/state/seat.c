/* Seats: a worker's part in one run. */
#include "server/coordinator/state/seat.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/coordinator/state/run.h"

/* seat_moves[from] has bit `to`. */
#define TO(state) (1u << SEAT_##state)
static const unsigned seat_moves[] = {
    [SEAT_LOADING] = TO(FOLLOWING) | TO(READY) | TO(LEAVING),
    [SEAT_FOLLOWING] = TO(READY) | TO(CUT_OFF) | TO(LEAVING),
    [SEAT_READY] = TO(READY) | TO(FOLLOWING) | TO(CUT_OFF) | TO(LEAVING),
    [SEAT_CUT_OFF] = TO(FOLLOWING) | TO(READY) | TO(LEAVING),
    [SEAT_LEAVING] = 0,
};
#undef TO

static const char *const seat_state_names[] = {"loading", "following", "ready", "cut-off", "draining"};

struct seat *coordinator_seat_new(struct run *run, struct member *worker) {
  struct seat *seat = mem_new(sizeof *seat);
  CHECK(worker->n_seats < SEATS_MAX);
  seat->worker = worker;
  seat->executors = worker->n_seats ? 0 : worker->executors;
  seat->load_incarnation = run->incarnation;
  seat->speed = mem_new(sizeof *seat->speed);
  seat->ready_incarnation = UINT64_MAX;
  worker->seats[worker->n_seats++] = seat;
  coordinator_run_add_seat(run, seat);
  log_event(LOG_INFO, "coordinator", "worker_state", "id=%s from=idle to=loading run=%s", worker->id,
            run->id);
  return seat;
}

void coordinator_seat_set_state(struct seat *seat, enum seat_state state) {
  CHECK(seat_moves[seat->state] & (1u << state));
  if (seat->state == state)
    return;
  log_event(LOG_INFO, "coordinator", "worker_state", "id=%s from=%s to=%s run=%s", seat->worker->id,
            seat_state_names[seat->state], seat_state_names[state], seat->run->id);
  seat->state = state;
  seat->worker->is_deal_due = true;
}

const char *coordinator_seat_state_name(enum seat_state state) {
  return seat_state_names[state];
}

void coordinator_seat_end(struct seat *seat) {
  struct member *worker = seat->worker;
  struct run *run = seat->run;
  int at = 0;
  log_event(LOG_INFO, "coordinator", "worker_state", "id=%s from=%s to=idle run=%s", worker->id,
            seat_state_names[seat->state], run->id);
  if (seat->state == SEAT_READY)
    coordinator_workers_changed(run);
  run->is_info_due |= !coordinator_is_over(run);
  coordinator_run_remove_seat(seat);
  while (worker->seats[at] != seat)
    at++;
  worker->n_seats--;
  worker->is_deal_due = true;
  memmove(worker->seats + at, worker->seats + at + 1, (size_t)(worker->n_seats - at) * sizeof *worker->seats);
  coordinator_seat_free(seat);
}

void coordinator_seat_free(struct seat *seat) {
  coordinator_follow_forget(seat);
  coordinator_reach_forget(seat);
  free(seat->speed);
  free(seat->teams);
  free(seat->ticket);
  free(seat->peer_ticket);
  free(seat);
}

struct seat *coordinator_seat(const struct member *worker, const char *run) {
  for (int i = 0; i < worker->n_seats; i++)
    if (strcmp(worker->seats[i]->run->id, run) == 0)
      return worker->seats[i];
  return NULL;
}

struct seat *coordinator_seat_of(const struct member *worker, const struct run *run) {
  for (int i = 0; i < worker->n_seats; i++)
    if (worker->seats[i]->run == run)
      return worker->seats[i];
  return NULL;
}

bool coordinator_is_staged(const struct seat *seat) {
  return seat->stages.begin < seat->stages.end;
}

bool coordinator_is_seated(const struct seat *seat) {
  return seat->state == SEAT_LOADING || seat->state == SEAT_FOLLOWING || seat->state == SEAT_READY;
}

void coordinator_follow_forget(struct seat *seat) {
  free(seat->following.text);
  seat->following = (struct following){0};
}

void coordinator_reach_forget(struct seat *seat) {
  free(seat->unreached);
  free(seat->unreached_text);
  seat->unreached = NULL;
  seat->unreached_text = NULL;
  seat->n_unreached = 0;
  free(seat->missed_mates.text);
  seat->missed_mates = (struct missed_mates){0};
}

char *coordinator_missed_mates(const struct seat *seat) {
  return seat->missed_mates.team == seat->group.number ? seat->missed_mates.text : NULL;
}
