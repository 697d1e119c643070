/* The order of steps that follows from which contents are kept: each backward step behind the replays of what
   it reads and nobody keeps, and of what these read. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_ORDER_H
#define WEIR_WORKER_BACKEND_REPLAY_ORDER_H

#include "worker/backend/replay/contents.h"

struct order_item {
  int step;
  bool is_replay;
};

struct order_root {
  int origin;      /* the program's root that it is, or is like */
  int first, last; /* items between which it lives; first -1: not used */
};

struct order {
  const struct contents *contents;
  int n_contexts;      /* what the backward part finds there counts so often */
  const bool *is_kept; /* as order_make was given */
  struct order_item *items;
  int n_items;
  int *item_of;             /* [n_steps] of each step's first run */
  int *root_of;             /* [2 * contents] of each content as first made, then of each as made again; -1 */
  struct order_root *roots; /* the program's, then more of their kind */
  int n_roots;
  size_t peak_bytes; /* the most that lives at a time, in all contexts */
  int n_replays;
  double replay_cost;

  /* While it is made. */
  bool *is_made;         /* [n_steps] again */
  int *last_item;        /* as root_of */
  int *wanted;           /* [n_steps] */
  size_t *begun, *ended; /* [items] bytes that begin and end to live there */
};

/* n_contexts: at least 1. The arrays are the arena's; used again by each order_make. */
void order_init(struct order *order, const struct contents *contents, int n_contexts, struct arena *arena);

/* is_kept[contents]: as long as somebody reads it. True of what is_fixed, and of what the backward part
   makes. The step that makes any other content that is wanted is run again, once. */
void order_make(struct order *order, const bool *is_kept);

/* The root of argument `use` of an item. */
int order_root(const struct order *order, const struct order_item *item, int use);

/* Lives of all roots: those that are not planned, always; unused ones of size 0. spans: [n_roots]. Returns
   how large split_plan makes them. */
size_t order_spans(const struct order *order, struct memory_span *spans);

#endif
