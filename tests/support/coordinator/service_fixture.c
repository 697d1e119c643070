#include "tests/support/coordinator/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "server/coordinator/shell/service.h"
#include "storage/checkpoint/checkpoint.h"
#include "store.pb-c.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/storage/checkpoint_fixture.h"
#include "tests/support/storage/flaky_store.h"

static void on_seat_deposed(void *user, const char *reason) {
  struct seat *seat = user;
  (void)reason;
  __atomic_store_n(&seat->is_deposed, true, __ATOMIC_RELEASE);
}

static void on_seat_leading(void *user) {
  rpc_server_set_serving(((struct seat *)user)->server, true);
}

/* Members that are streams in a test's hands say nothing while nothing happens: none is missed for that. */
void seat_start(struct service_fixture *f, struct seat *seat, const char *holder) {
  struct err err = ERR_NONE;
  char target[32];
  *seat = (struct seat){.store = flaky_store_new(f->store)};
  seat->service =
      coordinator_service_new(&(struct coordinator_service_options){.store = seat->store,
                                                                    .lease_ms = LEASE_MS,
                                                                    .missing_after_ms = WEEK_MS,
                                                                    .server_grace_ms = f->server_grace_ms,
                                                                    .upload_slow_ms = f->upload_slow_ms,
                                                                    .upload_idle_ms = f->upload_idle_ms,
                                                                    .on_leading = on_seat_leading,
                                                                    .on_deposed = on_seat_deposed,
                                                                    .user = seat});
  assert_int_equal(
      rpc_server_start(&(struct rpc_server_options){.listen = "127.0.0.1:0",
                                                    .services = coordinator_service_list(seat->service),
                                                    .n_services = COORDINATOR_SERVICES,
                                                    .begins_not_serving = true,
                                                    .threads = 2},
                       &seat->server, &err),
      0);
  coordinator_service_lead(seat->service, holder, holder);
  coordinator_service_wait(seat->service, patience_ms());
  snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(seat->server));
  seat->channel = rpc_channel_open(f->client, target, PEER_ANY);
}

void seat_stop(struct seat *seat) {
  rpc_channel_close(seat->channel);
  coordinator_service_stop(seat->service);
  rpc_server_stop(seat->server);
  coordinator_service_free(seat->service);
  store_close(seat->store);
}

/* As far as the store and others can see: it says nothing any more, and sets nothing free. */
static void seat_kill(struct seat *seat) {
  flaky_set_away(seat->store, true);
  seat_stop(seat);
}

int service_setup(void **state) {
  struct service_fixture *f = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  assert_int_equal(store_open("memory://", &f->store, &err), 0);
  f->client = rpc_client_new(1, NULL);
  f->server_grace_ms = WEEK_MS;
  seat_start(f, &f->seat, "first:1");
  f->channel = f->seat.channel;
  f->spec = tiny_spec();
  f->spec->train->steps = STEPS;
  f->onnx = tiny_model(&f->onnx_bytes);
  *state = f;
  return 0;
}

int service_teardown(void **state) {
  struct service_fixture *f = *state;
  seat_stop(&f->seat);
  rpc_client_free(f->client);
  store_close(f->store);
  spec_free(f->spec);
  free(f->onnx);
  free(f);
  return 0;
}

void seat_restart(struct service_fixture *f, bool is_killed) {
  if (is_killed)
    seat_kill(&f->seat);
  else
    seat_stop(&f->seat);
  seat_start(f, &f->seat, "first:1");
  f->channel = f->seat.channel;
}

struct rpc_reader *upload_begin(struct service_fixture *f, Weir__RunSpec *spec, uint64_t model_bytes) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.spec = spec;
  request.model_bytes = model_bytes;
  rpc_reader_send(reader, &request, &err); /* a refusal shows in the reply */
  return reader;
}

void upload_add(struct rpc_reader *reader, void *data, size_t size) {
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.chunk.data = data;
  request.chunk.len = size;
  rpc_reader_send(reader, &request, &err);
}

char *upload_end(struct rpc_reader *reader, struct err *err) {
  Weir__SubmitReply *reply = NULL;
  char *id = NULL;
  *err = ERR_NONE;
  rpc_reader_half_close(reader);
  if (rpc_reader_next(reader, (void **)&reply, err) == 0 && reply)
    id = mem_strdup(reply->run);
  message_free(reply);
  rpc_reader_close(reader);
  return id;
}

char *try_to_submit(struct service_fixture *f, struct err *err) {
  struct rpc_reader *reader = upload_begin(f, f->spec, f->onnx_bytes);
  upload_add(reader, f->onnx, f->onnx_bytes / 2);
  upload_add(reader, f->onnx + f->onnx_bytes / 2, f->onnx_bytes - f->onnx_bytes / 2);
  return upload_end(reader, err);
}

