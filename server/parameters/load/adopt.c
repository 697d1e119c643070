/* Forks from memory. */
#include "server/parameters/load/adopt.h"

#include <semaphore.h>
#include <stdlib.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/optim/update_rule.h"
#include "server/parameters/load/restore.h"

/* What the blocks of a run lend of one version. */
struct lending {
  struct hosted_run *run;
  uint64_t version;
  uint32_t n_before;              /* versions before it */
  struct block_content *contents; /* [run->n_own] */
  sem_t answers;                  /* one of each shard */
};

struct shard_lending {
  struct job job;
  struct lending *lending;
  struct job_queue *queue; /* of the lending run */
};

static bool is_same_cut(const struct hosted_run *run, const struct hosted_run *parent, struct err *err);
static bool lies_as_checkpoint(const struct hosted_run *run, const Weir__Manifest *manifest,
                               const struct hosted_run *parent, struct err *err);
static void lend(struct lending *lending);
static uint32_t take(struct hosted_run *run, const struct block_layout *layout,
                     const struct lending *lending);

uint32_t adopt_blocks(struct run_table *runs, struct hosted_run *run, const Weir__Manifest *manifest,
                      const Weir__ForkSource *from) {
  struct lending lending = {.version = from->step,
                            .n_before = (uint32_t)mode_before(&run->mode, run->base_step)};
  struct block_layout layout;
  bool is_otherwise;
  struct err err = ERR_NONE;
  uint32_t n_adopted = 0;
  if (from->step != run->base_step || from->step == 0)
    err_set(&err, ERR_INVALID, "the order names its version %llu", (unsigned long long)from->step);
  else if ((lending.run = run_table_find(runs, from->run, from->incarnation, &err)) &&
           is_same_cut(run, lending.run, &err) && lies_as_checkpoint(run, manifest, lending.run, &err) &&
           restore_find_layout(run, manifest, &layout, &is_otherwise, &err) == 0) {
    lend(&lending);
    n_adopted = take(run, is_otherwise ? &layout : NULL, &lending);
    for (uint32_t b = 0; b < lending.run->n_own; b++)
      block_content_put(&lending.contents[b]);
    free(lending.contents);
  }
  if (err.code)
    log_event(LOG_INFO, "parameters", "not_adopted", "run=%s parent=%.60s step=%llu reason=\"%s\"", run->id,
              from->run, (unsigned long long)from->step, err.text);
  hosted_run_put(lending.run);
  return n_adopted;
}

static bool is_same_cut(const struct hosted_run *run, const struct hosted_run *parent, struct err *err) {
  if (run->cut_hash == parent->cut_hash)
    return true;
  err_set(err, ERR_INVALID, "its model is another, or cut into other blocks");
  return false;
}

/* What it has in memory is what the manifest names; not so of a fork that still stands at its base, where it
   has kept slots of its own. */
static bool lies_as_checkpoint(const struct hosted_run *run, const Weir__Manifest *manifest,
                               const struct hosted_run *parent, struct err *err) {
  Weir__RunSpec *spec = spec_copy(manifest->layout_spec ? manifest->layout_spec : run->spec);
  bool is_alike = update_rules_settle(spec->train, err) == 0 && manifest->slots_step == parent->slots_step &&
                  !spec->train->average == !parent->spec->train->average &&
                  update_rules_keep_alike(spec->train, parent->spec->train);
  spec_free(spec);
  if (!is_alike && !err->code)
    err_set(err, ERR_INVALID, "its blocks lie otherwise than those of the checkpoint");
  return is_alike;
}

static void shard_lend(struct job *job) {
  struct shard_lending *own = (struct shard_lending *)job;
  struct lending *lending = own->lending;
  for (uint32_t b = 0; b < lending->run->n_own; b++)
    if (lending->run->blocks[b].queue == own->queue)
      lending->contents[b] = hosted_block_lend(&lending->run->blocks[b], lending->version, lending->n_before);
  sem_post(&lending->answers);
}

static void lend(struct lending *lending) {
  uint32_t n = lending->run->n_shards;
  struct shard_lending *shards = mem_new(n * sizeof *shards);
  lending->contents = mem_new(lending->run->n_own * sizeof *lending->contents);
  sem_init(&lending->answers, 0, 0);
  for (uint32_t s = 0; s < n; s++) {
    shards[s] = (struct shard_lending){
        .job = {.run = shard_lend}, .lending = lending, .queue = hosted_run_queue(lending->run, s)};
    shard_post(shards[s].queue, &shards[s].job);
  }
  for (uint32_t answered = 0; answered < n;)
    answered += sem_wait(&lending->answers) == 0; /* else a signal came */
  sem_destroy(&lending->answers);
  free(shards);
}

static uint32_t take(struct hosted_run *run, const struct block_layout *layout,
                     const struct lending *lending) {
  uint32_t n_adopted = 0;
  for (uint32_t b = 0; b < run->n_own; b++) {
    struct hosted_block *block = &run->blocks[b];
    int32_t at = lending->run->own[block->index];
    if (at >= 0 && lending->run->blocks[at].kind == block->kind)
      n_adopted += hosted_block_adopt(block, layout, &lending->contents[at]);
  }
  return n_adopted;
}
