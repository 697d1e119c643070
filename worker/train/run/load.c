/* Loading a run. */
#include "worker/train/run/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/machine/cores.h"
#include "common/machine/memory_available.h"
#include "common/base/message.h"
#include "common/compress/compression.h"
#include "common/modes/mode.h"
#include "common/optim/trained_model.h"
#include "common/settle/spec_settle.h"
#include "model/stages/cuts.h"
#include "worker/backend/plugin.h"
#include "common/trace/trace.h"
#include "worker/train/block/weights.h"
#include "worker/train/replica/replica.h"
#include "worker/train/run/load_memory.h"

/* Few executors may be fast ones, for which one thread does not decode enough images. */
enum { LOADER_THREADS_LEAST = 4 };

static int check_abilities(const struct load_options *options, const Weir__TrainSpec *train, struct err *err);
static int loaded_open_model(const struct load_options *options, const struct fetched_model *file,
                             struct loaded *loaded, struct err *err);
static int loaded_fetch_constants(const struct load_options *options, const Weir__LoadRun *load,
                                  struct loaded *loaded, struct err *err);
static int loaded_open_loader(const struct load_options *options, struct loaded *loaded, struct err *err);
static int loaded_open_data(const struct load_options *options, struct loaded *loaded, struct err *err);

static bool is_input_error(const struct err *err) {
  return err->code == ERR_INVALID || err->code == ERR_NOT_FOUND || err->code == ERR_UNSUPPORTED ||
         err->code == ERR_CORRUPT;
}

static void loaded_take(struct loaded *out, struct kept_data *kept) {
  out->spec = kept->spec;
  out->train = kept->train;
  out->eval = kept->eval;
  free(kept);
}

int loaded_open(const struct load_options *options, const Weir__LoadRun *load, struct loaded *out,
                bool *is_bad_input, struct err *err) {
  struct fetched_model file = {0};
  bool has_data = options->kept != NULL;
  uint64_t begin_ns;
  *out = (struct loaded){.promises = options->promises};
  *is_bad_input = false;
  if (has_data)
    loaded_take(out, options->kept);
  else if (!load->spec)
    return err_set(err, ERR_INVALID, "run '%s': the order to load it has no spec", load->run);
  else
    out->spec = message_copy(load->spec);
  if (!has_data && spec_check(out->spec, err) == 0 && spec_settle_steps(out->spec, err) == 0 &&
      check_abilities(options, out->spec->train, err))
    goto out; /* another worker may be able */
  if (err->code || loaded_open_data(options, out, err)) {
    *is_bad_input = is_input_error(err);
    goto out;
  }
  if (model_fetch_run(options->fetch, options->coordinator, load, &file, err))
    goto out;
  begin_ns = trace_now_ns();
  if (loaded_open_model(options, &file, out, err))
    *is_bad_input = is_input_error(err);
  else if (loaded_fetch_constants(options, load, out, err) == 0 && loaded_open_loader(options, out, err))
    *is_bad_input = is_input_error(err);
  trace_span(&(struct trace_span){
      .category = "load", .name = "model", .begin_ns = begin_ns, .end_ns = trace_now_ns(), .index = -1});
out:
  free(file.bytes);
  if (err->code)
    loaded_close(out);
  return err->code;
}

void loaded_close(struct loaded *loaded) {
  loader_free(loaded->loader);
  model_close(loaded->model);
  if (loaded->eval != loaded->train)
    dataset_close(loaded->eval);
  dataset_close(loaded->train);
  message_free(loaded->spec);
  promises_give_back(loaded->promises, &loaded->promise);
  *loaded = (struct loaded){0};
}

struct kept_data *loaded_close_but_data(struct loaded *loaded) {
  struct kept_data *kept = NULL;
  struct err err;
  bool is_sound = loaded->train && dataset_check(loaded->train, &err) == 0 &&
                  (!loaded->eval || dataset_check(loaded->eval, &err) == 0);
  if (is_sound) {
    kept = mem_new(sizeof *kept);
    *kept = (struct kept_data){loaded->spec, loaded->train, loaded->eval};
    loaded->spec = NULL;
    loaded->train = loaded->eval = NULL;
  }
  loaded_close(loaded);
  return kept;
}

static int check_precision(const struct load_options *options, const Weir__TrainSpec *train,
                           struct err *err) {
  enum precision precision;
  struct err lack;
  if (!precision_find(train->precision, &precision) ||
      backend_check_precision(options->backend, precision, &lack) == ERR_OK)
    return ERR_OK;
  return err_set(err, ERR_UNSUPPORTED, "%s: train.precision %s needs %sGPUs, or train.deterministic: false",
                 lack.text, train->precision, precision == PRECISION_BF16 ? "other CPUs, " : "");
}

