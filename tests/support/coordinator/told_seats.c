#include "tests/support/coordinator/told_seats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Where there is no other, the place of one that is not computed any more. */
static struct told_seat *find(struct told_seat seats[TOLD_SEATS], const char *run) {
  int at = 0;
  while (at < TOLD_SEATS && *seats[at].run && strcmp(seats[at].run, run) != 0)
    at++;
  for (int i = 0; i < TOLD_SEATS && at == TOLD_SEATS; i++)
    if (!seats[i].is_seated)
      seats[at = i] = (struct told_seat){.run = ""};
  assert_true(at < TOLD_SEATS);
  snprintf(seats[at].run, sizeof seats[at].run, "%s", run);
  return &seats[at];
}

static void take_view(struct told_seat *seat, const char *worker, const Weir__View *view) {
  assert_true(view->number > seat->view);
  seat->view = view->number;
  seat->begin = seat->end = seat->executors = 0;
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *assignment = view->workers[i];
    if (strcmp(assignment->worker, worker) != 0)
      continue;
    seat->begin = assignment->microbatch_begin;
    seat->end = assignment->microbatch_end;
    seat->executors = assignment->executors;
  }
}

void told_seats_take(struct told_seat seats[TOLD_SEATS], const char *worker, const Weir__Order *order) {
  struct told_seat *seat;
  if (order->body_case == WEIR__ORDER__BODY_LOAD && order->load->n_servers == 0) {
    seat = find(seats, order->load->run);
    seat->is_seated = true;
    seat->loads++;
    assert_true(told_seats_count(seats) <= TOLD_SEATS_AT_A_TIME);
  } else if (order->body_case == WEIR__ORDER__BODY_UNLOAD && *told_seat_of(seats, order->unload->run).run) {
    seat = find(seats, order->unload->run);
    seat->is_seated = false;
    seat->begin = seat->end = seat->executors = 0;
    seat->view = 0;
    seat->unloads++;
  } else if (order->body_case == WEIR__ORDER__BODY_VIEW) {
    seat = find(seats, order->view->run);
    assert_true(seat->is_seated);
    take_view(seat, worker, order->view);
  }
}

struct told_seat told_seat_of(const struct told_seat seats[TOLD_SEATS], const char *run) {
  for (int i = 0; i < TOLD_SEATS && *seats[i].run; i++)
    if (strcmp(seats[i].run, run) == 0)
      return seats[i];
  return (struct told_seat){.run = ""};
}

int told_seats_count(const struct told_seat seats[TOLD_SEATS]) {
  int count = 0;
  for (int i = 0; i < TOLD_SEATS; i++)
    count += seats[i].is_seated;
  return count;
}
