/* A run's model and weights, from its coordinator or its store. */
#include "client/cluster/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/download.h"
#include "client/cluster/stored.h"
#include "client/files/run_file.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "model/onnx/onnx_patch.h"

/* The weights become those of the model. */
static int submission_patch(struct submission *submission, const struct trained_weights *weights,
                            struct err *err) {
  struct trained_model model = {.onnx = submission->onnx,
                                .onnx_size = submission->onnx_size,
                                .spec = submission->spec,
                                .weights = *weights};
  struct trained_tensors trained = {0};
  if (trained_tensors_init(&trained, &model, err) == 0)
    onnx_patch(&submission->onnx, &submission->onnx_size, trained.tensors, trained.n, err);
  trained_tensors_fini(&trained);
  return err->code;
}

/* Large tensors that training left alone: those that the store which evaluates does not have are read from
   where the model is. */
static void submission_note_pieces(struct submission *submission, const struct piece_source *source) {
  struct onnx_outline names;
  onnx_outline_names(submission->onnx, submission->onnx_size, &names);
  if (names.n_named > 0)
    submission->pieces = *source;
  onnx_outline_fini(&names);
}

/* Which weights of the evaluation's run they are: the newest (NULL: it has none) has a step, too. */
static int evaluation_settle(struct evaluation *evaluation, Weir__WeightsRequest *request,
                             const uint64_t *newest, struct err *err) {
  Weir__RunSpec *spec = evaluation->submission.spec;
  const char *run = evaluation->run;
  if (!spec)
    return err_set(err, ERR_CORRUPT, "nothing says what the spec of run '%s' was", run);
  if (spec_check(spec, err))
    return err_prefix(err, "the spec of run '%s'", run);
  if (!request->has_step && !newest)
    return err_set(err, ERR_NOT_FOUND,
                   "run '%s' has no checkpoint yet; --step 0 evaluates the weights that it began with", run);
  if (!request->has_step)
    request->step = *newest;
  request->has_step = true;
  request->run = evaluation->run;
  evaluation->step = request->step;
  return request->average ? checkpoint_check_average(run, spec, err) : 0;
}

int evaluation_of_run(struct evaluation *evaluation, struct connection *connection,
                      const Weir__WeightsRequest *wanted, struct err *err) {
  struct submission *submission = &evaluation->submission;
  Weir__RunRequest of = WEIR__RUN_REQUEST__INIT;
  Weir__WeightsRequest request = *wanted;
  struct trained_weights weights = {0};
  Weir__RunInfo *info = NULL;
  bool has_newest;
  of.run = wanted->run;
  if (connection_call(connection, RPC_GET_RUN, &of, (void **)&info, err))
    return err->code;
  has_newest = info->checkpoint_step > 0 || info->state == WEIR__RUN_STATE__DONE;
  if (request.step == 0) /* what a fork began with is its first checkpoint */
    request.step = info->parent_step;
  evaluation->run = mem_strdup(info->run);
  submission->spec = info->spec;
  info->spec = NULL;
  if (evaluation_settle(evaluation, &request, has_newest ? &info->checkpoint_step : NULL, err) == 0 &&
      download_model(connection, info->run, &submission->onnx, &submission->onnx_size, err) == 0 &&
      request.step > 0 && download_weights(connection, &request, info->parameters, &weights, err) == 0)
    submission_patch(submission, &weights, err);
  evaluation->pieces = (struct piece_download){connection, evaluation->run};
  if (!err->code)
    submission_note_pieces(submission, &(struct piece_source){piece_download_read, &evaluation->pieces});
  download_fini(&weights);
  message_free(info);
  return err->code;
}

static int take_stored(struct evaluation *evaluation, const struct stored_run *run,
                       const Weir__WeightsRequest *wanted, struct err *err) {
  struct submission *submission = &evaluation->submission;
  const Weir__RunRecord *record = run->record;
  Weir__WeightsRequest request = *wanted;
  struct buffer *onnx = NULL, *flat = NULL;
  evaluation->run = mem_strdup(record->run);
  submission->spec = record->spec ? spec_copy(record->spec) : NULL;
  if (evaluation_settle(evaluation, &request, run->n_steps ? &run->steps[run->n_steps - 1] : NULL, err) ==
          0 &&
      stored_weights(run, &request, &onnx, &flat, err) == 0) {
    struct trained_weights weights = {.params = flat->data, .n_params = record->parameters};
    uint64_t floats = flat->size_bytes / sizeof(float);
    submission->onnx = malloc(onnx->size_bytes);
    submission->onnx_size = onnx->size_bytes;
    weights.state = weights.params + weights.n_params;
    weights.n_state = floats - weights.n_params;
    if (!submission->onnx)
      err_set(err, ERR_NO_MEMORY, "no memory for a model of %zu bytes", onnx->size_bytes);
    else if (floats < weights.n_params)
      err_set(err, ERR_CORRUPT, "the weights of run '%s' are cut short", record->run);
    else {
      memcpy(submission->onnx, onnx->data, onnx->size_bytes);
      if (submission_patch(submission, &weights, err) == 0)
        submission_note_pieces(submission, &(struct piece_source){piece_stored_read, evaluation->store});
    }
  }
  buffer_put(onnx);
  buffer_put(flat);
  return err->code;
}

int evaluation_of_folder(struct evaluation *evaluation, const char *folder,
                         const Weir__WeightsRequest *wanted, struct err *err) {
  struct run_file file = {0};
  struct stored_run run = {0};
  char *absolute = realpath(folder, NULL), *own = mem_printf("file://%s/store", absolute ? absolute : folder);
  if (run_file_read(folder, &file, err) == 0 &&
      store_open(file.store ? file.store : own, &evaluation->store, err) == 0 &&
      stored_run_open(evaluation->store, file.run, &run, err) == 0)
    take_stored(evaluation, &run, wanted, err);
  stored_run_fini(&run);
  run_file_fini(&file);
  free(own);
  free(absolute);
  return err->code;
}

void evaluation_fini(struct evaluation *evaluation) {
  submission_fini(&evaluation->submission);
  store_close(evaluation->store);
  free(evaluation->run);
  *evaluation = (struct evaluation){0};
}
