#include "tests/support/coordinator/world_forks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"

enum { PARENT, FORK }; /* runs */

static bool has_fork(const struct world *w, int run) {
  return w->seed % 4 == 2 && run == FORK;
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
  return has_fork(w, run) && !is_over && !find_base(w);
}

void forks_submit(struct world *w, int run, struct run_submission *submission, struct fork_terms *terms) {
  int step = find_base(w);
  if (!has_fork(w, run) || !step)
    return;
  weir__plan__init(&terms->plan);
  weir__run_reference__init(&terms->reference);
  terms->plan.train_samples = SAMPLES;
  terms->plan.eval_samples = w->plan.eval_samples;
  terms->plan.steps = w->plan.steps;
  terms->reference.worker = "worker-1 (host)";
  terms->reference.dataset_sha256 = "data";
  terms->base = *w->runs[PARENT].checkpoints[step].info;
  terms->base.incarnation = 0;
  terms->inheritance = (struct run_inheritance){&terms->plan, &terms->reference, &terms->base};
  submission->inheritance = &terms->inheritance;
  submission->origin = (struct run_origin){.parent = w->runs[PARENT].id,
                                           .step = (uint64_t)step,
                                           .incarnation = w->runs[PARENT].checkpoints[step].incarnation};
}

void forks_store(struct world *w, int run, const struct run_submission *submission) {
  struct stored_run *fork = &w->runs[run];
  struct stored_checkpoint *base = &fork->checkpoints[submission->origin.step];
  if (!submission->inheritance)
    return;
  fork->forked_in = w->term;
  fork->base_step = submission->origin.step;
  fork->base_made_by = submission->origin.incarnation;
  base->exists = true;
  base->info = message_copy(submission->inheritance->base);
}

void forks_damage(struct stored_run *run) {
  int step = newest_checkpoint(run);
  if (step > (int)run->base_step)
    run->checkpoints[step].is_damaged = true;
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
