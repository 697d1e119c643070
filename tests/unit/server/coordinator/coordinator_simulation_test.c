/* The coordinator's core under seeded random fates: clusters in which servers, workers, links, the store and
   the coordinator itself fail at any moment, and runs are paused, resumed and cancelled. Whatever happens,
   runs come to their end by the versions that they promised. */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/world/world.h"
#include "tests/support/world/world_checks.h"
#include "tests/support/world/world_forks.h"
#include "tests/support/world/world_holds.h"
#include "tests/support/world/world_labels.h"
#include "tests/support/world/world_liars.h"
#include "tests/support/world/world_processes.h"
#include "tests/support/world/world_work.h"

static Weir__RunState state_of(struct world *w, int run) {
  Weir__RunInfo info;
  return coordinator_run_info(w->core, w->runs[run].id, w->now_ms, &info)
             ? info.state
             : WEIR__RUN_STATE__RUN_STATE_UNKNOWN;
}

#define MODEL_SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The client is told once the run is in the store. */
static void run_submit(struct world *w, int run) {
  Weir__RunSpec *spec = labels_spec(w, run);
  struct run_submission submission = {.id = w->runs[run].id,
                                      .spec = spec,
                                      .model_bytes = 10,
                                      .model_sha256 = "feed",
                                      .parameters = 654,
                                      .block_elems = world_block_elems,
                                      .n_blocks = BLOCKS,
                                      .weights_sha256 = w->plan.steps ? NULL : MODEL_SHA256};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  struct fork_terms terms;
  if (!w->runs[run].is_submitted && !w->is_store_away && !forks_wait(w, run)) {
    w->runs[run].is_submitted = true;
    forks_submit(w, run, &submission, &terms);
    spec->train->has_hold &= spec->train->hold > submission.origin.step; /* a fork's lies behind its base */
    world_step(w, &event);
    forks_store(w, run, &submission);
    while (!w->runs[run].record)
      job_execute(w, true);
  }
  spec_free(spec);
}

static void run_resume(struct world *w, int run, bool is_newest) {
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  struct coordinator_event event = {.kind = EVENT_RUN_RESUMED, .resumed = {w->runs[run].id, 0}};
  arena_init(&arena);
  if (coordinator_list_checkpoints(w->core, w->runs[run].id, &arena, &reply) && reply.n_checkpoints) {
    size_t pick = is_newest ? reply.n_checkpoints : world_roll(w, reply.n_checkpoints + 1);
    while (pick && reply.checkpoints[pick - 1]->unreadable)
      pick--;
    event.resumed.step = pick ? reply.checkpoints[pick - 1]->step : 0;
  }
  if (w->runs[run].is_base_to_come)
    event.resumed.step = w->runs[run].base_step;
  arena_fini(&arena);
  world_step(w, &event);
}

static void store_toggle(struct world *w, bool is_away) {
  struct coordinator_event event = {.kind = EVENT_STORE,
                                    .store_message = is_away ? "connection refused" : ""};
  w->is_store_away = is_away;
  if (w->core)
    world_step(w, &event);
}

/* It comes back with nothing, and is given again what the coordinator has. */
static void store_emptied(struct world *w) {
  struct coordinator_event event = {.kind = EVENT_STORE_EMPTIED};
  if (!w->core || w->is_store_away || w->runs[RUNS - 1].base_step) /* a fork may not survive it */
    return;
  for (int i = 0; i < RUNS; i++) {
    struct stored_run *run = &w->runs[i];
    for (int step = 0; step <= STEPS; step++)
      checkpoint_clear(&run->checkpoints[step]);
    while (run->n_events)
      message_free(run->events[--run->n_events]);
    run->next_event = 0;
    run->is_record_lost |= run->record != NULL;
    message_free(run->record);
    run->record = NULL;
  }
  world_step(w, &event);
  while (w->n_jobs) /* what was under way is for the new one; commits find no incarnation that fits */
    job_execute(w, true);
  for (int i = 0; i < RUNS; i++)
    store_events(w, i, UINT64_MAX);
}

