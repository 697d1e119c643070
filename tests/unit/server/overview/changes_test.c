/* Rows that change: whoever applies the changes to what it had has what there is, over random histories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "overview.pb-c.h"
#include "server/coordinator/overview/changes.h"

enum { KEYS = 60, HISTORIES = 60, STATES = 200, PAGE = 5, GONE_KEPT = 1024 };

/* A table, here and as a client has it: 0: no such row. */
struct world {
  struct changes *changes;
  uint64_t counter, since;
  uint64_t rows[KEYS], seen[KEYS];
  int order[KEYS]; /* in which rows are put */
};

static void world_state(struct world *world) {
  changes_begin(world->changes);
  for (int i = 0; i < KEYS; i++) {
    Weir__RunRow row = WEIR__RUN_ROW__INIT;
    char key[16];
    if (!world->rows[world->order[i]])
      continue;
    snprintf(key, sizeof key, "run-%d", world->order[i]);
    row.run = key;
    row.step = world->rows[world->order[i]];
    changes_put(world->changes, key, &row.base);
  }
  changes_end(world->changes);
}

static int compare(const void *a, const void *b) {
  const struct change *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

/* The client takes at most `max` of the changes. Returns how many there were. */
static int client_takes(struct world *world, int max) {
  struct change *list = mem_new((size_t)changes_max(world->changes) * sizeof *list);
  int n = changes_list(world->changes, world->since, list);
  qsort(list, (size_t)n, sizeof *list, compare);
  for (int i = 0; i < n && i < max; i++) {
    int key = atoi(list[i].key + 4);
    assert_true(list[i].number > world->since);
    world->since = list[i].number;
    world->seen[key] = list[i].message ? ((const Weir__RunRow *)list[i].message)->step : 0;
  }
  free(list);
  return n;
}

static void world_init(struct world *world) {
  *world = (struct world){.counter = 7};
  world->changes = changes_new(&world->counter);
  for (int i = 0; i < KEYS; i++)
    world->order[i] = i;
}

static void changes_applied_to_an_old_state_give_the_new_one(void **state) {
  (void)state;
  srand(1);
  for (int history = 0; history < HISTORIES; history++) {
    struct world world;
    world_init(&world);
    for (int i = 0; i < STATES; i++) {
      for (int changed = rand() % 4; changed > 0; changed--) {
        int key = rand() % KEYS, other = rand() % KEYS, moved = world.order[key];
        world.rows[rand() % KEYS] = (uint64_t)(rand() % 3 ? rand() % 5 + 1 : 0);
        if (rand() % 8 == 0) { /* also where the order changes, which it seldom does */
          world.order[key] = world.order[other];
          world.order[other] = moved;
        }
      }
      world_state(&world);
      if (rand() % 3)
        continue;
      while (client_takes(&world, PAGE) > PAGE)
        continue;
      assert_memory_equal(world.seen, world.rows, sizeof world.rows);
    }
    changes_free(world.changes);
  }
}

static void a_state_that_is_as_before_has_no_changes(void **state) {
  struct world world;
  (void)state;
  world_init(&world);
  for (int i = 0; i < KEYS; i++)
    world.rows[i] = 1;
  world_state(&world);
  assert_int_equal(client_takes(&world, KEYS), KEYS);
  world_state(&world);
  assert_int_equal(client_takes(&world, KEYS), 0);
  world.rows[3] = 2;
  world_state(&world);
  assert_int_equal(client_takes(&world, KEYS), 1);
  changes_free(world.changes);
}

/* Who takes a page from each of them gets every row again and again. */
static void a_row_is_not_passed_over_where_all_change_all_the_time(void **state) {
  struct world world;
  uint64_t newest[KEYS] = {0};
  (void)state;
  world_init(&world);
  for (uint64_t at = 1; at <= STATES; at++) {
    for (int i = 0; i < KEYS; i++)
      world.rows[i] = at;
    world_state(&world);
    client_takes(&world, PAGE);
    for (int i = 0; i < KEYS; i++)
      newest[i] = world.seen[i];
  }
  for (int i = 0; i < KEYS; i++)
    assert_in_range(newest[i], STATES - 4 * KEYS / PAGE, STATES);
  changes_free(world.changes);
}

static void what_is_gone_for_long_is_forgotten_and_that_is_known(void **state) {
  struct world world;
  uint64_t before;
  (void)state;
  world_init(&world);
  assert_false(changes_reach(world.changes, world.counter - 1)); /* before there was this table */
  world.rows[0] = world.rows[1] = 1;
  world_state(&world);
  before = world.counter;
  for (int i = 0; i <= GONE_KEPT; i++) {
    assert_true(changes_reach(world.changes, before));
    world.rows[1] = 0;
    world_state(&world);
    world.rows[1] = 1;
    world_state(&world);
  }
  assert_false(changes_reach(world.changes, before));
  assert_true(changes_reach(world.changes, world.counter));
  assert_int_equal(client_takes(&world, KEYS), 2); /* from nothing on: what is gone is not named */
  changes_free(world.changes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changes_applied_to_an_old_state_give_the_new_one),
      cmocka_unit_test(a_state_that_is_as_before_has_no_changes),
      cmocka_unit_test(a_row_is_not_passed_over_where_all_change_all_the_time),
      cmocka_unit_test(what_is_gone_for_long_is_forgotten_and_that_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
