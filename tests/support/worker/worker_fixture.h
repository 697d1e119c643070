/* A tiny run (an MLP on SAMPLES images in idx files) for tests of workers: its files, fake servers
   (worker_servers.h) and one run of a worker, in this process. worker_setup() and worker_teardown() are a
   test's setup and teardown:
   fixture_load(f, backend_find("ref"), 2);
   fixture_view(f, view, fixture_give_view); fixture_wait(f, is_trained); */
#ifndef WEIR_TESTS_SUPPORT_WORKER_WORKER_FIXTURE_H
#define WEIR_TESTS_SUPPORT_WORKER_WORKER_FIXTURE_H

#include <pthread.h>

#include "cluster.pb-c.h"
#include "common/base/sha256.h"
#include "common/rpc/client.h"
#include "model/model.h"
#include "tests/support/model/onnx_build.h"
#include "tests/support/worker/worker_servers.h"
#include "worker/train/run.h"

struct worker_fixture {
  char folder[64];
  struct onnx_build build;
  const void *onnx;
  size_t onnx_bytes;
  char sha256[SHA256_HEX_SIZE];
  Weir__RunSpec *spec;
  struct model *model; /* for its blocks */
  struct rpc_client *client;
  struct rpc_channel *channel;
  struct run *run;
  int parked_max;             /* of runs that are started */
  int meeting_ms;             /* of runs that are started: how long a group waits for its members; WEEK_MS */
  int question_ms, silent_ms; /* likewise: see run_options; WEEK_MS */
  int unreached_ms;           /* likewise; 0: as the product has it */
  uint32_t stage_begin, stage_end; /* of orders; 0: all stages of the model */
  struct fake_server servers[SERVERS];

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct faults faults;
  struct fake_push pushes[PUSHES_MAX];
  int n_pushes;
  int n_waits;        /* pushes whose reply was a version */
  int n_pulls;        /* Pull calls */
  int n_fetched;      /* FetchModel calls */
  bool is_fetch_held; /* the model does not come before fixture_release_model */
  struct rpc_call *held_fetch;
  int n_loaded; /* RunLoaded came */
  uint64_t loaded_incarnation;
  int n_groups_failed; /* GroupFailed came */
  uint32_t failed_group;
  int n_unreached_told; /* Unreached came, the newest naming: */
  size_t n_unreached;
  char unreached[32]; /* the first */
  int n_ready;        /* Ready came, the newest at: */
  uint64_t ready_version;
  bool is_refused; /* RunRefused came, saying: */
  bool is_bad_input, no_memory_beside;
  char refusal[512];
};

/* The files, the model and SERVERS servers that listen, without a run. evaluates: the spec has an
   evaluation after each step. fixture_free() stops f->run, too. */
struct worker_fixture *fixture_new(bool evaluates);
void fixture_free(struct worker_fixture *f);

/* The same as setup and teardown; *state is the fixture. */
int worker_setup(void **state);
int worker_setup_evaluating(void **state);
int worker_teardown(void **state);

/* The send of run_options: notes in f what the run tells the coordinator. */
void fixture_on_told(void *user, const Weir__MemberMessage *message);

/* The id of the fixture's run: "t-" and this process's number, since groups of a run are found by its name on
   the whole host, and tests may run beside each other. */
const char *fixture_run_id(void);

/* LoadRun of that run; what it points to is the fixture's. */
Weir__LoadRun fixture_order(struct worker_fixture *f, uint64_t incarnation);

/* Starts f->run, by an order of incarnation 1. */
void fixture_load(struct worker_fixture *f, const struct backend_def *backend, int threads);

/* What a view says to one worker, which computes microbatches 0 .. microbatches - 1 and evaluation chunks
   0 .. chunks - 1, or follows, on the servers first_server .. first_server + n_servers - 1. */
struct view_of {
  uint64_t number, incarnation;
  int first_server, n_servers;
  uint32_t microbatches, chunks;
  bool follows;
  const char *worker;    /* its id; NULL: worker-1 */
  uint64_t hold;         /* 0: none */
  uint32_t executors;    /* that may compute; 0: all */
  uint64_t plan_samples; /* what the plan says of the training set; 0: SAMPLES */
  const char *ticket;    /* NULL: none */
};

/* Calls `take` with the view as a message, which is gone when it returns; worker is of.worker.
   fixture_give_view() gives it to f->run. */
void fixture_view(struct worker_fixture *f, struct view_of of,
                  void (*take)(struct worker_fixture *f, const Weir__View *view, const char *worker));
void fixture_give_view(struct worker_fixture *f, const Weir__View *view, const char *worker);

/* Two workers of a group, by rank. */
struct pair_view {
  uint64_t number;
  uint32_t group;
  const char *names[2];
  struct run *runs[2]; /* that get the view; NULL: the test is that worker */
  int alone;           /* the rank that has all microbatches and no other beside it; -1: one for each */
};

/* Gives the view to both runs, or to the one that is alone. Server 1, incarnation 1. */
void fixture_give_pair(struct worker_fixture *f, struct pair_view of);

/* A condition of fixture_wait(): each block has its last version, on one server or another. */
bool is_trained(const struct worker_fixture *f);

/* Waits until the condition, which is asked under f->lock at each change, is true; fails the test if it
   never is, with what the run was refused for. */
void fixture_wait(struct worker_fixture *f, bool (*is_so)(const struct worker_fixture *f));

/* Pushes of a step (not of evaluations) in an incarnation to a server, of any block. */
int count_pushes(const struct worker_fixture *f, int server, uint64_t incarnation, uint64_t step);

/* How many pushes a step is of a worker that computes all of it: gradients are one sum a block, of statistics
   each microbatch has a row. */
int pushes_of_step(const struct worker_fixture *f);
/* The first server has these of every step in incarnation 1, also those that nobody waits for, which may come
   after the version that they belong to; and the run is trained. */
bool is_all_pushed(const struct worker_fixture *f);

/* Time in which a mistake would show. What the test asserts next holds whenever it looks, so on a slow
   machine the test sees less and does not fail. */
void fixture_linger(int ms);

#endif
