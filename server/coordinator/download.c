/* Models and weights for those who ask: from memory where they are there, else from the store. */
#include <stdlib.h>

#include "server/coordinator/checkpoint.h"
#include "server/coordinator/shell.h"

/* Something to read from the store before it can be sent. */
struct download {
  struct task task;
  struct coordinator_service *shell;
  struct rpc_call *call;
  char *run;
  char *model_sha256; /* NULL: the weights */
  uint64_t step;
};

static void download_run(struct task *task);
static void download_start(struct coordinator_service *shell, const struct download *download);

void shell_send_model(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  struct live_model *model = shell_find_model(shell, run);
  if (model)
    sender_send(shell->sender, call, buffer_get(model->onnx));
  else
    download_start(shell,
                   &(struct download){.shell = shell,
                                      .call = call,
                                      .run = mem_strdup(run),
                                      .model_sha256 = mem_strdup(coordinator_run_model(shell->core, run))});
}

void shell_send_weights(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  Weir__RunInfo info;
  CHECK(coordinator_run_info(shell->core, run, shell_now_ms(), &info));
  if (info.state == WEIR__RUN_STATE__DONE)
    download_start(
        shell, &(struct download){.shell = shell, .call = call, .run = mem_strdup(run), .step = info.steps});
  else if (coordinator_run_is_over(shell->core, run))
    rpc_call_fail(call, ERR_NOT_FOUND, "run '%s' has no weights: it %s", run,
                  info.state == WEIR__RUN_STATE__CANCELLED ? "was cancelled" : "failed");
  else
    rpc_call_fail(call, ERR_NOT_FOUND,
                  "run '%s' is not done: it has its weights when it is (step %llu of %llu)", run,
                  (unsigned long long)info.step, (unsigned long long)info.steps);
}

static void download_start(struct coordinator_service *shell, const struct download *download) {
  struct download *copy = mem_new(sizeof *copy);
  *copy = *download;
  copy->task.run = download_run;
  if (task_offer(shell->jobs, &copy->task))
    return;
  rpc_call_fail(copy->call, ERR_BUSY, "too many downloads and submissions wait");
  free(copy->run);
  free(copy->model_sha256);
  free(copy);
}

static void download_run(struct task *task) {
  struct download *download = TASK_OWNER(task, struct download, task);
  struct store *store = download->shell->store;
  struct buffer *blob = NULL;
  struct err err = ERR_NONE;
  if (download->model_sha256)
    checkpoint_blob(store, download->model_sha256, &blob, &err);
  else
    checkpoint_weights(store, download->run, download->step, &blob, &err);
  if (err.code)
    rpc_call_finish(download->call, &err);
  else
    sender_send(download->shell->sender, download->call, blob);
  free(download->run);
  free(download->model_sha256);
  free(download);
}
