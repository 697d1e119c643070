/* The loader: batches of graph inputs, made ahead by threads of its own. */
#include "worker/data/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/modes/mode.h"
#include "worker/backend/memory.h"
#include "worker/data/mixing.h"
#include "worker/data/sampler.h"
#include "common/metrics/metric.h"
#include "common/trace/trace.h"

static const uint64_t STREAM_MIXING = UINT64_MAX - 1;

enum { SLOTS_PER_THREAD = 2 };

enum slot_state { SLOT_FREE, SLOT_MAKING, SLOT_READY, SLOT_TAKEN };

/* A batch and what it holds. A slot that was made ahead for what nobody wants any more is simply made again.
 */
struct slot {
  struct loader_batch batch; /* first: a batch is its slot */
  enum slot_state state;
  uint64_t step;
  uint32_t microbatch;
  float scale;            /* 1 / the denominator of its mean: the batch's last input */
  struct scratch scratch; /* of a spare one; threads that make batches ahead have their own */
  struct slot *next;      /* in the list of spare slots */
};

struct loader {
  const struct plan *plan;
  const Weir__RunSpec *spec;
  struct dataset *train, *eval;
  const struct label_rule *labels; /* of the last of the inputs, if the model has labels */
  int n_inputs;                    /* that columns feed */
  bool is_unwanted[MODEL_INPUTS_MAX];
  struct column_form train_forms[MODEL_INPUTS_MAX], eval_forms[MODEL_INPUTS_MAX];
  struct mixing mixing; /* of train samples, if the model mixes labels */
  bool mixes;
  struct sampler *sampler;
  double *label_weights; /* [train samples] what the labels of each add to a step's denominator; NULL: */
  double sample_weight;  /* so much all of them */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t *threads;
  int n_threads;
  int trace_number;
  bool is_stopping;
  uint64_t wait_ns;           /* what callers have waited */
  uint32_t mean_microbatches; /* a gradient is the mean over so many microbatches of a step, that adjoin */
  uint64_t scaled_step;       /* whose scale is known */
  uint32_t scaled_mean;       /* of which of its means */
  float scale;                /* negative before the first is */
  uint64_t step;              /* expected: microbatches [begin, end) from this step on */
  uint32_t begin, end;
  uint64_t ahead_step; /* the next to be made ahead */
  uint32_t ahead_microbatch;
  struct slot *slots; /* made ahead */
  int n_slots;
  struct slot *spare;                  /* for what was not, and for evaluation */
  const struct backend_def *pinned_by; /* NULL: no inputs are pinned */
};

static void make_batch(const struct loader *loader, struct dataset *dataset, const struct column_form *forms,
                       const struct dataset_read *read, struct loader_batch *batch) {
  for (int i = 0; i < loader->n_inputs; i++)
    if (!loader->is_unwanted[i])
      dataset_read(dataset, &forms[i], read, batch->inputs[i]);
}

/* Of the samples that a gradient is a mean over: those of the step; in mode local of the replica's part of
   it, where each microbatch is an update of the microbatch. */
static uint32_t find_mean(const struct loader *loader) {
  struct mode mode = mode_of(loader->spec);
  if (loader->plan->replicas)
    return plan_unit_microbatches(loader->plan);
  return mode.def->applies_units ? 1 : loader->plan->microbatches;
}

/* 1 / the sum of what the labels count, of all samples of the mean. */
static float find_scale(const struct loader *loader, uint64_t step, uint32_t mean) {
  uint32_t n = loader->mean_microbatches * loader->plan->microbatch_samples;
  double denominator = 0;
  for (uint32_t i = mean * n; i < (mean + 1) * n; i++)
    denominator += loader->label_weights ? loader->label_weights[sampler_at(loader->sampler, step, i)]
                                         : loader->sample_weight;
  return denominator > 0 ? (float)(1 / denominator) : 0;
}

/* Computed once for microbatches that have it in common, which come one after the other. */
static float step_scale(struct loader *loader, uint64_t step, uint32_t microbatch) {
  uint32_t mean = microbatch / loader->mean_microbatches;
  float scale;
  pthread_mutex_lock(&loader->lock);
  scale = loader->scaled_step == step && loader->scaled_mean == mean ? loader->scale : -1;
  pthread_mutex_unlock(&loader->lock);
  if (scale >= 0)
    return scale;
  scale = find_scale(loader, step, mean);
  pthread_mutex_lock(&loader->lock);
  loader->scaled_step = step;
  loader->scaled_mean = mean;
  loader->scale = scale;
  pthread_mutex_unlock(&loader->lock);
  return scale;
}

