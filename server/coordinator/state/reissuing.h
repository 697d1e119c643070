/* What a run has computed elsewhere, beside the view, of one step: microbatches and eval chunks that come
   late, and microbatches whose parts are doubted. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_REISSUING_H
#define WEIR_SERVER_COORDINATOR_STATE_REISSUING_H

#include <stdbool.h>
#include <stdint.h>

struct run;

enum { SENDERS_MAX = 256 }; /* more are not told apart from others */

/* A microbatch or an eval chunk of the step. */
struct duty {
  uint64_t worker;                /* key of the one that has it as a duplicate; 0: nobody */
  uint64_t given_ms, patience_ms; /* what it is given for; who misses it for longer gives it to another */
  uint64_t missed_ms;             /* when a server last missed it; 0: never */
  bool is_doubted;
};

/* Who pushed a doubted part. */
struct sender {
  uint32_t worker;
  uint64_t view;
};

struct doubts {
  bool *is_open; /* [n_blocks] doubted, and not yet judged */
  uint32_t n_open;
  struct sender senders[SENDERS_MAX];
  int n_senders;
  uint64_t due_ms; /* blocks are doubted one after the other: what is given then is given at once */
  int rounds;      /* how often it was given to somebody */
};

/* NULL in a run: nothing was late or doubted. */
struct reissue {
  uint64_t number; /* of all that there were: never used twice */
  uint64_t incarnation, step;
  bool is_proven;     /* parts of it have come: steps before its version are complete on every server */
  uint64_t told_ms;   /* of the newest report that the step is late */
  uint64_t waited_ms; /* what it said */
  uint32_t n_microbatches, n_chunks;
  struct duty *microbatches, *chunks;
  struct doubts doubts;
};

void coordinator_reissue_free(struct run *run); /* nothing is late or doubted any more */

#endif
