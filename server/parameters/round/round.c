/* The parts of one block's step. */
#include "server/parameters/round/round.h"

#include <stdlib.h>

#include "common/agree/sum.h"

struct round_part {
  struct tree_node node;
  struct buffer *sum;
};

void round_init(struct round *round, uint32_t microbatches, uint32_t elems, struct pool *pool) {
  *round = (struct round){.microbatches = microbatches, .elems = elems, .pool = pool};
}

void round_fini(struct round *round) {
  round_clear(round);
  free(round->parts);
  round->parts = NULL;
}

static bool round_covers(const struct round *round, struct tree_node node) {
  for (int i = 0; i < round->n_parts; i++)
    if (tree_covers(round->parts[i].node, node))
      return true;
  return false;
}

static const struct round_part *round_find_sibling(const struct round *round, struct tree_node node) {
  struct tree_node sibling;
  if (!tree_sibling(node, round->microbatches, &sibling))
    return NULL;
  for (int i = 0; i < round->n_parts; i++)
    if (tree_is_same(round->parts[i].node, sibling))
      return &round->parts[i];
  return NULL;
}

/* Puts a part in the place of all that it covers. */
static void round_replace(struct round *round, struct round_part part) {
  int kept = 0;
  for (int i = 0; i < round->n_parts; i++) {
    if (tree_covers(part.node, round->parts[i].node))
      pool_give(round->pool, round->parts[i].sum);
    else
      round->parts[kept++] = round->parts[i];
  }
  array_reserve((void **)&round->parts, &round->capacity, kept, sizeof *round->parts);
  round->parts[kept] = part;
  round->n_parts = kept + 1;
}

/* The first microbatch of which there is no part. */
static uint32_t round_first_missing(const struct round *round) {
  uint32_t missing = 0;
  for (int i = 0; i < round->n_parts; i++) {
    const struct tree_node *node = &round->parts[i].node;
    if (!tree_covers(*node, (struct tree_node){missing, 0}))
      continue;
    missing = node->first + (1u << node->level);
    i = -1; /* parts lie in any order */
  }
  return missing;
}

/* What is taken however much is held, so that a round ends in any case: a part whose sibling is here, for the
   two become one, and the part with the first microbatch that is missing, for all before it are few sums. */
static bool round_must_take(const struct round *round, struct tree_node node) {
  uint32_t missing = round_first_missing(round);
  return round_find_sibling(round, node) || tree_covers(node, (struct tree_node){missing, 0});
}

static struct buffer *round_take(struct round *round, struct tree_node node, struct err *err) {
  size_t size_bytes = round->elems * sizeof(float);
  struct buffer *buffer;
  if (!pool_has_room(round->pool, size_bytes) && !round_must_take(round, node)) {
    err_set(err, ERR_BUSY, "the parts that steps wait with take all of their %zu MiB",
            round->pool->budget->bytes_max >> 20);
    return NULL;
  }
  buffer = pool_take(round->pool, size_bytes);
  if (!buffer)
    err_set(err, ERR_NO_MEMORY, "no memory for a part of %u elements", round->elems);
  return buffer;
}

/* The sum is made in a buffer of its own, and what is held changes only once it is known to be finite: a
   refused part must not spoil its sibling. */
int round_add(struct round *round, const struct part *part, struct err *err) {
  struct round_part added = {.node = tree_canonical(part->node, round->microbatches)};
  const struct round_part *sibling;
  bool is_finite = true;
  if (round_covers(round, added.node))
    return 0;
  added.sum = round_take(round, added.node, err);
  if (!added.sum)
    return err->code;
  part_read(part, round->elems, added.sum->data);
  if (part_check(added.sum->data, round->elems, err))
    goto refuse;
  while ((sibling = round_find_sibling(round, added.node))) {
    is_finite &= sum_add(added.sum->data, sibling->sum->data, round->elems);
    added.node = tree_canonical(tree_parent(added.node), round->microbatches);
  }
  if (!is_finite) {
    err_set(err, ERR_INVALID, "its sum with the other microbatches' overflows f32");
    goto refuse;
  }
  round_replace(round, added);
  return 0;
refuse:
  pool_give(round->pool, added.sum);
  return err->code;
}

float *round_sum(const struct round *round) {
  bool is_complete =
      round->n_parts == 1 && tree_is_same(round->parts[0].node, tree_root(round->microbatches));
  return is_complete ? round->parts[0].sum->data : NULL;
}

void round_clear(struct round *round) {
  for (int i = 0; i < round->n_parts; i++)
    pool_give(round->pool, round->parts[i].sum);
  round->n_parts = 0;
}
