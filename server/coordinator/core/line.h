/* Runs stand in line for workers: by priority, and of one priority by their turns (server/coordinator/state/
   turn.h). */
#ifndef WEIR_SERVER_COORDINATOR_CORE_LINE_H
#define WEIR_SERVER_COORDINATOR_CORE_LINE_H

#include "server/coordinator/state/run.h"

/* The runs of one priority that have begun. */
struct line {
  bool is_known;
  int32_t priority;
  uint32_t n_begun;
  double foremost; /* place; infinity: there are none */
  double used;     /* the least of those that have workers; 0: none has */
};

/* Who computes wrongly is found by somebody else who computes the same: whether the run waits for one. */
bool line_needs_another(const struct run *run);
bool line_only_evaluates(const struct run *run);

/* An evaluation is short, and somebody waits for it: it goes before all that train, and leaves them what it
   need not have. Then come those that need another worker; all others have the priority of their specs. */
int32_t line_priority(const struct run *run);

struct line line_of(const struct coordinator *coordinator, int32_t priority);

/* Counts what each run has used since the last time. A run whose turn is over goes behind others, unless all
   have seats. A new run takes its place beside those that have workers now. Those that wait for a turn are
   never far behind one that ends, whatever they had before. */
void line_count_turns(struct coordinator *coordinator);

/* The run's place in the line of its priority. One that waits in the queue comes behind all others where as
   many have begun as may take turns on so many workers. */
double line_place(const struct run *run, const struct line *line, uint32_t workers);

/* The run begins. However long it waited, it has one turn before those that have begun; and so have those
   that wait still, but not before its own. */
void line_leave_queue(struct coordinator *coordinator, struct run *run);

#endif
