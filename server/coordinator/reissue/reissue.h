/* What is computed elsewhere, beside the view: microbatches and eval chunks that come late, and microbatches
   whose parts are doubted, because their sum overflows although each of them is finite. Shares, groups and
   views do not change by it. All of it is of one step, the oldest that is not complete.

   reissue.c  which microbatch is with whom; late ones
   doubts.c   doubted parts: who computes them anew, and when enough is known for a verdict */
#ifndef WEIR_SERVER_COORDINATOR_REISSUE_REISSUE_H
#define WEIR_SERVER_COORDINATOR_REISSUE_REISSUE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "server/coordinator/state/reissuing.h"

struct coordinator;
struct member;
struct seat;
struct run;

/* Of one worker that is ready; good while a step of the coordinator lasts. */
struct helper {
  struct seat *seat;
  double weight; /* its speed, beside the others' */
  double load;   /* duties that it has, by its weight */
  int rank;      /* the lower, the rather it is asked */
  bool is_order_due;
};

/* reissue.c */
void coordinator_late(struct coordinator *coordinator, struct member *server, const Weir__Late *late);
/* What the run has, of this step or, where it had none or an older one, begun; NULL: the message is of a step
   that is over. is_proven: parts of it have come, which show that steps before are complete. */
struct reissue *coordinator_reissue_at(struct coordinator *coordinator, struct run *run, uint64_t step,
                                       bool is_proven);
/* Those that are ready, with what they have; of the step's arena. */
struct helper *coordinator_helpers(struct coordinator *coordinator, const struct run *run, int *n);
void coordinator_give(const struct coordinator *coordinator, struct duty *duty, struct helper *helper,
                      uint64_t patience_ms);
/* Sends each helper whose order is due all that it has. */
void coordinator_order_helpers(struct coordinator *coordinator, struct run *run, struct helper *helpers,
                               int n);
bool coordinator_duty_is_held(const struct coordinator *coordinator, const struct run *run,
                              const struct duty *duty); /* by a worker that may yet be in time */

/* doubts.c */
void coordinator_doubted(struct coordinator *coordinator, struct member *server,
                         const Weir__Doubted *doubted);
void coordinator_judged(struct coordinator *coordinator, struct member *server, const Weir__Judged *judged);
/* Gives doubted microbatches to who is to compute them, also anew where a worker has gone or is slow. */
void coordinator_doubts_when_due(struct coordinator *coordinator, struct run *run);

#endif
