/* Which fields of CSV files `weir init` takes for features and for the label. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/drafts/csv_columns.h"

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void assert_columns(const struct csv_columns *columns, const char *wanted) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  csv_columns_write(out, columns, "x");
  fclose(out);
  assert_string_equal(text, wanted);
  free(text);
}

/* What a spec says of a file, for a model of so many features; and words of the doubt, or of the note. */
struct csv_case {
  const char *text, *wanted, *said;
  int64_t n_features;
};

static void check_cases(const struct csv_case *cases, size_t n) {
  char path[] = "/tmp/weir-csv-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  for (size_t c = 0; c < n; c++) {
    struct csv_columns columns;
    const char *said;
    write_file(path, cases[c].text);
    csv_columns_choose(path, cases[c].n_features, &columns);
    assert_columns(&columns, cases[c].wanted);
    said = columns.doubt ? columns.doubt : columns.note;
    if (cases[c].said ? !said || !strstr(said, cases[c].said) : said != NULL)
      fail_msg("'%s' is said of '%s'", said ? said : "", cases[c].text);
    csv_columns_fini(&columns);
  }
  unlink(path);
}

static void fields_are_features_but_for_the_label(void **state) {
  static const struct csv_case cases[] = {
      {"a,b,c\n1,2,3\n", "columns: {x: \"a:b\", labels: \"c\"}", NULL, 2},
      {"a,Label,c,d\r\n", "columns: {x: \"a,c:d\", labels: \"Label\"}", NULL, 3},
      {"y,a\n", "columns: {x: \"a\", labels: \"y\"}", NULL, 1},
      {"\xef\xbb\xbf"
       "a,b,y\r\n",
       "columns: {x: \"a:b\", labels: \"y\"}", NULL, 2},
      {"\"a\",\"b\",\"y\"\n", "columns: {x: \"a:b\", labels: \"y\"}", NULL, 2},
      {"a,\tb , y\n", "columns: {x: \"a:b\", labels: \"y\"}", NULL, 2},
      {"1,2.5,-3e4\n", "header: false, columns: {x: \"1:2\", labels: \"3\"}", NULL, 2},
      {"\"1\",\"2\"\n", "header: false, columns: {x: \"1\", labels: \"2\"}", NULL, 1},
      {"\n\r\n1,2\n", "header: false, columns: {x: \"1\", labels: \"2\"}", NULL, 1},
      {"\n\r\na,y\n", "columns: {x: \"a\", labels: \"y\"}", NULL, 1},
      {"only\n", "columns: {x: \"FILL IN\", labels: \"only\"}", "it has 1 fields", 1},
      {"a,b,c\n", "columns: {x: \"a:b\", labels: \"c\"}", "it has 3 fields, which should be the 3 features",
       3},
      {"", "header: false, columns: {x: \"1:2\", labels: \"3\"}", "it has no first line that can be read", 2},
      {"\"a,b\n", "header: false, columns: {x: \"1:2\", labels: \"3\"}", "no first line", 2},
      {"a;b;y\n1,5;2,5;0\n", "delimiter: \";\", columns: {x: \"a:b\", labels: \"y\"}", NULL, 2},
      {"a\t\"b c\"\ty\n", "delimiter: \"\\t\", columns: {x: \"a:b c\", labels: \"y\"}", NULL, 2},
      {"a|b|y|c\n", "delimiter: \"|\", columns: {x: \"a:b,c\", labels: \"y\"}", NULL, 3},
      {"\"a,b\";c,d;y\n", "delimiter: \";\", columns: {x: \"FILL IN\", labels: \"y\"}",
       "the name of field 1, 'a,b', has a comma, or blanks at its ends: rename it", 2},
      {"a;b,c\n", "columns: {x: \"a;b\", labels: \"c\"}", NULL, 1},
  };
  (void)state;
  check_cases(cases, sizeof cases / sizeof *cases);
}

