/* The worker's lists of tasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "worker/train/block/tasks.h"

enum { TASKS = 6 };

static void tasks_are_begun_in_order_and_once(void **state) {
  struct task_list list;
  uint32_t index;
  (void)state;
  tasks_init(&list, TASKS);
  assert_false(tasks_begin(&list, &index));
  tasks_assign(&list, (struct task_range){2, 4});
  assert_true(tasks_begin(&list, &index));
  assert_int_equal(index, 2);
  assert_true(tasks_begin(&list, &index));
  assert_int_equal(index, 3);
  assert_false(tasks_begin(&list, &index));
  tasks_fini(&list);
}

static void a_new_range_owes_only_what_was_not_begun(void **state) {
  struct task_list list;
  bool mine[TASKS];
  uint32_t index;
  (void)state;
  tasks_init(&list, TASKS);
  tasks_assign(&list, (struct task_range){0, 3});
  assert_true(tasks_begin(&list, &index));
  tasks_end(&list, index, true);
  assert_true(tasks_begin(&list, &index));
  tasks_assign(&list, (struct task_range){0, 1}); /* 1 is under way, 2 is another's now */
  assert_int_equal(list.n_owed, 0);
  tasks_mine(&list, mine);
  assert_true(mine[0] && mine[1] && !mine[2]);
  tasks_assign(&list, (struct task_range){0, TASKS + 10}); /* beyond the end: ignored */
  assert_int_equal(list.n_owed, TASKS - 2);
  tasks_fini(&list);
}

static void a_dropped_task_is_begun_again_if_it_is_still_ours(void **state) {
  struct task_list list;
  uint32_t index;
  (void)state;
  tasks_init(&list, TASKS);
  tasks_assign(&list, (struct task_range){1, 2});
  assert_true(tasks_begin(&list, &index));
  tasks_end(&list, index, false);
  assert_false(tasks_begin(&list, &index));
  tasks_assign(&list, (struct task_range){1, 2});
  assert_true(tasks_begin(&list, &index));
  assert_int_equal(index, 1);
  tasks_fini(&list);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tasks_are_begun_in_order_and_once),
      cmocka_unit_test(a_new_range_owes_only_what_was_not_begun),
      cmocka_unit_test(a_dropped_task_is_begun_again_if_it_is_still_ours),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
