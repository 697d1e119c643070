#include "tests/support/world/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/world/world_checks.h"
#include "tests/support/world/world_forks.h"
#include "tests/support/world/world_holds.h"
#include "tests/support/world/world_liars.h"

const uint32_t world_block_elems[BLOCKS] = {100, 200, 300, 50, 4};

uint64_t world_roll(struct world *w, uint64_t sides) {
  return random_bits(w->seed, w->dice++) % sides;
}

double accuracy_at(uint64_t version) {
  return (double)(random_bits(77, version) % 1000) / 1000;
}

uint64_t part_bits(uint64_t version, uint32_t microbatch) {
  return random_bits(78, version * MICROBATCHES + microbatch);
}

void block_key(uint32_t block, uint64_t version, char key[65]) {
  snprintf(key, 65, "%032llx%032llx", (unsigned long long)block, (unsigned long long)version);
}

void queue_push(struct queue *queue, const void *message) {
  assert_true(queue->count < QUEUE);
  queue->items[queue->count++] = message_copy(message);
}

void *queue_pop(struct queue *queue) {
  void *first;
  if (!queue->count)
    return NULL;
  first = queue->items[0];
  memmove(queue->items, queue->items + 1, (size_t)--queue->count * sizeof *queue->items);
  return first;
}

void queue_clear(struct queue *queue) {
  while (queue->count)
    message_free(queue->items[--queue->count]);
}

int run_index(const struct world *w, const char *id) {
  for (int i = 0; i < RUNS; i++)
    if (strcmp(w->runs[i].id, id) == 0)
      return i;
  fail_msg("an order names run '%s'", id);
  return -1;
}

static struct process *process_of(struct world *w, uint64_t key) {
  for (int i = 0; key && i < PROCESSES; i++)
    if (w->processes[i].key == key)
      return &w->processes[i];
  return NULL;
}

int set_index(const struct server_set *set, const struct process *process) {
  for (int i = 0; i < set->n; i++)
    if (set->slots[i] == process->slot && set->pids[i] == process->pid)
      return i;
  return -1;
}

struct server_set *set_of(struct world *w, int run, uint64_t incarnation) {
  assert_true(incarnation < INCARNATIONS);
  return &w->runs[run].sets[incarnation];
}

int newest_checkpoint(const struct stored_run *run) {
  int step = STEPS;
  while (step > 0 && !run->checkpoints[step].exists)
    step--;
  return step;
}

uint32_t group_in(const Weir__View *view, const char *worker) {
  for (size_t i = 0; i < view->n_workers; i++)
    if (strcmp(view->workers[i]->worker, worker) == 0)
      return view->workers[i]->group;
  return 0;
}

static void check_commit(struct world *w, const struct coordinator_action *action) {
  const Weir__Manifest *manifest = action->manifest;
  const int run = run_index(w, manifest->run);
  assert_int_equal(manifest->term, w->term);
  assert_int_equal(manifest->incarnation, w->runs[run].top);
  assert_int_equal(manifest->n_blocks, BLOCKS);
  assert_true(!action->is_last || manifest->step == early_stopping_last(w, run));
  assert_true(action->is_last || manifest->step < STEPS);
  forks_check_commit(w, manifest);
  for (uint32_t i = 0; i < BLOCKS; i++) { /* every block, all of one version */
    char key[65];
    block_key(i, manifest->step, key);
    assert_string_equal(manifest->blocks[i]->sha256, key);
  }
}

/* What is dropped for its age is neither among the newest nor the best. */
static void check_drop(struct world *w, const struct coordinator_action *action) {
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  const Weir__CheckpointSpec *spec = w->spec->checkpoint;
  struct stored_checkpoint *stored = &w->runs[run_index(w, action->run)].checkpoints[action->step];
  size_t newer = 0;
  bool is_beaten = false;
  arena_init(&arena);
  assert_true(coordinator_list_checkpoints(w->core, action->run, &arena, &reply));
  for (size_t i = 0; i < reply.n_checkpoints; i++) {
    assert_true(reply.checkpoints[i]->step != action->step);
    newer += reply.checkpoints[i]->step > action->step && !reply.checkpoints[i]->unreadable;
    is_beaten |=
        !isnan(reply.checkpoints[i]->accuracy) && reply.checkpoints[i]->accuracy >= accuracy_at(action->step);
  }
  if (newer > 0 && !stored->is_leftover) {
    assert_true(newer >= spec->keep);
    assert_true(is_beaten || !spec->keep_best || !plan_evaluates(&w->plan, action->step) ||
                stored->is_damaged); /* of no use */
  }
  stored->is_dropped = true;
  arena_fini(&arena);
}

