/* The team that a view has a worker in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/train/run/mates.h"

enum { MEMBERS = 3, TERM = 5 };

/* Of three workers, whose stages follow each other, and which compute microbatches 2 and 3 together. */
struct fixture {
  Weir__View view;
  Weir__Assignment members[MEMBERS];
  Weir__Assignment *list[MEMBERS];
};

static const struct stage_part LOWEST = {0, 0, 4}, MIDDLE = {1, 2, 4}, HIGHEST = {3, 3, 4}, WHOLE = {0, 3, 4};

static int setup(void **state) {
  static struct fixture f;
  static char *const names[] = {"worker-1", "worker-2", "worker-3"}, *const addresses[] = {"a:1", "b:2",
                                                                                           "c:3"};
  weir__view__init(&f.view);
  for (int i = 0; i < MEMBERS; i++) {
    weir__assignment__init(&f.members[i]);
    f.members[i].worker = names[i];
    f.members[i].address = addresses[i];
    f.members[i].team = 7;
    f.members[i].microbatch_begin = 2;
    f.members[i].microbatch_end = 4;
    f.list[i] = &f.members[i];
  }
  f.view.workers = f.list;
  f.view.n_workers = MEMBERS;
  f.view.incarnation = 3;
  f.view.number = ((uint64_t)TERM << 32) + 9;
  *state = &f;
  return 0;
}

static void neighbours_are_those_before_and_behind_in_the_list(void **state) {
  struct fixture *f = *state;
  struct mates mates;
  assert_true(mates_read(&f->view, "worker-2", &MIDDLE, &mates));
  assert_true(mates.number == 7 && mates.term == TERM && mates.incarnation == 3 &&
              mates.view == f->view.number);
  assert_string_equal(mates.below, "a:1");
  assert_string_equal(mates.above, "c:3");
  assert_true(mates_read(&f->view, "worker-1", &LOWEST, &mates));
  assert_string_equal(mates.below, "");
  assert_string_equal(mates.above, "b:2");
  assert_true(mates_read(&f->view, "worker-3", &HIGHEST, &mates));
  assert_string_equal(mates.below, "b:2");
  assert_string_equal(mates.above, "");
}

static void who_is_in_no_team_has_no_mates(void **state) {
  struct fixture *f = *state;
  struct mates mates;
  f->members[1].team = 0;
  assert_true(mates_read(&f->view, "worker-2", &MIDDLE, &mates));
  assert_int_equal(mates.number, 0);
  assert_true(mates_read(&f->view, "worker-9", &MIDDLE, &mates));
  assert_int_equal(mates.number, 0);
}

static void a_team_that_cannot_be_is_none(void **state) {
  struct fixture *f = *state;
  static char address[MATE_ADDRESS_MAX + 2];
  struct mates mates;
  assert_false(mates_read(&f->view, "worker-1", &MIDDLE, &mates)); /* nobody is below */
  assert_int_equal(mates.number, 0);
  assert_false(mates_read(&f->view, "worker-3", &MIDDLE, &mates));
  assert_false(mates_read(&f->view, "worker-2", &LOWEST, &mates)); /* somebody is */
  assert_false(mates_read(&f->view, "worker-2", &WHOLE, &mates));
  f->members[2].microbatch_end = 5;
  assert_false(mates_read(&f->view, "worker-2", &MIDDLE, &mates));
  f->members[2].microbatch_end = 4;
  memset(address, 'x', sizeof address - 1);
  f->members[2].address = address;
  assert_false(mates_read(&f->view, "worker-2", &MIDDLE, &mates));
  f->members[2].address = "";
  assert_false(mates_read(&f->view, "worker-2", &MIDDLE, &mates));
}

static void a_team_is_another_with_another_number_term_or_incarnation(void **state) {
  struct fixture *f = *state;
  struct mates mates, other;
  mates_read(&f->view, "worker-2", &MIDDLE, &mates);
  f->view.number++;
  mates_read(&f->view, "worker-2", &MIDDLE, &other);
  assert_true(mates_are_same(&mates, &other));
  other.number++;
  assert_false(mates_are_same(&mates, &other));
  other = mates, other.term++;
  assert_false(mates_are_same(&mates, &other));
  other = mates, other.incarnation++;
  assert_false(mates_are_same(&mates, &other));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, setup)
  const struct CMUnitTest tests[] = {
      TEST(neighbours_are_those_before_and_behind_in_the_list),
      TEST(who_is_in_no_team_has_no_mates),
      TEST(a_team_that_cannot_be_is_none),
      TEST(a_team_is_another_with_another_number_term_or_incarnation),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
