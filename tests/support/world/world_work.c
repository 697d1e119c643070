#include "tests/support/world/world_work.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "tests/support/world/world_liars.h"
#include "tests/support/world/world_processes.h"

bool worker_reaches(const struct world *w, const struct process *worker, const struct server_set *set,
                    int at) {
  const struct process *server = &w->processes[set->slots[at]];
  return server->is_alive && server->pid == set->pids[at] && !w->is_cut[worker->slot][server->slot];
}

bool round_is_complete(const struct world *w, int run, const struct hosted *server) {
  const struct sim_round *round = &w->runs[run].round;
  if (round->incarnation != server->incarnation || round->version != server->version)
    return round->incarnation == server->incarnation && round->version > server->version;
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    if (!round->is_there[m])
      return false;
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    assert_true(round->bits[m] == part_bits(round->version, m));
  return true;
}

/* The lowest version of the run's servers in the worker's incarnation, which it can compute from; false: it
   does not reach all of them, or they are not there yet. */
static bool servers_version(const struct world *w, const struct process *worker, int run, uint64_t *version) {
  const struct hosted *hosted = &worker->hosted[run];
  const struct server_set *set = &w->runs[run].sets[hosted->incarnation];
  *version = UINT64_MAX;
  for (int at = 0; at < set->n; at++) {
    const struct hosted *server = &w->processes[set->slots[at]].hosted[run];
    if (!worker_reaches(w, worker, set, at) || !server->is_loaded ||
        server->incarnation != hosted->incarnation)
      return false;
    if (server->version < *version)
      *version = server->version;
  }
  return set->n > 0;
}

static void tell_ready(struct world *w, struct process *worker, int run) {
  Weir__Ready ready = WEIR__READY__INIT;
  ready.run = w->runs[run].id;
  ready.incarnation = worker->hosted[run].incarnation;
  ready.version = worker->hosted[run].version;
  process_tells(worker, WEIR__MEMBER_MESSAGE__BODY_READY, &ready);
}

/* A version that is dropped before it is here whole is of no use: it begins with the newest. */
static void worker_pull(struct world *w, struct process *worker, int run, uint64_t newest,
                        uint64_t passed_ms) {
  struct hosted *hosted = &worker->hosted[run];
  if (hosted->has_version && hosted->version >= newest) {
    if (hosted->follows && !hosted->is_ready_told)
      tell_ready(w, worker, run);
    hosted->is_ready_told = true;
    return;
  }
  if (hosted->pulling > newest || hosted->pulling + 1 < newest || hosted->pulled_ms == 0) {
    hosted->pulling = newest;
    hosted->pulled_ms = 0;
  }
  hosted->pulled_ms += passed_ms;
  if (hosted->pulled_ms < worker->version_ms)
    return;
  hosted->has_version = true;
  hosted->version = hosted->pulling;
  hosted->pulled_ms = 0;
  if (hosted->follows)
    tell_ready(w, worker, run);
  hosted->is_ready_told = true;
}

/* The round is that of the version. */
static void round_open(struct world *w, int run, uint64_t incarnation, uint64_t version) {
  struct sim_round *round = &w->runs[run].round;
  if (round->incarnation != incarnation || round->version != version)
    *round = (struct sim_round){.incarnation = incarnation, .version = version};
}

static void worker_push(struct world *w, struct process *worker, int run, uint32_t microbatch) {
  liars_push(w, worker, run, microbatch);
  worker->busy_ms += worker->microbatch_ms;
  worker->computed++;
}

void worker_compute(struct world *w, struct process *worker, int run, uint64_t passed_ms) {
  struct hosted *hosted = &worker->hosted[run];
  uint64_t newest;
  uint32_t m;
  if (!worker->is_alive || !hosted->is_loaded || !hosted->has_view ||
      !servers_version(w, worker, run, &newest))
    return;
  if (worker->is_hung && hosted->spent_ms) { /* and keeps the worker from any other version */
    worker->busy_ms += passed_ms;
    return;
  }
  worker_pull(w, worker, run, newest, passed_ms);
  if (!hosted->has_version || hosted->version != newest || (newest == w->plan.steps && newest > 0) ||
      (hosted->hold && newest >= hosted->hold))
    return;
  round_open(w, run, hosted->incarnation, newest);
  if (worker->is_hung) {
    hosted->spent_ms = liars_next(w, worker, run) < MICROBATCHES;
    return;
  }
  for (hosted->spent_ms += passed_ms; (m = liars_next(w, worker, run)) < MICROBATCHES;) {
    if (hosted->spent_ms < worker->microbatch_ms)
      return;
    hosted->spent_ms -= worker->microbatch_ms;
    worker_push(w, worker, run, m);
  }
  hosted->spent_ms = 0;
}

static size_t name_reached(const struct world *w, struct process *worker, int run, char *servers[SERVERS]) {
  const struct server_set *set = &w->runs[run].sets[worker->hosted[run].incarnation];
  size_t n = 0;
  for (int at = 0; at < set->n; at++)
    if (worker_reaches(w, worker, set, at))
      servers[n++] = (char *)w->processes[set->slots[at]].id;
  return n;
}

void process_beat(struct world *w, struct process *process) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  struct coordinator_event event = {
      .kind = EVENT_MEMBER_MESSAGE, .member = process->key, .message = &message};
  bool is_odd = !w->is_calm && world_roll(w, 20) == 0;
  Weir__RunCounters counters[RUNS], *list[RUNS];
  char *servers[RUNS][SERVERS];
  if (!process->key || process->is_frozen || process->is_unheard)
    return;
  heartbeat.runs = list;
  for (int run = 0; run < RUNS && process->role == WEIR__ROLE__WORKER; run++) {
    if (!process->hosted[run].has_view)
      continue;
    Weir__RunCounters *of = list[heartbeat.n_runs++] = &counters[run];
    weir__run_counters__init(of);
    of->run = w->runs[run].id;
    of->incarnation = process->hosted[run].incarnation;
    of->computed = is_odd ? random_bits(process->computed, 0) : process->computed;
    of->busy_seconds = is_odd && process->computed % 2 ? (double)NAN : (double)process->busy_ms / 1000;
    of->received_bytes = process->computed * 100;
    of->reached = servers[run];
    of->n_reached = name_reached(w, process, run, servers[run]);
  }
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT;
  message.heartbeat = &heartbeat;
  world_step(w, &event);
}
