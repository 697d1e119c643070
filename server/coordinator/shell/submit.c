/* New runs: uploaded to gRPC's thread, checked by the thread `slow`, queued by the event loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/message.h"
#include "common/optim/trained_model.h"
#include "common/settle/spec_settle.h"
#include "common/sweep/sweep_spec.h"
#include "model/model.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/shell/piece_hold.h"
#include "server/coordinator/shell/submit.h"
#include "server/coordinator/shell/sweeps.h"
#include "server/coordinator/state/room.h"

/* A call's user once its upload went its way or was refused. */
static char settled;

static struct upload *upload_begin(struct rpc_call *call, const Weir__SubmitRequest *request,
                                   struct err *err);
static int upload_count(struct upload *upload, struct err *err);
static void upload_uncount(struct upload *upload);
static int upload_prepare(struct upload *upload, const Weir__SubmitRequest *request, struct err *err);
static int upload_add(struct upload *upload, const ProtobufCBinaryData *chunk, struct err *err);
static void upload_refuse(struct upload *upload, struct rpc_call *call, const struct err *err);
static void upload_check(struct task *task);
static int models_check(struct upload *upload);
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
  else if (upload->has_pieces && upload->received_bytes == upload->bytes) {
    upload_pieces_begin(upload);
    upload->task.run = upload_check;
    task_post(upload->shell->slow, &upload->task); /* bounded by LIMIT_UPLOADS */
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
  else if (upload->received_bytes != upload->bytes)
    err_set(&err, ERR_INVALID, "submit: the model was announced with %llu bytes, but %llu came",
            (unsigned long long)upload->bytes, (unsigned long long)upload->received_bytes);
  if (err.code) {
    upload_refuse(upload, call, &err);
    return;
  }
  rpc_call_set_user(call, &settled);
  upload->task.run = upload_check;
  task_post(upload->shell->slow, &upload->task); /* bounded by LIMIT_UPLOADS */
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
  upload = mem_new(sizeof *upload);
  upload->shell = shell;
  upload->call = call;
  upload->submitter = shell_viewer(call);
  upload->begin_ns = clock_now_ns();
  upload->has_pieces = request->has_pieces;
  upload->spec = spec_copy(request->spec);
  upload->sweep = request->sweep ? message_copy(request->sweep) : NULL;
  if (__atomic_add_fetch(&shell->uploads, 1, __ATOMIC_RELAXED) > LIMIT_UPLOADS)
    err_set(err, ERR_BUSY, "submit: %d others are being submitted: try again", LIMIT_UPLOADS);
  else if (upload_count(upload, err))
    ;
  else if (spec_check(upload->spec, err) || spec_settle_check(upload->spec, err))
    ;
  else
    upload_prepare(upload, request, err);
  rpc_call_set_user(call, upload);
  return upload;
}

/* Among those of its tenant, from now on and until upload_uncount. */
static int upload_count(struct upload *upload, struct err *err) {
  struct coordinator_service *shell = upload->shell;
  struct quota_use use = {.more = 1};
  int code;
  pthread_mutex_lock(&shell->uploads_lock);
  for (const struct upload *other = shell->uploads_list; other; other = other->next)
    use.used += strcmp(other->submitter.tenant, upload->submitter.tenant) == 0;
  upload->next = shell->uploads_list;
  shell->uploads_list = upload;
  code = quota_check(&shell->quotas, upload->submitter.tenant, QUOTA_UPLOADS, &use, err);
  pthread_mutex_unlock(&shell->uploads_lock);
  return code;
}

static void upload_uncount(struct upload *upload) {
  struct coordinator_service *shell = upload->shell;
  struct upload **at = &shell->uploads_list;
  pthread_mutex_lock(&shell->uploads_lock);
  while (*at && *at != upload)
    at = &(*at)->next;
  if (*at)
    *at = upload->next;
  pthread_mutex_unlock(&shell->uploads_lock);
}

/* The names of the space's files, which are the sweep's. NULL: it has none. */
static const Weir__Dimension *find_files(const Weir__SweepSpec *sweep) {
  for (size_t i = 0; sweep && i < sweep->n_space; i++)
    if (sweep->space[i]->n_files > 0)
      return sweep->space[i];
  return NULL;
}

