/* ForkRun over real RPC, with fake members. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"

enum { SETTINGS = 3, GARBAGE = 400 };

static int fork_run(struct service_fixture *f, Weir__ForkRequest *request, Weir__ForkReply **reply,
                    struct err *err) {
  *err = ERR_NONE;
  *reply = NULL;
  return rpc_unary(f->channel, &(struct rpc_question){RPC_FORK_RUN, request, patience_ms()}, false,
                   (void **)reply, err);
}

static size_t count_runs(struct service_fixture *f) {
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  const struct rpc_question question = {RPC_LIST_RUNS, &request, patience_ms()};
  Weir__ListRunsReply *reply = NULL;
  struct err err = ERR_NONE;
  size_t n;
  assert_int_equal(rpc_unary(f->channel, &question, false, (void **)&reply, &err), 0);
  n = reply->n_runs;
  message_free(reply);
  return n;
}

static void a_fork_has_a_manifest_of_its_parents_blocks(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *settings[] = {"train.optimizer.lr=0.5"};
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__Manifest *own, *parents;
  Weir__ForkReply *reply;
  Weir__RunInfo *info;
  struct err err;
  char *name;
  request.run = id;
  request.has_step = true;
  request.step = 2;
  request.name = "other";
  request.settings = settings;
  request.n_settings = 1;
  if (fork_run(f, &request, &reply, &err))
    fail_msg("%s", err.text);
  assert_int_equal(strncmp(reply->run, "other-", 6), 0);
  assert_int_equal(reply->step, 2);
  assert_int_equal(reply->n_notes, 0);
  name = checkpoint_name(reply->run, 2);
  assert_int_equal(checkpoint_read(f->store, name, &own, &err), 0);
  free(name);
  name = checkpoint_name(id, 2);
  assert_int_equal(checkpoint_read(f->store, name, &parents, &err), 0);
  assert_int_equal(own->n_blocks, parents->n_blocks);
  for (size_t i = 0; i < own->n_blocks; i++)
    assert_string_equal(own->blocks[i]->sha256, parents->blocks[i]->sha256);
  assert_true(own->spec->train->optimizer->lr == 0.5 && !own->layout_spec);
  assert_true(is_record_written(f, reply->run, "run"));
  assert_int_equal(ask_run(f, RPC_GET_RUN, reply->run, &info, &err), 0);
  assert_string_equal(info->parent, id);
  assert_int_equal(info->parent_step, 2);
  assert_int_equal(info->checkpoints, 1);
  message_free(info);
  message_free(own);
  message_free(parents);
  message_free(reply);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(name);
  free(id);
}

static void a_checkpoint_that_has_gone_is_named(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *name = checkpoint_name(id, 4);
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__ForkReply *reply;
  struct err err = ERR_NONE;
  assert_int_equal(store_delete_record(f->store, name, NULL, &err), 0);
  request.run = id;
  assert_int_equal(fork_run(f, &request, &reply, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no longer has its checkpoint of step 4: fork a newer one"));
  assert_int_equal(count_runs(f), 1);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(name);
  free(id);
}

/* A run that is held at step 2, whose checkpoint its server was told to write. */
static char *hold_run(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker) {
  Weir__RunHeld held = WEIR__RUN_HELD__INIT;
  char *id;
  f->spec->train->steps = TINY_STEPS;
  f->spec->train->has_hold = true;
  f->spec->train->hold = held.step = 2;
  held.run = id = submit_run(f);
  begin_run(f, id, server, worker);
  tell_step(f, server, id, 0);
  tell_step(f, server, id, 1);
  held.incarnation = f->incarnation;
  member_tell(server, WEIR__MEMBER_MESSAGE__BODY_HELD, &held);
  message_free(expect_order(server, WEIR__ORDER__BODY_HOLD));
  assert_int_equal(expect_write(server), 2);
  return id;
}

/* A call that is not waited for. */
static struct rpc_reader *ask_for_fork(struct service_fixture *f, Weir__ForkRequest *request) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_FORK_RUN, patience_ms());
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_send(reader, request, &err), 0);
  rpc_reader_half_close(reader);
  return reader;
}

