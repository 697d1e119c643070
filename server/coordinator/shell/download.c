/* Models, weights and layouts for those who ask: from memory where they are there, else from the store. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "common/optim/trained_model.h"
#include "model/model.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/layout.h"
#include "server/coordinator/shell/shell.h"

enum { FETCH_RETRY_MS = 1000, PIECES_MAX = 16 };

/* Something to read from the store before it can be sent. */
struct download {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call; /* NULL: a model for ourselves */
  char *run;
  char *model_sha256; /* NULL: the weights */
  uint64_t step;
  bool is_average;
  struct buffer *blob;
  struct run_model *model; /* of a model for ourselves */
  struct err err;          /* likewise */
  bool is_shared;          /* likewise: other runs wait for it, too */
  struct download *next;   /* in shell->fetches */
};

static void download_run(struct task *task);
static void model_fetched(struct task *task);
static void download_start(struct coordinator_service *shell, const struct download *download);

/* A file from the store: key is that of a block. */
static void send_stored(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                        const char *key) {
  download_start(shell,
                 &(struct download){
                     .shell = shell, .call = call, .run = mem_strdup(run), .model_sha256 = mem_strdup(key)});
}

void shell_send_model(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  struct live_model *live = shell_find_model(shell, run);
  if (live)
    sender_send(shell->sender, call, buffer_get(live->model->file));
  else
    send_stored(shell, call, run, coordinator_run_model(shell->core, run));
}

/* What another build made of the model is in the store, as the order to load it says. */
void shell_send_outline(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  struct live_model *live = shell_find_model(shell, run);
  const char *key = coordinator_run_outline(shell->core, run);
  if (strcmp(key, coordinator_run_model(shell->core, run)) == 0)
    shell_send_model(shell, call, run);
  else if (live && strcmp(live->model->outline_sha256, key) == 0)
    sender_send(shell->sender, call, buffer_get(live->model->outline));
  else
    send_stored(shell, call, run, key);
}

/* False: the file does not hold all of them. */
static bool send_from_file(struct rpc_call *call, const struct run_model *model,
                           const Weir__PiecesRequest *request) {
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  for (size_t i = 0; i < request->n_keys; i++)
    if (!onnx_outline_find(&model->pieces, request->keys[i]))
      return false;
  for (size_t i = 0; i < request->n_keys; i++) {
    const struct piece_place *place = onnx_outline_find(&model->pieces, request->keys[i]);
    chunk.data = (ProtobufCBinaryData){place->size_bytes, (uint8_t *)place->data};
    if (rpc_call_send(call, &chunk, NULL))
      break; /* the client is gone */
  }
  rpc_call_finish(call, NULL);
  return true;
}

/* Pieces of which some are in the store. */
struct pieces_download {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  Weir__PiecesRequest *request;
  struct run_model *model; /* NULL: its run is over */
  char *model_sha256;
};

static void pieces_download_free(struct pieces_download *download) {
  run_model_put(download->model);
  message_free(download->request);
  free(download->model_sha256);
  free(download);
}

/* One piece, to the client. names: what the file names. */
static int send_stored_piece(const struct pieces_download *download, const struct onnx_outline *names,
                             const char *key, struct err *err) {
  const struct piece_place *place = download->model ? onnx_outline_find(&download->model->pieces, key) : NULL;
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  void *data = NULL;
  if (place)
    chunk.data = (ProtobufCBinaryData){place->size_bytes, (uint8_t *)place->data};
  else if (!onnx_outline_find_named(names, key))
    return err_set(err, ERR_NOT_FOUND, "the model of run '%s' has no piece '%.64s'", download->request->run,
                   key);
  else if (store_get(download->shell->store, key, &data, &chunk.data.len, err) == 0)
    chunk.data.data = data;
  if (!err->code && rpc_call_send(download->call, &chunk, NULL))
    err_set(err, ERR_CANCELLED, "the client is gone");
  free(data);
  return err->code;
}

