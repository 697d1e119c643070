/* Who owns the steps of a program that is cut into stages, and which of them stay together. */
#ifndef WEIR_WORKER_BACKEND_STAGES_OWNERS_H
#define WEIR_WORKER_BACKEND_STAGES_OWNERS_H

#include "worker/backend/replay/contents.h"
#include "worker/backend/stages/stages.h"

struct owners {
  const struct staged_program *staged;
  struct contents contents;
  struct stage_span *spans; /* [n_steps] as in the program, but of steps of nobody that have to have nodes */
  int *maker;               /* [contents] the last step that writes it; -1: an input */
  /* Nodes that no cut separates; first -1: none. */
  struct stage_span *of_contents; /* [contents] which several steps write */
  struct stage_span *of_roots;    /* [n_roots] which are not planned and which steps with nodes write */
};

/* The arrays are the arena's. */
void owners_find(const struct staged_program *staged, struct arena *arena, struct owners *out);

/* The step has nodes. */
bool owners_has(const struct owners *owners, int step);

/* A step with nodes makes the content: it crosses edges. */
bool owners_crosses(const struct owners *owners, int content);

#endif
