/* Forks from memory as the coordinator orders them: what the parent has here is not read from the store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/parameters/fork_fixture.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/role_fixture.h"

/* "unit-1" stands at version 1, which is its checkpoint and the base of its fork "unit-2". */
static void parent_stands(struct role_fixture *f, char **base) {
  const Weir__MemberMessage *message;
  struct fork_order order = {.id = "unit-2", .of = "unit-1"};
  role_init(f);
  order_load(f);
  fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  push_version(&f->workers, 0);
  order_write(f, 1);
  message = fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  free(commit_version(&f->store.base, message->written, f->model_sha256));
  order.spec = make_order(1, 1)->spec;
  *base = fork_commit(&f->store.base, &order, 1);
}

static void order_fork(struct role_fixture *f, const char *base, Weir__ForkSource *from) {
  Weir__LoadRun load = *make_order(1, 1);
  load.run = (char *)"unit-2";
  load.step = 1;
  load.manifest = (char *)base;
  load.from = from;
  send_load(f, &load);
}

static Weir__ForkSource source_of(const char *run) {
  Weir__ForkSource from = WEIR__FORK_SOURCE__INIT;
  from.run = (char *)run;
  from.incarnation = from.step = 1;
  return from;
}

static void a_fork_is_loaded_from_its_parents_memory(void **state) {
  struct role_fixture f;
  Weir__ForkSource from = source_of("unit-1");
  const Weir__MemberMessage *message;
  float parents, own;
  char *base;
  (void)state;
  parent_stands(&f, &base);
  fork_hide_blocks(&f.store); /* it could not be read */
  order_fork(&f, base, &from);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  assert_string_equal(message->loaded->run, "unit-2");
  order_unload(&f); /* the parent; the fork has what it had */
  f.workers.called = "unit-2";
  for (uint64_t step = 1; step < STEPS; step++)
    push_version(&f.workers, step);
  pull_first_element(&f.workers, 0, STEPS, &own);
  f.workers.called = NULL;
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  for (uint64_t step = 0; step < STEPS; step++)
    push_version(&f.workers, step);
  pull_first_element(&f.workers, 0, STEPS, &parents);
  assert_true(own == parents);
  role_fini(&f);
  free(base);
}

/* It wants the blocks that are not there. */
static void assert_reads(struct role_fixture *f, const char *base, Weir__ForkSource *from, int times) {
  const Weir__MemberMessage *message;
  order_fork(f, base, from);
  message = fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, times);
  assert_true(message->refused->lost_checkpoint);
  assert_non_null(strstr(message->refused->message, "run 'unit-2' at version 1: block 0, key "));
}

static void a_source_that_is_none_is_read_around(void **state) {
  static const char *const names[] = {"", "unit-2", "unit-3", "../unit-1", "\x01"};
  struct role_fixture f;
  Weir__ForkSource from;
  char *base;
  int times = 0;
  (void)state;
  parent_stands(&f, &base);
  from = source_of("unit-3");
  order_fork(&f, base, &from);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  order_unload_of(&f, "unit-2");
  fork_hide_blocks(&f.store);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    from = source_of(names[i]);
    assert_reads(&f, base, &from, ++times);
  }
  from = source_of("unit-1");
  from.incarnation = 2;
  assert_reads(&f, base, &from, ++times);
  from = source_of("unit-1");
  from.step = 2;
  assert_reads(&f, base, &from, ++times);
  role_fini(&f);
  free(base);
}

int main(void) {
  float_setting_apply();
  log_set_level(LOG_ERROR + 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fork_is_loaded_from_its_parents_memory),
      cmocka_unit_test(a_source_that_is_none_is_read_around),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
