/* A store in front of a real one, which a test makes unreachable and reachable again. Unless it is away it
   passes every call on. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_FLAKY_STORE_H
#define WEIR_TESTS_SUPPORT_STORAGE_FLAKY_STORE_H

#include "storage/store.h"

struct flaky_store {
  struct store base;
  struct store *inner; /* the test's */
  bool is_away;        /* atomic */
  const char *refused; /* atomic: the name of a record that is not written; NULL: none */
  const char *lost;    /* atomic: how the names of records end whose writers get no answer; NULL: none */
  const char *last;    /* atomic: how the names of records end before which it goes away; NULL: none */
  int n_refused;       /* atomic: records that were not written because it is away, or refuses them */
  bool holds_reads;    /* atomic */
  const char *held;    /* atomic: the name of a record whose reads wait; NULL: none */
  int n_held;          /* atomic: reads that have waited for either, or wait */
  bool loses_answer;   /* the next record is written, but its writer gets ERR_UNAVAILABLE; then false again */
};

/* Any thread. While the store is away each call returns ERR_UNAVAILABLE and the store behind is not asked. */
void flaky_set_away(struct store *store, bool is_away);

/* Any thread. Each write of the record of this name returns ERR_UNAVAILABLE, whatever else succeeds; NULL: of
   none. name: the caller's, until another one is given. */
void flaky_refuse_record(struct store *store, const char *name);

/* Any thread. Records whose names end so are written (or deleted), but their writer gets ERR_UNAVAILABLE;
   NULL: none. ending: the caller's, until another one is given. */
void flaky_lose_answers(struct store *store, const char *ending);

/* Any thread. The store goes away before it writes (or deletes) a record whose name ends so; NULL: none.
   ending: the caller's, until another one is given. */
void flaky_leave_at(struct store *store, const char *ending);

/* Any thread. While reads of blocks are held they do not return. */
void flaky_hold_reads(struct store *store, bool holds);

/* Any thread. While reads of the record of this name are held they do not return, and then find what is there
   by then; NULL: of none. name: the caller's, until another one is given. */
void flaky_hold_record(struct store *store, const char *name);
int flaky_count_held(struct store *store); /* reads that have been held so far */

/* How many writes of a record failed because the store was away or refused the record. */
int flaky_count_refused(struct store *store);

/* inner stays the caller's. Closed with store_close(), before inner. */
struct store *flaky_store_new(struct store *inner);

#endif
