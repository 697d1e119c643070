/* What a user submits. */
#include "client/cluster/submission.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/model_hint.h"
#include "client/cluster/stop.h"
#include "client/terminal/mode_text.h"
#include "client/terminal/output.h"
#include "common/settle/spec_settle.h"
#include "model/model.h"
#include "model/onnx/model_file.h"
#include "model/onnx/onnx_outline.h"
#include "model/stages/cuts.h"
#include "training.pb-c.h"

/* A submission on its way. */
struct uploading {
  const struct submission *submission;
  struct rpc_reader *reader;
  struct onnx_outline names; /* of its pieces */
  struct err err;            /* of sending */
};

static int blame_spec(const struct submission *submission, const char *target, struct err *err);
static int submission_upload(const struct submission *submission, struct rpc_reader *reader, struct err *err);
static int uploading_send_pieces(const struct uploading *uploading, const Weir__SubmitReply *reply,
                                 struct err *err);
static int uploading_await(struct uploading *uploading, Weir__SubmitReply **reply, struct err *err);
static int submission_pass_return(struct err *err);

struct spec_source submission_source(const struct args *args) {
  return (struct spec_source){args->arguments[0], args->arguments + 1, args->n_arguments - 1};
}

int submission_load(struct submission *submission, const struct spec_source *source, struct err *err) {
  const char *path = source->file;
  const Weir__TrainSpec *train;
  struct model *model = NULL;
  struct model_cuts cuts = {0};
  *submission = (struct submission){.path = mem_strdup(path)};
  if (spec_read_source(source, &submission->spec, err))
    return err->code;
  if (spec_check(submission->spec, err) || spec_settle_check(submission->spec, err))
    return spec_blame(source, err);
  train = submission->spec->train;
  const struct model_cuts_wanted wanted = {.n_stages = (int)submission->spec->workers->stages};
  submission->model_path = submission_path_beside(path, submission->spec->model->onnx);
  if (submission_open_model(submission, submission->model_path, err)) {
    if (err->code == ERR_NOT_FOUND)
      model_hint_add(path, submission->model_path, err);
    goto out;
  }
  if (model_open(&(struct model_source){.onnx = submission->onnx,
                                        .size_bytes = submission->onnx_size,
                                        .spec = submission->spec,
                                        .samples = train->batch / train->microbatches},
                 &model, err) ||
      model_cuts_find(model, submission->spec, &wanted, &cuts, err) ||
      (submission->pieces.read && model_initial_check(model, &submission->pieces, err))) {
    if (spec_is_to_blame(err))
      spec_blame(source, err);
    else
      err_prefix(err, "%s", submission->model_path);
  } else {
    output_lost(stderr, "weir: note: ", model->train);
    mode_print_note(stderr, "weir: note: ", submission->spec);
  }
out:
  model_cuts_fini(&cuts);
  model_close(model);
  return err->code;
}

int submission_open_model(struct submission *submission, const char *path, struct err *err) {
  struct model_file *file = &submission->file;
  if (model_file_open(path, file, err))
    return err->code;
  submission->onnx = file->bytes;
  submission->onnx_size = file->size_bytes;
  submission->pieces = model_file_pieces(file);
  file->bytes = NULL;
  return 0;
}

void submission_fini(struct submission *submission) {
  spec_free(submission->spec);
  free(submission->onnx);
  model_file_close(&submission->file);
  free(submission->path);
  free(submission->model_path);
  *submission = (struct submission){0};
}

char *submission_path_beside(const char *file, const char *path) {
  const char *slash = strrchr(file, '/');
  if (path[0] == '/' || !slash)
    return mem_strdup(path);
  return mem_printf("%.*s/%s", (int)(slash - file), file, path);
}

int submission_send(const struct submission *submission, struct connection *connection, char **run,
                    struct err *err) {
  struct uploading uploading = {.submission = submission};
  Weir__SubmitReply *reply = NULL;
  if (submission->pieces.read)
    onnx_outline_names(submission->onnx, submission->onnx_size, &uploading.names);
  connection_find_leader(connection);
  uploading.reader = rpc_reader_open(connection->channel, RPC_SUBMIT, -1);
  stop_cancels(uploading.reader);
  if (submission_upload(submission, uploading.reader, &uploading.err) == 0 && !submission->pieces.read)
    rpc_reader_half_close(uploading.reader);
  else if (uploading.err.code == ERR_CANCELLED)
    rpc_reader_cancel(uploading.reader);
  /* Also after a failed send: the call's end says why it was refused. */
  if (uploading_await(&uploading, &reply, err) == 0) {
    if (reply)
      *run = mem_strdup(reply->run);
    else if (uploading.err.code)
      *err = uploading.err;
    else
      err_set(err, ERR_INTERNAL, "the coordinator answered the submission without a run");
  }
  stop_cancels(NULL);
  rpc_reader_close(uploading.reader);
  onnx_outline_fini(&uploading.names);
  if (reply)
    weir__submit_reply__free_unpacked(reply, NULL);
  if (err->code && uploading.err.code && stop_cause() != STOP_NONE)
    return err_set(err, ERR_CANCELLED, "interrupted before the run was submitted");
  connection_explain(connection, err);
  return blame_spec(submission, rpc_channel_target(connection->channel), err);
}

