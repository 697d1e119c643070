#include "tests/support/worker/worker_servers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/compress/compression.h"
#include "common/rpc/server.h"
#include "parameters.pb-c.h"
#include "tests/support/common/own_port.h"
#include "tests/support/worker/worker_fixture.h"

static bool fault_strikes(int *times) {
  bool is_left = *times > 0;
  *times -= is_left;
  return is_left;
}

static void give_model(struct worker_fixture *f, struct rpc_call *call) {
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  size_t half = f->onnx_bytes / 2;
  bool is_cut, is_another;
  pthread_mutex_lock(&f->lock);
  is_cut = fault_strikes(&f->faults.models_cut);
  is_another = f->faults.model_is_another;
  pthread_mutex_unlock(&f->lock);
  chunk.data = (ProtobufCBinaryData){half, (uint8_t *)f->onnx};
  rpc_call_send(call, &chunk, NULL);
  chunk.data = (ProtobufCBinaryData){f->onnx_bytes - half, (uint8_t *)f->onnx + (is_another ? 0 : half)};
  if (!is_cut)
    rpc_call_send(call, &chunk, NULL);
  rpc_call_finish(call, NULL);
}

static void on_fetch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct worker_fixture *f = ((struct fake_server *)rpc_call_context(call))->f;
  bool is_held;
  (void)message;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  is_held = f->is_fetch_held;
  f->n_fetched++;
  if (is_held)
    f->held_fetch = call;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  if (!is_held)
    give_model(f, call);
}

/* True if the call is not to be answered now. */
static bool park_locked(struct fake_server *server, struct rpc_call *call, struct parked parked) {
  bool is_held = parked.is_push && parked.version == server->held_step + 1 &&
                 (server->held_block == UINT32_MAX || server->held_block == parked.block);
  bool is_ahead = !parked.is_push && server->parks_pulls && parked.version > server->version[parked.block];
  if (!server->is_frozen && !is_held && !is_ahead)
    return false;
  assert_in_range(server->n_parked, 0, PARKED_MAX - 1);
  parked.version = server->is_frozen ? UINT64_MAX : parked.version;
  server->parked[server->n_parked++] = parked;
  rpc_call_set_user(call, server);
  pthread_cond_broadcast(&server->f->changed);
  return true;
}

/* The worker has given up a parked call, or has its answer. */
static void on_closed(struct rpc_call *call) {
  struct fake_server *server = rpc_call_context(call);
  bool is_parked = false;
  pthread_mutex_lock(&server->f->lock);
  for (int i = 0; i < server->n_parked && !is_parked; i++) {
    is_parked = server->parked[i].call == call;
    if (is_parked)
      server->parked[i] = server->parked[--server->n_parked];
  }
  server->n_gone += is_parked;
  pthread_cond_broadcast(&server->f->changed);
  pthread_mutex_unlock(&server->f->lock);
  if (is_parked)
    rpc_call_finish(call, NULL);
}

/* What a server says that has another incarnation of the run, or none. */
static bool refuse_stranger(struct fake_server *server, struct rpc_call *call, uint64_t incarnation) {
  bool has_no_run, is_other;
  pthread_mutex_lock(&server->f->lock);
  has_no_run = server->has_no_run && !server->is_frozen;
  is_other = server->incarnation != incarnation && !server->is_frozen;
  pthread_mutex_unlock(&server->f->lock);
  if (has_no_run)
    rpc_call_fail(call, ERR_NOT_FOUND, "there is no such run on this server");
  else if (is_other)
    rpc_call_fail(call, ERR_STALE, "the run is in another incarnation here");
  return has_no_run || is_other;
}

static void on_versions(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_server *server = rpc_call_context(call);
  struct worker_fixture *f = server->f;
  Weir__VersionsReply reply = WEIR__VERSIONS_REPLY__INIT;
  bool is_unavailable, is_unknown, is_parked;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  server->n_questions++;
  is_unavailable = fault_strikes(&f->faults.versions_unavailable);
  is_unknown = fault_strikes(&f->faults.versions_unknown);
  reply.lowest = UINT64_MAX;
  for (uint32_t b = 0; b < f->model->n_blocks; b++) {
    reply.lowest = server->version[b] < reply.lowest ? server->version[b] : reply.lowest;
    reply.highest = server->version[b] > reply.highest ? server->version[b] : reply.highest;
  }
  server->has_outrun = fault_strikes(&f->faults.outrun);
  if (server->has_outrun)
    reply.lowest = reply.highest = 1 + (uint64_t)f->faults.outrun % 2;
  is_parked = park_locked(server, call, (struct parked){.call = call});
  for (uint32_t b = 0; b < f->model->n_blocks && server->leap; b++)
    server->version[b] = server->leap;
  server->leap = 0;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  if (is_parked || refuse_stranger(server, call, ((const Weir__VersionsRequest *)message)->incarnation))
    return;
  if (is_unavailable)
    rpc_call_fail(call, ERR_UNAVAILABLE, "later");
  else if (is_unknown)
    rpc_call_fail(call, ERR_NOT_FOUND, "there is no such run on this server");
  else
    rpc_call_reply(call, &reply, NULL);
}

