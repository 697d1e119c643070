/* What spec and model agree on, told to those who do not compute it themselves. */
#include "server/coordinator/messages/layout.h"

#include <inttypes.h>
#include <string.h>

#include "model/model.h"
#include "server/coordinator/state/run.h"

enum draw { DRAW_SHUFFLED, DRAW_SEQUENTIAL, DRAW_NOT_TOLD };

static Weir__LayoutServer **layout_servers(const struct run *run, struct arena *arena) {
  Weir__LayoutServer **list = arena_new(arena, (size_t)run->n_servers * sizeof *list);
  for (int i = 0; i < run->n_servers; i++) {
    list[i] = arena_new(arena, sizeof **list);
    weir__layout_server__init(list[i]);
    list[i]->id = arena_strdup(arena, run->servers[i].id);
    list[i]->address = arena_strdup(arena, run->servers[i].address);
  }
  return list;
}

void coordinator_run_layout(const struct coordinator *coordinator, const char *id, struct arena *arena,
                            Weir__Layout *layout) {
  const struct run *run = coordinator_run(coordinator, id);
  bool has_servers = run->n_servers > 0 && !run->is_load_due;
  weir__layout__init(layout);
  layout->run = arena_strdup(arena, run->id);
  layout->incarnation = run->incarnation;
  layout->n_servers = has_servers ? (size_t)run->n_servers : 0;
  layout->servers = has_servers ? layout_servers(run, arena) : NULL;
  layout->n_blocks = run->n_blocks;
  layout->blocks = arena_new(arena, run->n_blocks * sizeof(Weir__LayoutBlock *));
  for (uint32_t b = 0; b < run->n_blocks; b++) {
    layout->blocks[b] = arena_new(arena, sizeof(Weir__LayoutBlock));
    weir__layout_block__init(layout->blocks[b]);
    layout->blocks[b]->elems = run->block_elems[b];
    layout->blocks[b]->server = has_servers ? run->owners[b] : 0;
  }
}

static Weir__LayoutTensor *tensor_new(struct arena *arena, const char *name, const struct shape *shape) {
  Weir__LayoutTensor *tensor = arena_new(arena, sizeof *tensor);
  weir__layout_tensor__init(tensor);
  tensor->name = (char *)name;
  tensor->n_shape = (size_t)shape->rank;
  tensor->shape = arena_copy(arena, shape->dim, (size_t)shape->rank * sizeof *shape->dim);
  return tensor;
}

int layout_fill(const struct model *model, struct arena *arena, Weir__Layout *layout, struct err *err) {
  if (layout->n_blocks != model->n_blocks)
    return err_set(err, ERR_INTERNAL, "run '%s' has %zu blocks, its model %u", layout->run, layout->n_blocks,
                   model->n_blocks);
  for (uint32_t b = 0; b < model->n_blocks; b++) {
    layout->blocks[b]->begin = model->blocks[b].begin;
    layout->blocks[b]->is_statistics = model->blocks[b].kind == BLOCK_STATISTICS;
  }
  layout->tensors =
      arena_new(arena, (size_t)(model->n_params + model->n_statistics) * sizeof *layout->tensors);
  for (int p = 0; p < model->n_params; p++) {
    Weir__LayoutTensor *tensor = tensor_new(arena, model->params[p].name, &model->params[p].shape);
    tensor->begin = model->params[p].begin;
    tensor->elems = model->params[p].elems;
    layout->tensors[layout->n_tensors++] = tensor;
  }
  for (int s = 0; s < model->n_statistics; s++) {
    const struct statistic *statistic = &model->statistics[s];
    Weir__LayoutTensor *tensor = tensor_new(arena, statistic->name, &statistic->shape);
    tensor->begin = statistic->begin;
    tensor->elems = statistic->elems;
    tensor->is_statistic = true;
    tensor->momentum = statistic->momentum;
    layout->tensors[layout->n_tensors++] = tensor;
  }
  layout->row_elems = (uint32_t)model->row_elems;
  layout->evaluation_elems = (uint32_t)model->metrics.row_elems;
  return 0;
}

static enum draw draw_of(const Weir__DataSpec *data) {
  if (!data->sampler)
    return data->shuffle ? DRAW_SHUFFLED : DRAW_SEQUENTIAL;
  return strcmp(data->sampler, "shuffle") == 0      ? DRAW_SHUFFLED
         : strcmp(data->sampler, "sequential") == 0 ? DRAW_SEQUENTIAL
                                                    : DRAW_NOT_TOLD;
}

