/* New runs: uploaded to gRPC's thread, checked by the thread `slow`, queued by the event loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/message.h"
#include "common/settle/spec_settle.h"
#include "common/sweep/sweep_spec.h"
#include "model/model.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/piece_hold.h"
#include "server/coordinator/shell/submit.h"
#include "server/coordinator/shell/sweeps.h"

/* RATE_MIN: bytes a second that an upload has on average, after a time in which it may be slow. */
enum { UPLOADS_MAX = 16, RATE_MIN = 16384, SLOW_MS = 60000 };
#define MODEL_BYTES_MAX (UINT64_C(2) << 30)

/* A call's user once its upload went its way or was refused. */
static char settled;

static struct upload *upload_begin(struct rpc_call *call, const Weir__SubmitRequest *request,
                                   struct err *err);
static int upload_add(struct upload *upload, const ProtobufCBinaryData *chunk, struct err *err);
static void upload_refuse(struct upload *upload, struct rpc_call *call, const struct err *err);
static void upload_check(struct task *task);
static int model_check(struct upload *upload);
static int sweep_check(struct upload *upload);
static void sweep_queue(struct upload *upload);
static void run_queue(struct upload *upload);

void shell_submit_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__SubmitRequest *request = message;
  struct upload *upload = rpc_call_user(call);
  struct err err = ERR_NONE;
  rpc_bytes_free(bytes);
  if ((void *)upload == &settled)
    return;
  if (upload && upload->refs) {
    upload_pieces_on_message(upload, request);
    return;
  }
  if (!upload)
    upload = upload_begin(call, request, &err);
  else if (request->spec)
    err_set(&err, ERR_INVALID, "submit: the spec comes once, in the first message");
  if (!err.code && request->piece.len > 0)
    err_set(&err, ERR_INVALID, "submit: a piece came that was not asked for");
  if (!err.code)
    upload_add(upload, &request->chunk, &err);
  if (err.code)
    upload_refuse(upload, call, &err);
  else if (upload->has_pieces && upload->received_bytes == upload->onnx->size_bytes) {
    upload_pieces_begin(upload);
    upload->task.run = upload_check;
    task_post(upload->shell->slow, &upload->task); /* bounded by UPLOADS_MAX */
  }
}

void shell_submit_on_half_close(struct rpc_call *call) {
  struct upload *upload = rpc_call_user(call);
  struct err err = ERR_NONE;
  if ((void *)upload == &settled)
    return;
  if (upload && upload->refs) {
    upload_pieces_on_end(upload, false);
    return;
  }
  if (!upload)
    err_set(&err, ERR_INVALID, "submit: no spec was sent");
  else if (upload->received_bytes != upload->onnx->size_bytes)
    err_set(&err, ERR_INVALID, "submit: the model was announced with %zu bytes, but %llu came",
            upload->onnx->size_bytes, (unsigned long long)upload->received_bytes);
  if (err.code) {
    upload_refuse(upload, call, &err);
    return;
  }
  rpc_call_set_user(call, &settled);
  upload->task.run = upload_check;
  task_post(upload->shell->slow, &upload->task); /* bounded by UPLOADS_MAX */
}

void shell_submit_on_closed(struct rpc_call *call) {
  struct upload *upload = rpc_call_user(call);
  struct err err;
  if (!upload || (void *)upload == &settled)
    return;
  if (upload->refs) {
    upload_pieces_on_end(upload, true);
    return;
  }
  err_set(&err, ERR_CANCELLED, "submit: the client is gone");
  upload_refuse(upload, call, &err);
}

static struct upload *upload_begin(struct rpc_call *call, const Weir__SubmitRequest *request,
                                   struct err *err) {
  struct coordinator_service *shell = rpc_call_context(call);
  struct upload *upload;
  if (!request->spec) {
    err_set(err, ERR_INVALID, "submit: the first message has no spec");
    return NULL;
  }
  if (request->model_bytes == 0 || request->model_bytes > MODEL_BYTES_MAX) {
    err_set(err, ERR_INVALID, "submit: a model of %llu bytes: it must have between 1 and %llu",
            (unsigned long long)request->model_bytes, (unsigned long long)MODEL_BYTES_MAX);
    return NULL;
  }
  upload = mem_new(sizeof *upload);
  upload->shell = shell;
  upload->call = call;
  upload->begin_ns = clock_now_ns();
  upload->has_pieces = request->has_pieces;
  upload->spec = spec_copy(request->spec);
  upload->sweep = request->sweep ? message_copy(request->sweep) : NULL;
  if (__atomic_add_fetch(&shell->uploads, 1, __ATOMIC_RELAXED) > UPLOADS_MAX)
    err_set(err, ERR_BUSY, "submit: %d others are being submitted: try again", UPLOADS_MAX);
  else if (spec_check(upload->spec, err) || spec_settle_check(upload->spec, err))
    ;
  else if (!(upload->onnx = buffer_new(request->model_bytes)))
    err_set(err, ERR_NO_MEMORY, "submit: no memory for a model of %llu bytes",
            (unsigned long long)request->model_bytes);
  rpc_call_set_user(call, upload);
  return upload;
}