void take_ticket(struct service_fixture *f, const char *run) {
  char *name = checkpoint_run_name(run, "run");
  Weir__RunRecord *record = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err), 0);
  assert_int_equal(record->key.len, TICKET_KEY_BYTES);
  ticket_make(record->key.data, &(struct ticket_owner){run, record->incarnation, "", 1}, f->ticket);
  message_free(record);
  free(name);
}

char *submit_run(struct service_fixture *f) {
  struct err err;
  char *id = try_to_submit(f, &err);
  assert_string_equal(err.text, "");
  assert_non_null(id);
  take_ticket(f, id);
  return id;
}

int ask_run(struct service_fixture *f, enum rpc_method_id method, const char *run, Weir__RunInfo **info,
            struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  request.run = (char *)run;
  *err = ERR_NONE;
  *info = NULL;
  return rpc_unary(f->channel, &(struct rpc_question){method, &request, patience_ms()}, false, (void **)info,
                   err);
}

uint64_t ask_step(struct service_fixture *f, const char *run) {
  Weir__RunInfo *info;
  struct err err;
  uint64_t step = ask_run(f, RPC_GET_RUN, run, &info, &err) == 0 ? info->step : 0;
  message_free(info);
  return step;
}

Weir__RunState run_state(struct service_fixture *f, const char *run) {
  Weir__RunInfo *info;
  struct err err;
  Weir__RunState state;
  if (ask_run(f, RPC_GET_RUN, run, &info, &err))
    return WEIR__RUN_STATE__RUN_STATE_UNKNOWN;
  state = info->state;
  message_free(info);
  return state;
}

long download_chunks(struct service_fixture *f, enum rpc_method_id method, const void *request,
                     struct iovec out, struct err *err) {
  bool is_members = method == RPC_FETCH_MODEL || method == RPC_FETCH_PIECES;
  struct rpc_reader *reader =
      rpc_reader_open_with(f->channel, method, patience_ms(), is_members ? f->ticket : NULL);
  Weir__Chunk *chunk = NULL;
  size_t got = 0;
  *err = ERR_NONE;
  rpc_reader_send(reader, request, err);
  rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&chunk, err) == 0 && chunk) {
    assert_true(got + chunk->data.len <= out.iov_len);
    memcpy((uint8_t *)out.iov_base + got, chunk->data.data, chunk->data.len);
    got += chunk->data.len;
    message_free(chunk);
  }
  rpc_reader_close(reader);
  return err->code ? -1 : (long)got;
}

long download_run(struct service_fixture *f, enum rpc_method_id method, const char *run, struct iovec out,
                  struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__WeightsRequest weights = WEIR__WEIGHTS_REQUEST__INIT;
  request.run = weights.run = (char *)run;
  return download_chunks(f, method, method == RPC_GET_WEIGHTS ? (void *)&weights : (void *)&request, out,
                         err);
}

uint64_t watch_all(struct service_fixture *f, const char *run, uint64_t from, Weir__RunEvent **last) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  Weir__RunEvent *event = NULL;
  struct err err = ERR_NONE;
  uint64_t next = from, count = 0;
  request.run = (char *)run;
  request.from = from;
  *last = NULL;
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&event, &err) == 0 && event) {
    assert_true(event->number >= next);
    next = event->number + 1;
    count++;
    message_free(*last);
    *last = event;
  }
  assert_string_equal(err.text, "");
  rpc_reader_close(reader);
  return count;
}

bool is_record_written(struct service_fixture *f, const char *run, const char *which) {
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, which);
  void *data;
  size_t size;
  bool is_there = store_get_record(f->store, name, &data, &size, &err) == 0;
  free(data);
  free(name);
  return is_there;
}

bool has_checkpoint(struct service_fixture *f, const char *run, uint64_t step) {
  char *which = mem_printf("checkpoints/%020llu", (unsigned long long)step);
  bool is_there = is_record_written(f, run, which);
  free(which);
  return is_there;
}

Weir__ListCheckpointsReply *list_checkpoints(struct service_fixture *f, const char *run) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__ListCheckpointsReply *reply = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)run;
  if (rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_CHECKPOINTS, &request, patience_ms()}, false,
                (void **)&reply, &err))
    fail_msg("%s", err.text);
  return reply;
}

void expect_checkpoints(struct service_fixture *f, const char *run, uint64_t first, size_t n) {
  Weir__ListCheckpointsReply *reply = list_checkpoints(f, run);
  assert_int_equal(reply->n_checkpoints, n);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(reply->checkpoints[i]->step, first + 2 * i);
    assert_int_equal(reply->checkpoints[i]->blocks, TINY_BLOCKS);
  }
  message_free(reply);
}

static int count_block(void *user, const char *key, uint64_t size_bytes) {
  (void)key;
  (void)size_bytes;
  ++*(int *)user;
  return 0;
}

int stored_blocks(const struct service_fixture *f) {
  struct err err = ERR_NONE;
  int n = 0;
  assert_int_equal(store_list_blocks(f->store, count_block, &n, &err), 0);
  return n;
}