/* Room for its models. */
static int upload_prepare(struct upload *upload, const Weir__SubmitRequest *request, struct err *err) {
  const Weir__Dimension *files = find_files(upload->sweep);
  const size_t n_files = files ? files->n_files : 0;
  if (n_files != request->n_file_bytes || n_files > SPACE_CHOICES_MAX)
    return err_set(err, ERR_INVALID, "submit: %zu model files come, and the space has %zu",
                   request->n_file_bytes, n_files);
  upload->models = mem_new((1 + n_files) * sizeof *upload->models);
  for (size_t i = 0; i <= n_files; i++) {
    struct upload_model *model = &upload->models[i];
    uint64_t bytes = i ? request->file_bytes[i - 1] : request->model_bytes;
    model->name = i ? files->files[i - 1] : upload->spec->model->onnx;
    if ((bytes == 0 && i == 0) || bytes > LIMIT_MODEL_BYTES - upload->bytes)
      return err_set(err, ERR_INVALID, "submit: a model of %llu bytes: it must have between 1 and %llu%s",
                     (unsigned long long)bytes, (unsigned long long)LIMIT_MODEL_BYTES,
                     i ? ", all together" : "");
    upload->bytes += bytes;
    upload->n_models++;
    if (bytes > 0 && !(model->onnx = buffer_new(bytes)))
      return err_set(err, ERR_NO_MEMORY, "submit: no memory for a model of %llu bytes",
                     (unsigned long long)bytes);
  }
  return 0;
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
  int slow_ms =
      upload->shell->options.upload_slow_ms ? upload->shell->options.upload_slow_ms : LIMIT_UPLOAD_SLOW_MS;
  double seconds = clock_seconds(clock_now_ns() - upload->begin_ns);
  if (seconds <= slow_ms / 1e3 || (double)upload->received_bytes >= seconds * LIMIT_UPLOAD_RATE)
    return 0;
  return err_set(err, ERR_CANCELLED, "submit: %llu bytes came in %.0f s: at least %d a second are wanted",
                 (unsigned long long)upload->received_bytes, seconds, LIMIT_UPLOAD_RATE);
}

/* A chunk is of one model, which is at hand as far as those before it have come. */
static int upload_add(struct upload *upload, const ProtobufCBinaryData *chunk, struct err *err) {
  uint64_t begin = 0; /* of the model, among the bytes of all */
  uint32_t i = 0;
  while (i < upload->n_models &&
         (!upload->models[i].onnx || upload->received_bytes >= begin + upload->models[i].onnx->size_bytes))
    begin += upload->models[i].onnx ? upload->models[i].onnx->size_bytes : 0, i++;
  if (chunk->len > (i < upload->n_models ? begin + upload->models[i].onnx->size_bytes : upload->bytes) -
                       upload->received_bytes)
    return err_set(err, ERR_INVALID,
                   "submit: more than the %llu bytes came that were announced for the model",
                   (unsigned long long)upload->bytes);
  if (chunk->len)
    memcpy((char *)upload->models[i].onnx->data + (upload->received_bytes - begin), chunk->data, chunk->len);
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
  upload_uncount(upload);
  spec_free(upload->spec);
  message_free(upload->sweep);
  for (uint32_t i = 0; i < upload->n_models; i++) {
    buffer_put(upload->models[i].onnx);
    run_model_put(upload->models[i].model);
    free(upload->models[i].block_elems);
  }
  free(upload->models);
  free(upload);
}

