/* A relay: its life, and its end. */
#include "worker/train/group/relay.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/log.h"
#include "common/settle/spec_collective.h"
#include "worker/backend/plugin.h"
#include "worker/train/group/relay_state.h"

/* ARRAY_ALIGN: elements; NCCL is fastest where arrays begin as allocations do. */
enum { DIGITS = 4, DIGIT_BITS = 16, ARRAY_ALIGN = 64 };

/* Where sums need not be in the order of the tree, a collective that the spec names may add in any. What auto
   chooses changes no bit. */
static bool may_add_in_any_order(const struct run *run) {
  const Weir__TrainSpec *train = run->loaded.spec->train;
  return !train->deterministic && spec_names_collective(train);
}

static int open_collective(struct relay *relay, const char *what, bool (*is_cancelled)(void *run),
                           struct collective **out, struct err *err) {
  struct run *run = relay->run;
  const struct group *group = &relay->group;
  char name[COLLECTIVE_NAME_MAX + 1];
  struct collective_options options = {.name = name,
                                       .rank = group->rank,
                                       .size = group->size,
                                       .device = relay->device,
                                       .is_fast = may_add_in_any_order(run),
                                       .timeout_ms = run->options.meeting_ms,
                                       .is_cancelled = is_cancelled,
                                       .user = run};
  group_name(group, run->load->run, what, name);
  return relay->def->open(&options, out, err);
}

/* Where the collective may add, and the group's sums are one part, it makes them. */
static void find_parts(struct relay *relay) {
  uint32_t microbatches = relay->run->loaded.plan.microbatches;
  uint32_t begin = relay->group.ranges[0].begin, end = relay->group.ranges[relay->group.size - 1].end;
  struct tree_node cover[TREE_COVER_MAX];
  relay->is_reduced = tree_cover(begin, end, microbatches, cover) == 1 && may_add_in_any_order(relay->run);
  relay->whole = cover[0];
  for (int rank = 0; rank < relay->group.size; rank++) {
    struct task_range range = relay->group.ranges[rank];
    struct member_parts *parts = &relay->parts[rank];
    parts->n = tree_cover(range.begin, range.end, microbatches, parts->nodes);
    relay->n_parts += parts->n;
  }
}

size_t relay_bucket_elems(const struct relay *relay, const struct bucket *bucket) {
  size_t elems = 0;
  for (uint32_t i = bucket->begin; i < bucket->end; i++)
    elems += relay->run->block_elems[relay->plan.order[i]];
  return elems;
}

