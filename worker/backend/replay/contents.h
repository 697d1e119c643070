/* What the roots of a program hold, one content after another: a step that writes over what it reads makes a
   new one. Each content has one place where it is made, so steps may be run again in any later place. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_CONTENTS_H
#define WEIR_WORKER_BACKEND_REPLAY_CONTENTS_H

#include "worker/backend/replay/replay.h"

struct content {
  int root;
  size_t size_bytes; /* of the root, rounded up as plans do */
  int producer;      /* the step that writes it; -1: it is there from the start */
  int over;          /* the content that its producer reads and writes over; -1 */
  int last_needed;   /* the last forward step that reads it and that may have to be run again; -1: none */
  bool is_saved;     /* the backward part reads it */
  bool is_fixed;     /* never made again: kept as long as anybody reads it */
};

struct contents {
  const struct replay_program *program;
  struct content *list;
  int n;
  int *first_use; /* [n_steps + 1] of each step, in `of` */
  int *of;        /* [all uses] which content it is; -1: of a root that is not planned */
  bool *is_once;  /* [n_steps] */
};

/* The arrays are the arena's. */
void contents_find(const struct replay_program *program, struct arena *arena, struct contents *out);

/* Of argument `use` of the step; -1: of a root that is not planned. */
int contents_of(const struct contents *contents, int step, int use);

#endif
