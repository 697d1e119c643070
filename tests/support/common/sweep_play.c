/* Sweeps that a test plays to their end, with deaths on the way. */
#include "tests/support/common/sweep_play.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "tests/support/common/sweep_specs.h"

static void keep(struct kept *kept, const Weir__SweepRecord *record) {
  size_t size = weir__sweep_record__get_packed_size(record);
  assert_true(kept->n < RECORDS_MAX);
  kept->records[kept->n] = mem_new(size + 1);
  weir__sweep_record__pack(record, kept->records[kept->n]);
  kept->sizes[kept->n++] = size;
}

void kept_free(struct kept *kept) {
  for (int i = 0; i < kept->n; i++)
    free(kept->records[i]);
}

/* What a successor reads. */
static struct sweep *open_again(const Weir__SweepSpec *spec, const struct kept *kept) {
  struct sweep *sweep = sweep_of_spec(spec);
  for (int i = 0; i < kept->n; i++) {
    Weir__SweepRecord *record = weir__sweep_record__unpack(NULL, kept->sizes[i], kept->records[i]);
    struct err err = ERR_NONE;
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    message_free(record);
  }
  return sweep;
}

struct sweep *sweep_run_of(const struct sweep_play *play, struct kept *kept) {
  *kept = (struct kept){0};
  return sweep_play_on(sweep_of(play->text, NULL, 0), play, kept);
}

void sweep_take(struct sweep *sweep, const Weir__SweepRecord *record, struct kept *kept) {
  struct err err = ERR_NONE;
  keep(kept, record);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
}

void sweep_take_next(struct sweep *sweep) {
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
}

struct sweep *sweep_play_on(struct sweep *sweep, const struct sweep_play *play, struct kept *kept) {
  uint64_t draws = 0;
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(play->text, NULL, 0, &err);
  Weir__SweepRecord *record;
  enum sweep_turn turn;
  while ((turn = sweep_next(sweep, &record)) != SWEEP_OVER) {
    if (turn == SWEEP_DECIDED) {
      sweep_take(sweep, record, kept);
      message_free(record);
    } else { /* any trial that runs may be the next to tell, how far it is or what became of it */
      uint32_t at = (uint32_t)(random_bits(play->seed, draws++) % (uint64_t)sweep->n_trials);
      struct sweep_trial *trial = &sweep->trials[at];
      struct sweep_outcome outcome = play->outcome_of(trial, trial->n_results);
      uint64_t way = random_bits(play->seed + 2, draws) % 8;
      if (trial->may_end_early && way < 4)
        sweep_tell_left(sweep, at, trial->n_results, 0, 1 - (1 - outcome.spared) * (double)way / 4);
      else
        sweep_tell(sweep, at, trial->n_results, &outcome);
    }
    if (play->is_killed && random_bits(play->seed + 1, draws++) % 4 == 0) {
      sweep_free(sweep);
      sweep = open_again(spec, kept);
    }
  }
  message_free(spec);
  return sweep;
}

void assert_same(const struct kept *a, const struct kept *b) {
  assert_int_equal(a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    assert_int_equal(a->sizes[i], b->sizes[i]);
    assert_memory_equal(a->records[i], b->records[i], a->sizes[i]);
  }
}

struct sweep_outcome sweep_draw_outcome(const struct sweep_trial *trial, int rung) {
  uint64_t bits = random_bits(random_key(7, trial->number, 0, 0), (uint64_t)rung);
  return (struct sweep_outcome){.value = (double)(bits >> 40) / 16777216 + rung};
}

void sweep_check_log(const char *text, struct sweep_outcome (*outcome_of)(const struct sweep_trial *, int),
                     uint64_t orders) {
  struct kept first, other;
  sweep_free(sweep_run_of(&(struct sweep_play){text, outcome_of, 1, false}, &first));
  for (uint64_t seed = 2; seed <= orders; seed++) {
    sweep_free(sweep_run_of(&(struct sweep_play){text, outcome_of, seed, seed % 2}, &other));
    assert_same(&first, &other);
    kept_free(&other);
  }
  kept_free(&first);
}