static void a_record_is_a_header_unless_all_its_fields_are_numbers(void **state) {
  static const struct csv_case cases[] = {
      {"0,1,2,label\n", "columns: {x: \"0:2\", labels: \"label\"}", NULL, 3},
      {"nan,inf,0x1,infinity\n", "columns: {x: \"nan:0x1\", labels: \"infinity\"}", NULL, 3},
      {",a,b,y\n", "columns: {x: \"a:b\", labels: \"y\"}", "field 1 has no name, as pandas writes", 2},
      {",a,b,y\n", "columns: {x: \"FILL IN\", labels: \"y\"}", "field 1 has no name: give it one", 3},
      {",0,1,2\n", "columns: {x: \"0:1\", labels: \"2\"}", "field 1 has no name, as pandas writes", 2},
  };
  (void)state;
  check_cases(cases, sizeof cases / sizeof *cases);
}

static void a_field_that_columns_cannot_name_is_doubted(void **state) {
  static const struct csv_case cases[] = {
      {"a,,\"b,c\",d,y\n", "columns: {x: \"a:d\", labels: \"y\"}", NULL, 4},
      {"a,b,\n", "columns: {x: \"a:b\", labels: \"FILL IN\"}", "field 3 has no name: give it one", 2},
      {"a,\"b,c\",y\n", "columns: {x: \"FILL IN\", labels: \"y\"}", "the name of field 2, 'b,c', has a comma",
       2},
      {"a,\" b\",y\n", "columns: {x: \"FILL IN\", labels: \"y\"}", "blanks at its ends", 2},
      {"a,b,a,y\n", "columns: {x: \"FILL IN\", labels: \"y\"}", "more than one field is called 'a'", 3},
      {"a,b\xe9,y\n", "columns: {x: \"FILL IN\", labels: \"y\"}",
       "the name of field 2, 'b?', is not UTF-8: save", 2},
      {"a,b\xe9,c,y\n", "columns: {x: \"a:c\", labels: \"y\"}", NULL, 3},
      {"a:1,b:2,c,d:4,y\n", "columns: {x: \"a:1,b:2,c:d:4\", labels: \"y\"}", NULL, 4},
      {"a,b,c,y,a:c\n", "columns: {x: \"a:b,c,a:c\", labels: \"y\"}", NULL, 4},
      {"a\\b,\"c\"\"d\",y\n", "columns: {x: \"a\\\\b:c\\\"\\\"d\", labels: \"y\"}", NULL, 2},
  };
  (void)state;
  check_cases(cases, sizeof cases / sizeof *cases);
}

static void the_label_is_the_first_of_its_usual_names_that_is_there(void **state) {
  static const struct csv_case cases[] = {
      {"y,class,target,labels,label,z\n", "columns: {x: \"y:labels,z\", labels: \"label\"}", NULL, 5},
      {"y,Target,class,z\n", "columns: {x: \"y,class:z\", labels: \"Target\"}", NULL, 3},
      {"label,a,Label\n", "columns: {x: \"a:Label\", labels: \"label\"}", NULL, 2},
  };
  (void)state;
  check_cases(cases, sizeof cases / sizeof *cases);
}

static void a_pipe_is_not_waited_for(void **state) {
  char folder[] = "/tmp/weir-csv-XXXXXX", path[64];
  struct csv_columns columns;
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/train.csv", folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  alarm(20);
  csv_columns_choose(path, 2, &columns);
  alarm(0);
  assert_string_equal(columns.doubt, "it has no first line that can be read");
  csv_columns_fini(&columns);
  unlink(path);
  rmdir(folder);
}

static void a_header_may_be_long(void **state) {
  enum { FEATURES = 9000 };
  char path[] = "/tmp/weir-csv-XXXXXX";
  int fd = mkstemp(path);
  FILE *file = fdopen(fd, "w");
  struct csv_columns columns;
  (void)state;
  for (int f = 1; f <= FEATURES; f++)
    fprintf(file, "feature_%d,", f);
  fprintf(file, "label\n");
  fclose(file);
  csv_columns_choose(path, FEATURES, &columns);
  assert_columns(&columns, "columns: {x: \"feature_1:feature_9000\", labels: \"label\"}");
  assert_null(columns.doubt);
  csv_columns_fini(&columns);
  unlink(path);
}

