/* What every store does with records: names, contents, listings, and guards that hold writers back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"
#include "tests/support/storage/store_suite.h"

static void a_record_is_replaced_whole(void **state) {
  struct store_suite *s = *state;
  suite_put_text(s, suite_name(s, "a/result"), "a long first text");
  suite_put_text(s, suite_name(s, "a/result"), "short");
  assert_record(s->store, suite_name(s, "a/result"), "short");
  suite_put_text(s, suite_name(s, "a/result"), "");
  assert_record(s->store, suite_name(s, "a/result"), "");
}

static void a_record_holds_any_bytes(void **state) {
  struct store_suite *s = *state;
  size_t size = 1 << 20, got_size;
  char *bytes = suite_content(s, 0, size);
  struct err err = ERR_NONE;
  void *got;
  for (int i = 0; i < 256; i++)
    bytes[i] = (char)i;
  assert_int_equal(
      store_put_record(s->store, &(struct store_record){suite_name(s, "bytes"), bytes, size, NULL}, &err), 0);
  assert_int_equal(store_get_record(s->store, suite_name(s, "bytes"), &got, &got_size, &err), 0);
  assert_int_equal(got_size, size);
  assert_memory_equal(got, bytes, size);
  free(got);
  free(bytes);
}

static void a_deleted_record_is_gone(void **state) {
  struct store_suite *s = *state;
  struct store_record guard = text_record(suite_name(s, "other"), "x");
  struct err err = ERR_NONE;
  suite_put_text(s, suite_name(s, "a"), "1");
  assert_int_equal(store_delete_record(s->store, suite_name(s, "a"), &guard, &err), ERR_STALE);
  assert_record(s->store, suite_name(s, "a"), "1");
  suite_put_text(s, suite_name(s, "other"), "x");
  assert_int_equal(store_delete_record(s->store, suite_name(s, "a"), &guard, &err), 0);
  assert_record(s->store, suite_name(s, "a"), NULL);
  assert_int_equal(store_delete_record(s->store, suite_name(s, "a"), NULL, &err), 0);
}

static void what_is_missing_is_not_found_by_name(void **state) {
  struct store_suite *s = *state;
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  void *data;
  size_t size;
  sha256_hex(&s->salt, sizeof s->salt, key);
  assert_false(suite_has(s, key));
  assert_int_equal(store_get(s->store, key, &data, &size, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, key));
  assert_int_equal(store_get_record(s->store, suite_name(s, "none"), &data, &size, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, suite_name(s, "none")));
  suite_put_text(s, suite_name(s, "a/b"), "x");
  assert_record(s->store, suite_name(s, "a"), NULL);
  assert_record(s->store, suite_name(s, "a/b/c"), NULL);
}

static void names_that_could_escape_are_refused(void **state) {
  struct store_suite *s = *state;
  static const char *const bad[] = {"",     "/etc", "a/../b", "..",         ".hidden", "a/.b",
                                    "a//b", "a/",   "Upper",  "with space", "a\nb",    "runs/\xc3\xa4"};
  static const char *const bad_keys[] = {"", "../../etc/passwd", "abc"};
  char upper[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  bool is_there;
  const char *key = upper;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct store_record guard = text_record(bad[i], NULL);
    assert_int_equal(suite_write_text(s, bad[i], "x", NULL, &err), ERR_INVALID);
    assert_int_equal(suite_write_text(s, suite_name(s, "a"), "x", &guard, &err), ERR_INVALID);
    assert_int_equal(store_delete_record(s->store, bad[i], NULL, &err), ERR_INVALID);
    assert_int_equal(store_get_record(s->store, bad[i], &data, &size, &err), ERR_INVALID);
  }
  assert_record(s->store, suite_name(s, "a"), NULL);
  for (size_t i = 0; i < sizeof bad_keys / sizeof *bad_keys; i++)
    assert_int_equal(store_get(s->store, bad_keys[i], &data, &size, &err), ERR_INVALID);
  memset(upper, 'A', sizeof upper - 1);
  upper[sizeof upper - 1] = 0;
  assert_int_equal(store_has_blocks(s->store, &key, 1, &is_there, &err), ERR_INVALID);
  assert_int_equal(store_delete_blocks(s->store, &key, 1, &err), ERR_INVALID);
}

/* rest: the expected names below the prefix, each with a space after it. */
static void assert_list(struct store_suite *s, const char *which, const char *rest) {
  char found[1024] = "";
  struct store_names names;
  struct err err = ERR_NONE;
  char *from = mem_printf("%s%s", s->prefix, which);
  assert_int_equal(store_list_records(s->store, from, &names, &err), 0);
  for (int i = 0; i < names.count; i++) {
    assert_memory_equal(names.items[i], s->prefix, strlen(s->prefix));
    strcat(found, names.items[i] + strlen(s->prefix));
    strcat(found, " ");
  }
  assert_string_equal(found, rest);
  store_names_fini(&names);
  free(from);
}

