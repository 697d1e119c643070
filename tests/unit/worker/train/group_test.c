/* A group, the workers' side: who is in it, which parts each has, what they sum to, who owns which blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/memory.h"
#include "worker/train/run/group.h"

enum { WORKERS_MAX = 70, MICROBATCHES = 23 };

struct fixture {
  Weir__View view;
  Weir__Assignment assignments[WORKERS_MAX], *list[WORKERS_MAX];
  char names[WORKERS_MAX][16];
};

static int setup(void **state) {
  struct fixture *f = mem_new(sizeof *f);
  weir__view__init(&f->view);
  f->view.number = (UINT64_C(3) << 32) + 9;
  f->view.incarnation = 2;
  f->view.workers = f->list;
  *state = f;
  return 0;
}

static int teardown(void **state) {
  free(*state);
  return 0;
}

/* The next worker of the view, worker-1 and so on. */
static void add(struct fixture *f, uint32_t begin, uint32_t end, uint32_t group) {
  size_t i = f->view.n_workers++;
  weir__assignment__init(&f->assignments[i]);
  snprintf(f->names[i], sizeof f->names[i], "worker-%zu", i + 1);
  f->assignments[i].worker = f->names[i];
  f->assignments[i].microbatch_begin = begin;
  f->assignments[i].microbatch_end = end;
  f->assignments[i].group = group;
  f->list[i] = &f->assignments[i];
}

static void a_view_tells_a_worker_its_group_and_its_place(void **state) {
  struct fixture *f = *state;
  struct group group, other;
  add(f, 0, 2, 0);
  add(f, 2, 4, 7);
  add(f, 4, 4, 0);
  add(f, 4, 5, 7);
  add(f, 5, 9, 8);
  add(f, 9, 10, 8);
  assert_true(group_read(&f->view, "worker-4", &group));
  assert_int_equal(group.number, 7);
  assert_int_equal(group.rank, 1);
  assert_int_equal(group.size, 2);
  assert_int_equal(group.ranges[0].begin, 2);
  assert_int_equal(group.ranges[1].end, 5);
  assert_true(group_read(&f->view, "worker-1", &other));
  assert_int_equal(other.number, 0);
  assert_true(group_read(&f->view, "worker-99", &other));
  assert_int_equal(other.number, 0);
  assert_false(group_is_same(&group, &other));
  assert_true(group_read(&f->view, "worker-2", &other));
  assert_false(group_is_same(&group, &other)); /* the same, but another place in it */
}

static void a_group_stays_itself_in_a_later_view_that_does_not_concern_it(void **state) {
  struct fixture *f = *state;
  struct group before, after;
  char name[COLLECTIVE_NAME_MAX + 1], later[COLLECTIVE_NAME_MAX + 1];
  add(f, 0, 2, 7);
  add(f, 2, 4, 7);
  group_read(&f->view, "worker-1", &before);
  f->view.number++;
  add(f, 4, 5, 0);
  group_read(&f->view, "worker-1", &after);
  assert_true(group_is_same(&before, &after));
  group_name(&before, "demo-1a2b3c", "up", name);
  group_name(&after, "demo-1a2b3c", "up", later);
  assert_string_equal(name, later);
  f->view.incarnation++;
  group_read(&f->view, "worker-1", &after);
  assert_false(group_is_same(&before, &after));
  group_name(&after, "demo-1a2b3c", "up", later);
  assert_string_not_equal(name, later);
}

/* A run's id ends with what tells it from others of its name, which has at most 40 characters. */
static void a_name_is_of_one_run_and_short_enough_whatever_the_numbers(void **state) {
  struct group group = {.term = UINT32_MAX, .incarnation = UINT64_MAX, .number = UINT32_MAX, .size = 2};
  struct collective_options options = {.size = 2};
  char name[COLLECTIVE_NAME_MAX + 1], other[COLLECTIVE_NAME_MAX + 1], down[COLLECTIVE_NAME_MAX + 1];
  struct err err;
  (void)state;
  group_name(&group, "a-name-of-forty-characters-is-not-longer-1a2b3c", "up", name);
  group_name(&group, "a-name-of-forty-characters-is-not-longer-1a2b3d", "up", other);
  group_name(&group, "a-name-of-forty-characters-is-not-longer-1a2b3c", "down", down);
  assert_string_not_equal(name, other);
  assert_string_not_equal(name, down);
  assert_string_equal(down + strlen(down) - strlen(".down"), ".down"); /* nothing was cut off */
  options.name = down;
  assert_int_equal(collective_check_options(&options, &err), 0);
}