static void a_fork_of_a_held_run_waits_for_the_checkpoint_there(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER), *asked[2];
  char *id = hold_run(f, server, worker);
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__ForkReply *reply;
  struct err err = ERR_NONE;
  request.run = id;
  asked[0] = ask_for_fork(f, &request);
  request.has_step = true;
  request.step = 2;
  asked[1] = ask_for_fork(f, &request);
  assert_int_equal(count_runs(f), 1); /* asked behind them */
  write_blocks(f, server, id, 2);
  for (int i = 0; i < 2; i++) {
    if (rpc_reader_next(asked[i], (void **)&reply, &err) || !reply)
      fail_msg("%s", err.text);
    assert_int_equal(reply->step, 2);
    message_free(reply);
    rpc_reader_close(asked[i]);
  }
  assert_int_equal(count_runs(f), 3);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void a_fork_that_waits_for_a_run_which_ends_is_refused(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER), *asked;
  char *id = hold_run(f, server, worker);
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__ForkReply *reply;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  request.run = id;
  asked = ask_for_fork(f, &request);
  assert_int_equal(count_runs(f), 1);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  assert_int_equal(rpc_reader_next(asked, (void **)&reply, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "has no checkpoint"));
  assert_int_equal(count_runs(f), 1);
  rpc_reader_close(asked);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