/* On `slow`: each value of the space is tried in the run spec. */
static int sweep_check(struct upload *upload) {
  struct err *err = &upload->err;
  if (upload->has_pieces)
    return err_set(err, ERR_UNSUPPORTED, "model.onnx: a sweep's model is a file of its own, below 2 GiB");
  return sweep_spec_check(upload->sweep, err) || sweep_spec_check_base(upload->sweep, upload->spec, err)
             ? (int)err->code
             : 0;
}

/* A place is not held by messages without bytes, nor by a byte now and then. */
int upload_check_rate(const struct upload *upload, struct err *err) {
  int slow_ms = upload->shell->options.upload_slow_ms ? upload->shell->options.upload_slow_ms : SLOW_MS;
  double seconds = clock_seconds(clock_now_ns() - upload->begin_ns);
  if (seconds <= slow_ms / 1e3 || (double)upload->received_bytes >= seconds * RATE_MIN)
    return 0;
  return err_set(err, ERR_CANCELLED, "submit: %llu bytes came in %.0f s: at least %d a second are wanted",
                 (unsigned long long)upload->received_bytes, seconds, RATE_MIN);
}

static int upload_add(struct upload *upload, const ProtobufCBinaryData *chunk, struct err *err) {
  if (chunk->len > upload->onnx->size_bytes - upload->received_bytes)
    return err_set(err, ERR_INVALID, "submit: more than the %zu bytes came that were announced for the model",
                   upload->onnx->size_bytes);
  if (chunk->len)
    memcpy((char *)upload->onnx->data + upload->received_bytes, chunk->data, chunk->len);
  upload->received_bytes += chunk->len;
  return upload_check_rate(upload, err);
}

/* upload may be NULL. */
static void upload_refuse(struct upload *upload, struct rpc_call *call, const struct err *err) {
  rpc_call_set_user(call, &settled);
  rpc_call_finish(call, err);
  upload_free(upload);
}

void upload_free(struct upload *upload) {
  if (!upload)
    return;
  __atomic_sub_fetch(&upload->shell->uploads, 1, __ATOMIC_RELAXED);
  spec_free(upload->spec);
  message_free(upload->sweep);
  buffer_put(upload->onnx);
  run_model_put(upload->model);
  free(upload->block_elems);
  free(upload);
}

static void upload_check(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct coordinator_service *shell = upload->shell;
  char why[SHELL_TEXT_SIZE];
  upload->model = run_model_new(upload->onnx);
  upload->onnx = NULL;
  if (!shell_is_leading(shell, why))
    err_set(&upload->err, ERR_UNAVAILABLE, "%s", why);
  else if ((!upload->sweep || sweep_check(upload) == 0) && model_check(upload) == 0 && !upload->has_pieces &&
           upload_store(upload) == 0)
    run_id_draw(shell->store, upload->sweep ? upload->sweep->name : upload->spec->name, upload->id,
                &upload->err);
  if (!upload->err.code && upload->has_pieces) {
    upload_pieces_want(upload);
    return;
  }
  upload->task.run = upload_accept;
  task_post(shell->event_loop, &upload->task);
}

/* Of pieces that are still to come, the servers see to the numbers. */
static int check_numbers(struct upload *upload, const struct model *model) {
  const Weir__TrainSpec *train = upload->spec->train;
  struct piece_source source = {run_model_read, upload->model};
  size_t n = upload->model->pieces.n_named;
  if (n > ONNX_NAMED_MAX)
    return err_set(&upload->err, ERR_INVALID, "it names more than %d pieces", ONNX_NAMED_MAX);
  if (n > 0 && !upload->has_pieces)
    return err_set(&upload->err, ERR_INVALID, "it names %zu pieces, and none was sent", n);
  if (n > 0)
    return 0;
  if (train->has_steps && train->steps == 0)
    return model_initial_sha256(model, &source, upload->weights_sha256, &upload->err);
  return model_initial_check(model, &source, &upload->err);
}

