/* What the servers of a run send back. */
#include "worker/train/run/receipt.h"

#include "common/base/log.h"
#include "common/metrics/metric.h"
#include "worker/train/run/follow.h"
#include "worker/train/run/run_state.h"
#include "worker/train/run/steps.h"

enum { DROPS_MAX = 20 };

static void take_version(struct run *run, uint64_t version) {
  pthread_mutex_lock(&run->lock);
  if (run->phase == RUN_WORKING)
    follow_answered(run, version);
  else if (run->phase == RUN_JOINING) {
    run->lowest = version < run->lowest ? version : run->lowest;
    run->n_unanswered--;
  }
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
}

/* The server has moved on while we copied: it has dropped the version. */
static void give_up_place(struct run *run, const struct transfer_item *item, const struct err *err) {
  pthread_mutex_lock(&run->lock);
  weights_unclaim(run->weights, item->block);
  pthread_mutex_unlock(&run->lock);
  receipt_failed(run, item, err);
}

/* NULL: f32. */
static const struct compressor_def *compressor_of(const struct run *run, uint32_t block) {
  return run->loaded.model->blocks[block].kind == BLOCK_PARAMETERS ? run->compression.weights : NULL;
}

static size_t bytes_of(const struct run *run, uint32_t block) {
  const struct compressor_def *compressor = compressor_of(run, block);
  uint32_t elems = run->block_elems[block];
  return compressor ? compressor_bytes(compressor, elems) : elems * sizeof(float);
}

/* What is compressed is first copied to the end of its place. */
static int copy_to_place(const struct run *run, const struct transfer_item *item,
                         const struct received *received, float *place, struct err *err) {
  const struct compressor_def *compressor = compressor_of(run, item->block);
  uint32_t elems = run->block_elems[item->block];
  uint8_t *end = (uint8_t *)(place + elems) - bytes_of(run, item->block);
  if (!compressor)
    return received_copy(received, place, err);
  if (received_copy(received, end, err))
    return err->code;
  if (compressor_decode(compressor, end, elems, place, err) == 0)
    return 0;
  err->code = ERR_CORRUPT;
  return err_prefix(err, "%s answered block %u", transfers_address(run->transfers, item->server),
                    item->block);
}

void receipt_received(void *user, const struct transfer_item *item, uint64_t version,
                      const struct received *received) {
  struct run *run = user;
  size_t size_bytes = received_bytes(received);
  float *place = NULL;
  struct err err;
  if (item->kind == TRANSFER_VERSIONS) {
    take_version(run, version);
    return;
  }
  pthread_mutex_lock(&run->lock);
  run->totals.received_bytes += size_bytes;
  metric_add(METRIC_WORKER_RECEIVED, size_bytes);
  if (version != mode_answer(&run->mode, item->version, version) ||
      size_bytes != bytes_of(run, item->block)) {
    err_set(&err, ERR_CORRUPT, "%s answered block %u with version %llu in %zu bytes, expected %llu in %zu",
            transfers_address(run->transfers, item->server), item->block, (unsigned long long)version,
            size_bytes, (unsigned long long)item->version, bytes_of(run, item->block));
    run_fail_locked(run, &err, false);
  } else
    place = steps_claim_block(run, version, item->block);
  pthread_mutex_unlock(&run->lock);
  if (!place)
    return;
  if (copy_to_place(run, item, received, place, &err)) {
    give_up_place(run, item, &err);
    return;
  }
  pthread_mutex_lock(&run->lock);
  steps_landed(run, item->block);
  pthread_mutex_unlock(&run->lock);
}

/* What a server refuses because it is elsewhere in the run is no fault: it has moved on without us, or was
   restarted, or the run was rolled back there, of which a view will tell; or our certificate has another name
   now, for which a view will bring a ticket. */
static bool is_elsewhere(const struct err *err) {
  return err->code == ERR_DROPPED || err->code == ERR_STALE || err->code == ERR_NOT_FOUND ||
         err->code == ERR_CANCELLED || err->code == ERR_DENIED;
}

/* The run may outrun us as often as it likes: we try again without longer pauses. That a version is dropped
   time and again while the servers say that it is the one to begin with is a fault, but for a worker that
   follows: nobody waits for it. */
static void run_count_drop_locked(struct run *run, const struct transfer_item *item, const struct err *err) {
  if (err->code != ERR_DROPPED)
    return;
  if (item->version != run->dropped_version)
    run->setbacks = run->drops = 0;
  run->dropped_version = item->version;
  run->drops += !run->share.follows;
}

void receipt_failed(void *user, const struct transfer_item *item, const struct err *err) {
  struct run *run = user;
  enum log_level level = err->code == ERR_DROPPED ? LOG_INFO : LOG_WARN;
  pthread_mutex_lock(&run->lock);
  level = run->setbacks > 0 ? LOG_DEBUG : level; /* said already */
  if ((run->phase == RUN_JOINING || run->phase == RUN_WORKING) && !run->must_rejoin) {
    log_event(level, "worker", "transfer_refused", "run=%s block=%u version=%llu code=%s error=\"%s\"",
              run->load->run, item->block, (unsigned long long)item->version, err_name(err->code), err->text);
    run_count_drop_locked(run, item, err);
    if (is_elsewhere(err) && run->drops <= DROPS_MAX)
      run->must_rejoin = true;
    else
      run_fail_locked(run, err, false);
  }
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
}

void receipt_ended(void *user, const struct transfer_item *item) {
  struct run *run = user;
  if (item->is_evaluation) /* of a size of its own */
    buffer_put(item->buffer);
  else
    block_pool_give(run->pool, item->block, item->buffer);
}
