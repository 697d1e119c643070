/* Rows are found by name, numbered and listed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/def_table.h"

struct shape_def {
  int corners;
  const char *name; /* not the first member */
};

static const struct shape_def square = {4, "square"}, triangle = {3, "triangle"}, circle = {0, "circle"};
static const struct shape_def *const rows[] = {&square, &triangle, &circle};
static const struct def_table shapes = DEF_TABLE(rows);

static void a_row_is_found_by_its_whole_name(void **state) {
  (void)state;
  assert_ptr_equal(def_find(&shapes, "square"), &square);
  assert_ptr_equal(def_find(&shapes, "circle"), &circle);
  assert_null(def_find(&shapes, "circ"));
  assert_null(def_find(&shapes, "circles"));
  assert_null(def_find(&shapes, ""));
}

static void past_the_last_row_there_is_none(void **state) {
  struct def_table first_two = shapes;
  (void)state;
  first_two.n = 2;
  assert_ptr_equal(def_at(&first_two, 0), &square);
  assert_ptr_equal(def_at(&first_two, 1), &triangle);
  assert_null(def_at(&first_two, 2));
  assert_null(def_at(&first_two, -1));
}

static void names_are_listed_in_the_order_of_rows(void **state) {
  char names[DEF_NAMES_SIZE];
  (void)state;
  assert_string_equal(def_names(&shapes, ", ", names), "square, triangle, circle");
  assert_string_equal(def_names(&shapes, " ", names), "square triangle circle");
}

static void a_list_that_is_too_long_is_cut(void **state) {
  char long_name[2 * DEF_NAMES_SIZE], names[DEF_NAMES_SIZE];
  struct shape_def row = {.name = long_name};
  const struct shape_def *long_rows[] = {&square, &row, &circle};
  struct def_table table = DEF_TABLE(long_rows);
  (void)state;
  memset(long_name, 'x', sizeof long_name);
  long_name[sizeof long_name - 1] = 0;
  assert_int_equal(strlen(def_names(&table, ", ", names)), DEF_NAMES_SIZE - 1);
}

static void a_mistyped_name_has_a_nearest_row(void **state) {
  (void)state;
  assert_string_equal(def_nearest(&shapes, "triangel"), "triangle");
  assert_null(def_nearest(&shapes, "dodecahedron"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_is_found_by_its_whole_name),
      cmocka_unit_test(past_the_last_row_there_is_none),
      cmocka_unit_test(names_are_listed_in_the_order_of_rows),
      cmocka_unit_test(a_list_that_is_too_long_is_cut),
      cmocka_unit_test(a_mistyped_name_has_a_nearest_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