/* That a run has stopped, as clients are told, is in the store, unless that has lost it since. */
static void check_stop(const struct stored_run *run, Weir__RunState told) {
  bool has_stopped = told == WEIR__RUN_STATE__DONE || told == WEIR__RUN_STATE__FAILED ||
                     told == WEIR__RUN_STATE__CANCELLED || told == WEIR__RUN_STATE__PAUSED;
  if (has_stopped && !run->is_record_lost)
    assert_true(run->record && run->record->state == told);
}

static void check_lists(struct world *w) {
  for (int i = 0; i < RUNS; i++) {
    struct arena arena;
    Weir__ListCheckpointsReply reply;
    Weir__RunInfo info;
    arena_init(&arena);
    if (coordinator_list_checkpoints(w->core, w->runs[i].id, &arena, &reply)) {
      size_t readable = 0;
      for (size_t k = 0; k < reply.n_checkpoints; k++)
        readable += !reply.checkpoints[k]->unreadable;
      assert_true(readable <= w->spec->checkpoint->keep + (w->spec->checkpoint->keep_best != NULL) +
                                  (w->runs[i].base_step > 0));
      for (size_t k = 1; k < reply.n_checkpoints; k++)
        assert_true(reply.checkpoints[k - 1]->step < reply.checkpoints[k]->step);
      assert_true(coordinator_run_info(w->core, w->runs[i].id, w->now_ms, &info));
      assert_true(info.step <= STEPS);
      check_stop(&w->runs[i], info.state);
      w->confirmed += strstr(info.message, "but workers reach it") != NULL;
      if (info.state == WEIR__RUN_STATE__RUNNING)
        check_reach(w, w->runs[i].id);
      if (info.state == WEIR__RUN_STATE__PAUSED) /* holds nothing */
        assert_true(info.workers == 0 && info.servers == 0);
      if (info.state == WEIR__RUN_STATE__HELD) /* nor workers */
        assert_int_equal(info.workers, 0);
    }
    arena_fini(&arena);
  }
}

static void job_add(struct world *w, const struct coordinator_action *action) {
  struct job *job;
  int run = run_index(w, action->run);
  for (int i = 0; action->kind == ACTION_SAVE && i < w->n_jobs; i++)
    if (w->jobs[i].kind == JOB_SAVE && w->jobs[i].run == run) { /* the newest is enough */
      message_free(w->jobs[i].record);
      w->jobs[i].record = message_copy(action->record);
      w->jobs[i].is_awaited = action->is_awaited;
      return;
    }
  assert_true(w->n_jobs < QUEUE);
  job = &w->jobs[w->n_jobs++];
  *job = (struct job){.run = run, .step = action->step, .is_last = action->is_last};
  if (action->kind == ACTION_SAVE) {
    job->kind = JOB_SAVE;
    job->record = message_copy(action->record);
    job->is_awaited = action->is_awaited;
  } else if (action->kind == ACTION_COMMIT) {
    struct run_event_view view;
    job->kind = JOB_COMMIT;
    job->manifest = message_copy(action->manifest);
    job->step = action->manifest->step;
    for (uint64_t at = 0; coordinator_run_event(w->core, action->run, at, &view); at = view.event.number + 1)
      job->until_event = view.event.number + 1;
  } else
    job->kind = action->kind == ACTION_BASE ? JOB_BASE : JOB_DROP;
}

void store_events(struct world *w, int at, uint64_t until) {
  struct stored_run *run = &w->runs[at];
  struct run_event_view view;
  while (coordinator_run_event(w->core, run->id, run->next_event, &view) && view.event.number < until) {
    array_reserve((void **)&run->events, &run->events_capacity, run->n_events, sizeof *run->events);
    run->events[run->n_events++] = message_copy(&view.event);
    run->next_event = view.event.number + 1;
  }
}

