#include "tests/support/world/world_checks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/coordinator/messages/info.h"
#include "tests/support/world/world_forks.h"
#include "tests/support/world/world_holds.h"
#include "tests/support/world/world_labels.h"

static int slot_of(const char *address) {
  return atoi(strchr(address, ':') + 1);
}

/* No incarnation between that of the checkpoint and this one began below it: it would bring back what was
   rolled back. */
static void check_base(struct world *w, struct stored_run *run, const Weir__LoadRun *load) {
  const struct stored_checkpoint *checkpoint;
  (void)w;
  if (load->step == 0) {
    assert_string_equal(load->manifest, "");
    return;
  }
  assert_true(load->step <= STEPS);
  checkpoint = &run->checkpoints[load->step];
  assert_int_equal(atoi(strrchr(load->manifest, '/') + 1), load->step);
  assert_false(checkpoint->is_dropped);
  if (!checkpoint->exists || checkpoint->is_leftover)
    return;
  for (uint64_t i = checkpoint->incarnation + 1; i <= load->incarnation; i++)
    assert_true(run->bases[i] >= load->step);
}

static void check_load(struct world *w, struct process *process, const Weir__LoadRun *load) {
  int at = run_index(w, load->run);
  struct stored_run *run = &w->runs[at];
  struct server_set *set = set_of(w, at, load->incarnation);
  if (process->role != WEIR__ROLE__SERVER) {
    labels_check_load(w, process, load);
    return;
  }
  assert_true(load->incarnation >= run->top);
  run->top = load->incarnation;
  if (load->incarnation > 0 && !run->is_record_lost) { /* fenced: a successor will know of it */
    assert_non_null(run->record);
    assert_true(run->record->incarnation >= load->incarnation);
  }
  run->bases[load->incarnation] = load->step;
  check_base(w, run, load);
  forks_check_load(w, process, load);
  if (set->n == 0)
    for (size_t i = 0; i < load->n_servers; i++) {
      set->slots[i] = slot_of(load->servers[i]->address);
      set->pids[i] = w->processes[set->slots[i]].pid;
      set->n++;
    }
  assert_int_equal(set->n, load->n_servers);
  assert_true(set_index(set, process) >= 0); /* of one incarnation there is one set */
}

/* At least two members, with adjoining shares, and the view names no others; a number never means others, nor
   other shares. */
static void check_group(struct world *w, struct stored_run *run, const Weir__View *view, uint32_t number) {
  struct group_meaning found = {.term = w->term};
  int n = 0;
  assert_true(number < GROUPS);
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *member = view->workers[i];
    assert_int_equal(member->group, number);
    assert_true(member->microbatch_begin < member->microbatch_end);
    assert_true(n == 0 || member->microbatch_begin == found.end);
    found.begin = n++ == 0 ? member->microbatch_begin : found.begin;
    found.end = member->microbatch_end;
    snprintf(found.members + strlen(found.members), sizeof found.members - strlen(found.members), "%.14s ",
             member->worker);
  }
  assert_true(n >= 2);
  if (run->groups[number].term != w->term)
    run->groups[number] = found;
  assert_string_equal(run->groups[number].members, found.members);
  assert_true(run->groups[number].begin == found.begin && run->groups[number].end == found.end);
}

/* As the core sees it. */
static const Weir__SeatInfo *seat_of(const Weir__WorkerInfo *worker, const char *run) {
  for (size_t i = 0; i < worker->n_seats; i++)
    if (strcmp(worker->seats[i]->run, run) == 0)
      return worker->seats[i];
  return NULL;
}

static bool is_worker(struct world *w, const struct process *worker, const char *run, const char *state) {
  struct arena arena;
  Weir__ListWorkersReply reply;
  bool is_found = false;
  arena_init(&arena);
  coordinator_list_workers(w->core, &viewer_of_all, w->now_ms, &arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++) {
    const Weir__SeatInfo *seat = seat_of(reply.workers[i], run);
    is_found |= seat && strcmp(reply.workers[i]->id, worker->id) == 0 && strcmp(seat->state, state) == 0;
  }
  arena_fini(&arena);
  return is_found;
}

/* No executor is dealt twice. */
static void check_dealt(const Weir__WorkerInfo *worker) {
  uint32_t dealt = 0;
  for (size_t i = 0; i < worker->n_seats; i++)
    if (strcmp(worker->seats[i]->state, "ready") == 0 || strcmp(worker->seats[i]->state, "following") == 0)
      dealt += worker->seats[i]->executors;
  assert_true(dealt <= worker->executors);
}