static void names_are_listed_by_any_prefix_ascending(void **state) {
  struct store_suite *s = *state;
  static const char *const all[] = {
      "runs/b/run",  "runs/a/run", "runs/a-2/run", "runs/ab/checkpoints/010", "runs/ab/checkpoints/002",
      "runs/ab/run", "run",        "z.y_x-1"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    suite_put_text(s, suite_name(s, all[i]), "x");
  assert_list(s, "",
              "/run /runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
              "/runs/ab/run /runs/b/run /z.y_x-1 ");
  assert_list(s, "/runs/a",
              "/runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
              "/runs/ab/run ");
  assert_list(s, "/runs/a/", "/runs/a/run ");
  assert_list(s, "/runs/ab/ch", "/runs/ab/checkpoints/002 /runs/ab/checkpoints/010 ");
  assert_list(s, "/runs/ab/checkpoints/0", "/runs/ab/checkpoints/002 /runs/ab/checkpoints/010 ");
  assert_list(s, "/runs/ab/checkpoints/002", "/runs/ab/checkpoints/002 ");
  assert_list(s, "/runs/ab/checkpoints/002x", "");
  assert_list(s, "/run",
              "/run /runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
              "/runs/ab/run /runs/b/run ");
  assert_list(s, "/z.y_", "/z.y_x-1 ");
  assert_list(s, "/nothing", "");
}

static void a_deleted_name_is_not_listed(void **state) {
  struct store_suite *s = *state;
  struct err err = ERR_NONE;
  suite_put_text(s, suite_name(s, "a/1"), "x");
  suite_put_text(s, suite_name(s, "a/2"), "x");
  assert_int_equal(store_delete_record(s->store, suite_name(s, "a/1"), NULL, &err), 0);
  assert_list(s, "/a/", "/a/2 ");
  suite_put_text(s, suite_name(s, "a/1"), "x");
  assert_list(s, "/a/", "/a/1 /a/2 ");
}

static void a_prefix_of_other_letters_is_refused(void **state) {
  struct store_suite *s = *state;
  static const char *const bad[] = {"Upper", "a*", "a b", "[a]"};
  struct store_names names;
  struct err err = ERR_NONE;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(store_list_records(s->store, bad[i], &names, &err), ERR_INVALID);
    assert_int_equal(names.count, 0);
  }
}

static void a_guard_of_absence_lets_one_writer_through(void **state) {
  struct store_suite *s = *state;
  struct store_record guard = text_record(suite_name(s, "term"), NULL);
  struct err err = ERR_NONE;
  assert_int_equal(suite_write_text(s, suite_name(s, "term"), "1", &guard, &err), 0);
  assert_int_equal(suite_write_text(s, suite_name(s, "term"), "2", &guard, &err), ERR_STALE);
  assert_non_null(strstr(err.text, suite_name(s, "term")));
  assert_record(s->store, suite_name(s, "term"), "1");
}