/* A worker says that a group is no more: its own, or one of before. */
static void lose_group(struct world *w, struct process *worker) {
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  int run = (int)world_roll(w, RUNS);
  failed.run = w->runs[run].id;
  failed.incarnation = worker->hosted[run].incarnation;
  failed.view = worker->hosted[run].view;
  failed.group = worker->hosted[run].group + (uint32_t)(world_roll(w, 4) == 0);
  if (worker->role == WEIR__ROLE__WORKER && worker->key)
    process_tells(worker, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
}

static void worker_leaves(struct process *process) {
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  if (process->role == WEIR__ROLE__WORKER)
    process_tells(process, WEIR__MEMBER_MESSAGE__BODY_LEAVING, &leaving);
}

static void a_workers_accident(struct world *w, struct process *worker) {
  switch (world_roll(w, 8)) {
  case 0:
    worker_leaves(worker);
    break;
  case 1:
  case 2:
    lose_group(w, worker);
    break;
  case 3:
  case 4:
    w->is_cut[worker->slot][world_roll(w, SERVERS)] ^= true;
    break;
  case 5:
    worker->is_hung ^= true;
    break;
  case 6: /* its link, or what it computes on, is another now */
    worker->version_ms = worker->version_ms > 1000 ? 20 : 2000;
    worker->microbatch_ms = 20 + world_roll(w, 100);
    break;
  default:
    claim_ready(w, worker);
    break;
  }
}

/* Or mends it: of a worker, or of the coordinator, to a server. */
static void break_a_way(struct world *w) {
  uint64_t server = world_roll(w, SERVERS), from = world_roll(w, WORKERS + 1);
  if (from < WORKERS)
    w->is_cut[SERVERS + from][server] ^= true;
  else
    w->processes[server].is_unheard ^= true;
}

static void an_accident(struct world *w) {
  struct process *process = &w->processes[world_roll(w, PROCESSES)];
  int run = (int)world_roll(w, RUNS);
  struct coordinator_event event = {.run = w->runs[run].id};
  switch (world_roll(w, 24)) {
  case 0:
  case 1:
    process_kill(w, process);
    break;
  case 2:
  case 3:
    process_unlink(w, process);
    break;
  case 4:
    process->is_frozen = process->key != 0;
    break;
  case 5:
  case 6:
    if (w->core && world_roll(w, 2))
      coordinator_dies(w);
    break;
  case 7:
    store_toggle(w, !w->is_store_away);
    break;
  case 8:
    forks_damage(w, run);
    break;
  case 9:
  case 10:
    event.kind = EVENT_RUN_PAUSED;
    if (w->core)
      world_step(w, &event);
    break;
  case 11:
    event.kind = EVENT_RUN_CANCELLED;
    if (w->core && world_roll(w, 3) == 0)
      world_step(w, &event);
    break;
  case 12:
    if (world_roll(w, 10) == 0)
      store_emptied(w);
    break;
  case 13: /* the coordinator was frozen */
    w->now_ms += world_roll(w, 2 * MISSING_MS);
    break;
  case 14:
  case 15:
  case 16:
  case 17:
    a_workers_accident(w, &w->processes[SERVERS + world_roll(w, WORKERS)]);
    break;
  case 18:
    break_a_way(w);
    break;
  case 19:
    people_change(w, run);
    break;
  default:
    break;
  }
}

static void time_passes(struct world *w) {
  bool is_second;
  uint64_t passed_ms = world_roll(w, 200);
  w->now_ms += passed_ms;
  for (int i = SERVERS; i < PROCESSES; i++)
    for (int run = 0; run < RUNS; run++)
      worker_compute(w, &w->processes[i], run, passed_ms);
  is_second = w->now_ms / 1000 != w->ticked_ms / 1000;
  if (!w->core || w->now_ms - w->ticked_ms < 100)
    return;
  w->ticked_ms = w->now_ms;
  for (int i = 0; i < PROCESSES && is_second; i++)
    process_beat(w, &w->processes[i]);
  world_step(w, &(struct coordinator_event){.kind = EVENT_TICK});
}

static void people_act(struct world *w) {
  liars_readmit(w, !w->is_calm && world_roll(w, 4) == 0);
  for (int i = 0; i < RUNS; i++) {
    Weir__RunState state = state_of(w, i);
    w->paused += state == WEIR__RUN_STATE__PAUSED;
    w->held += state == WEIR__RUN_STATE__HELD;
    if (state == WEIR__RUN_STATE__RUN_STATE_UNKNOWN)
      run_submit(w, i);
    else if (forks_give_up(w, i, state))
      continue;
    else if (state == WEIR__RUN_STATE__PAUSED || state == WEIR__RUN_STATE__FAILED ||
             state == WEIR__RUN_STATE__CANCELLED)
      run_resume(w, i, w->is_calm || world_roll(w, 3));
    else if (state == WEIR__RUN_STATE__HELD && world_roll(w, 3) == 0)
      people_raise(w, i);
  }
}

static void world_turn(struct world *w) {
  time_passes(w);
  if (!w->is_calm && world_roll(w, 4) == 0)
    an_accident(w);
  if (!w->core && !w->is_store_away && (w->is_calm || world_roll(w, 8) == 0)) {
    coordinator_begins(w);
    w->successions++;
  }
  for (int i = 0; i < PROCESSES; i++) {
    struct process *process = &w->processes[i];
    if (!process->is_alive && !w->is_calm && world_roll(w, 10) == 0)
      process_begin(w, i);
    if (world_roll(w, 3) == 0)
      process_join(w, process);
    while (w->core && process->key && world_roll(w, 4))
      deliver_up(w, process);
    while (process->key && world_roll(w, 4))
      deliver_down(w, process);
    for (int run = 0; run < RUNS; run++) {
      if (world_roll(w, 3) == 0)
        process_load(w, process, run);
      if (process->role == WEIR__ROLE__SERVER && world_roll(w, 2))
        server_advance(w, process, run);
      if (process->role == WEIR__ROLE__SERVER && world_roll(w, 3) == 0)
        server_write(w, process, run);
      if (process->role == WEIR__ROLE__SERVER && world_roll(w, 4) == 0)
        liars_tell_late(w, process, run);
      if (process->role == WEIR__ROLE__WORKER && world_roll(w, 8) == 0)
        worker_look(w, process, run);
    }
  }
  if (!w->core)
    return;
  if (world_roll(w, 4) == 0)
    deliver_leaving(w);
  if (w->n_jobs && world_roll(w, 2))
    job_execute(w, true);
  if (!w->is_store_away && world_roll(w, 8) == 0)
    for (int i = 0; i < RUNS; i++)
      store_events(w, i, UINT64_MAX);
  if (world_roll(w, 10) == 0)
    people_act(w);
}

static void world_init(struct world *w, uint64_t seed) {
  static const char *const checkpoints[] = {"every_steps: 7", "every_seconds: 2",
                                            "every_steps: 9, keep_best: accuracy", "every_seconds: 1000000"};
  static const char *const collectives[] = {"shm", "none", "shm", "auto"};
  int steps = seed % 8 == 7 ? 0 : STEPS; /* some only evaluate */
  struct err err = ERR_NONE;
  char text[1024];
  snprintf(text, sizeof text,
           "name: mlp\nmodel: {onnx: mlp.onnx, loss: cross_entropy}\n"
           "data: {train: {format: idx, images: i, labels: l}, eval: {format: idx, images: i, labels: l}}\n"
           "train: {steps: %d, batch: %d, microbatches: 4, collective: %s, optimizer: {name: sgd, lr: 0.1}}\n"
           "%scheckpoint: {%s, keep: %llu}\nworkers: {min: %llu}\n",
           steps, BATCH, collectives[seed % 4], seed % 3 ? "" : "eval: {every_steps: 3}\n",
           checkpoints[seed % 4], (unsigned long long)(1 + seed % 3), (unsigned long long)(1 + seed % 2));
  *w = (struct world){.seed = seed, .now_ms = 1000};
  assert_int_equal(spec_read("spec", text, strlen(text), &w->spec, &err), 0);
  holds_begin(w);
  early_stopping_begin(w);
  assert_int_equal(spec_check(w->spec, &err), 0);
  assert_int_equal(plan_init(&w->plan, w->spec, SAMPLES, seed % 5 || !steps ? 50 : 0, &err), 0);
  for (int i = 0; i < RUNS; i++)
    snprintf(w->runs[i].id, sizeof w->runs[i].id, "mlp-%06d", i);
  liars_begin(w, seed % 2 ? -1 : SERVERS);
  for (int i = 0; i < PROCESSES; i++)
    process_begin(w, i);
  coordinator_begins(w);
}

static void world_fini(struct world *w) {
  liars_end(w);
  job_forget(w);
  coordinator_free(w->core);
  coordinator_actions_fini(&w->actions);
  spec_free(w->spec);
  for (int i = 0; i < PROCESSES; i++) {
    queue_clear(&w->processes[i].up);
    queue_clear(&w->processes[i].down);
  }
  for (int i = 0; i < RUNS; i++) {
    struct stored_run *run = &w->runs[i];
    message_free(run->record);
    for (int step = 0; step <= STEPS; step++)
      checkpoint_clear(&run->checkpoints[step]);
    while (run->n_events)
      message_free(run->events[--run->n_events]);
    free(run->events);
  }
}

static bool all_done(struct world *w) {
  for (int i = 0; i < RUNS; i++)
    if (!w->core || state_of(w, i) != WEIR__RUN_STATE__DONE)
      return false;
  return true;
}

/* All ways are well, but in some worlds those of one worker to one server, or of all to one server, or of the
   coordinator to one. */
static void mend_links(struct world *w) {
  memset(w->is_cut, 0, sizeof w->is_cut);
  if (w->seed % 3 == 1)
    w->is_cut[PROCESSES - 1][0] = true;
  for (int i = SERVERS; i < PROCESSES; i++)
    w->is_cut[i][1] = w->seed % 3 == 2;
  for (int i = 0; i < PROCESSES; i++)
    w->processes[i].is_unheard = i == 2 && w->seed % 3 == 0;
}

static void world_simulate(struct world *w, uint64_t seed, int troubled_turns) {
  int turns = 0;
  world_init(w, seed);
  while (turns++ < troubled_turns)
    world_turn(w);
  w->is_calm = true;
  store_toggle(w, false);
  mend_links(w);
  for (int i = 0; i < PROCESSES; i++) {
    w->processes[i].is_frozen = w->processes[i].is_hung = false;
    if (i == 0 || i >= PROCESSES - 2) { /* one server and two workers are enough */
      process_kill(w, &w->processes[i]);
      process_begin(w, i);
    }
  }
  w->processes[PROCESSES - 2].is_hung =
      w->seed % 5 == 3 && w->seed % 3 != 1; /* one that others can do without */
  for (turns = 0; !all_done(w) && turns < 6000; turns++)
    world_turn(w);
  if (!all_done(w))
    fail_msg("seed %llu: a run does not come to its end", (unsigned long long)seed);
  for (int i = 0; i < RUNS; i++)
    check_told(w, i);
}

static uint64_t seed_at;

static bool has_passed;

static int name_the_seed(void **state) {
  (void)state;
  if (!has_passed)
    print_message("seed %llu: SEED=%llu runs it alone, with its log\n", (unsigned long long)seed_at,
                  (unsigned long long)seed_at);
  return 0;
}

/* Of all worlds. */
static struct { int awaited, based, inherited, in_vain; } forks;

static void forks_add(const struct world *w) {
  forks.awaited += w->awaited;
  forks.based += w->based;
  forks.inherited += w->inherited;
  forks.in_vain += w->in_vain;
}

static void forks_report(bool have_to_be) {
  print_message("%d forks of versions to come, %d began, %d found by a successor, %d waited in vain\n",
                forks.awaited, forks.based, forks.inherited, forks.in_vain);
  assert_true(!have_to_be || (forks.awaited && forks.based && forks.inherited && forks.in_vain));
}

static struct { int doubted, convicted, reissued; } lies;

static void lies_add(const struct world *w) {
  lies.doubted += w->doubted;
  lies.convicted += w->convicted;
  lies.reissued += w->reissued;
}

static void lies_report(bool have_to_be) {
  print_message("%d sums doubted, %d seen in quarantine, %d orders that reissue\n", lies.doubted,
                lies.convicted, lies.reissued);
  assert_true(!have_to_be || (lies.doubted && lies.convicted && lies.reissued));
}

static void runs_end_as_promised_whatever_happens(void **state) {
  uint64_t first = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 0;
  uint64_t seeds = getenv("SEEDS") ? strtoull(getenv("SEEDS"), NULL, 10) : getenv("SEED") ? 1 : 400;
  int rolled_back = 0, successions = 0, paused = 0, kept = 0, too_late = 0, lost = 0, cut_off = 0,
      given_up = 0, following = 0, late = 0, set_aside = 0, confirmed = 0, offered = 0, adopted = 0, held = 0,
      raised = 0, ended_early = 0, wishes = 0, reoffered = 0, seated_beside = 0;
  struct world *w = malloc(sizeof *w);
  (void)state;
  for (uint64_t seed = first; seed < first + seeds; seed++) {
    seed_at = seed;
    world_simulate(w, seed, 600);
    rolled_back += w->rolled_back;
    successions += w->successions;
    paused += w->paused;
    kept += w->kept;
    too_late += w->too_late;
    lost += w->lost_checkpoints;
    cut_off += w->cut_off;
    given_up += w->given_up;
    following += w->following;
    late += w->late;
    set_aside += w->set_aside;
    confirmed += w->confirmed;
    offered += w->offered;
    adopted += w->adopted;
    held += w->held;
    raised += w->raised;
    ended_early += w->ended_early;
    wishes += w->wishes;
    reoffered += w->reoffered;
    seated_beside += w->seated_beside;
    lies_add(w);
    forks_add(w);
    world_fini(w);
  }
  print_message(
      "%llu seeds: %d loads after roll-backs, %d successions, %d kept, %d paused, %d too late, %d lost, "
      "%d cut off, %d given up, %d following, %d late, %d set aside, %d confirmed, %d told of a parent, %d "
      "with its version, %d held, %d raised, %d ended early, %d wishes restored, %d told by a successor, %d "
      "seated beside\n",
      (unsigned long long)seeds, rolled_back, successions, kept, paused, too_late, lost, cut_off, given_up,
      following, late, set_aside, confirmed, offered, adopted, held, raised, ended_early, wishes, reoffered,
      seated_beside);
  if (seeds > 1) /* the dice did make what is to be survived */
    assert_true(rolled_back && successions && paused && kept && too_late && lost && cut_off && given_up &&
                following && late && set_aside && confirmed && offered && adopted && held && raised &&
                ended_early && wishes && reoffered && seated_beside);
  lies_report(seeds > 1);
  forks_report(seeds > 1);
  free(w);
  has_passed = true;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(runs_end_as_promised_whatever_happens, name_the_seed),
  };
  mallopt(M_TRIM_THRESHOLD, 1 << 26); /* or each event's arena would come from the kernel, and go back */
  log_set_level(getenv("SEED") ? LOG_DEBUG : LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