/* What is evaluated has the training data's fields, wherever they lie in its file. */
/* Names of genes, none of which can begin a range. Fields are found by their order, not one by one. */
static void many_names_with_colons_are_listed(void **state) {
  enum { FEATURES = 20000 };
  char path[] = "/tmp/weir-csv-XXXXXX";
  struct csv_columns columns, again;
  char *wanted = NULL;
  size_t size;
  FILE *file = fdopen(mkstemp(path), "w"), *out = open_memstream(&wanted, &size);
  (void)state;
  fputs("columns: {x: \"", out);
  for (int f = 0; f < FEATURES; f++) {
    fprintf(file, "chr1:%d,", f);
    fprintf(out, "%schr1:%d", f ? "," : "", f);
  }
  fputs("y\n", file);
  fputs("\", labels: \"y\"}", out);
  fclose(file);
  fclose(out);
  csv_columns_choose(path, FEATURES, &columns);
  csv_columns_match(path, &columns, &again);
  assert_null(columns.doubt);
  assert_columns(&columns, wanted);
  assert_columns(&again, wanted);
  csv_columns_fini(&columns);
  csv_columns_fini(&again);
  unlink(path);
  free(wanted);
}

static void fields_to_evaluate_are_those_of_the_training_data(void **state) {
  static const struct {
    const char *train, *eval, *wanted, *doubt;
  } cases[] = {
      {"a,b,c,label\n", "a,b,c,label\n", "columns: {x: \"a:c\", labels: \"label\"}", NULL},
      {"a,b,c,label\n", "label,c,b,a\n", "columns: {x: \"a,b,c\", labels: \"label\"}", NULL},
      {"a,b,c,label\n", "id,label,b,c,a\n", "columns: {x: \"a,b:c\", labels: \"label\"}", NULL},
      {"a,b,c,y\n", "a;x;b;c;label;y\n", "delimiter: \";\", columns: {x: \"a,b:c\", labels: \"y\"}", NULL},
      {",a,b,c,y\n", "a,b,c,y\n", "columns: {x: \"a:c\", labels: \"y\"}", NULL},
      {"1,2,3,4\n", "5,6,7,8\n", "header: false, columns: {x: \"1:3\", labels: \"4\"}", NULL},
      {"a,b,c,label\n", "id,a,b,c\n", NULL, "it has no field 'label'"},
      {"a,b,c,label\n", "a,c,label\n", NULL, "it has no field 'b'"},
      {"a,b,c,label\n", "a,b,c,b,label\n", NULL, "it has more than one field 'b'"},
      {"a,\"b,1\",c,y\n", "c,\"b,1\",a,y\n", NULL, "the name of field 2, 'b,1', has a comma"},
      {"1,2,3,4\n", "5,6,7\n", NULL, "it has 3 fields, and the training data has 4"},
      {"a,b,c,y\n", "5,6,7,8\n", NULL, "only one has a header"},
      {"a,b,c,y\n", "", NULL, "it has no first line that can be read"},
  };
  char path[] = "/tmp/weir-csv-XXXXXX";
  int fd = mkstemp(path);
  (void)state;
  assert_true(fd >= 0);
  close(fd);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct csv_columns train, eval;
    write_file(path, cases[c].train);
    csv_columns_choose(path, 3, &train);
    write_file(path, cases[c].eval);
    csv_columns_match(path, &train, &eval);
    if (cases[c].wanted)
      assert_columns(&eval, cases[c].wanted);
    if (cases[c].doubt ? !eval.doubt || !strstr(eval.doubt, cases[c].doubt) : eval.doubt != NULL)
      fail_msg("'%s' is said of '%s'", eval.doubt ? eval.doubt : "", cases[c].eval);
    csv_columns_fini(&train);
    csv_columns_fini(&eval);
  }
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_are_features_but_for_the_label),
      cmocka_unit_test(a_record_is_a_header_unless_all_its_fields_are_numbers),
      cmocka_unit_test(a_field_that_columns_cannot_name_is_doubted),
      cmocka_unit_test(the_label_is_the_first_of_its_usual_names_that_is_there),
      cmocka_unit_test(a_pipe_is_not_waited_for),
      cmocka_unit_test(a_header_may_be_long),
      cmocka_unit_test(many_names_with_colons_are_listed),
      cmocka_unit_test(fields_to_evaluate_are_those_of_the_training_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