static uint64_t *find_indices(const struct loader *loader, uint64_t step, uint32_t microbatch) {
  uint32_t samples = loader->plan->microbatch_samples;
  uint64_t *indices = mem_new(samples * sizeof *indices);
  for (uint32_t i = 0; i < samples; i++)
    indices[i] = sampler_at(loader->sampler, step, microbatch * samples + i);
  return indices;
}

int loader_check_finite(const struct loader *loader, uint64_t step, uint32_t microbatch, struct err *err) {
  uint64_t *indices = find_indices(loader, step, microbatch);
  for (int i = 0; i < loader->n_inputs && !err->code; i++)
    for (uint32_t s = 0; s < loader->plan->microbatch_samples && !err->code; s++)
      form_check_finite(dataset_column(loader->train, &loader->train_forms[i]), indices[s], err);
  free(indices);
  return err->code;
}

static void make_train(struct loader *loader, struct slot *slot, struct scratch *scratch) {
  uint32_t samples = loader->plan->microbatch_samples;
  uint32_t position = slot->microbatch * samples;
  uint64_t *indices = find_indices(loader, slot->step, slot->microbatch);
  make_batch(loader, loader->train, loader->train_forms,
             &(struct dataset_read){.indices = indices,
                                    .n = samples,
                                    .seed = loader->plan->seed,
                                    .place = slot->step * loader->plan->batch + position,
                                    .scratch = scratch},
             &slot->batch);
  if (loader->mixes)
    mixing_apply(&loader->mixing, random_key(loader->plan->seed, slot->step, slot->microbatch, STREAM_MIXING),
                 samples, slot->batch.inputs, slot->batch.inputs[loader->n_inputs - 1]);
  slot->batch.samples = samples;
  slot->scale = step_scale(loader, slot->step, slot->microbatch);
  free(indices);
}

static size_t input_bytes(const struct loader *loader, int i) {
  const struct column_form *form = &loader->train_forms[i];
  size_t sample_bytes = (size_t)form->elems * dtype_size(form->dtype);
  size_t mixed_bytes = loader->mixes ? (size_t)loader->labels->classes * sizeof(float) : 0;
  if (i == loader->n_inputs - 1 && sample_bytes < mixed_bytes)
    sample_bytes = mixed_bytes;
  return loader->plan->microbatch_samples * sample_bytes;
}

static void slot_pin(const struct loader *loader, const struct slot *slot) {
  for (int i = 0; i < loader->n_inputs; i++)
    loader->pinned_by->pin(slot->batch.inputs[i], input_bytes(loader, i));
}

static bool slot_init(const struct loader *loader, struct slot *slot) {
  for (int i = 0; i < loader->n_inputs; i++) {
    size_t bytes = input_bytes(loader, i);
    slot->batch.inputs[i] = backend_pages_new(bytes);
    if (!slot->batch.inputs[i])
      return false;
    memset(slot->batch.inputs[i], 0, bytes);
  }
  slot->batch.inputs[loader->n_inputs] = &slot->scale;
  return true;
}

static void slot_fini(const struct loader *loader, struct slot *slot) {
  for (int i = 0; i < loader->n_inputs; i++) {
    if (loader->pinned_by)
      loader->pinned_by->unpin(slot->batch.inputs[i]);
    free(slot->batch.inputs[i]);
  }
  scratch_fini(&slot->scratch);
}

static struct slot *find_slot_locked(struct loader *loader, uint64_t step, uint32_t microbatch) {
  for (int i = 0; i < loader->n_slots; i++) {
    struct slot *slot = &loader->slots[i];
    if ((slot->state == SLOT_MAKING || slot->state == SLOT_READY) && slot->step == step &&
        slot->microbatch == microbatch)
      return slot;
  }
  return NULL;
}

/* What lies ahead of all that was made was made before the run was rolled back. */
static bool is_expected_locked(const struct loader *loader, const struct slot *slot) {
  bool is_ahead = slot->step > loader->ahead_step ||
                  (slot->step == loader->ahead_step && slot->microbatch >= loader->ahead_microbatch);
  return slot->step >= loader->step && slot->microbatch >= loader->begin && slot->microbatch < loader->end &&
         !is_ahead;
}

