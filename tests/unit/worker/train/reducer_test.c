/* The worker's reducer: whatever the ranges and the order, parts make up the same sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "worker/train/block/reducer.h"

enum { V_MAX = 12, BLOCK_SUMMED = 0, BLOCK_ROWS = 1 };

/* Stands for the server: remembers the part sent under each name. */
struct sent {
  uint32_t microbatches;
  const uint32_t *sum_level; /* NULL: sums go up to the root */
  float value[V_MAX][8];
  bool is_there[V_MAX][8];
  int parts, rows, waits, pulls;
  int by_microbatch[V_MAX];
};

/* Numbers whose sum depends on the order. */
static float gradient(uint32_t microbatch) {
  return (float)(random_bits(7, microbatch) % 1000000) * 1e-3f + 1e-7f * (float)microbatch;
}

static float tree_sum(uint32_t microbatches, struct tree_node node) {
  struct tree_node right = {node.first + (node.level ? 1u << (node.level - 1) : 0), node.level - 1};
  struct tree_node left = {node.first, node.level - 1};
  if (node.level == 0)
    return gradient(node.first);
  if (right.first >= microbatches)
    return tree_sum(microbatches, left);
  return tree_sum(microbatches, left) + tree_sum(microbatches, right);
}

/* What the server does: a part covers what lies below it. */
static float server_sum(const struct sent *sent, struct tree_node node) {
  struct tree_node right = {node.first + (node.level ? 1u << (node.level - 1) : 0), node.level - 1};
  struct tree_node left = {node.first, node.level - 1};
  struct tree_node name = tree_canonical(node, sent->microbatches);
  if (sent->is_there[name.first][name.level])
    return sent->value[name.first][name.level];
  assert_true(node.level > 0);
  if (right.first >= sent->microbatches)
    return server_sum(sent, left);
  return server_sum(sent, left) + server_sum(sent, right);
}

static void on_send(void *user, const struct reducer_send *send) {
  struct sent *sent = user;
  uint32_t end;
  if (!send->buffer) {
    sent->pulls++;
    return;
  }
  sent->waits += send->wait;
  if (send->block == BLOCK_ROWS) {
    sent->rows++;
    assert_int_equal(send->node.level, 0);
    buffer_put(send->buffer);
    return;
  }
  sent->parts++;
  assert_true(tree_node_is_valid(send->node, sent->microbatches));
  assert_true(tree_is_same(send->node, tree_canonical(send->node, sent->microbatches)));
  end = tree_node_end(send->node, sent->microbatches);
  for (uint32_t m = send->node.first; m < end; m++)
    sent->by_microbatch[m]++;
  sent->value[send->node.first][send->node.level] = *(float *)send->buffer->data;
  sent->is_there[send->node.first][send->node.level] = true;
  buffer_put(send->buffer);
}

static void on_drop(void *user, uint32_t block, struct buffer *buffer) {
  (void)user;
  (void)block;
  buffer_put(buffer);
}

static struct reducer *worker_new(struct sent *sent) {
  return reducer_new(&(struct reducer_options){.microbatches = sent->microbatches,
                                               .blocks = 2,
                                               .summed_blocks = 1,
                                               .sum_level = sent->sum_level ? *sent->sum_level : UINT32_MAX,
                                               .send = on_send,
                                               .drop = on_drop,
                                               .user = sent});
}

static void deliver(struct reducer *reducer, struct sent *sent, uint32_t block, uint32_t microbatch) {
  struct tree_node node = {microbatch, 0};
  struct buffer *buffer = buffer_new(sizeof(float)), *sibling;
  struct reducer_send send;
  *(float *)buffer->data = gradient(microbatch);
  while ((sibling = reducer_take(reducer, block, &node))) {
    *(float *)buffer->data = *(float *)sibling->data + *(float *)buffer->data;
    buffer_put(sibling);
  }
  if (reducer_place(reducer, block, node, buffer, &send))
    on_send(sent, &send);
}

static void range_set(bool *mine, uint32_t begin, uint32_t end) {
  for (uint32_t m = 0; m < V_MAX; m++)
    mine[m] = m >= begin && m < end;
}