void checkpoint_clear(struct stored_checkpoint *checkpoint) {
  message_free(checkpoint->info);
  *checkpoint = (struct stored_checkpoint){0};
}

static void commit_execute(struct world *w, struct job *job, bool is_told) {
  struct stored_run *run = &w->runs[job->run];
  struct stored_checkpoint *checkpoint = &run->checkpoints[job->step];
  Weir__CheckpointInfo info = WEIR__CHECKPOINT_INFO__INIT;
  struct coordinator_event event = {
      .kind = EVENT_CHECKPOINT,
      .checkpoint = {
          .run = run->id, .incarnation = job->manifest->incarnation, .step = job->step, .info = &info}};
  bool is_fenced = !run->record || run->record->incarnation != job->manifest->incarnation;
  if (w->is_store_away || is_fenced || (!w->is_calm && world_roll(w, 8) == 0))
    event.checkpoint.error = is_fenced ? "stale incarnation" : "connection refused";
  else {
    store_events(w, job->run, job->until_event);
    info.step = job->step;
    info.incarnation = job->manifest->incarnation;
    info.accuracy = job->manifest->eval_step == job->step ? job->manifest->accuracy : (double)NAN;
    info.eval_loss = info.accuracy;
    info.weights_sha256 =
        job->is_last ? "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" : "";
    checkpoint_clear(checkpoint);
    checkpoint->exists = true;
    checkpoint->incarnation = info.incarnation;
    checkpoint->info = message_copy(&info);
  }
  if (is_told)
    world_step(w, &event);
}

void job_execute(struct world *w, bool is_told) {
  struct job job = w->jobs[0];
  struct stored_run *run = &w->runs[job.run];
  if (job.kind == JOB_SAVE && (w->is_store_away || forks_save_is_slow(w, job.run, job.record)))
    return;
  memmove(w->jobs, w->jobs + 1, (size_t)--w->n_jobs * sizeof *w->jobs);
  if (job.kind == JOB_SAVE && !forks_save_base(w, job.run, job.record, is_told)) {
    message_free(job.record);
  } else if (job.kind == JOB_SAVE) {
    struct coordinator_event event = {.kind = EVENT_RUN_SAVED,
                                      .saved = {run->id, job.record->incarnation, job.record->state}};
    assert_true(!run->record || run->record->incarnation <= job.record->incarnation);
    message_free(run->record);
    run->record = job.record;
    run->is_record_lost = false;
    if (job.is_awaited && is_told)
      world_step(w, &event);
  } else if (job.kind == JOB_COMMIT) {
    commit_execute(w, &job, is_told);
    message_free(job.manifest);
  } else if (job.kind == JOB_BASE) {
    if (is_told)
      forks_find_base(w, job.run);
  } else {
    struct coordinator_event event = {.kind = EVENT_CHECKPOINT_DROPPED, .dropped = {run->id, job.step}};
    if (!w->is_store_away && (w->is_calm || world_roll(w, 8))) /* else it is left for a sweep */
      checkpoint_clear(&run->checkpoints[job.step]);
    if (is_told)
      world_step(w, &event);
  }
}

void job_forget(struct world *w) {
  while (w->n_jobs) {
    message_free(w->jobs[--w->n_jobs].record);
    message_free(w->jobs[w->n_jobs].manifest);
  }
}