static void upload_check(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct coordinator_service *shell = upload->shell;
  char why[SHELL_TEXT_SIZE];
  for (uint32_t i = 0; i < upload->n_models; i++) {
    struct upload_model *model = &upload->models[i];
    model->model = model->onnx ? run_model_new(model->onnx) : run_model_get(upload->models->model);
    model->onnx = NULL;
  }
  if (!shell_is_leading(shell, why))
    err_set(&upload->err, ERR_UNAVAILABLE, "%s", why);
  else if ((!upload->sweep || sweep_check(upload) == 0) && models_check(upload) == 0 && !upload->has_pieces &&
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
static int check_numbers(struct upload *upload, struct run_model *of, const struct model *model) {
  const Weir__TrainSpec *train = upload->spec->train;
  struct piece_source source = {run_model_read, of};
  size_t n = of->pieces.n_named;
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

/* The spec that a model has to go with; freed with spec_free. NULL with the error. */
static Weir__RunSpec *spec_for(struct upload *upload, uint32_t i) {
  Weir__RunSpec *spec;
  if (!upload->sweep)
    return spec_copy(upload->spec);
  if (i == 0)
    return sweep_model_spec(upload->sweep, upload->spec);
  sweep_file_spec(upload->sweep, upload->spec, i - 1, &spec, &upload->err);
  return spec;
}

/* The outline, which is small, and then the numbers that are not in it. */
static int model_check(struct upload *upload, uint32_t i) {
  struct upload_model *of = &upload->models[i];
  const struct buffer *outline = of->model->outline;
  Weir__RunSpec *spec = spec_for(upload, i);
  struct model_source source = {.onnx = outline->data, .size_bytes = outline->size_bytes, .spec = spec};
  struct model *model;
  if (!spec)
    return upload->err.code;
  source.samples = spec->train->batch / spec->train->microbatches;
  if (trained_model_open(&source, &model, &upload->err) == 0) {
    of->parameters = model->param_elems;
    of->multiply_adds = model_multiply_adds(model, source.samples);
    of->n_blocks = model->n_blocks;
    of->block_elems = mem_new(model->n_blocks * sizeof *of->block_elems);
    for (uint32_t b = 0; b < model->n_blocks; b++)
      of->block_elems[b] = model->blocks[b].elems;
    check_numbers(upload, of->model, model);
    model_close(model);
  }
  spec_free(spec);
  return upload->err.code;
}

static int models_check(struct upload *upload) {
  for (uint32_t i = 0; i < upload->n_models; i++)
    if (model_check(upload, i))
      return err_prefix(&upload->err, "%s%s", i ? "space.model.onnx: files: " : "", upload->models[i].name);
  return 0;
}

int upload_store(struct upload *upload) {
  struct store *store = upload->shell->store;
  char again[STORE_KEY_SIZE];
  for (uint32_t i = 0; i < upload->n_models && !upload->err.code; i++) {
    const struct buffer *file = upload->models[i].model->file, *outline = upload->models[i].model->outline;
    if (store_put(store, file->data, file->size_bytes, upload->models[i].sha256, &upload->err) == 0 &&
        outline != file)
      store_put(store, outline->data, outline->size_bytes, again, &upload->err);
  }
  return upload->err.code;
}

/* Of servers, and of its tenant's quotas. A sweep's trials begin as quotas allow. */
static int check_room(struct upload *upload) {
  const struct upload_model *own = upload->models;
  for (uint32_t i = 0; i < upload->n_models && !upload->err.code; i++)
    coordinator_check_room(upload->shell->core, upload->spec, upload->models[i].block_elems,
                           upload->models[i].n_blocks, &upload->err);
  if (upload->err.code || upload->sweep)
    return upload->err.code;
  return quota_admit(
      upload->shell->core, upload->submitter.tenant,
      &(struct quota_demand){.memory_bytes = room_of_blocks(upload->spec, own->block_elems, own->n_blocks),
                             .model = own->sha256,
                             .model_bytes = own->model->file->size_bytes},
      &upload->err);
}

void upload_accept(struct task *task) {
  struct upload *upload = TASK_OWNER(task, struct upload, task);
  struct coordinator_service *shell = upload->shell;
  if (shell_turns_away(shell, upload->call))
    ;
  else if (upload->err.code || check_room(upload))
    rpc_call_finish(upload->call, &upload->err);
  else if (coordinator_live_runs(shell->core) >= LIMIT_RUNS)
    rpc_call_fail(upload->call, ERR_BUSY,
                  "submit: %d runs wait or run, the most that may: try again when some have ended",
                  LIMIT_RUNS);
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

static void sweep_model_fill(const struct upload_model *model, Weir__SweepModel *out) {
  weir__sweep_model__init(out);
  out->model_bytes = model->model->file->size_bytes;
  out->model_sha256 = (char *)model->sha256;
  out->outline_sha256 = model->model->outline_sha256;
  out->outline_bytes = *out->outline_sha256 ? model->model->outline->size_bytes : 0;
  out->parameters = model->parameters;
  out->block_elems = model->block_elems;
  out->n_block_elems = model->n_blocks;
  out->multiply_adds = model->multiply_adds;
}

static void sweep_queue(struct upload *upload) {
  Weir__SweepModel *files = mem_new(upload->n_models * sizeof *files);
  Weir__SweepModel **list = mem_new(upload->n_models * sizeof *list);
  struct run_model **models = mem_new(upload->n_models * sizeof(struct run_model *));
  Weir__SweepHead head = WEIR__SWEEP_HEAD__INIT;
  for (uint32_t i = 0; i < upload->n_models; i++) {
    models[i] = upload->models[i].model;
    sweep_model_fill(&upload->models[i], &files[i]);
    list[i] = &files[i];
  }
  head.sweep = upload->id;
  head.tenant = upload->submitter.tenant;
  head.spec = upload->sweep;
  head.run_spec = upload->spec;
  head.model_bytes = files->model_bytes;
  head.model_sha256 = files->model_sha256;
  head.outline_sha256 = files->outline_sha256;
  head.outline_bytes = files->outline_bytes;
  head.parameters = files->parameters;
  head.block_elems = files->block_elems;
  head.n_block_elems = files->n_block_elems;
  head.multiply_adds = upload->n_models > 1 ? files->multiply_adds : 0;
  head.files = list + 1;
  head.n_files = upload->n_models - 1;
  head.submitted_unix_ms = clock_unix_ms();
  shell_sweep_begin(upload->shell, upload->call, &head, models);
  free(models);
  free(files);
  free(list);
}

/* The call is answered when the run is in the store. */
static void run_queue(struct upload *upload) {
  struct coordinator_service *shell = upload->shell;
  const struct upload_model *own = upload->models;
  struct run_submission submission = {.id = upload->id,
                                      .tenant = upload->submitter.tenant,
                                      .spec = upload->spec,
                                      .model_bytes = own->model->file->size_bytes,
                                      .model_sha256 = own->sha256,
                                      .model_pieces = own->model->pieces.n_named,
                                      .outline_sha256 = own->model->outline_sha256,
                                      .parameters = own->parameters,
                                      .block_elems = own->block_elems,
                                      .n_blocks = own->n_blocks,
                                      .submitted_unix_ms = clock_unix_ms(),
                                      .weights_sha256 = upload->weights_sha256};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  if (*submission.outline_sha256)
    submission.outline_bytes = own->model->outline->size_bytes;
  shell_keep_model(shell, upload->id, own->sha256, run_model_get(own->model));
  shell_saves_await(shell, upload->id, upload->call, own->model);
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
