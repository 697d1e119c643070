/* Data roots of tenants: how they are written, which workers are told of them, and which may have such a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/state.h"
#include "tests/support/coordinator/core_run.h"

static const char A[] = "mlp-aaaaaa", B[] = "mlp-bbbbbb", C[] = "mlp-cccccc";

static void a_data_root_has_the_tenants_name_where_it_was_given_with_stars(void **state) {
  static const char *const texts[] = {"vision:data_root=a..b/images,runs=1", "nlp:data_root=/srv/*/all-*",
                                      "audio:runs=1", "*:data_root=tenants/*"};
  static const char *const wanted[][2] = {
      {"vision", "a..b/images"}, {"nlp", "/srv/nlp/all-nlp"}, {"audio", NULL}, {"others", "tenants/others"}};
  struct quotas quotas = quotas_from(texts, 4);
  struct arena arena;
  (void)state;
  arena_init(&arena);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    const char *found = quota_data_root(&quotas, wanted[i][0], &arena);
    if (wanted[i][1] ? !found || strcmp(found, wanted[i][1]) != 0 : found != NULL)
      fail_msg("%s: %s", wanted[i][0], found);
  }
  assert_null(quota_data_root(NULL, "vision", &arena));
  arena_fini(&arena);
  quotas_fini(&quotas);
}

/* As when the file of them has changed. */
static void quotas_become(struct core_fixture *f, struct quotas *quotas, const char *text) {
  struct err err = ERR_NONE;
  quotas_fini(quotas);
  assert_int_equal(quotas_add(quotas, text, &err), 0);
  core_step(f, &(struct coordinator_event){.kind = EVENT_QUOTAS});
}

static void confining_worker_joins(struct core_fixture *f, uint64_t key) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.confines = true;
  says_hello(f, key, &hello);
}

/* What the newest step told the member of the folder of a run that it is to load; NULL: it was told of none.
 */
static const char *told_data_root(const struct core_fixture *f, uint64_t key) {
  for (int i = 0; i < f->actions.count; i++) {
    const struct coordinator_action *action = &f->actions.items[i];
    if (action->kind == ACTION_ORDER && action->member == key &&
        action->order->body_case == WEIR__ORDER__BODY_LOAD)
      return action->order->load->data_root;
  }
  return NULL;
}

static void workers_are_told_the_data_root_of_a_runs_tenant(void **state) {
  static const char *const texts[] = {"*:data_root=tenants/*", "nlp:runs=9"};
  struct quotas quotas = quotas_from(texts, 2);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  server_joins(f, S1);
  confining_worker_joins(f, W1);
  tenant_submits(f, A, "vision");
  assert_string_equal(told_data_root(f, W1), "tenants/vision");
  user_cancels(f, A);
  tenant_submits(f, B, "nlp");
  assert_string_equal(told_data_root(f, W1), "");
  quotas_become(f, &quotas, "nlp:data_root=elsewhere");
  user_cancels(f, B);
  tenant_submits(f, C, "nlp");
  assert_string_equal(told_data_root(f, W1), "elsewhere");
  quotas_fini(&quotas);
}

static void a_worker_that_confines_no_run_is_given_none_of_a_tenant_with_a_data_root(void **state) {
  static const char *const texts[] = {"vision:data_root=vision"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  tenant_submits(f, A, "vision");
  assert_state(f, A, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(f->told[W1].load, "");
  assert_non_null(
      strstr(info_of_run(f, A).message,
             "workers that may compute it: 0 of the 1 there: worker-1 (host) keeps no run's files "
             "below its tenant's data_root: a newer weir-worker is needed"));
  confining_worker_joins(f, W2);
  assert_string_equal(f->told[W2].load, A);
  tenant_submits(f, B, "nlp");
  assert_string_equal(f->told[W1].load, B);
  user_cancels(f, B);
  quotas_become(f, &quotas, "*:data_root=*");
  tenant_submits(f, C, "nlp");
  assert_state(f, C, WEIR__RUN_STATE__QUEUED);
  quotas_become(f, &quotas, "vision:runs=9");
  assert_string_equal(f->told[W1].load, C);
  quotas_fini(&quotas);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_data_root_has_the_tenants_name_where_it_was_given_with_stars),
      TEST(workers_are_told_the_data_root_of_a_runs_tenant),
      TEST(a_worker_that_confines_no_run_is_given_none_of_a_tenant_with_a_data_root),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
