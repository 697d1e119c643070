/* The fixed binary tree over a step's microbatches, in whose order gradients are summed.
   f32 addition is not associative: whoever sums, sums along this tree, so that no cluster changes a bit.
   Node (first, level) covers the microbatches [first, first + 2^level) cut at V; first is a multiple of
   2^level. An absent child adds nothing. */
#ifndef WEIR_COMMON_AGREE_TREE_H
#define WEIR_COMMON_AGREE_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum { MICROBATCHES_MAX = 4096 };

struct tree_node {
  uint32_t first;
  uint32_t level;
};

/* True if the node exists in a tree of V microbatches. Safe on any input. */
bool tree_node_is_valid(struct tree_node node, uint32_t microbatches);

uint32_t tree_node_end(struct tree_node node, uint32_t microbatches); /* one past its last microbatch */
struct tree_node tree_root(uint32_t microbatches);
struct tree_node tree_parent(struct tree_node node);

/* The other child of the parent; false if it is absent (starts at or after V), as for the root. */
bool tree_sibling(struct tree_node node, uint32_t microbatches, struct tree_node *sibling);
bool tree_is_same(struct tree_node a, struct tree_node b);

/* A node whose right sibling is absent is bit for bit its parent: the highest such ancestor, below or at the
   root. Parts are named by it, so that one sum has one name. */
struct tree_node tree_canonical(struct tree_node node, uint32_t microbatches);

/* The fewest nodes that together are the microbatches [begin, end), end <= V, in their order, canonical: what
   a whole range sums to. Returns how many: at most TREE_COVER_MAX. */
enum { TREE_COVER_MAX = 24 };
int tree_cover(uint32_t begin, uint32_t end, uint32_t microbatches, struct tree_node nodes[TREE_COVER_MAX]);

bool tree_covers(struct tree_node outer, struct tree_node inner); /* equal counts */

#endif
