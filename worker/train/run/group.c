/* A group: who is in it, and what each does. */
#include "worker/train/run/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/base/memory.h"

enum { TERM_SHIFT = 32 }; /* views are numbered from term << 32 */

static uint32_t view_group_of(const Weir__View *view, const char *worker) {
  for (size_t i = 0; i < view->n_workers; i++)
    if (strcmp(view->workers[i]->worker, worker) == 0)
      return view->workers[i]->group;
  return 0;
}

bool group_read(const Weir__View *view, const char *worker, struct group *group) {
  uint32_t number = view_group_of(view, worker), end = 0;
  *group = (struct group){0};
  if (number == 0)
    return true;
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *member = view->workers[i];
    bool adjoins = group->size == 0 || member->microbatch_begin == end;
    if (member->group != number)
      continue;
    if (group->size == COLLECTIVE_SIZE_MAX || !adjoins ||
        member->microbatch_begin >= member->microbatch_end || member->microbatch_end > MICROBATCHES_MAX) {
      *group = (struct group){0};
      return false;
    }
    if (strcmp(member->worker, worker) == 0)
      group->rank = group->size;
    end = member->microbatch_end;
    group->ranges[group->size++] = (struct task_range){member->microbatch_begin, end};
  }
  group->term = view->number >> TERM_SHIFT;
  group->incarnation = view->incarnation;
  group->view = view->number;
  group->number = number;
  return true;
}

bool group_is_same(const struct group *a, const struct group *b) {
  if (a->number == 0 || b->number == 0)
    return a->number == b->number;
  return a->number == b->number && a->term == b->term && a->incarnation == b->incarnation &&
         a->rank == b->rank && a->size == b->size &&
         memcmp(a->ranges, b->ranges, (size_t)a->size * sizeof *a->ranges) == 0;
}

/* Room for the whole of a run's id (a name of 40 and 7 more): its end is what no other run has. */
void group_name(const struct group *group, const char *run, const char *what,
                char name[COLLECTIVE_NAME_MAX + 1]) {
  snprintf(name, COLLECTIVE_NAME_MAX + 1, "%.50s-%llx.%llx.%x.%.4s", run,
           (unsigned long long)group->incarnation, (unsigned long long)group->term, group->number, what);
}

/* A part waits on the stack for its right sibling, which is what comes next, or what that grows to be. */
int group_merge(struct group_part *parts, int n, uint32_t microbatches,
                void (*add)(void *user, int to, int from), void *user) {
  int kept = 0;
  for (int i = 0; i < n; i++) {
    struct group_part part = parts[i];
    struct tree_node sibling;
    while (kept > 0 && tree_sibling(part.node, microbatches, &sibling) &&
           tree_is_same(parts[kept - 1].node, sibling)) {
      add(user, part.index, parts[--kept].index);
      part.node = tree_canonical(tree_parent(part.node), microbatches);
    }
    parts[kept++] = part;
  }
  return kept;
}

struct placed_block {
  int node; /* whose execution completes it */
  uint32_t block;
};

static int compare_placed(const void *a, const void *b) {
  const struct placed_block *x = a, *y = b;
  if (x->node != y->node)
    return x->node < y->node ? -1 : 1;
  return x->block < y->block ? -1 : x->block > y->block;
}

/* A block is complete with the last gradient of what lies in it. */
static void find_order(struct bucket_plan *plan, const struct model *model, const struct block_map *map) {
  struct placed_block *placed = mem_new(model->n_param_blocks * sizeof *placed);
  int *producers = mem_new((size_t)model->train->n_values * sizeof *producers);
  uint32_t b = 0;
  for (int n = 0; n < model->train->n_nodes; n++)
    for (int i = 0; i < model->train->nodes[n]->n_outputs; i++)
      if (model->train->nodes[n]->outputs[i] >= 0)
        producers[model->train->nodes[n]->outputs[i]] = n;
  for (b = 0; b < model->n_param_blocks; b++)
    placed[b].block = b;
  for (int p = 0; p < model->n_params; p++) {
    int producer = producers[model->params[p].grad];
    for (b = map->params[p].begin; b < map->params[p].end; b++)
      placed[b].node = producer > placed[b].node ? producer : placed[b].node;
  }
  qsort(placed, model->n_param_blocks, sizeof *placed, compare_placed);
  for (b = 0; b < model->n_param_blocks; b++)
    plan->order[b] = placed[b].block;
  free(producers);
  free(placed);
}

/* Returns the elements of the bucket that begins at `begin`. */
static uint32_t fill_bucket(struct bucket_plan *plan, const struct model *model, uint32_t begin,
                            uint32_t bytes) {
  struct bucket *bucket = &plan->buckets[plan->n_buckets];
  uint32_t elems = 0;
  *bucket = (struct bucket){.begin = begin, .end = begin};
  while (bucket->end < model->n_param_blocks && bucket->end - begin < BUCKET_BLOCKS_MAX) {
    uint32_t block = plan->order[bucket->end];
    if (elems > 0 && (elems + model->blocks[block].elems) * sizeof(float) > bytes)
      break;
    elems += model->blocks[block].elems;
    plan->place[block] = plan->n_buckets;
    bucket->end++;
  }
  return elems;
}

void bucket_plan_init(struct bucket_plan *plan, const struct model *model, const struct block_map *map,
                      int size, uint32_t bytes) {
  uint32_t n = model->n_param_blocks, *elems, *owners;
  *plan = (struct bucket_plan){.order = mem_new(n * sizeof *plan->order),
                               .place = mem_new(n * sizeof *plan->place),
                               .buckets = mem_new(n * sizeof *plan->buckets)};
  elems = mem_new(n * sizeof *elems);
  owners = mem_new(n * sizeof *owners);
  find_order(plan, model, map);
  for (uint32_t begin = 0; begin < n; begin = plan->buckets[plan->n_buckets++].end)
    elems[plan->n_buckets] = fill_bucket(plan, model, begin, bytes);
  placement_compute(elems, plan->n_buckets, (uint32_t)size, owners);
  for (uint32_t b = 0; b < plan->n_buckets; b++)
    plan->buckets[b].owner = owners[b];
  free(elems);
  free(owners);
}

void bucket_plan_fini(struct bucket_plan *plan) {
  free(plan->order);
  free(plan->place);
  free(plan->buckets);
  *plan = (struct bucket_plan){0};
}