static void a_guard_holds_for_the_same_bytes_only(void **state) {
  struct store_suite *s = *state;
  static const char *const others[] = {"", "4", "42 ", "43", "420"};
  struct store_record guard;
  struct err err = ERR_NONE;
  suite_put_text(s, suite_name(s, "term"), "42");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    guard = text_record(suite_name(s, "term"), others[i]);
    assert_int_equal(suite_write_text(s, suite_name(s, "a"), "x", &guard, &err), ERR_STALE);
  }
  assert_record(s->store, suite_name(s, "a"), NULL);
  guard = text_record(suite_name(s, "term"), "42");
  assert_int_equal(suite_write_text(s, suite_name(s, "a"), "x", &guard, &err), 0);
  assert_record(s->store, suite_name(s, "a"), "x");
  suite_put_text(s, suite_name(s, "term"), "");
  guard = text_record(suite_name(s, "term"), "");
  assert_int_equal(suite_write_text(s, suite_name(s, "a"), "y", &guard, &err), 0);
  guard = text_record(suite_name(s, "term"), NULL);
  assert_int_equal(suite_write_text(s, suite_name(s, "a"), "z", &guard, &err), ERR_STALE);
  guard = text_record(suite_name(s, "nothing"), "");
  assert_int_equal(suite_write_text(s, suite_name(s, "a"), "z", &guard, &err), ERR_STALE);
  assert_record(s->store, suite_name(s, "a"), "y");
}

static void all_of_several_guards_must_hold(void **state) {
  struct store_suite *s = *state;
  struct err err = ERR_NONE;
  suite_put_text(s, suite_name(s, "term"), "7");
  suite_put_text(s, suite_name(s, "incarnation"), "3");
  for (int wrong = 0; wrong <= STORE_GUARDS_MAX; wrong++) {
    struct store_record guards[STORE_GUARDS_MAX] = {
        text_record(suite_name(s, "term"), wrong == 0 ? "6" : "7"),
        text_record(suite_name(s, "incarnation"), wrong == 1 ? "30" : "3"),
        text_record(suite_name(s, "none"), wrong == 2 ? "x" : NULL),
        text_record(suite_name(s, "manifest"), wrong == 3 ? "x" : NULL),
    };
    char expected[8];
    snprintf(expected, sizeof expected, "%d", wrong);
    for (int i = 1; i < STORE_GUARDS_MAX; i++)
      guards[i - 1].guard = &guards[i];
    assert_int_equal(suite_write_text(s, suite_name(s, "manifest"), expected, guards, &err),
                     wrong < STORE_GUARDS_MAX ? ERR_STALE : 0);
    if (wrong < STORE_GUARDS_MAX)
      assert_non_null(strstr(err.text, guards[wrong].name));
    assert_record(s->store, suite_name(s, "manifest"), wrong < STORE_GUARDS_MAX ? NULL : expected);
  }
  assert_record(s->store, suite_name(s, "term"), "7");
  assert_record(s->store, suite_name(s, "incarnation"), "3");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      ON_STORE(a_record_is_replaced_whole),
      ON_STORE(a_record_holds_any_bytes),
      ON_STORE(a_deleted_record_is_gone),
      ON_STORE(what_is_missing_is_not_found_by_name),
      ON_STORE(names_that_could_escape_are_refused),
      ON_STORE(names_are_listed_by_any_prefix_ascending),
      ON_STORE(a_deleted_name_is_not_listed),
      ON_STORE(a_prefix_of_other_letters_is_refused),
      ON_STORE(a_guard_of_absence_lets_one_writer_through),
      ON_STORE(a_guard_holds_for_the_same_bytes_only),
      ON_STORE(all_of_several_guards_must_hold),
  };
  return store_suite_run(tests, sizeof tests / sizeof *tests, 0);
}
