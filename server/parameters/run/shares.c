/* Streams of workers of this host. */
#include "server/parameters/run/shares.h"

#include <stdlib.h>

#include "common/base/log.h"

struct run_share {
  uint64_t id;
  uint32_t worker;
  struct share *share;
  struct rpc_call *rpc;
  bool is_ended; /* the call is finished; under the lock */
};

void run_shares_init(struct run_shares *shares) {
  *shares = (struct run_shares){.version_bytes = SEGMENT_HEADER_BYTES};
  pthread_mutex_init(&shares->lock, NULL);
}

void run_shares_fini(struct run_shares *shares) {
  CHECK(shares->n == 0);
  shared_pool_free(shares->pool);
  pthread_mutex_destroy(&shares->lock);
  free(shares->list);
  free(shares->end);
}

static void on_send(void *user, const Weir__ShareMessage *message) {
  const struct run_share *share = user;
  rpc_call_send(share->rpc, message, NULL);
}

static void end_locked(struct run_share *share, const struct err *err) {
  if (share->is_ended)
    return;
  share->is_ended = true;
  share_close(share->share);
  rpc_call_finish(share->rpc, err);
}

static void add_locked(struct run_shares *shares, struct run_share *share) {
  array_reserve((void **)&shares->list, &shares->capacity, shares->n, sizeof(struct run_share *));
  shares->list[shares->n++] = share;
  share->id = ++shares->n_made;
}

int run_shares_open(struct run_shares *shares, struct rpc_call *rpc, uint32_t worker, struct run_share **out,
                    struct err *err) {
  Weir__ShareMessage hello = WEIR__SHARE_MESSAGE__INIT;
  struct run_share *share;
  pthread_mutex_lock(&shares->lock);
  if (shares->end) {
    *err = *shares->end;
    pthread_mutex_unlock(&shares->lock);
    return err->code;
  }
  share = mem_new(sizeof *share);
  *share = (struct run_share){.worker = worker, .rpc = rpc};
  share->share = share_new(on_send, share);
  add_locked(shares, share);
  hello.share = share->id;
  hello.parts_max = SHARE_PARTS_MAX;
  rpc_call_send(rpc, &hello, NULL);
  pthread_mutex_unlock(&shares->lock);
  *out = share;
  return 0;
}

static void meet_locked(struct run_shares *shares, const struct run_share *share) {
  if (shares->pool || !share_is_up(share->share))
    return;
  __atomic_store_n(&shares->pool, shared_pool_new(shares->version_bytes), __ATOMIC_RELEASE);
  log_event(LOG_INFO, "parameters", "shares_memory", "peer=%s", rpc_call_peer(share->rpc));
}

void run_shares_take(struct run_shares *shares, struct run_share *share, const Weir__ShareMessage *message) {
  struct err err;
  share_take(share->share, message, &err);
  pthread_mutex_lock(&shares->lock);
  if (err.code)
    end_locked(share, &err);
  if (!share->is_ended)
    meet_locked(shares, share);
  pthread_mutex_unlock(&shares->lock);
}

void run_shares_half_closed(struct run_shares *shares, struct run_share *share) {
  pthread_mutex_lock(&shares->lock);
  end_locked(share, NULL);
  pthread_mutex_unlock(&shares->lock);
}

void run_shares_closed(struct run_shares *shares, struct run_share *share) {
  pthread_mutex_lock(&shares->lock);
  for (int i = 0; i < shares->n; i++)
    if (shares->list[i] == share)
      shares->list[i--] = shares->list[--shares->n];
  end_locked(share, NULL);
  pthread_mutex_unlock(&shares->lock);
  share_put(share->share);
  free(share);
}

void run_shares_end(struct run_shares *shares, const struct err *err) {
  pthread_mutex_lock(&shares->lock);
  if (!shares->end) {
    shares->end = mem_new(sizeof *shares->end);
    *shares->end = *err;
  }
  for (int i = 0; i < shares->n; i++)
    end_locked(shares->list[i], err);
  pthread_mutex_unlock(&shares->lock);
}

struct share *run_shares_find(struct run_shares *shares, uint64_t id, uint32_t worker) {
  struct share *found = NULL;
  if (id == 0)
    return NULL;
  pthread_mutex_lock(&shares->lock);
  for (int i = 0; i < shares->n && !found; i++)
    if (shares->list[i]->id == id && shares->list[i]->worker == worker && !shares->list[i]->is_ended)
      found = share_get(shares->list[i]->share);
  pthread_mutex_unlock(&shares->lock);
  return found;
}

struct shared_pool *run_shares_pool(const struct run_shares *shares) {
  return __atomic_load_n(&shares->pool, __ATOMIC_ACQUIRE);
}