static struct slot *find_room_locked(struct loader *loader) {
  for (int i = 0; i < loader->n_slots; i++) {
    struct slot *slot = &loader->slots[i];
    if (slot->state == SLOT_FREE || (slot->state == SLOT_READY && !is_expected_locked(loader, slot)))
      return slot;
  }
  return NULL;
}

/* The next expected microbatch gets a slot; NULL when there is no room or nothing to do. */
static struct slot *claim_next_locked(struct loader *loader) {
  struct slot *slot;
  if (loader->begin == loader->end || loader->ahead_step >= loader->plan->steps)
    return NULL;
  slot = find_room_locked(loader);
  if (!slot)
    return NULL;
  slot->state = SLOT_MAKING;
  slot->step = loader->ahead_step;
  slot->microbatch = loader->ahead_microbatch++;
  if (loader->ahead_microbatch == loader->end) {
    loader->ahead_microbatch = loader->begin;
    loader->ahead_step++;
  }
  return slot;
}

static void *prefetch_main(void *argument) {
  struct loader *loader = argument;
  uint64_t begin_ns;
  struct scratch scratch = {0};
  float_setting_require("reader");
  trace_thread("reader", loader->trace_number);
  pthread_mutex_lock(&loader->lock);
  while (!loader->is_stopping) {
    struct slot *slot = claim_next_locked(loader);
    if (!slot) {
      pthread_cond_wait(&loader->changed, &loader->lock);
      continue;
    }
    pthread_mutex_unlock(&loader->lock);
    begin_ns = trace_now_ns();
    make_train(loader, slot, &scratch);
    trace_span(&(struct trace_span){.category = "data",
                                    .name = "batch",
                                    .begin_ns = begin_ns,
                                    .end_ns = trace_now_ns(),
                                    .step = slot->step,
                                    .index = slot->microbatch});
    pthread_mutex_lock(&loader->lock);
    slot->state = SLOT_READY;
    pthread_cond_broadcast(&loader->changed);
  }
  pthread_mutex_unlock(&loader->lock);
  scratch_fini(&scratch);
  return NULL;
}

static struct transforms transforms_of(const Weir__DataSpec *data, bool is_training) {
  if (!is_training && data->n_eval_transforms)
    return (struct transforms){data->eval_transforms, data->n_eval_transforms, false, true};
  return (struct transforms){data->transforms, data->n_transforms, is_training, false};
}

static int bind_inputs(struct loader *loader, const struct model *model, bool is_training, struct err *err) {
  struct transforms transforms = transforms_of(loader->spec->data, is_training);
  struct column_form *forms = is_training ? loader->train_forms : loader->eval_forms;
  struct label_rule labels = model->labels;
  if (is_training && loader->mixes)
    labels.ignore_index = INT64_MIN; /* every sample has a class to mix */
  for (int i = 0; i < loader->n_inputs; i++) {
    bool is_label = i == model->n_columns;
    const char *name = is_label ? model->label_column : model->input_columns[i];
    const struct graph *graph = is_label && loader->mixes ? model->eval : model->train;
    struct feed_rule rule = {.input = &graph->values[graph->inputs[i]],
                             .labels = is_label ? &labels : NULL,
                             .transforms = &transforms};
    if (dataset_bind(is_training ? loader->train : loader->eval, name, &rule, &forms[i], err))
      return err_prefix(err, is_training ? "data.train" : "data.eval");
  }
  if (is_training && loader->mixes)
    return mixing_init(&loader->mixing, model, &transforms, forms, err);
  return 0;
}

/* Labels of classes may count differently. Where they do not, nothing is kept for each sample: of overlapping
   windows there may be as many as tokens. */
static int weigh_labels(struct loader *loader, struct err *err) {
  const struct column_form *form = &loader->train_forms[loader->n_inputs - 1];
  uint64_t samples = dataset_samples(loader->train);
  bool has_classes = loader->labels->classes > 0 && !loader->mixes;
  loader->sample_weight = has_classes ? (double)form->elems : loader->labels->sample_denominator;
  if (!has_classes || dataset_labels_count_alike(loader->train, form, loader->labels))
    return 0;
  loader->label_weights = calloc(samples, sizeof *loader->label_weights);
  if (!loader->label_weights)
    return err_set(err, ERR_NO_MEMORY, "no memory for the weights of %llu labels",
                   (unsigned long long)samples);
  dataset_label_weights(loader->train, form, loader->labels, loader->label_weights);
  return 0;
}