static void pieces_download_run(struct task *task) {
  struct pieces_download *download = TASK_OWNER(task, struct pieces_download, task);
  struct onnx_outline read = {0};
  const struct onnx_outline *names = download->model ? &download->model->pieces : &read;
  struct buffer *file = NULL;
  struct err err = ERR_NONE;
  if (shell_is_ending(download->shell))
    err_set(&err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (!download->model &&
           checkpoint_blob(download->shell->store, download->model_sha256, &file, &err) == 0)
    onnx_outline_names(file->data, file->size_bytes, &read);
  for (size_t i = 0; i < download->request->n_keys && !err.code; i++)
    send_stored_piece(download, names, download->request->keys[i], &err);
  rpc_call_finish(download->call, err.code ? &err : NULL);
  onnx_outline_fini(&read);
  buffer_put(file);
  pieces_download_free(download);
}

void shell_send_pieces(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                       const Weir__PiecesRequest *request) {
  struct live_model *live = shell_find_model(shell, run);
  struct pieces_download *download;
  if (request->n_keys > PIECES_MAX) {
    rpc_call_fail(call, ERR_INVALID, "%zu pieces at a time; at most %d", request->n_keys, PIECES_MAX);
    return;
  }
  if (!live && !coordinator_run_is_over(shell->core, run)) {
    rpc_call_fail(call, ERR_UNAVAILABLE, "the model of run '%s' is being read from the store", run);
    return;
  }
  if (live && send_from_file(call, live->model, request))
    return;
  download = mem_new(sizeof *download);
  *download = (struct pieces_download){.task.run = pieces_download_run,
                                       .shell = shell,
                                       .call = call,
                                       .request = message_copy(request),
                                       .model = live ? run_model_get(live->model) : NULL,
                                       .model_sha256 = mem_strdup(coordinator_run_model(shell->core, run))};
  task_post(shell->slow, &download->task); /* bounded by the calls for pieces */
}

/* What the call asks for is to be read. False: it was refused. What clients ask for is bounded for each
   tenant: so that nobody's is refused because of another's. */
static bool offer(struct coordinator_service *shell, struct rpc_call *call, struct task *task) {
  if (rpc_call_user(call)) {
    task_post(shell->slow, task);
    return true;
  }
  if (task_offer(shell->slow, task))
    return true;
  rpc_call_fail(call, ERR_BUSY, "too many downloads and submissions wait");
  return false;
}

/* A layout that lacks what the model says. */
struct layout_task {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  Weir__RunSpec *spec;
  struct run_model *model; /* NULL: its run is over */
  char *model_sha256;
  struct arena arena;
  Weir__Layout layout;
};

static void layout_task_free(struct layout_task *layout) {
  run_model_put(layout->model);
  message_free(layout->spec);
  free(layout->model_sha256);
  arena_fini(&layout->arena);
  free(layout);
}

static void layout_task_run(struct task *task) {
  struct layout_task *layout = TASK_OWNER(task, struct layout_task, task);
  const Weir__TrainSpec *train = layout->spec->train;
  struct buffer *read = NULL;
  const struct buffer *file = layout->model ? layout->model->outline : NULL;
  struct model *model = NULL;
  struct err err = ERR_NONE;
  if (shell_is_ending(layout->shell))
    err_set(&err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (!file && checkpoint_blob(layout->shell->store, layout->model_sha256, &read, &err) == 0)
    file = read;
  if (!err.code && trained_model_open(&(struct model_source){.onnx = file->data,
                                                             .size_bytes = file->size_bytes,
                                                             .spec = layout->spec,
                                                             .samples = train->batch / train->microbatches},
                                      &model, &err) == 0)
    layout_fill(model, &layout->arena, &layout->layout, &err);
  if (!err.code)
    rpc_call_send(layout->call, &layout->layout, NULL); /* unless the client is gone */
  sender_finish(layout->call, err.code ? &err : NULL);
  model_close(model);
  buffer_put(read);
  layout_task_free(layout);
}

void shell_send_layout(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  struct live_model *live = shell_find_model(shell, run);
  struct layout_task *layout = mem_new(sizeof *layout);
  *layout = (struct layout_task){.task.run = layout_task_run,
                                 .shell = shell,
                                 .call = call,
                                 .spec = message_copy(coordinator_run_spec(shell->core, run)),
                                 .model = live ? run_model_get(live->model) : NULL,
                                 .model_sha256 = mem_strdup(coordinator_run_model(shell->core, run))};
  arena_init(&layout->arena);
  coordinator_run_layout(shell->core, run, &layout->arena, &layout->layout);
  if (!offer(shell, call, &layout->task))
    layout_task_free(layout);
}

void shell_send_weights(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                        uint64_t step, bool is_average) {
  download_start(
      shell,
      &(struct download){
          .shell = shell, .call = call, .run = mem_strdup(run), .step = step, .is_average = is_average});
}

/* NULL: nobody reads it. */
static struct download *find_fetch(struct coordinator_service *shell, const char *key) {
  struct download *fetch = shell->fetches;
  while (fetch && strcmp(fetch->model_sha256, key))
    fetch = fetch->next;
  return fetch;
}

void shell_fetch_model(struct coordinator_service *shell, const char *run) {
  const char *key = coordinator_run_model(shell->core, run);
  struct download *fetch;
  if (coordinator_run_is_over(shell->core, run) || shell_find_model(shell, run) ||
      shell_share_model(shell, run, key))
    return;
  fetch = find_fetch(shell, key);
  if (fetch)
    fetch->is_shared = true;
  else
    download_start(
        shell, &(struct download){.shell = shell, .run = mem_strdup(run), .model_sha256 = mem_strdup(key)});
}

void shell_fetch_models(struct coordinator_service *shell) {
  shell->fetch_ms = 0;
  shell_saves_each(shell, shell_fetch_model);
}

static void download_free(struct download *download) {
  buffer_put(download->blob);
  run_model_put(download->model);
  free(download->run);
  free(download->model_sha256);
  free(download);
}

static void download_start(struct coordinator_service *shell, const struct download *download) {
  struct download *copy = mem_new(sizeof *copy);
  *copy = *download;
  copy->task.run = download_run;
  if (!copy->call) {
    copy->next = shell->fetches;
    shell->fetches = copy;
    task_post(shell->slow, &copy->task); /* one a model of runs that are not over */
  } else if (!offer(shell, copy->call, &copy->task)) {
    download_free(copy);
  }
}

/* Weights that are sent as they are read. */
struct weights_sending {
  Weir__Manifest *manifest;
  struct weights_stream *stream;
};

static int weights_next(void *user, const void **data, size_t *size, struct err *err) {
  const struct weights_sending *sending = user;
  const float *floats = NULL;
  int rc = weights_stream_next(sending->stream, &floats, size, err);
  *data = floats;
  *size *= sizeof *floats;
  return rc;
}

static void weights_close(void *user) {
  struct weights_sending *sending = user;
  weights_stream_close(sending->stream);
  message_free(sending->manifest);
  free(sending);
}

/* Sends them, unless there is an error. */
static int send_weights(struct download *download, struct err *err) {
  struct coordinator_service *shell = download->shell;
  struct weights_sending *sending = mem_new(sizeof *sending);
  char *name = checkpoint_name(download->run, download->step);
  if (checkpoint_read(shell->store, name, &sending->manifest, err) ||
      weights_stream_open(shell->store, sending->manifest, download->is_average, &sending->stream, err))
    weights_close(sending);
  else
    sender_send_source(shell->sender, download->call,
                       &(struct sender_source){weights_next, weights_close, sending});
  free(name);
  return err->code;
}

static void download_run(struct task *task) {
  struct download *download = TASK_OWNER(task, struct download, task);
  struct coordinator_service *shell = download->shell;
  struct err err = ERR_NONE;
  if (shell_is_ending(shell))
    err_set(&err, ERR_UNAVAILABLE, "the coordinator is stopping");
  else if (download->model_sha256)
    checkpoint_blob(shell->store, download->model_sha256, &download->blob, &err);
  else
    send_weights(download, &err);
  if (!download->call) {
    if (err.code)
      log_event(LOG_WARN, "coordinator", "model_unreadable", "run=%s reason=\"%s\"", download->run, err.text);
    else
      download->model = run_model_new(download->blob);
    download->blob = NULL;
    download->err = err;
    download->task.run = model_fetched;
    task_post(shell->event_loop, &download->task);
    return;
  }
  if (err.code)
    sender_finish(download->call, &err);
  else if (download->blob)
    sender_send(shell->sender, download->call, download->blob);
  download->blob = NULL;
  download_free(download);
}

static void model_fetched(struct task *task) {
  struct download *download = TASK_OWNER(task, struct download, task);
  struct coordinator_service *shell = download->shell;
  bool is_needed = shell->core && !coordinator_run_is_over(shell->core, download->run) &&
                   !shell_find_model(shell, download->run);
  bool is_lost = download->err.code == ERR_NOT_FOUND || download->err.code == ERR_CORRUPT;
  struct download **at = &shell->fetches;
  while (*at != download)
    at = &(*at)->next;
  *at = download->next;
  if (is_needed && download->model) {
    shell_keep_model(shell, download->run, download->model_sha256, run_model_get(download->model));
    if (shell->was_emptied) /* perhaps after this was read */
      shell_refill(shell);
  } else if (is_needed && is_lost)
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_MODEL_LOST,
                                                  .model_lost = {download->run, download->err.text}});
  else if (is_needed)
    shell->fetch_ms = shell_now_ms() + FETCH_RETRY_MS;
  if (download->is_shared && shell->core && !shell->fetch_ms)
    shell_fetch_models(shell);
  download_free(download);
}
