/* Into how many stages a worker cuts the model of its run, and where. With workers.stages: auto each worker
   decides for itself, since no bit depends on it: it takes as few stages as its memory has room for, by what
   the backend says that their programs need. */
#include <string.h>

#include "common/agree/spec.h"
#include "worker/train/executor/executor.h"
#include "worker/train/run/load_memory.h"

/* The least memory that some number of stages was found to take. */
struct least {
  int n_stages;
  uint64_t bytes;
};

uint64_t executors_room(const struct run *run) {
  return run->options.memory_bytes ? run->options.memory_bytes : load_memory_free(run->loaded.model);
}

int executors_teams(const struct run *run, int n_stages) {
  int n = run->options.threads / n_stages, most = (int)run->loaded.plan.microbatches;
  return n < most ? n : most;
}

/* What the programs of all executors take, if each team has the stages of run->cuts. Where they adapt to an
   executor's share of the memory, that is as many times the largest one. */
static int programs_measure(struct run *run, uint64_t *bytes, struct err *err) {
  bool is_shared = strcmp(run->loaded.spec->workers->recompute, "auto") == 0;
  struct team team = {.run = run, .n_stages = run->cuts.n_stages};
  run->part = (struct stage_part){0, team.n_stages - 1, team.n_stages};
  uint64_t sum = 0, largest = 0;
  for (int s = 0; s < team.n_stages; s++) {
    uint64_t stage_bytes;
    if (executor_measure(&team, s, &stage_bytes, err))
      return err->code;
    sum += stage_bytes;
    largest = stage_bytes > largest ? stage_bytes : largest;
  }
  *bytes =
      (uint64_t)executors_teams(run, team.n_stages) * (is_shared ? (uint64_t)team.n_stages * largest : sum);
  return ERR_OK;
}

static int fail_to_fit(const struct run *run, const struct least *least, int most, struct err *err) {
  bool is_recomputed = strcmp(run->loaded.spec->workers->recompute, "none") != 0;
  return err_set(
      err, ERR_NO_MEMORY,
      "workers.stages: auto: of 1 to %d stages none fits this worker: %d need%s least, %llu bytes for the "
      "programs of all executors, which may take %llu (--memory); smaller microbatches "
      "(train.microbatches)%s "
      "would need less",
      most, least->n_stages, least->n_stages == 1 ? "s" : "", (unsigned long long)least->bytes,
      (unsigned long long)executors_room(run), is_recomputed ? "" : " or workers.recompute: auto");
}

/* Cuts that the backend cannot make are passed over. */
static int cut_to_fit(struct run *run, struct err *err) {
  uint64_t room = executors_room(run);
  struct least least = {.bytes = UINT64_MAX};
  int most = run->options.threads < SPEC_STAGES_MAX ? run->options.threads : SPEC_STAGES_MAX, n = 1;
  for (; n <= most; n++) {
    uint64_t bytes = UINT64_MAX;
    *err = ERR_NONE;
    if (model_cuts_find(run->loaded.model, run->loaded.spec, n, &run->cuts, err))
      break; /* there are no more places to cut */
    if (!programs_measure(run, &bytes, err) && bytes <= room)
      return ERR_OK;
    model_cuts_fini(&run->cuts);
    if (err->code && err->code != ERR_INVALID)
      return err->code;
    if (bytes < least.bytes)
      least = (struct least){n, bytes};
  }
  return fail_to_fit(run, &least, n - 1, err);
}

/* What an evaluation is made of comes together at the last stage, which pushes its row. */
static int check_evaluation(const struct run *run, struct err *err) {
  const struct model *model = run->loaded.model;
  const struct loss_values *loss = &model->eval_loss;
  const int seen[] = {loss->loss_sum, loss->correct, loss->scored, loss->denominator, model->eval_output};
  for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
    const struct value *value = seen[i] < 0 ? NULL : &model->eval->values[seen[i]];
    if (value && value->kind == VALUE_RESULT && value->producer < run->cuts.eval[run->cuts.n_stages - 2])
      return err_set(
          err, ERR_INVALID,
          "workers.cuts: evaluations read '%s', which is made before the last stage: with stages on several "
          "workers cut the model before that",
          value->name);
  }
  return ERR_OK;
}

/* The stages that the order to load the run names: other workers have the others. */
static int cut_as_ordered(struct run *run, struct err *err) {
  const Weir__LoadRun *load = run->load;
  int n_here = (int)(load->stage_end - load->stage_begin);
  if (load->stage_end > (uint32_t)run->cuts.n_stages || n_here > run->options.threads)
    return err_set(err, ERR_INTERNAL,
                   "the order to load it names stages %u to %u of %d: this worker computes %d (--threads)",
                   load->stage_begin, load->stage_end, run->cuts.n_stages, run->options.threads);
  if (n_here < run->cuts.n_stages && !run->options.backend->reads)
    return err_set(err, ERR_UNSUPPORTED, "this worker's backend, %s, computes no stages of a model",
                   run->options.backend->name);
  run->part = (struct stage_part){(int)load->stage_begin, (int)load->stage_end - 1, run->cuts.n_stages};
  return stage_part_is_whole(&run->part) || !run->loaded.eval ? ERR_OK : check_evaluation(run, err);
}

static int find_cuts(struct run *run, struct err *err) {
  int n_stages = (int)run->loaded.spec->workers->stages;
  if (n_stages == SPEC_STAGES_AUTO && run->options.backend->measure)
    return cut_to_fit(run, err);
  return model_cuts_find(run->loaded.model, run->loaded.spec, n_stages, &run->cuts, err);
}

int executors_cut(struct run *run, struct err *err) {
  if (find_cuts(run, err))
    return err->code;
  if (run->load->stage_end > run->load->stage_begin)
    return cut_as_ordered(run, err);
  run->part = (struct stage_part){0, run->cuts.n_stages - 1, run->cuts.n_stages};
  if (run->cuts.n_stages <= run->options.threads)
    return ERR_OK;
  return err_set(err, ERR_INVALID,
                 "workers.stages: %d stages take as many executors, and this worker has %d (--threads)",
                 run->cuts.n_stages, run->options.threads);
}