static int open_sampler(struct loader *loader, const struct model *model, struct err *err) {
  struct sampler_labels labels = {NULL, loader->labels};
  if (model->has_labels)
    labels.column = dataset_column(loader->train, &loader->train_forms[loader->n_inputs - 1]);
  return sampler_new(loader->spec->data, loader->plan, &labels, &loader->sampler, err);
}

int loader_new(const struct loader_options *options, struct loader **out, struct err *err) {
  const struct model *model = options->model;
  struct loader *loader = mem_new(sizeof *loader);
  int threads = options->threads, slots = threads * SLOTS_PER_THREAD;
  *out = NULL;
  loader->plan = options->plan;
  loader->spec = options->spec;
  loader->train = options->train;
  loader->eval = options->eval;
  loader->labels = &model->labels;
  loader->n_inputs = model->n_columns + model->has_labels;
  loader->mixes = model->mixes_labels;
  loader->trace_number = options->trace_number;
  loader->mean_microbatches = find_mean(loader);
  loader->scale = -1;
  pthread_mutex_init(&loader->lock, NULL);
  pthread_cond_init(&loader->changed, NULL);
  if (bind_inputs(loader, model, true, err) || (loader->eval && bind_inputs(loader, model, false, err)) ||
      weigh_labels(loader, err) || open_sampler(loader, model, err))
    goto out;
  loader->slots = mem_new((size_t)slots * sizeof *loader->slots);
  for (; loader->n_slots < slots; loader->n_slots++)
    if (!slot_init(loader, &loader->slots[loader->n_slots])) {
      err_set(err, ERR_NO_MEMORY, "no memory for %d batches of inputs ahead", slots);
      goto out;
    }
  loader->threads = mem_new((size_t)threads * sizeof *loader->threads);
  for (; loader->n_threads < threads; loader->n_threads++)
    CHECK(pthread_create(&loader->threads[loader->n_threads], NULL, prefetch_main, loader) == 0);
  *out = loader;
  return 0;
out:
  loader_free(loader);
  return err->code;
}

void loader_want(struct loader *loader, const bool *wanted) {
  for (int i = 0; i < loader->n_inputs; i++)
    loader->is_unwanted[i] = !wanted[i] && !loader->mixes;
}

void loader_pin(struct loader *loader, const struct backend_def *backend) {
  if (!backend->pin)
    return;
  loader->pinned_by = backend;
  for (int i = 0; i < loader->n_slots; i++)
    slot_pin(loader, &loader->slots[i]);
}

void loader_free(struct loader *loader) {
  if (!loader)
    return;
  pthread_mutex_lock(&loader->lock);
  loader->is_stopping = true;
  pthread_cond_broadcast(&loader->changed);
  pthread_mutex_unlock(&loader->lock);
  for (int i = 0; i < loader->n_threads; i++)
    pthread_join(loader->threads[i], NULL);
  for (int i = 0; i < loader->n_slots; i++)
    slot_fini(loader, &loader->slots[i]);
  for (struct slot *slot = loader->spare, *next; slot; slot = next) {
    next = slot->next;
    slot_fini(loader, slot);
    free(slot);
  }
  free(loader->threads);
  free(loader->slots);
  free(loader->label_weights);
  sampler_free(loader->sampler);
  pthread_cond_destroy(&loader->changed);
  pthread_mutex_destroy(&loader->lock);
  free(loader);
}

void loader_expect(struct loader *loader, uint64_t step, uint32_t begin, uint32_t end) {
  pthread_mutex_lock(&loader->lock);
  if (begin != loader->begin || end != loader->end || loader->ahead_step < step || step < loader->step) {
    loader->ahead_step = step;
    loader->ahead_microbatch = begin;
  }
  loader->step = step;
  loader->begin = begin;
  loader->end = end;
  pthread_cond_broadcast(&loader->changed);
  pthread_mutex_unlock(&loader->lock);
}

