/* Messages of what a page asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/ui/request_json.h"
#include "training.pb-c.h"

static struct arena arena;
static struct err err;

/* NULL: it is refused. */
static void *read_as(const ProtobufCMessageDescriptor *type, const char *text) {
  json_error_t where;
  json_t *json = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
  ProtobufCMessage *message = NULL;
  assert_non_null(json);
  err = ERR_NONE;
  request_from_json(type, json, &arena, &message, &err);
  json_decref(json);
  return err.code ? NULL : message;
}

static int arena_begin(void **state) {
  (void)state;
  arena_init(&arena);
  return 0;
}

static int arena_end(void **state) {
  (void)state;
  arena_fini(&arena);
  return 0;
}

static void fields_are_set_by_their_names(void **state) {
  Weir__SetRequest *set =
      read_as(&weir__set_request__descriptor, "{\"run\": \"a-1\", \"settings\": [\"priority=1\", \"x=\"]}");
  Weir__SeriesRequest *series =
      read_as(&weir__series_request__descriptor, "{\"points\": 800, \"since\": \"18446744073709551615\"}");
  (void)state;
  assert_non_null(set);
  assert_string_equal(set->run, "a-1");
  assert_int_equal(set->n_settings, 2);
  assert_string_equal(set->settings[1], "x=");
  assert_non_null(series);
  assert_int_equal(series->points, 800);
  assert_true(series->since == UINT64_MAX);
  assert_string_equal(series->run, "");
  assert_int_equal(series->n_metrics, 0);
}

static void messages_and_optional_fields_are_set(void **state) {
  Weir__ExtendSweepRequest *extend = read_as(
      &weir__extend_sweep_request__descriptor,
      "{\"sweep\": \"s\", \"budget\": {\"trials\": \"7\", \"seconds\": 2.5}, \"counts_used\": \"true\"}");
  (void)state;
  assert_non_null(extend);
  assert_true(extend->counts_used);
  assert_true(extend->budget->has_trials && extend->budget->trials == 7);
  assert_true(extend->budget->has_seconds && extend->budget->seconds > 2.4);
  assert_false(extend->budget->has_steps);
}

static void assert_refused(const ProtobufCMessageDescriptor *type, const char *text, const char *named) {
  assert_null(read_as(type, text));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, named));
}

static void what_is_no_value_of_a_field_is_refused_by_its_name(void **state) {
  static const char *const texts[][2] = {{"[]", "SetRequest"},
                                         {"null", "SetRequest"},
                                         {"\"run\"", "SetRequest"},
                                         {"{\"name\": 1}", "'name'"},
                                         {"{\"run\": 1}", "run"},
                                         {"{\"run\": \"a\\u0000b\"}", "run"},
                                         {"{\"run\": null}", "run"},
                                         {"{\"run\": \"a\\nb\"}", "run"},
                                         {"{\"run\": [\"a\"]}", "run"},
                                         {"{\"settings\": \"a\"}", "settings"},
                                         {"{\"settings\": [1]}", "settings"}};
  static const char *const numbers[] = {
      "-1",     "1.5",    "\"-1\"", "\"1e3\"",    "\"\"",
      "\" 1\"", "\"1 \"", "true",   "4294967296", "\"99999999999999999999\""};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    assert_refused(&weir__set_request__descriptor, texts[i][0], texts[i][1]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    char *text = arena_printf(&arena, "{\"points\": %s}", numbers[i]);
    assert_refused(&weir__series_request__descriptor, text, "points");
  }
  assert_refused(&weir__extend_sweep_request__descriptor, "{\"counts_used\": 1}", "counts_used");
  assert_refused(&weir__extend_sweep_request__descriptor, "{\"budget\": 1}", "SweepBudget");
  assert_refused(&weir__extend_sweep_request__descriptor, "{\"budget\": {\"seconds\": \"nan\"}}", "seconds");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(fields_are_set_by_their_names, arena_begin, arena_end),
      cmocka_unit_test_setup_teardown(messages_and_optional_fields_are_set, arena_begin, arena_end),
      cmocka_unit_test_setup_teardown(what_is_no_value_of_a_field_is_refused_by_its_name, arena_begin,
                                      arena_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
