/* A store that goes away and comes back as a test likes, in front of a real one. */
#ifndef WEIR_TESTS_FLAKY_STORE_H
#define WEIR_TESTS_FLAKY_STORE_H

#include <stdlib.h>

#include "common/base/memory.h"
#include "storage/store.h"

struct flaky_store {
  struct store base;
  struct store *inner; /* the test's */
  bool is_away;        /* atomic */
  int n_refused;       /* atomic: records that were not written because it is away */
  bool loses_answer;   /* of the next record written */
};

void flaky_set_away(struct store *store, bool is_away);

int flaky_count_refused(struct store *store);

/* Closed with store_close, before the one behind it. */
struct store *flaky_store_new(struct store *inner);

#endif