/* Of version 3 of a run that is at 1, and asks for its checkpoint there. */
static char *fork_early(struct service_fixture *f, const char *id, struct rpc_reader *server) {
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__ForkReply *reply;
  Weir__RunInfo *info;
  struct err err;
  char *fork;
  request.run = (char *)id;
  request.has_step = true;
  request.step = 3;
  if (fork_run(f, &request, &reply, &err))
    fail_msg("%s", err.text);
  assert_int_equal(reply->step, 3);
  assert_int_equal(reply->n_notes, 1);
  assert_non_null(strstr(reply->notes[0], "it waits until "));
  fork = strdup(reply->run);
  message_free(reply);
  assert_int_equal(ask_run(f, RPC_GET_RUN, fork, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__QUEUED);
  assert_true(info->base_to_come);
  assert_non_null(strstr(info->message, "waiting for step 3 of "));
  message_free(info);
  while (expect_write(server) != 3)
    ;
  return fork;
}

/* Until the coordinator has it at step 1: what clients ask may overtake what members tell. */
static char *run_to_fork(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker) {
  char *id;
  f->spec->train->steps = TINY_STEPS;
  id = submit_run(f);
  begin_run(f, id, server, worker);
  tell_step(f, server, id, 0);
  AWAIT(ask_step(f, id) == 1);
  return id;
}

static void
a_fork_of_a_step_to_come_is_there_at_once_and_has_its_base_when_its_parent_has_come_there(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = run_to_fork(f, server, worker), *fork = fork_early(f, id, server), *name;
  Weir__Manifest *own;
  Weir__RunInfo *info;
  Weir__Order *order;
  struct err err = ERR_NONE;
  tell_step(f, server, id, 1);
  tell_step(f, server, id, 2);
  write_blocks(f, server, id, 3);
  order = expect_order(server, WEIR__ORDER__BODY_LOAD);
  assert_string_equal(order->load->run, fork);
  assert_int_equal(order->load->step, 3);
  assert_string_equal(order->load->from->run, id);
  message_free(order);
  name = checkpoint_name(fork, 3);
  assert_int_equal(checkpoint_read(f->store, name, &own, &err), 0);
  message_free(own);
  assert_int_equal(ask_run(f, RPC_GET_RUN, fork, &info, &err), 0);
  assert_false(info->base_to_come);
  assert_int_equal(info->checkpoints, 1);
  message_free(info);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(name);
  free(fork);
  free(id);
}

static void a_fork_of_a_step_that_its_parent_does_not_come_to_fails(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = run_to_fork(f, server, worker), *fork = fork_early(f, id, server);
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  AWAIT(run_state(f, fork) == WEIR__RUN_STATE__FAILED);
  assert_int_equal(ask_run(f, RPC_GET_RUN, fork, &info, &err), 0);
  assert_non_null(strstr(info->message, "is cancelled at step 1, and has not made step 3"));
  message_free(info);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(fork);
  free(id);
}

static void a_step_that_is_gone_or_never_comes_is_refused(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3);
  static const struct {
    uint64_t step;
    const char *text;
  } cases[] = {{3, "has no checkpoint at step 3 (it has: 2, 4)"},
               {TINY_STEPS + 1, " steps: there is no step "}};
  Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
  Weir__ForkReply *reply;
  struct err err;
  request.run = id;
  request.has_step = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    request.step = cases[i].step;
    assert_int_equal(fork_run(f, &request, &reply, &err), ERR_NOT_FOUND);
    if (!strstr(err.text, cases[i].text))
      fail_msg("%s", err.text);
  }
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void garbage_is_refused_and_leaves_no_run(void **state) {
  struct service_fixture *f = *state;
  static char *const settings[] = {"",
                                   "=",
                                   "name",
                                   "name=",
                                   "name=A",
                                   "train.batch=2",
                                   "train.steps=1",
                                   "train.steps=1e99",
                                   "train=null",
                                   "model={}",
                                   "train.optimizer={name: x}",
                                   "train.optimizer.lr=.nan",
                                   "train.optimizer.groups=[{}]",
                                   "[0]=1",
                                   "a.b.c=1",
                                   "data.transforms[99].scale=1",
                                   "train.schedule.name=\x01",
                                   "eval={every_steps: 0}",
                                   "workers.min=0",
                                   "x=[[[[[[[[[[[",
                                   "name=\xff\xfe",
                                   "checkpoint.keep=0",
                                   "train.average={decay: 7}",
                                   "eval.metrics=[no-metric]"};
  static char *const runs[] = {"", "x", "tiny", "/", "../..", "tiny-\xff", "%s%n"};
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3);
  unsigned seed = 7;
  (void)state;
  for (int i = 0; i < GARBAGE; i++) {
    Weir__ForkRequest request = WEIR__FORK_REQUEST__INIT;
    char *chosen[SETTINGS];
    Weir__ForkReply *reply;
    struct err err;
    for (int s = 0; s < SETTINGS; s++)
      chosen[s] = settings[(size_t)rand_r(&seed) % (sizeof settings / sizeof *settings)];
    request.run = rand_r(&seed) % 3 ? id : runs[(size_t)rand_r(&seed) % (sizeof runs / sizeof *runs)];
    request.has_step = rand_r(&seed) % 2;
    request.step = rand_r(&seed) % 2 ? 2 : UINT64_MAX >> (rand_r(&seed) % 64);
    request.settings = chosen;
    request.n_settings = 1 + (size_t)rand_r(&seed) % SETTINGS;
    request.name =
        rand_r(&seed) % 2 ? "" : settings[(size_t)rand_r(&seed) % (sizeof settings / sizeof *settings)];
    fork_run(f, &request, &reply, &err);
    if (reply || (err.code != ERR_INVALID && err.code != ERR_NOT_FOUND) || strchr(err.text, '\n'))
      fail_msg("%s %s: %s", request.run, chosen[0], err.code ? err.text : reply->run);
  }
  assert_int_equal(count_runs(f), 1);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__RUNNING);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(a_fork_has_a_manifest_of_its_parents_blocks),
      TEST(a_checkpoint_that_has_gone_is_named),
      TEST(a_fork_of_a_held_run_waits_for_the_checkpoint_there),
      TEST(a_fork_that_waits_for_a_run_which_ends_is_refused),
      TEST(a_fork_of_a_step_to_come_is_there_at_once_and_has_its_base_when_its_parent_has_come_there),
      TEST(a_fork_of_a_step_that_its_parent_does_not_come_to_fails),
      TEST(a_step_that_is_gone_or_never_comes_is_refused),
      TEST(garbage_is_refused_and_leaves_no_run),
  };
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