/* What a CPU cannot do is not asked of it, unless the run takes whatever computes. */
static int check_abilities(const struct load_options *options, const Weir__TrainSpec *train,
                           struct err *err) {
  bool is_nccl = strcmp(train->collective, "nccl") == 0;
  if (is_nccl && options->devices && rpc_channel_has_tls(options->coordinator))
    return err_set(err, ERR_UNSUPPORTED,
                   "train.collective nccl opens ports of its own, which --tls does not cover: take shm");
  if (options->devices || !train->deterministic)
    return ERR_OK;
  if (is_nccl)
    return err_set(err, ERR_UNSUPPORTED,
                   "this worker has no GPU: train.collective nccl needs GPUs, or train.deterministic: false");
  return check_precision(options, train, err);
}

static int open_sets(const struct load_options *options, struct loaded *loaded, struct err *err) {
  const Weir__DataSpec *data = loaded->spec->data;
  if (dataset_open(loaded->spec, data->train, &options->data_root, &loaded->train, err) == 0 && data->eval)
    dataset_open(loaded->spec, data->eval, &options->data_root, &loaded->eval, err);
  return err->code;
}

static int loaded_open_data(const struct load_options *options, struct loaded *loaded, struct err *err) {
  uint64_t begin_ns = trace_now_ns();
  const Weir__DataSpec *data = loaded->spec->data;
  uint64_t train_samples, eval_samples;
  char both[2 * SHA256_HEX_SIZE];
  int length;
  if (!loaded->train && open_sets(options, loaded, err))
    return err->code;
  train_samples = dataset_samples(loaded->train);
  eval_samples = loaded->eval ? dataset_samples(loaded->eval) : 0;
  if (data->n_split) {
    plan_split(data, train_samples, &train_samples, &eval_samples);
    loaded->eval = loaded->train;
  }
  length = snprintf(both, sizeof both, "%s%s", dataset_sha256(loaded->train),
                    loaded->eval ? dataset_sha256(loaded->eval) : "");
  sha256_hex(both, (size_t)length, loaded->dataset_sha256);
  trace_span(&(struct trace_span){
      .category = "load", .name = "data", .begin_ns = begin_ns, .end_ns = trace_now_ns(), .index = -1});
  return plan_init(&loaded->plan, loaded->spec, train_samples, eval_samples, err);
}

/* Where activations are computed again, or computed in stages, only programs know how many are kept. With
   SPEC_STAGES_AUTO what programs take is known before they are made. */
static void memory_estimate(const struct loaded *loaded, struct model_memory *out) {
  model_memory(loaded->model, out);
  if (strcmp(loaded->spec->workers->recompute, "none") != 0 || loaded->spec->workers->stages != 1)
    out->train_bytes = 0;
  if (loaded->spec->workers->stages == SPEC_STAGES_AUTO)
    out->eval_bytes = out->kept_bytes = 0;
}

/* The memory of one executor on a GPU. name: for the error; freed by the caller. */
static struct load_memory device_memory(const struct load_options *options, const struct loaded *loaded,
                                        int executor, char **name) {
  struct load_memory memory = {.executors = 1,
                               .has_eval = loaded->eval != NULL,
                               .batch = loaded->plan.batch,
                               .microbatch_samples = (uint64_t)loaded->plan.microbatch_samples,
                               .available_bytes = options->device_bytes[executor]};
  struct mode mode;
  memory.device = *name = mem_printf(PLUGIN_BACKEND ":%d", options->devices[executor]);
  model_memory(loaded->model, &memory.model);
  mode = mode_of(loaded->spec);
  if (executor == 0 && strcmp(loaded->spec->train->collective, "nccl") == 0)
    memory.versions = mode_bounds(&mode).sets;
  if (strcmp(loaded->spec->train->precision, "bf16") == 0) {
    memory.model.train_bytes /= 2;
    memory.model.eval_bytes /= 2;
  }
  return memory;
}

int loaded_advise_memory(const struct load_options *options, const struct loaded *loaded, int executor,
                         struct err *err) {
  char *name;
  struct load_memory memory = device_memory(options, loaded, executor, &name);
  load_memory_advise(&memory, err);
  free(name);
  return err->code;
}

/* Of all stages together only the weights are known that are here: gradients of other stages are not. Stages
   that cannot be cut are refused later. */
static void keep_stages(const struct load_options *options, const struct loaded *loaded,
                        struct model_memory *memory) {
  const struct model *model = loaded->model;
  struct model_cuts cuts = {0};
  struct err err = ERR_NONE;
  const struct model_cuts_wanted wanted = {.n_stages = (int)loaded->spec->workers->stages};
  if (options->stage_begin >= options->stage_end ||
      model_cuts_find(model, loaded->spec, &wanted, &cuts, &err))
    return;
  memory->gradients_bytes = 0;
  for (int p = 0; p < model->n_params; p++) {
    int stage = model_cuts_stage(&cuts, model->train, model->params[p].grad);
    if (stage >= options->stage_begin && stage < options->stage_end)
      memory->gradients_bytes += model->params[p].elems * sizeof(float);
  }
  memory->eval_bytes = memory->kept_bytes = 0;
  model_cuts_fini(&cuts);
}

