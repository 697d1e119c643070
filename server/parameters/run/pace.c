/* The pace of a run's steps. */
#include "server/parameters/run/pace.h"

#include <stdlib.h>
#include <string.h>

enum { UNHEARD = 4 };

const struct pace_options pace_defaults = {.least_ms = 200, .first_ms = 60000, .pause_max_ms = 10000};

void pace_init(struct pace *pace, uint64_t step, uint64_t now_ns) {
  *pace = (struct pace){.step = step,
                        .changed_step = step, /* workers begin at different times */
                        .heard_step = step,   /* whatever a run begins at is complete everywhere */
                        .since_ns = now_ns,
                        .heard_ns = now_ns};
  pthread_mutex_init(&pace->lock, NULL);
}

void pace_fini(struct pace *pace) {
  pthread_mutex_destroy(&pace->lock);
}

static void pace_hear_first(struct pace *pace, uint64_t step, uint64_t now_ns) {
  pthread_mutex_lock(&pace->lock);
  if (pace->heard_step < step) {
    pace->heard_ns = now_ns;
    __atomic_store_n(&pace->heard_step, step, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&pace->lock);
}

void pace_hear(struct pace *pace, uint64_t step, uint64_t view, uint64_t now_ns) {
  uint64_t newest = __atomic_load_n(&pace->newest_view, __ATOMIC_RELAXED);
  while (newest < view)
    if (__atomic_compare_exchange_n(&pace->newest_view, &newest, view, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
      __atomic_store_n(&pace->changed_step, step, __ATOMIC_RELAXED);
      break;
    }
  if (__atomic_load_n(&pace->heard_step, __ATOMIC_RELAXED) < step)
    pace_hear_first(pace, step, now_ns);
}

static void durations_add(struct durations *durations, uint64_t ns) {
  durations->ns[durations->n++ % PACE_STEPS_MAX] = ns;
}

static int order_of(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static uint64_t durations_median(const struct durations *durations) {
  uint64_t sorted[PACE_STEPS_MAX];
  size_t n = durations->n < PACE_STEPS_MAX ? durations->n : PACE_STEPS_MAX;
  memcpy(sorted, durations->ns, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, order_of);
  return n ? sorted[n / 2] : 0;
}

/* A late step says how late one part was. It counts as a quarter longer than the median at most: a worker
   that hangs in every step does not make the wait for it longer and longer, and a run whose steps are slower
   for good is not late for long. */
static void pace_count_locked(struct pace *pace, uint64_t ns) {
  struct durations *durations = pace->is_evaluated ? &pace->evaluated : &pace->plain;
  uint64_t median_ns = durations_median(durations), most_ns = median_ns + median_ns / 4;
  bool is_capped = pace->n_told > 0 && median_ns > 0 && ns > most_ns;
  durations_add(durations, is_capped ? most_ns : ns);
}

void pace_begin(struct pace *pace, uint64_t step, bool is_evaluated, uint64_t now_ns) {
  pthread_mutex_lock(&pace->lock);
  if (pace->step != __atomic_load_n(&pace->changed_step, __ATOMIC_RELAXED))
    pace_count_locked(pace, now_ns - pace->since_ns);
  pace->step = step;
  pace->is_evaluated = is_evaluated;
  pace->since_ns = now_ns;
  pace->n_told = 0;
  pthread_mutex_unlock(&pace->lock);
}

void pace_go_on(struct pace *pace, uint64_t now_ns) {
  pthread_mutex_lock(&pace->lock);
  __atomic_store_n(&pace->changed_step, pace->step, __ATOMIC_RELAXED);
  pace->since_ns = now_ns;
  pace->n_told = 0;
  pthread_mutex_unlock(&pace->lock);
}

static uint64_t ns_of(uint32_t ms) {
  return ms * UINT64_C(1000000);
}

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* How long the present step may take. */
static uint64_t pace_limit_ns_locked(const struct pace *pace, const struct pace_options *options) {
  uint64_t twice = pace->plain.n >= PACE_STEPS_LEAST ? 2 * durations_median(&pace->plain) : 0;
  if (pace->is_evaluated && pace->evaluated.n > 0)
    return larger(2 * durations_median(&pace->evaluated), ns_of(options->least_ms));
  if (pace->is_evaluated || !twice)
    return larger(twice, ns_of(options->first_ms));
  return larger(twice, ns_of(options->least_ms));
}

/* Between the last time that the step was told late and the next one. */
static uint64_t pace_pause_ns_locked(const struct pace *pace, const struct pace_options *options,
                                     uint64_t limit_ns) {
  uint64_t most_ns = larger(limit_ns, ns_of(options->pause_max_ms)), pause_ns = limit_ns;
  for (uint32_t n = 1; n < pace->n_told && pause_ns < most_ns; n++)
    pause_ns *= 2;
  return pause_ns < most_ns ? pause_ns : most_ns;
}

/* When the step is late for the first time. */
static uint64_t pace_due_ns_locked(const struct pace *pace, uint64_t limit_ns) {
  if (pace->heard_step < pace->step)
    return pace->since_ns + UNHEARD * limit_ns;
  return larger(pace->since_ns + limit_ns, pace->heard_ns + limit_ns / 2);
}

bool pace_is_late(struct pace *pace, const struct pace_options *options, uint64_t now_ns,
                  struct pace_late *late) {
  uint64_t limit_ns, due_ns;
  bool is_late;
  pthread_mutex_lock(&pace->lock);
  limit_ns = pace_limit_ns_locked(pace, options);
  due_ns = pace->n_told == 0 ? pace_due_ns_locked(pace, limit_ns)
                             : pace->told_ns + pace_pause_ns_locked(pace, options, limit_ns);
  is_late = now_ns >= due_ns;
  if (is_late) {
    *late = (struct pace_late){.step = pace->step, .waited_ns = now_ns - pace->since_ns};
    pace->n_told++;
    pace->told_ns = now_ns;
  }
  pthread_mutex_unlock(&pace->lock);
  return is_late;
}

void pace_tell_anew(struct pace *pace) {
  pthread_mutex_lock(&pace->lock);
  pace->n_told = 0;
  pthread_mutex_unlock(&pace->lock);
}