/* The number of canonical nodes that [begin, end) splits into at least. */
static int least_parts(uint32_t begin, uint32_t end, uint32_t microbatches) {
  int parts = 0;
  while (begin < end) {
    struct tree_node node = {begin, 0}, up;
    for (;;) {
      up = tree_canonical(node, microbatches);
      if (!tree_is_same(up, node)) {
        node = up;
        continue;
      }
      if (tree_is_same(node, tree_root(microbatches)))
        break;
      up = tree_parent(node);
      if (up.first != begin || tree_node_end(up, microbatches) > end)
        break;
      node = up;
    }
    begin = tree_node_end(node, microbatches);
    parts++;
  }
  return parts;
}

static void shuffle(uint32_t *order, uint32_t n, uint64_t key) {
  for (uint32_t i = n; i > 1; i--) {
    uint32_t j = (uint32_t)(random_bits(key, i) % i), swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
}

static void any_split_and_order_gives_the_bits_of_the_whole_tree(void **state) {
  (void)state;
  for (uint32_t v = 1; v <= V_MAX; v++)
    for (uint32_t cut = 0; cut <= v; cut++)
      for (uint64_t trial = 0; trial < 20; trial++) {
        struct sent sent = {.microbatches = v};
        struct reducer *workers[2] = {worker_new(&sent), worker_new(&sent)};
        uint32_t order[V_MAX];
        bool mine[V_MAX];
        range_set(mine, 0, cut);
        reducer_begin(workers[0], mine, true);
        range_set(mine, cut, v);
        reducer_begin(workers[1], mine, true);
        for (uint32_t m = 0; m < v; m++)
          order[m] = m;
        shuffle(order, v, random_key(v, cut, trial, 0));
        for (uint32_t i = 0; i < v; i++) {
          deliver(workers[order[i] >= cut], &sent, BLOCK_SUMMED, order[i]);
          deliver(workers[order[i] >= cut], &sent, BLOCK_ROWS, order[i]);
        }
        for (uint32_t m = 0; m < v; m++)
          assert_int_equal(sent.by_microbatch[m], 1);
        assert_int_equal(sent.parts, least_parts(0, cut, v) + least_parts(cut, v, v));
        assert_int_equal(sent.rows, v);
        assert_int_equal(sent.waits, 2 * (2 - (cut == 0) - (cut == v)));
        assert_int_equal(sent.pulls, 2 * ((cut == 0) + (cut == v)));
        assert_true(server_sum(&sent, tree_root(v)) == tree_sum(v, tree_root(v)));
        reducer_free(workers[0]);
        reducer_free(workers[1]);
      }
}

/* The sums of ranges that the level cuts apart. */
static int least_parts_below(uint32_t begin, uint32_t end, uint32_t microbatches, uint32_t level) {
  int parts = 0;
  while (begin < end) {
    uint32_t next = ((begin >> level) + 1) << level;
    next = next < end ? next : end;
    parts += least_parts(begin, next, microbatches);
    begin = next;
  }
  return parts;
}

static void no_sum_goes_beyond_the_level_that_is_told(void **state) {
  (void)state;
  for (uint32_t v = 1; v <= V_MAX; v++)
    for (uint32_t level = 0; level <= tree_root(v).level; level++)
      for (uint32_t cut = 0; cut <= v; cut++)
        for (uint64_t trial = 0; trial < 5; trial++) {
          struct sent sent = {.microbatches = v, .sum_level = &level};
          struct reducer *reducer = worker_new(&sent);
          uint32_t order[V_MAX];
          bool mine[V_MAX];
          range_set(mine, cut, v);
          reducer_begin(reducer, mine, true);
          for (uint32_t m = 0; m < v; m++)
            order[m] = m;
          shuffle(order, v, random_key(v, cut, trial, level));
          for (uint32_t i = 0; i < v; i++)
            if (order[i] >= cut)
              deliver(reducer, &sent, BLOCK_SUMMED, order[i]);
          assert_int_equal(sent.parts, least_parts_below(cut, v, v, level));
          assert_int_equal(sent.waits, cut < v);
          for (uint32_t m = cut; m < v; m++)
            assert_int_equal(sent.by_microbatch[m], 1);
          reducer_free(reducer);
        }
}

static void a_changed_range_sends_what_waits_in_vain_and_covers_everything(void **state) {
  (void)state;
  for (uint32_t v = 2; v <= V_MAX; v++)
    for (uint64_t trial = 0; trial < 300; trial++) {
      struct sent sent = {.microbatches = v};
      struct reducer *reducer = worker_new(&sent);
      uint32_t order[V_MAX], cut = (uint32_t)(random_bits(trial, 1) % v);
      uint32_t before = (uint32_t)(random_bits(trial, 2) % (v + 1)), done = 0;
      bool mine[V_MAX];
      range_set(mine, 0, v);
      reducer_begin(reducer, mine, true);
      for (uint32_t m = 0; m < v; m++)
        order[m] = m;
      shuffle(order, v, random_key(v, trial, 0, 1));
      for (; done < before; done++)
        deliver(reducer, &sent, BLOCK_SUMMED, order[done]);
      range_set(mine, cut, v); /* another worker came and went */
      reducer_assign(reducer, mine);
      for (; done < v && done < before + 1; done++)
        if (order[done] >= cut)
          deliver(reducer, &sent, BLOCK_SUMMED, order[done]);
        else
          break;
      range_set(mine, 0, v);
      reducer_assign(reducer, mine);
      for (; done < v; done++)
        deliver(reducer, &sent, BLOCK_SUMMED, order[done]);
      for (uint32_t m = 0; m < v; m++)
        assert_int_equal(sent.by_microbatch[m], 1);
      assert_int_equal(sent.waits + sent.pulls, 1);
      assert_true(server_sum(&sent, tree_root(v)) == tree_sum(v, tree_root(v)));
      reducer_free(reducer);
    }
}

static void a_part_in_vain_is_sent_at_once(void **state) {
  struct sent sent = {.microbatches = 4};
  struct reducer *reducer = worker_new(&sent);
  bool mine[V_MAX];
  (void)state;
  range_set(mine, 0, 4);
  reducer_begin(reducer, mine, true);
  deliver(reducer, &sent, BLOCK_SUMMED, 0);
  deliver(reducer, &sent, BLOCK_SUMMED, 1);
  deliver(reducer, &sent, BLOCK_SUMMED, 2);
  assert_int_equal(sent.parts, 0);
  range_set(mine, 0, 3); /* 3 is now another's: 2 waits for nobody, and so does 0..1 */
  reducer_assign(reducer, mine);
  assert_int_equal(sent.parts, 2);
  assert_int_equal(sent.waits, 1);
  reducer_free(reducer);
}

static void nothing_owed_and_nothing_awaited_asks_for_a_pull(void **state) {
  struct sent sent = {.microbatches = 4};
  struct reducer *reducer = worker_new(&sent);
  bool mine[V_MAX];
  (void)state;
  range_set(mine, 0, 2);
  reducer_begin(reducer, mine, true);
  deliver(reducer, &sent, BLOCK_ROWS, 0);
  assert_int_equal(sent.waits, 0);
  range_set(mine, 2, 2);
  reducer_assign(reducer, mine);
  assert_int_equal(sent.pulls, 2);
  reducer_assign(reducer, mine);
  assert_int_equal(sent.pulls, 2);
  range_set(mine, 2, 3); /* newly mine: owed, but the reply is awaited already */
  reducer_assign(reducer, mine);
  deliver(reducer, &sent, BLOCK_SUMMED, 2);
  assert_int_equal(sent.parts, 1);
  assert_int_equal(sent.waits, 0);
  reducer_free(reducer);
}

/* As deliver; the first sum that has this many microbatches or more is lost, and those that it had are
 * marked. */
static void deliver_and_lose(struct reducer *reducer, struct sent *sent, uint32_t microbatch, uint32_t least,
                             bool *are_lost) {
  struct tree_node node = {microbatch, 0};
  struct buffer *buffer = buffer_new(sizeof(float)), *sibling;
  struct reducer_send send;
  *(float *)buffer->data = gradient(microbatch);
  while ((sibling = reducer_take(reducer, BLOCK_SUMMED, &node))) {
    uint32_t end = tree_node_end(node, sent->microbatches);
    *(float *)buffer->data += *(float *)sibling->data;
    buffer_put(sibling);
    if (end - node.first < least || are_lost[V_MAX])
      continue;
    for (uint32_t m = node.first; m < end; m++)
      are_lost[m] = true;
    are_lost[V_MAX] = true;
    buffer_put(buffer);
    reducer_lose(reducer, BLOCK_SUMMED, node);
    return;
  }
  if (reducer_place(reducer, BLOCK_SUMMED, node, buffer, &send))
    on_send(sent, &send);
}

static void what_waits_for_a_sum_that_is_lost_is_sent_and_the_next_version_comes(void **state) {
  (void)state;
  for (uint32_t v = 2; v <= V_MAX; v++)
    for (uint64_t trial = 0; trial < 100; trial++) {
      struct sent sent = {.microbatches = v};
      struct reducer *reducer = worker_new(&sent);
      uint32_t order[V_MAX], least = 2 + (uint32_t)(random_bits(trial, 3) % (v - 1));
      bool mine[V_MAX], are_lost[V_MAX + 1] = {false}; /* the last: one was */
      range_set(mine, 0, v);
      reducer_begin(reducer, mine, true);
      for (uint32_t m = 0; m < v; m++)
        order[m] = m;
      shuffle(order, v, random_key(v, trial, 0, 2));
      for (uint32_t m = 0; m < v; m++)
        deliver_and_lose(reducer, &sent, order[m], least, are_lost);
      assert_true(are_lost[V_MAX]);
      for (uint32_t m = 0; m < v; m++)
        assert_int_equal(sent.by_microbatch[m], !are_lost[m]);
      assert_int_equal(sent.waits + sent.pulls, 1);
      reducer_free(reducer);
    }
}

static void a_new_step_drops_what_was_held(void **state) {
  struct sent sent = {.microbatches = 2};
  struct reducer *reducer = worker_new(&sent);
  bool mine[V_MAX];
  (void)state;
  range_set(mine, 0, 2);
  reducer_begin(reducer, mine, true);
  deliver(reducer, &sent, BLOCK_SUMMED, 0);
  reducer_begin(reducer, mine, true);
  deliver(reducer, &sent, BLOCK_SUMMED, 1);
  assert_int_equal(sent.parts, 0);
  deliver(reducer, &sent, BLOCK_SUMMED, 0);
  assert_int_equal(sent.parts, 1);
  assert_int_equal(sent.waits, 1);
  reducer_free(reducer);
}

/* The rows are another worker's to push: their next version is pulled. A block of no concern is not. */
static void of_blocks_that_others_own_only_the_next_version_is_asked_for(void **state) {
  const uint8_t roles[] = {BLOCK_OWNED, BLOCK_HELD, BLOCK_ABSENT};
  struct sent sent = {.microbatches = 4};
  bool mine[V_MAX];
  struct reducer *reducer = reducer_new(&(struct reducer_options){.microbatches = 4,
                                                                  .blocks = 3,
                                                                  .summed_blocks = 1,
                                                                  .sum_level = UINT32_MAX,
                                                                  .roles = roles,
                                                                  .send = on_send,
                                                                  .drop = on_drop,
                                                                  .user = &sent});
  (void)state;
  range_set(mine, 0, 4);
  reducer_begin(reducer, mine, true);
  assert_int_equal(sent.pulls, 1);
  reducer_assign(reducer, mine);
  assert_int_equal(sent.pulls, 1); /* it is awaited */
  for (uint32_t m = 0; m < 4; m++)
    deliver(reducer, &sent, 0, m);
  assert_true(sent.parts == 1 && sent.waits == 1 && sent.pulls == 1);
  range_set(mine, 0, 0);
  reducer_begin(reducer, mine, true);
  assert_int_equal(sent.pulls, 3);
  reducer_free(reducer);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_split_and_order_gives_the_bits_of_the_whole_tree),
      cmocka_unit_test(no_sum_goes_beyond_the_level_that_is_told),
      cmocka_unit_test(a_changed_range_sends_what_waits_in_vain_and_covers_everything),
      cmocka_unit_test(a_part_in_vain_is_sent_at_once),
      cmocka_unit_test(nothing_owed_and_nothing_awaited_asks_for_a_pull),
      cmocka_unit_test(what_waits_for_a_sum_that_is_lost_is_sent_and_the_next_version_comes),
      cmocka_unit_test(a_new_step_drops_what_was_held),
      cmocka_unit_test(of_blocks_that_others_own_only_the_next_version_is_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
