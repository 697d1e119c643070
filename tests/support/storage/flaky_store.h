/* A store in front of a real one, which a test makes unreachable and reachable again. Unless it is away it
   passes every call on. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_FLAKY_STORE_H
#define WEIR_TESTS_SUPPORT_STORAGE_FLAKY_STORE_H

#include "storage/store.h"

struct flaky_store {
  struct store base;
  struct store *inner; /* the test's */
  bool is_away;        /* atomic */
  int n_refused;       /* atomic: records that were not written because it is away */
  bool loses_answer;   /* the next record is written, but its writer gets ERR_UNAVAILABLE; then false again */
};

/* Any thread. While the store is away each call returns ERR_UNAVAILABLE and the store behind is not asked. */
void flaky_set_away(struct store *store, bool is_away);

/* How many writes of a record failed because the store was away. */
int flaky_count_refused(struct store *store);

/* inner stays the caller's. Closed with store_close(), before inner. */
struct store *flaky_store_new(struct store *inner);

#endif
