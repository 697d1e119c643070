#include "tests/support/world/world_forks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/to_come.h"
#include "tests/support/world/world_holds.h"

enum { PARENT, FORK }; /* runs */

static bool has_fork_to_come(const struct world *w, int run) {
  return w->seed % 4 == 0 && run == FORK;
}

static bool has_fork(const struct world *w, int run) {
  return (w->seed % 4 == 2 && run == FORK) || has_fork_to_come(w, run);
}

/* Of the parent, which it has not come to; 0: there is none. */
static uint64_t find_to_come(const struct world *w) {
  const char *parent = w->runs[PARENT].id;
  Weir__RunInfo info;
  uint64_t step;
  if (!coordinator_run_info(w->core, parent, w->now_ms, &info))
    return 0;
  step = info.step + 1 + w->seed / 4 % 12;
  return step < early_stopping_last(w, PARENT) && coordinator_version_is_to_come(w->core, parent, step) ? step
                                                                                                        : 0;
}

/* The newest that may be forked; 0: none. */
static int find_base(const struct world *w) {
  for (int step = STEPS - 1; step > 0; step--) {
    const struct stored_checkpoint *checkpoint = &w->runs[PARENT].checkpoints[step];
    if (checkpoint->exists && !checkpoint->is_damaged && !checkpoint->is_dropped && !checkpoint->is_leftover)
      return step;
  }
  return 0;
}

bool forks_wait(const struct world *w, int run) {
  const Weir__RunRecord *parent = w->runs[PARENT].record;
  bool is_over = parent && parent->state == WEIR__RUN_STATE__DONE;
  if (has_fork_to_come(w, run))
    return !parent || coordinator_plan_is_to_come(w->core, w->runs[PARENT].id);
  return has_fork(w, run) && !is_over && !find_base(w);
}

void forks_submit(struct world *w, int run, struct run_submission *submission, struct fork_terms *terms) {
  bool is_to_come = has_fork_to_come(w, run);
  uint64_t step = is_to_come ? find_to_come(w) : (uint64_t)find_base(w);
  if (!has_fork(w, run) || !step)
    return;
  submission->origin = (struct run_origin){.parent = w->runs[PARENT].id,
                                           .step = step,
                                           .incarnation = INCARNATION_UNKNOWN,
                                           .is_to_come = is_to_come};
  fork_terms_init(terms, SAMPLES, w->plan.steps, &submission->origin);
  terms->plan.eval_samples = w->plan.eval_samples;
  submission->inheritance = &terms->inheritance;
  if (is_to_come)
    return;
  terms->base = *w->runs[PARENT].checkpoints[step].info;
  terms->base.incarnation = 0;
  submission->origin.incarnation = w->runs[PARENT].checkpoints[step].incarnation;
}

void forks_store(struct world *w, int run, const struct run_submission *submission) {
  struct stored_run *fork = &w->runs[run];
  struct stored_checkpoint *base = &fork->checkpoints[submission->origin.step];
  if (!submission->inheritance)
    return;
  fork->forked_in = w->term;
  fork->base_step = submission->origin.step;
  fork->is_base_to_come = submission->origin.is_to_come;
  w->awaited += fork->is_base_to_come;
  if (fork->is_base_to_come)
    return;
  fork->base_made_by = submission->origin.incarnation;
  base->exists = true;
  base->info = message_copy(submission->inheritance->base);
}

/* The parent's checkpoint with which the fork begins; NULL: there is none, for now. */
static struct stored_checkpoint *parents_base(struct world *w) {
  struct stored_checkpoint *base = &w->runs[PARENT].checkpoints[w->runs[FORK].base_step];
  return base->exists ? base : NULL;
}

void forks_find_base(struct world *w, int run) {
  struct stored_run *fork = &w->runs[run];
  const struct stored_checkpoint *base = w->is_store_away ? NULL : parents_base(w);
  struct coordinator_event event = {.kind = EVENT_RUN_BASED, .based = {.run = fork->id}};
  Weir__CheckpointInfo info;
  if (!fork->is_base_to_come || coordinator_run_is_over(w->core, fork->id))
    return;
  if (base) {
    info = *base->info;
    info.incarnation = 0;
    event.based.base = &info;
    event.based.incarnation = fork->base_made_by = base->incarnation;
  }
  world_step(w, &event);
}

static bool brings_base(const struct world *w, int run, const Weir__RunRecord *record) {
  return w->runs[run].is_base_to_come && !record->base_to_come;
}

