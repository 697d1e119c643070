/* Members that do not know what a run's train.compression names are not given the run, also where it admits
   any mixture of machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"

static char *names[] = {"bf16", "int8", "of-a-later-build"};

static void member_that_knows_joins(struct core_fixture *f, uint64_t key, Weir__Role role, size_t n_names) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = role;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.address = role == WEIR__ROLE__SERVER ? "host:9" : "";
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.compressors = names;
  hello.n_compressors = n_names;
  says_hello(f, key, &hello);
}

static Weir__CompressionSpec compression; /* of the test's runs */

static void workers_that_do_not_know_it_compute_other_runs(void **state) {
  struct core_fixture *f = *state;
  weir__compression_spec__init(&compression);
  compression.gradients = "int8";
  compression.has_parts = true;
  compression.parts = 2;
  f->admits_any = true;
  f->compression = &compression;
  member_that_knows_joins(f, S1, WEIR__ROLE__SERVER, 3);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 2);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(f->told[W1].load, "");
  assert_non_null(
      strstr(info_of_run(f, RUN).message,
             "workers that may compute it: 0 of the 1 there: worker-1 (host) does not know what the "
             "run's train.compression names: a newer weir-worker is needed"));
  member_that_knows_joins(f, 5, WEIR__ROLE__WORKER, 1); /* bf16 alone */
  assert_string_equal(f->told[5].load, "");
  member_that_knows_joins(f, W2, WEIR__ROLE__WORKER, 3);
  assert_string_equal(f->told[W2].load, RUN);
  f->compression = NULL;
  user_submits(f, "mlp-bbbbbb", 1, 1);
  assert_true(strcmp(f->told[W1].load, "mlp-bbbbbb") == 0 || strcmp(f->told[5].load, "mlp-bbbbbb") == 0);
}

/* Nor does such a server, though the first one, say of which kind the run's servers are. */
static void servers_that_do_not_know_it_are_given_no_block(void **state) {
  struct core_fixture *f = *state;
  weir__compression_spec__init(&compression);
  compression.weights = "bf16";
  f->compression = &compression;
  for (int any = 0; any <= 1; any++) {
    const char *run = any ? "mlp-bbbbbb" : RUN;
    f->admits_any = any != 0;
    if (!any) {
      member_joins(f, S1, WEIR__ROLE__SERVER, 0, "build-0");
      member_that_knows_joins(f, S2, WEIR__ROLE__SERVER, 2);
      member_that_knows_joins(f, W1, WEIR__ROLE__WORKER, 2);
    }
    user_submits(f, run, 1, 1);
    worker_loads(f, W1, run);
    assert_string_equal(f->told[S2].load, run);
    assert_int_equal(f->told[S2].load_servers, 1);
    assert_string_equal(f->told[S1].load, "");
    user_cancels(f, run);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(workers_that_do_not_know_it_compute_other_runs),
      TEST(servers_that_do_not_know_it_are_given_no_block),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
