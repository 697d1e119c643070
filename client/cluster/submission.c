/* What a user submits. */
#include "client/cluster/submission.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/model_hint.h"
#include "client/cluster/stop.h"
#include "client/terminal/output.h"
#include "common/agree/spec.h"
#include "common/settle/spec_settle.h"
#include "model/model.h"
#include "model/onnx/model_file.h"
#include "training.pb-c.h"

static char *path_beside(const char *file, const char *path);
static int blame_spec(const struct submission *submission, const char *target, struct err *err);
static int submission_upload(const struct submission *submission, struct rpc_reader *reader, struct err *err);
static int submission_pass_return(struct err *err);

int submission_load(struct submission *submission, const char *path, struct err *err) {
  const Weir__TrainSpec *train;
  struct model *model = NULL;
  *submission = (struct submission){.path = mem_strdup(path)};
  if (spec_read_file(path, &submission->spec, err))
    return err->code;
  if (spec_check(submission->spec, err) || spec_settle_check(submission->spec, err))
    return spec_blame(path, err);
  train = submission->spec->train;
  submission->model_path = path_beside(path, submission->spec->model->onnx);
  if (model_file_read(submission->model_path, &submission->onnx, &submission->onnx_size, err)) {
    if (err->code == ERR_NOT_FOUND)
      model_hint_add(path, submission->model_path, err);
    goto out;
  }
  if (model_open(&(struct model_source){.onnx = submission->onnx,
                                        .size_bytes = submission->onnx_size,
                                        .spec = submission->spec,
                                        .samples = train->batch / train->microbatches},
                 &model, err)) {
    if (spec_is_to_blame(err))
      spec_blame(path, err);
    else
      err_prefix(err, "%s", submission->model_path);
  } else
    output_lost(stderr, "weir: note: ", model->train);
out:
  model_close(model);
  return err->code;
}

void submission_fini(struct submission *submission) {
  spec_free(submission->spec);
  free(submission->onnx);
  free(submission->path);
  free(submission->model_path);
  *submission = (struct submission){0};
}

/* path as seen from the folder that file lies in. */
static char *path_beside(const char *file, const char *path) {
  const char *slash = strrchr(file, '/');
  if (path[0] == '/' || !slash)
    return mem_strdup(path);
  return mem_printf("%.*s/%s", (int)(slash - file), file, path);
}

int submission_send(const struct submission *submission, struct connection *connection, char **run,
                    struct err *err) {
  struct rpc_reader *reader;
  Weir__SubmitReply *reply = NULL;
  struct err send_err = ERR_NONE;
  connection_find_leader(connection);
  reader = rpc_reader_open(connection->channel, RPC_SUBMIT, -1);
  stop_cancels(reader);
  if (submission_upload(submission, reader, &send_err) == 0)
    rpc_reader_half_close(reader);
  else if (send_err.code == ERR_CANCELLED)
    rpc_reader_cancel(reader);
  /* Also after a failed send: the call's end says why it was refused. */
  if (rpc_reader_next(reader, (void **)&reply, err) == 0) {
    if (reply)
      *run = mem_strdup(reply->run);
    else if (send_err.code)
      *err = send_err;
    else
      err_set(err, ERR_INTERNAL, "the coordinator answered the submission without a run");
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  if (reply)
    weir__submit_reply__free_unpacked(reply, NULL);
  if (err->code && send_err.code && stop_cause() != STOP_NONE)
    return err_set(err, ERR_CANCELLED, "interrupted before the run was submitted");
  connection_explain(connection, err);
  return blame_spec(submission, rpc_channel_target(connection->channel), err);
}

/* What the coordinator found wrong in a spec is to be put right in its file: "FILE: " in place of "HOST:PORT:
 * ".
 */
static int blame_spec(const struct submission *submission, const char *target, struct err *err) {
  size_t length = strlen(target);
  bool is_spec = err->code == ERR_INVALID || err->code == ERR_UNSUPPORTED;
  if (!is_spec || !submission->path || strncmp(err->text, target, length) != 0 ||
      strncmp(err->text + length, ": ", 2) != 0)
    return err->code;
  memmove(err->text, err->text + length + 2, strlen(err->text + length + 2) + 1);
  return err_prefix(err, "%s", submission->path);
}

/* The spec, then the model in chunks. */
static int submission_upload(const struct submission *submission, struct rpc_reader *reader,
                             struct err *err) {
  Weir__SubmitRequest first = WEIR__SUBMIT_REQUEST__INIT;
  first.spec = submission->spec;
  first.model_bytes = submission->onnx_size;
  if (rpc_reader_send(reader, &first, err))
    return err->code;
  for (size_t sent = 0; sent < submission->onnx_size;) {
    Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
    size_t left = submission->onnx_size - sent;
    if (left <= RPC_CHUNK_BYTES && submission_pass_return(err))
      return err->code;
    request.chunk.data = (uint8_t *)submission->onnx + sent;
    request.chunk.len = left < RPC_CHUNK_BYTES ? left : RPC_CHUNK_BYTES;
    if (rpc_reader_send(reader, &request, err))
      return err->code;
    sent += request.chunk.len;
  }
  return ERR_OK;
}

/* Once all was sent the run may be there: who interrupts then has to wait for its id, to tell or to cancel.
 */
static int submission_pass_return(struct err *err) {
  stop_cancels(NULL);
  return stop_cause() == STOP_NONE ? ERR_OK : err_set(err, ERR_CANCELLED, "interrupted");
}
