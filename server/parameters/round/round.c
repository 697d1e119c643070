/* The parts of one block's step. */
#include "server/parameters/round/round.h"

#include <stdlib.h>

#include "common/agree/sum.h"
#include "common/base/hash.h"
#include "server/parameters/round/marks.h"

struct round_part {
  struct tree_node node;
  struct buffer *sum;
};

static const struct compression everything_is_plain;

void round_init(struct round *round, uint32_t microbatches, uint32_t elems, struct pool *pool) {
  *round = (struct round){
      .microbatches = microbatches, .elems = elems, .compression = &everything_is_plain, .pool = pool};
}

void round_fini(struct round *round) {
  round_clear(round);
  free(round->parts);
  free(round->accepted);
  doubts_fini(&round->doubts);
  round->parts = NULL;
  round->accepted = NULL;
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

/* Lets go of all sums that a node covers. True if there was one. */
static bool round_drop(struct round *round, struct tree_node node) {
  int n = round->n_parts, kept = 0;
  for (int i = 0; i < n; i++) {
    if (tree_covers(node, round->parts[i].node))
      pool_give(round->pool, round->parts[i].sum);
    else
      round->parts[kept++] = round->parts[i];
  }
  round->n_parts = kept;
  return kept < n;
}

/* Moves what was accepted below a node behind the rest. Returns how many those are. */
static int round_gather(struct round *round, struct tree_node node) {
  int below = round->n_accepted;
  for (int i = round->n_accepted - 1; i >= 0; i--) {
    struct accepted part = round->accepted[i];
    if (!tree_covers(node, accepted_node(&part)))
      continue;
    round->accepted[i] = round->accepted[--below];
    round->accepted[below] = part;
  }
  return round->n_accepted - below;
}

static void round_put(struct round *round, struct round_part part) {
  array_reserve((void **)&round->parts, &round->capacity, round->n_parts, sizeof *round->parts);
  round->parts[round->n_parts++] = part;
}

static void round_accept(struct round *round, struct tree_node node, const struct part *part, uint64_t hash) {
  struct accepted accepted = {.hash = hash,
                              .view = part->view,
                              .worker = part->worker,
                              .first = (uint16_t)node.first,
                              .level = (uint8_t)node.level};
  if (round_drop(round, node))
    round->n_accepted -= round_gather(round, node);
  array_reserve((void **)&round->accepted, &round->accepted_capacity, round->n_accepted, sizeof accepted);
  round->accepted[round->n_accepted++] = accepted;
}

/* True if the sum's parts have to come once more before anything can be said. */
static bool round_judge(struct round *round, struct tree_node sum, bool overflows) {
  struct judgement judgement;
  int n;
  if (round->doubts.n == 0)
    return false;
  n = round_gather(round, sum);
  judgement = doubts_judge(&round->doubts, sum, overflows, &round->accepted[round->n_accepted - n], n);
  if (judgement.outcome == JUDGEMENT_SETTLED && round->listener.on_judged)
    round->listener.on_judged(round->listener.user, &judgement);
  judgement_fini(&judgement);
  return judgement.outcome == JUDGEMENT_UNSETTLED;
}

static int accepted_order(const void *a, const void *b) {
  return (int)((const struct accepted *)a)->first - (int)((const struct accepted *)b)->first;
}

/* What was summed cannot be told from the sum: all of it goes. */
static void round_doubt(struct round *round, struct round_part overflown, bool is_second) {
  int n = round_gather(round, overflown.node);
  struct accepted *parts = &round->accepted[round->n_accepted - n];
  pool_give(round->pool, overflown.sum);
  round_drop(round, overflown.node);
  round->n_accepted -= n;
  qsort(parts, (size_t)n, sizeof *parts, accepted_order);
  doubts_add(&round->doubts, overflown.node, is_second, parts, n);
  if (round->listener.on_doubted)
    round->listener.on_doubted(round->listener.user, parts, n);
}

/* Of what was summed here. There is no residual of it, so what would need one is left as it is. */
static void round_compress(const struct round *round, uint64_t step, const struct round_part *part) {
  const struct compression *compression = round->compression;
  struct wire_sum sum = {step, round->block, part->node};
  if (compression_form(compression, part->node) == SUM_IS_COMPRESSED && !compression->gradients->has_feedback)
    compressor_round(compression->gradients, compression_key(compression, &sum), part->sum->data,
                     round->elems);
}

/* Up the tree, as far as siblings are there. */
static void round_merge(struct round *round, uint64_t step, struct round_part added) {
  struct accepted came = round->accepted[round->n_accepted - 1];
  const struct round_part *sibling;
  bool is_finite = true, is_second = false;
  doubts_compare(&round->doubts, added.node, added.sum->data, round->elems, &came);
  while ((sibling = round_find_sibling(round, added.node))) {
    is_finite = sum_add(added.sum->data, sibling->sum->data, round->elems);
    added.node = tree_canonical(tree_parent(added.node), round->microbatches);
    is_second = round_judge(round, added.node, !is_finite);
    if (!is_finite)
      break;
    round_compress(round, step, &added);
    doubts_compare(&round->doubts, added.node, added.sum->data, round->elems, &came);
  }
  if (!is_finite) {
    round_doubt(round, added, is_second);
    return;
  }
  round_drop(round, added.node);
  round_put(round, added);
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

/* What is compressed is first copied to the end of the memory that its values take. */
static int round_read(const struct round *round, const struct part *part, float *out, struct err *err) {
  const struct compressor_def *compressor = round->compression->gradients;
  size_t size_bytes = round->elems * sizeof *out, rest_bytes;
  if (compression_form(round->compression, part->node) != SUM_IS_COMPRESSED)
    return part_read(part, size_bytes, out, err) ? (int)err->code : part_check(out, round->elems, err);
  rest_bytes = size_bytes - compressor_bytes(compressor, round->elems);
  if (part_read(part, size_bytes - rest_bytes, (uint8_t *)out + rest_bytes, err))
    return err->code;
  return compressor_decode(compressor, (uint8_t *)out + rest_bytes, round->elems, out, err);
}

int round_add(struct round *round, const struct part *part, struct err *err) {
  struct round_part added = {.node = tree_canonical(part->node, round->microbatches)};
  if (round_covers(round, added.node) || doubts_keep_out(&round->doubts, added.node))
    return 0;
  added.sum = round_take(round, added.node, err);
  if (!added.sum)
    return err->code;
  if (round_read(round, part, added.sum->data, err)) {
    pool_give(round->pool, added.sum);
    return err->code;
  }
  round_accept(round, added.node, part, hash_bytes(added.sum->data, round->elems * sizeof(float)));
  round_merge(round, part->step, added);
  return 0;
}

float *round_sum(const struct round *round) {
  bool is_complete =
      round->n_parts == 1 && tree_is_same(round->parts[0].node, tree_root(round->microbatches));
  return is_complete ? round->parts[0].sum->data : NULL;
}

void round_missing(const struct round *round, uint64_t *microbatches) {
  uint64_t there[MICROBATCHES_MAX / 64] = {0}, missing[MICROBATCHES_MAX / 64] = {0};
  for (int i = 0; i < round->n_parts; i++)
    marks_set(there, round->parts[i].node.first, tree_node_end(round->parts[i].node, round->microbatches));
  marks_set(missing, 0, round->microbatches);
  for (uint32_t word = 0; word < marks_words(round->microbatches); word++)
    microbatches[word] |= missing[word] & ~there[word];
}

void round_clear(struct round *round) {
  for (int i = 0; i < round->n_parts; i++)
    pool_give(round->pool, round->parts[i].sum);
  round->n_parts = round->n_accepted = 0;
  doubts_clear(&round->doubts);
}
