/* Into how many stages a worker cuts the model of its run, and where. With workers.stages: auto each worker
   decides for itself, since no bit depends on it: it takes as few stages as its memory has room for, by what
   the backend says that their programs need. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "worker/train/executor/executor.h"

/* What programs take of a memory, and may take: of the one that all share, or of the fullest GPU. */
struct need {
  uint64_t bytes, room;
};

/* The least memory that some number of stages was found to take. */
struct least {
  int n_stages;
  struct need need;
};

/* Where the backend can cut the graphs, as far as that is known. */
struct places {
  bool *train, *eval; /* [n_nodes + 1]; NULL: not asked */
};

/* Those of a replica are computed beside each other, and one replica after another. */
static uint32_t executors_useful(const struct plan *plan) {
  return plan->replicas ? plan_unit_microbatches(plan) : plan->microbatches;
}

int executors_teams(const struct run *run, int n_stages) {
  int n = run->options.threads / n_stages, most = (int)executors_useful(&run->loaded.plan);
  return n < most ? n : most;
}

static bool has_devices(const struct run *run) {
  return run->options.backend->room != NULL;
}

static void places_fini(struct places *places) {
  free(places->train);
  free(places->eval);
}

/* Into n stages, at places where the backend can cut both graphs. */
static int cut_into(struct run *run, int n_stages, struct places *places, struct err *err) {
  const struct model *model = run->loaded.model;
  if (n_stages > 1 && !places->train && run->options.backend->find_places) {
    places->train = mem_new((size_t)model->train->n_nodes + 1);
    if (run->loaded.eval)
      places->eval = mem_new((size_t)model->eval->n_nodes + 1);
    if (executor_find_places(run, places->train, places->eval, err))
      return err->code;
  }
  struct model_cuts_wanted wanted = {.n_stages = n_stages, .train = places->train, .eval = places->eval};
  return model_cuts_find(model, run->loaded.spec, &wanted, &run->cuts, err);
}

/* Where all executors share the memory. Where programs adapt to an executor's share of it, they take as many
   times what the largest one does. */
static struct need need_together(const struct run *run, const struct stage_bytes *of) {
  bool is_shared = strcmp(run->loaded.spec->workers->recompute, "auto") == 0;
  int n_stages = run->cuts.n_stages;
  uint64_t sum = 0, largest = 0;
  for (int s = 0; s < n_stages; s++) {
    sum += of[s].programs;
    largest = of[s].programs > largest ? of[s].programs : largest;
  }
  uint64_t of_team = is_shared ? (uint64_t)n_stages * largest : sum;
  return (struct need){(uint64_t)executors_teams(run, n_stages) * of_team, run->room_bytes};
}

static uint64_t lack_of(const struct need *need) {
  return need->bytes > need->room ? need->bytes - need->room : 0;
}

/* Where each executor has a GPU: of that which lacks most, or which takes most where none lacks anything. */
static int need_of_devices(const struct run *run, const struct stage_bytes *of, struct need *need,
                           struct err *err) {
  int n_stages = run->cuts.n_stages;
  *need = (struct need){0};
  for (int i = 0; i < executors_teams(run, n_stages) * n_stages; i++) {
    struct need here = {of[i % n_stages].programs, run->options.memory_bytes};
    size_t room = 0;
    if (here.room == 0 && run->options.backend->room(executor_device(run, i), &room, err))
      return err->code;
    if (here.room == 0)
      here.room = room > of[i % n_stages].others ? room - of[i % n_stages].others : 1;
    if (lack_of(&here) > lack_of(need) || (lack_of(need) == 0 && here.bytes > need->bytes))
      *need = here;
  }
  return ERR_OK;
}

/* Of the programs of all executors, if each team has the stages of run->cuts. */
static int programs_measure(struct run *run, struct need *need, struct err *err) {
  struct team team = {.run = run, .n_stages = run->cuts.n_stages};
  struct stage_bytes of[SPEC_STAGES_MAX];
  run->part = (struct stage_part){0, team.n_stages - 1, team.n_stages};
  for (int s = 0; s < team.n_stages; s++)
    if (executor_measure(&team, s, &of[s], err))
      return err->code;
  if (has_devices(run))
    return need_of_devices(run, of, need, err);
  *need = need_together(run, of);
  return ERR_OK;
}

static int fail_to_fit(const struct run *run, const struct least *least, int most, struct err *err) {
  bool is_recomputed = strcmp(run->loaded.spec->workers->recompute, "none") != 0;
  return err_set(
      err, ERR_NO_MEMORY,
      "workers.stages: auto: of 1 to %d stages none fits this worker: %d need%s least, %llu bytes for the "
      "programs of %s, which may take %llu (--memory); smaller microbatches "
      "(train.microbatches)%s "
      "would need less",
      most, least->n_stages, least->n_stages == 1 ? "s" : "", (unsigned long long)least->need.bytes,
      has_devices(run) ? "the largest stage on a GPU" : "all executors", (unsigned long long)least->need.room,
      is_recomputed ? "" : " or workers.recompute: auto");
}

static bool takes_less(const struct need *need, const struct least *least) {
  return least->n_stages == 0 || need->bytes < least->need.bytes;
}

/* Cuts that the backend cannot make are passed over. */
static int cut_to_fit(struct run *run, struct places *places, struct err *err) {
  struct least least = {0};
  int most = run->options.threads < SPEC_STAGES_MAX ? run->options.threads : SPEC_STAGES_MAX, n = 1;
  for (; n <= most; n++) {
    struct need need = {UINT64_MAX, 0};
    *err = ERR_NONE;
    if (cut_into(run, n, places, err) == ERR_INVALID)
      break; /* there are no more places to cut */
    if (!err->code && !programs_measure(run, &need, err) && lack_of(&need) == 0)
      return ERR_OK;
    model_cuts_fini(&run->cuts);
    if (err->code && err->code != ERR_INVALID)
      return err->code;
    if (takes_less(&need, &least))
      least = (struct least){n, need};
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
  run->part = (struct stage_part){(int)load->stage_begin, (int)load->stage_end - 1, run->cuts.n_stages};
  return stage_part_is_whole(&run->part) || !run->loaded.eval ? ERR_OK : check_evaluation(run, err);
}

int executors_cut(struct run *run, struct err *err) {
  int n_stages = (int)run->loaded.spec->workers->stages;
  struct places places = {NULL, NULL};
  if (n_stages == SPEC_STAGES_AUTO && run->options.backend->measure)
    cut_to_fit(run, &places, err);
  else
    cut_into(run, n_stages, &places, err);
  places_fini(&places);
  if (err->code)
    return err->code;
  if (run->load->stage_end > run->load->stage_begin)
    return cut_as_ordered(run, err);
  run->part = (struct stage_part){0, run->cuts.n_stages - 1, run->cuts.n_stages};
  if (run->cuts.n_stages <= run->options.threads)
    return ERR_OK;
  return err_set(
      err, ERR_INVALID, "workers.stages: %d stages take as many executors, and this worker has %d (%s)",
      run->cuts.n_stages, run->options.threads, run->options.n_devices > 0 ? "GPUs: --device" : "--threads");
}
