/* Runs as a store holds them. */
#include "client/cluster/stored.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cluster/initial_weights.h"
#include "client/cluster/weights_sources.h"
#include "common/base/memory.h"
#include "common/base/message.h"

static const char file_scheme[] = "file://";

static int no_such_checkpoint(const struct stored_run *run, uint64_t step, struct err *err);

int stored_url_check(const char *url, struct err *err) {
  if (store_url_has_password(url))
    return err_set(err, ERR_INVALID,
                   "--store: a password on a command line can be read by everyone on this machine: leave it "
                   "out of the URL and set WEIR_STORE_PASSWORD_FILE or WEIR_STORE_PASSWORD");
  return store_url_check(url, err);
}

/* A folder that is missing would be made by store_open: what only reads must not. */
int stored_open(const struct args *args, struct store **out, struct err *err) {
  const char *url = args_text(args, "store");
  *out = NULL;
  if (!url || stored_url_check(url, err))
    return err->code;
  if (strncmp(url, file_scheme, strlen(file_scheme)) == 0 && access(url + strlen(file_scheme), F_OK) != 0)
    return err_set(err, ERR_NOT_FOUND, "--store: there is no folder '%s'", url + strlen(file_scheme));
  return store_open(url, out, err);
}

const uint64_t *stored_step(const struct args *args, uint64_t *step) {
  if (!args_text(args, "step"))
    return NULL;
  *step = (uint64_t)args_count(args, "step");
  return step;
}

void stored_wanted(const struct args *args, Weir__WeightsRequest *wanted) {
  weir__weights_request__init(wanted);
  wanted->has_step = stored_step(args, &wanted->step) != NULL;
  wanted->average = args_flag(args, "average");
}

int stored_run_open(struct store *store, const char *run, struct stored_run *out, struct err *err) {
  *out = (struct stored_run){.store = store};
  if (checkpoint_find_run(store, run, &out->record, err))
    return err->code;
  return checkpoint_list(store, out->record->run, &out->steps, &out->n_steps, err);
}

void stored_run_fini(struct stored_run *run) {
  message_free(run->record);
  free(run->steps);
  *run = (struct stored_run){0};
}

int stored_runs_open(struct store *store, struct stored_run **runs, int *n, struct err *err) {
  static const char before[] = "runs/", behind[] = "/run";
  struct store_names names = {0};
  *runs = NULL;
  *n = 0;
  if (store_list_records(store, before, &names, err)) {
    store_names_fini(&names);
    return err->code;
  }
  *runs = mem_new((size_t)names.count * sizeof **runs);
  for (int i = 0; i < names.count; i++) {
    const char *id = names.items[i] + strlen(before);
    size_t length = strcspn(id, "/");
    struct err run_err = ERR_NONE;
    char *name;
    if (strcmp(id + length, behind) != 0)
      continue;
    name = mem_printf("%.*s", (int)length, id);
    if (stored_run_open(store, name, &(*runs)[*n], &run_err) == 0) {
      ++*n;
    } else {
      stored_run_fini(&(*runs)[*n]);
      if (err->code == ERR_OK && run_err.code != ERR_NOT_FOUND) /* deleted meanwhile */
        *err = run_err;
    }
    free(name);
  }
  store_names_fini(&names);
  return err->code;
}

void stored_runs_close(struct stored_run *runs, int n) {
  for (int i = 0; i < n; i++)
    stored_run_fini(&runs[i]);
  free(runs);
}

void stored_run_info(const struct stored_run *run, Weir__RunInfo *info) {
  const Weir__RunRecord *record = run->record;
  const Weir__CheckpointInfo *newest =
      record->n_checkpoints > 0 ? record->checkpoints[record->n_checkpoints - 1] : NULL;
  weir__run_info__init(info);
  info->run = record->run;
  info->name = record->spec && record->spec->name ? record->spec->name : (char *)"";
  info->state = record->state;
  info->message = record->message;
  info->bad_input = record->bad_input;
  info->steps = record->plan ? record->plan->steps : 0;
  info->checkpoints = (uint32_t)run->n_steps;
  info->checkpoint_step = run->n_steps > 0 ? run->steps[run->n_steps - 1] : 0;
  info->patience = record->patience;
  if (record->state != WEIR__RUN_STATE__DONE)
    info->step = info->checkpoint_step;
  else
    info->step = record->patience && record->patience->last_step ? record->patience->last_step : info->steps;
  info->loss = newest ? newest->loss : NAN;
  info->accuracy = newest ? newest->accuracy : NAN;
  info->eval_loss = newest ? newest->eval_loss : NAN;
  info->metrics = newest ? newest->metrics : NULL;
  info->n_metrics = newest ? newest->n_metrics : 0;
  info->checkpoint_unix_ms = newest ? newest->committed_unix_ms : 0;
  info->weights_sha256 = record->weights_sha256;
  info->submitted_unix_ms = record->submitted_unix_ms;
  info->finished_unix_ms = record->finished_unix_ms;
  info->diverged = record->diverged;
  info->sweep = record->sweep;
  info->trial = record->trial;
  info->parent = record->parent;
  info->parent_step = record->parent_step;
  info->base_to_come = record->base_to_come;
  info->parameters = record->parameters;
  info->blocks = (uint32_t)record->n_block_elems;
  info->incarnation = record->incarnation;
  info->train_seconds = record->train_seconds;
  info->samples_per_second = record->samples_per_second;
  if (record->plan && record->plan->train_samples > 0 && record->spec && record->spec->train) {
    double samples = (double)record->plan->train_samples;
    info->epoch = (double)info->step * record->spec->train->batch / samples;
    info->epochs = (double)info->steps * record->spec->train->batch / samples;
  }
}

int stored_manifest(const struct stored_run *run, const uint64_t *step, Weir__Manifest **out,
                    struct err *err) {
  char *name;
  *out = NULL;
  if (!step && run->n_steps == 0)
    return err_set(err, ERR_NOT_FOUND, "run '%s' has no checkpoint", run->record->run);
  name = checkpoint_name(run->record->run, step ? *step : run->steps[run->n_steps - 1]);
  if (checkpoint_read(run->store, name, out, err) == ERR_NOT_FOUND && step)
    no_such_checkpoint(run, *step, err);
  free(name);
  return err->code;
}

static int no_such_checkpoint(const struct stored_run *run, uint64_t step, struct err *err) {
  char list[512] = "none";
  size_t length = 0;
  for (int i = 0; i < run->n_steps && length + 24 < sizeof list; i++)
    length +=
        (size_t)snprintf(list + length, sizeof list - length, "%s%" PRIu64, i > 0 ? ", " : "", run->steps[i]);
  return err_set(err, ERR_NOT_FOUND, "run '%s' has no checkpoint at step %" PRIu64 "; it has: %s",
                 run->record->run, step, list);
}

int stored_weights(const struct stored_run *run, const Weir__WeightsRequest *request, struct buffer **onnx,
                   struct buffer **flat, struct err *err) {
  Weir__Manifest *manifest = NULL;
  uint64_t step = request->step ? request->step : run->record->parent_step;
  *onnx = *flat = NULL;
  if (checkpoint_blob(run->store, run->record->model_sha256, onnx, err))
    return err->code;
  if (request->has_step && step == 0)
    return initial_weights(
        &(struct submitted_model){
            (*onnx)->data, (*onnx)->size_bytes, run->record->spec, {piece_stored_read, run->store}},
        flat, err);
  if (stored_manifest(run, request->has_step ? &step : NULL, &manifest, err) == 0)
    checkpoint_flat_weights(run->store, manifest, request->average, flat, err);
  message_free(manifest);
  return err->code;
}
