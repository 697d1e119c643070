/* The reports of a run to the coordinator: its progress, and the doubts about parts (server/parameters/round/
   doubts.h). They are kept for a while. A coordinator that was away asks for the reports that it missed, and
   reports that it cannot take at once wait here. Any thread. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_REPORT_LOG_H
#define WEIR_SERVER_PARAMETERS_RUN_REPORT_LOG_H

#include <pthread.h>
#include <stdbool.h>

#include "cluster.pb-c.h"

/* What is kept: so many step reports, the newest, with what lies among them; of doubts so many bytes
   (packed), for nobody makes steps of them. */
enum { REPORT_LOG_STEPS_MAX = 65536, REPORT_LOG_DOUBT_BYTES_MAX = 4 * 1024 * 1024 };

struct report_log {
  const char *run; /* outlives the log */
  uint64_t incarnation;
  /* In the membership of that number; the message ends with the call, which never blocks. 0: told. BUSY: to
     be tried again later. Any other: that membership is over. May be NULL. */
  int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message);
  void *user;

  pthread_mutex_t lock;   /* what follows */
  struct report *reports; /* [capacity], a ring: report number n is at n % capacity */
  uint64_t begin, end;    /* the numbers that it holds */
  uint64_t next;          /* the first that is still to be told, or `end` */
  uint64_t untold;        /* the first that was never told */
  uint64_t from;          /* the step from which on the coordinator asked for reports */
  uint32_t capacity, n_steps;
  size_t doubt_bytes;
  uint64_t membership; /* 0: nothing is to be told now */
  bool is_complete, is_complete_told;
  uint64_t held_step; /* the hold that was reached last; 0: none was */
  bool is_held_told;
};

void report_log_init(struct report_log *log, const char *run, uint64_t incarnation,
                     int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message),
                     void *user);
void report_log_fini(struct report_log *log);

/* What happened, in the order of steps; run and incarnation are filled in. Told at once if all before it was.
 */
void report_log_add_step(struct report_log *log, const Weir__StepReport *report);
void report_log_add_eval(struct report_log *log, const Weir__EvalReport *report);
void report_log_add_doubted(struct report_log *log, const Weir__Doubted *doubted);
void report_log_add_judged(struct report_log *log, const Weir__Judged *judged);
void report_log_complete(struct report_log *log); /* RunComplete: nothing comes after it */
/* RunHeld of that step, behind all before it. Again: nothing happens. */
void report_log_held(struct report_log *log, uint64_t step);

/* Tells now or never: of what is only true now. The message names run and incarnation itself. */
void report_log_tell(struct report_log *log, const Weir__MemberMessage *message);

/* From now on tells in this membership: first what it has from `step` on and doubts that were never told,
   then what comes. Tells nothing itself: report_log_resume does. */
void report_log_open(struct report_log *log, uint64_t membership, uint64_t step);
/* Tells what can be told now. True if something has to wait. */
bool report_log_resume(struct report_log *log);

#endif
