/* Models and weights for those who ask: from memory where they are there, else from the store. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
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

static void send_pieces(struct rpc_call *call, const struct run_model *model,
                        const Weir__FetchPiecesRequest *request) {
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  for (size_t i = 0; i < request->n_keys; i++) {
    const struct piece_place *place = onnx_outline_find(&model->pieces, request->keys[i]);
    if (!place) {
      rpc_call_fail(call, ERR_NOT_FOUND, "the model of run '%s' has no piece '%.64s'", request->run,
                    request->keys[i]);
      return;
    }
    chunk.data = (ProtobufCBinaryData){place->size_bytes, (uint8_t *)place->data};
    if (rpc_call_send(call, &chunk, NULL))
      break; /* the client is gone */
  }
  rpc_call_finish(call, NULL);
}

void shell_send_pieces(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                       const Weir__FetchPiecesRequest *request) {
  struct live_model *live = shell_find_model(shell, run);
  bool is_over = coordinator_run_is_over(shell->core, run);
  if (!live)
    rpc_call_fail(call, is_over ? ERR_NOT_FOUND : ERR_UNAVAILABLE,
                  is_over ? "run '%s' is over" : "the model of run '%s' is being read from the store", run);
  else if (request->n_keys > PIECES_MAX)
    rpc_call_fail(call, ERR_INVALID, "%zu pieces at a time; at most %d", request->n_keys, PIECES_MAX);
  else
    send_pieces(call, live->model, request);
}

void shell_send_weights(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                        uint64_t step, bool is_average) {
  download_start(
      shell,
      &(struct download){
          .shell = shell, .call = call, .run = mem_strdup(run), .step = step, .is_average = is_average});
}

void shell_fetch_model(struct coordinator_service *shell, const char *run) {
  if (!coordinator_run_is_over(shell->core, run) && !shell_find_model(shell, run))
    download_start(shell,
                   &(struct download){.shell = shell,
                                      .run = mem_strdup(run),
                                      .model_sha256 = mem_strdup(coordinator_run_model(shell->core, run))});
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
  if (!copy->call)
    task_post(shell->slow, &copy->task); /* one a run that is not over */
  else if (!task_offer(shell->slow, &copy->task)) {
    rpc_call_fail(copy->call, ERR_BUSY, "too many downloads and submissions wait");
    download_free(copy);
  }
}

static void read_weights(struct download *download, struct err *err) {
  struct store *store = download->shell->store;
  char *name = checkpoint_name(download->run, download->step);
  Weir__Manifest *manifest;
  if (checkpoint_read(store, name, &manifest, err) == 0)
    checkpoint_flat_weights(store, manifest, download->is_average, &download->blob, err);
  message_free(manifest);
  free(name);
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
    read_weights(download, &err);
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
    rpc_call_finish(download->call, &err);
  else {
    sender_send(shell->sender, download->call, download->blob);
    download->blob = NULL;
  }
  download_free(download);
}

static void model_fetched(struct task *task) {
  struct download *download = TASK_OWNER(task, struct download, task);
  struct coordinator_service *shell = download->shell;
  bool is_needed = shell->core && !coordinator_run_is_over(shell->core, download->run) &&
                   !shell_find_model(shell, download->run);
  bool is_lost = download->err.code == ERR_NOT_FOUND || download->err.code == ERR_CORRUPT;
  if (is_needed && download->model) {
    shell_keep_model(shell, download->run, run_model_get(download->model));
    if (shell->was_emptied) /* perhaps after this was read */
      shell_refill(shell);
  } else if (is_needed && is_lost)
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_MODEL_LOST,
                                                  .model_lost = {download->run, download->err.text}});
  else if (is_needed)
    shell->fetch_ms = shell_now_ms() + FETCH_RETRY_MS;
  download_free(download);
}