static struct slot *take_spare_locked(struct loader *loader) {
  struct slot *slot = loader->spare;
  if (slot) {
    loader->spare = slot->next;
    return slot;
  }
  slot = mem_new(sizeof *slot);
  CHECK(slot_init(loader, slot));
  if (loader->pinned_by)
    slot_pin(loader, slot);
  return slot;
}

static void add_wait(struct loader *loader, uint64_t begin_ns, uint64_t step, uint32_t index) {
  uint64_t end_ns = clock_now_ns();
  __atomic_fetch_add(&loader->wait_ns, end_ns - begin_ns, __ATOMIC_RELAXED);
  metric_add(METRIC_DATA_WAIT_SECONDS, end_ns - begin_ns);
  trace_span(&(struct trace_span){.category = "wait",
                                  .name = "batch",
                                  .begin_ns = begin_ns,
                                  .end_ns = end_ns,
                                  .step = step,
                                  .index = index});
}

struct loader_batch *loader_train(struct loader *loader, uint64_t step, uint32_t microbatch) {
  uint64_t begin_ns = clock_now_ns();
  struct slot *slot;
  pthread_mutex_lock(&loader->lock);
  while ((slot = find_slot_locked(loader, step, microbatch)) && slot->state == SLOT_MAKING)
    pthread_cond_wait(&loader->changed, &loader->lock);
  if (slot) {
    slot->state = SLOT_TAKEN;
    pthread_mutex_unlock(&loader->lock);
    add_wait(loader, begin_ns, step, microbatch);
    return &slot->batch;
  }
  slot = take_spare_locked(loader);
  pthread_mutex_unlock(&loader->lock);
  slot->step = step;
  slot->microbatch = microbatch;
  make_train(loader, slot, &slot->scratch);
  add_wait(loader, begin_ns, step, microbatch);
  return &slot->batch;
}

/* Labels that repeat another sample's do not count. */
static void ignore_repeated(const struct loader *loader, struct loader_batch *batch) {
  int64_t *labels = batch->inputs[loader->n_inputs - 1];
  int64_t elems = loader->eval_forms[loader->n_inputs - 1].elems;
  for (int64_t i = batch->samples * elems; i < loader->plan->microbatch_samples * elems; i++)
    labels[i] = loader->labels->ignore_index;
}

struct loader_batch *loader_eval(struct loader *loader, uint32_t chunk, uint32_t part) {
  uint32_t samples = loader->plan->microbatch_samples, valid;
  uint64_t first = (uint64_t)chunk * loader->plan->eval_chunk_samples + (uint64_t)part * samples;
  uint64_t *indices, begin_ns = clock_now_ns();
  struct slot *slot;
  if (first >= loader->plan->eval_samples)
    return NULL;
  valid =
      loader->plan->eval_samples - first < samples ? (uint32_t)(loader->plan->eval_samples - first) : samples;
  indices = mem_new(samples * sizeof *indices);
  for (uint32_t i = 0; i < samples; i++)
    indices[i] = plan_eval_index(loader->plan, first + (i < valid ? i : valid - 1));
  pthread_mutex_lock(&loader->lock);
  slot = take_spare_locked(loader);
  pthread_mutex_unlock(&loader->lock);
  make_batch(loader, loader->eval, loader->eval_forms,
             &(struct dataset_read){.indices = indices, .n = samples, .scratch = &slot->scratch},
             &slot->batch);
  slot->batch.samples = valid;
  if (loader->labels->classes > 0)
    ignore_repeated(loader, &slot->batch);
  free(indices);
  add_wait(loader, begin_ns, 0, chunk);
  return &slot->batch;
}

void loader_put(struct loader *loader, struct loader_batch *batch) {
  struct slot *slot = (struct slot *)batch;
  pthread_mutex_lock(&loader->lock);
  if (slot >= loader->slots && slot < loader->slots + loader->n_slots) {
    slot->state = SLOT_FREE;
    pthread_cond_broadcast(&loader->changed);
  } else {
    slot->next = loader->spare;
    loader->spare = slot;
  }
  pthread_mutex_unlock(&loader->lock);
}

int loader_check(struct loader *loader, struct err *err) {
  if (dataset_check(loader->train, err))
    return err->code;
  return loader->eval ? dataset_check(loader->eval, err) : 0;
}

double loader_wait_seconds(const struct loader *loader) {
  return clock_seconds(__atomic_load_n(&loader->wait_ns, __ATOMIC_RELAXED));
}
