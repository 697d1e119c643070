/* A tiny run for tests of workers. */
#ifndef WEIR_TESTS_WORKER_FIXTURE_H
#define WEIR_TESTS_WORKER_FIXTURE_H

#include "tests/support/worker_servers.h"

struct fixture *fixture_new(bool evaluates);

void fixture_free(struct fixture *f);

int worker_setup(void **state);

int worker_setup_evaluating(void **state);

int worker_teardown(void **state);

void fixture_on_told(void *user, const Weir__MemberMessage *message);

Weir__LoadRun fixture_order(struct fixture *f, uint64_t incarnation);

void fixture_load(struct fixture *f, const struct backend_def *backend, int threads);

/* What a view says, but for the plan. */
struct view_of {
  uint64_t number, incarnation;
  int first_server, n_servers;
  uint32_t microbatches, chunks; /* ours, from 0 on */
  const char *worker;            /* our id; NULL: worker-1 */
  uint64_t plan_samples;         /* 0: as they are */
};

/* Calls `take` with the view as a message. */
void fixture_view(struct fixture *f, struct view_of of,
                  void (*take)(struct fixture *f, const Weir__View *view, const char *worker));

void fixture_give_view(struct fixture *f, const Weir__View *view, const char *worker);

/* Two workers of a group, by rank. */
struct pair_view {
  uint64_t number;
  uint32_t group;
  const char *names[2];
  struct run *runs[2]; /* that get the view; NULL: the test is that worker */
  int alone;           /* the rank that has all microbatches and no other beside it; -1: one for each */
};

void fixture_give_pair(struct fixture *f, struct pair_view of);

/* The last version of every block was made, on some server. */
bool is_trained(const struct fixture *f);

/* Waits until it is so. */
void fixture_wait(struct fixture *f, bool (*is_so)(const struct fixture *f));

/* Pushes of a step (not of evaluations) in an incarnation to a server, of any block. */
int count_pushes(const struct fixture *f, int server, uint64_t incarnation, uint64_t step);

void fixture_sleep(int ms);

#endif