/* Who does not reach all servers is given nothing only while others compute, or are about to. */
void check_reach(struct world *w, const char *run) {
  struct arena arena;
  Weir__ListWorkersReply workers;
  Weir__ListServersReply servers;
  int cut_off = 0, others = 0;
  arena_init(&arena);
  coordinator_list_workers(w->core, &viewer_of_all, w->now_ms, &arena, &workers);
  for (size_t i = 0; i < workers.n_workers; i++) {
    const Weir__SeatInfo *seat = seat_of(workers.workers[i], run);
    bool is_idle = seat && strcmp(seat->state, "cut-off") == 0;
    if (!seat)
      continue;
    assert_true(!is_idle || seat->microbatches == 0);
    assert_true(!is_idle || *seat->message);
    cut_off += is_idle;
    others += strcmp(seat->state, "ready") == 0 || strcmp(seat->state, "loading") == 0;
    w->following += strcmp(seat->state, "following") == 0;
    w->late += strncmp(seat->message, "has not caught up", 17) == 0;
    w->set_aside += strncmp(seat->message, "computes nothing", 16) == 0;
  }
  w->cut_off += cut_off;
  for (size_t i = 0; i < workers.n_workers; i++)
    check_dealt(workers.workers[i]);
  coordinator_list_servers(w->core, &viewer_of_all, w->now_ms, &arena, &servers);
  for (size_t i = 0; i < servers.n_servers; i++)
    w->given_up += strncmp(servers.servers[i]->message, "no worker reaches", 17) == 0;
  arena_fini(&arena);
  assert_true(cut_off == 0 || others > 0);
}

/* Nothing is computed that a coordinator which restores the record would roll back. */
static void check_started(const struct stored_run *run, const Weir__View *view) {
  if (run->is_record_lost)
    return;
  assert_non_null(run->record);
  assert_true(run->record->incarnation == view->incarnation && run->record->n_servers == view->n_servers);
  assert_true(run->record->state == WEIR__RUN_STATE__RUNNING ||
              run->record->state == WEIR__RUN_STATE__FINISHING ||
              run->record->state == WEIR__RUN_STATE__HELD);
}

static void check_view(struct world *w, struct process *process, const Weir__View *view) {
  int at = run_index(w, view->run);
  struct server_set *set = set_of(w, at, view->incarnation);
  const Weir__Assignment *own = NULL;
  assert_int_equal(view->incarnation, w->runs[at].top);
  check_started(&w->runs[at], view);
  assert_true(set->n > 0);
  assert_int_equal(set->n, view->n_servers);
  for (int i = 0; i < set->n; i++) {
    assert_int_equal(slot_of(view->servers[i]->address), set->slots[i]);
    assert_true(set->is_loaded[i]);
  }
  for (size_t i = 0; i < view->n_workers; i++)
    if (strcmp(view->workers[i]->worker, process->id) == 0)
      own = view->workers[i];
  if (!own) {
    assert_true(view->n_workers == 0 || process->down.count > 0); /* or it does not know its new name yet */
    assert_false(is_worker(w, process, view->run, "ready") && process->down.count == 0);
    return;
  }
  assert_false(is_worker(w, process, view->run, "cut-off"));
  assert_true(!own->follows || own->microbatch_begin == own->microbatch_end);
  assert_true(own->group == 0 || strcmp(w->spec->train->collective, "none") != 0);
  if (own->group)
    check_group(w, &w->runs[at], view, own->group);
  else
    assert_int_equal(view->n_workers, 1);
}

static struct process *process_called(struct world *w, const char *id) {
  for (int i = SERVERS; i < PROCESSES; i++)
    if (w->processes[i].key && strcmp(w->processes[i].id, id) == 0)
      return &w->processes[i];
  return NULL;
}

static bool has_work(const struct given_view *given, const char *worker) {
  for (int i = 0; i < given->n; i++)
    if (strcmp(given->to[i].worker, worker) == 0)
      return given->to[i].begin < given->to[i].end;
  return false;
}

/* There were more workers than microbatches: it was not to follow. */
static bool was_idle(const struct given_view *given, const char *worker) {
  for (int i = 0; i < given->n; i++)
    if (strcmp(given->to[i].worker, worker) == 0)
      return given->to[i].begin == given->to[i].end && !given->to[i].follows;
  return false;
}

/* Where a worker computed, and computes on, that has weights and reaches all servers, nobody is given work
   who has yet to receive them. */
