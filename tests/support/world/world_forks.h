/* Worlds of which the second run is a fork of the first: it begins with one of its checkpoints, or waits for
   one to come, and servers may be told that they have that in memory. What it would get there has to be what
   the checkpoint has. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_FORKS_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_FORKS_H

#include "tests/support/forks/fork_terms.h"
#include "tests/support/world/world.h"

/* It is to be a fork, and the other run has no checkpoint yet; or no plan, where it is to be one of a version
   to come. */
bool forks_wait(const struct world *w, int run);

/* Makes the submission that of a fork, where the run is to be one and there still is a checkpoint, or the
   other run has yet to come to the version. */
void forks_submit(struct world *w, int run, struct run_submission *submission, struct fork_terms *terms);

/* The store has the base of the run, if it was submitted as a fork; with its first record. */
void forks_store(struct world *w, int run, const struct run_submission *submission);

/* The newest checkpoint of the run is damaged, but not its base, without which a fork fails for good. */
void forks_damage(struct world *w, int run);

/* The store is asked for the base that has come: the core is told of it, or that it is to try again. */
void forks_find_base(struct world *w, int run);

/* The record is that with which the base of a fork that waited comes to the store, which takes a while. */
bool forks_save_is_slow(struct world *w, int run, const Weir__RunRecord *record);

/* With the first record of a fork that waited its base comes to the store. False: the record does not, for
   the base is gone, or the coordinator dies between the two. */
bool forks_save_base(struct world *w, int run, const Weir__RunRecord *record, bool is_told);

/* A fork that waited in vain is deleted, now or some time; then it is submitted anew. Whether it was. */
bool forks_give_up(struct world *w, int run, Weir__RunState state);

/* While a fork waits, its parent commits nothing later than what it waits for. */
void forks_check_commit(struct world *w, const Weir__Manifest *manifest);

/* LoadRun.from says what is so. */
void forks_check_load(struct world *w, const struct process *server, const Weir__LoadRun *load);

#endif
