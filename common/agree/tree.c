/* The reduction tree. */
#include "common/agree/tree.h"

#include "common/base/err.h"

bool tree_node_is_valid(struct tree_node node, uint32_t microbatches) {
  return microbatches > 0 && microbatches <= MICROBATCHES_MAX && node.first < microbatches &&
         node.level <= tree_root(microbatches).level && node.first % (1u << node.level) == 0;
}

uint32_t tree_node_end(struct tree_node node, uint32_t microbatches) {
  uint32_t end = node.first + (1u << node.level);
  return end < microbatches ? end : microbatches;
}

struct tree_node tree_root(uint32_t microbatches) {
  struct tree_node root = {0, 0};
  CHECK(microbatches > 0 && microbatches <= MICROBATCHES_MAX);
  while ((1u << root.level) < microbatches)
    root.level++;
  return root;
}

struct tree_node tree_parent(struct tree_node node) {
  return (struct tree_node){node.first & ~(1u << node.level), node.level + 1};
}

bool tree_sibling(struct tree_node node, uint32_t microbatches, struct tree_node *sibling) {
  sibling->first = node.first ^ (1u << node.level);
  sibling->level = node.level;
  return node.level < tree_root(microbatches).level && sibling->first < microbatches;
}

bool tree_is_same(struct tree_node a, struct tree_node b) {
  return a.first == b.first && a.level == b.level;
}

struct tree_node tree_canonical(struct tree_node node, uint32_t microbatches) {
  struct tree_node sibling;
  while (node.level < tree_root(microbatches).level && !tree_sibling(node, microbatches, &sibling))
    node = tree_parent(node);
  return node;
}

bool tree_covers(struct tree_node outer, struct tree_node inner) {
  return outer.level >= inner.level && (inner.first >> outer.level) == (outer.first >> outer.level);
}

/* From the left: the highest node that begins here and does not go beyond the end. One whose right sibling
   is absent may, for it ends with the tree. */
int tree_cover(uint32_t begin, uint32_t end, uint32_t microbatches, struct tree_node nodes[TREE_COVER_MAX]) {
  int n = 0;
  while (begin < end) {
    struct tree_node node = {begin, 0};
    for (;;) {
      struct tree_node parent = tree_parent(node);
      if (node.level == tree_root(microbatches).level || parent.first != begin ||
          tree_node_end(parent, microbatches) > end)
        break;
      node = parent;
    }
    nodes[n++] = node;
    begin = tree_node_end(node, microbatches);
  }
  return n;
}