void world_step(struct world *w, const struct coordinator_event *event) {
  assert_non_null(w->core);
  coordinator_step(w->core, event, w->now_ms, &w->actions);
  for (int i = 0; i < w->actions.count; i++) {
    const struct coordinator_action *action = &w->actions.items[i];
    struct process *process = process_of(w, action->member);
    if (action->kind == ACTION_ORDER) {
      check_order(w, process, action->order);
      if (process && action->order->body_case != WEIR__ORDER__BODY_BEAT) /* which it obeys in nothing */
        queue_push(&process->down, action->order);
    } else if (action->kind == ACTION_CLOSE && process) {
      queue_clear(&process->up);
      queue_clear(&process->down);
      process->key = 0;
      process->is_frozen = false;
    } else if (action->kind == ACTION_COMMIT) {
      check_commit(w, action);
      job_add(w, action);
    } else if (action->kind == ACTION_DROP) {
      check_drop(w, action);
      job_add(w, action);
    } else if (action->kind == ACTION_BASE) {
      job_add(w, action);
    } else if (action->kind == ACTION_SAVE) {
      struct stored_run *run = &w->runs[run_index(w, action->run)];
      assert_true(action->record->incarnation >= run->saved_top);
      assert_true(action->record->incarnation < INCARNATIONS);
      while (run->saved_top < action->record->incarnation) /* several may begin in one step of the core */
        run->bases[++run->saved_top] = action->record->base_step;
      job_add(w, action);
    }
    if (action->kind == ACTION_MEMBERS)
      liars_save(w, action->members);
    assert_true(action->kind != ACTION_DEPOSED);
  }
  check_given(w);
  check_lists(w);
  liars_check(w);
}

void coordinator_dies(struct world *w) {
  while (w->n_jobs && !w->is_store_away && world_roll(w, 3)) /* what it had under way may still be done */
    job_execute(w, false);
  job_forget(w);
  coordinator_free(w->core);
  w->core = NULL;
  w->n_leaving = 0;
  for (int i = 0; i < PROCESSES; i++) {
    struct process *process = &w->processes[i];
    process->key = 0;
    process->is_frozen = false;
    queue_clear(&process->up);
    queue_clear(&process->down);
  }
}

/* As the record says. */
static bool is_passed_over(const Weir__RunRecord *record, const Weir__CheckpointInfo *info) {
  for (size_t i = 0; i < record->n_checkpoints; i++)
    if (record->checkpoints[i]->step == info->step &&
        record->checkpoints[i]->incarnation == info->incarnation)
      return record->checkpoints[i]->unreadable;
  return false;
}

/* What people wished, and the store knows, comes to pass under the next coordinator. */
static void check_wish(struct world *w, const struct stored_run *run) {
  Weir__RunInfo info;
  bool is_pausing = run->record->ending == WEIR__ENDING__PAUSING;
  assert_true(coordinator_run_info(w->core, run->id, w->now_ms, &info));
  if (is_pausing && info.state == WEIR__RUN_STATE__RUNNING)
    assert_non_null(strstr(info.message, "pausing"));
  w->wishes += is_pausing;
}

static void restore_run(struct world *w, struct stored_run *run) {
  struct coordinator_event event = {
      .kind = EVENT_RUN_RESTORED,
      .restored = {.record = run->record, .events = run->events, .n_events = (size_t)run->n_events}};
  Weir__RunRecord *record = run->record;
  Weir__CheckpointInfo *list[STEPS + 1];
  size_t n = 0;
  for (int step = 1; step <= STEPS; step++)
    if (run->checkpoints[step].exists) {
      run->checkpoints[step].info->unreadable = is_passed_over(record, run->checkpoints[step].info);
      list[n++] = run->checkpoints[step].info;
      run->checkpoints[step].is_leftover |= run->checkpoints[step].is_dropped;
      run->checkpoints[step].is_dropped = false; /* known again; it may have to be dropped again */
    }
  Weir__RunRecord given = *record;
  given.checkpoints = list;
  given.n_checkpoints = n;
  event.restored.record = &given;
  run->saved_top = record->incarnation;
  w->inherited += record->base_to_come && record->state == WEIR__RUN_STATE__QUEUED;
  world_step(w, &event);
  check_wish(w, run);
}

void coordinator_begins(struct world *w) {
  struct coordinator_options options = {
      .term = ++w->term, .missing_after_ms = MISSING_MS, .server_grace_ms = GRACE_MS, .follow_ms = FOLLOW_MS};
  w->core = coordinator_new(&options);
  w->ticked_ms = w->now_ms;
  if (liars_saved(w))
    world_step(w, &(struct coordinator_event){.kind = EVENT_MEMBERS_RESTORED, .members = liars_saved(w)});
  for (int i = 0; i < RUNS; i++)
    if (w->runs[i].record)
      restore_run(w, &w->runs[i]);
    else
      w->runs[i].is_submitted = false; /* the client was not told that it was */
}
