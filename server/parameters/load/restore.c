/* Reading a run's blocks back. */
#include "server/parameters/load/restore.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/optim/update_rule.h"

/* BATCH_BYTES_MAX: of blocks that are in memory twice. */
enum { BATCH_BYTES_MAX = 16 * 1024 * 1024, PAUSE_MS_FIRST = 50, PAUSE_MS_MAX = 2000 };

struct batch {
  const struct block_layout *layout;
  uint32_t n_before; /* versions before its own, of which the checkpoint has the weights */
  struct hosted_block *blocks[STORE_BATCH_MAX];
  const char *keys[STORE_BATCH_MAX];
  int n;
};

static bool store_may_recover(enum err_code code) {
  return err_is_retryable(code) || code == ERR_IO;
}

/* After a failure at now_ns of what was first tried at begin_ns: false if it is not to be tried again. */
static bool restore_waits(const struct restore *restore, uint64_t begin_ns, int *pause_ms, struct err *err) {
  if (!store_may_recover(err->code))
    return false;
  if (clock_now_ns() - begin_ns > (uint64_t)restore->patience_ms * 1000000) {
    err_prefix(err, "the store did not answer for %d s", restore->patience_ms / 1000);
    return false;
  }
  log_event(*pause_ms == PAUSE_MS_FIRST ? LOG_WARN : LOG_DEBUG, "parameters", "store_awaited",
            "pause_ms=%d text=\"%s\"", *pause_ms, err->text);
  if (!restore->pause(restore->user, *pause_ms)) {
    err_set(err, ERR_CANCELLED, "the run was taken back while it was loaded");
    return false;
  }
  *pause_ms = 2 * *pause_ms < PAUSE_MS_MAX ? 2 * *pause_ms : PAUSE_MS_MAX;
  return true;
}

int restore_identity(const struct restore *restore, char identity[STORE_IDENTITY_SIZE], struct err *err) {
  uint64_t begin_ns = clock_now_ns();
  int pause_ms = PAUSE_MS_FIRST, code;
  do
    code = store_identity_read(restore->store, identity, err);
  while (code && restore_waits(restore, begin_ns, &pause_ms, err));
  return code ? (int)err->code : 0;
}

static int manifest_check(const Weir__Manifest *manifest, const Weir__LoadRun *order, struct err *err) {
  if (strcmp(manifest->run, order->run) != 0 || manifest->step != order->step)
    return err_set(err, ERR_CORRUPT, "%s is the checkpoint of run '%s' at version %llu", order->manifest,
                   manifest->run, (unsigned long long)manifest->step);
  if (strcmp(manifest->model_sha256, order->model_sha256) != 0)
    return err_set(err, ERR_CORRUPT, "%s is of another model, %s", order->manifest, manifest->model_sha256);
  return 0;
}

int restore_manifest(const struct restore *restore, const Weir__LoadRun *order, Weir__Manifest **manifest,
                     struct err *err) {
  uint64_t begin_ns = clock_now_ns();
  int pause_ms = PAUSE_MS_FIRST, code;
  do {
    *manifest = NULL;
    code = checkpoint_read(restore->store, order->manifest, manifest, err);
  } while (code && restore_waits(restore, begin_ns, &pause_ms, err));
  if (code)
    return err->code;
  code = manifest_check(*manifest, order, err);
  if (code) {
    message_free(*manifest);
    *manifest = NULL;
  }
  return code;
}

/* Reads and places a batch. */
static int batch_read(const struct restore *restore, const struct batch *batch, struct err *err) {
  struct store_read reads[STORE_BATCH_MAX];
  uint64_t begin_ns = clock_now_ns();
  int pause_ms = PAUSE_MS_FIRST, code;
  for (int i = 0; i < batch->n; i++)
    reads[i].key = batch->keys[i];
  do
    code = store_get_blocks(restore->store, reads, batch->n, err);
  while (code && restore_waits(restore, begin_ns, &pause_ms, err));
  if (code)
    return err->code;
  for (int i = 0; i < batch->n; i++) {
    struct block_image image = {reads[i].data, reads[i].size, batch->layout, batch->n_before};
    if (!code)
      code = hosted_block_restore(batch->blocks[i], &image, err);
    free(reads[i].data);
  }
  return code;
}

/* One by one, to name the block that is missing or damaged. */
static int batch_read_singly(const struct restore *restore, const struct batch *batch, struct err *err) {
  for (int i = 0; i < batch->n; i++) {
    struct batch single = {.layout = batch->layout,
                           .n_before = batch->n_before,
                           .blocks = {batch->blocks[i]},
                           .keys = {batch->keys[i]},
                           .n = 1};
    if (batch_read(restore, &single, err))
      return err_prefix(err, "block %u, key %s", batch->blocks[i]->index, batch->keys[i]);
  }
  return 0;
}

int restore_find_layout(const struct hosted_run *run, const Weir__Manifest *manifest,
                        struct block_layout *out, bool *is_otherwise, struct err *err) {
  Weir__RunSpec *spec;
  int code;
  *is_otherwise = manifest->layout_spec != NULL;
  if (!*is_otherwise)
    return 0;
  spec = spec_copy(manifest->layout_spec);
  code = update_rules_settle(spec->train, err);
  if (!code) {
    out->has_slots =
        manifest->slots_step == run->slots_step && update_rules_keep_alike(run->spec->train, spec->train);
    out->has_average = spec->train->average != NULL;
  }
  spec_free(spec);
  return code ? err_prefix(err, "the spec by which its blocks are laid out") : 0;
}

/* At version 0 every block has what the model says, and is read all the same. */
static bool is_adopted(const struct hosted_block *block) {
  return block->current && block->version > 0;
}

int restore_blocks(const struct restore *restore, struct hosted_run *run, const Weir__Manifest *manifest,
                   struct restored *out, struct err *err) {
  struct block_layout layout;
  bool is_otherwise;
  uint32_t at = 0;
  int code = 0;
  *out = (struct restored){0};
  if (restore_find_layout(run, manifest, &layout, &is_otherwise, err))
    return err->code;
  if (manifest->n_blocks != run->n_blocks)
    return err_set(err, ERR_CORRUPT, "the checkpoint has %zu blocks, the model %u", manifest->n_blocks,
                   run->n_blocks);
  while (at < run->n_own && !code) {
    struct batch batch = {.layout = is_otherwise ? &layout : NULL, .n_before = manifest->versions_before};
    uint64_t bytes = 0;
    for (; at < run->n_own && batch.n < STORE_BATCH_MAX && bytes < BATCH_BYTES_MAX; at++) {
      if (is_adopted(&run->blocks[at]))
        continue;
      batch.blocks[batch.n] = &run->blocks[at];
      batch.keys[batch.n++] = manifest->blocks[run->blocks[at].index]->sha256;
      bytes += manifest->blocks[run->blocks[at].index]->bytes;
    }
    out->n_blocks += (uint32_t)batch.n;
    out->bytes += bytes;
    code = batch.n ? batch_read(restore, &batch, err) : 0;
    if (code == ERR_NOT_FOUND || code == ERR_CORRUPT)
      code = batch_read_singly(restore, &batch, err);
  }
  return code ? err_prefix(err, "run '%s' at version %llu", run->id, (unsigned long long)run->base_step) : 0;
}