/* The reply with the run, *reply NULL without one. Until it comes the coordinator asks for pieces. */
static int uploading_await(struct uploading *uploading, Weir__SubmitReply **reply, struct err *err) {
  struct err *send_err = &uploading->err;
  while (rpc_reader_next(uploading->reader, (void **)reply, err) == 0 && *reply && !*(*reply)->run) {
    if (!send_err->code && uploading_send_pieces(uploading, *reply, send_err))
      rpc_reader_cancel(uploading->reader);
    weir__submit_reply__free_unpacked(*reply, NULL);
    *reply = NULL;
  }
  if (err->code && send_err->code == ERR_INVALID) /* why we ended the call */
    *err = *send_err;
  return err->code;
}

/* Those that the coordinator's store does not have, as it asks for them. */
static int uploading_send_pieces(const struct uploading *uploading, const Weir__SubmitReply *reply,
                                 struct err *err) {
  const struct submission *submission = uploading->submission;
  const struct onnx_outline *names = &uploading->names;
  struct rpc_reader *reader = uploading->reader;
  char *bytes = mem_new(PIECE_BYTES_MAX);
  for (size_t i = 0; i < reply->n_wanted && !err->code; i++) {
    Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
    const struct piece_place *place;
    struct piece_read read;
    if (i + 1 == reply->n_wanted && reply->missing == reply->n_wanted && submission_pass_return(err))
      break;
    place = onnx_outline_find_named(names, reply->wanted[i]);
    if (!place) {
      err_set(err, ERR_INTERNAL, "the coordinator asks for a piece that the model does not have");
      break;
    }
    read = (struct piece_read){.size_bytes = place->size_bytes, .to = bytes};
    memcpy(read.key, place->key, sizeof read.key);
    if (submission->pieces.read(submission->pieces.user, &read, 1, err))
      break;
    request.piece = (ProtobufCBinaryData){read.size_bytes, (uint8_t *)bytes};
    rpc_reader_send(reader, &request, err);
  }
  free(bytes);
  return err->code;
}

bool submission_blames_sweep(const struct err *err) {
  static const char *const keys[] = {"from: ", "space."};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (err->code == ERR_INVALID && strncmp(err->text, keys[i], strlen(keys[i])) == 0)
      return true;
  return false;
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
  if (submission->sweep && submission_blames_sweep(err))
    return err->code;
  return err_prefix(err, "%s", submission->path);
}

/* A model that is sent. */
struct sending {
  struct rpc_reader *reader;
  const void *onnx;
  size_t size_bytes;
  bool is_last; /* nothing comes behind it */
};

static int send_model(const struct sending *sending, struct err *err) {
  for (size_t sent = 0; sent < sending->size_bytes;) {
    Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
    size_t left = sending->size_bytes - sent;
    if (left <= RPC_CHUNK_BYTES && sending->is_last && submission_pass_return(err))
      return err->code;
    request.chunk.data = (uint8_t *)sending->onnx + sent;
    request.chunk.len = left < RPC_CHUNK_BYTES ? left : RPC_CHUNK_BYTES;
    if (rpc_reader_send(sending->reader, &request, err))
      return err->code;
    sent += request.chunk.len;
  }
  return ERR_OK;
}

/* The spec, then the models in chunks. */
static int submission_upload(const struct submission *submission, struct rpc_reader *reader,
                             struct err *err) {
  Weir__SubmitRequest first = WEIR__SUBMIT_REQUEST__INIT;
  uint64_t *file_bytes = mem_new(submission->n_files * sizeof *file_bytes + 1);
  size_t last = submission->n_files; /* of the models that are sent, from 1; 0: the spec's own */
  for (size_t i = 0; i < submission->n_files; i++)
    file_bytes[i] = submission->files[i].onnx ? submission->files[i].size_bytes : 0;
  while (last > 0 && file_bytes[last - 1] == 0)
    last--;
  first.spec = submission->spec;
  first.model_bytes = submission->onnx_size;
  first.has_pieces = submission->pieces.read != NULL;
  first.sweep = (Weir__SweepSpec *)submission->sweep;
  first.file_bytes = file_bytes;
  first.n_file_bytes = submission->n_files;
  if (rpc_reader_send(reader, &first, err) == 0)
    send_model(&(struct sending){reader, submission->onnx, submission->onnx_size,
                                 last == 0 && !submission->pieces.read},
               err);
  for (size_t i = 0; i < last && !err->code; i++)
    send_model(&(struct sending){reader, submission->files[i].onnx, file_bytes[i], i + 1 == last}, err);
  free(file_bytes);
  return err->code;
}

/* Once all was sent the run may be there: who interrupts then has to wait for its id, to tell or to cancel.
 */
static int submission_pass_return(struct err *err) {
  stop_cancels(NULL);
  return stop_cause() == STOP_NONE ? ERR_OK : err_set(err, ERR_CANCELLED, "interrupted");
}
