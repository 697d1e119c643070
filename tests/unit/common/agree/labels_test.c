/* Labels: what is read, what is refused, who has what is required. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/labels.h"
#include "common/base/memory.h"

static struct labels labels_of(const char *text) {
  struct labels labels = {0};
  struct err err = ERR_NONE;
  if (labels_read(&labels, text, &err))
    fail_msg("'%s': %s", text, err.text);
  return labels;
}

static void refuse(const char *text, const char *wanted) {
  struct labels labels = labels_of("taken=1");
  struct err err = ERR_NONE;
  assert_int_equal(labels_read(&labels, text, &err), ERR_INVALID);
  if (!strstr(err.text, wanted))
    fail_msg("'%s' does not hold '%s'", err.text, wanted);
  labels_free(&labels);
}

static void labels_are_read_and_written(void **state) {
  char text[LABELS_TEXT_MAX];
  struct labels labels = labels_of("gpu=h200,zone=eu-1/a"), copy;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(labels_read(&labels, "n_1.x=0", &err), 0);
  assert_string_equal(labels_write(labels, text), "gpu=h200, zone=eu-1/a, n_1.x=0");
  assert_string_equal(labels_find(labels, "zone"), "eu-1/a");
  assert_null(labels_find(labels, "zon"));
  copy = labels_copy(labels);
  labels_free(&labels);
  assert_string_equal(labels_write(labels, text), "");
  assert_string_equal(labels_write(copy, text), "gpu=h200, zone=eu-1/a, n_1.x=0");
  labels_free(&copy);
}

static void what_is_no_label_is_refused(void **state) {
  char *long_word = mem_printf("%064d", 1), *text = mem_printf("key=%s", long_word);
  (void)state;
  refuse("", "'' is no label: KEY=VALUE is wanted, as gpu=h200");
  refuse("gpu", "'gpu' is no label: KEY=VALUE");
  refuse("=h200", "'=h200' is no label: key and value have 1 to 63 letters, digits, '.', '_', '-' or '/'");
  refuse("gpu=", "'gpu=' is no label");
  refuse("gpu=h 200", "'gpu=h 200' is no label");
  refuse("gpu=a=b", "'gpu=a=b' is no label");
  refuse("gpu=h200,", "'' is no label");
  refuse("gpu=\x1b[2J", "is no label");
  refuse("gpu=h200,taken=2", "label 'taken' is given twice");
  refuse(text, "is no label");
  refuse(text + 4, "is no label");
  refuse("a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1", "17 labels: at most 16");
  free(text);
  free(long_word);
}

/* Every byte at every place, and every prefix. */
static void hostile_texts_never_crash_the_reader(void **state) {
  static const char good[] = "gpu=h200,zone=a";
  (void)state;
  for (size_t at = 0; at < sizeof good - 1; at++)
    for (int byte = 0; byte < 256; byte++) {
      char *text = mem_strdup(good);
      struct labels labels = {0};
      struct err err = ERR_NONE;
      text[at] = (char)byte;
      if (labels_read(&labels, text, &err) == 0)
        assert_int_equal(labels_check(labels, &err), 0);
      labels_free(&labels);
      free(text);
    }
}

static void whoever_has_all_that_is_required_may_have_more(void **state) {
  struct labels has = labels_of("gpu=h200,zone=a"), one = labels_of("zone=a"), other = labels_of("zone=b"),
                more = labels_of("zone=a,gpu=h200,rack=1"), none = {0};
  (void)state;
  assert_true(labels_include(has, one) && labels_include(has, has) && labels_include(has, none));
  assert_false(labels_include(has, other) || labels_include(has, more) || labels_include(none, one));
  labels_free(&has);
  labels_free(&one);
  labels_free(&other);
  labels_free(&more);
}

static void the_environment_gives_labels_where_there_are_none(void **state) {
  struct labels labels = {0};
  struct err err = ERR_NONE;
  (void)state;
  unsetenv("WEIR_LABELS");
  assert_int_equal(labels_read_usual(&labels, &err), 0);
  assert_int_equal(labels.n, 0);
  setenv("WEIR_LABELS", "zone=a", true);
  assert_int_equal(labels_read_usual(&labels, &err), 0);
  assert_string_equal(labels_find(labels, "zone"), "a");
  setenv("WEIR_LABELS", "zone", true);
  assert_int_equal(labels_read_usual(&labels, &err), 0); /* not asked */
  labels_free(&labels);
  assert_int_equal(labels_read_usual(&labels, &err), ERR_INVALID);
  assert_string_equal(err.text, "WEIR_LABELS: 'zone' is no label: KEY=VALUE is wanted, as gpu=h200");
  labels_free(&labels);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(labels_are_read_and_written),
      cmocka_unit_test(what_is_no_label_is_refused),
      cmocka_unit_test(hostile_texts_never_crash_the_reader),
      cmocka_unit_test(whoever_has_all_that_is_required_may_have_more),
      cmocka_unit_test(the_environment_gives_labels_where_there_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