static void give_block(struct worker_fixture *f, const struct parked *to) {
  Weir__PullReply pull = WEIR__PULL_REPLY__INIT;
  Weir__PushReply push = WEIR__PUSH_REPLY__INIT;
  size_t size_bytes = f->model->blocks[to->block].elems * sizeof(float);
  struct buffer *buffer = buffer_new(size_bytes);
  struct rpc_payload payload = {buffer, 0, size_bytes};
  model_initial_block(f->model, to->block, buffer->data);
  pthread_mutex_lock(&f->lock);
  payload.size_bytes -= fault_strikes(&f->faults.blocks_short) ? sizeof(float) : 0;
  pull.version = push.version = to->version - (to->version > 0 && fault_strikes(&f->faults.blocks_old));
  if (to->is_push || (to->version > 0 && to->version == to->server->taken[to->block]))
    to->server->version[to->block] = to->version;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  rpc_call_reply(to->call, to->is_push ? (void *)&push : (void *)&pull, &payload);
  buffer_put(buffer);
}

static void on_pull(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_server *server = rpc_call_context(call);
  struct worker_fixture *f = server->f;
  const Weir__PullRequest *pull = message;
  struct parked parked = {server, call, false, pull->block, pull->version};
  bool is_unavailable, is_busy, is_parked, is_dropped;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  f->n_pulls++;
  is_unavailable = fault_strikes(&f->faults.pulls_unavailable);
  is_busy = fault_strikes(&f->faults.pulls_busy);
  is_dropped = server->has_outrun;
  is_parked = park_locked(server, call, parked);
  pthread_mutex_unlock(&f->lock);
  if (is_parked || refuse_stranger(server, call, pull->incarnation))
    return;
  if (is_unavailable)
    rpc_call_fail(call, ERR_UNAVAILABLE, "later");
  else if (is_busy)
    rpc_call_fail(call, ERR_BUSY, "too many wait");
  else if (is_dropped)
    rpc_call_fail(call, ERR_DROPPED, "that version is no more");
  else
    give_block(f, &parked);
}

/* Frees the bytes. */
static uint64_t digest_of(struct rpc_bytes *bytes) {
  size_t size_bytes = rpc_bytes_size(bytes);
  unsigned char *copy = mem_new(size_bytes);
  uint64_t digest = 0;
  rpc_bytes_copy(bytes, copy);
  for (size_t i = 0; i < size_bytes; i++)
    digest = digest * 1099511628211u + copy[i] + 1;
  free(copy);
  rpc_bytes_free(bytes);
  return digest;
}

static void note_push_locked(struct fake_server *server, const Weir__PushRequest *push, uint64_t digest) {
  struct worker_fixture *f = server->f;
  assert_in_range(f->n_pushes, 0, PUSHES_MAX - 1);
  f->pushes[f->n_pushes++] = (struct fake_push){
      server->index,    push->incarnation, push->step,   push->block, push->first, push->level,
      push->evaluation, push->wait,        push->worker, push->view,  digest};
  f->n_waits += push->wait;
}

/* What is answered in place of a push. */
static enum err_code push_fault_locked(struct faults *faults, const Weir__PushRequest *push) {
  if (fault_strikes(&faults->pushes_unavailable))
    return ERR_UNAVAILABLE;
  if (fault_strikes(&faults->pushes_busy))
    return ERR_BUSY;
  if (fault_strikes(&faults->pushes_denied))
    return ERR_DENIED;
  if (fault_strikes(&faults->pushes_without_memory))
    return ERR_NO_MEMORY;
  return push->step > 0 && fault_strikes(&faults->pushes_dropped) ? ERR_DROPPED : ERR_OK;
}

/* Of a part of gradients. */
static size_t bytes_of(const struct worker_fixture *f, const Weir__PushRequest *push) {
  struct compression compression = compression_of(f->spec->train);
  const struct block *block = &f->model->blocks[push->block];
  struct tree_node node = {push->first, push->level};
  if (block->kind == BLOCK_PARAMETERS && compression_form(&compression, node) == SUM_IS_COMPRESSED)
    return compressor_bytes(compression.gradients, block->elems);
  return block->elems * sizeof(float);
}

