/* A group's exchange: its life, and its end. */
#include "worker/train/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/train/exchange_state.h"

enum { OPEN_MS = 10000, DIGITS = 4, DIGIT_BITS = 16 };

static int open_one(struct exchange *exchange, const char *what, bool (*is_cancelled)(void *user), void *user,
                    struct collective **out, struct err *err) {
  const struct run *run = exchange->run;
  const struct group *group = &exchange->group;
  char name[COLLECTIVE_NAME_MAX + 1];
  struct collective_options options = {.name = name,
                                       .rank = group->rank,
                                       .size = group->size,
                                       .device = run->options.n_devices ? run->options.devices[0] : 0,
                                       .is_fast = !run->loaded.spec->train->deterministic,
                                       .timeout_ms = OPEN_MS,
                                       .is_cancelled = is_cancelled,
                                       .user = user};
  group_name(group, run->load->run, what, name);
  return exchange->def->open(&options, out, err);
}

static void find_parts(struct exchange *exchange) {
  uint32_t microbatches = exchange->run->loaded.plan.microbatches;
  for (int rank = 0; rank < exchange->group.size; rank++) {
    struct task_range range = exchange->group.ranges[rank];
    struct member_parts *parts = &exchange->parts[rank];
    parts->n = tree_cover(range.begin, range.end, microbatches, parts->nodes);
    exchange->n_parts += parts->n;
  }
}

int exchange_open(struct run *run, const struct group *group, bool (*is_cancelled)(void *user), void *user,
                  struct exchange **out, struct err *err) {
  const struct model *model = run->loaded.model;
  struct exchange *exchange;
  const struct collective_def *def = collective_find(run->loaded.spec->train->collective, err);
  if (!def)
    return err->code;
  if (group->ranges[group->size - 1].end > run->loaded.plan.microbatches)
    return err_set(err, ERR_INVALID, "the view gives microbatch %u, the run has %u",
                   group->ranges[group->size - 1].end - 1, run->loaded.plan.microbatches);
  exchange = mem_new(sizeof *exchange);
  exchange->run = run;
  exchange->def = def;
  exchange->group = *group;
  find_parts(exchange);
  bucket_plan_init(&exchange->plan, model, &run->map, group->size);
  exchange->held =
      mem_new((size_t)model->n_param_blocks * (size_t)exchange_own(exchange)->n * sizeof(struct buffer *));
  exchange->n_held = mem_new(exchange->plan.n_buckets * sizeof *exchange->n_held);
  pthread_mutex_init(&exchange->lock, NULL);
  pthread_cond_init(&exchange->changed, NULL);
  if (open_one(exchange, "up", is_cancelled, user, &exchange->up, err) ||
      open_one(exchange, "down", is_cancelled, user, &exchange->down, err)) {
    exchange_close(exchange);
    return err->code;
  }
  *out = exchange;
  return 0;
}

/* f32 holds whole numbers of 16 bits. */
int exchange_agree(struct exchange *exchange, uint64_t *version, struct err *err) {
  float mine[DIGITS], all[DIGITS * COLLECTIVE_SIZE_MAX];
  struct collective_call call = {.kind = COLLECTIVE_ALL_GATHER, .in = mine, .out = all, .elems = DIGITS};
  for (int d = 0; d < DIGITS; d++)
    mine[d] = (float)(*version >> (d * DIGIT_BITS) & 0xffff);
  if (collective_run(exchange->def, exchange->down, &call, err))
    return err->code;
  for (int rank = 0; rank < exchange->group.size; rank++) {
    uint64_t theirs = 0;
    for (int d = 0; d < DIGITS; d++)
      theirs |= (uint64_t)all[rank * DIGITS + d] << (d * DIGIT_BITS);
    *version = theirs > *version ? theirs : *version;
  }
  return 0;
}

void exchange_start(struct exchange *exchange, uint64_t version) {
  exchange->first_step = version;
  exchange->is_started = true;
  CHECK(pthread_create(&exchange->gatherer, NULL, exchange_gather_main, exchange) == 0);
  CHECK(pthread_create(&exchange->spreader, NULL, exchange_spread_main, exchange) == 0);
}

const struct group *exchange_group(const struct exchange *exchange) {
  return &exchange->group;
}

void exchange_give(struct exchange *exchange, const struct transfer_item *item) {
  const struct member_parts *own = exchange_own(exchange);
  int part = 0;
  uint32_t bucket = exchange->plan.place[item->block];
  while (part < own->n && !tree_is_same(own->nodes[part], item->node))
    part++;
  CHECK(part < own->n); /* all that it owes of a step, for as long as the group lasts */
  pthread_mutex_lock(&exchange->lock);
  CHECK(!exchange->held[item->block * (uint32_t)own->n + (uint32_t)part]);
  exchange->held[item->block * (uint32_t)own->n + (uint32_t)part] = item->buffer;
  exchange->n_held[bucket]++;
  pthread_cond_signal(&exchange->changed);
  pthread_mutex_unlock(&exchange->lock);
}

void exchange_abort_locked(struct exchange *exchange) {
  __atomic_store_n(&exchange->is_stopping, true, __ATOMIC_RELAXED);
  if (exchange->up)
    exchange->def->abort(exchange->up);
  if (exchange->down)
    exchange->def->abort(exchange->down);
  pthread_mutex_lock(&exchange->lock);
  pthread_cond_broadcast(&exchange->changed);
  pthread_mutex_unlock(&exchange->lock);
  pthread_cond_broadcast(&exchange->run->changed);
}

bool exchange_is_stopping(const struct exchange *exchange) {
  return __atomic_load_n(&exchange->is_stopping, __ATOMIC_RELAXED);
}

/* Its group is no more: the run leaves, and begins anew. What fails because it was stopped is no failure. */
void exchange_fail(struct exchange *exchange, const struct err *err) {
  struct run *run = exchange->run;
  pthread_mutex_lock(&run->lock);
  if (!exchange_is_stopping(exchange)) {
    log_event(LOG_INFO, "worker", "group_ended", "run=%s group=%u code=%s error=\"%s\"", run->load->run,
              exchange->group.number, err_name(err->code), err->text);
    exchange_abort_locked(exchange);
    run->group_err = *err;
    run->must_rejoin = true;
  }
  pthread_mutex_unlock(&run->lock);
}

void exchange_close(struct exchange *exchange) {
  uint32_t n_held;
  if (!exchange)
    return;
  n_held = exchange->run->loaded.model->n_param_blocks * (uint32_t)exchange_own(exchange)->n;
  pthread_mutex_lock(&exchange->run->lock);
  exchange_abort_locked(exchange);
  pthread_mutex_unlock(&exchange->run->lock);
  if (exchange->is_started) {
    pthread_join(exchange->gatherer, NULL);
    pthread_join(exchange->spreader, NULL);
  }
  exchange->def->close(exchange->up);
  exchange->def->close(exchange->down);
  for (uint32_t i = 0; i < n_held; i++)
    block_pool_give(exchange->run->pool, i / (uint32_t)exchange_own(exchange)->n, exchange->held[i]);
  pthread_cond_destroy(&exchange->changed);
  pthread_mutex_destroy(&exchange->lock);
  bucket_plan_fini(&exchange->plan);
  free(exchange->held);
  free(exchange->n_held);
  free(exchange);
}