/* The outline, which is small, and then the numbers that are not in it. */
static int model_check(struct upload *upload) {
  const Weir__TrainSpec *train = upload->spec->train;
  const struct buffer *outline = upload->model->outline;
  Weir__RunSpec *spec =
      upload->sweep ? sweep_model_spec(upload->sweep, upload->spec) : spec_copy(upload->spec);
  struct model *model;
  int rc = model_open(&(struct model_source){.onnx = outline->data,
                                             .size_bytes = outline->size_bytes,
                                             .spec = spec,
                                             .samples = train->batch / train->microbatches},
                      &model, &upload->err);
  spec_free(spec);
  if (!rc) {
    upload->parameters = model->param_elems;
    upload->n_blocks = model->n_blocks;
    upload->block_elems = mem_new(model->n_blocks * sizeof *upload->block_elems);
    for (uint32_t i = 0; i < model->n_blocks; i++)
      upload->block_elems[i] = model->blocks[i].elems;
    rc = check_numbers(upload, model);
    model_close(model);
  }
  return rc ? err_prefix(&upload->err, "%s", upload->spec->model->onnx) : 0;
}

int upload_store(struct upload *upload) {
  struct store *store = upload->shell->store;
  const struct buffer *file = upload->model->file, *outline = upload->model->outline;
  char again[STORE_KEY_SIZE];
  int rc = store_put(store, file->data, file->size_bytes, upload->model_sha256, &upload->err);
  return rc || outline == file ? rc
                               : store_put(store, outline->data, outline->size_bytes, again, &upload->err);
}

void upload_accept(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct coordinator_service *shell = upload->shell;
  if (shell_turns_away(shell, upload->call))
    ;
  else if (upload->err.code || coordinator_check_room(shell->core, upload->spec, upload->block_elems,
                                                      upload->n_blocks, &upload->err))
    rpc_call_finish(upload->call, &upload->err);
  else if (coordinator_live_runs(shell->core) >= RUNS_LIVE_MAX)
    rpc_call_fail(upload->call, ERR_BUSY, "submit: %d runs wait or run already", RUNS_LIVE_MAX);
  else if (upload->sweep && !shell_find_sweep(shell, upload->id))
    sweep_queue(upload);
  else if (upload->sweep ||
           coordinator_run_model(shell->core, upload->id)) /* another upload drew it at the same time */
    rpc_call_fail(upload->call, ERR_BUSY, "submit: the id %s was just given away: try again", upload->id);
  else
    run_queue(upload);
  piece_hold_release(upload->hold); /* behind the run's record */
  if (upload->refs)
    upload_pieces_put(upload);
  else
    upload_free(upload);
}

static void sweep_queue(struct upload *upload) {
  Weir__SweepHead head = WEIR__SWEEP_HEAD__INIT;
  head.sweep = upload->id;
  head.spec = upload->sweep;
  head.run_spec = upload->spec;
  head.model_bytes = upload->model->file->size_bytes;
  head.model_sha256 = upload->model_sha256;
  head.outline_sha256 = upload->model->outline_sha256;
  if (*head.outline_sha256)
    head.outline_bytes = upload->model->outline->size_bytes;
  head.parameters = upload->parameters;
  head.block_elems = upload->block_elems;
  head.n_block_elems = upload->n_blocks;
  head.submitted_unix_ms = clock_unix_ms();
  shell_sweep_begin(upload->shell, upload->call, &head, upload->model);
}

/* The call is answered when the run is in the store. */
static void run_queue(struct upload *upload) {
  struct coordinator_service *shell = upload->shell;
  struct run_submission submission = {.id = upload->id,
                                      .spec = upload->spec,
                                      .model_bytes = upload->model->file->size_bytes,
                                      .model_sha256 = upload->model_sha256,
                                      .model_pieces = upload->model->pieces.n_named,
                                      .outline_sha256 = upload->model->outline_sha256,
                                      .parameters = upload->parameters,
                                      .block_elems = upload->block_elems,
                                      .n_blocks = upload->n_blocks,
                                      .submitted_unix_ms = clock_unix_ms(),
                                      .weights_sha256 = upload->weights_sha256};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  if (*submission.outline_sha256)
    submission.outline_bytes = upload->model->outline->size_bytes;
  shell_keep_model(shell, upload->id, upload->model_sha256, run_model_get(upload->model));
  shell_saves_await(shell, upload->id, upload->call, upload->model);
  shell_step(shell, &event);
}

int run_id_draw(struct store *store, const char *name, char id[RUN_ID_SIZE], struct err *err) {
  unsigned char random[3];
  Weir__RunRecord *taken = NULL;
  do {
    message_free(taken);
    CHECK(getrandom(random, sizeof random, 0) == sizeof random);
    snprintf(id, RUN_ID_SIZE, "%s-%02x%02x%02x", name, random[0], random[1], random[2]);
  } while (checkpoint_find_run(store, id, &taken, err) == 0);
  if (err->code == ERR_NOT_FOUND)
    *err = ERR_NONE;
  return err->code;
}