static void on_push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_server *server = rpc_call_context(call);
  struct worker_fixture *f = server->f;
  const Weir__PushRequest *push = message;
  struct parked parked = {server, call, true, push->block, push->step + 1};
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  enum err_code fault;
  bool is_parked = false, waits;
  uint64_t digest;
  assert_int_equal(rpc_bytes_size(bytes), bytes_of(f, push));
  digest = digest_of(bytes);
  if (refuse_stranger(server, call, push->incarnation))
    return;
  pthread_mutex_lock(&f->lock);
  fault = push_fault_locked(&f->faults, push);
  waits = push->wait && !fault_strikes(&f->faults.pushes_put_off);
  if (!fault) {
    note_push_locked(server, push, digest);
    is_parked = waits && park_locked(server, call, parked);
    server->taken[push->block] = waits ? 0 : push->step + 1;
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  if (is_parked)
    return;
  if (fault)
    rpc_call_fail(call, fault, "the push meets with %s", err_name(fault));
  else if (waits)
    give_block(f, &parked);
  else
    rpc_call_reply(call, &reply, NULL);
}

static int note_ticket(struct rpc_call *call, struct err *err) {
  struct fake_server *server = rpc_call_context(call);
  const char *ticket = rpc_call_ticket(call);
  (void)err;
  pthread_mutex_lock(&server->f->lock);
  snprintf(server->ticket, sizeof server->ticket, "%s", ticket ? ticket : "");
  pthread_mutex_unlock(&server->f->lock);
  return 0;
}

static const struct rpc_method fake_methods[] = {
    {.id = RPC_FETCH_MODEL, .on_message = on_fetch},
    {.id = RPC_VERSIONS, .on_begin = note_ticket, .on_message = on_versions, .on_closed = on_closed},
    {.id = RPC_PULL, .on_begin = note_ticket, .on_message = on_pull, .on_closed = on_closed},
    {.id = RPC_PUSH, .on_begin = note_ticket, .on_message = on_push, .on_closed = on_closed}};

void fake_server_listen(struct fake_server *server) {
  struct rpc_service service = {fake_methods, sizeof fake_methods / sizeof *fake_methods, server};
  struct rpc_server_options options = {.listen = server->target, .services = &service, .n_services = 1};
  struct err err;
  if (!*server->target)
    snprintf(server->target, sizeof server->target, "127.0.0.1:%d", own_port());
  if (rpc_server_start(&options, &server->server, &err))
    fail_msg("%s", err.text);
}

void fake_server_stop(struct fake_server *server) {
  rpc_server_stop(server->server);
  server->server = NULL;
}

void fixture_release_model(struct worker_fixture *f) {
  struct rpc_call *call;
  pthread_mutex_lock(&f->lock);
  f->is_fetch_held = false;
  call = f->held_fetch;
  f->held_fetch = NULL;
  pthread_mutex_unlock(&f->lock);
  if (call)
    give_model(f, call);
}

/* Takes out what waits for a version up to this one. Returns how many. */
static int unpark_locked(struct fake_server *server, uint64_t version, struct parked parked[PARKED_MAX]) {
  int n = 0, kept = 0;
  for (int i = 0; i < server->n_parked; i++) {
    if (server->parked[i].version <= version)
      parked[n++] = server->parked[i];
    else
      server->parked[kept++] = server->parked[i];
  }
  server->n_parked = kept;
  return n;
}

void fake_server_reach(struct fake_server *server, uint64_t version) {
  struct parked parked[PARKED_MAX];
  int n;
  pthread_mutex_lock(&server->f->lock);
  for (uint32_t b = 0; b < server->f->model->n_blocks; b++)
    server->version[b] = version;
  n = unpark_locked(server, version, parked);
  pthread_mutex_unlock(&server->f->lock);
  for (int i = 0; i < n; i++)
    give_block(server->f, &parked[i]);
}

void fake_server_release(struct fake_server *server, enum err_code code) {
  struct parked parked[PARKED_MAX];
  int n;
  pthread_mutex_lock(&server->f->lock);
  server->held_step = UINT64_MAX;
  n = unpark_locked(server, UINT64_MAX - 1, parked);
  pthread_mutex_unlock(&server->f->lock);
  for (int i = 0; i < n; i++)
    if (code)
      rpc_call_fail(parked[i].call, code, "run 't-1' was unloaded");
    else
      give_block(server->f, &parked[i]);
}