bool forks_save_is_slow(struct world *w, int run, const Weir__RunRecord *record) {
  return brings_base(w, run, record) && world_roll(w, 16);
}

bool forks_save_base(struct world *w, int run, const Weir__RunRecord *record, bool is_told) {
  struct stored_run *fork = &w->runs[run];
  struct stored_checkpoint *own = &fork->checkpoints[fork->base_step];
  struct coordinator_event event = {.kind = EVENT_RUN_BASED,
                                    .based = {.run = fork->id, .error = "there is no such checkpoint"}};
  if (!brings_base(w, run, record))
    return true;
  if (!parents_base(w)) {
    if (is_told)
      world_step(w, &event);
    return false;
  }
  checkpoint_clear(own);
  own->exists = true;
  own->incarnation = record->incarnation;
  own->info = message_copy(parents_base(w)->info);
  own->info->incarnation = record->incarnation;
  if (!is_told && world_roll(w, 3) == 0)
    return false;
  fork->is_base_to_come = false;
  w->based++;
  return true;
}

bool forks_give_up(struct world *w, int run, Weir__RunState state) {
  struct stored_run *fork = &w->runs[run];
  bool is_over = state == WEIR__RUN_STATE__FAILED || state == WEIR__RUN_STATE__CANCELLED;
  if (!fork->is_base_to_come || !is_over || w->is_store_away || world_roll(w, 2))
    return false;
  for (int i = w->n_jobs - 1; i >= 0; i--)
    if (w->jobs[i].run == run) {
      message_free(w->jobs[i].record);
      memmove(w->jobs + i, w->jobs + i + 1, (size_t)(--w->n_jobs - i) * sizeof *w->jobs);
    }
  checkpoint_clear(&fork->checkpoints[fork->base_step]);
  message_free(fork->record);
  while (fork->n_events)
    message_free(fork->events[--fork->n_events]);
  fork->record = NULL;
  fork->next_event = fork->saved_top = fork->base_step = 0;
  fork->is_submitted = fork->is_base_to_come = fork->is_record_lost = false;
  w->in_vain++;
  world_step(w, &(struct coordinator_event){.kind = EVENT_RUN_FORGOTTEN, .run = fork->id});
  return true;
}

void forks_check_commit(struct world *w, const Weir__Manifest *manifest) {
  const struct stored_run *fork = &w->runs[FORK];
  Weir__RunInfo info;
  if (run_index(w, manifest->run) != PARENT || !fork->is_base_to_come ||
      !coordinator_run_info(w->core, fork->id, w->now_ms, &info))
    return;
  if (info.state == WEIR__RUN_STATE__QUEUED && !coordinator_run_awaits_store(w->core, fork->id))
    assert_true(manifest->step <= fork->base_step);
}

/* A fork's blocks are its parent's. */
void forks_damage(struct world *w, int run) {
  struct stored_run *damaged = &w->runs[run];
  int step = newest_checkpoint(damaged);
  bool is_base = has_fork_to_come(w, FORK) && step == (int)w->runs[FORK].base_step;
  if (step > (int)damaged->base_step && !is_base)
    damaged->checkpoints[step].is_damaged = true;
}

/* What an incarnation has at a version is what the one that made the checkpoint had, if it is that one or
   began with that checkpoint. */
static bool has_base(const struct world *w, const struct stored_run *fork, uint64_t incarnation) {
  const struct stored_run *parent = &w->runs[PARENT];
  if (incarnation == fork->base_made_by)
    return true;
  return parent->bases[incarnation] == fork->base_step &&
         parent->checkpoints[fork->base_step].incarnation == fork->base_made_by;
}

void forks_check_load(struct world *w, const struct process *server, const Weir__LoadRun *load) {
  const struct stored_run *fork = &w->runs[run_index(w, load->run)];
  const Weir__ForkSource *from = load->from;
  const struct hosted *parents = &server->hosted[PARENT];
  assert_true(load->step >= fork->base_step);
  if (!from)
    return;
  assert_int_equal(run_index(w, from->run), PARENT);
  assert_true(has_fork(w, run_index(w, load->run)));
  assert_true(from->step == load->step && from->step == fork->base_step);
  assert_true(has_base(w, fork, from->incarnation));
  assert_true(set_index(set_of(w, PARENT, from->incarnation), server) >= 0);
  w->offered++;
  w->reoffered += w->term != fork->forked_in;
  w->adopted +=
      parents->is_loaded && parents->incarnation == from->incarnation && parents->version == from->step;
}