static void a_group_that_cannot_be_is_refused(void **state) {
  struct fixture *f = *state;
  struct group group;
  add(f, 0, 2, 1);
  add(f, 3, 4, 1); /* a gap */
  add(f, 4, 4, 2); /* nothing to do */
  add(f, 4, 5, 2);
  add(f, 5, MICROBATCHES_MAX + 1, 3);
  assert_false(group_read(&f->view, "worker-1", &group));
  assert_int_equal(group.number, 0);
  assert_false(group_read(&f->view, "worker-4", &group));
  assert_false(group_read(&f->view, "worker-5", &group));
  f->view.n_workers = 0;
  for (uint32_t i = 0; i < COLLECTIVE_SIZE_MAX + 1; i++)
    add(f, i, i + 1, 1);
  assert_false(group_read(&f->view, "worker-1", &group));
}

/* What is added, as the microbatches that it covers. */
struct sums {
  uint64_t covered[MICROBATCHES];
  int n_added;
};

static void on_add(void *user, int to, int from) {
  struct sums *sums = user;
  assert_int_equal(sums->covered[to] & sums->covered[from], 0);
  sums->covered[to] |= sums->covered[from];
  sums->covered[from] = 0;
  sums->n_added++;
}

static uint64_t bits_of(struct tree_node node, uint32_t microbatches) {
  uint64_t bits = 0;
  for (uint32_t m = node.first; m < tree_node_end(node, microbatches); m++)
    bits |= UINT64_C(1) << m;
  return bits;
}

/* Members that together have [begin, end), cut anywhere, are left with what one worker would have sent. */
static void merged_parts_are_those_of_one_worker_with_the_whole_range(void **state) {
  (void)state;
  for (uint64_t draw = 0; draw < 3000; draw++) {
    uint64_t key = random_key(5, draw, 0, 0);
    uint32_t microbatches = 1 + (uint32_t)(random_bits(key, 0) % MICROBATCHES);
    uint32_t begin = (uint32_t)(random_bits(key, 1) % microbatches), at = begin;
    uint32_t end = begin + 1 + (uint32_t)(random_bits(key, 2) % (microbatches - begin));
    struct tree_node nodes[TREE_COVER_MAX];
    struct group_part parts[MICROBATCHES];
    struct sums sums = {0};
    int n = 0, n_nodes;
    for (uint64_t member = 0; at < end; member++) {
      uint32_t cut = at + 1 + (uint32_t)(random_bits(key, 3 + member) % (end - at));
      n_nodes = tree_cover(at, cut, microbatches, nodes);
      for (int i = 0; i < n_nodes; i++, n++) {
        assert_true(tree_is_same(nodes[i], tree_canonical(nodes[i], microbatches)));
        sums.covered[n] = bits_of(nodes[i], microbatches);
        parts[n] = (struct group_part){nodes[i], n};
      }
      at = cut;
    }
    n = group_merge(parts, n, microbatches, on_add, &sums);
    n_nodes = tree_cover(begin, end, microbatches, nodes);
    assert_int_equal(n, n_nodes);
    for (int i = 0; i < n; i++) {
      assert_true(tree_is_same(parts[i].node, nodes[i]));
      assert_int_equal(sums.covered[parts[i].index], bits_of(nodes[i], microbatches));
    }
  }
}

/* A model of parameters a, b, c, ... of so many elements each, whose gradients backward makes in the order of
   `producers`. */
struct plan_fixture {
  struct graph train;
  struct node nodes[8], *list[8];
  int outputs[8];
  struct param params[8];
  struct block blocks[8];
  struct block_range ranges[8];
  struct model model;
  struct block_map map;
};