/* What is done to samples alone, by the options alone. */
static bool is_told(const Weir__Transform *transform) {
  return transform->has_scale || transform->normalize || transform->resize || transform->center_crop;
}

static int check_told(const Weir__DataSpec *data, struct err *err) {
  if (draw_of(data) == DRAW_NOT_TOLD)
    return err_set(err, ERR_UNSUPPORTED,
                   "data.sampler: which samples '%.60s' draws is not told: labels decide it", data->sampler);
  for (size_t i = 0; i < data->n_transforms; i++)
    if (!is_told(data->transforms[i]))
      return err_set(err, ERR_UNSUPPORTED, "data.transforms[%zu]: what it draws at random is not told", i);
  return 0;
}

static int check_evaluation(const struct plan *plan, const Weir__BatchRequest *request, struct err *err) {
  if (!plan_evaluates(plan, request->step))
    return err_set(err, ERR_INVALID, "version %" PRIu64 " is not evaluated", request->step);
  if (request->microbatch < plan->eval_chunks)
    return 0;
  return err_set(err, ERR_INVALID, "there is no eval chunk %u, the plan has %u", request->microbatch,
                 plan->eval_chunks);
}

static int check_training(const struct plan *plan, const Weir__BatchRequest *request, struct err *err) {
  if (request->step >= plan->steps)
    return err_set(err, ERR_INVALID, "there is no step %" PRIu64 ", the run has %" PRIu64, request->step,
                   plan->steps);
  if (request->microbatch < plan->microbatches)
    return 0;
  return err_set(err, ERR_INVALID, "there is no microbatch %u, a step has %u", request->microbatch,
                 plan->microbatches);
}

static void batch_evaluate(const struct plan *plan, uint32_t chunk, Weir__Batch *batch) {
  uint64_t first = (uint64_t)chunk * plan->eval_chunk_samples, left = plan->eval_samples - first;
  batch->n_indices = left < plan->eval_chunk_samples ? (size_t)left : plan->eval_chunk_samples;
  for (size_t i = 0; i < batch->n_indices; i++)
    batch->indices[i] = plan_eval_index(plan, first + i);
}

static void batch_train(const struct run *run, const Weir__BatchRequest *request, Weir__Batch *batch) {
  const struct plan *plan = &run->plan;
  bool is_shuffled = draw_of(run->spec->data) == DRAW_SHUFFLED;
  uint64_t epoch, index;
  batch->n_indices = plan->microbatch_samples;
  for (uint32_t i = 0; i < plan->microbatch_samples; i++) {
    plan_place(plan, request->step, request->microbatch * plan->microbatch_samples + i, &epoch, &index);
    batch->indices[i] = plan_train_index(plan, is_shuffled ? plan_shuffled(plan, epoch, index) : index);
  }
}

Weir__Batch *coordinator_run_batch(const struct coordinator *coordinator, const char *id,
                                   const Weir__BatchRequest *request, struct arena *arena, struct err *err) {
  const struct run *run = coordinator_run(coordinator, id);
  const struct plan *plan = &run->plan;
  Weir__Batch *batch;
  uint64_t evaluated;
  if (!plan_is_known(plan)) {
    err_set(err, ERR_UNAVAILABLE, "run '%s': no worker has loaded its data yet", id);
    return NULL;
  }
  if (request->evaluation ? check_evaluation(plan, request, err)
                          : check_told(run->spec->data, err) || check_training(plan, request, err)) {
    err_prefix(err, "run '%s'", id);
    return NULL;
  }
  batch = arena_new(arena, sizeof *batch);
  weir__batch__init(batch);
  batch->indices = arena_new(arena, (plan->microbatch_samples + plan->eval_chunk_samples) * sizeof(uint64_t));
  if (request->evaluation)
    batch_evaluate(plan, request->microbatch, batch);
  else
    batch_train(run, request, batch);
  evaluated = plan_next_evaluated(plan, request->step);
  batch->epoch = plan_epoch(plan, request->step);
  batch->next_evaluated = evaluated == UINT64_MAX ? 0 : evaluated;
  batch->steps = plan->steps;
  return batch;
}