static void check_joiners(struct world *w, int at) {
  const struct given_view *given = &w->runs[at].given, *before = &w->runs[at].given_before;
  const struct process *lagging = NULL, *able = NULL;
  for (int i = 0; i < given->n && before->term == given->term && before->incarnation == given->incarnation;
       i++) {
    const struct process *process = process_called(w, given->to[i].worker);
    if (!process || !has_work(given, given->to[i].worker))
      continue;
    if (!has_work(before, given->to[i].worker) && !was_idle(before, given->to[i].worker) &&
        !process->hosted[at].has_version)
      lagging = process;
    if (has_work(before, given->to[i].worker) && process->hosted[at].has_version && process->is_alive &&
        !process->hosted[at].is_unreached_told)
      able = process;
  }
  if (lagging && able)
    fail_msg("%s is given work while it receives its first weights, and %s computes", lagging->id, able->id);
}

/* Each microbatch once, or nothing: to who is cut off or follows. */
static void check_shares(struct world *w, int at) {
  struct given_view *given = &w->runs[at].given;
  uint32_t times[MICROBATCHES] = {0}, total = 0;
  for (int i = 0; i < given->n; i++)
    for (uint32_t m = given->to[i].begin; m < given->to[i].end; m++, total++)
      assert_int_equal(times[m]++, 0);
  assert_true(total == 0 || total == MICROBATCHES);
  if (total) {
    check_joiners(w, at);
    w->runs[at].given_before = *given;
  }
  given->n = 0;
}

/* Of each worker once, however many views of a group name it. */
static void note_given(struct world *w, int run, const Weir__View *view) {
  struct given_view *given = &w->runs[run].given;
  if (given->n && given->number != view->number)
    check_shares(w, run);
  given->term = w->term;
  given->incarnation = view->incarnation;
  given->number = view->number;
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *worker = view->workers[i];
    int at = 0;
    while (at < given->n && strcmp(given->to[at].worker, worker->worker) != 0)
      at++;
    assert_true(at < WORKERS_GIVEN);
    if (at == given->n)
      snprintf(given->to[given->n++].worker, sizeof given->to[at].worker, "%s", worker->worker);
    else
      assert_true(given->to[at].begin == worker->microbatch_begin &&
                  given->to[at].end == worker->microbatch_end);
    given->to[at].begin = worker->microbatch_begin;
    given->to[at].end = worker->microbatch_end;
    given->to[at].follows = worker->follows;
  }
}

void check_given(struct world *w) {
  for (int at = 0; at < RUNS; at++)
    if (w->runs[at].given.n)
      check_shares(w, at);
}

void check_order(struct world *w, struct process *process, const Weir__Order *order) {
  assert_int_equal(order->term, w->term);
  if (order->body_case == WEIR__ORDER__BODY_VIEW)
    note_given(w, run_index(w, order->view->run), order->view);
  if (!process)
    return; /* its link broke, and the core does not know yet */
  if (order->body_case == WEIR__ORDER__BODY_LOAD)
    check_load(w, process, order->load);
  else if (order->body_case == WEIR__ORDER__BODY_VIEW)
    check_view(w, process, order->view);
  else if (order->body_case == WEIR__ORDER__BODY_WRITE) {
    int at = run_index(w, order->write->run);
    assert_int_equal(order->write->incarnation, w->runs[at].top);
    assert_true(order->write->step >= 1 && order->write->step <= STEPS);
  }
}

void check_told(struct world *w, int run) {
  bool steps[STEPS] = {false}, evals[STEPS + 1] = {false}, is_done = false;
  uint64_t last = early_stopping_last(w, run);
  struct run_event_view view;
  for (uint64_t at = 0; coordinator_run_event(w->core, w->runs[run].id, at, &view);
       at = view.event.number + 1) {
    if (view.event.event_case == WEIR__RUN_EVENT__EVENT_STEP)
      steps[view.event.step->step] = true;
    else if (view.event.event_case == WEIR__RUN_EVENT__EVENT_EVAL)
      evals[view.event.eval->step] = true;
    else if (view.event.event_case == WEIR__RUN_EVENT__EVENT_DONE) {
      is_done = true;
      assert_int_equal(view.event.done->steps, last);
      assert_true((*view.event.done->reason != 0) == (last < w->plan.steps));
      assert_int_equal(strlen(view.event.done->weights_sha256), 64);
      assert_true(isnan(view.event.done->accuracy) == (w->plan.eval_samples == 0));
    }
  }
  w->ended_early += last < w->plan.steps;
  for (uint64_t i = 0; i < w->plan.steps; i++)
    if (steps[i] != (i >= w->runs[run].base_step && i < last))
      fail_msg("%s: step %d was %s", w->runs[run].id, (int)i, steps[i] ? "told" : "never told");
  for (uint64_t i = 0; i <= w->plan.steps; i++)
    assert_int_equal(evals[i], i >= w->runs[run].base_step && i <= last && plan_evaluates(&w->plan, i));
  assert_true(is_done);
}