static void plan_fixture_init(struct plan_fixture *f, const uint32_t *elems, const int *producers, int n) {
  *f = (struct plan_fixture){0};
  for (int i = 0; i < n; i++) {
    f->outputs[i] = i;
    f->nodes[producers[i]] = (struct node){.n_outputs = 1, .outputs = &f->outputs[i]};
    f->list[i] = &f->nodes[i];
    f->params[i] = (struct param){.grad = i, .elems = elems[i]};
    f->blocks[i] = (struct block){.elems = elems[i]};
    f->ranges[i] = (struct block_range){(uint32_t)i, (uint32_t)i + 1};
  }
  f->train = (struct graph){.nodes = f->list, .n_nodes = n, .n_values = n};
  f->model = (struct model){.train = &f->train,
                            .params = f->params,
                            .n_params = n,
                            .blocks = f->blocks,
                            .n_param_blocks = (uint32_t)n,
                            .n_summed_blocks = (uint32_t)n,
                            .n_blocks = (uint32_t)n};
  f->map.params = f->ranges;
}

static void buckets_follow_backward_and_are_bounded_and_shared_out_by_bytes(void **state) {
  const uint32_t full = BLOCK_ELEMS_MAX, elems[] = {full, full, full, full, full, 10, full, full};
  const int producers[] = {7, 6, 5, 4, 3, 2, 1, 0}; /* the last layer's gradient comes first */
  struct plan_fixture f;
  struct bucket_plan plan;
  uint64_t bytes[2] = {0};
  (void)state;
  plan_fixture_init(&f, elems, producers, 8);
  bucket_plan_init(&plan, &f.model, &f.map, 2, BUCKET_BYTES);
  for (uint32_t i = 0; i < 8; i++)
    assert_int_equal(plan.order[i], 7 - i);
  assert_int_equal(plan.n_buckets, 2);
  for (uint32_t b = 0; b < plan.n_buckets; b++) {
    uint64_t bucket_bytes = 0;
    assert_int_equal(plan.buckets[b].begin, b == 0 ? 0 : plan.buckets[b - 1].end);
    for (uint32_t i = plan.buckets[b].begin; i < plan.buckets[b].end; i++) {
      assert_int_equal(plan.place[plan.order[i]], b);
      bucket_bytes += elems[plan.order[i]] * sizeof(float);
    }
    assert_true(bucket_bytes <= BUCKET_BYTES);
    bytes[plan.buckets[b].owner] += bucket_bytes;
  }
  assert_int_equal(plan.buckets[plan.n_buckets - 1].end, 8);
  assert_true(bytes[0] >= BUCKET_BYTES / 2 && bytes[1] >= BUCKET_BYTES / 2);
  bucket_plan_fini(&plan);
  bucket_plan_init(&plan, &f.model, &f.map, 2, BUCKET_DEVICE_BYTES); /* room for all */
  assert_int_equal(plan.n_buckets, 1);
  bucket_plan_fini(&plan);
}

static void a_block_that_parameters_share_is_complete_with_the_last_of_them(void **state) {
  const uint32_t elems[] = {10, 10, 10};
  const int producers[] = {2, 0, 1};
  struct plan_fixture f;
  struct bucket_plan plan;
  (void)state;
  plan_fixture_init(&f, elems, producers, 3);
  f.ranges[0] = f.ranges[1] = (struct block_range){0, 1};
  f.ranges[2] = (struct block_range){1, 2};
  f.model.n_param_blocks = f.model.n_summed_blocks = 2;
  bucket_plan_init(&plan, &f.model, &f.map, 1, BUCKET_BYTES);
  assert_int_equal(plan.order[0], 1);
  assert_int_equal(plan.order[1], 0);
  bucket_plan_fini(&plan);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_view_tells_a_worker_its_group_and_its_place),
      TEST(a_group_stays_itself_in_a_later_view_that_does_not_concern_it),
      TEST(a_name_is_of_one_run_and_short_enough_whatever_the_numbers),
      TEST(a_group_that_cannot_be_is_refused),
      cmocka_unit_test(merged_parts_are_those_of_one_worker_with_the_whole_range),
      cmocka_unit_test(buckets_follow_backward_and_are_bounded_and_shared_out_by_bytes),
      cmocka_unit_test(a_block_that_parameters_share_is_complete_with_the_last_of_them),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
