/* The pace of a run's steps on this server: since when the oldest incomplete step lasts, how long steps
   usually do, and whether that one is late. A step is complete here when each of our blocks has its next
   version. Any thread. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_PACE_H
#define WEIR_SERVER_PARAMETERS_RUN_PACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A step is late after twice the median of those before, but not earlier than after least_ms; where there is
   no median yet, after first_ms. While no part of it has come, other servers may still be at the step before:
   then it is late after four times as long, and half as long is left to it when the first part comes. That it
   is late is told again and again, with pauses that grow up to pause_max_ms (or to what the step was given,
   if that is more). */
struct pace_options {
  uint32_t least_ms, first_ms, pause_max_ms;
};

extern const struct pace_options pace_defaults; /* 200 ms, 60 s, 10 s */

/* PACE_STEPS_LEAST: of steps without an evaluation. One with an evaluation is enough, for there are few. */
enum { PACE_STEPS_MAX = 31, PACE_STEPS_LEAST = 3 };

/* The last durations of one kind of steps, of late ones a quarter more than the median at most: the nth is at
   n % PACE_STEPS_MAX. */
struct durations {
  uint64_t ns[PACE_STEPS_MAX];
  uint64_t n;
};

struct pace {
  uint64_t newest_view;  /* atomic: the newest that a part came from */
  uint64_t changed_step; /* atomic: the last step in which a newer one began; the run's first */
  uint64_t heard_step;   /* atomic: the last step of which a part has come */

  pthread_mutex_t lock;        /* what follows */
  uint64_t step;               /* the oldest that is not complete */
  bool is_evaluated;           /* it waits for an evaluation, too */
  uint64_t since_ns, heard_ns; /* heard_ns: when the first part of heard_step came */
  struct durations plain, evaluated;
  uint32_t n_told; /* that this step is late */
  uint64_t told_ns;
};

/* A run that begins at version `step`. */
void pace_init(struct pace *pace, uint64_t step, uint64_t now_ns);
void pace_fini(struct pace *pace);

/* A part of this step was accepted, from a worker with that view: of a step in which a newer view begins, the
   duration is not counted. */
void pace_hear(struct pace *pace, uint64_t step, uint64_t view, uint64_t now_ns);

/* All steps before `step` are complete. is_evaluated: the version `step` is. */
void pace_begin(struct pace *pace, uint64_t step, bool is_evaluated, uint64_t now_ns);

/* What is late. */
struct pace_late {
  uint64_t step, waited_ns;
};

/* True if it is time to tell that the step is late, and not once more until the next pause is over. */
bool pace_is_late(struct pace *pace, const struct pace_options *options, uint64_t now_ns,
                  struct pace_late *late);

/* The present step begins only now: the run was held before it. Its duration is not counted. */
void pace_go_on(struct pace *pace, uint64_t now_ns);

/* Whoever is told is another: it begins anew. */
void pace_tell_anew(struct pace *pace);

#endif
