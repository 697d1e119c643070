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

int executors_cut(struct run *run, struct err *err) {
  int n_stages = (int)run->loaded.spec->workers->stages;
  if (n_stages == SPEC_STAGES_AUTO && run->options.backend->measure)
    return cut_to_fit(run, err);
  if (model_cuts_find(run->loaded.model, run->loaded.spec, n_stages, &run->cuts, err))
    return err->code;
  if (run->cuts.n_stages <= run->options.threads)
    return ERR_OK;
  return err_set(err, ERR_INVALID,
                 "workers.stages: %d stages take as many executors, and this worker has %d (--threads)",
                 run->cuts.n_stages, run->options.threads);
}
