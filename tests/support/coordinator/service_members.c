#include "tests/support/coordinator/service_members.h"

#include "common/base/message.h"
#include "tests/support/storage/checkpoint_fixture.h"

struct rpc_reader *member_join_again(struct service_fixture *f, Weir__Role role, const char *id,
                                     const char *run, uint64_t version) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__HostedRun hosted = WEIR__HOSTED_RUN__INIT, *list[] = {&hosted};
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  hello.role = role;
  hello.host = "here";
  hello.fingerprint = "build-1";
  hello.address = role == WEIR__ROLE__SERVER ? "127.0.0.1:1" : "";
  hello.executors = 1;
  hello.id = (char *)id;
  hosted.run = (char *)run;
  hosted.version = version;
  hello.runs = list;
  hello.n_runs = *run ? 1 : 0;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELLO;
  message.hello = &hello;
  assert_int_equal(rpc_reader_send(reader, &message, &err), 0);
  assert_int_equal(rpc_reader_next(reader, (void **)&order, &err), 0);
  assert_int_equal(order->body_case, WEIR__ORDER__BODY_WELCOME);
  message_free(order);
  return reader;
}

struct rpc_reader *member_join(struct service_fixture *f, Weir__Role role) {
  return member_join_again(f, role, "", "", 0);
}

static size_t count_workers(struct service_fixture *f) {
  Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply = NULL;
  struct err err = ERR_NONE;
  size_t n;
  if (rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_WORKERS, &request, patience_ms()}, false,
                (void **)&reply, &err))
    fail_msg("%s", err.text);
  n = reply->n_workers;
  message_free(reply);
  return n;
}

void members_leave(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker) {
  rpc_reader_close(server);
  rpc_reader_close(worker);
  AWAIT(count_workers(f) == 0);
}

void member_tell(struct rpc_reader *member, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct err err = ERR_NONE;
  message.body_case = body;
  message.hello = content;
  assert_int_equal(rpc_reader_send(member, &message, &err), 0);
}

Weir__Order *expect_order(struct rpc_reader *member, Weir__Order__BodyCase body) {
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_next(member, (void **)&order, &err), 0);
  assert_non_null(order);
  assert_int_equal(order->body_case, body);
  return order;
}

uint64_t expect_write(struct rpc_reader *server) {
  Weir__Order *order = expect_order(server, WEIR__ORDER__BODY_WRITE);
  uint64_t step = order->write->step;
  message_free(order);
  return step;
}

static void tell_loaded(struct service_fixture *f, struct rpc_reader *member, const char *run,
                        uint64_t samples) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.run = (char *)run;
  loaded.incarnation = f->incarnation;
  loaded.train_samples = samples;
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

void tell_step(struct service_fixture *f, struct rpc_reader *server, const char *run, uint64_t step) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.run = (char *)run;
  report.incarnation = f->incarnation;
  report.step = step;
  member_tell(server, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
}

void begin_run(struct service_fixture *f, const char *id, struct rpc_reader *server,
               struct rpc_reader *worker) {
  Weir__Order *order = expect_order(worker, WEIR__ORDER__BODY_LOAD);
  f->incarnation = order->load->incarnation;
  message_free(order);
  tell_loaded(f, worker, id, TINY_SAMPLES);
  message_free(expect_order(server, WEIR__ORDER__BODY_LOAD));
  tell_loaded(f, server, id, 0);
  message_free(expect_order(worker, WEIR__ORDER__BODY_VIEW));
}

void train_run(struct service_fixture *f, const char *id, struct rpc_reader *server,
               struct rpc_reader *worker) {
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  begin_run(f, id, server, worker);
  for (uint64_t step = 0; step < STEPS; step++)
    tell_step(f, server, id, step);
  complete.run = (char *)id;
  complete.incarnation = f->incarnation;
  member_tell(server, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, &complete);
  assert_int_equal(expect_write(server), STEPS);
}

void write_blocks(struct service_fixture *f, struct rpc_reader *server, const char *run, uint64_t step) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__Manifest *manifest = tiny_manifest(f->store, run, step);
  written.run = (char *)run;
  written.incarnation = f->incarnation;
  written.step = step;
  written.is_last = true;
  written.blocks = manifest->blocks;
  written.n_blocks = manifest->n_blocks;
  member_tell(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
  message_free(manifest);
}

char *train_with_checkpoints(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker,
                             uint64_t last, uint32_t keep) {
  Weir__CheckpointSpec *checkpoint = f->spec->checkpoint;
  uint64_t step = 0;
  char *id;
  f->spec->train->steps = TINY_STEPS;
  checkpoint->has_every_steps = true;
  checkpoint->has_every_seconds = false;
  checkpoint->every_steps = 2;
  checkpoint->has_keep = true;
  checkpoint->keep = keep;
  id = submit_run(f);
  begin_run(f, id, server, worker);
  for (uint64_t wanted = 2; wanted <= last; wanted += 2) {
    assert_int_equal(expect_write(server), wanted);
    for (; step < wanted; step++)
      tell_step(f, server, id, step);
    write_blocks(f, server, id, wanted);
    AWAIT(has_checkpoint(f, id, wanted));
  }
  return id;
}