/* Room for every member's parts of a bucket, and for the weights. */
static int open_memory(struct relay *relay, struct err *err) {
  void *arrays = NULL;
  for (uint32_t b = 0; b < relay->plan.n_buckets; b++) {
    size_t elems = relay_bucket_elems(relay, &relay->plan.buckets[b]);
    relay->bucket_elems = elems > relay->bucket_elems ? elems : relay->bucket_elems;
  }
  relay->bucket_elems = (relay->bucket_elems + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN;
  if (relay->memory->open(relay->device, &relay->stream, err) ||
      relay->memory->new (relay->device, (size_t)relay->n_parts * relay->bucket_elems * sizeof(float),
                          &arrays, err))
    return err_prefix(err, "group %u", relay->group.number);
  relay->arrays = arrays;
  if (weights_use_device(relay->run->weights, relay->memory, relay->device, err))
    return err_prefix(err, "group %u", relay->group.number);
  return 0;
}

/* A row of collective.def, or the plugin's. Errors: NOT_FOUND, those of plugin_load. */
static const struct collective_def *find_collective(const char *name, struct err *err) {
  const struct collective_def *builtin = collective_find(name);
  const struct plugin *plugin;
  if (builtin)
    return builtin;
  plugin = plugin_load(err);
  if (!plugin)
    return NULL;
  if (plugin->collective && strcmp(plugin->collective->name, name) == 0)
    return plugin->collective;
  err_set(err, ERR_NOT_FOUND, "there is no collective '%s'", name);
  return NULL;
}

static void relay_give(struct outlet *outlet, const struct transfer_item *item) {
  struct relay *relay = (struct relay *)outlet; /* whose first member it is */
  const struct member_parts *own = relay_own(relay);
  int part = 0;
  uint32_t bucket = relay->plan.place[item->block];
  while (part < own->n && !tree_is_same(own->nodes[part], item->node))
    part++;
  CHECK(part < own->n); /* all that it owes of a step, for as long as the group lasts */
  pthread_mutex_lock(&relay->lock);
  CHECK(!relay->held[item->block * (uint32_t)own->n + (uint32_t)part]);
  relay->held[item->block * (uint32_t)own->n + (uint32_t)part] = item->buffer;
  relay->n_held[bucket]++;
  pthread_cond_signal(&relay->changed);
  pthread_mutex_unlock(&relay->lock);
}

int relay_open(struct run *run, bool (*is_cancelled)(void *run), struct relay **out, struct err *err) {
  const struct model *model = run->loaded.model;
  const struct group *group = &run->group;
  struct relay *relay;
  const struct collective_def *def = find_collective(spec_collective(run->loaded.spec), err);
  if (!def)
    return err->code;
  if (def->is_on_device && !run->options.backend->memory)
    return err_set(err, ERR_UNSUPPORTED, "the %s collective is for workers on GPUs", def->name);
  if (group->ranges[group->size - 1].end > run->loaded.plan.microbatches)
    return err_set(err, ERR_INVALID, "the view gives microbatch %u, the run has %u",
                   group->ranges[group->size - 1].end - 1, run->loaded.plan.microbatches);
  relay = mem_new(sizeof *relay);
  relay->run = run;
  relay->def = def;
  relay->device = run->options.n_devices ? run->options.devices[0] : 0;
  relay->memory = def->is_on_device ? run->options.backend->memory : NULL;
  relay->outlet = (struct outlet){.give = relay_give, .is_on_device = relay->memory != NULL};
  relay->group = *group;
  find_parts(relay);
  bucket_plan_init(&relay->plan, model, &run->map, group->size,
                   def->is_on_device ? BUCKET_DEVICE_BYTES : BUCKET_BYTES);
  relay->held =
      mem_new((size_t)model->n_param_blocks * (size_t)relay_own(relay)->n * sizeof(struct buffer *));
  relay->n_held = mem_new(relay->plan.n_buckets * sizeof *relay->n_held);
  pthread_mutex_init(&relay->lock, NULL);
  pthread_cond_init(&relay->changed, NULL);
  if ((relay->memory && open_memory(relay, err)) ||
      open_collective(relay, "up", is_cancelled, &relay->up, err) ||
      open_collective(relay, "down", is_cancelled, &relay->down, err)) {
    relay_close(relay);
    return err->code;
  }
  *out = relay;
  return 0;
}

/* f32 holds whole numbers of 16 bits. */
int relay_agree(struct relay *relay, uint64_t *version, struct err *err) {
  float mine[DIGITS], all[DIGITS * COLLECTIVE_SIZE_MAX] = {0};
  struct collective_call call = {.kind = COLLECTIVE_ALL_GATHER, .in = mine, .out = all, .elems = DIGITS};
  for (int d = 0; d < DIGITS; d++)
    mine[d] = (float)(*version >> (d * DIGIT_BITS) & 0xffff);
  if (collective_run(relay->def, relay->down, &call, err))
    return err->code;
  for (int rank = 0; rank < relay->group.size; rank++) {
    uint64_t theirs = 0;
    for (int d = 0; d < DIGITS; d++)
      theirs |= (uint64_t)all[rank * DIGITS + d] << (d * DIGIT_BITS);
    *version = theirs > *version ? theirs : *version;
  }
  return 0;
}

void relay_start(struct relay *relay, uint64_t step) {
  relay->first_step = step;
  relay->is_started = true;
  CHECK(pthread_create(&relay->gatherer, NULL, relay_gather_main, relay) == 0);
  CHECK(pthread_create(&relay->spreader, NULL, relay_spread_main, relay) == 0);
}

const struct group *relay_group(const struct relay *relay) {
  return &relay->group;
}

struct outlet *relay_outlet(struct relay *relay) {
  return &relay->outlet;
}

void relay_abort_locked(struct relay *relay) {
  __atomic_store_n(&relay->is_stopping, true, __ATOMIC_RELAXED);
  if (relay->up)
    relay->def->abort(relay->up);
  if (relay->down)
    relay->def->abort(relay->down);
  pthread_mutex_lock(&relay->lock);
  pthread_cond_broadcast(&relay->changed);
  pthread_mutex_unlock(&relay->lock);
  pthread_cond_broadcast(&relay->run->changed);
}

bool relay_is_stopping(const struct relay *relay) {
  return __atomic_load_n(&relay->is_stopping, __ATOMIC_RELAXED);
}

/* Its group is no more: the run leaves, and begins anew. What fails because it was stopped is no failure. */
void relay_fail(struct relay *relay, const struct err *err) {
  struct run *run = relay->run;
  pthread_mutex_lock(&run->lock);
  if (!relay_is_stopping(relay)) {
    log_event(LOG_INFO, "worker", "group_ended", "run=%s group=%u code=%s error=\"%s\"", run->load->run,
              relay->group.number, err_name(err->code), err->text);
    relay_abort_locked(relay);
    run->group_err = *err;
    run->must_rejoin = true;
  }
  pthread_mutex_unlock(&run->lock);
}

void relay_close(struct relay *relay) {
  uint32_t n_held;
  if (!relay)
    return;
  n_held = relay->run->loaded.model->n_param_blocks * (uint32_t)relay_own(relay)->n;
  pthread_mutex_lock(&relay->run->lock);
  relay_abort_locked(relay);
  pthread_mutex_unlock(&relay->run->lock);
  if (relay->is_started) {
    pthread_join(relay->gatherer, NULL);
    pthread_join(relay->spreader, NULL);
  }
  relay->def->close(relay->up);
  relay->def->close(relay->down);
  if (relay->memory) {
    relay->memory->close(relay->stream);
    relay->memory->free(relay->device, relay->arrays);
  }
  for (uint32_t i = 0; i < n_held; i++)
    block_pool_give(relay->run->pool, i / (uint32_t)relay_own(relay)->n, relay->held[i]);
  pthread_cond_destroy(&relay->changed);
  pthread_mutex_destroy(&relay->lock);
  bucket_plan_fini(&relay->plan);
  free(relay->held);
  free(relay->n_held);
  free(relay);
}
