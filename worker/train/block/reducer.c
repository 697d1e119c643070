/* Which parts a worker sends. */
#include "worker/train/block/reducer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

/* Of one microbatch's part of one block. */
enum part_state { PART_NONE, PART_TAKEN, PART_SENT };

struct held_part {
  struct tree_node node;
  struct buffer *buffer;
};

struct reducer_block {
  uint8_t *parts; /* enum part_state[microbatches] */
  struct held_part *held;
  int n_held, held_capacity;
  bool is_awaited; /* a reply with the next version is on its way, or the step brings none */
};

struct reducer {
  struct reducer_options options;
  struct reducer_block *blocks;
  uint8_t *parts; /* of all blocks */
  bool *mine;
};

static void reducer_settle(struct reducer *reducer, uint32_t b);

struct reducer *reducer_new(const struct reducer_options *options) {
  struct reducer *reducer = mem_new(sizeof *reducer);
  reducer->options = *options;
  reducer->blocks = mem_new(options->blocks * sizeof *reducer->blocks);
  reducer->parts = mem_new((size_t)options->blocks * options->microbatches);
  reducer->mine = mem_new(options->microbatches * sizeof *reducer->mine);
  for (uint32_t b = 0; b < options->blocks; b++)
    reducer->blocks[b].parts = reducer->parts + (size_t)b * options->microbatches;
  return reducer;
}

static void reducer_drop_held(struct reducer *reducer) {
  for (uint32_t b = 0; b < reducer->options.blocks; b++) {
    struct reducer_block *block = &reducer->blocks[b];
    for (int i = 0; i < block->n_held; i++)
      reducer->options.drop(reducer->options.user, b, block->held[i].buffer);
    block->n_held = 0;
  }
}

void reducer_free(struct reducer *reducer) {
  if (!reducer)
    return;
  reducer_drop_held(reducer);
  for (uint32_t b = 0; b < reducer->options.blocks; b++)
    free(reducer->blocks[b].held);
  free(reducer->blocks);
  free(reducer->parts);
  free(reducer->mine);
  free(reducer);
}

void reducer_begin(struct reducer *reducer, const bool *mine, bool brings_version) {
  reducer_drop_held(reducer);
  memset(reducer->parts, PART_NONE, (size_t)reducer->options.blocks * reducer->options.microbatches);
  for (uint32_t b = 0; b < reducer->options.blocks; b++)
    reducer->blocks[b].is_awaited = !brings_version;
  reducer_assign(reducer, mine);
}

void reducer_assign(struct reducer *reducer, const bool *mine) {
  memcpy(reducer->mine, mine, reducer->options.microbatches * sizeof *mine);
  for (uint32_t b = 0; b < reducer->options.blocks; b++)
    reducer_settle(reducer, b);
}

/* True if every microbatch of the node is held, in hands or still to be delivered by this worker. */
static bool is_coming(const struct reducer *reducer, uint32_t b, struct tree_node node) {
  uint32_t end = tree_node_end(node, reducer->options.microbatches);
  for (uint32_t m = node.first; m < end; m++) {
    uint8_t part = reducer->blocks[b].parts[m];
    if (part == PART_SENT || (part == PART_NONE && !reducer->mine[m]))
      return false;
  }
  return true;
}

static enum block_role role_of(const struct reducer *reducer, uint32_t b) {
  return reducer->options.roles ? (enum block_role)reducer->options.roles[b] : BLOCK_OWNED;
}

static bool is_anything_owed(const struct reducer *reducer, uint32_t b) {
  if (role_of(reducer, b) != BLOCK_OWNED)
    return false;
  for (uint32_t m = 0; m < reducer->options.microbatches; m++)
    if (is_coming(reducer, b, (struct tree_node){m, 0}))
      return true;
  return false;
}

static void parts_set(struct reducer *reducer, uint32_t b, struct tree_node node, enum part_state state) {
  uint32_t end = tree_node_end(node, reducer->options.microbatches);
  memset(reducer->blocks[b].parts + node.first, (int)state, end - node.first);
}

/* Takes the part out of the books. The wait is asked for once: with the last part owed. */
static struct reducer_send reducer_send_part(struct reducer *reducer, uint32_t b, struct tree_node node,
                                             struct buffer *buffer) {
  struct reducer_send send = {.block = b, .node = node, .buffer = buffer};
  parts_set(reducer, b, node, PART_SENT);
  send.wait = !reducer->blocks[b].is_awaited && !is_anything_owed(reducer, b);
  reducer->blocks[b].is_awaited |= send.wait;
  return send;
}

/* The sibling to which the canonical node's part is added. */
static bool find_sibling(const struct reducer *reducer, uint32_t b, struct tree_node node,
                         struct tree_node *sibling) {
  return b < reducer->options.summed_blocks && node.level < reducer->options.sum_level &&
         tree_sibling(node, reducer->options.microbatches, sibling);
}

/* True if it makes sense to keep the part for its sibling. */
static bool has_coming_sibling(const struct reducer *reducer, uint32_t b, struct tree_node node) {
  struct tree_node sibling;
  return find_sibling(reducer, b, node, &sibling) && is_coming(reducer, b, sibling);
}

/* Sending one part may leave another waiting in vain: until nothing changes. */
static void reducer_settle(struct reducer *reducer, uint32_t b) {
  struct reducer_block *block = &reducer->blocks[b];
  struct reducer_send send;
  for (int i = 0; i < block->n_held;) {
    struct held_part part = block->held[i];
    if (has_coming_sibling(reducer, b, part.node)) {
      i++;
      continue;
    }
    block->held[i] = block->held[--block->n_held];
    send = reducer_send_part(reducer, b, part.node, part.buffer);
    reducer->options.send(reducer->options.user, &send);
    i = 0;
  }
  if (block->is_awaited || is_anything_owed(reducer, b) || role_of(reducer, b) == BLOCK_ABSENT)
    return;
  block->is_awaited = true;
  send = (struct reducer_send){.block = b, .wait = true};
  reducer->options.send(reducer->options.user, &send);
}

struct buffer *reducer_take(struct reducer *reducer, uint32_t b, struct tree_node *node) {
  struct reducer_block *block = &reducer->blocks[b];
  struct tree_node sibling;
  parts_set(reducer, b, *node, PART_TAKEN);
  if (b >= reducer->options.summed_blocks)
    return NULL;
  *node = tree_canonical(*node, reducer->options.microbatches);
  if (!find_sibling(reducer, b, *node, &sibling))
    return NULL;
  for (int i = 0; i < block->n_held; i++) {
    struct buffer *buffer = block->held[i].buffer;
    if (!tree_is_same(block->held[i].node, sibling))
      continue;
    block->held[i] = block->held[--block->n_held];
    *node = tree_parent(*node);
    return buffer;
  }
  return NULL;
}

void reducer_lose(struct reducer *reducer, uint32_t b, struct tree_node node) {
  parts_set(reducer, b, node, PART_SENT);
  reducer_settle(reducer, b);
}

bool reducer_place(struct reducer *reducer, uint32_t b, struct tree_node node, struct buffer *buffer,
                   struct reducer_send *send) {
  struct reducer_block *block = &reducer->blocks[b];
  if (!has_coming_sibling(reducer, b, node)) {
    *send = reducer_send_part(reducer, b, node, buffer);
    return true;
  }
  array_reserve((void **)&block->held, &block->held_capacity, block->n_held, sizeof *block->held);
  block->held[block->n_held++] = (struct held_part){node, buffer};
  return false;
}
