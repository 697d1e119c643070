/* Coordinators over real RPC on one store, with fake members and a client. */
#ifndef WEIR_TESTS_COORDINATOR_SERVICE_FIXTURE_H
#define WEIR_TESTS_COORDINATOR_SERVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/client.h"
#include "server/coordinator/shell/service.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/flaky_store.h"
#include "tests/support/patience.h"

enum { STEPS = 3, LEASE_MS = 300, GRACE_MS = 200 };

/* A coordinator. */
struct seat {
  struct store *store; /* flaky, in front of the fixture's */
  struct coordinator_service *service;
  struct rpc_server *server;
  struct rpc_channel *channel;
  bool is_deposed; /* atomic */
};

struct fixture {
  struct store *store;
  struct rpc_client *client;
  struct seat seat;                   /* the one that tests begin with */
  int upload_idle_ms, upload_slow_ms; /* of coordinators that are started; 0: as by default */
  struct rpc_channel *channel;        /* whom requests go to */
  Weir__RunSpec *spec;
  uint8_t *onnx;
  size_t onnx_bytes;
  uint64_t incarnation; /* of the run that the members work on, as their newest LoadRun named it */
};

void seat_start(struct fixture *f, struct seat *seat, const char *holder);

void seat_stop(struct seat *seat);

int service_setup(void **state);

int service_teardown(void **state);

void seat_restart(struct fixture *f, bool is_killed);

/* Waits until the condition is true. */
#define AWAIT(condition)                                                                                     \
  do {                                                                                                       \
    uint64_t begun_ns = clock_now_ns();                                                                      \
    while (!(condition)) {                                                                                   \
      if (clock_now_ns() - begun_ns > patience_ms() * UINT64_C(1000000))                                     \
        fail_msg("%s", "never: " #condition);                                                                \
      nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);                                               \
    }                                                                                                        \
  } while (0)

/* Sends the first message of a submission. */
struct rpc_reader *upload_begin(struct fixture *f, Weir__RunSpec *spec, uint64_t model_bytes);

void upload_add(struct rpc_reader *reader, void *data, size_t size);

/* The run's id, freed by the caller; NULL with err set. */
char *upload_end(struct rpc_reader *reader, struct err *err);

char *try_to_submit(struct fixture *f, struct err *err);

char *submit_run(struct fixture *f);

int ask_run(struct fixture *f, enum rpc_method_id method, const char *run, Weir__RunInfo **info,
            struct err *err);

Weir__RunState run_state(struct fixture *f, const char *run);

/* All bytes of a stream of chunks; -1 with err set. */
long download_chunks(struct fixture *f, enum rpc_method_id method, const void *request, uint8_t *out,
                     size_t size, struct err *err);

long download_run(struct fixture *f, enum rpc_method_id method, const char *run, void *out, size_t size,
                  struct err *err);

/* Reads a run's events from `from` on, to their end. Returns how many; the last one goes to *last. */
uint64_t watch_all(struct fixture *f, const char *run, uint64_t from, Weir__RunEvent **last);

struct rpc_reader *member_join_again(struct fixture *f, Weir__Role role, const char *id, const char *run,
                                     uint64_t version);

struct rpc_reader *member_join(struct fixture *f, Weir__Role role);

void member_tell(struct rpc_reader *member, Weir__MemberMessage__BodyCase body, void *content);

/* The next order, which must be of this kind; freed by the caller. */
Weir__Order *expect_order(struct rpc_reader *member, Weir__Order__BodyCase body);

/* The step that the next order, a WriteBlocks, names. */
uint64_t expect_write(struct rpc_reader *server);

void tell_step(struct fixture *f, struct rpc_reader *server, const char *run, uint64_t step);

/* A run's life until its first view. */
void begin_run(struct fixture *f, const char *id, struct rpc_reader *server, struct rpc_reader *worker);

/* A run's life up to the last WriteBlocks. */
void train_run(struct fixture *f, const char *id, struct rpc_reader *server, struct rpc_reader *worker);

/* Writes a version's blocks and tells of them. */
void write_blocks(struct fixture *f, struct rpc_reader *server, const char *run, uint64_t step);

bool is_record_written(struct fixture *f, const char *run, const char *which);

bool has_checkpoint(struct fixture *f, const char *run, uint64_t step);

/* A run that has committed the checkpoints at steps 2, 4, ... `last`, and goes on. */
char *train_with_checkpoints(struct fixture *f, struct rpc_reader *server, struct rpc_reader *worker,
                             uint64_t last, uint32_t keep);

Weir__ListCheckpointsReply *list_checkpoints(struct fixture *f, const char *run);

void expect_checkpoints(struct fixture *f, const char *run, uint64_t first, size_t n);

#endif
