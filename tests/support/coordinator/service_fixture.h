/* The coordinator's service over real RPC, on a store in memory, with a client; service_members.h has its
   members. service_setup() and service_teardown() are a test's setup and teardown; f->seat leads before the
   test begins:
   id = submit_run(f); train_run(f, id, server, worker); write_blocks(f, server, id, STEPS); AWAIT(...).
   Calls wait at most patience_ms(). Requests go to f->channel. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_SERVICE_FIXTURE_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_SERVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include <sys/uio.h>

#include "common/base/clock.h"
#include "common/certs/ticket.h"
#include "common/rpc/client.h"
#include "storage/store.h"
#include "tests/support/common/patience.h"
#include "training.pb-c.h"

/* LEASE_MS: long beside the time for which a busy machine may stop one thread of a program and not another.
 */
enum { STEPS = 3, LEASE_MS = 3000 };

/* A coordinator: its own way to the store, its service, and a channel to it. */
struct seat {
  struct store *store; /* flaky, in front of the fixture's */
  struct coordinator_service *service;
  struct rpc_server *server;
  struct rpc_channel *channel;
  bool is_deposed; /* atomic */
};

struct service_fixture {
  struct store *store;
  struct rpc_client *client;
  char ticket[TICKET_TEXT_SIZE];      /* of downloads by members: of the run submitted last */
  struct seat seat;                   /* the one that tests begin with */
  int upload_idle_ms, upload_slow_ms; /* of coordinators that are started; 0: as by default */
  int server_grace_ms;                /* a week, unless a test says otherwise */
  struct rpc_channel *channel;        /* whom requests go to */
  Weir__RunSpec *spec;                /* what submit_run submits, with onnx; a test may change it before */
  uint8_t *onnx;
  size_t onnx_bytes;
  uint64_t incarnation; /* of the run that the members work on, as their newest LoadRun named it */
};

/* Starts a coordinator on a free port, and waits until it leads or knows why not. holder: the name that it
   leads under. Stopped with seat_stop(), which gives the lease up. */
void seat_start(struct service_fixture *f, struct seat *seat, const char *holder);
void seat_stop(struct seat *seat);

int service_setup(void **state);
int service_teardown(void **state);

/* Stops f->seat and starts it again, in the same holder's name. is_killed: it loses its way to the store
   first, so that nothing is set free. f->channel is the new one. */
void seat_restart(struct service_fixture *f, bool is_killed);

/* Waits until the condition is true, asking again and again; fails the test if it never is. */
#define AWAIT(condition)                                                                                     \
  do {                                                                                                       \
    uint64_t begun_ns = clock_now_ns();                                                                      \
    while (!(condition)) {                                                                                   \
      if (clock_now_ns() - begun_ns > patience_ms() * UINT64_C(1000000))                                     \
        fail_msg("%s", "never: " #condition);                                                                \
      nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);                                               \
    }                                                                                                        \
  } while (0)

/* A submission in pieces: its first message, with the size of the model that follows; upload_add() sends
   bytes of the model; upload_end() closes. A refusal shows in upload_end(). */
struct rpc_reader *upload_begin(struct service_fixture *f, Weir__RunSpec *spec, uint64_t model_bytes);
void upload_add(struct rpc_reader *reader, void *data, size_t size);

/* The run's id, freed by the caller; NULL with err set if it was refused. */
char *upload_end(struct rpc_reader *reader, struct err *err);

/* Submits f->spec with f->onnx. Returns as upload_end(); submit_run() asserts that it was taken. */
char *try_to_submit(struct service_fixture *f, struct err *err);
char *submit_run(struct service_fixture *f);

/* Calls a method that takes a RunRequest and answers RunInfo (GetRun, Cancel, ...). Returns the error. The
   info is freed with message_free(); NULL on error. */
int ask_run(struct service_fixture *f, enum rpc_method_id method, const char *run, Weir__RunInfo **info,
            struct err *err);

uint64_t ask_step(struct service_fixture *f, const char *run); /* 0 on error */

/* RUN_STATE_UNKNOWN on error. */
Weir__RunState run_state(struct service_fixture *f, const char *run);

/* Puts a member's ticket of the run, by the key in its record, into f->ticket; submit_run() does. */
void take_ticket(struct service_fixture *f, const char *run);

/* Calls a method that answers a stream of chunks. Copies all bytes to out; more than fit there fail the
   test. Returns how many; -1 with err set. download_run() makes the request for a run. */
long download_chunks(struct service_fixture *f, enum rpc_method_id method, const void *request,
                     struct iovec out, struct err *err);
long download_run(struct service_fixture *f, enum rpc_method_id method, const char *run, struct iovec out,
                  struct err *err);

/* Reads a run's events, numbered `from` and higher, until the run is over. Asserts that their numbers
   rise. Returns how many; *last is the last one, freed with message_free(), or NULL. */
uint64_t watch_all(struct service_fixture *f, const char *run, uint64_t from, Weir__RunEvent **last);

/* Whether the store has a record of the run. which: its name below the run's. */
bool is_record_written(struct service_fixture *f, const char *run, const char *which);

/* How many blocks the store has. */
int stored_blocks(const struct service_fixture *f);

/* Whether the checkpoint of that step is committed. */
bool has_checkpoint(struct service_fixture *f, const char *run, uint64_t step);

/* Asserts that the run is known. Freed with message_free(). */
Weir__ListCheckpointsReply *list_checkpoints(struct service_fixture *f, const char *run);

/* Asserts that the run has exactly n checkpoints, at steps first, first + 2, ... */
void expect_checkpoints(struct service_fixture *f, const char *run, uint64_t first, size_t n);

/* service_sweeps.c */
/* Of 500 trials, three at a time, at random. */
extern const char sweep_tries_text[];

/* What is submitted has an evaluation from now on. */
void sweeps_prepare(struct service_fixture *f);
/* As upload_end(). */
char *sweep_try(struct service_fixture *f, Weir__SweepSpec *sweep, struct err *err);
/* The id of a sweep of a text with settings, which must be taken; freed by the caller. */
char *sweep_search(struct service_fixture *f, const char *text, const char *const *settings, int n);

size_t sweeps_count(struct service_fixture *f);
/* In the store, of all sweeps. */
int sweeps_count_records(struct service_fixture *f);
/* The sweep with its trials from this one on, and its records from this one on; freed with message_free. */
Weir__SweepInfo *sweep_page(struct service_fixture *f, const char *sweep, uint32_t trial, uint64_t record);
uint32_t sweep_count_begun(struct service_fixture *f, const char *sweep);
/* Its records that the store has: a trial is told before its record is there. */
uint64_t sweep_count_log(struct service_fixture *f, const char *sweep);
/* Asks for a change of a sweep, which must be made. Freed with message_free. */
Weir__SweepInfo *sweep_change(struct service_fixture *f, enum rpc_method_id method, const void *request);

#endif
