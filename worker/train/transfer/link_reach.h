/* Whether the server at the other end of a link is reached. Reached means that it answers: a connection takes
   calls for a while after the network has begun to lose all that is sent. A link that hears nothing is to
   ask. No clock and no lock of its own. */
#ifndef WEIR_WORKER_TRAIN_TRANSFER_LINK_REACH_H
#define WEIR_WORKER_TRAIN_TRANSFER_LINK_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct link_reach {
  uint64_t silent_ns;    /* after so long without an answer the server is to be asked */
  uint64_t unreached_ns; /* after so long, if calls fail, it is not reached */
  uint64_t heard_ns;     /* of the newest answer, or when the link began */
  bool is_without_run;   /* by the newest answer it has not the run, or has another incarnation of it */
  bool is_failing;       /* a call has failed on its way since then */
  bool is_unreached;     /* as link_reach_look found it */
  struct err failure;    /* of the newest that did */
  bool is_asking;        /* a question is under way */
  bool is_void;          /* its failure counts for nothing */
  uint64_t ask_ns;       /* no other before */
};

void link_reach_begin(struct link_reach *reach, int silent_ms, int unreached_ms, uint64_t now_ns);

/* A call was answered. */
void link_reach_heard(struct link_reach *reach, uint64_t now_ns);

/* A call ended with an error; what a server answers is no failure of the way to it. */
void link_reach_failed(struct link_reach *reach, const struct err *err, uint64_t now_ns);

/* The question that link_reach_look wanted has ended. False if its failure counts for nothing. */
bool link_reach_asked(struct link_reach *reach, uint64_t now_ns);

/* Finds is_unreached, and whether the server is to be asked now: is_asking is set then. away_ns: how long we
   did not run just now, on a frozen machine perhaps. Such a time is no silence of the server's. */
bool link_reach_look(struct link_reach *reach, uint64_t now_ns, uint64_t away_ns);

/* When to look again, a second from now at the latest. */
uint64_t link_reach_due_ns(const struct link_reach *reach, uint64_t now_ns);

/* Whether the server has answered of late, as one that has the run, and nothing has failed since. Another
   process may be at its address. */
bool link_reach_is_fresh(const struct link_reach *reach, uint64_t now_ns);

#endif
