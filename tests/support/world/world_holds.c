#include "tests/support/world/world_holds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/world/world_labels.h"
#include "tests/support/world/world_processes.h"

enum { FIRST_HOLD = 12, RAISED_BY = 10 };

void holds_begin(struct world *w) {
  w->spec->train->has_hold = w->seed % 3 == 1 && w->spec->train->steps > 0;
  w->spec->train->hold = FIRST_HOLD;
}

void people_raise(struct world *w, int run) {
  struct coordinator_event event = {.kind = EVENT_RUN_HOLD, .hold = {w->runs[run].id, 0}};
  const Weir__RunSpec *spec = w->core ? coordinator_run_spec(w->core, w->runs[run].id) : NULL;
  uint64_t step;
  if (!spec || !spec->train->has_hold)
    return;
  step = spec->train->hold + 1 + world_roll(w, RAISED_BY);
  if (w->plan.eval_samples)
    step = plan_next_evaluated(&w->plan, step);
  event.hold.step = step < w->plan.steps ? step : 0;
  w->raised++;
  world_step(w, &event);
}

void people_change(struct world *w, int run) {
  if (world_roll(w, 2))
    people_set(w, run);
  else
    people_raise(w, run);
}

bool is_held(const struct hosted *hosted) {
  return hosted->hold && hosted->version >= hosted->hold;
}

void server_tell_held(struct world *w, struct process *server, int run) {
  Weir__RunHeld held = WEIR__RUN_HELD__INIT;
  const struct hosted *hosted = &server->hosted[run];
  if (!is_held(hosted))
    return;
  held.run = w->runs[run].id;
  held.incarnation = hosted->incarnation;
  held.step = hosted->hold;
  process_tells(server, WEIR__MEMBER_MESSAGE__BODY_HELD, &held);
}

void server_told_hold(struct world *w, struct process *server, int run, uint64_t hold) {
  struct hosted *hosted = &server->hosted[run];
  bool is_higher = hold == 0 || (hosted->hold && hold >= hosted->hold);
  assert_true(is_higher || w->spec->train->early_stopping);
  if (is_higher)
    hosted->hold = hold;
  server_tell_held(w, server, run);
}

static bool has_worker(const struct world *w, int run, uint64_t incarnation) {
  for (int i = SERVERS; i < PROCESSES; i++) {
    const struct hosted *hosted = &w->processes[i].hosted[run];
    if (w->processes[i].is_alive && hosted->is_loaded && hosted->has_view &&
        hosted->incarnation == incarnation)
      return true;
  }
  return false;
}

void server_evaluate_held(struct world *w, struct process *server, int run) {
  if (has_statistics(w, server, run) && has_worker(w, run, server->hosted[run].incarnation) &&
      world_roll(w, 4) == 0)
    server_eval_report(w, server, run, server->hosted[run].version);
}

void early_stopping_begin(struct world *w) {
  Weir__EarlyStoppingSpec *spec;
  if (w->seed % 7 > 2 || w->spec->train->steps == 0)
    return;
  spec = w->spec->train->early_stopping = mem_new(sizeof *spec);
  weir__early_stopping_spec__init(spec);
  spec->metric = mem_strdup("accuracy");
  spec->has_patience = true;
  spec->patience = 1 + w->seed % 2;
}

uint64_t early_stopping_last(const struct world *w, int run) {
  const Weir__EarlyStoppingSpec *spec = w->spec->train->early_stopping;
  uint64_t best_step = 0, version = w->runs[run].base_step;
  uint32_t worse = 0;
  for (; spec && version < w->plan.steps; version++) {
    if (!plan_evaluates(&w->plan, version))
      continue;
    if (!best_step || accuracy_at(version) > accuracy_at(best_step))
      best_step = version, worse = 0;
    else if (++worse == spec->patience)
      return version;
  }
  return w->plan.steps;
}