/* Of this machine, of which the run is then promised what it needs, and of GPUs. */
static int check_memory(const struct load_options *options, struct loaded *loaded, struct err *err) {
  struct mode mode = mode_of(loaded->spec);
  struct compression compression = compression_of(loaded->spec->train);
  struct load_memory memory = {.executors = options->devices ? 0 : options->executors,
                               .versions = mode_bounds(&mode).sets + mode_bounds(&mode).replica_sets,
                               .has_eval = loaded->eval != NULL,
                               .batch = loaded->plan.batch,
                               .microbatch_samples = (uint64_t)loaded->plan.microbatch_samples};
  bool is_on_devices = options->devices && loaded->spec->workers->stages == 1; /* the whole model on each */
  if (mode_bounds(&mode).replica_sets)
    memory.state_bytes = replica_state_bytes(loaded->model, loaded->spec->train, memory.versions);
  memory_estimate(loaded, &memory.model);
  keep_stages(options, loaded, &memory.model);
  if (compression_has_feedback(&compression))
    memory.state_bytes += memory.model.gradients_bytes;
  memory.available_bytes = promises_open(options->promises, 0).bytes;
  if (load_memory_check(&memory, err) == ERR_OK)
    loaded->promise.bytes = load_memory_needed(&memory);
  promises_close(options->promises, &loaded->promise);
  for (int i = 0; is_on_devices && i < options->executors && !err->code; i++) {
    char *name;
    memory = device_memory(options, loaded, i, &name);
    load_memory_check(&memory, err);
    free(name);
  }
  return err->code;
}

static int loaded_open_model(const struct load_options *options, const struct fetched_model *file,
                             struct loaded *loaded, struct err *err) {
  if (trained_model_open(&(struct model_source){.onnx = file->bytes,
                                                .size_bytes = file->size_bytes,
                                                .spec = loaded->spec,
                                                .samples = loaded->plan.microbatch_samples},
                         &loaded->model, err))
    return err->code;
  return check_memory(options, loaded, err);
}

/* The value's data in place of its pieces. */
static int value_fetch(struct graph *owner, struct value *value, const struct piece_source *source,
                       struct err *err) {
  enum { BATCH_MAX = 16 };
  const struct pieces *pieces = value->pieces;
  float *data = arena_new(&owner->arena, pieces->elems * sizeof *data);
  for (uint32_t at = 0; at < pieces->n; at += BATCH_MAX) {
    struct piece_read reads[BATCH_MAX];
    uint32_t n = pieces->n - at < BATCH_MAX ? pieces->n - at : BATCH_MAX;
    for (uint32_t i = 0; i < n; i++)
      reads[i] = pieces_read(pieces, at + i, data + (size_t)(at + i) * PIECE_ELEMS);
    if (source->read(source->user, reads, (int)n, err))
      return err_prefix(err, "initializer '%s'", value->name);
    for (uint32_t i = 0; i < n; i++)
      piece_decode(pieces->type, reads[i].to, pieces_elems(pieces, at + i), reads[i].to);
  }
  value->data = data;
  return 0;
}

/* What the file has in pieces and nobody trains; the servers have the rest. Both graphs share it. */
static int loaded_fetch_constants(const struct load_options *options, const Weir__LoadRun *load,
                                  struct loaded *loaded, struct err *err) {
  struct piece_fetch fetch = {options->fetch, options->coordinator, load->run, load->ticket};
  struct piece_source source = {piece_fetch_read, &fetch};
  struct graph *train = loaded->model->train, *graphs[] = {train, loaded->model->eval};
  for (int g = 0; g < 2; g++)
    for (int v = 0; v < graphs[g]->n_values; v++) {
      struct value *value = &graphs[g]->values[v];
      int twin = -1;
      if (!value->pieces || value->param >= 0)
        continue;
      for (int t = 0; g == 1 && t < train->n_values && twin < 0; t++)
        twin = train->values[t].pieces == value->pieces ? t : -1;
      if (twin >= 0)
        value->data = train->values[twin].data;
      else if (value_fetch(train, value, &source, err))
        return err->code;
    }
  return 0;
}

static int loaded_open_loader(const struct load_options *options, struct loaded *loaded, struct err *err) {
  int threads = cores_available("");
  threads = threads < LOADER_THREADS_LEAST ? threads : LOADER_THREADS_LEAST;
  threads = options->executors > threads ? options->executors : threads;
  threads = options->readers > threads ? options->readers : threads;
  return loader_new(&(struct loader_options){.model = loaded->model,
                                             .plan = &loaded->plan,
                                             .spec = loaded->spec,
                                             .train = loaded->train,
                                             .eval = loaded->eval,
                                             .threads = threads,
                                             .trace_number = options->trace_number},
                    &loaded->loader, err);
}
